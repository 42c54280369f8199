#include "trainer/engine/config.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BUCKET_ELEMENTS 500000000 /* DeepSpeed's; a bucket is never larger than its unit */

const trp_zero_settings *trp_zero_config_settings(const trp_zero_config *config) {
    return &config->settings;
}

size_t trp_zero_config_notes(const trp_zero_config *config, const char *const **ret_notes) {
    *ret_notes = (const char *const *)config->notes;
    return config->note_count;
}

void trp_zero_config_free(trp_zero_config *config) {
    if (!config) {
        return;
    }
    for (size_t i = 0; i < config->note_count; i++) {
        free(config->notes[i]);
    }
    free(config->notes);
    free(config);
}

/* ---- The top level ---- */

static trp_code read_batch(trp_zero_config *config, json_t *root, int world, trp_error *err) {
    trpi_batch_triple t = {
        .has_train = json_object_get(root, "train_batch_size") != NULL,
        .has_micro = json_object_get(root, "train_micro_batch_size_per_gpu") != NULL,
        .has_accumulation = json_object_get(root, "gradient_accumulation_steps") != NULL,
    };
    trp_code code = trpi_json_i64(root, "config", "train_batch_size", false, &t.train, err);
    if (!code) {
        code =
            trpi_json_i64(root, "config", "train_micro_batch_size_per_gpu", false, &t.micro, err);
    }
    if (!code) {
        code = trpi_json_i64(root, "config", "gradient_accumulation_steps", false, &t.accumulation,
                             err);
    }
    if (!code) {
        code = trpi_batch_resolve(&t, world, err);
    }
    if (!code) {
        config->settings.train_batch = t.train;
        config->settings.micro_batch = t.micro;
        config->settings.accumulation = t.accumulation;
    }
    return code;
}

static bool is_one_of(const char *text, const char *a, const char *b) {
    return strcmp(text, a) == 0 || strcmp(text, b) == 0;
}

/* The key is DeepSpeed's in data_types; users also write it at the top, where DeepSpeed itself
 * ignores it. Here both take effect. */
static trp_code read_accumulation_dtype(trp_zero_config *config, json_t *root, trp_error *err) {
    static const char *const places[] = {"config", "data_types"};
    json_t *objects[] = {root, json_object_get(root, "data_types")};
    const char *seen = NULL;
    for (size_t i = 0; i < TRPI_COUNTOF(places); i++) {
        const char *dtype = NULL;
        if (objects[i]) {
            trp_code code =
                trpi_json_text(objects[i], places[i], "grad_accum_dtype", false, &dtype, err);
            if (code) {
                return code;
            }
        }
        if (!dtype) {
            continue;
        }
        if (is_one_of(dtype, "bf16", "bfloat16") || is_one_of(dtype, "fp16", "float16")) {
            return trpi_fail(err, TRP_EUNSUPPORTED,
                             "%s.grad_accum_dtype: \"%s\" is not supported in this version; "
                             "gradients are summed in fp32, so write \"fp32\" or leave it out",
                             places[i], dtype);
        }
        if (!is_one_of(dtype, "fp32", "float32")) {
            return trpi_fail(err, TRP_EINVALID,
                             "%s.grad_accum_dtype: \"%s\" is not one of fp32, bf16, fp16",
                             places[i], dtype);
        }
        seen = places[i];
    }
    if (seen) {
        return trpi_config_note(config, err, "%s.grad_accum_dtype: fp32 taken from here", seen);
    }
    return TRP_OK;
}

static trp_code read_precision(trp_zero_config *config, json_t *root, trp_error *err) {
    bool bf16 = false, fp16 = false;
    json_t *section = json_object_get(root, "bf16");
    json_t *older = json_object_get(root, "bfloat16");
    if (section && older) {
        return trpi_fail(err, TRP_EINVALID, "config: bf16 and bfloat16 are one section, give one");
    }
    section = section ? section : older;
    trp_code code = trpi_config_check(section, TRPI_SECTION_bf16, "bf16", config, err);
    if (!code && section) {
        code = trpi_json_bool(section, "bf16", "enabled", false, &bf16, err);
    }
    section = json_object_get(root, "fp16");
    if (!code) {
        code = trpi_config_check(section, TRPI_SECTION_fp16, "fp16", config, err);
    }
    if (!code && section) {
        code = trpi_json_bool(section, "fp16", "enabled", false, &fp16, err);
    }
    if (!code && bf16 && fp16) {
        code = trpi_fail(err, TRP_EINVALID, "config: fp16.enabled and bf16.enabled are both true");
    }
    if (!code && fp16) {
        code = trpi_fail(err, TRP_EUNSUPPORTED,
                         "fp16.enabled: fp16 is not supported in this version; bf16 is");
    }
    config->settings.compute = bf16 ? TRP_BF16 : TRP_F32;
    return code;
}

/* ---- zero_optimization ---- */

static trp_code check_offload(trp_zero_config *config, json_t *parent, const char *where,
                              const char *name, trp_error *err) {
    json_t *section = parent ? json_object_get(parent, name) : NULL;
    const char *device = "none";
    char place[64];
    if (!section) {
        return TRP_OK;
    }
    trpi_format(place, sizeof place, "%s.%s", where, name);
    trp_code code = trpi_config_check(section, TRPI_SECTION_offload, place, config, err);
    if (!code) {
        code = trpi_json_text(section, place, "device", false, &device, err);
    }
    if (code) {
        return code;
    }
    if (strcmp(device, "none") == 0) {
        return TRP_OK;
    }
    if (!is_one_of(device, "cpu", "nvme")) {
        return trpi_fail(err, TRP_EINVALID, "%s.device: \"%s\" is not one of none, cpu, nvme",
                         place, device);
    }
    if (strcmp(name, "offload_param") == 0 && config->settings.stage != 3) {
        return trpi_fail(err, TRP_EINVALID,
                         "%s: parameters can be offloaded at zero_optimization.stage 3 only, the "
                         "stage is %d",
                         place, config->settings.stage);
    }
    return trpi_fail(err, TRP_EUNSUPPORTED,
                     "%s.device: offloading to \"%s\" is not supported in this version", place,
                     device);
}

static trp_code read_zero(trp_zero_config *config, json_t *root, trp_error *err) {
    json_t *zero = json_object_get(root, "zero_optimization");
    int64_t stage = 0, bucket = BUCKET_ELEMENTS, gather = 2;
    trp_code code = trpi_config_check(zero, TRPI_SECTION_zero, "zero_optimization", config, err);
    if (!code && zero) {
        code = trpi_json_i64(zero, "zero_optimization", "stage", false, &stage, err);
    }
    if (!code && zero) {
        code = trpi_json_i64(zero, "zero_optimization", "reduce_bucket_size", false, &bucket, err);
    }
    if (!code && zero) {
        code =
            trpi_json_i64(zero, "zero_optimization", "allgather_bucket_size", false, &gather, err);
    }
    if (!code && gather % 2 != 0) {
        code = trpi_fail(err, TRP_EINVALID,
                         "zero_optimization.allgather_bucket_size: %lld is odd, it must be even",
                         (long long)gather);
    }
    config->settings.stage = (int)stage;
    config->settings.bucket_elements = bucket;
    static const char *const names[] = {"offload_param", "offload_optimizer"};
    for (size_t i = 0; !code && i < TRPI_COUNTOF(names); i++) {
        code = check_offload(config, zero, "zero_optimization", names[i], err);
        if (!code) {
            code = check_offload(config, root, "config", names[i], err);
        }
    }
    return code;
}

/* ---- optimizer ---- */

static trp_code read_betas(trp_zero_config *config, json_t *params, trp_error *err) {
    json_t *betas = json_object_get(params, "betas");
    double values[2];
    if (!betas) {
        return TRP_OK;
    }
    for (size_t i = 0; i < 2; i++) {
        json_t *beta = json_array_get(betas, i);
        values[i] = json_number_value(beta);
        /* As the float that the update computes with: 0.99999999 is 1 by then. */
        if (json_array_size(betas) != 2 || !json_is_number(beta) || values[i] < 0 ||
            (float)values[i] >= 1) {
            return trpi_fail(err, TRP_EINVALID,
                             "optimizer.params.betas: two numbers from 0 to below 1 are needed");
        }
    }
    config->settings.beta1 = values[0];
    config->settings.beta2 = values[1];
    return TRP_OK;
}

static trp_code read_optimizer(trp_zero_config *config, json_t *root, trp_error *err) {
    json_t *section = json_object_get(root, "optimizer");
    json_t *params = section ? json_object_get(section, "params") : NULL;
    const char *where = "optimizer.params", *type = "AdamW";
    trp_zero_settings *s = &config->settings;
    s->lr = 1e-3;
    s->beta1 = 0.9;
    s->beta2 = 0.999;
    s->eps = 1e-8;
    trp_code code = trpi_config_check(section, TRPI_SECTION_optimizer, "optimizer", config, err);
    if (!code && section) {
        code = trpi_json_text(section, "optimizer", "type", true, &type, err);
    }
    if (!code && strcasecmp(type, "Adam") != 0 && strcasecmp(type, "AdamW") != 0) {
        code = trpi_fail(err, TRP_EUNSUPPORTED,
                         "optimizer.type: \"%s\" is not supported, only Adam and AdamW (which are "
                         "the same here, as in DeepSpeed)",
                         type);
    }
    if (!code) {
        code = trpi_config_check(params, TRPI_SECTION_adam, where, config, err);
    }
    if (code || !params) {
        return code;
    }
    if (json_object_get(params, "max_grad_norm")) {
        return trpi_fail(err, TRP_EINVALID,
                         "optimizer.params.max_grad_norm: write config.gradient_clipping instead");
    }
    code = trpi_json_number(params, where, "lr", false, &s->lr, err);
    if (!code) {
        code = trpi_json_number(params, where, "eps", false, &s->eps, err);
    }
    if (!code) {
        code = trpi_json_number(params, where, "weight_decay", false, &s->weight_decay, err);
    }
    return code ? code : read_betas(config, params, err);
}

/* ---- scheduler ---- */

static trp_code read_warmup(trpi_lr *lr, json_t *params, trp_error *err) {
    const char *where = "scheduler.params", *shape = "log";
    trp_code code = trpi_json_i64(params, where, "warmup_num_steps", false, &lr->warmup, err);
    if (!code) {
        code = trpi_json_text(params, where, "warmup_type", false, &shape, err);
    }
    if (!code && !is_one_of(shape, "log", "linear")) {
        code = trpi_fail(err, TRP_EINVALID,
                         "scheduler.params.warmup_type: \"%s\" is not one of log, linear", shape);
    }
    lr->logarithmic = strcmp(shape, "log") == 0;
    return code;
}

static trp_code read_schedule_params(trp_zero_config *config, json_t *params, trp_error *err) {
    trpi_lr *lr = &config->lr;
    const char *where = "scheduler.params";
    trp_code code = read_warmup(lr, params, err);
    if (!code && lr->kind != TRPI_LR_WARMUP) {
        code = trpi_json_i64(params, where, "total_num_steps", true, &lr->total, err);
    }
    if (code || lr->kind == TRPI_LR_WARMUP_COSINE) {
        if (!code) {
            code = trpi_json_number(params, where, "warmup_min_ratio", false, &lr->min_ratio, err);
        }
        return code ? code
                    : trpi_json_number(params, where, "cos_min_ratio", false, &lr->end_ratio, err);
    }
    if (lr->kind == TRPI_LR_WARMUP_DECAY && !json_object_get(params, "warmup_max_lr")) {
        /* DeepSpeed's default, kept so that its configurations train the same way here. */
        lr->max = 0.001;
        code = trpi_config_note(config, err,
                                "scheduler.params.warmup_max_lr is not given: 0.001, as in "
                                "DeepSpeed, and not optimizer.params.lr");
    }
    if (!code) {
        code = trpi_json_number(params, where, "warmup_min_lr", false, &lr->min, err);
    }
    if (!code) {
        code = trpi_json_number(params, where, "warmup_max_lr", false, &lr->max, err);
    }
    if (!code && lr->min > lr->max) {
        code = trpi_fail(err, TRP_EINVALID,
                         "scheduler.params.warmup_min_lr: %g is above warmup_max_lr, %g", lr->min,
                         lr->max);
    }
    return code;
}

static trp_code read_scheduler(trp_zero_config *config, json_t *root, trp_error *err) {
    static const struct {
        const char *name;
        trpi_lr_kind kind;
        trpi_config_section section;
    } kinds[] = {
        {"WarmupLR", TRPI_LR_WARMUP, TRPI_SECTION_warmup},
        {"WarmupDecayLR", TRPI_LR_WARMUP_DECAY, TRPI_SECTION_decay},
        {"WarmupCosineLR", TRPI_LR_WARMUP_COSINE, TRPI_SECTION_cosine},
    };
    json_t *section = json_object_get(root, "scheduler");
    const char *type = NULL;
    config->lr = (trpi_lr){.kind = TRPI_LR_CONSTANT,
                           .max = config->settings.lr,
                           .end_ratio = 0.0001,
                           .warmup = 1000,
                           .logarithmic = true};
    if (!section) {
        return TRP_OK;
    }
    trp_code code = trpi_config_check(section, TRPI_SECTION_scheduler, "scheduler", config, err);
    if (!code) {
        code = trpi_json_text(section, "scheduler", "type", true, &type, err);
    }
    for (size_t i = 0; !code && i < TRPI_COUNTOF(kinds); i++) {
        if (strcmp(type, kinds[i].name) == 0) {
            json_t *params = json_object_get(section, "params");
            config->lr.kind = kinds[i].kind;
            code = trpi_config_check(params, kinds[i].section, "scheduler.params", config, err);
            if (!code) {
                json_t *none = params ? NULL : json_object();
                code = read_schedule_params(config, params ? params : none, err);
                json_decref(none);
            }
            return code;
        }
    }
    if (!code) {
        code = trpi_fail(err, TRP_EUNSUPPORTED,
                         "scheduler.type: \"%s\" is not supported, only WarmupLR, WarmupDecayLR "
                         "and WarmupCosineLR",
                         type);
    }
    return code;
}

/* ---- All of it ---- */

static trp_code read_config(trp_zero_config *config, json_t *root, int world, trp_error *err) {
    trp_zero_settings *s = &config->settings;
    s->clip_norm = 1.0;
    trp_code code = trpi_config_check(root, TRPI_SECTION_top, "config", config, err);
    if (!code) {
        code = trpi_config_check(json_object_get(root, "data_types"), TRPI_SECTION_data_types,
                                 "data_types", config, err);
    }
    if (!code) {
        code = trpi_config_check(json_object_get(root, "activation_checkpointing"),
                                 TRPI_SECTION_activation, "activation_checkpointing", config, err);
    }
    if (!code) {
        code = read_batch(config, root, world, err);
    }
    if (!code) {
        code = trpi_json_number(root, "config", "gradient_clipping", false, &s->clip_norm, err);
    }
    if (!code) {
        code = trpi_json_i64(root, "config", "steps_per_print", false, &s->steps_per_print, err);
    }
    if (!code) {
        code = read_precision(config, root, err);
    }
    if (!code) {
        code = read_accumulation_dtype(config, root, err);
    }
    if (!code) {
        code = read_zero(config, root, err);
    }
    if (!code) {
        code = read_optimizer(config, root, err);
    }
    return code ? code : read_scheduler(config, root, err);
}

/* Takes root. */
static trp_code config_of(json_t *root, int world, trp_zero_config **ret_config, trp_error *err) {
    trp_zero_config *config = calloc(1, sizeof *config);
    trp_code code;
    if (world < 1) {
        code = trpi_fail(err, TRP_EINVALID, "config: the world size is %d", world);
    } else if (!config) {
        code = trpi_fail(err, TRP_ENOMEM, "config");
    } else if (!json_is_object(root)) {
        code = trpi_fail(err, TRP_EINVALID, "config: a JSON object is needed");
    } else {
        code = read_config(config, root, world, err);
    }
    json_decref(root);
    if (code) {
        trp_zero_config_free(config);
        return code;
    }
    *ret_config = config;
    return TRP_OK;
}

trp_code trp_zero_config_parse(const char *text, int world, trp_zero_config **ret_config,
                               trp_error *err) {
    json_t *root = NULL;
    trp_code code = trpi_json_parse(text, strlen(text), "config", &root, err);
    return code ? code : config_of(root, world, ret_config, err);
}

trp_code trp_zero_config_load(const char *path, int world, trp_zero_config **ret_config,
                              trp_error *err) {
    json_t *root = NULL;
    trp_code code = trpi_json_load(path, &root, err);
    if (code) {
        return code;
    }
    code = config_of(root, world, ret_config, err);
    return code ? trpi_context(err, code, "%s", path) : TRP_OK;
}

#include "examples/train_gpt2/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <troupe/data.h>
#include <troupe/model.h>
#include <troupe/zero.h>

#include "examples/train_gpt2/options.h"
#include "examples/train_gpt2/rank.h"

trp_code fail(trp_error *err, trp_code code, const char *what, const char *detail) {
    err->code = code;
    snprintf(err->message, sizeof(err->message), "%.500s: %.200s", what, detail);
    return code;
}

static const char built_in[] =
    "{\"train_batch_size\": %" PRId64
    ", \"gradient_accumulation_steps\": 1, \"gradient_clipping\": 1.0,\n"
    " \"zero_optimization\": {\"stage\": %" PRId64 "},\n"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": %g, \"betas\": [0.9, 0.95],\n"
    "                \"eps\": 1e-8, \"weight_decay\": 0.1}},\n"
    " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": %" PRId64
    ",\n                \"total_num_steps\": %" PRId64 "}}}\n";

/* The DeepSpeed configuration: the user's, or ours with the user's numbers in it. */
static trp_code append_config(const options *o, trp_buf *out, trp_error *err) {
    if (o->ds_config == NULL) {
        int64_t warmup = o->job.steps / 20 + 2;
        return trp_buf_printf(out, built_in, o->batch, o->stage, o->lr, warmup,
                              o->job.steps > warmup ? o->job.steps : warmup + 1);
    }
    FILE *file = fopen(o->ds_config, "r");
    if (file == NULL) {
        return fail(err, TRP_ENOTFOUND, o->ds_config, strerror(errno));
    }
    char chunk[4096];
    size_t got;
    trp_code code = TRP_OK;
    while (code == TRP_OK && (got = fread(chunk, 1, sizeof(chunk), file)) > 0) {
        code = trp_buf_append(out, chunk, got);
    }
    if (code == TRP_OK && ferror(file)) {
        code = fail(err, TRP_EIO, o->ds_config, strerror(errno));
    }
    fclose(file);
    return code;
}

/* Embeddings of tokens and positions; per layer four matrices of 12 width² elements in all, their
 * biases and two norms; the last norm. The head is tied to the first. */
static int64_t parameter_count(const gpt2_job *job) {
    int64_t w = job->width;
    return (VOCABULARY + job->columns) * w + job->layers * (12 * w * w + 13 * w) + 2 * w;
}

static void print_job(const options *o, const trp_zero_config *config) {
    const trp_zero_settings *settings = trp_zero_config_settings(config);
    const char *const *notes;
    size_t count = trp_zero_config_notes(config, &notes);
    printf("GPT-2: %.1f M parameters (%" PRId64 " layers of width %" PRId64
           "), ZeRO stage %d, %s, %" PRId64 " workers,\n"
           "       %" PRId64 " steps of %" PRId64 " x %" PRId64 " tokens\n",
           (double)parameter_count(&o->job) / 1e6, o->job.layers, o->job.width, settings->stage,
           settings->compute == TRP_BF16 ? "bf16" : "fp32", o->workers, o->job.steps,
           settings->train_batch, o->job.columns);
    for (size_t i = 0; o->ds_config != NULL && i < count; i++) {
        printf("note: %s\n", notes[i]);
    }
}

/* The ranks would find out as well, but later, each of them, and after a wait for processes. */
static trp_code check_job(const options *o, const gpt2_job *job, const char *config_text,
                          trp_error *err) {
    trp_dataset *dataset = NULL;
    trp_model *model = NULL;
    trp_zero_config *config = NULL;
    trp_code code = trp_dataset_open_bytes(job->data, job->columns, &dataset, err);
    if (code == TRP_OK) {
        code = rank_model(job, &model, err);
    }
    if (code == TRP_OK) {
        code = trp_zero_config_parse(config_text, (int)o->workers, &config, err);
        if (code != TRP_OK && o->ds_config != NULL) {
            trp_error inner = *err;
            code = fail(err, code, o->ds_config, inner.message);
        }
    }
    if (code == TRP_OK) {
        print_job(o, config);
    }
    trp_zero_config_free(config);
    trp_model_free(model);
    trp_dataset_close(dataset);
    return code;
}

trp_code job_make(const options *o, trp_buf *ret_bytes, trp_error *err) {
    gpt2_job job = o->job;
    char *path = realpath(o->data, NULL);
    if (path == NULL) {
        return fail(err, TRP_ENOTFOUND, o->data, strerror(errno));
    }
    bool fits = snprintf(job.data, sizeof(job.data), "%s", path) < (int)sizeof(job.data);
    free(path);
    if (!fits) {
        return fail(err, TRP_EINVALID, "--data", "the path is too long");
    }
    trp_code code = trp_buf_append(ret_bytes, &job, sizeof(job));
    if (code == TRP_OK) {
        code = append_config(o, ret_bytes, err);
    }
    if (code == TRP_OK) {
        code = check_job(o, &job, (const char *)ret_bytes->data + sizeof(job), err);
    }
    return code;
}

trp_code job_read(trp_bytes bytes, gpt2_job *ret_job, char **ret_config, trp_error *err) {
    if (bytes.size <= sizeof(*ret_job)) {
        return fail(err, TRP_EINVALID, "job", "it is cut short");
    }
    memcpy(ret_job, bytes.data, sizeof(*ret_job));
    *ret_config =
        strndup((const char *)bytes.data + sizeof(*ret_job), bytes.size - sizeof(*ret_job));
    return *ret_config != NULL ? TRP_OK : fail(err, TRP_ENOMEM, "job", "out of memory");
}

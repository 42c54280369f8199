/* save.c: this rank's shard of a checkpoint; see shard.h for what is in it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/json.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/shard.h"

#define CHUNK 262144 /* floats on their way from the device to the file */

/* ---- Metadata ---- */

/* Appends and takes the item, or empties *list when memory is out. */
static void append(json_t **list, json_t *item) {
    if (json_array_append_new(*list, item)) {
        json_decref(*list);
        *list = NULL;
    }
}

static json_t *shape_list(const trp_param *param) {
    json_t *list = json_array();
    for (int d = 0; d < param->dims; d++) {
        append(&list, json_integer(param->shape[d]));
    }
    return list;
}

static json_t *tensor_list(const trp_zero *engine) {
    json_t *list = json_array();
    for (int t = 0; t < engine->layout.tensor_count; t++) {
        const trp_param *param = engine->layout.tensors[t].param;
        trpi_piece own = trpi_layout_owned(&engine->layout, t, engine->rank);
        append(&list,
               json_pack("{s:s, s:o, s:I, s:I}", "name", param->name, "shape", shape_list(param),
                         "offset", (json_int_t)own.tensor_offset, "count", (json_int_t)own.count));
    }
    return list;
}

static json_t *alias_list(const trp_model *model) {
    json_t *list = json_array();
    for (int u = 0; u < model->unit_count; u++) {
        for (int p = 0; p < model->units[u].param_count; p++) {
            const trp_param *param = &model->units[u].params[p];
            if (param->tied_to) {
                append(&list, json_pack("{s:s, s:s}", "name", param->name, "of", param->tied_to));
            }
        }
    }
    return list;
}

static json_t *settings_object(const trp_zero_settings *s) {
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "compute",
                     trp_dtype_name(s->compute), "train_batch", (json_int_t)s->train_batch,
                     "micro_batch", (json_int_t)s->micro_batch, "accumulation",
                     (json_int_t)s->accumulation, "lr", s->lr, "beta1", s->beta1, "beta2", s->beta2,
                     "eps", s->eps, "weight_decay", s->weight_decay, "clip_norm", s->clip_norm);
}

/* NULL when memory is out: a part that is NULL makes json_pack() fail. */
static json_t *meta_object(const trp_zero *engine, const trp_zero_position *position) {
    char seed[24], data_seed[24];
    trpi_format(seed, sizeof seed, "%" PRIu64, engine->seed);
    trpi_format(data_seed, sizeof data_seed, "%" PRIu64, position->data_seed);
    return json_pack(
        "{s:i, s:i, s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:{s:I, s:I, s:s}, s:o, s:o, s:o}",
        "version", TRPI_SHARD_VERSION, "rank", engine->rank, "world", engine->world, "stage",
        engine->settings->stage, "model", engine->model->name, "seed", seed, "step",
        (json_int_t)engine->steps, "updates", (json_int_t)engine->updates, "skipped",
        (json_int_t)engine->skipped, "position", "epoch", (json_int_t)position->epoch, "sample",
        (json_int_t)position->sample, "data_seed", data_seed, "settings",
        settings_object(engine->settings), "tensors", tensor_list(engine), "aliases",
        alias_list(engine->model));
}

static trp_code write_meta(const trp_zero *engine, const trp_zero_position *position,
                           trpi_tensor_writer *writer, trp_error *err) {
    trp_buf text = {0};
    json_t *meta = meta_object(engine, position);
    trp_code code = meta ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "metadata of a shard");
    if (!code) {
        code = trpi_json_write(meta, &text, err);
    }
    if (!code) {
        code = trpi_tensor_writer_meta(writer, TRPI_SHARD_META, (const char *)text.data, err);
    }
    json_decref(meta);
    trp_buf_release(&text);
    return code;
}

/* ---- Tensors ---- */

static trp_code declare(const trp_zero *engine, trpi_tensor_writer *writer, trp_error *err) {
    trp_buf name = {0};
    trp_code code = TRP_OK;
    for (int t = 0; !code && t < engine->layout.tensor_count; t++) {
        trpi_piece own = trpi_layout_owned(&engine->layout, t, engine->rank);
        for (int s = 0; !code && own.count > 0 && s < TRPI_SHARD_STATES; s++) {
            code = trpi_shard_tensor_name((trpi_shard_state)s,
                                          engine->layout.tensors[t].param->name, &name, err);
            if (!code) {
                code = trpi_tensor_writer_add(writer, (const char *)name.data, TRPI_STORED_F32,
                                              &own.count, 1, err);
            }
        }
    }
    trp_buf_release(&name);
    return code;
}

static float *state_of(const trpi_memory *memory, int bucket, trpi_shard_state state) {
    switch (state) {
    case TRPI_SHARD_MASTER:
        return trpi_memory_masters(memory, bucket);
    case TRPI_SHARD_M:
        return trpi_memory_m(memory, bucket);
    default:
        return trpi_memory_v(memory, bucket);
    }
}

static trp_code write_piece(const trp_zero *engine, const float *from, int64_t count,
                            trpi_tensor_writer *writer, size_t index, float *chunk,
                            trp_error *err) {
    trp_code code = TRP_OK;
    for (int64_t done = 0; !code && done < count; done += CHUNK) {
        size_t bytes = (size_t)TRPI_MIN(CHUNK, count - done) * sizeof *chunk;
        code = trp_device_download(engine->device, chunk, from + done, bytes, err);
        if (!code) {
            code = trpi_tensor_writer_append(writer, index, chunk, bytes, err);
        }
    }
    return code;
}

static trp_code write_data(const trp_zero *engine, trpi_tensor_writer *writer, trp_error *err) {
    const trpi_layout *layout = &engine->layout;
    float *chunk = malloc(CHUNK * sizeof *chunk);
    trp_code code = chunk ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "saving");
    size_t index = 0;
    for (int t = 0; !code && t < layout->tensor_count; t++) {
        int bucket = layout->tensors[t].bucket;
        trpi_piece own = trpi_layout_owned(layout, t, engine->rank);
        int64_t at = own.bucket_offset - trpi_memory_kept_from(&engine->memory, bucket);
        for (int s = 0; !code && own.count > 0 && s < TRPI_SHARD_STATES; s++) {
            const float *state = state_of(&engine->memory, bucket, (trpi_shard_state)s);
            code = write_piece(engine, state + at, own.count, writer, index++, chunk, err);
        }
    }
    free(chunk);
    return code;
}

trp_code trp_zero_save(trp_zero *engine, const char *dir, const trp_zero_position *position,
                       trp_error *err) {
    char name[64];
    trp_buf path = {0};
    trpi_tensor_writer *writer = NULL;
    const trp_zero_position start = {0};
    trpi_format(name, sizeof name, TRPI_SHARD_NAME, engine->rank, engine->world);
    trp_code code = trpi_engine_usable(engine, err);
    if (!code) {
        code = trpi_weights_masters(engine, err);
    }
    if (code) {
        return code;
    }
    code = trp_buf_printf(&path, "%s/%s", dir, name);
    if (code) {
        return trpi_fail(err, code, "%s", dir);
    }
    code = trpi_tensor_writer_open((const char *)path.data, &writer, err);
    if (!code) {
        code = write_meta(engine, position ? position : &start, writer, err);
    }
    if (!code) {
        code = declare(engine, writer, err);
    }
    if (!code) {
        code = write_data(engine, writer, err);
    }
    if (!code) {
        code = trpi_tensor_writer_finish(&writer, err);
    }
    trpi_tensor_writer_abort(writer);
    trp_buf_release(&path);
    return code;
}

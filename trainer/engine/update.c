/* update.c: from gradients to new parameters: norm, clipping, AdamW on what this rank keeps. */
#include <math.h>

#include "trainer/engine/engine.h"

trp_code trpi_update_clear(trp_zero *engine, trp_error *err) {
    size_t bytes = (size_t)engine->layout.padded * sizeof(float);
    if (engine->memory.stage >= 2) {
        return TRP_OK;
    }
    return trp_op_fill(engine->device, &(trp_fill_args){.y = engine->memory.grads, .bytes = bytes},
                       err);
}

/* Owned slices at every stage, also at stage 0 which has all gradients: then the partial sums, and
 * with them the norm, have the same bits at every stage. Padding belongs to no tensor. */
trp_code trpi_update_squares(trp_zero *engine, double *ret_squares, trp_error *err) {
    double squares = 0;
    for (int t = 0; t < engine->layout.tensor_count; t++) {
        trpi_piece piece = trpi_layout_owned(&engine->layout, t, engine->rank);
        int bucket = engine->layout.tensors[t].bucket;
        int64_t slice = engine->layout.buckets[bucket].slice;
        const float *own = trpi_memory_own_grads(&engine->memory, bucket);
        if (piece.count == 0) {
            continue;
        }
        trp_code code = trp_op_sum_squares(
            engine->device,
            &(trp_sum_squares_args){.count = piece.count,
                                    .x = own + (piece.bucket_offset - engine->rank * slice),
                                    .sum_add = &squares},
            err);
        if (code) {
            return code;
        }
    }
    *ret_squares = squares;
    return TRP_OK;
}

float trpi_update_clip(double norm, double clip_norm) {
    if (clip_norm <= 0) {
        return 1;
    }
    double factor = (norm + 1e-6) / clip_norm;
    return factor > 1 ? (float)(1 / factor) : 1;
}

/* Where the new values go as parameters, or NULL: at stage 3 they are made when gathered, and in
 * fp32 the masters are the parameters. */
static void *param_copy(trp_zero *engine, int bucket, int64_t bucket_offset) {
    const trpi_memory *memory = &engine->memory;
    if (memory->stage == 3 || !memory->masters) {
        return NULL;
    }
    return trpi_offset(trpi_memory_params(memory, bucket), bucket_offset, memory->dtype);
}

static trp_code update_tensor(trp_zero *engine, int tensor, double lr, float grad_scale,
                              trp_error *err) {
    const trpi_memory *memory = &engine->memory;
    const trp_zero_settings *s = engine->settings;
    const trpi_tensor_place *place = &engine->layout.tensors[tensor];
    int64_t from = trpi_memory_kept_from(memory, place->bucket);
    int64_t count = trpi_memory_kept_count(memory, place->bucket);
    trpi_piece piece = trpi_layout_piece(&engine->layout, tensor, from, count);
    int64_t at = piece.bucket_offset - from;
    if (piece.count == 0) {
        return TRP_OK;
    }
    return trp_op_adamw(engine->device,
                        &(trp_adamw_args){
                            .count = piece.count,
                            .master = trpi_memory_masters(memory, place->bucket) + at,
                            .m = trpi_memory_m(memory, place->bucket) + at,
                            .v = trpi_memory_v(memory, place->bucket) + at,
                            .grad = trpi_memory_kept_grads(memory, place->bucket) + at,
                            .lr = (float)lr,
                            .beta1 = (float)s->beta1,
                            .beta2 = (float)s->beta2,
                            .eps = (float)s->eps,
                            .weight_decay = place->param->decay ? (float)s->weight_decay : 0,
                            .grad_scale = grad_scale,
                            .t = (int64_t)engine->updates + 1,
                            .param = param_copy(engine, place->bucket, piece.bucket_offset),
                            .param_dtype = memory->dtype,
                        },
                        err);
}

/* Stages 1 and 2: every rank has new values for its slice, and all need all. */
static trp_code share(trp_zero *engine, int bucket, trp_error *err) {
    const trpi_memory *memory = &engine->memory;
    if (memory->stage != 1 && memory->stage != 2) {
        return TRP_OK;
    }
    return trp_comm_all_gather(engine->comm, trpi_memory_params(memory, bucket),
                               engine->layout.buckets[bucket].slice, memory->dtype, err);
}

trp_code trpi_update_run(trp_zero *engine, double lr, float grad_scale, trp_error *err) {
    trp_code code = TRP_OK;
    for (int b = 0; !code && b < engine->layout.bucket_count; b++) {
        const trpi_bucket *bucket = &engine->layout.buckets[b];
        for (int t = bucket->tensor; !code && t < bucket->tensor + bucket->tensor_count; t++) {
            code = update_tensor(engine, t, lr, grad_scale, err);
        }
        if (!code) {
            code = share(engine, b, err);
        }
    }
    if (!code) {
        engine->updates++;
    }
    return code;
}

trp_code trpi_update_publish(trp_zero *engine, trp_error *err) {
    const trpi_memory *memory = &engine->memory;
    trp_code code = TRP_OK;
    for (int b = 0; !code && b < engine->layout.bucket_count; b++) {
        void *copy = param_copy(engine, b, trpi_memory_kept_from(memory, b));
        if (copy) {
            code = trp_op_cast(engine->device,
                               &(trp_cast_args){.count = trpi_memory_kept_count(memory, b),
                                                .x = trpi_memory_masters(memory, b),
                                                .y = copy,
                                                .from = TRP_F32,
                                                .to = memory->dtype},
                               err);
        }
        if (!code) {
            code = share(engine, b, err);
        }
    }
    return code;
}

#include "trainer/engine/activations.h"

#include <stdlib.h>

#define ALIGN 64
#define LOSS_CHUNK 1024

trp_code trpi_activations_init(const trp_model *model, trp_device *device, trp_dtype dtype,
                               int slots, trpi_activations *ret_act, trp_error *err) {
    trpi_activations act = {.model = model, .device = device, .dtype = dtype, .slots = slots};
    act.outputs = calloc((size_t)model->unit_count, sizeof *act.outputs);
    act.saved = calloc((size_t)model->unit_count, sizeof *act.saved);
    if (!act.outputs || !act.saved) {
        trpi_activations_release(&act);
        return trpi_fail(err, TRP_ENOMEM, "activations");
    }
    *ret_act = act;
    return TRP_OK;
}

void trpi_activations_release(trpi_activations *act) {
    if (act->block) {
        trp_device_free(act->device, act->block);
    }
    free(act->outputs);
    free(act->saved);
    *act = (trpi_activations){0};
}

static void *carve(const trpi_activations *act, size_t *used, size_t bytes) {
    void *piece = act->block ? (char *)act->block + *used : NULL;
    *used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return piece;
}

/* Gives every pointer its place in the block; without a block it only measures. */
static size_t carve_all(trpi_activations *act, int64_t rows, int64_t columns) {
    size_t used = 0, scratch = 0, flow = 0, tokens = (size_t)(rows * columns);
    bool second_flow = false;
    for (int u = 0; u < act->model->unit_count; u++) {
        const trpi_unit *unit = &act->model->units[u];
        trp_unit_sizes sizes = {0};
        unit->type->sizes(unit->state, rows, columns, act->dtype, &sizes);
        act->outputs[u] = sizes.output ? carve(act, &used, sizes.output) : NULL;
        act->saved[u] = sizes.saved ? carve(act, &used, sizes.saved) : NULL;
        scratch = TRPI_MAX(scratch, sizes.scratch);
        flow = TRPI_MAX(flow, sizes.output);
        bool inner = u > 0 && u < act->model->unit_count - 1;
        second_flow = second_flow || (inner && !unit->type->in_place);
    }
    act->scratch = carve(act, &used, scratch);
    act->flow[0] = carve(act, &used, flow);
    act->flow[1] = second_flow ? carve(act, &used, flow) : NULL;
    act->losses = carve(act, &used, (size_t)act->slots * tokens * sizeof(float));
    act->tokens = carve(act, &used, tokens * sizeof(int32_t));
    act->targets = carve(act, &used, tokens * sizeof(int32_t));
    act->lengths = carve(act, &used, (size_t)rows * sizeof(int32_t));
    return used;
}

trp_code trpi_activations_shape(trpi_activations *act, int64_t rows, int64_t columns,
                                trp_error *err) {
    if (act->block && act->rows == rows && act->columns == columns) {
        return TRP_OK;
    }
    size_t needed = carve_all(act, rows, columns);
    if (needed > act->capacity) {
        if (act->block) {
            trp_device_free(act->device, act->block);
        }
        act->block = NULL;
        act->capacity = 0;
        trp_code code = trp_device_alloc(act->device, needed, &act->block, err);
        if (code) {
            return trpi_context(err, code, "activations of %lld x %lld tokens", (long long)rows,
                                (long long)columns);
        }
        act->capacity = needed;
        carve_all(act, rows, columns);
    }
    act->rows = rows;
    act->columns = columns;
    return TRP_OK;
}

trp_code trpi_activations_upload(trpi_activations *act, const trp_batch *batch, trp_error *err) {
    size_t bytes = (size_t)(batch->rows * batch->columns) * sizeof(int32_t);
    trp_code code = trp_device_upload(act->device, act->tokens, batch->tokens, bytes, err);
    if (!code) {
        code = trp_device_upload(act->device, act->targets, batch->targets, bytes, err);
    }
    if (!code && batch->lengths) {
        code = trp_device_upload(act->device, act->lengths, batch->lengths,
                                 (size_t)batch->rows * sizeof(int32_t), err);
    }
    return code;
}

trp_code trpi_activations_loss(const trpi_activations *act, int slots, double *ret_sum,
                               trp_error *err) {
    float chunk[LOSS_CHUNK];
    int64_t count = slots * act->rows * act->columns;
    double sum = 0;
    for (int64_t at = 0; at < count; at += LOSS_CHUNK) {
        int64_t n = TRPI_MIN(LOSS_CHUNK, count - at);
        trp_code code = trp_device_download(act->device, chunk, act->losses + at,
                                            (size_t)n * sizeof(float), err);
        if (code) {
            return code;
        }
        for (int64_t i = 0; i < n; i++) {
            sum += chunk[i];
        }
    }
    *ret_sum = sum;
    return TRP_OK;
}

/* micro.c: carries out a plan. It decides nothing: what happens and where stands in the plan. */
#include <math.h>

#include "trainer/engine/engine.h"

static void point_at_params(trp_zero *engine, int unit, bool with_params, bool with_grads) {
    const trpi_memory *memory = &engine->memory;
    for (int p = 0; p < engine->model->units[unit].param_count; p++) {
        int tensor = engine->layout.tensor_of[unit][p];
        const trpi_tensor_place *place = &engine->layout.tensors[tensor];
        engine->params[p] = with_params ? trpi_offset(trpi_memory_params(memory, place->bucket),
                                                      place->offset, memory->dtype)
                                        : NULL;
        engine->grads[p] =
            with_grads ? trpi_memory_grads(memory, place->bucket) + place->offset : NULL;
    }
}

static trp_unit_io unit_io(trp_zero *engine, int unit, const trp_batch *batch) {
    trpi_activations *act = &engine->act;
    return (trp_unit_io){
        .device = engine->device,
        .dtype = engine->memory.dtype,
        .rows = batch->rows,
        .columns = batch->columns,
        .tokens = act->tokens,
        .targets = act->targets,
        .lengths = batch->lengths ? act->lengths : NULL,
        .params = engine->params,
        .grads = engine->grads,
        .x = unit > 0 ? act->outputs[unit - 1] : NULL,
        .saved = act->saved[unit],
        .scratch = act->scratch,
    };
}

static trp_code forward(trp_zero *engine, int unit, const trp_batch *batch, int slot,
                        float loss_scale, bool training, trp_error *err) {
    const trpi_unit *u = &engine->model->units[unit];
    trp_unit_io io = unit_io(engine, unit, batch);
    point_at_params(engine, unit, true, false);
    io.y = engine->act.outputs[unit];
    io.loss_scale = loss_scale;
    io.training = training;
    if (unit == engine->model->unit_count - 1) {
        io.losses = engine->act.losses + slot * batch->rows * batch->columns;
    }
    trp_code code = u->type->forward(u->state, &io, err);
    return code ? trpi_context(err, code, "forward of unit %d (%s)", unit, u->type->name) : TRP_OK;
}

/* *flow: which of act.flow holds the gradient by this unit's output, then that by its input. */
static trp_code backward(trp_zero *engine, int unit, const trp_batch *batch, float loss_scale,
                         int *flow, trp_error *err) {
    const trpi_unit *u = &engine->model->units[unit];
    trp_unit_io io = unit_io(engine, unit, batch);
    bool last = unit == engine->model->unit_count - 1;
    point_at_params(engine, unit, !u->type->backward_without_params, true);
    io.loss_scale = loss_scale;
    io.training = true;
    io.dy = last ? NULL : engine->act.flow[*flow];
    if (unit > 0 && !last && !u->type->in_place) {
        *flow = 1 - *flow;
    }
    io.dx = unit > 0 ? engine->act.flow[*flow] : NULL;
    trp_code code = u->type->backward(u->state, &io, err);
    return code ? trpi_context(err, code, "backward of unit %d (%s)", unit, u->type->name) : TRP_OK;
}

/* Stage 3: this rank's slice is made from its masters, the others bring theirs. */
static trp_code gather(trp_zero *engine, int bucket, int64_t offset, trp_error *err) {
    trpi_memory *memory = &engine->memory;
    int64_t slice = engine->layout.buckets[bucket].slice;
    memory->param_at[bucket] = offset;
    void *params = trpi_memory_params(memory, bucket);
    trp_code code =
        trp_op_cast(engine->device,
                    &(trp_cast_args){.count = slice,
                                     .x = trpi_memory_masters(memory, bucket),
                                     .y = trpi_offset(params, engine->rank * slice, memory->dtype),
                                     .from = TRP_F32,
                                     .to = memory->dtype},
                    err);
    if (!code) {
        code = trp_comm_all_gather(engine->comm, params, slice, memory->dtype, err);
    }
    return code;
}

static trp_code open_grads(trp_zero *engine, int bucket, int64_t offset, trp_error *err) {
    engine->memory.grad_at[bucket] = offset;
    size_t bytes = (size_t)engine->layout.buckets[bucket].padded * sizeof(float);
    return trp_op_fill(
        engine->device,
        &(trp_fill_args){.y = trpi_memory_grads(&engine->memory, bucket), .bytes = bytes}, err);
}

/* Remembers the first tensor of the bucket whose gradient on this rank is not finite. */
static trp_code search(trp_zero *engine, int bucket, trp_error *err) {
    const trpi_bucket *b = &engine->layout.buckets[bucket];
    trp_code code = TRP_OK;
    for (int t = b->tensor; !code && t < b->tensor + b->tensor_count; t++) {
        const trpi_tensor_place *place = &engine->layout.tensors[t];
        double squares = 0;
        code = trp_op_sum_squares(
            engine->device,
            &(trp_sum_squares_args){.count = place->count,
                                    .x = trpi_memory_grads(&engine->memory, bucket) + place->offset,
                                    .sum_add = &squares},
            err);
        if (!code && !isfinite(squares) && engine->bad_tensor < 0) {
            engine->bad_tensor = t;
        }
    }
    return code;
}

/* Stages 2 and 3: into what is kept of this rank's slice. The first micro-step starts it, so
 * nothing had to be zeroed. */
static trp_code keep(trp_zero *engine, int bucket, bool first, trp_error *err) {
    trpi_memory *memory = &engine->memory;
    int64_t slice = engine->layout.buckets[bucket].slice;
    const float *reduced = trpi_memory_grads(memory, bucket) + engine->rank * slice;
    float *kept = trpi_memory_own_grads(memory, bucket);
    memory->grad_at[bucket] = -1;
    if (first) {
        return trp_op_cast(
            engine->device,
            &(trp_cast_args){
                .count = slice, .x = reduced, .y = kept, .from = TRP_F32, .to = TRP_F32},
            err);
    }
    return trp_op_axpy(engine->device,
                       &(trp_axpy_args){.count = slice, .alpha = 1, .x = reduced, .y = kept}, err);
}

/* The loss is scaled by one over the tokens of all ranks, so the sum is the mean's gradient. */
static trp_code reduce(trp_zero *engine, int bucket, bool first, trp_error *err) {
    trpi_memory *memory = &engine->memory;
    const trpi_bucket *b = &engine->layout.buckets[bucket];
    float *grads = trpi_memory_grads(memory, bucket);
    trp_code code = engine->searching ? search(engine, bucket, err) : TRP_OK;
    if (code) {
        return code;
    }
    if (memory->stage == 0) {
        return trp_comm_all_reduce(engine->comm, grads, b->padded, TRP_F32, TRP_REDUCE_SUM, err);
    }
    code = trp_comm_reduce_scatter(engine->comm, grads, b->slice, TRP_F32, TRP_REDUCE_SUM, err);
    return code || memory->stage == 1 ? code : keep(engine, bucket, first, err);
}

trp_code trpi_micro_run(trp_zero *engine, const trpi_plan *plan, const trp_batch *batch, int slot,
                        float loss_scale, bool boundary, trp_error *err) {
    bool training = plan == &engine->train_plan;
    int flow = 0;
    trp_code code = trpi_activations_upload(&engine->act, batch, err);
    for (int i = 0; !code && i < plan->count; i++) {
        const trpi_plan_step *step = &plan->steps[i];
        if (step->boundary && !boundary) {
            continue;
        }
        switch (step->op) {
        case TRPI_PLAN_GATHER:
            code = gather(engine, step->index, step->offset, err);
            break;
        case TRPI_PLAN_RELEASE:
            engine->memory.param_at[step->index] = -1;
            break;
        case TRPI_PLAN_FORWARD:
            code = forward(engine, step->index, batch, slot, loss_scale, training, err);
            break;
        case TRPI_PLAN_OPEN:
            code = open_grads(engine, step->index, step->offset, err);
            break;
        case TRPI_PLAN_BACKWARD:
            code = backward(engine, step->index, batch, loss_scale, &flow, err);
            break;
        case TRPI_PLAN_REDUCE:
            code = reduce(engine, step->index, slot == 0, err);
            break;
        }
    }
    return code;
}

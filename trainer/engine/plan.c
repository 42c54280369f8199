#include "trainer/engine/plan.h"

#include <stdlib.h>

/* What lies in a pool while the plan is made: first fit. */
typedef struct pool_entry {
    int64_t offset, size; /* size 0: not in the pool */
} pool_entry;

typedef struct pool {
    pool_entry *of_bucket;
    int count;
    int64_t peak;
} pool;

typedef struct planner {
    const trp_model *model;
    const trpi_layout *layout;
    int stage;
    bool training;
    pool params, grads;
    bool *needed; /* [bucket], scratch */
    trpi_plan plan;
    bool failed; /* out of memory; the rest is skipped */
} planner;

static bool is_free(const pool *p, int64_t offset, int64_t size) {
    for (int b = 0; b < p->count; b++) {
        const pool_entry *e = &p->of_bucket[b];
        if (e->size && offset < e->offset + e->size && e->offset < offset + size) {
            return false;
        }
    }
    return true;
}

/* The lowest free place; it starts at 0 or where another entry ends. */
static int64_t pool_add(pool *p, int bucket, int64_t size) {
    int64_t best = is_free(p, 0, size) ? 0 : INT64_MAX;
    for (int b = 0; b < p->count; b++) {
        const pool_entry *e = &p->of_bucket[b];
        int64_t end = e->offset + e->size;
        if (e->size && end < best && is_free(p, end, size)) {
            best = end;
        }
    }
    p->of_bucket[bucket] = (pool_entry){best, size};
    p->peak = TRPI_MAX(p->peak, best + size);
    return best;
}

static void emit(planner *pl, trpi_plan_step step) {
    trpi_plan *plan = &pl->plan;
    if (plan->count == plan->capacity) {
        int capacity = plan->capacity ? 2 * plan->capacity : 64;
        trpi_plan_step *steps = realloc(plan->steps, (size_t)capacity * sizeof *steps);
        if (!steps) {
            pl->failed = true;
            return;
        }
        plan->steps = steps;
        plan->capacity = capacity;
    }
    plan->steps[plan->count++] = step;
}

/* Marks the buckets that hold the parameters of the unit. */
static void mark_needed(planner *pl, int unit) {
    for (int b = 0; b < pl->layout->bucket_count; b++) {
        pl->needed[b] = false;
    }
    for (int p = 0; unit >= 0 && p < pl->model->units[unit].param_count; p++) {
        int tensor = pl->layout->tensor_of[unit][p];
        pl->needed[pl->layout->tensors[tensor].bucket] = true;
    }
}

static void gather_for(planner *pl, int unit) {
    mark_needed(pl, unit);
    for (int b = 0; b < pl->layout->bucket_count; b++) {
        if (pl->needed[b] && !pl->params.of_bucket[b].size) {
            int64_t offset = pool_add(&pl->params, b, pl->layout->buckets[b].padded);
            emit(pl, (trpi_plan_step){.op = TRPI_PLAN_GATHER, .index = b, .offset = offset});
        }
    }
}

/* Releases what `next_unit` does not use; -1 uses nothing. */
static void release_before(planner *pl, int next_unit) {
    mark_needed(pl, next_unit);
    for (int b = 0; b < pl->layout->bucket_count; b++) {
        if (pl->params.of_bucket[b].size && !pl->needed[b]) {
            pl->params.of_bucket[b].size = 0;
            emit(pl, (trpi_plan_step){.op = TRPI_PLAN_RELEASE, .index = b});
        }
    }
}

static void plan_forward(planner *pl, int unit) {
    bool sharded = pl->stage == 3;
    if (sharded) {
        gather_for(pl, unit);
    }
    emit(pl, (trpi_plan_step){.op = TRPI_PLAN_FORWARD, .index = unit});
    bool last = unit == pl->model->unit_count - 1;
    /* The last unit's backward follows at once, so its parameters stay. */
    int next = !last ? unit + 1 : pl->training ? unit : -1;
    if (sharded) {
        release_before(pl, next);
    }
}

/* A bucket's gradient lives from the backward of the last unit that uses it to that of the first.
 */
static void open_gradients(planner *pl, int unit) {
    for (int b = 0; b < pl->layout->bucket_count; b++) {
        if (pl->layout->buckets[b].last_unit == unit) {
            int64_t offset = pool_add(&pl->grads, b, pl->layout->buckets[b].padded);
            emit(pl, (trpi_plan_step){.op = TRPI_PLAN_OPEN, .index = b, .offset = offset});
        }
    }
}

static void reduce_gradients(planner *pl, int unit) {
    for (int b = 0; b < pl->layout->bucket_count; b++) {
        if (pl->layout->buckets[b].unit == unit) {
            pl->grads.of_bucket[b].size = 0;
            emit(pl,
                 (trpi_plan_step){.op = TRPI_PLAN_REDUCE, .index = b, .boundary = pl->stage < 2});
        }
    }
}

static bool reads_params(const planner *pl, int unit) {
    return unit >= 0 && !pl->model->units[unit].type->backward_without_params;
}

static void plan_backward(planner *pl, int unit) {
    bool sharded = pl->stage == 3;
    if (sharded && reads_params(pl, unit)) {
        gather_for(pl, unit);
    }
    if (pl->stage >= 2) {
        open_gradients(pl, unit);
    }
    emit(pl, (trpi_plan_step){.op = TRPI_PLAN_BACKWARD, .index = unit});
    if (sharded) {
        release_before(pl, reads_params(pl, unit - 1) ? unit - 1 : -1);
    }
    reduce_gradients(pl, unit);
}

static bool planner_init(planner *pl) {
    size_t buckets = (size_t)pl->layout->bucket_count;
    pl->params.count = pl->grads.count = (int)buckets;
    pl->params.of_bucket = calloc(buckets, sizeof(pool_entry));
    pl->grads.of_bucket = calloc(buckets, sizeof(pool_entry));
    pl->needed = calloc(buckets, sizeof(bool));
    return pl->params.of_bucket && pl->grads.of_bucket && pl->needed;
}

trp_code trpi_plan_init(const trp_model *model, const trpi_layout *layout, int stage, bool training,
                        trpi_plan *ret_plan, trp_error *err) {
    TRP_ASSERT(stage >= 0 && stage <= 3);
    planner pl = {.model = model, .layout = layout, .stage = stage, .training = training};
    pl.failed = !planner_init(&pl);
    for (int u = 0; !pl.failed && u < model->unit_count; u++) {
        plan_forward(&pl, u);
    }
    for (int u = model->unit_count - 1; !pl.failed && training && u >= 0; u--) {
        plan_backward(&pl, u);
    }
    pl.plan.param_pool = pl.params.peak;
    pl.plan.grad_pool = pl.grads.peak;
    free(pl.params.of_bucket);
    free(pl.grads.of_bucket);
    free(pl.needed);
    if (pl.failed) {
        trpi_plan_release(&pl.plan);
        return trpi_fail(err, TRP_ENOMEM, "plan of model %s", model->name);
    }
    *ret_plan = pl.plan;
    return TRP_OK;
}

void trpi_plan_release(trpi_plan *plan) {
    free(plan->steps);
    *plan = (trpi_plan){0};
}

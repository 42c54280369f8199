/* plan.h: a micro-step as a list of instructions. Pure.
 *
 * Computed once from model, layout and stage, so every rank runs the same collectives in the same
 * order by construction, and the memory for what is gathered for a while is known before the first
 * step: each GATHER and OPEN carries its place in a pool whose size is the bound.
 *
 *   stage 3:   GATHER 0,1  FORWARD 0  RELEASE 0,1  GATHER 2  FORWARD 1  RELEASE 2 ...
 *              ... BACKWARD 1  RELEASE 2  REDUCE 2 ...
 *
 * A bucket is released as soon as the next unit to be computed does not use it. Fetching ahead
 * would move a GATHER in front of the compute before it; the pool then holds the buckets of two
 * units. */
#ifndef TRPI_PLAN_H
#define TRPI_PLAN_H

#include "trainer/engine/layout.h"

typedef enum trpi_plan_op {
    TRPI_PLAN_GATHER,   /* bucket's parameters, from all ranks, to `offset` of the parameter pool */
    TRPI_PLAN_RELEASE,  /* they are not used any more */
    TRPI_PLAN_FORWARD,  /* of a unit */
    TRPI_PLAN_OPEN,     /* bucket's gradient starts as zeros at `offset` of the gradient pool */
    TRPI_PLAN_BACKWARD, /* of a unit */
    TRPI_PLAN_REDUCE    /* bucket's gradient is complete on this rank: combine with the others' */
} trpi_plan_op;

typedef struct trpi_plan_step {
    trpi_plan_op op;
    int index;      /* of the unit or bucket */
    int64_t offset; /* GATHER, OPEN: elements into the pool */
    bool boundary;  /* done in the last micro-step of a step only */
} trpi_plan_step;

typedef struct trpi_plan {
    trpi_plan_step *steps;
    int count, capacity;
    int64_t param_pool, grad_pool; /* elements: what the pools must hold */
} trpi_plan;

/* The plan of a training micro-step, or of a forward only. */
TRP_CHECKED trp_code trpi_plan_init(const trp_model *model, const trpi_layout *layout, int stage,
                                    bool training, trpi_plan *ret_plan, trp_error *err);
void trpi_plan_release(trpi_plan *plan);

#endif

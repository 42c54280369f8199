/* engine.h: what an engine is made of, for the files of this folder and for tests. */
#ifndef TRPI_ENGINE_H
#define TRPI_ENGINE_H

#include "trainer/engine/activations.h"
#include "trainer/engine/config.h"
#include "trainer/engine/layout.h"
#include "trainer/engine/memory.h"
#include "trainer/engine/plan.h"
#include "trainer/engine/vote.h"

struct trp_zero {
    trp_model *model;
    trp_device *device; /* borrowed, as are comm and config */
    trp_comm *comm;
    const trp_zero_config *config;
    const trp_zero_settings *settings;
    int rank, world;
    uint64_t seed;

    trpi_layout layout;
    trpi_plan train_plan, forward_plan;
    trpi_memory memory;
    trpi_activations act;
    trpi_ballot ballot;
    const void **params; /* pointers handed to a unit, one per parameter */
    float **grads;

    /* Initial weights are made when something asks for them, so that an engine which is loaded from
     * a checkpoint never makes them: on a large model that is most of a restart. */
    bool has_masters; /* on this rank */
    bool has_params;  /* made from the masters, on all ranks */

    uint64_t steps;   /* done, with the skipped ones */
    uint64_t updates; /* Adam's t and the schedule's position: without them */
    uint64_t skipped;

    /* Set while a step is looked at again because its gradients were not finite: the first tensor
     * of this rank that is not, or -1. */
    bool searching;
    int bad_tensor;

    /* Why the engine cannot go on: a step failed half way. Code TRP_OK: it can. */
    trp_error broken;
};

/* ---- zero.c ---- */

/* TRP_OK, or why the engine stopped working. */
TRP_CHECKED trp_code trpi_engine_usable(const trp_zero *engine, trp_error *err);

/* Ranks may be in different places now: the engine refuses to go on with *err, and the communicator
 * is aborted so that no rank waits for this one. Returns code. */
trp_code trpi_engine_break(trp_zero *engine, trp_code code, const trp_error *err);

/* ---- weights.c ---- */

/* Makes the initial masters unless they, or a checkpoint's, are there. */
TRP_CHECKED trp_code trpi_weights_masters(trp_zero *engine, trp_error *err);

/* Makes the parameters from the masters unless they are there. Collective: all ranks of an engine
 * have stepped and loaded alike. */
TRP_CHECKED trp_code trpi_weights_params(trp_zero *engine, trp_error *err);

/* ---- micro.c ---- */

/* Runs a plan on one micro-batch, the step's number `slot`: there its losses go, and 0 starts the
 * gradients. Collective. */
TRP_CHECKED trp_code trpi_micro_run(trp_zero *engine, const trpi_plan *plan, const trp_batch *batch,
                                    int slot, float loss_scale, bool boundary, trp_error *err);

/* ---- update.c ---- */

/* Zeroes the gradients that micro-steps add to. At stages 2 and 3 there are none: each bucket
 * starts as zeros when it is opened, and the first micro-step's result starts what is kept. */
TRP_CHECKED trp_code trpi_update_clear(trp_zero *engine, trp_error *err);

/* Sum of squares of the gradients that this rank owns, tensor by tensor in the model's order. */
TRP_CHECKED trp_code trpi_update_squares(trp_zero *engine, double *ret_squares, trp_error *err);

/* What gradients are multiplied with so that their norm is at most clip_norm; 1 when it is already,
 * or when clip_norm is 0. */
float trpi_update_clip(double norm, double clip_norm);

/* AdamW on the kept masters, then the new parameters to all ranks. Collective. */
TRP_CHECKED trp_code trpi_update_run(trp_zero *engine, double lr, float grad_scale, trp_error *err);

/* Makes the parameters from the masters, after these were set. Collective. */
TRP_CHECKED trp_code trpi_update_publish(trp_zero *engine, trp_error *err);

/* ---- inspect.c ---- */

/* The whole bucket's masters on the host, `padded` floats. Collective at stages 1 to 3. */
TRP_CHECKED trp_code trpi_inspect_masters(trp_zero *engine, int bucket, float *out, trp_error *err);

#endif

/* zero.h: a model, a device and a communicator make training steps. Knows no actors.
 *
 * ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054): stage 1 shards the optimizer state over the
 * ranks, stage 2 also the gradients, stage 3 also the parameters. All stages share one layout of
 * flat buffers, one order of reduction and fp32 master weights. The configuration is DeepSpeed's
 * JSON.
 *
 * Threads: one thread per engine. Blocking: every function that says "collective" waits for the
 * other ranks as the communicator does. */
#ifndef TROUPE_ZERO_H
#define TROUPE_ZERO_H

#include <troupe/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trp_model trp_model;             /* model.h */
typedef struct trp_zero trp_zero;               /* an engine */
typedef struct trp_zero_config trp_zero_config; /* a checked configuration */

/* Reads a DeepSpeed configuration, strictly: an unknown key is an error that names its place and
 * the nearest valid one; so are duplicate keys, values out of range, and what this version does not
 * do. Keys that change no result here (overlap_comm and the like) are accepted; the notes list
 * them. `world` resolves the batch triple (train = micro * accumulation * world). `text` is JSON;
 * trp_zero_config_load() reads a file of it. */
TRP_CHECKED trp_code trp_zero_config_parse(const char *text, int world,
                                           trp_zero_config **ret_config, trp_error *err);
TRP_CHECKED trp_code trp_zero_config_load(const char *path, int world, trp_zero_config **ret_config,
                                          trp_error *err);
void trp_zero_config_free(trp_zero_config *config); /* NULL is fine */

/* The resolved numbers. */
typedef struct trp_zero_settings {
    int stage;
    int64_t train_batch, micro_batch,
        accumulation;  /* rows: of a step, of a rank's micro-step; micro-steps */
    trp_dtype compute; /* TRP_F32 or TRP_BF16: parameters, activations */
    double lr, beta1, beta2, eps, weight_decay, clip_norm; /* clip_norm 0 = off */
    int64_t bucket_elements;
    int64_t steps_per_print; /* 0 = never */
} trp_zero_settings;
const trp_zero_settings *trp_zero_config_settings(const trp_zero_config *config); /* borrowed */

/* One line for each key that was accepted although it changes nothing, with the reason, and for
 * each default that may surprise. For the caller to log; borrowed from the configuration. */
size_t trp_zero_config_notes(const trp_zero_config *config, const char *const **ret_notes);

/* Makes the engine. Its weights come from trp_zero_load(), or else from `seed` when they are first
 * needed (the same for every world size and stage).
 * Borrows device, comm and config (they outlive it). Takes *model and sets it to NULL, on success
 * only. TRP_EINVALID: the configuration was resolved for another world than comm's, or the ranks'
 * models differ. Collective. */
TRP_CHECKED trp_code trp_zero_new(trp_model **model, trp_device *device, trp_comm *comm,
                                  const trp_zero_config *config, uint64_t seed,
                                  trp_zero **ret_engine, trp_error *err);
void trp_zero_free(trp_zero *engine); /* NULL is fine; never waits for a peer */

/* One micro-batch in host memory, borrowed for the call: tokens and targets (rows, columns).
 * A target of -100 is not counted in the loss. */
typedef struct trp_batch {
    const int32_t *tokens, *targets;
    int64_t rows, columns;
    const int32_t
        *lengths; /* (rows) valid tokens of each row, for models with padding; NULL = all */
} trp_batch;

typedef struct trp_step_stats {
    double loss;         /* mean over all tokens of the step on all ranks */
    double grad_norm;    /* global L2 norm before clipping */
    double lr;           /* that this step used */
    uint64_t step;       /* 1 after the first */
    uint64_t skipped;    /* steps so far that were skipped for non-finite gradients */
    uint64_t bytes_sent; /* by this rank in this step */
    bool skipped_now;
} trp_step_stats;

/* One training step from `count` micro-batches (the configuration's accumulation; each has its
 * micro_batch rows). Collective. TRP_EINVALID or TRP_ENOMEM, on every rank, when any rank's batches
 * are not as they should be or do not fit into its memory: nothing has happened. After an error in
 * the computation ranks are in different places: the engine refuses all further calls, and the
 * communicator is aborted so that no rank waits.
 * Non-finite gradients skip the update on every rank alike; err stays untouched, ret_stats says so,
 * and one log line names rank and tensor. */
TRP_CHECKED trp_code trp_zero_step(trp_zero *engine, const trp_batch *micro, int count,
                                   trp_step_stats *ret_stats, trp_error *err);

/* Mean loss of one micro-batch per rank, over all ranks; nothing is updated. Collective. */
TRP_CHECKED trp_code trp_zero_evaluate(trp_zero *engine, const trp_batch *batch, double *ret_loss,
                                       trp_error *err);

/* Small state of the user's that travels with the checkpoint, equal on every rank: where the data
 * stands and the like. */
typedef struct trp_zero_position {
    uint64_t epoch, sample; /* next sample to be used, in the epoch's order */
    uint64_t data_seed;
} trp_zero_position;

/* Writes this rank's shard (shard-RRRRR-of-NNNNN.safetensors) into an existing directory, fsynced:
 * masters, moments, step counters, position, schedule and configuration. Not collective; the
 * checkpoint is complete when every rank has done it (see checkpoint.h for the commit). */
TRP_CHECKED trp_code trp_zero_save(trp_zero *engine, const char *dir,
                                   const trp_zero_position *position, trp_error *err);

/* Reads a checkpoint of any world size and stage. TRP_ENOTFOUND: the directory has no shard.
 * TRP_ECORRUPT names file and tensor: a shard is missing or damaged, or is of another model. A load
 * that fails on any rank fails on all and changes nothing, except that one which finds damaged data
 * while it copies leaves an engine that refuses every further call. Collective. */
TRP_CHECKED trp_code trp_zero_load(trp_zero *engine, const char *dir,
                                   trp_zero_position *ret_position, trp_error *err);

/* Lower-case hex XXH3-128 of all fp32 master weights in the model's order, without padding: equal
 * weights have equal hashes whatever the stage and world size. Collective. */
TRP_CHECKED trp_code trp_zero_weights_hash(trp_zero *engine, char ret_hex[33], trp_error *err);

/* Elements of all trainable tensors, each tied tensor once. */
int64_t trp_zero_parameter_count(const trp_zero *engine);
uint64_t trp_zero_steps(const trp_zero *engine); /* steps done, also those before a resume */

/* ---- For tests and tools ---- */

/* Copies the full fp32 master of a tensor into `out` (count elements). Collective. */
TRP_CHECKED trp_code trp_zero_get_tensor(trp_zero *engine, const char *name, float *out,
                                         int64_t count, trp_error *err);

#ifdef __cplusplus
}
#endif
#endif

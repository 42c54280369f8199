/* shard.h: the files of a sharded checkpoint, and what they hold between them.
 *
 * Each rank writes one safetensors file, the same whatever the stage: of every tensor the elements
 * that the rank owns, as "master.<name>", "exp_avg.<name>" and "exp_avg_sq.<name>", flat fp32.
 * Where they belong stands in the metadata, under "troupe", as JSON:
 *
 *   {"version": 1, "rank": 0, "world": 2, "stage": 3, "model": "gpt2", "seed": "42",
 *    "step": 10, "updates": 9, "skipped": 1,
 *    "position": {"epoch": 0, "sample": 80, "data_seed": "7"},
 *    "settings": {"lr": 0.001, ...},
 *    "tensors": [{"name": "transformer.wte.weight", "shape": [257, 48], "offset": 0, "count":
 * 6208}, ...], "aliases": [{"name": "lm_head.weight", "of": "transformer.wte.weight"}]}
 *
 * Every file lists all tensors in the model's order, those with count 0 too. Numbers that may need
 * 64 unsigned bits are texts. Knows no engine: tools read checkpoints with it as well. */
#ifndef TRPI_SHARD_H
#define TRPI_SHARD_H

#include <troupe/zero.h>

#include "core/base/json.h"
#include "trainer/ckpt/safetensors.h"
#include "trainer/model/model.h"

#define TRPI_SHARD_VERSION 1
#define TRPI_SHARD_META "troupe"
#define TRPI_SHARD_NAME "shard-%05d-of-%05d.safetensors" /* rank, world */

typedef enum trpi_shard_state {
    TRPI_SHARD_MASTER,
    TRPI_SHARD_M,
    TRPI_SHARD_V,
    TRPI_SHARD_STATES
} trpi_shard_state;

/* "exp_avg.<name>": appended to `out`, which is emptied first. */
TRP_CHECKED trp_code trpi_shard_tensor_name(trpi_shard_state state, const char *name, trp_buf *out,
                                            trp_error *err);

typedef struct trpi_shard_tensor {
    char *name;
    int64_t shape[TRP_SHAPE_MAX], elements;
    int dims;
} trpi_shard_tensor;

typedef struct trpi_shard_alias {
    char *name, *of;
} trpi_shard_alias;

typedef struct trpi_shard_slice {
    int64_t offset, count; /* of the tensor's elements */
} trpi_shard_slice;

/* All files of a checkpoint. */
typedef struct trpi_shards {
    int world;
    trpi_tensor_file **files;  /* by rank */
    trpi_shard_slice **slices; /* [rank][tensor] */
    trpi_shard_tensor *tensors;
    size_t tensor_count;
    trpi_shard_alias *aliases;
    size_t alias_count;
    uint64_t step, updates, skipped, seed;
    trp_zero_position position;
} trpi_shards;

/* Opens the directory's shards and checks them against each other: none is missing, all are of one
 * checkpoint, every element of every tensor is there once. The data is not read yet. TRP_ENOTFOUND:
 * there is no shard at all. TRP_ECORRUPT names file and tensor. */
TRP_CHECKED trp_code trpi_shards_open(const char *dir, trpi_shards *ret_shards, trp_error *err);
void trpi_shards_close(trpi_shards *shards); /* zeroed is fine */

/* Reads the elements that shard `rank` has of the tensor: slice.count floats. Checksums are
 * compared. */
TRP_CHECKED trp_code trpi_shards_read(const trpi_shards *shards, int rank, size_t tensor,
                                      trpi_shard_state state, float *out, trp_error *err);

/* ---- shard_meta.c ---- */

/* What one file says of itself. */
typedef struct trpi_shard_meta {
    int64_t rank, world;
    uint64_t step, updates, skipped, seed;
    trp_zero_position position;
    trpi_shard_tensor *tensors;
    trpi_shard_slice *slices; /* [tensor] */
    size_t tensor_count;
    trpi_shard_alias *aliases;
    size_t alias_count;
} trpi_shard_meta;

/* Reads the JSON text. TRP_ECORRUPT; TRP_EUNSUPPORTED for another version. */
TRP_CHECKED trp_code trpi_shard_meta_decode(const char *text, trpi_shard_meta *ret_meta,
                                            trp_error *err);
void trpi_shard_meta_release(trpi_shard_meta *meta);

#endif

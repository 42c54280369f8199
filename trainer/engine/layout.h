/* layout.h: where every element of every tensor lives, for all stages, ranks and files. Pure.
 *
 *   unit 0            unit 1                      one bucket, cut for N = 3 ranks
 *   +-----+  +-----+  +---------------+           +----------+----------+----------+
 *   | wte |  | wpe |  | ln_1 c_attn ..|           | tensor A |tensor|B...    |0000|
 *   +-----+  +-----+  +---------------+           +----------+----------+----------+
 *   bucket 0 bucket 1  bucket 2                    rank 0     rank 1     rank 2
 *
 * A bucket is a flat array: consecutive tensors of one unit, each starting at a multiple of
 * TRPI_LAYOUT_ALIGN elements, padded with zeros to N equal slices. Rank r owns slice r of EVERY
 * bucket, at every stage: what a stage changes is only which slices a rank keeps. A tensor larger
 * than the bucket size has a bucket of its own, and so has one that several units use, because its
 * gradient is complete only after its last use. Buckets and tensors stand in the model's order. */
#ifndef TRPI_LAYOUT_H
#define TRPI_LAYOUT_H

#include "trainer/model/model.h"

#define TRPI_LAYOUT_ALIGN 64 /* elements: a cache line of bf16 twice over, and cuBLAS' 16 bytes */

typedef struct trpi_tensor_place {
    const trp_param *param; /* borrowed from the model */
    int unit;               /* the first that uses it */
    int bucket;
    int64_t offset, count; /* in the bucket */
    bool shared;           /* several parameters are this tensor */
} trpi_tensor_place;

typedef struct trpi_bucket {
    int unit; /* the first that uses it */
    int last_unit;
    int tensor, tensor_count;     /* first, and how many */
    int64_t count, padded, slice; /* elements: with inner padding; of all ranks; of a rank */
    int64_t start, slice_start;   /* sums of padded and of slice over the buckets before */
} trpi_bucket;

typedef struct trpi_layout {
    int world;
    trpi_tensor_place *tensors;
    int tensor_count;
    trpi_bucket *buckets;
    int bucket_count;
    int **tensor_of; /* [unit][parameter]: index into tensors */
    int unit_count;
    int64_t parameters; /* elements of all tensors, without padding */
    int64_t padded;     /* elements of all buckets, with it */
} trpi_layout;

/* Borrows the model. bucket_elements >= 1. */
TRP_CHECKED trp_code trpi_layout_init(const trp_model *model, int world, int64_t bucket_elements,
                                      trpi_layout *ret_layout, trp_error *err);
void trpi_layout_release(trpi_layout *layout); /* leaves it zeroed */

/* A run of elements of one tensor. */
typedef struct trpi_piece {
    int64_t tensor_offset, bucket_offset, count;
} trpi_piece;

/* The elements of the tensor that lie in [from, from + count) of its bucket; count 0 if none. */
trpi_piece trpi_layout_piece(const trpi_layout *layout, int tensor, int64_t from, int64_t count);

/* The elements of the tensor that `rank` owns. */
trpi_piece trpi_layout_owned(const trpi_layout *layout, int tensor, int rank);

/* Index of the tensor that parameter `name` is (a tied name too), or -1. */
int trpi_layout_find(const trpi_layout *layout, const trp_model *model, const char *name);

#endif

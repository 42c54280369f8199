/* memory.h: what a rank keeps of the model's state, per stage.
 *
 *   stage   parameters (dtype)      masters, moments (fp32)   gradients (fp32)
 *   0       all                     all                       all
 *   1       all                     own slices                all
 *   2       all                     own slices                own slices + a pool
 *   3       a pool                  own slices                own slices + a pool
 *
 * "all" is every bucket at bucket.start; "own slices" is this rank's slice of every bucket at
 * bucket.slice_start. With fp32 parameters at stages 0 to 2 the masters are the parameters. At
 * stage 3 parameters are made from the masters when they are gathered, so no third copy is kept. */
#ifndef TRPI_ZERO_MEMORY_H
#define TRPI_ZERO_MEMORY_H

#include "trainer/engine/layout.h"
#include "trainer/engine/plan.h"

typedef struct trpi_memory {
    const trpi_layout *layout; /* borrowed */
    trp_device *device;        /* borrowed */
    int stage, rank;
    trp_dtype dtype;
    void *params;   /* NULL at stage 3 */
    float *masters; /* NULL where the parameters are the masters */
    float *m, *v;   /* moments */
    float *grads;
    void *param_pool;  /* stage 3 */
    float *grad_pool;  /* stages 2 and 3 */
    int64_t *param_at; /* [bucket] place in the pool while it is there, else -1 */
    int64_t *grad_at;
} trpi_memory;

TRP_CHECKED trp_code trpi_memory_init(const trpi_layout *layout, const trpi_plan *plan,
                                      trp_device *device, int stage, int rank, trp_dtype dtype,
                                      trpi_memory *ret_memory, trp_error *err);
void trpi_memory_release(trpi_memory *memory); /* zeroed memory is fine */

/* The part of a bucket of which this rank keeps masters and moments: all of it at stage 0. */
int64_t trpi_memory_kept_from(const trpi_memory *memory, int bucket);
int64_t trpi_memory_kept_count(const trpi_memory *memory, int bucket);

/* Pointers to the first kept element of the bucket. */
float *trpi_memory_masters(const trpi_memory *memory, int bucket);
float *trpi_memory_m(const trpi_memory *memory, int bucket);
float *trpi_memory_v(const trpi_memory *memory, int bucket);
/* Gradients of the kept elements, after their reduction. */
float *trpi_memory_kept_grads(const trpi_memory *memory, int bucket);

/* The whole bucket; at stage 3 only while it is gathered. */
void *trpi_memory_params(const trpi_memory *memory, int bucket);
/* The whole bucket's gradients on this rank; at stages 2 and 3 only while it is open. */
float *trpi_memory_grads(const trpi_memory *memory, int bucket);
/* This rank's slice of the bucket's gradients, after their reduction. */
float *trpi_memory_own_grads(const trpi_memory *memory, int bucket);

/* An address `elements` into an array of the dtype. */
void *trpi_offset(void *base, int64_t elements, trp_dtype dtype);

#endif

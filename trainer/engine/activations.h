/* activations.h: memory of a micro-batch: the units' outputs, what they save for backward, one
 * scratch area, gradients that flow backward, losses and the batch itself. One device block, grown
 * when a batch of another shape needs more. */
#ifndef TRPI_ACTIVATIONS_H
#define TRPI_ACTIVATIONS_H

#include <troupe/zero.h>

#include "trainer/model/model.h"

typedef struct trpi_activations {
    const trp_model *model; /* borrowed */
    trp_device *device;     /* borrowed */
    trp_dtype dtype;
    int slots; /* losses are kept of that many micro-steps */
    int64_t rows, columns;
    void *block;
    size_t capacity;
    void **outputs, **saved; /* [unit] */
    void *scratch;
    void *flow[2]; /* gradients by a unit's output and input */
    float *losses; /* (slots, rows, columns) */
    int32_t *tokens, *targets, *lengths;
} trpi_activations;

TRP_CHECKED trp_code trpi_activations_init(const trp_model *model, trp_device *device,
                                           trp_dtype dtype, int slots, trpi_activations *ret_act,
                                           trp_error *err);
void trpi_activations_release(trpi_activations *act);

/* Makes room for batches of that shape. What was there is lost when the shape changes. */
TRP_CHECKED trp_code trpi_activations_shape(trpi_activations *act, int64_t rows, int64_t columns,
                                            trp_error *err);

/* Copies the batch to the device. */
TRP_CHECKED trp_code trpi_activations_upload(trpi_activations *act, const trp_batch *batch,
                                             trp_error *err);

/* The sum of the first `slots` slots' losses, in double, in order. */
TRP_CHECKED trp_code trpi_activations_loss(const trpi_activations *act, int slots, double *ret_sum,
                                           trp_error *err);

#endif

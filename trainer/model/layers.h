/* layers.h: what the units of transformers are made of: memory cut into pieces, linear layers,
 * layer norms. M = rows * columns of a micro-batch. */
#ifndef TRPI_LAYERS_H
#define TRPI_LAYERS_H

#include <troupe/model.h>

#include "core/base/base.h"

/* Cuts a unit's saved or scratch memory into aligned pieces. With base NULL it only measures, so
 * the same code says how much is needed and where each piece lies. */
typedef struct trpi_carver {
    char *base;
    size_t used;
} trpi_carver;

void *trpi_carve(trpi_carver *carver, int64_t elements, size_t element_bytes);

/* y (rows, out) = x (rows, in) . weight (in, out) + bias (out) */
typedef struct trpi_linear {
    trp_device *device;
    trp_dtype dtype;
    int64_t rows, in, out;
} trpi_linear;

TRP_CHECKED trp_code trpi_linear_forward(const trpi_linear *linear, const void *x,
                                         const void *weight, const void *bias, void *y,
                                         trp_error *err);

/* dx = dy . weight^T, dweight += x^T . dy, dbias += the column sums of dy */
TRP_CHECKED trp_code trpi_linear_backward(const trpi_linear *linear, const void *dy, const void *x,
                                          const void *weight, void *dx, float *dweight,
                                          float *dbias, trp_error *err);

/* Layer norm of (rows, columns), with what its backward needs. */
typedef struct trpi_norm {
    trp_device *device;
    trp_dtype dtype;
    int64_t rows, columns;
    float eps;
    void *y;            /* (rows, columns) */
    float *mean, *rstd; /* (rows) */
} trpi_norm;

/* The other members are set; carves y, mean and rstd. */
void trpi_norm_carve(trpi_norm *norm, trpi_carver *carver);

TRP_CHECKED trp_code trpi_norm_forward(const trpi_norm *norm, const void *x, const void *weight,
                                       const void *bias, trp_error *err);

/* dx += ...: what came along the residual stays in it. */
TRP_CHECKED trp_code trpi_norm_backward(const trpi_norm *norm, const void *dy, const void *x,
                                        const void *weight, void *dx, float *dweight, float *dbias,
                                        trp_error *err);

#endif

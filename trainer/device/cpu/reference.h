/* reference.h: elements as doubles. The reference operations are the definitions in device.h
 * written down as loops, in double, on one thread: slow on purpose, and what every other code is
 * held to. */
#ifndef TRPI_REFERENCE_H
#define TRPI_REFERENCE_H

#include "trainer/device/cpu/rows.h"

/* Storage in double, for the reference operations alone: finite differences need it. No public
 * operation takes it. */
#define TRPI_F64 TRP_DTYPE_COUNT

static inline double trpi_get(const void *x, int64_t i, trp_dtype dtype) {
    switch (dtype) {
    case TRP_BF16:
        return (double)trpi_bf16_float(((const uint16_t *)x)[i]);
    case TRP_F16:
        return (double)trpi_f16_float(((const uint16_t *)x)[i]);
    case TRPI_F64:
        return ((const double *)x)[i];
    default:
        return (double)((const float *)x)[i];
    }
}

static inline void trpi_set(void *y, int64_t i, trp_dtype dtype, double value) {
    switch (dtype) {
    case TRP_BF16:
        ((uint16_t *)y)[i] = trpi_float_bf16((float)value);
        break;
    case TRP_F16:
        ((uint16_t *)y)[i] = trpi_float_f16((float)value);
        break;
    case TRPI_F64:
        ((double *)y)[i] = value;
        break;
    default:
        ((float *)y)[i] = (float)value;
    }
}

static inline void trpi_add_to(void *y, int64_t i, trp_dtype dtype, double value) {
    trpi_set(y, i, dtype, trpi_get(y, i, dtype) + value);
}

#endif

/* numbers.h: what the numeric tests share: repeatable numbers, devices, buffers of exact size, and
 * comparison with the reference. */
#ifndef TEST_NUMBERS_H
#define TEST_NUMBERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/base.h"
#include "trainer/device/cpu/reference.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <troupe/device.h>

static uint64_t random_state;

static inline uint32_t random_u32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static inline int64_t random_between(int64_t low, int64_t high) {
    return low + (int64_t)(random_u32() % (uint64_t)(high - low + 1));
}

/* -1 to 1. */
static inline double random_unit(void) {
    return (double)random_u32() / 1073741824.0 - 1.0;
}

static inline trp_device *open_device(int threads, bool reference) {
    trp_device_options options = {.threads = threads, .reference = reference};
    trp_device *device = NULL;
    trp_error error;
    if (trp_device_open("cpu", &options, &device, &error)) {
        fail_msg("%s", error.message);
    }
    return device;
}

static inline size_t element_size(trp_dtype dtype) {
    return dtype == TRPI_F64 ? 8 : trp_dtype_size(dtype);
}

/* Exactly as large as asked for, so that a sanitizer sees a step past the end. */
static inline void *random_values(int64_t count, trp_dtype dtype, double scale) {
    void *data = malloc((size_t)count * element_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        trpi_set(data, i, dtype, random_unit() * scale);
    }
    return data;
}

static inline int32_t *random_ids(int64_t count, int64_t limit) {
    int32_t *ids = malloc((size_t)count * sizeof(*ids));
    for (int64_t i = 0; i < count; i++) {
        ids[i] = (int32_t)random_between(0, limit - 1);
    }
    return ids;
}

static inline void *copy_of(const void *data, size_t bytes) {
    void *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    return copy;
}

static inline void *converted(const void *data, int64_t count, trp_dtype from, trp_dtype to) {
    void *copy = malloc((size_t)count * element_size(to));
    for (int64_t i = 0; i < count; i++) {
        trpi_set(copy, i, to, trpi_get(data, i, from));
    }
    return copy;
}

static inline void expect_ok(trp_code code, const trp_error *error) {
    if (code) {
        fail_msg("%s", error->message);
    }
}

/* Each element within `tolerance` of the wanted one, relative to it or to the tensor's root mean
 * square: a sum that happens to cancel is as inexact as its neighbours. */
static inline void expect_close(const char *what, const void *got, const void *want, int64_t count,
                                trp_dtype dtype, double tolerance) {
    double square = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double w = trpi_get(want, i, dtype);
        square += w * w / (double)count;
    }
    double size = sqrt(square);
    for (int64_t i = 0; i < count; i++) {
        double g = trpi_get(got, i, dtype), w = trpi_get(want, i, dtype);
        if (!(fabs(g - w) <= tolerance * fmax(fabs(w), size))) {
            fail_msg("%s[%d] of %d, %s: got %.9g, want %.9g (rms %.3g)", what, (int)i, (int)count,
                     dtype == TRPI_F64 ? "F64" : trp_dtype_name(dtype), g, w, size);
        }
    }
}

/* What one more rounding to the dtype may cost, with room for sums in another order. */
static inline double tolerance_of(trp_dtype dtype) {
    return dtype == TRP_F32 ? 1e-5 : dtype == TRP_BF16 ? 1.6e-2 : 2e-3;
}

#endif

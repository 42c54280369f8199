#include "trainer/device/cpu/rows.h"

void trpi_row_read(const void *x, int64_t at, int64_t n, trp_dtype dtype, float *to) {
    if (dtype == TRP_F32) {
        memcpy(to, (const float *)x + at, (size_t)n * sizeof(float));
        return;
    }
    const uint16_t *from = (const uint16_t *)x + at;
    if (dtype == TRP_BF16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = trpi_bf16_float(from[i]);
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = trpi_f16_float(from[i]);
        }
    }
}

void trpi_row_write(void *y, int64_t at, int64_t n, trp_dtype dtype, const float *from) {
    if (dtype == TRP_F32) {
        float *to = (float *)y + at;
        if (to != from) {
            memcpy(to, from, (size_t)n * sizeof(float));
        }
        return;
    }
    uint16_t *to = (uint16_t *)y + at;
    if (dtype == TRP_BF16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = trpi_float_bf16(from[i]);
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = trpi_float_f16(from[i]);
        }
    }
}

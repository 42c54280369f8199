/* fastmath.h: exponentials that the vectorizer can inline. libm's are calls, and GELU and softmax
 * would spend their time in them. Branch-free; NaN goes through. */
#ifndef TRPI_FASTMATH_H
#define TRPI_FASTMATH_H

#include "trainer/device/cpu/rows.h"

/* e^x for x up to 88, to about 1 ulp; 0 below -87, where the result would be subnormal. Softmax has
 * no positive argument and GELU stops at 88, so the top of the range is not paid for here.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its series, 2^n by building the exponent. Adding
 * 1.5 * 2^23 rounds to an integer and leaves it in the low bits, without an int conversion that NaN
 * would make undefined. */
static inline float trpi_expf(float x) {
    float shifted = x * 1.44269504f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r =
        x - n * 0.693145752f; /* ln 2 in two parts; the first has few bits: n times it is exact */
    r = r - n * 1.42860682e-6f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    float power = trpi_bits_float((trpi_float_bits(shifted) - 0x4b400000u + 127u) << 23);
    return x < -87.0f ? 0.0f : p * power;
}

/* tanh. By the exponential where that is accurate, by the odd series where 1 - 2/(e^2x + 1) would
 * cancel. */
static inline float trpi_tanhf(float x) {
    float magnitude = trpi_bits_float(trpi_float_bits(x) & 0x7fffffffu);
    float sign = trpi_bits_float((trpi_float_bits(x) & 0x80000000u) | 0x3f800000u);
    float twice = 2.0f * (magnitude > 44.0f ? 44.0f : magnitude); /* NaN is not greater */
    float large = 1.0f - 2.0f / (trpi_expf(twice) + 1.0f);
    float s = x * x;
    float p = -1382.0f / 155925;
    p = p * s + 62.0f / 2835;
    p = p * s - 17.0f / 315;
    p = p * s + 2.0f / 15;
    p = p * s - 1.0f / 3;
    float small = x + x * s * p;
    return magnitude < 0.3f ? small : sign * large;
}

/* The largest of n floats, or `least` if none is above it. NaN never compares greater, so it is
 * passed over. Sixteen running maxima rather than a reduction: clang vectorizes one only when told
 * that there is no NaN. */
static inline float trpi_row_max(const float *x, int64_t n, float least) {
    float tops[16];
    int64_t whole = n / 16 * 16;
    for (int l = 0; l < 16; l++) {
        tops[l] = least;
    }
    for (int64_t j = 0; j < whole; j += 16) {
#pragma omp simd
        for (int l = 0; l < 16; l++) {
            tops[l] = x[j + l] > tops[l] ? x[j + l] : tops[l];
        }
    }
    for (int64_t j = whole; j < n; j++) {
        tops[0] = x[j] > tops[0] ? x[j] : tops[0];
    }
    for (int l = 1; l < 16; l++) {
        tops[0] = tops[l] > tops[0] ? tops[l] : tops[0];
    }
    return tops[0];
}

#endif

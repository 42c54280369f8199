/* rows.h: storage formats. Every operation computes in fp32 on rows (or pieces of them) that are
 * loaded from and stored to F32, BF16 or F16. F32 rows are used where they lie, without a copy. */
#ifndef TRPI_ROWS_H
#define TRPI_ROWS_H

#include <stdint.h>
#include <string.h>
#include <troupe/device.h>

static inline uint32_t trpi_float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float trpi_bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float trpi_bf16_float(uint16_t half) {
    return trpi_bits_float((uint32_t)half << 16);
}

/* Nearest even: adding 0x7fff, plus one more when the kept part is odd, carries exactly when it
 * must round up. A NaN is kept apart, since the carry could turn it into Inf. */
static inline uint16_t trpi_float_bf16(float x) {
    uint32_t bits = trpi_float_bits(x);
    uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    uint32_t quiet = bits | 0x400000u;
    return (uint16_t)((x != x ? quiet : rounded) >> 16);
}

/* The half's bits, moved to where a float has them, are the value times 2^-112; that holds for
 * subnormals too. Only Inf and NaN need their exponent filled up. */
static inline float trpi_f16_float(uint16_t half) {
    uint32_t magnitude = (half & 0x7fffu) << 13;
    float scaled = trpi_bits_float(magnitude) * 0x1p112f;
    uint32_t special = magnitude | 0x7f800000u;
    uint32_t bits = magnitude >= 0x0f800000u ? special : trpi_float_bits(scaled);
    return trpi_bits_float(bits | (uint32_t)(half & 0x8000u) << 16);
}

/* Normal halves round as bf16 does. For smaller ones 0.5f is added: its last place is the smallest
 * half, so the addition itself rounds, and the bits above 0.5f's are the answer. */
static inline uint16_t trpi_float_f16(float x) {
    uint32_t bits = trpi_float_bits(x);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t small = trpi_float_bits(trpi_bits_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half; /* rounds past the largest half: Inf */
    half = magnitude > 0x7f800000u ? 0x7e00u : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000u));
}

static inline size_t trpi_element_size(trp_dtype dtype) {
    return dtype == TRP_BF16 || dtype == TRP_F16 ? 2 : 4;
}

/* Byte address of element `at`. */
static inline void *trpi_at(void *x, int64_t at, trp_dtype dtype) {
    return (char *)x + at * (int64_t)trpi_element_size(dtype);
}

/* Converts `n` elements from x[at]. */
void trpi_row_read(const void *x, int64_t at, int64_t n, trp_dtype dtype, float *to);
/* Converts `n` floats into y[at]; `from` may be the place itself when dtype is F32. */
void trpi_row_write(void *y, int64_t at, int64_t n, trp_dtype dtype, const float *from);

/* The row as floats: where it lies if it is F32, else converted into `scratch`. */
static inline const float *trpi_row_load(const void *x, int64_t at, int64_t n, trp_dtype dtype,
                                         float *scratch) {
    if (dtype == TRP_F32) {
        return (const float *)x + at;
    }
    trpi_row_read(x, at, n, dtype, scratch);
    return scratch;
}

/* Where to compute a result row: its own place if it is F32, else `scratch`. trpi_row_write ends.
 */
static inline float *trpi_row_place(void *y, int64_t at, trp_dtype dtype, float *scratch) {
    return dtype == TRP_F32 ? (float *)y + at : scratch;
}

#endif

/* reduce.c: blocks of a few KiB go through an accumulator on the stack, so that every source is
 * read once, the sum stays in the first-level cache, and the loops have constant length and no
 * aliasing, which is what lets the compiler use vector instructions at -O2. */
#include "trainer/comm/reduce.h"

#include <string.h>

enum { BLOCK = 512 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

static float bf16_to_f32(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t f32_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40; /* a NaN must not round to infinity */
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/* ---- One source into the accumulator. A function per dtype and operation; `n` is a constant where
 *      they are called for a whole block. ---- */

#define COMBINE(name, type, acc_type, expression)                                                  \
    ALWAYS_INLINE void name##_n(acc_type *restrict acc, const type *restrict in, int n) {          \
        for (int i = 0; i < n; i++) {                                                              \
            acc[i] = (expression);                                                                 \
        }                                                                                          \
    }                                                                                              \
    static void name(void *acc, const void *in, int n) {                                           \
        if (n == BLOCK) {                                                                          \
            name##_n(acc, in, BLOCK);                                                              \
        } else {                                                                                   \
            name##_n(acc, in, n);                                                                  \
        }                                                                                          \
    }

/* acc is NaN: stays NaN; in is NaN: the comparison fails and takes it. */
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

COMBINE(f32_load, float, float, in[i])
COMBINE(f32_add, float, float, acc[i] + in[i])
COMBINE(f32_max, float, float, LARGER(acc[i], in[i]))
COMBINE(bf16_load, uint16_t, float, bf16_to_f32(in[i]))
COMBINE(bf16_add, uint16_t, float, acc[i] + bf16_to_f32(in[i]))
COMBINE(bf16_max, uint16_t, float, LARGER(acc[i], bf16_to_f32(in[i])))
COMBINE(i32_load, int32_t, int32_t, in[i])
COMBINE(i32_add, int32_t, int32_t, (int32_t)((uint32_t)acc[i] + (uint32_t)in[i]))
COMBINE(i32_max, int32_t, int32_t, acc[i] > in[i] ? acc[i] : in[i])
/* The way out has the same form: `acc` is the destination, `in` the accumulator. */
COMBINE(f32_store, float, float, in[i])
COMBINE(bf16_store, float, uint16_t, f32_to_bf16(in[i]))
COMBINE(i32_store, int32_t, int32_t, in[i])

typedef void combine_fn(void *acc, const void *in, int n);

static void divide(float *acc, int n, float by) {
    for (int i = 0; i < n; i++) {
        acc[i] /= by;
    }
}

typedef struct reducer {
    size_t size;
    combine_fn *load, *add, *max, *store;
} reducer;

static const reducer reducers[] = {
    [TRP_F32] = {4, f32_load, f32_add, f32_max, f32_store},
    [TRP_BF16] = {2, bf16_load, bf16_add, bf16_max, bf16_store},
    [TRP_I32] = {4, i32_load, i32_add, i32_max, i32_store},
};

void trpi_reduce(void *out, const void *const *in, int n, int64_t count, trp_dtype dtype,
                 trp_reduce op) {
    const reducer *r = &reducers[dtype];
    combine_fn *combine = op == TRP_REDUCE_MAX ? r->max : r->add;
    union {
        float floats[BLOCK];
        int32_t ints[BLOCK];
    } acc;
    for (int64_t at = 0; at < count; at += BLOCK) {
        int here = (int)TRPI_MIN(count - at, BLOCK);
        size_t offset = (size_t)at * r->size;
        r->load(&acc, (const char *)in[0] + offset, here);
        for (int i = 1; i < n; i++) {
            combine(&acc, (const char *)in[i] + offset, here);
        }
        if (op == TRP_REDUCE_AVERAGE) {
            divide(acc.floats, here, (float)n);
        }
        r->store((char *)out + offset, &acc, here);
    }
}

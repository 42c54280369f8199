#include "trainer/device/cpu/tile.h"

/* A vector as wide as the machine's registers; gcc and clang lower it to what the machine has. The
 * block of C held in registers is sized to leave room for two vectors of B. */
#ifdef __AVX512F__
#define LANES 16
#define BLOCK_ROWS 8
#else
#define LANES 8
#define BLOCK_ROWS 4
#endif
typedef float vector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* `rows` and `vectors` are constants at every call: the loops unroll and sum[][] is registers. */
INLINE void block(const trpi_tile *t, int64_t i, int64_t j, const int rows, const int vectors) {
    const float *a = t->a + i * t->a_row;
    const float *b = t->b + j;
    float *c = t->c + i * t->c_row + j;
    vector sum[BLOCK_ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            vector zero = {0};
            sum[r][v] = t->accumulate ? *(const vector *)(c + r * t->c_row + v * LANES) : zero;
        }
    }
    for (int64_t k = 0; k < t->k; k++) {
        vector row[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            row[v] = *(const vector *)(b + v * LANES);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            float scalar = a[r * t->a_row];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                sum[r][v] += scalar * row[v];
            }
        }
        a += t->a_column;
        b += t->b_row;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            *(vector *)(c + r * t->c_row + v * LANES) = sum[r][v];
        }
    }
}

INLINE void column_strip(const trpi_tile *t, int64_t j, const int vectors) {
    int64_t i = 0;
    for (; i + BLOCK_ROWS <= t->m; i += BLOCK_ROWS) {
        block(t, i, j, BLOCK_ROWS, vectors);
    }
    for (; i + 2 <= t->m; i += 2) {
        block(t, i, j, 2, vectors);
    }
    if (i < t->m) {
        block(t, i, j, 1, vectors);
    }
}

void trpi_tile_multiply(const trpi_tile *tile) {
    int64_t j = 0;
    for (; j + 2 * LANES <= tile->n; j += 2 * LANES) {
        column_strip(tile, j, 2);
    }
    if (j < tile->n) {
        column_strip(tile, j, 1);
    }
}

/* tile.h: the product of two small matrices that lie in cache, which attention and gemm_blocked.c
 * are built from.
 *
 * C (m, n) = [C +] A (m, k) . B (k, n). A's elements are broadcast one by one, so A may have any
 * strides (a transposed A costs nothing); rows of B and C are contiguous and n is a multiple of
 * TRPI_TILE_COLUMNS, padded with zeros by the caller. */
#ifndef TRPI_TILE_H
#define TRPI_TILE_H

#include <stdbool.h>
#include <stdint.h>

#define TRPI_TILE_COLUMNS 16
#define TRPI_TILE_ROWS 8

typedef struct trpi_tile {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_column; /* strides of A */
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row;
    bool accumulate;
} trpi_tile;

void trpi_tile_multiply(const trpi_tile *tile);

#endif

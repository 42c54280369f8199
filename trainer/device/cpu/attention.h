/* attention.h: what the two directions of attention share: one head's rows laid out for tile.h. */
#ifndef TRPI_ATTENTION_H
#define TRPI_ATTENTION_H

#include "trainer/device/cpu/cpu.h"

/* Queries and keys are taken TILE at a time; a tile's scores (TILE, TILE) stay in cache. */
enum { TRPI_ATTENTION_TILE = 64 };

/* Shape of one attention, with head rows padded to a multiple of the tile product's columns. */
typedef struct trpi_head_shape {
    int64_t time, heads, head_size;
    int64_t width;  /* head_size padded */
    int64_t tiles;  /* of keys, or of queries */
    int64_t padded; /* time padded to whole tiles */
    float scale;    /* 1 / sqrt(head_size) */
    bool causal;
    trp_dtype dtype;
} trpi_head_shape;

trpi_head_shape trpi_head_shape_of(int64_t time, int64_t heads, int64_t head_size, bool causal,
                                   trp_dtype dtype);

/* Element index of position 0 of part 0 (q), 1 (k) or 2 (v) in (batch, time, 3, heads, head_size),
 * and of (batch, time, heads, head_size). */
int64_t trpi_head_qkv_at(const trpi_head_shape *s, int64_t batch, int64_t head, int part);
int64_t trpi_head_out_at(const trpi_head_shape *s, int64_t batch, int64_t head);

/* Rows from..from+count of a head as floats times `factor`, `width` apart; padding is zero, and
 * rows at or past `time` are zero. `step` is the distance of two positions in x. */
void trpi_head_load(const trpi_head_shape *s, const void *x, int64_t at, int64_t step, int64_t from,
                    int64_t count, float factor, float *rows);
/* Writes rows back, without the padding and the rows past `time`. */
void trpi_head_store(const trpi_head_shape *s, void *y, int64_t at, int64_t step, int64_t from,
                     int64_t count, float *rows);

/* (padded, width) into tiles of (width, TILE), each a tile of keys transposed. */
void trpi_head_transpose(const trpi_head_shape *s, const float *rows, float *transposed);

/* Keys that query `i` may see: 1 up to `length`. */
static inline int64_t trpi_head_visible(const trpi_head_shape *s, int64_t i, int64_t length) {
    return s->causal && i + 1 < length ? i + 1 : length;
}

#endif

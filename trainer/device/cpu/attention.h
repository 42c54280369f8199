/* attention.h: what the two directions of attention share: one head's rows laid out for tile.h.
 *
 * Scores are computed transposed, keys down and queries across: what a softmax needs of each query
 * (its maximum, its sum) is then one lane of a vector, and no vector is ever summed across. */
#ifndef TRPI_ATTENTION_H
#define TRPI_ATTENTION_H

#include "trainer/device/cpu/cpu.h"

/* Queries and keys are taken TILE at a time; a tile's scores (TILE, TILE) stay in cache. */
enum { TRPI_ATTENTION_TILE = 64 };

/* Shape of one attention, with head rows padded to a multiple of the tile product's columns. */
typedef struct trpi_head_shape {
    int64_t time, heads, head_size;
    int64_t width;  /* head_size padded */
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

/* Rows from..from+count of a head as floats, `width` apart; padding is zero, and so are rows at or
 * past `time`. `step` is the distance of two positions in x. */
void trpi_head_load(const trpi_head_shape *s, const void *x, int64_t at, int64_t step, int64_t from,
                    int64_t count, float *rows);
/* Writes rows back, without the padding and the rows past `time`. */
void trpi_head_store(const trpi_head_shape *s, void *y, int64_t at, int64_t step, int64_t from,
                     int64_t count, const float *rows);

/* A tile's rows (TILE, width) times `factor` to (width, TILE). */
void trpi_head_transpose(const trpi_head_shape *s, const float *rows, float factor,
                         float *transposed);

/* scores (keys, TILE) = rows (keys, width) . transposed (width, TILE). */
void trpi_head_scores(const trpi_head_shape *s, int64_t keys, const float *rows,
                      const float *transposed, float *scores);

/* One head of one sequence, with `scratch` of a thread's own. */
typedef void (*trpi_head_fn)(const void *args, const trpi_head_shape *s, int64_t batch,
                             int64_t head, float *scratch);

/* Runs fn on every head of every sequence. `lengths` (batch) are checked first; each thread has
 * `floats` of scratch. */
trp_code trpi_head_each(trpi_cpu *cpu, const trpi_head_shape *s, int64_t batch,
                        const int32_t *lengths, size_t floats, trpi_head_fn fn, const void *args,
                        trp_error *err);

/* Keys that query `i` may see: 1 up to `length`. */
static inline int64_t trpi_head_visible(const trpi_head_shape *s, int64_t i, int64_t length) {
    return s->causal && i + 1 < length ? i + 1 : length;
}

/* How many of a tile's queries, from the first on, must not see key `key`. */
static inline int64_t trpi_head_hidden(const trpi_head_shape *s, int64_t first_query, int64_t key) {
    int64_t before = s->causal ? key - first_query : 0;
    return before < 0 ? 0 : before < TRPI_ATTENTION_TILE ? before : TRPI_ATTENTION_TILE;
}

#endif

/* attention.c: softmax(q k^T / sqrt(head_size)) v without a (time, time) matrix. Keys come a tile
 * at a time; each query keeps the maximum so far and rescales what it has when a larger one appears
 * (Milakov, Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135). Tiles that the
 * causal mask or the lengths hide wholly are never computed. One head of one sequence is one part.
 */
#include "trainer/device/cpu/attention.h"

#include "core/base/base.h"
#include "trainer/device/cpu/fastmath.h"
#include "trainer/device/cpu/tile.h"
#include <math.h>

enum { TILE = TRPI_ATTENTION_TILE };

/* One tile of queries, while it walks over the keys. */
struct queries {
    int64_t first;
    float *transposed; /* (width, TILE), scaled */
    float *rows;       /* (TILE, width): the queries; then the sum of e^(score - max) v */
    float *scores;     /* (TILE keys, TILE queries) */
    float max[TILE], sum[TILE];
};

/* Queries do not see the keys that come after them. */
static void hide(const trpi_head_shape *s, const struct queries *t, int64_t first_key,
                 int64_t keys) {
    for (int64_t j = 0; j < keys; j++) {
        int64_t hidden = trpi_head_hidden(s, t->first, first_key + j);
        for (int64_t i = 0; i < hidden; i++) {
            t->scores[j * TILE + i] = -INFINITY;
        }
    }
}

/* Turns scores into e^(score - max) after raising each query's max to theirs; ret_shrink are the
 * factors by which everything before shrinks. NaN never compares greater, so no max is NaN; it goes
 * through the exponential. */
static void soften(struct queries *t, int64_t keys, float *restrict ret_shrink) {
    float top[TILE], total[TILE];
    memcpy(top, t->max, sizeof(top));
    for (int64_t j = 0; j < keys; j++) {
        const float *score = t->scores + j * TILE;
#pragma omp simd
        for (int i = 0; i < TILE; i++) {
            top[i] = score[i] > top[i] ? score[i] : top[i];
        }
    }
    memset(total, 0, sizeof(total));
    for (int64_t j = 0; j < keys; j++) {
        float *score = t->scores + j * TILE;
#pragma omp simd
        for (int i = 0; i < TILE; i++) {
            score[i] = trpi_expf(score[i] - top[i]);
            total[i] += score[i];
        }
    }
#pragma omp simd
    for (int i = 0; i < TILE; i++) {
        ret_shrink[i] = trpi_expf(t->max[i] - top[i]);
        t->sum[i] = t->sum[i] * ret_shrink[i] + total[i];
        t->max[i] = top[i];
    }
}

static void scale_rows(float *rows, int64_t width, const float *factors) {
    for (int64_t i = 0; i < TILE; i++) {
        float *row = rows + i * width;
#pragma omp simd
        for (int64_t j = 0; j < width; j++) {
            row[j] *= factors[i];
        }
    }
}

static void visit_keys(const trpi_head_shape *s, struct queries *t, int64_t first_key, int64_t keys,
                       const float *k, const float *v) {
    float shrink[TILE];
    trpi_head_scores(s, keys, k, t->transposed, t->scores);
    hide(s, t, first_key, keys);
    soften(t, keys, shrink);
    if (first_key > 0) {
        scale_rows(t->rows, s->width, shrink);
    }
    trpi_tile_multiply(&(trpi_tile){.m = TRPI_MIN(TILE, s->time - t->first),
                                    .n = s->width,
                                    .k = keys,
                                    .a = t->scores,
                                    .a_row = 1,
                                    .a_column = TILE,
                                    .b = v,
                                    .b_row = s->width,
                                    .c = t->rows,
                                    .c_row = s->width,
                                    .accumulate = first_key > 0});
}

static void finish_queries(const trpi_head_shape *s, struct queries *t, float *lse) {
    float inverse[TILE];
    for (int i = 0; i < TILE; i++) {
        inverse[i] = 1.0f / t->sum[i];
    }
    scale_rows(t->rows, s->width, inverse);
    for (int64_t i = 0; i < TRPI_MIN(TILE, s->time - t->first); i++) {
        lse[t->first + i] = t->max[i] + logf(t->sum[i]);
    }
}

/* Scratch of one thread: k and v of the head, then the tile of queries. */
static size_t thread_floats(const trpi_head_shape *s) {
    return (size_t)(2 * s->padded * s->width + 2 * TILE * s->width + TILE * TILE);
}

static void attend(const void *arg, const trpi_head_shape *s, int64_t batch, int64_t head,
                   float *scratch) {
    const trp_attention_args *args = arg;
    int64_t size = s->padded * s->width, step = s->heads * s->head_size;
    float *k = scratch, *v = scratch + size;
    struct queries t = {.transposed = v + size};
    t.rows = t.transposed + TILE * s->width;
    t.scores = t.rows + TILE * s->width;
    trpi_head_load(s, args->qkv, trpi_head_qkv_at(s, batch, head, 1), 3 * step, 0, s->padded, k);
    trpi_head_load(s, args->qkv, trpi_head_qkv_at(s, batch, head, 2), 3 * step, 0, s->padded, v);
    int64_t length = args->lengths ? args->lengths[batch] : s->time;
    float *lse = args->lse + (batch * s->heads + head) * s->time;
    for (t.first = 0; t.first < s->time; t.first += TILE) {
        trpi_head_load(s, args->qkv, trpi_head_qkv_at(s, batch, head, 0), 3 * step, t.first, TILE,
                       t.rows);
        trpi_head_transpose(s, t.rows, s->scale, t.transposed);
        for (int i = 0; i < TILE; i++) {
            t.max[i] = -INFINITY;
            t.sum[i] = 0.0f;
        }
        int64_t end = trpi_head_visible(s, TRPI_MIN(t.first + TILE, s->time) - 1, length);
        for (int64_t key = 0; key < end; key += TILE) {
            visit_keys(s, &t, key, TRPI_MIN(TILE, end - key), k + key * s->width,
                       v + key * s->width);
        }
        finish_queries(s, &t, lse);
        trpi_head_store(s, args->out, trpi_head_out_at(s, batch, head), step, t.first, TILE,
                        t.rows);
    }
}

trp_code trpi_cpu_attention(trp_device *device, const trp_attention_args *args, trp_error *err) {
    trpi_head_shape s =
        trpi_head_shape_of(args->time, args->heads, args->head_size, args->causal, args->dtype);
    return trpi_head_each(trpi_cpu_of(device), &s, args->batch, args->lengths, thread_floats(&s),
                          attend, args, err);
}

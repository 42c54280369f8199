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
    float *q;      /* (TILE, width), already scaled */
    float *out;    /* (TILE, width), sum of e^(score - max) v */
    float *scores; /* (TILE, TILE) */
    float max[TILE], sum[TILE];
};

/* Turns a row of scores into e^(score - max) after raising max to theirs; returns the factor by
 * which everything before shrinks. */
static float soften(float *scores, int64_t visible, float *max, float *sum) {
    for (int64_t j = visible; j < TILE; j++) {
        scores[j] = -INFINITY;
    }
    float top = trpi_row_max(scores, TILE, *max);
    float shrink = trpi_expf(*max - top), total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < TILE; j++) {
        scores[j] = trpi_expf(scores[j] - top);
        total += scores[j];
    }
    *max = top;
    *sum = *sum * shrink + total;
    return shrink;
}

static void visit_keys(const trpi_head_shape *s, struct queries *t, int64_t first_query,
                       int64_t first_key, int64_t length, const float *k_transposed,
                       const float *v) {
    int64_t m = TRPI_MIN(TILE, s->time - first_query);
    trpi_tile_multiply(&(trpi_tile){.m = m,
                                    .n = TILE,
                                    .k = s->width,
                                    .a = t->q,
                                    .a_row = s->width,
                                    .a_column = 1,
                                    .b = k_transposed,
                                    .b_row = TILE,
                                    .c = t->scores,
                                    .c_row = TILE});
    for (int64_t i = 0; i < m; i++) {
        int64_t visible = trpi_head_visible(s, first_query + i, length) - first_key;
        visible = TRPI_MAX(0, TRPI_MIN(visible, TILE));
        float shrink = soften(t->scores + i * TILE, visible, &t->max[i], &t->sum[i]);
        float *out = t->out + i * s->width;
#pragma omp simd
        for (int64_t j = 0; j < s->width; j++) {
            out[j] *= shrink;
        }
    }
    trpi_tile_multiply(&(trpi_tile){.m = m,
                                    .n = s->width,
                                    .k = TRPI_MIN(TILE, s->time - first_key),
                                    .a = t->scores,
                                    .a_row = TILE,
                                    .a_column = 1,
                                    .b = v,
                                    .b_row = s->width,
                                    .c = t->out,
                                    .c_row = s->width,
                                    .accumulate = true});
}

static void finish_queries(const trpi_head_shape *s, struct queries *t, int64_t first, float *lse) {
    for (int64_t i = 0; i < TRPI_MIN(TILE, s->time - first); i++) {
        float inverse = 1.0f / t->sum[i];
        for (int64_t j = 0; j < s->width; j++) {
            t->out[i * s->width + j] *= inverse;
        }
        lse[first + i] = t->max[i] + logf(t->sum[i]);
    }
}

/* Scratch of one thread: k transposed and v of the head, then the tile of queries. */
static size_t thread_floats(const trpi_head_shape *s) {
    return (size_t)(2 * s->padded * s->width + 2 * TILE * s->width + TILE * TILE);
}

static void attend(const trp_attention_args *args, const trpi_head_shape *s, int64_t batch,
                   int64_t head, float *scratch) {
    int64_t size = s->padded * s->width, step = s->heads * s->head_size;
    float *k_transposed = scratch, *v = scratch + size;
    struct queries t = {.q = v + size};
    t.out = t.q + TILE * s->width;
    t.scores = t.out + TILE * s->width;
    /* v's place holds k until it is transposed. */
    trpi_head_load(s, args->qkv, trpi_head_qkv_at(s, batch, head, 1), 3 * step, 0, s->padded, 1.0f,
                   v);
    trpi_head_transpose(s, v, k_transposed);
    trpi_head_load(s, args->qkv, trpi_head_qkv_at(s, batch, head, 2), 3 * step, 0, s->padded, 1.0f,
                   v);
    int64_t length = args->lengths ? args->lengths[batch] : s->time;
    float *lse = args->lse + (batch * s->heads + head) * s->time;
    for (int64_t first = 0; first < s->time; first += TILE) {
        trpi_head_load(s, args->qkv, trpi_head_qkv_at(s, batch, head, 0), 3 * step, first, TILE,
                       s->scale, t.q);
        memset(t.out, 0, (size_t)(TILE * s->width) * sizeof(float));
        for (int i = 0; i < TILE; i++) {
            t.max[i] = -INFINITY;
            t.sum[i] = 0.0f;
        }
        int64_t end = trpi_head_visible(s, TRPI_MIN(first + TILE, s->time) - 1, length);
        for (int64_t key = 0; key < end; key += TILE) {
            visit_keys(s, &t, first, key, length, k_transposed + key * s->width,
                       v + key * s->width);
        }
        finish_queries(s, &t, first, lse);
        trpi_head_store(s, args->out, trpi_head_out_at(s, batch, head), step, first, TILE, t.out);
    }
}

trp_code trpi_cpu_attention(trp_device *device, const trp_attention_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    trpi_head_shape s =
        trpi_head_shape_of(args->time, args->heads, args->head_size, args->causal, args->dtype);
    int64_t parts = args->batch * s.heads;
    int threads = trpi_cpu_threads(cpu, parts * s.time * s.time * s.width / 8);
    size_t each = thread_floats(&s);
    float *scratch = NULL;
    trp_code code = trpi_cpu_check_lengths(args->lengths, args->batch, s.time, err);
    if (!code) {
        code = trpi_cpu_scratch(cpu, (size_t)threads * each * sizeof(float), &scratch, err);
    }
    if (code) {
        return code;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t part = 0; part < parts; part++) {
        attend(args, &s, part / s.heads, part % s.heads,
               scratch + (size_t)omp_get_thread_num() * each);
    }
    return TRP_OK;
}

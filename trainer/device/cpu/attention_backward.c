/* attention_backward.c: gradients of attention. Probabilities are computed again, tile by tile,
 * from the scores and the kept log of each denominator (Dao et al. 2022, section 3.1 and appendix
 * B), with s = q k^T / sqrt(head_size):
 *
 *   p = e^(s - lse)     dv += p^T dout     ds = p (dout v^T - sum_j dout_j out_j) / sqrt(head_size)
 *                       dq += ds k         dk += ds^T q
 *
 * One head of one sequence is one part, walked in a fixed order: no two threads add to one row. */
#include "trainer/device/cpu/attention.h"

#include "core/base/base.h"
#include "trainer/device/cpu/fastmath.h"
#include "trainer/device/cpu/tile.h"

enum { TILE = TRPI_ATTENTION_TILE };

/* A tile of queries, while it walks over the keys. */
struct queries {
    int64_t first, count;
    float *q, *dout, *dq;                  /* (TILE, width) */
    float *q_transposed, *dout_transposed; /* (width, TILE); q's is scaled */
    float *p, *ds;                         /* (TILE keys, TILE queries) */
    float lse[TILE], delta[TILE];          /* delta: sum_j dout_j out_j */
};

/* A head's rows, each (padded, width). */
struct head {
    const trpi_head_shape *s;
    float *k, *v, *dk, *dv;
    const float *lse; /* (time) */
    int64_t length;
    struct queries t;
};

static size_t thread_floats(const trpi_head_shape *s) {
    return (size_t)(4 * s->padded * s->width + 5 * TILE * s->width + 2 * TILE * TILE);
}

static float *take(float **scratch, int64_t count) {
    float *piece = *scratch;
    *scratch += count;
    return piece;
}

static void carve(struct head *h, float *scratch) {
    int64_t all = h->s->padded * h->s->width, tile = TILE * h->s->width;
    h->k = take(&scratch, all);
    h->v = take(&scratch, all);
    h->dk = take(&scratch, all);
    h->dv = take(&scratch, all);
    h->t.q = take(&scratch, tile);
    h->t.dout = take(&scratch, tile);
    h->t.dq = take(&scratch, tile);
    h->t.q_transposed = take(&scratch, tile);
    h->t.dout_transposed = take(&scratch, tile);
    h->t.p = take(&scratch, TILE * TILE);
    h->t.ds = take(&scratch, TILE * TILE);
}

/* Queries past the end are rows of zeros, and what comes of them is not stored. */
static void load_queries(const trp_attention_backward_args *args, struct head *h, int64_t batch,
                         int64_t head) {
    const trpi_head_shape *s = h->s;
    struct queries *t = &h->t;
    int64_t step = s->heads * s->head_size, out = trpi_head_out_at(s, batch, head);
    t->count = TRPI_MIN(TILE, s->time - t->first);
    trpi_head_load(s, args->dout, out, step, t->first, TILE, t->dout);
    trpi_head_load(s, args->out, out, step, t->first, TILE, t->q); /* q's place is free */
    for (int64_t i = 0; i < TILE; i++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < s->width; j++) {
            sum += t->dout[i * s->width + j] * t->q[i * s->width + j];
        }
        t->delta[i] = sum;
        t->lse[i] = i < t->count ? h->lse[t->first + i] : 0.0f;
    }
    trpi_head_load(s, args->qkv, trpi_head_qkv_at(s, batch, head, 0), 3 * step, t->first, TILE,
                   t->q);
    trpi_head_transpose(s, t->q, s->scale, t->q_transposed);
    trpi_head_transpose(s, t->dout, 1.0f, t->dout_transposed);
}

/* p and ds of one tile from its scores (in p) and dp (in ds). */
static void soften(const struct head *h, int64_t first_key, int64_t keys) {
    const struct queries *t = &h->t;
    for (int64_t j = 0; j < keys; j++) {
        float *restrict p = t->p + j * TILE, *restrict ds = t->ds + j * TILE;
        int hidden = (int)trpi_head_hidden(h->s, t->first, first_key + j);
        float scale = h->s->scale;
#pragma omp simd
        for (int i = 0; i < TILE; i++) {
            float e = trpi_expf(p[i] - t->lse[i]);
            p[i] = i < hidden ? 0.0f : e;
            ds[i] = i < hidden ? 0.0f : e * (ds[i] - t->delta[i]) * scale;
        }
    }
}

/* c (rows, width) [+]= a (rows, depth) . b (depth, width). */
static void multiply(const trpi_head_shape *s, int64_t rows, int64_t depth, const float *a,
                     int64_t a_row, int64_t a_column, const float *b, float *c, bool accumulate) {
    trpi_tile_multiply(&(trpi_tile){.m = rows,
                                    .n = s->width,
                                    .k = depth,
                                    .a = a,
                                    .a_row = a_row,
                                    .a_column = a_column,
                                    .b = b,
                                    .b_row = s->width,
                                    .c = c,
                                    .c_row = s->width,
                                    .accumulate = accumulate});
}

static void visit_keys(const struct head *h, int64_t first_key, int64_t keys) {
    const trpi_head_shape *s = h->s;
    const struct queries *t = &h->t;
    int64_t at = first_key * s->width;
    trpi_head_scores(s, keys, h->k + at, t->q_transposed, t->p);
    trpi_head_scores(s, keys, h->v + at, t->dout_transposed, t->ds);
    soften(h, first_key, keys);
    multiply(s, keys, t->count, t->p, TILE, 1, t->dout, h->dv + at, true);
    multiply(s, keys, t->count, t->ds, TILE, 1, t->q, h->dk + at, true);
    multiply(s, t->count, keys, t->ds, 1, TILE, h->k + at, t->dq, first_key > 0);
}

static void differentiate(const void *arg, const trpi_head_shape *s, int64_t batch, int64_t head,
                          float *scratch) {
    const trp_attention_backward_args *args = arg;
    struct head h = {.s = s};
    carve(&h, scratch);
    int64_t q = trpi_head_qkv_at(s, batch, head, 0), k = trpi_head_qkv_at(s, batch, head, 1),
            v = trpi_head_qkv_at(s, batch, head, 2), step = 3 * s->heads * s->head_size;
    trpi_head_load(s, args->qkv, k, step, 0, s->padded, h.k);
    trpi_head_load(s, args->qkv, v, step, 0, s->padded, h.v);
    memset(h.dk, 0, (size_t)(2 * s->padded * s->width) * sizeof(float)); /* and dv */
    h.lse = args->lse + (batch * s->heads + head) * s->time;
    h.length = args->lengths ? args->lengths[batch] : s->time;
    for (h.t.first = 0; h.t.first < s->time; h.t.first += TILE) {
        load_queries(args, &h, batch, head);
        int64_t end = trpi_head_visible(s, h.t.first + h.t.count - 1, h.length);
        for (int64_t key = 0; key < end; key += TILE) {
            visit_keys(&h, key, TRPI_MIN(TILE, end - key));
        }
        trpi_head_store(s, args->dqkv, q, step, h.t.first, TILE, h.t.dq);
    }
    trpi_head_store(s, args->dqkv, k, step, 0, s->time, h.dk);
    trpi_head_store(s, args->dqkv, v, step, 0, s->time, h.dv);
}

trp_code trpi_cpu_attention_backward(trp_device *device, const trp_attention_backward_args *args,
                                     trp_error *err) {
    trpi_head_shape s =
        trpi_head_shape_of(args->time, args->heads, args->head_size, args->causal, args->dtype);
    return trpi_head_each(trpi_cpu_of(device), &s, args->batch, args->lengths, thread_floats(&s),
                          differentiate, args, err);
}

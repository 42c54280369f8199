/* attention_backward.c: gradients of attention. Probabilities are computed again, tile by tile,
 * from the scores and the kept log of each denominator (Dao et al. 2022, section 3.1 and appendix
 * B): p = e^(s - lse),  dv += p^T dout,  dp = dout v^T,  ds = p (dp - sum_j dout_j out_j), dq += ds
 * k,  dk += ds^T q     (q scaled here, so dk needs no scale and dq is scaled at the end) One head
 * of one sequence is one part, walked in a fixed order: no two threads add to one row. */
#include "trainer/device/cpu/attention.h"

#include "core/base/base.h"
#include "trainer/device/cpu/fastmath.h"
#include "trainer/device/cpu/tile.h"

enum { TILE = TRPI_ATTENTION_TILE, ROWS = 8 };

/* A head's rows, each (padded, width), and the tile at work. */
struct head {
    const trpi_head_shape *s;
    float *q, *k, *dout, *k_transposed, *v_transposed; /* q is scaled */
    float *dq, *dk, *dv;
    float *p, *ds;    /* (TILE, TILE) */
    float *delta;     /* (padded) sum_j dout_j out_j of each query */
    const float *lse; /* (time) */
    int64_t length;
};

static size_t thread_floats(const trpi_head_shape *s) {
    return (size_t)(ROWS * s->padded * s->width + 2 * TILE * TILE + s->padded);
}

static void carve(struct head *h, float *scratch) {
    int64_t size = h->s->padded * h->s->width;
    float **rows[ROWS] = {&h->q,  &h->k,  &h->dout, &h->k_transposed, &h->v_transposed,
                          &h->dq, &h->dk, &h->dv};
    for (int i = 0; i < ROWS; i++) {
        *rows[i] = scratch + i * size;
    }
    h->p = scratch + ROWS * size;
    h->ds = h->p + TILE * TILE;
    h->delta = h->ds + TILE * TILE;
}

static void load_head(const trp_attention_backward_args *args, struct head *h, int64_t batch,
                      int64_t head) {
    const trpi_head_shape *s = h->s;
    int64_t step = s->heads * s->head_size;
    int64_t q = trpi_head_qkv_at(s, batch, head, 0), k = trpi_head_qkv_at(s, batch, head, 1),
            v = trpi_head_qkv_at(s, batch, head, 2), out = trpi_head_out_at(s, batch, head);
    trpi_head_load(s, args->dout, out, step, 0, s->padded, 1.0f, h->dout);
    /* The gradients' places are free until they are cleared below. */
    trpi_head_load(s, args->out, out, step, 0, s->padded, 1.0f, h->dq);
    for (int64_t i = 0; i < s->padded; i++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < s->width; j++) {
            sum += h->dout[i * s->width + j] * h->dq[i * s->width + j];
        }
        h->delta[i] = sum;
    }
    trpi_head_load(s, args->qkv, v, 3 * step, 0, s->padded, 1.0f, h->dv);
    trpi_head_transpose(s, h->dv, h->v_transposed);
    trpi_head_load(s, args->qkv, q, 3 * step, 0, s->padded, s->scale, h->q);
    trpi_head_load(s, args->qkv, k, 3 * step, 0, s->padded, 1.0f, h->k);
    trpi_head_transpose(s, h->k, h->k_transposed);
    memset(h->dq, 0, (size_t)(3 * s->padded * s->width) * sizeof(float));
    h->lse = args->lse + (batch * s->heads + head) * s->time;
    h->length = args->lengths ? args->lengths[batch] : s->time;
}

/* p and ds of one tile from its scores (in p) and dp (in ds). */
static void soften(const struct head *h, int64_t first_query, int64_t first_key, int64_t m) {
    for (int64_t i = 0; i < m; i++) {
        float *p = h->p + i * TILE, *ds = h->ds + i * TILE;
        float lse = h->lse[first_query + i], delta = h->delta[first_query + i];
        int64_t visible = trpi_head_visible(h->s, first_query + i, h->length) - first_key;
        visible = TRPI_MAX(0, TRPI_MIN(visible, TILE));
#pragma omp simd
        for (int64_t j = 0; j < TILE; j++) {
            float e = trpi_expf(p[j] - lse);
            p[j] = j < visible ? e : 0.0f;
            ds[j] = j < visible ? e * (ds[j] - delta) : 0.0f;
        }
    }
}

/* c (m, columns) [+]= a (m, k) . b (k, columns). */
static void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                     int64_t a_column, const float *b, int64_t b_row, float *c, int64_t c_row,
                     bool accumulate) {
    trpi_tile_multiply(&(trpi_tile){.m = m,
                                    .n = n,
                                    .k = k,
                                    .a = a,
                                    .a_row = a_row,
                                    .a_column = a_column,
                                    .b = b,
                                    .b_row = b_row,
                                    .c = c,
                                    .c_row = c_row,
                                    .accumulate = accumulate});
}

static void visit(const struct head *h, int64_t first_query, int64_t first_key) {
    const trpi_head_shape *s = h->s;
    int64_t w = s->width, m = TRPI_MIN(TILE, s->time - first_query);
    int64_t keys = TRPI_MIN(TILE, s->time - first_key);
    const float *q = h->q + first_query * w, *dout = h->dout + first_query * w;
    float *dk = h->dk + first_key * w, *dv = h->dv + first_key * w;
    multiply(m, TILE, w, q, w, 1, h->k_transposed + first_key * w, TILE, h->p, TILE, false);
    multiply(m, TILE, w, dout, w, 1, h->v_transposed + first_key * w, TILE, h->ds, TILE, false);
    soften(h, first_query, first_key, m);
    multiply(keys, w, m, h->p, 1, TILE, dout, w, dv, w, true);
    multiply(keys, w, m, h->ds, 1, TILE, q, w, dk, w, true);
    multiply(m, w, keys, h->ds, TILE, 1, h->k + first_key * w, w, h->dq + first_query * w, w, true);
}

static void differentiate(const trp_attention_backward_args *args, struct head *h, int64_t batch,
                          int64_t head) {
    const trpi_head_shape *s = h->s;
    int64_t step = 3 * s->heads * s->head_size;
    load_head(args, h, batch, head);
    for (int64_t first = 0; first < s->time; first += TILE) {
        int64_t end = trpi_head_visible(s, TRPI_MIN(first + TILE, s->time) - 1, h->length);
        for (int64_t key = 0; key < end; key += TILE) {
            visit(h, first, key);
        }
    }
    for (int64_t i = 0; i < s->time * s->width; i++) {
        h->dq[i] *= s->scale;
    }
    float *gradients[3] = {h->dq, h->dk, h->dv};
    for (int part = 0; part < 3; part++) {
        trpi_head_store(s, args->dqkv, trpi_head_qkv_at(s, batch, head, part), step, 0, s->time,
                        gradients[part]);
    }
}

trp_code trpi_cpu_attention_backward(trp_device *device, const trp_attention_backward_args *args,
                                     trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    trpi_head_shape s =
        trpi_head_shape_of(args->time, args->heads, args->head_size, args->causal, args->dtype);
    int64_t parts = args->batch * s.heads;
    int threads = trpi_cpu_threads(cpu, parts * s.time * s.time * s.width / 4);
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
        struct head h = {.s = &s};
        carve(&h, scratch + (size_t)omp_get_thread_num() * each);
        differentiate(args, &h, part / s.heads, part % s.heads);
    }
    return TRP_OK;
}

#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/reference.h"
#include <math.h>
#include <stdlib.h>

/* Element indices of one head of one sequence. */
struct head {
    int64_t time, heads, head_size, batch, head;
    int64_t length;
    bool causal;
    trp_dtype dtype;
    const void *qkv;
};

static int64_t qkv_at(const struct head *h, int64_t t, int part, int64_t j) {
    return (((h->batch * h->time + t) * 3 + part) * h->heads + h->head) * h->head_size + j;
}

static int64_t out_at(const struct head *h, int64_t t, int64_t j) {
    return ((h->batch * h->time + t) * h->heads + h->head) * h->head_size + j;
}

static int64_t visible(const struct head *h, int64_t t) {
    return h->causal ? TRPI_MIN(t + 1, h->length) : h->length;
}

static double score(const struct head *h, int64_t query, int64_t key) {
    double sum = 0.0;
    for (int64_t j = 0; j < h->head_size; j++) {
        sum += trpi_get(h->qkv, qkv_at(h, query, 0, j), h->dtype) *
               trpi_get(h->qkv, qkv_at(h, key, 1, j), h->dtype);
    }
    return sum / sqrt((double)h->head_size);
}

/* Probabilities of one query into p; returns log of the denominator. */
static double softmax(const struct head *h, int64_t query, double *p) {
    double max = -INFINITY, sum = 0.0;
    int64_t keys = visible(h, query);
    for (int64_t key = 0; key < keys; key++) {
        p[key] = score(h, query, key);
        max = fmax(max, p[key]);
    }
    for (int64_t key = 0; key < keys; key++) {
        sum += exp(p[key] - max);
    }
    double lse = max + log(sum);
    for (int64_t key = 0; key < keys; key++) {
        p[key] = exp(p[key] - lse);
    }
    return lse;
}

static void attend(const struct head *h, void *out, float *lse, double *p) {
    for (int64_t t = 0; t < h->time; t++) {
        lse[(h->batch * h->heads + h->head) * h->time + t] = (float)softmax(h, t, p);
        for (int64_t j = 0; j < h->head_size; j++) {
            double sum = 0.0;
            for (int64_t key = 0; key < visible(h, t); key++) {
                sum += p[key] * trpi_get(h->qkv, qkv_at(h, key, 2, j), h->dtype);
            }
            trpi_set(out, out_at(h, t, j), h->dtype, sum);
        }
    }
}

trp_code trpi_reference_attention(trp_device *device, const trp_attention_args *args,
                                  trp_error *err) {
    trp_code code = trpi_cpu_check_lengths(args->lengths, args->batch, args->time, err);
    if (code) {
        return code;
    }
    double *p = malloc((size_t)args->time * sizeof(*p));
    if (!p) {
        return trpi_fail(err, TRP_ENOMEM, "no memory for a row of probabilities");
    }
    for (int64_t part = 0; part < args->batch * args->heads; part++) {
        struct head h = {.time = args->time,
                         .heads = args->heads,
                         .head_size = args->head_size,
                         .batch = part / args->heads,
                         .head = part % args->heads,
                         .causal = args->causal,
                         .dtype = args->dtype,
                         .qkv = args->qkv};
        h.length = args->lengths ? args->lengths[h.batch] : h.time;
        attend(&h, args->out, args->lse, p);
    }
    free(p);
    return TRP_OK;
}

/* One query's share of all gradients. `gradients` is (3, time, head_size) in double. */
static void differentiate_query(const struct head *h, const void *dout, int64_t t, double *p,
                                double *gradients) {
    int64_t size = h->head_size, keys = visible(h, t);
    double *dq = gradients, *dk = dq + h->time * size, *dv = dk + h->time * size;
    double *dp = p + h->time, mean = 0.0, scale = 1.0 / sqrt((double)size);
    softmax(h, t, p);
    for (int64_t key = 0; key < keys; key++) {
        dp[key] = 0.0;
        for (int64_t j = 0; j < size; j++) {
            double d = trpi_get(dout, out_at(h, t, j), h->dtype);
            dp[key] += d * trpi_get(h->qkv, qkv_at(h, key, 2, j), h->dtype);
            dv[key * size + j] += p[key] * d;
        }
        mean += p[key] * dp[key];
    }
    for (int64_t key = 0; key < keys; key++) {
        double ds = p[key] * (dp[key] - mean) * scale;
        for (int64_t j = 0; j < size; j++) {
            dq[t * size + j] += ds * trpi_get(h->qkv, qkv_at(h, key, 1, j), h->dtype);
            dk[key * size + j] += ds * trpi_get(h->qkv, qkv_at(h, t, 0, j), h->dtype);
        }
    }
}

static void differentiate(const struct head *h, const void *dout, void *dqkv, double *p,
                          double *gradients) {
    int64_t size = h->head_size;
    memset(gradients, 0, (size_t)(3 * h->time * size) * sizeof(*gradients));
    for (int64_t t = 0; t < h->time; t++) {
        differentiate_query(h, dout, t, p, gradients);
    }
    for (int part = 0; part < 3; part++) {
        for (int64_t t = 0; t < h->time; t++) {
            for (int64_t j = 0; j < size; j++) {
                trpi_set(dqkv, qkv_at(h, t, part, j), h->dtype,
                         gradients[(part * h->time + t) * size + j]);
            }
        }
    }
}

/* Takes neither `out` nor `lse`: what the fast code saves by them is computed again. */
trp_code trpi_reference_attention_backward(trp_device *device,
                                           const trp_attention_backward_args *args,
                                           trp_error *err) {
    trp_code code = trpi_cpu_check_lengths(args->lengths, args->batch, args->time, err);
    if (code) {
        return code;
    }
    size_t count = (size_t)(2 * args->time + 3 * args->time * args->head_size);
    double *p = malloc(count * sizeof(*p));
    if (!p) {
        return trpi_fail(err, TRP_ENOMEM, "no memory for %zu doubles", count);
    }
    for (int64_t part = 0; part < args->batch * args->heads; part++) {
        struct head h = {.time = args->time,
                         .heads = args->heads,
                         .head_size = args->head_size,
                         .batch = part / args->heads,
                         .head = part % args->heads,
                         .causal = args->causal,
                         .dtype = args->dtype,
                         .qkv = args->qkv};
        h.length = args->lengths ? args->lengths[h.batch] : h.time;
        differentiate(&h, args->dout, args->dqkv, p, p + 2 * args->time);
    }
    free(p);
    return TRP_OK;
}

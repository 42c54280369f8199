/* device.h: memory and maths. What a model needs of a machine, and nothing about training.
 *
 * A device is a table of memory functions and of operations (ops.def lists them, each once).
 * Tensors are plain pointers into the device's memory, row-major, innermost dimension last. An
 * operation takes one struct of arguments; shapes stand beside each pointer.
 *
 * Threads: one thread at a time per device. Blocking: operations may return before they are done;
 * trp_device_sync() waits. On the cpu device they are done when they return. */
#ifndef TROUPE_DEVICE_H
#define TROUPE_DEVICE_H

#include <troupe/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trp_device trp_device;

typedef enum trp_dtype { TRP_F32, TRP_BF16, TRP_F16, TRP_I32, TRP_DTYPE_COUNT } trp_dtype;
size_t trp_dtype_size(trp_dtype dtype);      /* bytes of an element */
const char *trp_dtype_name(trp_dtype dtype); /* "F32", "BF16", ...: safetensors' names */

typedef struct trp_device_options { /* zero-initialize */
    int threads;                    /* OMP_NUM_THREADS, else all cores that this process may use */
    bool reference;                 /* cpu: plain C instead of oneDNN; what tests compare with */
} trp_device_options;

/* name: "cpu" ("cuda:0" comes with the CUDA plug-in). TRP_EUNSUPPORTED names what is missing. */
TRP_CHECKED trp_code trp_device_open(const char *name, const trp_device_options *options,
                                     trp_device **ret_device, trp_error *err);
void trp_device_close(trp_device *device); /* NULL is fine */
const char *trp_device_name(const trp_device *device);
/* Whether matrix products in this dtype run natively; otherwise they are computed in fp32 from the
 * stored values, which is slower but gives what the dtype promises. */
bool trp_device_native(const trp_device *device, trp_dtype dtype);

/* Memory: 64-byte aligned, zeroed. Counted: trp_device_bytes() tells live and peak. */
TRP_CHECKED trp_code trp_device_alloc(trp_device *device, size_t bytes, void **ret_data,
                                      trp_error *err);
void trp_device_free(trp_device *device, void *data);
size_t trp_device_bytes(const trp_device *device, size_t *ret_peak /* may be NULL */);

/* Copies between host and device memory (the same thing on cpu). */
TRP_CHECKED trp_code trp_device_upload(trp_device *device, void *to, const void *from_host,
                                       size_t bytes, trp_error *err);
TRP_CHECKED trp_code trp_device_download(trp_device *device, void *to_host, const void *from,
                                         size_t bytes, trp_error *err);
TRP_CHECKED trp_code trp_device_sync(trp_device *device, trp_error *err);

/* ---- Operations. Sizes are in elements. A gradient output named d... is overwritten; one named
 *      ..._add is added to. Parameter gradients are always fp32.
 *
 *      dtype is F32, BF16 or F16: what is stored. Arithmetic is in fp32 (or better), rounded to
 *      nearest even once, when a result is stored. NaN and Inf go through, none is hidden. Same
 *      arguments give the same bits, whatever the number of threads.
 *
 *      Shapes must be 1 or more and fit in 31 bits each; `count` and `bytes` may be 0. Pointers may
 *      not overlap unless the operation says so. Anything else is TRP_EINVALID. ---- */

/* C (m, n) = op(A) (m, k) . op(B) (k, n) [+ bias (n)] [+ C when accumulate]; accumulation in fp32.
 * batch > 1: the same for each of `batch` matrices, stride_x elements apart (0 = shared). */
typedef struct trp_matmul_args {
    int64_t m, n, k, batch; /* batch 0 counts as 1 */
    const void *a;          /* (m, k), or (k, m) when trans_a; leading dimension lda, 0 = dense */
    const void *b;          /* (k, n), or (n, k) when trans_b */
    void *c;                /* (m, n) */
    int64_t lda, ldb, ldc, stride_a, stride_b, stride_c;
    bool trans_a, trans_b, accumulate;
    float alpha;       /* multiplies the product; 0 counts as 1 */
    trp_dtype dtype;   /* of a, b and bias */
    trp_dtype dtype_c; /* dtype, or TRP_F32 */
    const void *bias;  /* (n), or NULL */
} trp_matmul_args;

/* y = (x - mean) * rstd * weight + bias, per row. Ba, Kiros, Hinton 2016 (arXiv 1607.06450). */
typedef struct trp_layernorm_args {
    int64_t rows, columns;
    const void *x;             /* (rows, columns) dtype */
    const void *weight, *bias; /* (columns) dtype */
    void *y;                   /* (rows, columns) dtype */
    float *mean, *rstd;        /* (rows), outputs kept for backward */
    float eps;
    trp_dtype dtype;
} trp_layernorm_args;

typedef struct trp_layernorm_backward_args {
    int64_t rows, columns;
    const void *dy, *x;             /* (rows, columns) dtype */
    const void *weight;             /* (columns) dtype */
    const float *mean, *rstd;       /* (rows) */
    void *dx_add;                   /* (rows, columns) dtype: added to (the residual's gradient) */
    float *dweight_add, *dbias_add; /* (columns) */
    trp_dtype dtype;
} trp_layernorm_backward_args;

/* GELU (arXiv 1606.08415). The tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), is what
 * GPT-2 uses; the exact one, 0.5 x (1 + erf(x / sqrt(2))), is what BERT uses. y may be x. */
typedef struct trp_gelu_args {
    int64_t count;
    const void *x;
    void *y;
    trp_dtype dtype;
    bool exact;
} trp_gelu_args;

typedef struct trp_gelu_backward_args {
    int64_t count;
    const void *dy, *x;
    void *dx; /* may be dy */
    trp_dtype dtype;
    bool exact;
} trp_gelu_backward_args;

/* y = tanh(x); y may be x. Its backward takes the output: dx = dy (1 - y^2); dx may be dy. */
typedef struct trp_tanh_args {
    int64_t count;
    const void *x;
    void *y;
    trp_dtype dtype;
} trp_tanh_args;

typedef struct trp_tanh_backward_args {
    int64_t count;
    const void *dy, *y;
    void *dx;
    trp_dtype dtype;
} trp_tanh_backward_args;

/* y[i] = keep(i) ? x[i] / (1 - rate) : 0, where keep(i) depends on (seed, offset + i) alone, so the
 * mask is never stored: the backward is the same operation on the gradient. y may be x. */
typedef struct trp_dropout_args {
    int64_t count;
    const void *x;
    void *y;
    float rate; /* 0 <= rate < 1 */
    uint64_t seed, offset;
    trp_dtype dtype;
} trp_dropout_args;

/* y = a + b; y may be a or b. */
typedef struct trp_add_args {
    int64_t count;
    const void *a, *b;
    void *y;
    trp_dtype dtype;
} trp_add_args;

/* out_add[j] += sum over rows of x[i][j]: the gradient of a bias. */
typedef struct trp_column_sum_args {
    int64_t rows, columns;
    const void *x;  /* (rows, columns) dtype */
    float *out_add; /* (columns) */
    trp_dtype dtype;
} trp_column_sum_args;

/* Multi-head attention over packed q, k, v. softmax(q k^T / sqrt(head_size)) v per head. */
typedef struct trp_attention_args {
    int64_t batch, time, heads, head_size;
    const void *qkv; /* (batch, time, 3, heads, head_size) dtype */
    void *out;       /* (batch, time, heads, head_size) dtype */
    float *lse;      /* (batch, heads, time), log of each softmax's denominator, for backward */
    bool causal;
    const int32_t *lengths; /* (batch) keys at or past it are masked, 1..time; NULL = all valid */
    trp_dtype dtype;
} trp_attention_args;

typedef struct trp_attention_backward_args {
    int64_t batch, time, heads, head_size;
    const void *dout, *qkv, *out;
    const float *lse;
    void *dqkv; /* (batch, time, 3, heads, head_size) dtype */
    bool causal;
    const int32_t *lengths;
    trp_dtype dtype;
} trp_attention_backward_args;

/* out[b][t] = token_table[tokens[b][t]] + position_table[t]. Ids out of range: TRP_EINVALID. */
typedef struct trp_embedding_args {
    int64_t batch, time, columns, vocabulary;
    const int32_t *tokens;      /* (batch, time), host memory on cpu */
    const void *token_table;    /* (vocabulary, columns) dtype */
    const void *position_table; /* (at least time, columns) dtype; NULL = none */
    void *out;                  /* (batch, time, columns) dtype */
    trp_dtype dtype;
} trp_embedding_args;

typedef struct trp_embedding_backward_args {
    int64_t batch, time, columns, vocabulary;
    const int32_t *tokens;
    const void *dout;           /* (batch, time, columns) dtype */
    float *dtoken_table_add;    /* (vocabulary, columns) */
    float *dposition_table_add; /* (at least time, columns); NULL = none */
    trp_dtype dtype;
} trp_embedding_backward_args;

/* losses[i] = -log softmax(logits[i])[targets[i]], 0 where targets[i] == ignore_index; and, when
 * dlogits is given, dlogits[i] = (softmax(logits[i]) - onehot) * scale, 0 where ignored. A target
 * that is neither in the vocabulary nor ignore_index: TRP_EINVALID. */
typedef struct trp_xent_args {
    int64_t rows, vocabulary;
    const void *logits;     /* (rows, vocabulary) dtype */
    const int32_t *targets; /* (rows) */
    float *losses;          /* (rows) */
    void *dlogits;          /* (rows, vocabulary) dtype; may be logits; NULL = loss only */
    float scale;
    int32_t ignore_index;
    trp_dtype dtype;
} trp_xent_args;

/* AdamW over a flat shard. Loshchilov, Hutter 2019 (arXiv 1711.05101), with t counted from 1:
 *   g = grad * grad_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
 *   p = p - lr ( (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + weight_decay p_old ) */
typedef struct trp_adamw_args {
    int64_t count;
    float *master, *m, *v; /* (count) */
    const float *grad;     /* (count) */
    float lr, beta1, beta2, eps, weight_decay, grad_scale;
    int64_t t;
    void *param; /* (count) param_dtype copy of the new master; NULL = none */
    trp_dtype param_dtype;
} trp_adamw_args;

/* *sum_add += sum of x[i]^2, in double, in a fixed order whatever the number of threads. */
typedef struct trp_sum_squares_args {
    int64_t count;
    const float *x;
    double *sum_add; /* host memory */
} trp_sum_squares_args;

/* y[i] += alpha * x[i]. */
typedef struct trp_axpy_args {
    int64_t count;
    float alpha;
    const float *x;
    float *y;
} trp_axpy_args;

/* Converts between dtypes, round to nearest even. */
typedef struct trp_cast_args {
    int64_t count;
    const void *x;
    void *y;
    trp_dtype from, to;
} trp_cast_args;

/* Sets bytes. */
typedef struct trp_fill_args {
    void *y;
    size_t bytes;
    int value;
} trp_fill_args;

/* One function per row of ops.def: trp_op_matmul(device, &args, err) and so on. */
#define OP(name, text)                                                                             \
    TRP_CHECKED trp_code trp_op_##name(trp_device *device, const trp_##name##_args *args,          \
                                       trp_error *err);
#include <troupe/ops.def>
#undef OP

#ifdef __cplusplus
}
#endif
#endif

/* ops_bench.c: how fast the cpu device's operations are, at the shapes of a GPT-2 step.
 *
 * Each figure stands beside the machine's own, measured in the same run: matrix products and
 * attention beside the best product of a large square, everything else beside a copy of memory.
 *
 *     ops_bench [threads [repetitions]]
 *
 * An ordinary program, not a test: it prints and judges nothing. */
#include "core/base/base.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <troupe/device.h>

struct model {
    const char *name;
    int64_t batch, time, columns, heads, vocabulary;
};

/* Buffers for all operations, each as large as the largest use. */
struct bench {
    trp_device *device;
    trp_dtype dtype;
    int repetitions;
    double peak_gflops, copy_gbytes;
    void *x, *y, *w, *z;
    float *f, *g, *rows;
    int32_t *ids;
};

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check(trp_code code, const trp_error *error) {
    if (code) {
        fprintf(stderr, "ops_bench: %s\n", error->message);
        exit(1);
    }
}

static void *allocate(trp_device *device, int64_t bytes) {
    void *data = NULL;
    trp_error error;
    check(trp_device_alloc(device, (size_t)bytes, &data, &error), &error);
    return data;
}

/* Best of `repetitions` runs of an operation, after one that is not counted. */
#define TIME(bench, op, ...)                                                                       \
    __extension__({                                                                                \
        double best_ = 1e9;                                                                        \
        for (int i_ = 0; i_ <= (bench)->repetitions; i_++) {                                       \
            trp_error error_;                                                                      \
            double start_ = seconds();                                                             \
            check(trp_op_##op((bench)->device, &(trp_##op##_args){__VA_ARGS__}, &error_),          \
                  &error_);                                                                        \
            double took_ = seconds() - start_;                                                     \
            best_ = i_ > 0 && took_ < best_ ? took_ : best_;                                       \
        }                                                                                          \
        best_;                                                                                     \
    })

static void report(const struct bench *b, const char *name, double took, double flops,
                   double bytes) {
    if (flops > 0) {
        double rate = flops / took * 1e-9;
        printf("  %-34s %9.3f ms %8.1f GFLOP/s %5.0f %% of peak\n", name, took * 1e3, rate,
               100 * rate / b->peak_gflops);
    } else {
        double rate = bytes / took * 1e-9;
        printf("  %-34s %9.3f ms %8.1f GB/s    %5.0f %% of copy\n", name, took * 1e3, rate,
               100 * rate / b->copy_gbytes);
    }
}

static void measure_limits(struct bench *b) {
    enum { SIDE = 1024, COPY = 64 << 20 };
    double took = TIME(b, matmul, .m = SIDE, .n = SIDE, .k = SIDE, .a = b->x, .b = b->w, .c = b->y,
                       .dtype = b->dtype, .dtype_c = b->dtype);
    b->peak_gflops = 2.0 * SIDE * SIDE * SIDE / took * 1e-9;
    took = TIME(b, cast, .count = COPY / 4, .x = b->x, .y = b->y);
    b->copy_gbytes = 2.0 * COPY / took * 1e-9;
    printf("%s: product of %d x %d %.1f GFLOP/s, copy of %d MiB %.1f GB/s\n",
           trp_dtype_name(b->dtype), SIDE, SIDE, b->peak_gflops, COPY >> 20, b->copy_gbytes);
}

/* The three products of a linear layer (rows, in) -> (rows, out), weights (out, in). */
static void linear(const struct bench *b, const char *name, int64_t rows, int64_t in, int64_t out) {
    double flops = 2.0 * (double)rows * (double)in * (double)out;
    char text[64];
    trpi_format(text, sizeof(text), "%s forward", name);
    report(b, text,
           TIME(b, matmul, .m = rows, .n = out, .k = in, .a = b->x, .b = b->w, .trans_b = true,
                .c = b->y, .bias = b->z, .dtype = b->dtype, .dtype_c = b->dtype),
           flops, 0);
    trpi_format(text, sizeof(text), "%s dx", name);
    report(b, text,
           TIME(b, matmul, .m = rows, .n = in, .k = out, .a = b->x, .b = b->w, .c = b->y,
                .dtype = b->dtype, .dtype_c = b->dtype),
           flops, 0);
    trpi_format(text, sizeof(text), "%s dw", name);
    report(b, text,
           TIME(b, matmul, .m = out, .n = in, .k = rows, .a = b->x, .trans_a = true, .b = b->y,
                .c = b->f, .accumulate = true, .dtype = b->dtype, .dtype_c = TRP_F32),
           flops, 0);
}

static void attention(const struct bench *b, const struct model *m) {
    int64_t head_size = m->columns / m->heads;
    /* Two products forward and five backward, of which a causal mask hides half. */
    double product = (double)(m->batch * m->time * m->time * m->columns);
    report(b, "attention",
           TIME(b, attention, .batch = m->batch, .time = m->time, .heads = m->heads,
                .head_size = head_size, .qkv = b->x, .out = b->y, .lse = b->rows, .causal = true,
                .dtype = b->dtype),
           2 * product, 0);
    report(b, "attention_backward",
           TIME(b, attention_backward, .batch = m->batch, .time = m->time, .heads = m->heads,
                .head_size = head_size, .dout = b->y, .qkv = b->x, .out = b->y, .lse = b->rows,
                .dqkv = b->w, .causal = true, .dtype = b->dtype),
           5 * product, 0);
}

static void rows_of(const struct bench *b, const struct model *m) {
    int64_t rows = m->batch * m->time, size = (int64_t)trp_dtype_size(b->dtype);
    double bytes = (double)(rows * m->columns * size);
    double logits = (double)(rows * m->vocabulary * size);
    report(b, "layernorm",
           TIME(b, layernorm, .rows = rows, .columns = m->columns, .x = b->x, .weight = b->w,
                .bias = b->w, .y = b->y, .mean = b->rows, .rstd = b->rows + rows, .eps = 1e-5f,
                .dtype = b->dtype),
           0, 2 * bytes);
    report(b, "layernorm_backward",
           TIME(b, layernorm_backward, .rows = rows, .columns = m->columns, .dy = b->y, .x = b->x,
                .weight = b->w, .mean = b->rows, .rstd = b->rows + rows, .dx_add = b->z,
                .dweight_add = b->f, .dbias_add = b->g, .dtype = b->dtype),
           0, 4 * bytes);
    report(b, "column_sum",
           TIME(b, column_sum, .rows = rows, .columns = 4 * m->columns, .x = b->x, .out_add = b->f,
                .dtype = b->dtype),
           0, 4 * bytes);
    report(b, "embedding",
           TIME(b, embedding, .batch = m->batch, .time = m->time, .columns = m->columns,
                .vocabulary = m->vocabulary, .tokens = b->ids, .token_table = b->w,
                .position_table = b->z, .out = b->y, .dtype = b->dtype),
           0, 3 * bytes);
    report(b, "embedding_backward",
           TIME(b, embedding_backward, .batch = m->batch, .time = m->time, .columns = m->columns,
                .vocabulary = m->vocabulary, .tokens = b->ids, .dout = b->y,
                .dtoken_table_add = b->f, .dposition_table_add = b->g, .dtype = b->dtype),
           0, bytes + 4.0 * 4.0 * (double)(rows * m->columns));
    report(b, "xent with gradient",
           TIME(b, xent, .rows = rows, .vocabulary = m->vocabulary, .logits = b->x,
                .targets = b->ids, .losses = b->rows, .dlogits = b->y, .scale = 1e-3f,
                .ignore_index = -100, .dtype = b->dtype),
           0, 2 * logits);
}

static void flat(const struct bench *b, const struct model *m) {
    int64_t count = m->batch * m->time * m->columns * 4, size = (int64_t)trp_dtype_size(b->dtype);
    int64_t shard = 4 << 20;
    double bytes = (double)(count * size);
    report(b, "gelu", TIME(b, gelu, .count = count, .x = b->x, .y = b->y, .dtype = b->dtype), 0,
           2 * bytes);
    report(b, "gelu_backward",
           TIME(b, gelu_backward, .count = count, .dy = b->y, .x = b->x, .dx = b->y,
                .dtype = b->dtype),
           0, 3 * bytes);
    report(b, "gelu, exact",
           TIME(b, gelu, .count = count, .x = b->x, .y = b->y, .dtype = b->dtype, .exact = true), 0,
           2 * bytes);
    report(b, "tanh", TIME(b, tanh, .count = count, .x = b->x, .y = b->y, .dtype = b->dtype), 0,
           2 * bytes);
    report(b, "dropout",
           TIME(b, dropout, .count = count, .x = b->x, .y = b->y, .rate = 0.1f, .dtype = b->dtype),
           0, 2 * bytes);
    report(b, "add",
           TIME(b, add, .count = count / 4, .a = b->x, .b = b->y, .y = b->y, .dtype = b->dtype), 0,
           3 * bytes / 4);
    report(b, "adamw, 4M parameters",
           TIME(b, adamw, .count = shard, .master = b->f, .m = b->g, .v = b->g + shard,
                .grad = b->f + shard, .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f,
                .weight_decay = 0.1f, .grad_scale = 1.0f, .t = 1, .param = b->y,
                .param_dtype = b->dtype),
           0, (double)(shard * (28 + size)));
    double sum = 0;
    report(b, "sum_squares, 4M", TIME(b, sum_squares, .count = shard, .x = b->f, .sum_add = &sum),
           0, (double)(shard * 4));
    report(b, "axpy, 4M", TIME(b, axpy, .count = shard, .alpha = 1e-3f, .x = b->f, .y = b->g), 0,
           (double)(shard * 12));
}

static void run_model(const struct bench *b, const struct model *m) {
    int64_t rows = m->batch * m->time, c = m->columns;
    printf("%s: batch %d, time %d, columns %d, heads %d, vocabulary %d\n", m->name, (int)m->batch,
           (int)m->time, (int)c, (int)m->heads, (int)m->vocabulary);
    linear(b, "qkv", rows, c, 3 * c);
    linear(b, "projection", rows, c, c);
    linear(b, "fc", rows, c, 4 * c);
    linear(b, "fc projection", rows, 4 * c, c);
    linear(b, "lm head", rows, c, m->vocabulary);
    attention(b, m);
    rows_of(b, m);
    flat(b, m);
}

/* Small numbers of both signs: neither denormal nor growing when an output is fed back. */
static void fill_values(struct bench *b, void *to, int64_t count) {
    static float pattern[4099];
    for (size_t i = 0; i < TRPI_COUNTOF(pattern); i++) {
        pattern[i] = (float)((i * 7919) % 2003) / 1001.0f - 1.0f;
    }
    for (int64_t at = 0; at < count; at += (int64_t)TRPI_COUNTOF(pattern)) {
        int64_t n = TRPI_MIN((int64_t)TRPI_COUNTOF(pattern), count - at);
        char *place = (char *)to + at * (int64_t)trp_dtype_size(b->dtype);
        trp_error error;
        check(trp_op_cast(b->device,
                          &(trp_cast_args){.count = n, .x = pattern, .y = place, .to = b->dtype},
                          &error),
              &error);
    }
}

int main(int argc, char **argv) {
    static const struct model models[] = {
        {"GPT-2 124M", 4, 256, 768, 12, 50257},
        {"quickstart", 8, 128, 192, 6, 256},
        {"long", 1, 1024, 768, 12, 256},
    };
    trp_device_options options = {.threads = argc > 1 ? atoi(argv[1]) : 0};
    struct bench b = {.repetitions = argc > 2 ? atoi(argv[2]) : 7};
    trp_error error;
    check(trp_device_open("cpu", &options, &b.device, &error), &error);
    int64_t largest = 1024 * 50257;
    void **values[] = {&b.x, &b.y, &b.w, &b.z, (void **)&b.f, (void **)&b.g};
    for (size_t i = 0; i < TRPI_COUNTOF(values); i++) {
        *values[i] = allocate(b.device, largest * 4);
    }
    b.rows = allocate(b.device, 1 << 20);
    b.ids = allocate(b.device, 1 << 20);
    for (int i = 0; i < 4096; i++) {
        b.ids[i] = (i * 31) % 256;
    }
    for (int bf16 = 0; bf16 < 2; bf16++) {
        b.dtype = bf16 ? TRP_BF16 : TRP_F32;
        fill_values(&b, b.x, largest);
        fill_values(&b, b.y, largest);
        fill_values(&b, b.w, largest);
        fill_values(&b, b.z, largest);
        measure_limits(&b);
        for (size_t i = 0; i < TRPI_COUNTOF(models); i++) {
            run_model(&b, &models[i]);
        }
    }
    trp_device_close(b.device);
    return 0;
}

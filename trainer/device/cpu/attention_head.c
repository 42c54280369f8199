#include "core/base/base.h"
#include "trainer/device/cpu/attention.h"
#include "trainer/device/cpu/rows.h"
#include "trainer/device/cpu/tile.h"
#include <math.h>

enum { TILE = TRPI_ATTENTION_TILE };

trpi_head_shape trpi_head_shape_of(int64_t time, int64_t heads, int64_t head_size, bool causal,
                                   trp_dtype dtype) {
    return (trpi_head_shape){
        .time = time,
        .heads = heads,
        .head_size = head_size,
        .width = trpi_round_up(head_size, TRPI_TILE_COLUMNS),
        .padded = trpi_round_up(time, TILE),
        .scale = (float)(1.0 / sqrt((double)head_size)),
        .causal = causal,
        .dtype = dtype,
    };
}

int64_t trpi_head_qkv_at(const trpi_head_shape *s, int64_t batch, int64_t head, int part) {
    return ((batch * s->time * 3 + part) * s->heads + head) * s->head_size;
}

int64_t trpi_head_out_at(const trpi_head_shape *s, int64_t batch, int64_t head) {
    return (batch * s->time * s->heads + head) * s->head_size;
}

/* A head's row is short, so a copy's call would cost more than the copy. */
static void copy_row(const float *from, int64_t n, float *to) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        to[j] = from[j];
    }
}

void trpi_head_load(const trpi_head_shape *s, const void *x, int64_t at, int64_t step, int64_t from,
                    int64_t count, float *rows) {
    int64_t valid = TRPI_MAX(0, TRPI_MIN(count, s->time - from));
    for (int64_t i = 0; i < valid; i++) {
        float *row = rows + i * s->width;
        int64_t place = at + (from + i) * step;
        if (s->dtype == TRP_F32) {
            copy_row((const float *)x + place, s->head_size, row);
        } else {
            trpi_row_read(x, place, s->head_size, s->dtype, row);
        }
        for (int64_t j = s->head_size; j < s->width; j++) {
            row[j] = 0.0f;
        }
    }
    memset(rows + valid * s->width, 0, (size_t)((count - valid) * s->width) * sizeof(float));
}

void trpi_head_store(const trpi_head_shape *s, void *y, int64_t at, int64_t step, int64_t from,
                     int64_t count, const float *rows) {
    int64_t valid = TRPI_MIN(count, s->time - from);
    for (int64_t i = 0; i < valid; i++) {
        const float *row = rows + i * s->width;
        int64_t place = at + (from + i) * step;
        if (s->dtype == TRP_F32) {
            copy_row(row, s->head_size, (float *)y + place);
        } else {
            trpi_row_write(y, place, s->head_size, s->dtype, row);
        }
    }
}

void trpi_head_transpose(const trpi_head_shape *s, const float *rows, float factor,
                         float *transposed) {
    for (int64_t j = 0; j < s->width; j++) {
        for (int64_t i = 0; i < TILE; i++) {
            transposed[j * TILE + i] = rows[i * s->width + j] * factor;
        }
    }
}

void trpi_head_scores(const trpi_head_shape *s, int64_t keys, const float *rows,
                      const float *transposed, float *scores) {
    trpi_tile_multiply(&(trpi_tile){.m = keys,
                                    .n = TILE,
                                    .k = s->width,
                                    .a = rows,
                                    .a_row = s->width,
                                    .a_column = 1,
                                    .b = transposed,
                                    .b_row = TILE,
                                    .c = scores,
                                    .c_row = TILE});
}

trp_code trpi_head_each(trpi_cpu *cpu, const trpi_head_shape *s, int64_t batch,
                        const int32_t *lengths, size_t floats, trpi_head_fn fn, const void *args,
                        trp_error *err) {
    int64_t parts = batch * s->heads;
    int threads = trpi_cpu_threads(cpu, parts * s->time * s->time * s->width / 8);
    float *scratch = NULL;
    trp_code code = trpi_cpu_check_lengths(lengths, batch, s->time, err);
    if (!code) {
        code = trpi_cpu_scratch(cpu, (size_t)threads * floats * sizeof(float), &scratch, err);
    }
    if (code) {
        return code;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t part = 0; part < parts; part++) {
        fn(args, s, part / s->heads, part % s->heads,
           scratch + (size_t)omp_get_thread_num() * floats);
    }
    return TRP_OK;
}

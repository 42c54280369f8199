#include "core/base/base.h"
#include "trainer/device/cpu/attention.h"
#include "trainer/device/cpu/rows.h"
#include "trainer/device/cpu/tile.h"
#include <math.h>

enum { TILE = TRPI_ATTENTION_TILE };

trpi_head_shape trpi_head_shape_of(int64_t time, int64_t heads, int64_t head_size, bool causal,
                                   trp_dtype dtype) {
    int64_t tiles = trpi_ceil_div(time, TILE);
    return (trpi_head_shape){
        .time = time,
        .heads = heads,
        .head_size = head_size,
        .width = trpi_round_up(head_size, TRPI_TILE_COLUMNS),
        .tiles = tiles,
        .padded = tiles * TILE,
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

void trpi_head_load(const trpi_head_shape *s, const void *x, int64_t at, int64_t step, int64_t from,
                    int64_t count, float factor, float *rows) {
    int64_t valid = TRPI_MAX(0, TRPI_MIN(count, s->time - from));
    for (int64_t i = 0; i < valid; i++) {
        float *row = rows + i * s->width;
        trpi_row_read(x, at + (from + i) * step, s->head_size, s->dtype, row);
        for (int64_t j = 0; j < s->head_size; j++) {
            row[j] *= factor;
        }
        for (int64_t j = s->head_size; j < s->width; j++) {
            row[j] = 0.0f;
        }
    }
    memset(rows + valid * s->width, 0, (size_t)((count - valid) * s->width) * sizeof(float));
}

void trpi_head_store(const trpi_head_shape *s, void *y, int64_t at, int64_t step, int64_t from,
                     int64_t count, float *rows) {
    int64_t valid = TRPI_MIN(count, s->time - from);
    for (int64_t i = 0; i < valid; i++) {
        trpi_row_write(y, at + (from + i) * step, s->head_size, s->dtype, rows + i * s->width);
    }
}

void trpi_head_transpose(const trpi_head_shape *s, const float *rows, float *transposed) {
    for (int64_t tile = 0; tile < s->tiles; tile++) {
        const float *from = rows + tile * TILE * s->width;
        float *to = transposed + tile * TILE * s->width;
        for (int64_t j = 0; j < s->width; j++) {
            for (int64_t i = 0; i < TILE; i++) {
                to[j * TILE + i] = from[i * s->width + j];
            }
        }
    }
}

/* dropout.c: a mask that is a function of (seed, position), so that backward and recomputation see
 * the same one and nothing is stored. */
#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/rows.h"
#include "trainer/device/mask.h"

enum { PIECE = 2048 };

trp_code trpi_cpu_dropout(trp_device *device, const trp_dropout_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count * 2);
    uint32_t threshold = trpi_mask_threshold(args->rate);
    float scale = 1.0f / (1.0f - args->rate);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += PIECE) {
        float x_row[PIECE], y_row[PIECE];
        int64_t n = TRPI_MIN(PIECE, args->count - at);
        uint64_t position = args->offset + (uint64_t)at;
        const float *x = trpi_row_load(args->x, at, n, args->dtype, x_row);
        float *y = trpi_row_place(args->y, at, args->dtype, y_row);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            bool keep = trpi_mask_keep(args->seed, position + (uint64_t)i, threshold);
            y[i] = keep ? x[i] * scale : 0.0f;
        }
        trpi_row_write(args->y, at, n, args->dtype, y);
    }
    return TRP_OK;
}

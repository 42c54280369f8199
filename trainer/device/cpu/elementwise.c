/* elementwise.c: operations where an element of the result depends on one element of each input.
 * All walk pieces of PIECE elements: load, compute in fp32, store. */
#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/fastmath.h"
#include <string.h>

enum { PIECE = 2048 };

trp_code trpi_cpu_add(trp_device *device, const trp_add_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += PIECE) {
        float a_row[PIECE], b_row[PIECE], y_row[PIECE];
        int64_t n = TRPI_MIN(PIECE, args->count - at);
        const float *a = trpi_row_load(args->a, at, n, args->dtype, a_row);
        const float *b = trpi_row_load(args->b, at, n, args->dtype, b_row);
        float *y = trpi_row_place(args->y, at, args->dtype, y_row);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = a[i] + b[i];
        }
        trpi_row_write(args->y, at, n, args->dtype, y);
    }
    return TRP_OK;
}

trp_code trpi_cpu_tanh(trp_device *device, const trp_tanh_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count * 4);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += PIECE) {
        float x_row[PIECE], y_row[PIECE];
        int64_t n = TRPI_MIN(PIECE, args->count - at);
        const float *x = trpi_row_load(args->x, at, n, args->dtype, x_row);
        float *y = trpi_row_place(args->y, at, args->dtype, y_row);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = trpi_tanhf(x[i]);
        }
        trpi_row_write(args->y, at, n, args->dtype, y);
    }
    return TRP_OK;
}

trp_code trpi_cpu_tanh_backward(trp_device *device, const trp_tanh_backward_args *args,
                                trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += PIECE) {
        float dy_row[PIECE], y_row[PIECE], dx_row[PIECE];
        int64_t n = TRPI_MIN(PIECE, args->count - at);
        const float *dy = trpi_row_load(args->dy, at, n, args->dtype, dy_row);
        const float *y = trpi_row_load(args->y, at, n, args->dtype, y_row);
        float *dx = trpi_row_place(args->dx, at, args->dtype, dx_row);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dx[i] = dy[i] * (1.0f - y[i] * y[i]);
        }
        trpi_row_write(args->dx, at, n, args->dtype, dx);
    }
    return TRP_OK;
}

trp_code trpi_cpu_axpy(trp_device *device, const trp_axpy_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count);
    const float *x = args->x;
    float *y = args->y;
    float alpha = args->alpha;
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < args->count; i++) {
        y[i] += alpha * x[i];
    }
    return TRP_OK;
}

trp_code trpi_cpu_cast(trp_device *device, const trp_cast_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += PIECE) {
        float row[PIECE];
        int64_t n = TRPI_MIN(PIECE, args->count - at);
        trpi_row_write(args->y, at, n, args->to, trpi_row_load(args->x, at, n, args->from, row));
    }
    return TRP_OK;
}

trp_code trpi_cpu_fill(trp_device *device, const trp_fill_args *args, trp_error *err) {
    if (args->bytes) {
        memset(args->y, args->value, args->bytes);
    }
    return TRP_OK;
}

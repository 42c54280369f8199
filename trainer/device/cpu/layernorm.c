/* layernorm.c: layer normalization. The variance is taken in a second pass over the row, which is
 * in cache by then: the one-pass formula E[x^2] - E[x]^2 loses all digits when the mean is large.
 */
#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/rows.h"
#include <math.h>

static float row_mean(const float *x, int64_t n) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        sum += x[j];
    }
    return sum / (float)n;
}

static float row_variance(const float *x, float mean, int64_t n) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        float d = x[j] - mean;
        sum += d * d;
    }
    return sum / (float)n;
}

trp_code trpi_cpu_layernorm(trp_device *device, const trp_layernorm_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int64_t columns = args->columns, slot = trpi_round_up(columns, 16);
    int threads = trpi_cpu_threads(cpu, args->rows * columns);
    float *scratch;
    size_t bytes = (size_t)(2 * threads + 2) * (size_t)slot * sizeof(float);
    trp_code code = trpi_cpu_scratch(cpu, bytes, &scratch, err);
    if (code) {
        return code;
    }
    const float *weight = trpi_row_load(args->weight, 0, columns, args->dtype, scratch);
    const float *bias = trpi_row_load(args->bias, 0, columns, args->dtype, scratch + slot);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < args->rows; i++) {
        float *own = scratch + (2 + 2 * omp_get_thread_num()) * slot;
        const float *x = trpi_row_load(args->x, i * columns, columns, args->dtype, own);
        float *y = trpi_row_place(args->y, i * columns, args->dtype, own + slot);
        float mean = row_mean(x, columns);
        float rstd = 1.0f / sqrtf(row_variance(x, mean, columns) + args->eps);
#pragma omp simd
        for (int64_t j = 0; j < columns; j++) {
            y[j] = (x[j] - mean) * rstd * weight[j] + bias[j];
        }
        trpi_row_write(args->y, i * columns, columns, args->dtype, y);
        args->mean[i] = mean;
        args->rstd[i] = rstd;
    }
    return TRP_OK;
}

/* With x^ = (x - mean) rstd and g = dy weight:
 *   dx = rstd (g - mean(g) - x^ mean(g x^)),  dweight = sum over rows of dy x^,  dbias = of dy. */
static void backward_row(int64_t n, const float *dy, const float *x, const float *weight,
                         float mean, float rstd, float *dx, float *dweight, float *dbias) {
    float sum_g = 0.0f, sum_gx = 0.0f;
#pragma omp simd reduction(+ : sum_g, sum_gx)
    for (int64_t j = 0; j < n; j++) {
        float normal = (x[j] - mean) * rstd;
        float g = dy[j] * weight[j];
        sum_g += g;
        sum_gx += g * normal;
        dweight[j] += dy[j] * normal;
        dbias[j] += dy[j];
    }
    float mean_g = sum_g / (float)n, mean_gx = sum_gx / (float)n;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float normal = (x[j] - mean) * rstd;
        dx[j] += rstd * (dy[j] * weight[j] - mean_g - normal * mean_gx);
    }
}

/* A part is a run of rows with parameter gradients of its own; `own` holds three rows. */
static void backward_part(const trp_layernorm_backward_args *args, int64_t from, int64_t to,
                          const float *weight, float *own, float *dweight, float *dbias) {
    int64_t n = args->columns, slot = trpi_round_up(n, 16);
    memset(dweight, 0, (size_t)n * sizeof(float));
    memset(dbias, 0, (size_t)n * sizeof(float));
    for (int64_t i = from; i < to; i++) {
        const float *dy = trpi_row_load(args->dy, i * n, n, args->dtype, own);
        const float *x = trpi_row_load(args->x, i * n, n, args->dtype, own + slot);
        float *dx = trpi_row_place(args->dx_add, i * n, args->dtype, own + 2 * slot);
        if (args->dtype != TRP_F32) {
            trpi_row_read(args->dx_add, i * n, n, args->dtype, dx);
        }
        backward_row(n, dy, x, weight, args->mean[i], args->rstd[i], dx, dweight, dbias);
        trpi_row_write(args->dx_add, i * n, n, args->dtype, dx);
    }
}

trp_code trpi_cpu_layernorm_backward(trp_device *device, const trp_layernorm_backward_args *args,
                                     trp_error *err) {
    enum { PARTS_MAX = 64, ROWS_MIN = 16 };
    trpi_cpu *cpu = trpi_cpu_of(device);
    int64_t n = args->columns, slot = trpi_round_up(n, 16);
    int64_t rows = TRPI_MAX(ROWS_MIN, trpi_ceil_div(args->rows, PARTS_MAX));
    int64_t parts = trpi_ceil_div(args->rows, rows);
    int threads = trpi_cpu_threads(cpu, args->rows * n * 2);
    float *scratch;
    size_t slots = (size_t)(1 + 3 * threads + 2 * parts);
    trp_code code = trpi_cpu_scratch(cpu, slots * (size_t)slot * sizeof(float), &scratch, err);
    if (code) {
        return code;
    }
    const float *weight = trpi_row_load(args->weight, 0, n, args->dtype, scratch);
    float *sums = scratch + (1 + 3 * threads) * slot;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic)
        for (int64_t part = 0; part < parts; part++) {
            float *own = scratch + (1 + 3 * omp_get_thread_num()) * slot;
            float *dweight = sums + 2 * part * slot;
            int64_t end = TRPI_MIN((part + 1) * rows, args->rows);
            backward_part(args, part * rows, end, weight, own, dweight, dweight + slot);
        }
#pragma omp for schedule(static)
        for (int64_t j = 0; j < n; j++) {
            float dweight = 0.0f, dbias = 0.0f;
            for (int64_t part = 0; part < parts; part++) {
                dweight += sums[2 * part * slot + j];
                dbias += sums[(2 * part + 1) * slot + j];
            }
            args->dweight_add[j] += dweight;
            args->dbias_add[j] += dbias;
        }
    }
    return TRP_OK;
}

/* reduce.c: sums. Each is cut into parts by size alone, and the parts are added in order. */
#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/rows.h"

static void column_sum_part(const trp_column_sum_args *args, int64_t from, int64_t to, float *own,
                            float *sum) {
    int64_t n = args->columns;
    memset(sum, 0, (size_t)n * sizeof(float));
    for (int64_t i = from; i < to; i++) {
        const float *x = trpi_row_load(args->x, i * n, n, args->dtype, own);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            sum[j] += x[j];
        }
    }
}

trp_code trpi_cpu_column_sum(trp_device *device, const trp_column_sum_args *args, trp_error *err) {
    enum { PARTS_MAX = 64, ROWS_MIN = 16 };
    trpi_cpu *cpu = trpi_cpu_of(device);
    int64_t n = args->columns, slot = trpi_round_up(n, 16);
    int64_t rows = TRPI_MAX(ROWS_MIN, trpi_ceil_div(args->rows, PARTS_MAX));
    int64_t parts = trpi_ceil_div(args->rows, rows);
    int threads = trpi_cpu_threads(cpu, args->rows * n);
    float *scratch;
    size_t slots = (size_t)(threads + parts);
    trp_code code = trpi_cpu_scratch(cpu, slots * (size_t)slot * sizeof(float), &scratch, err);
    if (code) {
        return code;
    }
    float *sums = scratch + threads * slot;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic)
        for (int64_t part = 0; part < parts; part++) {
            int64_t end = TRPI_MIN((part + 1) * rows, args->rows);
            column_sum_part(args, part * rows, end, scratch + omp_get_thread_num() * slot,
                            sums + part * slot);
        }
#pragma omp for schedule(static)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0.0f;
            for (int64_t part = 0; part < parts; part++) {
                sum += sums[part * slot + j];
            }
            args->out_add[j] += sum;
        }
    }
    return TRP_OK;
}

static double sum_squares(const float *x, int64_t n) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

trp_code trpi_cpu_sum_squares(trp_device *device, const trp_sum_squares_args *args,
                              trp_error *err) {
    enum { PART = 16384, GROUP = 1024 };
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count);
    double total = 0.0;
    for (int64_t group = 0; group < args->count; group += PART * GROUP) {
        double sums[GROUP];
        int64_t parts = TRPI_MIN(GROUP, trpi_ceil_div(args->count - group, PART));
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t part = 0; part < parts; part++) {
            int64_t at = group + part * PART;
            sums[part] = sum_squares(args->x + at, TRPI_MIN(PART, args->count - at));
        }
        for (int64_t part = 0; part < parts; part++) {
            total += sums[part];
        }
    }
    *args->sum_add += total;
    return TRP_OK;
}

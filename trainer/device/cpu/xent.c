/* xent.c: softmax cross entropy and its gradient in one visit of each row of logits. */
#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/fastmath.h"
#include <math.h>

/* Sums run in fp32 over PIECE elements and in double over the pieces: one fp32 sum over a
 * vocabulary of fifty thousand would lose digits of the loss. */
enum { PIECE = 512 };

/* e^(x - max) into e, and their sum. */
static double row_exp(const float *x, float max, int64_t n, float *e) {
    double total = 0.0;
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t end = TRPI_MIN(at + PIECE, n);
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = at; j < end; j++) {
            e[j] = trpi_expf(x[j] - max);
            sum += e[j];
        }
        total += (double)sum;
    }
    return total;
}

static double row_exp_sum(const float *x, float max, int64_t n) {
    double total = 0.0;
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t end = TRPI_MIN(at + PIECE, n);
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = at; j < end; j++) {
            sum += trpi_expf(x[j] - max);
        }
        total += (double)sum;
    }
    return total;
}

/* The row's loss; its gradient into dx, which may be x itself. */
static float row_xent(const float *x, int64_t n, int32_t target, float scale, float *dx) {
    float max = trpi_row_max(x, n, -INFINITY), at_target = x[target];
    if (!dx) {
        return (float)(log(row_exp_sum(x, max, n)) + (double)max - (double)at_target);
    }
    double sum = row_exp(x, max, n, dx);
    float factor = (float)((double)scale / sum);
    float p_target = (float)((double)dx[target] / sum);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        dx[j] *= factor;
    }
    dx[target] = (p_target - 1.0f) * scale;
    return (float)(log(sum) + (double)max - (double)at_target);
}

trp_code trpi_cpu_xent(trp_device *device, const trp_xent_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int64_t n = args->vocabulary, slot = trpi_round_up(n, 16);
    int threads = trpi_cpu_threads(cpu, args->rows * n * 2);
    trp_code code =
        trpi_cpu_check_ids("targets", args->targets, args->rows, n, &args->ignore_index, err);
    float *scratch = NULL;
    if (!code) {
        code = trpi_cpu_scratch(cpu, (size_t)(threads * slot) * sizeof(float), &scratch, err);
    }
    if (code) {
        return code;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < args->rows; i++) {
        float *own = scratch + omp_get_thread_num() * slot;
        float *dx = NULL;
        if (args->dlogits) {
            dx = trpi_row_place(args->dlogits, i * n, args->dtype, own);
        }
        if (args->targets[i] == args->ignore_index) {
            args->losses[i] = 0.0f;
            if (dx) {
                memset(trpi_at(args->dlogits, i * n, args->dtype), 0,
                       (size_t)n * trpi_element_size(args->dtype));
            }
            continue;
        }
        const float *x = trpi_row_load(args->logits, i * n, n, args->dtype, own);
        args->losses[i] = row_xent(x, n, args->targets[i], args->scale, dx);
        if (dx) {
            trpi_row_write(args->dlogits, i * n, n, args->dtype, dx);
        }
    }
    return TRP_OK;
}

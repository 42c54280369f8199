/* gelu.c: GELU in both forms. 0.5 (1 + tanh u) is the logistic function of 2u; written so, it does
 * not cancel where x is far below zero. */
#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/fastmath.h"

enum { PIECE = 2048 };

#define SQRT_8_OVER_PI 1.59576912f /* 2 sqrt(2/pi) */
#define CUBIC 0.044715f
#define SQRT_HALF 0.707106781f
#define ONE_OVER_SQRT_2PI 0.398942280f

/* e^-2u, held below Inf so that its product with a vanishing logistic stays a number. */
static inline float tanh_form_exp(float x) {
    float t = -SQRT_8_OVER_PI * x * (1.0f + CUBIC * x * x);
    t = t > 88.0f ? 88.0f : t;
    return trpi_expf(t);
}

static inline float tanh_form(float x) {
    return x / (1.0f + tanh_form_exp(x));
}

/* From 10 on the slope is 1, and 0 below -10; further out its cubes would overflow. NaN is neither
 * greater nor less. */
static inline float tanh_form_slope(float x) {
    x = x > 10.0f ? 10.0f : x;
    x = x < -10.0f ? -10.0f : x;
    float e = trpi_expf(-SQRT_8_OVER_PI * x * (1.0f + CUBIC * x * x)); /* at most e^87.3 */
    float logistic = 1.0f / (1.0f + e);
    float slope_2u = SQRT_8_OVER_PI * (1.0f + 3.0f * CUBIC * x * x);
    return logistic + x * logistic * (e * logistic) * slope_2u;
}

/* erfc(z) for z >= 0 is t e^(-z^2 + polynomial(t)) with t = 1/(1 + z/2), relative error 1.2e-7
 * everywhere (Press et al., Numerical Recipes, the Chebyshev fit of erfcc). */
static inline float erfc_positive(float z) {
    float t = 1.0f / (1.0f + 0.5f * z);
    float p = 0.17087277f;
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    return t * trpi_expf(p - z * z);
}

/* The normal distribution function, accurate in both tails. */
static inline float normal(float x) {
    float z = trpi_bits_float(trpi_float_bits(x) & 0x7fffffffu) * SQRT_HALF;
    float tail = 0.5f * erfc_positive(z);
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float exact_form(float x) {
    return x * normal(x);
}

static inline float exact_form_slope(float x) {
    return normal(x) + x * ONE_OVER_SQRT_2PI * trpi_expf(-0.5f * x * x);
}

trp_code trpi_cpu_gelu(trp_device *device, const trp_gelu_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count * 4);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += PIECE) {
        float x_row[PIECE], y_row[PIECE];
        int64_t n = TRPI_MIN(PIECE, args->count - at);
        const float *x = trpi_row_load(args->x, at, n, args->dtype, x_row);
        float *y = trpi_row_place(args->y, at, args->dtype, y_row);
        if (args->exact) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                y[i] = exact_form(x[i]);
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                y[i] = tanh_form(x[i]);
            }
        }
        trpi_row_write(args->y, at, n, args->dtype, y);
    }
    return TRP_OK;
}

trp_code trpi_cpu_gelu_backward(trp_device *device, const trp_gelu_backward_args *args,
                                trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count * 4);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += PIECE) {
        float dy_row[PIECE], x_row[PIECE], dx_row[PIECE];
        int64_t n = TRPI_MIN(PIECE, args->count - at);
        const float *dy = trpi_row_load(args->dy, at, n, args->dtype, dy_row);
        const float *x = trpi_row_load(args->x, at, n, args->dtype, x_row);
        float *dx = trpi_row_place(args->dx, at, args->dtype, dx_row);
        if (args->exact) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                dx[i] = dy[i] * exact_form_slope(x[i]);
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                dx[i] = dy[i] * tanh_form_slope(x[i]);
            }
        }
        trpi_row_write(args->dx, at, n, args->dtype, dx);
    }
    return TRP_OK;
}

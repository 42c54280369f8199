/* adamw.c: the optimizer's step in one pass over the shard: 16 bytes read, 12 to 16 written per
 * parameter, so it runs at memory speed. */
#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/rows.h"
#include <math.h>

enum { PIECE = 4096 };

/* What is the same for every element. Bias corrections are taken in double: 1 - beta^t cancels. */
struct step {
    float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
    float step_size;       /* lr / (1 - beta1^t) */
    float inverse_sqrt_c2; /* 1 / sqrt(1 - beta2^t) */
    float eps, decay;      /* decay = lr weight_decay */
};

static struct step prepare(const trp_adamw_args *args) {
    double c1 = 1.0 - pow((double)args->beta1, (double)args->t);
    double c2 = 1.0 - pow((double)args->beta2, (double)args->t);
    return (struct step){
        .grad_scale = args->grad_scale,
        .beta1 = args->beta1,
        .one_minus_beta1 = (float)(1.0 - (double)args->beta1),
        .beta2 = args->beta2,
        .one_minus_beta2 = (float)(1.0 - (double)args->beta2),
        .step_size = (float)((double)args->lr / c1),
        .inverse_sqrt_c2 = (float)(1.0 / sqrt(c2)),
        .eps = args->eps,
        .decay = (float)((double)args->lr * (double)args->weight_decay),
    };
}

static void update(const struct step *s, int64_t n, float *restrict p, float *restrict m,
                   float *restrict v, const float *restrict grad) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * s->grad_scale;
        m[i] = s->beta1 * m[i] + s->one_minus_beta1 * g;
        v[i] = s->beta2 * v[i] + s->one_minus_beta2 * (g * g);
        float denominator = sqrtf(v[i]) * s->inverse_sqrt_c2 + s->eps;
        p[i] -= s->step_size * (m[i] / denominator) + s->decay * p[i];
    }
}

trp_code trpi_cpu_adamw(trp_device *device, const trp_adamw_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    int threads = trpi_cpu_threads(cpu, args->count * 2);
    struct step step = prepare(args);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < args->count; at += PIECE) {
        int64_t n = TRPI_MIN(PIECE, args->count - at);
        update(&step, n, args->master + at, args->m + at, args->v + at, args->grad + at);
        if (args->param) {
            trpi_row_write(args->param, at, n, args->param_dtype, args->master + at);
        }
    }
    return TRP_OK;
}

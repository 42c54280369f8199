#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/reference.h"
#include "trainer/device/mask.h"
#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

trp_code trpi_reference_gelu(trp_device *device, const trp_gelu_args *args, trp_error *err) {
    for (int64_t i = 0; i < args->count; i++) {
        double x = trpi_get(args->x, i, args->dtype);
        double u = sqrt(2.0 / pi) * (x + 0.044715 * x * x * x);
        double gate = args->exact ? 0.5 * erfc(-x / sqrt(2.0)) : 1.0 / (1.0 + exp(-2.0 * u));
        trpi_set(args->y, i, args->dtype, x * gate);
    }
    return TRP_OK;
}

static double gelu_slope(double x, bool exact) {
    if (exact) {
        return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-0.5 * x * x) / sqrt(2.0 * pi);
    }
    double u = sqrt(2.0 / pi) * (x + 0.044715 * x * x * x);
    double slope_u = sqrt(2.0 / pi) * (1.0 + 3.0 * 0.044715 * x * x);
    double sech = 1.0 / cosh(u);
    return 1.0 / (1.0 + exp(-2.0 * u)) + 0.5 * x * sech * sech * slope_u;
}

trp_code trpi_reference_gelu_backward(trp_device *device, const trp_gelu_backward_args *args,
                                      trp_error *err) {
    for (int64_t i = 0; i < args->count; i++) {
        double dy = trpi_get(args->dy, i, args->dtype);
        double x = trpi_get(args->x, i, args->dtype);
        trpi_set(args->dx, i, args->dtype, dy * gelu_slope(x, args->exact));
    }
    return TRP_OK;
}

trp_code trpi_reference_tanh(trp_device *device, const trp_tanh_args *args, trp_error *err) {
    for (int64_t i = 0; i < args->count; i++) {
        trpi_set(args->y, i, args->dtype, tanh(trpi_get(args->x, i, args->dtype)));
    }
    return TRP_OK;
}

trp_code trpi_reference_tanh_backward(trp_device *device, const trp_tanh_backward_args *args,
                                      trp_error *err) {
    for (int64_t i = 0; i < args->count; i++) {
        double dy = trpi_get(args->dy, i, args->dtype), y = trpi_get(args->y, i, args->dtype);
        trpi_set(args->dx, i, args->dtype, dy * (1.0 - y * y));
    }
    return TRP_OK;
}

trp_code trpi_reference_dropout(trp_device *device, const trp_dropout_args *args, trp_error *err) {
    uint32_t threshold = trpi_mask_threshold(args->rate);
    for (int64_t i = 0; i < args->count; i++) {
        double x = trpi_get(args->x, i, args->dtype);
        bool keep = trpi_mask_keep(args->seed, args->offset + (uint64_t)i, threshold);
        trpi_set(args->y, i, args->dtype, keep ? x / (1.0 - (double)args->rate) : 0.0);
    }
    return TRP_OK;
}

trp_code trpi_reference_add(trp_device *device, const trp_add_args *args, trp_error *err) {
    for (int64_t i = 0; i < args->count; i++) {
        double a = trpi_get(args->a, i, args->dtype), b = trpi_get(args->b, i, args->dtype);
        trpi_set(args->y, i, args->dtype, a + b);
    }
    return TRP_OK;
}

trp_code trpi_reference_adamw(trp_device *device, const trp_adamw_args *args, trp_error *err) {
    double b1 = (double)args->beta1, b2 = (double)args->beta2, lr = (double)args->lr;
    double c1 = 1.0 - pow(b1, (double)args->t), c2 = 1.0 - pow(b2, (double)args->t);
    for (int64_t i = 0; i < args->count; i++) {
        double g = (double)args->grad[i] * (double)args->grad_scale, p = (double)args->master[i];
        double m = b1 * (double)args->m[i] + (1.0 - b1) * g;
        double v = b2 * (double)args->v[i] + (1.0 - b2) * g * g;
        p -= lr * (m / c1 / (sqrt(v / c2) + (double)args->eps) + (double)args->weight_decay * p);
        args->m[i] = (float)m;
        args->v[i] = (float)v;
        args->master[i] = (float)p;
        if (args->param) {
            trpi_set(args->param, i, args->param_dtype, (double)args->master[i]);
        }
    }
    return TRP_OK;
}

trp_code trpi_reference_sum_squares(trp_device *device, const trp_sum_squares_args *args,
                                    trp_error *err) {
    double sum = 0.0;
    for (int64_t i = 0; i < args->count; i++) {
        sum += (double)args->x[i] * (double)args->x[i];
    }
    *args->sum_add += sum;
    return TRP_OK;
}

trp_code trpi_reference_axpy(trp_device *device, const trp_axpy_args *args, trp_error *err) {
    for (int64_t i = 0; i < args->count; i++) {
        args->y[i] = (float)((double)args->y[i] + (double)args->alpha * (double)args->x[i]);
    }
    return TRP_OK;
}

trp_code trpi_reference_cast(trp_device *device, const trp_cast_args *args, trp_error *err) {
    for (int64_t i = 0; i < args->count; i++) {
        trpi_set(args->y, i, args->to, trpi_get(args->x, i, args->from));
    }
    return TRP_OK;
}

trp_code trpi_reference_fill(trp_device *device, const trp_fill_args *args, trp_error *err) {
    if (args->bytes) {
        memset(args->y, args->value, args->bytes);
    }
    return TRP_OK;
}

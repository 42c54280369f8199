#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/gemm.h"
#include "trainer/device/cpu/reference.h"
#include <math.h>

trp_code trpi_reference_matmul(trp_device *device, const trp_matmul_args *args, trp_error *err) {
    trp_matmul_args g = trpi_gemm_defaults(args);
    for (int64_t batch = 0; batch < g.batch; batch++) {
        for (int64_t i = 0; i < g.m; i++) {
            for (int64_t j = 0; j < g.n; j++) {
                double sum = 0.0;
                for (int64_t k = 0; k < g.k; k++) {
                    int64_t a = g.trans_a ? k * g.lda + i : i * g.lda + k;
                    int64_t b = g.trans_b ? j * g.ldb + k : k * g.ldb + j;
                    sum += trpi_get(g.a, batch * g.stride_a + a, g.dtype) *
                           trpi_get(g.b, batch * g.stride_b + b, g.dtype);
                }
                int64_t c = batch * g.stride_c + i * g.ldc + j;
                sum = sum * (double)g.alpha + (g.bias ? trpi_get(g.bias, j, g.dtype) : 0.0);
                sum += g.accumulate ? trpi_get(g.c, c, g.dtype_c) : 0.0;
                trpi_set(g.c, c, g.dtype_c, sum);
            }
        }
    }
    return TRP_OK;
}

trp_code trpi_reference_layernorm(trp_device *device, const trp_layernorm_args *args,
                                  trp_error *err) {
    int64_t n = args->columns;
    for (int64_t i = 0; i < args->rows; i++) {
        double mean = 0.0, variance = 0.0;
        for (int64_t j = 0; j < n; j++) {
            mean += trpi_get(args->x, i * n + j, args->dtype) / (double)n;
        }
        for (int64_t j = 0; j < n; j++) {
            double d = trpi_get(args->x, i * n + j, args->dtype) - mean;
            variance += d * d / (double)n;
        }
        double rstd = 1.0 / sqrt(variance + (double)args->eps);
        for (int64_t j = 0; j < n; j++) {
            double normal = (trpi_get(args->x, i * n + j, args->dtype) - mean) * rstd;
            double y = normal * trpi_get(args->weight, j, args->dtype) +
                       trpi_get(args->bias, j, args->dtype);
            trpi_set(args->y, i * n + j, args->dtype, y);
        }
        args->mean[i] = (float)mean;
        args->rstd[i] = (float)rstd;
    }
    return TRP_OK;
}

trp_code trpi_reference_layernorm_backward(trp_device *device,
                                           const trp_layernorm_backward_args *args,
                                           trp_error *err) {
    int64_t n = args->columns;
    for (int64_t i = 0; i < args->rows; i++) {
        double mean = (double)args->mean[i], rstd = (double)args->rstd[i];
        double mean_g = 0.0, mean_gx = 0.0;
        for (int64_t j = 0; j < n; j++) {
            double dy = trpi_get(args->dy, i * n + j, args->dtype);
            double normal = (trpi_get(args->x, i * n + j, args->dtype) - mean) * rstd;
            double g = dy * trpi_get(args->weight, j, args->dtype);
            mean_g += g / (double)n;
            mean_gx += g * normal / (double)n;
            args->dweight_add[j] = (float)((double)args->dweight_add[j] + dy * normal);
            args->dbias_add[j] = (float)((double)args->dbias_add[j] + dy);
        }
        for (int64_t j = 0; j < n; j++) {
            double normal = (trpi_get(args->x, i * n + j, args->dtype) - mean) * rstd;
            double g =
                trpi_get(args->dy, i * n + j, args->dtype) * trpi_get(args->weight, j, args->dtype);
            trpi_add_to(args->dx_add, i * n + j, args->dtype,
                        rstd * (g - mean_g - normal * mean_gx));
        }
    }
    return TRP_OK;
}

trp_code trpi_reference_column_sum(trp_device *device, const trp_column_sum_args *args,
                                   trp_error *err) {
    for (int64_t j = 0; j < args->columns; j++) {
        double sum = 0.0;
        for (int64_t i = 0; i < args->rows; i++) {
            sum += trpi_get(args->x, i * args->columns + j, args->dtype);
        }
        args->out_add[j] = (float)((double)args->out_add[j] + sum);
    }
    return TRP_OK;
}

trp_code trpi_reference_embedding(trp_device *device, const trp_embedding_args *args,
                                  trp_error *err) {
    int64_t rows = args->batch * args->time, n = args->columns;
    trp_code code = trpi_cpu_check_ids("tokens", args->tokens, rows, args->vocabulary, NULL, err);
    for (int64_t i = 0; !code && i < rows; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = trpi_get(args->token_table, args->tokens[i] * n + j, args->dtype);
            if (args->position_table) {
                sum += trpi_get(args->position_table, i % args->time * n + j, args->dtype);
            }
            trpi_set(args->out, i * n + j, args->dtype, sum);
        }
    }
    return code;
}

trp_code trpi_reference_embedding_backward(trp_device *device,
                                           const trp_embedding_backward_args *args,
                                           trp_error *err) {
    int64_t rows = args->batch * args->time, n = args->columns;
    trp_code code = trpi_cpu_check_ids("tokens", args->tokens, rows, args->vocabulary, NULL, err);
    for (int64_t i = 0; !code && i < rows; i++) {
        for (int64_t j = 0; j < n; j++) {
            double dout = trpi_get(args->dout, i * n + j, args->dtype);
            float *token = &args->dtoken_table_add[args->tokens[i] * n + j];
            *token = (float)((double)*token + dout);
            if (args->dposition_table_add) {
                float *position = &args->dposition_table_add[i % args->time * n + j];
                *position = (float)((double)*position + dout);
            }
        }
    }
    return code;
}

static void xent_row(const trp_xent_args *args, int64_t i) {
    int64_t n = args->vocabulary, at = i * n;
    int32_t target = args->targets[i];
    bool ignored = target == args->ignore_index;
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < n; j++) {
        max = fmax(max, trpi_get(args->logits, at + j, args->dtype));
    }
    for (int64_t j = 0; j < n; j++) {
        sum += exp(trpi_get(args->logits, at + j, args->dtype) - max);
    }
    double lse = max + log(sum);
    args->losses[i] =
        ignored ? 0.0f : (float)(lse - trpi_get(args->logits, at + target, args->dtype));
    for (int64_t j = 0; args->dlogits && j < n; j++) {
        double p = exp(trpi_get(args->logits, at + j, args->dtype) - lse);
        double gradient = (p - (j == target ? 1.0 : 0.0)) * (double)args->scale;
        trpi_set(args->dlogits, at + j, args->dtype, ignored ? 0.0 : gradient);
    }
}

trp_code trpi_reference_xent(trp_device *device, const trp_xent_args *args, trp_error *err) {
    trp_code code = trpi_cpu_check_ids("targets", args->targets, args->rows, args->vocabulary,
                                       &args->ignore_index, err);
    for (int64_t i = 0; !code && i < args->rows; i++) {
        xent_row(args, i);
    }
    return code;
}

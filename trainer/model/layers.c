#include "trainer/model/layers.h"

#define ALIGN 64

void *trpi_carve(trpi_carver *carver, int64_t elements, size_t element_bytes) {
    void *piece = carver->base ? carver->base + carver->used : NULL;
    carver->used += ((size_t)elements * element_bytes + ALIGN - 1) / ALIGN * ALIGN;
    return piece;
}

trp_code trpi_linear_forward(const trpi_linear *linear, const void *x, const void *weight,
                             const void *bias, void *y, trp_error *err) {
    trp_matmul_args product = {
        .m = linear->rows,
        .n = linear->out,
        .k = linear->in,
        .a = x,
        .b = weight,
        .c = y,
        .bias = bias,
        .dtype = linear->dtype,
        .dtype_c = linear->dtype,
    };
    return trp_op_matmul(linear->device, &product, err);
}

trp_code trpi_linear_backward(const trpi_linear *linear, const void *dy, const void *x,
                              const void *weight, void *dx, float *dweight, float *dbias,
                              trp_error *err) {
    trp_matmul_args by_weight = {
        .m = linear->in,
        .n = linear->out,
        .k = linear->rows,
        .a = x,
        .trans_a = true,
        .b = dy,
        .c = dweight,
        .accumulate = true,
        .dtype = linear->dtype,
        .dtype_c = TRP_F32,
    };
    trp_column_sum_args by_bias = {
        .rows = linear->rows,
        .columns = linear->out,
        .x = dy,
        .out_add = dbias,
        .dtype = linear->dtype,
    };
    trp_matmul_args by_input = {
        .m = linear->rows,
        .n = linear->in,
        .k = linear->out,
        .a = dy,
        .b = weight,
        .trans_b = true,
        .c = dx,
        .dtype = linear->dtype,
        .dtype_c = linear->dtype,
    };
    trp_code code = trp_op_matmul(linear->device, &by_weight, err);
    if (!code) {
        code = trp_op_column_sum(linear->device, &by_bias, err);
    }
    if (!code) {
        code = trp_op_matmul(linear->device, &by_input, err);
    }
    return code;
}

void trpi_norm_carve(trpi_norm *norm, trpi_carver *carver) {
    norm->y = trpi_carve(carver, norm->rows * norm->columns, trp_dtype_size(norm->dtype));
    norm->mean = trpi_carve(carver, norm->rows, sizeof(float));
    norm->rstd = trpi_carve(carver, norm->rows, sizeof(float));
}

trp_code trpi_norm_forward(const trpi_norm *norm, const void *x, const void *weight,
                           const void *bias, trp_error *err) {
    trp_layernorm_args args = {
        .rows = norm->rows,
        .columns = norm->columns,
        .x = x,
        .weight = weight,
        .bias = bias,
        .y = norm->y,
        .mean = norm->mean,
        .rstd = norm->rstd,
        .eps = norm->eps,
        .dtype = norm->dtype,
    };
    return trp_op_layernorm(norm->device, &args, err);
}

trp_code trpi_norm_backward(const trpi_norm *norm, const void *dy, const void *x,
                            const void *weight, void *dx, float *dweight, float *dbias,
                            trp_error *err) {
    trp_layernorm_backward_args args = {
        .rows = norm->rows,
        .columns = norm->columns,
        .dy = dy,
        .x = x,
        .weight = weight,
        .mean = norm->mean,
        .rstd = norm->rstd,
        .dx_add = dx,
        .dweight_add = dweight,
        .dbias_add = dbias,
        .dtype = norm->dtype,
    };
    return trp_op_layernorm_backward(norm->device, &args, err);
}

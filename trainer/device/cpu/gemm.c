#include "trainer/device/cpu/gemm.h"

#include "core/base/base.h"

trp_matmul_args trpi_gemm_defaults(const trp_matmul_args *args) {
    trp_matmul_args g = *args;
    g.batch = g.batch ? g.batch : 1;
    g.alpha = g.alpha != 0.0f ? g.alpha : 1.0f;
    g.lda = g.lda ? g.lda : g.trans_a ? g.m : g.k;
    g.ldb = g.ldb ? g.ldb : g.trans_b ? g.k : g.n;
    g.ldc = g.ldc ? g.ldc : g.n;
    return g;
}

trpi_gemm_grid trpi_gemm_grid_of(const trp_matmul_args *args, int64_t tile_m, int64_t tile_n) {
    trpi_gemm_grid grid = {.tile_m = tile_m, .tile_n = tile_n};
    grid.down = trpi_ceil_div(args->m, tile_m);
    grid.across = trpi_ceil_div(args->n, tile_n);
    grid.parts = args->batch * grid.down * grid.across;
    return grid;
}

trpi_gemm_part trpi_gemm_part_of(const trp_matmul_args *args, const trpi_gemm_grid *grid,
                                 int64_t index) {
    int64_t place = index % (grid->down * grid->across);
    trpi_gemm_part part = {
        .batch = index / (grid->down * grid->across),
        .i = place / grid->across * grid->tile_m,
        .j = place % grid->across * grid->tile_n,
    };
    part.m = TRPI_MIN(grid->tile_m, args->m - part.i);
    part.n = TRPI_MIN(grid->tile_n, args->n - part.j);
    return part;
}

trp_code trpi_cpu_matmul(trp_device *device, const trp_matmul_args *args, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    trp_matmul_args g = trpi_gemm_defaults(args);
    /* oneDNN multiplies the bias by alpha too, and its way around that is slower than plain C. */
    bool scaled_bias = g.bias && g.alpha != 1.0f;
    if (cpu->gemm && trpi_gemm_native(cpu, g.dtype) && !scaled_bias) {
        return trpi_gemm_library(cpu, &g, err);
    }
    return trpi_gemm_blocked(cpu, &g, err);
}

/* gemm.h: matrix products of the cpu device. gemm_dnnl.c uses oneDNN; gemm_blocked.c is plain C,
 * for a build without oneDNN and for the dtypes that oneDNN cannot multiply on this machine. */
#ifndef TRPI_GEMM_H
#define TRPI_GEMM_H

#include "trainer/device/cpu/cpu.h"

/* Opens the library for this device; without one, cpu->gemm stays NULL. */
trp_code trpi_gemm_open(trpi_cpu *cpu, trp_error *err);
void trpi_gemm_close(trpi_cpu *cpu);
/* Whether the library multiplies this dtype in the machine's own instructions. */
bool trpi_gemm_native(const trpi_cpu *cpu, trp_dtype dtype);

/* Both take arguments as trpi_gemm_defaults() returns them. */
trp_code trpi_gemm_library(trpi_cpu *cpu, const trp_matmul_args *args, trp_error *err);
trp_code trpi_gemm_blocked(trpi_cpu *cpu, const trp_matmul_args *args, trp_error *err);

/* Leading dimensions with 0 replaced by the dense one, alpha and batch by 1. */
trp_matmul_args trpi_gemm_defaults(const trp_matmul_args *args);

/* How a product is cut into parts, by its shape alone, so that results do not depend on threads. */
typedef struct trpi_gemm_grid {
    int64_t tile_m, tile_n; /* of every part but the last of a row or column */
    int64_t down, across;   /* parts per matrix */
    int64_t parts;          /* of all matrices */
} trpi_gemm_grid;

typedef struct trpi_gemm_part {
    int64_t batch, i, j, m, n; /* where in C, and how large */
} trpi_gemm_part;

trpi_gemm_grid trpi_gemm_grid_of(const trp_matmul_args *args, int64_t tile_m, int64_t tile_n);
trpi_gemm_part trpi_gemm_part_of(const trp_matmul_args *args, const trpi_gemm_grid *grid,
                                 int64_t index);

#endif

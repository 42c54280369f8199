/* gemm.h: matrix products of the cpu device. gemm.c uses oneDNN; gemm_blocked.c is plain C, and is
 * what runs in a build without oneDNN and for what oneDNN lacks on a machine. */
#ifndef TRPI_GEMM_H
#define TRPI_GEMM_H

#include "trainer/device/cpu/cpu.h"

trp_code trpi_gemm_open(trpi_cpu *cpu, trp_error *err);
void trpi_gemm_close(trpi_cpu *cpu);
bool trpi_gemm_native(const trpi_cpu *cpu, trp_dtype dtype);

trp_code trpi_gemm_blocked(trpi_cpu *cpu, const trp_matmul_args *args, trp_error *err);

/* Leading dimensions with 0 replaced by the dense one, alpha and batch by 1. */
trp_matmul_args trpi_gemm_defaults(const trp_matmul_args *args);

#endif

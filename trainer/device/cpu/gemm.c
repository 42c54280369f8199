#include "trainer/device/cpu/gemm.h"

trp_code trpi_gemm_open(trpi_cpu *cpu, trp_error *err) {
    return TRP_OK;
}

void trpi_gemm_close(trpi_cpu *cpu) {
}

bool trpi_gemm_native(const trpi_cpu *cpu, trp_dtype dtype) {
    return dtype == TRP_F32;
}

trp_code trpi_cpu_matmul(trp_device *device, const trp_matmul_args *args, trp_error *err) {
    return trpi_gemm_blocked(trpi_cpu_of(device), args, err);
}

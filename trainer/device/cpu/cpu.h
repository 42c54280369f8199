/* cpu.h: the cpu device's own state, and what its operations share.
 *
 * Two rules make results repeatable. Work is cut into parts by shape alone, never by the number of
 * threads; and a sum that crosses parts is taken in the order of the parts. Threads only decide who
 * does which part. */
#ifndef TRPI_CPU_H
#define TRPI_CPU_H

#include "trainer/device/device.h"
#include <omp.h>

struct trpi_gemm;

typedef struct trpi_cpu {
    trp_device base; /* first: a trp_device pointer is a trpi_cpu pointer */
    int threads;
    size_t live_bytes, peak_bytes; /* of trp_device_alloc; scratch is not in here */
    void *scratch;                 /* grown to what the largest operation needed */
    size_t scratch_bytes;
    struct trpi_gemm *gemm; /* made products of the library; NULL without one */
} trpi_cpu;

trp_code trpi_cpu_open(const char *name, const trp_device_options *options, trp_device **ret_device,
                       trp_error *err);

static inline trpi_cpu *trpi_cpu_of(trp_device *device) {
    return (trpi_cpu *)device;
}

/* At least `bytes` of uninitialized memory, 64-byte aligned, that last until the next call. */
trp_code trpi_cpu_scratch(trpi_cpu *cpu, size_t bytes, float **ret_scratch, trp_error *err);

/* Threads worth waking for `work` elementary operations. */
int trpi_cpu_threads(const trpi_cpu *cpu, int64_t work);

#define OP(name, text)                                                                             \
    trp_code trpi_cpu_##name(trp_device *device, const trp_##name##_args *args, trp_error *err);   \
    trp_code trpi_reference_##name(trp_device *device, const trp_##name##_args *args,              \
                                   trp_error *err);
#include <troupe/ops.def>
#undef OP

/* ids[i] in 0..limit-1, or equal to `ignore` when that is given. Names the first that is not. */
trp_code trpi_cpu_check_ids(const char *what, const int32_t *ids, int64_t count, int64_t limit,
                            const int32_t *ignore, trp_error *err);
/* lengths[i] in 1..time; NULL is fine. */
trp_code trpi_cpu_check_lengths(const int32_t *lengths, int64_t batch, int64_t time,
                                trp_error *err);

static inline int64_t trpi_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t trpi_round_up(int64_t a, int64_t b) {
    return trpi_ceil_div(a, b) * b;
}

#endif

/* cpu.c: opening, memory and accounting of the cpu device. The operations are in the files beside.
 */
#include "trainer/device/cpu/cpu.h"

#include "core/base/base.h"
#include "trainer/device/cpu/gemm.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT 64
#define HUGE_PAGE ((size_t)2 << 20)
#define BLOCK_MAGIC 0x7472705f63707521u

/* Lies just before what alloc returns, so that free knows the size. */
struct block {
    uint64_t magic;
    size_t bytes;
    void *start; /* what calloc returned */
};

static const trpi_device_table fast_table;
static const trpi_device_table reference_table;

trp_code trpi_cpu_open(const char *name, const trp_device_options *options, trp_device **ret_device,
                       trp_error *err) {
    if (strcmp(name, "cpu") != 0) {
        return trpi_fail(err, TRP_EINVALID, "the cpu has no index; its name is \"cpu\"");
    }
    if (options->threads < 0 || options->threads > 4096) {
        return trpi_fail(err, TRP_EINVALID, "threads is %d, must be 0 to 4096", options->threads);
    }
    trpi_cpu *cpu = calloc(1, sizeof(*cpu));
    if (!cpu) {
        return trpi_fail(err, TRP_ENOMEM, "no memory for a device");
    }
    cpu->base.table = options->reference ? &reference_table : &fast_table;
    TRPI_SET(cpu->base.name, name);
    cpu->threads = options->threads ? options->threads : omp_get_max_threads();
    trp_code code = options->reference ? TRP_OK : trpi_gemm_open(cpu, err);
    if (code) {
        free(cpu);
        return code;
    }
    *ret_device = &cpu->base;
    return TRP_OK;
}

static void cpu_close(trp_device *device) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    trpi_gemm_close(cpu);
    free(cpu->scratch);
    free(cpu);
}

static bool cpu_native(const trp_device *device, trp_dtype dtype) {
    return trpi_gemm_native((const trpi_cpu *)device, dtype);
}

/* A step walks through all activations and states, which with small pages misses the translation
 * cache at every page: huge ones save some three percent of a step. Advice: may be ignored. */
static void advise_huge_pages(void *data, size_t bytes) {
    uintptr_t from = ((uintptr_t)data + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t to = ((uintptr_t)data + bytes) / HUGE_PAGE * HUGE_PAGE;
    if (from < to) {
        (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
    }
}

/* calloc rather than a fill: the kernel's fresh pages are zero already, and a shard of many
 * gigabytes is then paid for only where it is touched. */
static trp_code cpu_alloc(trp_device *device, size_t bytes, void **ret_data, trp_error *err) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    size_t extra = sizeof(struct block) + ALIGNMENT;
    void *start = bytes <= SIZE_MAX - extra ? calloc(1, bytes + extra) : NULL;
    if (!start) {
        return trpi_fail(err, TRP_ENOMEM, "no memory for %zu bytes on the cpu", bytes);
    }
    advise_huge_pages(start, bytes + extra);
    uintptr_t data = (uintptr_t)start + sizeof(struct block);
    data = (data + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct block *block = (struct block *)data - 1;
    *block = (struct block){.magic = BLOCK_MAGIC, .bytes = bytes, .start = start};
    cpu->live_bytes += bytes;
    cpu->peak_bytes = TRPI_MAX(cpu->peak_bytes, cpu->live_bytes);
    *ret_data = (void *)data;
    return TRP_OK;
}

static void cpu_free(trp_device *device, void *data) {
    trpi_cpu *cpu = trpi_cpu_of(device);
    struct block *block = (struct block *)data - 1;
    TRP_ASSERT(block->magic == BLOCK_MAGIC);
    block->magic = 0;
    cpu->live_bytes -= block->bytes;
    free(block->start);
}

static size_t cpu_bytes(const trp_device *device, size_t *ret_peak) {
    const trpi_cpu *cpu = (const trpi_cpu *)device;
    if (ret_peak) {
        *ret_peak = cpu->peak_bytes;
    }
    return cpu->live_bytes;
}

static trp_code cpu_copy(trp_device *device, void *to, const void *from, size_t bytes,
                         trp_error *err) {
    if (bytes) {
        memmove(to, from, bytes);
    }
    return TRP_OK;
}

static trp_code cpu_sync(trp_device *device, trp_error *err) {
    return TRP_OK;
}

trp_code trpi_cpu_scratch(trpi_cpu *cpu, size_t bytes, float **ret_scratch, trp_error *err) {
    if (bytes > cpu->scratch_bytes) {
        size_t rounded = (bytes + 4095) / 4096 * 4096;
        void *fresh = aligned_alloc(ALIGNMENT, rounded);
        if (!fresh) {
            return trpi_fail(err, TRP_ENOMEM, "no memory for %zu bytes of scratch", bytes);
        }
        free(cpu->scratch);
        cpu->scratch = fresh;
        cpu->scratch_bytes = rounded;
    }
    *ret_scratch = cpu->scratch;
    return TRP_OK;
}

/* Waking a team costs a few microseconds, about what one core does 16 thousand operations in. */
int trpi_cpu_threads(const trpi_cpu *cpu, int64_t work) {
    int64_t worth = work / 16384 + 1;
    return (int)TRPI_MIN(worth, cpu->threads);
}

trp_code trpi_cpu_check_ids(const char *what, const int32_t *ids, int64_t count, int64_t limit,
                            const int32_t *ignore, trp_error *err) {
    for (int64_t i = 0; i < count; i++) {
        bool ignored = ignore && ids[i] == *ignore;
        if (!ignored && (ids[i] < 0 || ids[i] >= limit)) {
            return trpi_fail(err, TRP_EINVALID,
                             "%s[%" PRId64 "] is %" PRId32 ", the vocabulary has %" PRId64, what, i,
                             ids[i], limit);
        }
    }
    return TRP_OK;
}

trp_code trpi_cpu_check_lengths(const int32_t *lengths, int64_t batch, int64_t time,
                                trp_error *err) {
    for (int64_t i = 0; lengths && i < batch; i++) {
        if (lengths[i] < 1 || lengths[i] > time) {
            return trpi_fail(err, TRP_EINVALID,
                             "lengths[%" PRId64 "] is %" PRId32 ", must be 1 to %" PRId64, i,
                             lengths[i], time);
        }
    }
    return TRP_OK;
}

#define MEMORY                                                                                     \
    .close = cpu_close, .native = cpu_native, .alloc = cpu_alloc, .free = cpu_free,                \
    .bytes = cpu_bytes, .upload = cpu_copy, .download = cpu_copy, .sync = cpu_sync

static const trpi_device_table fast_table = {
    MEMORY,
#define OP(name, text) .name = trpi_cpu_##name,
#include <troupe/ops.def>
#undef OP
};

static const trpi_device_table reference_table = {
    MEMORY,
#define OP(name, text) .name = trpi_reference_##name,
#include <troupe/ops.def>
#undef OP
};

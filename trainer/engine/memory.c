#include "trainer/engine/memory.h"

#include <stdlib.h>
#include <string.h>

void *trpi_offset(void *base, int64_t elements, trp_dtype dtype) {
    return (char *)base + (size_t)elements * trp_dtype_size(dtype);
}

static trp_code allocate(trpi_memory *memory, int64_t elements, trp_dtype dtype, void *ret_data,
                         trp_error *err) {
    void *data = NULL;
    trp_code code = TRP_OK;
    if (elements > 0) {
        code =
            trp_device_alloc(memory->device, (size_t)elements * trp_dtype_size(dtype), &data, err);
    }
    memcpy(ret_data, &data, sizeof data); /* void ** would not do for a float * */
    return code;
}

static trp_code allocate_states(trpi_memory *memory, const trpi_plan *plan, trp_error *err) {
    int64_t all = memory->layout->padded, own = all / memory->layout->world;
    int64_t kept = memory->stage == 0 ? all : own;
    bool params_are_masters = memory->dtype == TRP_F32 && memory->stage < 3;

    trp_code code =
        allocate(memory, memory->stage < 3 ? all : 0, memory->dtype, &memory->params, err);
    if (!code) {
        code = allocate(memory, params_are_masters ? 0 : kept, TRP_F32, &memory->masters, err);
    }
    if (!code) {
        code = allocate(memory, kept, TRP_F32, &memory->m, err);
    }
    if (!code) {
        code = allocate(memory, kept, TRP_F32, &memory->v, err);
    }
    if (!code) {
        code = allocate(memory, memory->stage < 2 ? all : own, TRP_F32, &memory->grads, err);
    }
    if (!code) {
        code = allocate(memory, plan->param_pool, memory->dtype, &memory->param_pool, err);
    }
    if (!code) {
        code = allocate(memory, plan->grad_pool, TRP_F32, &memory->grad_pool, err);
    }
    return code;
}

trp_code trpi_memory_init(const trpi_layout *layout, const trpi_plan *plan, trp_device *device,
                          int stage, int rank, trp_dtype dtype, trpi_memory *ret_memory,
                          trp_error *err) {
    trpi_memory memory = {
        .layout = layout, .device = device, .stage = stage, .rank = rank, .dtype = dtype};
    memory.param_at = malloc((size_t)layout->bucket_count * sizeof *memory.param_at);
    memory.grad_at = malloc((size_t)layout->bucket_count * sizeof *memory.grad_at);
    if (!memory.param_at || !memory.grad_at) {
        trpi_memory_release(&memory);
        return trpi_fail(err, TRP_ENOMEM, "model state");
    }
    for (int b = 0; b < layout->bucket_count; b++) {
        memory.param_at[b] = memory.grad_at[b] = -1;
    }
    trp_code code = allocate_states(&memory, plan, err);
    if (code) {
        trpi_memory_release(&memory);
        return trpi_context(err, code, "model state of %lld parameters at stage %d",
                            (long long)layout->parameters, stage);
    }
    *ret_memory = memory;
    return TRP_OK;
}

void trpi_memory_release(trpi_memory *memory) {
    void *const blocks[] = {memory->params, memory->masters,    memory->m,        memory->v,
                            memory->grads,  memory->param_pool, memory->grad_pool};
    for (size_t i = 0; i < TRPI_COUNTOF(blocks); i++) {
        if (blocks[i]) {
            trp_device_free(memory->device, blocks[i]);
        }
    }
    free(memory->param_at);
    free(memory->grad_at);
    *memory = (trpi_memory){0};
}

int64_t trpi_memory_kept_from(const trpi_memory *memory, int bucket) {
    return memory->stage == 0 ? 0 : memory->rank * memory->layout->buckets[bucket].slice;
}

int64_t trpi_memory_kept_count(const trpi_memory *memory, int bucket) {
    const trpi_bucket *b = &memory->layout->buckets[bucket];
    return memory->stage == 0 ? b->padded : b->slice;
}

/* Where the kept part of the bucket starts in an array of kept parts. */
static int64_t kept_at(const trpi_memory *memory, int bucket) {
    const trpi_bucket *b = &memory->layout->buckets[bucket];
    return memory->stage == 0 ? b->start : b->slice_start;
}

float *trpi_memory_masters(const trpi_memory *memory, int bucket) {
    if (memory->masters) {
        return memory->masters + kept_at(memory, bucket);
    }
    return (float *)memory->params + memory->layout->buckets[bucket].start +
           trpi_memory_kept_from(memory, bucket);
}

float *trpi_memory_m(const trpi_memory *memory, int bucket) {
    return memory->m + kept_at(memory, bucket);
}

float *trpi_memory_v(const trpi_memory *memory, int bucket) {
    return memory->v + kept_at(memory, bucket);
}

float *trpi_memory_kept_grads(const trpi_memory *memory, int bucket) {
    return memory->stage == 0 ? trpi_memory_grads(memory, bucket)
                              : trpi_memory_own_grads(memory, bucket);
}

void *trpi_memory_params(const trpi_memory *memory, int bucket) {
    if (memory->stage < 3) {
        return trpi_offset(memory->params, memory->layout->buckets[bucket].start, memory->dtype);
    }
    TRP_ASSERT(memory->param_at[bucket] >= 0);
    return trpi_offset(memory->param_pool, memory->param_at[bucket], memory->dtype);
}

float *trpi_memory_grads(const trpi_memory *memory, int bucket) {
    if (memory->stage < 2) {
        return memory->grads + memory->layout->buckets[bucket].start;
    }
    TRP_ASSERT(memory->grad_at[bucket] >= 0);
    return memory->grad_pool + memory->grad_at[bucket];
}

float *trpi_memory_own_grads(const trpi_memory *memory, int bucket) {
    const trpi_bucket *b = &memory->layout->buckets[bucket];
    if (memory->stage < 2) {
        return memory->grads + b->start + memory->rank * b->slice;
    }
    return memory->grads + b->slice_start;
}

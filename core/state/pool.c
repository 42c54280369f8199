/* pool.c: taking requests out of pools and giving them back, devices included. */
#include <stdlib.h>
#include <string.h>

#include "core/state/resources.h"

static trpi_share *share_of(const trpi_pool *pool, uint32_t resource) {
    for (size_t i = 0; i < pool->share_count; i++) {
        if (pool->shares[i].resource == resource) {
            return &pool->shares[i];
        }
    }
    return NULL;
}

static trpi_slot *slot_of(const trpi_pool *pool, uint32_t device) {
    for (size_t i = 0; i < pool->slot_count; i++) {
        if (pool->slots[i].device == device) {
            return &pool->slots[i];
        }
    }
    return NULL;
}

static void init_shares(trpi_pool *pool, const trpi_request *has) {
    *pool = (trpi_pool){.share_count = has->count};
    pool->shares = trpi_alloc(TRPI_MAX(has->count, (size_t)1) * sizeof(trpi_share));
    for (size_t i = 0; i < has->count; i++) {
        const trpi_amount *amount = &has->amounts[i];
        pool->shares[i] = (trpi_share){amount->resource, amount->amount, amount->amount};
    }
}

void trpi_pool_init(trpi_pool *pool, const trpi_request *has) {
    init_shares(pool, has);
    int64_t gpus = trpi_request_amount(has, TRPI_GPU);
    TRP_ASSERT(gpus % TRPI_ONE == 0 || gpus < TRPI_ONE);
    pool->slot_count = (size_t)((gpus + TRPI_ONE - 1) / TRPI_ONE);
    pool->slots = trpi_alloc(TRPI_MAX(pool->slot_count, (size_t)1) * sizeof(trpi_slot));
    for (size_t i = 0; i < pool->slot_count; i++) {
        int64_t part = TRPI_MIN(gpus, TRPI_ONE);
        pool->slots[i] = (trpi_slot){(uint32_t)i, part, part};
    }
}

void trpi_pool_init_from_grant(trpi_pool *pool, const trpi_request *request,
                               const trpi_grant *grant) {
    TRP_ASSERT(grant->held);
    init_shares(pool, request);
    pool->slot_count = grant->part_count;
    pool->slots = trpi_alloc(TRPI_MAX(pool->slot_count, (size_t)1) * sizeof(trpi_slot));
    for (size_t i = 0; i < grant->part_count; i++) {
        const trpi_part *part = &grant->parts[i];
        pool->slots[i] = (trpi_slot){part->device, part->amount, part->amount};
    }
}

void trpi_pool_release(trpi_pool *pool) {
    free(pool->shares);
    free(pool->slots);
    *pool = (trpi_pool){0};
}

int64_t trpi_pool_total(const trpi_pool *pool, uint32_t resource) {
    const trpi_share *share = share_of(pool, resource);
    return share ? share->total : 0;
}

int64_t trpi_pool_free(const trpi_pool *pool, uint32_t resource) {
    const trpi_share *share = share_of(pool, resource);
    return share ? share->free : 0;
}

bool trpi_pool_unused(const trpi_pool *pool) {
    for (size_t i = 0; i < pool->share_count; i++) {
        if (pool->shares[i].free != pool->shares[i].total) {
            return false;
        }
    }
    return true;
}

static int64_t most_gpu(const trpi_pool *pool, bool when_unused) {
    int64_t whole = 0, part = 0;
    for (size_t i = 0; i < pool->slot_count; i++) {
        int64_t room = when_unused ? pool->slots[i].total : pool->slots[i].free;
        if (room == TRPI_ONE) {
            whole += TRPI_ONE;
        }
        part = TRPI_MAX(part, room);
    }
    return TRPI_MAX(whole, part);
}

int64_t trpi_pool_most(const trpi_pool *pool, uint32_t resource, bool when_unused) {
    if (resource == TRPI_GPU) {
        return most_gpu(pool, when_unused);
    }
    return when_unused ? trpi_pool_total(pool, resource) : trpi_pool_free(pool, resource);
}

static bool fits(const trpi_pool *pool, const trpi_request *request, bool when_unused) {
    for (size_t i = 0; i < request->count; i++) {
        const trpi_amount *asked = &request->amounts[i];
        if (trpi_pool_most(pool, asked->resource, when_unused) < asked->amount) {
            return false;
        }
    }
    return true;
}

bool trpi_pool_fits(const trpi_pool *pool, const trpi_request *request) {
    return fits(pool, request, false);
}

bool trpi_pool_could_fit(const trpi_pool *pool, const trpi_request *request) {
    return fits(pool, request, true);
}

static void take_from_slot(trpi_slot *slot, int64_t amount, trpi_grant *grant) {
    slot->free -= amount;
    grant->parts[grant->part_count++] = (trpi_part){slot->device, amount};
}

/* A fraction goes on the device that is fullest but has room: whole devices stay whole. */
static void take_fraction(trpi_pool *pool, int64_t amount, trpi_grant *grant) {
    trpi_slot *best = NULL;
    for (size_t i = 0; i < pool->slot_count; i++) {
        trpi_slot *slot = &pool->slots[i];
        if (slot->free >= amount && (!best || slot->free < best->free)) {
            best = slot;
        }
    }
    grant->parts = trpi_alloc(sizeof(trpi_part));
    take_from_slot(best, amount, grant);
}

static void take_whole(trpi_pool *pool, int64_t amount, trpi_grant *grant) {
    grant->parts = trpi_alloc((size_t)(amount / TRPI_ONE) * sizeof(trpi_part));
    for (size_t i = 0; i < pool->slot_count && amount > 0; i++) {
        if (pool->slots[i].free == TRPI_ONE) {
            take_from_slot(&pool->slots[i], TRPI_ONE, grant);
            amount -= TRPI_ONE;
        }
    }
    TRP_ASSERT(amount == 0);
}

bool trpi_pool_take(trpi_pool *pool, const trpi_request *request, trpi_grant *grant) {
    TRP_ASSERT(!grant->held && !grant->parts);
    if (!trpi_pool_fits(pool, request)) {
        return false;
    }
    for (size_t i = 0; i < request->count; i++) {
        share_of(pool, request->amounts[i].resource)->free -= request->amounts[i].amount;
    }
    int64_t gpus = trpi_request_amount(request, TRPI_GPU);
    if (gpus >= TRPI_ONE) {
        take_whole(pool, gpus, grant);
    } else if (gpus > 0) {
        take_fraction(pool, gpus, grant);
    }
    grant->held = true;
    return true;
}

void trpi_pool_give(trpi_pool *pool, const trpi_request *request, trpi_grant *grant) {
    TRP_ASSERT(grant->held);
    for (size_t i = 0; i < request->count; i++) {
        share_of(pool, request->amounts[i].resource)->free += request->amounts[i].amount;
    }
    for (size_t i = 0; i < grant->part_count; i++) {
        slot_of(pool, grant->parts[i].device)->free += grant->parts[i].amount;
    }
    trpi_grant_drop(grant);
}

void trpi_grant_drop(trpi_grant *grant) {
    free(grant->parts);
    *grant = (trpi_grant){0};
}

const char *trpi_pool_check(const trpi_pool *pool) {
    int64_t slots_total = 0, slots_free = 0;
    for (size_t i = 0; i < pool->slot_count; i++) {
        const trpi_slot *slot = &pool->slots[i];
        if (slot->free < 0 || slot->free > slot->total || slot->total > TRPI_ONE) {
            return "a device has less than nothing or more than it is";
        }
        slots_total += slot->total;
        slots_free += slot->free;
    }
    for (size_t i = 0; i < pool->share_count; i++) {
        const trpi_share *share = &pool->shares[i];
        if (share->free < 0 || share->free > share->total) {
            return "a resource has less than nothing or more than it is";
        }
        if (share->resource == TRPI_GPU &&
            (share->total != slots_total || share->free != slots_free)) {
            return "gpu and its devices do not add up";
        }
    }
    return NULL;
}

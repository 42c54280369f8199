#include "actors/state/caller_calls.h"

#include <stdlib.h>
#include <string.h>

#include "actors/state/caller_types.h"

void trpi_calls_init(trpi_calls *calls, uint32_t used_max) {
    *calls = (trpi_calls){.first_free = TRPI_CALL_NONE, .used_max = used_max};
}

void trpi_calls_release(trpi_calls *calls) {
    for (uint32_t i = 0; i < calls->slot_count; i++) {
        free(calls->slots[i].payload);
        free(calls->slots[i].holds);
    }
    free(calls->slots);
    free(calls->heap);
    *calls = (trpi_calls){.first_free = TRPI_CALL_NONE};
}

static uint32_t take_slot(trpi_calls *calls) {
    if (calls->first_free != TRPI_CALL_NONE) {
        uint32_t slot = calls->first_free;
        calls->first_free = calls->slots[slot].next;
        return slot;
    }
    if (calls->slot_count == calls->slot_capacity) {
        calls->slot_capacity = TRPI_MAX(64U, calls->slot_capacity * 2);
        calls->slots = trpi_realloc(calls->slots, calls->slot_capacity * sizeof(*calls->slots));
    }
    calls->slots[calls->slot_count] = (trpi_call){0};
    return calls->slot_count++;
}

uint32_t trpi_calls_take(trpi_calls *calls) {
    if (calls->used_count == calls->used_max) {
        return TRPI_CALL_NONE;
    }
    uint32_t slot = take_slot(calls);
    /* Names of a slot's tenants never repeat within 2^32 of them, and 0 names no call. */
    uint32_t generation = calls->slots[slot].generation + 1;
    calls->slots[slot] = (trpi_call){.generation = generation ? generation : 1,
                                     .next = TRPI_CALL_NONE,
                                     .prev = TRPI_CALL_NONE,
                                     .heap_place = TRPI_CALL_NONE,
                                     .used = true};
    calls->used_count++;
    return slot;
}

uint64_t trpi_calls_id(const trpi_calls *calls, uint32_t slot) {
    return (uint64_t)calls->slots[slot].generation << 32 | slot;
}

uint32_t trpi_calls_find(const trpi_calls *calls, uint64_t id) {
    uint32_t slot = (uint32_t)id;
    if (slot >= calls->slot_count || !calls->slots[slot].used ||
        calls->slots[slot].generation != (uint32_t)(id >> 32)) {
        return TRPI_CALL_NONE;
    }
    return slot;
}

void trpi_calls_keep_payload(trpi_call *call, const char *method, trp_bytes args,
                             const char *const *types) {
    size_t method_size = strlen(method) + 1;
    size_t types_size = types != NULL ? trpi_types_size(types) : 0;
    trpi_call_payload *payload =
        trpi_realloc(NULL, sizeof(*payload) + method_size + args.size + types_size);
    payload->method_size = method_size;
    payload->args_size = args.size;
    payload->types_size = types_size;
    memcpy(payload->data, method, method_size);
    if (args.size > 0) {
        memcpy(payload->data + method_size, args.data, args.size);
    }
    if (types_size > 0) {
        trpi_types_pack(types, payload->data + method_size + args.size);
    }
    call->payload = payload;
}

/* ---- The times: a binary heap whose entries know their place, so that a call that is over leaves
 * it at once instead of waiting for its deadline. ---- */

static void heap_put(trpi_calls *calls, uint32_t place, uint32_t slot) {
    calls->heap[place] = slot;
    calls->slots[slot].heap_place = place;
}

static uint64_t heap_time(const trpi_calls *calls, uint32_t place) {
    return calls->slots[calls->heap[place]].wake_ns;
}

static void heap_up(trpi_calls *calls, uint32_t place) {
    uint32_t slot = calls->heap[place];
    while (place > 0 && heap_time(calls, (place - 1) / 2) > calls->slots[slot].wake_ns) {
        heap_put(calls, place, calls->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    heap_put(calls, place, slot);
}

static void heap_down(trpi_calls *calls, uint32_t place) {
    uint32_t slot = calls->heap[place];
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= calls->heap_count) {
            break;
        }
        if (child + 1 < calls->heap_count &&
            heap_time(calls, child + 1) < heap_time(calls, child)) {
            child++;
        }
        if (heap_time(calls, child) >= calls->slots[slot].wake_ns) {
            break;
        }
        heap_put(calls, place, calls->heap[child]);
        place = child;
    }
    heap_put(calls, place, slot);
}

static void heap_remove(trpi_calls *calls, uint32_t slot) {
    uint32_t place = calls->slots[slot].heap_place;
    uint32_t last = calls->heap[--calls->heap_count];
    calls->slots[slot].heap_place = TRPI_CALL_NONE;
    if (last != slot) {
        heap_put(calls, place, last);
        heap_up(calls, place);
        heap_down(calls, calls->slots[last].heap_place);
    }
}

void trpi_calls_set_wake(trpi_calls *calls, uint32_t slot, uint64_t wake_ns) {
    if (calls->slots[slot].heap_place != TRPI_CALL_NONE) {
        heap_remove(calls, slot);
    }
    calls->slots[slot].wake_ns = wake_ns;
    if (wake_ns == UINT64_MAX) {
        return;
    }
    if (calls->heap_count == calls->heap_capacity) {
        calls->heap_capacity = TRPI_MAX(64U, calls->heap_capacity * 2);
        calls->heap = trpi_realloc(calls->heap, calls->heap_capacity * sizeof(*calls->heap));
    }
    heap_put(calls, calls->heap_count++, slot);
    heap_up(calls, calls->heap_count - 1);
}

uint32_t trpi_calls_next_wake(const trpi_calls *calls) {
    return calls->heap_count ? calls->heap[0] : TRPI_CALL_NONE;
}

void trpi_calls_give_back(trpi_calls *calls, uint32_t slot) {
    trpi_call *call = &calls->slots[slot];
    TRP_ASSERT(call->used && call->holds == NULL);
    if (call->heap_place != TRPI_CALL_NONE) {
        heap_remove(calls, slot);
    }
    free(call->payload);
    call->payload = NULL;
    call->used = false;
    call->next = calls->first_free;
    calls->first_free = slot;
    calls->used_count--;
}

const char *trpi_calls_check(const trpi_calls *calls) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < calls->slot_count; i++) {
        used += calls->slots[i].used;
    }
    if (used != calls->used_count) {
        return "used_count is not the number of used slots";
    }
    for (uint32_t i = 0; i < calls->heap_count; i++) {
        const trpi_call *call = &calls->slots[calls->heap[i]];
        if (!call->used || call->heap_place != i) {
            return "a time belongs to no call";
        }
        if (i > 0 && heap_time(calls, (i - 1) / 2) > call->wake_ns) {
            return "times are out of order";
        }
    }
    return NULL;
}

#include "actors/proc/node_timers.h"

#include <stdlib.h>

void trpi_timers_add(trpi_timers *timers, uint64_t due_ns, int kind, uint64_t id) {
    if (due_ns == UINT64_MAX) {
        return; /* would never be taken out */
    }
    if (timers->count == timers->capacity) {
        timers->capacity = timers->capacity ? timers->capacity * 2 : 64;
        timers->items = trpi_realloc(timers->items, timers->capacity * sizeof *timers->items);
    }
    size_t i = timers->count++;
    while (i > 0 && timers->items[(i - 1) / 2].due_ns > due_ns) {
        timers->items[i] = timers->items[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    timers->items[i] = (trpi_timer){due_ns, kind, id};
}

uint64_t trpi_timers_due(const trpi_timers *timers) {
    return timers->count ? timers->items[0].due_ns : UINT64_MAX;
}

bool trpi_timers_take(trpi_timers *timers, uint64_t now_ns, trpi_timer *ret_timer) {
    if (timers->count == 0 || timers->items[0].due_ns > now_ns) {
        return false;
    }
    *ret_timer = timers->items[0];
    trpi_timer last = timers->items[--timers->count];
    size_t i = 0;
    for (size_t child = 1; child < timers->count; child = 2 * i + 1) {
        if (child + 1 < timers->count &&
            timers->items[child + 1].due_ns < timers->items[child].due_ns) {
            child++;
        }
        if (timers->items[child].due_ns >= last.due_ns) {
            break;
        }
        timers->items[i] = timers->items[child];
        i = child;
    }
    timers->items[i] = last;
    return true;
}

void trpi_timers_release(trpi_timers *timers) {
    free(timers->items);
    *timers = (trpi_timers){0};
}

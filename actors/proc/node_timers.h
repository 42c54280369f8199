/* node_timers.h: what the node daemon has to look at later, ordered by time.
 *
 * Timers are never canceled: one that is due names its thing by number, and whoever handles it
 * looks whether that thing still exists and still waits. That costs 24 bytes for a while, and saves
 * a handle in every worker. */
#ifndef TRPI_NODE_TIMERS_H
#define TRPI_NODE_TIMERS_H

#include "core/base/base.h"

typedef struct trpi_timer {
    uint64_t due_ns;
    int kind;
    uint64_t id;
} trpi_timer;

typedef struct trpi_timers { /* zero-initialize; a binary heap, earliest first */
    trpi_timer *items;
    size_t count, capacity;
} trpi_timers;

/* One that is due at UINT64_MAX, which is never, is not kept. */
void trpi_timers_add(trpi_timers *timers, uint64_t due_ns, int kind, uint64_t id);
uint64_t trpi_timers_due(const trpi_timers *timers); /* of the earliest; UINT64_MAX = none */
/* Takes the earliest if it is due by now. */
bool trpi_timers_take(trpi_timers *timers, uint64_t now_ns, trpi_timer *ret_timer);
void trpi_timers_release(trpi_timers *timers);

#endif

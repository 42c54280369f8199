/* cluster_timers.c: what actors wait for by time, one timer each: a heap, the next one first.
 * Timers of one moment are due in the order in which they were set, so that a replay is one. */
#include <stdlib.h>

#include "actors/state/cluster_parts.h"

static bool is_before(const trpi_actor_rec *a, const trpi_actor_rec *b) {
    return a->timer_ns != b->timer_ns ? a->timer_ns < b->timer_ns
                                      : a->timer_number < b->timer_number;
}

static void put(trpi_timers *timers, size_t at, trpi_actor_rec *actor) {
    timers->items[at] = actor;
    actor->timer_at = at;
}

static void rise(trpi_timers *timers, size_t at) {
    trpi_actor_rec *actor = timers->items[at];
    for (size_t above = (at - 1) / 2; at > 0 && is_before(actor, timers->items[above]);
         above = (at - 1) / 2) {
        put(timers, at, timers->items[above]);
        at = above;
    }
    put(timers, at, actor);
}

static void sink(trpi_timers *timers, size_t at) {
    trpi_actor_rec *actor = timers->items[at];
    for (size_t below = 2 * at + 1; below < timers->count; below = 2 * at + 1) {
        bool right =
            below + 1 < timers->count && is_before(timers->items[below + 1], timers->items[below]);
        below += right;
        if (!is_before(timers->items[below], actor)) {
            break;
        }
        put(timers, at, timers->items[below]);
        at = below;
    }
    put(timers, at, actor);
}

void trpi_timer_set(trpi_cluster *c, trpi_actor_rec *actor, uint64_t at_ns) {
    trpi_timers *timers = &c->timers;
    trpi_timer_clear(c, actor);
    if (timers->count == timers->capacity) {
        timers->capacity = TRPI_MAX(2 * timers->capacity, (size_t)64);
        timers->items = trpi_realloc(timers->items, timers->capacity * sizeof(*timers->items));
    }
    actor->timer_ns = at_ns;
    actor->timer_number = ++timers->last_number;
    put(timers, timers->count++, actor);
    rise(timers, actor->timer_at);
}

void trpi_timer_clear(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_timers *timers = &c->timers;
    size_t at = actor->timer_at;
    if (!actor->timer_ns) {
        return;
    }
    actor->timer_ns = 0;
    trpi_actor_rec *last = timers->items[--timers->count];
    if (last != actor) {
        put(timers, at, last);
        sink(timers, at);
        rise(timers, last->timer_at);
    }
}

const trpi_actor_rec *trpi_timers_first(const trpi_cluster *c) {
    return c->timers.count ? c->timers.items[0] : NULL;
}

void trpi_timers_run(trpi_cluster *c) {
    while (c->timers.count && c->timers.items[0]->timer_ns <= c->now_ns) {
        trpi_actor_rec *actor = c->timers.items[0];
        trpi_timer_clear(c, actor);
        trpi_actor_timer(c, actor);
    }
}

const char *trpi_timers_check(const trpi_cluster *c) {
    for (size_t i = 0; i < c->timers.count; i++) {
        const trpi_actor_rec *actor = c->timers.items[i];
        if (actor->timer_at != i || actor->timer_ns == 0 ||
            (i > 0 && is_before(actor, c->timers.items[(i - 1) / 2]))) {
            return "timers are not in order";
        }
    }
    return NULL;
}

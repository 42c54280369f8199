/* store_segments.c: the memory that objects are in, and who makes room for whom.
 *
 * Sizes are rounded up to eight steps per power of two, so that what one object leaves fits the
 * next of about its size, and at most an eighth is lost. */
#include <inttypes.h>
#include <stdlib.h>

#include "actors/state/store_parts.h"

#define PAGE_BYTES UINT64_C(4096)
#define STEPS 8

static uint64_t round_up(uint64_t size) {
    uint64_t step = PAGE_BYTES;
    while (step * STEPS < size / 2 + 1) {
        step *= 2;
    }
    return TRPI_MAX((size + step - 1) / step, UINT64_C(1)) * step;
}

/* ---- Making room ---- */

static void free_segment(trpi_store *s, trpi_segment *segment) {
    trpi_store_action *action = trpi_store_act(s, TRPI_STORE_FREE);
    action->segment = segment->id;
    action->clean = !segment->is_exposed;
    trpi_table_remove(&s->segments, segment->id);
    free(segment);
}

static void free_spare(trpi_store *s, trpi_segment *segment) {
    s->spare_bytes -= segment->bytes;
    free_segment(s, segment);
}

static trpi_segment *oldest_spare(const trpi_store *s) {
    trpi_segment *segment, *oldest = NULL;
    uint64_t id = 0;
    while (s->spare_bytes > 0 && (segment = trpi_table_next(&s->segments, &id)) != NULL) {
        if (segment->object == NULL && (oldest == NULL || segment->since_ns < oldest->since_ns)) {
            oldest = segment;
        }
    }
    return oldest;
}

static trpi_object *oldest_idle(const trpi_store *s) {
    trpi_object *object, *oldest = NULL;
    uint64_t id = 0;
    while (s->idle_bytes > 0 && (object = trpi_table_next(&s->objects, &id)) != NULL) {
        if (object->idle_ns != 0 && (oldest == NULL || object->idle_ns < oldest->idle_ns)) {
            oldest = object;
        }
    }
    return oldest;
}

/* The oldest of what nobody holds; false when there is nothing more. */
static bool free_something(trpi_store *s) {
    trpi_segment *spare = oldest_spare(s);
    if (spare != NULL) {
        free_spare(s, spare);
        return true;
    }
    trpi_object *idle = oldest_idle(s);
    if (idle != NULL) {
        idle->segment->is_exposed = true; /* not to be kept: its room is needed */
        trpi_store_destroy(s, idle, TRP_EOBJECT_LOST, "");
        return true;
    }
    return false;
}

/* Exactly that size, the one that was used last: its pages are the warmest. */
static trpi_segment *fitting_spare(const trpi_store *s, uint64_t bytes) {
    trpi_segment *segment, *best = NULL;
    uint64_t id = 0;
    while (s->spare_bytes >= bytes && (segment = trpi_table_next(&s->segments, &id)) != NULL) {
        if (segment->object == NULL && segment->bytes == bytes &&
            (best == NULL || segment->since_ns >= best->since_ns)) {
            best = segment;
        }
    }
    return best;
}

static trpi_segment *new_segment(trpi_store *s, uint64_t bytes) {
    trpi_segment *segment = trpi_alloc(sizeof(*segment));
    segment->id = ++s->last_segment;
    segment->bytes = bytes;
    trpi_table_put(&s->segments, segment->id, segment);
    trpi_store_action *action = trpi_store_act(s, TRPI_STORE_MAKE);
    action->segment = segment->id;
    action->bytes = bytes;
    return segment;
}

static trp_code check_room(trpi_store *s, uint64_t size, uint64_t bytes, const char **ret_reason) {
    if (size > s->config.capacity || bytes > s->config.capacity) {
        char asked[32], has[32];
        trpi_store_bytes_text(size, asked, sizeof(asked));
        trpi_store_bytes_text(s->config.capacity, has, sizeof(has));
        *ret_reason = trpi_store_text(
            s, "%s can never fit: the store of node n%" PRIu64 " has %s (TROUPE_STORE_BYTES)",
            asked, s->config.node, has);
        return TRP_EINVALID;
    }
    if (bytes > s->config.capacity - s->used_bytes) {
        *ret_reason = trpi_store_full_text(s, size);
        return TRP_EBUSY;
    }
    return TRP_OK;
}

trp_code trpi_store_segment_take(trpi_store *s, trpi_object *object, uint64_t size,
                                 const char **ret_reason) {
    uint64_t bytes = size > s->config.capacity ? 0 : round_up(size);
    trp_code code = check_room(s, size, bytes, ret_reason);
    if (code != TRP_OK) {
        return code;
    }
    trpi_segment *segment = fitting_spare(s, bytes);
    if (segment != NULL) {
        s->spare_bytes -= bytes;
    } else {
        while ((bytes > s->config.capacity - s->used_bytes - s->spare_bytes - s->idle_bytes ||
                s->segments.count >= s->config.segments_max) &&
               free_something(s)) {
        }
        if (s->segments.count >= s->config.segments_max) {
            *ret_reason = trpi_store_text(s,
                                          "the store of node n%" PRIu64
                                          " has no descriptors left (ulimit -n): %zu objects",
                                          s->config.node, s->objects.count);
            return TRP_EBUSY;
        }
        segment = new_segment(s, bytes);
    }
    segment->object = object;
    object->segment = segment;
    object->size = size;
    s->used_bytes += bytes;
    return TRP_OK;
}

void trpi_store_segment_leave(trpi_store *s, trpi_object *object) {
    trpi_segment *segment = object->segment;
    if (segment == NULL) {
        return;
    }
    *(object->idle_ns != 0 ? &s->idle_bytes : &s->used_bytes) -= segment->bytes;
    object->segment = NULL;
    segment->object = NULL;
    if (segment->is_exposed || segment->bytes > s->config.spare_bytes) {
        free_segment(s, segment);
        return;
    }
    s->spare_bytes += segment->bytes;
    segment->since_ns = s->now_ns;
    trpi_store_due(s, s->now_ns + s->config.spare_ns);
    while (s->spare_bytes > s->config.spare_bytes) {
        free_spare(s, oldest_spare(s));
    }
}

void trpi_store_spares_tick(trpi_store *s) {
    trpi_segment *segment;
    uint64_t id = 0;
    while (s->spare_bytes > 0 && (segment = trpi_table_next(&s->segments, &id)) != NULL) {
        if (segment->object != NULL) {
            continue;
        }
        if (segment->since_ns + s->config.spare_ns <= s->now_ns) {
            free_spare(s, segment);
        } else {
            trpi_store_due(s, segment->since_ns + s->config.spare_ns);
        }
    }
}

/* ---- Copies that nobody holds ---- */

void trpi_store_copy_idle(trpi_store *s, trpi_object *copy) {
    if (copy->idle_ns == 0) {
        copy->idle_ns = TRPI_MAX(s->now_ns, UINT64_C(1));
        s->used_bytes -= copy->segment->bytes;
        s->idle_bytes += copy->segment->bytes;
        s->idle_copies++;
        trpi_store_due(s, copy->idle_ns + s->config.spare_ns);
    }
}

void trpi_store_copy_in_use(trpi_store *s, trpi_object *copy) {
    if (copy->idle_ns != 0) {
        copy->idle_ns = 0;
        s->idle_bytes -= copy->segment->bytes;
        s->used_bytes += copy->segment->bytes;
        s->idle_copies--;
    }
}

/* store_check.c: what must hold after every step. */
#include "actors/state/store_parts.h"

/* Every hold stands in both tables, and the counts are sums. */
static const char *check_holds(const trpi_store *s, const trpi_object *object) {
    const trpi_hold *hold;
    uint64_t key = 0, live = 0;
    while ((hold = trpi_table_next(&object->holds, &key)) != NULL) {
        if (hold->object != object || hold->holder->key != key ||
            trpi_table_get(&hold->holder->holds, object->id) != hold) {
            return "a hold is not in both tables";
        }
        if (hold->count == 0 && !hold->holder->is_node) {
            return "a client holds an object no times";
        }
        if (object->is_copy && hold->holder->is_node) {
            return "a node holds a copy";
        }
        live += hold->count > 0;
    }
    return live == object->live ? NULL : "holds of an object are counted wrongly";
}

static const char *check_copy(const trpi_object *copy) {
    bool is_used = copy->live > 0 || copy->waits != NULL;
    if (is_used == (copy->idle_ns != 0)) {
        return is_used ? "a copy in use counts as idle" : "a copy that nobody wants is not idle";
    }
    if (!is_used && (copy->state != TRPI_OBJECT_SEALED || copy->upstream != TRPI_UPSTREAM_NONE)) {
        return "an idle copy is not complete, or holds on to its home";
    }
    if (is_used && copy->upstream == TRPI_UPSTREAM_NONE) {
        return "a copy is in use and its home does not know";
    }
    if (copy->live > 0 && copy->upstream == TRPI_UPSTREAM_ASKED) {
        return "a copy is held before its home has said so";
    }
    if (copy->state == TRPI_OBJECT_WRITING || copy->received > copy->size) {
        return "a copy is being written";
    }
    return NULL;
}

static const char *check_object(const trpi_store *s, const trpi_object *object) {
    if ((object->segment == NULL) != (object->state == TRPI_OBJECT_ABSENT)) {
        return "an object has memory without data, or none with it";
    }
    if (object->segment != NULL &&
        (object->segment->object != object || object->size > object->segment->bytes)) {
        return "an object's memory is not its own, or too small";
    }
    if (!object->is_copy && object->live == 0) {
        return "an object stays that nobody holds";
    }
    const char *broken = object->is_copy ? check_copy(object) : NULL;
    return broken ? broken : check_holds(s, object);
}

static const char *check_bytes(const trpi_store *s) {
    const trpi_segment *segment;
    uint64_t id = 0, used = 0, spare = 0, idle = 0;
    while ((segment = trpi_table_next(&s->segments, &id)) != NULL) {
        if (segment->object == NULL) {
            spare += segment->bytes;
        } else if (segment->object->idle_ns != 0) {
            idle += segment->bytes;
        } else {
            used += segment->bytes;
        }
        if (segment->object == NULL && segment->is_exposed) {
            return "memory that somebody may look at is kept for others";
        }
    }
    if (used != s->used_bytes || spare != s->spare_bytes || idle != s->idle_bytes) {
        return "bytes are counted wrongly";
    }
    if (used + spare + idle > s->config.capacity) {
        return "more memory than the store may have";
    }
    return spare <= s->config.spare_bytes ? NULL : "too much spare memory";
}

static const char *check_holders(const trpi_store *s) {
    const trpi_holder *holder;
    uint64_t key = 0;
    while ((holder = trpi_table_next(&s->holders, &key)) != NULL) {
        const trpi_session *session = trpi_table_get(&s->sessions, holder->session);
        if (holder->session != 0 && (session == NULL || session->holder != holder)) {
            return "a client's session is not its own";
        }
        if (!holder->is_node && holder->session == 0 && holder->holds.count == 0) {
            return "a client stays that holds nothing";
        }
    }
    return NULL;
}

const char *trpi_store_check(const trpi_store *s) {
    const trpi_object *object;
    const char *broken = check_bytes(s);
    uint64_t id = 0, idle = 0;
    while (broken == NULL && (object = trpi_table_next(&s->objects, &id)) != NULL) {
        broken = check_object(s, object);
        idle += object->idle_ns != 0;
    }
    if (broken == NULL && idle != s->idle_copies) {
        broken = "idle copies are counted wrongly";
    }
    for (size_t i = 1; i < s->gone_count && broken == NULL; i++) {
        if (s->gone[i - 1].last + 1 >= s->gone[i].first) {
            broken = "spans of gone clients touch";
        }
    }
    return broken ? broken : check_holders(s);
}

#include "actors/proc/client_refs.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 1024
/* A packet can hold on to a whole receive buffer of ZeroMQ for one small body: below this, a copy
 * is cheaper and smaller. */
#define COPIED_MAX_BYTES (64u << 10)

static trpi_ref *ref_at(const trpi_refs *refs, uint32_t slot) {
    return &refs->chunks[slot / CHUNK][slot % CHUNK];
}

static void add_chunk(trpi_refs *refs) {
    uint32_t first = refs->chunk_count * CHUNK;
    refs->chunks = trpi_realloc(refs->chunks, (refs->chunk_count + 1) * sizeof(*refs->chunks));
    refs->chunks[refs->chunk_count++] = trpi_alloc(CHUNK * sizeof(trpi_ref));
    for (uint32_t i = CHUNK; i-- > 0;) {
        trpi_ref *ref = ref_at(refs, first + i);
        ref->slot = first + i;
        ref->next_free = refs->first_free;
        refs->first_free = ref->slot + 1;
    }
}

trpi_ref *trpi_refs_take(trpi_refs *refs) {
    if (refs->first_free == 0) {
        add_chunk(refs);
    }
    trpi_ref *ref = ref_at(refs, refs->first_free - 1);
    refs->first_free = ref->next_free;
    if (++ref->generation == 0) {
        ref->generation = 1; /* id 0 names no ref */
    }
    ref->is_used = true;
    ref->is_done = ref->is_notifying = ref->is_queued = ref->is_awaited = false;
    ref->code = TRP_OK;
    ref->value = (trp_bytes){NULL, 0};
    return ref;
}

static void drop_content(trpi_ref *ref) {
    free(ref->message);
    free(ref->type);
    free(ref->where);
    free(ref->copy);
    ref->message = ref->type = ref->where = NULL;
    ref->copy = NULL;
    while (ref->callbacks != NULL) {
        trpi_callback *callback = ref->callbacks;
        ref->callbacks = callback->next;
        free(callback);
    }
    if (ref->packet != NULL) {
        trpi_packet_release(ref->packet);
        free(ref->packet);
        ref->packet = NULL;
    }
}

static void end_watches(trpi_ref *ref, bool failed) {
    while (ref->watches != NULL) {
        trpi_ref_watcher *watch = ref->watches;
        trpi_ref_unwatch(watch);
        trpi_waiter_note(watch->waiter, failed);
    }
}

void trpi_refs_give_back(trpi_refs *refs, trpi_ref *ref) {
    end_watches(ref, true);
    drop_content(ref);
    ref->is_used = false;
    ref->next_free = refs->first_free;
    refs->first_free = ref->slot + 1;
}

void trpi_refs_release(trpi_refs *refs) {
    for (uint32_t i = 0; i < refs->chunk_count; i++) {
        for (uint32_t j = 0; j < CHUNK; j++) {
            drop_content(&refs->chunks[i][j]);
        }
        free(refs->chunks[i]);
    }
    free(refs->chunks);
    *refs = (trpi_refs){0};
}

uint64_t trpi_ref_id(const trpi_ref *ref) {
    return (uint64_t)ref->generation << 32 | ref->slot;
}

trpi_ref *trpi_refs_find(trpi_refs *refs, uint64_t id) {
    uint32_t slot = (uint32_t)id;
    if (slot / CHUNK >= refs->chunk_count) {
        return NULL;
    }
    trpi_ref *ref = ref_at(refs, slot);
    return ref->is_used && ref->generation == (uint32_t)(id >> 32) ? ref : NULL;
}

void trpi_ref_succeed(trpi_ref *ref, trpi_packet *packet) {
    size_t size = packet->body.size;
    ref->is_done = true;
    if (size > COPIED_MAX_BYTES) {
        ref->packet = trpi_alloc(sizeof(*ref->packet));
        trpi_packet_move(ref->packet, packet);
        ref->value = ref->packet->body;
    } else if (size > 0) {
        unsigned char *copy = ref->small;
        if (size > sizeof(ref->small)) {
            copy = ref->copy = trpi_realloc(NULL, size);
        }
        memcpy(copy, packet->body.data, size);
        ref->value = (trp_bytes){copy, size};
    }
    end_watches(ref, false);
}

static char *copy_if_any(const char *text) {
    return text != NULL && text[0] != '\0' ? trpi_strdup(text) : NULL;
}

void trpi_ref_fail(trpi_ref *ref, const trpi_ref_failure *failure) {
    ref->is_done = true;
    ref->code = failure->code;
    ref->node = failure->node;
    ref->actor = failure->actor;
    ref->message = trpi_strdup(failure->message);
    ref->type = copy_if_any(failure->type);
    ref->where = copy_if_any(failure->where);
    end_watches(ref, true);
}

trp_code trpi_ref_result(const trpi_ref *ref, trp_error *err) {
    if (ref->code == TRP_OK) {
        return TRP_OK;
    }
    trpi_fail(err, ref->code, "%s", ref->message);
    if (err != NULL) {
        err->node = ref->node;
        err->actor = ref->actor;
        TRPI_SET(err->type, ref->type ? ref->type : "");
        TRPI_SET(err->where, ref->where ? ref->where : "");
    }
    return ref->code;
}

void trpi_ref_watch(trpi_ref_watcher *watch, trpi_waiter *waiter, trpi_ref *ref) {
    *watch = (trpi_ref_watcher){.waiter = waiter, .ref = ref, .next = ref->watches};
    if (ref->watches != NULL) {
        ref->watches->prev = watch;
    }
    ref->watches = watch;
}

void trpi_ref_unwatch(trpi_ref_watcher *watch) {
    if (watch->ref == NULL) {
        return;
    }
    if (watch->prev != NULL) {
        watch->prev->next = watch->next;
    } else {
        watch->ref->watches = watch->next;
    }
    if (watch->next != NULL) {
        watch->next->prev = watch->prev;
    }
    watch->ref = NULL;
}

#include "core/net/links.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/config.h"
#include "core/base/hash.h"
#include "core/base/id.h"
#include "core/base/times.h"

#define PROBE_MAX_MS 5000
#define IDLE_MS 60000 /* how often a quiet peer is looked at, ... */
#define AWAY_MS 60000 /* ... and how long it may be out of reach */
#define CAPACITY_FIRST 8

void trpi_links_init(trpi_links *links) {
    uint64_t probe_ns = trpi_config(TRPI_CONFIG_LINK_PROBE_MS) * TRPI_NS_PER_MS;
    memset(links, 0, sizeof(*links));
    links->wake_ns = links->sweep_ns = UINT64_MAX;
    links->lives = trpi_random_u64();
    links->times =
        (trpi_link_times){.probe_ns = probe_ns,
                          .probe_max_ns = TRPI_MAX(probe_ns, PROBE_MAX_MS * TRPI_NS_PER_MS),
                          .gap_ns = probe_ns / 4,
                          .idle_ns = IDLE_MS * TRPI_NS_PER_MS,
                          .away_ns = AWAY_MS * TRPI_NS_PER_MS};
}

uint32_t trpi_links_life(trpi_links *links) {
    uint32_t life;
    do {
        links->lives++;
        life = (uint32_t)trpi_hash64(&links->lives, sizeof(links->lives));
    } while (life == 0);
    return life;
}

trp_bytes trpi_linked_peer(const trpi_linked *linked) {
    return (trp_bytes){linked->peer, linked->peer_size};
}

/* ---- The table ---- */

static bool is_for(const trpi_linked *linked, trp_bytes peer) {
    return linked->peer_size == peer.size && memcmp(linked->peer, peer.data, peer.size) == 0;
}

static trpi_linked **bucket(const trpi_links *links, uint32_t hash) {
    return &links->buckets[hash & (links->capacity - 1)];
}

trpi_linked *trpi_links_find(trpi_links *links, trp_bytes peer) {
    trpi_linked *linked = links->last;
    if (linked != NULL && is_for(linked, peer)) {
        return linked;
    }
    if (links->count == 0) {
        return NULL;
    }
    uint32_t hash = (uint32_t)trpi_hash64(peer.data, peer.size);
    linked = *bucket(links, hash);
    while (linked != NULL && !(linked->hash == hash && is_for(linked, peer))) {
        linked = linked->next_alike;
    }
    links->last = linked;
    return linked;
}

static bool grow(trpi_links *links) {
    trpi_links before = *links;
    links->capacity = TRPI_MAX(2 * before.capacity, (uint32_t)CAPACITY_FIRST);
    links->buckets = calloc(links->capacity, sizeof(trpi_linked *));
    if (links->buckets == NULL) {
        *links = before;
        return false;
    }
    for (uint32_t i = 0; i < before.capacity; i++) {
        for (trpi_linked *linked = before.buckets[i], *next; linked != NULL; linked = next) {
            trpi_linked **place = bucket(links, linked->hash);
            next = linked->next_alike;
            linked->next_alike = *place;
            *place = linked;
        }
    }
    free(before.buckets);
    return true;
}

trpi_linked *trpi_links_add(trpi_links *links, trp_bytes peer) {
    if (peer.size > UINT8_MAX || (links->count == links->capacity && !grow(links))) {
        return NULL;
    }
    trpi_linked *linked = calloc(1, sizeof(*linked) + peer.size);
    if (linked == NULL) {
        return NULL;
    }
    linked->peer_size = (uint8_t)peer.size;
    if (peer.size > 0) {
        memcpy(linked->peer, peer.data, peer.size);
    }
    linked->hash = (uint32_t)trpi_hash64(peer.data, peer.size);
    trpi_linked **place = bucket(links, linked->hash);
    linked->next_alike = *place;
    *place = linked;
    links->count++;
    links->last = linked;
    return linked;
}

void trpi_links_remove(trpi_links *links, trpi_linked *linked) {
    trpi_linked **place = bucket(links, linked->hash);
    while (*place != linked) {
        place = &(*place)->next_alike;
    }
    *place = linked->next_alike;
    trpi_links_rest(linked);
    trpi_window_release(&linked->window);
    links->void_count -= linked->is_void;
    links->last = NULL;
    links->count--;
    free(linked);
}

trpi_linked *trpi_links_next(const trpi_links *links, const trpi_linked *linked) {
    if (linked != NULL && linked->next_alike != NULL) {
        return linked->next_alike;
    }
    uint32_t i = linked == NULL ? 0 : (linked->hash & (links->capacity - 1)) + 1;
    while (i < links->capacity && links->buckets[i] == NULL) {
        i++;
    }
    return i < links->capacity ? links->buckets[i] : NULL;
}

void trpi_links_release(trpi_links *links) {
    trpi_linked *linked;
    while ((linked = trpi_links_next(links, NULL)) != NULL) {
        trpi_links_remove(links, linked);
    }
    free(links->buckets);
    memset(links, 0, sizeof(*links));
}

/* ---- Timers ---- */

void trpi_links_note(trpi_links *links, trpi_linked *linked) {
    if (trpi_link_is_idle(&linked->link)) {
        links->sweep_ns = TRPI_MIN(links->sweep_ns, linked->link.due_ns);
        return;
    }
    links->wake_ns = TRPI_MIN(links->wake_ns, linked->link.due_ns);
    if (linked->at_busy == NULL) {
        linked->next_busy = links->busy;
        linked->at_busy = &links->busy;
        if (links->busy != NULL) {
            links->busy->at_busy = &linked->next_busy;
        }
        links->busy = linked;
    }
}

void trpi_links_rest(trpi_linked *linked) {
    if (linked->at_busy != NULL) {
        *linked->at_busy = linked->next_busy;
        if (linked->next_busy != NULL) {
            linked->next_busy->at_busy = linked->at_busy;
        }
        linked->at_busy = NULL;
    }
}

#include "actors/proc/head_peers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"

/* Beyond this the connection is not away for a moment; START and END are repeated, states are asked
 * for anew, so what is dropped costs time and not truth. */
#define QUEUE_BYTES_MAX ((size_t)64 << 20)

typedef struct frame {
    struct frame *next;
    size_t size;
    unsigned char data[];
} frame;

struct trpi_peer {
    uint64_t number;
    bool kept;
    frame *first, **last;
    size_t queued_bytes;
    size_t id_size;
    unsigned char id[];
};

static trp_bytes id_of(const trpi_peer *peer) {
    return (trp_bytes){peer->id, peer->id_size};
}

static void peer_free(trpi_peer *peer) {
    while (peer->first) {
        frame *next = peer->first->next;
        free(peer->first);
        peer->first = next;
    }
    free(peer);
}

uint64_t trpi_peers_number(trpi_peers *peers, trp_bytes id) {
    trpi_peer *peer = trpi_index_get(&peers->by_id, id);
    if (!peer) {
        TRP_ASSERT(!peers->stranger);
        peer = trpi_alloc(sizeof(*peer) + id.size);
        peer->number = ++peers->last;
        peer->last = &peer->first;
        peer->id_size = id.size;
        memcpy(peer->id, id.data, id.size);
        peers->stranger = peer;
    }
    return peer->number;
}

void trpi_peers_settle(trpi_peers *peers, bool keep) {
    trpi_peer *peer = peers->stranger;
    peers->stranger = NULL;
    if (peer && keep) {
        peer->kept = true;
        (void)trpi_index_put(&peers->by_id, id_of(peer), peer);
        trpi_table_put(&peers->by_number, peer->number, peer);
    } else if (peer) {
        peer_free(peer);
    }
}

void trpi_peers_forget(trpi_peers *peers, uint64_t number) {
    trpi_peer *peer = trpi_table_remove(&peers->by_number, number);
    if (peer) {
        trpi_table_remove(&peers->waiting, number);
        trpi_index_remove(&peers->by_id, id_of(peer));
        peer_free(peer);
    }
}

bool trpi_peers_next(const trpi_peers *peers, uint64_t *number) {
    return trpi_table_next(&peers->by_number, number) != NULL;
}

static trpi_peer *find(const trpi_peers *peers, uint64_t number) {
    if (peers->stranger && peers->stranger->number == number) {
        return peers->stranger;
    }
    return trpi_table_get(&peers->by_number, number);
}

static bool send_now(trpi_peers *peers, const trpi_peer *peer, trp_bytes data) {
    return trpi_sock_send(peers->sock, id_of(peer), data, (trp_bytes){0}, NULL) == TRP_OK;
}

static void queue(trpi_peers *peers, trpi_peer *peer, trp_bytes data) {
    if (!peer->kept) {
        return;
    }
    if (peer->queued_bytes + data.size > QUEUE_BYTES_MAX) {
        trpi_log(TRPI_WARN, "message_dropped", "peer=%" PRIu64 " queued_bytes=%zu", peer->number,
                 peer->queued_bytes);
        return;
    }
    frame *waits = trpi_alloc(sizeof(*waits) + data.size);
    waits->size = data.size;
    memcpy(waits->data, data.data, data.size);
    *peer->last = waits;
    peer->last = &waits->next;
    peer->queued_bytes += data.size;
    trpi_table_put(&peers->waiting, peer->number, peer);
}

void trpi_peers_send(trpi_peers *peers, uint64_t number, trp_bytes data) {
    trpi_peer *peer = find(peers, number);
    if (peer && (peer->first || !send_now(peers, peer, data))) {
        queue(peers, peer, data);
    }
}

/* True when nothing is left. */
static bool flush_one(trpi_peers *peers, trpi_peer *peer) {
    while (peer->first) {
        frame *waits = peer->first;
        if (!send_now(peers, peer, (trp_bytes){waits->data, waits->size})) {
            return false;
        }
        peer->queued_bytes -= waits->size;
        peer->first = waits->next;
        free(waits);
    }
    peer->last = &peer->first;
    return true;
}

void trpi_peers_flush(trpi_peers *peers) {
    trpi_peer *peer;
    uint64_t number = 0;
    while ((peer = trpi_table_next(&peers->waiting, &number)) != NULL) {
        if (flush_one(peers, peer)) {
            trpi_table_remove(&peers->waiting, number);
        }
    }
}

void trpi_peers_release(trpi_peers *peers) {
    uint64_t number = 0;
    trpi_peers_settle(peers, false);
    while (trpi_peers_next(peers, &number)) {
        trpi_peers_forget(peers, number);
    }
    trpi_table_release(&peers->by_number);
    trpi_table_release(&peers->waiting);
    trpi_index_release(&peers->by_id);
}

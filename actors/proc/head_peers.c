#include "actors/proc/head_peers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"

struct trpi_peer {
    uint64_t number;
    size_t id_size;
    unsigned char id[];
};

static trp_bytes id_of(const trpi_peer *peer) {
    return (trp_bytes){peer->id, peer->id_size};
}

uint64_t trpi_peers_number(trpi_peers *peers, trp_bytes id) {
    trpi_peer *peer = trpi_index_get(&peers->by_id, id);
    if (!peer) {
        TRP_ASSERT(!peers->stranger);
        peer = trpi_alloc(sizeof(*peer) + id.size);
        peer->number = ++peers->last;
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
        (void)trpi_index_put(&peers->by_id, id_of(peer), peer);
        trpi_table_put(&peers->by_number, peer->number, peer);
    } else if (peer) {
        free(peer); /* his link stays, as he may go on; the socket drops it when he is gone */
    }
}

void trpi_peers_forget(trpi_peers *peers, uint64_t number) {
    trpi_peer *peer = trpi_table_remove(&peers->by_number, number);
    if (peer) {
        trpi_sock_forget(peers->sock, id_of(peer));
        trpi_index_remove(&peers->by_id, id_of(peer));
        free(peer);
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

void trpi_peers_send(trpi_peers *peers, uint64_t number, trp_bytes frame, bool is_bare) {
    trp_error err;
    const trpi_peer *peer = find(peers, number);
    if (!peer) {
        return;
    }
    trp_code code = is_bare ? trpi_sock_send_bare(peers->sock, id_of(peer), frame, &err)
                            : trpi_sock_send(peers->sock, id_of(peer), frame, (trp_bytes){0}, &err);
    if (code != TRP_OK && !is_bare && trpi_log_is_due(&peers->unsent)) {
        trpi_log(TRPI_WARN, "message_dropped", "peer=%" PRIu64 " error=\"%s\" dropped=%" PRIu64,
                 number, err.message, peers->unsent);
    }
}

void trpi_peers_release(trpi_peers *peers) {
    uint64_t number = 0;
    trpi_peers_settle(peers, false);
    while (trpi_peers_next(peers, &number)) {
        trpi_peers_forget(peers, number);
    }
    trpi_table_release(&peers->by_number);
    trpi_index_release(&peers->by_id);
}

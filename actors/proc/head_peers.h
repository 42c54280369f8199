/* head_peers.h: the head's transport: who is behind which routing id, and what waits for them.
 *
 * The cluster machine speaks of peers by number; ZeroMQ by routing id. A stranger gets a number for
 * the one packet that is being handled, and keeps it only when the machine knows him afterwards: so
 * nobody can fill the table by saying nothing.
 *
 * A node or client whose connection is away for a moment is still a peer: what is said to it waits
 * here, in order, until it is back or the machine has given it up. */
#ifndef TRPI_HEAD_PEERS_H
#define TRPI_HEAD_PEERS_H

#include "core/base/table.h"
#include "core/net/sock.h"
#include "core/state/index.h"

typedef struct trpi_peer trpi_peer;

typedef struct trpi_peers {
    trpi_sock *sock;
    trpi_index by_id;     /* routing id -> peer */
    trpi_table by_number; /* number -> peer */
    trpi_table waiting;   /* number -> peer: those with something queued */
    uint64_t last;
    trpi_peer *stranger; /* of the packet that is being handled, or NULL */
} trpi_peers;            /* zero-initialize, then set sock */

/* The number of the sender; a new one for a stranger. */
uint64_t trpi_peers_number(trpi_peers *peers, trp_bytes id);
/* The packet is dealt with: the stranger stays, or is forgotten. */
void trpi_peers_settle(trpi_peers *peers, bool keep);
void trpi_peers_forget(trpi_peers *peers, uint64_t number);
/* The peer with the smallest number above *number; false at the end. */
bool trpi_peers_next(const trpi_peers *peers, uint64_t *number);

/* Sends or queues. What is said to a stranger who cannot be reached is dropped. */
void trpi_peers_send(trpi_peers *peers, uint64_t number, trp_bytes frame);
void trpi_peers_flush(trpi_peers *peers); /* tries again what is queued */
void trpi_peers_release(trpi_peers *peers);

#endif

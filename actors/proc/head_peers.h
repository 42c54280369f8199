/* head_peers.h: the head's transport: who is behind which routing id, and what waits for them.
 *
 * The cluster machine speaks of peers by number; ZeroMQ by routing id. A stranger gets a number for
 * the one packet that is being handled, and keeps it only when the machine knows him afterwards: so
 * nobody can fill the table by saying nothing.
 *
 * A node or client whose connection is away for a moment is still a peer: what is said to it waits
 * in the socket, in order, until it is back or the machine has given it up. */
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
    uint64_t last, unsent;
    trpi_peer *stranger; /* of the packet that is being handled, or NULL */
} trpi_peers;            /* zero-initialize, then set sock */

/* The number of the sender; a new one for a stranger. */
uint64_t trpi_peers_number(trpi_peers *peers, trp_bytes id);
/* The packet is dealt with: the stranger stays, or is forgotten. */
void trpi_peers_settle(trpi_peers *peers, bool keep);
void trpi_peers_forget(trpi_peers *peers, uint64_t number);
/* The peer with the smallest number above *number; false at the end. */
bool trpi_peers_next(const trpi_peers *peers, uint64_t *number);

/* is_bare: beside the link, so that it may be lost but never waits. */
void trpi_peers_send(trpi_peers *peers, uint64_t number, trp_bytes frame, bool is_bare);
void trpi_peers_release(trpi_peers *peers);

#endif

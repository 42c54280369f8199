/* sock_parts.h: what the files of a socket share.
 *
 *     sock.c          contexts, opening, waiting
 *     sock_packets.c  packets out and in, alone or in batches
 *     sock_links.c    links: what the machine of core/state/link.h decides is carried out
 *     sock_frames.c   whole messages into ZeroMQ and out of it; faults, for tests */
#ifndef TRPI_SOCK_PARTS_H
#define TRPI_SOCK_PARTS_H

#include "core/net/links.h"
#include "core/net/sock.h"
#include "core/net/stamp.h"
#include "core/net/window.h"

/* Of a header or body: what a stranger can make us allocate. */
#define TRPI_MESSAGE_MAX_BYTES ((size_t)512 << 20)

typedef struct trpi_faults { /* of 1000 linked messages */
    uint32_t drop, repeat;
    uint64_t random;
} trpi_faults;

struct trpi_sock {
    void *zmq;
    trpi_sock_kind kind;
    int fd;            /* readable when ZeroMQ's threads have told the socket something new */
    bool is_drained;   /* nothing to receive, and nothing was done since: only fd can change that */
    uint64_t dropped;  /* packets with a wrong number of frames, damaged ones */
    trpi_packet batch; /* the one that came last, while there is a rest of it */
    trp_bytes rest;
    trpi_links links;
    trpi_faults faults;
};

static inline bool trpi_sock_is_router(const trpi_sock *sock) {
    return sock->kind == TRPI_ROUTER || sock->kind == TRPI_ROUTER_MIXED;
}

_Static_assert(sizeof(((trpi_packet *)0)->frames[0]) == sizeof(zmq_msg_t), "frames hold zmq_msg_t");

static inline zmq_msg_t *trpi_packet_frame(trpi_packet *packet, int index) {
    return (zmq_msg_t *)(void *)packet->frames[index].opaque;
}

/* ---- sock_frames.c ---- */

void trpi_faults_init(trpi_faults *faults);
/* Takes the frames, whether it succeeds or not. 0, or ZeroMQ's error. */
int trpi_frames_send(trpi_sock *sock, trp_bytes peer, trpi_frames *frames);
/* The same with the faults that were asked for. */
int trpi_frames_send_faulty(trpi_sock *sock, trp_bytes peer, trpi_frames *frames);
/* All frames of one message, which ZeroMQ hands over whole. False: none there. *ret_fits is false
 * when it had more frames than a packet may have. */
bool trpi_frames_recv(trpi_sock *sock, trpi_packet *packet, bool *ret_fits);

/* ---- sock_links.c ---- */

void trpi_sock_links_init(trpi_sock *sock);
/* Begins the link with a peer that this socket connects to. False: out of memory. */
TRP_CHECKED bool trpi_sock_link_open(trpi_sock *sock, trp_bytes peer);
/* The link with that peer; NULL: there is none, or the socket is bare. */
trpi_linked *trpi_sock_linked(trpi_sock *sock, trp_bytes peer);
/* Stamps the first TRPI_STAMP_SIZE bytes of the head, sends, and keeps. Takes the frames. 0, or an
 * error of ZeroMQ's kind: EBUSY when too much is kept. */
int trpi_sock_link_send(trpi_sock *sock, trpi_linked *linked, trpi_frames *frames);
/* A message came that says this. True: it is the next one for the owner. */
bool trpi_sock_link_take(trpi_sock *sock, trp_bytes peer, const trpi_stamp *stamp, size_t bytes);
/* What time asks for. */
void trpi_sock_links_tend(trpi_sock *sock, uint64_t now_ns);
/* Asks all that can be reached and have not confirmed everything. */
void trpi_sock_links_ask(trpi_sock *sock);
/* So many messages have they not confirmed. */
size_t trpi_sock_links_kept(const trpi_sock *sock);

#endif

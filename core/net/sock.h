/* sock.h: ZeroMQ, and nothing else of it shows elsewhere.
 *
 * Reliable (unless said otherwise when it is opened): what is sent to a peer that lives arrives
 * once, in order, also when a connection breaks in between, which ZeroMQ alone does not promise.
 * Messages of a link are numbered, kept until they are confirmed, and sent again when the other
 * side misses them (core/state/link.h decides, sock_links.c carries out). A DEALER, and a ROUTER
 * that connects, opens its links; a ROUTER that is bound accepts them. A peer that comes back as
 * another process, or has forgotten the link, starts a new one, and what was not confirmed on the
 * old one is dropped, since nobody can tell whether it was taken: trpi_sock_take_void() says so to
 * the side that opens. A peer that is out of reach for a moment is written to all the same; an
 * accepted one that stays away for a minute is forgotten.
 *
 * A packet is [peer id, on ROUTER only] [header] [body, may be absent]; a small body travels in the
 * header's frame, and small packets may travel together (joined.h). Sockets have no high-water mark
 * that drops: what cannot be sent now is an error, what is sent is queued. Linger is 0.
 * Threads: a socket belongs to one thread at a time; hand-over needs a full fence (a mutex does).
 */
#ifndef TRPI_SOCK_H
#define TRPI_SOCK_H

#include "core/base/base.h"
#include "core/net/joined.h"

typedef struct trpi_net trpi_net; /* a ZeroMQ context */
typedef struct trpi_sock trpi_sock;

TRP_CHECKED trp_code trpi_net_open(trpi_net **ret_net, trp_error *err); /* one I/O thread */
void trpi_net_close(trpi_net *net); /* after all its sockets; NULL is fine */
/* What ZeroMQ's libraries do once per process (they look protocols up, which searches a hundred
 * files), for those that this process will fork. Starts no thread. */
void trpi_net_prepare(void);

typedef enum trpi_sock_kind {
    TRPI_DEALER,
    TRPI_ROUTER,
    TRPI_DEALER_BARE, /* without links: heartbeats, of which only the newest counts */
    TRPI_ROUTER_MIXED /* takes both: links from peers that use them, bare messages from others */
} trpi_sock_kind;

/* id (1 to 255 bytes, not starting with 0) is what ROUTER peers know this socket by; {NULL, 0} lets
 * the peer make one up. ROUTERs are MANDATORY (unknown peer = error) and take over a repeated id.
 */
TRP_CHECKED trp_code trpi_sock_open(trpi_net *net, trpi_sock_kind kind, trp_bytes id,
                                    trpi_sock **ret_sock, trp_error *err);
void trpi_sock_close(trpi_sock *sock); /* NULL is fine */
/* Waits, at most linger_ms, until what was sent is confirmed by all who can be reached and listen,
 * and closes. Who does not listen now costs a tenth of a second. What comes in meanwhile is
 * dropped. What is still queued may go out after that: trpi_net_close() waits for it, at most
 * linger_ms. */
void trpi_sock_close_after(trpi_sock *sock, int linger_ms);

/* endpoint: "tcp://127.0.0.1:6390", "tcp://127.0.0.1:*", "ipc:///path". ret_actual gets what was
 * bound (may be NULL). TRP_EIO with the reason and what to change (port taken, path too long). */
TRP_CHECKED trp_code trpi_sock_bind(trpi_sock *sock, const char *endpoint, char *ret_actual,
                                    size_t actual_size, trp_error *err);
/* peer: on a ROUTER, the id under which this peer will be addressed from now on (never one that was
 * used before on this socket: ZeroMQ aborts the process on a repeated one); {NULL, 0} on a DEALER.
 * Returns before the peer answers. */
TRP_CHECKED trp_code trpi_sock_connect(trpi_sock *sock, const char *endpoint, trp_bytes peer,
                                       trp_error *err);
void trpi_sock_disconnect(trpi_sock *sock, const char *endpoint);
/* A ROUTER's peer is known to be gone, or about to be disconnected: what is kept for it goes too.
 * Unknown ones are fine. */
void trpi_sock_forget(trpi_sock *sock, trp_bytes peer);
/* True: the peer (empty on a DEALER; borrowed until the next call) to which this socket had opened
 * a link knows nothing of it any more: what it had not confirmed is lost, as are answers to what it
 * had. A new link has begun. Each is told once; ask after having received. */
bool trpi_sock_take_void(trpi_sock *sock, trp_bytes *ret_peer);
/* When trpi_poll() must be entered again at the latest for links to be looked after; UINT64_MAX =
 * no need. trpi_poll() itself wakes up for that. */
uint64_t trpi_sock_wake_ns(const trpi_sock *sock);
/* Looks after them: for a socket that is not polled. */
void trpi_sock_tend(trpi_sock *sock);

/* Never blocks. header and body are copied; body.size 0 sends no body frame. peer is ignored on a
 * DEALER. TRP_ENOTFOUND: the ROUTER knows no such peer; TRP_EBUSY: memory is out, or a GiB is under
 * way to a peer that confirms nothing; TRP_EINVALID: header or body are longer than 512 MiB, which
 * no socket takes in. */
TRP_CHECKED trp_code trpi_sock_send(trpi_sock *sock, trp_bytes peer, trp_bytes header,
                                    trp_bytes body, trp_error *err);

/* A header without a body, beside the link: may be lost, which is better than late. To a DEALER, or
 * a ROUTER_MIXED. */
TRP_CHECKED trp_code trpi_sock_send_bare(trpi_sock *sock, trp_bytes peer, trp_bytes header,
                                         trp_error *err);

/* All packets of the batch, which is empty afterwards whatever happens. They come out
 * of the peer's socket one by one. */
TRP_CHECKED trp_code trpi_sock_send_batch(trpi_sock *sock, trp_bytes peer, trpi_batch *batch,
                                          trp_error *err);

/* A received packet: owns its frames until trpi_packet_release(). Small frames lie inside the
 * struct: never copy it by assignment, use trpi_packet_move(). */
typedef struct trpi_packet {
    trp_bytes peer, header, body; /* borrowed from the frames below */
    struct {
        _Alignas(16) unsigned char opaque[64];
    } frames[3];
    int frame_count;
} trpi_packet;

/* Takes one packet if there is one: TRP_OK, or TRP_ETIMEOUT (err untouched) when there is none.
 * A packet with a wrong number of frames, or a damaged one, is dropped, logged and counted, and the
 * next is tried. */
TRP_CHECKED trp_code trpi_sock_recv(trpi_sock *sock, trpi_packet *ret_packet);
/* Whether the packet received last came in a batch, and the next one of that is at hand. */
bool trpi_sock_has_more(const trpi_sock *sock);
/* A descriptor to watch without owning the socket: readable, once, when something may have come in.
 * Any use of the socket may swallow that, so whoever used it reads it to the end. */
int trpi_sock_fd(const trpi_sock *sock);
void trpi_packet_release(trpi_packet *packet); /* also of a zeroed one */
/* dst, which holds nothing, becomes what src was; src is left as after a release. */
void trpi_packet_move(trpi_packet *dst, trpi_packet *src);

/* Waits until one of the sockets or descriptors is readable. */
typedef struct trpi_poll_item {
    trpi_sock *sock; /* or NULL, then fd */
    int fd;
    bool ready; /* out */
} trpi_poll_item;
/* TRP_OK (some ready), TRP_ETIMEOUT; a signal that interrupts counts as TRP_ETIMEOUT. A descriptor
 * that is at its end or in error is ready.
 * A socket may be ready for a word between links, and then has nothing to be received.
 * count <= 16; timeout_ms -1 = for ever. */
TRP_CHECKED trp_code trpi_poll(trpi_poll_item *items, size_t count, int timeout_ms);

#endif

/* sock.c: DEALER and ROUTER sockets of ZeroMQ. */
#include "core/net/sock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <zmq.h>

#include "core/base/log.h"
#include "core/net/clock.h"

#define SOCKETS_MAX 1024 /* of one context: a few are used. ZeroMQ holds 12 bytes for each */
#define BACKLOG 1024     /* a gang of workers connects at once */
#define MESSAGE_MAX_BYTES (512ll * 1024 * 1024) /* what a stranger can make us allocate */
#define RECONNECT_MS 20
#define RECONNECT_MAX_MS 500
#define POLL_MAX 16

struct trpi_net {
    void *context;
};

struct trpi_sock {
    void *zmq;
    trpi_sock_kind kind;
    int fd;            /* readable when ZeroMQ's threads have told the socket something new */
    bool is_drained;   /* nothing to receive, and nothing was done since: only fd can change that */
    uint64_t dropped;  /* packets with a wrong number of frames, damaged ones */
    trpi_packet batch; /* the one that came last, while there is a rest of it */
    trp_bytes rest;
};

_Static_assert(sizeof(((trpi_packet *)0)->frames[0]) == sizeof(zmq_msg_t), "frames hold zmq_msg_t");

static zmq_msg_t *frame(trpi_packet *packet, int index) {
    return (zmq_msg_t *)(void *)packet->frames[index].opaque;
}

/* ---- Contexts and sockets ---- */

trp_code trpi_net_open(trpi_net **ret_net, trp_error *err) {
    trpi_net *net = malloc(sizeof(*net));
    if (net == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "network: out of memory");
    }
    net->context = zmq_ctx_new();
    if (net->context == NULL || zmq_ctx_set(net->context, ZMQ_MAX_SOCKETS, SOCKETS_MAX) != 0 ||
        zmq_ctx_set(net->context, ZMQ_IO_THREADS, 1) != 0) {
        trp_code code = trpi_fail(err, TRP_EIO, "network: %s", zmq_strerror(errno));
        trpi_net_close(net);
        return code;
    }
    *ret_net = net;
    return TRP_OK;
}

void trpi_net_close(trpi_net *net) {
    if (net != NULL) {
        while (net->context != NULL && zmq_ctx_term(net->context) != 0 && errno == EINTR) {
        }
        free(net);
    }
}

static bool set_int(void *zmq, int option, int value) {
    return zmq_setsockopt(zmq, option, &value, sizeof(value)) == 0;
}

static bool set_options(trpi_sock *sock, trp_bytes id) {
    int64_t message_max = MESSAGE_MAX_BYTES;
    void *zmq = sock->zmq;
    bool ok = set_int(zmq, ZMQ_LINGER, 0) && set_int(zmq, ZMQ_SNDHWM, 0) &&
              set_int(zmq, ZMQ_RCVHWM, 0) && set_int(zmq, ZMQ_BACKLOG, BACKLOG) &&
              set_int(zmq, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
              set_int(zmq, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) &&
              zmq_setsockopt(zmq, ZMQ_MAXMSGSIZE, &message_max, sizeof(message_max)) == 0;
    if (ok && sock->kind == TRPI_ROUTER) {
        ok = set_int(zmq, ZMQ_ROUTER_MANDATORY, 1) && set_int(zmq, ZMQ_ROUTER_HANDOVER, 1);
    }
    if (ok && id.size > 0) {
        ok = zmq_setsockopt(zmq, ZMQ_ROUTING_ID, id.data, id.size) == 0;
    }
    return ok;
}

trp_code trpi_sock_open(trpi_net *net, trpi_sock_kind kind, trp_bytes id, trpi_sock **ret_sock,
                        trp_error *err) {
    trpi_sock *sock = calloc(1, sizeof(*sock));
    if (sock == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "socket: out of memory");
    }
    sock->kind = kind;
    sock->zmq = zmq_socket(net->context, kind == TRPI_ROUTER ? ZMQ_ROUTER : ZMQ_DEALER);
    if (sock->zmq == NULL) {
        trp_code code = errno == EMFILE
                            ? trpi_fail(err, TRP_EBUSY, "socket: no descriptors left (ulimit -n)")
                            : trpi_fail(err, TRP_EIO, "socket: %s", zmq_strerror(errno));
        free(sock);
        return code;
    }
    size_t fd_size = sizeof(sock->fd);
    if (!set_options(sock, id) || zmq_getsockopt(sock->zmq, ZMQ_FD, &sock->fd, &fd_size) != 0) {
        trp_code code = trpi_fail(err, TRP_EINVALID, "socket options: %s", zmq_strerror(errno));
        trpi_sock_close(sock);
        return code;
    }
    *ret_sock = sock;
    return TRP_OK;
}

void trpi_sock_close(trpi_sock *sock) {
    if (sock != NULL) {
        trpi_packet_release(&sock->batch);
        (void)zmq_close(sock->zmq);
        free(sock);
    }
}

void trpi_sock_close_after(trpi_sock *sock, int linger_ms) {
    if (sock != NULL) {
        (void)set_int(sock->zmq, ZMQ_LINGER, linger_ms);
        trpi_sock_close(sock);
    }
}

/* What to change, for the errors that a user can do something about; "" for the others. */
static const char *advice(int error) {
    switch (error) {
    case EADDRINUSE:
        return "; another process listens there: stop it or choose another port";
    case EADDRNOTAVAIL:
    case ENODEV:
        return "; this host has no such address";
    case EACCES:
        return "; not permitted: ports below 1024 need root, a path needs a directory of yours";
    case ENOENT:
        return "; the directory of the socket does not exist";
    case EINVAL:
        return "; expected tcp://HOST:PORT or ipc:///PATH";
    case ENAMETOOLONG:
        return "; paths of sockets have at most 107 characters: set TROUPE_SESSION_ROOT to a "
               "shorter directory";
    default:
        return "";
    }
}

static trp_code endpoint_failed(trp_error *err, const char *verb, const char *endpoint, int error) {
    return trpi_fail(err, TRP_EIO, "%s %s: %s%s", verb, endpoint, zmq_strerror(error),
                     advice(error));
}

/* ZeroMQ reports a path that is too long differently from call to call, so it is looked at here. */
static bool path_fits(const char *endpoint) {
    return strncmp(endpoint, "ipc://", 6) != 0 ||
           strlen(endpoint + 6) < sizeof(((struct sockaddr_un *)0)->sun_path);
}

trp_code trpi_sock_bind(trpi_sock *sock, const char *endpoint, char *ret_actual, size_t actual_size,
                        trp_error *err) {
    sock->is_drained = false;
    if (!path_fits(endpoint)) {
        return endpoint_failed(err, "bind", endpoint, ENAMETOOLONG);
    }
    if (zmq_bind(sock->zmq, endpoint) != 0) {
        return endpoint_failed(err, "bind", endpoint, errno);
    }
    if (ret_actual != NULL &&
        zmq_getsockopt(sock->zmq, ZMQ_LAST_ENDPOINT, ret_actual, &actual_size) != 0) {
        int error = errno;
        (void)zmq_unbind(sock->zmq, endpoint);
        return endpoint_failed(err, "bind", endpoint, error);
    }
    return TRP_OK;
}

trp_code trpi_sock_connect(trpi_sock *sock, const char *endpoint, trp_bytes peer, trp_error *err) {
    TRP_ASSERT((sock->kind == TRPI_ROUTER) == (peer.size > 0));
    sock->is_drained = false;
    if (!path_fits(endpoint)) {
        return endpoint_failed(err, "connect", endpoint, ENAMETOOLONG);
    }
    if (peer.size > 0 &&
        zmq_setsockopt(sock->zmq, ZMQ_CONNECT_ROUTING_ID, peer.data, peer.size) != 0) {
        return endpoint_failed(err, "connect", endpoint, errno);
    }
    if (zmq_connect(sock->zmq, endpoint) != 0) {
        return endpoint_failed(err, "connect", endpoint, errno);
    }
    return TRP_OK;
}

void trpi_sock_disconnect(trpi_sock *sock, const char *endpoint) {
    sock->is_drained = false;
    (void)zmq_disconnect(sock->zmq, endpoint);
}

/* ---- Packets ---- */

static bool message_copy(zmq_msg_t *message, trp_bytes bytes) {
    if (zmq_msg_init_size(message, bytes.size) != 0) {
        return false;
    }
    if (bytes.size > 0) {
        memcpy(zmq_msg_data(message), bytes.data, bytes.size);
    }
    return true;
}

/* Takes the message, whether it succeeds or not. */
static bool message_send(trpi_sock *sock, zmq_msg_t *message, int flags) {
    int sent;
    do {
        sent = zmq_msg_send(message, sock->zmq, flags | ZMQ_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        int error = errno;
        zmq_msg_close(message);
        errno = error;
    }
    return sent >= 0;
}

static bool peer_send(trpi_sock *sock, trp_bytes peer) {
    int sent;
    do {
        sent = zmq_send(sock->zmq, peer.data, peer.size, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

static trp_code send_failed(trp_error *err, int error) {
    switch (error) {
    case EHOSTUNREACH:
        return trpi_fail(err, TRP_ENOTFOUND, "send: no such peer is connected");
    case EAGAIN:
        return trpi_fail(err, TRP_EBUSY, "send: nobody can take the message now");
    case ENOMEM:
        return trpi_fail(err, TRP_EBUSY, "send: out of memory");
    default:
        return trpi_fail(err, TRP_EIO, "send: %s", zmq_strerror(error));
    }
}

static bool message_join(zmq_msg_t *message, trp_bytes header, trp_bytes body) {
    if (zmq_msg_init_size(message, trpi_joined_size(header, body)) != 0) {
        return false;
    }
    trpi_join(zmq_msg_data(message), header, body);
    return true;
}

/* The frames behind the peer's id: `tail` is used if it says so. All memory is taken before
 * anything is sent: a message that was begun and can't be ended would spoil the next one. */
static bool make_frames(trp_bytes header, trp_bytes body, zmq_msg_t *head, zmq_msg_t *tail,
                        bool *ret_has_tail) {
    *ret_has_tail = false;
    if (trpi_joins(header, body)) {
        return message_join(head, header, body);
    }
    if (body.size > 0 && !message_copy(tail, body)) {
        return false;
    }
    if (!message_copy(head, header)) {
        if (body.size > 0) {
            zmq_msg_close(tail);
        }
        return false;
    }
    *ret_has_tail = body.size > 0;
    return true;
}

trp_code trpi_sock_send(trpi_sock *sock, trp_bytes peer, trp_bytes header, trp_bytes body,
                        trp_error *err) {
    zmq_msg_t head, tail;
    bool has_tail;
    size_t larger = TRPI_MAX(header.size, body.size);
    if (larger > MESSAGE_MAX_BYTES) { /* the peer would close the connection, and never say why */
        return trpi_fail(err, TRP_EINVALID, "send: %zu bytes, at most %lld are allowed", larger,
                         MESSAGE_MAX_BYTES);
    }
    if (!make_frames(header, body, &head, &tail, &has_tail)) {
        return send_failed(err, ENOMEM);
    }
    sock->is_drained = false;
    bool ok = sock->kind == TRPI_DEALER || peer_send(sock, peer);
    int error = errno;
    if (!ok) {
        zmq_msg_close(&head);
    } else if (!message_send(sock, &head, has_tail ? ZMQ_SNDMORE : 0)) {
        ok = false;
        error = errno;
    }
    if (has_tail && !ok) {
        zmq_msg_close(&tail);
    } else if (has_tail && !message_send(sock, &tail, 0)) {
        ok = false;
        error = errno;
    }
    return ok ? TRP_OK : send_failed(err, error);
}

trp_code trpi_sock_send_batch(trpi_sock *sock, trp_bytes peer, trpi_batch *batch, trp_error *err) {
    zmq_msg_t message;
    bool has_memory = message_copy(&message, trp_buf_bytes(&batch->bytes));
    trpi_batch_clear(batch);
    if (!has_memory) {
        return send_failed(err, ENOMEM);
    }
    sock->is_drained = false;
    if (sock->kind == TRPI_ROUTER && !peer_send(sock, peer)) {
        int error = errno;
        zmq_msg_close(&message);
        return send_failed(err, error);
    }
    return message_send(sock, &message, 0) ? TRP_OK : send_failed(err, errno);
}

/* Takes the rest of a packet that has too many frames. */
static void skip_rest(trpi_sock *sock) {
    bool more = true;
    while (more) {
        zmq_msg_t rest;
        zmq_msg_init(&rest);
        more = zmq_msg_recv(&rest, sock->zmq, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&rest);
        zmq_msg_close(&rest);
    }
}

/* All frames of one packet, which ZeroMQ hands over whole. False: none there. *ret_fits is false
 * when it had more frames than a packet may have. */
static bool take_frames(trpi_sock *sock, trpi_packet *packet, bool *ret_fits) {
    int received;
    packet->frame_count = 0;
    do {
        if (packet->frame_count == (int)TRPI_COUNTOF(packet->frames)) {
            skip_rest(sock);
            *ret_fits = false;
            return true;
        }
        zmq_msg_t *message = frame(packet, packet->frame_count);
        zmq_msg_init(message);
        do {
            received = zmq_msg_recv(message, sock->zmq, ZMQ_DONTWAIT);
        } while (received < 0 && errno == EINTR);
        if (received < 0) {
            trpi_packet_release(packet);
            return false;
        }
        packet->frame_count++;
    } while (zmq_msg_more(frame(packet, packet->frame_count - 1)));
    *ret_fits = true;
    return true;
}

static void log_dropped(trpi_sock *sock) {
    if (trpi_log_is_due(&sock->dropped)) {
        trpi_log(TRPI_WARN, "packet_dropped", "reason=frames dropped=%llu",
                 (unsigned long long)sock->dropped);
    }
}

static trp_bytes frame_bytes(trpi_packet *packet, int index) {
    if (index >= packet->frame_count) {
        return (trp_bytes){NULL, 0};
    }
    zmq_msg_t *message = frame(packet, index);
    return (trp_bytes){zmq_msg_data(message), zmq_msg_size(message)};
}

/* Small frames lie inside the packet, so these pointers hold for this place of it only. */
static void point_at_frames(trpi_packet *packet, bool has_peer) {
    packet->peer = has_peer ? frame_bytes(packet, 0) : (trp_bytes){NULL, 0};
    packet->header = frame_bytes(packet, has_peer);
    packet->body = frame_bytes(packet, has_peer + 1);
}

/* What `bytes` of one frame are in another with the same content. */
static trp_bytes follow(trp_bytes bytes, const unsigned char *from, const unsigned char *to) {
    if (bytes.data == NULL) {
        return bytes;
    }
    return (trp_bytes){to + ((const unsigned char *)bytes.data - from), bytes.size};
}

/* dst, which holds nothing, gets the frames of src: moved, or shared where they are not small. */
static void hand_over(trpi_packet *dst, trpi_packet *src,
                      int (*pass)(zmq_msg_t *dst, zmq_msg_t *src)) {
    const unsigned char *from[TRPI_COUNTOF(src->frames)], *to[TRPI_COUNTOF(src->frames)];
    int header = src->peer.data != NULL, body = src->frame_count - 1;
    dst->frame_count = src->frame_count;
    for (int i = 0; i < src->frame_count; i++) {
        from[i] = zmq_msg_data(frame(src, i));
        zmq_msg_init(frame(dst, i));
        (void)pass(frame(dst, i), frame(src, i)); /* of two valid messages it can't fail */
        to[i] = zmq_msg_data(frame(dst, i));
    }
    dst->peer = follow(src->peer, from[0], to[0]);
    dst->header = follow(src->header, from[header], to[header]);
    dst->body = follow(src->body, from[body], to[body]);
}

/* The next packet of the batch that came last. False: there is none, or it is damaged. */
static bool next_of_batch(trpi_sock *sock, trpi_packet *packet) {
    trpi_packet *batch = &sock->batch;
    if (sock->rest.size == 0) {
        return false;
    }
    bool ok = trpi_batch_next(&sock->rest, &batch->header, &batch->body);
    if (ok) {
        hand_over(packet, batch, zmq_msg_copy);
    } else {
        sock->rest.size = 0;
        log_dropped(sock);
    }
    if (sock->rest.size == 0) {
        trpi_packet_release(batch);
    }
    return ok;
}

bool trpi_sock_has_more(const trpi_sock *sock) {
    return sock->rest.size > 0;
}

/* Takes the next packet, or batch of them, from ZeroMQ. False: it is a damaged one. */
static bool sort_packet(trpi_sock *sock, trpi_packet *packet, bool has_peer, bool *ret_is_batch) {
    trp_bytes rest;
    int count = packet->frame_count - has_peer;
    if (count != 1 && count != 2) {
        return false;
    }
    point_at_frames(packet, has_peer);
    *ret_is_batch = count == 1 && trpi_batch_open(packet->header, &rest);
    if (*ret_is_batch) {
        hand_over(&sock->batch, packet, zmq_msg_move);
        trpi_packet_release(packet);
        (void)trpi_batch_open(sock->batch.header, &sock->rest);
        return true;
    }
    return trpi_joined_split(&packet->header, &packet->body);
}

trp_code trpi_sock_recv(trpi_sock *sock, trpi_packet *ret_packet) {
    bool has_peer = sock->kind == TRPI_ROUTER, fits, is_batch = false;
    sock->is_drained = false;
    if (next_of_batch(sock, ret_packet)) {
        return TRP_OK;
    }
    while (take_frames(sock, ret_packet, &fits)) {
        if (!fits || !sort_packet(sock, ret_packet, has_peer, &is_batch)) {
            trpi_packet_release(ret_packet);
            log_dropped(sock);
        } else if (!is_batch || next_of_batch(sock, ret_packet)) {
            return TRP_OK;
        }
    }
    sock->is_drained = true;
    return TRP_ETIMEOUT;
}

void trpi_packet_release(trpi_packet *packet) {
    for (int i = 0; i < packet->frame_count; i++) {
        zmq_msg_close(frame(packet, i));
    }
    packet->frame_count = 0;
    packet->peer = packet->header = packet->body = (trp_bytes){NULL, 0};
}

void trpi_packet_move(trpi_packet *dst, trpi_packet *src) {
    hand_over(dst, src, zmq_msg_move);
    trpi_packet_release(src);
}

/* ---- Waiting ----
 *
 * Not zmq_poll: it looks at every descriptor once before it waits and asks every socket twice,
 * which is two system calls too many for a call that takes twenty microseconds. ZMQ_FD is
 * edge-triggered: it says that there is something new, and any call on the socket may take that in.
 * So it may be waited for only when the socket is known to be drained. */

static bool has_input(trpi_sock *sock) {
    int events = 0;
    size_t size = sizeof(events);
    if (trpi_sock_has_more(sock)) {
        return true;
    }
    bool has =
        zmq_getsockopt(sock->zmq, ZMQ_EVENTS, &events, &size) == 0 && (events & ZMQ_POLLIN) != 0;
    sock->is_drained = !has;
    return has;
}

/* Waits once, and marks what is ready. Returns whether there was news, which may be for ZeroMQ
 * only: a peer that came, a queue that has room again. */
static bool wait_for_news(trpi_poll_item *items, struct pollfd *fds, size_t count, int timeout_ms) {
    if (poll(fds, count, timeout_ms) <= 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (fds[i].revents != 0 && !items[i].ready) {
            items[i].ready = items[i].sock == NULL || has_input(items[i].sock);
        }
    }
    return true;
}

static bool any_ready(const trpi_poll_item *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (items[i].ready) {
            return true;
        }
    }
    return false;
}

trp_code trpi_poll(trpi_poll_item *items, size_t count, int timeout_ms) {
    struct pollfd fds[POLL_MAX];
    TRP_ASSERT(count <= POLL_MAX);
    for (size_t i = 0; i < count; i++) {
        trpi_sock *sock = items[i].sock;
        fds[i] = (struct pollfd){.fd = sock != NULL ? sock->fd : items[i].fd, .events = POLLIN};
        items[i].ready = sock != NULL && !sock->is_drained && has_input(sock);
    }
    if (any_ready(items, count)) {
        timeout_ms = 0; /* the others are still looked at */
    }
    uint64_t deadline = timeout_ms > 0 ? trpi_deadline_ns((uint64_t)timeout_ms) : 0;
    bool news;
    do {
        news = wait_for_news(items, fds, count, timeout_ms);
        timeout_ms = timeout_ms > 0 ? trpi_left_ms(deadline) : timeout_ms;
    } while (news && !any_ready(items, count));
    return any_ready(items, count) ? TRP_OK : TRP_ETIMEOUT;
}

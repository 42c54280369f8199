/* sock.c: DEALER and ROUTER sockets of ZeroMQ. */
#include "core/net/sock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "core/base/id.h"
#include "core/base/times.h"
#include "core/net/clock.h"
#include "core/net/sock_parts.h"

#define SOCKETS_MAX 1024     /* of one context: a few are used. ZeroMQ holds 12 bytes for each */
#define BACKLOG 1024         /* a gang of workers connects at once */
#define FRAME_EXTRA_BYTES 64 /* a stamp and a size */
#define ID_SIZE 9
#define RECONNECT_MS 20
#define RECONNECT_MAX_MS 500
#define POLL_MAX 16
#define ROOM 16       /* descriptors of a context's threads, and of its first sockets */
#define ASK_MS 10     /* at the end, between two questions for confirmations */
#define SILENT_MS 100 /* ... and after so long without one nobody listens */

struct trpi_net {
    void *context;
};

/* ---- Contexts and sockets ---- */

/* ZeroMQ ends the process when it finds no descriptors for its threads. */
static trp_code look_for_room(trp_error *err) {
    int fds[ROOM], count = 0;
    while (count < ROOM && (fds[count] = eventfd(0, EFD_CLOEXEC)) >= 0) {
        count++;
    }
    bool has_room = count == ROOM;
    while (count > 0) {
        close(fds[--count]);
    }
    return has_room ? TRP_OK
                    : trpi_fail(err, TRP_EBUSY,
                                "network: fewer than %d descriptors are left (ulimit -n)", ROOM);
}

trp_code trpi_net_open(trpi_net **ret_net, trp_error *err) {
    trp_code room = look_for_room(err);
    if (room != TRP_OK) {
        return room;
    }
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

/* A context starts its threads with its first socket; while there is one, the next ones find their
 * libraries initialized. */
void trpi_net_prepare(void) {
    static void *kept;
    if (kept == NULL) {
        kept = zmq_ctx_new();
    }
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
    int64_t message_max = (int64_t)TRPI_MESSAGE_MAX_BYTES + FRAME_EXTRA_BYTES;
    void *zmq = sock->zmq;
    bool ok = set_int(zmq, ZMQ_LINGER, 0) && set_int(zmq, ZMQ_SNDHWM, 0) &&
              set_int(zmq, ZMQ_RCVHWM, 0) && set_int(zmq, ZMQ_BACKLOG, BACKLOG) &&
              set_int(zmq, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
              set_int(zmq, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) &&
              zmq_setsockopt(zmq, ZMQ_MAXMSGSIZE, &message_max, sizeof(message_max)) == 0;
    if (ok && trpi_sock_is_router(sock)) {
        ok = set_int(zmq, ZMQ_ROUTER_MANDATORY, 1) && set_int(zmq, ZMQ_ROUTER_HANDOVER, 1);
    }
    if (ok && id.size > 0) {
        ok = zmq_setsockopt(zmq, ZMQ_ROUTING_ID, id.data, id.size) == 0;
    }
    return ok;
}

/* Without an id it would be another peer to a ROUTER each time that it connects again. */
static trp_bytes draw_id(unsigned char id[ID_SIZE]) {
    uint64_t number = trpi_random_u64();
    id[0] = 'r';
    memcpy(id + 1, &number, sizeof(number));
    return (trp_bytes){id, ID_SIZE};
}

trp_code trpi_sock_open(trpi_net *net, trpi_sock_kind kind, trp_bytes id, trpi_sock **ret_sock,
                        trp_error *err) {
    unsigned char drawn[ID_SIZE];
    trpi_sock *sock = calloc(1, sizeof(*sock));
    if (sock == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "socket: out of memory");
    }
    sock->kind = kind;
    trpi_faults_init(&sock->faults);
    trpi_sock_links_init(sock);
    sock->zmq = zmq_socket(net->context, trpi_sock_is_router(sock) ? ZMQ_ROUTER : ZMQ_DEALER);
    if (sock->zmq == NULL) {
        trp_code code = errno == EMFILE
                            ? trpi_fail(err, TRP_EBUSY, "socket: no descriptors left (ulimit -n)")
                            : trpi_fail(err, TRP_EIO, "socket: %s", zmq_strerror(errno));
        free(sock);
        return code;
    }
    size_t fd_size = sizeof(sock->fd);
    if (kind == TRPI_DEALER && id.size == 0) {
        id = draw_id(drawn);
    }
    if (!set_options(sock, id) || zmq_getsockopt(sock->zmq, ZMQ_FD, &sock->fd, &fd_size) != 0) {
        trp_code code = trpi_fail(err, TRP_EINVALID, "socket options: %s", zmq_strerror(errno));
        trpi_sock_close(sock);
        return code;
    }
    if (kind == TRPI_DEALER && !trpi_sock_link_open(sock, id)) {
        trpi_sock_close(sock);
        return trpi_fail(err, TRP_ENOMEM, "socket: out of memory");
    }
    *ret_sock = sock;
    return TRP_OK;
}

void trpi_sock_close(trpi_sock *sock) {
    if (sock != NULL) {
        trpi_packet_release(&sock->batch);
        trpi_links_release(&sock->links);
        (void)zmq_close(sock->zmq);
        free(sock);
    }
}

/* What comes in until then is confirmed and dropped, as it would be if it came a moment later. */
static void confirm_until(trpi_sock *sock, uint64_t until_ns) {
    for (int left_ms; trpi_sock_links_kept(sock) > 0 && (left_ms = trpi_left_ms(until_ns)) != 0;) {
        trpi_poll_item item = {.sock = sock};
        trpi_packet packet;
        (void)!trpi_poll(&item, 1, left_ms);
        while (trpi_sock_recv(sock, &packet) == TRP_OK) {
            trpi_packet_release(&packet);
        }
    }
}

/* Whoever listens answers at once. Whoever does not (it computes, and reads its replies when it is
 * through) is not waited for: it is all with its ZeroMQ already, or will be in the time of the
 * linger; only a connection that breaks in these very moments could still lose it. */
static void await_confirmations(trpi_sock *sock, uint64_t deadline_ns) {
    uint64_t silent_ns = trpi_deadline_ns(SILENT_MS);
    size_t kept = trpi_sock_links_kept(sock);
    while (kept > 0 && trpi_left_ms(TRPI_MIN(silent_ns, deadline_ns)) != 0) {
        trpi_sock_links_ask(sock);
        confirm_until(sock, TRPI_MIN(trpi_deadline_ns(ASK_MS), deadline_ns));
        size_t still_kept = trpi_sock_links_kept(sock);
        if (still_kept < kept) {
            silent_ns = trpi_deadline_ns(SILENT_MS);
        }
        kept = still_kept;
    }
}

void trpi_sock_close_after(trpi_sock *sock, int linger_ms) {
    if (sock != NULL) {
        await_confirmations(sock, trpi_deadline_ns((uint64_t)TRPI_MAX(linger_ms, 0)));
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
    TRP_ASSERT(trpi_sock_is_router(sock) == (peer.size > 0));
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
    if (peer.size > 0 && !trpi_sock_link_open(sock, peer)) {
        trpi_sock_disconnect(sock, endpoint);
        return trpi_fail(err, TRP_ENOMEM, "connect %s: out of memory", endpoint);
    }
    return TRP_OK;
}

void trpi_sock_disconnect(trpi_sock *sock, const char *endpoint) {
    sock->is_drained = false;
    (void)zmq_disconnect(sock->zmq, endpoint);
}

int trpi_sock_fd(const trpi_sock *sock) {
    return sock->fd;
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

/* Waits once, and marks what is ready. Returns poll's result: that there was news, which may be for
 * ZeroMQ only (a peer that came, a queue that has room again), that there was none, or a signal. */
static int wait_for_news(trpi_poll_item *items, struct pollfd *fds, size_t count, int timeout_ms) {
    int news = poll(fds, count, timeout_ms);
    for (size_t i = 0; i < count && news > 0; i++) {
        if (fds[i].revents != 0 && !items[i].ready) {
            items[i].ready = items[i].sock == NULL || has_input(items[i].sock);
        }
    }
    return news;
}

static bool any_ready(const trpi_poll_item *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (items[i].ready) {
            return true;
        }
    }
    return false;
}

/* What time asks of links is done here, as most sockets are waited for most of the time. It may
 * take the edge of ZMQ_FD in, so what is there now is looked at once more. */
static void tend_links(trpi_poll_item *items, size_t count, uint64_t now_ns) {
    for (size_t i = 0; i < count; i++) {
        trpi_sock *sock = items[i].sock;
        if (sock != NULL && now_ns >= trpi_sock_wake_ns(sock)) {
            trpi_sock_links_tend(sock, now_ns);
            items[i].ready = items[i].ready || has_input(sock);
        }
    }
}

static uint64_t first_wake(const trpi_poll_item *items, size_t count) {
    uint64_t wake_ns = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (items[i].sock != NULL) {
            wake_ns = TRPI_MIN(wake_ns, trpi_sock_wake_ns(items[i].sock));
        }
    }
    return wake_ns;
}

/* Rounded up, or the last millisecond would be spent spinning. */
static int ms_until(uint64_t until_ns, uint64_t now_ns) {
    uint64_t left_ms = until_ns > now_ns ? (until_ns - now_ns - 1) / TRPI_NS_PER_MS + 1 : 0;
    return until_ns == UINT64_MAX ? -1 : (int)TRPI_MIN(left_ms, (uint64_t)INT_MAX);
}

trp_code trpi_poll(trpi_poll_item *items, size_t count, int timeout_ms) {
    struct pollfd fds[POLL_MAX];
    TRP_ASSERT(count <= POLL_MAX);
    for (size_t i = 0; i < count; i++) {
        trpi_sock *sock = items[i].sock;
        fds[i] = (struct pollfd){.fd = sock != NULL ? sock->fd : items[i].fd, .events = POLLIN};
        items[i].ready = sock != NULL && !sock->is_drained && has_input(sock);
    }
    uint64_t now_ns = trpi_now_ns();
    uint64_t deadline_ns =
        timeout_ms < 0 ? UINT64_MAX : now_ns + (uint64_t)timeout_ms * TRPI_NS_PER_MS;
    for (;;) {
        if (now_ns >= first_wake(items, count)) {
            tend_links(items, count, now_ns);
        }
        /* What is ready need not wait; the others are still looked at. */
        uint64_t until_ns = TRPI_MIN(deadline_ns, first_wake(items, count));
        int wait_ms = any_ready(items, count) ? 0 : ms_until(until_ns, now_ns);
        int news = wait_for_news(items, fds, count, wait_ms);
        if (any_ready(items, count)) {
            return TRP_OK;
        }
        now_ns = trpi_now_ns();
        if (news < 0 || (news == 0 && now_ns >= deadline_ns)) {
            return TRP_ETIMEOUT;
        }
    }
}

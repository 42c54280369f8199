/* sock.c: DEALER and ROUTER sockets of ZeroMQ. */
#include "core/net/sock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <zmq.h>

#include "core/base/id.h"
#include "core/net/clock.h"
#include "core/net/sock_parts.h"

#define SOCKETS_MAX 1024 /* of one context: a few are used. ZeroMQ holds 12 bytes for each */
#define BACKLOG 1024     /* a gang of workers connects at once */
#define MESSAGE_MAX_BYTES (512ll * 1024 * 1024) /* what a stranger can make us allocate */
#define RECONNECT_MS 20
#define RECONNECT_MAX_MS 500
#define POLL_MAX 16

struct trpi_net {
    void *context;
};

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

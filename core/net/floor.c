#include "core/net/floor.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zmq.h>

#define MESSAGE_MAX 4096

struct trpi_floor {
    void *context, *socket;
    size_t peers;
};

static trp_code failed(trp_error *err, const char *what) {
    if (errno == EAGAIN) {
        return trpi_fail(err, TRP_ETIMEOUT, "raw ZeroMQ: no answer in time");
    }
    return trpi_fail(err, TRP_EIO, "raw ZeroMQ: %s: %s", what, zmq_strerror(errno));
}

static bool open_socket(trpi_floor *floor, int kind, int timeout_ms) {
    int none = 0;
    floor->context = zmq_ctx_new();
    floor->socket = floor->context != NULL ? zmq_socket(floor->context, kind) : NULL;
    return floor->socket != NULL &&
           zmq_setsockopt(floor->socket, ZMQ_SNDHWM, &none, sizeof(none)) == 0 &&
           zmq_setsockopt(floor->socket, ZMQ_RCVHWM, &none, sizeof(none)) == 0 &&
           zmq_setsockopt(floor->socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms)) == 0;
}

static void close_socket(trpi_floor *floor) {
    if (floor->socket != NULL) {
        (void)zmq_close(floor->socket);
    }
    if (floor->context != NULL) {
        (void)zmq_ctx_term(floor->context);
    }
}

/* The empty message that ends the peer must still go out; ZeroMQ's linger is for ever by default.
 */
void trpi_floor_close(trpi_floor *floor) {
    if (floor != NULL) {
        if (floor->socket != NULL) {
            int linger_ms = 1000;
            (void)zmq_setsockopt(floor->socket, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
            for (size_t i = 0; i < floor->peers; i++) {
                (void)zmq_send(floor->socket, "", 0, ZMQ_DONTWAIT);
            }
        }
        close_socket(floor);
        free(floor);
    }
}

/* One echo: the id that the ROUTER puts before the message, then the message. */
static int echo(void *socket) {
    char id[256], data[MESSAGE_MAX];
    int id_size = zmq_recv(socket, id, sizeof(id), 0);
    int size = id_size < 0 ? -1 : zmq_recv(socket, data, sizeof(data), 0);
    if (size > MESSAGE_MAX) {
        size = MESSAGE_MAX;
    }
    if (size > 0 && (zmq_send(socket, id, (size_t)id_size, ZMQ_SNDMORE) < 0 ||
                     zmq_send(socket, data, (size_t)size, 0) < 0)) {
        return -1;
    }
    return size;
}

trp_code trpi_floor_serve(const char *endpoint, trp_error *err) {
    trpi_floor floor = {0};
    trp_code code = TRP_OK;
    if (!open_socket(&floor, ZMQ_ROUTER, -1) || zmq_bind(floor.socket, endpoint) != 0) {
        code = failed(err, "bind");
    }
    while (code == TRP_OK) {
        int size = echo(floor.socket);
        if (size == 0) {
            break;
        }
        if (size < 0 && errno != EINTR) {
            code = failed(err, "echo");
        }
    }
    close_socket(&floor);
    return code;
}

static trp_code send_one(trpi_floor *floor, size_t size, trp_error *err) {
    static const char zeros[MESSAGE_MAX];
    return zmq_send(floor->socket, zeros, size, 0) >= 0 ? TRP_OK : failed(err, "send");
}

trp_code trpi_floor_receive(trpi_floor *floor, trp_error *err) {
    char data[MESSAGE_MAX];
    return zmq_recv(floor->socket, data, sizeof(data), 0) >= 0 ? TRP_OK : failed(err, "receive");
}

trp_code trpi_floor_round_trip(trpi_floor *floor, size_t size, trp_error *err) {
    TRP_ASSERT(size > 0 && size <= MESSAGE_MAX);
    trp_code code = send_one(floor, size, err);
    return code == TRP_OK ? trpi_floor_receive(floor, err) : code;
}

trp_code trpi_floor_pipeline(trpi_floor *floor, size_t size, size_t count, size_t window,
                             trp_error *err) {
    TRP_ASSERT(size > 0 && size <= MESSAGE_MAX);
    trp_code code = TRP_OK;
    for (size_t sent = 0, received = 0; received < count && code == TRP_OK;) {
        if (sent < count && sent - received < window) {
            code = send_one(floor, size, err);
            sent++;
        } else {
            code = trpi_floor_receive(floor, err);
            received++;
        }
    }
    return code;
}

static trp_code connect_all(trpi_floor *floor, const char *const *endpoints, size_t count,
                            trp_error *err) {
    for (; floor->peers < count; floor->peers++) {
        if (zmq_connect(floor->socket, endpoints[floor->peers]) != 0) {
            return failed(err, "connect");
        }
    }
    trp_code code = TRP_OK;
    for (size_t i = 0; i < count && code == TRP_OK; i++) {
        code = send_one(floor, 1, err);
    }
    for (size_t i = 0; i < count && code == TRP_OK; i++) {
        code = trpi_floor_receive(floor, err);
    }
    return code;
}

trp_code trpi_floor_open(const char *const *endpoints, size_t count, uint64_t timeout_ms,
                         trpi_floor **ret_floor, trp_error *err) {
    trpi_floor *floor = trpi_alloc(sizeof(*floor));
    /* The peer may not have bound yet: try again often, as starts are timed by this. */
    int retry_ms = 1;
    trp_code code = TRP_OK;
    if (!open_socket(floor, ZMQ_DEALER, (int)TRPI_MIN(timeout_ms, (uint64_t)INT_MAX)) ||
        zmq_setsockopt(floor->socket, ZMQ_RECONNECT_IVL, &retry_ms, sizeof(retry_ms)) != 0) {
        code = failed(err, "open");
    }
    code = code == TRP_OK ? connect_all(floor, endpoints, count, err) : code;
    if (code != TRP_OK) {
        close_socket(floor);
        free(floor);
        return code;
    }
    *ret_floor = floor;
    return TRP_OK;
}

/* ---- A client that is told ---- */

trp_code trpi_floor_tell(trpi_floor *floor, const trpi_floor_drive *drive, trp_error *err) {
    return zmq_send(floor->socket, drive, sizeof(*drive), 0) >= 0 ? TRP_OK : failed(err, "send");
}

/* One order, or a first message that only asks whether anybody is there. */
static trp_code obey(void *socket, trpi_floor *targets, bool *ret_over, trp_error *err) {
    char id[256];
    trpi_floor_drive drive;
    int id_size = zmq_recv(socket, id, sizeof(id), 0);
    int size = id_size < 0 ? -1 : zmq_recv(socket, &drive, sizeof(drive), 0);
    trp_code code = TRP_OK;
    *ret_over = size == 0;
    if (size <= 0) {
        return size == 0 || errno == EINTR ? TRP_OK : failed(err, "receive");
    }
    if (size == (int)sizeof(drive)) {
        code = drive.size > 0 && drive.size <= MESSAGE_MAX
                   ? trpi_floor_pipeline(targets, drive.size, drive.count, drive.window, err)
                   : trpi_fail(err, TRP_EINVALID, "raw ZeroMQ: messages of %llu bytes",
                               (unsigned long long)drive.size);
    }
    if (code == TRP_OK && (zmq_send(socket, id, (size_t)id_size, ZMQ_SNDMORE) < 0 ||
                           zmq_send(socket, "", 1, 0) < 0)) {
        code = failed(err, "send");
    }
    return code;
}

trp_code trpi_floor_serve_drive(const char *endpoint, const char *const *targets, size_t count,
                                uint64_t timeout_ms, trp_error *err) {
    trpi_floor own = {0}, *driven = NULL;
    bool over = false;
    trp_code code = trpi_floor_open(targets, count, timeout_ms, &driven, err);
    if (code == TRP_OK &&
        (!open_socket(&own, ZMQ_ROUTER, -1) || zmq_bind(own.socket, endpoint) != 0)) {
        code = failed(err, "bind");
    }
    while (code == TRP_OK && !over) {
        code = obey(own.socket, driven, &over, err);
    }
    close_socket(&own);
    trpi_floor_close(driven);
    return code;
}

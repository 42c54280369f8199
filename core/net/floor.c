#include "core/net/floor.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zmq.h>

#define MESSAGE_MAX 4096

struct trpi_floor {
    void *context, *socket;
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
            (void)zmq_send(floor->socket, "", 0, ZMQ_DONTWAIT);
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

static trp_code receive_one(trpi_floor *floor, trp_error *err) {
    char data[MESSAGE_MAX];
    return zmq_recv(floor->socket, data, sizeof(data), 0) >= 0 ? TRP_OK : failed(err, "receive");
}

trp_code trpi_floor_round_trip(trpi_floor *floor, size_t size, trp_error *err) {
    TRP_ASSERT(size > 0 && size <= MESSAGE_MAX);
    trp_code code = send_one(floor, size, err);
    return code == TRP_OK ? receive_one(floor, err) : code;
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
            code = receive_one(floor, err);
            received++;
        }
    }
    return code;
}

trp_code trpi_floor_open(const char *endpoint, uint64_t timeout_ms, trpi_floor **ret_floor,
                         trp_error *err) {
    trpi_floor *floor = trpi_alloc(sizeof(*floor));
    /* The peer may not have bound yet: try again often, as starts are timed by this. */
    int retry_ms = 1;
    trp_code code = TRP_OK;
    if (!open_socket(floor, ZMQ_DEALER, (int)TRPI_MIN(timeout_ms, (uint64_t)INT_MAX)) ||
        zmq_setsockopt(floor->socket, ZMQ_RECONNECT_IVL, &retry_ms, sizeof(retry_ms)) != 0 ||
        zmq_connect(floor->socket, endpoint) != 0) {
        code = failed(err, "connect");
    }
    if (code == TRP_OK) {
        code = trpi_floor_round_trip(floor, 1, err);
    }
    if (code != TRP_OK) {
        close_socket(floor);
        free(floor);
        return code;
    }
    *ret_floor = floor;
    return TRP_OK;
}

/* sock_frames.c: whole messages into ZeroMQ and out of it. */
#include <errno.h>
#include <stdatomic.h>

#include "core/base/config.h"
#include "core/base/hash.h"
#include "core/net/sock_parts.h"

/* ---- Out ---- */

static bool message_send(trpi_sock *sock, zmq_msg_t *message, int flags) {
    int sent;
    do {
        sent = zmq_msg_send(message, sock->zmq, flags | ZMQ_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

static bool peer_send(trpi_sock *sock, trp_bytes peer) {
    int sent;
    do {
        sent = zmq_send(sock->zmq, peer.data, peer.size, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

int trpi_frames_send(trpi_sock *sock, trp_bytes peer, trpi_frames *frames) {
    sock->is_drained = false;
    bool ok = (!trpi_sock_is_router(sock) || peer_send(sock, peer)) &&
              message_send(sock, &frames->head, frames->has_tail ? ZMQ_SNDMORE : 0) &&
              (!frames->has_tail || message_send(sock, &frames->tail, 0));
    int error = ok ? 0 : errno;
    trpi_frames_close(frames); /* what was sent is empty now */
    return error;
}

/* ---- Faults ---- */

/* The n-th socket of a process fares the same in each run with the same seed. */
void trpi_faults_init(trpi_faults *faults) {
    static atomic_uint opened;
    uint64_t seed[2] = {trpi_config(TRPI_CONFIG_FAULT_SEED), atomic_fetch_add(&opened, 1)};
    faults->drop = (uint32_t)trpi_config(TRPI_CONFIG_FAULT_DROP_PERMILLE);
    faults->repeat = (uint32_t)trpi_config(TRPI_CONFIG_FAULT_REPEAT_PERMILLE);
    faults->random = trpi_hash64(seed, sizeof(seed));
}

static bool strikes(trpi_faults *faults, uint32_t permille) {
    faults->random = faults->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (faults->random >> 33) % 1000 < permille;
}

int trpi_frames_send_faulty(trpi_sock *sock, trp_bytes peer, trpi_frames *frames) {
    trpi_faults *faults = &sock->faults;
    if (faults->drop == 0 && faults->repeat == 0) {
        return trpi_frames_send(sock, peer, frames);
    }
    if (strikes(faults, faults->drop)) {
        trpi_frames_close(frames);
        return 0;
    }
    if (strikes(faults, faults->repeat)) {
        trpi_frames again;
        trpi_frames_share(&again, frames);
        int error = trpi_frames_send(sock, peer, &again);
        if (error != 0) {
            trpi_frames_close(frames);
            return error;
        }
    }
    return trpi_frames_send(sock, peer, frames);
}

/* ---- In ---- */

/* Takes the rest of a message that has too many frames. */
static void skip_rest(trpi_sock *sock) {
    bool more = true;
    while (more) {
        zmq_msg_t rest;
        zmq_msg_init(&rest);
        more = zmq_msg_recv(&rest, sock->zmq, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&rest);
        zmq_msg_close(&rest);
    }
}

bool trpi_frames_recv(trpi_sock *sock, trpi_packet *packet, bool *ret_fits) {
    int received;
    packet->frame_count = 0;
    do {
        if (packet->frame_count == (int)TRPI_COUNTOF(packet->frames)) {
            skip_rest(sock);
            *ret_fits = false;
            return true;
        }
        zmq_msg_t *message = trpi_packet_frame(packet, packet->frame_count);
        zmq_msg_init(message);
        do {
            received = zmq_msg_recv(message, sock->zmq, ZMQ_DONTWAIT);
        } while (received < 0 && errno == EINTR);
        if (received < 0) {
            trpi_packet_release(packet);
            return false;
        }
        packet->frame_count++;
    } while (zmq_msg_more(trpi_packet_frame(packet, packet->frame_count - 1)));
    *ret_fits = true;
    return true;
}

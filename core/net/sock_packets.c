/* sock_packets.c: packets out and in. */
#include <errno.h>
#include <string.h>

#include "core/base/log.h"
#include "core/net/sock_parts.h"

/* ---- Out ---- */

static trp_code send_failed(trp_error *err, int error) {
    switch (error) {
    case EHOSTUNREACH:
        return trpi_fail(err, TRP_ENOTFOUND, "send: no such peer is connected");
    case EAGAIN:
        return trpi_fail(err, TRP_EBUSY, "send: nobody can take the message now");
    case EBUSY:
        return trpi_fail(err, TRP_EBUSY,
                         "send: the peer takes nothing in, and too much is on its way to it");
    case ENOMEM:
        return trpi_fail(err, TRP_EBUSY, "send: out of memory");
    default:
        return trpi_fail(err, TRP_EIO, "send: %s", zmq_strerror(error));
    }
}

/* With room for a stamp before them. */
static bool frame_copy(zmq_msg_t *message, size_t room, trp_bytes bytes) {
    if (zmq_msg_init_size(message, room + bytes.size) != 0) {
        return false;
    }
    if (bytes.size > 0) {
        memcpy((unsigned char *)zmq_msg_data(message) + room, bytes.data, bytes.size);
    }
    return true;
}

static bool frame_join(zmq_msg_t *message, size_t room, trp_bytes header, trp_bytes body) {
    if (zmq_msg_init_size(message, room + trpi_joined_size(header, body)) != 0) {
        return false;
    }
    trpi_join((unsigned char *)zmq_msg_data(message) + room, header, body);
    return true;
}

/* All memory is taken before anything is sent: a message that was begun and can't be ended would
 * spoil the next one. */
static bool make_frames(trp_bytes header, trp_bytes body, size_t room, trpi_frames *ret_frames) {
    ret_frames->has_tail = false;
    if (trpi_joins(header, body)) {
        return frame_join(&ret_frames->head, room, header, body);
    }
    if (body.size > 0 && !frame_copy(&ret_frames->tail, 0, body)) {
        return false;
    }
    if (!frame_copy(&ret_frames->head, room, header)) {
        if (body.size > 0) {
            zmq_msg_close(&ret_frames->tail);
        }
        return false;
    }
    ret_frames->has_tail = body.size > 0;
    return true;
}

/* On its link, or bare where there is none and needs none. */
static trp_code send_frames(trpi_sock *sock, trp_bytes peer, trpi_linked *linked,
                            trpi_frames *frames, trp_error *err) {
    int error = linked != NULL ? trpi_sock_link_send(sock, linked, frames)
                               : trpi_frames_send(sock, peer, frames);
    return error == 0 ? TRP_OK : send_failed(err, error);
}

static trp_code send_packet(trpi_sock *sock, trp_bytes peer, trpi_linked *linked, trp_bytes header,
                            trp_bytes body, trp_error *err) {
    trpi_frames frames;
    size_t larger = TRPI_MAX(header.size, body.size);
    if (larger >
        TRPI_MESSAGE_MAX_BYTES) { /* the peer would close the connection, and never say why */
        return trpi_fail(err, TRP_EINVALID, "send: %zu bytes, at most %zu are allowed", larger,
                         TRPI_MESSAGE_MAX_BYTES);
    }
    if (!make_frames(header, body, linked != NULL ? TRPI_STAMP_SIZE : 0, &frames)) {
        return send_failed(err, ENOMEM);
    }
    return send_frames(sock, peer, linked, &frames, err);
}

/* A ROUTER knows its peers by their links. */
static bool is_stranger(const trpi_sock *sock, const trpi_linked *linked) {
    return sock->kind == TRPI_ROUTER && linked == NULL;
}

trp_code trpi_sock_send(trpi_sock *sock, trp_bytes peer, trp_bytes header, trp_bytes body,
                        trp_error *err) {
    trpi_linked *linked = trpi_sock_linked(sock, peer);
    if (is_stranger(sock, linked)) {
        return send_failed(err, EHOSTUNREACH);
    }
    return send_packet(sock, peer, linked, header, body, err);
}

trp_code trpi_sock_send_bare(trpi_sock *sock, trp_bytes peer, trp_bytes header, trp_error *err) {
    return send_packet(sock, peer, NULL, header, (trp_bytes){NULL, 0}, err);
}

trp_code trpi_sock_send_batch(trpi_sock *sock, trp_bytes peer, trpi_batch *batch, trp_error *err) {
    trpi_frames frames = {.has_tail = false};
    trpi_linked *linked = trpi_sock_linked(sock, peer);
    bool has_memory = frame_copy(&frames.head, linked != NULL ? TRPI_STAMP_SIZE : 0,
                                 trp_buf_bytes(&batch->bytes));
    trpi_batch_clear(batch);
    if (!has_memory) {
        return send_failed(err, ENOMEM);
    }
    if (is_stranger(sock, linked)) {
        trpi_frames_close(&frames);
        return send_failed(err, EHOSTUNREACH);
    }
    return send_frames(sock, peer, linked, &frames, err);
}

/* ---- In ---- */

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
    zmq_msg_t *message = trpi_packet_frame(packet, index);
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
        from[i] = zmq_msg_data(trpi_packet_frame(src, i));
        zmq_msg_init(trpi_packet_frame(dst, i));
        (void)pass(trpi_packet_frame(dst, i),
                   trpi_packet_frame(src, i)); /* of two valid messages it can't fail */
        to[i] = zmq_msg_data(trpi_packet_frame(dst, i));
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

typedef enum packet_sort {
    PACKET_WHOLE,
    PACKET_BATCH, /* moved to sock->batch */
    PACKET_NONE,  /* of a link, and nothing for its owner */
    PACKET_DAMAGED
} packet_sort;

/* Its link's word on a packet that has just come. */
static packet_sort take_stamp(trpi_sock *sock, trpi_packet *packet) {
    trpi_stamp stamp;
    if (sock->kind == TRPI_DEALER_BARE || !trpi_stamp_take(&packet->header, &stamp)) {
        return sock->kind == TRPI_ROUTER ? PACKET_DAMAGED : PACKET_WHOLE;
    }
    size_t bytes = packet->header.size + packet->body.size;
    return trpi_sock_link_take(sock, packet->peer, &stamp, bytes) ? PACKET_WHOLE : PACKET_NONE;
}

static packet_sort sort_packet(trpi_sock *sock, trpi_packet *packet, bool has_peer) {
    trp_bytes rest;
    int count = packet->frame_count - has_peer;
    if (count != 1 && count != 2) {
        return PACKET_DAMAGED;
    }
    point_at_frames(packet, has_peer);
    packet_sort sort = take_stamp(sock, packet);
    if (sort != PACKET_WHOLE) {
        return sort;
    }
    if (count == 1 && trpi_batch_open(packet->header, &rest)) {
        hand_over(&sock->batch, packet, zmq_msg_move);
        trpi_packet_release(packet);
        (void)trpi_batch_open(sock->batch.header, &sock->rest);
        return PACKET_BATCH;
    }
    return trpi_joined_split(&packet->header, &packet->body) ? PACKET_WHOLE : PACKET_DAMAGED;
}

trp_code trpi_sock_recv(trpi_sock *sock, trpi_packet *ret_packet) {
    bool has_peer = trpi_sock_is_router(sock), fits;
    sock->is_drained = false;
    if (next_of_batch(sock, ret_packet)) {
        return TRP_OK;
    }
    while (trpi_frames_recv(sock, ret_packet, &fits)) {
        packet_sort sort = fits ? sort_packet(sock, ret_packet, has_peer) : PACKET_DAMAGED;
        if (sort == PACKET_WHOLE || (sort == PACKET_BATCH && next_of_batch(sock, ret_packet))) {
            return TRP_OK;
        }
        if (sort == PACKET_DAMAGED) {
            log_dropped(sock);
        }
        trpi_packet_release(ret_packet);
    }
    sock->is_drained = true;
    return TRP_ETIMEOUT;
}

void trpi_packet_release(trpi_packet *packet) {
    for (int i = 0; i < packet->frame_count; i++) {
        zmq_msg_close(trpi_packet_frame(packet, i));
    }
    packet->frame_count = 0;
    packet->peer = packet->header = packet->body = (trp_bytes){NULL, 0};
}

void trpi_packet_move(trpi_packet *dst, trpi_packet *src) {
    hand_over(dst, src, zmq_msg_move);
    trpi_packet_release(src);
}

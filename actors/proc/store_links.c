/* store_links.c: between stores. One ROUTER is bound and serves what other nodes ask of this one;
 * another is connected to the stores that this one asks. An asker is known by its node and
 * incarnation, a home by the number of our connection to it: what an earlier one still has to say
 * is nobody's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/proc/store_parts.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/memfd.h"

#define UNSENT_MAX 65536     /* frames that wait for a home to be found */
#define PACKETS_PER_ROUND 16 /* of 1 MiB: then the processes of this host have their turn */
#define PAGE_BYTES UINT64_C(4096)

trp_code trpi_store_links_open(trpi_store_server *server, const char *uuid, const char *host,
                               trp_error *err) {
    char endpoint[160];
    trp_code code = trpi_net_open(&server->net, err);
    if (code == TRP_OK) {
        code = trpi_sock_open(server->net, TRPI_ROUTER, (trp_bytes){0}, &server->serving, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    /* Loopback only: by a name, which no process of another host can take for one of its own. */
    if (host == NULL || host[0] == '\0') {
        trpi_format(endpoint, sizeof(endpoint), "ipc://@troupe-%s-o", uuid);
    } else {
        trpi_format(endpoint, sizeof(endpoint), "tcp://%s:*", host);
    }
    code =
        trpi_sock_bind(server->serving, endpoint, server->endpoint, sizeof(server->endpoint), err);
    return code == TRP_OK ? code : trpi_context(err, code, "object store");
}

trp_code trpi_store_links_serve(trpi_store_server *server, trp_error *err) {
    trpi_format(server->name, sizeof(server->name), "n%" PRIx64 ".%" PRIx64, server->config.node,
                server->config.incarnation);
    return trpi_sock_open(server->net, TRPI_ROUTER, trp_bytes_of(server->name), &server->asking,
                          err);
}

static void free_unsent(trpi_store_link *link) {
    for (size_t i = 0; i < link->unsent_count; i++) {
        trp_buf_release(&link->unsent[i]);
    }
    free(link->unsent);
    link->unsent = NULL;
    link->unsent_count = 0;
}

void trpi_store_links_close(trpi_store_server *server) {
    size_t cursor = 0;
    trpi_store_link *link;
    while ((link = trpi_map_next(&server->links, &cursor)) != NULL) {
        free_unsent(link);
        free(link);
    }
    trpi_map_release(&server->links);
    trpi_sock_close(server->asking);
    trpi_sock_close(server->serving);
    trpi_net_close(server->net);
}

/* ---- To a home ---- */

static trpi_store_link *link_of(trpi_store_server *server, uint64_t node) {
    trpi_store_link *link = trpi_map_get(&server->links, node);
    if (link == NULL) {
        link = trpi_alloc(sizeof(*link));
        link->node = node;
        trpi_map_set(&server->links, node, link);
        trpi_store_link_find(server, node);
    }
    return link;
}

/* "h<connection>.<node>", so that an answer names its home. */
static trp_bytes peer_of(const trpi_store_link *link, char *out, size_t size) {
    trpi_format(out, size, "h%" PRIx64 ".%" PRIx64, link->connection, link->node);
    return trp_bytes_of(out);
}

static void keep(trpi_store_link *link, trp_bytes frame) {
    trp_buf copy = {0};
    if (link->unsent_count == UNSENT_MAX ||
        trp_buf_append(&copy, frame.data, frame.size) != TRP_OK) {
        trp_buf_release(&copy);
        return;
    }
    link->unsent = trpi_realloc(link->unsent, (link->unsent_count + 1) * sizeof(*link->unsent));
    link->unsent[link->unsent_count++] = copy;
}

static void send_to(trpi_store_server *server, const trpi_store_link *link, trp_bytes frame) {
    char peer[48];
    trp_error err;
    if (trpi_sock_send(server->asking, peer_of(link, peer, sizeof(peer)), frame, (trp_bytes){0},
                       &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "store_not_asked", "node=n%" PRIu64 " error=\"%s\"", link->node,
                 err.message);
    }
}

void trpi_store_link_ask(trpi_store_server *server, const trpi_store_action *action) {
    trp_error err;
    if (trpi_encode(&action->msg, &server->frame, &err) != TRP_OK) {
        trpi_log(TRPI_ERROR, "message_lost", "type=%s error=\"%s\"",
                 trpi_msg_name(action->msg.type), err.message);
        return;
    }
    trp_buf frame = server->frame; /* finding the home encodes, too */
    server->frame = (trp_buf){0};
    trpi_store_link *link = link_of(server, action->node);
    if (link->connection == 0) {
        keep(link, trp_buf_bytes(&frame));
    } else {
        send_to(server, link, trp_buf_bytes(&frame));
    }
    trp_buf_release(&server->frame);
    server->frame = frame;
}

void trpi_store_link_find(trpi_store_server *server, uint64_t node) {
    trpi_msg msg = {.type = TRPI_MSG_STORE_QUERY, .store_query = {.request = node, .node = node}};
    trpi_store_say(server, &msg);
}

static void disconnect(trpi_store_server *server, trpi_store_link *link) {
    char peer[48];
    if (link->connection != 0) {
        trpi_sock_forget(server->asking, peer_of(link, peer, sizeof(peer)));
        trpi_sock_disconnect(server->asking, link->endpoint);
        link->connection = 0;
    }
}

void trpi_store_link_found(trpi_store_server *server, const trpi_msg_store_at *at) {
    trpi_store_link *link = trpi_map_get(&server->links, at->request);
    char peer[48];
    trp_error err;
    if (link == NULL || at->code != TRP_OK || at->endpoint[0] == '\0' ||
        (link->connection != 0 && strcmp(link->endpoint, at->endpoint) == 0)) {
        return;
    }
    disconnect(server, link);
    TRPI_SET(link->endpoint, at->endpoint);
    link->connection = ++server->last_connection;
    if (trpi_sock_connect(server->asking, link->endpoint, peer_of(link, peer, sizeof(peer)),
                          &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "store_not_connected", "node=n%" PRIu64 " error=\"%s\"", link->node,
                 err.message);
        link->connection = 0; /* a fetch that stalls asks for its address again */
        return;
    }
    for (size_t i = 0; i < link->unsent_count; i++) {
        send_to(server, link, trp_buf_bytes(&link->unsent[i]));
    }
    free_unsent(link);
}

void trpi_store_asker_gone(trpi_store_server *server, uint64_t node, uint64_t incarnation) {
    char peer[48];
    trpi_format(peer, sizeof(peer), "n%" PRIx64 ".%" PRIx64, node, incarnation);
    trpi_sock_forget(server->serving, trp_bytes_of(peer));
}

void trpi_store_link_drop(trpi_store_server *server, uint64_t node) {
    trpi_store_link *link = trpi_map_get(&server->links, node);
    if (link != NULL) {
        disconnect(server, link);
        trpi_map_remove(&server->links, node);
        free_unsent(link);
        free(link);
    }
}

/* ---- To an asker ---- */

static void send_reply(trpi_store_server *server, const trpi_store_action *action, trp_bytes body) {
    char peer[48];
    trp_error err;
    trpi_format(peer, sizeof(peer), "n%" PRIx64 ".%" PRIx64, action->node, action->incarnation);
    trp_code code = trpi_encode(&action->msg, &server->frame, &err);
    if (code == TRP_OK) {
        code = trpi_sock_send(server->serving, trp_bytes_of(peer), trp_buf_bytes(&server->frame),
                              body, &err);
    }
    if (code != TRP_OK && trpi_log_is_due(&server->refused)) {
        trpi_log(TRPI_WARN, "store_not_answered", "node=n%" PRIu64 " error=\"%s\"", action->node,
                 err.message);
    }
}

/* Mapped for as long as it takes to send: what stays mapped would count as the daemon's memory. */
void trpi_store_link_reply(trpi_store_server *server, const trpi_store_action *action) {
    const trpi_store_memory *memory = trpi_map_get(&server->memory, action->segment);
    trp_error err;
    void *data;
    if (action->bytes == 0) {
        send_reply(server, action, (trp_bytes){0});
        return;
    }
    if (memory == NULL) {
        return;
    }
    uint64_t from = action->offset & ~(PAGE_BYTES - 1), skip = action->offset - from;
    if (trpi_memfd_map(memory->fd, from, action->bytes + skip, false, &data, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "store_not_answered", "node=n%" PRIu64 " error=\"%s\"", action->node,
                 err.message);
        return; /* it will be asked for again */
    }
    send_reply(server, action, (trp_bytes){(const char *)data + skip, action->bytes});
    trpi_memfd_unmap(data, action->bytes + skip);
}

/* ---- What comes in ---- */

/* The node in a peer's name "h<connection>.<node>", if that is our connection to it now. */
static uint64_t home_of(const trpi_store_server *server, trp_bytes peer) {
    char text[48], expected[48];
    uint64_t connection, node;
    trpi_format(text, sizeof(text), "%.*s", (int)TRPI_MIN(peer.size, sizeof(text)),
                (const char *)peer.data);
    if (sscanf(text, "h%" SCNx64 ".%" SCNx64, &connection, &node) != 2) {
        return 0;
    }
    const trpi_store_link *link = trpi_map_get(&server->links, node);
    return link != NULL &&
                   strcmp(text, (const char *)peer_of(link, expected, sizeof(expected)).data) == 0
               ? node
               : 0;
}

/* Only the node itself may speak for it. */
static bool is_asker(const trpi_msg *msg, trp_bytes peer) {
    char name[48];
    uint64_t node, incarnation;
    switch (msg->type) {
    case TRPI_MSG_STORE_FETCH:
        node = msg->store_fetch.node;
        incarnation = msg->store_fetch.incarnation;
        break;
    case TRPI_MSG_STORE_DROP:
        node = msg->store_drop.node;
        incarnation = msg->store_drop.incarnation;
        break;
    case TRPI_MSG_STORE_RELAY:
        node = msg->store_relay.node;
        incarnation = msg->store_relay.incarnation;
        break;
    default:
        return false;
    }
    trpi_format(name, sizeof(name), "n%" PRIx64 ".%" PRIx64, node, incarnation);
    return peer.size == strlen(name) && memcmp(peer.data, name, peer.size) == 0;
}

static bool is_answer(const trpi_msg *msg) {
    return msg->type == TRPI_MSG_STORE_PART || msg->type == TRPI_MSG_STORE_FORGET ||
           msg->type == TRPI_MSG_STORE_RELAYED;
}

static void take_packet(trpi_store_server *server, const trpi_packet *packet, bool is_asking) {
    trpi_msg msg;
    trp_error err = {0};
    trpi_arena_reset(&server->arena);
    trp_code code = trpi_decode(packet->header, &server->arena, &msg, &err);
    uint64_t home = is_asking ? home_of(server, packet->peer) : 0;
    if (code == TRP_OK &&
        (is_asking ? home == 0 || !is_answer(&msg) : !is_asker(&msg, packet->peer))) {
        code = trpi_fail(&err, TRP_EPROTOCOL, "%s is not from whom it should be",
                         trpi_msg_name(msg.type));
    }
    if (code != TRP_OK) {
        if (trpi_log_is_due(&server->refused)) {
            trpi_log(TRPI_WARN, "message_invalid", "from=store error=\"%s\" refused=%llu",
                     err.message, (unsigned long long)server->refused);
        }
        return;
    }
    trpi_store_event event = {
        .kind = TRPI_STORE_EVENT_PEER, .node = home, .msg = &msg, .body_size = packet->body.size};
    trpi_store_feed(server, &event, packet->body);
}

static void read_from(trpi_store_server *server, trpi_sock *sock, bool is_asking) {
    trpi_packet packet;
    for (int i = 0; i < PACKETS_PER_ROUND && trpi_sock_recv(sock, &packet) == TRP_OK; i++) {
        take_packet(server, &packet, is_asking);
        trpi_packet_release(&packet);
    }
}

/* Homes that have forgotten our link. */
static void take_voids(trpi_store_server *server) {
    trp_bytes peer;
    while (trpi_sock_take_void(server->asking, &peer)) {
        uint64_t node = home_of(server, peer);
        if (node != 0) {
            trpi_store_event event = {.kind = TRPI_STORE_EVENT_VOID, .node = node};
            trpi_store_feed(server, &event, (trp_bytes){0});
        }
    }
}

void trpi_store_links_read(trpi_store_server *server) {
    read_from(server, server->serving, false);
    read_from(server, server->asking, true);
    take_voids(server);
}

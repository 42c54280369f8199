/* The node's object store: its thread lives as long as one registration, for to the head, and so to
 * all who hold something here, another registration is another node's life. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/sys/host.h"

#define MEMORY_PERCENT 30
#define DESCRIPTORS_PART 4 /* of all that this daemon may have, the store gets one */

static uint64_t capacity(void) {
    uint64_t bytes = trpi_config(TRPI_CONFIG_STORE_BYTES);
    return bytes ? bytes : trpi_host_memory_bytes() / 100 * MEMORY_PERCENT;
}

trp_code trpi_node_store_open(trpi_node *node, trp_error *err) {
    if (node->store) {
        return TRP_OK;
    }
    if (node->store_fd < 0) {
        node->store_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (node->store_fd < 0) {
            return trpi_fail(err, TRP_EBUSY, "object store: eventfd: %s", strerror(errno));
        }
        trp_code code = trpi_node_watch_fd(node, node->store_fd, TRPI_SOURCE_STORE, 0, err);
        if (code != TRP_OK) {
            return code;
        }
    }
    trpi_store_options options = {.uuid = node->uuid,
                                  .host = node->options->host,
                                  .capacity = capacity(),
                                  .descriptors_max = node->descriptors_max / DESCRIPTORS_PART,
                                  .serial = node->store_serial,
                                  .event_fd = node->store_fd};
    return trpi_store_open(&options, &node->store, err);
}

void trpi_node_store_addresses(const trpi_node *node, trpi_msg_node_hello *hello) {
    hello->store_path = node->store ? trpi_store_path(node->store) : "";
    hello->store_endpoint = node->store ? trpi_store_endpoint(node->store) : "";
}

trp_code trpi_node_store_serve(trpi_node *node, trp_error *err) {
    return trpi_store_serve(node->store, node->id, node->incarnation, err);
}

/* What the store has to ask of the head. */
void trpi_node_store_words(trpi_node *node) {
    eventfd_t count;
    trp_error err = {0};
    trp_buf frame = {0};
    (void)!eventfd_read(node->store_fd, &count);
    while (node->store && trpi_store_word(node->store, &frame)) {
        if (node->head && node->phase == TRPI_NODE_SERVING &&
            trpi_sock_send(node->head, (trp_bytes){0}, trp_buf_bytes(&frame), (trp_bytes){0},
                           &err) != TRP_OK) {
            trpi_log(TRPI_WARN, "message_lost", "from=store error=\"%s\"", err.message);
        }
        trp_buf_release(&frame);
    }
}

void trpi_node_store_tell(trpi_node *node, trp_bytes frame) {
    if (node->store) {
        trpi_store_tell(node->store, frame);
    }
}

size_t trpi_node_store_descriptors(const trpi_node *node) {
    return node->store ? trpi_store_descriptors(node->store) : 0;
}

void trpi_node_store_figures(const trpi_node *node, trpi_msg_node_stats *stats) {
    if (node->store) {
        trpi_store_figures figures = trpi_store_server_figures(node->store);
        stats->store_capacity = figures.capacity;
        stats->store_used = figures.used;
        stats->store_objects = figures.objects;
    }
}

/* Numbers of objects never come back, so the next store goes on counting. */
void trpi_node_store_close(trpi_node *node) {
    if (node->store) {
        node->store_serial = trpi_store_stop(node->store);
        node->store = NULL;
    }
}

/* Drivers of this host whose death the head wants to know at once, without waiting for their
 * silence. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "core/base/log.h"
#include "core/sys/process.h"

typedef struct trpi_watch {
    uint64_t client;
    int fd;
} trpi_watch;

static void say_gone(trpi_node *node, uint64_t client) {
    trpi_msg msg = {.type = TRPI_MSG_PID_GONE, .pid_gone = {.client = client}};
    trpi_node_say(node, &msg);
}

static void watch_free(trpi_node *node, trpi_watch *watch) {
    trpi_node_unwatch_fd(node, &watch->fd);
    free(watch);
}

void trpi_node_watch(trpi_node *node, const trpi_msg_watch_pid *msg) {
    trp_error err = {0};
    trpi_watch *watch = trpi_map_get(&node->watches, msg->client);
    if (watch || msg->client == 0 || msg->client >> 56) {
        return; /* told twice, by a head that restarted */
    }
    trp_code code = trpi_node_may_open(node, 1, &err);
    int fd = code == TRP_OK && msg->pid > 0 ? trpi_pidfd_open((pid_t)msg->pid) : -1;
    if (code == TRP_OK && fd < 0 && (msg->pid <= 0 || errno == ESRCH)) {
        say_gone(node, msg->client);
        return;
    }
    if (fd < 0) {
        /* Lives for all we know: its silence will tell. */
        trpi_log(TRPI_ERROR, "watch_failed", "client=%llu error=\"%s\"",
                 (unsigned long long)msg->client, code != TRP_OK ? err.message : strerror(errno));
        return;
    }
    watch = trpi_alloc(sizeof *watch);
    *watch = (trpi_watch){.client = msg->client, .fd = fd};
    if (trpi_node_watch_fd(node, fd, TRPI_SOURCE_WATCH, msg->client, &err) != TRP_OK) {
        trpi_log(TRPI_ERROR, "watch_failed", "client=%llu error=\"%s\"",
                 (unsigned long long)msg->client, err.message);
        watch_free(node, watch);
        return;
    }
    trpi_map_set(&node->watches, msg->client, watch);
}

void trpi_node_watch_fired(trpi_node *node, uint64_t client) {
    trpi_watch *watch = trpi_map_get(&node->watches, client);
    if (watch) {
        trpi_map_remove(&node->watches, client);
        watch_free(node, watch);
        say_gone(node, client);
    }
}

void trpi_node_watch_close(trpi_node *node) {
    size_t cursor = 0;
    trpi_watch *watch;
    while ((watch = trpi_map_next(&node->watches, &cursor)) != NULL) {
        watch_free(node, watch);
    }
    trpi_map_release(&node->watches);
}

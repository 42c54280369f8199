/* NODE_STATS: what `troupe status` shows of this node. Said when something has changed. */
#include <string.h>

#include "actors/proc/node_parts.h"
#include "core/base/config.h"
#include "core/net/clock.h"

/* A difference below this is noise of the host, and tells nobody anything. */
#define MEMORY_STEP ((uint64_t)16 << 20)

static uint64_t steps(uint64_t bytes) {
    return bytes / MEMORY_STEP;
}

static bool differs(const trpi_msg_node_stats *a, const trpi_msg_node_stats *b) {
    return steps(a->memory_used) != steps(b->memory_used) || a->memory_total != b->memory_total ||
           a->store_capacity != b->store_capacity || a->store_used != b->store_used ||
           a->store_objects != b->store_objects || a->workers != b->workers ||
           a->workers_idle != b->workers_idle || a->memory_kills != b->memory_kills;
}

static void count_workers(const trpi_node *node, trpi_msg_node_stats *stats) {
    size_t cursor = 0;
    const trpi_node_worker *worker;
    while ((worker = trpi_map_next(&node->workers, &cursor)) != NULL) {
        stats->workers += worker->pid != 0;
        stats->workers_idle += worker->pid != 0 && worker->actor == 0;
    }
}

void trpi_node_stats_due(trpi_node *node) {
    trpi_msg msg = {.type = TRPI_MSG_NODE_STATS};
    trpi_msg_node_stats *stats = &msg.node_stats;
    if (node->phase != TRPI_NODE_SERVING || trpi_now_ns() < node->stats_due_ns) {
        return;
    }
    trpi_node_memory_figures(node, stats);
    count_workers(node, stats);
    trpi_node_store_figures(node, stats);
    if (differs(stats, &node->stats)) {
        node->stats = *stats;
        trpi_node_say(node, &msg);
    }
    node->stats_due_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_STATS_MS));
    trpi_node_timer(node, TRPI_TIMER_STATS, 0, node->stats_due_ns);
}

void trpi_node_stats_begin(trpi_node *node) {
    memset(&node->stats, 0, sizeof node->stats);
    node->stats_due_ns = 0;
    trpi_node_stats_due(node);
}

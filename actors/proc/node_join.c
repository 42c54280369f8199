/* Registration with the head, and what happens when it ends without us wanting it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "actors/proc/node_resources.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/host.h"

#define JOIN_AGAIN_MS 500 /* a head that has not answered by then gets a new connection */
#define GOODBYE_MS 500    /* for the last message to leave */

void trpi_node_report_ready(trpi_node *node, const char *format, ...) {
    if (node->ready_fd < 0) {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vdprintf(node->ready_fd, format, args);
    va_end(args);
    close(node->ready_fd);
    node->ready_fd = -1;
}

/* ---- NODE_HELLO ---- */

static void list_holdings(trpi_node *node, trpi_msg_node_hello *hello) {
    hello->holdings = trpi_alloc((node->actors.count + 1) * sizeof *hello->holdings);
    size_t cursor = 0;
    trpi_node_worker *worker;
    while ((worker = trpi_map_next(&node->actors, &cursor)) != NULL) {
        hello->holdings[hello->holdings_count++] =
            (trpi_holding){.actor = worker->actor,
                           .incarnation = worker->incarnation,
                           .pid = worker->pid,
                           .endpoint = worker->endpoint ? worker->endpoint : ""};
    }
}

static void list_labels(const trpi_node_options *options, trpi_msg_node_hello *hello) {
    size_t count = 0;
    while (options->labels && options->labels[count]) {
        count++;
    }
    hello->labels = trpi_alloc((count + 1) * sizeof *hello->labels);
    hello->labels_count = count;
    for (size_t i = 0; i < count; i++) {
        hello->labels[i].value = options->labels[i];
    }
}

static trp_code say_hello(trpi_node *node, trp_error *err) {
    trpi_node_resources resources;
    trp_code code = trpi_node_resources_init(node->options, &resources, err);
    if (code != TRP_OK) {
        return code;
    }
    char host_id[128], name[256];
    trpi_host_id(host_id, sizeof host_id);
    trpi_host_name(name, sizeof name);
    trpi_msg msg = {.type = TRPI_MSG_NODE_HELLO};
    trpi_msg_node_hello *hello = &msg.node_hello;
    hello->version = TROUPE_VERSION;
    hello->uuid = node->uuid;
    hello->host = node->options->host;
    hello->host_id = host_id;
    hello->pid = getpid();
    hello->name = node->options->name ? node->options->name : name;
    hello->resources = resources.list;
    hello->resources_count = resources.count;
    hello->devices = resources.devices;
    hello->devices_count = resources.device_count;
    list_labels(node->options, hello);
    list_holdings(node, hello);
    hello->seq = trpi_now_ns();
    hello->join = node->join_ns;
    trpi_node_store_addresses(node, hello);
    trpi_node_say(node, &msg);
    free(hello->holdings);
    free(hello->labels);
    return TRP_OK;
}

/* A new connection each time: what an old one still holds belongs to an old registration. */
static trp_code connect_head(trpi_node *node, trp_error *err) {
    char id[64], endpoint[256];
    trpi_sock_close(node->head);
    node->head = NULL;
    trpi_format(id, sizeof id, "node-%s", node->uuid);
    trp_code code = trpi_sock_open(node->net, TRPI_DEALER, trp_bytes_of(id), &node->head, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(endpoint, sizeof endpoint, "tcp://%s", node->options->address);
    return trpi_sock_connect(node->head, endpoint, (trp_bytes){0}, err);
}

void trpi_node_join(trpi_node *node) {
    trp_error err = {0};
    node->phase = TRPI_NODE_JOINING;
    node->join_ns =
        trpi_now_ns(); /* what was said on earlier connections is void: see NODE_HELLO */
    trp_code code = trpi_node_store_open(node, &err);
    if (code == TRP_OK) {
        code = connect_head(node, &err);
    }
    if (code == TRP_OK) {
        code = say_hello(node, &err);
    }
    if (code != TRP_OK) {
        trpi_log(TRPI_ERROR, "join_failed", "error=\"%s\"", err.message);
        trpi_node_report_ready(node, "error: %s\n", err.message);
        trpi_node_stop(node, "cannot register", 1);
        return;
    }
    trpi_node_timer(node, TRPI_TIMER_JOIN, 0, trpi_deadline_ns(JOIN_AGAIN_MS));
}

void trpi_node_join_again(trpi_node *node) {
    if (node->phase != TRPI_NODE_JOINING) {
        return;
    }
    if (trpi_now_ns() < node->join_until_ns) {
        trpi_node_join(node);
        return;
    }
    trpi_log(TRPI_ERROR, "join_failed", "head=%s error=\"no answer\"", node->options->address);
    trpi_node_report_ready(
        node,
        "error: the head at %s does not answer; is one running there? (troupe start --head)\n",
        node->options->address);
    trpi_node_stop(node, "the head does not answer", 1);
}

void trpi_node_refused(trpi_node *node, const trpi_msg_done *done) {
    if (node->phase == TRPI_NODE_JOINING && done->code != TRP_OK) {
        trpi_log(TRPI_ERROR, "join_refused", "error=\"%s\"", done->message);
        trpi_node_report_ready(node, "error: the head refuses this node: %s\n", done->message);
        trpi_node_stop(node, "refused by the head", 1);
    }
}

/* ---- NODE_WELCOME ---- */

static trp_code start_heartbeat(trpi_node *node, trp_error *err) {
    trpi_heartbeat_options options = {.address = node->options->address,
                                      .node = node->id,
                                      .incarnation = node->incarnation,
                                      .period_ms = node->heartbeat_ms,
                                      .timeout_ms = node->timeout_ms,
                                      .event_fd = node->heartbeat_fd};
    return trpi_heartbeat_start(&options, &node->heartbeat, err);
}

/* Kills everything, and registers anew when all is gone. */
static void lose(trpi_node *node, const char *reason) {
    trpi_log(TRPI_WARN, "lease_lost", "node=%llu incarnation=%llu reason=\"%s\" actors=%zu",
             (unsigned long long)node->id, (unsigned long long)node->incarnation, reason,
             node->actors.count);
    node->phase = TRPI_NODE_CLEARING;
    /* Deaths from here on are ours, and the head has given the actors up already. */
    trpi_sock_close(node->head);
    node->head = NULL;
    trpi_node_store_close(node); /* its objects are given up likewise */
    trpi_node_kill_all(node);
}

static void registered(trpi_node *node, const trpi_msg_node_welcome *welcome) {
    trp_error err = {0};
    node->id = welcome->node;
    node->incarnation = welcome->incarnation;
    node->heartbeat_ms = TRPI_MAX(welcome->heartbeat_ms, 1);
    node->timeout_ms = TRPI_MAX(welcome->node_timeout_ms, 2 * node->heartbeat_ms);
    TRPI_SET(node->cluster, welcome->cluster);
    trp_code code = trpi_node_dir_open(node, &err);
    if (code == TRP_OK) {
        code = start_heartbeat(node, &err);
    }
    if (code == TRP_OK) {
        code = trpi_node_store_serve(node, &err);
    }
    if (code != TRP_OK) {
        trpi_log(TRPI_ERROR, "node_failed", "error=\"%s\"", err.message);
        trpi_node_report_ready(node, "error: %s\n", err.message);
        trpi_node_stop(node, "cannot serve", 1);
        return;
    }
    char who[32];
    trpi_format(who, sizeof who, "node n%llu", (unsigned long long)node->id);
    trpi_log_set_who(who);
    trpi_log(TRPI_INFO, "node_joined", "head=%s cluster=%s incarnation=%llu dir=%s",
             node->options->address, node->cluster, (unsigned long long)node->incarnation,
             node->dir);
    node->phase = TRPI_NODE_SERVING;
    node->drain_until_ns = 0;
    trpi_node_stats_begin(node);
    trpi_node_report_ready(node, "%llu %s\n", (unsigned long long)node->id, node->cluster);
}

/* The head that was silent has heard again what runs here. */
static void resynced(trpi_node *node, const trpi_msg_node_welcome *welcome) {
    if (welcome->node != node->id || welcome->incarnation != node->incarnation) {
        lose(node, "the head gave this node a new incarnation");
        return;
    }
    trpi_node_say_again(node);
    trpi_jobs_say_again(node);
    trpi_node_stats_begin(node);
    size_t cursor = 0;
    trpi_node_worker *worker;
    while ((worker = trpi_map_next(&node->actors, &cursor)) != NULL) {
        if (worker->phase == TRPI_WORKER_ALIVE) {
            trpi_node_say_started(node, worker);
        }
    }
}

void trpi_node_welcomed(trpi_node *node, const trpi_msg_node_welcome *welcome) {
    if (node->phase == TRPI_NODE_JOINING) {
        registered(node, welcome);
    } else if (node->phase == TRPI_NODE_SERVING) {
        resynced(node, welcome);
    }
}

/* ---- The lease ---- */

/* The head may have restarted, and what was on its way to it is lost: tell it again. Deaths first,
 * so that it does not have to guess why an actor is missing among the holdings. */
static void resync(trpi_node *node) {
    trp_error err = {0};
    trpi_node_say_again(node);
    if (say_hello(node, &err) != TRP_OK) {
        trpi_log(TRPI_ERROR, "resync_failed", "error=\"%s\"", err.message);
    }
}

/* While it joins it says hello again anyway. */
void trpi_node_unheard(trpi_node *node) {
    if (node->phase == TRPI_NODE_SERVING) {
        resync(node);
    }
}

void trpi_node_heard(trpi_node *node, unsigned events) {
    if (node->phase != TRPI_NODE_SERVING) {
        return;
    }
    if (events & TRPI_HEARTBEAT_UNKNOWN) {
        lose(node, "the head no longer knows this node");
    } else if (events & TRPI_HEARTBEAT_LOST) {
        lose(node, "no word from the head for longer than its timeout");
    } else if (events & TRPI_HEARTBEAT_RESUMED) {
        resync(node);
    }
}

void trpi_node_cleared(trpi_node *node) {
    trpi_program_end_all(node);
    if (node->phase == TRPI_NODE_STOPPING) {
        node->end_reached = true;
        return;
    }
    trpi_heartbeat_stop(node->heartbeat);
    node->heartbeat = NULL;
    trpi_node_forget_said(node);
    trpi_node_watch_close(node);
    trpi_jobs_clear(node);
    trpi_blobs_clear(node);
    trpi_node_dir_close(node);
    node->join_until_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_REJOIN_TIMEOUT_MS));
    trpi_node_join(node);
}

void trpi_node_goodbye(trpi_node *node) {
    if (!node->head || node->id == 0) {
        return;
    }
    trpi_msg msg = {.type = TRPI_MSG_NODE_BYE,
                    .node_bye = {.node = node->id, .reason = node->end_reason}};
    trpi_node_say(node, &msg);
    trpi_sock_close_after(node->head, GOODBYE_MS);
    node->head = NULL;
}

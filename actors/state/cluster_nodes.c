/* cluster_nodes.c: node daemons: they say hello, are heard, and die.
 *
 *            hello (1)                silence (3), goodbye (4), proof (5)
 *   (none) -----------> living -----------------------------------------> dead
 *                       |  ^ hello again (2)                                |
 *                       +--+                          hello (1): incarnation + 1
 *
 * (1) register_node  (2) greet_again  (3) trpi_nodes_tick  (4) trpi_node_bye  (5) trpi_node_dead
 *
 * What holds: a living node has a peer, a pool in the scheduler and a place in the membership; a
 * dead one has none of them and no actors. A daemon is known by its uuid, so a node keeps its
 * number. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

static void free_texts(char **texts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(texts[i]);
    }
    free(texts);
}

void trpi_node_free(trpi_node_rec *node) {
    char *texts[] = {node->uuid,   node->name,       node->host,           node->host_id,
                     node->reason, node->store_path, node->store_endpoint, node->drain_reason};
    for (size_t i = 0; i < TRPI_COUNTOF(texts); i++) {
        free(texts[i]);
    }
    free_texts(node->devices, node->device_count);
    trpi_request_release(&node->has);
    trpi_labels_release(&node->labels);
    trpi_texts_release(&node->label_texts);
    trpi_table_release(&node->actors);
    trpi_table_release(&node->jobs);
    free(node->log_askers.items);
    free(node);
}

/* ---- Hello ---- */

static void welcome(trpi_cluster *c, const trpi_node_rec *node) {
    trpi_msg_node_welcome *msg = &trpi_post(c, node->peer, TRPI_MSG_NODE_WELCOME)->node_welcome;
    msg->node = node->id;
    msg->incarnation = node->incarnation;
    msg->cluster = c->id;
    msg->heartbeat_ms = c->config.heartbeat_ms;
    msg->node_timeout_ms = c->config.node_timeout_ms;
}

void trpi_node_end_stranger(trpi_cluster *c, const trpi_node_rec *node, uint64_t actor,
                            uint64_t incarnation) {
    trpi_msg_end *msg = &trpi_post(c, node->peer, TRPI_MSG_END)->end;
    msg->actor = actor;
    msg->incarnation = incarnation;
    msg->cause = TRP_CAUSE_KILLED;
    msg->reason = "the head does not want this incarnation any more";
}

/* What the node holds and the head does not want is ended; a later EXITED of it is stale. */
static void end_strangers(trpi_cluster *c, const trpi_node_rec *node,
                          const trpi_msg_node_hello *msg) {
    for (size_t i = 0; i < msg->holdings_count; i++) {
        const trpi_holding *held = &msg->holdings[i];
        const trpi_actor_rec *actor = trpi_table_get(&node->actors, held->actor);
        if (!actor || actor->life.incarnation != held->incarnation) {
            trpi_node_end_stranger(c, node, held->actor, held->incarnation);
        }
    }
}

static bool holds(const trpi_msg_node_hello *msg, const trpi_actor_rec *actor) {
    for (size_t i = 0; i < msg->holdings_count; i++) {
        if (msg->holdings[i].actor == actor->id &&
            msg->holdings[i].incarnation == actor->life.incarnation) {
            return true;
        }
    }
    return false;
}

/* Of those that the node told to run and does not hold, EXITED was lost with a connection. One that
 * is to start may just not have arrived when the node wrote its list; if it was lost, its own
 * deadline will tell. */
static void bury_missing(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_node_hello *msg) {
    trpi_actor_rec *actor;
    uint64_t id = 0;
    while ((actor = trpi_table_next(&node->actors, &id)) != NULL) {
        if (actor->place == TRPI_RUNNING && !holds(msg, actor)) {
            trpi_death death = {.incarnation = actor->life.incarnation,
                                .node = node->id,
                                .pid = actor->pid,
                                .cause = TRP_CAUSE_NODE_DIED,
                                .message =
                                    "the node does not hold it any more, and the word of how "
                                    "it ended was lost",
                                .stderr_tail = "",
                                .core = ""};
            trpi_actor_gone(c, actor, &death, false);
        }
    }
}

/* A living daemon says hello again on its connection: it has not heard of the head for a while. */
static void greet_again(trpi_cluster *c, trpi_node_rec *node, uint64_t peer,
                        const trpi_msg_node_hello *msg) {
    trpi_table_remove(&c->node_peers, node->peer);
    node->peer = peer;
    node->hello_seq = msg->seq;
    trpi_table_put(&c->node_peers, peer, node);
    (void)trpi_membership_hears(&c->node_members, node->id, node->incarnation, c->now_ns);
    welcome(c, node);
    end_strangers(c, node, msg);
    bury_missing(c, node, msg);
}

static void set_devices(trpi_node_rec *node, const trpi_msg_node_hello *msg) {
    free_texts(node->devices, node->device_count);
    node->device_count = msg->devices_count;
    node->devices = trpi_alloc(TRPI_MAX(msg->devices_count, (size_t)1) * sizeof(char *));
    for (size_t i = 0; i < msg->devices_count; i++) {
        node->devices[i] = trpi_strdup(msg->devices[i].value);
    }
}

static trpi_node_rec *node_of_uuid(trpi_cluster *c, const char *uuid) {
    trpi_node_rec *node = trpi_index_get(&c->uuids, trp_bytes_of(uuid));
    if (!node) {
        node = trpi_alloc(sizeof(*node));
        node->id = ++c->last_node;
        node->uuid = trpi_strdup(uuid);
        node->reason = trpi_strdup("");
        node->drain_reason = trpi_strdup("");
        trpi_table_put(&c->nodes, node->id, node);
        (void)trpi_index_put(&c->uuids, trp_bytes_of(uuid), node);
    }
    return node;
}

typedef struct capacity { /* of a hello, checked */
    trpi_request has;
    trpi_labels labels;
} capacity;

/* Takes *has. */
static void describe(trpi_node_rec *node, const trpi_msg_node_hello *msg, capacity *has) {
    trpi_request_release(&node->has);
    trpi_labels_release(&node->labels);
    trpi_texts_release(&node->label_texts);
    node->has = has->has;
    node->labels = has->labels;
    node->label_texts = trpi_texts_copy(msg->labels, msg->labels_count);
    set_devices(node, msg);
    trpi_replace(&node->name, msg->name);
    trpi_replace(&node->host, msg->host);
    trpi_replace(&node->host_id, msg->host_id);
    trpi_replace(&node->store_path, msg->store_path);
    trpi_replace(&node->store_endpoint, msg->store_endpoint);
    trpi_replace(&node->reason, "");
    node->pid = msg->pid;
    node->stats_ns = 0;
}

static void watch(trpi_cluster *c, const trpi_node_rec *node) {
    const char *host_id = trpi_keep(c, node->host_id);
    trpi_cluster_action *action = trpi_act(c, TRPI_ACTION_WATCH_NODE);
    action->id = node->id;
    action->incarnation = node->incarnation;
    action->pid = node->pid;
    action->text = host_id;
}

/* Takes *has. */
static void register_node(trpi_cluster *c, uint64_t peer, const trpi_msg_node_hello *msg,
                          capacity *has) {
    trpi_node_rec *node = node_of_uuid(c, msg->uuid);
    describe(node, msg, has);
    node->peer = peer;
    node->hello_seq = msg->seq;
    node->join = msg->join;
    node->living = true;
    node->since_ns = c->now_ns;
    node->incarnation = trpi_membership_join(&c->node_members, node->id, c->now_ns);
    trpi_table_put(&c->node_peers, peer, node);
    trpi_sched_add(&c->sched, node->id, &node->has, &node->labels);
    c->living_nodes++;
    welcome(c, node);
    end_strangers(c, node, msg);
    if (node->incarnation > 1) {
        trpi_stores_tell_all(c, node); /* what it missed while it was away */
    }
    trpi_drain_again(c, node);
    watch(c, node);
    trpi_clients_watch(c, node);
    trpi_jobs_place(c);
}

static trp_code parse_capacity(trpi_cluster *c, const trpi_msg_node_hello *msg, capacity *ret_has,
                               trp_error *err) {
    capacity has = {0};
    trp_code code =
        trpi_request_parse(&c->resource_names, msg->resources, msg->resources_count, &has.has, err);
    if (code == TRP_OK) {
        code = trpi_labels_parse(msg->labels, msg->labels_count, &has.labels, err);
    }
    int64_t gpus = trpi_request_amount(&has.has, TRPI_GPU);
    if (code == TRP_OK &&
        (gpus % TRPI_ONE != 0 || gpus / TRPI_ONE != (int64_t)msg->devices_count)) {
        char text[32];
        trpi_amount_text(gpus, text, sizeof(text));
        code = trpi_fail(err, TRP_EINVALID, "%s gpu, but %zu device ids", text, msg->devices_count);
    }
    if (code != TRP_OK) {
        trpi_request_release(&has.has);
        trpi_labels_release(&has.labels);
        return trpi_context(err, code, "node %.64s", msg->name);
    }
    *ret_has = has;
    return TRP_OK;
}

static trp_code check_hello(trpi_cluster *c, const trpi_msg_node_hello *msg, capacity *ret_has,
                            trp_error *err) {
    if (strcmp(msg->version, c->version) != 0) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head is troupe %s, this node is troupe %.64s",
                         c->version, msg->version);
    }
    if (c->stopping) {
        return trpi_fail(err, TRP_EUNAVAILABLE, "the cluster is stopping");
    }
    if (!msg->uuid[0] || strlen(msg->uuid) > TRPI_TEXT_MAX) {
        return trpi_fail(err, TRP_EPROTOCOL, "a node must say its uuid");
    }
    if (c->living_nodes >= c->config.nodes_max) {
        return trpi_fail(err, TRP_EBUSY, "the cluster has %" PRIu64 " nodes, its limit",
                         c->living_nodes);
    }
    return parse_capacity(c, msg, ret_has, err);
}

void trpi_node_hello(trpi_cluster *c, uint64_t peer, const trpi_msg_node_hello *msg) {
    trpi_node_rec *here = trpi_table_get(&c->node_peers, peer);
    trp_error error;
    capacity has = {0};
    if (here && strcmp(here->uuid, msg->uuid) != 0) {
        trpi_node_dead(c, here, TRPI_NODE_LOST, "another daemon took over its connection");
    }
    trpi_node_rec *known = trpi_index_get(&c->uuids, trp_bytes_of(msg->uuid));
    if (known && msg->seq < known->hello_seq) {
        c->stale++;
        return;
    }
    if (known && known->living && msg->join == known->join) {
        greet_again(c, known, peer, msg);
        return;
    }
    if (known && known->living) {
        trpi_node_dead(c, known, TRPI_NODE_CLEARED,
                       "unexpected: it did not hear of the head for too long, has ended "
                       "everything and begins anew");
    }
    if (check_hello(c, msg, &has, &error) == TRP_OK) {
        register_node(c, peer, msg, &has);
    } else {
        trpi_post_done(c, peer, 0, &error);
    }
}

/* ---- Alive or not ---- */

void trpi_node_heartbeat(trpi_cluster *c, uint64_t peer, const trpi_msg_heartbeat *msg) {
    bool known = trpi_membership_hears(&c->node_members, msg->node, msg->incarnation, c->now_ns);
    c->stale += !known;
    trpi_msg *ack = trpi_post(c, peer, TRPI_MSG_HEARTBEAT_ACK);
    ack->heartbeat_ack.seq = msg->seq;
    ack->heartbeat_ack.known = known;
}

void trpi_node_bye(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_node_bye *msg) {
    char reason[160];
    trpi_format(reason, sizeof(reason), "expected: %.120s",
                msg->reason[0] ? msg->reason : "it said goodbye");
    trpi_node_dead(c, node, TRPI_NODE_LEFT, reason);
}

/* Forgets the longest dead when too many are kept, and one that is drained only if all are: it
 * could come back. Dead nodes are rare: a walk will do. */
static void forget_old(trpi_cluster *c) {
    if (c->nodes.count - c->living_nodes <= c->config.dead_nodes_kept) {
        return;
    }
    trpi_node_rec *node, *oldest = NULL;
    uint64_t id = 0;
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        bool older =
            !oldest || (node->draining != oldest->draining ? oldest->draining
                                                           : node->since_ns < oldest->since_ns);
        if (!node->living && older) {
            oldest = node;
        }
    }
    trpi_table_remove(&c->nodes, oldest->id);
    trpi_table_remove(&c->drains, oldest->id);
    trpi_index_remove(&c->uuids, trp_bytes_of(oldest->uuid));
    trpi_membership_forget(&c->node_members, oldest->id);
    trpi_node_free(oldest);
}

/* When what may still run on a node that was lost has ended by itself: it was told to when the head
 * has not been heard there for the node timeout, and the head cannot have been heard later than it
 * last heard of the node. Their clocks may differ in speed by a little. */
static uint64_t lease_ns(const trpi_cluster *c, const trpi_node_rec *node) {
    const trpi_member *member = trpi_table_get(&c->node_members.members, node->id);
    uint64_t timeout_ns = c->config.node_timeout_ms * TRPI_NS_PER_MS;
    return member->heard_ns + timeout_ns + timeout_ns / 16;
}

static void bury_actor(trpi_cluster *c, const trpi_node_rec *node, trpi_actor_rec *actor,
                       trpi_node_end end, const char *text) {
    trpi_death death = {.incarnation = actor->life.incarnation,
                        .node = node->id,
                        .pid = actor->pid,
                        .cause = TRP_CAUSE_NODE_DIED,
                        .message = text,
                        .stderr_tail = "",
                        .core = ""};
    if (actor->wants.exclusive && end == TRPI_NODE_LOST) {
        actor->lease_ns = lease_ns(c, node);
    }
    trpi_actor_gone(c, actor, &death, false);
}

/* All its actors lose their grants before any of them is told or looks for a new place, so that
 * what they see of the cluster is one state: without this node. Groups that have lost a bundle look
 * first. */
static void bury_actors(trpi_cluster *c, trpi_node_rec *node, trpi_node_end end) {
    trpi_table actors = node->actors;
    trpi_actor_rec *actor;
    uint64_t id = 0;
    char text[400], name[128];
    node->actors = (trpi_table){0};
    trpi_text_node(c, node->id, name, sizeof(name));
    trpi_format(text, sizeof(text), "%s died: %s", name, node->reason);
    while ((actor = trpi_table_next(&actors, &id)) != NULL) {
        trpi_actor_grant_drop(c, actor);
    }
    trpi_groups_node_dead(c, node->id);
    trpi_sched_remove(&c->sched, node->id);
    trpi_turns_node_closed(c, node->id);
    trpi_groups_place(c);
    id = 0;
    while ((actor = trpi_table_next(&actors, &id)) != NULL) {
        bury_actor(c, node, actor, end, text);
    }
    trpi_table_release(&actors);
}

/* Who waits for this very node, or can only live there, cannot have it any more. */
static void end_affine(trpi_cluster *c, uint64_t node) {
    char reason[200], name[128];
    trpi_actor_rec *actor;
    uint64_t ticket = 0, id;
    trpi_text_node(c, node, name, sizeof(name));
    trpi_format(reason, sizeof(reason), "it may run on %s only, which is dead", name);
    while ((id = trpi_queue_next(&c->waiting, &ticket, NULL)) != 0) {
        actor = trpi_table_get(&c->actors, id);
        if (actor->wants.only_node == node && !actor->wants.node_soft) {
            trpi_actor_end(c, actor, TRP_CAUSE_UNSCHEDULABLE, reason, false, 0);
        }
    }
}

void trpi_node_dead(trpi_cluster *c, trpi_node_rec *node, trpi_node_end end, const char *reason) {
    trpi_replace(&node->reason, reason);
    trpi_table_remove(&c->node_peers, node->peer);
    trpi_membership_leave(&c->node_members, node->id);
    node->peer = 0;
    node->living = false;
    node->expected = end == TRPI_NODE_LEFT;
    node->since_ns = c->now_ns;
    c->living_nodes--;
    trpi_clients_unwatch(c, node);
    trpi_logs_node_dead(c, node);
    trpi_stores_node_gone(c, node);
    bury_actors(c, node, end);
    end_affine(c, node->id);
    trpi_jobs_node_dead(c, node);
    forget_old(c);
}

void trpi_nodes_tick(trpi_cluster *c) {
    const trpi_member *member;
    uint64_t id = 0;
    trpi_membership_tick(&c->node_members, c->now_ns);
    while ((member = trpi_membership_silent(&c->node_members, &id, c->now_ns)) != NULL) {
        char reason[128], silent[32], limit[32];
        trpi_text_seconds(c->now_ns - member->heard_ns, silent, sizeof(silent));
        trpi_text_seconds(c->node_members.timeout_ns, limit, sizeof(limit));
        trpi_format(reason, sizeof(reason), "unexpected: silent for %s (NODE_TIMEOUT_MS is %s)",
                    silent, limit);
        trpi_node_dead(c, trpi_table_get(&c->nodes, id), TRPI_NODE_LOST, reason);
    }
}

void trpi_nodes_shutdown(trpi_cluster *c, const char *reason) {
    if (c->stopping) {
        return;
    }
    c->stopping = true;
    const char *text = trpi_keep(c, reason);
    trpi_node_rec *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        if (node->living) {
            trpi_post(c, node->peer, TRPI_MSG_NODE_SHUTDOWN)->node_shutdown.reason = text;
        }
    }
}

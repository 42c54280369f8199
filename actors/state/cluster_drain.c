/* cluster_drain.c: nodes that are going away.
 *
 *   open --(1)--> draining, until the deadline --(2)--> draining, what was left is being killed
 *
 * (1) trpi_drain  (2) trpi_drain_tick
 *
 * What holds: a draining node takes no actor and no bundle, also none that waits for a bundle
 * there, and never opens again: it is the daemon that is drained, over all of its registrations.
 * Bundles there that nobody uses (any more) move at once. When it is asked again, the last word
 * holds. */
#include <inttypes.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

uint64_t trpi_drain_left_ms(const trpi_cluster *c, const trpi_node_rec *node) {
    return node->drain_ns > c->now_ns ? (node->drain_ns - c->now_ns) / TRPI_NS_PER_MS : 0;
}

static void notify(trpi_cluster *c, const trpi_node_rec *node) {
    const char *reason = trpi_keep(c, node->drain_reason);
    trpi_msg_drain_notice *msg = &trpi_post(c, node->peer, TRPI_MSG_DRAIN_NOTICE)->drain_notice;
    msg->deadline_ms = trpi_drain_left_ms(c, node);
    msg->reason = reason;
}

static void close_node(trpi_cluster *c, trpi_node_rec *node) {
    trpi_sched_close(&c->sched, node->id);
    trpi_turns_node_closed(c, node->id);
    trpi_groups_node_drain(c, node->id);
}

/* Who may run there only and has not begun will never. */
static void end_affine(trpi_cluster *c, const trpi_node_rec *node) {
    char reason[500], name[128];
    uint64_t ticket = 0, id;
    trpi_text_node(c, node->id, name, sizeof(name));
    trpi_format(reason, sizeof(reason), "it may run on %s only, which is being drained: %s", name,
                node->drain_reason);
    while ((id = trpi_queue_next(&c->waiting, &ticket, NULL)) != 0) {
        trpi_actor_rec *actor = trpi_table_get(&c->actors, id);
        if (actor->wants.only_node == node->id && !actor->wants.node_soft) {
            trpi_actor_end(c, actor, TRP_CAUSE_UNSCHEDULABLE, reason, false, 0);
        }
    }
}

static void tell_holders(trpi_cluster *c, const trpi_node_rec *node) {
    const trpi_actor_rec *actor;
    uint64_t id = 0;
    while ((actor = trpi_table_next(&node->actors, &id)) != NULL) {
        trpi_actor_push(c, actor);
    }
}

static trp_code check(const trpi_cluster *c, const trpi_msg_drain *msg, trp_error *err) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, msg->node);
    if (!node) {
        return trpi_fail(err, TRP_ENOTFOUND, "there is no node n%" PRIu64 " (any more)", msg->node);
    }
    if (!node->living) {
        return trpi_fail(err, TRP_ENODE_DIED, "node n%" PRIu64 " (%s) is dead: %s", node->id,
                         node->name, node->reason);
    }
    return strlen(msg->reason) <= TRPI_TEXT_MAX
               ? TRP_OK
               : trpi_fail(err, TRP_EINVALID, "a reason has at most %d bytes", TRPI_TEXT_MAX);
}

void trpi_drain(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_drain *msg) {
    trp_error error = {0};
    if (check(c, msg, &error) == TRP_OK) {
        trpi_node_rec *node = trpi_table_get(&c->nodes, msg->node);
        node->draining = true;
        node->drain_ns = c->now_ns + TRPI_MIN(msg->deadline_ms, TRPI_LONG_MS) * TRPI_NS_PER_MS;
        trpi_replace(&node->drain_reason, msg->reason);
        trpi_table_put(&c->drains, node->id, node);
        notify(c, node);
        close_node(c, node);
        end_affine(c, node);
        tell_holders(c, node);
    }
    trpi_post_done(c, client->peer, msg->request, &error);
}

void trpi_drain_again(trpi_cluster *c, trpi_node_rec *node) {
    if (node->draining) {
        notify(c, node);
        close_node(c, node);
    }
}

static void end_left(trpi_cluster *c, trpi_node_rec *node) {
    char reason[500], name[128];
    trpi_actor_rec *actor;
    uint64_t id = 0;
    trpi_text_node(c, node->id, name, sizeof(name));
    trpi_format(reason, sizeof(reason), "%s was drained (%s), and its deadline has passed", name,
                node->drain_reason[0] ? node->drain_reason : "no reason given");
    while ((actor = trpi_table_next(&node->actors, &id)) != NULL) {
        trpi_actor_end(c, actor, TRP_CAUSE_DRAINED, reason, true, 0);
    }
}

void trpi_drain_tick(trpi_cluster *c) {
    trpi_node_rec *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&c->drains, &id)) != NULL) {
        if (c->now_ns >= node->drain_ns) {
            trpi_table_remove(&c->drains, id);
            end_left(c, node);
        }
    }
}

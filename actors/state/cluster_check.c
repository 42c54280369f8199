/* cluster_check.c: what must hold after every step, as cluster_parts.h lists it. Asked by the
 * simulator and the tests; walks everything. What ties actors together is in cluster_check_ties.c.
 */
#include <string.h>

#include "actors/state/cluster_parts.h"

/* ---- Resources: what is used of a node is the sum of what is granted from it ---- */

static int64_t granted_by_actors(const trpi_cluster *c, const trpi_node_rec *node,
                                 uint32_t resource) {
    const trpi_actor_rec *actor;
    uint64_t id = 0;
    int64_t sum = 0;
    while ((actor = trpi_table_next(&node->actors, &id)) != NULL) {
        sum += actor->bundle < 0 ? trpi_request_amount(&actor->request, resource) : 0;
    }
    return sum;
}

static int64_t granted_to_bundles(const trpi_cluster *c, uint64_t node, uint32_t resource) {
    const trpi_group_rec *group;
    uint64_t id = 0;
    int64_t sum = 0;
    while ((group = trpi_table_next(&c->groups, &id)) != NULL) {
        for (size_t i = 0; i < group->bundle_count; i++) {
            bool here = group->seats[i].node == node;
            sum += here ? trpi_request_amount(&group->seats[i].request, resource) : 0;
        }
    }
    return sum;
}

static const char *check_node(const trpi_cluster *c, const trpi_node_rec *node) {
    const trpi_sched_node *pool = trpi_sched_node_of(&c->sched, node->id);
    if (!node->living) {
        return node->peer || pool || node->actors.count ? "a dead node has a peer, a pool or actors"
                                                        : NULL;
    }
    if (!pool || trpi_table_get(&c->node_peers, node->peer) != node) {
        return "a living node has no pool or no peer";
    }
    if (pool->closed != node->draining) {
        return "a node that is drained is not closed";
    }
    for (size_t i = 0; i < pool->pool.share_count; i++) {
        const trpi_share *share = &pool->pool.shares[i];
        int64_t used = granted_by_actors(c, node, share->resource) +
                       granted_to_bundles(c, node->id, share->resource);
        if (share->total - share->free != used) {
            return "what is used of a node is not what is granted from it";
        }
    }
    return NULL;
}

static const char *check_nodes(const trpi_cluster *c) {
    const trpi_node_rec *node;
    uint64_t id = 0, living = 0;
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        const char *broken = check_node(c, node);
        if (broken) {
            return broken;
        }
        living += node->living;
    }
    if (living != c->living_nodes || living != c->sched.nodes.count ||
        living != c->node_peers.count) {
        return "the number of living nodes is not the same everywhere";
    }
    return NULL;
}

/* ---- Actors ---- */

static const char *check_place(const trpi_cluster *c, const trpi_actor_rec *actor) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    const trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    bool queued = trpi_queue_has(&c->waiting, actor->id);
    bool in_group = group && trpi_queue_has(&group->waiting, actor->id);
    if (trpi_actor_has_process(actor) != actor->grant.held) {
        return "a grant is held exactly while there is a process";
    }
    if (trpi_actor_has_process(actor) &&
        (!node || !node->living || trpi_table_get(&node->actors, actor->id) != actor)) {
        return "an actor with a process is not known to its living node";
    }
    if (!trpi_actor_has_process(actor) &&
        (actor->node || actor->workers.count || actor->end_cause)) {
        return "an actor without process has a node, workers or an END";
    }
    if (!actor->end_cause && (actor->end_graceful || actor->end_deadline_ns)) {
        return "an END that is not under way has a deadline";
    }
    if (trpi_actor_has_process(actor) && actor->lease_ns > c->now_ns) {
        return "an exclusive actor runs before the lease of the one before is out";
    }
    if ((actor->killers.count || actor->stoppers.count) && !actor->end_cause) {
        return "someone waits for the end of an actor that nobody ends";
    }
    if (queued != (actor->place == TRPI_QUEUED) || in_group != (actor->place == TRPI_IN_GROUP)) {
        return "an actor waits in the wrong line";
    }
    bool timed = actor->place == TRPI_BACKOFF || actor->place == TRPI_STARTING ||
                 (actor->place == TRPI_RUNNING && actor->end_cause);
    if (timed != (actor->timer_ns != 0)) {
        return "an actor waits for a time without timer, or has one for nothing";
    }
    return NULL;
}

static const char *check_phase(const trpi_actor_rec *actor) {
    bool dead = actor->life.phase == TRP_ACTOR_DEAD, alive = actor->life.phase == TRP_ACTOR_ALIVE;
    if (dead != (actor->place == TRPI_NOWHERE) || alive != (actor->place == TRPI_RUNNING)) {
        return "an actor's phase and place contradict each other";
    }
    if (dead &&
        (!actor->death || !actor->death->is_final || actor->death->cause == TRP_CAUSE_NONE)) {
        return "a dead actor without a final cause";
    }
    if (dead && (actor->killers.count || actor->stoppers.count || actor->subscribers.count ||
                 actor->named || actor->has_saved)) {
        return "a dead actor keeps someone waiting, its name or its state";
    }
    return trpi_life_check(&actor->life);
}

static const char *check_owner(const trpi_cluster *c, const trpi_actor_rec *actor) {
    const trpi_client_rec *owner = trpi_table_get(&c->clients, actor->owner);
    if (actor->owner && (!owner || trpi_table_get(&owner->actors, actor->id) != actor)) {
        return "an owner does not know what it owns";
    }
    bool ends = actor->end_cause != TRP_CAUSE_NONE && !actor->end_soft;
    if (!actor->owner && !actor->detached && actor->place != TRPI_NOWHERE && !ends) {
        return "an actor lives on without its owner";
    }
    const trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    return actor->place == TRPI_NOWHERE || job ? NULL : "an actor has no job";
}

/* Nothing happens to them any more. */
static bool long_dead(const trpi_cluster *c, const trpi_actor_rec *actor) {
    return actor->place == TRPI_NOWHERE && actor->dead_number + 16 < c->last_dead;
}

static uint64_t bytes_of_jobs(const trpi_cluster *c) {
    const trpi_job_rec *job;
    uint64_t id = 0, bytes = 0;
    while ((job = trpi_table_next(&c->jobs, &id)) != NULL) {
        bytes += job->start_bytes;
    }
    return bytes;
}

static const char *check_actors(const trpi_cluster *c, uint64_t *ret_named, uint64_t *ret_subs) {
    const trpi_actor_rec *actor;
    uint64_t id = 0, living = 0, start_bytes = 0;
    while ((actor = trpi_table_next(&c->actors, &id)) != NULL) {
        if (long_dead(c, actor)) {
            continue;
        }
        const char *broken = check_place(c, actor);
        broken = broken ? broken : check_phase(actor);
        broken = broken ? broken : check_owner(c, actor);
        if (broken) {
            return broken;
        }
        living += actor->place != TRPI_NOWHERE;
        *ret_named += actor->named;
        *ret_subs += actor->subscribers.count;
        start_bytes += actor->start_bytes;
    }
    start_bytes += bytes_of_jobs(c);
    if (start_bytes != c->start_bytes) {
        return "what actors keep for their starts does not add up";
    }
    return living == c->living_actors && living + c->dead.count == c->actors.count
               ? NULL
               : "living and dead actors do not add up";
}

/* Of each shape the first in line fits nowhere, but on room that is kept for another. */
static const char *check_waiting(const trpi_cluster *c) {
    uint64_t ticket = 0, id;
    while (!c->stopping && (id = trpi_queue_next(&c->waiting, &ticket, NULL)) != 0) {
        const trpi_actor_rec *actor = trpi_table_get(&c->actors, id);
        trpi_wish wish = trpi_actor_wish(c, actor);
        if (trpi_sched_pick(&c->sched, &wish)) {
            return "an actor waits though it fits";
        }
    }
    return NULL;
}

static const char *check_waiting_in(const trpi_cluster *c, const trpi_group_rec *group) {
    uint64_t ticket = 0, id;
    while (!c->stopping && (id = trpi_queue_next(&group->waiting, &ticket, NULL)) != 0) {
        if (trpi_group_room(c, group, trpi_table_get(&c->actors, id)) >= 0) {
            return "an actor waits though its bundle has room";
        }
    }
    return NULL;
}

/* ---- Groups ---- */

static const char *check_bundle(const trpi_cluster *c, const trpi_group_rec *group, size_t i) {
    const trpi_bundle_seat *seat = &group->seats[i];
    const trpi_bundle_rec *bundle = &group->bundles[i];
    if ((seat->node != 0) != seat->grant.held ||
        seat->grant.held != (bundle->pool.shares != NULL)) {
        return "a bundle has a node, a grant or a pool, but not all of them";
    }
    const trpi_sched_node *node = trpi_sched_node_of(&c->sched, seat->node);
    if (seat->node && !node) {
        return "a bundle is on a dead node";
    }
    if (node && node->closed && bundle->users == 0) {
        return "a bundle that nobody uses stays on a node that is drained";
    }
    const char *broken = trpi_pool_check(&bundle->pool);
    if (broken) {
        return broken;
    }
    if (bundle->users == 0 && !trpi_pool_unused(&bundle->pool)) {
        return "a bundle without users is in use";
    }
    return bundle->users && !seat->node ? "a bundle that is not placed has users" : NULL;
}

static const char *check_group(const trpi_cluster *c, const trpi_group_rec *group) {
    size_t seated = 0;
    for (size_t i = 0; i < group->bundle_count; i++) {
        const char *broken = check_bundle(c, group, i);
        if (broken) {
            return broken;
        }
        seated += group->seats[i].node != 0;
    }
    bool queued = trpi_queue_has(&c->waiting_groups, group->id);
    bool lost = trpi_queue_has(&c->lost_groups, group->id);
    if (group->named == (group->removing || !group->name[0])) {
        return "a group has no name, or one too long";
    }
    if (group->removing) {
        return queued || lost || group->actors.count == 0 ? "a group does not disappear" : NULL;
    }
    if (group->phase == TRPI_GROUP_WAITING && (seated || !queued)) {
        return "a group that waits holds something, or does not stand in line";
    }
    if (group->phase == TRPI_GROUP_PLACED && (seated != group->bundle_count || queued || lost)) {
        return "a placed group does not hold everything";
    }
    if (group->phase == TRPI_GROUP_LOST && !lost) {
        return "a group has lost bundles and does not stand in line";
    }
    return group->owner || group->detached ? NULL : "a group lives on without its owner";
}

static const char *check_strict(const trpi_group_rec *group) {
    bool pack = group->strategy == TRP_STRICT_PACK, spread = group->strategy == TRP_STRICT_SPREAD;
    for (size_t i = 0; (pack || spread) && i < group->bundle_count; i++) {
        for (size_t k = 0; k < i; k++) {
            uint64_t a = group->seats[i].node, b = group->seats[k].node;
            if (a && b && ((pack && a != b) || (spread && a == b))) {
                return "a strict strategy is broken";
            }
        }
    }
    return NULL;
}

static const char *check_groups(const trpi_cluster *c) {
    const trpi_group_rec *group;
    uint64_t id = 0, bundles = 0, names = 0;
    while ((group = trpi_table_next(&c->groups, &id)) != NULL) {
        bundles += group->bundle_count;
        names += group->named;
        const char *broken = check_group(c, group);
        broken = broken ? broken : check_strict(group);
        broken = broken ? broken : trpi_queue_check(&group->waiting);
        broken = broken ? broken : check_waiting_in(c, group);
        if (broken) {
            return broken;
        }
    }
    return bundles == c->bundles && names == c->group_names.count ? NULL : "bundles do not add up";
}

/* ---- Clients ---- */

static const char *check_clients(const trpi_cluster *c, uint64_t *ret_subs) {
    const trpi_client_rec *client;
    uint64_t id = 0;
    while ((client = trpi_table_next(&c->clients, &id)) != NULL) {
        if (trpi_table_get(&c->client_peers, client->peer) != client) {
            return "a client has no peer";
        }
        const trpi_actor_rec *actor = trpi_table_get(&c->actors, client->actor);
        if (client->kind == TRPI_WORKER && (!actor || !trpi_actor_has_process(actor) ||
                                            actor->life.incarnation != client->incarnation)) {
            return "a worker client outlives its incarnation";
        }
        *ret_subs += client->subscriptions.count;
    }
    return c->clients.count == c->client_peers.count ? NULL : "clients and peers do not add up";
}

const char *trpi_cluster_check(const trpi_cluster *c) {
    uint64_t named = 0, by_actors = 0, by_clients = 0;
    const char *broken = trpi_sched_check(&c->sched);
    broken = broken ? broken : trpi_queue_check(&c->waiting);
    broken = broken ? broken : trpi_queue_check(&c->waiting_groups);
    broken = broken ? broken : trpi_queue_check(&c->lost_groups);
    broken = broken ? broken : trpi_membership_check(&c->node_members);
    broken = broken ? broken : trpi_membership_check(&c->client_members);
    broken = broken ? broken : check_nodes(c);
    broken = broken ? broken : check_actors(c, &named, &by_actors);
    broken = broken ? broken : check_groups(c);
    broken = broken ? broken : check_clients(c, &by_clients);
    broken = broken ? broken : check_waiting(c);
    broken = broken ? broken : trpi_timers_check(c);
    broken = broken ? broken : trpi_check_ties(c);
    if (!broken && (by_actors != c->subscriptions || by_clients != c->subscriptions)) {
        broken = "subscriptions are not the same on both sides";
    }
    if (!broken && named != c->names.count) {
        broken = "a name without holder, or held twice";
    }
    return broken;
}

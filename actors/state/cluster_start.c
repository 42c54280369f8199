/* cluster_start.c: actors find a place: a node, or a bundle of their group, and START goes there.
 *
 * What holds: who stands in a line fits nowhere now; who starts has taken what it asked for. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

/* Beyond the node's own deadline for a start: its word must have come by then, or it was lost. */
static uint64_t start_deadline_ns(const trpi_cluster *c, const trpi_actor_rec *actor) {
    uint64_t grace_ms = 2 * c->config.node_timeout_ms;
    uint64_t start_ms = TRPI_MIN(actor->wants.start_timeout_ms, TRPI_LONG_MS);
    return c->now_ns + (start_ms + grace_ms) * TRPI_NS_PER_MS;
}

/* ---- Lines ---- */

/* Equal bytes = equal needs: see queue.h. */
static trp_bytes shape_of(trpi_cluster *c, const trpi_actor_rec *actor) {
    const trpi_wants *wants = &actor->wants;
    const trpi_request *request = &actor->request;
    bool spread = wants->schedule == TRP_SCHEDULE_SPREAD;
    uint64_t head[] = {wants->only_node, wants->node_soft, (uint64_t)wants->bundle,
                       spread ? actor->job : 0, /* who is spread is counted by job */
                       request->count};
    size_t size = sizeof(head) + request->count * 2 * sizeof(uint64_t);
    for (size_t i = 0; i < wants->labels.count; i++) {
        size += strlen(wants->labels.items[i].text) + 1;
    }
    char *shape = trpi_keep_array(c, size, 1), *at = shape + sizeof(head);
    memcpy(shape, head, sizeof(head));
    for (size_t i = 0; i < request->count; i++, at += 2 * sizeof(uint64_t)) {
        uint64_t pair[2] = {request->amounts[i].resource, (uint64_t)request->amounts[i].amount};
        memcpy(at, pair, sizeof(pair));
    }
    for (size_t i = 0; i < wants->labels.count; i++) {
        size_t length = strlen(wants->labels.items[i].text) + 1;
        memcpy(at, wants->labels.items[i].text, length);
        at += length;
    }
    return (trp_bytes){shape, size};
}

static void stand_in_line(trpi_cluster *c, trpi_actor_rec *actor, trpi_queue *line,
                          trpi_place_kind place) {
    actor->place = place;
    actor->waiting_ns = c->now_ns;
    trpi_queue_push(line, actor->id, shape_of(c, actor));
}

void trpi_actor_leave_line(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_timer_clear(c, actor);
    if (actor->place == TRPI_QUEUED) {
        trpi_queue_remove(&c->waiting, actor->id);
        trpi_turn_end(c, trpi_turn_of_actor(actor->id));
    } else if (actor->place == TRPI_IN_GROUP) {
        trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
        trpi_queue_remove(&group->waiting, actor->id);
    }
}

/* ---- Finding a place ---- */

trpi_wish trpi_actor_wish(const trpi_cluster *c, const trpi_actor_rec *actor) {
    const trpi_wants *wants = &actor->wants;
    const trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    return (trpi_wish){
        .request = &actor->request,
        .only = wants->node_soft ? 0 : wants->only_node,
        .prefer = wants->node_soft ? wants->only_node : 0,
        .avoid = actor->life.restarts ? actor->last_node : 0,
        .labels = wants->labels.count ? &wants->labels : NULL,
        .crowds = wants->schedule == TRP_SCHEDULE_SPREAD && job ? &job->spread : NULL,
        .who = trpi_turn_of_actor(actor->id),
    };
}

/* It may run on one node only, and that will never take it. */
static bool is_hopeless(trpi_cluster *c, const trpi_actor_rec *actor, const trpi_wish *wish,
                        char *out, size_t size) {
    char why[300], name[128];
    const trpi_sched_node *only = trpi_sched_node_of(&c->sched, wish->only);
    if (!wish->only || (only && trpi_sched_could_fit(only, wish))) {
        return false;
    }
    trpi_text_node(c, wish->only, name, sizeof(name));
    if (only) {
        (void)trpi_sched_explain(&c->sched, wish, &c->resource_names, why, sizeof(why));
        trpi_format(out, size, "it may run on %s only: %s", name, why);
    } else {
        const char *how = trpi_table_get(&c->nodes, wish->only) ? "is dead" : "does not exist";
        trpi_format(out, size, "it may run on %s only, which %s", name, how);
    }
    return true;
}

static void seek_node(trpi_cluster *c, trpi_actor_rec *actor) {
    char reason[500];
    trpi_wish wish = trpi_actor_wish(c, actor);
    if (is_hopeless(c, actor, &wish, reason, sizeof(reason))) {
        trpi_actor_end(c, actor, TRP_CAUSE_UNSCHEDULABLE, reason, false, 0);
        return;
    }
    trpi_sched_node *room = c->stopping ? NULL : trpi_sched_pick(&c->sched, &wish);
    if (room) {
        trpi_actor_start(c, actor, trpi_table_get(&c->nodes, room->id), -1);
    } else {
        stand_in_line(c, actor, &c->waiting, TRPI_QUEUED);
    }
}

static void seek_bundle(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    if (group->removing) {
        trpi_actor_end(c, actor, TRP_CAUSE_GROUP_REMOVED, "its placement group was removed", false,
                       0);
        return;
    }
    int64_t room = c->stopping ? -1 : trpi_group_room(c, group, actor);
    if (room >= 0) {
        uint64_t node = group->seats[room].node;
        trpi_actor_start(c, actor, trpi_table_get(&c->nodes, node), room);
    } else {
        stand_in_line(c, actor, &group->waiting, TRPI_IN_GROUP);
    }
}

void trpi_actor_seek(trpi_cluster *c, trpi_actor_rec *actor) {
    const trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    if (gang && gang->restarting) {
        actor->place = TRPI_GATHERING; /* with the others, when the last of them is gone */
    } else if (c->now_ns < actor->lease_ns) {
        actor->place = TRPI_BACKOFF; /* the one before may still run */
        trpi_timer_set(c, actor, actor->lease_ns);
    } else if (actor->group) {
        seek_bundle(c, actor);
    } else {
        seek_node(c, actor);
    }
}

/* After nodes gained room: of each shape the first in line, and the next when that one has gone. */
void trpi_actors_place(trpi_cluster *c) {
    uint64_t ticket = 0, id;
    while ((id = trpi_queue_next(&c->waiting, &ticket, NULL)) != 0) {
        trpi_actor_rec *actor = trpi_table_get(&c->actors, id);
        trpi_wish wish = trpi_actor_wish(c, actor);
        wish.fresh = true;
        trpi_sched_node *room = trpi_sched_pick(&c->sched, &wish);
        if (room) {
            trpi_actor_leave_line(c, actor);
            trpi_actor_start(c, actor, trpi_table_get(&c->nodes, room->id), -1);
        }
    }
}

/* ---- Starting ---- */

static void count_spread(trpi_cluster *c, const trpi_actor_rec *actor, bool more) {
    trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    uintptr_t count = (uintptr_t)trpi_table_get(&job->spread, actor->node);
    count = more ? count + 1 : count - 1;
    if (count) {
        trpi_table_put(&job->spread, actor->node, (void *)count);
    } else {
        trpi_table_remove(&job->spread, actor->node);
    }
}

static void take_grant(trpi_cluster *c, trpi_actor_rec *actor, trpi_node_rec *node,
                       int64_t bundle) {
    bool taken;
    if (bundle >= 0) {
        trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
        trpi_bundle_rec *from = &group->bundles[bundle];
        taken = trpi_pool_take(&from->pool, &actor->request, &actor->grant);
        from->users++;
    } else {
        taken = trpi_sched_take(&c->sched, trpi_sched_node_of(&c->sched, node->id), &actor->request,
                                &actor->grant);
    }
    TRP_ASSERT(taken); /* whoever chose the place has seen that it fits */
    actor->bundle = bundle;
    actor->node = node->id;
    trpi_table_put(&node->actors, actor->id, actor);
    count_spread(c, actor, true);
}

void trpi_actor_leave_node(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    if (!actor->node) {
        return;
    }
    if (node) {
        trpi_table_remove(&node->actors, actor->id);
    }
    count_spread(c, actor, false);
    actor->last_node = actor->node;
    actor->node = 0;
    actor->pid = 0;
    trpi_replace(&actor->endpoint, "");
    trpi_replace(&actor->remote_endpoint, "");
}

static trpi_text *keep_devices(trpi_cluster *c, const trpi_actor_rec *actor,
                               const trpi_node_rec *node) {
    trpi_text *devices = trpi_keep_array(c, actor->grant.part_count, sizeof(trpi_text));
    for (size_t i = 0; i < actor->grant.part_count; i++) {
        devices[i].value = trpi_keep(c, node->devices[actor->grant.parts[i].device]);
    }
    return devices;
}

static trpi_text *keep_env(trpi_cluster *c, const trpi_actor_rec *actor, const trpi_job_rec *job,
                           size_t *ret_count) {
    size_t most = job->env.count + actor->wants.env.count;
    trpi_text *env = trpi_keep_array(c, most, sizeof(trpi_text));
    *ret_count = trpi_env_merge(&job->env, &actor->wants.env, env);
    for (size_t i = 0; i < *ret_count; i++) {
        env[i].value = trpi_keep(c, env[i].value);
    }
    return env;
}

static int64_t restarts_left(const trpi_cluster *c, const trpi_actor_rec *actor) {
    const trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    bool together = gang && gang->policy == TRP_GANG_RESTART;
    return gang && !together ? 0 : trpi_life_left(together ? &gang->life : &actor->life, c->now_ns);
}

static void post_start(trpi_cluster *c, const trpi_actor_rec *actor, const trpi_node_rec *node) {
    const trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    const trpi_wants *wants = &actor->wants;
    trpi_msg_start start = {
        .actor = actor->id,
        .incarnation = actor->life.incarnation,
        .restarts = (uint64_t)actor->life.restarts,
        .type = trpi_keep(c, actor->type),
        .name = trpi_keep(c, actor->name),
        .exe = trpi_keep(c, job->exe),
        .cwd = trpi_keep(c, wants->cwd[0] ? wants->cwd : job->cwd),
        .needs_cwd = wants->cwd[0] != '\0',
        .job = trpi_keep(c, job->name),
        .namespace_name = trpi_keep(c, job->namespace_name),
        .owner_job = actor->job,
        .cpus = trpi_request_amount(&actor->request, TRPI_CPU),
        .start_timeout_ms = wants->start_timeout_ms,
        .args = trpi_keep_bytes(c, wants->args),
        .exe_hash = trpi_keep(c, job->exe_hash),
        .package = trpi_keep(c, wants->cwd[0] ? "" : job->package),
        .max_concurrency = wants->max_concurrency,
        .liveness_ms = wants->liveness_ms,
        .exclusive = wants->exclusive,
        .save_each_call = wants->save_each_call,
        .has_saved = actor->has_saved,
        .saved = trpi_keep_bytes(c, actor->saved),
        .restartable = restarts_left(c, actor),
    };
    start.devices = keep_devices(c, actor, node);
    start.devices_count = actor->grant.part_count;
    start.env = keep_env(c, actor, job, &start.env_count);
    trpi_post(c, node->peer, TRPI_MSG_START)->start = start;
}

void trpi_actor_start(trpi_cluster *c, trpi_actor_rec *actor, trpi_node_rec *node, int64_t bundle) {
    take_grant(c, actor, node, bundle);
    actor->place = TRPI_STARTING;
    trpi_timer_set(c, actor, start_deadline_ns(c, actor));
    post_start(c, actor, node);
}

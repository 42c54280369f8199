/* cluster_groups.c: placement groups: placed all at once, shared out to actors, lost with nodes,
 * removed.
 *
 *             (1)               (2)            (3) a node of it died, or is drained
 *   create --------> WAITING ---------> PLACED ----------------------> LOST
 *                                         ^              (2)            |
 *                                         +----------------------------+
 *   any of them --(4) removing--> gone, when its last actor is
 *
 * (1) trpi_group_create  (2) placed  (3) lose  (4) trpi_group_end
 *
 * What holds: WAITING holds nothing. PLACED holds every bundle. LOST holds the bundles whose nodes
 * live; their actors run on. A bundle's pool exists exactly while it is placed; it goes back to its
 * node when no actor has a grant from it and the group is removing or the node is being drained.
 * LOST groups are placed before WAITING ones, these in their order, and both before actors that
 * wait outside of groups. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

void trpi_group_free(trpi_group_rec *group) {
    for (size_t i = 0; i < group->bundle_count; i++) {
        trpi_request_release(&group->seats[i].request);
        trpi_grant_drop(&group->seats[i].grant);
        trpi_pool_release(&group->bundles[i].pool);
    }
    free(group->name);
    free(group->seats);
    free(group->bundles);
    free(group->removers.items);
    trpi_table_release(&group->actors);
    trpi_table_release(&group->watchers);
    trpi_queue_release(&group->waiting);
    free(group);
}

/* ---- Telling ---- */

trpi_verdict trpi_group_explain(const trpi_cluster *c, const trpi_group_rec *group, char *out,
                                size_t size) {
    char why[400];
    trpi_verdict verdict =
        trpi_place_explain(&c->sched, group->strategy, group->seats, group->bundle_count,
                           &c->resource_names, why, sizeof(why));
    trpi_format(out, size, "%s: %s", verdict == TRPI_INFEASIBLE ? "infeasible" : "busy", why);
    return verdict;
}

static trpi_msg_group_state state_of(trpi_cluster *c, const trpi_group_rec *group) {
    trpi_msg_group_state state = {.group = group->id, .message = ""};
    char why[400];
    state.placed = group->phase == TRPI_GROUP_PLACED;
    if (!state.placed) {
        state.infeasible = trpi_group_explain(c, group, why, sizeof(why)) == TRPI_INFEASIBLE;
        state.message = trpi_keep(c, why);
        return state;
    }
    state.nodes = trpi_keep_array(c, group->bundle_count, sizeof(trpi_node_ref));
    state.nodes_count = group->bundle_count;
    for (size_t i = 0; i < group->bundle_count; i++) {
        state.nodes[i].node = group->seats[i].node;
    }
    return state;
}

static void push_state(trpi_cluster *c, const trpi_group_rec *group,
                       const trpi_msg_group_state *state) {
    const trpi_client_rec *client;
    uint64_t id = 0;
    while ((client = trpi_table_next(&group->watchers, &id)) != NULL) {
        trpi_post(c, client->peer, TRPI_MSG_GROUP_STATE)->group_state = *state;
    }
}

static void push(trpi_cluster *c, const trpi_group_rec *group) {
    if (group->watchers.count) {
        trpi_msg_group_state state = state_of(c, group);
        push_state(c, group, &state);
    }
}

static void answer_error(trpi_cluster *c, const trpi_client_rec *client, uint64_t request,
                         uint64_t group, const trp_error *error) {
    const char *message = trpi_keep(c, error->message);
    trpi_msg *msg = trpi_post(c, client->peer, TRPI_MSG_GROUP_STATE);
    msg->group_state.request = request;
    msg->group_state.group = group;
    msg->group_state.code = error->code;
    msg->group_state.message = message;
}

static void watch(trpi_client_rec *client, trpi_group_rec *group) {
    trpi_table_put(&group->watchers, client->id, client);
    trpi_table_put(&client->watches, group->id, group);
}

/* ---- Placing ---- */

static void stir(trpi_cluster *c, trpi_group_rec *group) {
    if (trpi_queue_count(&group->waiting)) {
        trpi_table_put(&c->stirred, group->id, group);
    }
}

/* All bundles have their seats: those that are new get their pools. */
static void placed(trpi_cluster *c, trpi_group_rec *group) {
    for (size_t i = 0; i < group->bundle_count; i++) {
        trpi_bundle_rec *bundle = &group->bundles[i];
        if (!bundle->pool.shares) {
            trpi_pool_init_from_grant(&bundle->pool, &group->seats[i].request,
                                      &group->seats[i].grant);
        }
    }
    group->phase = TRPI_GROUP_PLACED;
    push(c, group);
    stir(c, group);
}

static bool try_place(trpi_cluster *c, trpi_group_rec *group) {
    return !c->stopping && trpi_place(&c->sched, group->strategy, group->seats, group->bundle_count,
                                      trpi_turn_of_group(group->id));
}

/* Equal bytes = equal needs: see queue.h. */
static trp_bytes shape_of(trpi_cluster *c, const trpi_group_rec *group) {
    size_t count = 1, at = 0;
    for (size_t i = 0; i < group->bundle_count; i++) {
        count += 1 + 2 * group->seats[i].request.count;
    }
    uint64_t *words = trpi_keep_array(c, count, sizeof(uint64_t));
    words[at++] = group->strategy;
    for (size_t i = 0; i < group->bundle_count; i++) {
        const trpi_request *request = &group->seats[i].request;
        words[at++] = request->count;
        for (size_t k = 0; k < request->count; k++) {
            words[at++] = request->amounts[k].resource;
            words[at++] = (uint64_t)request->amounts[k].amount;
        }
    }
    return (trp_bytes){words, count * sizeof(uint64_t)};
}

static void stand_in_line(trpi_cluster *c, trpi_group_rec *group, trpi_queue *queue,
                          trp_bytes shape) {
    group->waiting_ns = c->now_ns;
    trpi_queue_push(queue, group->id, shape);
}

static void leave_line(trpi_cluster *c, trpi_group_rec *group) {
    trpi_queue_remove(&c->waiting_groups, group->id);
    trpi_queue_remove(&c->lost_groups, group->id);
    trpi_table_remove(&c->mourning, group->id);
    trpi_turn_end(c, trpi_turn_of_group(group->id));
}

static void place_line(trpi_cluster *c, const trpi_queue *queue) {
    uint64_t ticket = 0, id;
    while ((id = trpi_queue_next(queue, &ticket, NULL)) != 0) {
        trpi_group_rec *group = trpi_table_get(&c->groups, id);
        if (try_place(c, group)) {
            leave_line(c, group);
            placed(c, group);
        }
    }
}

/* Those that have lost bundles and find no room for them at once tell that they are not placed. */
static void mourn(trpi_cluster *c) {
    const trpi_group_rec *group;
    uint64_t id = 0;
    while ((group = trpi_table_next(&c->mourning, &id)) != NULL) {
        push(c, group);
    }
    trpi_table_release(&c->mourning);
}

void trpi_groups_place(trpi_cluster *c) {
    place_line(c, &c->lost_groups);
    mourn(c);
    place_line(c, &c->waiting_groups);
}

/* ---- Create, watch, remove ---- */

static trp_code check_create(const trpi_cluster *c, const trpi_client_rec *client,
                             const trpi_msg_group_create *msg, trp_error *err) {
    if (client->kind == TRPI_TOOL || c->stopping) {
        return trpi_fail(err, c->stopping ? TRP_EUNAVAILABLE : TRP_EINVALID, "%s",
                         c->stopping ? "the cluster is stopping"
                                     : "only drivers and actors create placement groups");
    }
    const trpi_job_rec *job = trpi_table_get(&c->jobs, client->job);
    const trpi_group_rec *holder = trpi_group_named(c, job->namespace_name, msg->name);
    if (holder) {
        return trpi_fail(err, TRP_EEXISTS,
                         "name \"%s\" is held by group g%" PRIu64 " in namespace %s", msg->name,
                         holder->id, job->namespace_name);
    }
    if (msg->strategy > TRP_STRICT_SPREAD || strlen(msg->name) > TRPI_TEXT_MAX) {
        return trpi_fail(err, TRP_EINVALID, "strategy %" PRIu64 " is none, or the name is too long",
                         msg->strategy);
    }
    if (msg->bundles_count == 0 || msg->bundles_count > TRPI_BUNDLES_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%zu bundles: a group has 1 to %d", msg->bundles_count,
                         TRPI_BUNDLES_MAX);
    }
    if (c->groups.count >= c->config.groups_max ||
        msg->bundles_count > c->config.bundles_max - c->bundles) {
        return trpi_fail(err, TRP_EBUSY,
                         "the cluster has %zu placement groups with %" PRIu64
                         " bundles; its limits are %" PRIu64 " and %" PRIu64,
                         c->groups.count, c->bundles, c->config.groups_max, c->config.bundles_max);
    }
    return TRP_OK;
}

static trp_code parse_bundles(trpi_cluster *c, const trpi_msg_group_create *msg,
                              trpi_group_rec *group, trp_error *err) {
    group->bundle_count = msg->bundles_count;
    group->seats = trpi_alloc(msg->bundles_count * sizeof(trpi_bundle_seat));
    group->bundles = trpi_alloc(msg->bundles_count * sizeof(trpi_bundle_rec));
    for (size_t i = 0; i < msg->bundles_count; i++) {
        const trpi_bundle *bundle = &msg->bundles[i];
        trpi_request *request = &group->seats[i].request;
        trp_code code = trpi_request_parse(&c->resource_names, bundle->resources,
                                           bundle->resources_count, request, err);
        if (code == TRP_OK && request->count == 0) {
            code = trpi_fail(err, TRP_EINVALID, "it asks for nothing");
        }
        if (code != TRP_OK) {
            return trpi_context(err, code, "bundle %zu", i);
        }
    }
    return TRP_OK;
}

static void add_group(trpi_cluster *c, trpi_client_rec *client, trpi_group_rec *group,
                      const trpi_msg_group_create *msg) {
    group->id = ++c->last_group;
    group->job = client->job;
    group->name = trpi_strdup(msg->name);
    group->strategy = (trp_strategy)msg->strategy;
    group->detached = msg->detached;
    trpi_table_put(&c->groups, group->id, group);
    c->bundles += group->bundle_count;
    if (!group->detached) {
        group->owner = client->id;
        trpi_table_put(&client->groups, group->id, group);
    }
    trpi_job_rec *job = trpi_table_get(&c->jobs, group->job);
    job->groups++;
    trpi_group_name_take(c, group);
}

void trpi_group_create(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_create *msg) {
    trpi_group_rec *group = trpi_alloc(sizeof(*group));
    trp_error error;
    trp_code code = check_create(c, client, msg, &error);
    if (code == TRP_OK) {
        code = parse_bundles(c, msg, group, &error);
    }
    if (code != TRP_OK) {
        (void)trpi_context(&error, code, "placement group");
        answer_error(c, client, msg->request, 0, &error);
        trpi_group_free(group);
        return;
    }
    add_group(c, client, group, msg);
    if (try_place(c, group)) {
        placed(c, group);
    } else {
        stand_in_line(c, group, &c->waiting_groups, shape_of(c, group));
    }
    trpi_msg_group_state state = state_of(c, group);
    state.request = msg->request;
    trpi_post(c, client->peer, TRPI_MSG_GROUP_STATE)->group_state = state;
    watch(client, group);
}

static trpi_group_rec *find(trpi_cluster *c, uint64_t id, trp_error *err) {
    trpi_group_rec *group = trpi_table_get(&c->groups, id);
    if (!group || group->removing) {
        (void)trpi_fail(err, TRP_ENOTFOUND, "there is no placement group g%" PRIu64 " (any more)",
                        id);
        return NULL;
    }
    return group;
}

void trpi_group_watch(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_watch *msg) {
    trp_error error;
    trpi_group_rec *group = find(c, msg->group, &error);
    if (!group) {
        answer_error(c, client, msg->request, msg->group, &error);
        return;
    }
    trpi_msg_group_state state = state_of(c, group);
    state.request = msg->request;
    trpi_post(c, client->peer, TRPI_MSG_GROUP_STATE)->group_state = state;
    watch(client, group);
}

void trpi_group_lookup(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_lookup *msg) {
    const trpi_job_rec *job = trpi_table_get(&c->jobs, client->job);
    const char *space = job ? job->namespace_name : "";
    trpi_group_rec *group = job ? trpi_group_named(c, space, msg->name) : NULL;
    trp_error error;
    if (!group) {
        (void)trpi_fail(&error, TRP_ENOTFOUND,
                        "no placement group is named \"%.200s\" in namespace %s", msg->name, space);
        answer_error(c, client, msg->request, 0, &error);
        return;
    }
    trpi_msg_group_state state = state_of(c, group);
    state.request = msg->request;
    trpi_post(c, client->peer, TRPI_MSG_GROUP_STATE)->group_state = state;
    watch(client, group);
}

/* Gives a bundle back to its node once nobody has a part of it. */
static void release_bundle(trpi_cluster *c, trpi_group_rec *group, size_t i) {
    trpi_bundle_seat *seat = &group->seats[i];
    if (!seat->node || group->bundles[i].users) {
        return;
    }
    trpi_sched_give(&c->sched, trpi_sched_node_of(&c->sched, seat->node), &seat->request,
                    &seat->grant);
    trpi_pool_release(&group->bundles[i].pool);
    seat->node = 0;
}

static void disappear(trpi_cluster *c, trpi_group_rec *group) {
    trpi_client_rec *client;
    uint64_t id = 0;
    while ((client = trpi_table_next(&group->watchers, &id)) != NULL) {
        trpi_table_remove(&client->watches, group->id);
    }
    trpi_client_rec *owner = trpi_table_get(&c->clients, group->owner);
    if (owner) {
        trpi_table_remove(&owner->groups, group->id);
    }
    trpi_job_rec *job = trpi_table_get(&c->jobs, group->job);
    job->groups--;
    trpi_answer_all(c, &group->removers, NULL);
    trpi_table_remove(&c->stirred, group->id);
    trpi_table_remove(&c->groups, group->id);
    c->bundles -= group->bundle_count;
    trpi_group_free(group);
}

static void end_actors(trpi_cluster *c, trpi_group_rec *group, trp_cause cause,
                       const char *reason) {
    trpi_actor_rec *actor;
    uint64_t id = 0;
    group->pinned = true; /* or the last that ends would free it under this walk */
    while ((actor = trpi_table_next(&group->actors, &id)) != NULL) {
        trpi_actor_end(c, actor, cause, reason, false, 0);
    }
    group->pinned = false;
}

void trpi_group_end(trpi_cluster *c, trpi_group_rec *group, trp_cause cause, const char *reason) {
    if (group->removing) {
        return;
    }
    char text[64];
    trpi_msg_group_state gone = {.group = group->id, .code = TRP_ENOTFOUND};
    group->removing = true;
    leave_line(c, group);
    trpi_group_name_drop(c, group);
    trpi_format(text, sizeof(text), "placement group g%" PRIu64 " was removed", group->id);
    gone.message = trpi_keep(c, text);
    push_state(c, group, &gone);
    for (size_t i = 0; i < group->bundle_count; i++) {
        release_bundle(c, group, i);
    }
    end_actors(c, group, cause, reason);
    if (group->actors.count == 0) {
        disappear(c, group);
    }
}

void trpi_group_remove(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_remove *msg) {
    trp_error error;
    trpi_group_rec *group = trpi_table_get(&c->groups, msg->group);
    if (!group) {
        (void)find(c, msg->group, &error);
        trpi_post_done(c, client->peer, msg->request, &error);
        return;
    }
    char who[400], reason[500];
    trpi_ask(&group->removers, client->id, msg->request);
    trpi_text_client(c, client, who, sizeof(who));
    trpi_format(reason, sizeof(reason), "placement group g%" PRIu64 " was removed by %s", group->id,
                who);
    trpi_group_end(c, group, TRP_CAUSE_GROUP_REMOVED, reason);
}

/* It has lost a bundle. */
static void lose(trpi_cluster *c, trpi_group_rec *group) {
    if (group->removing) {
        return;
    }
    trpi_table_put(&c->mourning, group->id, group);
    if (group->phase == TRPI_GROUP_PLACED) {
        group->phase = TRPI_GROUP_LOST;
        /* Its shape depends on its survivors, so it stands in a line of its own. */
        uint64_t own[1] = {group->id};
        stand_in_line(c, group, &c->lost_groups, (trp_bytes){own, sizeof(own)});
    }
}

/* ---- Actors in bundles ---- */

static bool has_room(const trpi_cluster *c, const trpi_group_rec *group, size_t i,
                     const trpi_actor_rec *actor) {
    const trpi_sched_node *node = trpi_sched_node_of(&c->sched, group->seats[i].node);
    return node && !node->closed && trpi_pool_fits(&group->bundles[i].pool, &actor->request);
}

int64_t trpi_group_room(const trpi_cluster *c, const trpi_group_rec *group,
                        const trpi_actor_rec *actor) {
    int64_t asked = actor->wants.bundle;
    if (asked >= 0) {
        return has_room(c, group, (size_t)asked, actor) ? asked : -1;
    }
    for (size_t i = 0; i < group->bundle_count; i++) {
        if (has_room(c, group, i, actor)) {
            return (int64_t)i;
        }
    }
    return -1;
}

void trpi_group_left(trpi_cluster *c, trpi_group_rec *group, trpi_actor_rec *actor,
                     int64_t bundle) {
    if (bundle >= 0) {
        const trpi_sched_node *node = trpi_sched_node_of(&c->sched, group->seats[bundle].node);
        if (group->removing) {
            release_bundle(c, group, (size_t)bundle);
        } else if (node->closed && !group->bundles[bundle].users) {
            release_bundle(c, group, (size_t)bundle);
            lose(c, group);
        } else {
            stir(c, group);
        }
        return;
    }
    trpi_table_remove(&group->actors, actor->id);
    if (group->removing && !group->pinned && group->actors.count == 0) {
        disappear(c, group);
    }
}

static void place_actors(trpi_cluster *c, trpi_group_rec *group) {
    uint64_t ticket = 0, id;
    while ((id = trpi_queue_next(&group->waiting, &ticket, NULL)) != 0) {
        trpi_actor_rec *actor = trpi_table_get(&c->actors, id);
        int64_t room = trpi_group_room(c, group, actor);
        if (room >= 0) {
            trpi_actor_leave_line(c, actor);
            trpi_actor_start(c, actor, trpi_table_get(&c->nodes, group->seats[room].node), room);
        }
    }
}

void trpi_groups_place_actors(trpi_cluster *c) {
    trpi_group_rec *group;
    uint64_t id = 0;
    while ((group = trpi_table_next(&c->stirred, &id)) != NULL) {
        place_actors(c, group);
    }
    trpi_table_release(&c->stirred);
}

/* ---- Nodes that die or are drained ---- */

/* The actors on it have dropped their grants already. */
void trpi_groups_node_dead(trpi_cluster *c, uint64_t node) {
    trpi_group_rec *group;
    uint64_t id = 0;
    while ((group = trpi_table_next(&c->groups, &id)) != NULL) {
        bool lost = false;
        for (size_t i = 0; i < group->bundle_count; i++) {
            if (group->seats[i].node == node) {
                trpi_grant_drop(&group->seats[i].grant);
                trpi_pool_release(&group->bundles[i].pool);
                group->seats[i].node = 0;
                lost = true;
            }
        }
        if (lost) {
            lose(c, group);
        }
    }
}

void trpi_groups_node_drain(trpi_cluster *c, uint64_t node) {
    trpi_group_rec *group;
    uint64_t id = 0;
    while ((group = trpi_table_next(&c->groups, &id)) != NULL) {
        bool lost = false;
        for (size_t i = 0; i < group->bundle_count; i++) {
            if (group->seats[i].node == node && !group->bundles[i].users) {
                release_bundle(c, group, i);
                lost = true;
            }
        }
        if (lost) {
            lose(c, group);
        }
    }
}

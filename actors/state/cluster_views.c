/* cluster_views.c: what is known, as rows for display. Reads only. */
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

bool trpi_cluster_next_node(const trpi_cluster *c, uint64_t *id, trpi_node_view *ret_view) {
    const trpi_node_rec *node = trpi_table_next(&c->nodes, id);
    if (!node) {
        return false;
    }
    const trpi_member *member = trpi_table_get(&c->node_members.members, node->id);
    *ret_view = (trpi_node_view){
        .id = node->id,
        .incarnation = node->incarnation,
        .living = node->living,
        .expected = node->expected,
        .name = node->name,
        .host = node->host,
        .host_id = node->host_id,
        .uuid = node->uuid,
        .reason = node->reason,
        .pid = node->pid,
        .heard_ns = member ? member->heard_ns : 0,
        .since_ns = node->since_ns,
        .actors = node->actors.count,
        .draining = node->draining,
        .drain_reason = node->drain_reason,
        .drain_left_ms = node->draining ? trpi_drain_left_ms(c, node) : 0,
        .store_path = node->store_path,
        .stats = node->stats_ns ? &node->stats : NULL,
        .stats_ns = node->stats_ns,
        .labels = (const char *const *)node->label_texts.items,
        .label_count = node->label_texts.count,
    };
    return true;
}

/* Of what bundles have taken from a node: how much, and how much of that their actors use. */
static void add_bundles(const trpi_cluster *c, uint64_t node, uint32_t resource,
                        trpi_resource_view *view) {
    const trpi_group_rec *group;
    uint64_t id = 0;
    while ((group = trpi_table_next(&c->groups, &id)) != NULL) {
        for (size_t i = 0; i < group->bundle_count; i++) {
            if (group->seats[i].node && (!node || group->seats[i].node == node)) {
                const trpi_pool *pool = &group->bundles[i].pool;
                int64_t total = trpi_pool_total(pool, resource);
                view->reserved += total;
                view->reserved_used += total - trpi_pool_free(pool, resource);
            }
        }
    }
}

static void add_pool(const trpi_pool *pool, uint32_t resource, trpi_resource_view *view) {
    int64_t total = trpi_pool_total(pool, resource);
    view->total += total;
    view->used += total - trpi_pool_free(pool, resource);
}

static void add_pools(const trpi_cluster *c, uint64_t node, uint32_t resource,
                      trpi_resource_view *view) {
    const trpi_sched_node *of = trpi_sched_node_of(&c->sched, node);
    uint64_t id = 0;
    if (node) {
        add_pool(&of->pool, resource, view);
        return;
    }
    while ((of = trpi_table_next(&c->sched.nodes, &id)) != NULL) {
        add_pool(&of->pool, resource, view);
    }
}

bool trpi_cluster_resource_at(const trpi_cluster *c, uint64_t node, size_t position,
                              trpi_resource_view *ret_view) {
    size_t seen = 0;
    if (node && !trpi_sched_node_of(&c->sched, node)) {
        return false;
    }
    for (uint32_t resource = 0; resource < c->resource_names.count; resource++) {
        trpi_resource_view view = {.name = trpi_resource_name(&c->resource_names, resource)};
        add_pools(c, node, resource, &view);
        if (view.total && seen++ == position) {
            add_bundles(c, node, resource, &view);
            *ret_view = view;
            return true;
        }
    }
    return false;
}

static void text_devices(const trpi_cluster *c, const trpi_actor_rec *actor, char *out,
                         size_t size) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    trpi_format(out, size, "%s", "");
    for (size_t i = 0; node && i < actor->grant.part_count; i++) {
        size_t used = strlen(out);
        trpi_format(out + used, size - used, "%s%s", i ? "," : "",
                    node->devices[actor->grant.parts[i].device]);
    }
}

static uint64_t owning_actor(const trpi_cluster *c, uint64_t client) {
    const trpi_client_rec *owner = trpi_table_get(&c->clients, client);
    return owner ? owner->actor : 0;
}

static void fill_actor(const trpi_cluster *c, const trpi_actor_rec *actor, trpi_actor_view *view) {
    const trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    const trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    *view = (trpi_actor_view){
        .id = actor->id,
        .incarnation = actor->life.incarnation,
        .job = actor->job,
        .node = actor->node ? actor->node : actor->last_node,
        .group = actor->group,
        .gang = actor->gang,
        .owner = owning_actor(c, actor->owner),
        .phase = actor->life.phase,
        .type = actor->type,
        .name = actor->name,
        .namespace_name = job ? job->namespace_name : "",
        .detached = actor->detached,
        .exclusive = actor->wants.exclusive,
        .draining = node && node->draining,
        .pid = actor->pid,
        .restarts = actor->life.restarts,
        .restarts_max = actor->life.rules.restarts_max,
        .restarts_counted = actor->life.counted,
        .links = actor->links.count,
        .saved_bytes = actor->saved.size,
        .bundle = actor->bundle,
        .death = actor->death,
        .since_ns = actor->since_ns,
    };
    trpi_request_text(&actor->request, &c->resource_names, view->resources,
                      sizeof(view->resources));
    trpi_label_rules_text(&actor->wants.labels, view->labels, sizeof(view->labels));
    text_devices(c, actor, view->devices, sizeof(view->devices));
    trpi_text_waiting(c, actor, view->waiting_for, sizeof(view->waiting_for));
}

bool trpi_cluster_next_actor(const trpi_cluster *c, uint64_t *id, trpi_actor_view *ret_view) {
    const trpi_actor_rec *actor = trpi_table_next(&c->actors, id);
    if (actor) {
        fill_actor(c, actor, ret_view);
    }
    return actor != NULL;
}

bool trpi_cluster_actor(const trpi_cluster *c, uint64_t id, trpi_actor_view *ret_view) {
    const trpi_actor_rec *actor = trpi_table_get(&c->actors, id);
    if (actor) {
        fill_actor(c, actor, ret_view);
    }
    return actor != NULL;
}

bool trpi_cluster_next_group(const trpi_cluster *c, uint64_t *id, trpi_group_view *ret_view) {
    const trpi_group_rec *group = trpi_table_next(&c->groups, id);
    if (!group) {
        return false;
    }
    *ret_view = (trpi_group_view){
        .id = group->id,
        .owner = owning_actor(c, group->owner),
        .job = group->job,
        .name = group->name,
        .strategy = trpi_strategy_name(group->strategy),
        .placed = group->phase == TRPI_GROUP_PLACED,
        .detached = group->detached,
        .removing = group->removing,
        .bundle_count = group->bundle_count,
    };
    if (!ret_view->placed && !group->removing) {
        (void)trpi_group_explain(c, group, ret_view->waiting_for, sizeof(ret_view->waiting_for));
    }
    return true;
}

uint64_t trpi_cluster_bundle_node(const trpi_cluster *c, uint64_t group_id, size_t bundle,
                                  char *resources, size_t size) {
    const trpi_group_rec *group = trpi_table_get(&c->groups, group_id);
    if (!group || bundle >= group->bundle_count) {
        return 0;
    }
    trpi_request_text(&group->seats[bundle].request, &c->resource_names, resources, size);
    return group->seats[bundle].node;
}

bool trpi_cluster_next_gang(const trpi_cluster *c, uint64_t *id, trpi_gang_view *ret_view) {
    const trpi_gang_rec *gang = trpi_table_next(&c->gangs, id);
    const trpi_actor_rec *actor;
    uint64_t member = 0;
    if (!gang) {
        return false;
    }
    *ret_view = (trpi_gang_view){
        .id = gang->id,
        .owner = owning_actor(c, gang->owner),
        .job = gang->job,
        .name = gang->name,
        .policy = gang->policy == TRP_GANG_END ? "END" : "RESTART",
        .reason = gang->reason,
        .detached = gang->detached,
        .restarting = gang->restarting,
        .over = gang->over,
        .restarts = gang->life.restarts,
        .restarts_max = gang->life.rules.restarts_max,
        .members = gang->members.count,
    };
    while ((actor = trpi_table_next(&gang->members, &member)) != NULL) {
        ret_view->running += actor->place == TRPI_RUNNING;
    }
    return true;
}

bool trpi_cluster_next_job(const trpi_cluster *c, uint64_t *id, trpi_job_view *ret_view) {
    const trpi_job_rec *job = trpi_table_next(&c->jobs, id);
    if (!job) {
        return false;
    }
    *ret_view = (trpi_job_view){
        .id = job->id,
        .client = job->client,
        .name = job->name,
        .namespace_name = job->namespace_name,
        .exe = job->exe,
        .exit_code = job->exit_code,
        .signal = job->signal,
        .reason = job->state == TRPI_JOB_PENDING ? "waits: no node lives that would take it"
                                                 : job->reason,
        .pid = job->pid,
        .running = job->state == TRPI_JOB_PENDING || job->state == TRPI_JOB_RUNNING,
        .state = job->state,
        .submitted = job->submitted,
        .stopping = job->stopping,
        .node = job->ran_on,
        .argv = (const char *const *)job->argv.items,
        .argv_count = job->argv.count,
        .started_ns = job->started_ns,
        .ended_ns = job->ended_ns,
        .actors = job->actors,
    };
    return true;
}

static void demand_of_group(const trpi_cluster *c, uint64_t id, trpi_demand_view *view) {
    const trpi_group_rec *group = trpi_table_get(&c->groups, id);
    char first[128];
    trpi_request_text(&group->seats[0].request, &c->resource_names, first, sizeof(first));
    trpi_format(view->resources, sizeof(view->resources), "%s of %zu bundles, the first %s",
                trpi_strategy_name(group->strategy), group->bundle_count, first);
    view->infeasible =
        trpi_group_explain(c, group, view->why, sizeof(view->why)) == TRPI_INFEASIBLE;
}

static void demand_of_actor(const trpi_cluster *c, uint64_t id, trpi_demand_view *view) {
    const trpi_actor_rec *actor = trpi_table_get(&c->actors, id);
    trpi_wish wish = trpi_actor_wish(c, actor);
    trpi_request_text(&actor->request, &c->resource_names, view->resources,
                      sizeof(view->resources));
    trpi_label_rules_text(&actor->wants.labels, view->labels, sizeof(view->labels));
    view->infeasible = trpi_sched_explain(&c->sched, &wish, &c->resource_names, view->why,
                                          sizeof(view->why)) == TRPI_INFEASIBLE;
}

/* Groups that have lost bundles come behind those that wait, under tickets of their own. */
#define LOST ((uint64_t)1 << 63)

static uint64_t next_line(const trpi_cluster *c, bool groups, uint64_t *ticket, size_t *length) {
    if (!groups) {
        return trpi_queue_next(&c->waiting, ticket, length);
    }
    uint64_t id = *ticket & LOST ? 0 : trpi_queue_next(&c->waiting_groups, ticket, length);
    if (id == 0) {
        uint64_t lost = *ticket & LOST ? *ticket & ~LOST : 0;
        id = trpi_queue_next(&c->lost_groups, &lost, length);
        *ticket = lost | LOST;
    }
    return id;
}

bool trpi_cluster_next_demand(const trpi_cluster *c, bool groups, uint64_t *ticket,
                              trpi_demand_view *ret_view) {
    size_t length = 0;
    uint64_t id = next_line(c, groups, ticket, &length);
    if (!id) {
        return false;
    }
    *ret_view = (trpi_demand_view){.count = length, .first = id, .is_group = groups};
    if (groups) {
        demand_of_group(c, id, ret_view);
    } else {
        demand_of_actor(c, id, ret_view);
    }
    return true;
}

const trpi_death *trpi_cluster_recent_death(const trpi_cluster *c, size_t position,
                                            uint64_t *ret_actor, uint64_t *ret_when_ns) {
    if (position >= TRPI_RECENT_DEATHS || position >= c->recent_count) {
        return NULL;
    }
    const trpi_recent_death *death =
        &c->recent[(c->recent_count - 1 - position) % TRPI_RECENT_DEATHS];
    *ret_actor = death->actor;
    *ret_when_ns = death->when_ns;
    return &death->death;
}

void trpi_cluster_count_phases(const trpi_cluster *c, uint64_t ret_counts[4]) {
    const trpi_actor_rec *actor;
    uint64_t id = 0;
    memset(ret_counts, 0, 4 * sizeof(uint64_t));
    while ((actor = trpi_table_next(&c->actors, &id)) != NULL) {
        ret_counts[actor->life.phase]++;
    }
}

trpi_cluster_counts trpi_cluster_get_counts(const trpi_cluster *c) {
    trpi_cluster_counts counts = {
        .steps = c->steps,
        .stale = c->stale,
        .tilts = c->node_members.tilts,
        .clients = c->clients.count,
        .subscriptions = c->subscriptions,
        .kv_entries = c->kv.count,
        .kv_bytes = c->kv_bytes,
        .start_bytes = c->start_bytes,
        .saved_bytes = c->saved_bytes,
        .links = c->links / 2,
        .turns = c->turns.items.count,
    };
    const trpi_node_rec *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        counts.memory_kills += node->living && node->stats_ns ? node->stats.memory_kills : 0;
    }
    return counts;
}

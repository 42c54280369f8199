/* cluster.c: the order of a step, and what all files of the machine need.
 *
 * A step: (1) what was waiting for its time, (2) the event, (3) what dies because others died, (4)
 * whatever now fits somewhere is placed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

trpi_cluster_config trpi_cluster_config_default(void) {
    return (trpi_cluster_config){
        .cluster = "",
        .version = TROUPE_VERSION,
        .host_id = "",
        .address = "",
        .seed = 1,
        .heartbeat_ms = 500,
        .node_timeout_ms = 5000,
        .client_timeout_ms = 10000,
        .tick_ms = 50,
        .end_repeat_ms = 2000,
        .start_timeout_ms = 30000,
        .restart_backoff_ms = 100,
        .restart_backoff_max_ms = 10000,
        .restart_forget_ms = 10000,
        .reserve_after_ms = 5000,
        .actors_max = 100000,
        .dead_actors_kept = 10000,
        .dead_tails_kept = 256,
        .nodes_max = 10000,
        .dead_nodes_kept = 1000,
        .clients_max = 100000,
        .jobs_kept = 1000,
        .groups_max = 100000,
        .subscriptions_max = 4000000,
        .kv_entries_max = 100000,
        .kv_bytes_max = (uint64_t)64 << 20,
        .start_bytes_max = (uint64_t)1 << 30,
        .bundles_max = 1000000,
        .gangs_max = 100000,
        .links_max = 1000000,
        .jobs_max = 10000,
        .saved_bytes_max = (uint64_t)1 << 30,
    };
}

trpi_cluster *trpi_cluster_new(const trpi_cluster_config *config) {
    trpi_cluster *c = trpi_alloc(sizeof(*c));
    c->config = *config;
    c->id = trpi_strdup(config->cluster);
    c->version = trpi_strdup(config->version);
    c->host_id = trpi_strdup(config->host_id);
    c->address = trpi_strdup(config->address);
    c->random = config->seed;
    uint64_t late_ns = config->node_timeout_ms * TRPI_NS_PER_MS / 4;
    trpi_membership_init(&c->node_members, config->node_timeout_ms * TRPI_NS_PER_MS, late_ns);
    trpi_membership_init(&c->client_members, config->client_timeout_ms * TRPI_NS_PER_MS, late_ns);
    trpi_resource_names_init(&c->resource_names);
    return c;
}

/* Frees the records of a table, then the table. */
static void release_records(trpi_table *table, void (*free_one)(void *record)) {
    void *record;
    uint64_t id = 0;
    while ((record = trpi_table_next(table, &id)) != NULL) {
        free_one(record);
    }
    trpi_table_release(table);
}

static void free_node(void *record) {
    trpi_node_free(record);
}
static void free_client(void *record) {
    trpi_client_free(record);
}
static void free_job(void *record) {
    trpi_job_free(record);
}
static void free_actor(void *record) {
    trpi_actor_free(record);
}
static void free_group(void *record) {
    trpi_group_free(record);
}
static void free_gang(void *record) {
    trpi_gang_free(record);
}

static void release_recent(trpi_cluster *c) {
    for (size_t i = 0; i < TRPI_RECENT_DEATHS; i++) {
        free((char *)c->recent[i].death.message);
    }
}

void trpi_cluster_free(trpi_cluster *c) {
    if (!c) {
        return;
    }
    trpi_turns_release(c);
    release_records(&c->groups, free_group);
    release_records(&c->gangs, free_gang);
    release_records(&c->actors, free_actor);
    release_records(&c->clients, free_client);
    release_records(&c->jobs, free_job);
    release_records(&c->nodes, free_node);
    trpi_table *tables[] = {&c->node_peers, &c->client_peers, &c->dead,      &c->stirred,
                            &c->mourning,   &c->doomed,       &c->gangs_due, &c->pending_jobs,
                            &c->drains,     &c->stopping_jobs};
    for (size_t i = 0; i < TRPI_COUNTOF(tables); i++) {
        trpi_table_release(tables[i]);
    }
    trpi_index_release(&c->uuids);
    trpi_index_release(&c->names);
    trpi_index_release(&c->group_names);
    trpi_queue_release(&c->waiting);
    trpi_queue_release(&c->waiting_groups);
    trpi_queue_release(&c->lost_groups);
    trpi_membership_release(&c->node_members);
    trpi_membership_release(&c->client_members);
    trpi_sched_release(&c->sched);
    trpi_resource_names_release(&c->resource_names);
    trpi_kv_release(c);
    release_recent(c);
    free(c->timers.items);
    free(c->gone);
    free(c->id);
    free(c->version);
    free(c->host_id);
    free(c->address);
    free(c);
}

/* ---- Actions ---- */

void trpi_actions_release(trpi_actions *actions) {
    free(actions->items);
    trpi_arena_release(&actions->arena);
    *actions = (trpi_actions){0};
}

trpi_cluster_action *trpi_act(trpi_cluster *c, trpi_cluster_action_kind kind) {
    trpi_actions *out = c->out;
    if (out->count == out->capacity) {
        out->capacity = TRPI_MAX(2 * out->capacity, (size_t)16);
        out->items = trpi_realloc(out->items, out->capacity * sizeof(*out->items));
    }
    trpi_cluster_action *action = &out->items[out->count++];
    memset(action, 0, sizeof(*action));
    action->kind = kind;
    return action;
}

trpi_msg *trpi_post(trpi_cluster *c, uint64_t peer, trpi_msg_type type) {
    trpi_cluster_action *action = trpi_act(c, TRPI_ACTION_SEND);
    action->peer = peer;
    action->msg.type = type;
    return &action->msg;
}

void *trpi_keep_array(trpi_cluster *c, size_t count, size_t size) {
    void *array = trpi_arena_alloc(&c->out->arena, TRPI_MAX(count * size, (size_t)1));
    TRP_ASSERT(array); /* no limit is set: memory is out, and the head cannot go on half-told */
    return array;
}

const char *trpi_keep(trpi_cluster *c, const char *text) {
    size_t size = text ? strlen(text) : 0;
    char *copy = trpi_keep_array(c, size + 1, 1);
    if (size) {
        memcpy(copy, text, size);
    }
    return copy;
}

trp_bytes trpi_keep_bytes(trpi_cluster *c, trp_bytes bytes) {
    void *copy = trpi_keep_array(c, bytes.size, 1);
    if (bytes.size) {
        memcpy(copy, bytes.data, bytes.size);
    }
    return (trp_bytes){copy, bytes.size};
}

trpi_text *trpi_keep_texts(trpi_cluster *c, const trpi_texts *texts) {
    trpi_text *list = trpi_keep_array(c, texts->count, sizeof(trpi_text));
    for (size_t i = 0; i < texts->count; i++) {
        list[i].value = trpi_keep(c, texts->items[i]);
    }
    return list;
}

trp_bytes trpi_copy_bytes(trp_bytes bytes) {
    void *copy = bytes.size ? trpi_alloc(bytes.size) : NULL;
    if (bytes.size) {
        memcpy(copy, bytes.data, bytes.size);
    }
    return (trp_bytes){copy, bytes.size};
}

void trpi_post_done(trpi_cluster *c, uint64_t peer, uint64_t request, const trp_error *error) {
    const char *message = error && error->code ? trpi_keep(c, error->message) : "";
    trpi_msg *msg = trpi_post(c, peer, TRPI_MSG_DONE);
    msg->done.request = request;
    msg->done.code = error ? error->code : TRP_OK;
    msg->done.message = message;
}

void trpi_ask(trpi_askers *askers, uint64_t client, uint64_t request) {
    askers->items = trpi_realloc(askers->items, (askers->count + 1) * sizeof(trpi_asker));
    askers->items[askers->count++] = (trpi_asker){client, request};
}

void trpi_answer_all(trpi_cluster *c, trpi_askers *askers, const trp_error *error) {
    for (size_t i = 0; i < askers->count; i++) {
        const trpi_client_rec *client = trpi_table_get(&c->clients, askers->items[i].client);
        if (client) {
            trpi_post_done(c, client->peer, askers->items[i].request, error);
        }
    }
    free(askers->items);
    *askers = (trpi_askers){0};
}

void trpi_replace(char **text, const char *value) {
    char *copy = trpi_strdup(value);
    free(*text);
    *text = copy;
}

uint64_t trpi_cluster_wake_ns(const trpi_cluster *c) {
    const trpi_actor_rec *first = trpi_timers_first(c);
    return first ? TRPI_MIN(first->timer_ns, c->next_tick_ns) : c->next_tick_ns;
}

/* ---- Steps ---- */

static void tick(trpi_cluster *c) {
    c->next_tick_ns = c->now_ns + c->config.tick_ms * TRPI_NS_PER_MS;
    trpi_nodes_tick(c);
    trpi_clients_tick(c);
    trpi_drain_tick(c);
    trpi_jobs_tick(c);
    trpi_turns_tick(c);
    trpi_stores_tell(c);
}

static void node_gone(trpi_cluster *c, const trpi_cluster_event *event) {
    trpi_node_rec *node = trpi_table_get(&c->nodes, event->id);
    if (node && node->living && node->incarnation == event->incarnation) {
        trpi_node_dead(c, node, TRPI_NODE_LOST, event->reason);
    }
}

static void client_gone(trpi_cluster *c, const trpi_cluster_event *event) {
    trpi_client_rec *client = trpi_table_get(&c->clients, event->id);
    if (client) {
        trpi_client_end(c, client, false, event->reason);
    }
}

/* Deaths that follow from deaths, until there are no more. */
static void settle_ties(trpi_cluster *c) {
    while (trpi_links_kill(c) || trpi_gangs_tell(c)) {
    }
}

/* Who gets its place may have had room kept free elsewhere, which is others' now. */
static void place_what_waits(trpi_cluster *c) {
    while (!c->stopping && c->sched.fresh.count) {
        c->turns.released = false;
        trpi_groups_place(c);
        trpi_actors_place(c);
        if (!c->turns.released) {
            trpi_sched_settle(&c->sched);
        }
    }
    if (!c->stopping) {
        trpi_groups_place_actors(c);
    }
}

static void stop_when_empty(trpi_cluster *c) {
    if (c->stopping && !c->stopped && c->living_nodes == 0) {
        c->stopped = true;
        (void)trpi_act(c, TRPI_ACTION_STOPPED);
    }
}

void trpi_cluster_step(trpi_cluster *c, const trpi_cluster_event *event, trpi_actions *actions) {
    TRP_ASSERT(event->now_ns > 0);
    actions->count = 0;
    trpi_arena_reset(&actions->arena);
    c->out = actions;
    c->now_ns = TRPI_MAX(c->now_ns, event->now_ns);
    c->steps++;
    trpi_timers_run(c);
    switch (event->kind) {
    case TRPI_EVENT_MESSAGE:
        trpi_door_message(c, event->peer, event->msg);
        break;
    case TRPI_EVENT_TICK:
        tick(c);
        break;
    case TRPI_EVENT_NODE_GONE:
        node_gone(c, event);
        break;
    case TRPI_EVENT_CLIENT_GONE:
        client_gone(c, event);
        break;
    case TRPI_EVENT_SHUTDOWN:
        trpi_nodes_shutdown(c, event->reason);
        break;
    }
    settle_ties(c);
    place_what_waits(c);
    stop_when_empty(c);
    c->out = NULL;
}

bool trpi_cluster_is_stopping(const trpi_cluster *c) {
    return c->stopping;
}

bool trpi_cluster_knows(const trpi_cluster *c, uint64_t peer) {
    return trpi_table_get(&c->node_peers, peer) || trpi_table_get(&c->client_peers, peer);
}

#include "actors/proc/head_list.h"

#include <string.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/times.h"
#include "core/state/resources.h"

static const char *const whats[] = {"status", "nodes", "actors", "groups", "gangs", "jobs", "runs"};

/* ---- Pieces. A value that memory was lacking for is left out: json_object_set_new() takes NULL
 * and does nothing. ---- */

static void set_text(json_t *row, const char *key, const char *text) {
    json_object_set_new(row, key, trpi_json_of_text(text));
}

static void set_number(json_t *row, const char *key, int64_t number) {
    json_object_set_new(row, key, json_integer((json_int_t)number));
}

static void set_bool(json_t *row, const char *key, bool value) {
    json_object_set_new(row, key, json_boolean(value));
}

static void set_seconds(json_t *row, const char *key, uint64_t since_ns, uint64_t now_ns) {
    uint64_t ms = now_ns > since_ns ? (now_ns - since_ns) / TRPI_NS_PER_MS : 0;
    json_object_set_new(row, key, json_real((double)ms / 1000.0));
}

static json_t *amount(int64_t fixed) {
    bool whole = fixed % TRPI_ONE == 0;
    return whole ? json_integer((json_int_t)(fixed / TRPI_ONE))
                 : json_real((double)fixed / TRPI_ONE);
}

static void set_lower(json_t *row, const char *key, const char *text) {
    char lower[32];
    TRPI_SET(lower, text);
    for (char *at = lower; *at; at++) {
        *at = (char)(*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at);
    }
    set_text(row, key, lower);
}

static const char *cause_name(uint64_t cause) {
    static const char *const names[] = {
#define X(name, text) #name,
        TRP_CAUSE_MAP(X)
#undef X
    };
    return cause < TRPI_COUNTOF(names) ? names[cause] : "?";
}

static const char *phase_name(trp_actor_phase phase) {
    static const char *const names[] = {"pending", "alive", "restarting", "dead"};
    return (unsigned)phase < TRPI_COUNTOF(names) ? names[phase] : "?";
}

/* ---- Rows ---- */

static void set_node_resources(const trpi_cluster *cluster, json_t *row, uint64_t node) {
    json_t *total = json_object(), *used = json_object(), *reserved = json_object();
    trpi_resource_view view;
    for (size_t i = 0; trpi_cluster_resource_at(cluster, node, i, &view); i++) {
        json_object_set_new(total, view.name, amount(view.total));
        json_object_set_new(used, view.name, amount(view.used));
        json_object_set_new(reserved, view.name, amount(view.reserved));
    }
    json_object_set_new(row, "total", total);
    json_object_set_new(row, "used", used);
    json_object_set_new(row, "reserved", reserved);
}

/* What the node last said of itself; null before it said anything. */
static json_t *stats_row(const trpi_msg_node_stats *stats, uint64_t when_ns, uint64_t now_ns) {
    if (!stats) {
        return json_null();
    }
    json_t *row = json_object();
    set_number(row, "memory_total", (int64_t)stats->memory_total);
    set_number(row, "memory_used", (int64_t)stats->memory_used);
    set_number(row, "store_capacity", (int64_t)stats->store_capacity);
    set_number(row, "store_used", (int64_t)stats->store_used);
    set_number(row, "store_objects", (int64_t)stats->store_objects);
    set_number(row, "workers", (int64_t)stats->workers);
    set_number(row, "workers_idle", (int64_t)stats->workers_idle);
    set_number(row, "memory_kills", (int64_t)stats->memory_kills);
    set_seconds(row, "age_s", when_ns, now_ns);
    return row;
}

static json_t *labels_of(const trpi_node_view *view) {
    json_t *labels = json_array();
    for (size_t i = 0; i < view->label_count; i++) {
        json_array_append_new(labels, trpi_json_of_text(view->labels[i]));
    }
    return labels;
}

static json_t *node_row(const trpi_cluster *cluster, const trpi_node_view *view, uint64_t now_ns) {
    json_t *row = json_object();
    set_number(row, "id", (int64_t)view->id);
    set_text(row, "state", !view->living ? "dead" : view->draining ? "draining" : "alive");
    set_number(row, "incarnation", (int64_t)view->incarnation);
    set_text(row, "name", view->name);
    set_text(row, "host", view->host);
    set_text(row, "host_id", view->host_id);
    set_text(row, "uuid", view->uuid);
    set_number(row, "pid", view->pid);
    set_number(row, "actors", (int64_t)view->actors);
    set_seconds(row, "age_s", view->since_ns, now_ns);
    set_seconds(row, "heard_s", view->heard_ns, now_ns);
    set_bool(row, "expected", view->expected);
    set_text(row, "reason", view->reason);
    set_bool(row, "draining", view->draining);
    if (view->draining) {
        set_text(row, "drain_reason", view->drain_reason);
        json_object_set_new(row, "drain_left_s", json_real((double)view->drain_left_ms / 1000.0));
    }
    json_object_set_new(row, "labels", labels_of(view));
    json_object_set_new(row, "stats", stats_row(view->stats, view->stats_ns, now_ns));
    if (view->living) {
        set_node_resources(cluster, row, view->id);
    } else {
        json_object_set_new(row, "total", json_object());
        json_object_set_new(row, "used", json_object());
        json_object_set_new(row, "reserved", json_object());
    }
    return row;
}

static json_t *list_nodes(const trpi_cluster *cluster, uint64_t now_ns) {
    json_t *rows = json_array();
    trpi_node_view view;
    uint64_t id = 0;
    while (trpi_cluster_next_node(cluster, &id, &view)) {
        json_array_append_new(rows, node_row(cluster, &view, now_ns));
    }
    return rows;
}

static json_t *death_row(const trpi_death *death) {
    if (!death) {
        return json_null();
    }
    json_t *row = json_object();
    set_number(row, "incarnation", (int64_t)death->incarnation);
    set_number(row, "node", (int64_t)death->node);
    set_number(row, "pid", death->pid);
    set_lower(row, "cause", cause_name(death->cause));
    set_number(row, "signal", death->signal);
    set_number(row, "exit_code", death->exit_code);
    set_bool(row, "final", death->is_final);
    set_text(row, "message", death->message);
    set_text(row, "core", death->core);
    set_text(row, "stderr", death->stderr_tail);
    return row;
}

static json_t *actor_row(const trpi_actor_view *view, uint64_t now_ns) {
    json_t *row = json_object();
    set_number(row, "id", (int64_t)view->id);
    set_text(row, "state", phase_name(view->phase));
    set_text(row, "type", view->type);
    set_text(row, "name", view->name);
    set_text(row, "namespace", view->namespace_name);
    set_number(row, "job", (int64_t)view->job);
    set_number(row, "owner", (int64_t)view->owner);
    set_bool(row, "detached", view->detached);
    set_number(row, "node", (int64_t)view->node);
    set_number(row, "pid", view->pid);
    set_number(row, "incarnation", (int64_t)view->incarnation);
    set_number(row, "restarts", view->restarts);
    set_number(row, "restarts_counted", view->restarts_counted);
    set_number(row, "restarts_max", view->restarts_max);
    set_number(row, "gang", (int64_t)view->gang);
    set_number(row, "group", (int64_t)view->group);
    set_number(row, "bundle", view->bundle);
    set_text(row, "resources", view->resources);
    set_text(row, "devices", view->devices);
    set_text(row, "labels", view->labels);
    set_bool(row, "exclusive", view->exclusive);
    set_bool(row, "draining", view->draining);
    set_number(row, "links", (int64_t)view->links);
    set_number(row, "saved_bytes", (int64_t)view->saved_bytes);
    set_text(row, "waiting_for", view->waiting_for);
    set_seconds(row, "age_s", view->since_ns, now_ns);
    json_object_set_new(row, "death", death_row(view->death));
    return row;
}

static json_t *list_actors(const trpi_cluster *cluster, uint64_t now_ns) {
    json_t *rows = json_array();
    trpi_actor_view view;
    uint64_t id = 0;
    while (trpi_cluster_next_actor(cluster, &id, &view)) {
        json_array_append_new(rows, actor_row(&view, now_ns));
    }
    return rows;
}

static json_t *group_row(const trpi_cluster *cluster, const trpi_group_view *view) {
    json_t *row = json_object(), *bundles = json_array();
    set_number(row, "id", (int64_t)view->id);
    set_text(row, "name", view->name);
    set_text(row, "state", view->removing ? "removing" : view->placed ? "placed" : "pending");
    set_text(row, "strategy", view->strategy);
    set_number(row, "job", (int64_t)view->job);
    set_number(row, "owner", (int64_t)view->owner);
    set_bool(row, "detached", view->detached);
    set_text(row, "waiting_for", view->waiting_for);
    for (size_t i = 0; i < view->bundle_count; i++) {
        char resources[192] = "";
        json_t *bundle = json_object();
        uint64_t node =
            trpi_cluster_bundle_node(cluster, view->id, i, resources, sizeof(resources));
        set_number(bundle, "node", (int64_t)node);
        set_text(bundle, "resources", resources);
        json_array_append_new(bundles, bundle);
    }
    json_object_set_new(row, "bundles", bundles);
    return row;
}

static json_t *list_groups(const trpi_cluster *cluster, uint64_t now_ns) {
    json_t *rows = json_array();
    trpi_group_view view;
    uint64_t id = 0;
    while (trpi_cluster_next_group(cluster, &id, &view)) {
        json_array_append_new(rows, group_row(cluster, &view));
    }
    return rows;
}

static json_t *gang_row(const trpi_gang_view *view) {
    json_t *row = json_object();
    set_number(row, "id", (int64_t)view->id);
    set_text(row, "name", view->name);
    set_text(row, "state", view->over ? "over" : view->restarting ? "restarting" : "running");
    set_lower(row, "policy", view->policy);
    set_number(row, "members", (int64_t)view->members);
    set_number(row, "running", (int64_t)view->running);
    set_number(row, "restarts", view->restarts);
    set_number(row, "restarts_max", view->restarts_max);
    set_number(row, "job", (int64_t)view->job);
    set_number(row, "owner", (int64_t)view->owner);
    set_bool(row, "detached", view->detached);
    set_text(row, "reason", view->reason);
    return row;
}

static json_t *list_gangs(const trpi_cluster *cluster, uint64_t now_ns) {
    json_t *rows = json_array();
    trpi_gang_view view;
    uint64_t id = 0;
    while (trpi_cluster_next_gang(cluster, &id, &view)) {
        json_array_append_new(rows, gang_row(&view));
    }
    return rows;
}

/* What only a submitted job has. */
static void set_submission(json_t *row, const trpi_job_view *view, uint64_t now_ns) {
    if (!view->submitted) {
        return;
    }
    json_t *argv = json_array();
    for (size_t i = 0; i < view->argv_count; i++) {
        json_array_append_new(argv, trpi_json_of_text(view->argv[i]));
    }
    json_object_set_new(row, "argv", argv);
    set_number(row, "node", (int64_t)view->node);
    set_number(row, "exit_code", view->exit_code);
    set_number(row, "signal", view->signal);
    set_seconds(row, "duration_s", view->started_ns, view->running ? now_ns : view->ended_ns);
}

static json_t *job_row(const trpi_job_view *view, uint64_t now_ns) {
    json_t *row = json_object();
    set_number(row, "id", (int64_t)view->id);
    set_text(row, "name", view->name);
    set_text(row, "state", trpi_job_state_name(view->state));
    set_bool(row, "submitted", view->submitted);
    set_bool(row, "stopping", view->stopping);
    set_submission(row, view, now_ns);
    set_text(row, "namespace", view->namespace_name);
    set_text(row, "exe", view->exe);
    set_number(row, "pid", view->pid);
    set_number(row, "actors", (int64_t)view->actors);
    set_seconds(row, "age_s", view->started_ns, now_ns);
    set_seconds(row, "ended_s", view->running ? now_ns : view->ended_ns, now_ns);
    set_text(row, "reason", view->reason);
    return row;
}

static json_t *list_jobs(const trpi_cluster *cluster, uint64_t now_ns) {
    json_t *rows = json_array();
    trpi_job_view view;
    uint64_t id = 0;
    while (trpi_cluster_next_job(cluster, &id, &view)) {
        json_array_append_new(rows, job_row(&view, now_ns));
    }
    return rows;
}

/* A trainer that was killed could not write down how its run ended. */
static void mark_lost(const trpi_cluster *cluster, json_t *row) {
    const json_t *trainer = json_object_get(row, "trainer");
    trpi_actor_view view;
    if (json_is_integer(trainer) && json_is_false(json_object_get(row, "ended")) &&
        (!trpi_cluster_actor(cluster, (uint64_t)json_integer_value(trainer), &view) ||
         view.phase == TRP_ACTOR_DEAD)) {
        set_text(row, "state", "LOST");
    }
}

/* Values are the trainer's; one that is not a JSON object is not ours to show. */
static json_t *list_runs(const trpi_cluster *cluster, uint64_t now_ns) {
    static const char prefix[] = "run/";
    json_t *rows = json_array();
    trp_bytes value;
    const char *key = trpi_cluster_kv_next(cluster, prefix, false, &value);
    while (key && strncmp(key, prefix, sizeof(prefix) - 1) == 0) {
        json_t *row = NULL;
        if (trpi_json_parse(value.data, value.size, key, &row, NULL) == TRP_OK &&
            json_is_object(row)) {
            set_text(row, "key", key);
            mark_lost(cluster, row);
            json_array_append(rows, row);
        }
        json_decref(row);
        key = trpi_cluster_kv_next(cluster, key, true, &value);
    }
    return rows;
}

/* ---- Status ---- */

static json_t *all_resources(const trpi_cluster *cluster) {
    json_t *resources = json_object();
    trpi_resource_view view;
    for (size_t i = 0; trpi_cluster_resource_at(cluster, 0, i, &view); i++) {
        json_t *row = json_object();
        json_object_set_new(row, "total", amount(view.total));
        json_object_set_new(row, "used", amount(view.used));
        json_object_set_new(row, "reserved", amount(view.reserved));
        json_object_set_new(row, "reserved_used", amount(view.reserved_used));
        json_object_set_new(resources, view.name, row);
    }
    return resources;
}

static json_t *actor_counts(const trpi_cluster *cluster) {
    uint64_t counts[4];
    json_t *row = json_object();
    trpi_cluster_count_phases(cluster, counts);
    for (int phase = TRP_ACTOR_PENDING; phase <= TRP_ACTOR_DEAD; phase++) {
        set_number(row, phase_name((trp_actor_phase)phase), (int64_t)counts[phase]);
    }
    return row;
}

static void add_demand(const trpi_cluster *cluster, bool groups, json_t *rows) {
    trpi_demand_view view;
    uint64_t ticket = 0;
    while (trpi_cluster_next_demand(cluster, groups, &ticket, &view)) {
        json_t *row = json_object();
        set_number(row, "count", (int64_t)view.count);
        set_text(row, "what", groups ? "groups" : "actors");
        set_number(row, "first", (int64_t)view.first);
        set_text(row, "resources", view.resources);
        set_text(row, "labels", view.labels);
        set_bool(row, "infeasible", view.infeasible);
        set_text(row, "why", view.why);
        json_array_append_new(rows, row);
    }
}

static json_t *recent_deaths(const trpi_cluster *cluster, uint64_t now_ns) {
    json_t *rows = json_array();
    const trpi_death *death;
    uint64_t actor = 0, when_ns = 0;
    for (size_t i = 0; (death = trpi_cluster_recent_death(cluster, i, &actor, &when_ns)); i++) {
        json_t *row = json_object();
        trpi_actor_view view;
        set_number(row, "actor", (int64_t)actor);
        if (trpi_cluster_actor(cluster, actor, &view)) {
            set_text(row, "what", view.name[0] ? view.name : view.type);
        }
        set_seconds(row, "age_s", when_ns, now_ns);
        set_number(row, "node", (int64_t)death->node);
        set_lower(row, "cause", cause_name(death->cause));
        set_bool(row, "final", death->is_final);
        set_text(row, "message", death->message);
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *counts_row(const trpi_cluster *cluster, const trpi_head_facts *facts) {
    trpi_cluster_counts counts = trpi_cluster_get_counts(cluster);
    json_t *row = json_object();
    set_number(row, "steps", (int64_t)counts.steps);
    set_number(row, "stale", (int64_t)counts.stale);
    set_number(row, "tilts", (int64_t)counts.tilts);
    set_number(row, "clients", (int64_t)counts.clients);
    set_number(row, "subscriptions", (int64_t)counts.subscriptions);
    set_number(row, "kv_entries", (int64_t)counts.kv_entries);
    set_number(row, "kv_bytes", (int64_t)counts.kv_bytes);
    set_number(row, "saved_bytes", (int64_t)counts.saved_bytes);
    set_number(row, "links", (int64_t)counts.links);
    set_number(row, "turns", (int64_t)counts.turns);
    set_number(row, "memory_kills", (int64_t)counts.memory_kills);
    set_number(row, "bad_packets", (int64_t)facts->bad_packets);
    return row;
}

/* Those that run: what has ended is history, and `troupe list jobs` has it. */
static json_t *running_jobs(const trpi_cluster *cluster, uint64_t now_ns) {
    json_t *rows = json_array();
    trpi_job_view view;
    uint64_t id = 0;
    while (trpi_cluster_next_job(cluster, &id, &view)) {
        if (view.running) {
            json_array_append_new(rows, job_row(&view, now_ns));
        }
    }
    return rows;
}

static json_t *status(const trpi_cluster *cluster, const trpi_head_facts *facts) {
    json_t *row = json_object(), *demand = json_array();
    set_text(row, "cluster", facts->cluster_id);
    set_text(row, "version", TROUPE_VERSION);
    set_text(row, "address", facts->address);
    set_number(row, "pid", getpid());
    set_seconds(row, "uptime_s", facts->started_ns, facts->now_ns);
    set_bool(row, "stopping", trpi_cluster_is_stopping(cluster));
    json_object_set_new(row, "nodes", list_nodes(cluster, facts->now_ns));
    json_object_set_new(row, "resources", all_resources(cluster));
    json_object_set_new(row, "actors", actor_counts(cluster));
    add_demand(cluster, true, demand);
    add_demand(cluster, false, demand);
    json_object_set_new(row, "demand", demand);
    json_object_set_new(row, "deaths", recent_deaths(cluster, facts->now_ns));
    json_object_set_new(row, "jobs", running_jobs(cluster, facts->now_ns));
    json_object_set_new(row, "runs", list_runs(cluster, facts->now_ns));
    json_object_set_new(row, "counts", counts_row(cluster, facts));
    return row;
}

/* ---- One row ---- */

static json_t *node_alone(const trpi_cluster *cluster, uint64_t id, uint64_t now_ns) {
    trpi_node_view view;
    uint64_t at = id - 1;
    bool found = trpi_cluster_next_node(cluster, &at, &view) && view.id == id;
    return found ? node_row(cluster, &view, now_ns) : NULL;
}

static json_t *actor_alone(const trpi_cluster *cluster, uint64_t id, uint64_t now_ns) {
    trpi_actor_view view;
    return trpi_cluster_actor(cluster, id, &view) ? actor_row(&view, now_ns) : NULL;
}

static json_t *group_alone(const trpi_cluster *cluster, uint64_t id, uint64_t now_ns) {
    trpi_group_view view;
    uint64_t at = id - 1;
    bool found = trpi_cluster_next_group(cluster, &at, &view) && view.id == id;
    return found ? group_row(cluster, &view) : NULL;
}

static json_t *gang_alone(const trpi_cluster *cluster, uint64_t id, uint64_t now_ns) {
    trpi_gang_view view;
    uint64_t at = id - 1;
    bool found = trpi_cluster_next_gang(cluster, &at, &view) && view.id == id;
    return found ? gang_row(&view) : NULL;
}

static json_t *job_alone(const trpi_cluster *cluster, uint64_t id, uint64_t now_ns) {
    trpi_job_view view;
    uint64_t at = id - 1;
    bool found = trpi_cluster_next_job(cluster, &at, &view) && view.id == id;
    return found ? job_row(&view, now_ns) : NULL;
}

typedef struct listing {
    const char *what;
    json_t *(*all)(const trpi_cluster *cluster, uint64_t now_ns);
    json_t *(*alone)(const trpi_cluster *cluster, uint64_t id, uint64_t now_ns); /* NULL: no ids */
} listing;

static const listing listings[] = {
    {"nodes", list_nodes, node_alone},    {"actors", list_actors, actor_alone},
    {"groups", list_groups, group_alone}, {"gangs", list_gangs, gang_alone},
    {"jobs", list_jobs, job_alone},       {"runs", list_runs, NULL},
};

/* "actors", or "actors/7": that one, or no row. Who follows one asks often, and of a large cluster.
 */
static json_t *rows_of(const trpi_cluster *cluster, const trpi_head_facts *facts,
                       const char *what) {
    const char *slash = strchr(what, '/');
    size_t size = slash ? (size_t)(slash - what) : strlen(what);
    for (size_t i = 0; i < TRPI_COUNTOF(listings); i++) {
        const listing *found = &listings[i];
        uint64_t id;
        if (strlen(found->what) != size || memcmp(found->what, what, size) != 0) {
            continue;
        }
        if (!slash) {
            return found->all(cluster, facts->now_ns);
        }
        if (!found->alone || !trpi_parse_u64(slash + 1, UINT64_MAX, &id) || id == 0) {
            return NULL;
        }
        json_t *rows = json_array();
        json_t *row = found->alone(cluster, id, facts->now_ns);
        json_array_append_new(rows, row); /* NULL: appends nothing */
        return rows;
    }
    return strcmp(what, "status") == 0 ? status(cluster, facts) : NULL;
}

trp_code trpi_head_list(const trpi_cluster *cluster, const trpi_head_facts *facts, const char *what,
                        trp_buf *out, trp_error *err) {
    json_t *rows = rows_of(cluster, facts, what);
    if (!rows) {
        const char *near = trpi_nearest(what, whats, TRPI_COUNTOF(whats));
        return trpi_fail(err, TRP_EINVALID,
                         "there is no list \"%.32s\"%s%s%s: status, nodes, actors, groups, gangs, "
                         "jobs, runs",
                         what, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    }
    trp_code code = trpi_json_write(rows, out, err);
    json_decref(rows);
    return code;
}

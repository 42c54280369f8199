/* cluster.h: the whole head as one machine. Events with their time go in, messages come out; it
 * knows no clock, socket, file, lock, log or float, so the same events give the same actions.
 *
 *   peer --message--> [ fence: who says this, in which incarnation? ] --> nodes | clients | actors
 * | groups | gangs | jobs | kv --> [ links and gangs ] --> [ place what waits ] --> actions
 *
 * A peer is a number that the shell gives to whoever sends; it stays with the sender as long as
 * trpi_cluster_knows() says so. Nodes and clients are numbered here, from 1, never reused.
 *
 * Files: cluster.c (order of a step), cluster_door.c (fences, who handles what), cluster_nodes.c,
 * cluster_drain.c, cluster_clients.c, cluster_jobs.c, cluster_spawn.c, cluster_actors.c (requests
 * about actors), cluster_start.c (they find a place), cluster_lives.c (they run and die),
 * cluster_links.c, cluster_gangs.c, cluster_saves.c, cluster_groups.c, cluster_turns.c (who gets
 * room kept free), cluster_timers.c, cluster_names.c, cluster_stores.c, cluster_kv.c,
 * cluster_logs.c, cluster_texts.c (what users read), cluster_check.c (what must hold),
 * cluster_views.c (rows for display). */
#ifndef TRPI_CLUSTER_H
#define TRPI_CLUSTER_H

#include <troupe/actor.h>

#include "core/base/arena.h"
#include "core/wire/msg.h"

typedef struct trpi_cluster trpi_cluster;

typedef struct trpi_cluster_config { /* all must be set; trpi_cluster_config_default() does */
    const char *cluster;             /* id, copied */
    const char *version;             /* what a hello must say, copied */
    const char *host_id;             /* of the head's own host, copied; "" = unknown */
    const char *address; /* told to submitted jobs, copied; "" = as their node knows it */
    uint64_t seed;       /* for jitter */
    uint64_t heartbeat_ms, node_timeout_ms, client_timeout_ms;
    uint64_t tick_ms;       /* a TICK is due this often; one that is late by more than a quarter of
                               the node timeout means that nobody listened (TILT) */
    uint64_t end_repeat_ms; /* an END without EXITED is said again after this */
    uint64_t start_timeout_ms, restart_backoff_ms; /* when a spawn says 0 */
    uint64_t restart_backoff_max_ms, restart_forget_ms;
    uint64_t reserve_after_ms; /* who has waited for so long has room kept free; 0 = never */
    /* Bounds. Beyond them: a request is refused with TRP_EBUSY, of the dead the oldest is
     * forgotten. */
    uint64_t actors_max, dead_actors_kept, dead_tails_kept, nodes_max, dead_nodes_kept, clients_max,
        jobs_kept, groups_max, subscriptions_max, kv_entries_max, kv_bytes_max;
    uint64_t start_bytes_max; /* arguments and environments of all actors, kept for restarts */
    uint64_t bundles_max;     /* of all groups together */
    uint64_t gangs_max, links_max, jobs_max /* submitted, under way */;
    uint64_t saved_bytes_max; /* saved states of all actors */
} trpi_cluster_config;

trpi_cluster_config trpi_cluster_config_default(void);

trpi_cluster *trpi_cluster_new(const trpi_cluster_config *config);
void trpi_cluster_free(trpi_cluster *cluster); /* NULL is fine */

/* ---- Events ---- */

typedef enum trpi_cluster_event_kind {
    TRPI_EVENT_MESSAGE, /* peer, msg */
    TRPI_EVENT_TICK,
    TRPI_EVENT_NODE_GONE, /* id, incarnation, reason: the shell has proof that the daemon is gone */
    TRPI_EVENT_CLIENT_GONE, /* id, reason: likewise */
    TRPI_EVENT_SHUTDOWN     /* reason */
} trpi_cluster_event_kind;

typedef struct trpi_cluster_event {
    trpi_cluster_event_kind kind;
    uint64_t now_ns; /* above 0, never falls */
    uint64_t peer, id, incarnation;
    const trpi_msg *msg; /* decoded: strings not NULL, trpi_msg_invalid() says NULL */
    const char *reason;
} trpi_cluster_event;

/* ---- Actions ---- */

typedef enum trpi_cluster_action_kind {
    TRPI_ACTION_SEND,       /* peer, msg */
    TRPI_ACTION_LIST,       /* peer, request, text: answer with LISTED from the views below */
    TRPI_ACTION_WATCH_NODE, /* id, incarnation, pid, text = host id: if it is on this host, watch it
                             */
    TRPI_ACTION_WATCH_CLIENT, /* id, pid, text = host id: likewise */
    TRPI_ACTION_BLOB, /* peer, id = client (0: a node), msg: BLOB_PUT or BLOB_GET, to be answered */
    TRPI_ACTION_STOPPED /* shutting down, and all nodes have said goodbye */
} trpi_cluster_action_kind;

typedef struct trpi_cluster_action {
    trpi_cluster_action_kind kind;
    uint64_t peer, id, incarnation, request;
    int64_t pid;
    const char *text;
    trpi_msg msg;
} trpi_cluster_action;

/* What comes out of a step, in order. Borrows from the event's message where that is passed on, so
 * it is valid until the event's bytes go or the next step, whichever is first. */
typedef struct trpi_actions {
    trpi_cluster_action *items;
    size_t count, capacity;
    trpi_arena arena;
} trpi_actions; /* zero-initialize */
void trpi_actions_release(trpi_actions *actions);

/* Clears *actions and fills it with what this event makes the head do. */
void trpi_cluster_step(trpi_cluster *cluster, const trpi_cluster_event *event,
                       trpi_actions *actions);

/* Whether messages of this type carry a request's number, as their first field. */
bool trpi_cluster_is_request(trpi_msg_type type);
/* Whether a node or client is behind this peer: if not, the shell may forget it after the step. */
bool trpi_cluster_knows(const trpi_cluster *cluster, uint64_t peer);
bool trpi_cluster_is_stopping(const trpi_cluster *cluster);
/* Files by the hash of their content: the peer of a driver whose hello named this one, that of
 * `job` before others (0 = none), and whether a driver, job or actor that lives may need it. */
uint64_t trpi_cluster_holder(const trpi_cluster *cluster, const char *hash, uint64_t job);
bool trpi_cluster_uses(const trpi_cluster *cluster, const char *hash);
/* When the next event of time is due at the latest: a tick, or something that waits for its time.
 */
uint64_t trpi_cluster_wake_ns(const trpi_cluster *cluster);

/* NULL, or which invariant is broken. O(everything): for tests and simulations. */
const char *trpi_cluster_check(const trpi_cluster *cluster);

/* ---- Views: what is known, in the order of the ids. Borrowed until the next step ----
 * trpi_cluster_next_x(cluster, &id, &view) fills the view of the smallest id above `id`; false at
 * the end. */

typedef struct trpi_resource_view {
    const char *name;
    int64_t total, used;
    int64_t reserved, reserved_used; /* of used: held by groups, and of that used by their actors */
} trpi_resource_view;

typedef struct trpi_node_view {
    uint64_t id, incarnation;
    bool living, expected;                             /* expected: it said goodbye */
    const char *name, *host, *host_id, *uuid, *reason; /* of its death */
    int64_t pid;
    uint64_t heard_ns, since_ns; /* registered or died */
    uint64_t actors;
    bool draining;
    const char *drain_reason;
    uint64_t drain_left_ms; /* until what is still there is killed */
    const char *store_path;
    const trpi_msg_node_stats *stats; /* what it last said, NULL = nothing yet */
    uint64_t stats_ns;                /* when */
    const char *const *labels;        /* "k=v", in order */
    size_t label_count;
} trpi_node_view;
bool trpi_cluster_next_node(const trpi_cluster *cluster, uint64_t *id, trpi_node_view *ret_view);
/* Resources of a node (0 = of all living nodes together) by position; false at the end. */
bool trpi_cluster_resource_at(const trpi_cluster *cluster, uint64_t node, size_t position,
                              trpi_resource_view *ret_view);

typedef struct trpi_actor_view {
    uint64_t id, incarnation, job, node, group, gang;
    uint64_t owner; /* an actor; 0: the job's driver, or none (detached, or dead) */
    trp_actor_phase phase;
    const char *type, *name, *namespace_name;
    bool detached, exclusive, draining; /* draining: its node is going away */
    int64_t pid, restarts, restarts_max, bundle;
    int64_t restarts_counted; /* against restarts_max */
    uint64_t links, saved_bytes;
    char labels[128];        /* that its node must have; "" = any */
    const trpi_death *death; /* the last one, NULL if none */
    char resources[192];
    char devices[128];
    char waiting_for[256];
    uint64_t since_ns; /* of this phase */
} trpi_actor_view;
bool trpi_cluster_next_actor(const trpi_cluster *cluster, uint64_t *id, trpi_actor_view *ret_view);
bool trpi_cluster_actor(const trpi_cluster *cluster, uint64_t id, trpi_actor_view *ret_view);

typedef struct trpi_group_view {
    uint64_t id, owner, job; /* owner: as an actor's */
    const char *name, *strategy;
    bool placed, detached, removing;
    size_t bundle_count;
    char waiting_for[256];
} trpi_group_view;
bool trpi_cluster_next_group(const trpi_cluster *cluster, uint64_t *id, trpi_group_view *ret_view);
uint64_t trpi_cluster_bundle_node(const trpi_cluster *cluster, uint64_t group, size_t bundle,
                                  char *resources, size_t size);

typedef struct trpi_gang_view {
    uint64_t id, owner, job;   /* owner: as an actor's */
    const char *name, *policy; /* "END" */
    const char *reason;        /* why it is over or restarts; "" */
    bool detached, restarting, over;
    int64_t restarts, restarts_max;
    uint64_t members, running;
} trpi_gang_view;
bool trpi_cluster_next_gang(const trpi_cluster *cluster, uint64_t *id, trpi_gang_view *ret_view);

typedef enum trpi_job_state { /* of a driver that nobody submitted: RUNNING and then an end */
                              TRPI_JOB_PENDING, /* submitted, and no node yet */
                              TRPI_JOB_RUNNING,
                              TRPI_JOB_SUCCEEDED, /* exit code 0; or its driver said goodbye */
                              TRPI_JOB_FAILED,
                              TRPI_JOB_STOPPED
} trpi_job_state;
const char *trpi_job_state_name(trpi_job_state state); /* "RUNNING" */

typedef struct trpi_job_view {
    uint64_t id, client, node; /* node: that runs or ran it; 0 for one that was not submitted */
    const char *name, *namespace_name, *exe, *reason; /* of its end; why it is PENDING */
    trpi_job_state state;
    bool submitted, stopping;
    const char *const *argv; /* of one that was submitted */
    size_t argv_count;
    int64_t pid, exit_code, signal;        /* these two of a submitted one that has ended */
    bool running;                          /* state PENDING or RUNNING */
    uint64_t started_ns, ended_ns, actors; /* actors that are not dead */
} trpi_job_view;
bool trpi_cluster_next_job(const trpi_cluster *cluster, uint64_t *id, trpi_job_view *ret_view);

typedef struct trpi_demand_view { /* requests of one shape that wait */
    uint64_t count, first;        /* first: the actor's or group's id */
    bool is_group, infeasible;
    char resources[192];
    char labels[128]; /* that its node must have; "" = any */
    char why[256];
} trpi_demand_view;
bool trpi_cluster_next_demand(const trpi_cluster *cluster, bool groups, uint64_t *ticket,
                              trpi_demand_view *ret_view);

/* Keys in order of bytes, from the first that is not below `from` (and not `from` itself when after
 * is set). NULL at the end. */
const char *trpi_cluster_kv_next(const trpi_cluster *cluster, const char *from, bool after,
                                 trp_bytes *ret_value);

/* The latest deaths, newest first (position 0); NULL at the end. */
const trpi_death *trpi_cluster_recent_death(const trpi_cluster *cluster, size_t position,
                                            uint64_t *ret_actor, uint64_t *ret_when_ns);

/* How many actors are in each trp_actor_phase. */
void trpi_cluster_count_phases(const trpi_cluster *cluster, uint64_t ret_counts[4]);

typedef struct trpi_cluster_counts {
    uint64_t steps, stale; /* messages dropped by the fences */
    uint64_t tilts, clients, subscriptions, kv_entries, kv_bytes;
    uint64_t start_bytes, saved_bytes, links;
    uint64_t turns;        /* who waits with room kept free for them */
    uint64_t memory_kills; /* as the living nodes tell, since they started */
} trpi_cluster_counts;
trpi_cluster_counts trpi_cluster_get_counts(const trpi_cluster *cluster);

#endif

/* cluster_parts.h: the cluster machine's own records, and what its files call of each other.
 *
 * Where an actor is (trpi_place), beside its phase (lifecycle.h):
 *
 *             (1)             (2)               (3)
 *   spawn ----+--> QUEUED ----------> STARTING -----> RUNNING
 *             |                        ^  |              |
 *             +--> IN_GROUP -----------+  |     (4)      |
 *                   ^  (2)             |  +------+-------+
 *                   |                  |         |
 *                   +---- BACKOFF <----|---------+ died, restart
 *                           (5)        |         +----> NOWHERE: died, final (6)
 *
 * (1) trpi_actor_seek    (2) trpi_actor_start   (3) STARTED  (4) trpi_actor_gone
 * (5) a timer            (6) finish
 *
 * What holds after every step (cluster_check.c checks it):
 *   - A grant is held exactly in STARTING and RUNNING. It is given back only when the process is
 * known to be gone: EXITED came, or its node is dead.
 *   - What is used of a node is the sum of the grants of its actors outside groups and of the
 * bundles on it.
 *   - Nobody waits who would fit: of every shape, the first in line fits on no living node.
 *   - Of one actor at most one incarnation holds a grant.
 *   - A group that is not placed holds nothing, except survivors of one that has lost bundles.
 *   - A name belongs to at most one actor of its namespace that is not dead and not about to be.
 *   - Every actor and group that is not detached has a living owner, or is about to end. */
#ifndef TRPI_CLUSTER_PARTS_H
#define TRPI_CLUSTER_PARTS_H

#include "actors/state/cluster.h"
#include "actors/state/lifecycle.h"
#include "core/base/table.h"
#include "core/state/membership.h"
#include "core/state/placement.h"
#include "core/state/queue.h"

#define TRPI_NS_PER_MS UINT64_C(1000000)
#define TRPI_RECENT_DEATHS 32
#define TRPI_TEXT_MAX 255               /* bytes of a name or a type */
#define TRPI_ARGS_MAX ((size_t)8 << 20) /* bytes of a constructor's arguments */
#define TRPI_ENV_MAX 1024               /* entries */

/* Who waits for the answer to which request. */
typedef struct trpi_asker {
    uint64_t client, request;
} trpi_asker;
typedef struct trpi_askers {
    trpi_asker *items;
    size_t count;
} trpi_askers;

typedef struct trpi_node_rec {
    uint64_t id, peer;                     /* peer 0 = dead */
    uint64_t incarnation, hello_seq, join; /* of its last hello */
    bool living, expected;
    char *uuid, *name, *host, *host_id, *reason;
    int64_t pid;
    uint64_t since_ns;
    trpi_request has;
    char **devices;
    size_t device_count;
    trpi_table actors;      /* id -> actor: those with a process here */
    trpi_askers log_askers; /* whose LOGS_QUERY it has not answered yet */
} trpi_node_rec;

typedef enum { TRPI_DRIVER, TRPI_WORKER, TRPI_TOOL } trpi_client_kind;

typedef struct trpi_client_rec {
    uint64_t id, peer, job;
    trpi_client_kind kind;
    uint64_t actor, incarnation; /* a worker's own */
    int64_t pid;
    char *host_id;
    bool wants_logs;
    uint64_t watcher;         /* node that watches its pid; 0 = none */
    trpi_table actors;        /* owned, id -> actor */
    trpi_table groups;        /* owned, id -> group */
    trpi_table subscriptions; /* actor id -> actor */
    trpi_table watches;       /* group id -> group */
} trpi_client_rec;

typedef struct trpi_job_rec {
    uint64_t id, client; /* client 0 = its driver is gone */
    char *name, *namespace_name, *exe, *cwd, *reason;
    int64_t pid;
    uint64_t started_ns, ended_ns;
    uint64_t actors, groups; /* not dead: while there are any, the record stays */
} trpi_job_rec;

typedef enum {
    TRPI_QUEUED,
    TRPI_IN_GROUP,
    TRPI_BACKOFF,
    TRPI_STARTING,
    TRPI_RUNNING,
    TRPI_NOWHERE
} trpi_place_kind;

typedef struct trpi_actor_rec {
    uint64_t id, job, owner; /* owner: client; 0 = none (detached, or dead) */
    char *type, *name;
    bool detached, named; /* named: holds its name */
    trpi_life life;
    trpi_place_kind place;
    uint64_t since_ns; /* of this phase */

    /* What it asks for */
    trpi_request request;
    uint64_t group, only_node;
    int64_t bundle_asked; /* -1 = any */
    int64_t call_retries_max;
    uint64_t start_timeout_ms;
    trpi_text *env;
    size_t env_count;
    trp_bytes args;       /* owned */
    uint64_t start_bytes; /* of args and env, as counted in cluster->start_bytes */

    /* Where it is or was */
    uint64_t node, last_node; /* node: while it has a process */
    trpi_grant grant;
    int64_t bundle; /* that holds the grant; -1 = the node itself */
    int64_t pid;
    char *endpoint, *remote_endpoint;
    trpi_table workers; /* clients of this incarnation, id -> client */

    /* Its end. end_cause NONE = no END under way */
    trp_cause end_cause;
    bool end_soft; /* that END leaves it to the restart rules what follows */
    char *end_reason;
    trpi_askers killers;
    trpi_death *death; /* of the last incarnation that died; texts owned */
    uint64_t timer;    /* key in cluster->timers, 0 = none */
    uint64_t dead_number;
    trpi_table subscribers; /* client id -> client */
} trpi_actor_rec;

typedef struct trpi_bundle_rec {
    trpi_pool pool; /* while it is placed */
    uint64_t users; /* actors with a grant from it */
} trpi_bundle_rec;

typedef enum { TRPI_GROUP_WAITING, TRPI_GROUP_PLACED, TRPI_GROUP_LOST } trpi_group_phase;

typedef struct trpi_group_rec {
    uint64_t id, job, owner;
    char *name;
    trp_strategy strategy;
    bool detached, removing;
    bool pinned; /* its actors are being walked: it must not go now */
    trpi_group_phase phase;
    trpi_bundle_seat *seats; /* one per bundle */
    trpi_bundle_rec *bundles;
    size_t bundle_count;
    trpi_table actors;   /* id -> actor: not dead */
    trpi_queue waiting;  /* actors in place IN_GROUP */
    trpi_table watchers; /* client id -> client */
    trpi_askers removers;
} trpi_group_rec;

typedef struct trpi_recent_death {
    uint64_t actor, when_ns;
    trpi_death death; /* texts owned; without stderr */
} trpi_recent_death;

struct trpi_cluster {
    trpi_cluster_config config;
    char *id, *version;
    uint64_t now_ns, random;
    trpi_actions *out; /* of the step under way */

    trpi_table nodes, clients, jobs, actors, groups; /* id -> record */
    uint64_t last_node, last_client, last_job, last_actor, last_group;
    trpi_table node_peers, client_peers; /* peer -> record, the living */
    trpi_index uuids;                    /* uuid -> node record */
    trpi_index names;                    /* "namespace" NUL "name" -> actor record */
    trpi_table dead;                     /* dead_number -> actor record, oldest first */
    uint64_t last_dead, tails_until;     /* dead up to tails_until have lost their stderr */
    uint64_t living_nodes, living_actors;

    trpi_membership node_members, client_members;
    trpi_resource_names resource_names;
    trpi_sched sched;
    trpi_queue waiting;        /* actors in place QUEUED */
    trpi_queue waiting_groups; /* groups in phase WAITING */
    trpi_queue lost_groups;    /* groups in phase LOST */
    trpi_table stirred;        /* groups whose waiting actors may fit now */
    trpi_table timers;         /* due time -> actor record */
    uint64_t timer_number, next_tick_ns;

    trpi_index kv; /* key -> value, of cluster_kv.c */
    uint64_t kv_bytes, subscriptions;
    uint64_t start_bytes, bundles; /* of all actors, of all groups */
    trpi_recent_death recent[TRPI_RECENT_DEATHS];
    uint64_t recent_count; /* ever */
    uint64_t steps, stale;
    bool stopping, stopped;
};

/* ---- cluster.c ---- */

/* Appends a message to the actions; fill in the fields at once, the next append moves it. */
trpi_msg *trpi_post(trpi_cluster *c, uint64_t peer, trpi_msg_type type);
trpi_cluster_action *trpi_act(trpi_cluster *c, trpi_cluster_action_kind kind);
/* Texts and lists that live as long as the actions. */
const char *trpi_keep(trpi_cluster *c, const char *text);
void *trpi_keep_array(trpi_cluster *c, size_t count, size_t size);
void trpi_post_done(trpi_cluster *c, uint64_t peer, uint64_t request, const trp_error *error);
void trpi_ask(trpi_askers *askers, uint64_t client, uint64_t request);
void trpi_answer_all(trpi_cluster *c,
                     trpi_askers *askers); /* DONE, TRP_OK, to whoever still is there */
void trpi_timer_set(trpi_cluster *c, trpi_actor_rec *actor, uint64_t at_ns); /* replaces */
void trpi_timer_clear(trpi_cluster *c, trpi_actor_rec *actor);
void trpi_replace(char **text, const char *value); /* frees the old one */

/* ---- cluster_nodes.c ---- */

void trpi_node_hello(trpi_cluster *c, uint64_t peer, const trpi_msg_node_hello *msg);
void trpi_node_heartbeat(trpi_cluster *c, uint64_t peer, const trpi_msg_heartbeat *msg);
void trpi_node_bye(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_node_bye *msg);
/* expected: it ended in order. Everything on it is gone from now on. */
void trpi_node_dead(trpi_cluster *c, trpi_node_rec *node, bool expected, const char *reason);
/* Tells the node to end what it should not have. */
void trpi_node_end_stranger(trpi_cluster *c, const trpi_node_rec *node, uint64_t actor,
                            uint64_t incarnation);
void trpi_nodes_tick(trpi_cluster *c);
void trpi_nodes_shutdown(trpi_cluster *c, const char *reason);
void trpi_node_free(trpi_node_rec *node);

/* ---- cluster_clients.c ---- */

void trpi_client_hello(trpi_cluster *c, uint64_t peer, const trpi_msg_client_hello *msg);
void trpi_client_bye(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_client_bye *msg);
void trpi_client_heartbeat(trpi_cluster *c, uint64_t peer, const trpi_msg_heartbeat *msg);
/* It is gone; what it owns ends. reason completes "owner ...: ". */
void trpi_client_end(trpi_cluster *c, trpi_client_rec *client, const char *reason);
void trpi_clients_tick(trpi_cluster *c);
/* Drivers without watcher get this node, if it is on their host. */
void trpi_clients_watch(trpi_cluster *c, trpi_node_rec *node);
void trpi_clients_unwatch(trpi_cluster *c, const trpi_node_rec *node);
void trpi_client_free(trpi_client_rec *client);
void trpi_job_free(trpi_job_rec *job);

/* ---- cluster_actors.c: requests about actors ---- */

void trpi_actor_spawn(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_spawn *msg);
void trpi_actor_lookup(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_lookup *msg);
void trpi_actor_kill(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_kill *msg);
void trpi_actor_signal(trpi_cluster *c, const trpi_msg_signal *msg);
void trpi_actor_subscribe(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_subscribe *msg);
void trpi_actor_unsubscribe(trpi_cluster *c, trpi_client_rec *client, trpi_actor_rec *actor);
void trpi_actor_push(trpi_cluster *c, const trpi_actor_rec *actor); /* to all subscribers */
void trpi_actor_free(trpi_actor_rec *actor);
void trpi_name_drop(trpi_cluster *c, trpi_actor_rec *actor);

/* ---- cluster_lives.c: what happens to actors ---- */

/* Looks for a place: starts it there, or lets it wait, or ends it when it can never have one. */
void trpi_actor_seek(trpi_cluster *c, trpi_actor_rec *actor);
void trpi_actor_start(trpi_cluster *c, trpi_actor_rec *actor, trpi_node_rec *node, int64_t bundle);
void trpi_actor_started(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_started *msg);
void trpi_actor_exited(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_exited *msg);
/* Its process (if it had one) is gone for this cause. */
void trpi_actor_gone(trpi_cluster *c, trpi_actor_rec *actor, const trpi_death *death,
                     bool may_restart);
/* Wants it ended; a process gets END and ends later, who waits ends at once. */
void trpi_actor_end(trpi_cluster *c, trpi_actor_rec *actor, trp_cause cause, const char *reason,
                    bool may_restart);
void trpi_actor_grant_drop(trpi_cluster *c, trpi_actor_rec *actor); /* its node is gone */
void trpi_actor_timer(trpi_cluster *c, trpi_actor_rec *actor);
void trpi_actors_place(trpi_cluster *c);

/* ---- cluster_groups.c ---- */

void trpi_group_create(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_create *msg);
void trpi_group_watch(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_watch *msg);
void trpi_group_remove(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_remove *msg);
void trpi_group_end(trpi_cluster *c, trpi_group_rec *group, trp_cause cause, const char *reason);
/* Index of the bundle that has room for this waiting actor now, or -1. */
int64_t trpi_group_room(const trpi_group_rec *group, const trpi_actor_rec *actor);
void trpi_group_left(
    trpi_cluster *c, trpi_group_rec *group, trpi_actor_rec *actor,
    int64_t bundle); /* the actor let go of that bundle; -1 = it is dead for good */
void trpi_groups_node_dead(trpi_cluster *c, uint64_t node); /* takes its bundles away */
void trpi_groups_node_mourn(trpi_cluster *c);               /* and tells of it */
void trpi_groups_place(trpi_cluster *c);
void trpi_groups_place_actors(trpi_cluster *c);
trpi_verdict trpi_group_explain(const trpi_cluster *c, const trpi_group_rec *group, char *out,
                                size_t size);
void trpi_group_free(trpi_group_rec *group);

/* ---- cluster_kv.c, cluster_logs.c ---- */

void trpi_kv_put(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_kv_put *msg);
void trpi_kv_get(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_kv_get *msg);
void trpi_kv_release(trpi_cluster *c);
void trpi_logs_query(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_logs_query *msg);
void trpi_logs_data(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_logs_data *msg);
void trpi_logs_node_dead(trpi_cluster *c, trpi_node_rec *node); /* it answers nobody any more */
void trpi_log_lines(trpi_cluster *c, const trpi_msg_log_lines *msg);

/* ---- cluster_texts.c: what users read ---- */

void trpi_text_node(const trpi_cluster *c, uint64_t node, char *out,
                    size_t size); /* node n2 (host) */
void trpi_text_client(const trpi_cluster *c, const trpi_client_rec *client, char *out, size_t size);
void trpi_text_seconds(uint64_t ns, char *out, size_t size); /* 5.2 s */
/* The whole sentence of a death: who, where, why, what follows. */
void trpi_text_death(const trpi_cluster *c, const trpi_actor_rec *actor, const trpi_death *death,
                     const trpi_life_end *end, const char *detail, char *out, size_t size);
void trpi_text_waiting(const trpi_cluster *c, const trpi_actor_rec *actor, char *out, size_t size);

#endif

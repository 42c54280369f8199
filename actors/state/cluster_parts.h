/* cluster_parts.h: the cluster machine's own records, and what its files call of each other.
 *
 * Where an actor is (trpi_place_kind), beside its phase (lifecycle.h):
 *
 *             (1)             (2)               (3)
 *   spawn ----+--> QUEUED ----------> STARTING -----> RUNNING
 *             |                        ^  |              |
 *             +--> IN_GROUP -----------+  |     (4)      |
 *             |     ^  (2)                +------+-------+
 *             |     |                            |
 *             +--> GATHERING / BACKOFF <---------+ died, restart
 *                     (1) when its time has come +----> NOWHERE: died, final (5)
 *
 * (1) trpi_actor_seek    (2) trpi_actor_start   (3) STARTED  (4) trpi_actor_gone   (5) finish
 * BACKOFF waits for a timer, GATHERING for the other processes of its gang to be gone.
 *
 * What holds after every step (cluster_check.c checks it):
 *   - A grant is held exactly in STARTING and RUNNING. It is given back only when the process is
 * known to be gone: EXITED came, or its node is dead.
 *   - What is used of a node is the sum of the grants of its actors outside groups and of the
 * bundles on it.
 *   - Nobody waits who would fit: of every shape, the first in line fits on no living node, or only
 * on room that is kept free for someone who has waited longer (cluster_turns.c).
 *   - Of one actor at most one incarnation holds a grant.
 *   - A group that is not placed holds nothing, except survivors of one that has lost bundles.
 *   - A name belongs to at most one actor (group) of its namespace that is not dead and not about
 * to be.
 *   - Every actor, group and gang that is not detached has a living owner, or is about to end.
 *   - A gang that restarts has no process of before; links are known to both sides, and the dead
 * have none.
 *   - Nothing starts on a node that is being drained. */
#ifndef TRPI_CLUSTER_PARTS_H
#define TRPI_CLUSTER_PARTS_H

#include "actors/state/cluster.h"
#include "actors/state/env.h"
#include "actors/state/lifecycle.h"
#include "core/base/table.h"
#include "core/base/times.h"
#include "core/state/labels.h"
#include "core/state/membership.h"
#include "core/state/placement.h"
#include "core/state/queue.h"

#define TRPI_RECENT_DEATHS 32
#define TRPI_TEXT_MAX 255       /* bytes of a name or a type */
#define TRPI_PATH_TEXT_MAX 4095 /* bytes of a path */
#define TRPI_ARGS_MAX                                                                              \
    ((size_t)8 << 20)         /* bytes of a constructor's arguments, or of a saved state */
#define TRPI_RETRY_ON_MAX 64  /* entries */
#define TRPI_THREADS_MAX 1024 /* of a concurrency group */
#define TRPI_LONG_MS                                                                               \
    ((uint64_t)1 << 42) /* 139 years: no time is longer, so none overflows in ns                   \
                         */

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
    char *store_path, *store_endpoint;
    int64_t pid;
    uint64_t since_ns;
    trpi_request has;
    char **devices;
    size_t device_count;
    trpi_labels labels;
    trpi_texts label_texts;
    trpi_table actors;      /* id -> actor: those with a process here */
    trpi_table jobs;        /* id -> job: those whose submitted driver runs here */
    trpi_askers log_askers; /* whose LOGS_QUERY it has not answered yet */
    trpi_msg_node_stats stats;
    uint64_t stats_ns; /* when it said so; 0 = never */

    bool draining; /* for good: it outlives registrations of the same daemon */
    char *drain_reason;
    uint64_t drain_ns; /* deadline */
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
    trpi_table gangs;         /* owned, id -> gang */
    trpi_table subscriptions; /* actor id -> actor */
    trpi_table watches;       /* group id -> group */
} trpi_client_rec;

typedef struct trpi_job_rec {
    uint64_t id, client; /* client 0 = its driver is gone, or not there yet */
    trpi_job_state state;
    char *name, *namespace_name, *exe, *cwd, *reason;
    char *exe_hash, *package; /* of its files, for nodes that lack them; "" = none */
    trpi_texts env;           /* of all its workers */
    int64_t pid;
    uint64_t started_ns, ended_ns;
    uint64_t start_bytes;           /* of env and submission, as counted in cluster->start_bytes */
    uint64_t actors, groups, gangs; /* not dead: while there are any, the record stays */
    trpi_table spread;              /* node id -> how many of its actors have a process there */

    /* Of one that was submitted */
    bool submitted, stopping;
    uint64_t node; /* that runs its driver; 0 = none yet, or none any more */
    uint64_t ran_on;
    trpi_texts argv, submitted_env;
    int64_t exit_code, signal; /* once it has ended */
    uint64_t stop_grace_ms, stop_due_ns, said_end_ns;
    trpi_askers stoppers;
} trpi_job_rec;

typedef enum {
    TRPI_QUEUED,
    TRPI_IN_GROUP,
    TRPI_BACKOFF,
    TRPI_GATHERING,
    TRPI_STARTING,
    TRPI_RUNNING,
    TRPI_NOWHERE
} trpi_place_kind;

/* What an actor asks for; fixed by its spawn, gone with its last death. */
typedef struct trpi_wants {
    int64_t bundle;     /* -1 = any */
    uint64_t only_node; /* 0 = any */
    bool node_soft;
    trp_schedule schedule;
    trpi_label_rules labels;
    uint64_t start_timeout_ms;
    trpi_texts env; /* over the job's */
    trp_bytes args; /* owned */
    char *cwd;      /* "" = the job's */
    uint64_t max_concurrency, liveness_ms;
    bool exclusive, save_each_call;
} trpi_wants;

typedef struct trpi_actor_rec {
    uint64_t id, job, owner; /* owner: client; 0 = none (detached, or dead) */
    char *type, *name;
    bool detached, named; /* named: holds its name */
    trpi_life life;
    trpi_place_kind place;
    uint64_t since_ns; /* of this phase */

    trpi_request request;
    uint64_t group, gang;
    int64_t call_retries_max;
    uint64_t max_pending_calls;
    trpi_texts retry_on;
    trpi_wants wants;
    uint64_t start_bytes; /* of args, env and the like, as counted in cluster->start_bytes */

    /* Where it is or was */
    uint64_t node, last_node; /* node: while it has a process */
    trpi_grant grant;
    int64_t bundle; /* that holds the grant; -1 = the node itself */
    int64_t pid;
    char *endpoint, *remote_endpoint;
    trpi_table workers;  /* clients of this incarnation, id -> client */
    uint64_t lease_ns;   /* exclusive: until then the last incarnation may still run */
    uint64_t waiting_ns; /* in line since */

    /* Its end. end_cause NONE = no END under way */
    trp_cause end_cause;
    bool end_soft;            /* that END leaves it to the restart rules what follows */
    bool end_graceful;        /* asked for by trp_stop(): those who did are told if it was killed */
    uint64_t end_deadline_ns; /* of an END in good order; 0 = kill */
    char *end_reason;
    trpi_askers killers, stoppers;
    trpi_death *death;               /* of the last incarnation that died; texts owned */
    uint64_t timer_ns, timer_number; /* when it is due, 0 = not set; see cluster_timers.c */
    size_t timer_at;
    uint64_t dead_number;
    trpi_table subscribers; /* client id -> client */
    trpi_table links;       /* actor id -> actor */
    char *doom;             /* why it is to die at the end of this step: a link; NULL = it is not */

    trp_bytes saved; /* owned: for the next incarnation */
    bool has_saved;
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
    bool detached, removing, named; /* named: holds its name */
    bool pinned;                    /* its actors are being walked: it must not go now */
    trpi_group_phase phase;
    trpi_bundle_seat *seats; /* one per bundle */
    trpi_bundle_rec *bundles;
    size_t bundle_count;
    trpi_table actors;   /* id -> actor: not dead */
    trpi_queue waiting;  /* actors in place IN_GROUP */
    trpi_table watchers; /* client id -> client */
    trpi_askers removers;
    uint64_t waiting_ns; /* in line since */
} trpi_group_rec;

typedef struct trpi_gang_rec {
    uint64_t id, job, owner;
    char *name;
    trp_gang_policy policy;
    bool detached;
    bool restarting;    /* its members gather until no process of before is left */
    bool over;          /* its members are ended, and then it is gone */
    trp_cause cause;    /* that its members are ended with */
    char *reason;       /* likewise */
    trpi_life life;     /* of the gang as one: its restarts, in a row, within the window */
    trpi_table members; /* id -> actor: not dead */
    uint64_t again_ns;  /* when it restarts at the earliest */
    trpi_askers enders;
} trpi_gang_rec;

typedef struct trpi_recent_death {
    uint64_t actor, when_ns;
    trpi_death death; /* texts owned; without stderr */
} trpi_recent_death;

typedef struct trpi_timers { /* a heap */
    trpi_actor_rec **items;
    size_t count, capacity;
    uint64_t last_number;
} trpi_timers;

/* Who has waited so long that room is kept free for it on some nodes: see cluster_turns.c. */
typedef struct trpi_room {
    uint64_t node;
    trpi_request request; /* owned */
} trpi_room;
typedef struct trpi_turn {
    uint64_t who;     /* trpi_turn_of_actor() or trpi_turn_of_group() */
    trpi_room *rooms; /* where, and how much */
    size_t room_count;
    uint64_t until_ns, length_ns; /* then it moves to other nodes, for twice as long */
} trpi_turn;

typedef struct trpi_turns {
    trpi_table items; /* who -> turn */
    size_t rooms;     /* of all */
    size_t looked_at; /* where the next look begins, when one could not see them all */
    uint64_t due_ns;  /* when to look next */
    bool released;    /* room became free that others may have waited for */
} trpi_turns;

struct trpi_cluster {
    trpi_cluster_config config;
    char *id, *version, *host_id, *address;
    uint64_t now_ns, random;
    trpi_actions *out; /* of the step under way */

    trpi_table nodes, clients, jobs, actors, groups, gangs; /* id -> record */
    uint64_t last_node, last_client, last_job, last_actor, last_group, last_gang;
    trpi_table node_peers, client_peers; /* peer -> record, the living */
    trpi_index uuids;                    /* uuid -> node record */
    trpi_index names, group_names;       /* "namespace" NUL "name" -> record */
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
    trpi_table mourning;       /* groups that have just lost bundles, and have not told so */
    trpi_timers timers;
    uint64_t next_tick_ns;
    trpi_turns turns; /* who has waited long enough to have room kept free */

    trpi_table doomed;        /* id -> actor that a link kills at the end of this step */
    trpi_table gangs_due;     /* id -> gang whose members are to be told at the end of this step */
    trpi_table drains;        /* id -> node whose drain's deadline has not passed */
    trpi_table pending_jobs;  /* id -> submitted job without a node */
    trpi_table stopping_jobs; /* id -> job whose JOB_END may have to be said again */
    trpi_client_ref *gone;    /* clients that ended since the nodes were told last */
    size_t gone_count, gone_capacity;

    trpi_index kv; /* key -> value, of cluster_kv.c */
    uint64_t kv_bytes, subscriptions;
    uint64_t start_bytes, bundles; /* of all actors and jobs, of all groups */
    uint64_t saved_bytes, links;   /* of all actors; a link counts once for each side */
    uint64_t living_jobs;          /* submitted, and not ended */
    trpi_recent_death recent[TRPI_RECENT_DEATHS];
    uint64_t recent_count; /* ever */
    uint64_t steps, stale;
    bool stopping, stopped;
};

/* ---- cluster.c ---- */

/* Appends a message to the actions; fill in the fields at once, the next append moves it. */
trpi_msg *trpi_post(trpi_cluster *c, uint64_t peer, trpi_msg_type type);
trpi_cluster_action *trpi_act(trpi_cluster *c, trpi_cluster_action_kind kind);
/* Texts, bytes and lists that live as long as the actions. */
const char *trpi_keep(trpi_cluster *c, const char *text);
void *trpi_keep_array(trpi_cluster *c, size_t count, size_t size);
trp_bytes trpi_keep_bytes(trpi_cluster *c, trp_bytes bytes);
trpi_text *trpi_keep_texts(trpi_cluster *c, const trpi_texts *texts);
void trpi_post_done(trpi_cluster *c, uint64_t peer, uint64_t request, const trp_error *error);
void trpi_ask(trpi_askers *askers, uint64_t client, uint64_t request);
/* DONE to whoever still is there: with this error, or TRP_OK. */
void trpi_answer_all(trpi_cluster *c, trpi_askers *askers, const trp_error *error);
void trpi_replace(char **text, const char *value); /* frees the old one */
trp_bytes trpi_copy_bytes(trp_bytes bytes);        /* owned by the caller */

/* ---- cluster_timers.c: one per actor ---- */

void trpi_timer_set(trpi_cluster *c, trpi_actor_rec *actor, uint64_t at_ns); /* replaces */
void trpi_timer_clear(trpi_cluster *c, trpi_actor_rec *actor);               /* if it is set */
const trpi_actor_rec *trpi_timers_first(const trpi_cluster *c); /* due next; NULL = none */
void trpi_timers_run(trpi_cluster *c); /* trpi_actor_timer() of those that are due */
const char *trpi_timers_check(const trpi_cluster *c);

/* ---- cluster_door.c: who says this, and who handles it ---- */

void trpi_door_message(trpi_cluster *c, uint64_t peer, const trpi_msg *msg);

/* ---- cluster_nodes.c ---- */

void trpi_node_hello(trpi_cluster *c, uint64_t peer, const trpi_msg_node_hello *msg);
void trpi_node_heartbeat(trpi_cluster *c, uint64_t peer, const trpi_msg_heartbeat *msg);
void trpi_node_bye(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_node_bye *msg);
/* How it went. */
typedef enum {
    TRPI_NODE_LOST,    /* nobody knows what still runs there */
    TRPI_NODE_CLEARED, /* its daemon says that nothing does: it begins anew */
    TRPI_NODE_LEFT     /* it said goodbye, and nothing does */
} trpi_node_end;
/* Everything on it is gone from now on. */
void trpi_node_dead(trpi_cluster *c, trpi_node_rec *node, trpi_node_end end, const char *reason);
/* Tells the node to end what it should not have. */
void trpi_node_end_stranger(trpi_cluster *c, const trpi_node_rec *node, uint64_t actor,
                            uint64_t incarnation);
void trpi_nodes_tick(trpi_cluster *c);
void trpi_nodes_shutdown(trpi_cluster *c, const char *reason);
void trpi_node_free(trpi_node_rec *node);

/* ---- cluster_drain.c ---- */

void trpi_drain(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_drain *msg);
void trpi_drain_again(trpi_cluster *c, trpi_node_rec *node); /* it has registered (again) */
void trpi_drain_tick(trpi_cluster *c);
uint64_t trpi_drain_left_ms(const trpi_cluster *c, const trpi_node_rec *node);

/* ---- cluster_clients.c ---- */

void trpi_client_hello(trpi_cluster *c, uint64_t peer, const trpi_msg_client_hello *msg);
void trpi_client_bye(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_client_bye *msg);
void trpi_client_heartbeat(trpi_cluster *c, uint64_t peer, const trpi_msg_heartbeat *msg);
/* It is gone; what it owns ends. reason completes "owner ...: ". */
void trpi_client_end(trpi_cluster *c, trpi_client_rec *client, bool orderly, const char *reason);
void trpi_clients_tick(trpi_cluster *c);
/* Drivers without watcher get this node, if it is on their host. */
void trpi_clients_watch(trpi_cluster *c, trpi_node_rec *node);
void trpi_clients_unwatch(trpi_cluster *c, const trpi_node_rec *node);
void trpi_client_free(trpi_client_rec *client);

/* ---- cluster_jobs.c ---- */

/* The job of a driver: a new one, or the one that was submitted for it. Takes *env. */
trpi_job_rec *trpi_job_of_driver(trpi_cluster *c, const trpi_msg_client_hello *msg, uint64_t client,
                                 trpi_texts *env);
void trpi_job_driver_gone(trpi_cluster *c, uint64_t job, bool orderly, const char *reason);
void trpi_job_submit(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_job_submit *msg);
void trpi_job_stop(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_job_stop *msg);
void trpi_job_started(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_job_started *msg);
void trpi_job_exited(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_job_exited *msg);
void trpi_jobs_node_dead(trpi_cluster *c, trpi_node_rec *node);
void trpi_jobs_place(trpi_cluster *c); /* those that have no node, if there is one now */
void trpi_jobs_tick(trpi_cluster *c);
void trpi_jobs_forget(trpi_cluster *c); /* the oldest ended ones, when too many are kept */
void trpi_job_free(trpi_job_rec *job);

/* ---- cluster_names.c ---- */

trpi_actor_rec *trpi_actor_named(const trpi_cluster *c, const char *space, const char *name);
trpi_group_rec *trpi_group_named(const trpi_cluster *c, const char *space, const char *name);
void trpi_actor_name_take(trpi_cluster *c, trpi_actor_rec *actor); /* that nobody has */
void trpi_group_name_take(trpi_cluster *c, trpi_group_rec *group);
void trpi_actor_name_drop(trpi_cluster *c, trpi_actor_rec *actor);
void trpi_group_name_drop(trpi_cluster *c, trpi_group_rec *group);

/* ---- cluster_spawn.c ---- */

void trpi_actor_spawn(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_spawn *msg);
void trpi_answer_spawn(trpi_cluster *c, const trpi_client_rec *client, uint64_t request,
                       uint64_t actor, const trp_error *error);
void trpi_actor_free(trpi_actor_rec *actor);
void trpi_wants_release(trpi_wants *wants);

/* ---- cluster_actors.c: requests about actors ---- */

void trpi_actor_lookup(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_lookup *msg);
void trpi_actor_kill(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_kill *msg);
void trpi_actor_signal(trpi_cluster *c, const trpi_msg_signal *msg);
void trpi_actor_subscribe(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_subscribe *msg);
void trpi_actor_unsubscribe(trpi_cluster *c, trpi_client_rec *client, trpi_actor_rec *actor);
void trpi_actor_push(trpi_cluster *c, const trpi_actor_rec *actor); /* to all subscribers */

/* ---- cluster_start.c: actors find a place ---- */

/* What it wishes of a node; borrows from the actor and the cluster. */
trpi_wish trpi_actor_wish(const trpi_cluster *c, const trpi_actor_rec *actor);
/* Looks for a place: starts it there, or lets it wait, or ends it when it can never have one. */
void trpi_actor_seek(trpi_cluster *c, trpi_actor_rec *actor);
void trpi_actor_start(trpi_cluster *c, trpi_actor_rec *actor, trpi_node_rec *node, int64_t bundle);
void trpi_actor_leave_line(trpi_cluster *c, trpi_actor_rec *actor); /* or its timer */
void trpi_actor_leave_node(trpi_cluster *c, trpi_actor_rec *actor);
void trpi_actors_place(trpi_cluster *c);

/* ---- cluster_lives.c: what happens to actors ---- */

bool trpi_actor_has_process(const trpi_actor_rec *actor);
/* The fence for what a node tells of an actor: it must be this node's, in this incarnation. */
trpi_actor_rec *trpi_actor_on(trpi_cluster *c, const trpi_node_rec *node, uint64_t id,
                              uint64_t incarnation);
void trpi_actor_started(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_started *msg);
void trpi_actor_exited(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_exited *msg);
/* Its process (if it had one) is gone for this cause. */
void trpi_actor_gone(trpi_cluster *c, trpi_actor_rec *actor, const trpi_death *death,
                     bool may_restart);
/* Wants it ended; a process gets END and ends later, who waits ends at once. grace_ms 0 kills. */
void trpi_actor_end(trpi_cluster *c, trpi_actor_rec *actor, trp_cause cause, const char *reason,
                    bool may_restart, uint64_t grace_ms);
void trpi_actor_grant_drop(trpi_cluster *c, trpi_actor_rec *actor); /* its node is gone */
void trpi_actor_timer(trpi_cluster *c, trpi_actor_rec *actor);

/* ---- cluster_links.c ---- */

void trpi_link(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_link *msg);
/* The actor is dead for good: those that it was linked to are doomed. */
void trpi_links_cut(trpi_cluster *c, trpi_actor_rec *actor);
bool trpi_links_kill(trpi_cluster *c); /* the doomed; false: there were none */

/* ---- cluster_gangs.c ---- */

void trpi_gang_create(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_gang_create *msg);
void trpi_gang_end_asked(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_gang_end *msg);
void trpi_gang_end(trpi_cluster *c, trpi_gang_rec *gang, trp_cause cause, const char *reason);
trp_code trpi_gang_check_member(const trpi_cluster *c, const trpi_client_rec *client, uint64_t gang,
                                trp_error *err);
void trpi_gang_join(trpi_cluster *c, trpi_actor_rec *actor);
void trpi_gang_leave(trpi_cluster *c, trpi_actor_rec *actor);   /* it is dead for good */
void trpi_gang_started(trpi_cluster *c, trpi_actor_rec *actor); /* it is alive */
/* Whether a death of a member is one of the gang, which then decides what follows. */
bool trpi_gang_mourns(const trpi_cluster *c, const trpi_actor_rec *actor, const trpi_life_end *end);
/* True: the member lives on, with the gang. */
bool trpi_gang_death(trpi_cluster *c, trpi_actor_rec *actor, const trpi_life_end *end);
/* A member has died, for now or for good: the others may have waited for that. */
void trpi_gang_touch(trpi_cluster *c, const trpi_actor_rec *actor);
bool trpi_gangs_tell(trpi_cluster *c); /* members of the due ones; false: there were none */
void trpi_gang_free(trpi_gang_rec *gang);

/* ---- cluster_saves.c ---- */

void trpi_save(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_save *msg);
void trpi_saved_drop(trpi_cluster *c, trpi_actor_rec *actor);

/* ---- cluster_groups.c ---- */

void trpi_group_create(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_create *msg);
void trpi_group_watch(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_watch *msg);
void trpi_group_lookup(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_lookup *msg);
void trpi_group_remove(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_group_remove *msg);
void trpi_group_end(trpi_cluster *c, trpi_group_rec *group, trp_cause cause, const char *reason);
/* Index of the bundle that has room for this waiting actor now, or -1. */
int64_t trpi_group_room(const trpi_cluster *c, const trpi_group_rec *group,
                        const trpi_actor_rec *actor);
void trpi_group_left(
    trpi_cluster *c, trpi_group_rec *group, trpi_actor_rec *actor,
    int64_t bundle); /* the actor let go of that bundle; -1 = it is dead for good */
void trpi_groups_node_dead(trpi_cluster *c, uint64_t node);  /* takes its bundles away */
void trpi_groups_node_drain(trpi_cluster *c, uint64_t node); /* those that nobody uses */
void trpi_groups_place(trpi_cluster *c); /* the lost first; those that stay so tell */
void trpi_groups_place_actors(trpi_cluster *c);
trpi_verdict trpi_group_explain(const trpi_cluster *c, const trpi_group_rec *group, char *out,
                                size_t size);
void trpi_group_free(trpi_group_rec *group);

/* ---- cluster_turns.c: who has waited too long ---- */

uint64_t trpi_turn_of_actor(uint64_t actor);
uint64_t trpi_turn_of_group(uint64_t group);
void trpi_turns_tick(trpi_cluster *c);
void trpi_turn_end(trpi_cluster *c, uint64_t who); /* it waits no more; fine if it has no turn */
void trpi_turns_node_closed(trpi_cluster *c, uint64_t node); /* dead or draining: turns there end */
void trpi_turns_release(trpi_cluster *c);

/* ---- cluster_stores.c: what the object stores of nodes must know ---- */

void trpi_store_query(trpi_cluster *c, uint64_t peer, const trpi_node_rec *asking_node,
                      const trpi_client_rec *asking_client, const trpi_msg_store_query *msg);
void trpi_stores_client_gone(trpi_cluster *c, uint64_t client);
void trpi_stores_node_gone(trpi_cluster *c, const trpi_node_rec *node);
void trpi_stores_tell(trpi_cluster *c);                                /* who is gone, together */
void trpi_stores_tell_all(trpi_cluster *c, const trpi_node_rec *node); /* who is left */

/* ---- cluster_check_ties.c ---- */

const char *trpi_check_ties(const trpi_cluster *c); /* NULL, or which invariant is broken */

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
void trpi_text_actor(const trpi_actor_rec *actor, char *out,
                     size_t size); /* actor a7 (counter "tom") */
void trpi_text_gang(const trpi_gang_rec *gang, char *out, size_t size); /* gang x3 ("ranks") */
void trpi_text_client(const trpi_cluster *c, const trpi_client_rec *client, char *out, size_t size);
void trpi_text_seconds(uint64_t ns, char *out, size_t size); /* 5.2 s */
/* The whole sentence of a death: who, where, why, what follows. */
void trpi_text_death(const trpi_cluster *c, const trpi_actor_rec *actor, const trpi_death *death,
                     const trpi_life_end *end, const char *detail, char *out, size_t size);
void trpi_text_waiting(const trpi_cluster *c, const trpi_actor_rec *actor, char *out, size_t size);

#endif

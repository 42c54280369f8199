/* world.h: a whole cluster on virtual time: the head's machine, node daemons, workers, drivers, and
 * a network between them, under seeded faults.
 *
 * Everything that happens is an event in one heap, ordered by time and then by number, and every
 * choice is drawn from one seed: a seed replays a run to the bit. Messages are encoded and decoded
 * on their way, and arrive in order on one connection, as over TCP; a connection can be away for a
 * while, and lose what was on its way when it breaks.
 *
 * Checked from outside, beside trpi_cluster_check() after every step: no node runs more than it
 * has, no device is shared beyond what was asked for, no two incarnations of an actor run on nodes
 * that the head believes to be alive, and of an exclusive one nowhere at all; nothing starts on a
 * node that was told of its drain; what an actor has saved is what its next incarnation gets; every
 * death is told once, every request is answered once. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "actors/state/cluster.h"
#include "core/base/table.h"

#define SIM_MS UINT64_C(1000000)
#define SIM_NODES 4
#define SIM_CLIENTS 256 /* drivers and workers as callers, in all */
#define SIM_WORKERS 64  /* on one node at one time */
#define SIM_ACTORS 4096
#define SIM_GPUS 2
#define SIM_JOBS 8    /* submitted ones, on one node at one time */
#define SIM_BEATS 256 /* whose times a node remembers */

typedef struct sim_rules { /* drawn from the seed */
    uint64_t node_timeout_ms, client_timeout_ms, heartbeat_ms, tick_ms, faults_until_ms, end_ms;
    uint64_t fault_percent, delay_max_ms, reserve_after_ms;
} sim_rules;

typedef struct sim_worker {
    uint64_t actor, incarnation, life; /* life: fences events of an earlier one in this slot */
    int64_t pid, cpus;
    bool used, started, dying, exclusive;
    uint64_t stop_life; /* fences the deadline of an END in good order */
    char devices[SIM_GPUS][8];
    size_t device_count;
    int client; /* index, -1 = it calls nobody */
} sim_worker;

typedef struct sim_job {
    bool used;
    uint64_t job, life;
    int driver; /* client index, -1 = none */
} sim_job;

typedef struct sim_node {
    bool running, registered, broken; /* broken: its connection loses what is said */
    uint64_t drained_id;              /* its number when it was told of its drain, 0 = never */
    uint64_t sent_ns[SIM_BEATS];      /* of heartbeats, by seq */
    uint64_t hello_ns;                /* of the last hello */
    uint64_t lease_ns;                /* exclusive workers end then, if no word of the head comes */
    uint64_t life, id, incarnation, peer, beat_peer, ack_ns, seq, hellos, joins;
    uint64_t away_until_ns; /* partition */
    uint64_t well_ns;       /* since when it is heard, when it is */
    int64_t cpus;
    char uuid[24];
    trpi_death said[32]; /* into a broken connection */
    uint64_t said_actors[32];
    size_t said_count;
    sim_worker workers[SIM_WORKERS];
    sim_job jobs[SIM_JOBS];
} sim_node;

typedef struct sim_client {
    bool running, welcomed, is_worker;
    uint64_t id, peer, request, open_requests, bye;
    uint64_t open_waits;         /* for a process to be gone: not answered after a goodbye */
    uint64_t actor, incarnation; /* of a worker */
    uint64_t away_until_ns;
    uint64_t groups[8], group_count, gangs[4], gang_count;
    uint64_t submission;
    int64_t gpus[64]; /* asked for by request, modulo; 0 = not known */
} sim_client;

typedef struct sim_actor { /* what the outside knows of it */
    bool spawned, detached, dead;
    uint64_t told_incarnation, deaths_told; /* to its first subscriber */
    int64_t gpus;
    uint64_t saves, saved; /* said, and answered */
    int watcher;           /* client that subscribed */
} sim_actor;

typedef struct sim_orphan { /* an exclusive worker whose node daemon was killed */
    uint64_t actor, until_ns;
} sim_orphan;

typedef struct sim_peer { /* who is behind a peer's number */
    enum { SIM_NOBODY, SIM_NODE, SIM_BEAT, SIM_CLIENT } kind;
    int index;
    uint64_t life;
    uint64_t to_head_ns, from_head_ns; /* last arrival: connections keep order */
} sim_peer;

typedef struct sim_event sim_event;
typedef struct sim_world sim_world;
typedef void (*sim_run)(sim_world *world, sim_event *event);

struct sim_event {
    uint64_t at_ns, number;
    sim_run run;
    int index, slot; /* of a node or client; of a worker */
    uint64_t life, peer;
    trp_buf bytes;
};

struct sim_world {
    uint64_t seed, random, now_ns, stalled_until_ns;
    sim_rules rules;
    trpi_cluster *cluster;
    trpi_actions actions;
    trpi_arena arena;
    sim_event *heap;
    size_t heap_count, heap_capacity;
    uint64_t last_number, last_life;
    int64_t last_pid;
    sim_node nodes[SIM_NODES];
    sim_client clients[SIM_CLIENTS];
    int client_count;
    sim_actor actors[SIM_ACTORS];
    sim_peer *peers;
    size_t peer_count, peer_capacity;
    bool quiet; /* no more faults and wishes: everything is to come to rest */
    bool verbose;
    sim_orphan orphans[64]; /* the latest */
    size_t orphan_count;
    uint64_t jobs_submitted;
    uint64_t causes[TRP_CAUSE_COUNT]; /* of the deaths that were told */
    uint64_t turns, restored; /* ticks with room kept free; incarnations with a saved state */
    uint64_t trace, steps, deaths, spawned, tilts; /* trace: hash of all actions so far */
    char failure[512];                             /* "" = none */
};

sim_world *sim_world_new(uint64_t seed, bool verbose);
void sim_world_run(sim_world *world); /* until the end, or the first failure */
void sim_world_free(sim_world *world);

/* ---- Between the files of the simulation ---- */

uint64_t sim_draw(sim_world *world, uint64_t below); /* 0..below-1 */
bool sim_chance(sim_world *world, uint64_t percent);
void sim_fail(sim_world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
sim_event *sim_after(sim_world *world, uint64_t ms,
                     sim_run run); /* filled in by the caller at once */
uint64_t sim_peer_new(sim_world *world, int kind, int index, uint64_t life);
void sim_to_head(sim_world *world, uint64_t peer, const trpi_msg *msg);
void sim_head_event(sim_world *world, trpi_cluster_event *event);
bool sim_head_trusts(const sim_world *world, const sim_node *node); /* believes this life of it */

void sim_node_boot(sim_world *world, int index);
void sim_node_hears(sim_world *world, int index, const trpi_msg *msg);
void sim_node_fault(sim_world *world, int index);
void sim_nodes_check(sim_world *world); /* none that is well has been given up */
size_t sim_node_workers(const sim_node *node);

/* NULL: a driver, of a submitted job or of none (0). */
int sim_client_start(sim_world *world, const sim_worker *worker, uint64_t submission);
void sim_client_hears(sim_world *world, int index, const trpi_msg *msg);
void sim_client_fault(sim_world *world, int index);
void sim_client_end(sim_world *world, int index); /* the process is gone */
/* ---- wishes.c ---- */

void sim_wish(sim_world *world, sim_event *event); /* of the client of the event, again and again */
/* The number of a request; `wait`: the answer comes when processes are gone. */
uint64_t sim_request(sim_client *client, bool wait);
#define SIM_WAIT ((uint64_t)1 << 40) /* bit in the number of such a request */

/* ---- jobs.c: submitted drivers on nodes ---- */

void sim_job_start(sim_world *world, int node, const trpi_msg_job_start *msg);
void sim_job_end(sim_world *world, int node, const trpi_msg_job_end *msg);
void sim_jobs_clear(sim_world *world, int node);

void sim_clients_settle(sim_world *world); /* kill what lives, then goodbye */

#endif

/* actor.h: spawn actors, call them, be told when and why one dies.
 *
 * An actor is a process. Its type is a row in a table that the program registers with trp_init();
 * worker processes run the same program, find the type by name and serve calls one at a time, in
 * the order in which each caller made them.
 *
 * Threads: every function may be called from any thread unless its comment says otherwise.
 * Blocking: only functions with a timeout_ms block; all others return without waiting for a peer,
 * except trp_spawn, trp_lookup, trp_kill and the trp_group_ and trp_kv_ calls, which wait for the
 * head's answer at most TROUPE_REQUEST_TIMEOUT_MS (default 10 s) and then return TRP_ETIMEOUT. */
#ifndef TROUPE_ACTOR_H
#define TROUPE_ACTOR_H

#include <troupe/bytes.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trp_runtime trp_runtime; /* opaque, one per process: runtime.h */
typedef struct trp_context
    trp_context; /* opaque, an actor's view of the runtime, inside a worker */

/* Handles are values: copy freely, send as eight bytes. id 0 = none. */
typedef struct trp_actor {
    uint64_t id;
} trp_actor;
typedef struct trp_ref {
    uint64_t id; /* a future; give it back with trp_ref_release() */
} trp_ref;
typedef struct trp_group {
    uint64_t id; /* a placement group */
} trp_group;

#define TRP_FOREVER UINT64_MAX /* a timeout_ms that never passes; spelled out on purpose */

/* ---- What runs inside a worker ---- */

/* One method. `args` is borrowed for the length of the call; the method appends its result to
 * `reply`. A returned error reaches the caller as that code (TRP_EUSER for the user's own
 * failures) with err->message. Returning an error does not end the actor. */
typedef struct trp_method {
    const char *name;
    trp_code (*run)(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply, trp_error *err);
} trp_method;

/* Static storage; registered under the same name in every worker, which is the same program. */
typedef struct trp_actor_type {
    const char *name;
    size_t state_size;         /* bytes, zeroed before start */
    const trp_method *methods; /* ends with { NULL, NULL } */
    /* Constructor, NULL if none. An error is final: the actor is dead, cause NEVER_STARTED. */
    trp_code (*start)(trp_context *ctx, void *state, trp_bytes args, trp_error *err);
    /* Runs before an orderly end (not before a kill). NULL if none. */
    void (*stop)(trp_context *ctx, void *state);
    /* Called on the worker's control thread, also while a method runs: must not block and must
     * only touch what it synchronizes itself. Receives trp_signal()'s bytes. NULL if none. */
    void (*signal)(trp_context *ctx, void *state, trp_bytes data);
} trp_actor_type;

/* The runtime of this worker, for an actor that is itself a caller. Connects on first use and may
 * then block as trp_init() does. NULL after a failure, with err filled. */
trp_runtime *trp_context_runtime(trp_context *ctx, trp_error *err);
trp_actor trp_context_actor(const trp_context *ctx);      /* this actor */
uint64_t trp_context_incarnation(const trp_context *ctx); /* 1 at first, +1 at each restart */
uint64_t trp_context_node(const trp_context *ctx);
const char *trp_context_name(const trp_context *ctx); /* "" when anonymous; lives as long as ctx */
/* Devices held, as in CUDA_VISIBLE_DEVICES, which is always set: "0,1", or "" for none. */
const char *trp_context_devices(const trp_context *ctx);

/* Ends this actor after the running method has replied; final, never restarted. */
void trp_context_exit(trp_context *ctx);

/* The reply of the running method comes later: the method returns TRP_OK, its `reply` is ignored,
 * and whoever holds *ret_promise answers exactly once, from any thread. The promise is freed by
 * trp_promise_resolve() or trp_promise_fail(). One that is never answered makes its caller wait
 * until its own deadline. */
typedef struct trp_promise trp_promise;
TRP_CHECKED trp_code trp_defer(trp_context *ctx, trp_promise **ret_promise, trp_error *err);
void trp_promise_resolve(trp_promise *promise, trp_bytes value);
void trp_promise_fail(trp_promise *promise, trp_code code, const char *message);

/* ---- Spawning ---- */

typedef struct trp_resource {
    const char *name; /* not "cpu", "gpu" or "memory", which have their own fields */
    double amount;    /* whole multiples of 0.0001 */
} trp_resource;

/* Zero-initialize; 0 means what the comment says. What is asked for is what is held, from placement
 * until the process is gone. */
typedef struct trp_spawn_options {
    const char *name;              /* anonymous; copied; unique in the driver's namespace */
    double cpus, gpus;             /* none. Multiples of 0.0001; gpus above 1 must be whole */
    uint64_t memory_bytes;         /* none */
    const trp_resource *resources; /* none */
    size_t resource_count;
    int restarts_max;            /* none; -1 = for ever */
    int call_retries_max;        /* a call runs at most once; -1 = for ever. Only calls that
                                    were running or waiting when an incarnation died are
                                    tried again; waiting for a restart uses up none */
    uint64_t restart_backoff_ms; /* 100: the first restart is at once, the next ones wait for this
                                    times 2, 4, ... with jitter, at most 10 s; forgotten after 10 s
                                    alive */
    uint64_t start_timeout_ms;   /* 30 000, for process start and constructor */
    bool detached;               /* outlives its owner; ends by trp_kill() only */
    bool get_if_exists;          /* with name: hand out the actor of that name if there is one */
    bool fail_if_infeasible;     /* TRP_EINFEASIBLE at once instead of waiting for a node */
    trp_group group;             /* none; else take the resources from this group's ... */
    int bundle;                  /* ... bundle of this index; -1 = any with room */
    uint64_t node;               /* any node; else only this one */
    const char *const *env;      /* "KEY=value" strings, ends with NULL; none */
} trp_spawn_options;

/* Asks the head for an actor and returns as soon as the head has accepted it, before it runs;
 * calls made meanwhile wait for it. Errors: TRP_EINVALID (options, type not registered),
 * TRP_EEXISTS (name taken), TRP_EINFEASIBLE (see option), TRP_ETIMEOUT, TRP_EDISCONNECTED. */
TRP_CHECKED trp_code trp_spawn(trp_runtime *rt, const char *type, trp_bytes args,
                               const trp_spawn_options *options, trp_actor *ret_actor,
                               trp_error *err);

/* The living actor of that name in this driver's namespace; TRP_ENOTFOUND otherwise. */
TRP_CHECKED trp_code trp_lookup(trp_runtime *rt, const char *name, trp_actor *ret_actor,
                                trp_error *err);

/* Kills the process group of the actor with SIGKILL; a pending actor is canceled. With may_restart,
 * the restart limits of the actor decide what follows. */
TRP_CHECKED trp_code trp_kill(trp_runtime *rt, trp_actor actor, bool may_restart, trp_error *err);

/* Hands bytes to the actor type's signal hook, beside whatever it is running. Not ordered with
 * calls. `incarnation` fences: another incarnation than this drops it; 0 = whichever lives. */
TRP_CHECKED trp_code trp_signal(trp_runtime *rt, trp_actor actor, uint64_t incarnation,
                                trp_bytes data, trp_error *err);

/* ---- Calling ---- */

/* Sends a call and returns at once. `args` is copied. `deadline_ms` counts from now, 0 = none:
 * when it passes, the ref fails with TRP_ETIMEOUT (the method may still run).
 * Calls from one process to one actor run in call order. */
TRP_CHECKED trp_code trp_call(trp_runtime *rt, trp_actor actor, const char *method, trp_bytes args,
                              uint64_t deadline_ms, trp_ref *ret_ref, trp_error *err);

/* Waits for the result. TRP_ETIMEOUT (of this wait) leaves the call running; a call's own failure
 * is returned as its code. *ret_value is borrowed until trp_ref_release(). */
TRP_CHECKED trp_code trp_get(trp_runtime *rt, trp_ref ref, uint64_t timeout_ms,
                             trp_bytes *ret_value, trp_error *err);

/* Waits for all; returns the first failure as soon as one has failed, even if others hang.
 * ret_values may be NULL. */
TRP_CHECKED trp_code trp_get_all(trp_runtime *rt, const trp_ref *refs, size_t count,
                                 uint64_t timeout_ms, trp_bytes *ret_values, trp_error *err);

/* Waits until `want` of the refs are done (with a result or a failure) or the timeout has passed;
 * TRP_OK in both cases. ret_done[i] tells which are. timeout_ms 0 polls. */
TRP_CHECKED trp_code trp_wait(trp_runtime *rt, const trp_ref *refs, size_t count, size_t want,
                              uint64_t timeout_ms, bool *ret_done, trp_error *err);

/* Forgets the ref; its value is freed. A call still under way runs on, its result is dropped. */
void trp_ref_release(trp_runtime *rt, trp_ref ref);

/* trp_call + trp_get + copy of the value appended to `reply` (may be NULL) + release. */
TRP_CHECKED trp_code trp_ask(trp_runtime *rt, trp_actor actor, const char *method, trp_bytes args,
                             uint64_t timeout_ms, trp_buf *reply, trp_error *err);

/* ---- Death ---- */

/* Append only: the numbers travel on the wire. */
#define TRP_CAUSE_MAP(X)                                                                           \
    X(NONE, "alive")                                                                               \
    X(KILLED, "killed by trp_kill or troupe kill")                                                 \
    X(SIGNALED, "ended by a signal")                                                               \
    X(EXITED, "process exited")                                                                    \
    X(FINISHED, "actor ended itself")                                                              \
    X(NEVER_STARTED, "constructor failed")                                                         \
    X(START_TIMEOUT, "did not start in time")                                                      \
    X(OWNER_DIED, "owner died")                                                                    \
    X(NODE_DIED, "node died")                                                                      \
    X(UNSCHEDULABLE, "cannot be placed")                                                           \
    X(GROUP_REMOVED, "placement group removed")                                                    \
    X(OUT_OF_MEMORY, "killed to free memory")

typedef enum trp_cause {
#define X(name, text) TRP_CAUSE_##name,
    TRP_CAUSE_MAP(X)
#undef X
        TRP_CAUSE_COUNT
} trp_cause;
const char *trp_cause_text(trp_cause cause); /* static storage, never NULL */

/* Why an incarnation of an actor ended. */
typedef struct trp_death {
    trp_actor actor;
    uint64_t incarnation;
    uint64_t node; /* 0 if it was never placed */
    int64_t pid;   /* 0 if it had none */
    trp_cause cause;
    int signal;    /* for SIGNALED */
    int exit_code; /* for EXITED */
    bool final;    /* false: a restart follows */
    int restarts;  /* so far */
    char message[512];
    char stderr_tail[4097]; /* last lines it wrote there; NUL-terminated */
} trp_death;

/* From now on each death of the actor is pushed into this process' queue of deaths, exactly once
 * per incarnation; for an actor that is already dead for good the notice comes at once. */
TRP_CHECKED trp_code trp_monitor(trp_runtime *rt, trp_actor actor, trp_error *err);
void trp_demonitor(trp_runtime *rt, trp_actor actor);

/* Takes the next death from the queue; TRP_ETIMEOUT if none came. */
TRP_CHECKED trp_code trp_next_death(trp_runtime *rt, uint64_t timeout_ms, trp_death *ret_death,
                                    trp_error *err);

/* A descriptor that is readable while the queue of deaths is not empty, for a caller's own poll
 * loop. Owned by the runtime: do not close or read it. */
int trp_deaths_fd(trp_runtime *rt);

/* ---- State, for display and tests ---- */

typedef enum trp_actor_phase {
    TRP_ACTOR_PENDING, /* waits for resources or starts */
    TRP_ACTOR_ALIVE,
    TRP_ACTOR_RESTARTING,
    TRP_ACTOR_DEAD
} trp_actor_phase;

typedef struct trp_actor_info {
    trp_actor_phase phase;
    uint64_t incarnation, node;
    int64_t pid; /* 0 while it has none */
    int restarts;
    char devices[128]; /* as in CUDA_VISIBLE_DEVICES; "" for none */
} trp_actor_info;

/* What the head last said of the actor; asks it when this process has not heard of it yet. */
TRP_CHECKED trp_code trp_actor_get_info(trp_runtime *rt, trp_actor actor, trp_actor_info *ret_info,
                                        trp_error *err);

/* Waits until the actor is alive; TRP_EACTOR_DIED with its cause when it is dead for good. */
TRP_CHECKED trp_code trp_actor_wait_alive(trp_runtime *rt, trp_actor actor, uint64_t timeout_ms,
                                          trp_error *err);

/* ---- Placement groups: a gang of bundles, all reserved or none ---- */

typedef enum trp_strategy {
    TRP_PACK,         /* few nodes */
    TRP_SPREAD,       /* many nodes */
    TRP_STRICT_PACK,  /* one node or nothing */
    TRP_STRICT_SPREAD /* one bundle per node or nothing */
} trp_strategy;

typedef struct trp_bundle {
    double cpus, gpus;
    uint64_t memory_bytes;
    const trp_resource *resources;
    size_t resource_count;
} trp_bundle;

typedef struct trp_group_options { /* zero-initialize */
    const char *name;              /* anonymous */
    trp_strategy strategy;         /* PACK */
    const trp_bundle *bundles;     /* at least one; none empty */
    size_t bundle_count;
    bool detached; /* outlives its owner */
} trp_group_options;

/* Asks for a group; returns when the head has accepted it. Nothing is held until all of it is. */
TRP_CHECKED trp_code trp_group_create(trp_runtime *rt, const trp_group_options *options,
                                      trp_group *ret_group, trp_error *err);

/* Waits until all bundles are reserved. TRP_ETIMEOUT with what is missing; TRP_EINFEASIBLE instead,
 * also when the time has passed, if the nodes there are could never hold it. ret_nodes
 * (bundle_count entries, may be NULL): where each bundle is. */
TRP_CHECKED trp_code trp_group_wait(trp_runtime *rt, trp_group group, uint64_t timeout_ms,
                                    uint64_t *ret_nodes, size_t node_count, trp_error *err);

/* Kills the actors in its bundles and gives the resources back. */
TRP_CHECKED trp_code trp_group_remove(trp_runtime *rt, trp_group group, trp_error *err);

/* ---- The head's small key-value store, for addresses and run records (1 MiB a value) ---- */

TRP_CHECKED trp_code trp_kv_put(trp_runtime *rt, const char *key, trp_bytes value, trp_error *err);
/* Appends the value to `value`; TRP_ENOTFOUND when there is none. */
TRP_CHECKED trp_code trp_kv_get(trp_runtime *rt, const char *key, trp_buf *value, trp_error *err);
TRP_CHECKED trp_code trp_kv_del(trp_runtime *rt, const char *key, trp_error *err);

#ifdef __cplusplus
}
#endif
#endif

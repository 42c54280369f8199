/* actor.h: spawn actors, call them, be told when and why one dies.
 *
 * An actor is a process. Its type is a row in a table that the program registers with trp_init();
 * worker processes run the same program, find the type by name and serve calls one at a time, in
 * the order in which each caller made them, unless the type or its spawn options ask for threads.
 *
 * Threads: every function may be called from any thread unless its comment says otherwise.
 * Blocking: functions with a timeout_ms, and trp_stop(), block for as long as that says. Of the
 * others, those that ask the head (spawn, lookup, kill, link, unlink, drain_node, list, and all of
 * groups, gangs and kv) wait for its answer, at most TROUPE_REQUEST_TIMEOUT_MS (10 s), and then
 * return TRP_ETIMEOUT. The rest return without waiting for a peer. */
#ifndef TROUPE_ACTOR_H
#define TROUPE_ACTOR_H

#include <troupe/bytes.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trp_runtime trp_runtime; /* opaque, one per process: runtime.h */
/* Opaque, an actor's view of the runtime, inside a worker. Each thread that runs methods has one of
 * its own, and so have the hooks that run on the control thread: what it says of the running method
 * (canceled, caller, beat, trp_defer) is about that thread's; all else is the same in each. Good
 * for as long as the process lives, for any thread to use. */
typedef struct trp_context trp_context;

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
typedef struct trp_gang {
    uint64_t id; /* actors that live and die together */
} trp_gang;
typedef struct trp_object {
    uint64_t id; /* a large value in the store: object.h */
} trp_object;

#define TRP_FOREVER UINT64_MAX /* a timeout_ms that never passes; spelled out on purpose */

/* ---- What runs inside a worker ---- */

/* One method. `args` is borrowed for the length of the call; the method appends its result to
 * `reply`. A returned error reaches the caller as that code (TRP_EUSER for the user's own
 * failures) with err->message. Returning an error does not end the actor. */
typedef struct trp_method {
    const char *name;
    trp_code (*run)(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply, trp_error *err);
    const char *group; /* the concurrency group it runs in; NULL = the default one */
} trp_method;

/* Threads of a worker that run methods side by side. They are made when there is work for them; a
 * call for which none can be made fails with TRP_EBUSY. A method belongs to one group; calls of one
 * caller start in call order within a group of one thread, and in no order otherwise. Methods that
 * run side by side share `state`, and synchronize it themselves, also with save(). The default
 * group has one thread, or the spawn option max_concurrency. */
typedef struct trp_concurrency {
    const char *name;
    int threads; /* 1 to 1024 */
} trp_concurrency;

/* Static storage; registered under the same name in every worker, which is the same program. */
typedef struct trp_actor_type {
    const char *name;
    size_t state_size;         /* bytes, zeroed before start */
    const trp_method *methods; /* ends with { NULL, NULL } */
    /* Constructor, NULL if none. An error is final: the actor is dead, cause NEVER_STARTED. */
    trp_code (*start)(trp_context *ctx, void *state, trp_bytes args, trp_error *err);
    /* Runs before an orderly end, trp_stop() or trp_context_exit(), when no method runs any more
     * (not before a kill). NULL if none. */
    void (*stop)(trp_context *ctx, void *state);
    /* Called on the worker's control thread, also while a method runs: must not block and must
     * only touch what it synchronizes itself. Receives trp_signal()'s bytes. NULL if none. */
    void (*signal)(trp_context *ctx, void *state, trp_bytes data);
    const trp_concurrency *concurrency; /* ends with { NULL, 0 }; NULL = the default group only */
    /* What the next incarnation needs of this one. save() appends it to `saved`; it runs in
     * trp_context_save() and, with the spawn option save_each_call, after every method that
     * succeeded, before its reply goes out (a deferred one's may go out earlier); a call whose
     * state could not be saved fails and says so. load() runs after start() in every incarnation
     * for which something was saved; its error is final like the constructor's. Both or none. NULL:
     * nothing is saved. At most 8 MiB, kept by the head. */
    trp_code (*save)(trp_context *ctx, void *state, trp_buf *saved, trp_error *err);
    trp_code (*load)(trp_context *ctx, void *state, trp_bytes saved, trp_error *err);
    /* This node is going away in deadline_ms (drained, preempted): called once, on the control
     * thread, under the rules of signal(). NULL if none. */
    void (*drain)(trp_context *ctx, void *state, uint64_t deadline_ms);
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

/* Ends this actor after the running methods have replied; calls that wait do not run. Final unless
 * its restart type is ALWAYS. */
void trp_context_exit(trp_context *ctx);
/* True once the caller of the running method has canceled it: a long one may look and return. Cheap
 * enough for a loop. */
bool trp_context_canceled(const trp_context *ctx);
/* Proof of progress, for actors with a liveness_ms, from any thread of theirs. Costs nothing. */
void trp_context_beat(trp_context *ctx);
/* Saves the state now (trp_actor_type.save) and waits for the head's word: once this has returned
 * TRP_OK, the next incarnation gets it, whatever happens to this process or node. */
TRP_CHECKED trp_code trp_context_save(trp_context *ctx, uint64_t timeout_ms, trp_error *err);
/* Milliseconds until this node is taken away; UINT64_MAX when nobody has said so. */
uint64_t trp_context_drain_ms(const trp_context *ctx);
/* The client number of the running method's caller, as trp_give() takes it; 0 outside of one. */
uint64_t trp_context_caller(const trp_context *ctx);

/* The reply of the running method comes later: the method returns TRP_OK, its `reply` is ignored,
 * and whoever holds *ret_promise answers exactly once, from any thread. The promise is freed by
 * trp_promise_resolve() or trp_promise_fail(). One that is never answered makes its caller wait
 * until its own deadline. */
typedef struct trp_promise trp_promise;
TRP_CHECKED trp_code trp_defer(trp_context *ctx, trp_promise **ret_promise, trp_error *err);
void trp_promise_resolve(trp_promise *promise, trp_bytes value);
void trp_promise_fail(trp_promise *promise, trp_code code, const char *message);
/* True once the caller has canceled the call: whoever works on its answer may give up (and must
 * still answer; that goes nowhere). */
bool trp_promise_canceled(const trp_promise *promise);

/* ---- Spawning ---- */

typedef struct trp_resource {
    const char *name; /* not "cpu", "gpu" or "memory", which have their own fields */
    double amount;    /* whole multiples of 0.0001 */
} trp_resource;

/* Which ends are followed by a restart, as far as restarts_max allows (Erlang/OTP's restart types).
 * Never: a kill that does not allow it, the owner's death, an error of the constructor. */
typedef enum trp_restart {
    TRP_RESTART_FAILED, /* transient: a signal, an exit code that is not 0, death of the node */
    TRP_RESTART_ALWAYS, /* permanent: also after exit code 0 and the actor's own exit */
    TRP_RESTART_NEVER   /* temporary, whatever restarts_max says */
} trp_restart;

typedef enum trp_schedule {
    TRP_SCHEDULE_PACKED, /* nodes fill up to a half one after the other, then evenly */
    TRP_SCHEDULE_SPREAD  /* the node with the fewest actors of this program on which it fits */
} trp_schedule;

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
                                    times 1, 2, 4, ... less up to a quarter, at most 10 s; forgotten
                                    after 10 s alive */
    trp_restart restart;         /* FAILED */
    uint64_t restart_window_ms;  /* 0: restarts_max is for the whole life; else for any span of this
                                    length (OTP's intensity per period): one more, and it is over */
    const char *const *retry_on; /* failures of user code that are tried again within
                                    call_retries_max: types as trp_raise() names them, "*" = all;
                                    ends with NULL; none */
    uint64_t start_timeout_ms;   /* 30 000, for process start and constructor */
    uint64_t liveness_ms;        /* none; a method that runs for longer than this without
                                    trp_context_beat(), or a process that answers no ping for as
                                    long (stopped, stuck) is hung: its stacks are taken down, then
                                    it is killed, cause HUNG */
    bool exclusive;      /* never two at once: the process ends by itself when its node or the head
                            has not been heard for the node timeout, and the next incarnation starts
                            only after that */
    int max_concurrency; /* threads of the default group; 1. At most 1024 */
    int max_pending_calls;   /* of one calling process to this actor, then trp_call() is TRP_EBUSY;
                                no limit but TROUPE_PENDING_CALLS_MAX */
    bool save_each_call;     /* see trp_actor_type.save */
    bool detached;           /* outlives its owner; ends by trp_kill() only */
    bool get_if_exists;      /* with name: hand out the actor of that name if there is one */
    bool fail_if_infeasible; /* TRP_EINFEASIBLE at once instead of waiting for a node */
    trp_group group;         /* none; else take the resources from this group's ... */
    int bundle;              /* ... bundle of this index; -1 = any with room */
    trp_gang gang;           /* none; else it lives and dies with the others in it */
    uint64_t node;           /* any node; else only this one; the actor is dead at once, cause
                                UNSCHEDULABLE, when that is gone or could never hold it */
    bool node_soft;          /* with node: another one rather than none */
    const char *const *labels; /* of the node: "zone=a", "zone=a|b", "zone!=a", "ssd" (has it),
                                  "!ssd"; all must hold; ends with NULL; none */
    trp_schedule schedule;     /* PACKED */
    const char *const *env;    /* "KEY=value" strings over the job's, ends with NULL; none */
    const char *cwd;           /* the driver's; else this directory, which the node must have */
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
/* The same in another namespace. */
TRP_CHECKED trp_code trp_lookup_in(trp_runtime *rt, const char *namespace_name, const char *name,
                                   trp_actor *ret_actor, trp_error *err);

/* Kills the process group of the actor with SIGKILL; a pending actor is canceled. With may_restart,
 * the restart limits of the actor decide what follows. */
TRP_CHECKED trp_code trp_kill(trp_runtime *rt, trp_actor actor, bool may_restart, trp_error *err);

/* Ends the actor in good order: the calls that it has got are answered, its stop hook runs, then
 * the process exits, final. Calls made later fail. Waits until it is gone; what is not done after
 * deadline_ms is killed, and the answer is TRP_ETIMEOUT. A pending actor is canceled. */
TRP_CHECKED trp_code trp_stop(trp_runtime *rt, trp_actor actor, uint64_t deadline_ms,
                              trp_error *err);

/* Hands bytes (1 MiB at most) to the actor type's signal hook, beside whatever it is running. Not
 * ordered with calls. `incarnation` fences: another incarnation than this drops it; 0 = whichever
 * lives. */
TRP_CHECKED trp_code trp_signal(trp_runtime *rt, trp_actor actor, uint64_t incarnation,
                                trp_bytes data, trp_error *err);

/* ---- Calling ---- */

/* Sends a call and returns at once. `args` is copied. `deadline_ms` counts from now, 0 = none:
 * when it passes, the ref fails with TRP_ETIMEOUT (the method may still run). A call to an actor
 * that has not started yet waits for it. One that runs when its actor dies, or is made while the
 * actor restarts, fails with TRP_EUNAVAILABLE unless it has retries; with TRP_EACTOR_DIED when the
 * death was final.
 * Calls from one process to one actor run in call order. */
TRP_CHECKED trp_code trp_call(trp_runtime *rt, trp_actor actor, const char *method, trp_bytes args,
                              uint64_t deadline_ms, trp_ref *ret_ref, trp_error *err);

#define TRP_RETRIES_NONE (-2)
typedef struct trp_call_options { /* zero-initialize */
    uint64_t deadline_ms;         /* none */
    int retries_max;             /* the actor's call_retries_max; -1 = for ever; TRP_RETRIES_NONE */
    const char *const *retry_on; /* the actor's retry_on; ends with NULL */
    const trp_object *objects; /* kept in the store until the call is done: those that args name */
    size_t object_count;
} trp_call_options;

/* trp_call() with options, which may be NULL. */
TRP_CHECKED trp_code trp_call_with(trp_runtime *rt, trp_actor actor, const char *method,
                                   trp_bytes args, const trp_call_options *options,
                                   trp_ref *ret_ref, trp_error *err);

/* The ref fails with TRP_ECANCELED at once, unless it is done already. A call that has not started
 * will not run; one that runs is told (trp_context_canceled) and its result is dropped. */
void trp_cancel(trp_runtime *rt, trp_ref ref);

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

/* For programs with a loop of their own: trp_notify() puts the ref into this process' queue of done
 * refs when it is done (at once if it is). trp_next_done() takes the next, TRP_ETIMEOUT if none
 * came; trp_done_fd() is readable while the queue is not empty: owned by the runtime, do not close
 * or read it. Such refs make progress without anybody waiting in trp_get(). */
TRP_CHECKED trp_code trp_notify(trp_runtime *rt, trp_ref ref, trp_error *err);
TRP_CHECKED trp_code trp_next_done(trp_runtime *rt, uint64_t timeout_ms, trp_ref *ret_ref,
                                   trp_error *err);
int trp_done_fd(trp_runtime *rt);

/* Calls fn once when the ref is done, on a thread of the runtime, the same for all, or, if it is
 * done already, before this returns. fn must not block: on that thread whatever would wait behaves
 * as with a timeout of 0, and what must ask the head is TRP_EINVALID. trp_get() of this ref does
 * not block in it, and it may make calls and release the ref, but not shut the runtime down. Not
 * called any more once the ref is released; a call that has begun by then runs to its end. */
typedef void (*trp_done_fn)(trp_runtime *rt, trp_ref ref, void *arg);
TRP_CHECKED trp_code trp_on_done(trp_runtime *rt, trp_ref ref, trp_done_fn fn, void *arg,
                                 trp_error *err);

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
    X(OUT_OF_MEMORY, "killed to free memory")                                                      \
    X(HUNG, "made no progress")                                                                    \
    X(STOPPED, "stopped in good order")                                                            \
    X(LINKED, "an actor that it was linked to died")                                               \
    X(GANG, "a member of its gang died")                                                           \
    X(DRAINED, "its node was drained")

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
    char core[256];         /* of its core file, or how to get it; "" if none was written */
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

/* Ties this actor (rt is of a worker) and another one together: when one of them is dead for good,
 * the other is killed, cause LINKED, and its restart rules decide what follows. TRP_EINVALID in a
 * driver, which owns what it spawns anyway; TRP_EACTOR_DIED when the other is dead already. */
TRP_CHECKED trp_code trp_link(trp_runtime *rt, trp_actor other, trp_error *err);
TRP_CHECKED trp_code trp_unlink(trp_runtime *rt, trp_actor other, trp_error *err);

/* ---- Gangs: one for all ---- */

typedef enum trp_gang_policy {
    TRP_GANG_END,    /* one death, be it final or not, ends them all */
    TRP_GANG_RESTART /* one death restarts them all, together, when the last of them is gone */
} trp_gang_policy;

typedef struct trp_gang_options { /* zero-initialize */
    const char *name;             /* for display; anonymous */
    trp_gang_policy policy;
    int restarts_max;            /* of the gang, instead of its members' own; none; -1 = for ever */
    uint64_t restart_window_ms;  /* as in trp_spawn_options */
    uint64_t restart_backoff_ms; /* likewise */
    bool detached;
} trp_gang_options;

/* Members join by the spawn option gang. A gang is there until it is ended: by trp_gang_end(), its
 * policy, a death that no restart can follow or its owner's. A death in it is any but trp_stop()
 * and TRP_CAUSE_FINISHED, which leave the others alone. */
TRP_CHECKED trp_code trp_gang_create(trp_runtime *rt, const trp_gang_options *options,
                                     trp_gang *ret_gang, trp_error *err);
TRP_CHECKED trp_code trp_gang_end(trp_runtime *rt, trp_gang gang, trp_error *err);

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
    bool draining;     /* its node is going away ... */
    uint64_t drain_ms; /* ... in so many ms, as of when the head said so */
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

/* The group of that name in this driver's namespace; TRP_ENOTFOUND otherwise. */
TRP_CHECKED trp_code trp_group_lookup(trp_runtime *rt, const char *name, trp_group *ret_group,
                                      trp_error *err);

/* Kills the actors in its bundles and gives the resources back. */
TRP_CHECKED trp_code trp_group_remove(trp_runtime *rt, trp_group group, trp_error *err);

/* ---- Nodes ---- */

/* From now on no actor or bundle is placed there; actors are told (trp_actor_type.drain), and those
 * still there after deadline_ms are killed, cause DRAINED: a restart that follows is not counted.
 * reason is for display ("preemption"). Returns when the head has taken it in. */
TRP_CHECKED trp_code trp_drain_node(trp_runtime *rt, uint64_t node, const char *reason,
                                    uint64_t deadline_ms, trp_error *err);

/* Appends a JSON text of what the head knows: "status", or all "nodes", "actors", "groups",
 * "gangs", "jobs" or "runs", as `troupe list` has them; "actors/7" is that one alone. */
TRP_CHECKED trp_code trp_list(trp_runtime *rt, const char *what, trp_buf *json, trp_error *err);

/* ---- The head's small key-value store, for addresses and run records (1 MiB a value) ---- */

TRP_CHECKED trp_code trp_kv_put(trp_runtime *rt, const char *key, trp_bytes value, trp_error *err);
/* Appends the value to `value`; TRP_ENOTFOUND when there is none. */
TRP_CHECKED trp_code trp_kv_get(trp_runtime *rt, const char *key, trp_buf *value, trp_error *err);
TRP_CHECKED trp_code trp_kv_del(trp_runtime *rt, const char *key, trp_error *err);

#ifdef __cplusplus
}
#endif
#endif

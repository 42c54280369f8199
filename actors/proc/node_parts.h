/* node_parts.h: the node daemon's own structs, and what its files call of each other.
 *
 *   node.c            the loop: waits, hands out messages, events and timers
 *   node_join.c       registration with the head; loss of the lease
 *   node_dir.c        the session directory, its socket and its pid file
 *   node_workers.c    the table of workers; from START to STARTED
 *   node_ends.c       how a worker is asked to end: STOP, deadlines, SIGKILL
 *   node_liveness.c   PING and PONG: hung workers, leases of exclusive ones
 *   node_dump.c       what a hung worker's threads do, taken down before it is killed
 *   node_memory.c     the memory monitor, and kills by the kernel
 *   node_stats.c      NODE_STATS
 *   node_limits.c     descriptors and tasks that the system allows
 *   node_deaths.c     from SIGCHLD to EXITED
 *   node_core.c       where a dead worker's core file is
 *   node_programs.c   programs and their warm pools
 *   node_zygotes.c    exec, forks and death of a program's zygote
 *   node_output.c     pipes, LOG_LINES
 *   node_logs.c       the files that they end in, and which of the dead are kept
 *   node_orphans.c    what dead workers left behind
 *   node_blobs*.c     executables and working directories that this host lacks
 *   node_jobs.c       submitted drivers
 *   node_watch.c      drivers whose death the head wants to know
 *   node_resources.c  what this host offers
 *   node_store.c      the object store, which has a thread of its own
 *
 * One thread runs all of it; only the heartbeat (node_heartbeat.c) has another.
 *
 * A worker's way:
 *
 *   WANTED -(1)-> FORKING -(2)-> FORKED -(3)-> IDLE -(4)-> STARTING -(5)-> ALIVE
 *
 *   (1) its zygote is asked   (2) the zygote tells the pid   (3) WORKER_HELLO
 *   (4) START is sent to it   (5) STARTED comes back
 *
 * A worker is bound when it has been given an actor: at birth when none was spare, else in FORKING,
 * FORKED or IDLE. From (2) on it can die in any phase; only then is its record freed and, if it was
 * bound, EXITED sent. */
#ifndef TRPI_NODE_PARTS_H
#define TRPI_NODE_PARTS_H

#include <sys/queue.h>
#include <sys/types.h>

#include "actors/proc/node.h"
#include "actors/proc/node_blobs.h"
#include "actors/proc/node_heartbeat.h"
#include "actors/proc/node_jobs.h"
#include "actors/proc/node_map.h"
#include "actors/proc/node_timers.h"
#include "actors/proc/output.h"
#include "actors/proc/output_log.h"
#include "actors/proc/store_server.h"
#include "actors/state/liveness.h"
#include "core/base/id.h"
#include "core/base/times.h"
#include "core/net/sock.h"
#include "core/sys/session.h"
#include "core/wire/codec.h"

/* <sys/queue.h> of glibc lacks the walk during which the current element may go. */
#define TRPI_TAILQ_FOREACH_SAFE(var, head, field, next)                                            \
    for ((var) = TAILQ_FIRST(head); (var) && ((next) = TAILQ_NEXT(var, field), 1); (var) = (next))

typedef enum trpi_worker_phase {
    TRPI_WORKER_WANTED,
    TRPI_WORKER_FORKING,
    TRPI_WORKER_FORKED,
    TRPI_WORKER_IDLE,
    TRPI_WORKER_STARTING,
    TRPI_WORKER_ALIVE,
} trpi_worker_phase;

/* Which list of its program a worker is in. */
typedef enum trpi_worker_listing {
    TRPI_LIST_NONE,   /* bound and asked for */
    TRPI_LIST_WANTED, /* bound, WANTED */
    TRPI_LIST_SPARE,  /* unbound, FORKING or FORKED */
    TRPI_LIST_IDLE,   /* unbound, IDLE */
} trpi_worker_listing;

typedef struct trpi_program trpi_program;

typedef struct trpi_node_worker {
    uint64_t token;
    pid_t pid; /* 0 until (2) */
    trpi_worker_phase phase;
    trpi_program *program;
    trpi_worker_listing list;
    TAILQ_ENTRY(trpi_node_worker) link;
    uint64_t due_ns; /* must be IDLE or ALIVE by then */

    /* The actor it is; actor 0 = unbound. */
    uint64_t actor, incarnation, job;
    char *label;   /* the actor's name, else its type */
    char *cwd;     /* where it starts */
    trp_buf start; /* the START frame, until it is sent */
    char *endpoint, *remote_endpoint;
    unsigned lost; /* processes that died before START could reach them */
    bool exclusive;
    int64_t restartable;
    uint64_t bound_ns; /* when it became the actor */

    /* Its end. `asked`: the head (or a timeout here) wants it dead; `told`: what it said itself. */
    trp_cause asked_cause, told_cause; /* NONE = not */
    char *asked_reason, *told_reason;
    uint64_t kill_at_ns; /* asked to stop in good order until then; 0 = not */
    uint64_t killed_ns;  /* when we sent SIGKILL; 0 = not yet */

    trpi_liveness liveness;
    struct trpi_dump *dump; /* while it is being taken down what its threads do, before the kill */

    /* Its output: [0] stdout, [1] stderr. */
    int pipes[2]; /* ours to read; -1 = none or at its end */
    trpi_output streams[2];
    trp_buf batch[2];           /* lines that wait for the next LOG_LINES */
    uint64_t dropped[2];        /* lines left out after the batch ... */
    uint64_t dropped_before[2]; /* ... and before it, not yet said */
    bool log_noted, in_flush;
    uint64_t log_lost; /* lines that the log file could not take, not yet noted in it */
    TAILQ_ENTRY(trpi_node_worker) flush;
} trpi_node_worker;

TAILQ_HEAD(trpi_worker_list, trpi_node_worker);

/* Logs that nobody writes any more; in the order in which their owners ended. */
typedef struct trpi_dead_log {
    bool is_job;
    uint64_t id, bytes;
} trpi_dead_log;

typedef struct trpi_dead_logs {
    trpi_dead_log *items;
    size_t count;
    uint64_t bytes;
} trpi_dead_logs;

typedef enum trpi_program_phase {
    TRPI_PROGRAM_DOWN,     /* no zygote */
    TRPI_PROGRAM_STARTING, /* exec'd, has not reached trp_init() */
    TRPI_PROGRAM_READY,
} trpi_program_phase;

/* Which file an executable's path named when its zygote was started. */
typedef struct trpi_exe_identity {
    uint64_t device, inode, size, changed_ns;
} trpi_exe_identity;

struct trpi_program {
    uint64_t id;
    char *exe, *cwd;
    trpi_exe_identity identity;
    trpi_program_phase phase;
    pid_t zygote; /* 0 = none */
    int sock, pipe;
    trpi_output output; /* of the zygote itself */
    uint64_t ready_due_ns, retry_ns, paused_ns;
    uint64_t fork_due_ns;  /* it must have answered some request by then, while forking > 0 ... */
    uint64_t fork_wake_ns; /* ... and is looked at then */
    unsigned failures;     /* of zygotes in a row */
    bool killed;           /* we did it */
    bool foreign;          /* it speaks another version of zygote.h */
    bool closing;          /* out of use: goes when its last process is gone */
    unsigned held;         /* somebody walks its workers: not to be freed now */
    uint64_t workers, bound, unbound, forking; /* unbound: in spare or idle */
    uint64_t waiting;                          /* workers in wanted */
    uint64_t idle_since_ns;
    char trouble[384];                  /* why its last fork or exec failed; for START_TIMEOUT */
    char *exe_hash;                     /* of its content; "" = whatever is at exe */
    char *package;                      /* hash of its working directory; "" = cwd is a path */
    uint64_t job;                       /* of the actor that came first */
    trpi_blob *exe_blob, *package_blob; /* held; NULL = not needed, or not yet */
    struct trpi_worker_list wanted, spare, idle;
    TAILQ_ENTRY(trpi_program) link;
};

TAILQ_HEAD(trpi_program_list, trpi_program);

typedef enum trpi_node_phase {
    TRPI_NODE_JOINING, /* no registration; nothing runs here */
    TRPI_NODE_SERVING,
    TRPI_NODE_CLEARING, /* lease lost: kills everything, then JOINING */
    TRPI_NODE_STOPPING, /* kills everything, then ends */
} trpi_node_phase;

/* A frame that may have to be told to a restarted head again. */
typedef struct trpi_said {
    trp_buf frame;
    uint64_t at_ns;
} trpi_said;

#define TRPI_SAID_MAX 256

typedef struct trpi_node {
    const trpi_node_options *options;
    trpi_node_phase phase;
    char uuid[TRPI_UUID_TEXT];
    int exit_code;
    int ready_fd;
    char end_reason[128]; /* for NODE_BYE */
    bool end_reached;
    bool sweep_due, trim_due;
    uint64_t refused; /* messages of workers that were none */
    uint64_t stop_until_ns;

    /* Registration */
    uint64_t id, incarnation, heartbeat_ms, timeout_ms;
    char cluster[64];
    uint64_t join_until_ns;
    uint64_t join_ns; /* when this connection was made: names it for the head */
    trpi_heartbeat *heartbeat;
    trpi_said said[TRPI_SAID_MAX]; /* the last EXITED messages, a ring */
    size_t said_next;

    /* The outside */
    trpi_net *net;
    trpi_sock *head;  /* NULL while CLEARING */
    trpi_sock *inner; /* ROUTER for the workers; NULL without registration */
    int epoll_fd, signal_fd, heartbeat_fd;
    size_t descriptors_max; /* that the system allows us */
    uint64_t tasks_left;    /* processes and threads that it allows; looked at again ... */
    uint64_t tasks_due_ns;  /* ... by then */
    bool forks_refused;     /* said so already */
    trpi_timers timers;
    trpi_arena arena; /* of the message that is being handled */
    trp_buf frame;    /* of the message that is being sent */
    char dir[160];
    trpi_pidfile pidfile;

    /* What runs here */
    trpi_map workers; /* by token */
    trpi_map pids;    /* -> worker */
    trpi_map actors;  /* -> worker that is bound to it, the newest */
    trpi_map programs_by_id;
    struct trpi_program_list programs;
    uint64_t last_token, last_program;
    uint64_t freed;   /* workers since the last trim */
    trpi_map watches; /* client -> trpi_watch */
    trpi_blobs blobs;
    struct trpi_node_job_list jobs;

    uint64_t drain_until_ns; /* this node goes away then; 0 = nobody has said so */
    char drain_reason[128];
    struct trpi_node_memory *memory; /* node_memory.c */
    trpi_msg_node_stats stats;       /* as last said */
    uint64_t stats_due_ns;
    int guard_fd;             /* core/sys/guard.h; -1 = none */
    trpi_store_server *store; /* NULL before the first join, and while CLEARING */
    int store_fd;
    uint64_t store_serial; /* of the last object that this daemon made */

    /* Output */
    trpi_dead_logs dead_logs;
    struct trpi_worker_list flush; /* workers with a batch */
    bool flush_due;
    bool log_failing;   /* said so already */
    size_t flush_bytes; /* batched by all workers since the last flush */
    trp_buf lines;
    unsigned char *chunk; /* TRPI_CHUNK_BYTES to read into */
} trpi_node;

#define TRPI_CHUNK_BYTES ((size_t)64 * 1024)

/* What a worker and a zygote cost the daemon: two pipes and a connection; a socket and a pipe. */
#define TRPI_WORKER_DESCRIPTORS ((size_t)3)
#define TRPI_ZYGOTE_DESCRIPTORS ((size_t)2)

/* What a descriptor in the epoll set is; its number is a token, program id or client id, so that an
 * event of something that went in the same round finds nothing. */
typedef enum trpi_source {
    TRPI_SOURCE_SIGNAL,
    TRPI_SOURCE_HEARTBEAT,
    TRPI_SOURCE_STDOUT, /* worker's */
    TRPI_SOURCE_STDERR,
    TRPI_SOURCE_ZYGOTE,        /* program's socket */
    TRPI_SOURCE_ZYGOTE_OUTPUT, /* program's pipe */
    TRPI_SOURCE_WATCH,         /* client's pidfd */
    TRPI_SOURCE_JOB_STDOUT,    /* job's */
    TRPI_SOURCE_JOB_STDERR,
    TRPI_SOURCE_STORE, /* it has words for the head */
} trpi_source;

typedef enum trpi_timer_kind {
    TRPI_TIMER_JOIN,
    TRPI_TIMER_WORKER,  /* due_ns of a worker */
    TRPI_TIMER_STOP,    /* a worker that said it would exit */
    TRPI_TIMER_PROGRAM, /* anything of a program */
    TRPI_TIMER_FLUSH,
    TRPI_TIMER_SWEEP,
    TRPI_TIMER_TRIM,
    TRPI_TIMER_BLOB,     /* a blob that is fetched or unpacked; 0 = files that are being compared */
    TRPI_TIMER_JOB,      /* the end of a job's grace */
    TRPI_TIMER_END,      /* kill again what is left while CLEARING or STOPPING */
    TRPI_TIMER_KILL,     /* kill_at_ns of a worker */
    TRPI_TIMER_LIVENESS, /* next_ns of a worker's liveness */
    TRPI_TIMER_DUMP,     /* look whether a dump is complete */
    TRPI_TIMER_MEMORY,
    TRPI_TIMER_STATS,
} trpi_timer_kind;

/* node_limits.c: TRP_EBUSY tells what to change */
TRP_CHECKED trp_code trpi_node_limits_open(trpi_node *node, trp_error *err);
/* Whether so many descriptors may be taken now. */
TRP_CHECKED trp_code trpi_node_may_open(const trpi_node *node, size_t count, trp_error *err);
/* Whether this host may have one more worker's processes and threads. */
TRP_CHECKED trp_code trpi_node_may_fork(trpi_node *node, trp_error *err);

/* node.c */
TRP_CHECKED trp_code trpi_node_watch_fd(trpi_node *node, int fd, trpi_source source, uint64_t id,
                                        trp_error *err);
void trpi_node_unwatch_fd(trpi_node *node, int *fd); /* and closes it; -1 is fine */
void trpi_node_timer(trpi_node *node, trpi_timer_kind kind, uint64_t id, uint64_t due_ns);
void trpi_node_say(trpi_node *node, const trpi_msg *msg); /* to the head; dropped without one */
void trpi_node_say_frame(trpi_node *node, trp_bytes frame);
/* To a worker; false when it can't be reached. */
bool trpi_node_tell(trpi_node *node, uint64_t token, const trpi_msg *msg);
bool trpi_node_tell_frame(trpi_node *node, uint64_t token, trp_bytes frame);
void trpi_node_untell(trpi_node *node, uint64_t token); /* it is gone: nothing is kept for it */
void trpi_node_stop(trpi_node *node, const char *reason, int exit_code);

/* node_join.c */
void trpi_node_join(trpi_node *node);       /* nothing runs here: ask to be registered */
void trpi_node_join_again(trpi_node *node); /* the timer */
void trpi_node_welcomed(trpi_node *node, const trpi_msg_node_welcome *welcome);
void trpi_node_refused(trpi_node *node, const trpi_msg_done *done);
void trpi_node_heard(trpi_node *node, unsigned heartbeat_events);
void trpi_node_unheard(trpi_node *node); /* the head does not know our connection: a new one */
void trpi_node_cleared(trpi_node *node); /* no child is left: go on, while CLEARING or STOPPING */
void trpi_node_goodbye(trpi_node *node);
/* "NODE CLUSTER" or "error: ...", once. */
void trpi_node_report_ready(trpi_node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* node_dir.c */
TRP_CHECKED trp_code trpi_node_dir_open(trpi_node *node, trp_error *err);
void trpi_node_dir_close(trpi_node *node);      /* all but the pid file */
void trpi_node_pidfile_remove(trpi_node *node); /* at the end of the process */

/* node_workers.c */
trpi_node_worker *trpi_node_worker_new(trpi_node *node, trpi_program *program);
void trpi_node_trim(trpi_node *node); /* gives memory of dead workers back */
void trpi_node_worker_free(trpi_node *node, trpi_node_worker *worker); /* its process is gone */
/* Its process will never come: makes it as if it had just been wanted, under a new token. */
void trpi_node_worker_renew(trpi_node *node, trpi_node_worker *worker);
void trpi_node_start(trpi_node *node, const trpi_msg_start *start, trp_bytes frame);
/* Its process died before START could reach it: another one becomes the actor. False when it has
 * had enough of them. */
bool trpi_node_start_again(trpi_node *node, trpi_node_worker *worker);
void trpi_node_signal(trpi_node *node, const trpi_msg_signal *signal, trp_bytes frame);
void trpi_node_saved(trpi_node *node, const trpi_msg_saved *saved, trp_bytes frame);
void trpi_node_drain(trpi_node *node, const trpi_msg_drain_notice *notice);
void trpi_node_from_worker(trpi_node *node, uint64_t token, const trpi_msg *msg, trp_bytes frame);
void trpi_node_say_started(trpi_node *node, const trpi_node_worker *worker);
void trpi_node_worker_due(trpi_node *node, uint64_t token, uint64_t now_ns);
void trpi_node_worker_has_pid(trpi_node *node, trpi_node_worker *worker, pid_t pid);
/* It was bound and is not any more; its record stays until its process is gone. */
void trpi_node_worker_unbind(trpi_node *node, trpi_node_worker *worker);

/* node_ends.c */
void trpi_node_end(trpi_node *node, const trpi_msg_end *end);
/* Wants it dead, for a cause; EXITED follows when it is. May free it. */
void trpi_node_worker_end(trpi_node *node, trpi_node_worker *worker, trp_cause cause,
                          const char *reason);
/* The same, after what its threads do has been taken down. */
void trpi_node_worker_end_hung(trpi_node *node, trpi_node_worker *worker, trp_cause cause,
                               const char *reason);
void trpi_node_worker_kill(trpi_node_worker *worker);            /* SIGKILL to its group */
void trpi_node_worker_kill_due(trpi_node *node, uint64_t token); /* its grace is over */
void trpi_node_worker_overdue(trpi_node *node, uint64_t token);  /* said it would exit, and did
                                                                    not */

/* node_liveness.c */
void trpi_node_liveness_set(const trpi_node *node, trpi_node_worker *worker,
                            const trpi_msg_start *start);
void trpi_node_liveness_begin(trpi_node *node, trpi_node_worker *worker); /* START is out */
void trpi_node_liveness_due(trpi_node *node, uint64_t token, uint64_t now_ns);
void trpi_node_pong(trpi_node *node, trpi_node_worker *worker, const trpi_msg_pong *pong);

/* node_dump.c */
void trpi_node_dump_start(trpi_node *node, trpi_node_worker *worker); /* it is killed afterwards */
void trpi_node_dump_due(trpi_node *node, uint64_t token, uint64_t now_ns);
void trpi_node_dump_free(trpi_node_worker *worker);

/* node_core.c */
/* What of a child that has dumped core is gone when it is reaped. */
typedef struct trpi_core_trace {
    char comm[32];
    uint64_t limit;
} trpi_core_trace;
void trpi_core_look(pid_t pid, trpi_core_trace *ret_trace); /* before it is reaped */
/* The path of its core file, or how to get it; "" when there is none. */
void trpi_core_find(const trpi_node *node, const trpi_node_worker *worker, int wait_status,
                    const trpi_core_trace *trace, char *out, size_t size);

/* node_memory.c */
void trpi_node_memory_open(trpi_node *node);
void trpi_node_memory_close(trpi_node *node);
void trpi_node_memory_due(trpi_node *node, uint64_t now_ns);
bool trpi_node_memory_is_tight(const trpi_node *node); /* no idle workers are to be kept */
/* Whether a process that died by SIGKILL, which we did not send, was the kernel's choice. */
bool trpi_node_memory_kernel_killed(trpi_node *node);
void trpi_node_memory_figures(const trpi_node *node, trpi_msg_node_stats *stats);

/* node_stats.c */
void trpi_node_stats_begin(trpi_node *node); /* to a head that knows none yet */
void trpi_node_stats_due(trpi_node *node);

/* node_deaths.c */
void trpi_node_reap(trpi_node *node); /* all children that have ended */
/* Says EXITED for a bound worker that never had a process, and frees it. */
void trpi_node_never_started(trpi_node *node, trpi_node_worker *worker, trp_cause cause,
                             const char *reason, const char *tail);
/* Says it, of one whose process may still come. */
void trpi_node_say_never_started(trpi_node *node, const trpi_node_worker *worker, trp_cause cause,
                                 const char *reason, const char *tail);
void trpi_node_say_again(trpi_node *node); /* the last EXITED messages */
void trpi_node_keep_said(trpi_node *node); /* what was said last is one of them */
void trpi_node_forget_said(trpi_node *node);
void trpi_node_kill_all(trpi_node *node);
bool trpi_node_has_children(void);
bool trpi_node_has_ended(pid_t pid); /* a child that we have not reaped yet */

/* node_programs.c */
trpi_program *trpi_program_get(trpi_node *node, const trpi_msg_start *start);
/* Some blob has come, or will not: those that wait for theirs look again, soon. */
void trpi_programs_go_on(trpi_node *node);
/* A worker for an actor: idle, else spare, else a new one. */
trpi_node_worker *trpi_program_worker(trpi_node *node, trpi_program *program);
/* Asks for what is wanted, then for what the pool lacks. */
void trpi_program_refill(trpi_node *node, trpi_program *program);
void trpi_program_refill_soon(trpi_node *node, trpi_program *program);
void trpi_program_unlist(trpi_node_worker *worker); /* out of wanted, spare or idle */
void trpi_program_list_wanted(trpi_node_worker *worker);
void trpi_program_list_spare(trpi_node_worker *worker);
void trpi_program_list_idle(trpi_node_worker *worker);
void trpi_program_wake_at(trpi_node *node, const trpi_program *program, uint64_t due_ns);
void trpi_program_due(trpi_node *node, trpi_program *program, uint64_t now_ns);
/* One of its workers or its zygote is gone: may free it. */
void trpi_program_worker_freed(trpi_node *node, trpi_program *program);
void trpi_program_end_all(trpi_node *node);

/* node_zygotes.c */
void trpi_zygote_start(trpi_node *node, trpi_program *program); /* or later, while it backs off */
void trpi_zygote_kill(trpi_program *program);
void trpi_zygote_gone(trpi_node *node, trpi_program *program, int wait_status);
/* Asks for the process of a worker; false when nothing more can be asked for now. */
bool trpi_zygote_fork(trpi_node *node, trpi_program *program, trpi_node_worker *worker);
void trpi_zygote_drain(trpi_node *node, trpi_program *program);     /* its messages */
void trpi_zygotes_drain(trpi_node *node);                           /* of all that fork */
trpi_program *trpi_zygote_of_pid(const trpi_node *node, pid_t pid); /* NULL: of none */
void trpi_zygote_output(trpi_node *node, trpi_program *program);    /* its pipe */
void trpi_zygote_close(trpi_node *node, trpi_program *program);     /* both */

/* node_orphans.c */
void trpi_node_sweep_soon(trpi_node *node);
void trpi_node_sweep(trpi_node *node); /* kills what dead workers left behind */
void trpi_node_kill_children(void);    /* kills all */

/* node_logs.c */
void trpi_node_log_path(const trpi_node *node, bool is_job, uint64_t id, char *out, size_t size);
trpi_output_log trpi_node_log(const char *path);           /* bounded as the settings say */
void trpi_node_log_lives(trpi_node *node, uint64_t actor); /* it writes here (again) */
/* Its log is kept as long as LOG_DEAD_BYTES hold it. */
void trpi_node_log_ends(trpi_node *node, bool is_job, uint64_t id);

/* node_output.c */
void trpi_node_output_start(trpi_node *node, trpi_node_worker *worker); /* once it is bound */
void trpi_node_output_read(trpi_node *node, trpi_node_worker *worker, int stream);
void trpi_node_output_drain(trpi_node *node, trpi_node_worker *worker); /* what is there by now */
/* Lines of the daemon's own about it, as if it had written them to its stderr. */
void trpi_node_output_note(trpi_node *node, trpi_node_worker *worker, trp_bytes lines);
void trpi_node_output_end(trpi_node *node, trpi_node_worker *worker); /* drains, sends, closes */
void trpi_node_output_flush(trpi_node *node);
void trpi_node_logs_query(trpi_node *node, const trpi_msg_logs_query *query);

/* node_store.c */
TRP_CHECKED trp_code trpi_node_store_open(trpi_node *node, trp_error *err);
void trpi_node_store_addresses(const trpi_node *node, trpi_msg_node_hello *hello);
TRP_CHECKED trp_code trpi_node_store_serve(trpi_node *node, trp_error *err);
void trpi_node_store_words(trpi_node *node);
void trpi_node_store_tell(trpi_node *node, trp_bytes frame);
size_t trpi_node_store_descriptors(const trpi_node *node);
void trpi_node_store_figures(const trpi_node *node, trpi_msg_node_stats *stats);
void trpi_node_store_close(trpi_node *node);

/* node_watch.c */
void trpi_node_watch(trpi_node *node, const trpi_msg_watch_pid *watch);
void trpi_node_watch_fired(trpi_node *node, uint64_t client);
void trpi_node_watch_close(trpi_node *node);

#endif

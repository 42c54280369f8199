/* worker_parts.h: a worker process' own structs, and what its files call of each other.
 *
 *   zygote.c          forks workers
 *   worker.c          the main thread: START, serving, the end
 *   worker_start.c    what START asks of the process
 *   worker_types.c    the program's tables of actor types
 *   worker_desk.c     the data socket: calls come in, also while a method runs
 *   worker_replies.c  answers, at once or later and from any thread
 *   worker_run.c      one method
 *   worker_pool.c     the threads of concurrency groups
 *   worker_save.c     trp_context_save()
 *   worker_control.c  the control thread: the link to the node
 *   worker_lease.c    the end of an exclusive actor that nobody vouches for
 *   worker_dump.c     stacks of threads
 *   worker_context.c  what an actor may ask about itself
 *
 * The main thread owns the data socket. Where there is one group of one thread, as by default, it
 * also runs the methods: it receives, runs and answers calls without a hand-over. Otherwise it
 * hands them to the groups' threads. The control thread owns the link to the node, so that PING,
 * SIGNAL and SAVED are served while methods run. */
#ifndef TRPI_WORKER_PARTS_H
#define TRPI_WORKER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <troupe/runtime.h>

#include "actors/proc/worker.h"
#include "actors/proc/worker_types.h"
#include "actors/state/worker_works.h"
#include "core/net/sock.h"
#include "core/wire/codec.h"

typedef struct trpi_worker trpi_worker;

/* ---- The desk: the data socket, and the calls that came by it ----
 *
 * Who may touch it depends on what the main thread does:
 *
 *   TRPI_DESK_OWNED  the main thread uses it. Alone it does so without the lock; with a pool it
 *                    takes the lock for `works`, which the pool's threads need too.
 *   TRPI_DESK_POLLED the main thread waits for the socket. Nobody else may touch that.
 *   TRPI_DESK_LENT   user code runs on the main thread: whoever holds the lock may do all.
 *
 * Everybody else holds the lock. Who may not send leaves its answer in `answers`, and rings when
 * the main thread waits. The state changes under the lock, so that every change of hands is a full
 * fence, and `answers` is empty whenever it becomes POLLED or LENT. */
typedef enum trpi_desk_state {
    TRPI_DESK_OWNED,
    TRPI_DESK_POLLED,
    TRPI_DESK_LENT,
} trpi_desk_state;

/* A call, from its arrival until its method has returned. */
typedef struct trpi_task {
    trpi_work work;     /* first: a work that is no promise's is a task */
    trpi_packet packet; /* holds work.peer, and the arguments */
    const trp_method *method;
    uint64_t client;
    struct trpi_task *next_spare;
} trpi_task;

typedef struct trpi_answer {
    trp_code code;
    const char *message, *type, *where; /* NULL = "" */
    trp_bytes body;                     /* with TRP_OK */
} trpi_answer;

typedef struct trpi_queued_answer trpi_queued_answer;

typedef struct trpi_desk {
    pthread_mutex_t lock;
    trpi_worker *worker;
    trpi_sock *sock; /* NULL before it is bound and after it is closed */
    int ring_fd;     /* eventfd: look at `answers`, at `exiting` and `stopping` */
    trpi_desk_state state;
    bool is_pooled;
    bool is_closed; /* calls that come now are refused */
    trpi_works works;
    trpi_queued_answer *first, *last; /* answers that wait for the main thread */

    /* Of the one who may touch the socket */
    trpi_task *spare;
    size_t spare_count;
    trpi_arena arena;
    uint64_t looked_ns; /* when all that had come was taken in */
    uint64_t refused;   /* messages that were no calls */
    trp_buf frame;
    /* Answers to calls that came together go together, if they are quick: one waits for others only
     * while the next call is at hand. Its method may take long, so a timer is set with the first
     * that waits: when it is over, the control thread sends them. */
    trpi_batch batch; /* answers that wait, all for batch_peer */
    bool has_more;    /* the next answer is near */
    size_t batch_peer_size;
    unsigned char batch_peer[256];
    int timer_fd;    /* readable when they have waited long enough */
    bool is_overdue; /* it was, while no user code ran on the main thread. Under the lock */
} trpi_desk;

/* worker_desk.c; those marked M are the main thread's */
TRP_CHECKED trp_code trpi_desk_init(trpi_desk *desk, trpi_worker *worker, trp_error *err);
TRP_CHECKED trp_code trpi_desk_bind(trpi_desk *desk, trp_error *err); /* M */
void trpi_desk_ring(trpi_desk *desk);
void trpi_desk_wait(trpi_desk *desk, uint64_t deadline_ns); /* M: for a packet or a ring */
/* Takes in at most `most` messages: calls wait in `works` then, cancels are carried out. With a
 * pool the caller holds the lock. */
void trpi_desk_look(trpi_desk *desk, size_t most);
void trpi_desk_lend(trpi_desk *desk, trp_context *ctx, trpi_task *task); /* M: user code begins */
void trpi_desk_own(trpi_desk *desk, trp_context *ctx);                   /* M: ... and has ended */
void trpi_desk_give_back(trpi_desk *desk, trpi_task *task); /* it is in no line any more */
/* While user code runs on the main thread: sends answers that have waited for long enough, and
 * looks after the socket. Control thread, now and then, and when timer_fd is readable. */
void trpi_desk_tend(trpi_desk *desk);
/* Whether a call or deferred call is canceled, as far as has come in by now. */
bool trpi_desk_is_canceled(trpi_desk *desk, const trp_context *ctx, const trpi_work *work);

/* worker_replies.c */
void trpi_desk_send_batch(trpi_desk *desk);   /* who may touch the socket */
void trpi_desk_send_answers(trpi_desk *desk); /* M, OWNED; takes the lock */
/* Who may touch the socket. */
void trpi_desk_send(trpi_desk *desk, trp_bytes peer, uint64_t call, const trpi_answer *answer);
/* Leaves an answer to the main thread: made without the lock, left with it. NULL is fine, and was
 * logged. */
trpi_queued_answer *trpi_answer_copy(trp_bytes peer, uint64_t call, const trpi_answer *answer);
void trpi_desk_leave_answer(trpi_desk *desk, trpi_queued_answer *answer);
/* Takes the socket away: what is answered from now on is dropped. M. */
trpi_sock *trpi_desk_close(trpi_desk *desk);

/* ---- Control ---- */

typedef enum trpi_control_state {
    TRPI_CONTROL_WAITING, /* for START */
    TRPI_CONTROL_STARTING,
    TRPI_CONTROL_ALIVE,
    TRPI_CONTROL_LEAVING,
} trpi_control_state;

/* A save that the node has been asked for. One at a time: an earlier one that is said again must
 * not win over a later one. */
typedef struct trpi_saving { /* under the lock of the control struct */
    bool is_taken;
    uint64_t request;
    bool is_answered;
    trp_code code;
    char message[256];
} trpi_saving;

typedef struct trpi_control {
    pthread_t thread;
    struct trpi_link_state *link; /* of whoever runs the loop */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ring_fd;  /* eventfd: look at `out` and `quit` */
    trp_buf *out; /* frames for the node */
    size_t out_count;
    bool quit;
    bool heard; /* the node has sent WORKER_FAILED back */
    atomic_int state;
    trp_buf start;    /* the START frame, set once */
    trp_buf *signals; /* that came before the constructor returned */
    size_t signal_count;
    bool drain_is_told;
    trpi_saving saving;
} trpi_control;

struct trpi_worker_group; /* worker_pool.c */

/* ---- Contexts: what a thread's methods get. They live as long as the process ---- */

struct trp_context {
    trpi_worker *worker;
    trp_context *next; /* in worker->contexts */
    /* What runs here, for PONG and trp_context_beat(). since_ns is 0 while nothing does. */
    _Atomic uint64_t since_ns;
    _Atomic(const char *) method;
    /* The running call, or NULL; changes under the desk's lock */
    trpi_task *task;
    /* This thread only */
    bool is_deferred;
    bool is_saving;
    trp_buf reply;
    struct trpi_worker_group *group; /* of a thread of the pool */
};

struct trpi_worker {
    const trp_actor_type *const *types;
    const trp_actor_type *type;
    void *state;

    /* From the zygote's environment */
    uint64_t token, node;
    pid_t node_pid;
    char node_dir[160], host[64], address[128];

    /* From START, which lives as long as the process */
    trpi_arena arena;
    trpi_msg_start start;
    char devices[1024];

    trpi_net *net;
    trpi_control control;
    trpi_desk desk;
    char endpoint[256], remote_endpoint[256];

    trp_context main, hooks; /* of the main thread; of signal() and drain() */
    _Atomic(trp_context *) contexts;
    struct trpi_worker_group *pool; /* by group, or NULL */

    atomic_bool exiting;               /* trp_context_exit() was called */
    atomic_bool stopping;              /* STOP has come */
    _Atomic uint64_t answers_until_ns; /* then the stop hook runs, whatever is still deferred */
    _Atomic uint64_t drain_ns;         /* when this node goes away; UINT64_MAX = nobody said so */

    pthread_mutex_t runtime_lock;
    trp_runtime *runtime; /* opened at first use */
};

/* zygote.c -> worker_start.c: what is the same for all workers is found out once, before any is
 * forked. */
void trpi_worker_prepare(void);
/* ... and this process is a worker now. */
_Noreturn void trpi_worker_main(const trp_actor_type *const *types, uint64_t token);

/* worker_start.c */
bool trpi_worker_read_environment(trpi_worker *worker);
/* Environment, devices, threads, directory. Before there is a thread that may read the first. */
TRP_CHECKED trp_code trpi_worker_apply_start(trpi_worker *worker, trp_error *err);
/* Finds the type, constructs the actor, loads what was saved. */
TRP_CHECKED trp_code trpi_worker_construct(trpi_worker *worker, trp_error *err);

/* worker_run.c */
void trpi_context_list(trp_context *ctx); /* for PONG, from now on; its worker is set */
/* What runs on this thread from now on, NULL for nothing; `now_ns` when it begins. */
void trpi_context_enter(trp_context *ctx, const char *method, uint64_t now_ns);
/* Runs the task's method, and saves afterwards if that was asked for. ret_answer borrows from ctx
 * and from ret_error until the next call; false: the call is deferred. */
bool trpi_run_task(trp_context *ctx, const trpi_task *task, uint64_t now_ns,
                   trpi_answer *ret_answer, trp_error *ret_error);
void trpi_run_ended(trp_context *ctx); /* its answer is out */
/* The oldest running method in ms and its name; 0 and "" while none runs. Any thread. */
uint64_t trpi_worker_stuck_ms(trpi_worker *worker, uint64_t now_ns, const char **ret_method);

/* worker_pool.c */
void trpi_worker_pool_init(trpi_worker *worker, size_t group_count);
/* A call of that group waits; with the desk's lock. When it needs a thread and none can be made, it
 * is answered with that. */
void trpi_worker_pool_wake(trpi_worker *worker, trpi_task *task, bool needs_thread);

/* worker_save.c */
void trpi_saving_answered(trpi_control *control, const trpi_msg_saved *saved);

/* worker_control.c */
TRP_CHECKED trp_code trpi_control_open(trpi_worker *worker, trp_error *err);
void trpi_control_wait_start(trpi_worker *worker); /* says hello; control.start is set then */
TRP_CHECKED trp_code trpi_control_run(trpi_worker *worker, trp_error *err); /* starts the thread */
void trpi_control_post(trpi_control *control, const trpi_msg *msg); /* to the node; any thread */
void trpi_control_started(trpi_worker *worker); /* says STARTED; signals are delivered from now */
/* Says WORKER_FAILED; signals are no longer delivered. */
void trpi_control_failed(trpi_worker *worker, trp_cause cause, const char *message);
/* Waits until the node has heard WORKER_FAILED, then ends the thread. */
void trpi_control_close(trpi_worker *worker);
void trpi_condition_init(pthread_cond_t *condition); /* by the monotonic clock */
/* With the lock; false: the deadline has passed. */
bool trpi_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t deadline_ns);

/* worker_lease.c */
TRP_CHECKED trp_code trpi_lease_open(uint64_t lease_ms, trp_error *err); /* for exclusive actors */
/* A ping was sent at sent_ns by the monotonic clock. unheard_offset_ns: how much further the clock
 * that also counts suspension was when it had not come yet. */
void trpi_lease_renew(uint64_t sent_ns, uint64_t unheard_offset_ns, uint64_t lease_ms);
void trpi_lease_check(void);         /* ends the process when it is over; any thread */
uint64_t trpi_lease_offset_ns(void); /* of the two clocks, now; 0 without a lease */

/* worker_dump.c */
void trpi_dump_prepare(void);                  /* in the zygote */
void trpi_dump_open(void);                     /* in the worker */
void trpi_dump_set_method(const char *method); /* what this thread runs, NULL = nothing */

/* worker_context.c */
void trpi_worker_close_runtime(trpi_worker *worker);

#endif

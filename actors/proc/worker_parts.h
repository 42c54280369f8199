/* worker_parts.h: a worker process' own structs, and what its files call of each other.
 *
 *   zygote.c          forks workers
 *   worker.c          the method thread: START, calls, the end
 *   worker_control.c  the control thread: the link to the node
 *   worker_promise.c  replies, also later and from any thread
 *   worker_context.c  what an actor may ask about itself
 *
 * The method thread is the process' main thread. It owns the data socket and receives, runs and
 * answers calls without a hand-over; the control thread owns the link to the node, so that PING and
 * SIGNAL are served while a method runs. */
#ifndef TRPI_WORKER_PARTS_H
#define TRPI_WORKER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <troupe/runtime.h>

#include "actors/proc/worker.h"
#include "core/net/sock.h"
#include "core/wire/codec.h"

/* ---- Replies: who may touch the data socket ----
 *
 * While `busy` (user code runs on the method thread) whoever holds the lock may send; otherwise
 * only the method thread touches the socket, without the lock, and others queue and ring. Going
 * busy and back happens under the lock, so that every change of hands is a full fence.
 *
 * Calls that came in one batch are answered in batches, if they are quick: a reply waits for others
 * only while the next call of the batch is at hand. Its method may take long, so a timer is set
 * with the first reply that waits: when it is over, the control thread sends them if user code
 * runs, and else the method thread does before it runs the next. No reply is held much longer than
 * that. */

typedef struct trpi_reply {
    struct trpi_reply *next;
    uint64_t call;
    trp_code code;
    char *message; /* "" when OK */
    size_t peer_size, body_size;
    unsigned char peer[256];
    unsigned char body[];
} trpi_reply;

typedef struct trpi_replies {
    pthread_mutex_t lock;
    trpi_sock *sock; /* NULL before it is bound and after it is closed */
    bool busy;
    trpi_reply *first, *last; /* queued while not busy */
    int ring_fd;              /* eventfd: the queue is not empty */
    uint64_t incarnation;
    /* Of the one who may send */
    trp_buf frame;
    trpi_batch batch; /* replies that wait, all for batch_peer */
    size_t batch_peer_size;
    unsigned char batch_peer[256];
    int timer_fd;    /* readable when they have waited long enough */
    bool is_overdue; /* it was, while nobody was busy. Under the lock */
} trpi_replies;

TRP_CHECKED trp_code trpi_replies_init(trpi_replies *replies, trp_error *err);
void trpi_replies_enter(trpi_replies *replies); /* user code begins */
void trpi_replies_leave(trpi_replies *replies); /* ... and has ended */
void trpi_replies_flush(trpi_replies *replies); /* method thread, not busy */
void trpi_replies_tend(trpi_replies *replies);  /* any thread, when timer_fd is readable */
/* Method thread, not busy. A message only with a code that is not OK. */
void trpi_replies_send(trpi_replies *replies, trp_bytes peer, uint64_t call, trp_code code,
                       const char *message, trp_bytes body);
void trpi_replies_send_batch(trpi_replies *replies); /* method thread, not busy */
/* Takes the socket away: what is resolved from now on is dropped. Method thread. */
trpi_sock *trpi_replies_close(trpi_replies *replies);

/* ---- Control ---- */

typedef enum trpi_control_state {
    TRPI_CONTROL_WAITING, /* for START */
    TRPI_CONTROL_STARTING,
    TRPI_CONTROL_ALIVE,
    TRPI_CONTROL_LEAVING,
} trpi_control_state;

typedef struct trpi_control {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ring_fd;    /* eventfd: look at `out` and `quit` */
    trp_buf out[4]; /* frames for the node: STARTED, WORKER_FAILED */
    size_t out_count;
    bool quit;
    bool heard; /* the node has sent WORKER_FAILED back */
    atomic_int state;
    trp_buf start;    /* the START frame, set once */
    trp_buf *signals; /* that came before the constructor returned */
    size_t signal_count;
} trpi_control;

/* ---- The worker: an actor's context is the same thing ---- */

typedef struct trp_context trpi_worker;

struct trp_context {
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
    trpi_replies replies;
    char endpoint[256], remote_endpoint[256];

    atomic_bool exiting; /* trp_context_exit() was called */

    /* Method thread only */
    uint64_t refused; /* messages that were no calls */
    bool running, deferred;
    uint64_t call; /* the running one */
    trp_bytes peer;

    pthread_mutex_t runtime_lock;
    trp_runtime *runtime; /* opened at first use */
};

/* zygote.c -> worker.c: what is the same for all workers is found out once, before any is forked.
 */
void trpi_worker_prepare(void);
/* ... and this process is a worker now. */
_Noreturn void trpi_worker_main(const trp_actor_type *const *types, uint64_t token);

/* worker_control.c */
TRP_CHECKED trp_code trpi_control_open(trpi_worker *worker, trp_error *err); /* starts the thread */
void trpi_control_wait_start(trpi_worker *worker); /* control.start is set then */
void trpi_control_started(trpi_worker *worker); /* says STARTED; signals are delivered from now */
/* Says WORKER_FAILED; signals are no longer delivered. */
void trpi_control_failed(trpi_worker *worker, trp_cause cause, const char *message);
/* Waits until the node has heard WORKER_FAILED, then ends the thread. */
void trpi_control_close(trpi_worker *worker);

/* worker_context.c */
void trpi_worker_close_runtime(trpi_worker *worker);

#endif

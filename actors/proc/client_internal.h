/* client_internal.h: what the files of the client share.
 *
 *   client.c           opens and closes the connection; which head: client_address.c
 *   client_control.c   the control thread: the link to the head
 *   client_requests.c  what other threads hand to it, and how they get answers
 *   client_data.c      the data half: who reads the socket when
 *   client_calls.c     calls and waiting for them; their refs: client_refs.c
 *   client_corks.c     calls that are held back for a moment, to go out together
 *   client_done.c      refs that tell when they are done
 *   client_tend.c      the control thread, while no other reads the data socket
 *   client_cond.c      how threads wait for and wake each other
 *   client_spawn.c     spawning; what may be asked for: client_options.c, client_resources.c
 *   client_actors.c, client_gangs.c, client_groups.c, client_kv.c, client_cluster.c
 *                      the other requests of actor.h
 *   client_deaths.c    the queue of deaths
 *   client_store.c     object.h; what it holds: objects.h
 *   client_package.c, client_uploads.c
 *                      the executable and the working directory, on their way to the head
 *   client_logs.c      what the job's workers write
 *
 * Two halves, each with a lock of its own; whoever holds both took the data lock first.
 *
 *   data     one ROUTER that is connected to every actor this process calls, the machine that
 *            knows what is under way (actors/state/caller.h), and the refs that wait for it.
 *            There is no thread of its own: a thread that waits for a ref reads the socket itself
 *            (it leads), so that a call costs no hop. Others that wait follow, sleeping; a thread
 *            that needs the socket while one leads wakes the leader, which steps aside. While
 *            nobody waits, the control thread reads what must be read (client_tend.c).
 *   control  one DEALER to the head, which belongs to the control thread. Other threads queue
 *            messages for it and sleep until it hands them the answer. */
#ifndef TRPI_CLIENT_INTERNAL_H
#define TRPI_CLIENT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "actors/proc/client.h"
#include "actors/proc/client_done.h"
#include "actors/proc/client_package.h"
#include "actors/proc/client_refs.h"
#include "actors/state/caller.h"
#include "actors/state/repeats.h"
#include "core/base/id.h"
#include "core/base/table.h"
#include "core/net/sock.h"

struct trpi_client_reply {
    trpi_packet packet;
    trpi_arena arena;
    trpi_msg msg;
};

/* A thread that waits for refs; lives on its stack. */
struct trpi_waiter {
    size_t missing; /* refs that must still be done */
    bool fails_fast;
    bool is_ready;
    pthread_cond_t wake;
    struct trpi_waiter *next, *prev;
};

/* A request under way to the head; lives on the requester's stack. */
typedef struct trpi_pending {
    uint64_t request;
    pthread_cond_t wake;
    bool is_over;
    trp_error error; /* when there is no reply */
    trpi_client_reply *reply;
    struct trpi_pending *next;
} trpi_pending;

typedef struct trpi_outgoing {
    trp_buf bytes;
    struct trpi_outgoing *next;
} trpi_outgoing;

typedef struct trpi_death_notice {
    trp_death death;
    struct trpi_death_notice *next;
} trpi_death_notice;

/* Calls that are held back, to go out together: client_corks.c. */
typedef struct trpi_cork trpi_cork;

typedef struct trpi_corks {
    trpi_table by_connection;
    trpi_cork *first; /* that holds something; the data half's timer is set then */
} trpi_corks;

typedef struct trpi_data {
    pthread_mutex_t lock;
    pthread_cond_t idle;    /* the leader stepped aside, or nobody claims the socket any more */
    pthread_cond_t changed; /* the head said something of an actor or group */
    bool is_led;            /* a thread polls the socket without holding the lock */
    unsigned claims;        /* threads that wait for it to step aside */
    int wake_fd;
    uint64_t client; /* as the head counts this process */
    trpi_sock *sock;
    bool is_touched;    /* used since it was read to the end: its descriptor may keep silent */
    bool is_watched;    /* the control thread has an eye on its descriptor */
    int timer_fd;       /* readable when the control thread is to look at this half ... */
    uint64_t tend_ns;   /* ... which it does then at the latest, too */
    trpi_packet packet; /* the one that is being handled */
    trpi_arena arena;
    trp_buf encoded;
    trpi_caller *caller;
    trpi_caller_actions actions;
    trpi_refs refs;
    trpi_waiter *waiters;
    trpi_corks corks;
    trpi_done done;
    unsigned sent;     /* calls since the socket was last read */
    trpi_table groups; /* group_word by id: client_groups.c */
    trpi_death_notice *first_death, *last_death;
    int deaths_fd; /* readable while there are deaths */
} trpi_data;

typedef enum trpi_link { TRPI_LINK_NEW, TRPI_LINK_UP, TRPI_LINK_LOST } trpi_link;

typedef struct trpi_control {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* link */
    pthread_t thread;
    bool is_running;
    int wake_fd;
    trpi_link link;
    trp_error refusal; /* the head answered, and will not have us */
    bool is_over;      /* our cluster is gone, another one has its address; for good */
    trpi_pending *pending;
    trpi_outgoing *first_out, *last_out;
    uint64_t requests;
    bool must_stop;
    uint64_t client; /* as the head counts */
    /* Of the control thread alone. */
    trpi_sock *sock;
    bool is_welcome;
    uint64_t heartbeat_ms, heartbeats;
    uint64_t next_heartbeat_ns, last_heard_ns, last_turn_ns, opened_ns;
} trpi_control;

struct trp_runtime {
    char address[128]; /* of the head */
    char kind[16];
    char job[128];
    char namespace_name[256]; /* the head's word once the link is up */
    char cluster[64];
    unsigned char id[17]; /* what ROUTERs know our sockets by: short, it travels with each call */
    char host_id[160];
    char exe[1024], cwd[1024];
    char package[TRPI_HASH_TEXT]; /* workers' working directory; "" = cwd */
    uint64_t submission;
    trpi_upload uploads[2]; /* the executable, the package; of the control thread */
    atomic_bool exe_is_kept;
    trpi_text *env; /* of all workers of the job */
    size_t env_count;
    uint64_t actor, incarnation;
    struct trpi_objects *objects; /* this process' side of the object store */
    bool wants_logs;
    trpi_repeats *repeats; /* of the control thread */
    const trp_actor_type *const *types;
    trpi_net *net;
    trpi_data data;
    trpi_control control;
};

/* ---- client_data.c ---- */

trp_bytes trpi_client_id(const trp_runtime *rt);

TRP_CHECKED trp_code trpi_data_open(trp_runtime *rt, trp_error *err);
void trpi_data_close(trp_runtime *rt);

/* The data half for this thread alone, its socket included. */
void trpi_data_enter(trp_runtime *rt);
/* The same without the socket: enough to look at refs, views and groups. */
void trpi_data_lock(trp_runtime *rt);
void trpi_data_leave(trp_runtime *rt);

/* Every connection gets an id of its own on our ROUTER: what an earlier incarnation still has to
 * say cannot be taken for its successor's words. */
#define TRPI_PEER_SIZE 9
trp_bytes trpi_peer_of(uint64_t connection, unsigned char id[TRPI_PEER_SIZE]);

/* Carries out the machine's actions. Entered. */
void trpi_data_perform(trp_runtime *rt);
/* Takes what has come in, then fails what is overdue. Entered. */
void trpi_data_read(trp_runtime *rt);
/* A call could not be sent: its ref fails. Entered. */
void trpi_data_abandon(trp_runtime *rt, uint64_t call, const trp_error *error);
/* Locked (not entered): until the waiter is ready or the time has passed. In a callback it has: the
 * control thread never waits. */
void trpi_data_wait(trp_runtime *rt, trpi_waiter *waiter, uint64_t timeout_ms);
void trpi_data_wait_until(trp_runtime *rt, trpi_waiter *waiter, uint64_t deadline_ns);
/* Locked: until `changed` is signaled; false when the deadline has passed, as above. */
bool trpi_data_wait_changed(trp_runtime *rt, uint64_t deadline_ns);

/* ---- client_tend.c: the data half and the control thread. Locked, but for those marked ---- */

TRP_CHECKED trp_code trpi_tend_open(trp_runtime *rt, trp_error *err);
bool trpi_is_control_thread(const trp_runtime *rt); /* unlocked */
void trpi_tend_soon(trp_runtime *rt);               /* sets the timer */
void trpi_tend_demand(trp_runtime *rt);             /* a ref needs somebody to read for it */
void trpi_tend_settle(trp_runtime *rt);             /* before the lock is given back, unless led */
/* Unlocked, control thread: the descriptor to watch, or -1, and until when to sleep at most ... */
int trpi_tend_plan(trp_runtime *rt, uint64_t *ret_wake_ns);
/* ... and what to do then: news on the descriptor, the timer, or just time. */
void trpi_tend(trp_runtime *rt, bool has_news, bool is_timer);

/* ---- client_corks.c: entered ---- */

void trpi_corks_close(trp_runtime *rt);
/* Takes a call over, to send it now or in a moment. False: the caller is to send it, now. */
bool trpi_cork_take(trp_runtime *rt, const trpi_caller_action *call, trp_bytes header);
void trpi_corks_flush(trp_runtime *rt);                    /* sends all */
void trpi_cork_drop(trp_runtime *rt, uint64_t connection); /* forgets what is held for it */

/* ---- client_deaths.c ---- */

void trpi_deaths_push(trp_runtime *rt, uint64_t actor); /* the last one known. Locked */
void trpi_deaths_drop(trp_runtime *rt);

/* ---- client_groups.c ---- */

void trpi_groups_word(trp_runtime *rt, const trpi_msg_group_state *state); /* takes the data lock */
void trpi_groups_watch_all(trp_runtime *rt);               /* after the head has forgotten us */
void trpi_groups_orphan(trp_runtime *rt, const char *why); /* the cluster is gone. Locked */
void trpi_groups_drop(trp_runtime *rt);

/* ---- client_control.c: the thread ---- */

TRP_CHECKED trp_code trpi_client_control_open(trp_runtime *rt, trp_error *err);
void trpi_client_control_close(trp_runtime *rt);

/* ---- client_requests.c: what other threads hand to it ---- */

/* Queues a message that has no answer. TRP_EDISCONNECTED while the head does not answer. */
TRP_CHECKED trp_code trpi_client_post(trp_runtime *rt, const trpi_msg *msg, trp_error *err);
/* A request whose answer is DONE, within TROUPE_REQUEST_TIMEOUT_MS. */
TRP_CHECKED trp_code trpi_client_ask(trp_runtime *rt, trpi_msg *msg, trp_error *err);
TRP_CHECKED trp_code trpi_client_ask_within(trp_runtime *rt, trpi_msg *msg, uint64_t timeout_ms,
                                            trp_error *err);
/* Hands a reply (taken) to whoever asked; drops it when nobody waits any more. */
void trpi_requests_answer(trp_runtime *rt, uint64_t request, trpi_client_reply *reply);
void trpi_requests_fail_all(trp_runtime *rt, const trp_error *error); /* control lock held */
trpi_outgoing *trpi_requests_take_queue(trp_runtime *rt);
void trpi_outgoing_free(trpi_outgoing *out);

/* ---- client_logs.c ---- */

trpi_repeats *trpi_logs_open(void);
void trpi_logs_print(trp_runtime *rt, const trpi_msg_log_lines *lines);
void trpi_logs_tend(trp_runtime *rt, uint64_t now_ns); /* counts whose time has come */
void trpi_logs_close(trp_runtime *rt);                 /* tells what is left to tell */

/* ---- client_calls.c ---- */

/* TRP_EINVALID: no such ref. */
trp_code trpi_ref_unknown(trp_ref ref, trp_error *err);

/* What a call holds in the object store until it is over; from malloc. */
typedef struct trpi_held {
    size_t count;
    trp_object objects[];
} trpi_held;
void trpi_held_free(trp_runtime *rt, trpi_held *held); /* lets go of them. NULL is fine */

/* ---- client_cond.c: waiting with a deadline ---- */

/* False when deadline_ns (UINT64_MAX = none) has passed. */
bool trpi_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);
void trpi_wake(int event_fd);
void trpi_wake_clear(int event_fd);

#endif

/* caller.h: a process as a caller of actors, as a pure machine. Knows no socket and no clock.
 *
 * What has happened goes in (a call, the head's word on an actor, a reply, time), what is to be
 * done comes out as a list of actions. Life of an actor, as a caller sees it:
 *
 *     ASKED ──> PENDING ──1──> ALIVE ──2──> RESTARTING ──1──> ALIVE ...
 *       │          │             │              │
 *       └──────────┴─────────────┴──────3───────┴──> DEAD       (and ASKED ──> never was)
 *
 *  ASKED, PENDING   calls wait.
 *  ALIVE            calls are in flight as soon as the shell is connected; they wait until then.
 *  RESTARTING       calls with retries left wait; a call without fails at once, TRP_EUNAVAILABLE.
 *  DEAD             every call fails at once with the final cause, TRP_EACTOR_DIED.
 *  REFUSED          (not drawn) the head will not tell of the actor: calls fail, TRP_EBUSY, and the
 *                   next one asks it again.
 *
 *  1  enter_alive      connect, then everything that waits is sent in call order.
 *  2  end_incarnation  calls in flight go back to waiting and use up a retry, or fail: once an
 *                      incarnation is gone nobody can tell whether they ran.
 *  3  enter_dead       all that is left fails.
 *
 * Calls that already waited while the actor was PENDING wait on through an incarnation that dies
 * before it served anybody: none of them has run.
 *
 * A call that failed in user code, in a way that is to be tried again, rests for a while, longer
 * each time, and is then sent again, to whichever incarnation lives. Meanwhile others overtake it.
 *
 * Memory: pointers in actions are valid until the machine's next step or
 * trpi_caller_actions_clear(), whichever is first, except that several steps may append to one list
 * as trpi_caller_connected() and trpi_caller_abandon() do in the middle of carrying it out. */
#ifndef TRPI_CALLER_H
#define TRPI_CALLER_H

#include <troupe/actor.h>

#include "core/base/arena.h"
#include "core/wire/msg.h"

typedef struct trpi_caller trpi_caller;

typedef enum trpi_caller_action_kind {
    TRPI_CALLER_SUBSCRIBE,  /* ask the head about `actor` */
    TRPI_CALLER_CONNECT,    /* to `endpoint`, then say trpi_caller_connected() */
    TRPI_CALLER_DISCONNECT, /* from this incarnation; nothing of it counts any more */
    TRPI_CALLER_SEND,       /* the call, to this incarnation */
    TRPI_CALLER_CANCEL,     /* tell this incarnation that the call is canceled */
    TRPI_CALLER_COMPLETE,   /* whoever holds `tag` gets code and message */
    TRPI_CALLER_LET_GO,     /* of `tag`, which a call held: it is over */
    TRPI_CALLER_DEATH,      /* of a monitored actor: trpi_caller_get_death() */
    TRPI_CALLER_WARN        /* log `message`, once */
} trpi_caller_action_kind;

typedef struct trpi_caller_action {
    trpi_caller_action_kind kind;
    uint64_t actor, incarnation;
    uint64_t connection;      /* CONNECT, DISCONNECT, SEND, CANCEL: never the same number twice */
    const char *endpoint;     /* CONNECT, DISCONNECT */
    uint64_t call;            /* SEND, CANCEL */
    uint64_t seq, tries;      /* SEND */
    uint32_t ahead;           /* SEND: calls to this incarnation that are under way already */
    const char *method;       /* SEND */
    trp_bytes args;           /* SEND */
    void *tag;                /* COMPLETE, LET_GO */
    trp_code code;            /* COMPLETE; TRP_OK: the reply's body is the value */
    uint64_t node;            /* COMPLETE: where it failed, 0 = here */
    const char *message;      /* COMPLETE, WARN */
    const char *type, *where; /* COMPLETE: of a failure that was raised; else NULL */
} trpi_caller_action;

typedef struct trpi_caller_actions { /* zero-initialize */
    trpi_caller_action *items;
    size_t count, capacity;
    trpi_arena texts;
} trpi_caller_actions;

void trpi_caller_actions_clear(trpi_caller_actions *actions);
void trpi_caller_actions_release(trpi_caller_actions *actions);

/* host_id: of this process; actors of the same host are reached by their local endpoint. */
trpi_caller *trpi_caller_new(const char *host_id, uint32_t calls_max);
void trpi_caller_free(trpi_caller *caller); /* drops all calls without completing them */

/* ---- Steps: what has happened. All append to actions. ---- */

typedef struct trpi_call_order {
    uint64_t actor;
    const char *method;
    trp_bytes args;
    uint64_t deadline_ns; /* UINT64_MAX = none */
    int retries_max;      /* these two as in trp_call_options */
    const char *const *retry_on;
    void *tag;   /* never NULL */
    void *holds; /* from malloc, or NULL: comes back in a LET_GO when nothing of the call can run
                    any more, also after `tag` was released */
} trpi_call_order;

/* *ret_call names the call until it completes, which it may within this very step. TRP_EBUSY: the
 * actor's limit of calls, or this process', is reached; then the machine has taken nothing. */
TRP_CHECKED trp_code trpi_caller_call(trpi_caller *caller, const trpi_call_order *order,
                                      uint64_t *ret_call, trpi_caller_actions *actions,
                                      trp_error *err);

/* The head's word on an actor. */
void trpi_caller_state(trpi_caller *caller, const trpi_msg_actor_state *state,
                       trpi_caller_actions *actions);

/* How a CONNECT ended: code and why, if it is not TRP_OK. */
void trpi_caller_connected(trpi_caller *caller, uint64_t actor, uint64_t connection, trp_code code,
                           const char *why, trpi_caller_actions *actions);

/* The other end of that connection has lost it, and with it what was under way, but lives on. */
void trpi_caller_broken(trpi_caller *caller, uint64_t connection, trpi_caller_actions *actions);

/* A reply that came in on that connection. One that answers nothing is dropped. now_ns is looked at
 * only if it tells of a failure. */
void trpi_caller_reply(trpi_caller *caller, uint64_t connection, const trpi_msg_reply *reply,
                       uint64_t now_ns, trpi_caller_actions *actions);

/* Time: calls whose deadline is not after now_ns fail; those that have rested are sent. */
void trpi_caller_tick(trpi_caller *caller, uint64_t now_ns, trpi_caller_actions *actions);

/* A SEND could not be carried out. The call is over; its tag (or NULL) is the shell's to complete.
 */
void *trpi_caller_abandon(trpi_caller *caller, uint64_t call, trpi_caller_actions *actions);

/* Nobody waits for the call any more: it runs on, its end completes nothing. */
void trpi_caller_release(trpi_caller *caller, uint64_t call);

/* The call completes with TRP_ECANCELED, and is over unless it was sent. */
void trpi_caller_cancel(trpi_caller *caller, uint64_t call, trpi_caller_actions *actions);

/* Makes sure that the head is asked about the actor. */
void trpi_caller_watch(trpi_caller *caller, uint64_t actor, trpi_caller_actions *actions);
/* From now on each death of the actor is an action, once per incarnation; at once if it is dead. */
void trpi_caller_monitor(trpi_caller *caller, uint64_t actor, trpi_caller_actions *actions);
void trpi_caller_demonitor(trpi_caller *caller, uint64_t actor);

/* The head has forgotten us: asks about every actor that is not dead again. */
void trpi_caller_resubscribe(trpi_caller *caller, trpi_caller_actions *actions);
/* The cluster is gone, and with it all actors; why, as a sentence. */
void trpi_caller_orphan(trpi_caller *caller, const char *why, trpi_caller_actions *actions);

/* ---- Questions ---- */

uint64_t trpi_caller_next_tick(const trpi_caller *caller);  /* when; UINT64_MAX: never */
uint32_t trpi_caller_call_count(const trpi_caller *caller); /* under way */

/* TRP_ETIMEOUT: the head has not answered yet. Else why there is no info: TRP_ENOTFOUND, TRP_EBUSY
 * or TRP_EDISCONNECTED. */
TRP_CHECKED trp_code trpi_caller_get_info(const trpi_caller *caller, uint64_t actor,
                                          trp_actor_info *ret_info, trp_error *err);
/* Why calls to the actor fail or wait, as a sentence, for messages. */
void trpi_caller_explain(const trpi_caller *caller, uint64_t actor, char *out, size_t size);
/* The last death known; false when there is none. */
bool trpi_caller_get_death(const trpi_caller *caller, uint64_t actor, trp_death *ret_death);

/* NULL, or which invariant broke. */
const char *trpi_caller_check(const trpi_caller *caller);

#endif

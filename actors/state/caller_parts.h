/* caller_parts.h: what the files of the caller machine (caller.h) share. Pure.
 *
 *   caller.c           the lives of actors, and what the head says of them
 *   caller_orders.c    calls: made, answered, tried again, canceled, too late
 *   caller_actions.c   the list of what is to be done
 *   caller_asked.c     questions about the machine, and its invariants
 *   caller_calls.c     the table of calls    caller_view.c  what is known of an actor */
#ifndef TRPI_CALLER_PARTS_H
#define TRPI_CALLER_PARTS_H

#include "actors/state/caller.h"
#include "actors/state/caller_calls.h"
#include "actors/state/caller_view.h"

struct trpi_caller {
    trpi_calls calls;
    trpi_views views;
    char *host_id;
    uint64_t connections; /* made so far */
};

/* ---- caller_actions.c ---- */

trpi_caller_action *trpi_caller_emit(trpi_caller_actions *actions, trpi_caller_action_kind kind,
                                     uint64_t actor, uint64_t incarnation);
/* A text that lives as long as the actions; the plain one when memory is out. */
const char *trpi_caller_keep(trpi_caller_actions *actions, const char *text);

/* ---- caller_orders.c ---- */

trpi_call *trpi_caller_at(const trpi_caller *caller, uint32_t slot);
/* Calls that wait or rest, and that the view's fault ends. */
void trpi_caller_fail_waiting(trpi_caller *caller, trpi_view *view, trpi_caller_actions *actions);
void trpi_caller_send_waiting(trpi_caller *caller, trpi_view *view, trpi_caller_actions *actions);
/* The incarnation that the calls in flight were sent to is gone, and `message` says why: they wait
 * for the next one, or fail. */
void trpi_caller_ground(trpi_caller *caller, trpi_view *view, const char *message,
                        trpi_caller_actions *actions);

/* ---- caller.c ---- */

/* Asks the head about an actor that it tells nothing of. */
trpi_view *trpi_caller_get_view(trpi_caller *caller, uint64_t actor, trpi_caller_actions *actions);

#endif

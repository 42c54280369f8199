/* caller_orders.c: calls: made, answered, tried again, canceled, too late.
 *
 *            order            connected             reply
 *     ──────────────> WAITS ─────────────> FLIES ─────────────> over
 *                       ^                   │ │
 *                       │  incarnation gone │ │ failed in user code
 *                       ├───────────────────┘ v
 *                       └─────────────────── RESTS
 *                              time
 *
 * Both ways back need a retry that is left, and use it up. Whatever it is, a call is over when its
 * deadline passes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/caller_parts.h"
#include "actors/state/caller_types.h"
#include "core/base/times.h"

#define REST_MS 10 /* doubled with each failure */
#define REST_MAX_MS 1000
#define CROWD 5000 /* calls of one actor that are worth a warning */

trpi_call *trpi_caller_at(const trpi_caller *caller, uint32_t slot) {
    return &caller->calls.slots[slot];
}

/* ---- The list of an actor's calls ---- */

static void append_call(trpi_caller *caller, trpi_view *view, uint32_t slot) {
    trpi_call *call = trpi_caller_at(caller, slot);
    call->view = (uint32_t)(view - caller->views.items);
    call->prev = view->last;
    if (view->last != TRPI_CALL_NONE) {
        trpi_caller_at(caller, view->last)->next = slot;
    } else {
        view->first = slot;
    }
    view->last = slot;
    view->call_count++;
}

static void unlink_call(trpi_caller *caller, uint32_t slot) {
    trpi_call *call = trpi_caller_at(caller, slot);
    trpi_view *view = &caller->views.items[call->view];
    view->in_flight -= call->state == TRPI_CALL_FLIES;
    view->call_count--;
    if (call->prev != TRPI_CALL_NONE) {
        trpi_caller_at(caller, call->prev)->next = call->next;
    } else {
        view->first = call->next;
    }
    if (call->next != TRPI_CALL_NONE) {
        trpi_caller_at(caller, call->next)->prev = call->prev;
    } else {
        view->last = call->prev;
    }
}

static void end_call(trpi_caller *caller, uint32_t slot, trpi_caller_actions *actions) {
    trpi_call *call = trpi_caller_at(caller, slot);
    if (call->holds != NULL) {
        const trpi_view *view = &caller->views.items[call->view];
        trpi_caller_emit(actions, TRPI_CALLER_LET_GO, view->actor, 0)->tag = call->holds;
        call->holds = NULL;
    }
    unlink_call(caller, slot);
    trpi_calls_give_back(&caller->calls, slot);
}

/* What the holder of the call's tag, if there is one, is told. */
static trpi_caller_action *tell(trpi_caller *caller, uint32_t slot, trp_code code,
                                const char *message, trpi_caller_actions *actions) {
    trpi_call *call = trpi_caller_at(caller, slot);
    if (call->tag == NULL) {
        return NULL;
    }
    const trpi_view *view = &caller->views.items[call->view];
    trpi_caller_action *action =
        trpi_caller_emit(actions, TRPI_CALLER_COMPLETE, view->actor, view->incarnation);
    action->tag = call->tag;
    action->code = code;
    action->message = message;
    action->node = view->node;
    call->tag = NULL;
    return action;
}

static void complete(trpi_caller *caller, uint32_t slot, trp_code code, const char *message,
                     trpi_caller_actions *actions) {
    (void)tell(caller, slot, code, message, actions);
    end_call(caller, slot, actions);
}

/* ---- Retries ---- */

static int64_t retries_of(const trpi_view *view, const trpi_call *call) {
    if (call->retries == TRP_RETRIES_NONE) {
        return 0;
    }
    return call->retries != 0 ? call->retries : view->retries_max;
}

/* Whether the view's fault ends a call that is not in flight: waiting for a restart uses up no
 * retry, but is only for calls that asked for some. */
static bool is_fatal(const trpi_view *view, const trpi_call *call) {
    return view->fault != TRP_OK && (view->fault_is_lasting || retries_of(view, call) == 0);
}

static bool may_retry(const trpi_view *view, const trpi_call *call) {
    int64_t max = retries_of(view, call);
    bool is_left = max < 0 || call->tries < (uint64_t)max;
    /* A call that was made when no retries were allowed kept nothing that could be sent again. */
    return is_left && !call->is_canceled && call->payload != NULL && !view->fault_is_lasting;
}

static bool is_wanted_again(const trpi_view *view, const trpi_call *call, const char *type) {
    if (!may_retry(view, call)) {
        return false;
    }
    const trpi_call_payload *payload = call->payload;
    const char *own = payload->data + payload->method_size + payload->args_size;
    return trpi_types_have(payload->types_size > 0 ? own : view->retry_on, type);
}

static void rest(trpi_caller *caller, trpi_view *view, uint32_t slot, uint64_t now_ns) {
    trpi_call *call = trpi_caller_at(caller, slot);
    uint64_t doublings = TRPI_MIN(call->failures, 10U);
    uint64_t rest_ms = TRPI_MIN((uint64_t)REST_MS << doublings, (uint64_t)REST_MAX_MS);
    call->state = TRPI_CALL_RESTS;
    call->failures++;
    call->tries++;
    view->in_flight--;
    trpi_calls_set_wake(&caller->calls, slot,
                        TRPI_MIN(call->deadline_ns, now_ns + rest_ms * TRPI_NS_PER_MS));
}

void trpi_caller_ground(trpi_caller *caller, trpi_view *view, const char *message,
                        trpi_caller_actions *actions) {
    uint32_t slot = view->first;
    while (slot != TRPI_CALL_NONE) {
        trpi_call *call = trpi_caller_at(caller, slot);
        uint32_t next = call->next;
        if (call->state == TRPI_CALL_FLIES && may_retry(view, call)) {
            call->state = TRPI_CALL_WAITS;
            view->in_flight--;
            call->tries++;
        } else if (call->state == TRPI_CALL_FLIES) {
            complete(caller, slot, view->fault, message, actions);
        }
        slot = next;
    }
}

void trpi_caller_fail_waiting(trpi_caller *caller, trpi_view *view, trpi_caller_actions *actions) {
    uint32_t slot = view->first;
    while (slot != TRPI_CALL_NONE) {
        const trpi_call *call = trpi_caller_at(caller, slot);
        uint32_t next = call->next;
        if (call->state != TRPI_CALL_FLIES && is_fatal(view, call)) {
            complete(caller, slot, view->fault, view->fault_text, actions);
        }
        slot = next;
    }
}

/* ---- Sending ---- */

static void send_call(trpi_caller *caller, trpi_view *view, uint32_t slot, const char *method,
                      trp_bytes args, trpi_caller_actions *actions) {
    trpi_call *call = trpi_caller_at(caller, slot);
    call->state = TRPI_CALL_FLIES;
    trpi_caller_action *action =
        trpi_caller_emit(actions, TRPI_CALLER_SEND, view->actor, view->connected);
    action->connection = view->connection;
    action->call = trpi_calls_id(&caller->calls, slot);
    action->seq = ++view->seq;
    action->tries = call->tries;
    action->ahead = view->in_flight++;
    action->method = method;
    action->args = args;
}

static void send_kept(trpi_caller *caller, trpi_view *view, uint32_t slot,
                      trpi_caller_actions *actions) {
    const trpi_call_payload *payload = trpi_caller_at(caller, slot)->payload;
    TRP_ASSERT(payload != NULL);
    send_call(caller, view, slot, payload->data,
              (trp_bytes){payload->data + payload->method_size, payload->args_size}, actions);
}

void trpi_caller_send_waiting(trpi_caller *caller, trpi_view *view, trpi_caller_actions *actions) {
    uint32_t slot = view->first;
    for (; slot != TRPI_CALL_NONE; slot = trpi_caller_at(caller, slot)->next) {
        if (trpi_caller_at(caller, slot)->state == TRPI_CALL_WAITS) {
            send_kept(caller, view, slot, actions);
        }
    }
}

/* ---- Steps ---- */

static trp_code check_limits(const trpi_caller *caller, const trpi_view *view, trp_error *err) {
    char who[160];
    if (view->pending_max > 0 && view->call_count >= view->pending_max) {
        trpi_view_who(view, who, sizeof(who));
        return trpi_fail(err, TRP_EBUSY,
                         "%" PRIu32 " calls of this process to %s are under way; its "
                         "max_pending_calls is %" PRIu64,
                         view->call_count, who, view->pending_max);
    }
    if (caller->calls.used_count >= caller->calls.used_max) {
        return trpi_fail(err, TRP_EBUSY,
                         "%" PRIu32 " calls of this process are under way; "
                         "TROUPE_PENDING_CALLS_MAX is %" PRIu32,
                         caller->calls.used_count, caller->calls.used_max);
    }
    return TRP_OK;
}

static void warn_of_crowd(trpi_view *view, trpi_caller_actions *actions) {
    if (view->call_count < CROWD || view->told_crowd) {
        return;
    }
    char who[160], text[320];
    view->told_crowd = true;
    trpi_view_who(view, who, sizeof(who));
    trpi_format(text, sizeof(text),
                "%" PRIu32 " calls of this process to %s are under way: it is called faster than "
                "it answers; max_pending_calls would bound them",
                view->call_count, who);
    trpi_caller_emit(actions, TRPI_CALLER_WARN, view->actor, 0)->message =
        trpi_caller_keep(actions, text);
}

trp_code trpi_caller_call(trpi_caller *caller, const trpi_call_order *order, uint64_t *ret_call,
                          trpi_caller_actions *actions, trp_error *err) {
    TRP_ASSERT(order->tag != NULL);
    trpi_view *view = trpi_caller_get_view(caller, order->actor, actions);
    trp_code code = check_limits(caller, view, err);
    if (code != TRP_OK) {
        return code;
    }
    uint32_t slot = trpi_calls_take(&caller->calls);
    trpi_call *call = trpi_caller_at(caller, slot);
    call->tag = order->tag;
    call->holds = order->holds;
    call->retries = order->retries_max;
    call->deadline_ns = order->deadline_ns;
    *ret_call = trpi_calls_id(&caller->calls, slot);
    append_call(caller, view, slot);
    if (is_fatal(view, call)) {
        complete(caller, slot, view->fault, view->fault_text, actions);
        return TRP_OK;
    }
    if (order->deadline_ns != UINT64_MAX) {
        trpi_calls_set_wake(&caller->calls, slot, order->deadline_ns);
    }
    warn_of_crowd(view, actions);
    /* A call that can be sent now and never again needs no copy: the common, fast case. */
    if (view->connected == 0 || retries_of(view, call) != 0) {
        trpi_calls_keep_payload(call, order->method, order->args, order->retry_on);
    }
    if (view->connected != 0) {
        send_call(caller, view, slot, order->method, order->args, actions);
    }
    return TRP_OK;
}

static void fail_answered(trpi_caller *caller, uint32_t slot, trp_code code,
                          const trpi_msg_reply *reply, trpi_caller_actions *actions) {
    char who[160], text[1024];
    trpi_view_who(&caller->views.items[trpi_caller_at(caller, slot)->view], who, sizeof(who));
    trpi_format(text, sizeof(text), "%s: %s", who, reply->message);
    trpi_caller_action *action = tell(caller, slot, code, trpi_caller_keep(actions, text), actions);
    if (action != NULL) {
        action->type = trpi_caller_keep(actions, reply->error_type);
        action->where = trpi_caller_keep(actions, reply->error_where);
    }
    end_call(caller, slot, actions);
}

void trpi_caller_reply(trpi_caller *caller, uint64_t connection, const trpi_msg_reply *reply,
                       uint64_t now_ns, trpi_caller_actions *actions) {
    uint32_t slot = trpi_calls_find(&caller->calls, reply->call);
    if (slot == TRPI_CALL_NONE) {
        return;
    }
    const trpi_call *call = trpi_caller_at(caller, slot);
    trpi_view *view = &caller->views.items[call->view];
    if (call->state != TRPI_CALL_FLIES || view->connection != connection ||
        reply->incarnation != view->connected) {
        return;
    }
    trp_code code = reply->code < TRP_CODE_COUNT ? (trp_code)reply->code : TRP_EPROTOCOL;
    if (code == TRP_OK) {
        complete(caller, slot, code, reply->message, actions);
    } else if (code == TRP_EUSER && is_wanted_again(view, call, reply->error_type)) {
        rest(caller, view, slot, now_ns);
    } else {
        fail_answered(caller, slot, code, reply, actions);
    }
}

static void expire(trpi_caller *caller, uint32_t slot, trpi_caller_actions *actions) {
    const trpi_call *call = trpi_caller_at(caller, slot);
    const trpi_view *view = &caller->views.items[call->view];
    char text[768], why[640];
    if (call->state == TRPI_CALL_FLIES) {
        char who[160];
        trpi_view_who(view, who, sizeof(who));
        trpi_format(text, sizeof(text),
                    "%s, pid %" PRId64 " on node n%" PRIu64
                    ", has not answered within the call's deadline; the method may still run",
                    who, view->pid, view->node);
    } else if (call->state == TRPI_CALL_RESTS) {
        trpi_caller_explain(caller, view->actor, why, sizeof(why));
        trpi_format(text, sizeof(text),
                    "the call's deadline passed before it was tried again, after %" PRIu32
                    " failures: %s",
                    call->failures, why);
    } else {
        trpi_caller_explain(caller, view->actor, why, sizeof(why));
        trpi_format(text, sizeof(text), "the call's deadline passed while it waited: %s", why);
    }
    complete(caller, slot, TRP_ETIMEOUT, trpi_caller_keep(actions, text), actions);
}

void trpi_caller_tick(trpi_caller *caller, uint64_t now_ns, trpi_caller_actions *actions) {
    for (;;) {
        uint32_t slot = trpi_calls_next_wake(&caller->calls);
        if (slot == TRPI_CALL_NONE || trpi_caller_at(caller, slot)->wake_ns > now_ns) {
            return;
        }
        trpi_call *call = trpi_caller_at(caller, slot);
        if (call->deadline_ns <= now_ns) {
            expire(caller, slot, actions);
            continue;
        }
        trpi_view *view = &caller->views.items[call->view];
        call->state = TRPI_CALL_WAITS;
        trpi_calls_set_wake(&caller->calls, slot, call->deadline_ns);
        if (view->connected != 0) {
            send_kept(caller, view, slot, actions);
        }
    }
}

void *trpi_caller_abandon(trpi_caller *caller, uint64_t id, trpi_caller_actions *actions) {
    uint32_t slot = trpi_calls_find(&caller->calls, id);
    if (slot == TRPI_CALL_NONE) {
        return NULL;
    }
    void *tag = trpi_caller_at(caller, slot)->tag;
    end_call(caller, slot, actions);
    return tag;
}

void trpi_caller_release(trpi_caller *caller, uint64_t id) {
    uint32_t slot = trpi_calls_find(&caller->calls, id);
    if (slot != TRPI_CALL_NONE) {
        trpi_caller_at(caller, slot)->tag = NULL;
    }
}

void trpi_caller_cancel(trpi_caller *caller, uint64_t id, trpi_caller_actions *actions) {
    uint32_t slot = trpi_calls_find(&caller->calls, id);
    if (slot == TRPI_CALL_NONE) {
        return;
    }
    trpi_call *call = trpi_caller_at(caller, slot);
    if (call->state != TRPI_CALL_FLIES) {
        complete(caller, slot, TRP_ECANCELED, "canceled before it was sent", actions);
        return;
    }
    if (call->is_canceled) {
        return;
    }
    const trpi_view *view = &caller->views.items[call->view];
    call->is_canceled = true; /* it is over when it is answered, or its actor dies */
    (void)tell(caller, slot, TRP_ECANCELED, "canceled; the method may have run, or run on",
               actions);
    trpi_caller_action *action =
        trpi_caller_emit(actions, TRPI_CALLER_CANCEL, view->actor, view->connected);
    action->connection = view->connection;
    action->call = id;
}

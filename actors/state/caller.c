#include "actors/state/caller.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/caller_calls.h"
#include "actors/state/caller_view.h"

struct trpi_caller {
    trpi_calls calls;
    trpi_views views;
    char *host_id;
    uint64_t connections; /* made so far */
};

trpi_caller *trpi_caller_new(const char *host_id, uint32_t calls_max) {
    trpi_caller *caller = trpi_alloc(sizeof(*caller));
    trpi_calls_init(&caller->calls, calls_max);
    caller->host_id = trpi_strdup(host_id);
    return caller;
}

void trpi_caller_free(trpi_caller *caller) {
    if (caller == NULL) {
        return;
    }
    trpi_calls_release(&caller->calls);
    trpi_views_release(&caller->views);
    free(caller->host_id);
    free(caller);
}

/* ---- Actions ---- */

void trpi_caller_actions_clear(trpi_caller_actions *actions) {
    actions->count = 0;
    if (actions->texts.first != NULL) {
        trpi_arena_reset(&actions->texts);
    }
}

void trpi_caller_actions_release(trpi_caller_actions *actions) {
    free(actions->items);
    trpi_arena_release(&actions->texts);
    *actions = (trpi_caller_actions){0};
}

static trpi_caller_action *emit(trpi_caller_actions *actions, trpi_caller_action_kind kind,
                                uint64_t actor, uint64_t incarnation) {
    if (actions->count == actions->capacity) {
        actions->capacity = TRPI_MAX((size_t)16, actions->capacity * 2);
        actions->items = trpi_realloc(actions->items, actions->capacity * sizeof(*actions->items));
    }
    trpi_caller_action *action = &actions->items[actions->count++];
    *action = (trpi_caller_action){.kind = kind, .actor = actor, .incarnation = incarnation};
    return action;
}

/* A text that lives as long as the actions; the plain one when memory is out. */
static const char *keep_text(trpi_caller_actions *actions, const char *text) {
    const char *kept = trpi_arena_text(&actions->texts, text, strlen(text));
    return kept ? kept : "out of memory for the reason";
}

/* ---- Calls of one actor ---- */

static trpi_call *call_at(trpi_caller *caller, uint32_t slot) {
    return &caller->calls.slots[slot];
}

static void append_call(trpi_caller *caller, trpi_view *view, uint32_t slot) {
    trpi_call *call = call_at(caller, slot);
    call->view = (uint32_t)(view - caller->views.items);
    call->prev = view->last;
    if (view->last != TRPI_CALL_NONE) {
        call_at(caller, view->last)->next = slot;
    } else {
        view->first = slot;
    }
    view->last = slot;
}

static void unlink_call(trpi_caller *caller, uint32_t slot) {
    trpi_call *call = call_at(caller, slot);
    trpi_view *view = &caller->views.items[call->view];
    view->in_flight -= call->in_flight;
    if (call->prev != TRPI_CALL_NONE) {
        call_at(caller, call->prev)->next = call->next;
    } else {
        view->first = call->next;
    }
    if (call->next != TRPI_CALL_NONE) {
        call_at(caller, call->next)->prev = call->prev;
    } else {
        view->last = call->prev;
    }
}

static void complete(trpi_caller *caller, uint32_t slot, trp_code code, const char *message,
                     trpi_caller_actions *actions) {
    trpi_call *call = call_at(caller, slot);
    trpi_view *view = &caller->views.items[call->view];
    if (call->tag != NULL) {
        trpi_caller_action *action =
            emit(actions, TRPI_CALLER_COMPLETE, view->actor, view->incarnation);
        action->tag = call->tag;
        action->code = code;
        action->message = message;
        action->node = view->node;
    }
    unlink_call(caller, slot);
    trpi_calls_give_back(&caller->calls, slot);
}

/* Whether the view's fault ends a call that waits: waiting for a restart uses up no retry, but is
 * only for callers that asked for some. */
static bool is_fatal(const trpi_view *view) {
    return view->fault != TRP_OK && (view->fault_is_lasting || view->retries_max == 0);
}

static void fail_waiting(trpi_caller *caller, trpi_view *view, trpi_caller_actions *actions) {
    uint32_t slot = view->first;
    while (slot != TRPI_CALL_NONE) {
        uint32_t next = call_at(caller, slot)->next;
        if (!call_at(caller, slot)->in_flight && is_fatal(view)) {
            complete(caller, slot, view->fault, view->fault_text, actions);
        }
        slot = next;
    }
}

static void send_call(trpi_caller *caller, trpi_view *view, uint32_t slot, const char *method,
                      trp_bytes args, trpi_caller_actions *actions) {
    trpi_call *call = call_at(caller, slot);
    call->in_flight = true;
    trpi_caller_action *action = emit(actions, TRPI_CALLER_SEND, view->actor, view->connected);
    action->connection = view->connection;
    action->call = trpi_calls_id(&caller->calls, slot);
    action->seq = ++view->seq;
    action->tries = call->tries;
    action->ahead = view->in_flight++;
    action->method = method;
    action->args = args;
}

static void send_waiting(trpi_caller *caller, trpi_view *view, trpi_caller_actions *actions) {
    for (uint32_t slot = view->first; slot != TRPI_CALL_NONE; slot = call_at(caller, slot)->next) {
        const trpi_call_payload *payload = call_at(caller, slot)->payload;
        TRP_ASSERT(payload != NULL && !call_at(caller, slot)->in_flight);
        send_call(caller, view, slot, payload->data,
                  (trp_bytes){payload->data + payload->method_size, payload->args_size}, actions);
    }
}

/* ---- Calling ---- */

static trpi_view *get_view(trpi_caller *caller, uint64_t actor, trpi_caller_actions *actions) {
    trpi_view *view = trpi_views_find(&caller->views, actor);
    if (view == NULL) {
        view = trpi_views_add(&caller->views, actor);
        emit(actions, TRPI_CALLER_SUBSCRIBE, actor, 0);
    }
    return view;
}

trp_code trpi_caller_call(trpi_caller *caller, uint64_t actor, const char *method, trp_bytes args,
                          uint64_t deadline_ns, void *tag, uint64_t *ret_call,
                          trpi_caller_actions *actions) {
    TRP_ASSERT(tag != NULL);
    trpi_view *view = get_view(caller, actor, actions);
    uint32_t slot = trpi_calls_take(&caller->calls);
    if (slot == TRPI_CALL_NONE) {
        return TRP_EBUSY;
    }
    trpi_call *call = call_at(caller, slot);
    call->tag = tag;
    *ret_call = trpi_calls_id(&caller->calls, slot);
    append_call(caller, view, slot);
    if (is_fatal(view)) {
        complete(caller, slot, view->fault, view->fault_text, actions);
        return TRP_OK;
    }
    if (deadline_ns != UINT64_MAX) {
        trpi_calls_set_deadline(&caller->calls, slot, deadline_ns);
    }
    /* A call that can be sent now and never again needs no copy: the common, fast case. */
    if (view->connected == 0 || view->retries_max != 0) {
        trpi_calls_keep_payload(call, method, args);
    }
    if (view->connected != 0) {
        send_call(caller, view, slot, method, args, actions);
    }
    return TRP_OK;
}

void trpi_caller_reply(trpi_caller *caller, uint64_t connection, const trpi_msg_reply *reply,
                       trpi_caller_actions *actions) {
    uint32_t slot = trpi_calls_find(&caller->calls, reply->call);
    if (slot == TRPI_CALL_NONE) {
        return;
    }
    const trpi_call *call = call_at(caller, slot);
    const trpi_view *view = &caller->views.items[call->view];
    if (!call->in_flight || view->connection != connection ||
        reply->incarnation != view->connected) {
        return;
    }
    trp_code code = reply->code < TRP_CODE_COUNT ? (trp_code)reply->code : TRP_EPROTOCOL;
    complete(caller, slot, code, reply->message, actions);
}

void trpi_caller_tick(trpi_caller *caller, uint64_t now_ns, trpi_caller_actions *actions) {
    for (;;) {
        uint32_t slot = trpi_calls_next_deadline(&caller->calls);
        if (slot == TRPI_CALL_NONE || call_at(caller, slot)->deadline_ns > now_ns) {
            return;
        }
        const trpi_call *call = call_at(caller, slot);
        const trpi_view *view = &caller->views.items[call->view];
        char text[768];
        if (call->in_flight) {
            char who[160];
            trpi_view_who(view, who, sizeof(who));
            trpi_format(text, sizeof(text),
                        "%s, pid %" PRId64 " on node n%" PRIu64
                        ", has not answered within the call's deadline; the method may still run",
                        who, view->pid, view->node);
        } else {
            char why[640];
            trpi_caller_explain(caller, view->actor, why, sizeof(why));
            trpi_format(text, sizeof(text), "the call's deadline passed while it waited: %s", why);
        }
        complete(caller, slot, TRP_ETIMEOUT, keep_text(actions, text), actions);
    }
}

void *trpi_caller_abandon(trpi_caller *caller, uint64_t id) {
    uint32_t slot = trpi_calls_find(&caller->calls, id);
    if (slot == TRPI_CALL_NONE) {
        return NULL;
    }
    void *tag = call_at(caller, slot)->tag;
    unlink_call(caller, slot);
    trpi_calls_give_back(&caller->calls, slot);
    return tag;
}

void trpi_caller_release(trpi_caller *caller, uint64_t id) {
    uint32_t slot = trpi_calls_find(&caller->calls, id);
    if (slot != TRPI_CALL_NONE) {
        call_at(caller, slot)->tag = NULL;
    }
}

/* ---- The life of an actor ---- */

static void set_dead_fault(trpi_view *view) {
    char why[768], text[960];
    trpi_view_death_text(view, why, sizeof(why));
    trpi_format(text, sizeof(text), "dead: %s", why);
    trpi_view_set_fault(view, TRP_EACTOR_DIED, true, text);
}

static void set_restarting_fault(trpi_view *view) {
    char why[768], text[960];
    trpi_view_death_text(view, why, sizeof(why));
    trpi_format(text, sizeof(text), "being restarted: %s", why);
    trpi_view_set_fault(view, TRP_EUNAVAILABLE, false, text);
}

static bool may_retry(const trpi_view *view, const trpi_call *call) {
    bool is_left = view->retries_max < 0 || call->tries < (uint64_t)view->retries_max;
    /* A call that was made when no retries were allowed kept nothing that could be sent again. */
    return is_left && call->payload != NULL && !view->fault_is_lasting;
}

/* Transition 2. The view already holds the head's word about what follows. */
static void end_incarnation(trpi_caller *caller, trpi_view *view, trpi_caller_actions *actions) {
    const char *endpoint = keep_text(actions, view->endpoint);
    trpi_caller_action *action =
        emit(actions, TRPI_CALLER_DISCONNECT, view->actor, view->connected);
    action->connection = view->connection;
    action->endpoint = endpoint;
    view->connected = 0;
    view->seq = 0;
    char text[1024];
    trpi_format(text, sizeof(text), "%s; this call may have run", view->fault_text);
    const char *message = keep_text(actions, text);
    uint32_t slot = view->first;
    while (slot != TRPI_CALL_NONE) {
        trpi_call *call = call_at(caller, slot);
        uint32_t next = call->next;
        if (call->in_flight && may_retry(view, call)) {
            call->in_flight = false;
            view->in_flight--;
            call->tries++;
        } else if (call->in_flight) {
            complete(caller, slot, view->fault, message, actions);
        }
        slot = next;
    }
}

static void set_unreachable_fault(trpi_view *view, const char *why) {
    char who[160], text[768];
    trpi_view_who(view, who, sizeof(who));
    trpi_format(text, sizeof(text), "%s on node n%" PRIu64 " cannot be reached from here: %s", who,
                view->node, why);
    trpi_view_set_fault(view, TRP_EDISCONNECTED, true, text);
}

/* Transition 1. */
static void enter_alive(trpi_caller *caller, trpi_view *view, const trpi_msg_actor_state *state,
                        trpi_caller_actions *actions) {
    if (view->connected == view->incarnation) {
        return; /* nothing new */
    }
    bool is_local = strcmp(state->host_id, caller->host_id) == 0;
    const char *endpoint = is_local ? state->endpoint : state->remote_endpoint;
    if (endpoint[0] == '\0') {
        set_unreachable_fault(view, is_local ? "its worker told no endpoint"
                                             : "its node listens on its own host only; start the "
                                               "node with --host ADDRESS");
        fail_waiting(caller, view, actions);
        return;
    }
    trpi_view_set_fault(view, TRP_OK, false, "");
    trpi_view_set_endpoint(view, endpoint);
    view->connection = ++caller->connections;
    trpi_caller_action *action = emit(actions, TRPI_CALLER_CONNECT, view->actor, view->incarnation);
    action->connection = view->connection;
    action->endpoint = view->endpoint;
}

void trpi_caller_connected(trpi_caller *caller, uint64_t actor, uint64_t connection, trp_code code,
                           const char *why, trpi_caller_actions *actions) {
    trpi_view *view = trpi_views_find(&caller->views, actor);
    if (view == NULL || view->phase != TRP_ACTOR_ALIVE || view->connection != connection) {
        return;
    }
    if (code != TRP_OK) {
        set_unreachable_fault(view, why);
        fail_waiting(caller, view, actions);
        return;
    }
    view->connected = view->incarnation;
    send_waiting(caller, view, actions);
}

/* Whoever monitors an actor hears of deaths that come after the monitor, and of the final one
 * always. */
static void tell_death(trpi_view *view, bool is_news, bool is_first_word,
                       trpi_caller_actions *actions) {
    if (!view->monitored || !view->has_death) {
        return;
    }
    bool is_dead = view->phase == TRP_ACTOR_DEAD;
    bool wanted = is_dead ? !view->told_final : is_news && !is_first_word;
    if (wanted) {
        emit(actions, TRPI_CALLER_DEATH, view->actor, view->death_incarnation);
    }
    view->told_final |= is_dead;
}

void trpi_caller_state(trpi_caller *caller, const trpi_msg_actor_state *state,
                       trpi_caller_actions *actions) {
    trpi_view *view = trpi_views_find(&caller->views, state->actor);
    if (view == NULL || trpi_view_is_stale(view, state)) {
        return;
    }
    unsigned before = view->phase;
    bool is_news = trpi_view_update(view, state);
    tell_death(view, is_news, before == TRPI_PHASE_ASKED, actions);
    if (view->phase == TRP_ACTOR_DEAD) {
        set_dead_fault(view);
    } else if (view->phase == TRPI_PHASE_UNKNOWN) {
        char text[96];
        trpi_format(text, sizeof(text), "the cluster has no actor a%" PRIu64, view->actor);
        trpi_view_set_fault(view, TRP_ENOTFOUND, true, text);
    } else if (view->phase != before || view->connected != view->incarnation) {
        set_restarting_fault(view);
    }
    bool is_same = view->phase == TRP_ACTOR_ALIVE && view->connected == view->incarnation;
    if (view->connected != 0 && !is_same) {
        end_incarnation(caller, view, actions);
    }
    switch (view->phase) {
    case TRP_ACTOR_PENDING:
        trpi_view_set_fault(view, TRP_OK, false, "");
        break;
    case TRP_ACTOR_ALIVE:
        enter_alive(caller, view, state, actions);
        break;
    case TRP_ACTOR_RESTARTING:
        if (before != TRP_ACTOR_PENDING && before != TRP_ACTOR_RESTARTING) {
            fail_waiting(caller, view, actions);
        }
        break;
    default: /* transition 3, and an actor that never was */
        fail_waiting(caller, view, actions);
        break;
    }
}

void trpi_caller_watch(trpi_caller *caller, uint64_t actor, trpi_caller_actions *actions) {
    (void)get_view(caller, actor, actions);
}

void trpi_caller_monitor(trpi_caller *caller, uint64_t actor, trpi_caller_actions *actions) {
    trpi_view *view = get_view(caller, actor, actions);
    if (view->monitored) {
        return;
    }
    view->monitored = true;
    view->told_final = false;
    tell_death(view, false, false, actions);
}

void trpi_caller_demonitor(trpi_caller *caller, uint64_t actor) {
    trpi_view *view = trpi_views_find(&caller->views, actor);
    if (view != NULL) {
        view->monitored = false;
    }
}

void trpi_caller_resubscribe(trpi_caller *caller, trpi_caller_actions *actions) {
    for (uint32_t i = 0; i < caller->views.count; i++) {
        const trpi_view *view = &caller->views.items[i];
        if (view->phase != TRP_ACTOR_DEAD && view->phase != TRPI_PHASE_UNKNOWN) {
            emit(actions, TRPI_CALLER_SUBSCRIBE, view->actor, 0);
        }
    }
}

void trpi_caller_orphan(trpi_caller *caller, trpi_caller_actions *actions) {
    for (uint32_t i = 0; i < caller->views.count; i++) {
        trpi_msg_actor_state gone = {.actor = caller->views.items[i].actor,
                                     .phase = TRPI_PHASE_UNKNOWN};
        trpi_caller_state(caller, &gone, actions);
    }
}

/* ---- Questions ---- */

uint64_t trpi_caller_next_deadline(const trpi_caller *caller) {
    uint32_t slot = trpi_calls_next_deadline(&caller->calls);
    return slot == TRPI_CALL_NONE ? UINT64_MAX : caller->calls.slots[slot].deadline_ns;
}

uint32_t trpi_caller_call_count(const trpi_caller *caller) {
    return caller->calls.used_count;
}

bool trpi_caller_get_info(const trpi_caller *caller, uint64_t actor, bool *ret_exists,
                          trp_actor_info *ret_info) {
    const trpi_view *view = trpi_views_find(&caller->views, actor);
    if (view == NULL || view->phase == TRPI_PHASE_ASKED) {
        return false;
    }
    *ret_exists = view->phase != TRPI_PHASE_UNKNOWN;
    trpi_view_get_info(view, ret_info);
    return true;
}

void trpi_caller_explain(const trpi_caller *caller, uint64_t actor, char *out, size_t size) {
    const trpi_view *view = trpi_views_find(&caller->views, actor);
    char who[160];
    if (view == NULL) {
        trpi_format(out, size, "nothing is known of actor a%" PRIu64, actor);
        return;
    }
    trpi_view_who(view, who, sizeof(who));
    if (view->fault != TRP_OK) {
        trpi_format(out, size, "%s", view->fault_text);
    } else if (view->phase == TRPI_PHASE_ASKED) {
        trpi_format(out, size, "the head has not yet said where %s is", who);
    } else if (view->phase == TRP_ACTOR_PENDING) {
        bool is_known = view->waiting_for != NULL && view->waiting_for[0] != '\0';
        trpi_format(out, size, "%s is pending: %s", who,
                    is_known ? view->waiting_for : "its process is being started");
    } else {
        trpi_format(out, size, "%s is alive, pid %" PRId64 " on node n%" PRIu64, who, view->pid,
                    view->node);
    }
}

bool trpi_caller_get_death(const trpi_caller *caller, uint64_t actor, trp_death *ret_death) {
    const trpi_view *view = trpi_views_find(&caller->views, actor);
    if (view == NULL || !view->has_death) {
        return false;
    }
    trpi_view_get_death(view, ret_death);
    return true;
}

static const char *check_view(const trpi_caller *caller, uint32_t index, uint32_t *ret_calls) {
    const trpi_view *view = &caller->views.items[index];
    uint32_t prev = TRPI_CALL_NONE, in_flight = 0;
    bool is_waiting = false;
    for (uint32_t slot = view->first; slot != TRPI_CALL_NONE;) {
        const trpi_call *call = &caller->calls.slots[slot];
        if (!call->used || call->view != index || call->prev != prev) {
            return "the list of an actor's calls is broken";
        }
        if (call->in_flight && (is_waiting || view->connected == 0)) {
            return "a call is in flight behind one that waits, or without a connection";
        }
        if (!call->in_flight && (call->payload == NULL || view->fault_is_lasting)) {
            return "a call waits that can never be sent";
        }
        is_waiting |= !call->in_flight;
        in_flight += call->in_flight;
        prev = slot;
        slot = call->next;
        (*ret_calls)++;
    }
    if (view->last != prev) {
        return "the list of an actor's calls ends elsewhere";
    }
    if (view->in_flight != in_flight) {
        return "the number of an actor's calls in flight is wrong";
    }
    if (view->connected != 0 &&
        (view->phase != TRP_ACTOR_ALIVE || is_waiting || view->connected != view->incarnation)) {
        return "connected to what is not the living incarnation, or with calls that wait";
    }
    return NULL;
}

const char *trpi_caller_check(const trpi_caller *caller) {
    const char *broken = trpi_calls_check(&caller->calls);
    uint32_t listed = 0;
    for (uint32_t i = 0; i < caller->views.count && broken == NULL; i++) {
        broken = check_view(caller, i, &listed);
    }
    if (broken == NULL && listed != caller->calls.used_count) {
        broken = "a call under way belongs to no actor";
    }
    return broken;
}

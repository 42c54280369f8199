#include "actors/state/caller.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/caller_parts.h"

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

trpi_view *trpi_caller_get_view(trpi_caller *caller, uint64_t actor, trpi_caller_actions *actions) {
    trpi_view *view = trpi_views_find(&caller->views, actor);
    bool is_new = view == NULL;
    if (is_new) {
        view = trpi_views_add(&caller->views, actor);
    } else if (view->phase == TRPI_PHASE_REFUSED) {
        view->phase = TRPI_PHASE_ASKED;
        trpi_view_set_fault(view, TRP_OK, false, "");
    }
    if (is_new || view->must_ask) {
        view->must_ask = false;
        trpi_caller_emit(actions, TRPI_CALLER_SUBSCRIBE, actor, 0);
    }
    return view;
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

/* Transition 2. The view already holds the head's word about what follows. */
static void end_incarnation(trpi_caller *caller, trpi_view *view, trpi_caller_actions *actions) {
    const char *endpoint = trpi_caller_keep(actions, view->endpoint);
    trpi_caller_action *action =
        trpi_caller_emit(actions, TRPI_CALLER_DISCONNECT, view->actor, view->connected);
    action->connection = view->connection;
    action->endpoint = endpoint;
    view->connected = 0;
    view->seq = 0;
    char text[1024];
    trpi_format(text, sizeof(text), "%s; this call may have run", view->fault_text);
    trpi_caller_ground(caller, view, trpi_caller_keep(actions, text), actions);
}

static void set_unreachable_fault(trpi_view *view, const char *why) {
    char who[160], text[768];
    trpi_view_who(view, who, sizeof(who));
    trpi_format(text, sizeof(text), "%s on node n%" PRIu64 " cannot be reached from here: %s", who,
                view->node, why);
    trpi_view_set_fault(view, TRP_EDISCONNECTED, true, text);
}

static void connect_view(trpi_caller *caller, trpi_view *view, trpi_caller_actions *actions) {
    trpi_view_set_fault(view, TRP_OK, false, "");
    view->connection = ++caller->connections;
    trpi_caller_action *action =
        trpi_caller_emit(actions, TRPI_CALLER_CONNECT, view->actor, view->incarnation);
    action->connection = view->connection;
    action->endpoint = view->endpoint;
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
        trpi_caller_fail_waiting(caller, view, actions);
        return;
    }
    trpi_view_set_endpoint(view, endpoint);
    connect_view(caller, view, actions);
}

/* Sending again what was under way could make it run twice in one incarnation: it fails. */
void trpi_caller_broken(trpi_caller *caller, uint64_t connection, trpi_caller_actions *actions) {
    for (uint32_t i = 0; i < caller->views.count; i++) {
        trpi_view *view = &caller->views.items[i];
        if (view->connection == connection && view->connected != 0) {
            set_unreachable_fault(view, "it no longer knows this process' connection");
            end_incarnation(caller, view, actions);
            connect_view(caller, view, actions);
            return;
        }
    }
}

void trpi_caller_connected(trpi_caller *caller, uint64_t actor, uint64_t connection, trp_code code,
                           const char *why, trpi_caller_actions *actions) {
    trpi_view *view = trpi_views_find(&caller->views, actor);
    if (view == NULL || view->phase != TRP_ACTOR_ALIVE || view->connection != connection) {
        return;
    }
    if (code != TRP_OK) {
        set_unreachable_fault(view, why);
        trpi_caller_fail_waiting(caller, view, actions);
        return;
    }
    view->connected = view->incarnation;
    trpi_caller_send_waiting(caller, view, actions);
}

static bool is_over(const trpi_view *view) {
    return view->phase == TRP_ACTOR_DEAD || view->phase == TRPI_PHASE_UNKNOWN;
}

/* Whoever monitors an actor hears of deaths that come after the monitor, and of the final one
 * always. */
static void tell_death(trpi_view *view, bool is_news, bool is_first_word,
                       trpi_caller_actions *actions) {
    if (!view->monitored || !view->has_death) {
        return;
    }
    bool wanted = is_over(view) ? !view->told_final : is_news && !is_first_word;
    if (wanted) {
        trpi_caller_emit(actions, TRPI_CALLER_DEATH, view->actor, view->death_incarnation);
    }
    view->told_final |= is_over(view);
}

/* Transition 3, without the head's word on how it came to it. */
static void lose(trpi_caller *caller, trpi_view *view, trp_code code, const char *why,
                 trpi_caller_actions *actions) {
    trpi_view_lose(view, why);
    tell_death(view, true, false, actions);
    trpi_view_set_fault(view, code, true, why);
    if (view->connected != 0) {
        end_incarnation(caller, view, actions);
    }
    trpi_caller_fail_waiting(caller, view, actions);
}

/* The head will not tell of changes. What is known already holds on; who knows nothing must not
 * wait for ever. */
static void refuse(trpi_caller *caller, trpi_view *view, const char *why,
                   trpi_caller_actions *actions) {
    trpi_caller_action *action = trpi_caller_emit(actions, TRPI_CALLER_WARN, view->actor, 0);
    action->message = trpi_caller_keep(actions, why);
    view->must_ask = true;
    if (view->phase == TRPI_PHASE_ASKED) {
        view->phase = TRPI_PHASE_REFUSED;
        trpi_view_set_fault(view, TRP_EBUSY, true, why);
        trpi_caller_fail_waiting(caller, view, actions);
    }
}

static void take_word(trpi_caller *caller, trpi_view *view, const trpi_msg_actor_state *state,
                      trpi_caller_actions *actions) {
    unsigned before = view->phase;
    bool is_news = trpi_view_update(view, state);
    tell_death(view, is_news, before == TRPI_PHASE_ASKED || before == TRPI_PHASE_REFUSED, actions);
    if (view->phase == TRP_ACTOR_DEAD) {
        set_dead_fault(view);
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
            trpi_caller_fail_waiting(caller, view, actions);
        }
        break;
    default: /* transition 3 */
        trpi_caller_fail_waiting(caller, view, actions);
        break;
    }
}

void trpi_caller_state(trpi_caller *caller, const trpi_msg_actor_state *state,
                       trpi_caller_actions *actions) {
    trpi_view *view = trpi_views_find(&caller->views, state->actor);
    if (view == NULL || trpi_view_is_stale(view, state)) {
        return;
    }
    if (state->phase != TRPI_PHASE_UNKNOWN) {
        take_word(caller, view, state, actions);
    } else if (state->waiting_for[0] != '\0') {
        refuse(caller, view, state->waiting_for, actions);
    } else {
        char text[96];
        trpi_format(text, sizeof(text), "the cluster has no actor a%" PRIu64, view->actor);
        lose(caller, view, TRP_ENOTFOUND, text, actions);
    }
}

void trpi_caller_watch(trpi_caller *caller, uint64_t actor, trpi_caller_actions *actions) {
    (void)trpi_caller_get_view(caller, actor, actions);
}

void trpi_caller_monitor(trpi_caller *caller, uint64_t actor, trpi_caller_actions *actions) {
    trpi_view *view = trpi_caller_get_view(caller, actor, actions);
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
        trpi_view *view = &caller->views.items[i];
        if (!is_over(view)) {
            view->must_ask = false;
            trpi_caller_emit(actions, TRPI_CALLER_SUBSCRIBE, view->actor, 0);
        }
    }
}

void trpi_caller_orphan(trpi_caller *caller, const char *why, trpi_caller_actions *actions) {
    for (uint32_t i = 0; i < caller->views.count; i++) {
        trpi_view *view = &caller->views.items[i];
        if (!is_over(view)) {
            lose(caller, view, TRP_EDISCONNECTED, why, actions);
        }
    }
}

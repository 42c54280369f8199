/* caller_asked.c: questions about the caller machine, and its invariants. */
#include <inttypes.h>

#include "actors/state/caller_parts.h"

uint64_t trpi_caller_next_tick(const trpi_caller *caller) {
    uint32_t slot = trpi_calls_next_wake(&caller->calls);
    return slot == TRPI_CALL_NONE ? UINT64_MAX : trpi_caller_at(caller, slot)->wake_ns;
}

uint32_t trpi_caller_call_count(const trpi_caller *caller) {
    return caller->calls.used_count;
}

trp_code trpi_caller_get_info(const trpi_caller *caller, uint64_t actor, trp_actor_info *ret_info,
                              trp_error *err) {
    const trpi_view *view = trpi_views_find(&caller->views, actor);
    if (view == NULL || view->phase == TRPI_PHASE_ASKED) {
        return trpi_fail(err, TRP_ETIMEOUT, "the head has not yet said where a%" PRIu64 " is",
                         actor);
    }
    if (view->phase == TRPI_PHASE_UNKNOWN || view->phase == TRPI_PHASE_REFUSED) {
        return trpi_fail(err, view->fault, "%s", view->fault_text);
    }
    trpi_view_get_info(view, ret_info);
    return TRP_OK;
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

/* ---- Invariants ---- */

static const char *check_call(const trpi_view *view, const trpi_call *call) {
    bool flies = call->state == TRPI_CALL_FLIES;
    if (flies != (view->connected != 0) && call->state != TRPI_CALL_RESTS) {
        return "a call is in flight without a connection, or waits beside one";
    }
    if (!flies && (call->payload == NULL || view->fault_is_lasting || call->is_canceled)) {
        return "a call waits that can never be sent";
    }
    bool has_time = call->state == TRPI_CALL_RESTS || call->deadline_ns != UINT64_MAX;
    if (has_time != (call->heap_place != TRPI_CALL_NONE)) {
        return "a call with a time is not among the times, or one without is";
    }
    return NULL;
}

static const char *check_view(const trpi_caller *caller, uint32_t index, uint32_t *ret_calls) {
    const trpi_view *view = &caller->views.items[index];
    uint32_t prev = TRPI_CALL_NONE, in_flight = 0, count = 0;
    const char *broken = NULL;
    for (uint32_t slot = view->first; slot != TRPI_CALL_NONE && broken == NULL;) {
        const trpi_call *call = trpi_caller_at(caller, slot);
        if (!call->used || call->view != index || call->prev != prev) {
            return "the list of an actor's calls is broken";
        }
        broken = check_call(view, call);
        in_flight += call->state == TRPI_CALL_FLIES;
        count++;
        prev = slot;
        slot = call->next;
    }
    *ret_calls += count;
    if (broken != NULL) {
        return broken;
    }
    if (view->last != prev) {
        return "the list of an actor's calls ends elsewhere";
    }
    if (view->in_flight != in_flight || view->call_count != count) {
        return "the number of an actor's calls is wrong";
    }
    if (view->connected != 0 &&
        (view->phase != TRP_ACTOR_ALIVE || view->connected != view->incarnation)) {
        return "connected to what is not the living incarnation";
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

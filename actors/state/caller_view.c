#include "actors/state/caller_view.h"

#include <stdlib.h>
#include <string.h>

#include "actors/state/caller_calls.h"
#include "actors/state/caller_types.h"

/* ---- The table ---- */

static uint32_t bucket_of(const trpi_views *views, uint64_t actor) {
    /* Ids are counted up from 1: a multiplication spreads them (Fibonacci hashing). */
    uint32_t mask = views->bucket_count - 1;
    uint32_t bucket = (uint32_t)((actor * 0x9E3779B97F4A7C15ULL) >> 32) & mask;
    while (views->buckets[bucket] != 0 && views->items[views->buckets[bucket] - 1].actor != actor) {
        bucket = (bucket + 1) & mask;
    }
    return bucket;
}

trpi_view *trpi_views_find(const trpi_views *views, uint64_t actor) {
    if (views->bucket_count == 0) {
        return NULL;
    }
    uint32_t index = views->buckets[bucket_of(views, actor)];
    return index ? &views->items[index - 1] : NULL;
}

static void grow_buckets(trpi_views *views) {
    free(views->buckets);
    views->bucket_count = TRPI_MAX(64U, views->bucket_count * 2);
    views->buckets = trpi_alloc(views->bucket_count * sizeof(*views->buckets));
    for (uint32_t i = 0; i < views->count; i++) {
        views->buckets[bucket_of(views, views->items[i].actor)] = i + 1;
    }
}

trpi_view *trpi_views_add(trpi_views *views, uint64_t actor) {
    if (2 * (views->count + 1) > views->bucket_count) {
        grow_buckets(views);
    }
    if (views->count == views->capacity) {
        views->capacity = TRPI_MAX(16U, views->capacity * 2);
        views->items = trpi_realloc(views->items, views->capacity * sizeof(*views->items));
    }
    trpi_view *view = &views->items[views->count];
    *view = (trpi_view){
        .actor = actor, .phase = TRPI_PHASE_ASKED, .first = TRPI_CALL_NONE, .last = TRPI_CALL_NONE};
    views->buckets[bucket_of(views, actor)] = ++views->count;
    return view;
}

void trpi_views_release(trpi_views *views) {
    for (uint32_t i = 0; i < views->count; i++) {
        trpi_view *view = &views->items[i];
        free(view->label);
        free(view->devices);
        free(view->waiting_for);
        free(view->death_message);
        free(view->death_stderr);
        free(view->death_core);
        free(view->retry_on);
        free(view->endpoint);
        free(view->fault_text);
    }
    free(views->items);
    free(views->buckets);
    *views = (trpi_views){0};
}

/* ---- The head's word ---- */

bool trpi_view_is_stale(const trpi_view *view, const trpi_msg_actor_state *state) {
    if (view->phase == TRPI_PHASE_ASKED || view->phase == TRPI_PHASE_REFUSED) {
        return false;
    }
    if (view->phase == TRP_ACTOR_DEAD || view->phase == TRPI_PHASE_UNKNOWN) {
        return true;
    }
    return state->phase != TRPI_PHASE_UNKNOWN && state->incarnation < view->incarnation;
}

static void set_text(char **text, const char *value) {
    if (*text == NULL || strcmp(*text, value) != 0) {
        free(*text);
        *text = trpi_strdup(value);
    }
}

static void set_devices(trpi_view *view, const trpi_msg_actor_state *state) {
    char text[sizeof(((trp_actor_info *)0)->devices)] = "";
    for (size_t i = 0; i < state->devices_count; i++) {
        size_t used = strlen(text);
        trpi_format(text + used, sizeof(text) - used, "%s%s", i ? "," : "",
                    state->devices[i].value);
    }
    set_text(&view->devices, text);
}

static void set_retry_on(trpi_view *view, const trpi_msg_actor_state *state) {
    const char **names = trpi_alloc((state->retry_on_count + 1) * sizeof(*names));
    for (size_t i = 0; i < state->retry_on_count; i++) {
        names[i] = state->retry_on[i].value;
    }
    free(view->retry_on);
    view->retry_on = trpi_alloc(trpi_types_size(names));
    trpi_types_pack(names, view->retry_on);
    free(names);
}

/* An actor that ended before it had a process has no death in the head's word, but whoever monitors
 * it must hear of its end all the same. */
static bool update_death(trpi_view *view, const trpi_msg_actor_state *state) {
    trpi_death made_up = {.incarnation = state->incarnation,
                          .is_final = true,
                          .message = "the head gave no cause",
                          .stderr_tail = "",
                          .core = ""};
    const trpi_death *death = &made_up;
    if (state->death_count > 0) {
        death = &state->death[0];
    } else if (state->phase != TRP_ACTOR_DEAD) {
        return false;
    }
    bool is_final = death->is_final || state->phase == TRP_ACTOR_DEAD;
    if (view->has_death && death->incarnation <= view->death_incarnation &&
        is_final == view->death_final) {
        return false;
    }
    view->has_death = true;
    view->death_incarnation = death->incarnation;
    view->death_node = death->node;
    view->death_pid = death->pid;
    view->death_cause = death->cause;
    view->death_signal = death->signal;
    view->death_exit_code = death->exit_code;
    view->death_final = is_final;
    set_text(&view->death_message, death->message);
    set_text(&view->death_stderr, death->stderr_tail);
    set_text(&view->death_core, death->core);
    return true;
}

void trpi_view_lose(trpi_view *view, const char *why) {
    view->phase = TRPI_PHASE_UNKNOWN;
    view->has_death = true;
    view->death_incarnation = view->incarnation;
    view->death_node = view->node;
    view->death_pid = view->pid;
    view->death_cause = TRP_CAUSE_NONE;
    view->death_signal = view->death_exit_code = 0;
    view->death_final = true;
    set_text(&view->death_message, why);
    set_text(&view->death_stderr, "");
    set_text(&view->death_core, "");
}

bool trpi_view_update(trpi_view *view, const trpi_msg_actor_state *state) {
    view->phase = (unsigned)state->phase;
    view->incarnation = state->incarnation;
    view->node = state->node;
    view->pid = state->pid;
    view->restarts = state->restarts;
    view->retries_max = state->call_retries_max;
    view->pending_max = state->max_pending_calls;
    view->draining = state->draining;
    view->drain_ms = state->drain_ms;
    set_text(&view->label, state->name[0] ? state->name : state->type);
    set_text(&view->waiting_for, state->waiting_for);
    set_devices(view, state);
    set_retry_on(view, state);
    return update_death(view, state);
}

void trpi_view_set_endpoint(trpi_view *view, const char *endpoint) {
    set_text(&view->endpoint, endpoint);
}

void trpi_view_set_fault(trpi_view *view, trp_code code, bool lasting, const char *text) {
    view->fault = code;
    view->fault_is_lasting = lasting;
    set_text(&view->fault_text, text);
}

/* ---- Texts ---- */

void trpi_view_who(const trpi_view *view, char *out, size_t size) {
    if (view->label != NULL && view->label[0] != '\0') {
        trpi_format(out, size, "actor a%llu (%s)", (unsigned long long)view->actor, view->label);
    } else {
        trpi_format(out, size, "actor a%llu", (unsigned long long)view->actor);
    }
}

static void cause_text(const trpi_view *view, char *out, size_t size) {
    const char *cause = trp_cause_text((trp_cause)view->death_cause);
    if (view->death_cause == TRP_CAUSE_SIGNALED) {
        const char *name = sigabbrev_np((int)view->death_signal);
        trpi_format(out, size, "%s: signal %d (SIG%s)", cause, (int)view->death_signal,
                    name ? name : "?");
    } else if (view->death_cause == TRP_CAUSE_EXITED) {
        trpi_format(out, size, "%s: exit code %d", cause, (int)view->death_exit_code);
    } else {
        trpi_format(out, size, "%s", cause);
    }
}

void trpi_view_death_text(const trpi_view *view, char *out, size_t size) {
    char who[160], cause[160], place[96] = "";
    trpi_view_who(view, who, sizeof(who));
    if (!view->has_death) {
        trpi_format(out, size, "%s: the cause is not known", who);
        return;
    }
    /* The head's sentence tells who, where, why and what follows. */
    if (view->death_message[0] != '\0') {
        trpi_format(out, size, "%s", view->death_message);
        return;
    }
    cause_text(view, cause, sizeof(cause));
    if (view->death_node != 0) {
        trpi_format(place, sizeof(place), " on node n%llu", (unsigned long long)view->death_node);
    }
    if (view->death_pid != 0) {
        size_t used = strlen(place);
        trpi_format(place + used, sizeof(place) - used, ", pid %lld", (long long)view->death_pid);
    }
    trpi_format(out, size, "%s%s: %s", who, place, cause);
}

void trpi_view_get_death(const trpi_view *view, trp_death *ret_death) {
    *ret_death = (trp_death){.actor = {view->actor},
                             .incarnation = view->death_incarnation,
                             .node = view->death_node,
                             .pid = view->death_pid,
                             .cause = (trp_cause)view->death_cause,
                             .signal = (int)view->death_signal,
                             .exit_code = (int)view->death_exit_code,
                             .final = view->death_final,
                             .restarts = (int)view->restarts};
    TRPI_SET(ret_death->message, view->death_message ? view->death_message : "");
    /* Of a tail that is too long the end is what matters. */
    const char *tail = view->death_stderr ? view->death_stderr : "";
    size_t size = strlen(tail);
    size_t room = sizeof(ret_death->stderr_tail) - 1;
    TRPI_SET(ret_death->stderr_tail, size > room ? tail + size - room : tail);
    TRPI_SET(ret_death->core, view->death_core ? view->death_core : "");
}

void trpi_view_get_info(const trpi_view *view, trp_actor_info *ret_info) {
    *ret_info = (trp_actor_info){.phase = (trp_actor_phase)view->phase,
                                 .incarnation = view->incarnation,
                                 .node = view->node,
                                 .pid = view->pid,
                                 .restarts = (int)view->restarts,
                                 .draining = view->draining,
                                 .drain_ms = view->drain_ms};
    TRPI_SET(ret_info->devices, view->devices ? view->devices : "");
}

/* client_calls.c: calls and their refs. */
#include <stdlib.h>
#include <string.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/client_options.h"
#include "actors/proc/client_store.h"
#include "core/net/clock.h"

/* Whoever only calls and never waits still has replies coming in: read them now and then, or they
 * pile up. */
#define CALLS_PER_READ 1024

#define ARGS_MAX (512u << 20)
#define OBJECTS_MAX 65536

/* ---- Calling ---- */

static trp_code check_call(trp_actor actor, const char *method, trp_bytes args, trp_error *err) {
    if (actor.id == 0) {
        return trpi_fail(err, TRP_EINVALID, "the actor is 0, which is none");
    }
    if (method == NULL || method[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "no method is named");
    }
    if (args.size > ARGS_MAX) {
        return trpi_fail(err, TRP_EINVALID,
                         "%zu bytes of arguments are more than the 512 MiB that one call may "
                         "carry; put them into the object store (trp_put), or pass them in pieces",
                         args.size);
    }
    return TRP_OK;
}

void trpi_held_free(trp_runtime *rt, trpi_held *held) {
    if (held != NULL) {
        trpi_client_release_objects(rt, held->objects, held->count);
        free(held);
    }
}

/* *ret_held is NULL when there is nothing to hold. */
static trp_code hold(trp_runtime *rt, const trp_call_options *options, trpi_held **ret_held,
                     trp_error *err) {
    size_t count = options->object_count;
    *ret_held = NULL;
    if (count == 0) {
        return TRP_OK;
    }
    if (count > OBJECTS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "object_count: %zu; at most %d", count, OBJECTS_MAX);
    }
    trp_code code = trpi_client_hold_objects(rt, options->objects, count, err);
    if (code == TRP_OK) {
        *ret_held = trpi_alloc(sizeof(**ret_held) + count * sizeof(trp_object));
        (*ret_held)->count = count;
        memcpy((*ret_held)->objects, options->objects, count * sizeof(trp_object));
    }
    return code;
}

/* Sends the call, or has it wait. What it holds is the machine's then, on success. */
static trp_code make(trp_runtime *rt, const trpi_call_order *call, trp_ref *ret_ref,
                     trp_error *err) {
    trpi_data *data = &rt->data;
    trpi_data_enter(rt);
    trpi_ref *ref = trpi_refs_take(&data->refs);
    ref->actor = call->actor;
    trpi_call_order order = *call;
    order.tag = ref;
    trp_code code = trpi_caller_call(data->caller, &order, &ref->call, &data->actions, err);
    if (code == TRP_OK) {
        *ret_ref = (trp_ref){trpi_ref_id(ref)};
    } else {
        trpi_refs_give_back(&data->refs, ref);
    }
    trpi_data_perform(rt);
    if (++data->sent >= CALLS_PER_READ) {
        trpi_data_read(rt);
    }
    trpi_data_leave(rt);
    return code;
}

trp_code trp_call_with(trp_runtime *rt, trp_actor actor, const char *method, trp_bytes args,
                       const trp_call_options *options, trp_ref *ret_ref, trp_error *err) {
    static const trp_call_options defaults;
    const trp_call_options *o = options != NULL ? options : &defaults;
    trpi_held *held = NULL;
    trp_code code = check_call(actor, method, args, err);
    if (code == TRP_OK) {
        code = trpi_call_check(o, err);
    }
    if (code == TRP_OK) {
        code = hold(rt, o, &held, err);
    }
    if (code == TRP_OK) {
        trpi_call_order order = {
            .actor = actor.id,
            .method = method,
            .args = args,
            .deadline_ns = o->deadline_ms != 0 ? trpi_deadline_ns(o->deadline_ms) : UINT64_MAX,
            .retries_max = o->retries_max,
            .retry_on = o->retry_on,
            .holds = held};
        code = make(rt, &order, ret_ref, err);
    }
    if (code != TRP_OK) {
        trpi_held_free(rt, held);
        return trpi_context(err, code, "call %s", method != NULL ? method : "");
    }
    return TRP_OK;
}

trp_code trp_call(trp_runtime *rt, trp_actor actor, const char *method, trp_bytes args,
                  uint64_t deadline_ms, trp_ref *ret_ref, trp_error *err) {
    trp_call_options options = {.deadline_ms = deadline_ms};
    return trp_call_with(rt, actor, method, args, &options, ret_ref, err);
}

void trp_cancel(trp_runtime *rt, trp_ref handle) {
    trpi_data_enter(rt);
    trpi_ref *ref = trpi_refs_find(&rt->data.refs, handle.id);
    if (ref != NULL && !ref->is_done) {
        trpi_caller_cancel(rt->data.caller, ref->call, &rt->data.actions);
        trpi_data_perform(rt);
    }
    trpi_data_leave(rt);
}

void trp_ref_release(trp_runtime *rt, trp_ref handle) {
    trpi_data_lock(rt);
    trpi_ref *ref = trpi_refs_find(&rt->data.refs, handle.id);
    if (ref != NULL) {
        if (!ref->is_done) {
            trpi_caller_release(rt->data.caller, ref->call);
        }
        if (ref->watches != NULL && rt->data.is_led) {
            trpi_wake(rt->data.wake_fd); /* it may be the leader who waits for this ref */
        }
        trpi_done_forget(rt, ref);
        trpi_refs_give_back(&rt->data.refs, ref);
    }
    trpi_data_leave(rt);
}

/* ---- Waiting for results ---- */

trp_code trpi_ref_unknown(trp_ref ref, trp_error *err) {
    return trpi_fail(err, TRP_EINVALID, "ref %llx: given back, or of another process",
                     (unsigned long long)ref.id);
}

static trp_code still_running(trp_runtime *rt, const trpi_ref *ref, uint64_t timeout_ms,
                              trp_error *err) {
    char why[640];
    trpi_caller_explain(rt->data.caller, ref->actor, why, sizeof(why));
    return trpi_fail(err, TRP_ETIMEOUT, "no result within %llu ms: %s",
                     (unsigned long long)timeout_ms, why);
}

trp_code trp_get(trp_runtime *rt, trp_ref handle, uint64_t timeout_ms, trp_bytes *ret_value,
                 trp_error *err) {
    trp_code code;
    trpi_data_lock(rt);
    trpi_ref *ref = trpi_refs_find(&rt->data.refs, handle.id);
    if (ref != NULL && !ref->is_done) {
        trpi_waiter waiter = {.missing = 1, .wake = PTHREAD_COND_INITIALIZER};
        trpi_ref_watcher watch;
        trpi_ref_watch(&watch, &waiter, ref);
        trpi_data_wait(rt, &waiter, timeout_ms);
        trpi_ref_unwatch(&watch);
        ref = trpi_refs_find(&rt->data.refs, handle.id);
    }
    if (ref == NULL) {
        code = trpi_ref_unknown(handle, err);
    } else if (!ref->is_done) {
        code = still_running(rt, ref, timeout_ms, err);
    } else {
        code = trpi_ref_result(ref, err);
        if (code == TRP_OK && ret_value != NULL) {
            *ret_value = ref->value;
        }
    }
    trpi_data_leave(rt);
    return code;
}

/* How many are done; *ret_failed: one of them failed. Locked. */
static trp_code count_done(trp_runtime *rt, const trp_ref *handles, size_t count, size_t *ret_done,
                           bool *ret_failed, trp_error *err) {
    *ret_done = 0;
    *ret_failed = false;
    for (size_t i = 0; i < count; i++) {
        const trpi_ref *ref = trpi_refs_find(&rt->data.refs, handles[i].id);
        if (ref == NULL) {
            return trpi_ref_unknown(handles[i], err);
        }
        *ret_done += ref->is_done;
        *ret_failed |= ref->is_done && ref->code != TRP_OK;
    }
    return TRP_OK;
}

/* Refs that are already done need no watch. Locked. */
static trp_code watch_all(trp_runtime *rt, const trp_ref *handles, size_t count,
                          trpi_waiter *waiter, uint64_t timeout_ms, trp_error *err) {
    size_t watched = 0;
    trpi_ref_watcher *watches = malloc(TRPI_MAX(count, (size_t)1) * sizeof(*watches));
    if (watches == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "wait for %zu refs: out of memory", count);
    }
    for (size_t i = 0; i < count; i++) {
        trpi_ref *ref = trpi_refs_find(&rt->data.refs, handles[i].id);
        if (!ref->is_done) {
            trpi_ref_watch(&watches[watched++], waiter, ref);
        }
    }
    trpi_data_wait(rt, waiter, timeout_ms);
    for (size_t i = 0; i < watched; i++) {
        trpi_ref_unwatch(&watches[i]);
    }
    free(watches);
    return TRP_OK;
}

/* Waits until `want` of the refs are done, or one has failed if that is what the waiter asks for.
 * Locked. */
static trp_code wait_for(trp_runtime *rt, const trp_ref *handles, size_t count, size_t want,
                         bool fails_fast, uint64_t timeout_ms, trp_error *err) {
    trpi_waiter waiter = {.fails_fast = fails_fast, .wake = PTHREAD_COND_INITIALIZER};
    size_t done;
    bool has_failed;
    trp_code code = count_done(rt, handles, count, &done, &has_failed, err);
    if (code != TRP_OK || done >= want || (fails_fast && has_failed)) {
        return code;
    }
    waiter.missing = want - done;
    return watch_all(rt, handles, count, &waiter, timeout_ms, err);
}

/* The first failure; else the first that is not done; else TRP_OK. Locked. */
static trp_code result_of_all(trp_runtime *rt, const trp_ref *handles, size_t count,
                              uint64_t timeout_ms, trp_error *err) {
    const trpi_ref *running = NULL;
    for (size_t i = 0; i < count; i++) {
        const trpi_ref *ref = trpi_refs_find(&rt->data.refs, handles[i].id);
        if (ref == NULL) {
            return trpi_ref_unknown(handles[i], err);
        }
        if (ref->is_done && ref->code != TRP_OK) {
            return trpi_ref_result(ref, err);
        }
        if (!ref->is_done && running == NULL) {
            running = ref;
        }
    }
    return running == NULL ? TRP_OK : still_running(rt, running, timeout_ms, err);
}

trp_code trp_get_all(trp_runtime *rt, const trp_ref *refs, size_t count, uint64_t timeout_ms,
                     trp_bytes *ret_values, trp_error *err) {
    trpi_data_lock(rt);
    trp_code code = wait_for(rt, refs, count, count, true, timeout_ms, err);
    if (code == TRP_OK) {
        code = result_of_all(rt, refs, count, timeout_ms, err);
    }
    for (size_t i = 0; code == TRP_OK && ret_values != NULL && i < count; i++) {
        ret_values[i] = trpi_refs_find(&rt->data.refs, refs[i].id)->value;
    }
    trpi_data_leave(rt);
    return code;
}

trp_code trp_wait(trp_runtime *rt, const trp_ref *refs, size_t count, size_t want,
                  uint64_t timeout_ms, bool *ret_done, trp_error *err) {
    if (want > count) {
        return trpi_fail(err, TRP_EINVALID, "wait: %zu of %zu refs can never be done", want, count);
    }
    trpi_data_lock(rt);
    trp_code code = wait_for(rt, refs, count, want, false, timeout_ms, err);
    for (size_t i = 0; code == TRP_OK && ret_done != NULL && i < count; i++) {
        const trpi_ref *ref = trpi_refs_find(&rt->data.refs, refs[i].id);
        ret_done[i] = ref != NULL && ref->is_done;
    }
    trpi_data_leave(rt);
    return code;
}

trp_code trp_ask(trp_runtime *rt, trp_actor actor, const char *method, trp_bytes args,
                 uint64_t timeout_ms, trp_buf *reply, trp_error *err) {
    trp_ref ref;
    trp_bytes value;
    trp_code code = trp_call(rt, actor, method, args, 0, &ref, err);
    if (code != TRP_OK) {
        return code;
    }
    code = trp_get(rt, ref, timeout_ms, &value, err);
    if (code == TRP_OK && reply != NULL) {
        code = trp_buf_append(reply, value.data, value.size);
        if (code != TRP_OK) {
            trpi_fail(err, code, "call %s: no memory for a reply of %zu bytes", method, value.size);
        }
    }
    trp_ref_release(rt, ref);
    return code;
}

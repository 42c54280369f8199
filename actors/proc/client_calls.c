/* client_calls.c: calls and their refs. */
#include <stdlib.h>

#include "actors/proc/client_internal.h"
#include "core/net/clock.h"

/* Whoever only calls and never waits still has replies coming in: read them now and then, or they
 * pile up. */
#define CALLS_PER_READ 1024

#define ARGS_MAX (512u << 20)

/* ---- Calling ---- */

static trp_code check_call(trp_actor actor, const char *method, trp_bytes args, trp_error *err) {
    if (actor.id == 0) {
        return trpi_fail(err, TRP_EINVALID, "call: the actor is 0, which is none");
    }
    if (method == NULL || method[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "call: no method is named");
    }
    if (args.size > ARGS_MAX) {
        return trpi_fail(err, TRP_EINVALID,
                         "call %s: %zu bytes of arguments are more than the 512 MiB that one call "
                         "may carry; pass them in pieces",
                         method, args.size);
    }
    return TRP_OK;
}

trp_code trp_call(trp_runtime *rt, trp_actor actor, const char *method, trp_bytes args,
                  uint64_t deadline_ms, trp_ref *ret_ref, trp_error *err) {
    trp_code code = check_call(actor, method, args, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_data *data = &rt->data;
    uint64_t deadline_ns = deadline_ms ? trpi_deadline_ns(deadline_ms) : UINT64_MAX;
    trpi_data_enter(rt);
    trpi_ref *ref = trpi_refs_take(&data->refs);
    ref->actor = actor.id;
    code = trpi_caller_call(data->caller, actor.id, method, args, deadline_ns, ref, &ref->call,
                            &data->actions);
    trpi_data_perform(rt);
    if (code == TRP_OK) {
        *ret_ref = (trp_ref){trpi_ref_id(ref)};
    } else {
        trpi_refs_give_back(&data->refs, ref);
        trpi_fail(err, code,
                  "call %s: %u calls are under way; TROUPE_PENDING_CALLS_MAX is the limit", method,
                  trpi_caller_call_count(data->caller));
    }
    if (++data->sent >= CALLS_PER_READ) {
        trpi_data_read(rt);
    }
    trpi_data_leave(rt);
    return code;
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
        trpi_refs_give_back(&rt->data.refs, ref);
    }
    trpi_data_leave(rt);
}

/* ---- Waiting for results ---- */

static trp_code no_such_ref(trp_ref ref, trp_error *err) {
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
        code = no_such_ref(handle, err);
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

/* Waits until `want` of the refs are done, or one has failed if that is what the waiter asks for.
 * Locked. Refs that are already done need no watch. */
static trp_code wait_for(trp_runtime *rt, const trp_ref *handles, size_t count, size_t want,
                         bool fails_fast, uint64_t timeout_ms, trp_error *err) {
    trp_code code = TRP_OK;
    trpi_waiter waiter = {.fails_fast = fails_fast, .wake = PTHREAD_COND_INITIALIZER};
    trpi_ref_watcher *watches = malloc(TRPI_MAX(count, (size_t)1) * sizeof(*watches));
    size_t watched = 0, done = 0;
    if (watches == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "wait for %zu refs: out of memory", count);
    }
    for (size_t i = 0; i < count; i++) {
        trpi_ref *ref = trpi_refs_find(&rt->data.refs, handles[i].id);
        if (ref == NULL) {
            code = no_such_ref(handles[i], err);
            goto out;
        }
        if (!ref->is_done) {
            trpi_ref_watch(&watches[watched++], &waiter, ref);
        } else {
            done++;
            waiter.is_ready |= fails_fast && ref->code != TRP_OK;
        }
    }
    waiter.is_ready |= done >= want;
    waiter.missing = done >= want ? 0 : want - done;
    trpi_data_wait(rt, &waiter, timeout_ms);
out:
    for (size_t i = 0; i < watched; i++) {
        trpi_ref_unwatch(&watches[i]);
    }
    free(watches);
    return code;
}

/* The first failure; else the first that is not done; else TRP_OK. Locked. */
static trp_code result_of_all(trp_runtime *rt, const trp_ref *handles, size_t count,
                              uint64_t timeout_ms, trp_error *err) {
    const trpi_ref *running = NULL;
    for (size_t i = 0; i < count; i++) {
        const trpi_ref *ref = trpi_refs_find(&rt->data.refs, handles[i].id);
        if (ref == NULL) {
            return no_such_ref(handles[i], err);
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

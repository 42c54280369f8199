/* client_done.c: refs that tell when they are done.
 *
 * Whoever reads the reply, and be it a thread that waits for something else, puts the ref into the
 * queue. Callbacks are made by the control thread alone, so that user code runs where no lock is
 * held and in no thread of the user's. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/proc/client_internal.h"
#include "core/net/clock.h"

struct trpi_done_waiter {
    trpi_waiter waiter;
    trpi_done_waiter *next;
};

trp_code trpi_done_open(trp_runtime *rt, trp_error *err) {
    rt->data.done.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return rt->data.done.fd >= 0 ? TRP_OK
                                 : trpi_fail(err, TRP_EBUSY, "no descriptors left (ulimit -n)");
}

void trpi_done_close(trp_runtime *rt) {
    trpi_done *done = &rt->data.done;
    while (done->first_call != NULL) {
        trpi_callback *callback = done->first_call;
        done->first_call = callback->next;
        free(callback);
    }
    if (done->fd >= 0) {
        close(done->fd);
    }
}

/* ---- The queue ---- */

static void push(trpi_done *done, trpi_ref *ref) {
    ref->is_queued = true;
    ref->next_done = NULL;
    ref->prev_done = done->last;
    if (done->last != NULL) {
        done->last->next_done = ref;
    } else {
        done->first = ref;
        trpi_wake(done->fd);
    }
    done->last = ref;
    for (trpi_done_waiter *waiter = done->waiters; waiter != NULL; waiter = waiter->next) {
        trpi_waiter_note(&waiter->waiter, false);
    }
}

static void take_out(trpi_done *done, trpi_ref *ref) {
    ref->is_queued = false;
    if (ref->prev_done != NULL) {
        ref->prev_done->next_done = ref->next_done;
    } else {
        done->first = ref->next_done;
    }
    if (ref->next_done != NULL) {
        ref->next_done->prev_done = ref->prev_done;
    } else {
        done->last = ref->prev_done;
    }
    if (done->first == NULL) {
        trpi_wake_clear(done->fd);
    }
}

/* ---- From the ref's side ---- */

static void await(trp_runtime *rt, trpi_ref *ref) {
    if (!ref->is_awaited) {
        ref->is_awaited = true;
        rt->data.done.awaited++;
        trpi_tend_demand(rt);
    }
}

static void end_await(trpi_done *done, trpi_ref *ref) {
    done->awaited -= ref->is_awaited;
    ref->is_awaited = false;
}

/* Calls are made in the order in which they were asked for. */
static void queue_calls(trp_runtime *rt, trpi_ref *ref) {
    trpi_done *done = &rt->data.done;
    trpi_callback *oldest_first = NULL;
    while (ref->callbacks != NULL) {
        trpi_callback *callback = ref->callbacks;
        ref->callbacks = callback->next;
        callback->next = oldest_first;
        oldest_first = callback;
    }
    if (oldest_first == NULL) {
        return;
    }
    if (done->last_call != NULL) {
        done->last_call->next = oldest_first;
    } else {
        done->first_call = oldest_first;
        trpi_wake(rt->control.wake_fd);
    }
    for (done->last_call = oldest_first; done->last_call->next != NULL;) {
        done->last_call = done->last_call->next;
    }
}

void trpi_done_note(trp_runtime *rt, trpi_ref *ref) {
    if (!ref->is_awaited) {
        return;
    }
    end_await(&rt->data.done, ref);
    if (ref->is_notifying) {
        ref->is_notifying = false;
        push(&rt->data.done, ref);
    }
    queue_calls(rt, ref);
}

void trpi_done_forget(trp_runtime *rt, trpi_ref *ref) {
    end_await(&rt->data.done, ref);
    if (ref->is_queued) {
        take_out(&rt->data.done, ref);
    }
}

/* ---- Callbacks ---- */

static trpi_callback *take_calls(trpi_done *done) {
    trpi_callback *first = done->first_call;
    done->first_call = done->last_call = NULL;
    return first;
}

void trpi_done_call(trp_runtime *rt) {
    trpi_data_lock(rt);
    trpi_callback *callback = take_calls(&rt->data.done);
    trpi_data_leave(rt);
    while (callback != NULL) {
        trpi_callback *next = callback->next;
        trpi_data_lock(rt); /* the ref may have been given back meanwhile, by an earlier callback */
        bool is_wanted = trpi_refs_find(&rt->data.refs, callback->ref) != NULL;
        trpi_data_leave(rt);
        if (is_wanted) {
            callback->fn(rt, (trp_ref){callback->ref}, callback->arg);
        }
        free(callback);
        callback = next;
    }
}

/* ---- The contract ---- */

trp_code trp_on_done(trp_runtime *rt, trp_ref handle, trp_done_fn fn, void *arg, trp_error *err) {
    if (fn == NULL) {
        return trpi_fail(err, TRP_EINVALID, "on_done: the function is NULL");
    }
    trpi_data_lock(rt);
    trpi_ref *ref = trpi_refs_find(&rt->data.refs, handle.id);
    bool is_known = ref != NULL, is_done = is_known && ref->is_done;
    if (is_known && !is_done) {
        trpi_callback *callback = trpi_alloc(sizeof(*callback));
        *callback = (trpi_callback){fn, arg, handle.id, ref->callbacks};
        ref->callbacks = callback;
        await(rt, ref);
    }
    trpi_data_leave(rt);
    if (!is_known) {
        return trpi_ref_unknown(handle, err);
    }
    if (is_done) {
        fn(rt, handle, arg);
    }
    return TRP_OK;
}

trp_code trp_notify(trp_runtime *rt, trp_ref handle, trp_error *err) {
    trp_code code = TRP_OK;
    trpi_data_lock(rt);
    trpi_ref *ref = trpi_refs_find(&rt->data.refs, handle.id);
    if (ref == NULL) {
        code = trpi_ref_unknown(handle, err);
    } else if (!ref->is_done) {
        ref->is_notifying = true;
        await(rt, ref);
    } else if (!ref->is_queued) {
        push(&rt->data.done, ref);
    }
    trpi_data_leave(rt);
    return code;
}

/* Waits until the queue holds something; locked. False when the deadline has passed. */
static bool await_any(trp_runtime *rt, uint64_t deadline_ns) {
    trpi_done *done = &rt->data.done;
    trpi_done_waiter self = {
        .waiter = {.missing = 1, .wake = PTHREAD_COND_INITIALIZER},
        .next = done->waiters,
    };
    done->waiters = &self;
    trpi_data_wait_until(rt, &self.waiter, deadline_ns);
    trpi_done_waiter **link = &done->waiters;
    while (*link != &self) {
        link = &(*link)->next;
    }
    *link = self.next;
    return self.waiter.is_ready;
}

trp_code trp_next_done(trp_runtime *rt, uint64_t timeout_ms, trp_ref *ret_ref, trp_error *err) {
    trpi_done *done = &rt->data.done;
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    trpi_data_lock(rt);
    while (done->first == NULL && await_any(rt, deadline_ns)) { /* another thread may be faster */
    }
    trpi_ref *ref = done->first;
    if (ref != NULL) {
        take_out(done, ref);
        *ret_ref = (trp_ref){trpi_ref_id(ref)};
    }
    trpi_data_leave(rt);
    return ref != NULL ? TRP_OK
                       : trpi_fail(err, TRP_ETIMEOUT, "none of the refs was done within %llu ms",
                                   (unsigned long long)timeout_ms);
}

int trp_done_fd(trp_runtime *rt) {
    return rt->data.done.fd;
}

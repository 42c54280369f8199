/* client_requests.c: what other threads hand to the control thread, and how they get answers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/proc/client_internal.h"
#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/wire/codec.h"

void trpi_client_reply_release(trpi_client_reply *reply) {
    if (reply != NULL) {
        trpi_packet_release(&reply->packet);
        trpi_arena_release(&reply->arena);
        free(reply);
    }
}

void trpi_outgoing_free(trpi_outgoing *out) {
    while (out != NULL) {
        trpi_outgoing *next = out->next;
        trp_buf_release(&out->bytes);
        free(out);
        out = next;
    }
}

/* ---- The queue. Control lock held, but for the encoding. ---- */

static trp_code encode(const trpi_msg *msg, trpi_outgoing **ret_out, trp_error *err) {
    trpi_outgoing *out = trpi_alloc(sizeof(*out));
    trp_code code = trpi_encode(msg, &out->bytes, err);
    if (code != TRP_OK) {
        trpi_outgoing_free(out);
        return code;
    }
    *ret_out = out;
    return TRP_OK;
}

static trp_code check_link(const trp_runtime *rt, trp_error *err) {
    if (rt->control.link == TRPI_LINK_UP) {
        return TRP_OK;
    }
    if (rt->control.is_over) {
        return trpi_fail(err, rt->control.refusal.code, "%s", rt->control.refusal.message);
    }
    return trpi_fail(err, TRP_EDISCONNECTED,
                     "the head at %s does not answer; calls to running actors go on, and the "
                     "connection is tried again until it is back",
                     rt->address);
}

static void enqueue(trpi_control *control, trpi_outgoing *out) {
    if (control->last_out != NULL) {
        control->last_out->next = out;
    } else {
        control->first_out = out;
        trpi_wake(control->wake_fd); /* of a queue that was not empty it knows already */
    }
    control->last_out = out;
}

trpi_outgoing *trpi_requests_take_queue(trp_runtime *rt) {
    trpi_control *control = &rt->control;
    pthread_mutex_lock(&control->lock);
    trpi_outgoing *first = control->first_out;
    control->first_out = control->last_out = NULL;
    pthread_mutex_unlock(&control->lock);
    return first;
}

trp_code trpi_client_post(trp_runtime *rt, const trpi_msg *msg, trp_error *err) {
    trpi_outgoing *out;
    trp_code code = encode(msg, &out, err);
    if (code != TRP_OK) {
        return code;
    }
    pthread_mutex_lock(&rt->control.lock);
    code = check_link(rt, err);
    if (code == TRP_OK) {
        enqueue(&rt->control, out);
    }
    pthread_mutex_unlock(&rt->control.lock);
    if (code != TRP_OK) {
        trpi_outgoing_free(out);
    }
    return code;
}

/* ---- Requests ---- */

static void unlist(trpi_control *control, const trpi_pending *pending) {
    trpi_pending **link = &control->pending;
    while (*link != NULL && *link != pending) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = pending->next;
    }
}

static void finish(trpi_control *control, trpi_pending *pending) {
    unlist(control, pending);
    pending->is_over = true;
    pthread_cond_signal(&pending->wake);
}

void trpi_requests_answer(trp_runtime *rt, uint64_t request, trpi_client_reply *reply) {
    trpi_control *control = &rt->control;
    pthread_mutex_lock(&control->lock);
    trpi_pending *pending = control->pending;
    while (pending != NULL && pending->request != request) {
        pending = pending->next;
    }
    if (pending != NULL) {
        pending->reply = reply;
        finish(control, pending);
    }
    pthread_mutex_unlock(&control->lock);
    if (pending == NULL) {
        trpi_client_reply_release(reply);
    }
}

void trpi_requests_fail_all(trp_runtime *rt, const trp_error *error) {
    while (rt->control.pending != NULL) {
        trpi_pending *pending = rt->control.pending;
        pending->error = *error;
        finish(&rt->control, pending);
    }
}

/* Waits for the answer, or takes the request back when the deadline has passed. Control lock held.
 */
static trp_code await(trp_runtime *rt, trpi_pending *pending, uint64_t timeout_ms, trp_error *err) {
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    while (!pending->is_over) {
        if (!trpi_cond_wait(&pending->wake, &rt->control.lock, deadline_ns) && !pending->is_over) {
            unlist(&rt->control, pending);
            return trpi_fail(err, TRP_ETIMEOUT,
                             "the head at %s has not answered within %" PRIu64 " ms", rt->address,
                             timeout_ms);
        }
    }
    if (pending->reply == NULL) {
        return trpi_fail(err, pending->error.code, "%s", pending->error.message);
    }
    return TRP_OK;
}

trp_code trpi_client_request(trp_runtime *rt, trpi_msg *msg, uint64_t timeout_ms,
                             trpi_client_reply **ret_storage, const trpi_msg **ret_reply,
                             trp_error *err) {
    trpi_control *control = &rt->control;
    trpi_pending pending = {.wake = PTHREAD_COND_INITIALIZER};
    trpi_outgoing *out;
    if (trpi_is_control_thread(rt)) {
        return trpi_fail(err, TRP_EINVALID,
                         "%s would wait for the head within a callback of trp_on_done(), which "
                         "must not wait; do it in a thread of the program",
                         trpi_msg_name(msg->type));
    }
    pthread_mutex_lock(&control->lock);
    pending.request = ++control->requests;
    pthread_mutex_unlock(&control->lock);
    msg->done.request = pending.request; /* the first field of every request and answer */
    trp_code code = encode(msg, &out, err);
    if (code != TRP_OK) {
        return code;
    }
    pthread_mutex_lock(&control->lock);
    code = check_link(rt, err);
    if (code == TRP_OK) {
        pending.next = control->pending;
        control->pending = &pending;
        enqueue(control, out);
        code = await(rt, &pending, timeout_ms, err);
    } else {
        trpi_outgoing_free(out);
    }
    pthread_mutex_unlock(&control->lock);
    if (code == TRP_OK) {
        *ret_storage = pending.reply;
        *ret_reply = &pending.reply->msg;
    }
    return code;
}

trp_code trpi_client_ask_within(trp_runtime *rt, trpi_msg *msg, uint64_t timeout_ms,
                                trp_error *err) {
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trp_code code = trpi_client_request(rt, msg, timeout_ms, &storage, &reply, err);
    if (code != TRP_OK) {
        return code;
    }
    if (reply->type != TRPI_MSG_DONE) {
        code = trpi_fail(err, TRP_EPROTOCOL, "the head answered %s with %s",
                         trpi_msg_name(msg->type), trpi_msg_name(reply->type));
    } else if (reply->done.code != TRP_OK) {
        code = trpi_fail(err, (trp_code)reply->done.code, "%s", reply->done.message);
    }
    trpi_client_reply_release(storage);
    return code;
}

trp_code trpi_client_ask(trp_runtime *rt, trpi_msg *msg, trp_error *err) {
    return trpi_client_ask_within(rt, msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS), err);
}

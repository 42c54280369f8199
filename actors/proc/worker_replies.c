/* Answers to calls: at once by the main thread, or later and from any thread. */
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

#include "actors/proc/worker_parts.h"
#include "core/base/log.h"

#define BATCH_DELAY_NS 200000

struct trp_promise {
    trpi_work work; /* its call, as deferred */
    trpi_desk *desk;
    unsigned char peer[]; /* work.peer's bytes */
};

/* What it points to lies behind it. */
struct trpi_queued_answer {
    trpi_queued_answer *next;
    trp_promise *promise; /* that it answers, or NULL */
    trp_bytes peer;
    uint64_t call;
    trpi_answer answer;
};

/* ---- Sending ---- */

static void log_lost(uint64_t call, const trp_error *err) {
    /* A caller that is gone needs no answer; it is not even a warning. */
    trpi_log(TRPI_INFO, "reply_not_sent", "call=%llu error=\"%s\"", (unsigned long long)call,
             err->message);
}

void trpi_desk_send_batch(trpi_desk *desk) {
    trp_error err;
    unsigned count = desk->batch.count;
    if (count > 0 &&
        trpi_sock_send_batch(desk->sock, (trp_bytes){desk->batch_peer, desk->batch_peer_size},
                             &desk->batch, &err) != TRP_OK) {
        trpi_log(TRPI_INFO, "replies_not_sent", "count=%u error=\"%s\"", count, err.message);
    }
}

static bool batch_is_for(const trpi_desk *desk, trp_bytes peer) {
    return desk->batch_peer_size == peer.size &&
           memcmp(desk->batch_peer, peer.data, peer.size) == 0;
}

static void set_timer(trpi_desk *desk) {
    struct itimerspec delay = {.it_value = {.tv_nsec = BATCH_DELAY_NS}};
    (void)timerfd_settime(desk->timer_fd, 0, &delay, NULL); /* of valid arguments */
}

/* Lets the answer wait for others. False: it is to be sent now, and those that waited are out. */
static bool hold(trpi_desk *desk, trp_bytes peer, trp_bytes header, trp_bytes body) {
    trpi_batch *batch = &desk->batch;
    if (batch->count > 0 && (!batch_is_for(desk, peer) || !trpi_batch_takes(batch, header, body))) {
        trpi_desk_send_batch(desk);
    }
    bool is_first = batch->count == 0;
    if ((is_first && !desk->has_more) || peer.size > sizeof desk->batch_peer ||
        !trpi_batch_takes(batch, header, body) || trpi_batch_add(batch, header, body) != TRP_OK) {
        trpi_desk_send_batch(desk);
        return false;
    }
    if (is_first) {
        desk->batch_peer_size = peer.size;
        memcpy(desk->batch_peer, peer.data, peer.size);
        set_timer(desk);
    }
    if (!desk->has_more) {
        trpi_desk_send_batch(desk);
    }
    return true;
}

void trpi_desk_send(trpi_desk *desk, trp_bytes peer, uint64_t call, const trpi_answer *answer) {
    trp_error err;
    trpi_msg msg = {.type = TRPI_MSG_REPLY,
                    .reply = {.call = call,
                              .incarnation = desk->worker->start.incarnation,
                              .code = answer->code,
                              .message = answer->message,
                              .error_type = answer->type,
                              .error_where = answer->where}};
    trp_bytes body = answer->code == TRP_OK ? answer->body : (trp_bytes){0};
    trp_code sent = trpi_encode(&msg, &desk->frame, &err);
    if (sent == TRP_OK && !hold(desk, peer, trp_buf_bytes(&desk->frame), body)) {
        sent = trpi_sock_send(desk->sock, peer, trp_buf_bytes(&desk->frame), body, &err);
    }
    if (sent == TRP_EINVALID && answer->code == TRP_OK) {
        /* The value is too large to travel: its caller must not wait for it in vain. */
        trpi_desk_send(desk, peer, call, &(trpi_answer){.code = sent, .message = err.message});
    } else if (sent != TRP_OK) {
        log_lost(call, &err);
    }
}

/* ---- Answers that wait for the main thread ---- */

static size_t size_of(const char *text) {
    return text != NULL ? strlen(text) + 1 : 0;
}

static const char *put(unsigned char **at, const void *data, size_t size) {
    if (size == 0) {
        return NULL;
    }
    char *copy = memcpy(*at, data, size);
    *at += size;
    return copy;
}

/* NULL when memory is out, also for a large value. */
static trpi_queued_answer *copy_answer(trp_bytes peer, uint64_t call, const trpi_answer *answer) {
    trp_bytes body = answer->code == TRP_OK ? answer->body : (trp_bytes){0};
    size_t texts =
        size_of(answer->message) + size_of(answer->type) + size_of(answer->where) + peer.size;
    trpi_queued_answer *queued = malloc(sizeof *queued + texts + body.size);
    if (queued == NULL) {
        return NULL;
    }
    unsigned char *at = (unsigned char *)(queued + 1);
    *queued = (trpi_queued_answer){.call = call, .answer = {.code = answer->code}};
    queued->peer = (trp_bytes){put(&at, peer.data, peer.size), peer.size};
    queued->answer.message = put(&at, answer->message, size_of(answer->message));
    queued->answer.type = put(&at, answer->type, size_of(answer->type));
    queued->answer.where = put(&at, answer->where, size_of(answer->where));
    queued->answer.body = (trp_bytes){put(&at, body.data, body.size), body.size};
    return queued;
}

trpi_queued_answer *trpi_answer_copy(trp_bytes peer, uint64_t call, const trpi_answer *answer) {
    trpi_queued_answer *queued = copy_answer(peer, call, answer);
    trpi_answer no_memory = {.code = TRP_ENOMEM, .message = "no memory for the method's result"};
    if (queued == NULL) { /* its caller must not wait in vain */
        queued = copy_answer(peer, call, &no_memory);
    }
    if (queued == NULL) {
        trpi_log(TRPI_ERROR, "reply_lost", "call=%llu error=\"out of memory\"",
                 (unsigned long long)call);
    }
    return queued;
}

void trpi_desk_leave_answer(trpi_desk *desk, trpi_queued_answer *queued) {
    if (queued == NULL) {
        return;
    }
    if (desk->last != NULL) {
        desk->last->next = queued;
    } else {
        desk->first = queued;
        if (desk->state == TRPI_DESK_POLLED) {
            trpi_desk_ring(desk);
        }
    }
    desk->last = queued;
}

static void promise_end(trpi_desk *desk, trp_promise *promise) {
    trpi_works_end(&desk->works, &promise->work);
    free(promise);
}

void trpi_desk_send_answers(trpi_desk *desk) {
    pthread_mutex_lock(&desk->lock);
    trpi_queued_answer *list = desk->first;
    desk->first = desk->last = NULL;
    while (list != NULL) {
        trpi_queued_answer *next = list->next;
        bool is_wanted = list->promise == NULL || !list->promise->work.is_canceled;
        desk->has_more = next != NULL;
        if (is_wanted && desk->sock != NULL) {
            trpi_desk_send(desk, list->peer, list->call, &list->answer);
        }
        if (list->promise != NULL) {
            promise_end(desk, list->promise);
        }
        free(list);
        list = next;
    }
    desk->has_more = false;
    if (desk->sock != NULL) {
        trpi_desk_send_batch(desk);
    }
    pthread_mutex_unlock(&desk->lock);
}

trpi_sock *trpi_desk_close(trpi_desk *desk) {
    trpi_desk_send_answers(desk);
    pthread_mutex_lock(&desk->lock);
    trpi_sock *sock = desk->sock;
    desk->sock = NULL;
    pthread_mutex_unlock(&desk->lock);
    return sock;
}

/* ---- Promises ---- */

trp_code trp_defer(trp_context *ctx, trp_promise **ret_promise, trp_error *err) {
    trpi_desk *desk = &ctx->worker->desk;
    if (ctx->task == NULL || ctx->is_deferred) {
        return trpi_fail(err, TRP_EINVALID, "trp_defer: %s",
                         ctx->is_deferred ? "this call is deferred already"
                                          : "only a running method has a reply to defer");
    }
    trp_bytes peer = ctx->task->work.peer;
    trp_promise *promise = malloc(sizeof *promise + peer.size);
    if (promise == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "trp_defer");
    }
    *promise = (trp_promise){.desk = desk, .work = {.peer = {promise->peer, peer.size}}};
    memcpy(promise->peer, peer.data, peer.size);
    pthread_mutex_lock(&desk->lock);
    trpi_works_defer(&desk->works, &ctx->task->work, &promise->work);
    pthread_mutex_unlock(&desk->lock);
    ctx->is_deferred = true;
    *ret_promise = promise;
    return TRP_OK;
}

/* While the main thread uses the desk alone, the promise is in its hands until it sends. */
static void keep_promise(trpi_desk *desk, trp_promise *promise, const trpi_answer *answer) {
    trpi_queued_answer *queued = trpi_answer_copy(promise->work.peer, promise->work.call, answer);
    if (queued != NULL) {
        queued->promise = promise;
        trpi_desk_leave_answer(desk, queued);
    }
}

static void settle(trp_promise *promise, const trpi_answer *answer) {
    if (promise == NULL) {
        return;
    }
    trpi_desk *desk = promise->desk;
    pthread_mutex_lock(&desk->lock);
    if (desk->sock == NULL) {
        trpi_log(TRPI_INFO, "reply_not_sent", "call=%llu error=\"the actor has ended\"",
                 (unsigned long long)promise->work.call);
        promise_end(desk, promise);
    } else if (desk->state != TRPI_DESK_LENT) {
        keep_promise(desk, promise, answer);
    } else {
        if (!promise->work.is_canceled) {
            trpi_desk_send(desk, promise->work.peer, promise->work.call, answer);
        }
        promise_end(desk, promise);
    }
    pthread_mutex_unlock(&desk->lock);
}

void trp_promise_resolve(trp_promise *promise, trp_bytes value) {
    settle(promise, &(trpi_answer){.body = value});
}

void trp_promise_fail(trp_promise *promise, trp_code code, const char *message) {
    if (code <= TRP_OK || code >= TRP_CODE_COUNT) {
        code = TRP_EUSER;
    }
    settle(promise,
           &(trpi_answer){.code = code, .message = message ? message : trp_code_text(code)});
}

bool trp_promise_canceled(const trp_promise *promise) {
    return trpi_desk_is_canceled(promise->desk, NULL, &promise->work);
}

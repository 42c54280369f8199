/* Replies to calls: at once by the method thread, or later and from any thread through a promise.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "actors/proc/worker_parts.h"
#include "core/base/log.h"

#define BATCH_DELAY_NS 200000

struct trp_promise {
    trpi_replies *replies;
    uint64_t call;
    size_t peer_size;
    unsigned char peer[256];
};

/* ---- Sending ---- */

static void log_lost(uint64_t call, const trp_error *err) {
    /* A caller that is gone needs no answer; it is not even a warning. */
    trpi_log(TRPI_INFO, "reply_not_sent", "call=%llu error=\"%s\"", (unsigned long long)call,
             err->message);
}

void trpi_replies_send_batch(trpi_replies *replies) {
    trp_error err = {0};
    unsigned count = replies->batch.count;
    if (count > 0 && trpi_sock_send_batch(
                         replies->sock, (trp_bytes){replies->batch_peer, replies->batch_peer_size},
                         &replies->batch, &err) != TRP_OK) {
        trpi_log(TRPI_INFO, "replies_not_sent", "count=%u error=\"%s\"", count, err.message);
    }
}

static bool batch_is_for(const trpi_replies *replies, trp_bytes peer) {
    return replies->batch_peer_size == peer.size &&
           memcmp(replies->batch_peer, peer.data, peer.size) == 0;
}

static void set_timer(trpi_replies *replies) {
    struct itimerspec delay = {.it_value = {.tv_nsec = BATCH_DELAY_NS}};
    (void)timerfd_settime(replies->timer_fd, 0, &delay, NULL); /* of valid arguments */
}

/* Lets the reply wait for others. False: it is to be sent now, and those that waited are out. */
static bool hold(trpi_replies *replies, trp_bytes peer, trp_bytes header, trp_bytes body) {
    trpi_batch *batch = &replies->batch;
    bool may_wait = !replies->busy && trpi_sock_has_more(replies->sock);
    if (batch->count > 0 &&
        (!batch_is_for(replies, peer) || !trpi_batch_takes(batch, header, body))) {
        trpi_replies_send_batch(replies);
    }
    bool is_first = batch->count == 0;
    if ((is_first && !may_wait) || peer.size > sizeof replies->batch_peer ||
        !trpi_batch_takes(batch, header, body) || trpi_batch_add(batch, header, body) != TRP_OK) {
        trpi_replies_send_batch(replies);
        return false;
    }
    if (is_first) {
        replies->batch_peer_size = peer.size;
        memcpy(replies->batch_peer, peer.data, peer.size);
        set_timer(replies);
    }
    if (!may_wait) {
        trpi_replies_send_batch(replies);
    }
    return true;
}

void trpi_replies_send(trpi_replies *replies, trp_bytes peer, uint64_t call, trp_code code,
                       const char *message, trp_bytes body) {
    trp_error err = {0};
    trpi_msg msg = {
        .type = TRPI_MSG_REPLY,
        .reply = {
            .call = call, .incarnation = replies->incarnation, .code = code, .message = message}};
    body = code == TRP_OK ? body : (trp_bytes){0};
    trp_code sent = trpi_encode(&msg, &replies->frame, &err);
    if (sent == TRP_OK && !hold(replies, peer, trp_buf_bytes(&replies->frame), body)) {
        sent = trpi_sock_send(replies->sock, peer, trp_buf_bytes(&replies->frame), body, &err);
    }
    if (sent == TRP_EINVALID && code == TRP_OK) {
        /* The value is too large to travel: its caller must not wait for it in vain. */
        trpi_replies_send(replies, peer, call, sent, err.message, (trp_bytes){0});
    } else if (sent != TRP_OK) {
        log_lost(call, &err);
    }
}

static void send_queued(trpi_replies *replies, trpi_reply *reply) {
    trpi_replies_send(replies, (trp_bytes){reply->peer, reply->peer_size}, reply->call, reply->code,
                      reply->message, (trp_bytes){reply->body, reply->body_size});
}

static void reply_free(trpi_reply *reply) {
    free(reply->message);
    free(reply);
}

static trpi_reply *take_queue(trpi_replies *replies) {
    trpi_reply *first = replies->first;
    replies->first = replies->last = NULL;
    return first;
}

static void send_list(trpi_replies *replies, trpi_reply *list) {
    while (list) {
        trpi_reply *next = list->next;
        send_queued(replies, list);
        reply_free(list);
        list = next;
    }
}

/* ---- Change of hands ---- */

trp_code trpi_replies_init(trpi_replies *replies, trp_error *err) {
    pthread_mutex_init(&replies->lock, NULL);
    replies->ring_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    replies->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (replies->ring_fd < 0 || replies->timer_fd < 0) {
        return trpi_fail(err, TRP_EIO, "descriptors of replies: %s", strerror(errno));
    }
    return TRP_OK;
}

void trpi_replies_enter(trpi_replies *replies) {
    pthread_mutex_lock(&replies->lock);
    trpi_reply *list = take_queue(replies);
    send_list(replies, list); /* else it would wait for the end of the method */
    if (replies->is_overdue) {
        replies->is_overdue = false;
        trpi_replies_send_batch(replies);
    }
    replies->busy = true;
    pthread_mutex_unlock(&replies->lock);
}

void trpi_replies_leave(trpi_replies *replies) {
    pthread_mutex_lock(&replies->lock);
    replies->busy = false;
    pthread_mutex_unlock(&replies->lock);
}

void trpi_replies_tend(trpi_replies *replies) {
    uint64_t count;
    (void)!read(replies->timer_fd, &count, sizeof count);
    pthread_mutex_lock(&replies->lock);
    if (replies->busy) {
        trpi_replies_send_batch(replies);
    } else {
        replies->is_overdue = true; /* the method thread sends it before user code runs again */
    }
    pthread_mutex_unlock(&replies->lock);
}

void trpi_replies_flush(trpi_replies *replies) {
    uint64_t count;
    (void)!read(replies->ring_fd, &count, sizeof count);
    pthread_mutex_lock(&replies->lock);
    trpi_reply *list = take_queue(replies);
    pthread_mutex_unlock(&replies->lock);
    send_list(replies, list);
}

trpi_sock *trpi_replies_close(trpi_replies *replies) {
    pthread_mutex_lock(&replies->lock);
    trpi_sock *sock = replies->sock;
    trpi_reply *list = take_queue(replies);
    if (sock) {
        send_list(replies, list);
        trpi_replies_send_batch(replies);
    }
    replies->sock = NULL;
    pthread_mutex_unlock(&replies->lock);
    return sock;
}

/* ---- Promises ---- */

trp_code trp_defer(trp_context *ctx, trp_promise **ret_promise, trp_error *err) {
    if (!ctx->running || ctx->deferred) {
        return trpi_fail(err, TRP_EINVALID, "trp_defer: %s",
                         ctx->deferred ? "this call is deferred already"
                                       : "only a running method has a reply to defer");
    }
    trp_promise *promise = malloc(sizeof *promise);
    if (!promise) {
        return trpi_fail(err, TRP_ENOMEM, "trp_defer");
    }
    promise->replies = &ctx->replies;
    promise->call = ctx->call;
    promise->peer_size = TRPI_MIN(ctx->peer.size, sizeof promise->peer);
    memcpy(promise->peer, ctx->peer.data, promise->peer_size);
    ctx->deferred = true;
    *ret_promise = promise;
    return TRP_OK;
}

static void enqueue(trpi_replies *replies, const trp_promise *promise, trp_code code,
                    const char *message, trp_bytes body) {
    trpi_reply *reply = malloc(sizeof *reply + body.size);
    if (!reply) {
        trpi_log(TRPI_ERROR, "reply_lost", "call=%llu error=\"out of memory\"",
                 (unsigned long long)promise->call);
        return;
    }
    *reply = (trpi_reply){.call = promise->call,
                          .code = code,
                          .message = trpi_strdup(message),
                          .peer_size = promise->peer_size,
                          .body_size = body.size};
    memcpy(reply->peer, promise->peer, promise->peer_size);
    if (body.size > 0) {
        memcpy(reply->body, body.data, body.size);
    }
    if (replies->last) {
        replies->last->next = reply;
    } else {
        replies->first = reply;
    }
    replies->last = reply;
    uint64_t one = 1;
    (void)!write(replies->ring_fd, &one, sizeof one);
}

static void answer(trp_promise *promise, trp_code code, const char *message, trp_bytes body) {
    if (!promise) {
        return;
    }
    trpi_replies *replies = promise->replies;
    pthread_mutex_lock(&replies->lock);
    if (!replies->sock) {
        trpi_log(TRPI_INFO, "reply_not_sent", "call=%llu error=\"the actor has ended\"",
                 (unsigned long long)promise->call);
    } else if (replies->busy) {
        trpi_replies_send(replies, (trp_bytes){promise->peer, promise->peer_size}, promise->call,
                          code, message, body);
    } else {
        enqueue(replies, promise, code, message, body);
    }
    pthread_mutex_unlock(&replies->lock);
    free(promise);
}

void trp_promise_resolve(trp_promise *promise, trp_bytes value) {
    answer(promise, TRP_OK, "", value);
}

void trp_promise_fail(trp_promise *promise, trp_code code, const char *message) {
    if (code <= TRP_OK || code >= TRP_CODE_COUNT) {
        code = TRP_EUSER;
    }
    answer(promise, code, message ? message : trp_code_text(code), (trp_bytes){0});
}

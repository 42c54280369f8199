/* The data socket: how calls come in. What it holds is read into memory before it is their turn, so
 * that a cancel is seen before the call that it is about begins. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "actors/proc/worker_parts.h"
#include "core/base/log.h"
#include "core/net/clock.h"

#define SPARE_MAX 256
#define LOOK_NS 1000000 /* a method that asks whether it is canceled looks no more often */
#define LOOK_MOST 65536
#define TEND_NS (500 * 1000000u) /* a method that does not ask is looked for this often */

trp_code trpi_desk_init(trpi_desk *desk, trpi_worker *worker, trp_error *err) {
    desk->worker = worker;
    pthread_mutex_init(&desk->lock, NULL);
    desk->ring_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    desk->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (desk->ring_fd < 0 || desk->timer_fd < 0) {
        return trpi_fail(err, TRP_EIO, "descriptors of the desk: %s", strerror(errno));
    }
    return TRP_OK;
}

trp_code trpi_desk_bind(trpi_desk *desk, trp_error *err) {
    trpi_worker *worker = desk->worker;
    trpi_sock *sock = NULL;
    trp_code code = trpi_sock_open(worker->net, TRPI_ROUTER, (trp_bytes){0}, &sock, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(worker->endpoint, sizeof worker->endpoint, "ipc://%s/w%llu", worker->node_dir,
                (unsigned long long)worker->token);
    code = trpi_sock_bind(sock, worker->endpoint, NULL, 0, err);
    if (code == TRP_OK && worker->host[0]) {
        char any_port[128];
        trpi_format(any_port, sizeof any_port, "tcp://%s:*", worker->host);
        code = trpi_sock_bind(sock, any_port, worker->remote_endpoint,
                              sizeof worker->remote_endpoint, err);
    }
    if (code != TRP_OK) {
        trpi_sock_close(sock);
        return code;
    }
    desk->sock = sock;
    return TRP_OK;
}

/* ---- Change of hands ---- */

void trpi_desk_ring(trpi_desk *desk) {
    uint64_t one = 1;
    (void)!write(desk->ring_fd, &one, sizeof one);
}

void trpi_desk_wait(trpi_desk *desk, uint64_t deadline_ns) {
    trpi_poll_item items[] = {{.sock = desk->sock}, {.fd = desk->ring_fd}};
    trpi_desk_send_batch(desk);
    trpi_desk_send_answers(desk);
    pthread_mutex_lock(&desk->lock);
    bool may_wait = desk->first == NULL;
    if (may_wait) {
        desk->state = TRPI_DESK_POLLED;
    }
    pthread_mutex_unlock(&desk->lock);
    if (!may_wait) {
        return;
    }
    (void)!trpi_poll(items, 2, trpi_left_ms(deadline_ns));
    pthread_mutex_lock(&desk->lock);
    desk->state = TRPI_DESK_OWNED;
    pthread_mutex_unlock(&desk->lock);
    if (items[1].ready) {
        uint64_t count;
        (void)!read(desk->ring_fd, &count, sizeof count);
        trpi_desk_send_answers(desk);
    }
}

void trpi_desk_lend(trpi_desk *desk, trp_context *ctx, trpi_task *task) {
    for (;;) {
        pthread_mutex_lock(&desk->lock);
        if (desk->first == NULL && !desk->is_overdue) {
            break;
        }
        desk->is_overdue = false;
        pthread_mutex_unlock(&desk->lock);
        trpi_desk_send_answers(desk); /* else they would wait for the end of the method */
    }
    desk->has_more = false;
    ctx->task = task;
    desk->state = TRPI_DESK_LENT;
    pthread_mutex_unlock(&desk->lock);
}

void trpi_desk_own(trpi_desk *desk, trp_context *ctx) {
    pthread_mutex_lock(&desk->lock);
    ctx->task = NULL;
    desk->state = TRPI_DESK_OWNED;
    pthread_mutex_unlock(&desk->lock);
}

/* ---- Tasks ---- */

static trpi_task *take_task(trpi_desk *desk) {
    trpi_task *task = desk->spare;
    if (task == NULL) {
        return trpi_alloc(sizeof *task);
    }
    desk->spare = task->next_spare;
    desk->spare_count--;
    return task;
}

void trpi_desk_give_back(trpi_desk *desk, trpi_task *task) {
    trpi_packet_release(&task->packet);
    if (desk->spare_count == SPARE_MAX) {
        free(task);
        return;
    }
    task->next_spare = desk->spare;
    desk->spare = task;
    desk->spare_count++;
}

/* ---- What comes in ---- */

static void refuse_message(trpi_desk *desk, const char *event, const char *reason) {
    if (trpi_log_is_due(&desk->refused)) {
        trpi_log(TRPI_WARN, event, "from=caller reason=\"%s\" refused=%llu", reason,
                 (unsigned long long)desk->refused);
    }
}

static bool is_ours(const trpi_worker *worker, uint64_t actor, uint64_t incarnation) {
    return actor == worker->start.actor && incarnation == worker->start.incarnation;
}

static void refuse_call(trpi_desk *desk, const trpi_packet *packet, const trpi_msg_call *call,
                        trp_code code, const char *message) {
    trpi_desk_send(desk, packet->peer, call->call,
                   &(trpi_answer){.code = code, .message = message});
}

/* True: it waits in a line now, and the task is the line's. */
static bool take_call(trpi_desk *desk, trpi_task *task, const trpi_msg_call *call) {
    trpi_worker *worker = desk->worker;
    char message[512];
    if (!is_ours(worker, call->actor, call->incarnation)) {
        refuse_call(desk, &task->packet, call, TRP_EUNAVAILABLE, "stale incarnation");
        return false;
    }
    if (desk->is_closed) {
        refuse_call(desk, &task->packet, call, TRP_EACTOR_DIED,
                    "the actor is being stopped; the call has not run");
        return false;
    }
    task->method = trpi_type_method(worker->type, call->method);
    if (task->method == NULL) {
        trpi_type_no_method(worker->type, call->method, message, sizeof message);
        refuse_call(desk, &task->packet, call, TRP_ENOTFOUND, message);
        return false;
    }
    task->client = call->client;
    task->work.peer = task->packet.peer;
    task->work.call = call->call;
    task->work.group = trpi_type_group(worker->type, task->method);
    bool needs_thread = trpi_works_add(&desk->works, &task->work);
    if (desk->is_pooled) {
        trpi_worker_pool_wake(worker, task, needs_thread);
    }
    return true;
}

static void take_cancel(trpi_desk *desk, const trpi_packet *packet, const trpi_msg_cancel *cancel) {
    if (!is_ours(desk->worker, cancel->actor, cancel->incarnation)) {
        return;
    }
    /* Alone, others may ask whether their deferred call is canceled. */
    bool needs_lock = !desk->is_pooled && desk->state == TRPI_DESK_OWNED;
    if (needs_lock) {
        pthread_mutex_lock(&desk->lock);
    }
    trpi_task *task = (trpi_task *)trpi_works_cancel(&desk->works, packet->peer, cancel->call);
    if (needs_lock) {
        pthread_mutex_unlock(&desk->lock);
    }
    if (task != NULL) {
        trpi_desk_send(desk, packet->peer, cancel->call,
                       &(trpi_answer){.code = TRP_ECANCELED,
                                      .message = "canceled by its caller before it ran"});
        trpi_desk_give_back(desk, task);
    }
}

/* True: the task is kept. */
static bool take_packet(trpi_desk *desk, trpi_task *task) {
    trpi_msg msg;
    trp_error err;
    trpi_arena_reset(&desk->arena);
    if (trpi_decode(task->packet.header, &desk->arena, &msg, &err) != TRP_OK) {
        refuse_message(desk, "message_invalid", err.message);
        return false;
    }
    if (msg.type == TRPI_MSG_CALL) {
        return take_call(desk, task, &msg.call);
    }
    if (msg.type == TRPI_MSG_CANCEL) {
        take_cancel(desk, &task->packet, &msg.cancel);
    } else {
        refuse_message(desk, "message_unexpected", trpi_msg_name(msg.type));
    }
    return false;
}

void trpi_desk_look(trpi_desk *desk, size_t most) {
    trpi_task *task = take_task(desk);
    size_t taken = 0;
    while (taken < most && trpi_sock_recv(desk->sock, &task->packet) == TRP_OK) {
        taken++;
        if (take_packet(desk, task)) {
            task = take_task(desk);
        } else {
            trpi_packet_release(&task->packet);
        }
    }
    trpi_desk_give_back(desk, task);
    desk->looked_ns = trpi_now_ns();
    if (desk->looked_ns >= trpi_sock_wake_ns(desk->sock)) {
        trpi_sock_tend(desk->sock);
    }
}

void trpi_desk_tend(trpi_desk *desk) {
    uint64_t count;
    (void)!read(desk->timer_fd, &count, sizeof count);
    pthread_mutex_lock(&desk->lock);
    if (desk->state == TRPI_DESK_LENT && desk->sock != NULL) {
        trpi_desk_send_batch(desk);
        /* Who called confirms what came, and asks again for what is missing, also while a method
         * runs for long. */
        if (trpi_now_ns() - desk->looked_ns >= TEND_NS) {
            size_t waiting = desk->works.counts[TRPI_WORK_WAITING];
            trpi_desk_look(desk, waiting < LOOK_MOST ? LOOK_MOST : 0);
        }
    } else {
        desk->is_overdue = true; /* the main thread sends it before user code runs again */
    }
    pthread_mutex_unlock(&desk->lock);
}

bool trpi_desk_is_canceled(trpi_desk *desk, const trp_context *ctx, const trpi_work *work) {
    pthread_mutex_lock(&desk->lock);
    /* Alone, nobody else looks while the method runs. */
    if (!desk->is_pooled && desk->state == TRPI_DESK_LENT && desk->sock != NULL &&
        trpi_now_ns() - desk->looked_ns >= LOOK_NS) {
        trpi_desk_look(desk, LOOK_MOST);
    }
    if (ctx != NULL) {
        work = ctx->task != NULL ? &ctx->task->work : NULL;
    }
    bool is_canceled = work != NULL && work->is_canceled;
    pthread_mutex_unlock(&desk->lock);
    return is_canceled;
}

/* client_data.c: the data half of a client: who reads the socket when, and what the caller machine
 * wants done. */
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/client_store.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/limits.h"
#include "core/wire/codec.h"

trp_bytes trpi_client_id(const trp_runtime *rt) {
    return (trp_bytes){rt->id, sizeof(rt->id)};
}

trp_code trpi_data_open(trp_runtime *rt, trp_error *err) {
    trpi_data *data = &rt->data;
    pthread_mutex_init(&data->lock, NULL);
    pthread_cond_init(&data->idle, NULL);
    pthread_cond_init(&data->changed, NULL);
    data->caller =
        trpi_caller_new(rt->host_id, (uint32_t)trpi_config(TRPI_CONFIG_PENDING_CALLS_MAX));
    data->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    data->deaths_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (data->wake_fd < 0 || data->deaths_fd < 0) {
        return trpi_fail(err, TRP_EBUSY, "no descriptors left (ulimit -n)");
    }
    trp_code code = trpi_done_open(rt, err);
    if (code == TRP_OK) {
        code = trpi_tend_open(rt, err);
    }
    return code == TRP_OK
               ? trpi_sock_open(rt->net, TRPI_ROUTER, trpi_client_id(rt), &data->sock, err)
               : code;
}

static void close_fd(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

void trpi_data_close(trp_runtime *rt) {
    trpi_data *data = &rt->data;
    trpi_corks_close(rt);
    trpi_done_close(rt);
    trpi_refs_release(&data->refs);
    trpi_packet_release(&data->packet);
    trpi_sock_close(data->sock);
    trpi_caller_actions_release(&data->actions);
    trpi_caller_free(data->caller);
    trpi_arena_release(&data->arena);
    trp_buf_release(&data->encoded);
    trpi_deaths_drop(rt);
    trpi_groups_drop(rt);
    close_fd(data->wake_fd);
    close_fd(data->deaths_fd);
    close_fd(data->timer_fd);
    pthread_cond_destroy(&data->changed);
    pthread_cond_destroy(&data->idle);
    pthread_mutex_destroy(&data->lock);
}

/* ---- Who holds what ---- */

void trpi_data_lock(trp_runtime *rt) {
    pthread_mutex_lock(&rt->data.lock);
}

void trpi_data_enter(trp_runtime *rt) {
    trpi_data *data = &rt->data;
    pthread_mutex_lock(&data->lock);
    if (!data->is_led) {
        return;
    }
    data->claims++;
    trpi_wake(data->wake_fd);
    while (data->is_led) {
        pthread_cond_wait(&data->idle, &data->lock);
    }
    if (--data->claims == 0) {
        pthread_cond_broadcast(&data->idle);
    }
}

void trpi_data_leave(trp_runtime *rt) {
    if (!rt->data.is_led) {
        trpi_tend_settle(rt);
    }
    pthread_mutex_unlock(&rt->data.lock);
}

/* ---- The machine's actions ---- */

trp_bytes trpi_peer_of(uint64_t connection, unsigned char id[TRPI_PEER_SIZE]) {
    id[0] = 'c';
    memcpy(id + 1, &connection, sizeof(connection));
    return (trp_bytes){id, TRPI_PEER_SIZE};
}

static bool peer_is_actor(trp_bytes peer, uint64_t *ret_connection) {
    const unsigned char *id = peer.data;
    if (peer.size != TRPI_PEER_SIZE || id[0] != 'c') {
        return false;
    }
    memcpy(ret_connection, id + 1, sizeof(*ret_connection));
    return true;
}

static void disconnect_actor(trp_runtime *rt, const trpi_caller_action *action) {
    unsigned char id[TRPI_PEER_SIZE];
    trpi_cork_drop(rt, action->connection);
    trpi_sock_forget(rt->data.sock, trpi_peer_of(action->connection, id));
    trpi_sock_disconnect(rt->data.sock, action->endpoint);
}

static void connect_actor(trp_runtime *rt, trpi_caller_action action) {
    unsigned char id[TRPI_PEER_SIZE];
    trp_error error = {0};
    trp_code code = trpi_descriptors_room(1, &error);
    if (code == TRP_OK) {
        code = trpi_sock_connect(rt->data.sock, action.endpoint,
                                 trpi_peer_of(action.connection, id), &error);
    }
    trpi_caller_connected(rt->data.caller, action.actor, action.connection, code, error.message,
                          &rt->data.actions);
}

static void fail(trp_runtime *rt, trpi_ref *ref, const trpi_ref_failure *failure) {
    trpi_ref_fail(ref, failure);
    trpi_done_note(rt, ref);
}

void trpi_data_abandon(trp_runtime *rt, uint64_t call, const trp_error *error) {
    trpi_caller_actions *actions = &rt->data.actions;
    bool is_performing = actions->count > 0; /* then what is appended is carried out in its turn */
    trpi_ref *ref = trpi_caller_abandon(rt->data.caller, call, actions);
    if (ref != NULL) {
        fail(rt, ref,
             &(trpi_ref_failure){
                 .code = error->code, .actor = ref->actor, .message = error->message});
    }
    if (!is_performing) {
        trpi_data_perform(rt);
    }
}

/* By value: when a call is abandoned, the list may move. */
static void send_call(trp_runtime *rt, trpi_caller_action action) {
    unsigned char id[TRPI_PEER_SIZE];
    trp_error error;
    trpi_msg msg = {.type = TRPI_MSG_CALL,
                    .call = {.call = action.call,
                             .seq = action.seq,
                             .actor = action.actor,
                             .incarnation = action.incarnation,
                             .tries = action.tries,
                             .method = action.method,
                             .client = rt->data.client}};
    trp_code code = trpi_encode(&msg, &rt->data.encoded, &error);
    rt->data.is_touched = true;
    if (code == TRP_OK && !trpi_cork_take(rt, &action, trp_buf_bytes(&rt->data.encoded))) {
        code = trpi_sock_send(rt->data.sock, trpi_peer_of(action.connection, id),
                              trp_buf_bytes(&rt->data.encoded), action.args, &error);
    }
    if (code != TRP_OK) {
        trpi_data_abandon(rt, action.call, &error);
    }
}

/* Behind the call itself, which may still be held back. */
static void send_cancel(trp_runtime *rt, trpi_caller_action action) {
    unsigned char id[TRPI_PEER_SIZE];
    trp_error error;
    trpi_msg msg = {
        .type = TRPI_MSG_CANCEL,
        .cancel = {.call = action.call, .actor = action.actor, .incarnation = action.incarnation}};
    trpi_corks_flush(rt);
    rt->data.is_touched = true;
    trp_code code = trpi_encode(&msg, &rt->data.encoded, &error);
    if (code == TRP_OK) {
        code = trpi_sock_send(rt->data.sock, trpi_peer_of(action.connection, id),
                              trp_buf_bytes(&rt->data.encoded), (trp_bytes){NULL, 0}, &error);
    }
    if (code != TRP_OK) { /* the method runs to its end; its caller has been answered */
        trpi_log(TRPI_INFO, "cancel_not_sent", "actor=a%llu error=\"%s\"",
                 (unsigned long long)action.actor, error.message);
    }
}

static void subscribe(trp_runtime *rt, uint64_t actor) {
    trpi_msg msg = {.type = TRPI_MSG_SUBSCRIBE, .subscribe = {.actor = actor}};
    /* While the head is away this is lost; when it is back, all views are asked for again. */
    if (trpi_client_post(rt, &msg, NULL) != TRP_OK) {
        trpi_log(TRPI_DEBUG, "subscribe_later", "actor=a%llu", (unsigned long long)actor);
    }
}

static void complete(trp_runtime *rt, const trpi_caller_action *action) {
    trpi_ref *ref = action->tag;
    if (action->code == TRP_OK) {
        trpi_ref_succeed(ref, &rt->data.packet);
        trpi_done_note(rt, ref);
    } else {
        fail(rt, ref,
             &(trpi_ref_failure){.code = action->code,
                                 .node = action->node,
                                 .actor = action->actor,
                                 .message = action->message,
                                 .type = action->type,
                                 .where = action->where});
    }
}

static void carry_out(trp_runtime *rt, const trpi_caller_action *action) {
    switch (action->kind) {
    case TRPI_CALLER_SUBSCRIBE:
        subscribe(rt, action->actor);
        break;
    case TRPI_CALLER_CONNECT:
        connect_actor(rt, *action); /* what it comes to is appended, and may move the list */
        break;
    case TRPI_CALLER_DISCONNECT:
        disconnect_actor(rt, action);
        break;
    case TRPI_CALLER_SEND:
        send_call(rt, *action);
        break;
    case TRPI_CALLER_CANCEL:
        send_cancel(rt, *action);
        break;
    case TRPI_CALLER_COMPLETE:
        complete(rt, action);
        break;
    case TRPI_CALLER_LET_GO:
        trpi_held_free(rt, action->tag);
        break;
    case TRPI_CALLER_DEATH:
        trpi_deaths_push(rt, action->actor);
        break;
    case TRPI_CALLER_WARN:
        trpi_log(TRPI_WARN, "caller", "actor=a%llu reason=\"%s\"",
                 (unsigned long long)action->actor, action->message);
        break;
    }
}

void trpi_data_perform(trp_runtime *rt) {
    trpi_caller_actions *actions = &rt->data.actions;
    for (size_t i = 0; i < actions->count; i++) {
        carry_out(rt, &actions->items[i]);
    }
    trpi_caller_actions_clear(actions);
}

/* ---- What comes in ---- */

static void handle_packet(trp_runtime *rt) {
    trpi_data *data = &rt->data;
    uint64_t connection;
    trpi_msg msg;
    trp_error error;
    if (!peer_is_actor(data->packet.peer, &connection)) {
        trpi_log(TRPI_WARN, "reply_dropped", "reason=stranger");
        return;
    }
    trpi_arena_reset(&data->arena);
    if (trpi_decode(data->packet.header, &data->arena, &msg, &error) != TRP_OK) {
        trpi_log(TRPI_WARN, "reply_dropped", "reason=\"%s\"", error.message);
        return;
    }
    if (msg.type == TRPI_MSG_REPLY) {
        uint64_t now_ns = msg.reply.code == TRP_OK ? 0 : trpi_now_ns();
        trpi_caller_reply(data->caller, connection, &msg.reply, now_ns, &data->actions);
        trpi_data_perform(rt);
    }
}

static void take_broken(trp_runtime *rt) {
    trpi_data *data = &rt->data;
    trp_bytes peer;
    while (trpi_sock_take_void(data->sock, &peer)) {
        uint64_t connection;
        if (peer_is_actor(peer, &connection)) {
            trpi_caller_broken(data->caller, connection, &data->actions);
            trpi_data_perform(rt);
        }
    }
}

#define PACKETS_PER_FLUSH 64 /* the calls held back must not wait until a long queue is read */

/* Asking a ZeroMQ socket that has nothing costs a system call, so whoever has what it waits for
 * stops here; the rest is for the next to come. */
static void read_for(trp_runtime *rt, const trpi_waiter *waiter) {
    trpi_data *data = &rt->data;
    unsigned packets = 0;
    data->sent = 0;
    data->is_touched = true;
    while (!(waiter != NULL && waiter->is_ready)) {
        if (trpi_sock_recv(data->sock, &data->packet) != TRP_OK) {
            data->is_touched = false;
            break;
        }
        handle_packet(rt);
        trpi_packet_release(&data->packet);
        if (++packets % PACKETS_PER_FLUSH == 0) {
            trpi_corks_flush(rt);
        }
    }
    take_broken(rt);
    if (!data->is_touched) { /* in the middle of a stream nothing is amiss */
        trpi_sock_tend(data->sock);
    }
    /* Overdue calls only now: an answer that is there in time counts. */
    if (trpi_caller_next_tick(data->caller) != UINT64_MAX) {
        trpi_caller_tick(data->caller, trpi_now_ns(), &data->actions);
        trpi_data_perform(rt);
    }
}

void trpi_data_read(trp_runtime *rt) {
    read_for(rt, NULL);
}

/* ---- Waiting ---- */

void trpi_waiter_note(trpi_waiter *waiter, bool failed) {
    waiter->missing -= waiter->missing > 0;
    if (!waiter->is_ready && (waiter->missing == 0 || (failed && waiter->fails_fast))) {
        waiter->is_ready = true;
        pthread_cond_signal(&waiter->wake);
    }
}

static void list_waiter(trpi_data *data, trpi_waiter *waiter) {
    waiter->prev = NULL;
    waiter->next = data->waiters;
    if (data->waiters != NULL) {
        data->waiters->prev = waiter;
    }
    data->waiters = waiter;
}

static void unlist_waiter(trpi_data *data, trpi_waiter *waiter) {
    if (waiter->prev != NULL) {
        waiter->prev->next = waiter->next;
    } else {
        data->waiters = waiter->next;
    }
    if (waiter->next != NULL) {
        waiter->next->prev = waiter->prev;
    }
}

/* Polls the socket without the lock, until something comes in, somebody claims it, or time is up.
 */
static void lead(trpi_data *data, uint64_t deadline_ns) {
    uint64_t next_ns = trpi_caller_next_tick(data->caller);
    trpi_poll_item items[] = {{.sock = data->sock}, {.fd = data->wake_fd}};
    data->is_led = true;
    pthread_mutex_unlock(&data->lock);
    trp_code code = trpi_poll(items, 2, trpi_left_ms(TRPI_MIN(deadline_ns, next_ns)));
    if (code == TRP_OK && items[1].ready) {
        trpi_wake_clear(data->wake_fd);
    }
    pthread_mutex_lock(&data->lock);
    data->is_led = false;
    if (data->claims > 0) {
        pthread_cond_broadcast(&data->idle);
    }
}

static void wait_until(trp_runtime *rt, trpi_waiter *waiter, uint64_t deadline_ns) {
    trpi_data *data = &rt->data;
    while (!waiter->is_ready && trpi_now_ns() < deadline_ns) {
        if (data->is_led) {
            (void)trpi_cond_wait(&waiter->wake, &data->lock, deadline_ns);
        } else if (data->claims > 0) {
            (void)trpi_cond_wait(&data->idle, &data->lock, deadline_ns);
        } else {
            trpi_corks_flush(rt);
            if (!waiter->is_ready) { /* by a call that could not be sent */
                lead(data, deadline_ns);
            }
        }
        if (!data->is_led) {
            read_for(rt, waiter);
        }
    }
}

static void wait_more(trp_runtime *rt, trpi_waiter *waiter, uint64_t deadline_ns) {
    trpi_data *data = &rt->data;
    if (!waiter->is_ready) {
        list_waiter(data, waiter);
        wait_until(rt, waiter, trpi_is_control_thread(rt) ? 0 : deadline_ns);
        unlist_waiter(data, waiter);
    }
    /* Somebody must lead for those who follow. */
    if (!data->is_led && data->waiters != NULL) {
        pthread_cond_signal(&data->waiters->wake);
    }
}

/* What has come already often is what is waited for, and then the time need not be known. */
void trpi_data_wait(trp_runtime *rt, trpi_waiter *waiter, uint64_t timeout_ms) {
    if (!rt->data.is_led) {
        read_for(rt, waiter);
    }
    wait_more(rt, waiter, waiter->is_ready ? 0 : trpi_deadline_ns(timeout_ms));
}

void trpi_data_wait_until(trp_runtime *rt, trpi_waiter *waiter, uint64_t deadline_ns) {
    if (!rt->data.is_led) {
        read_for(rt, waiter);
    }
    wait_more(rt, waiter, deadline_ns);
}

bool trpi_data_wait_changed(trp_runtime *rt, uint64_t deadline_ns) {
    return !trpi_is_control_thread(rt) &&
           trpi_cond_wait(&rt->data.changed, &rt->data.lock, deadline_ns);
}

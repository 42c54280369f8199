/* client_control.c: the control thread: the link to the head and what comes in on it. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/client_store.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/base/times.h"
#include "core/net/clock.h"
#include "core/wire/codec.h"

/* A greeting that got no answer is said again on a fresh connection after this long. */
#define REOPEN_MS 2000

static void set_link(trp_runtime *rt, trpi_link link) {
    pthread_mutex_lock(&rt->control.lock);
    rt->control.link = link;
    pthread_cond_broadcast(&rt->control.changed);
    pthread_mutex_unlock(&rt->control.lock);
}

/* ---- Talking to the head ---- */

static void send_now(trp_runtime *rt, const trpi_msg *msg) {
    trpi_sock *sock = rt->control.sock;
    trp_buf bytes = {0};
    trp_error error;
    trp_bytes nobody = {NULL, 0};
    trp_code code = trpi_encode(msg, &bytes, &error);
    if (code == TRP_OK && msg->type == TRPI_MSG_HEARTBEAT) { /* late is worse than lost */
        code = trpi_sock_send_bare(sock, nobody, trp_buf_bytes(&bytes), &error);
    } else if (code == TRP_OK) {
        code = trpi_sock_send(sock, nobody, trp_buf_bytes(&bytes), nobody, &error);
    }
    if (code != TRP_OK) {
        trpi_log(TRPI_WARN, "send_failed", "to=head what=%s reason=\"%s\"",
                 trpi_msg_name(msg->type), error.message);
    }
    trp_buf_release(&bytes);
}

static void say_hello(trp_runtime *rt) {
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_HELLO,
                    .client_hello = {.version = TROUPE_VERSION,
                                     .kind = rt->kind,
                                     .host_id = rt->host_id,
                                     .pid = getpid(),
                                     .actor = rt->actor,
                                     .incarnation = rt->incarnation,
                                     .job = rt->job,
                                     .namespace_name = rt->namespace_name,
                                     .exe = rt->exe,
                                     .exe_hash = rt->uploads[0].file.hash,
                                     .package = rt->package,
                                     .submission = rt->submission,
                                     .cwd = rt->cwd,
                                     .wants_logs = rt->wants_logs,
                                     .env = rt->env,
                                     .env_count = rt->env_count}};
    send_now(rt, &msg);
}

/* A connection of its own for each attempt: what the last one still had queued was given up, and
 * its requesters have been told so; it must not be carried out after all. */
static trp_code open_link(trp_runtime *rt, trp_error *err) {
    trpi_control *control = &rt->control;
    char endpoint[160];
    trpi_format(endpoint, sizeof(endpoint), "tcp://%s", rt->address);
    trpi_sock_close(control->sock);
    control->sock = NULL;
    trp_code code = trpi_sock_open(rt->net, TRPI_DEALER, trpi_client_id(rt), &control->sock, err);
    if (code == TRP_OK) {
        code = trpi_sock_connect(control->sock, endpoint, (trp_bytes){NULL, 0}, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    control->is_welcome = false;
    control->opened_ns = trpi_now_ns();
    say_hello(rt);
    return TRP_OK;
}

/* What it was asked is not answered any more. */
static void give_up_requests(trp_runtime *rt, const char *what_it_does) {
    trpi_control *control = &rt->control;
    trp_error error;
    trpi_fail(&error, TRP_EDISCONNECTED, "the head at %s %s", rt->address, what_it_does);
    trpi_log(TRPI_WARN, "head_lost", "address=%s reason=\"%s\"", rt->address, error.message);
    pthread_mutex_lock(&control->lock);
    trpi_requests_fail_all(rt, &error);
    pthread_mutex_unlock(&control->lock);
    trpi_outgoing_free(trpi_requests_take_queue(rt));
    trpi_uploads_stop(rt);
}

static void lose_link(trp_runtime *rt, const char *what_it_does) {
    set_link(rt, TRPI_LINK_LOST);
    give_up_requests(rt, what_it_does);
}

static void send_queue(trp_runtime *rt) {
    trpi_outgoing *first = trpi_requests_take_queue(rt);
    for (const trpi_outgoing *out = first; out != NULL; out = out->next) {
        trp_error error;
        if (trpi_sock_send(rt->control.sock, (trp_bytes){NULL, 0}, trp_buf_bytes(&out->bytes),
                           (trp_bytes){NULL, 0}, &error) != TRP_OK) {
            trpi_log(TRPI_WARN, "send_failed", "to=head reason=\"%s\"", error.message);
        }
    }
    trpi_outgoing_free(first);
}

/* ---- What the head says ---- */

/* Ids begin anew in another cluster: the handles of this process would name somebody else's actors
 * there. */
static void leave_foreign(trp_runtime *rt, const char *cluster) {
    trpi_control *control = &rt->control;
    trpi_msg bye = {.type = TRPI_MSG_CLIENT_BYE};
    send_now(rt, &bye);
    pthread_mutex_lock(&control->lock);
    control->is_over = true;
    trpi_fail(&control->refusal, TRP_EDISCONNECTED,
              "cluster %.8s, which this process belongs to, is gone: the head at %s serves cluster "
              "%.8s now; start the program anew",
              rt->cluster, rt->address, cluster);
    trpi_requests_fail_all(rt, &control->refusal);
    pthread_mutex_unlock(&control->lock);
    trpi_outgoing_free(trpi_requests_take_queue(rt));
    trpi_log(TRPI_ERROR, "cluster_gone", "error=\"%s\"", control->refusal.message);
    set_link(rt, TRPI_LINK_LOST);
    trpi_data_enter(rt);
    trpi_caller_orphan(rt->data.caller, control->refusal.message, &rt->data.actions);
    trpi_data_perform(rt);
    trpi_groups_orphan(rt, control->refusal.message);
    pthread_cond_broadcast(&rt->data.changed);
    trpi_data_leave(rt);
}

static void take_welcome(trp_runtime *rt, const trpi_msg_client_welcome *welcome) {
    trpi_control *control = &rt->control;
    bool is_first = control->link == TRPI_LINK_NEW;
    if (!is_first && strcmp(welcome->cluster, rt->cluster) != 0) {
        leave_foreign(rt, welcome->cluster);
        return;
    }
    pthread_mutex_lock(&control->lock);
    control->client = welcome->client;
    if (is_first) { /* these live as long as the runtime: they are handed out */
        TRPI_SET(rt->namespace_name, welcome->namespace_name);
        TRPI_SET(rt->cluster, welcome->cluster);
    }
    pthread_mutex_unlock(&control->lock);
    trpi_data_lock(rt);
    rt->data.client = welcome->client;
    trpi_data_leave(rt);
    control->is_welcome = true;
    control->heartbeat_ms = TRPI_MAX(welcome->heartbeat_ms, (uint64_t)10);
    control->next_heartbeat_ns = trpi_now_ns() + control->heartbeat_ms * TRPI_NS_PER_MS;
    set_link(rt, TRPI_LINK_UP);
    if (!is_first) {
        trpi_data_enter(rt);
        trpi_caller_resubscribe(rt->data.caller, &rt->data.actions);
        trpi_data_perform(rt);
        trpi_data_leave(rt);
        trpi_groups_watch_all(rt);
    }
}

/* What an incarnation had answered before it died counts, so replies are read before its death is.
 */
static void take_actor_state(trp_runtime *rt, const trpi_msg_actor_state *state) {
    trpi_data_enter(rt);
    trpi_data_read(rt);
    trpi_caller_state(rt->data.caller, state, &rt->data.actions);
    trpi_data_perform(rt);
    pthread_cond_broadcast(&rt->data.changed);
    trpi_data_leave(rt);
}

static void take_refusal(trp_runtime *rt, trp_code code, const char *message) {
    char what[300];
    if (rt->control.is_welcome) { /* one thing that it would not do, and no requester to tell */
        trpi_log(TRPI_WARN, "refused", "from=head error=\"%s\"", message);
        return;
    }
    if (rt->control.link == TRPI_LINK_UP) {
        trpi_format(what, sizeof(what), "does not take this process back: %s", message);
        lose_link(rt, what);
    }
    pthread_mutex_lock(&rt->control.lock);
    trpi_fail(&rt->control.refusal, code, "the head at %s: %s", rt->address, message);
    pthread_cond_broadcast(&rt->control.changed);
    pthread_mutex_unlock(&rt->control.lock);
}

/* A packet that is no answer to a request. */
static void take_word(trp_runtime *rt, const trpi_msg *msg) {
    switch (msg->type) {
    case TRPI_MSG_CLIENT_WELCOME:
        take_welcome(rt, &msg->client_welcome);
        break;
    case TRPI_MSG_HEARTBEAT_ACK:
        if (!msg->heartbeat_ack.known && rt->control.is_welcome) {
            rt->control.is_welcome = false; /* it was restarted, or took us for dead */
            say_hello(rt);
        }
        break;
    case TRPI_MSG_ACTOR_STATE:
        take_actor_state(rt, &msg->actor_state);
        break;
    case TRPI_MSG_GROUP_STATE:
        trpi_groups_word(rt, &msg->group_state);
        break;
    case TRPI_MSG_LOG_LINES:
        trpi_logs_print(rt, &msg->log_lines);
        break;
    case TRPI_MSG_BLOB_WANTED:
        trpi_uploads_wanted(rt, msg->blob_wanted.hash);
        break;
    case TRPI_MSG_DONE: /* with request 0: it will not have us */
        take_refusal(rt, (trp_code)msg->done.code, msg->done.message);
        break;
    default:
        trpi_log(TRPI_WARN, "message_dropped", "from=head what=%s", trpi_msg_name(msg->type));
        break;
    }
}

/* The number of the request that a message answers; 0: it is none. */
static uint64_t answered_request(const trpi_msg *msg) {
    switch (msg->type) {
    case TRPI_MSG_DONE:
    case TRPI_MSG_SPAWNED:
    case TRPI_MSG_GROUP_STATE:
    case TRPI_MSG_KV_VALUE:
    case TRPI_MSG_LISTED:
    case TRPI_MSG_LOGS_DATA:
    case TRPI_MSG_GANGED:
    case TRPI_MSG_STORE_AT:
    case TRPI_MSG_JOBBED:
    case TRPI_MSG_BLOB_DATA:
        return msg->done.request;
    default:
        return 0;
    }
}

/* Takes the reply. */
static void handle(trp_runtime *rt, trpi_client_reply *reply) {
    trp_error error = {0};
    if (rt->control.is_over) {
        trpi_client_reply_release(reply);
        return;
    }
    if (trpi_decode(reply->packet.header, &reply->arena, &reply->msg, &error) != TRP_OK) {
        trpi_log(TRPI_WARN, "message_dropped", "from=head reason=\"%s\"", error.message);
        if (rt->control.link == TRPI_LINK_NEW) {
            take_refusal(rt, TRP_EPROTOCOL, error.message);
        }
        trpi_client_reply_release(reply);
        return;
    }
    uint64_t request = answered_request(&reply->msg);
    if (request == 0) {
        take_word(rt, &reply->msg);
        trpi_client_reply_release(reply);
        return;
    }
    if (reply->msg.type == TRPI_MSG_DONE &&
        trpi_uploads_answer(rt, request, (trp_code)reply->msg.done.code, reply->msg.done.message)) {
        trpi_client_reply_release(reply);
        return;
    }
    /* First the table, then the requester: it looks there. */
    if (reply->msg.type == TRPI_MSG_GROUP_STATE && reply->msg.group_state.code == TRP_OK) {
        trpi_groups_word(rt, &reply->msg.group_state);
    }
    trpi_requests_answer(rt, request, reply);
}

/* The head does not know our connection: it is another process now, or took us for dead. What we
 * said last is lost, a greeting perhaps, too. */
static void greet_again(trp_runtime *rt) {
    if (!rt->control.is_over) {
        give_up_requests(rt, "was restarted, or took this process for dead");
        rt->control.is_welcome = false;
        say_hello(rt);
    }
}

static void read_all(trp_runtime *rt) {
    for (;;) {
        trpi_client_reply *reply = trpi_alloc(sizeof(*reply));
        if (trpi_sock_recv(rt->control.sock, &reply->packet) != TRP_OK) {
            free(reply);
            break;
        }
        rt->control.last_heard_ns = trpi_now_ns();
        handle(rt, reply);
    }
    trp_bytes head;
    if (trpi_sock_take_void(rt->control.sock, &head)) {
        greet_again(rt);
    }
}

/* ---- The loop ---- */

static void send_heartbeat(trp_runtime *rt, uint64_t now_ns) {
    trpi_control *control = &rt->control;
    trpi_msg msg = {.type = TRPI_MSG_HEARTBEAT,
                    .heartbeat = {.client = control->client, .seq = ++control->heartbeats}};
    send_now(rt, &msg);
    control->next_heartbeat_ns = now_ns + control->heartbeat_ms * TRPI_NS_PER_MS;
}

/* Replies to calls that nobody waits for must not pile up while this process computes. */
static void read_for_the_idle(trp_runtime *rt) {
    trpi_data_lock(rt);
    if (!rt->data.is_led) {
        trpi_data_read(rt);
    }
    trpi_data_leave(rt);
}

/* What time brings: heartbeats, the verdict on a silent head, another try. */
static void take_turn(trp_runtime *rt, uint64_t now_ns) {
    trpi_control *control = &rt->control;
    uint64_t late_ns = now_ns - control->last_turn_ns;
    control->last_turn_ns = now_ns;
    trpi_logs_tend(rt, now_ns);
    if (late_ns > 4 * control->heartbeat_ms * TRPI_NS_PER_MS) {
        control->last_heard_ns += late_ns; /* it was us who did not listen: no verdict yet */
    }
    if (control->is_over) {
        return;
    }
    if (!control->is_welcome) {
        trp_error error;
        if (now_ns - control->opened_ns > REOPEN_MS * TRPI_NS_PER_MS &&
            open_link(rt, &error) != TRP_OK) {
            trpi_log(TRPI_WARN, "connect_failed", "address=%s reason=\"%s\"", rt->address,
                     error.message);
            control->opened_ns = now_ns;
        }
    } else if (now_ns >= control->next_heartbeat_ns) {
        send_heartbeat(rt, now_ns);
        read_for_the_idle(rt);
        trpi_client_store_tend(rt);
    }
    uint64_t silent_ns = now_ns - TRPI_MIN(control->last_heard_ns, now_ns);
    if (control->link == TRPI_LINK_UP &&
        silent_ns > trpi_config(TRPI_CONFIG_CLIENT_TIMEOUT_MS) * TRPI_NS_PER_MS) {
        lose_link(rt, "has stopped answering");
        control->is_welcome = false;
        control->opened_ns = 0;
    }
}

static bool must_stop(trpi_control *control) {
    pthread_mutex_lock(&control->lock);
    bool result = control->must_stop;
    pthread_mutex_unlock(&control->lock);
    return result;
}

static void *control_main(void *arg) {
    trp_runtime *rt = arg;
    trpi_control *control = &rt->control;
    control->last_turn_ns = control->last_heard_ns = trpi_now_ns();
    while (!must_stop(control)) {
        uint64_t tend_ns, wake_ns = control->is_welcome
                                        ? control->next_heartbeat_ns
                                        : control->last_turn_ns + 100 * TRPI_NS_PER_MS;
        int watched_fd = trpi_tend_plan(rt, &tend_ns);
        wake_ns = TRPI_MIN(wake_ns, trpi_repeats_next_ns(rt->repeats));
        trpi_poll_item items[4] = {{.fd = control->wake_fd}, {.fd = rt->data.timer_fd}};
        size_t count = 2;
        if (watched_fd >= 0) {
            items[count++].fd = watched_fd;
        }
        if (control->sock != NULL) {
            items[count++].sock = control->sock;
        }
        if (trpi_poll(items, count, trpi_left_ms(TRPI_MIN(wake_ns, tend_ns))) == TRP_OK &&
            items[0].ready) {
            trpi_wake_clear(control->wake_fd);
        }
        bool has_news = watched_fd >= 0 && items[2].ready;
        if (has_news || items[1].ready || (tend_ns != UINT64_MAX && trpi_now_ns() >= tend_ns)) {
            trpi_tend(rt, has_news, items[1].ready);
        }
        trpi_done_call(rt);
        if (control->sock != NULL && control->is_welcome) {
            send_queue(rt); /* not before: whoever has the address now may not be our head */
        }
        if (control->sock != NULL) {
            read_all(rt);
        }
        take_turn(rt, trpi_now_ns());
    }
    return NULL;
}

/* Signals are the program's business, not this thread's. */
static trp_code start_thread(trp_runtime *rt, trp_error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&rt->control.thread, NULL, control_main, rt);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return trpi_fail(err, TRP_EBUSY, "cannot start a thread: %s", strerror(error));
    }
    rt->control.is_running = true;
    return TRP_OK;
}

trp_code trpi_client_control_open(trp_runtime *rt, trp_error *err) {
    trpi_control *control = &rt->control;
    pthread_mutex_init(&control->lock, NULL);
    pthread_cond_init(&control->changed, NULL);
    control->heartbeat_ms = trpi_config(TRPI_CONFIG_HEARTBEAT_MS);
    rt->repeats = trpi_logs_open();
    control->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->wake_fd < 0) {
        return trpi_fail(err, TRP_EBUSY, "no descriptors left (ulimit -n)");
    }
    trp_code code = open_link(rt, err);
    if (code == TRP_OK) {
        code = start_thread(rt, err);
    }
    return code;
}

void trpi_client_control_close(trp_runtime *rt) {
    trpi_control *control = &rt->control;
    if (control->is_running) {
        pthread_mutex_lock(&control->lock);
        control->must_stop = true;
        pthread_mutex_unlock(&control->lock);
        trpi_wake(control->wake_fd);
        pthread_join(control->thread, NULL);
    }
    trpi_logs_close(rt);
    trpi_outgoing_free(control->first_out);
    trpi_sock_close(control->sock);
    if (control->wake_fd >= 0) {
        close(control->wake_fd);
    }
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
}

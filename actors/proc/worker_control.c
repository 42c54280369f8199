/* The control thread: the worker's link to its node. It answers while methods run, and is the only
 * one that touches the link's socket. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/proc/worker_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/base/times.h"
#include "core/net/clock.h"

#define PARENT_CHECK_MS 1000 /* PR_SET_PDEATHSIG does it at once; this is for where it can't */
#define SIGNALS_MAX 1024     /* kept until the constructor has returned */
#define FLUSH_MS 500

/* Of whoever runs the loop: the main thread until START has come, the control thread from then on.
 */
typedef struct trpi_link_state {
    trpi_worker *worker;
    trpi_sock *sock;
    trpi_arena arena;
    trp_buf frame;
    uint64_t empty_offset_ns; /* trpi_lease_offset_ns() when nothing more was there to be read */
} link_state;

/* ---- Out ---- */

static void ring(trpi_control *control) {
    uint64_t one = 1;
    (void)!write(control->ring_fd, &one, sizeof one);
}

void trpi_control_post(trpi_control *control, const trpi_msg *msg) {
    trp_error err = {0};
    trp_buf frame = {0};
    if (trpi_encode(msg, &frame, &err) != TRP_OK) {
        trpi_log(TRPI_ERROR, "message_lost", "type=%s error=\"%s\"", trpi_msg_name(msg->type),
                 err.message);
        trp_buf_release(&frame);
        return;
    }
    pthread_mutex_lock(&control->lock);
    control->out = trpi_realloc(control->out, (control->out_count + 1) * sizeof *control->out);
    control->out[control->out_count++] = frame;
    pthread_mutex_unlock(&control->lock);
    ring(control);
}

static void send_frame(link_state *link, trp_bytes frame) {
    trp_error err = {0};
    if (trpi_sock_send(link->sock, (trp_bytes){0}, frame, (trp_bytes){0}, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "node_not_told", "error=\"%s\"", err.message);
    }
}

static void send_msg(link_state *link, const trpi_msg *msg) {
    if (trpi_encode(msg, &link->frame, NULL) == TRP_OK) {
        send_frame(link, trp_buf_bytes(&link->frame));
    }
}

static void say_hello(link_state *link) {
    trpi_msg msg = {.type = TRPI_MSG_WORKER_HELLO,
                    .worker_hello = {.pid = getpid(), .token = link->worker->token}};
    send_msg(link, &msg);
}

/* ---- In ---- */

static void run_signal(trpi_worker *worker, trp_bytes data) {
    if (worker->type->signal) {
        worker->type->signal(&worker->hooks, worker->state, data);
    } else {
        trpi_log(TRPI_WARN, "signal_dropped", "type=%s reason=\"no signal hook\"",
                 worker->type->name);
    }
}

static void keep_signal(trpi_control *control, trp_bytes data) {
    if (control->signal_count == SIGNALS_MAX) {
        trpi_log(TRPI_WARN, "signal_dropped",
                 "reason=\"too many before the constructor returned\"");
        return;
    }
    control->signals =
        trpi_realloc(control->signals, (control->signal_count + 1) * sizeof *control->signals);
    trp_buf *kept = &control->signals[control->signal_count];
    *kept = (trp_buf){0};
    if (trp_buf_append(kept, data.data, data.size) == TRP_OK) {
        control->signal_count++;
    }
}

/* Once, and only an actor that is constructed. */
static void tell_drain(trpi_worker *worker) {
    uint64_t drain_ns = atomic_load(&worker->drain_ns);
    if (drain_ns == UINT64_MAX || worker->control.drain_is_told) {
        return;
    }
    worker->control.drain_is_told = true;
    if (worker->type->drain) {
        worker->type->drain(&worker->hooks, worker->state, trp_context_drain_ms(&worker->hooks));
    }
}

static void deliver_kept(trpi_worker *worker) {
    trpi_control *control = &worker->control;
    tell_drain(worker);
    for (size_t i = 0; i < control->signal_count; i++) {
        run_signal(worker, trp_buf_bytes(&control->signals[i]));
        trp_buf_release(&control->signals[i]);
    }
    free(control->signals);
    control->signals = NULL;
    control->signal_count = 0;
}

static void take_signal(trpi_worker *worker, const trpi_msg_signal *signal) {
    int state = atomic_load(&worker->control.state);
    if (state == TRPI_CONTROL_STARTING) {
        keep_signal(&worker->control, signal->data);
    } else if (state == TRPI_CONTROL_ALIVE &&
               (signal->incarnation == 0 || signal->incarnation == worker->start.incarnation)) {
        deliver_kept(worker); /* they came before this one */
        run_signal(worker, signal->data);
    }
}

static void take_start(trpi_control *control, trp_bytes frame) {
    pthread_mutex_lock(&control->lock);
    if (atomic_load(&control->state) != TRPI_CONTROL_WAITING) {
        trpi_log(TRPI_WARN, "start_unexpected", "reason=\"this worker is an actor already\"");
    } else if (trp_buf_append(&control->start, frame.data, frame.size) == TRP_OK) {
        atomic_store(&control->state, TRPI_CONTROL_STARTING);
        pthread_cond_broadcast(&control->changed);
    }
    pthread_mutex_unlock(&control->lock);
}

static void take_heard(trpi_control *control) {
    pthread_mutex_lock(&control->lock);
    control->heard = true;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

static void take_ping(link_state *link, const trpi_msg_ping *ping) {
    const char *method;
    uint64_t stuck_ms = trpi_worker_stuck_ms(link->worker, trpi_now_ns(), &method);
    trpi_msg pong = {.type = TRPI_MSG_PONG,
                     .pong = {.seq = ping->seq, .stuck_ms = stuck_ms, .method = method}};
    trpi_lease_renew(ping->seq, link->empty_offset_ns, ping->lease_ms);
    send_msg(link, &pong);
}

static void take_stop(trpi_worker *worker, const trpi_msg_stop *stop) {
    if (atomic_load(&worker->control.state) == TRPI_CONTROL_WAITING ||
        stop->actor != worker->start.actor || stop->incarnation != worker->start.incarnation) {
        return;
    }
    /* Half of the time is for answers that others owe, half for the stop hook. */
    atomic_store(&worker->answers_until_ns, trpi_deadline_ns(stop->grace_ms / 2));
    atomic_store(&worker->stopping, true);
    trpi_desk_ring(&worker->desk);
}

static void take_drain(trpi_worker *worker, const trpi_msg_drain_notice *notice) {
    uint64_t drain_ns = trpi_deadline_ns(notice->deadline_ms);
    atomic_store(&worker->drain_ns, TRPI_MIN(drain_ns, UINT64_MAX - 1));
    if (atomic_load(&worker->control.state) == TRPI_CONTROL_ALIVE) {
        deliver_kept(worker);
    }
}

static void take_msg(link_state *link, const trpi_msg *msg, trp_bytes frame) {
    trpi_worker *worker = link->worker;
    switch (msg->type) {
    case TRPI_MSG_START:
        take_start(&worker->control, frame);
        break;
    case TRPI_MSG_SIGNAL:
        take_signal(worker, &msg->signal);
        break;
    case TRPI_MSG_PING:
        take_ping(link, &msg->ping);
        break;
    case TRPI_MSG_STOP:
        take_stop(worker, &msg->stop);
        break;
    case TRPI_MSG_SAVED:
        if (msg->saved.incarnation == worker->start.incarnation) {
            trpi_saving_answered(&worker->control, &msg->saved);
        }
        break;
    case TRPI_MSG_DRAIN_NOTICE:
        take_drain(worker, &msg->drain_notice);
        break;
    case TRPI_MSG_WORKER_FAILED:
        take_heard(&worker->control);
        break;
    case TRPI_MSG_END:
        _exit(0); /* the node does not know us */
    default:
        trpi_log(TRPI_WARN, "message_unexpected", "from=node type=%s", trpi_msg_name(msg->type));
        break;
    }
}

static void take_packet(link_state *link, const trpi_packet *packet) {
    trpi_msg msg;
    trp_error err = {0};
    trpi_arena_reset(&link->arena);
    if (trpi_decode(packet->header, &link->arena, &msg, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "message_invalid", "from=node error=\"%s\"", err.message);
    } else {
        take_msg(link, &msg, packet->header);
    }
}

/* ---- The loop ---- */

/* Sends what was posted; true when it is time to end. */
static bool take_ring(link_state *link) {
    trpi_control *control = &link->worker->control;
    uint64_t count;
    (void)!read(control->ring_fd, &count, sizeof count);
    pthread_mutex_lock(&control->lock);
    trp_buf *out = control->out;
    size_t out_count = control->out_count;
    bool quit = control->quit;
    control->out = NULL;
    control->out_count = 0;
    pthread_mutex_unlock(&control->lock);
    for (size_t i = 0; i < out_count; i++) {
        send_frame(link, trp_buf_bytes(&out[i]));
        trp_buf_release(&out[i]);
    }
    free(out);
    if (atomic_load(&control->state) == TRPI_CONTROL_ALIVE) {
        deliver_kept(link->worker);
    }
    return quit;
}

/* One turn; true when it is time to end. */
static bool turn(link_state *link) {
    trpi_worker *worker = link->worker;
    trpi_packet packet;
    trpi_poll_item items[] = {
        {.sock = link->sock}, {.fd = worker->control.ring_fd}, {.fd = worker->desk.timer_fd}};
    if (trpi_poll(items, 3, PARENT_CHECK_MS) != TRP_OK && getppid() != worker->node_pid) {
        _exit(1); /* nobody is left who could say what we are */
    }
    trpi_lease_check();
    trpi_desk_tend(&worker->desk);
    for (;;) {
        uint64_t offset_ns = trpi_lease_offset_ns();
        if (trpi_sock_recv(link->sock, &packet) != TRP_OK) {
            link->empty_offset_ns = offset_ns;
            break;
        }
        bool was_waiting = atomic_load(&worker->control.state) == TRPI_CONTROL_WAITING;
        take_packet(link, &packet);
        trpi_packet_release(&packet);
        if (was_waiting && atomic_load(&worker->control.state) != TRPI_CONTROL_WAITING) {
            return false; /* what follows is for the actor that we become now */
        }
    }
    return items[1].ready && take_ring(link);
}

static void *control_thread(void *arg) {
    link_state *link = arg;
    (void)pthread_setname_np(pthread_self(), "control");
    while (!turn(link)) {
    }
    trpi_sock_close_after(link->sock, FLUSH_MS);
    trpi_arena_release(&link->arena);
    trp_buf_release(&link->frame);
    free(link);
    return NULL;
}

static trp_code open_link(trpi_worker *worker, link_state *link, trp_error *err) {
    char id[24], endpoint[256];
    trpi_format(id, sizeof id, "w%llu", (unsigned long long)worker->token);
    trpi_format(endpoint, sizeof endpoint, "ipc://%s/s", worker->node_dir);
    trp_code code = trpi_sock_open(worker->net, TRPI_DEALER, trp_bytes_of(id), &link->sock, err);
    return code == TRP_OK ? trpi_sock_connect(link->sock, endpoint, (trp_bytes){0}, err) : code;
}

void trpi_condition_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool trpi_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t deadline_ns) {
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / TRPI_NS_PER_S),
                                .tv_nsec = (long)(deadline_ns % TRPI_NS_PER_S)};
    return pthread_cond_timedwait(condition, lock, &deadline) == 0;
}

trp_code trpi_control_open(trpi_worker *worker, trp_error *err) {
    trpi_control *control = &worker->control;
    pthread_mutex_init(&control->lock, NULL);
    trpi_condition_init(&control->changed);
    control->ring_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->ring_fd < 0) {
        return trpi_fail(err, TRP_EIO, "eventfd: %s", strerror(errno));
    }
    link_state *link = control->link = trpi_alloc(sizeof *link);
    link->worker = worker;
    trp_code code = open_link(worker, link, err);
    if (code == TRP_OK) {
        say_hello(link);
    }
    return code; /* the process ends when it is not good: nothing to tidy */
}

/* ---- What the main thread asks for ---- */

/* No deadline: an idle worker waits until its node, which it can't outlive, ends it. It needs no
 * thread for that. */
void trpi_control_wait_start(trpi_worker *worker) {
    while (atomic_load(&worker->control.state) == TRPI_CONTROL_WAITING) {
        (void)turn(worker->control.link);
    }
}

trp_code trpi_control_run(trpi_worker *worker, trp_error *err) {
    trpi_control *control = &worker->control;
    /* The program's signals go to its own threads. */
    sigset_t mask, old;
    control->link->empty_offset_ns = trpi_lease_offset_ns();
    sigfillset(&mask);
    sigdelset(&mask, trpi_worker_dump_signal()); /* a hook may hang here */
    pthread_sigmask(SIG_SETMASK, &mask, &old);
    int failed = pthread_create(&control->thread, NULL, control_thread, control->link);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed ? trpi_fail(err, TRP_EIO, "thread: %s", strerror(failed)) : TRP_OK;
}

void trpi_control_started(trpi_worker *worker) {
    trpi_msg msg = {.type = TRPI_MSG_STARTED,
                    .started = {.actor = worker->start.actor,
                                .incarnation = worker->start.incarnation,
                                .pid = getpid(),
                                .endpoint = worker->endpoint,
                                .remote_endpoint = worker->remote_endpoint}};
    atomic_store(&worker->control.state, TRPI_CONTROL_ALIVE);
    trpi_control_post(&worker->control, &msg);
}

void trpi_control_failed(trpi_worker *worker, trp_cause cause, const char *message) {
    trpi_msg msg = {.type = TRPI_MSG_WORKER_FAILED,
                    .worker_failed = {.actor = worker->start.actor,
                                      .incarnation = worker->start.incarnation,
                                      .cause = cause,
                                      .message = message}};
    atomic_store(&worker->control.state, TRPI_CONTROL_LEAVING);
    trpi_control_post(&worker->control, &msg);
}

void trpi_control_close(trpi_worker *worker) {
    trpi_control *control = &worker->control;
    uint64_t deadline_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_STOP_TIMEOUT_MS));
    pthread_mutex_lock(&control->lock);
    while (!control->heard && trpi_condition_wait(&control->changed, &control->lock, deadline_ns)) {
    }
    control->quit = true;
    pthread_mutex_unlock(&control->lock);
    ring(control);
    pthread_join(control->thread, NULL);
}

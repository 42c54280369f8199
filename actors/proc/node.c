#include "actors/proc/node.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "actors/proc/zygote.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/guard.h"
#include "core/sys/process.h"

#define SOURCE_SHIFT 56
#define EVENTS_PER_ROUND 64
#define PACKETS_PER_ROUND 256 /* of one socket, so that a flood on it starves nobody */

/* ---- What the other files call ---- */

trp_code trpi_node_watch_fd(trpi_node *node, int fd, trpi_source source, uint64_t id,
                            trp_error *err) {
    struct epoll_event event = {.events = EPOLLIN,
                                .data.u64 = (uint64_t)source << SOURCE_SHIFT | id};
    if (epoll_ctl(node->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return trpi_fail(err, TRP_EIO, "epoll: %s", strerror(errno));
    }
    return TRP_OK;
}

void trpi_node_unwatch_fd(trpi_node *node, int *fd) {
    if (*fd >= 0) {
        /* Closing alone is not enough: a forked child may still hold the open file. */
        (void)epoll_ctl(node->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
        close(*fd);
        *fd = -1;
    }
}

void trpi_node_timer(trpi_node *node, trpi_timer_kind kind, uint64_t id, uint64_t due_ns) {
    trpi_timers_add(&node->timers, due_ns, kind, id);
}

static bool encode(trpi_node *node, const trpi_msg *msg) {
    trp_error err = {0};
    if (trpi_encode(msg, &node->frame, &err) != TRP_OK) {
        trpi_log(TRPI_ERROR, "message_lost", "type=%s error=\"%s\"", trpi_msg_name(msg->type),
                 err.message);
        return false;
    }
    return true;
}

void trpi_node_say_frame(trpi_node *node, trp_bytes frame) {
    trp_error err = {0};
    if (node->head &&
        trpi_sock_send(node->head, (trp_bytes){0}, frame, (trp_bytes){0}, &err) != TRP_OK) {
        trpi_log(TRPI_ERROR, "message_lost", "error=\"%s\"", err.message);
    }
}

void trpi_node_say(trpi_node *node, const trpi_msg *msg) {
    if (node->head && encode(node, msg)) {
        trpi_node_say_frame(node, trp_buf_bytes(&node->frame));
    }
}

bool trpi_node_tell_frame(trpi_node *node, uint64_t token, trp_bytes frame) {
    char peer[24];
    trp_error err = {0};
    trpi_format(peer, sizeof peer, "w%llu", (unsigned long long)token);
    if (!node->inner ||
        trpi_sock_send(node->inner, trp_bytes_of(peer), frame, (trp_bytes){0}, &err) != TRP_OK) {
        trpi_log(TRPI_INFO, "worker_not_told", "worker=%s error=\"%s\"", peer, err.message);
        return false;
    }
    return true;
}

void trpi_node_untell(trpi_node *node, uint64_t token) {
    char peer[24];
    trpi_format(peer, sizeof peer, "w%llu", (unsigned long long)token);
    if (node->inner) {
        trpi_sock_forget(node->inner, trp_bytes_of(peer));
    }
}

bool trpi_node_tell(trpi_node *node, uint64_t token, const trpi_msg *msg) {
    return encode(node, msg) && trpi_node_tell_frame(node, token, trp_buf_bytes(&node->frame));
}

void trpi_node_stop(trpi_node *node, const char *reason, int exit_code) {
    if (node->phase == TRPI_NODE_STOPPING) {
        return;
    }
    trpi_log(TRPI_INFO, "node_stops", "reason=\"%s\"", reason);
    TRPI_SET(node->end_reason, reason);
    node->exit_code = exit_code;
    node->phase = TRPI_NODE_STOPPING;
    trpi_node_kill_all(node);
}

/* ---- Messages ---- */

static void from_head(trpi_node *node, const trpi_msg *msg, trp_bytes frame) {
    bool serving = node->phase == TRPI_NODE_SERVING;
    if (msg->type == TRPI_MSG_NODE_WELCOME) {
        trpi_node_welcomed(node, &msg->node_welcome);
    } else if (msg->type == TRPI_MSG_DONE) {
        trpi_node_refused(node, &msg->done);
    } else if (msg->type == TRPI_MSG_NODE_SHUTDOWN) {
        trpi_node_stop(node, msg->node_shutdown.reason, 0);
    } else if (!serving) {
        trpi_log(TRPI_INFO, "message_stale", "type=%s", trpi_msg_name(msg->type));
    } else if (msg->type == TRPI_MSG_START) {
        trpi_node_start(node, &msg->start, frame);
    } else if (msg->type == TRPI_MSG_END) {
        trpi_node_end(node, &msg->end);
    } else if (msg->type == TRPI_MSG_SIGNAL) {
        trpi_node_signal(node, &msg->signal, frame);
    } else if (msg->type == TRPI_MSG_SAVED) {
        trpi_node_saved(node, &msg->saved, frame);
    } else if (msg->type == TRPI_MSG_DRAIN_NOTICE) {
        trpi_node_drain(node, &msg->drain_notice);
    } else if (msg->type == TRPI_MSG_WATCH_PID) {
        trpi_node_watch(node, &msg->watch_pid);
    } else if (msg->type == TRPI_MSG_LOGS_QUERY) {
        trpi_node_logs_query(node, &msg->logs_query);
    } else if (msg->type == TRPI_MSG_STORE_AT || msg->type == TRPI_MSG_CLIENT_GONE ||
               msg->type == TRPI_MSG_NODE_GONE) {
        trpi_node_store_tell(node, frame);
    } else if (msg->type == TRPI_MSG_BLOB_DATA) {
        trpi_blobs_data(node, &msg->blob_data);
    } else if (msg->type == TRPI_MSG_JOB_START) {
        trpi_jobs_start(node, &msg->job_start, frame);
    } else if (msg->type == TRPI_MSG_JOB_END) {
        trpi_jobs_end(node, &msg->job_end);
    } else {
        trpi_log(TRPI_WARN, "message_unexpected", "from=head type=%s", trpi_msg_name(msg->type));
    }
}

/* The number in a worker's peer id "w12"; 0 for any other id. */
static uint64_t token_of(trp_bytes peer) {
    char text[24];
    uint64_t token = 0;
    if (peer.size < 2 || peer.size >= sizeof text || *(const char *)peer.data != 'w') {
        return 0;
    }
    memcpy(text, (const char *)peer.data + 1, peer.size - 1);
    text[peer.size - 1] = '\0';
    return trpi_parse_u64(text, UINT64_MAX, &token) ? token : 0;
}

static void handle_packet(trpi_node *node, const trpi_packet *packet, bool is_head) {
    trpi_msg msg;
    trp_error err = {0};
    trpi_arena_reset(&node->arena);
    if (trpi_decode(packet->header, &node->arena, &msg, &err) != TRP_OK) {
        if (is_head || trpi_log_is_due(&node->refused)) {
            trpi_log(TRPI_WARN, "message_invalid", "from=%s error=\"%s\" refused=%llu",
                     is_head ? "head" : "worker", err.message, (unsigned long long)node->refused);
        }
        if (is_head && node->phase == TRPI_NODE_JOINING) {
            trpi_node_report_ready(node, "error: the head answered: %s\n", err.message);
            trpi_node_stop(node, "the head speaks another protocol", 1);
        }
    } else if (is_head) {
        from_head(node, &msg, packet->header);
    } else {
        trpi_node_from_worker(node, token_of(packet->peer), &msg, packet->header);
    }
}

/* `*sock` may be closed by what a message leads to, hence the second look. */
static void drain_sock(trpi_node *node, trpi_sock *const *sock, bool is_head) {
    trpi_packet packet;
    for (int i = 0; i < PACKETS_PER_ROUND && *sock; i++) {
        if (trpi_sock_recv(*sock, &packet) != TRP_OK) {
            return;
        }
        handle_packet(node, &packet, is_head);
        trpi_packet_release(&packet);
    }
}

/* ---- Events and timers ---- */

static void take_signals(trpi_node *node) {
    struct signalfd_siginfo info;
    bool child = false;
    while (read(node->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            child = true;
        } else {
            trpi_node_stop(node, info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT", 0);
        }
    }
    if (child) {
        trpi_node_reap(node);
    }
}

static void take_heartbeat_events(trpi_node *node) {
    uint64_t count;
    if (read(node->heartbeat_fd, &count, sizeof count) == (ssize_t)sizeof count &&
        node->heartbeat) {
        trpi_node_heard(node, trpi_heartbeat_events(node->heartbeat));
    }
}

static void take_event(trpi_node *node, uint64_t data) {
    uint64_t id = data & ((UINT64_C(1) << SOURCE_SHIFT) - 1);
    trpi_source source = (trpi_source)(data >> SOURCE_SHIFT);
    if (source == TRPI_SOURCE_SIGNAL) {
        take_signals(node);
    } else if (source == TRPI_SOURCE_HEARTBEAT) {
        take_heartbeat_events(node);
    } else if (source == TRPI_SOURCE_STORE) {
        trpi_node_store_words(node);
    } else if (source == TRPI_SOURCE_WATCH) {
        trpi_node_watch_fired(node, id);
    } else if (source == TRPI_SOURCE_JOB_STDOUT || source == TRPI_SOURCE_JOB_STDERR) {
        trpi_jobs_read(node, id, source == TRPI_SOURCE_JOB_STDERR);
    } else if (source == TRPI_SOURCE_ZYGOTE || source == TRPI_SOURCE_ZYGOTE_OUTPUT) {
        trpi_program *program = trpi_map_get(&node->programs_by_id, id);
        if (program && source == TRPI_SOURCE_ZYGOTE) {
            trpi_zygote_drain(node, program);
        } else if (program) {
            trpi_zygote_output(node, program);
        }
    } else {
        trpi_node_worker *worker = trpi_map_get(&node->workers, id);
        if (worker) {
            trpi_node_output_read(node, worker, source == TRPI_SOURCE_STDERR);
        }
    }
}

static void take_events(trpi_node *node) {
    struct epoll_event events[EVENTS_PER_ROUND];
    int count = epoll_wait(node->epoll_fd, events, EVENTS_PER_ROUND, 0);
    for (int i = 0; i < count; i++) {
        take_event(node, events[i].data.u64);
    }
}

static void take_timer(trpi_node *node, const trpi_timer *timer, uint64_t now_ns) {
    trpi_program *program;
    switch ((trpi_timer_kind)timer->kind) {
    case TRPI_TIMER_JOIN:
        trpi_node_join_again(node);
        break;
    case TRPI_TIMER_WORKER:
        trpi_node_worker_due(node, timer->id, now_ns);
        break;
    case TRPI_TIMER_STOP:
        trpi_node_worker_overdue(node, timer->id);
        break;
    case TRPI_TIMER_PROGRAM:
        program = trpi_map_get(&node->programs_by_id, timer->id);
        if (program) {
            trpi_program_due(node, program, now_ns);
        }
        break;
    case TRPI_TIMER_FLUSH:
        trpi_node_output_flush(node);
        break;
    case TRPI_TIMER_SWEEP:
        trpi_node_sweep(node);
        break;
    case TRPI_TIMER_TRIM:
        trpi_node_trim(node);
        break;
    case TRPI_TIMER_KILL:
        trpi_node_worker_kill_due(node, timer->id);
        break;
    case TRPI_TIMER_LIVENESS:
        trpi_node_liveness_due(node, timer->id, now_ns);
        break;
    case TRPI_TIMER_DUMP:
        trpi_node_dump_due(node, timer->id, now_ns);
        break;
    case TRPI_TIMER_MEMORY:
        trpi_node_memory_due(node, now_ns);
        break;
    case TRPI_TIMER_STATS:
        trpi_node_stats_due(node);
        break;
    case TRPI_TIMER_BLOB:
        trpi_blobs_due(node, timer->id, now_ns);
        break;
    case TRPI_TIMER_JOB:
        trpi_jobs_due(node, timer->id, now_ns);
        break;
    case TRPI_TIMER_END:
        if (node->phase == TRPI_NODE_CLEARING || node->phase == TRPI_NODE_STOPPING) {
            trpi_node_kill_all(node);
        }
        break;
    }
}

static void loop(trpi_node *node) {
    while (!node->end_reached) {
        trpi_poll_item items[3] = {{.fd = node->epoll_fd}};
        size_t count = 1;
        if (node->head) {
            items[count++].sock = node->head;
        }
        if (node->inner) {
            items[count++].sock = node->inner;
        }
        (void)!trpi_poll(items, count, trpi_left_ms(trpi_timers_due(&node->timers)));
        /* Messages before deaths: a worker's last word explains its end. */
        drain_sock(node, &node->inner, false);
        drain_sock(node, &node->head, true);
        trp_bytes head;
        if (node->head && trpi_sock_take_void(node->head, &head)) {
            trpi_node_unheard(node);
        }
        take_events(node);
        trpi_timer timer;
        uint64_t now_ns = trpi_now_ns();
        while (trpi_timers_take(&node->timers, now_ns, &timer)) {
            take_timer(node, &timer, now_ns);
        }
        if ((node->phase == TRPI_NODE_CLEARING || node->phase == TRPI_NODE_STOPPING) &&
            !trpi_node_has_children()) {
            trpi_node_cleared(node);
        }
    }
}

/* ---- Beginning and end ---- */

/* SIGCHLD for children; SIGTERM and SIGINT for us. Blocked before any thread is made. */
static trp_code open_signals(trpi_node *node, trp_error *err) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a log at ulimit -f is a full disk, and no reason to die */
    if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0) {
        return trpi_fail(err, TRP_EIO, "sigprocmask: %s", strerror(errno));
    }
    node->signal_fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (node->signal_fd < 0) {
        return trpi_fail(err, TRP_EIO, "signalfd: %s", strerror(errno));
    }
    return trpi_node_watch_fd(node, node->signal_fd, TRPI_SOURCE_SIGNAL, 0, err);
}

/* Whatever a worker starts has inherited where this node's directory is, which no other node has.
 */
static trp_code start_guard(trpi_node *node, trp_error *err) {
    char end[32];
    trpi_format(end, sizeof end, "/node-%.8s", node->uuid);
    return trpi_guard_start(TRPI_ENV_NODE_DIR "=", end, &node->guard_fd, err);
}

static trp_code node_open(trpi_node *node, trp_error *err) {
    trp_code code = start_guard(node, err); /* it forks: before there is any thread */
    if (code == TRP_OK) {
        code = trpi_node_limits_open(node, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    node->chunk = trpi_alloc(TRPI_CHUNK_BYTES);
    node->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (node->epoll_fd < 0) {
        return trpi_fail(err, TRP_EIO, "epoll: %s", strerror(errno));
    }
    code = open_signals(node, err);
    if (code != TRP_OK) {
        return code;
    }
    node->heartbeat_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (node->heartbeat_fd < 0) {
        return trpi_fail(err, TRP_EIO, "eventfd: %s", strerror(errno));
    }
    code = trpi_node_watch_fd(node, node->heartbeat_fd, TRPI_SOURCE_HEARTBEAT, 0, err);
    if (code == TRP_OK) {
        code = trpi_become_subreaper(err);
    }
    return code == TRP_OK ? trpi_net_open(&node->net, err) : code;
}

static void close_fd(int fd) {
    if (fd >= 0) {
        close(fd);
    }
}

static void node_close(trpi_node *node) {
    trpi_heartbeat_stop(node->heartbeat);
    trpi_node_watch_close(node);
    trpi_jobs_clear(node);
    trpi_blobs_clear(node);
    trpi_node_store_close(node);
    trpi_node_dir_close(node);
    trpi_node_pidfile_remove(node);
    trpi_node_memory_close(node);
    trpi_guard_end(node->guard_fd);
    trpi_sock_close(node->head);
    trpi_net_close(node->net); /* waits until the goodbye is out */
    close_fd(node->store_fd);
    close_fd(node->heartbeat_fd);
    close_fd(node->signal_fd);
    close_fd(node->epoll_fd);
    trpi_node_forget_said(node);
    trpi_map_release(&node->workers);
    trpi_map_release(&node->pids);
    trpi_map_release(&node->actors);
    trpi_map_release(&node->programs_by_id);
    trpi_map_release(&node->watches);
    trpi_timers_release(&node->timers);
    trpi_arena_release(&node->arena);
    trp_buf_release(&node->frame);
    trp_buf_release(&node->lines);
    free(node->dead_logs.items);
    free(node->chunk);
    free(node);
}

int trpi_node_main(const trpi_node_options *options) {
    trp_error err = {0};
    trpi_node *node = trpi_alloc(sizeof *node);
    node->options = options;
    node->ready_fd = options->ready_fd;
    node->epoll_fd = node->signal_fd = node->heartbeat_fd = node->guard_fd = -1;
    node->store_fd = -1;
    TAILQ_INIT(&node->programs);
    TAILQ_INIT(&node->flush);
    TAILQ_INIT(&node->jobs);
    trpi_blobs_init(node);
    trpi_uuid(node->uuid);
    trpi_log_set_who("node");
    trpi_node_memory_open(node);
    if (node_open(node, &err) == TRP_OK) {
        node->join_until_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_CONNECT_TIMEOUT_MS));
        trpi_node_join(node);
        loop(node);
        trpi_node_goodbye(node);
    } else {
        trpi_log(TRPI_ERROR, "node_failed", "error=\"%s\"", err.message);
        trpi_node_report_ready(node, "error: %s\n", err.message);
        node->exit_code = 1;
    }
    int exit_code = node->exit_code;
    node_close(node);
    return exit_code;
}

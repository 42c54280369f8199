/* head.c: the loop around the cluster machine. Feeds it messages and time, carries out what comes
 * out, decides nothing.
 *
 *   ROUTER --> decode --+
 *   pidfds -------------+--> trpi_cluster_step() --> encode --> ROUTER
 *   time, signals ------+
 *
 * Observing comes before acting: there is no tick while anything is unread, so that a head that was
 * busy does not call those dead whose heartbeats lie in its socket. */
#include "actors/proc/head.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "actors/proc/head_blobs.h"
#include "actors/proc/head_list.h"
#include "actors/proc/head_peers.h"
#include "actors/proc/head_watch.h"
#include "actors/state/cluster.h"
#include "core/base/config.h"
#include "core/base/id.h"
#include "core/base/log.h"
#include "core/base/times.h"
#include "core/net/clock.h"
#include "core/net/sock.h"
#include "core/sys/host.h"
#include "core/sys/limits.h"
#include "core/sys/process.h"
#include "core/sys/session.h"
#include "core/wire/codec.h"

#define PACKETS_PER_TURN 4096
#define FRAME_ARENA_MAX ((size_t)256 << 20) /* that one decoded frame may take */
#define FAREWELL_MS 200                     /* after the last goodbye: what was sent gets out */
#define LIST_KEPT_BYTES ((size_t)1 << 20)   /* above this a list gives its memory back */
#define PART_KEPT_BYTES ((size_t)1 << 16)   /* above this a part of a file does */
#define HEARTBEATS_PER_TIMEOUT 2            /* at least: one may be late */

typedef struct head {
    char cluster_id[TRPI_UUID_TEXT];
    char address[160];
    char host_id[128];
    trpi_net *net;
    trpi_sock *sock;
    trpi_cluster *cluster;
    trpi_actions actions;
    trpi_peers peers;
    trpi_watch watch;
    trpi_head_blobs *blobs;
    trpi_arena arena; /* of the packet that is being handled */
    trp_buf frame, json;
    trpi_pidfile pidfile;
    int signal_fd;
    uint64_t started_ns;
    uint64_t stop_ns; /* deadline of an end under way; UINT64_MAX = none */
    bool stopping;
    uint64_t bad_packets, bad_logged, bad_logged_ns;
} head;

/* ---- Telling what happens: the machine is pure, so its events and actions are the log ---- */

static trpi_level level_of(trpi_msg_type type) {
    switch (type) {
    case TRPI_MSG_NODE_WELCOME:
    case TRPI_MSG_NODE_BYE:
    case TRPI_MSG_CLIENT_WELCOME:
    case TRPI_MSG_START:
    case TRPI_MSG_EXITED:
    case TRPI_MSG_END:
    case TRPI_MSG_NODE_SHUTDOWN:
    case TRPI_MSG_DRAIN:
    case TRPI_MSG_JOB_START:
    case TRPI_MSG_JOB_STARTED:
    case TRPI_MSG_JOB_EXITED:
    case TRPI_MSG_JOB_END:
        return TRPI_INFO;
    default:
        return TRPI_DEBUG;
    }
}

static void log_message(const char *event, uint64_t peer, const trpi_msg *msg) {
    trpi_level level = level_of(msg->type);
    if (trpi_log_is_shown(level)) {
        char text[512];
        trpi_msg_print(msg, text, sizeof(text));
        trpi_log(level, event, "peer=%" PRIu64 " %s", peer, text);
    }
}

/* ---- Acting ---- */

/* Only the newest counts, and that it comes at once. */
static bool is_bare(trpi_msg_type type) {
    return type == TRPI_MSG_HEARTBEAT_ACK;
}

static void send_message(head *h, uint64_t peer, const trpi_msg *msg) {
    trp_error err;
    log_message("send", peer, msg);
    if (trpi_encode(msg, &h->frame, &err) == TRP_OK) {
        trpi_peers_send(&h->peers, peer, trp_buf_bytes(&h->frame), is_bare(msg->type));
    } else {
        trpi_log(TRPI_ERROR, "encode_failed", "type=%s error=\"%s\"", trpi_msg_name(msg->type),
                 err.message);
    }
}

static void answer_list(head *h, const trpi_cluster_action *action) {
    trp_error err = {0};
    trpi_head_facts facts = {.cluster_id = h->cluster_id,
                             .address = h->address,
                             .now_ns = trpi_now_ns(),
                             .started_ns = h->started_ns,
                             .bad_packets = h->bad_packets};
    trpi_msg msg = {.type = TRPI_MSG_LISTED, .listed = {.request = action->request}};
    trp_buf_clear(&h->json);
    msg.listed.code = trpi_head_list(h->cluster, &facts, action->text, &h->json, &err);
    msg.listed.message = err.message;
    msg.listed.json = trp_buf_bytes(&h->json);
    send_message(h, action->peer, &msg);
    if (h->json.size > LIST_KEPT_BYTES) {
        trp_buf_release(&h->json);
        trp_buf_release(&h->frame);
        malloc_trim(0); /* the rows of ten thousand actors took ten times their text */
    }
}

static void act(head *h, const trpi_cluster_action *action) {
    trpi_watch_event who = {action->kind == TRPI_ACTION_WATCH_NODE, action->id,
                            action->incarnation};
    switch (action->kind) {
    case TRPI_ACTION_SEND:
        send_message(h, action->peer, &action->msg);
        break;
    case TRPI_ACTION_LIST:
        answer_list(h, action);
        break;
    case TRPI_ACTION_WATCH_NODE:
    case TRPI_ACTION_WATCH_CLIENT:
        trpi_watch_add(&h->watch, &who, action->pid, action->text);
        break;
    case TRPI_ACTION_BLOB:
        trpi_head_blobs_take(h->blobs, action->peer, &action->msg, trpi_now_ns());
        break;
    case TRPI_ACTION_STOPPED:
        trpi_log(TRPI_INFO, "all_nodes_gone", "cluster=%s", h->cluster_id);
        h->stop_ns = TRPI_MIN(h->stop_ns, trpi_deadline_ns(FAREWELL_MS));
        break;
    }
}

static void step(head *h, const trpi_cluster_event *event) {
    trpi_cluster_step(h->cluster, event, &h->actions);
    for (size_t i = 0; i < h->actions.count; i++) {
        act(h, &h->actions.items[i]);
    }
}

/* ---- Observing ---- */

/* A stranger can make as many bad packets as he likes, but not as many lines. */
static void note_bad_packet(head *h, uint64_t peer, const trp_error *err) {
    uint64_t now_ns = trpi_now_ns();
    h->bad_packets++;
    if (now_ns - h->bad_logged_ns >= TRPI_NS_PER_S) {
        trpi_log(TRPI_WARN, "bad_packet", "peer=%" PRIu64 " count=%" PRIu64 " error=\"%s\"", peer,
                 h->bad_packets - h->bad_logged, err->message);
        h->bad_logged = h->bad_packets;
        h->bad_logged_ns = now_ns;
    }
}

static void refuse(head *h, uint64_t peer, trp_bytes frame, const trp_error *err) {
    trpi_msg msg = {.type = TRPI_MSG_DONE};
    trpi_msg_type type;
    note_bad_packet(h, peer, err);
    if (!trpi_peek(frame, &type, &msg.done.request) || !trpi_cluster_is_request(type)) {
        return;
    }
    msg.done.code = TRP_EPROTOCOL;
    msg.done.message = err->message;
    send_message(h, peer, &msg);
}

static void take_packet(head *h, const trpi_packet *packet) {
    trpi_msg msg;
    trp_error err;
    uint64_t peer = trpi_peers_number(&h->peers, packet->peer);
    trpi_arena_reset(&h->arena);
    if (trpi_decode(packet->header, &h->arena, &msg, &err) != TRP_OK) {
        refuse(h, peer, packet->header, &err);
    } else {
        log_message("receive", peer, &msg);
        step(h,
             &(trpi_cluster_event){
                 .kind = TRPI_EVENT_MESSAGE, .now_ns = trpi_now_ns(), .peer = peer, .msg = &msg});
    }
    trpi_peers_settle(&h->peers, trpi_cluster_knows(h->cluster, peer));
}

/* True: nothing is left unread. */
static bool take_packets(head *h) {
    for (int i = 0; i < PACKETS_PER_TURN; i++) {
        trpi_packet packet = {0};
        if (trpi_sock_recv(h->sock, &packet) != TRP_OK) {
            return true;
        }
        take_packet(h, &packet);
        trpi_packet_release(&packet);
    }
    return false;
}

static void take_ended_processes(head *h) {
    trpi_watch_event gone;
    while (trpi_watch_next(&h->watch, trpi_now_ns(), &gone)) {
        step(h,
             &(trpi_cluster_event){
                 .kind = gone.is_node ? TRPI_EVENT_NODE_GONE : TRPI_EVENT_CLIENT_GONE,
                 .now_ns = trpi_now_ns(),
                 .id = gone.id,
                 .incarnation = gone.incarnation,
                 .reason = gone.is_node ? "unexpected: its process ended" : "its process ended"});
    }
}

static void stop(head *h, const char *reason) {
    h->stopping = true;
    h->stop_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_STOP_TIMEOUT_MS));
    step(h, &(trpi_cluster_event){
                .kind = TRPI_EVENT_SHUTDOWN, .now_ns = trpi_now_ns(), .reason = reason});
}

static void take_signal(head *h) {
    struct signalfd_siginfo info;
    while (read(h->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        trpi_log(TRPI_INFO, "signal", "number=%u sender=%u", info.ssi_signo, info.ssi_pid);
        if (h->stopping) {
            h->stop_ns = 0; /* asked twice: at once */
        } else {
            stop(h, info.ssi_signo == SIGINT ? "SIGINT to the head" : "SIGTERM to the head");
        }
    }
}

/* Peers that the machine has given up. */
static void forget_peers(head *h) {
    uint64_t number = 0;
    while (trpi_peers_next(&h->peers, &number)) {
        if (!trpi_cluster_knows(h->cluster, number)) {
            trpi_peers_forget(&h->peers, number);
        }
    }
}

static void tick(head *h) {
    step(h, &(trpi_cluster_event){.kind = TRPI_EVENT_TICK, .now_ns = trpi_now_ns()});
    trpi_head_blobs_tick(h->blobs, trpi_now_ns());
    forget_peers(h);
    /* A HEAD_SHUTDOWN message has put the machine into its end: the deadline begins here. */
    if (!h->stopping && trpi_cluster_is_stopping(h->cluster)) {
        h->stopping = true;
        h->stop_ns =
            TRPI_MIN(h->stop_ns, trpi_deadline_ns(trpi_config(TRPI_CONFIG_STOP_TIMEOUT_MS)));
    }
}

static void run(head *h) {
    trpi_poll_item items[] = {{.sock = h->sock}, {.fd = h->signal_fd}, {.fd = h->watch.epoll_fd}};
    while (trpi_now_ns() < h->stop_ns) {
        uint64_t wake_ns = TRPI_MIN(trpi_cluster_wake_ns(h->cluster), h->stop_ns);
        wake_ns = TRPI_MIN(wake_ns, h->watch.due_ns);
        /* Nothing ready is TRP_ETIMEOUT, and time is looked at below in any case. */
        trp_code polled = trpi_poll(items, TRPI_COUNTOF(items), trpi_left_ms(wake_ns));
        bool all_read = take_packets(h);
        if (polled == TRP_OK && items[1].ready) {
            take_signal(h);
        }
        take_ended_processes(h);
        /* A tick that comes late for this is a stall to the machine, and puts off its verdicts. */
        if (all_read && trpi_now_ns() >= trpi_cluster_wake_ns(h->cluster)) {
            tick(h);
        }
    }
}

/* ---- Files by their content: what their store asks of the rest ---- */

static void send_blob(void *arg, uint64_t peer, const trpi_msg *msg) {
    head *h = arg;
    send_message(h, peer, msg);
    if (h->frame.size > PART_KEPT_BYTES) {
        trp_buf_release(&h->frame);
    }
}

static uint64_t blob_holder(void *arg, const char *hash, uint64_t job) {
    const head *h = arg;
    return trpi_cluster_holder(h->cluster, hash, job);
}

static bool blob_is_used(void *arg, const char *hash) {
    const head *h = arg;
    return trpi_cluster_uses(h->cluster, hash);
}

static void open_blobs(head *h) {
    trpi_head_blobs_calls calls = {
        .send = send_blob, .holder = blob_holder, .is_used = blob_is_used, .arg = h};
    h->blobs = trpi_head_blobs_new(h->pidfile.dir, &calls);
}

/* ---- Beginning and end ---- */

static void tell_ready(int fd, const char *line) {
    if (fd >= 0) {
        ssize_t written = write(fd, line, strlen(line));
        if (written < 0) {
            trpi_log(TRPI_WARN, "ready_unheard", "error=\"%s\"", strerror(errno));
        }
        close(fd);
    }
}

static trpi_cluster_config config_of(const head *h) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.cluster = h->cluster_id;
    config.host_id = h->host_id;
    config.address = strncmp(h->address, "0.0.0.0:", 8) == 0 ? "" : h->address;
    config.seed = trpi_random_u64();
    config.heartbeat_ms = trpi_config(TRPI_CONFIG_HEARTBEAT_MS);
    config.node_timeout_ms = trpi_config(TRPI_CONFIG_NODE_TIMEOUT_MS);
    config.client_timeout_ms = trpi_config(TRPI_CONFIG_CLIENT_TIMEOUT_MS);
    config.start_timeout_ms = trpi_config(TRPI_CONFIG_START_TIMEOUT_MS);
    config.restart_backoff_ms = trpi_config(TRPI_CONFIG_RESTART_BACKOFF_MS);
    config.restart_backoff_max_ms = trpi_config(TRPI_CONFIG_RESTART_BACKOFF_MAX_MS);
    config.restart_forget_ms = trpi_config(TRPI_CONFIG_RESTART_FORGET_MS);
    config.reserve_after_ms = trpi_config(TRPI_CONFIG_RESERVE_AFTER_MS);
    config.saved_bytes_max = trpi_config(TRPI_CONFIG_SAVED_BYTES_MAX);
    config.dead_actors_kept = trpi_config(TRPI_CONFIG_DEAD_ACTORS_KEPT);
    config.tick_ms = TRPI_MAX(TRPI_MIN(config.heartbeat_ms, config.node_timeout_ms / 8) / 4, 1U);
    return config;
}

/* With a timeout that no heartbeat can meet everybody would be dead, again and again. */
static trp_code check_timeouts(trp_error *err) {
    static const trpi_setting timeouts[] = {TRPI_CONFIG_NODE_TIMEOUT_MS,
                                            TRPI_CONFIG_CLIENT_TIMEOUT_MS};
    uint64_t heartbeat_ms = trpi_config(TRPI_CONFIG_HEARTBEAT_MS);
    for (size_t i = 0; i < TRPI_COUNTOF(timeouts); i++) {
        uint64_t timeout_ms = trpi_config(timeouts[i]);
        if (timeout_ms < HEARTBEATS_PER_TIMEOUT * heartbeat_ms) {
            return trpi_fail(
                err, TRP_EINVALID,
                "TROUPE_%s=%" PRIu64 " is less than %d times TROUPE_HEARTBEAT_MS=%" PRIu64
                ": raise it, or lower the other",
                trpi_config_name(timeouts[i]), timeout_ms, HEARTBEATS_PER_TIMEOUT, heartbeat_ms);
        }
    }
    return TRP_OK;
}

static trp_code open_signals(head *h, trp_error *err) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* the terminal that started a daemon may close */
    h->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return h->signal_fd < 0 ? trpi_fail(err, TRP_EIO, "signalfd: %s", strerror(errno)) : TRP_OK;
}

static trp_code open_socket(head *h, const trpi_head_options *options, trp_error *err) {
    char endpoint[160], actual[160] = "";
    const char *host = options->host ? options->host : "127.0.0.1";
    if (options->port) {
        trpi_format(endpoint, sizeof(endpoint), "tcp://%s:%u", host, options->port);
    } else {
        trpi_format(endpoint, sizeof(endpoint), "tcp://%s:*", host);
    }
    (void)trpi_descriptors_raise(); /* a connection for each node, driver and tool */
    trp_code code = trpi_net_open(&h->net, err);
    if (code == TRP_OK) {
        code = trpi_sock_open(h->net, TRPI_ROUTER_MIXED, (trp_bytes){0}, &h->sock, err);
    }
    if (code == TRP_OK) {
        code = trpi_sock_bind(h->sock, endpoint, actual, sizeof(actual), err);
    }
    if (code == TRP_OK) {
        const char *scheme_end = strstr(actual, "://");
        TRPI_SET(h->address, scheme_end ? scheme_end + 3 : actual);
        h->peers.sock = h->sock;
    }
    return code;
}

static trp_code write_pidfile(head *h, trp_error *err) {
    char root[128];
    trp_code code = trpi_session_root(root, sizeof(root), err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(h->pidfile.path, sizeof(h->pidfile.path), "%s/%.8s/head.pid", root, h->cluster_id);
    /* Who sweeps after a killed head finds its files by this. */
    trpi_format(h->pidfile.dir, sizeof(h->pidfile.dir), "%s/%.8s/head-files", root, h->cluster_id);
    h->pidfile.pid = getpid();
    h->pidfile.start_time = trpi_process_start_time(h->pidfile.pid);
    TRPI_SET(h->pidfile.role, "head");
    TRPI_SET(h->pidfile.address, h->address);
    TRPI_SET(h->pidfile.cluster, h->cluster_id);
    code = trpi_pidfile_write(&h->pidfile, err);
    if (code != TRP_OK) {
        h->pidfile.path[0] = '\0';
    }
    return code;
}

static trp_code open_head(head *h, const trpi_head_options *options, trp_error *err) {
    trp_code code = trpi_config_load(err);
    if (code == TRP_OK) {
        code = check_timeouts(err);
    }
    if (code == TRP_OK) {
        code = open_signals(h, err);
    }
    if (code == TRP_OK) {
        code = trpi_watch_open(&h->watch, err);
    }
    if (code == TRP_OK) {
        code = open_socket(h, options, err);
    }
    if (code == TRP_OK) {
        code = write_pidfile(h, err);
    }
    if (code == TRP_OK) {
        trpi_cluster_config config = config_of(h);
        h->cluster = trpi_cluster_new(&config);
        open_blobs(h);
    }
    return code;
}

static void close_head(head *h) {
    trpi_head_blobs_free(h->blobs);
    trpi_cluster_free(h->cluster);
    trpi_actions_release(&h->actions);
    trpi_peers_release(&h->peers);
    if (h->watch.epoll_fd >= 0) {
        trpi_watch_close(&h->watch);
    }
    trpi_sock_close(h->sock);
    trpi_net_close(h->net);
    trpi_pidfile_remove(&h->pidfile);
    if (h->signal_fd >= 0) {
        close(h->signal_fd);
    }
    trpi_arena_release(&h->arena);
    trp_buf_release(&h->frame);
    trp_buf_release(&h->json);
}

int trpi_head_main(const trpi_head_options *options) {
    head h = {.signal_fd = -1, .watch.epoll_fd = -1, .stop_ns = UINT64_MAX};
    trp_error err = {0};
    char line[1024];
    trpi_log_set_who("head");
    trpi_uuid(h.cluster_id);
    trpi_host_id(h.host_id, sizeof(h.host_id));
    h.started_ns = trpi_now_ns();
    h.arena.limit = FRAME_ARENA_MAX;
    trp_code code = open_head(&h, options, &err);
    if (code == TRP_OK) {
        trpi_log(TRPI_INFO, "head_ready", "address=%s cluster=%s", h.address, h.cluster_id);
        trpi_format(line, sizeof(line), "%s %s\n", h.address, h.cluster_id);
        tell_ready(options->ready_fd, line);
        run(&h);
        trpi_log(TRPI_INFO, "head_ends", "cluster=%s", h.cluster_id);
    } else {
        trpi_log(TRPI_ERROR, "head_failed", "error=\"%s\"", err.message);
        trpi_format(line, sizeof(line), "error: %s\n", err.message);
        tell_ready(options->ready_fd, line);
    }
    close_head(&h);
    return code == TRP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

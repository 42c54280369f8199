#include "actors/proc/store_server.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/proc/store_parts.h"
#include "actors/proc/store_sources.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/base/times.h"
#include "core/net/clock.h"
#include "core/sys/memfd.h"

#define CHUNKS_IN_FLIGHT 4 /* of 1 MiB: more does not make a link faster, and takes memory */
#define STALL_MS 2000
#define EVENTS_PER_ROUND 64

/* ---- Memory ---- */

static void note_failure(trpi_store_server *server, uint64_t segment, const trp_error *error) {
    server->failed_segment = segment;
    server->failure = *error;
    trpi_log(TRPI_WARN, "store_memory_failed", "error=\"%s\"", error->message);
}

static void make_memory(trpi_store_server *server, const trpi_store_action *action) {
    trp_error err = {0};
    int fd;
    if (trpi_memfd_new(action->bytes, &fd, &err) != TRP_OK) {
        note_failure(server, action->segment, &err);
        return;
    }
    trpi_store_memory *memory = trpi_alloc(sizeof(*memory));
    memory->fd = fd;
    memory->bytes = action->bytes;
    trpi_map_set(&server->memory, action->segment, memory);
}

static void free_memory(trpi_store_server *server, const trpi_store_action *action) {
    trpi_store_memory *memory = trpi_map_get(&server->memory, action->segment);
    if (memory == NULL) {
        return;
    }
    if (action->clean) { /* a process may have it mapped still, to be quick the next time */
        trpi_memfd_cut(memory->fd, memory->bytes);
    }
    close(memory->fd);
    trpi_map_remove(&server->memory, action->segment);
    free(memory);
}

static void write_memory(trpi_store_server *server, const trpi_store_action *action,
                         trp_bytes body) {
    const trpi_store_memory *memory = trpi_map_get(&server->memory, action->segment);
    trp_error err = {0};
    if (memory != NULL && trpi_memfd_write(memory->fd, action->offset, body, &err) != TRP_OK) {
        note_failure(server, action->segment, &err);
    }
}

/* ---- Steps ---- */

static void perform(trpi_store_server *server, const trpi_store_action *action, trp_bytes body) {
    switch (action->kind) {
    case TRPI_STORE_ANSWER:
        trpi_store_session_answer(server, action);
        break;
    case TRPI_STORE_REFUSE:
        trpi_store_session_refuse(server, action);
        break;
    case TRPI_STORE_ASK:
        trpi_store_link_ask(server, action);
        break;
    case TRPI_STORE_REPLY:
        trpi_store_link_reply(server, action);
        break;
    case TRPI_STORE_FIND:
        trpi_store_link_find(server, action->node);
        break;
    case TRPI_STORE_MAKE:
        make_memory(server, action);
        break;
    case TRPI_STORE_FREE:
        free_memory(server, action);
        break;
    case TRPI_STORE_WRITE:
        write_memory(server, action, body);
        break;
    }
}

void trpi_store_feed(trpi_store_server *server, trpi_store_event *event, trp_bytes body) {
    event->now_ns = trpi_now_ns();
    trpi_store_step(server->machine, event, &server->actions);
    for (size_t i = 0; i < server->actions.count; i++) {
        perform(server, &server->actions.items[i], body);
    }
    if (server->failed_segment != 0) {
        trpi_store_event failed = {.kind = TRPI_STORE_EVENT_FAILED,
                                   .segment = server->failed_segment,
                                   .code = server->failure.code,
                                   .reason = server->failure.message};
        server->failed_segment = 0;
        trpi_store_feed(server, &failed, (trp_bytes){0});
    }
}

/* ---- The thread ---- */

/* What the head has said. A node that is dead is not connected to any more. */
static void take_told(trpi_store_server *server, trp_bytes frame) {
    trpi_msg msg;
    trp_error err = {0};
    trpi_arena_reset(&server->arena);
    if (trpi_decode(frame, &server->arena, &msg, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "message_invalid", "from=head error=\"%s\"", err.message);
        return;
    }
    if (msg.type == TRPI_MSG_STORE_AT) {
        msg.store_at.node = msg.store_at.request; /* which we asked for, whatever became of it */
        trpi_store_link_found(server, &msg.store_at);
    }
    if (msg.type == TRPI_MSG_NODE_GONE) {
        trpi_store_link_drop(server, msg.node_gone.node);
        trpi_store_asker_gone(server, msg.node_gone.node, msg.node_gone.incarnation);
    } else if (msg.type == TRPI_MSG_STORE_AT && msg.store_at.code == TRP_ENOTFOUND) {
        trpi_store_link_drop(server, msg.store_at.node);
    }
    trpi_store_event event = {.kind = TRPI_STORE_EVENT_HEAD, .msg = &msg};
    trpi_store_feed(server, &event, (trp_bytes){0});
}

static void take_all_told(trpi_store_server *server) {
    eventfd_t count;
    (void)!eventfd_read(server->told_fd, &count);
    pthread_mutex_lock(&server->lock);
    trpi_store_frames told = server->told;
    server->told = (trpi_store_frames){0};
    pthread_mutex_unlock(&server->lock);
    for (size_t i = 0; i < told.count; i++) {
        take_told(server, trp_buf_bytes(&told.items[i]));
    }
    trpi_store_frames_release(&told);
}

static void take_events(trpi_store_server *server) {
    struct epoll_event events[EVENTS_PER_ROUND];
    int count = epoll_wait(server->epoll_fd, events, EVENTS_PER_ROUND, 0);
    for (int i = 0; i < count; i++) {
        uint64_t id = events[i].data.u64 & ((UINT64_C(1) << TRPI_STORE_SOURCE_SHIFT) - 1);
        switch ((trpi_store_source)(events[i].data.u64 >> TRPI_STORE_SOURCE_SHIFT)) {
        case TRPI_STORE_SOURCE_LISTENER:
            trpi_store_accept(server);
            break;
        case TRPI_STORE_SOURCE_TOLD:
            take_all_told(server);
            break;
        case TRPI_STORE_SOURCE_SESSION:
            trpi_store_session_ready(server, id, events[i].events);
            break;
        case TRPI_STORE_SOURCE_PROCESS:
            trpi_store_session_died(server, id);
            break;
        }
    }
}

static bool tell_figures(trpi_store_server *server) {
    trpi_store_figures figures = trpi_store_count(server->machine);
    pthread_mutex_lock(&server->lock);
    server->figures = figures;
    bool must_stop = server->must_stop;
    pthread_mutex_unlock(&server->lock);
    return !must_stop;
}

static void *store_main(void *arg) {
    trpi_store_server *server = arg;
    while (tell_figures(server)) {
        trpi_poll_item items[] = {
            {.fd = server->epoll_fd}, {.sock = server->serving}, {.sock = server->asking}};
        uint64_t wake_ns = trpi_store_wake_ns(server->machine);
        (void)!trpi_poll(items, TRPI_COUNTOF(items), trpi_left_ms(wake_ns));
        take_events(server);
        trpi_store_links_read(server);
        trpi_store_sessions_reap(server);
        if (trpi_now_ns() >= trpi_store_wake_ns(server->machine)) {
            trpi_store_event event = {.kind = TRPI_STORE_EVENT_TICK};
            trpi_store_feed(server, &event, (trp_bytes){0});
        }
    }
    return NULL;
}

/* ---- Beginning and end ---- */

static void free_all_memory(trpi_store_server *server) {
    size_t cursor = 0;
    trpi_store_memory *memory;
    while ((memory = trpi_map_next(&server->memory, &cursor)) != NULL) {
        close(memory->fd);
        free(memory);
    }
    trpi_map_release(&server->memory);
}

static void dispose(trpi_store_server *server) {
    trpi_store_sessions_close(server);
    trpi_store_links_close(server);
    free_all_memory(server);
    trpi_store_free(server->machine);
    trpi_store_actions_release(&server->actions);
    trpi_store_frames_release(&server->told);
    trpi_store_frames_release(&server->words);
    trpi_arena_release(&server->arena);
    trp_buf_release(&server->frame);
    trp_buf_release(&server->received);
    if (server->told_fd >= 0) {
        close(server->told_fd);
    }
    if (server->epoll_fd >= 0) {
        close(server->epoll_fd);
    }
    pthread_mutex_destroy(&server->lock);
    free(server);
}

static trpi_store_config machine_config(const trpi_store_options *options) {
    uint64_t descriptors = TRPI_MAX(options->descriptors_max, (size_t)16);
    return (trpi_store_config){
        .capacity = options->capacity,
        .segments_max = descriptors / 2,
        .spare_bytes = options->capacity / 2,
        .spare_ns = trpi_config(TRPI_CONFIG_STORE_SPARE_MS) * TRPI_NS_PER_MS,
        .chunk_bytes = trpi_config(TRPI_CONFIG_STORE_CHUNK_BYTES),
        .chunks_in_flight = CHUNKS_IN_FLIGHT,
        .stall_ns = STALL_MS * TRPI_NS_PER_MS,
        .request_ns = trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS) * TRPI_NS_PER_MS,
        .serial = options->serial,
    };
}

trp_code trpi_store_open(const trpi_store_options *options, trpi_store_server **ret_server,
                         trp_error *err) {
    trpi_store_server *server = trpi_alloc(sizeof(*server));
    pthread_mutex_init(&server->lock, NULL);
    server->listen_fd = -1;
    server->config = machine_config(options);
    server->descriptors_max = options->descriptors_max;
    server->event_fd = options->event_fd;
    trpi_format(server->path, sizeof(server->path), "@troupe-%s", options->uuid);
    server->told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    trp_code code = TRP_OK;
    if (server->told_fd < 0 || server->epoll_fd < 0) {
        code = trpi_fail(err, TRP_EBUSY, "object store: %s", strerror(errno));
    }
    if (code == TRP_OK) {
        code = trpi_store_sessions_open(server, err);
    }
    if (code == TRP_OK) {
        code = trpi_store_links_open(server, options->uuid, options->host, err);
    }
    if (code != TRP_OK) {
        dispose(server);
        return code;
    }
    server->figures.capacity = options->capacity;
    server->figures.serial = options->serial;
    *ret_server = server;
    return TRP_OK;
}

const char *trpi_store_path(const trpi_store_server *server) {
    return server->path;
}

const char *trpi_store_endpoint(const trpi_store_server *server) {
    return server->endpoint;
}

trp_code trpi_store_serve(trpi_store_server *server, uint64_t node, uint64_t incarnation,
                          trp_error *err) {
    server->config.node = node;
    server->config.incarnation = incarnation;
    trp_code code = trpi_store_links_serve(server, err);
    if (code != TRP_OK) {
        return code;
    }
    server->machine = trpi_store_new(&server->config);
    sigset_t all, before; /* signals are the loop's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&server->thread, NULL, store_main, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return trpi_fail(err, TRP_EBUSY, "object store: thread: %s", strerror(error));
    }
    server->is_running = true;
    return TRP_OK;
}

uint64_t trpi_store_stop(trpi_store_server *server) {
    if (server == NULL) {
        return 0;
    }
    if (server->is_running) {
        pthread_mutex_lock(&server->lock);
        server->must_stop = true;
        pthread_mutex_unlock(&server->lock);
        (void)!eventfd_write(server->told_fd, 1);
        pthread_join(server->thread, NULL);
    }
    uint64_t serial =
        server->machine != NULL ? trpi_store_count(server->machine).serial : server->config.serial;
    dispose(server);
    return serial;
}

/* store_sessions.c: connections of this host's processes to the store. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/proc/store_parts.h"
#include "actors/proc/store_sources.h"
#include "core/base/log.h"
#include "core/sys/fdpass.h"
#include "core/sys/memfd.h"
#include "core/sys/process.h"

#define UNSENT_MAX 16384      /* answers that a process may leave unread */
#define MESSAGES_PER_ROUND 64 /* of one process, so that it starves nobody */
#define SESSION_DESCRIPTORS ((size_t)2)

static trp_code watch(trpi_store_server *server, int fd, unsigned events, trpi_store_source source,
                      uint64_t id, int operation, trp_error *err) {
    struct epoll_event event = {.events = events, .data.u64 = trpi_store_tag(source, id)};
    if (epoll_ctl(server->epoll_fd, operation, fd, &event) != 0) {
        return trpi_fail(err, TRP_EIO, "epoll: %s", strerror(errno));
    }
    return TRP_OK;
}

trp_code trpi_store_sessions_open(trpi_store_server *server, trp_error *err) {
    trp_code code = trpi_seqpacket_listen(server->path, &server->listen_fd, err);
    if (code == TRP_OK) {
        code = watch(server, server->listen_fd, EPOLLIN, TRPI_STORE_SOURCE_LISTENER, 0,
                     EPOLL_CTL_ADD, err);
    }
    if (code == TRP_OK) {
        code =
            watch(server, server->told_fd, EPOLLIN, TRPI_STORE_SOURCE_TOLD, 0, EPOLL_CTL_ADD, err);
    }
    return code;
}

static void free_unsent(trpi_store_session *session) {
    while (session->first != NULL) {
        trpi_store_unsent *next = session->first->next;
        trp_buf_release(&session->first->frame);
        free(session->first);
        session->first = next;
    }
    session->last = NULL;
    session->unsent = 0;
}

static void close_session(trpi_store_session *session) {
    free_unsent(session);
    close(session->fd);
    if (session->pidfd >= 0) {
        close(session->pidfd);
    }
    free(session);
}

void trpi_store_sessions_close(trpi_store_server *server) {
    size_t cursor = 0;
    trpi_store_session *session;
    while ((session = trpi_map_next(&server->sessions, &cursor)) != NULL) {
        close_session(session);
    }
    trpi_map_release(&server->sessions);
    if (server->listen_fd >= 0) {
        close(server->listen_fd);
        server->listen_fd = -1;
    }
}

size_t trpi_store_descriptors(trpi_store_server *server) {
    trpi_store_figures figures = trpi_store_server_figures(server);
    return figures.segments + figures.sessions * SESSION_DESCRIPTORS + 16; /* its sockets */
}

/* ---- Coming and going ---- */

/* A copy of the socket may live on in a forked child, so the process itself is watched, too. */
static trp_code add_session(trpi_store_server *server, int fd, pid_t pid, trp_error *err) {
    trpi_store_session *session = trpi_alloc(sizeof(*session));
    session->id = ++server->last_session;
    session->fd = fd;
    session->pidfd = trpi_pidfd_open(pid);
    trp_code code = session->pidfd < 0
                        ? trpi_fail(err, TRP_ENOTFOUND, "pid %d is gone, or not in sight", (int)pid)
                        : watch(server, fd, EPOLLIN, TRPI_STORE_SOURCE_SESSION, session->id,
                                EPOLL_CTL_ADD, err);
    if (code == TRP_OK) {
        code = watch(server, session->pidfd, EPOLLIN, TRPI_STORE_SOURCE_PROCESS, session->id,
                     EPOLL_CTL_ADD, err);
    }
    if (code != TRP_OK) {
        close_session(session);
        return code;
    }
    trpi_map_set(&server->sessions, session->id, session);
    trpi_store_event event = {.kind = TRPI_STORE_EVENT_OPEN, .session = session->id, .pid = pid};
    trpi_store_feed(server, &event, (trp_bytes){0});
    return TRP_OK;
}

void trpi_store_accept(trpi_store_server *server) {
    int fd;
    pid_t pid;
    uid_t uid;
    trp_error err = {0};
    trp_code code;
    while ((code = trpi_seqpacket_accept(server->listen_fd, &fd, &pid, &uid, &err)) == TRP_OK) {
        if (uid != geteuid()) {
            close(fd);
            code = trpi_fail(&err, TRP_EINVALID, "pid %d is of user %u", (int)pid, (unsigned)uid);
        } else if ((server->sessions.count + 1) * SESSION_DESCRIPTORS >
                   server->descriptors_max / 2) {
            close(fd);
            code = trpi_fail(&err, TRP_EBUSY, "no descriptors left (ulimit -n)");
        } else {
            code = add_session(server, fd, pid, &err);
        }
        if (code != TRP_OK && trpi_log_is_due(&server->refused)) {
            trpi_log(TRPI_WARN, "store_client_refused", "reason=\"%s\"", err.message);
        }
    }
    if (code != TRP_ETIMEOUT && trpi_log_is_due(&server->refused)) {
        trpi_log(TRPI_WARN, "store_accept_failed", "error=\"%s\"", err.message);
    }
}

static void end_session(trpi_store_server *server, trpi_store_session *session) {
    trpi_store_event event = {.kind = TRPI_STORE_EVENT_SHUT, .session = session->id};
    (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, session->fd, NULL);
    (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, session->pidfd, NULL);
    trpi_map_remove(&server->sessions, session->id);
    close_session(session);
    trpi_store_feed(server, &event, (trp_bytes){0});
}

void trpi_store_session_died(trpi_store_server *server, uint64_t id) {
    trpi_store_session *session = trpi_map_get(&server->sessions, id);
    if (session != NULL) {
        end_session(server, session);
    }
}

void trpi_store_session_refuse(trpi_store_server *server, const trpi_store_action *action) {
    trpi_store_session *session = trpi_map_get(&server->sessions, action->session);
    if (session != NULL) {
        session->is_refused = true;
        server->has_refused = true;
        if (trpi_log_is_due(&server->refused)) {
            trpi_log(TRPI_WARN, "store_client_refused", "reason=\"%s\"", action->reason);
        }
    }
}

void trpi_store_sessions_reap(trpi_store_server *server) {
    while (server->has_refused) {
        server->has_refused = false;
        size_t cursor = 0;
        trpi_store_session *session;
        while ((session = trpi_map_next(&server->sessions, &cursor)) != NULL) {
            if (session->is_refused) {
                server->has_refused = true; /* the map changes: from the beginning again */
                end_session(server, session);
                break;
            }
        }
    }
}

/* ---- Answers ---- */

/* TRP_EBUSY: no room now. */
static trp_code send_one(trpi_store_server *server, const trpi_store_session *session,
                         trp_bytes frame, uint64_t segment, bool writable, trp_error *err) {
    const trpi_store_memory *memory = segment ? trpi_map_get(&server->memory, segment) : NULL;
    int fd = -1;
    trp_code code = TRP_OK;
    if (segment != 0 && memory == NULL) {
        return trpi_fail(err, TRP_ENOTFOUND, "its memory is gone");
    }
    if (memory != NULL && writable) {
        fd = memory->fd;
    } else if (memory != NULL) {
        code = trpi_memfd_reader(memory->fd, &fd, err);
    }
    if (code == TRP_OK) {
        code = trpi_fd_send(session->fd, frame, &fd, memory != NULL, err);
    }
    if (memory != NULL && !writable && fd >= 0) {
        close(fd);
    }
    return code;
}

static void queue(trpi_store_server *server, trpi_store_session *session, trp_bytes frame,
                  uint64_t segment, bool writable) {
    trpi_store_unsent *unsent = trpi_alloc(sizeof(*unsent));
    unsent->segment = segment;
    unsent->writable = writable;
    trp_error err;
    if (session->unsent >= UNSENT_MAX ||
        trp_buf_append(&unsent->frame, frame.data, frame.size) != TRP_OK ||
        watch(server, session->fd, EPOLLIN | EPOLLOUT, TRPI_STORE_SOURCE_SESSION, session->id,
              EPOLL_CTL_MOD, &err) != TRP_OK) {
        trp_buf_release(&unsent->frame);
        free(unsent);
        session->is_refused = server->has_refused = true;
        return;
    }
    *(session->last != NULL ? &session->last->next : &session->first) = unsent;
    session->last = unsent;
    session->unsent++;
}

void trpi_store_session_answer(trpi_store_server *server, const trpi_store_action *action) {
    trpi_store_session *session = trpi_map_get(&server->sessions, action->session);
    trpi_msg msg = action->msg;
    uint64_t segment = action->segment;
    trp_error err = {0};
    if (session == NULL || session->is_refused) {
        return;
    }
    if (segment != 0 && segment == server->failed_segment) { /* the machine hears of it next */
        segment = 0;
        msg.store_created.code = server->failure.code;
        msg.store_created.message = server->failure.message;
    }
    trp_code code = trpi_encode(&msg, &server->frame, &err);
    if (code == TRP_OK && session->first == NULL) {
        code = send_one(server, session, trp_buf_bytes(&server->frame), segment, action->writable,
                        &err);
    } else if (code == TRP_OK) {
        code = TRP_EBUSY;
    }
    if (code == TRP_EBUSY) {
        queue(server, session, trp_buf_bytes(&server->frame), segment, action->writable);
    } else if (code != TRP_OK) {
        session->is_refused = server->has_refused = true;
    }
}

static void send_unsent(trpi_store_server *server, trpi_store_session *session) {
    trp_error err;
    trp_code code = TRP_OK;
    while (session->first != NULL && code == TRP_OK) {
        trpi_store_unsent *unsent = session->first;
        code = send_one(server, session, trp_buf_bytes(&unsent->frame), unsent->segment,
                        unsent->writable, &err);
        if (code == TRP_OK) {
            session->first = unsent->next;
            session->last = session->first != NULL ? session->last : NULL;
            session->unsent--;
            trp_buf_release(&unsent->frame);
            free(unsent);
        }
    }
    if (code == TRP_OK) {
        code = watch(server, session->fd, EPOLLIN, TRPI_STORE_SOURCE_SESSION, session->id,
                     EPOLL_CTL_MOD, &err);
    }
    if (code != TRP_OK && code != TRP_EBUSY) {
        session->is_refused = server->has_refused = true;
    }
}

/* ---- Requests ---- */

/* False when the connection is at its end. */
static bool read_one(trpi_store_server *server, trpi_store_session *session, bool *ret_more) {
    int fds[8];
    size_t fd_count = 0;
    trpi_msg msg;
    trp_error err = {0};
    trp_buf_clear(&server->received);
    trp_code code =
        trpi_fd_recv(session->fd, &server->received, fds, TRPI_COUNTOF(fds), &fd_count, &err);
    *ret_more = code == TRP_OK;
    if (code == TRP_ETIMEOUT) {
        return true;
    }
    for (size_t i = 0; i < fd_count; i++) {
        close(fds[i]); /* nobody sends us any */
    }
    trpi_arena_reset(&server->arena);
    if (code == TRP_OK) {
        code = trpi_decode(trp_buf_bytes(&server->received), &server->arena, &msg, &err);
    }
    if (code != TRP_OK) {
        if (code != TRP_EDISCONNECTED && trpi_log_is_due(&server->refused)) {
            trpi_log(TRPI_WARN, "message_invalid", "from=client error=\"%s\" refused=%llu",
                     err.message, (unsigned long long)server->refused);
        }
        return false;
    }
    trpi_store_event event = {
        .kind = TRPI_STORE_EVENT_MESSAGE, .session = session->id, .msg = &msg};
    trpi_store_feed(server, &event, (trp_bytes){0});
    return true;
}

void trpi_store_session_ready(trpi_store_server *server, uint64_t id, unsigned events) {
    trpi_store_session *session = trpi_map_get(&server->sessions, id);
    if (session == NULL) {
        return;
    }
    if (events & EPOLLOUT) {
        send_unsent(server, session);
    }
    bool more = true;
    for (int i = 0; i < MESSAGES_PER_ROUND && more && !session->is_refused; i++) {
        if (!read_one(server, session, &more)) {
            end_session(server, session);
            return;
        }
    }
}

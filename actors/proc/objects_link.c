/* objects_link.c: the connection to the store. There is no thread for it: of the threads that wait
 * for an answer one reads the socket, for all; when it has its own, another one takes its place. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/objects_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/fdpass.h"

#define PATH_MAX_BYTES 128
/* The store itself says that a time is over; only when it does not, we do. */
#define GRACE_MS 5000

/* ---- The socket. Locked, but for the waiting ---- */

static void wake_all(trpi_objects *o) {
    for (trpi_asked *asked = o->asked; asked != NULL; asked = asked->next) {
        pthread_cond_signal(&asked->wake);
    }
}

/* A thread may be about to wait at it: then the last one closes it. */
static void close_if_broken(trpi_objects *o) {
    if (o->is_broken && o->users == 0 && o->fd >= 0) {
        close(o->fd);
        o->fd = -1;
        o->is_broken = false;
        pthread_cond_broadcast(&o->changed);
    }
}

static void break_off(trpi_objects *o, const char *reason) {
    if (o->fd < 0 || o->is_broken) {
        return;
    }
    o->is_broken = true;
    o->life++;
    (void)shutdown(o->fd, SHUT_RDWR); /* wakes who waits at it */
    while (o->asked != NULL) {
        trpi_asked *asked = o->asked;
        o->asked = asked->next;
        trpi_fail(&asked->error, TRP_ENODE_DIED, "the object store of this host: %s", reason);
        asked->is_over = true;
        pthread_cond_signal(&asked->wake);
    }
    close_if_broken(o);
}

bool trpi_objects_is_cut(trpi_objects *o) {
    struct pollfd item = {.fd = o->fd, .events = 0};
    return o->fd < 0 || o->is_broken ||
           (poll(&item, 1, 0) == 1 && (item.revents & (POLLHUP | POLLERR)) != 0);
}

static trp_code send_frame(trpi_objects *o, const trpi_msg *msg, trp_error *err) {
    trp_code code = trpi_encode(msg, &o->frame, err);
    if (code == TRP_OK) {
        code = trpi_fd_send(o->fd, trp_buf_bytes(&o->frame), NULL, 0, err);
    }
    if (code != TRP_OK) {
        break_off(o, "it has closed the connection");
    }
    return code;
}

void trpi_objects_post(trpi_objects *o, const trpi_msg *msg) {
    trp_error err;
    if (o->fd >= 0 && !o->is_broken) {
        (void)!send_frame(o, msg, &err);
    }
}

/* ---- Connecting ---- */

static trp_code say_hello(trpi_objects *o, uint64_t client, trp_error *err) {
    trpi_msg msg = {
        .type = TRPI_MSG_STORE_HELLO,
        .store_hello = {.version = TROUPE_VERSION, .client = client, .label = o->label}};
    trp_code code = send_frame(o, &msg, err);
    o->client = code == TRP_OK ? client : 0;
    return code;
}

/* Nothing of it is lost when it stops in the middle: messages come whole. */
static trp_code open_socket(const char *path, int *ret_fd, trp_error *err) {
    struct timeval limit = {.tv_sec =
                                (time_t)(trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS) / 1000 + 1)};
    trp_code code = trpi_seqpacket_connect(path, ret_fd, err);
    if (code == TRP_OK) {
        (void)setsockopt(*ret_fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    }
    return code;
}

/* Finds the store without the lock, since that asks the head. */
static trp_code open_connection(trpi_objects *o, trp_error *err) {
    char path[PATH_MAX_BYTES];
    int fd = -1;
    pthread_mutex_unlock(&o->lock);
    trp_code code = o->options.find(o->options.arg, path, sizeof(path), err);
    if (code == TRP_OK) {
        code = open_socket(path, &fd, err);
    }
    uint64_t client = o->options.client(o->options.arg);
    pthread_mutex_lock(&o->lock);
    if (code != TRP_OK) {
        return code;
    }
    o->fd = fd;
    o->life++;
    trpi_maps_expire(&o->maps, UINT64_MAX); /* another store counts its memory from 1 again */
    return say_hello(o, client, err);
}

/* Locked on return with TRP_OK. */
static trp_code ensure_connected(trpi_objects *o, trp_error *err) {
    uint64_t client = o->options.client(o->options.arg);
    trp_code code = TRP_OK;
    pthread_mutex_lock(&o->lock);
    while (o->is_connecting || o->is_broken) { /* both end, in the time of a request */
        pthread_cond_wait(&o->changed, &o->lock);
    }
    if (o->fd >= 0 && o->asked == NULL && !o->is_led && trpi_objects_is_cut(o)) {
        break_off(o, "it is gone");
    }
    if (o->fd < 0) {
        o->is_connecting = true;
        code = open_connection(o, err);
        o->is_connecting = false;
        pthread_cond_broadcast(&o->changed);
    } else if (client != o->client) {
        code = say_hello(o, client, err);
    }
    if (code != TRP_OK) {
        pthread_mutex_unlock(&o->lock);
    }
    return code;
}

trp_code trpi_objects_connect(trpi_objects *o, trp_error *err) {
    trp_code code = ensure_connected(o, err);
    if (code == TRP_OK) {
        pthread_mutex_unlock(&o->lock);
    }
    return code;
}

void trpi_objects_disconnect(trpi_objects *o) {
    break_off(o, "this process has closed the connection");
}

/* ---- Answers ---- */

void trpi_asked_release(trpi_asked *asked) {
    if (asked->fd >= 0) {
        close(asked->fd);
        asked->fd = -1;
    }
    trp_buf_release(&asked->frame);
    trpi_arena_release(&asked->arena);
}

/* Nobody waits for it any more: what it gave us is given back. */
static void return_unwanted(trpi_objects *o, const trpi_msg *msg) {
    uint64_t object = 0;
    if (msg->type == TRPI_MSG_STORE_CREATED) {
        object = msg->store_created.object;
    } else if (msg->type == TRPI_MSG_STORE_GOT && msg->store_got.code == TRP_OK) {
        object = msg->store_got.object;
    }
    if (object != 0) {
        trpi_msg release = {.type = TRPI_MSG_STORE_RELEASE,
                            .store_release = {.object = object, .count = 1}};
        trpi_objects_post(o, &release);
    }
}

/* Takes the answer. Locked. */
static void hand_over(trpi_objects *o, trpi_asked *answer) {
    if (answer->msg.type == TRPI_MSG_STORE_WELCOME) {
        return;
    }
    uint64_t request = answer->msg.done.request; /* the first field of every answer */
    if (answer->msg.type == TRPI_MSG_DONE && request == 0) {
        break_off(o, answer->msg.done.message);
        return;
    }
    trpi_asked **link = &o->asked;
    while (*link != NULL && (*link)->request != request) {
        link = &(*link)->next;
    }
    trpi_asked *asked = *link;
    if (asked == NULL) {
        return_unwanted(o, &answer->msg);
        return;
    }
    *link = asked->next;
    asked->frame = answer->frame;
    asked->arena = answer->arena;
    asked->msg = answer->msg;
    asked->fd = answer->fd;
    asked->is_over = true;
    *answer = (trpi_asked){.fd = -1};
    pthread_cond_signal(&asked->wake);
}

static void read_answer(trpi_objects *o) {
    trpi_asked answer = {.fd = -1};
    trp_error err = {0};
    size_t fd_count = 0;
    trp_code code = trpi_fd_recv(o->fd, &answer.frame, &answer.fd, 1, &fd_count, &err);
    answer.fd = code == TRP_OK && fd_count == 1 ? answer.fd : -1;
    if (code == TRP_OK) {
        code = trpi_decode(trp_buf_bytes(&answer.frame), &answer.arena, &answer.msg, &err);
    }
    pthread_mutex_lock(&o->lock);
    if (code == TRP_OK) {
        hand_over(o, &answer);
    } else {
        break_off(o, code == TRP_EDISCONNECTED ? "the node daemon is gone" : err.message);
    }
    pthread_mutex_unlock(&o->lock);
    trpi_asked_release(&answer);
}

/* Reads one message, or returns when the time is over. Locked before and after. */
static void lead(trpi_objects *o, uint64_t deadline_ns) {
    struct pollfd item = {.fd = o->fd, .events = POLLIN};
    o->is_led = true;
    o->users++;
    pthread_mutex_unlock(&o->lock);
    if (poll(&item, 1, trpi_left_ms(deadline_ns)) == 1) {
        read_answer(o);
    }
    pthread_mutex_lock(&o->lock);
    o->users--;
    o->is_led = false;
    close_if_broken(o);
}

static void take_back(trpi_objects *o, const trpi_asked *asked) {
    trpi_asked **link = &o->asked;
    while (*link != NULL && *link != asked) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = asked->next;
    }
}

/* Locked. */
static trp_code await(trpi_objects *o, trpi_asked *asked, uint64_t deadline_ns, trp_error *err) {
    while (!asked->is_over) {
        if (trpi_now_ns() >= deadline_ns) {
            take_back(o, asked);
            trpi_fail(&asked->error, TRP_ETIMEOUT,
                      "the object store of this host has not answered");
            break;
        }
        if (!o->is_led) {
            lead(o, deadline_ns);
        } else {
            (void)trpi_cond_wait(&asked->wake, &o->lock, deadline_ns);
        }
    }
    if (!o->is_led) {
        wake_all(o); /* one of them leads now */
    }
    return asked->error.code == TRP_OK
               ? TRP_OK
               : trpi_fail(err, asked->error.code, "%s", asked->error.message);
}

/* What the answer says; it is released unless that is TRP_OK. */
static trp_code judge(trpi_asked *asked, trpi_msg_type expected, trp_error *err) {
    trp_code code = TRP_OK;
    if (asked->msg.type != expected) {
        code = trpi_fail(err, TRP_EPROTOCOL, "the object store answered with %s",
                         trpi_msg_name(asked->msg.type));
    } else if (expected != TRPI_MSG_STORE_INFO && asked->msg.done.code != TRP_OK) {
        code = trpi_fail(err, (trp_code)asked->msg.done.code, "%s", asked->msg.done.message);
    }
    if (code != TRP_OK) {
        trpi_asked_release(asked);
    }
    return code;
}

trp_code trpi_objects_ask(trpi_objects *o, trpi_msg *msg, trpi_msg_type answer, uint64_t timeout_ms,
                          trpi_asked *ret_asked, trp_error *err) {
    uint64_t deadline_ns =
        trpi_deadline_ns(timeout_ms > UINT64_MAX - GRACE_MS ? UINT64_MAX : timeout_ms + GRACE_MS);
    *ret_asked = (trpi_asked){.fd = -1, .wake = PTHREAD_COND_INITIALIZER};
    trp_code code = ensure_connected(o, err);
    if (code != TRP_OK) {
        return code;
    }
    ret_asked->request = msg->done.request = ++o->requests; /* the first field of every request */
    code = send_frame(o, msg, err);
    if (code == TRP_OK) {
        ret_asked->next = o->asked;
        o->asked = ret_asked;
        code = await(o, ret_asked, deadline_ns, err);
    }
    pthread_mutex_unlock(&o->lock);
    return code == TRP_OK ? judge(ret_asked, answer, err) : code;
}

#include "tests/lib/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAIRS_MAX = 64, CHUNK_BYTES = 65536, ANSWER_S = 10 };

/* fds[0] came to us, fds[1] goes to the target; what was read from one and not yet taken by the
 * other waits in rest. */
typedef struct connection {
    int fds[2];
    struct {
        char *bytes;
        size_t begin, end;
    } rest[2];
} connection;

struct test_proxy {
    char address[64];
    struct sockaddr_in target;
    int listener, wake_fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t done; /* what was asked for */
    unsigned asked, answered;
    bool must_cut, is_shut, stalls, must_end;
    unsigned accepted;
    connection connections[PAIRS_MAX];
    size_t count;
};

/* ---- The thread ---- */

static void connection_close(connection *c) {
    for (int i = 0; i < 2; i++) {
        close(c->fds[i]);
        free(c->rest[i].bytes);
    }
}

static void drop(test_proxy *proxy, size_t index) {
    connection_close(&proxy->connections[index]);
    proxy->connections[index] = proxy->connections[--proxy->count];
}

static void accept_one(test_proxy *proxy) {
    int on = 1, near = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    if (near < 0) {
        return;
    }
    int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_mutex_lock(&proxy->lock);
    bool takes = !proxy->is_shut && proxy->count < PAIRS_MAX;
    pthread_mutex_unlock(&proxy->lock);
    if (!takes || far < 0 ||
        connect(far, (struct sockaddr *)&proxy->target, sizeof proxy->target) != 0) {
        close(near);
        close(far);
        return;
    }
    connection *c = &proxy->connections[proxy->count++];
    memset(c, 0, sizeof *c);
    c->fds[0] = near;
    c->fds[1] = far;
    for (int i = 0; i < 2; i++) {
        c->rest[i].bytes = malloc(CHUNK_BYTES);
        setsockopt(c->fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    pthread_mutex_lock(&proxy->lock);
    proxy->accepted++;
    pthread_mutex_unlock(&proxy->lock);
}

/* From fds[from] to the other. False: the connection is over. */
static bool relay(connection *c, int from, short events_from, short events_to) {
    if (c->rest[from].begin == c->rest[from].end && (events_from & (POLLIN | POLLHUP | POLLERR))) {
        ssize_t size = recv(c->fds[from], c->rest[from].bytes, CHUNK_BYTES, MSG_DONTWAIT);
        if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
            return false;
        }
        c->rest[from].begin = 0;
        c->rest[from].end = size > 0 ? (size_t)size : 0;
        events_to |= POLLOUT; /* as a rule */
    }
    if (c->rest[from].begin < c->rest[from].end && (events_to & POLLOUT)) {
        ssize_t size = send(c->fds[1 - from], c->rest[from].bytes + c->rest[from].begin,
                            c->rest[from].end - c->rest[from].begin, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size < 0 && errno != EAGAIN && errno != EINTR) {
            return false;
        }
        c->rest[from].begin += size > 0 ? (size_t)size : 0;
    }
    return true;
}

static bool is_waiting(const connection *c, int from) {
    return c->rest[from].begin < c->rest[from].end;
}

static size_t list_fds(const test_proxy *proxy, struct pollfd *fds, bool stalls) {
    size_t count = 0;
    fds[count++] = (struct pollfd){.fd = proxy->wake_fd, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    for (size_t i = 0; i < proxy->count && !stalls; i++) {
        const connection *c = &proxy->connections[i];
        for (int side = 0; side < 2; side++) {
            short events = (short)((is_waiting(c, side) ? 0 : POLLIN) |
                                   (is_waiting(c, 1 - side) ? POLLOUT : 0));
            fds[count++] = (struct pollfd){.fd = c->fds[side], .events = events};
        }
    }
    return count;
}

/* What the test asked for. False: to end. */
static bool obey(test_proxy *proxy, bool *ret_stalls) {
    uint64_t count;
    (void)!read(proxy->wake_fd, &count, sizeof count);
    pthread_mutex_lock(&proxy->lock);
    while (proxy->must_cut && proxy->count > 0) {
        drop(proxy, 0);
    }
    proxy->must_cut = false;
    *ret_stalls = proxy->stalls;
    bool goes_on = !proxy->must_end;
    proxy->answered = proxy->asked;
    pthread_cond_broadcast(&proxy->done);
    pthread_mutex_unlock(&proxy->lock);
    return goes_on;
}

static void *serve(void *arg) {
    test_proxy *proxy = arg;
    struct pollfd fds[2 + 2 * PAIRS_MAX];
    bool stalls = false;
    for (;;) {
        size_t before = proxy->count;
        (void)poll(fds, list_fds(proxy, fds, stalls), -1);
        if (fds[0].revents != 0) {
            if (!obey(proxy, &stalls)) {
                return NULL;
            }
            continue;
        }
        for (size_t i = before; i-- > 0 && !stalls;) { /* backwards: a dropped one is refilled */
            const struct pollfd *pair = &fds[2 + 2 * i];
            if (!relay(&proxy->connections[i], 0, pair[0].revents, pair[1].revents) ||
                !relay(&proxy->connections[i], 1, pair[1].revents, pair[0].revents)) {
                drop(proxy, i);
            }
        }
        if (fds[1].revents != 0) {
            accept_one(proxy);
        }
    }
}

/* ---- The test ---- */

test_proxy *test_proxy_open(const char *target) {
    test_proxy *proxy = calloc(1, sizeof *proxy);
    const char *colon = strrchr(target, ':');
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    assert_non_null(proxy);
    assert_non_null(colon);
    proxy->target = here;
    proxy->target.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    proxy->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(proxy->listener >= 0 && proxy->wake_fd >= 0);
    assert_int_equal(bind(proxy->listener, (struct sockaddr *)&here, sizeof here), 0);
    assert_int_equal(listen(proxy->listener, 64), 0);
    assert_int_equal(getsockname(proxy->listener, (struct sockaddr *)&here, &size), 0);
    snprintf(proxy->address, sizeof proxy->address, "127.0.0.1:%u", ntohs(here.sin_port));
    pthread_mutex_init(&proxy->lock, NULL);
    pthread_cond_init(&proxy->done, NULL);
    assert_int_equal(pthread_create(&proxy->thread, NULL, serve, proxy), 0);
    return proxy;
}

const char *test_proxy_address(const test_proxy *proxy) {
    return proxy->address;
}

/* Locked. Waits until the thread has done it. */
static void ask(test_proxy *proxy) {
    uint64_t one = 1;
    unsigned number = ++proxy->asked;
    (void)!write(proxy->wake_fd, &one, sizeof one);
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += ANSWER_S;
    while ((int)(proxy->answered - number) < 0) {
        if (pthread_cond_timedwait(&proxy->done, &proxy->lock, &deadline) != 0) {
            fail_msg("the proxy's thread does not answer");
        }
    }
}

void test_proxy_cut(test_proxy *proxy) {
    pthread_mutex_lock(&proxy->lock);
    proxy->must_cut = true;
    ask(proxy);
    pthread_mutex_unlock(&proxy->lock);
}

void test_proxy_shut(test_proxy *proxy, bool is_shut) {
    pthread_mutex_lock(&proxy->lock);
    proxy->is_shut = is_shut;
    proxy->must_cut = is_shut;
    ask(proxy);
    pthread_mutex_unlock(&proxy->lock);
}

void test_proxy_stall(test_proxy *proxy, bool stalls) {
    pthread_mutex_lock(&proxy->lock);
    proxy->stalls = stalls;
    ask(proxy);
    pthread_mutex_unlock(&proxy->lock);
}

unsigned test_proxy_connections(test_proxy *proxy) {
    pthread_mutex_lock(&proxy->lock);
    unsigned accepted = proxy->accepted;
    pthread_mutex_unlock(&proxy->lock);
    return accepted;
}

void test_proxy_close(test_proxy *proxy) {
    if (proxy == NULL) {
        return;
    }
    pthread_mutex_lock(&proxy->lock);
    proxy->must_end = true;
    ask(proxy);
    pthread_mutex_unlock(&proxy->lock);
    pthread_join(proxy->thread, NULL);
    while (proxy->count > 0) {
        drop(proxy, 0);
    }
    close(proxy->listener);
    close(proxy->wake_fd);
    pthread_cond_destroy(&proxy->done);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

/* The zygote: the user's program, loaded and initialized once, that forks a worker per request.
 *
 * It holds one thread, no ZeroMQ socket and no device context, since none of these survives a fork.
 * Each worker is forked twice: the process in between tells the node the worker's pid and ends,
 * which makes the worker a child of the node daemon, the next subreaper above. So the node can wait
 * for it, and it does not die with its zygote. */
#include "actors/proc/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/proc/worker.h"
#include "actors/proc/worker_parts.h"
#include "core/base/log.h"
#include "core/sys/fdpass.h"
#include "core/sys/process.h"

#define FORK_FAILED_EXIT 1
#define ORDERS_MAX 8 /* workers per process in between: one fork less for all but the first */

typedef struct fork_order {
    trpi_fork_request body;
    int out, err;
} fork_order;

static void tell(int sock, uint64_t token, int64_t pid, int error) {
    trpi_fork_reply reply = {
        .magic = TRPI_ZYGOTE_MAGIC, .error = error, .token = token, .pid = pid};
    if (trpi_fd_send(sock, (trp_bytes){&reply, sizeof reply}, NULL, 0, NULL) != TRP_OK) {
        _exit(0); /* the node is gone */
    }
}

/* ---- In the worker ---- */

static void reset_signals(void) {
    sigset_t none;
    for (int number = 1; number < NSIG; number++) {
        (void)signal(number, SIG_DFL); /* fails for SIGKILL, SIGSTOP and libc's own */
    }
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool set_files(const fork_order *order) {
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool ok = null_fd >= 0 && dup2(null_fd, 0) == 0 && dup2(order->out, 1) == 1 &&
              dup2(order->err, 2) == 2;
    close(null_fd);
    close(order->out);
    close(order->err);
    /* A crash must not swallow lines that were printed before it. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stderr, NULL, _IONBF, 0);
    return ok;
}

static pid_t node_pid(void) {
    const char *text = getenv(TRPI_ENV_NODE_PID);
    uint64_t pid = 0;
    return text && trpi_parse_u64(text, INT32_MAX, &pid) ? (pid_t)pid : -1;
}

/* Until the process in between is gone it is our parent, and its death would count as our parent's.
 */
static void wait_for_end_of(pid_t between) {
    int fd = trpi_pidfd_open(between);
    struct pollfd item = {.fd = fd, .events = POLLIN};
    while (getppid() == between) {
        (void)poll(&item, fd >= 0, 1); /* without a pidfd it only sleeps */
    }
    if (fd >= 0) {
        close(fd);
    }
}

_Noreturn static void become_worker(const trp_actor_type *const *types, const fork_order *order,
                                    pid_t between) {
    uint64_t token = order->body.token;
    (void)setpgid(0, 0);
    reset_signals();
    if (!set_files(order)) {
        _exit(FORK_FAILED_EXIT);
    }
    wait_for_end_of(between);
    /* What it leaves behind stays below it, so that the node can tell whose it was. */
    if (!trpi_die_with_parent(node_pid()) || trpi_become_subreaper(NULL) != TRP_OK) {
        _exit(FORK_FAILED_EXIT);
    }
    trpi_worker_main(types, token);
}

/* ---- In the process in between ---- */

static void close_orders(const fork_order *orders, size_t count) {
    for (size_t i = 0; i < count; i++) {
        close(orders[i].out);
        close(orders[i].err);
    }
}

_Noreturn static void fork_workers(const trp_actor_type *const *types, int sock,
                                   const fork_order *orders, size_t count) {
    pid_t self = getpid();
    for (size_t i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            close(sock);
            close_orders(orders, i);
            close_orders(orders + i + 1, count - i - 1);
            become_worker(types, &orders[i], self);
        }
        if (pid < 0) {
            tell(sock, orders[i].body.token, 0, errno);
        } else {
            (void)setpgid(pid, pid); /* so that the node can kill the group once it knows it */
            tell(sock, orders[i].body.token, pid, 0);
        }
    }
    _exit(0);
}

/* ---- In the zygote ---- */

static void fork_between(const trp_actor_type *const *types, int sock, const fork_order *orders,
                         size_t count) {
    pid_t between = fork();
    if (between == 0) {
        fork_workers(types, sock, orders, count);
    }
    for (size_t i = 0; between < 0 && i < count; i++) {
        tell(sock, orders[i].body.token, 0, errno);
    }
    close_orders(orders, count);
    while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Ends the process when the node is gone or speaks another version. */
static void take_order(int sock, fork_order *ret_order) {
    trp_buf data = {0};
    trp_error err = {0};
    int fds[2];
    size_t fd_count = 0;
    if (trpi_fd_recv(sock, &data, fds, 2, &fd_count, &err) != TRP_OK) {
        _exit(0);
    }
    if (data.size == sizeof ret_order->body && fd_count == 2) {
        memcpy(&ret_order->body, data.data, sizeof ret_order->body);
    }
    if (data.size != sizeof ret_order->body || fd_count != 2 ||
        ret_order->body.magic != TRPI_ZYGOTE_MAGIC) {
        trpi_log(TRPI_ERROR, "zygote_request_invalid",
                 "error=\"the node daemon is of another version of troupe\"");
        _exit(1);
    }
    ret_order->out = fds[0];
    ret_order->err = fds[1];
    trp_buf_release(&data);
}

/* At least one order, and those that wait behind it. */
static size_t take_orders(int sock, fork_order orders[ORDERS_MAX]) {
    size_t count = 0;
    struct pollfd item = {.fd = sock, .events = POLLIN};
    do {
        take_order(sock, &orders[count++]);
    } while (count < ORDERS_MAX && poll(&item, 1, 0) > 0);
    return count;
}

/* A program may have closed them before trp_init(): the pipes of workers would come to lie there,
 * and the first one be lost when the others are put in place. */
static void fill_standard_files(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        close(fd);
    }
}

_Noreturn void trpi_zygote_main(const trp_actor_type *const *types, int zygote_fd) {
    fork_order orders[ORDERS_MAX];
    unsetenv(TRPI_ZYGOTE_ENV); /* what we start is not a zygote */
    unsetenv(TRPI_ENV_BIND_NOW);
    (void)fcntl(zygote_fd, F_SETFD, FD_CLOEXEC);
    fill_standard_files();
    signal(SIGCHLD, SIG_DFL);
    trpi_worker_prepare();
    fflush(NULL); /* or every worker would print it again */
    tell(zygote_fd, 0, getpid(), 0);
    for (;;) {
        size_t count = take_orders(zygote_fd, orders);
        fork_between(types, zygote_fd, orders, count);
    }
}

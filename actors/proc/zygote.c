/* The zygote: the user's program, loaded and initialized once, that forks a worker per request.
 *
 * It holds one thread, no ZeroMQ and no device context, since none of these survives a fork. Each
 * worker is forked twice: the process in between tells the node the worker's pid and ends, which
 * makes the worker a child of the node daemon, the next subreaper above. So the node can wait for
 * it, and it does not die with its zygote. */
#include "actors/proc/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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

_Noreturn static void become_worker(const trp_actor_type *const *types, const fork_order *order,
                                    pid_t between) {
    (void)setpgid(0, 0);
    reset_signals();
    if (!set_files(order)) {
        _exit(FORK_FAILED_EXIT);
    }
    /* Until the process in between is gone, its death would be our parent's. */
    while (getppid() == between) {
        sched_yield();
    }
    if (!trpi_die_with_parent(node_pid())) {
        _exit(FORK_FAILED_EXIT);
    }
    trpi_worker_main(types, order->body.token);
}

/* ---- In the process in between ---- */

_Noreturn static void fork_between(const trp_actor_type *const *types, int sock,
                                   const fork_order *order) {
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        close(sock);
        become_worker(types, order, self);
    }
    if (pid < 0) {
        tell(sock, order->body.token, 0, errno);
    } else {
        (void)setpgid(pid, pid); /* so that the node can kill the group as soon as it knows it */
        tell(sock, order->body.token, pid, 0);
    }
    _exit(0);
}

/* ---- In the zygote ---- */

static void fork_worker(const trp_actor_type *const *types, int sock, const fork_order *order) {
    pid_t between = fork();
    if (between == 0) {
        fork_between(types, sock, order);
    }
    if (between < 0) {
        tell(sock, order->body.token, 0, errno);
    }
    close(order->out);
    close(order->err);
    while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Ends the process when the node is gone or speaks another version. */
static void next_order(int sock, fork_order *ret_order) {
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

_Noreturn void trpi_zygote_main(const trp_actor_type *const *types, int zygote_fd) {
    fork_order order = {0};
    unsetenv(TRPI_ZYGOTE_ENV); /* what we start is not a zygote */
    (void)fcntl(zygote_fd, F_SETFD, FD_CLOEXEC);
    signal(SIGCHLD, SIG_DFL);
    fflush(NULL); /* or every worker would print it again */
    tell(zygote_fd, 0, getpid(), 0);
    for (;;) {
        next_order(zygote_fd, &order);
        fork_worker(types, zygote_fd, &order);
    }
}

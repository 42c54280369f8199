#include "tests/lib/fake_node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/worker.h"
#include "actors/proc/zygote.h"
#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/sys/fdpass.h"
#include "core/sys/process.h"
#include "tests/lib/child.h"

#define PATIENCE_MS 20000

void test_worker_if_asked(const trp_actor_type *const *types) {
    const char *zygote = getenv(TRPI_ZYGOTE_ENV);
    trp_error err = {0};
    if (zygote) {
        if (trpi_config_load(&err) != TRP_OK) {
            _exit(2);
        }
        trpi_zygote_main(types, atoi(zygote));
    }
}

/* ---- The zygote ---- */

static void take_fork_reply(test_fake_node *node, trpi_fork_reply *ret_reply) {
    trp_buf data = {0};
    size_t fd_count = 0;
    trp_error err = {0};
    if (trpi_fd_recv(node->zygote_fd, &data, NULL, 0, &fd_count, &err) != TRP_OK) {
        fail_msg("the zygote said nothing: %s", err.message);
    }
    assert_int_equal(data.size, sizeof *ret_reply);
    memcpy(ret_reply, data.data, sizeof *ret_reply);
    trp_buf_release(&data);
    assert_int_equal(ret_reply->error, 0);
}

static void set_environment(const test_fake_node *node, int zygote_fd) {
    char text[32];
    trpi_format(text, sizeof text, "%d", zygote_fd);
    setenv(TRPI_ZYGOTE_ENV, text, 1);
    trpi_format(text, sizeof text, "%d", (int)getpid());
    setenv(TRPI_ENV_NODE_PID, text, 1);
    setenv(TRPI_ENV_NODE, "7", 1);
    setenv(TRPI_ENV_NODE_DIR, node->dir, 1);
    setenv(TRPI_ENV_HOST, "", 1);
    setenv(TRPI_ENV_ADDRESS, "127.0.0.1:1", 1);
}

static void start_zygote(test_fake_node *node) {
    int fds[2];
    trp_error err = {0};
    trpi_fork_reply reply;
    const char *argv[] = {test_exe(), NULL};
    assert_int_equal(trpi_seqpacket_pair(fds, &err), TRP_OK);
    set_environment(node, fds[1]);
    trpi_spawn spawn = {.exe = argv[0],
                        .argv = argv,
                        .in = -1,
                        .out = STDERR_FILENO,
                        .err = STDERR_FILENO,
                        .keep_fd = fds[1],
                        .own_group = true,
                        .die_with_parent = true};
    if (trpi_process_spawn(&spawn, &node->zygote, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    unsetenv(TRPI_ZYGOTE_ENV);
    close(fds[1]);
    node->zygote_fd = fds[0];
    take_fork_reply(node, &reply);
}

void test_fake_node_open(test_fake_node *node) {
    char endpoint[128];
    trp_error err = {0};
    memset(node, 0, sizeof *node);
    trpi_format(node->dir, sizeof node->dir, "/tmp/fake-node-%d", (int)getpid());
    assert_int_equal(mkdir(node->dir, 0700), 0);
    assert_int_equal(trpi_become_subreaper(&err), TRP_OK);
    start_zygote(node); /* before there is any thread */
    trpi_format(endpoint, sizeof endpoint, "ipc://%s/s", node->dir);
    if (trpi_net_open(&node->desk.net, &err) != TRP_OK ||
        trpi_sock_open(node->desk.net, TRPI_ROUTER, (trp_bytes){0}, &node->desk.sock, &err) !=
            TRP_OK ||
        trpi_sock_bind(node->desk.sock, endpoint, NULL, 0, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
}

static void remove_dir(const char *path) {
    char command[128];
    trpi_format(command, sizeof command, "rm -rf %s", path);
    (void)!system(command);
}

void test_fake_node_close(test_fake_node *node) {
    close(node->zygote_fd);
    (void)test_child_wait(node->zygote, "the zygote", PATIENCE_MS);
    test_head_close(&node->desk);
    remove_dir(node->dir);
}

/* ---- Letters ---- */

static void id_of(const test_worker *worker, char *out, size_t size) {
    trpi_format(out, size, "w%llu", (unsigned long long)worker->token);
}

void test_worker_say(test_fake_node *node, const test_worker *worker, const trpi_msg *msg) {
    char id[24];
    id_of(worker, id, sizeof id);
    node->desk.peer_size = strlen(id);
    memcpy(node->desk.peer, id, strlen(id));
    test_head_say(&node->desk, msg);
}

static void ping_if_due(test_fake_node *node) {
    uint64_t now_ns = trpi_now_ns();
    if (node->pinged && node->pings_ms && now_ns - node->pinged_ns >= node->pings_ms * 1000000u) {
        trpi_msg ping = {.type = TRPI_MSG_PING,
                         .ping = {.seq = now_ns, .lease_ms = node->lease_ms}};
        node->pinged_ns = now_ns;
        test_worker_say(node, node->pinged, &ping);
    }
}

/* A test speaks with one worker at a time, so a message need not be told from another one's. */
const trpi_msg *test_worker_try(test_fake_node *node, const test_worker *worker, trpi_msg_type type,
                                uint64_t timeout_ms) {
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    do {
        ping_if_due(node);
        uint64_t left_ms = (uint64_t)trpi_left_ms(deadline_ns);
        uint64_t step_ms = node->pings_ms ? TRPI_MIN(left_ms, node->pings_ms / 2) : left_ms;
        const trpi_msg *msg = test_head_try(&node->desk, type, step_ms);
        if (msg) {
            return msg;
        }
    } while (trpi_now_ns() < deadline_ns);
    return NULL;
}

const trpi_msg *test_worker_wait(test_fake_node *node, const test_worker *worker,
                                 trpi_msg_type type) {
    const trpi_msg *msg = test_worker_try(node, worker, type, PATIENCE_MS);
    if (!msg) {
        test_child_describe(worker->pid, "the worker");
        fail_msg("%s did not come", trpi_msg_name(type));
    }
    return msg;
}

void test_worker_hear_failed(test_fake_node *node, const test_worker *worker,
                             const trpi_msg *failed) {
    test_worker_say(node, worker, failed);
}

/* ---- Workers ---- */

void test_worker_fork(test_fake_node *node, test_worker *worker) {
    int out[2], err_pipe[2];
    trp_error err = {0};
    trpi_fork_reply reply;
    memset(worker, 0, sizeof *worker);
    worker->token = ++node->last_token;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err_pipe, O_CLOEXEC), 0);
    trpi_fork_request request = {.magic = TRPI_ZYGOTE_MAGIC, .token = worker->token};
    int fds[] = {out[1], err_pipe[1]};
    assert_int_equal(
        trpi_fd_send(node->zygote_fd, (trp_bytes){&request, sizeof request}, fds, 2, &err), TRP_OK);
    close(out[1]);
    close(err_pipe[1]);
    worker->out = out[0];
    worker->err = err_pipe[0];
    take_fork_reply(node, &reply);
    assert_int_equal(reply.token, worker->token);
    worker->pid = (pid_t)reply.pid;
    const trpi_msg *hello = test_worker_wait(node, worker, TRPI_MSG_WORKER_HELLO);
    assert_int_equal(hello->worker_hello.token, worker->token);
    assert_int_equal(hello->worker_hello.pid, worker->pid);
}

void test_worker_say_start(test_fake_node *node, test_worker *worker, const trpi_msg_start *start) {
    trpi_msg msg = {.type = TRPI_MSG_START, .start = *start};
    msg.start.actor = start->actor ? start->actor : TEST_NODE_ACTOR;
    msg.start.incarnation = start->incarnation ? start->incarnation : TEST_NODE_INCARNATION;
    msg.start.start_timeout_ms = PATIENCE_MS;
    test_worker_say(node, worker, &msg);
}

void test_worker_start(test_fake_node *node, test_worker *worker, const trpi_msg_start *start) {
    test_worker_fork(node, worker);
    node->pinged = worker;
    test_worker_say_start(node, worker, start);
    const trpi_msg *msg = test_worker_wait(node, worker, TRPI_MSG_STARTED);
    assert_int_equal(msg->started.pid, worker->pid);
    test_caller_open(&node->desk, &msg->started, &worker->caller);
}

int test_worker_end_status(test_fake_node *node, test_worker *worker, uint64_t timeout_ms) {
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    while (!worker->is_gone) {
        if (waitpid(worker->pid, &worker->status, WNOHANG) == worker->pid) {
            worker->is_gone = true;
        } else if (trpi_now_ns() >= deadline_ns) {
            test_child_describe(worker->pid, "the worker");
            fail_msg("the worker did not end");
        } else {
            test_head_listen(&node->desk, 2);
        }
    }
    return worker->status;
}

void test_worker_release(test_fake_node *node, test_worker *worker) {
    if (!worker->is_gone) {
        kill(worker->pid, SIGKILL);
        (void)test_worker_end_status(node, worker, PATIENCE_MS);
    }
    if (worker->caller.sock) {
        test_caller_close(&worker->caller);
    }
    close(worker->out);
    close(worker->err);
    node->pinged = NULL;
    test_head_forget(&node->desk);
}

void test_worker_read_err(test_worker *worker, char *text, size_t size) {
    size_t used = test_read(worker->err, text, size - 1, "the worker's stderr");
    text[used] = '\0';
}

size_t test_thread_count(pid_t pid, pid_t *ret_tids, size_t max) {
    char path[64];
    size_t count = 0;
    trpi_format(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            if (count < max) {
                ret_tids[count] = (pid_t)atoi(entry->d_name);
            }
            count++;
        }
    }
    closedir(dir);
    return count;
}

/* ---- Calls ---- */

static void send_to_actor(test_caller *caller, const trpi_msg *msg, const char *args) {
    trp_buf frame = {0};
    trp_error err = {0};
    assert_int_equal(trpi_encode(msg, &frame, &err), TRP_OK);
    if (trpi_sock_send(caller->sock, (trp_bytes){0}, trp_buf_bytes(&frame), trp_bytes_of(args),
                       &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    trp_buf_release(&frame);
}

uint64_t test_caller_call(test_caller *caller, const trpi_msg_call *call, const char *args) {
    trpi_msg msg = {.type = TRPI_MSG_CALL, .call = *call};
    msg.call.call = msg.call.seq = ++caller->calls;
    msg.call.actor = caller->actor;
    msg.call.incarnation = caller->incarnation;
    send_to_actor(caller, &msg, args);
    return caller->calls;
}

void test_caller_cancel(test_caller *caller, uint64_t call) {
    trpi_msg msg = {
        .type = TRPI_MSG_CANCEL,
        .cancel = {.call = call, .actor = caller->actor, .incarnation = caller->incarnation}};
    send_to_actor(caller, &msg, NULL);
}

const char *test_caller_expect(test_caller *caller, uint64_t call, trp_code code) {
    static char text[4096];
    const trpi_msg_reply *reply = test_caller_reply(caller, PATIENCE_MS);
    if (!reply) {
        fail_msg("call %llu is not answered", (unsigned long long)call);
    }
    if (reply->call != call || reply->code != code) {
        fail_msg("call %llu: code %d, and not call %llu: code %d; \"%s\"",
                 (unsigned long long)reply->call, (int)reply->code, (unsigned long long)call,
                 (int)code, reply->message);
    }
    trp_bytes body = caller->packet.body;
    trpi_format(text, sizeof text, "%.*s", (int)body.size,
                body.size ? (const char *)body.data : "");
    return text;
}

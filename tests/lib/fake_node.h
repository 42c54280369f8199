/* fake_node.h: a node daemon that a test plays by hand, and real workers of this program under it.
 *
 * What a worker says and is not asked for yet waits in the order in which it came. */
#ifndef TEST_FAKE_NODE_H
#define TEST_FAKE_NODE_H

#include "tests/lib/fake_head.h"

#define TEST_NODE_ACTOR 11
#define TEST_NODE_INCARNATION 3

typedef struct test_worker {
    uint64_t token;
    pid_t pid;
    int out, err; /* ends of its pipes, to be read */
    bool is_gone;
    int status;
    test_caller caller; /* connected after test_worker_start() */
} test_worker;

typedef struct test_fake_node {
    test_head desk; /* its network and its letters; `sock` is bound to the workers' address */
    char dir[64];
    int zygote_fd;
    pid_t zygote;
    uint64_t last_token;
    uint64_t pings_ms; /* while the test waits, every worker that it started is pinged so often */
    uint64_t lease_ms; /* that each ping lends */
    uint64_t pinged_ns;
    test_worker *pinged; /* the one */
} test_fake_node;

/* First thing in main(): plays zygote and worker when this process was started as one. */
void test_worker_if_asked(const trp_actor_type *const *types);

void test_fake_node_open(test_fake_node *node);
void test_fake_node_close(test_fake_node *node);

/* Forks a worker and waits for its hello. */
void test_worker_fork(test_fake_node *node, test_worker *ret_worker);
/* START; what is 0 in it is filled in: actor, incarnation, limits. */
void test_worker_say_start(test_fake_node *node, test_worker *worker, const trpi_msg_start *start);
/* Forks, says START, waits for STARTED and connects. */
void test_worker_start(test_fake_node *node, test_worker *ret_worker, const trpi_msg_start *start);
void test_worker_say(test_fake_node *node, const test_worker *worker, const trpi_msg *msg);
/* The next message of that type from the worker; NULL when none came in time. */
const trpi_msg *test_worker_try(test_fake_node *node, const test_worker *worker, trpi_msg_type type,
                                uint64_t timeout_ms);
/* The same, and fails the test after 20 s. */
const trpi_msg *test_worker_wait(test_fake_node *node, const test_worker *worker,
                                 trpi_msg_type type);
/* Says the WORKER_FAILED that came back, as a node does. */
void test_worker_hear_failed(test_fake_node *node, const test_worker *worker,
                             const trpi_msg *failed);
/* Waits for its end; the status of wait(). Its pipes stay open. */
int test_worker_end_status(test_fake_node *node, test_worker *worker, uint64_t timeout_ms);
/* Kills it if it lives, and closes all. */
void test_worker_release(test_fake_node *node, test_worker *worker);
/* All that it wrote to stderr, once it has ended; as text. */
void test_worker_read_err(test_worker *worker, char *text, size_t size);
/* Threads of a process. */
size_t test_thread_count(pid_t pid, pid_t *ret_tids, size_t max);

/* A call with everything said; returns its number. */
uint64_t test_caller_call(test_caller *caller, const trpi_msg_call *call, const char *args);
void test_caller_cancel(test_caller *caller, uint64_t call);
/* Waits for a reply (any), checks that it is this call's and its code; the body as text, in static
 * storage. */
const char *test_caller_expect(test_caller *caller, uint64_t call, trp_code code);

#endif

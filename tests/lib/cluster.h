/* cluster.h: a real cluster of real processes for one test, in a session root of its own, and the
 * check that nothing of it is left. */
#ifndef TEST_CLUSTER_H
#define TEST_CLUSTER_H

#include <sys/types.h>
#include <troupe/runtime.h>

/* One node daemon as `troupe start` takes it. */
typedef struct test_node {
    double cpus;
    double gpus;
    const char *resources; /* "name=4,..." or NULL */
} test_node;

typedef struct test_cluster {
    char root[64];    /* TROUPE_SESSION_ROOT */
    char address[64]; /* of the head */
    int shm_before;   /* entries in /dev/shm when it started */
    int fds_before;   /* open descriptors of this process then */
} test_cluster;

/* First thing in main() of a test program: serves calls and does not return when this process was
 * started as a worker. */
void test_serve_if_worker(const trp_actor_type *const *types);

/* Starts a head with the first node, then the other nodes; points TROUPE_SESSION_ROOT and
 * TROUPE_ADDRESS of this process at it. Ends the test when it can't. */
void test_cluster_start(test_cluster *cluster, const test_node *nodes, size_t count);
void test_cluster_add(test_cluster *cluster, const test_node *node);

/* Connects this process as driver; ends the test when it can't. */
trp_runtime *test_connect(const test_cluster *cluster, const trp_actor_type *const *types);

/* Pids of the living daemons of a role ("head", "node"), in the order of their start. */
size_t test_cluster_pids(const test_cluster *cluster, const char *role, pid_t *pids, size_t max);

/* Processes, besides this one, that were started under this cluster's root. */
size_t test_cluster_processes(const test_cluster *cluster, pid_t *pids, size_t max);

/* Processes, besides this one, that were started with this entry ("NAME=value") in their
 * environment. */
size_t test_processes_with(const char *entry, pid_t *pids, size_t max);

/* `troupe stop`, then asserts: no process, no session file, no shared segment and no descriptor of
 * this process more than before. */
void test_cluster_stop(test_cluster *cluster);

/* Asserts that within the deadline all nodes have all their resources free. */
void test_expect_all_free(trp_runtime *rt, uint64_t timeout_ms);

/* Asserts TRP_OK and prints the error otherwise. Inside the call, `err` is the macro's own. */
#define TEST_OK(call)                                                                              \
    do {                                                                                           \
        trp_error *err = &(trp_error){0};                                                          \
        test_check_ok((call), err, #call, __FILE__, __LINE__);                                     \
    } while (0)
void test_check_ok(trp_code code, const trp_error *err, const char *call, const char *file,
                   int line);

/* Waits until `holds(arg)`; false when the deadline passed. The one place where tests poll. */
bool test_until(bool (*holds)(void *arg), void *arg, uint64_t timeout_ms);

uint64_t test_now_ms(void);

#endif

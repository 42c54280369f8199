/* start_test.c: a `troupe start` that is interrupted leaves nothing, at whatever point that is; one
 * that has ended leaves a cluster that `troupe stop` stops. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"
#include "tests/lib/runs.h"

enum { TIMES = 16, STOP_MS = 30000 };

static char root[128], entry[160];

static bool is_alone(void *arg) {
    pid_t pids[8];
    (void)arg;
    return test_processes_with(entry, pids, 8) == 0;
}

static int stop(void) {
    const char *const argv[] = {getenv("TROUPE_BIN"), "stop", NULL};
    return test_run(argv, NULL, STOP_MS);
}

/* Starts, interrupts after a while, and expects all or nothing. Returns whether it was in time. */
static bool interrupt(const char *const *argv, int number, long after_us) {
    pid_t pid = test_child_start(argv, -1, -1);
    nanosleep(&(struct timespec){.tv_nsec = after_us * 1000}, NULL);
    assert_int_equal(kill(pid, number), 0);
    int status = test_child_wait(pid, "troupe start", TEST_CHILD_MS);
    bool is_ended = WIFSIGNALED(status) && WTERMSIG(status) == number;
    if (!is_ended) {
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return is_ended;
}

static void a_cluster_that_is_interrupted_while_it_starts_is_gone(void **state) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    const char *const argv[] = {getenv("TROUPE_BIN"), "start", "--head", "--port", "0",
                                "--num-cpus",         "1",     NULL};
    int in_time = 0;
    for (int i = 0; i < TIMES; i++) {
        bool is_ended = interrupt(argv, numbers[i % 3], 500 + 10000L * i);
        in_time += is_ended;
        if (!is_ended) {
            assert_int_equal(stop(), 0);
        }
        if (!test_until(is_alone, NULL, 10000)) {
            fail_msg("something is left of start %d, which was %s", i,
                     is_ended ? "interrupted" : "stopped");
        }
    }
    print_message("%d of %d were interrupted in time\n", in_time, TIMES);
    assert_true(in_time > 0);
}

static void a_node_that_is_interrupted_while_it_joins_is_gone(void **state) {
    test_node node = {.cpus = 1};
    test_cluster cluster;
    pid_t pids[8];
    test_cluster_start(&cluster, &node, 1);
    const char *const argv[] = {getenv("TROUPE_BIN"), "start", "--address", cluster.address,
                                "--num-cpus",         "1",     NULL};
    size_t nodes = 1;
    for (int i = 0; i < TIMES / 2; i++) {
        nodes += !interrupt(argv, SIGTERM, 500 + 10000L * i);
        assert_int_equal(test_cluster_pids(&cluster, "node", pids, 8), nodes);
    }
    test_cluster_stop(&cluster);
}

static int prepare(void **state) {
    snprintf(root, sizeof root, "%s/session", test_run_storage());
    snprintf(entry, sizeof entry, "TROUPE_SESSION_ROOT=%s", root);
    return setenv("TROUPE_SESSION_ROOT", root, 1);
}

static int clean_up(void **state) {
    test_run_clean();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cluster_that_is_interrupted_while_it_starts_is_gone),
        cmocka_unit_test(a_node_that_is_interrupted_while_it_joins_is_gone),
    };
    return cmocka_run_group_tests_name("start", tests, prepare, clean_up);
}

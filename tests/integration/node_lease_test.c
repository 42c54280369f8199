/* Life of a node daemon under a head that this test plays: registration, loss of the head, the end.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/process.h"
#include "core/sys/session.h"
#include "tests/lib/child.h"
#include "tests/lib/probe.h"

#define PATIENCE_MS 20000

/* ---- Registration ---- */

static void a_node_tells_what_its_host_offers(void **state) {
    test_head head;
    test_head_open(&head);
    test_head_start_node(&head);
    const trpi_msg_node_hello *hello = &test_head_wait(&head, TRPI_MSG_NODE_HELLO)->node_hello;
    assert_int_equal(hello->resources_count, 4);
    assert_string_equal(hello->resources[0].name, "cpu");
    assert_int_equal(hello->resources[0].amount, 80000);
    assert_string_equal(hello->resources[1].name, "gpu");
    assert_int_equal(hello->resources[1].amount, 20000);
    assert_string_equal(hello->resources[2].name, "memory");
    assert_string_equal(hello->resources[3].name, "slots");
    assert_int_equal(hello->devices_count, 2);
    assert_string_equal(hello->devices[1].value, "1");
    assert_int_equal(hello->labels_count, TEST_NODE_LABELS);
    assert_string_equal(hello->labels[TEST_NODE_LABELS - 1].value, "key69=69");
    assert_int_equal(hello->pid, head.node);
    test_head_close(&head);
}

static void a_node_that_is_not_answered_gives_up_with_an_error(void **state) {
    test_head head;
    test_head_open(&head);
    head.welcomes = false;
    setenv("TROUPE_CONNECT_TIMEOUT_MS", "700", 1);
    test_head_start_node(&head);
    unsetenv("TROUPE_CONNECT_TIMEOUT_MS");
    assert_int_equal(test_head_wait_node(&head, PATIENCE_MS), 1);
    test_head_close(&head);
}

static void a_driver_that_dies_is_noticed(void **state) {
    test_head head;
    test_head_open(&head);
    test_head_start_node(&head);
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    pid_t pid = test_child_sleeper();
    trpi_msg msg = {.type = TRPI_MSG_WATCH_PID, .watch_pid = {.client = 12, .pid = pid}};
    test_head_say(&head, &msg);
    assert_null(test_head_try(&head, TRPI_MSG_PID_GONE, 100));
    kill(pid, SIGKILL);
    assert_int_equal(test_head_wait(&head, TRPI_MSG_PID_GONE)->pid_gone.client, 12);
    test_child_kill(pid);
    test_head_say(&head, &msg); /* one that is gone already */
    assert_int_equal(test_head_wait(&head, TRPI_MSG_PID_GONE)->pid_gone.client, 12);
    test_head_close(&head);
}

/* ---- The lease ---- */

static void workers_die_when_the_head_is_silent_for_too_long(void **state) {
    test_head head;
    test_caller caller;
    int64_t pid;
    test_head_open(&head);
    head.timeout_ms = 400;
    head.heartbeat_ms = 50;
    test_head_start_node(&head);
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    test_start_probe(&head, &caller, &pid);
    head.deaf = true;
    head.incarnation = 2; /* for the next registration */
    const trpi_msg_node_hello *hello = &test_head_wait(&head, TRPI_MSG_NODE_HELLO)->node_hello;
    assert_int_equal(hello->holdings_count, 0);
    assert_int_equal(trpi_process_start_time((pid_t)pid), 0); /* before it registered again */
    head.deaf = false;
    test_caller_close(&caller);
    test_start_probe(&head, &caller, &pid); /* and serves again */
    head.denies = true;
    head.incarnation = 3;
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    assert_int_equal(trpi_process_start_time((pid_t)pid), 0);
    head.denies = false;
    test_caller_close(&caller);
    test_head_close(&head);
}

static void a_head_that_was_silent_for_a_while_is_told_what_runs(void **state) {
    test_head head;
    test_caller caller, other;
    int64_t pid, other_pid;
    test_head_open(&head);
    head.timeout_ms = 20000;
    head.heartbeat_ms = 50;
    test_head_start_node(&head);
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    test_start_probe(&head, &caller, &pid);
    test_start_probe(&head, &other, &other_pid);
    head.deaf = true;
    kill((pid_t)other_pid, SIGKILL);
    (void)test_wait_exit(&head, other.actor);
    test_head_listen(&head, 400);
    head.deaf = false;
    const trpi_msg_node_hello *hello = &test_head_wait(&head, TRPI_MSG_NODE_HELLO)->node_hello;
    assert_int_equal(hello->holdings_count, 1);
    assert_int_equal(hello->holdings[0].actor, caller.actor);
    assert_int_equal(hello->holdings[0].incarnation, 3);
    assert_int_equal(hello->holdings[0].pid, pid);
    (void)test_wait_exit(&head, other.actor); /* said again, since it may have been lost */
    assert_string_equal(test_caller_ask(&caller, "add", ""), "1");
    test_caller_close(&other);
    test_caller_close(&caller);
    test_head_close(&head);
}

/* ---- The end ---- */

static void sigterm_leaves_nothing_behind(void **state) {
    test_head head;
    test_caller caller;
    int64_t pid;
    char path[256];
    struct stat info;
    test_head_open(&head);
    test_head_start_node(&head);
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    test_start_probe(&head, &caller, &pid);
    pid_t child = (pid_t)atoi(test_caller_ask(&caller, "child", ""));
    trpi_format(path, sizeof path, "%s/%.8s", getenv("TROUPE_SESSION_ROOT"), head.cluster);
    assert_int_equal(stat(path, &info), 0);
    kill(head.node, SIGTERM);
    assert_string_equal(test_head_wait(&head, TRPI_MSG_NODE_BYE)->node_bye.reason, "SIGTERM");
    assert_int_equal(trpi_process_start_time((pid_t)pid), 0);
    assert_int_equal(trpi_process_start_time(child), 0);
    assert_int_equal(test_head_wait_node(&head, PATIENCE_MS), 0);
    assert_int_equal(stat(path, &info), -1);
    test_caller_close(&caller);
    test_head_close(&head);
}

static void workers_do_not_outlive_a_killed_node(void **state) {
    test_head head;
    test_caller caller;
    int64_t pid;
    test_head_open(&head);
    test_head_start_node(&head);
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    test_start_probe(&head, &caller, &pid);
    kill(head.node, SIGKILL);
    assert_int_equal(test_head_wait_node(&head, PATIENCE_MS), -1);
    assert_true(test_process_gone((pid_t)pid));
    trpi_session_sweep();
    test_caller_close(&caller);
    test_head_close(&head);
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, test_probe_types);
    test_head_own_root();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_tells_what_its_host_offers),
        cmocka_unit_test(a_node_that_is_not_answered_gives_up_with_an_error),
        cmocka_unit_test(a_driver_that_dies_is_noticed),
        cmocka_unit_test(workers_die_when_the_head_is_silent_for_too_long),
        cmocka_unit_test(a_head_that_was_silent_for_a_while_is_told_what_runs),
        cmocka_unit_test(sigterm_leaves_nothing_behind),
        cmocka_unit_test(workers_do_not_outlive_a_killed_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

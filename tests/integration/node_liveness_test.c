/* Hung workers: found, described and killed; and exclusive ones, which end by themselves. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "core/sys/process.h"
#include "tests/lib/trouble.h"

#define PATIENCE_MS 20000
#define LIMIT_MS 400

static void open_node(test_head *head, uint64_t timeout_ms) {
    test_head_open(head);
    head->heartbeat_ms = 100;
    head->timeout_ms = timeout_ms;
    test_head_start_node(head);
    (void)test_head_wait(head, TRPI_MSG_NODE_HELLO);
}

static int setup(void **state) {
    static test_head head;
    open_node(&head, 60000);
    *state = &head;
    return 0;
}

static int teardown(void **state) {
    test_head_close(*state);
    return 0;
}

/* Deaths are said again to a head that was silent for a while: a real one drops those by their
 * fence. */
static bool has_exited(test_head *head, uint64_t actor) {
    const trpi_msg *msg;
    while ((msg = test_head_try(head, TRPI_MSG_EXITED, 0)) != NULL) {
        if (msg->exited.actor == actor) {
            return true;
        }
    }
    return false;
}

/* The thread's line as /proc told it. */
static void expect_described(const trpi_death *death) {
    if (!strstr(death->stderr_tail, "thread ") || !strstr(death->stderr_tail, ", is killed: ")) {
        fail_msg("not described: %s", death->stderr_tail);
    }
}

static void a_method_that_gives_no_sign_of_life_is_hung(void **state) {
    test_head *head = *state;
    const char *methods[] = {"sleep", "spin"};
    for (int i = 0; i < 2; i++) {
        test_caller caller;
        char expected[64];
        test_start_trouble(head, &(test_start){.liveness_ms = LIMIT_MS}, &caller, NULL);
        uint64_t start_ns = trpi_now_ns();
        test_caller_send(&caller, methods[i], "60000");
        const trpi_death *death = test_wait_exit(head, caller.actor);
        uint64_t ms = (trpi_now_ns() - start_ns) / 1000000;
        assert_int_equal(death->cause, TRP_CAUSE_HUNG);
        assert_int_equal(death->signal, SIGKILL);
        trpi_format(expected, sizeof expected, "method %s ran 0.4 s without", methods[i]);
        assert_non_null(strstr(death->message, expected));
        assert_non_null(strstr(death->message, "trp_context_beat(), limit 0.4 s"));
        expect_described(death);
        trpi_format(expected, sizeof expected, "in method %s:", methods[i]);
        assert_non_null(strstr(death->stderr_tail, "stack of thread")); /* its own handler */
        assert_non_null(strstr(death->stderr_tail, expected));
        assert_true(ms >= LIMIT_MS);
        print_message("%s: told %llu ms after it began\n", methods[i], (unsigned long long)ms);
        test_caller_close(&caller);
    }
}

static void one_that_beats_or_is_idle_is_not_hung(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_trouble(head, &(test_start){.liveness_ms = LIMIT_MS}, &caller, NULL);
    assert_string_equal(test_caller_ask(&caller, "beat", "1200"), "beaten");
    test_head_listen(head, 1200);
    assert_string_equal(test_caller_ask(&caller, "sleep", "100"), "slept");
    assert_false(has_exited(head, caller.actor));
    test_end_probe(head, &caller);
}

static void a_process_that_is_stopped_is_told_as_stopped(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    test_start_trouble(head, &(test_start){.liveness_ms = LIMIT_MS}, &caller, &pid);
    kill((pid_t)pid, SIGSTOP);
    uint64_t start_ns = trpi_now_ns();
    const trpi_death *death = test_wait_exit(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_HUNG);
    assert_string_equal(death->message, "answered no ping for 0.4 s (stopped: state T)");
    assert_non_null(strstr(death->stderr_tail, "T (stopped)"));
    assert_true(trpi_now_ns() - start_ns >= LIMIT_MS * 1000000u);
    test_caller_close(&caller);
}

static void a_constructor_hangs_too(void **state) {
    test_head *head = *state;
    uint64_t actor = test_say_start(
        head, &(test_start){.type = "trouble", .args = "60000", .liveness_ms = LIMIT_MS});
    const trpi_death *death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_HUNG);
    assert_non_null(strstr(death->message, "ran 0.4 s without"));
    expect_described(death);
}

static void a32_a_constructor_that_misses_the_start_timeout_is_described(void **state) {
    test_head *head = *state;
    uint64_t actor =
        test_say_start(head, &(test_start){.type = "trouble", .args = "60000", .timeout_ms = 300});
    const trpi_death *death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_START_TIMEOUT);
    expect_described(death);
}

static void a_kill_does_not_wait_for_the_dump_of_a_hung_one(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    test_start_trouble(head, &(test_start){.liveness_ms = LIMIT_MS}, &caller, &pid);
    kill((pid_t)pid, SIGSTOP);
    test_head_listen(head, LIMIT_MS / 2);
    test_say_end(head, caller.actor);
    assert_int_equal(test_wait_exit(head, caller.actor)->cause, TRP_CAUSE_KILLED);
    test_caller_close(&caller);
}

static void a_daemon_that_was_stopped_takes_nobody_for_hung(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    test_start_trouble(head, &(test_start){.liveness_ms = LIMIT_MS}, &caller, &pid);
    test_caller_send(&caller, "beat", "3000");
    for (int i = 0; i < 2; i++) {
        kill(head->node, SIGSTOP);
        kill((pid_t)pid, SIGSTOP);
        test_head_listen(head, 3 * LIMIT_MS);
        kill(head->node, SIGCONT);
        test_head_listen(head, 50);
        kill((pid_t)pid, SIGCONT);
        test_head_listen(head, LIMIT_MS);
    }
    assert_false(has_exited(head, caller.actor));
    test_end_probe(head, &caller);
}

/* ---- Exclusive ones ---- */

static void an_exclusive_actor_ends_by_itself_when_its_daemon_is_stopped(void **state) {
    test_head head;
    test_caller exclusive, other;
    int64_t pid, other_pid;
    open_node(&head, 1000);
    test_start_trouble(&head, &(test_start){.exclusive = true}, &exclusive, &pid);
    test_start_trouble(&head, &(test_start){0}, &other, &other_pid);
    test_head_listen(&head, 1500); /* longer than one lease: it is renewed */
    assert_int_equal(trpi_process_state((pid_t)pid) == 'S', 1);
    uint64_t start_ns = trpi_now_ns();
    kill(head.node, SIGSTOP);
    while (trpi_process_state((pid_t)pid) != 'Z' && trpi_now_ns() - start_ns < 10000000000u) {
        test_head_listen(&head, 10);
    }
    uint64_t ms = (trpi_now_ns() - start_ns) / 1000000;
    assert_int_equal(trpi_process_state((pid_t)pid), 'Z');
    print_message("ended after %llu ms of a lease of 1000 ms\n", (unsigned long long)ms);
    assert_true(ms <= 1500);
    assert_int_equal(trpi_process_state((pid_t)other_pid), 'S'); /* it did not ask for that */
    kill(head.node, SIGCONT);
    test_caller_close(&exclusive);
    test_caller_close(&other);
    test_head_close(&head);
}

static void an_exclusive_actor_is_lent_no_more_than_its_node_has(void **state) {
    test_head head;
    test_caller caller;
    int64_t pid;
    open_node(&head, 1000);
    test_start_trouble(&head, &(test_start){.exclusive = true}, &caller, &pid);
    test_head_listen(&head, 300);
    head.deaf = true;
    uint64_t start_ns = trpi_now_ns();
    while (trpi_process_start_time((pid_t)pid) != 0 && trpi_now_ns() - start_ns < 10000000000u) {
        test_head_listen(&head, 10);
    }
    assert_true((trpi_now_ns() - start_ns) / 1000000 <= 1500);
    head.deaf = false;
    test_caller_close(&caller);
    test_head_close(&head);
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, test_trouble_types);
    test_head_own_root();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_method_that_gives_no_sign_of_life_is_hung),
        cmocka_unit_test(one_that_beats_or_is_idle_is_not_hung),
        cmocka_unit_test(a_process_that_is_stopped_is_told_as_stopped),
        cmocka_unit_test(a_constructor_hangs_too),
        cmocka_unit_test(a32_a_constructor_that_misses_the_start_timeout_is_described),
        cmocka_unit_test(a_kill_does_not_wait_for_the_dump_of_a_hung_one),
        cmocka_unit_test(a_daemon_that_was_stopped_takes_nobody_for_hung),
        cmocka_unit_test(an_exclusive_actor_ends_by_itself_when_its_daemon_is_stopped),
        cmocka_unit_test(an_exclusive_actor_is_lent_no_more_than_its_node_has),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

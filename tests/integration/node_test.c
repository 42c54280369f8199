/* Workers of a node daemon under a head that this test plays: starts, calls and deaths. */
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

#include "core/net/clock.h"
#include "core/sys/process.h"
#include "core/sys/session.h"
#include "tests/lib/probe.h"

#define PATIENCE_MS 20000

static test_head the_head;

static int setup(void **state) {
    test_head_open(&the_head);
    test_head_start_node(&the_head);
    const trpi_msg_node_hello *hello = &test_head_wait(&the_head, TRPI_MSG_NODE_HELLO)->node_hello;
    assert_string_equal(hello->name, "testnode");
    assert_int_equal(hello->holdings_count, 0);
    *state = &the_head;
    return 0;
}

static int teardown(void **state) {
    test_head_close(*state);
    return 0;
}

/* ---- Starts and calls ---- */

static void an_actor_starts_and_sees_what_it_was_given(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    char expected[512];
    test_start_probe(head, &caller, &pid);
    trpi_format(expected, sizeof expected,
                "pid=%d group=%d cwd=/ devices=1,0/1,0 threads=2 color=red=1 node=%d "
                "incarnation=3 name=bob",
                (int)pid, (int)pid, TEST_NODE_ID);
    assert_string_equal(test_caller_ask(&caller, "sees", ""), expected);
    assert_string_equal(test_caller_ask(&caller, "add", ""), "1");
    assert_string_equal(test_caller_ask(&caller, "add", ""), "2");
    test_end_probe(head, &caller);
}

static void a_call_of_another_incarnation_is_refused(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_probe(head, &caller, NULL);
    caller.incarnation = 2;
    test_caller_send(&caller, "add", "");
    const trpi_msg_reply *reply = test_caller_reply(&caller, PATIENCE_MS);
    assert_non_null(reply);
    assert_int_equal(reply->code, TRP_EUNAVAILABLE);
    assert_string_equal(reply->message, "stale incarnation");
    caller.incarnation = 3;
    assert_string_equal(test_caller_ask(&caller, "add", ""), "1");
    test_end_probe(head, &caller);
}

static void a_method_that_is_not_there_is_answered_with_the_nearest(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_probe(head, &caller, NULL);
    test_caller_send(&caller, "prnt", "");
    const trpi_msg_reply *reply = test_caller_reply(&caller, PATIENCE_MS);
    assert_int_equal(reply->code, TRP_ENOTFOUND);
    assert_non_null(strstr(reply->message, "did you mean \"print\"?"));
    test_caller_send(&caller, "fail", "");
    reply = test_caller_reply(&caller, PATIENCE_MS);
    assert_int_equal(reply->code, TRP_EUSER);
    assert_string_equal(reply->message, "asked to fail");
    test_end_probe(head, &caller);
}

static void a_promise_is_answered_at_once_also_while_a_method_runs(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_probe(head, &caller, NULL);
    for (int round = 0; round < 2; round++) {
        test_caller_send(&caller, "defer", "");
        test_caller_send(&caller, "resolve", round == 0 ? "3000" : "0");
        uint64_t first = caller.calls - 1;
        const trpi_msg_reply *reply = test_caller_reply(&caller, PATIENCE_MS);
        if (round == 0) {
            assert_int_equal(reply->call, first); /* long before "resolve" returns */
        }
        const trpi_msg_reply *second =
            reply->call == first ? reply : test_caller_reply(&caller, PATIENCE_MS);
        assert_int_equal(second->call, first);
        assert_memory_equal(caller.packet.body.data, "later", 5);
        if (round == 0) {
            assert_int_equal(test_caller_reply(&caller, PATIENCE_MS)->call, first + 1);
        }
    }
    test_end_probe(head, &caller);
}

static void a_signal_arrives_while_a_method_runs(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_probe(head, &caller, NULL);
    trpi_msg stale = {.type = TRPI_MSG_SIGNAL, .signal = {.actor = caller.actor, .incarnation = 2}};
    trpi_msg good = {.type = TRPI_MSG_SIGNAL, .signal = {.actor = caller.actor, .incarnation = 3}};
    test_caller_send(&caller, "signaled", "");
    test_head_say(head, &stale);
    test_head_say(head, &good);
    assert_non_null(test_caller_reply(&caller, PATIENCE_MS));
    assert_memory_equal(caller.packet.body.data, "1", 1);
    test_end_probe(head, &caller);
}

static void signals_keep_their_order_when_the_constructor_returns(void **state) {
    test_head *head = *state;
    char number[16], expected[64];
    for (int round = 0; round < 5; round++) {
        test_caller caller;
        uint64_t actor = test_say_start(head, &(test_start){.args = "slow"});
        for (int i = 1; i <= 400; i++) { /* some are taken before it returns, some after */
            trpi_format(number, sizeof number, "%d", i);
            trpi_msg msg = {.type = TRPI_MSG_SIGNAL,
                            .signal = {.actor = actor, .data = trp_bytes_of(number)}};
            test_head_say(head, &msg);
            uint64_t next_ns = trpi_now_ns() + 40000;
            while (trpi_now_ns() < next_ns) {
            }
        }
        test_caller_open(head, test_wait_started(head, actor), &caller);
        trpi_format(expected, sizeof expected, "%s in order", number);
        assert_string_equal(test_caller_ask(&caller, "order", number), expected);
        test_end_probe(head, &caller);
    }
}

static void a_value_that_is_too_large_to_travel_is_an_error(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_probe(head, &caller, NULL);
    test_caller_send(&caller, "huge", "");
    const trpi_msg_reply *reply = test_caller_reply(&caller, PATIENCE_MS);
    assert_non_null(reply);
    assert_int_equal(reply->code, TRP_EINVALID);
    assert_non_null(strstr(reply->message, "at most 536870912"));
    assert_string_equal(test_caller_ask(&caller, "add", ""), "1");
    test_end_probe(head, &caller);
}

/* ---- Deaths ---- */

static void a_killed_worker_is_told_with_signal_and_last_words(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    test_start_probe(head, &caller, &pid);
    (void)test_caller_ask(&caller, "print", "good bye");
    kill((pid_t)pid, SIGKILL);
    const trpi_death *death = test_wait_exit(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_SIGNALED);
    assert_int_equal(death->signal, SIGKILL);
    assert_int_equal(death->pid, pid);
    assert_string_equal(death->message, "signal 9 (SIGKILL)");
    assert_string_equal(death->stderr_tail, "err good bye\n");
    assert_int_equal(kill((pid_t)pid, 0), -1); /* reaped */
    test_caller_close(&caller);
}

static void an_exit_code_is_told(void **state) {
    test_head *head = *state;
    const char *codes[] = {"4", "0"};
    for (int i = 0; i < 2; i++) {
        test_caller caller;
        test_start_probe(head, &caller, NULL);
        test_caller_send(&caller, "exit", codes[i]);
        const trpi_death *death = test_wait_exit(head, caller.actor);
        assert_int_equal(death->cause, TRP_CAUSE_EXITED);
        assert_int_equal(death->exit_code, atoi(codes[i]));
        assert_non_null(strstr(death->message, "exit code"));
        test_caller_close(&caller);
    }
}

static void an_actor_that_ends_itself_replies_first_and_runs_its_stop_hook(void **state) {
    test_head *head = *state;
    for (int i = 0; i < 20; i++) {
        test_caller caller;
        test_start_probe(head, &caller, NULL);
        assert_string_equal(test_caller_ask(&caller, "leave", ""), "leaving");
        const trpi_death *death = test_wait_exit(head, caller.actor);
        assert_int_equal(death->cause, TRP_CAUSE_FINISHED);
        assert_int_equal(death->exit_code, 0);
        test_caller_close(&caller);
    }
    test_caller later;
    test_start_probe(head, &later, NULL);
    (void)test_caller_ask(&later, "leave_later", "");
    assert_int_equal(test_wait_exit(head, later.actor)->cause, TRP_CAUSE_FINISHED);
    test_caller_close(&later);
    const trpi_msg_log_lines *lines = &test_head_wait(head, TRPI_MSG_LOG_LINES)->log_lines;
    while (lines->text.size != strlen("stopped\n")) {
        lines = &test_head_wait(head, TRPI_MSG_LOG_LINES)->log_lines;
    }
    assert_memory_equal(lines->text.data, "stopped\n", lines->text.size);
    test_head_forget(head);
}

static void a_constructor_that_fails_is_told_from_one_that_crashes(void **state) {
    test_head *head = *state;
    uint64_t actor = test_say_start(head, &(test_start){.args = "fail"});
    const trpi_death *death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_NEVER_STARTED);
    assert_string_equal(death->message, "constructor of probe: asked to fail");
    actor = test_say_start(head, &(test_start){.args = "crash"});
    death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_SIGNALED);
    assert_int_equal(death->signal, SIGSEGV);
    assert_non_null(strstr(death->message, "constructor"));
    actor = test_say_start(head, &(test_start){.type = "prob"});
    death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_NEVER_STARTED);
    assert_non_null(strstr(death->message, "did you mean \"probe\"?"));
}

static void a_constructor_that_hangs_is_killed_at_its_deadline(void **state) {
    test_head *head = *state;
    uint64_t actor = test_say_start(head, &(test_start){.args = "hang", .timeout_ms = 300});
    const trpi_death *death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_START_TIMEOUT);
    assert_non_null(strstr(death->message, "constructor"));
    assert_true(test_process_gone((pid_t)death->pid));
}

static void a_program_that_cannot_run_says_why(void **state) {
    test_head *head = *state;
    uint64_t actor = test_say_start(head, &(test_start){.exe = "/nowhere/prog"});
    const trpi_death *death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_NEVER_STARTED);
    assert_non_null(strstr(death->message, "/nowhere/prog"));
    assert_non_null(strstr(death->message, "No such file"));
    actor = test_say_start(head, &(test_start){.exe = "/bin/false"});
    death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_NEVER_STARTED);
    assert_non_null(strstr(death->message, "before it reached trp_init(): exit code 1"));
    actor = test_say_start(head, &(test_start){.exe = "/bin/mkdir"});
    death = test_wait_exit(head, actor);
    assert_non_null(strstr(death->stderr_tail, "missing operand"));
}

static void a_program_that_never_reaches_trp_init_is_killed_at_the_deadline(void **state) {
    test_head *head = *state; /* "yes" also floods the daemon with its output */
    uint64_t actor = test_say_start(head, &(test_start){.exe = "/usr/bin/yes", .timeout_ms = 400});
    const trpi_death *death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_START_TIMEOUT);
    assert_non_null(strstr(death->message, "program"));
}

static void ending_an_actor_kills_its_children_too(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    test_start_probe(head, &caller, &pid);
    pid_t child = (pid_t)atoi(test_caller_ask(&caller, "child", ""));
    pid_t escaped = (pid_t)atoi(test_caller_ask(&caller, "daemon", ""));
    assert_true(trpi_process_start_time(escaped) != 0);
    test_say_end(head, caller.actor);
    const trpi_death *death = test_wait_exit(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_KILLED);
    assert_string_equal(death->message, "asked");
    assert_true(test_process_gone((pid_t)pid));
    assert_true(test_process_gone(child));
    assert_true(test_process_gone(escaped));
    /* Said again, it is answered again. */
    test_say_end(head, caller.actor);
    assert_int_equal(test_wait_exit(head, caller.actor)->cause, TRP_CAUSE_KILLED);
    test_caller_close(&caller);
}

static void an_actor_can_be_ended_before_it_has_a_process(void **state) {
    test_head *head = *state;
    for (int i = 0; i < 10; i++) {
        uint64_t actor = test_say_start(head, &(test_start){0});
        test_say_end(head, actor);
        assert_int_equal(test_wait_exit(head, actor)->cause, TRP_CAUSE_KILLED);
    }
    test_head_forget(head);
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, test_probe_types);
    test_head_own_root();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_actor_starts_and_sees_what_it_was_given),
        cmocka_unit_test(a_call_of_another_incarnation_is_refused),
        cmocka_unit_test(a_method_that_is_not_there_is_answered_with_the_nearest),
        cmocka_unit_test(a_promise_is_answered_at_once_also_while_a_method_runs),
        cmocka_unit_test(a_signal_arrives_while_a_method_runs),
        cmocka_unit_test(signals_keep_their_order_when_the_constructor_returns),
        cmocka_unit_test(a_value_that_is_too_large_to_travel_is_an_error),
        cmocka_unit_test(a_killed_worker_is_told_with_signal_and_last_words),
        cmocka_unit_test(an_exit_code_is_told),
        cmocka_unit_test(an_actor_that_ends_itself_replies_first_and_runs_its_stop_hook),
        cmocka_unit_test(a_constructor_that_fails_is_told_from_one_that_crashes),
        cmocka_unit_test(a_constructor_that_hangs_is_killed_at_its_deadline),
        cmocka_unit_test(a_program_that_cannot_run_says_why),
        cmocka_unit_test(a_program_that_never_reaches_trp_init_is_killed_at_the_deadline),
        cmocka_unit_test(ending_an_actor_kills_its_children_too),
        cmocka_unit_test(an_actor_can_be_ended_before_it_has_a_process),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

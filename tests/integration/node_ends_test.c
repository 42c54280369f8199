/* How a node ends its workers: in good order, at a deadline, at once; and what travels through it
 * between them and the head. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "tests/lib/trouble.h"

#define PATIENCE_MS 20000

static test_head the_head;

static int setup(void **state) {
    test_head_open(&the_head);
    test_head_start_node(&the_head);
    (void)test_head_wait(&the_head, TRPI_MSG_NODE_HELLO);
    *state = &the_head;
    return 0;
}

static int teardown(void **state) {
    test_head_close(*state);
    return 0;
}

static void say_end(test_head *head, uint64_t actor, trp_cause cause, uint64_t grace_ms) {
    trpi_msg msg = {.type = TRPI_MSG_END,
                    .end = {.actor = actor,
                            .incarnation = TEST_PROBE_INCARNATION,
                            .cause = cause,
                            .reason = "asked",
                            .grace_ms = grace_ms}};
    test_head_say(head, &msg);
}

static uint64_t ms_since(uint64_t start_ns) {
    return (trpi_now_ns() - start_ns) / 1000000;
}

static void a22_an_actor_that_is_stopped_answers_first_and_runs_its_stop_hook(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_trouble(head, &(test_start){0}, &caller, NULL);
    for (int i = 0; i < 3; i++) {
        test_caller_send(&caller, "sleep", "50");
    }
    test_head_listen(head, 20); /* they are there before the word to stop is */
    say_end(head, caller.actor, TRP_CAUSE_STOPPED, 10000);
    const trpi_death *death = test_wait_exit(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_STOPPED);
    assert_int_equal(death->exit_code, 0);
    assert_int_equal(death->signal, 0);
    assert_string_equal(death->message, "asked");
    assert_string_equal(death->stderr_tail, "stop hook\n");
    for (int i = 0; i < 3; i++) {
        const trpi_msg_reply *reply = test_caller_reply(&caller, PATIENCE_MS);
        assert_non_null(reply);
        assert_int_equal(reply->code, TRP_OK);
    }
    test_caller_close(&caller);
}

static void a22_a_stop_hook_that_blocks_is_killed_at_its_deadline(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_trouble(head, &(test_start){0}, &caller, NULL);
    (void)test_caller_ask(&caller, "linger", "60000");
    uint64_t start_ns = trpi_now_ns();
    say_end(head, caller.actor, TRP_CAUSE_STOPPED, 300);
    const trpi_death *death = test_wait_exit(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_KILLED);
    assert_int_equal(death->signal, SIGKILL);
    assert_non_null(strstr(death->message, "when its grace was over"));
    assert_string_equal(death->stderr_tail, "stop hook\n");
    assert_true(ms_since(start_ns) >= 300);
    test_caller_close(&caller);
}

static void another_cause_than_stopped_stays_when_the_grace_is_over(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_trouble(head, &(test_start){0}, &caller, NULL);
    test_caller_send(&caller, "sleep", "60000");
    say_end(head, caller.actor, TRP_CAUSE_DRAINED, 200);
    const trpi_death *death = test_wait_exit(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_DRAINED);
    test_caller_close(&caller);
}

static void of_several_graces_the_shortest_holds(void **state) {
    test_head *head = *state;
    test_caller caller;
    for (int shorter_first = 0; shorter_first < 2; shorter_first++) {
        test_start_trouble(head, &(test_start){0}, &caller, NULL);
        (void)test_caller_ask(&caller, "linger", "60000");
        uint64_t start_ns = trpi_now_ns();
        say_end(head, caller.actor, TRP_CAUSE_STOPPED, shorter_first ? 300 : 50000);
        say_end(head, caller.actor, TRP_CAUSE_STOPPED, shorter_first ? 50000 : 300);
        assert_int_equal(test_wait_exit(head, caller.actor)->cause, TRP_CAUSE_KILLED);
        assert_true(ms_since(start_ns) >= 300);
        assert_true(ms_since(start_ns) < 15000);
        test_caller_close(&caller);
    }
}

static void a_kill_needs_not_wait_for_a_stop(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_trouble(head, &(test_start){0}, &caller, NULL);
    (void)test_caller_ask(&caller, "linger", "60000");
    say_end(head, caller.actor, TRP_CAUSE_STOPPED, 60000);
    test_head_listen(head, 100);
    say_end(head, caller.actor, TRP_CAUSE_OWNER_DIED, 0);
    const trpi_death *death = test_wait_exit(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_OWNER_DIED);
    assert_string_equal(death->message, "asked");
    test_caller_close(&caller);
}

static void one_that_crashes_while_it_stops_is_told_as_crashed(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    test_start_trouble(head, &(test_start){0}, &caller, &pid);
    test_caller_send(&caller, "sleep", "60000");
    test_head_listen(head, 50);
    say_end(head, caller.actor, TRP_CAUSE_STOPPED, 60000);
    test_head_listen(head, 100);
    kill((pid_t)pid, SIGTERM);
    const trpi_death *death = test_wait_exit(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_SIGNALED);
    assert_int_equal(death->signal, SIGTERM);
    assert_string_equal(death->message, "signal 15 (SIGTERM) while it was asked to stop: asked");
    test_caller_close(&caller);
}

static void one_that_has_not_begun_is_stopped_at_once(void **state) {
    test_head *head = *state;
    for (int i = 0; i < 10; i++) {
        uint64_t actor = test_say_start(head, &(test_start){.type = "trouble"});
        say_end(head, actor, TRP_CAUSE_STOPPED, 20000);
        assert_int_equal(test_wait_exit(head, actor)->cause, TRP_CAUSE_STOPPED);
    }
    test_head_forget(head);
}

/* ---- Through the node ---- */

/* The reply needs the head's word, so the head must go on. */
static const trpi_msg_reply *await_reply(test_head *head, test_caller *caller) {
    const trpi_msg_reply *reply = NULL;
    for (int i = 0; i < 1000 && !reply; i++) {
        test_head_listen(head, 10);
        reply = test_caller_reply(caller, 10);
    }
    return reply;
}

static void a_state_is_saved_when_the_head_has_answered(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_trouble(head, &(test_start){0}, &caller, NULL);
    test_caller_send(&caller, "save", "");
    const trpi_msg_save *save = &test_head_wait(head, TRPI_MSG_SAVE)->save;
    assert_int_equal(save->actor, caller.actor);
    assert_int_equal(save->incarnation, TEST_PROBE_INCARNATION);
    assert_int_equal(save->state.size, strlen("what I was"));
    trpi_msg saved = {.type = TRPI_MSG_SAVED,
                      .saved = {.actor = save->actor,
                                .incarnation = save->incarnation,
                                .request = save->request,
                                .code = TRP_OK,
                                .message = ""}};
    assert_null(test_caller_reply(&caller, 100));
    test_head_say(head, &saved);
    assert_non_null(await_reply(head, &caller));
    assert_memory_equal(caller.packet.body.data, "saved", 5);
    test_end_probe(head, &caller);
}

static bool drains_within(test_caller *caller, long long ms) {
    long long left = strtoll(test_caller_ask(caller, "drain_ms", ""), NULL, 10);
    return left > 0 && left <= ms;
}

static void a_drain_reaches_those_that_run_and_those_that_start_later(void **state) {
    test_head *head = *state;
    test_caller before, after;
    test_start_trouble(head, &(test_start){0}, &before, NULL);
    assert_false(drains_within(&before, 60000));
    trpi_msg notice = {.type = TRPI_MSG_DRAIN_NOTICE,
                       .drain_notice = {.deadline_ms = 60000, .reason = "preemption"}};
    test_head_say(head, &notice);
    test_head_listen(head, 50);
    for (int i = 0; i < 100 && !drains_within(&before, 60000); i++) {
        test_head_listen(head, 20);
    }
    assert_true(drains_within(&before, 60000));
    test_start_trouble(head, &(test_start){0}, &after, NULL);
    for (int i = 0; i < 100 && !drains_within(&after, 60000); i++) {
        test_head_listen(head, 20);
    }
    assert_true(drains_within(&after, 60000));
    test_end_probe(head, &before);
    test_end_probe(head, &after);
}

/* ---- Starts that meet a dead worker ---- */

static pid_t idle_worker(const test_head *head, pid_t besides) {
    char path[64];
    int pid, last = 0;
    trpi_format(path, sizeof path, "/proc/%d/task/%d/children", (int)head->node, (int)head->node);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    for (int i = 0; fscanf(file, "%d", &pid) == 1; i++) {
        last = i > 0 && pid != besides ? pid : last; /* the first is the zygote */
    }
    fclose(file);
    return last;
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

static void an_idle_worker_that_has_died_costs_no_actor_a_life(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    for (int i = 0; i < 10; i++) {
        test_start_trouble(head, &(test_start){0}, &caller, &pid);
        test_head_listen(head, 100); /* the pool is full again */
        kill(idle_worker(head, (pid_t)pid), SIGKILL);
        uint64_t actor = test_say_start(head, &(test_start){.type = "trouble"});
        (void)test_wait_started(head, actor);
        assert_false(has_exited(head, actor));
        test_say_end(head, actor);
        (void)test_wait_exit(head, actor);
        test_end_probe(head, &caller);
    }
}

static void a_directory_that_is_missing_is_named(void **state) {
    test_head *head = *state;
    uint64_t actor = test_say_start(head, &(test_start){.cwd = "/nowhere/at/all"});
    const trpi_death *death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_NEVER_STARTED);
    assert_non_null(strstr(death->message, "/nowhere/at/all: No such file"));
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, test_trouble_types);
    test_head_own_root();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a22_an_actor_that_is_stopped_answers_first_and_runs_its_stop_hook),
        cmocka_unit_test(a22_a_stop_hook_that_blocks_is_killed_at_its_deadline),
        cmocka_unit_test(another_cause_than_stopped_stays_when_the_grace_is_over),
        cmocka_unit_test(of_several_graces_the_shortest_holds),
        cmocka_unit_test(a_kill_needs_not_wait_for_a_stop),
        cmocka_unit_test(one_that_crashes_while_it_stops_is_told_as_crashed),
        cmocka_unit_test(one_that_has_not_begun_is_stopped_at_once),
        cmocka_unit_test(a_state_is_saved_when_the_head_has_answered),
        cmocka_unit_test(an_idle_worker_that_has_died_costs_no_actor_a_life),
        cmocka_unit_test(a_directory_that_is_missing_is_named),
        cmocka_unit_test(a_drain_reaches_those_that_run_and_those_that_start_later),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

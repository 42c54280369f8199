/* controller_test.c: the life of a run, by every path and at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "trainer/state/controller.h"

#define EXPECT(event, action_, state_)                                                             \
    do {                                                                                           \
        assert_int_equal(trpi_controller_step(&c, event), action_);                                \
        assert_int_equal(c.state, state_);                                                         \
        assert_null(trpi_controller_check(&c));                                                    \
    } while (0)

static void T06_a_run_with_one_failure_goes_through_exactly_these_states(void **state) {
    trpi_controller c = {.max_failures = 1, .start_failures_max = 3};
    assert_int_equal(c.state, TRP_RUN_INITIALIZING);
    EXPECT(TRPI_ON_BEGIN, TRPI_DO_START, TRP_RUN_SCHEDULING);
    EXPECT(TRPI_ON_STARTED, TRPI_DO_WATCH, TRP_RUN_RUNNING);
    assert_int_equal(c.attempt, 1);
    EXPECT(TRPI_ON_RANK_FAILED, TRPI_DO_STOP, TRP_RUN_RESTARTING);
    EXPECT(TRPI_ON_STOPPED, TRPI_DO_START, TRP_RUN_SCHEDULING);
    EXPECT(TRPI_ON_STARTED, TRPI_DO_WATCH, TRP_RUN_RUNNING);
    assert_int_equal(c.attempt, 2);
    EXPECT(TRPI_ON_ALL_FINISHED, TRPI_DO_TEAR_DOWN, TRP_RUN_SHUTTING_DOWN);
    EXPECT(TRPI_ON_TORN_DOWN, TRPI_DO_END, TRP_RUN_FINISHED);
    assert_int_equal(c.restarts, 1);
}

/* Fails the group as often as it is started again; returns how often that was. */
static int retries_until_the_end(int max_failures, int at_most) {
    trpi_controller c = {.max_failures = max_failures, .start_failures_max = 3};
    trpi_control_action action = trpi_controller_step(&c, TRPI_ON_BEGIN);
    while (action == TRPI_DO_START && c.restarts < at_most) {
        (void)trpi_controller_step(&c, TRPI_ON_STARTED);
        action = trpi_controller_step(&c, TRPI_ON_RANK_FAILED);
        if (action == TRPI_DO_STOP) {
            action = trpi_controller_step(&c, TRPI_ON_STOPPED);
        }
    }
    if (c.state == TRP_RUN_SHUTTING_DOWN) {
        assert_int_equal(c.outcome, TRP_RUN_ERRORED);
    }
    return c.restarts;
}

static void T26_exactly_as_many_retries_as_failures_are_allowed(void **state) {
    assert_int_equal(retries_until_the_end(0, 100), 0);
    assert_int_equal(retries_until_the_end(1, 100), 1);
    assert_int_equal(retries_until_the_end(10, 100), 10);
    assert_int_equal(retries_until_the_end(-1, 100), 100);
}

/* Fails with the program's error `hash` after `step`; true if the run goes on. */
static bool fails_with(trpi_controller *c, uint64_t step, uint64_t hash) {
    c->mark = (trpi_failure_mark){.is_program = true, .step = step, .hash = hash};
    bool goes_on = trpi_controller_step(c, TRPI_ON_RANK_FAILED) == TRPI_DO_STOP;
    assert_null(trpi_controller_check(c));
    if (goes_on) {
        (void)trpi_controller_step(c, TRPI_ON_STOPPED);
        (void)trpi_controller_step(c, TRPI_ON_STARTED);
    }
    return goes_on;
}

static trpi_controller running(int max_failures) {
    trpi_controller c = {.max_failures = max_failures, .start_failures_max = 3};
    (void)trpi_controller_step(&c, TRPI_ON_BEGIN);
    (void)trpi_controller_step(&c, TRPI_ON_STARTED);
    return c;
}

static void the_same_error_at_the_same_step_ends_the_run(void **state) {
    trpi_controller c = running(-1);
    assert_true(fails_with(&c, 7, 1));
    assert_true(fails_with(&c, 8, 1));
    assert_true(fails_with(&c, 8, 2));
    assert_false(fails_with(&c, 8, 2));
    assert_true(c.is_repeated);
    assert_int_equal(c.outcome, TRP_RUN_ERRORED);
}

static void a_kill_between_two_equal_errors_changes_nothing(void **state) {
    trpi_controller c = running(-1);
    assert_true(fails_with(&c, 7, 1));
    for (int i = 0; i < 2; i++) { /* kills, at one step */
        c.mark = (trpi_failure_mark){.step = 7};
        assert_int_equal(trpi_controller_step(&c, TRPI_ON_RANK_FAILED), TRPI_DO_STOP);
        (void)trpi_controller_step(&c, TRPI_ON_STOPPED);
        (void)trpi_controller_step(&c, TRPI_ON_STARTED);
    }
    assert_false(fails_with(&c, 7, 1));
    assert_true(c.is_repeated);
}

static void the_last_failure_that_is_allowed_is_not_called_repeated(void **state) {
    trpi_controller c = running(1);
    assert_true(fails_with(&c, 7, 1));
    assert_false(fails_with(&c, 7, 1));
    assert_false(c.is_repeated);
}

static void workers_that_are_killed_while_they_start_spend_retries_at_last(void **state) {
    trpi_controller c = {.max_failures = 1, .start_failures_max = 2};
    EXPECT(TRPI_ON_BEGIN, TRPI_DO_START, TRP_RUN_SCHEDULING);
    for (int i = 0; i < 2; i++) {
        EXPECT(TRPI_ON_START_LOST, TRPI_DO_STOP, TRP_RUN_RESCHEDULING);
        EXPECT(TRPI_ON_STOPPED, TRPI_DO_START, TRP_RUN_SCHEDULING);
    }
    assert_int_equal(c.failures, 0);
    EXPECT(TRPI_ON_START_LOST, TRPI_DO_STOP, TRP_RUN_RESTARTING);
    EXPECT(TRPI_ON_STOPPED, TRPI_DO_START, TRP_RUN_SCHEDULING);
    EXPECT(TRPI_ON_START_LOST, TRPI_DO_TEAR_DOWN, TRP_RUN_SHUTTING_DOWN);
    EXPECT(TRPI_ON_TORN_DOWN, TRPI_DO_END, TRP_RUN_ERRORED);
}

static void T29_failed_starts_spend_no_retries(void **state) {
    trpi_controller c = {.max_failures = 0, .start_failures_max = 3};
    EXPECT(TRPI_ON_BEGIN, TRPI_DO_START, TRP_RUN_SCHEDULING);
    for (int i = 0; i < 2; i++) {
        EXPECT(TRPI_ON_START_FAILED, TRPI_DO_STOP, TRP_RUN_RESCHEDULING);
        EXPECT(TRPI_ON_STOPPED, TRPI_DO_START, TRP_RUN_SCHEDULING);
    }
    EXPECT(TRPI_ON_STARTED, TRPI_DO_WATCH, TRP_RUN_RUNNING);
    assert_int_equal(c.failures, 0);
    assert_int_equal(c.restarts, 0);
    assert_int_equal(c.attempt, 3);
}

static void starts_that_keep_failing_end_the_run(void **state) {
    trpi_controller c = {.max_failures = -1, .start_failures_max = 1};
    EXPECT(TRPI_ON_BEGIN, TRPI_DO_START, TRP_RUN_SCHEDULING);
    EXPECT(TRPI_ON_START_FAILED, TRPI_DO_STOP, TRP_RUN_RESCHEDULING);
    EXPECT(TRPI_ON_STOPPED, TRPI_DO_START, TRP_RUN_SCHEDULING);
    EXPECT(TRPI_ON_START_FAILED, TRPI_DO_TEAR_DOWN, TRP_RUN_SHUTTING_DOWN);
    EXPECT(TRPI_ON_TORN_DOWN, TRPI_DO_END, TRP_RUN_ERRORED);
}

static void an_abort_ends_the_run_from_any_state(void **state) {
    static const trpi_control_event path[] = {TRPI_ON_BEGIN, TRPI_ON_STARTED, TRPI_ON_RANK_FAILED};
    for (size_t steps = 0; steps <= 3; steps++) {
        trpi_controller c = {.max_failures = 1, .start_failures_max = 3};
        for (size_t i = 0; i < steps; i++) {
            (void)trpi_controller_step(&c, path[i]);
        }
        EXPECT(TRPI_ON_ABORT, TRPI_DO_TEAR_DOWN, TRP_RUN_SHUTTING_DOWN);
        EXPECT(TRPI_ON_TORN_DOWN, TRPI_DO_END, TRP_RUN_ABORTED);
    }
}

static void an_abort_after_the_outcome_changes_nothing(void **state) {
    trpi_controller c = {.start_failures_max = 3};
    EXPECT(TRPI_ON_BEGIN, TRPI_DO_START, TRP_RUN_SCHEDULING);
    EXPECT(TRPI_ON_STARTED, TRPI_DO_WATCH, TRP_RUN_RUNNING);
    EXPECT(TRPI_ON_ALL_FINISHED, TRPI_DO_TEAR_DOWN, TRP_RUN_SHUTTING_DOWN);
    EXPECT(TRPI_ON_ABORT, TRPI_DO_NOTHING, TRP_RUN_SHUTTING_DOWN);
    EXPECT(TRPI_ON_TORN_DOWN, TRPI_DO_END, TRP_RUN_FINISHED);
    EXPECT(TRPI_ON_RANK_FAILED, TRPI_DO_NOTHING, TRP_RUN_FINISHED);
}

static void any_order_of_events_keeps_the_invariants(void **state) {
    uint64_t seed = 88172645463325252u;
    for (int run = 0; run < 2000; run++) {
        trpi_controller c = {.max_failures = run % 4 - 1, .start_failures_max = run % 3};
        uint64_t attempt = 0;
        for (int i = 0; i < 50; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            bool was_final = trpi_run_state_is_final(c.state);
            trp_run_state before = c.state;
            trpi_control_action action =
                trpi_controller_step(&c, (trpi_control_event)(seed % (TRPI_ON_TORN_DOWN + 1)));
            assert_null(trpi_controller_check(&c));
            assert_true(!was_final || c.state == before);
            if (action == TRPI_DO_START) {
                assert_true(c.attempt > attempt);
                attempt = c.attempt;
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T06_a_run_with_one_failure_goes_through_exactly_these_states),
        cmocka_unit_test(T26_exactly_as_many_retries_as_failures_are_allowed),
        cmocka_unit_test(the_same_error_at_the_same_step_ends_the_run),
        cmocka_unit_test(a_kill_between_two_equal_errors_changes_nothing),
        cmocka_unit_test(the_last_failure_that_is_allowed_is_not_called_repeated),
        cmocka_unit_test(workers_that_are_killed_while_they_start_spend_retries_at_last),
        cmocka_unit_test(T29_failed_starts_spend_no_retries),
        cmocka_unit_test(starts_that_keep_failing_end_the_run),
        cmocka_unit_test(an_abort_ends_the_run_from_any_state),
        cmocka_unit_test(an_abort_after_the_outcome_changes_nothing),
        cmocka_unit_test(any_order_of_events_keeps_the_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Whether a pinged worker makes progress, on a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "actors/state/liveness.h"

#define MS UINT64_C(1000000)

static trpi_liveness begin(uint64_t limit_ms, uint64_t period_ms) {
    trpi_liveness liveness;
    trpi_liveness_init(&liveness, limit_ms * MS, period_ms * MS, 1000 * MS);
    assert_int_equal(trpi_liveness_due(&liveness, 1000 * MS), TRPI_LIVENESS_ASK);
    return liveness;
}

static void one_that_is_not_watched_is_never_asked(void **state) {
    trpi_liveness liveness;
    trpi_liveness_init(&liveness, 0, 0, 5);
    assert_true(liveness.next_ns == UINT64_MAX);
    assert_int_equal(trpi_liveness_due(&liveness, 1000 * MS), TRPI_LIVENESS_FINE);
    assert_int_equal(trpi_liveness_heard(&liveness, 99 * MS, 1000 * MS), TRPI_LIVENESS_FINE);
}

static void one_that_answers_and_is_idle_is_asked_each_period(void **state) {
    trpi_liveness liveness = begin(300, 100);
    for (uint64_t now = 1000; now < 5000; now += 100) {
        assert_int_equal(trpi_liveness_heard(&liveness, 0, now * MS), TRPI_LIVENESS_FINE);
        assert_true(liveness.next_ns == (now + 100) * MS);
        assert_int_equal(trpi_liveness_due(&liveness, (now + 99) * MS), TRPI_LIVENESS_FINE);
        assert_int_equal(trpi_liveness_due(&liveness, (now + 100) * MS), TRPI_LIVENESS_ASK);
    }
}

static void one_that_answers_nothing_for_as_long_as_the_limit_is_silent(void **state) {
    trpi_liveness liveness = begin(300, 100);
    assert_int_equal(trpi_liveness_due(&liveness, 1100 * MS), TRPI_LIVENESS_ASK);
    assert_int_equal(trpi_liveness_due(&liveness, 1200 * MS), TRPI_LIVENESS_ASK);
    assert_true(liveness.next_ns == 1300 * MS);
    assert_int_equal(trpi_liveness_due(&liveness, 1300 * MS), TRPI_LIVENESS_SILENT);
    assert_true(liveness.next_ns == UINT64_MAX); /* said once */
}

static void a_method_over_the_limit_is_stuck_and_found_at_the_limit(void **state) {
    trpi_liveness liveness = begin(300, 100);
    assert_int_equal(trpi_liveness_heard(&liveness, 250 * MS, 1000 * MS), TRPI_LIVENESS_FINE);
    assert_true(liveness.next_ns == 1051 * MS); /* not only at 1100 */
    assert_int_equal(trpi_liveness_due(&liveness, 1051 * MS), TRPI_LIVENESS_ASK);
    assert_int_equal(trpi_liveness_heard(&liveness, 301 * MS, 1051 * MS), TRPI_LIVENESS_STUCK);
    assert_int_equal(trpi_liveness_heard(&liveness, 302 * MS, 1052 * MS), TRPI_LIVENESS_FINE);
}

static void who_was_stopped_itself_passes_no_verdict_until_it_has_listened(void **state) {
    trpi_liveness liveness = begin(300, 100);
    assert_int_equal(trpi_liveness_due(&liveness, 60000 * MS), TRPI_LIVENESS_ASK);
    /* Both were stopped: the worker counts the pause as its method's. */
    assert_int_equal(trpi_liveness_heard(&liveness, 59000 * MS, 60001 * MS), TRPI_LIVENESS_FINE);
    assert_int_equal(trpi_liveness_due(&liveness, 60100 * MS), TRPI_LIVENESS_ASK);
    assert_int_equal(trpi_liveness_heard(&liveness, 59100 * MS, 60101 * MS), TRPI_LIVENESS_FINE);
    assert_int_equal(trpi_liveness_due(&liveness, 60200 * MS), TRPI_LIVENESS_ASK);
    assert_int_equal(trpi_liveness_due(&liveness, 60300 * MS), TRPI_LIVENESS_ASK);
    assert_int_equal(trpi_liveness_heard(&liveness, 59300 * MS, 60301 * MS), TRPI_LIVENESS_STUCK);
}

static void without_a_limit_it_is_asked_and_never_judged(void **state) {
    trpi_liveness liveness = begin(0, 100);
    for (uint64_t now = 1100; now < 9000; now += 100) {
        assert_int_equal(trpi_liveness_due(&liveness, now * MS), TRPI_LIVENESS_ASK);
    }
    assert_int_equal(trpi_liveness_heard(&liveness, 8000 * MS, 9000 * MS), TRPI_LIVENESS_FINE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_not_watched_is_never_asked),
        cmocka_unit_test(one_that_answers_and_is_idle_is_asked_each_period),
        cmocka_unit_test(one_that_answers_nothing_for_as_long_as_the_limit_is_silent),
        cmocka_unit_test(a_method_over_the_limit_is_stuck_and_found_at_the_limit),
        cmocka_unit_test(who_was_stopped_itself_passes_no_verdict_until_it_has_listened),
        cmocka_unit_test(without_a_limit_it_is_asked_and_never_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "actors/state/lifecycle.h"

#define MS UINT64_C(1000000)

static trpi_life new_life(int64_t restarts_max) {
    trpi_life life;
    trpi_life_rules rules = {.restarts_max = restarts_max,
                             .backoff_ns = 100 * MS,
                             .backoff_max_ns = 1000 * MS,
                             .forget_ns = 5000 * MS};
    trpi_life_init(&life, &rules);
    return life;
}

static bool dies(trpi_life *life, trp_cause cause, int64_t exit_code, uint64_t now, uint64_t *at) {
    static uint64_t random = 1;
    trpi_life_end end = {.cause = cause, .exit_code = exit_code};
    bool lives = trpi_life_goes_on(life, &end, now);
    if (lives) {
        *at = trpi_life_restart(life, false, now, &random);
    } else {
        trpi_life_end_now(life);
    }
    assert_null(trpi_life_check(life));
    return lives;
}

static void A06_which_ends_may_be_followed_by_a_restart(void **state) {
    static const struct {
        trpi_life_end end;
        bool failed, always; /* with these restart types */
    } cases[] = {
        {{.cause = TRP_CAUSE_SIGNALED}, true, true},
        {{.cause = TRP_CAUSE_EXITED, .exit_code = 4}, true, true},
        {{.cause = TRP_CAUSE_EXITED}, false, true},
        {{.cause = TRP_CAUSE_FINISHED}, false, true},
        {{.cause = TRP_CAUSE_NEVER_STARTED}, false, false},
        {{.cause = TRP_CAUSE_START_TIMEOUT}, true, true},
        {{.cause = TRP_CAUSE_NODE_DIED}, true, true},
        {{.cause = TRP_CAUSE_OUT_OF_MEMORY}, true, true},
        {{.cause = TRP_CAUSE_HUNG}, true, true},
        {{.cause = TRP_CAUSE_LINKED}, true, true},
        {{.cause = TRP_CAUSE_DRAINED}, true, true},
        {{.cause = TRP_CAUSE_KILLED}, false, false},
        {{.cause = TRP_CAUSE_KILLED, .may_restart = true}, true, true},
        {{.cause = TRP_CAUSE_STOPPED}, false, false},
        {{.cause = TRP_CAUSE_OWNER_DIED, .may_restart = true}, false, false},
        {{.cause = TRP_CAUSE_GROUP_REMOVED, .may_restart = true}, false, false},
        {{.cause = TRP_CAUSE_UNSCHEDULABLE, .may_restart = true}, false, false},
        {{.cause = TRP_CAUSE_GANG}, false, false},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(cases); i++) {
        const trpi_life_end *end = &cases[i].end;
        assert_int_equal(trpi_life_restartable(TRP_RESTART_FAILED, end), cases[i].failed);
        assert_int_equal(trpi_life_restartable(TRP_RESTART_ALWAYS, end), cases[i].always);
        assert_false(trpi_life_restartable(TRP_RESTART_NEVER, end));
    }
}

static void restarts_end_at_their_limit(void **state) {
    trpi_life life = new_life(2);
    uint64_t at = 0;
    trpi_life_started(&life, MS);
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, 2 * MS, &at));
    assert_int_equal(life.phase, TRP_ACTOR_RESTARTING);
    assert_int_equal(life.incarnation, 2);
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, 3 * MS, &at));
    assert_false(dies(&life, TRP_CAUSE_SIGNALED, 0, 4 * MS, &at));
    assert_int_equal(life.phase, TRP_ACTOR_DEAD);
    assert_int_equal(life.restarts, 2);
}

static void none_are_allowed_by_default_and_minus_one_is_for_ever(void **state) {
    trpi_life none = new_life(0), all = new_life(-1);
    uint64_t at = 0;
    assert_false(dies(&none, TRP_CAUSE_NODE_DIED, 0, MS, &at));
    for (int i = 0; i < 1000; i++) {
        assert_true(dies(&all, TRP_CAUSE_NODE_DIED, 0, MS, &at));
    }
    assert_int_equal(all.restarts, 1000);
}

static void an_actor_that_was_never_alive_stays_pending(void **state) {
    trpi_life life = new_life(1);
    uint64_t at = 0;
    assert_true(dies(&life, TRP_CAUSE_NODE_DIED, 0, MS, &at));
    assert_int_equal(life.phase, TRP_ACTOR_PENDING);
    assert_int_equal(life.restarts, 1);
}

static void A12_a_crash_loop_waits_longer_each_time_up_to_a_limit(void **state) {
    trpi_life life = new_life(-1);
    uint64_t now = MS, at = 0;
    static const uint64_t longest_ms[] = {0, 100, 200, 400, 800, 1000, 1000};
    for (size_t i = 0; i < TRPI_COUNTOF(longest_ms); i++) {
        assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, now, &at));
        assert_in_range(at - now, longest_ms[i] * MS * 3 / 4, longest_ms[i] * MS);
        now = at;
    }
}

static void a_long_life_makes_earlier_deaths_forgotten(void **state) {
    trpi_life life = new_life(-1);
    uint64_t at = 0;
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, MS, &at));
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, 2 * MS, &at));
    assert_true(at > 2 * MS);
    trpi_life_started(&life, 1000 * MS);
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, 6000 * MS, &at));
    assert_int_equal(at, 6000 * MS);
    assert_int_equal(life.restarts, 3);
}

/* OTP's intensity: two in any span of a second, and the third is the last. */
static void with_a_window_only_the_restarts_within_it_count(void **state) {
    trpi_life life = new_life(2);
    uint64_t at = 0;
    life.rules.window_ns = 1000 * MS;
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, 100 * MS, &at));
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, 900 * MS, &at));
    assert_int_equal(trpi_life_left(&life, 1000 * MS), 0);
    assert_int_equal(trpi_life_left(&life, 1100 * MS), 1); /* the first is out of it */
    for (uint64_t now = 1100; now < 50000; now += 500) {   /* for ever, at this pace */
        assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, now * MS, &at));
        now += 500;
    }
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, 60000 * MS, &at));
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, 60100 * MS, &at));
    assert_false(dies(&life, TRP_CAUSE_SIGNALED, 0, 60200 * MS, &at));
    assert_int_equal(life.phase, TRP_ACTOR_DEAD);
    trpi_life_release(&life);
}

static void A34_what_is_not_counted_is_restarted_unless_nothing_ever_is(void **state) {
    trpi_life life = new_life(1), never = new_life(0);
    trpi_life_end drained = {.cause = TRP_CAUSE_DRAINED, .uncounted = true};
    uint64_t random = 1, at = 0;
    for (int i = 0; i < 10; i++) {
        assert_true(trpi_life_goes_on(&life, &drained, MS));
        (void)trpi_life_restart(&life, true, MS, &random);
    }
    assert_int_equal(life.restarts, 10);
    assert_int_equal(trpi_life_left(&life, MS), 1);
    assert_true(dies(&life, TRP_CAUSE_SIGNALED, 0, MS, &at));
    assert_true(trpi_life_goes_on(&life, &drained, MS));
    assert_false(dies(&life, TRP_CAUSE_SIGNALED, 0, MS, &at));
    assert_false(trpi_life_goes_on(&never, &drained, MS));
}

static void the_same_seed_draws_the_same_numbers(void **state) {
    uint64_t a = 42, b = 42, c = 43, zero = 0;
    uint64_t first = trpi_random_next(&a);
    assert_int_equal(first, trpi_random_next(&b));
    assert_true(first != trpi_random_next(&c));
    assert_true(trpi_random_next(&zero) != trpi_random_next(&zero));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A06_which_ends_may_be_followed_by_a_restart),
        cmocka_unit_test(restarts_end_at_their_limit),
        cmocka_unit_test(none_are_allowed_by_default_and_minus_one_is_for_ever),
        cmocka_unit_test(an_actor_that_was_never_alive_stays_pending),
        cmocka_unit_test(A12_a_crash_loop_waits_longer_each_time_up_to_a_limit),
        cmocka_unit_test(a_long_life_makes_earlier_deaths_forgotten),
        cmocka_unit_test(with_a_window_only_the_restarts_within_it_count),
        cmocka_unit_test(A34_what_is_not_counted_is_restarted_unless_nothing_ever_is),
        cmocka_unit_test(the_same_seed_draws_the_same_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

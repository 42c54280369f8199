#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/state/membership.h"

#define S UINT64_C(1000000000)

static trpi_membership members;

static int set_up(void **state) {
    trpi_membership_init(&members, 5 * S, S);
    return 0;
}

static int tear_down(void **state) {
    assert_null(trpi_membership_check(&members));
    trpi_membership_release(&members);
    return 0;
}

static void listen_until(uint64_t from, uint64_t to) {
    for (uint64_t now = from; now <= to; now += S / 2) {
        trpi_membership_tick(&members, now);
    }
}

static bool silent(uint64_t id, uint64_t now) {
    uint64_t above = id - 1;
    const trpi_member *member = trpi_membership_silent(&members, &above, now);
    return member && member->id == id;
}

static void silence_for_longer_than_the_timeout_is_noticed(void **state) {
    assert_int_equal(trpi_membership_join(&members, 1, 10 * S), 1);
    listen_until(10 * S, 15 * S);
    assert_false(silent(1, 15 * S));
    listen_until(15 * S, 16 * S);
    assert_true(silent(1, 16 * S));
    assert_true(trpi_membership_hears(&members, 1, 1, 16 * S));
    assert_false(silent(1, 16 * S));
}

static void an_earlier_incarnation_is_not_heard(void **state) {
    assert_int_equal(trpi_membership_join(&members, 1, S), 1);
    trpi_membership_leave(&members, 1);
    assert_false(trpi_membership_hears(&members, 1, 1, 2 * S));
    assert_int_equal(trpi_membership_join(&members, 1, 3 * S), 2);
    assert_false(trpi_membership_hears(&members, 1, 1, 4 * S));
    assert_true(trpi_membership_hears(&members, 1, 2, 4 * S));
    assert_false(trpi_membership_hears(&members, 7, 1, 4 * S));
}

static void after_a_stall_everyone_has_a_full_timeout_again(void **state) {
    (void)trpi_membership_join(&members, 1, 10 * S);
    listen_until(10 * S, 11 * S);
    trpi_membership_tick(&members, 60 * S); /* the head was stopped meanwhile */
    assert_int_equal(members.tilts, 1);
    assert_false(silent(1, 60 * S));
    listen_until(60 * S, 65 * S);
    assert_false(silent(1, 65 * S));
    listen_until(65 * S, 66 * S);
    assert_true(silent(1, 66 * S));
    assert_int_equal(members.tilts, 1);
}

static void the_dead_are_not_silent(void **state) {
    (void)trpi_membership_join(&members, 1, S);
    trpi_membership_leave(&members, 1);
    listen_until(S, 60 * S);
    assert_false(silent(1, 60 * S));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(silence_for_longer_than_the_timeout_is_noticed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_earlier_incarnation_is_not_heard, set_up, tear_down),
        cmocka_unit_test_setup_teardown(after_a_stall_everyone_has_a_full_timeout_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_dead_are_not_silent, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

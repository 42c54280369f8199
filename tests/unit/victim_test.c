/* Whom a node kills to free memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "actors/state/victim.h"

static void nobody_is_chosen_from_nobody(void **state) {
    assert_true(trpi_victim_choose(NULL, 0) == SIZE_MAX);
}

static void the_newest_restartable_one_goes_first(void **state) {
    const trpi_candidate all[] = {
        {.restartable = 3, .since_ns = 10, .actor = 1},
        {.restartable = -1, .since_ns = 30, .actor = 2},
        {.restartable = 0, .since_ns = 90, .actor = 3},
        {.restartable = 1, .since_ns = 20, .actor = 4},
    };
    assert_int_equal(trpi_victim_choose(all, 4), 1);
    assert_int_equal(trpi_victim_choose(all, 1), 0);
}

static void without_a_restartable_one_the_newest_goes(void **state) {
    const trpi_candidate all[] = {
        {.restartable = 0, .since_ns = 10, .actor = 7},
        {.restartable = 0, .since_ns = 11, .actor = 5},
        {.restartable = 0, .since_ns = 9, .actor = 9},
    };
    assert_int_equal(trpi_victim_choose(all, 3), 1);
}

static void of_the_same_moment_the_later_number_goes_whatever_the_order(void **state) {
    const trpi_candidate one[] = {{-1, 10, 7}, {-1, 10, 8}};
    const trpi_candidate two[] = {{-1, 10, 8}, {-1, 10, 7}};
    assert_int_equal(one[trpi_victim_choose(one, 2)].actor, 8);
    assert_int_equal(two[trpi_victim_choose(two, 2)].actor, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_chosen_from_nobody),
        cmocka_unit_test(the_newest_restartable_one_goes_first),
        cmocka_unit_test(without_a_restartable_one_the_newest_goes),
        cmocka_unit_test(of_the_same_moment_the_later_number_goes_whatever_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

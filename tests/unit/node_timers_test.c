#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "actors/proc/node_timers.h"

static void timers_come_in_the_order_of_their_time(void **state) {
    trpi_timers timers = {0};
    uint64_t seed = 7;
    for (int i = 0; i < 1000; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        trpi_timers_add(&timers, (seed >> 33) % 500, 1, (uint64_t)i);
    }
    uint64_t last = 0;
    trpi_timer timer;
    for (int i = 0; i < 1000; i++) {
        assert_true(trpi_timers_due(&timers) >= last);
        assert_true(trpi_timers_take(&timers, 500, &timer));
        assert_true(timer.due_ns >= last);
        last = timer.due_ns;
    }
    assert_false(trpi_timers_take(&timers, UINT64_MAX, &timer));
    trpi_timers_release(&timers);
}

static void a_timer_that_is_not_due_stays(void **state) {
    trpi_timers timers = {0};
    trpi_timer timer;
    assert_int_equal(trpi_timers_due(&timers), UINT64_MAX);
    trpi_timers_add(&timers, 20, 2, 5);
    trpi_timers_add(&timers, 10, 3, 6);
    assert_int_equal(trpi_timers_due(&timers), 10);
    assert_false(trpi_timers_take(&timers, 9, &timer));
    assert_true(trpi_timers_take(&timers, 10, &timer));
    assert_int_equal(timer.kind, 3);
    assert_int_equal(timer.id, 6);
    assert_false(trpi_timers_take(&timers, 19, &timer));
    assert_true(trpi_timers_take(&timers, 20, &timer));
    assert_int_equal(timer.id, 5);
    trpi_timers_release(&timers);
}

static void a_timer_for_never_takes_no_room(void **state) {
    trpi_timers timers = {0};
    trpi_timers_add(&timers, UINT64_MAX, 1, 2);
    assert_int_equal(timers.count, 0);
    assert_int_equal(trpi_timers_due(&timers), UINT64_MAX);
    trpi_timers_release(&timers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_come_in_the_order_of_their_time),
        cmocka_unit_test(a_timer_that_is_not_due_stays),
        cmocka_unit_test(a_timer_for_never_takes_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

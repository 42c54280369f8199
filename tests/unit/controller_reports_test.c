/* controller_reports_test.c: who has reported how often, and what failures cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trainer/state/progress.h"
#include "trainer/state/reports.h"

static void T08_a_round_is_complete_when_the_last_of_ten_ranks_is_in(void **state) {
    trpi_reports reports;
    assert_true(trpi_reports_init(&reports, 10));
    for (int rank = 0; rank < 9; rank++) {
        assert_null(trpi_reports_add(&reports, rank, 1));
        assert_int_equal(reports.complete, 0);
    }
    int behind[10];
    assert_int_equal(trpi_reports_behind(&reports, 1, behind, 10), 1);
    assert_int_equal(behind[0], 9);
    assert_null(trpi_reports_add(&reports, 9, 1));
    assert_int_equal(reports.complete, 1);
    assert_null(trpi_reports_check(&reports));
    trpi_reports_release(&reports);
}

static void ranks_may_be_ahead_of_each_other(void **state) {
    trpi_reports reports;
    assert_true(trpi_reports_init(&reports, 3));
    for (uint64_t number = 1; number <= 5; number++) {
        assert_null(trpi_reports_add(&reports, 0, number));
    }
    assert_null(trpi_reports_add(&reports, 2, 1));
    assert_null(trpi_reports_add(&reports, 1, 1));
    assert_int_equal(reports.complete, 1);
    assert_null(trpi_reports_add(&reports, 1, 2));
    assert_null(trpi_reports_add(&reports, 2, 2));
    assert_int_equal(reports.complete, 2);
    int behind[1];
    assert_int_equal(trpi_reports_behind(&reports, 5, behind, 1), 2);
    assert_int_equal(behind[0], 1);
    trpi_reports_release(&reports);
}

static void T09_a_report_out_of_turn_or_of_no_rank_is_refused(void **state) {
    trpi_reports reports;
    assert_true(trpi_reports_init(&reports, 2));
    assert_non_null(trpi_reports_add(&reports, 2, 1));
    assert_non_null(trpi_reports_add(&reports, -1, 1));
    assert_non_null(trpi_reports_add(&reports, 0, 2));
    assert_null(trpi_reports_add(&reports, 0, 1));
    assert_non_null(trpi_reports_add(&reports, 0, 1));
    assert_null(trpi_reports_check(&reports));
    trpi_reports_release(&reports);
}

static void a_rank_that_has_finished_is_never_waited_for(void **state) {
    trpi_reports reports;
    assert_true(trpi_reports_init(&reports, 2));
    assert_null(trpi_reports_add(&reports, 1, 1));
    assert_int_equal(trpi_reports_never(&reports, 2), -1);
    trpi_reports_finish(&reports, 1);
    assert_int_equal(trpi_reports_never(&reports, 1), -1);
    assert_int_equal(trpi_reports_never(&reports, 2), 1);
    assert_non_null(trpi_reports_add(&reports, 1, 2));
    trpi_reports_release(&reports);
}

static void time_is_lost_until_the_furthest_step_is_reached_again(void **state) {
    trpi_progress p = {0};
    trpi_progress_begin(&p, 1000);
    trpi_progress_step(&p, 1, 1100);
    trpi_progress_step(&p, 2, 1200);
    trpi_progress_step(&p, 3, 1300);
    trpi_progress_restart(&p, 1);
    assert_int_equal(p.wasted_steps, 2);
    trpi_progress_step(&p, 2, 1600);
    assert_int_equal(p.lost_ns, 0);
    trpi_progress_step(&p, 3, 1700);
    assert_int_equal(p.lost_ns, 400);
    trpi_progress_step(&p, 4, 1800);
    assert_int_equal(p.lost_ns, 400);
    trpi_progress_end(&p, 2000);
    assert_int_equal(trpi_progress_total_ns(&p, 9999), 1000);
}

static void a_second_failure_before_catching_up_adds_to_the_same_loss(void **state) {
    trpi_progress p = {0};
    trpi_progress_begin(&p, 0);
    trpi_progress_step(&p, 10, 100);
    trpi_progress_restart(&p, 5);
    trpi_progress_step(&p, 6, 200);
    trpi_progress_restart(&p, 5);
    trpi_progress_step(&p, 10, 500);
    assert_int_equal(p.lost_ns, 400);
    assert_int_equal(p.wasted_steps, 6);
    trpi_progress_restart(&p, 10);
    trpi_progress_end(&p, 700);
    assert_int_equal(p.lost_ns, 600);
    assert_int_equal(p.wasted_steps, 6);
}

static void a_run_that_resumes_has_wasted_nothing(void **state) {
    trpi_progress p = {0};
    trpi_progress_restart(&p, 40);
    trpi_progress_begin(&p, 10);
    trpi_progress_step(&p, 41, 20);
    trpi_progress_end(&p, 30);
    assert_int_equal(p.lost_ns, 0);
    assert_int_equal(p.wasted_steps, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T08_a_round_is_complete_when_the_last_of_ten_ranks_is_in),
        cmocka_unit_test(ranks_may_be_ahead_of_each_other),
        cmocka_unit_test(T09_a_report_out_of_turn_or_of_no_rank_is_refused),
        cmocka_unit_test(a_rank_that_has_finished_is_never_waited_for),
        cmocka_unit_test(time_is_lost_until_the_furthest_step_is_reached_again),
        cmocka_unit_test(a_second_failure_before_catching_up_adds_to_the_same_loss),
        cmocka_unit_test(a_run_that_resumes_has_wasted_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

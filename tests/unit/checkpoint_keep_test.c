/* checkpoint_keep_test.c: which checkpoints stay. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "trainer/run/record.h"
#include "trainer/state/checkpoint_keep.h"

static size_t kept(const trpi_keep *entries, size_t count) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        n += entries[i].keep;
    }
    return n;
}

/* Registers one after the other and drops what is not kept, as the trainer does. */
static size_t register_all(trpi_keep *entries, const int64_t *scores, size_t count, size_t best) {
    size_t have = 0;
    for (size_t i = 0; i < count; i++) {
        entries[have++] = (trpi_keep){i, scores[i], false};
        trpi_keep_select(entries, have, best);
        size_t left = 0;
        for (size_t j = 0; j < have; j++) {
            if (entries[j].keep) {
                entries[left++] = entries[j];
            }
        }
        have = left;
    }
    return have;
}

static const int64_t rising[] = {0, 1, 2, 3, 4, 5};

static void T18_keep_all_keeps_all_six(void **state) {
    trpi_keep entries[6];
    assert_int_equal(register_all(entries, rising, 6, 0), 6);
}

static void T18_keeping_one_by_a_rising_score_leaves_the_last(void **state) {
    trpi_keep entries[6];
    assert_int_equal(register_all(entries, rising, 6, 1), 1);
    assert_int_equal(entries[0].number, 5);
}

static void T18_the_latest_stays_beside_the_best(void **state) {
    static const int64_t falling[] = {5, 4, 3, 2, 1, 0};
    trpi_keep entries[6];
    assert_int_equal(register_all(entries, falling, 6, 2), 3);
    assert_int_equal(entries[0].number, 0);
    assert_int_equal(entries[1].number, 1);
    assert_int_equal(entries[2].number, 5);
}

static void of_equal_scores_the_newer_is_better(void **state) {
    trpi_keep entries[3] = {{0, 7, false}, {1, 7, false}, {2, 3, false}};
    trpi_keep_select(entries, 3, 1);
    assert_false(entries[0].keep);
    assert_true(entries[1].keep);
    assert_true(entries[2].keep);
}

static void more_room_than_checkpoints_keeps_all(void **state) {
    trpi_keep entries[3] = {{0, 1, false}, {1, TRPI_SCORE_WORST, false}, {2, 0, false}};
    trpi_keep_select(entries, 3, 100);
    assert_int_equal(kept(entries, 3), 3);
    trpi_keep_select(NULL, 0, 1);
}

static void scores_are_ordered_as_the_metric_is(void **state) {
    static const double values[] = {-INFINITY, -1e300, -1.5, -1e-300, 0.0,
                                    1e-300,    1.0,    1e9,  INFINITY};
    for (size_t i = 1; i < sizeof(values) / sizeof(values[0]); i++) {
        assert_true(trpi_record_score(values[i - 1], false) < trpi_record_score(values[i], false));
        assert_true(trpi_record_score(values[i - 1], true) > trpi_record_score(values[i], true));
    }
    assert_true(trpi_record_score(-0.0, false) == trpi_record_score(0.0, false));
    assert_true(trpi_record_score(NAN, false) == TRPI_SCORE_WORST);
    assert_true(trpi_record_score(NAN, true) == TRPI_SCORE_WORST);
    assert_true(trpi_record_score(-INFINITY, false) > TRPI_SCORE_WORST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T18_keep_all_keeps_all_six),
        cmocka_unit_test(T18_keeping_one_by_a_rising_score_leaves_the_last),
        cmocka_unit_test(T18_the_latest_stays_beside_the_best),
        cmocka_unit_test(of_equal_scores_the_newer_is_better),
        cmocka_unit_test(more_room_than_checkpoints_keeps_all),
        cmocka_unit_test(scores_are_ordered_as_the_metric_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

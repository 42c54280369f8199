/* Learning rate schedules against DeepSpeed's numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "trainer/engine/lr.h"

static void expect(const trpi_lr *lr, const double *golden, size_t count) {
    for (size_t k = 1; k <= count; k++) {
        double rate = trpi_lr_at(lr, k);
        if (fabs(rate - golden[k - 1]) > 5e-7) {
            fail_msg("update %zu: expected %.9g, found %.9g", k, golden[k - 1], rate);
        }
    }
}

static void a_constant_rate_is_constant(void **state) {
    trpi_lr lr = {.kind = TRPI_LR_CONSTANT, .max = 0.25};
    expect(&lr, (double[]){0.25, 0.25, 0.25, 0.25}, 4);
    assert_true(trpi_lr_at(&lr, UINT64_MAX) == 0.25);
}

static void z35_logarithmic_warmup_starts_twice_at_the_minimum(void **state) {
    trpi_lr lr = {.kind = TRPI_LR_WARMUP, .max = 1, .warmup = 4, .logarithmic = true};
    expect(&lr, (double[]){0, 0, .5, .792481250, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 13);
}

static void z35_linear_warmup_rises_in_equal_steps(void **state) {
    trpi_lr lr = {.kind = TRPI_LR_WARMUP, .max = 1, .warmup = 4};
    expect(&lr, (double[]){0, 0, .25, .5, .75, 1, 1, 1, 1, 1, 1, 1, 1}, 13);
}

static void z35_decay_falls_linearly_to_zero_and_stays(void **state) {
    trpi_lr lr = {.kind = TRPI_LR_WARMUP_DECAY, .max = 1, .warmup = 4, .total = 10};
    expect(
        &lr,
        (double[]){0, 0, .25, .5, .75, 1, .833333333, .666666667, .5, .333333333, .166666667, 0, 0},
        13);
}

static void z35_cosine_falls_to_its_last_ratio(void **state) {
    trpi_lr lr = {
        .kind = TRPI_LR_WARMUP_COSINE, .max = 1, .warmup = 4, .total = 10, .end_ratio = 1e-4};
    expect(&lr,
           (double[]){0, 0, .25, .5, .75, .933019, .750025, .50005, .250075, .067081, .0001, .0001,
                      .0001},
           13);
}

static void cosine_scales_the_optimizers_rate_and_starts_at_its_first_ratio(void **state) {
    trpi_lr lr = {.kind = TRPI_LR_WARMUP_COSINE,
                  .max = 2,
                  .min_ratio = 0.5,
                  .warmup = 4,
                  .total = 10,
                  .end_ratio = 0};
    expect(&lr, (double[]){1, 1, 1.25, 1.5, 1.75}, 5);
}

static void the_minimum_is_where_warmup_starts(void **state) {
    trpi_lr lr = {.kind = TRPI_LR_WARMUP, .max = 1, .min = .2, .warmup = 4};
    expect(&lr, (double[]){.2, .2, .4, .6, .8, 1}, 6);
}

static void a_warmup_of_less_than_two_counts_as_two(void **state) {
    trpi_lr lr = {.kind = TRPI_LR_WARMUP, .max = 1, .warmup = 1, .logarithmic = true};
    expect(&lr, (double[]){0, 0, 1, 1}, 4);
    lr.logarithmic = false;
    expect(&lr, (double[]){0, 0, .5, 1, 1}, 5);
}

static void a_warmup_longer_than_the_run_does_not_divide_by_zero(void **state) {
    trpi_lr lr = {.kind = TRPI_LR_WARMUP_DECAY, .max = 1, .warmup = 4, .total = 4};
    expect(&lr, (double[]){0, 0, .25, .5, .75, 0, 0}, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_constant_rate_is_constant),
        cmocka_unit_test(z35_logarithmic_warmup_starts_twice_at_the_minimum),
        cmocka_unit_test(z35_linear_warmup_rises_in_equal_steps),
        cmocka_unit_test(z35_decay_falls_linearly_to_zero_and_stays),
        cmocka_unit_test(z35_cosine_falls_to_its_last_ratio),
        cmocka_unit_test(cosine_scales_the_optimizers_rate_and_starts_at_its_first_ratio),
        cmocka_unit_test(the_minimum_is_where_warmup_starts),
        cmocka_unit_test(a_warmup_of_less_than_two_counts_as_two),
        cmocka_unit_test(a_warmup_longer_than_the_run_does_not_divide_by_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

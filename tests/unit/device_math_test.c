/* device_math_test.c: the smallest pieces of the cpu device: storage formats, exponentials, the
 * tile product, and devices used from several threads of one process at once. */
#include "tests/numeric/numbers.h"
#include "trainer/device/cpu/fastmath.h"
#include "trainer/device/cpu/tile.h"
#include <pthread.h>

/* Every bf16 and every fp16 is a float; going there and back must change nothing but NaN's payload.
 */
static void every_half_survives_a_round_trip(void **state) {
    for (uint32_t half = 0; half <= 0xffff; half++) {
        float b = trpi_bf16_float((uint16_t)half), f = trpi_f16_float((uint16_t)half);
        if (isnan(b)) {
            assert_true(isnan(trpi_bf16_float(trpi_float_bf16(b))));
        } else {
            assert_int_equal(trpi_float_bf16(b), half);
        }
        if (isnan(f)) {
            assert_true(isnan(trpi_f16_float(trpi_float_f16(f))));
        } else {
            assert_int_equal(trpi_float_f16(f), half);
        }
    }
    assert_true(trpi_f16_float(0x3c00) == 1.0f && trpi_f16_float(0x0001) == 0x1p-24f);
    assert_true(trpi_f16_float(0xfbff) == -65504.0f && isinf(trpi_f16_float(0x7c00)));
}

/* Between two neighbours: nearer to the lower, just in the middle, nearer to the upper. In the
 * middle the even one wins. `up` is the neighbour away from zero. */
static void expect_rounding(float low, float up, uint16_t half, uint16_t (*round)(float)) {
    float middle = low + (up - low) * 0.5f;
    assert_int_equal(round(middle), half & 1 ? half + 1 : half);
    assert_int_equal(round(nextafterf(middle, low)), half);
    assert_int_equal(round(nextafterf(middle, up)), half + 1);
}

static uint16_t round_bf16(float x) {
    return trpi_float_bf16(x);
}

static uint16_t round_f16(float x) {
    return trpi_float_f16(x);
}

static void rounding_is_to_nearest_even(void **state) {
    for (uint32_t half = 0; half < 0x7f7f; half += 3) {
        expect_rounding(trpi_bf16_float((uint16_t)half), trpi_bf16_float((uint16_t)(half + 1)),
                        (uint16_t)half, round_bf16);
    }
    for (uint32_t half = 0; half < 0x7bff; half++) {
        expect_rounding(trpi_f16_float((uint16_t)half), trpi_f16_float((uint16_t)(half + 1)),
                        (uint16_t)half, round_f16);
    }
    assert_int_equal(trpi_float_f16(65519.0f), 0x7bff);
    assert_int_equal(trpi_float_f16(65520.0f), 0x7c00);
    assert_int_equal(trpi_float_f16(INFINITY), 0x7c00);
    assert_int_equal(trpi_float_f16(-1e30f), 0xfc00);
    assert_int_equal(trpi_float_bf16(3.4e38f), 0x7f80);
    assert_true(isnan(trpi_f16_float(trpi_float_f16(NAN))));
}

static double ulps(float got, double want) {
    float near = (float)want;
    return fabs((double)got - want) / (double)(nextafterf(fabsf(near), INFINITY) - fabsf(near));
}

static void the_exponential_is_within_two_ulps(void **state) {
    double worst = 0.0;
    for (double x = -87.0; x <= 88.0; x += 0.000317) {
        worst = fmax(worst, ulps(trpi_expf((float)x), exp((double)(float)x)));
    }
    if (worst > 2.0) {
        fail_msg("worst error %g ulps", worst);
    }
    assert_true(trpi_expf(0.0f) == 1.0f);
    assert_true(trpi_expf(-INFINITY) == 0.0f && trpi_expf(-200.0f) == 0.0f);
    assert_true(trpi_expf(-87.1f) == 0.0f && trpi_expf(-3e38f) == 0.0f);
    assert_true(isnan(trpi_expf(NAN)));
}

static void the_tangent_is_within_four_ulps(void **state) {
    double worst = 0.0;
    for (double x = -10.0; x < 10.0; x += 0.0000713) {
        worst = fmax(worst, ulps(trpi_tanhf((float)x), tanh((double)(float)x)));
    }
    if (worst > 4.0) {
        fail_msg("worst error %g ulps", worst);
    }
    assert_true(trpi_tanhf(INFINITY) == 1.0f && trpi_tanhf(-INFINITY) == -1.0f);
    assert_true(isnan(trpi_tanhf(NAN)));
}

static void tile_products_agree_for_every_small_shape(void **state) {
    enum { M = 19, N = 48, K = 9 };
    random_state = 1;
    float *a = random_values(M * K, TRP_F32, 1.0), *b = random_values(K * N, TRP_F32, 1.0);
    for (int64_t m = 1; m <= M; m++) {
        for (int64_t n = TRPI_TILE_COLUMNS; n <= N; n += TRPI_TILE_COLUMNS) {
            for (int transposed = 0; transposed < 2; transposed++) {
                float *c = random_values(m * n, TRP_F32, 1.0);
                float *before = copy_of(c, (size_t)(m * n) * sizeof(float));
                trpi_tile tile = {.m = m,
                                  .n = n,
                                  .k = K,
                                  .a = a,
                                  .a_row = transposed ? 1 : K,
                                  .a_column = transposed ? M : 1,
                                  .b = b,
                                  .b_row = N,
                                  .c = c,
                                  .c_row = n,
                                  .accumulate = transposed};
                trpi_tile_multiply(&tile);
                for (int64_t i = 0; i < m * n; i++) {
                    double sum = transposed ? (double)before[i] : 0.0;
                    for (int64_t k = 0; k < K; k++) {
                        int64_t at = i / n * tile.a_row + k * tile.a_column;
                        sum += (double)a[at] * (double)b[k * N + i % n];
                    }
                    assert_true(fabs((double)c[i] - sum) < 1e-5);
                }
                free(c);
                free(before);
            }
        }
    }
    free(a);
    free(b);
}

/* A rank as a thread, which is how tests run several ranks in one process. */
struct rank {
    pthread_t thread;
    float *a, *c;
};

enum { SIDE = 70, ROUNDS = 30 };

static void *run_rank(void *argument) {
    struct rank *rank = argument;
    trp_device_options options = {.threads = 1};
    trp_device *device = NULL;
    if (trp_device_open("cpu", &options, &device, NULL)) {
        return NULL;
    }
    for (int i = 0; i < ROUNDS; i++) {
        trp_matmul_args product = {
            .m = SIDE, .n = SIDE, .k = SIDE - i, .a = rank->a, .b = rank->a, .c = rank->c};
        trp_gelu_args gelu = {.count = SIDE * SIDE, .x = rank->c, .y = rank->c};
        if (trp_op_matmul(device, &product, NULL) || trp_op_gelu(device, &gelu, NULL)) {
            break;
        }
    }
    trp_device_close(device);
    return NULL;
}

static void devices_in_several_threads_do_not_disturb_each_other(void **state) {
    struct rank ranks[4];
    random_state = 2;
    float *a = random_values(SIDE * SIDE, TRP_F32, 1.0);
    for (int i = 0; i < 4; i++) {
        ranks[i] = (struct rank){.a = a, .c = calloc(SIDE * SIDE, sizeof(float))};
    }
    run_rank(&ranks[0]);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
    for (int i = 1; i < 4; i++) {
        pthread_join(ranks[i].thread, NULL);
        assert_memory_equal(ranks[i].c, ranks[0].c, SIDE * SIDE * sizeof(float));
    }
    for (int i = 0; i < 4; i++) {
        free(ranks[i].c);
    }
    free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_survives_a_round_trip),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(the_exponential_is_within_two_ulps),
        cmocka_unit_test(the_tangent_is_within_four_ulps),
        cmocka_unit_test(tile_products_agree_for_every_small_shape),
        cmocka_unit_test(devices_in_several_threads_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

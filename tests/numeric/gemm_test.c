/* gemm_test.c: matrix products of the cpu device, by oneDNN and by plain C, against the reference
 * in double: random shapes, layouts and options. */
#include "tests/numeric/numbers.h"
#include "trainer/device/cpu/gemm.h"

/* Operands of exactly the size that the arguments reach, so that a sanitizer sees a step past. */
struct problem {
    trp_matmul_args args;
    void *a, *b, *c, *bias;
    size_t bytes_c;
};

static int64_t reach(int64_t rows, int64_t columns, int64_t leading, int64_t stride,
                     int64_t batch) {
    return (batch - 1) * stride + (rows - 1) * leading + columns;
}

static struct problem make_problem(int64_t m, int64_t n, int64_t k, trp_dtype dtype) {
    struct problem p = {.args = {.m = m, .n = n, .k = k, .dtype = dtype, .dtype_c = dtype}};
    trp_matmul_args *g = &p.args;
    g->trans_a = random_u32() & 1;
    g->trans_b = random_u32() & 1;
    g->accumulate = random_u32() & 1;
    g->dtype_c = random_u32() & 1 ? TRP_F32 : dtype;
    g->alpha = random_u32() % 3 ? 0.0f : (float)random_unit();
    g->batch = random_between(0, 3);
    int64_t batch = TRPI_MAX(1, g->batch);
    int64_t rows_a = g->trans_a ? k : m, columns_a = g->trans_a ? m : k;
    int64_t rows_b = g->trans_b ? n : k, columns_b = g->trans_b ? k : n;
    g->lda = random_u32() & 1 ? 0 : columns_a + random_between(0, 9);
    g->ldb = random_u32() & 1 ? 0 : columns_b + random_between(0, 9);
    g->ldc = random_u32() & 1 ? 0 : n + random_between(0, 9);
    int64_t lda = g->lda ? g->lda : columns_a, ldb = g->ldb ? g->ldb : columns_b;
    int64_t ldc = g->ldc ? g->ldc : n;
    g->stride_a = random_u32() & 1 ? 0 : rows_a * lda;
    g->stride_b = random_u32() & 1 ? 0 : rows_b * ldb;
    g->stride_c = m * ldc + random_between(0, 5);
    int64_t count_c = reach(m, n, ldc, g->stride_c, batch);
    p.a = random_values(reach(rows_a, columns_a, lda, g->stride_a, batch), dtype, 1.0);
    p.b = random_values(reach(rows_b, columns_b, ldb, g->stride_b, batch), dtype, 1.0);
    p.c = random_values(count_c, g->dtype_c, 1.0);
    p.bias = random_u32() & 1 ? random_values(n, dtype, 1.0) : NULL;
    p.bytes_c = (size_t)count_c * trp_dtype_size(g->dtype_c);
    g->a = p.a;
    g->b = p.b;
    g->bias = p.bias;
    return p;
}

static void free_problem(struct problem *p) {
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->bias);
}

/* Largest error relative to what the sums are made of: sqrt(k) is the size of a sum of k products
 * of numbers up to 1. Elements between rows must be as they were, which equality covers too. */
static double worst_error(const struct problem *p, const void *got, const void *want) {
    double worst = 0.0, size = 1.0 + sqrt((double)p->args.k);
    int64_t count = (int64_t)(p->bytes_c / trp_dtype_size(p->args.dtype_c));
    for (int64_t i = 0; i < count; i++) {
        double g = trpi_get(got, i, p->args.dtype_c), w = trpi_get(want, i, p->args.dtype_c);
        double error = fabs(g - w) / fmax(size, fabs(w));
        worst = error > worst || isnan(error) ? error : worst;
    }
    return worst;
}

static void expect_product(trp_device *device, trp_device *reference, struct problem *p,
                           bool blocked) {
    void *want = copy_of(p->c, p->bytes_c), *got = copy_of(p->c, p->bytes_c);
    trp_error error;
    p->args.c = want;
    assert_int_equal(trp_op_matmul(reference, &p->args, &error), TRP_OK);
    p->args.c = got;
    trp_code code;
    if (blocked) {
        trp_matmul_args args = trpi_gemm_defaults(&p->args);
        code = trpi_gemm_blocked((trpi_cpu *)device, &args, &error);
    } else {
        code = trp_op_matmul(device, &p->args, &error);
    }
    expect_ok(code, &error);
    double tolerance = p->args.dtype_c == TRP_F32    ? 1e-6
                       : p->args.dtype_c == TRP_BF16 ? 4e-3
                                                     : 5e-4;
    double worst = worst_error(p, got, want);
    if (!(worst <= tolerance)) {
        fail_msg("m %d n %d k %d %s -> %s %c%c accumulate %d bias %d alpha %g batch %d: error %g",
                 (int)p->args.m, (int)p->args.n, (int)p->args.k, trp_dtype_name(p->args.dtype),
                 trp_dtype_name(p->args.dtype_c), p->args.trans_a ? 'T' : 'N',
                 p->args.trans_b ? 'T' : 'N', p->args.accumulate, p->bias != NULL,
                 (double)p->args.alpha, (int)p->args.batch, worst);
    }
    free(want);
    free(got);
}

static int64_t random_dimension(void) {
    static const int64_t odd[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 48, 63, 65};
    return random_u32() & 1 ? odd[random_u32() % TRPI_COUNTOF(odd)] : random_between(1, 100);
}

static void random_products(trp_dtype dtype, int count, bool blocked) {
    trp_device *device = open_device(2, false), *reference = open_device(1, true);
    for (int i = 0; i < count; i++) {
        random_state = (uint64_t)i + 1;
        struct problem p =
            make_problem(random_dimension(), random_dimension(), random_dimension(), dtype);
        expect_product(device, reference, &p, blocked);
        free_problem(&p);
    }
    trp_device_close(device);
    trp_device_close(reference);
}

static void fp32_products_agree_with_sums_in_double(void **state) {
    random_products(TRP_F32, 250, false);
}

static void bf16_products_agree_with_sums_in_double(void **state) {
    random_products(TRP_BF16, 250, false);
}

static void fp16_products_agree_with_sums_in_double(void **state) {
    random_products(TRP_F16, 100, false);
}

static void plain_c_products_agree_with_sums_in_double(void **state) {
    random_products(TRP_F32, 250, true);
    random_products(TRP_BF16, 100, true);
}

/* Larger than a part in every direction, and not a multiple of one. */
static void products_of_many_parts_agree(void **state) {
    trp_device *device = open_device(3, false), *reference = open_device(1, true);
    for (int i = 0; i < 4; i++) {
        random_state = (uint64_t)i + 1;
        struct problem p = make_problem(270 + i, 530 + i, 300 + i, i & 1 ? TRP_BF16 : TRP_F32);
        expect_product(device, reference, &p, false);
        expect_product(device, reference, &p, true);
        free_problem(&p);
    }
    trp_device_close(device);
    trp_device_close(reference);
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    for (int i = 0; i < 12; i++) {
        random_state = (uint64_t)i + 1;
        struct problem p = make_problem(random_between(1, 600), random_between(1, 600),
                                        random_between(1, 900), i & 1 ? TRP_BF16 : TRP_F32);
        void *first[2] = {NULL, NULL};
        for (int threads = 1; threads <= 3; threads++) {
            trp_device *device = open_device(threads, false);
            for (int blocked = 0; blocked < 2; blocked++) {
                p.args.c = copy_of(p.c, p.bytes_c);
                trp_matmul_args args = trpi_gemm_defaults(&p.args);
                assert_int_equal(blocked ? trpi_gemm_blocked((trpi_cpu *)device, &args, NULL)
                                         : trp_op_matmul(device, &p.args, NULL),
                                 TRP_OK);
                if (!first[blocked]) {
                    first[blocked] = p.args.c;
                    continue;
                }
                assert_memory_equal(p.args.c, first[blocked], p.bytes_c);
                free(p.args.c);
            }
            trp_device_close(device);
        }
        free(first[0]);
        free(first[1]);
        free_problem(&p);
    }
}

static void nan_and_inf_reach_the_result(void **state) {
    trp_device *device = open_device(2, false);
    for (int blocked = 0; blocked < 2; blocked++) {
        float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 1, 1, 1, 1, 1}, c[4];
        trp_matmul_args args = {.m = 2, .n = 2, .k = 3, .a = a, .b = b, .c = c};
        a[1] = NAN;
        a[5] = INFINITY;
        args = trpi_gemm_defaults(&args);
        assert_int_equal(blocked ? trpi_gemm_blocked((trpi_cpu *)device, &args, NULL)
                                 : trp_op_matmul(device, &args, NULL),
                         TRP_OK);
        assert_true(isnan(c[0]) && isnan(c[1]) && isinf(c[2]) && isinf(c[3]));
    }
    trp_device_close(device);
}

/* More shapes than are kept: the oldest are made again, and results stay right. */
static void products_beyond_what_is_kept_still_work(void **state) {
    trp_device *device = open_device(1, false);
    float a[1200], b[1], c[1200];
    for (int i = 0; i < 1200; i++) {
        a[i] = (float)i;
    }
    b[0] = 2.0f;
    for (int m = 1; m <= 1200; m++) {
        trp_matmul_args args = {.m = 1, .n = 1, .k = 1, .a = a + m - 1, .b = b, .c = c + m - 1};
        args.lda = m;
        assert_int_equal(trp_op_matmul(device, &args, NULL), TRP_OK);
    }
    for (int m = 0; m < 1200; m++) {
        assert_true(c[m] == 2.0f * (float)m);
    }
    trp_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_products_agree_with_sums_in_double),
        cmocka_unit_test(bf16_products_agree_with_sums_in_double),
        cmocka_unit_test(fp16_products_agree_with_sums_in_double),
        cmocka_unit_test(plain_c_products_agree_with_sums_in_double),
        cmocka_unit_test(products_of_many_parts_agree),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(nan_and_inf_reach_the_result),
        cmocka_unit_test(products_beyond_what_is_kept_still_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ops_adamw_test.c: the optimizer's arithmetic over many steps, against plain scalar code in double
 * that is written out here once more. Scenario Z15. */
#include "tests/numeric/numbers.h"

enum { COUNT = 1037, STEPS = 100 };

struct scalar {
    double p, m, v;
};

static void scalar_step(struct scalar *s, double g, int t, double lr, double decay) {
    const double b1 = 0.9f, b2 = 0.999f, eps = 1e-8f;
    s->m = b1 * s->m + (1.0 - b1) * g;
    s->v = b2 * s->v + (1.0 - b2) * g * g;
    double step = s->m / (1.0 - pow(b1, t)) / (sqrt(s->v / (1.0 - pow(b2, t))) + eps);
    s->p = s->p - lr * step - lr * decay * s->p;
}

struct group {
    float *master, *m, *v, *grad;
    uint16_t *param;
    struct scalar *scalars;
    float decay;
};

static void open_group(struct group *g, uint64_t seed, float decay) {
    random_state = seed;
    g->master = random_values(COUNT, TRP_F32, 0.05);
    g->grad = random_values(COUNT, TRP_F32, 1.0);
    g->m = calloc(COUNT, sizeof(float));
    g->v = calloc(COUNT, sizeof(float));
    g->param = calloc(COUNT, sizeof(uint16_t));
    g->scalars = calloc(COUNT, sizeof(*g->scalars));
    g->decay = decay;
    for (int i = 0; i < COUNT; i++) {
        g->scalars[i].p = (double)g->master[i];
    }
}

static void close_group(struct group *g) {
    free(g->master);
    free(g->grad);
    free(g->m);
    free(g->v);
    free(g->param);
    free(g->scalars);
}

/* Gradients over six orders of magnitude, some of them zero, arriving scaled by 1/64. */
static void step_group(trp_device *device, struct group *g, int t) {
    const float lr = 1e-3f, scale = 0.015625f;
    for (int i = 0; i < COUNT; i++) {
        double size = pow(10.0, -(double)(i % 7));
        g->grad[i] = i % 11 == 0 ? 0.0f : (float)(random_unit() * size * 64.0);
        double seen = (double)g->grad[i] * (double)scale;
        scalar_step(&g->scalars[i], seen, t, (double)lr, (double)g->decay);
    }
    trp_adamw_args args = {.count = COUNT,
                           .master = g->master,
                           .m = g->m,
                           .v = g->v,
                           .grad = g->grad,
                           .lr = lr,
                           .beta1 = 0.9f,
                           .beta2 = 0.999f,
                           .eps = 1e-8f,
                           .weight_decay = g->decay,
                           .grad_scale = scale,
                           .t = t,
                           .param = g->param,
                           .param_dtype = TRP_BF16};
    trp_error error;
    expect_ok(trp_op_adamw(device, &args, &error), &error);
}

/* The update is what Adam decides, so the distance gone is held to the tolerance too, relative to
 * the size of a weight. */
static void expect_group(const struct group *g) {
    for (int i = 0; i < COUNT; i++) {
        double want = g->scalars[i].p;
        if (!(fabs((double)g->master[i] - want) <= 1e-6 * fmax(fabs(want), 0.05))) {
            fail_msg("p[%d]: got %.9g, want %.9g", i, (double)g->master[i], want);
        }
        assert_true(g->param[i] == trpi_float_bf16(g->master[i]));
    }
}

static void z15_adamw_follows_the_scalar_formula_for_a_hundred_steps(void **state) {
    trp_device *device = open_device(2, false);
    struct group decay, none;
    open_group(&decay, 1, 0.1f);
    open_group(&none, 2, 0.0f);
    for (int t = 1; t <= STEPS; t++) {
        step_group(device, &decay, t);
        step_group(device, &none, t);
    }
    expect_group(&decay);
    expect_group(&none);
    close_group(&decay);
    close_group(&none);
    trp_device_close(device);
}

/* State carried over to another device, and t going on: what a resume does. */
static void z15_bias_correction_is_right_after_a_resume(void **state) {
    trp_device *device = open_device(1, false);
    struct group g;
    open_group(&g, 3, 0.1f);
    for (int t = 1; t <= STEPS; t++) {
        if (t == STEPS / 2) {
            trp_device_close(device);
            device = open_device(2, false);
        }
        step_group(device, &g, t);
    }
    expect_group(&g);
    close_group(&g);
    trp_device_close(device);
}

static void z15_decay_uses_the_weight_before_the_step(void **state) {
    trp_device *device = open_device(1, false);
    float p = 2.0f, m = 0.0f, v = 0.0f, grad = 1.0f;
    trp_adamw_args args = {.count = 1,
                           .master = &p,
                           .m = &m,
                           .v = &v,
                           .grad = &grad,
                           .lr = 0.5f,
                           .beta1 = 0.9f,
                           .beta2 = 0.999f,
                           .weight_decay = 0.25f,
                           .grad_scale = 1.0f,
                           .t = 1};
    assert_int_equal(trp_op_adamw(device, &args, NULL), TRP_OK);
    /* The first step of Adam is lr exactly: 2 - 0.5 - 0.5 * 0.25 * 2. */
    assert_true(fabsf(p - 1.25f) < 1e-6f);
    trp_device_close(device);
}

static void z15_an_empty_shard_is_a_step_too(void **state) {
    trp_device *device = open_device(1, false);
    trp_adamw_args args = {.count = 0, .beta1 = 0.9f, .beta2 = 0.999f, .t = 1};
    assert_int_equal(trp_op_adamw(device, &args, NULL), TRP_OK);
    args.t = 0;
    trp_error error;
    assert_int_equal(trp_op_adamw(device, &args, &error), TRP_EINVALID);
    assert_non_null(strstr(error.message, "steps count from 1"));
    trp_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(z15_adamw_follows_the_scalar_formula_for_a_hundred_steps),
        cmocka_unit_test(z15_bias_correction_is_right_after_a_resume),
        cmocka_unit_test(z15_decay_uses_the_weight_before_the_step),
        cmocka_unit_test(z15_an_empty_shard_is_a_step_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

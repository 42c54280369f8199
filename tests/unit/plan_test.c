/* The plan: each instruction finds what it needs, nothing overlaps, nothing is kept for longer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "trainer/engine/plan.h"

typedef struct fixture {
    trp_model *model;
    trpi_layout layout;
    trpi_plan plan;
} fixture;

static fixture make(int stage, bool training, int world, int64_t bucket) {
    fixture f = {0};
    trp_gpt2_config config = {
        .vocabulary = 257, .positions = 32, .layers = 3, .heads = 3, .width = 48};
    assert_int_equal(trp_gpt2_new(&config, &f.model, NULL), TRP_OK);
    assert_int_equal(trpi_layout_init(f.model, world, bucket, &f.layout, NULL), TRP_OK);
    assert_int_equal(trpi_plan_init(f.model, &f.layout, stage, training, &f.plan, NULL), TRP_OK);
    return f;
}

static void drop(fixture *f) {
    trpi_plan_release(&f->plan);
    trpi_layout_release(&f->layout);
    trp_model_free(f->model);
}

/* What is in a pool while the plan is followed. */
typedef struct follow {
    const fixture *f;
    int64_t param_at[64], grad_at[64]; /* -1: not there */
    bool reduced[64];
    int64_t param_peak, grad_peak;
} follow;

static void check_free(const follow *w, const int64_t *at, int bucket, int64_t offset,
                       int64_t pool) {
    int64_t end = offset + w->f->layout.buckets[bucket].padded;
    assert_int_equal(at[bucket], -1);
    assert_true(offset >= 0 && end <= pool);
    for (int b = 0; b < w->f->layout.bucket_count; b++) {
        if (at[b] >= 0) {
            assert_true(end <= at[b] || offset >= at[b] + w->f->layout.buckets[b].padded);
        }
    }
}

static int64_t live(const follow *w, const int64_t *at) {
    int64_t sum = 0;
    for (int b = 0; b < w->f->layout.bucket_count; b++) {
        sum += at[b] >= 0 ? w->f->layout.buckets[b].padded : 0;
    }
    return sum;
}

static void check_compute(const follow *w, int unit, const int64_t *at) {
    for (int p = 0; p < w->f->model->units[unit].param_count; p++) {
        int bucket = w->f->layout.tensors[w->f->layout.tensor_of[unit][p]].bucket;
        assert_true(at[bucket] >= 0);
        assert_false(w->reduced[bucket]);
    }
}

static void follow_step(follow *w, const trpi_plan_step *step, int stage) {
    switch (step->op) {
    case TRPI_PLAN_GATHER:
        check_free(w, w->param_at, step->index, step->offset, w->f->plan.param_pool);
        w->param_at[step->index] = step->offset;
        w->param_peak = TRPI_MAX(w->param_peak, live(w, w->param_at));
        break;
    case TRPI_PLAN_RELEASE:
        assert_true(w->param_at[step->index] >= 0);
        w->param_at[step->index] = -1;
        break;
    case TRPI_PLAN_FORWARD:
        if (stage == 3) {
            check_compute(w, step->index, w->param_at);
        }
        break;
    case TRPI_PLAN_OPEN:
        check_free(w, w->grad_at, step->index, step->offset, w->f->plan.grad_pool);
        w->grad_at[step->index] = step->offset;
        w->grad_peak = TRPI_MAX(w->grad_peak, live(w, w->grad_at));
        break;
    case TRPI_PLAN_BACKWARD:
        if (stage == 3 && !w->f->model->units[step->index].type->backward_without_params) {
            check_compute(w, step->index, w->param_at);
        }
        if (stage >= 2) {
            check_compute(w, step->index, w->grad_at);
        }
        break;
    case TRPI_PLAN_REDUCE:
        assert_false(w->reduced[step->index]);
        assert_int_equal(step->boundary, stage < 2);
        w->reduced[step->index] = true;
        w->grad_at[step->index] = -1;
        break;
    }
}

static follow follow_plan(const fixture *f, int stage, bool training) {
    follow w = {.f = f};
    int next_forward = 0, next_backward = f->model->unit_count - 1;
    assert_true(f->layout.bucket_count <= 64);
    for (int b = 0; b < 64; b++) {
        w.param_at[b] = w.grad_at[b] = -1;
    }
    for (int i = 0; i < f->plan.count; i++) {
        const trpi_plan_step *step = &f->plan.steps[i];
        follow_step(&w, step, stage);
        if (step->op == TRPI_PLAN_FORWARD) {
            assert_int_equal(step->index, next_forward++);
        } else if (step->op == TRPI_PLAN_BACKWARD) {
            assert_int_equal(step->index, next_backward--);
        }
    }
    assert_int_equal(next_forward, f->model->unit_count);
    assert_int_equal(next_backward, training ? -1 : f->model->unit_count - 1);
    assert_int_equal(live(&w, w.param_at), 0);
    assert_int_equal(live(&w, w.grad_at), 0);
    for (int b = 0; training && b < f->layout.bucket_count; b++) {
        assert_true(w.reduced[b]);
    }
    return w;
}

static void every_plan_can_be_followed(void **state) {
    static const int64_t buckets[] = {1, 5000, 500000000};
    for (int stage = 0; stage <= 3; stage++) {
        for (int world = 1; world <= 5; world += 2) {
            for (size_t i = 0; i < TRPI_COUNTOF(buckets); i++) {
                for (int training = 0; training < 2; training++) {
                    fixture f = make(stage, training, world, buckets[i]);
                    (void)follow_plan(&f, stage, training);
                    drop(&f);
                }
            }
        }
    }
}

static void only_stage_3_gathers_and_only_2_and_3_open_gradients(void **state) {
    for (int stage = 0; stage <= 3; stage++) {
        fixture f = make(stage, true, 2, 500000000);
        assert_int_equal(f.plan.param_pool > 0, stage == 3);
        assert_int_equal(f.plan.grad_pool > 0, stage >= 2);
        drop(&f);
    }
}

static int count_gathers(const trpi_plan *plan, int bucket) {
    int count = 0;
    for (int i = 0; i < plan->count; i++) {
        count += plan->steps[i].op == TRPI_PLAN_GATHER && plan->steps[i].index == bucket;
    }
    return count;
}

static void a_block_is_gathered_twice_and_the_tied_table_twice(void **state) {
    fixture f = make(3, true, 2, 500000000);
    int table =
        f.layout.tensors[trpi_layout_find(&f.layout, f.model, "transformer.wte.weight")].bucket;
    int places =
        f.layout.tensors[trpi_layout_find(&f.layout, f.model, "transformer.wpe.weight")].bucket;
    int block =
        f.layout.tensors[trpi_layout_find(&f.layout, f.model, "transformer.h.1.mlp.c_fc.weight")]
            .bucket;
    /* Embedding, and head forward with backward: the embedding's backward reads no weight. */
    assert_int_equal(count_gathers(&f.plan, table), 2);
    assert_int_equal(count_gathers(&f.plan, places), 1);
    assert_int_equal(count_gathers(&f.plan, block), 2);
    drop(&f);
}

static int64_t unit_elements(const fixture *f, int unit) {
    int64_t sum = 0;
    for (int b = 0; b < f->layout.bucket_count; b++) {
        bool used = false;
        for (int p = 0; p < f->model->units[unit].param_count; p++) {
            used = used || f->layout.tensors[f->layout.tensor_of[unit][p]].bucket == b;
        }
        sum += used ? f->layout.buckets[b].padded : 0;
    }
    return sum;
}

static void gathered_parameters_are_never_more_than_the_largest_unit(void **state) {
    fixture f = make(3, true, 2, 500000000);
    int64_t largest = 0;
    for (int u = 0; u < f.model->unit_count; u++) {
        largest = TRPI_MAX(largest, unit_elements(&f, u));
    }
    follow w = follow_plan(&f, 3, true);
    assert_int_equal(w.param_peak, largest);
    assert_int_equal(f.plan.param_pool, largest);
    drop(&f);
}

static void open_gradients_are_never_more_than_a_unit_and_the_tied_table(void **state) {
    fixture f = make(2, true, 2, 500000000);
    int64_t table = f.layout.buckets[0].padded;
    follow w = follow_plan(&f, 2, true);
    assert_int_equal(w.grad_peak, table + unit_elements(&f, 1));
    assert_int_equal(f.plan.grad_pool, w.grad_peak);
    drop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_can_be_followed),
        cmocka_unit_test(only_stage_3_gathers_and_only_2_and_3_open_gradients),
        cmocka_unit_test(a_block_is_gathered_twice_and_the_tied_table_twice),
        cmocka_unit_test(gathered_parameters_are_never_more_than_the_largest_unit),
        cmocka_unit_test(open_gradients_are_never_more_than_a_unit_and_the_tied_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

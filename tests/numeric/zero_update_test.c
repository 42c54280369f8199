/* From gradients to weights: reduction, norm, clipping, AdamW, skipping. Gradients are scripted, so
 * the right answers are known. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/scripted.h"
#include "trainer/engine/engine.h"

#define CONFIG                                                                                     \
    "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": %d,"                 \
    " \"gradient_clipping\": %.17g, \"zero_optimization\": {\"stage\": %d},"                       \
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": %.17g, \"weight_decay\": %.17g}}}"

typedef struct knobs {
    int stage, accumulation;
    int64_t w, b;
    int ramp;
    double clip, lr, decay;
} knobs;

static trp_code open_scripted(test_rank *self, const knobs *k, toy_run *ret_toy, trp_error *err) {
    trp_model *model = scripted_model(k->w, k->b, k->ramp);
    TEST_REQUIRE(model);
    const char *config = toy_config(CONFIG, k->accumulation, k->clip, k->stage, k->lr, k->decay);
    return toy_open_model(self, config, 1, model, ret_toy, err);
}

/* This rank's reduced gradient of element i of a tensor, or NAN when another rank owns it. */
static float own_grad(const toy_run *t, int tensor, int64_t i) {
    const trp_zero *e = t->engine;
    trpi_piece own = trpi_layout_owned(&e->layout, tensor, e->rank);
    int bucket = e->layout.tensors[tensor].bucket;
    if (i < own.tensor_offset || i >= own.tensor_offset + own.count) {
        return NAN;
    }
    int64_t at = own.bucket_offset - e->rank * e->layout.buckets[bucket].slice;
    return trpi_memory_own_grads(&e->memory, bucket)[at + (i - own.tensor_offset)];
}

/* ---- Reduction ---- */

/* Micro-step j of rank r has token 8 r + 3 j + 2: the mean of 2, 5, 10, 13 is 7.5. */
static trp_code reduce_known(test_rank *self, trp_error *err) {
    toy_run t;
    knobs k = {*(int *)self->arg, 2, 300, 3, 2, 0, 1e-3, 0};
    int32_t tokens[2] = {8 * self->rank + 2, 8 * self->rank + 5};
    trp_step_stats stats;
    trp_code code = open_scripted(self, &k, &t, err);
    if (!code) {
        code = scripted_step(&t, tokens, &stats, err);
    }
    if (code) {
        return code;
    }
    int64_t owned = 0;
    for (int tensor = 0; tensor < 2; tensor++) {
        for (int64_t i = 0; i < (tensor == 0 ? k.w : k.b); i++) {
            float found = own_grad(&t, tensor, i);
            if (!isnan(found)) {
                owned++;
                TEST_REQUIRE(found == 7.5f + 2 * (float)i);
            }
        }
    }
    TEST_REQUIRE(stats.loss == 7.5);
    TEST_REQUIRE(owned > 0 || self->world > 2);
    toy_close(&t);
    return TRP_OK;
}

static void z08_the_reduced_mean_of_known_gradients_is_exact(void **state) {
    for (int stage = 0; stage <= 3; stage++) {
        test_ranks_run(2, reduce_known, &stage);
    }
}

/* Only micro-step *arg of four has a gradient. */
static trp_code one_micro_step_counts(test_rank *self, trp_error *err) {
    const int *arg = self->arg;
    toy_run t;
    knobs k = {arg[0], 4, 10, 3, 0, 0, 0.5, 0};
    int32_t tokens[4] = {0};
    float w[10];
    trp_step_stats stats;
    tokens[arg[1]] = 8;
    trp_code code = open_scripted(self, &k, &t, err);
    if (!code) {
        code = scripted_step(&t, tokens, &stats, err);
    }
    if (!code) {
        code = trp_zero_get_tensor(t.engine, "w", w, 10, err);
    }
    if (code) {
        return code;
    }
    for (int i = 0; i < 10; i++) {
        TEST_REQUIRE(fabsf(w[i] - 0.5f) < 1e-6f); /* Adam's first step is lr, whatever the size */
    }
    TEST_REQUIRE(fabs(stats.grad_norm - 2 * sqrt(13)) < 1e-12);
    toy_close(&t);
    return TRP_OK;
}

static void z07_the_first_and_the_last_micro_step_count(void **state) {
    for (int stage = 0; stage <= 3; stage++) {
        for (int which = 0; which < 4; which++) {
            int arg[2] = {stage, which};
            test_ranks_run(2, one_micro_step_counts, arg);
        }
    }
}

/* ---- Norm and clipping ---- */

typedef struct norm_case {
    int stage;
    bool poison;
    double norm;
    char hash[33];
} norm_case;

/* Everything that belongs to no tensor becomes 1e30. */
static void poison_padding(trp_zero *e) {
    for (int b = 0; b < e->layout.bucket_count; b++) {
        const trpi_bucket *bucket = &e->layout.buckets[b];
        int64_t from = trpi_memory_kept_from(&e->memory, b);
        int64_t count = trpi_memory_kept_count(&e->memory, b);
        for (int64_t i = from; i < from + count; i++) {
            bool inside = false;
            for (int t = bucket->tensor; t < bucket->tensor + bucket->tensor_count; t++) {
                const trpi_tensor_place *p = &e->layout.tensors[t];
                inside = inside || (i >= p->offset && i < p->offset + p->count);
            }
            if (!inside) {
                trpi_memory_masters(&e->memory, b)[i - from] = 1e30f;
                trpi_memory_m(&e->memory, b)[i - from] = 1e30f;
                trpi_memory_v(&e->memory, b)[i - from] = 1e30f;
            }
        }
    }
}

static trp_code norm_of_toy(test_rank *self, trp_error *err) {
    norm_case *n = self->arg;
    toy_run t;
    trp_step_stats stats;
    char hash[33];
    trp_code code = toy_open(self,
                             toy_config("{\"train_batch_size\": 60, \"zero_optimization\":"
                                        " {\"stage\": %d}}",
                                        n->stage),
                             3, &t, err);
    if (code) {
        return code;
    }
    if (n->poison) {
        poison_padding(t.engine);
    }
    code = toy_step(&t, self, 0, &stats, err);
    if (!code) {
        code = trp_zero_weights_hash(t.engine, hash, err);
    }
    if (!code && self->rank == 0) {
        n->norm = stats.grad_norm;
        memcpy(n->hash, hash, sizeof n->hash);
    }
    toy_close(&t);
    return code;
}

static void z13_the_norm_is_the_same_for_all_stages_and_world_sizes(void **state) {
    norm_case one = {0};
    test_ranks_run(1, norm_of_toy, &one);
    for (int world = 1; world <= 5; world++) {
        norm_case first = {0};
        test_ranks_run(world, norm_of_toy, &first);
        assert_true(fabs(first.norm - one.norm) <= 1e-6 * one.norm);
        for (int stage = 0; stage <= 3; stage++) {
            norm_case poisoned = {.stage = stage, .poison = true};
            test_ranks_run(world, norm_of_toy, &poisoned);
            assert_true(poisoned.norm == first.norm); /* the same bits */
            assert_string_equal(poisoned.hash, first.hash);
        }
    }
}

/* The tied table is one tensor in the norm: the sum over tensors of an engine on one rank, done
 * here by hand, is the norm. */
static trp_code norm_by_hand(test_rank *self, trp_error *err) {
    toy_run t;
    trp_step_stats stats;
    double squares = 0;
    trp_code code = toy_open(self, "{\"train_batch_size\": 4}", 3, &t, err);
    if (!code) {
        code = toy_step(&t, self, 0, &stats, err);
    }
    if (code) {
        return code;
    }
    int64_t elements = 0;
    for (int i = 0; i < t.engine->layout.tensor_count; i++) {
        const trpi_tensor_place *p = &t.engine->layout.tensors[i];
        for (int64_t j = 0; j < p->count; j++, elements++) {
            double g = own_grad(&t, i, j);
            squares += g * g;
        }
    }
    TEST_REQUIRE(elements == trp_zero_parameter_count(t.engine));
    TEST_REQUIRE(fabs(stats.grad_norm - sqrt(squares)) < 1e-9 * stats.grad_norm);
    toy_close(&t);
    return TRP_OK;
}

static void z13_each_tensor_is_once_in_the_norm(void **state) {
    test_ranks_run(1, norm_by_hand, NULL);
}

typedef struct clip_case {
    int stage;
    double clip, lr;
    double norm; /* found */
    float m;     /* first moment of w[0] after one step, found */
    char hash[33];
} clip_case;

/* 100 gradients of 1: their norm is 10. */
static trp_code clip_known(test_rank *self, trp_error *err) {
    clip_case *c = self->arg;
    toy_run t;
    knobs k = {c->stage, 1, 60, 40, 0, c->clip, 1e-3, 0.1};
    trp_step_stats stats;
    char hash[33];
    trp_code code = open_scripted(self, &k, &t, err);
    if (!code) {
        code = scripted_step(&t, (int32_t[]){1}, &stats, err);
    }
    if (!code) {
        code = trp_zero_weights_hash(t.engine, hash, err);
    }
    if (code) {
        return code;
    }
    if (self->rank == 0) {
        c->norm = stats.grad_norm;
        c->m = trpi_memory_m(&t.engine->memory, 0)[0];
        memcpy(c->hash, hash, sizeof c->hash);
    }
    toy_close(&t);
    return TRP_OK;
}

static void z14_clipping_scales_by_the_norm_or_touches_nothing(void **state) {
    assert_true(trpi_update_clip(10, 1) == (float)(1 / (10 + 1e-6)));
    assert_true(trpi_update_clip(10, 0) == 1.0f);
    assert_true(trpi_update_clip(10, 11) == 1.0f);
    assert_true(trpi_update_clip(0, 1) == 1.0f);
    for (int stage = 0; stage <= 3; stage++) {
        clip_case clipped = {.stage = stage, .clip = 1}, off = {.stage = stage, .clip = 0},
                  above = {.stage = stage, .clip = 10.001};
        test_ranks_run(2, clip_known, &clipped);
        test_ranks_run(2, clip_known, &off);
        test_ranks_run(2, clip_known, &above);
        assert_true(clipped.norm == 10 && off.norm == 10 && above.norm == 10);
        assert_string_equal(off.hash, above.hash);
        float scaled = off.m * (float)(1 / (10 + 1e-6)); /* moments are linear in the gradient */
        assert_true(fabsf(clipped.m - scaled) <= 2 * FLT_EPSILON * scaled);
        assert_true(fabsf(off.m - 0.1f) <= 1e-6f);
    }
}

/* ---- AdamW ---- */

typedef struct reference {
    double p, m, v;
} reference;

static void adamw_in_double(reference *r, double g, double lr, double decay, int t) {
    r->m = 0.9 * r->m + 0.1 * g;
    r->v = 0.999 * r->v + 0.001 * g * g;
    double m = r->m / (1 - pow(0.9, t)), v = r->v / (1 - pow(0.999, t));
    r->p -= lr * (m / (sqrt(v) + 1e-8) + decay * r->p);
}

static int32_t token_of(int step) {
    return (step * 7) % 11 + 1;
}

static trp_code train_adamw(test_rank *self, trp_error *err) {
    toy_run t;
    knobs k = {*(int *)self->arg, 1, 37, 5, 1, 0, 1e-3, 0.1};
    reference w = {1, 0, 0}, b = {1, 0, 0};
    float found_w[37], found_b[5];
    trp_code code = open_scripted(self, &k, &t, err);
    for (int step = 1; !code && step <= 100; step++) {
        int32_t token = token_of(step) * (step % 3 == 0 ? -1 : 1);
        code = scripted_step(&t, &token, NULL, err);
        adamw_in_double(&w, token + 4, k.lr, k.decay, step); /* element 4: ramp 1 */
        adamw_in_double(&b, token + 4, k.lr, 0, step);
    }
    if (!code) {
        code = trp_zero_get_tensor(t.engine, "w", found_w, 37, err);
    }
    if (!code) {
        code = trp_zero_get_tensor(t.engine, "b", found_b, 5, err);
    }
    if (code) {
        return code;
    }
    TEST_REQUIRE(fabs(found_w[4] - w.p) <= 1e-6 * fabs(w.p));
    TEST_REQUIRE(fabs(found_b[4] - b.p) <= 1e-6 * fabs(b.p));
    TEST_REQUIRE(fabs(w.p - b.p) > 1e-3); /* decay is for w alone */
    toy_close(&t);
    return TRP_OK;
}

static void z15_adamw_follows_a_reference_in_double_for_100_steps(void **state) {
    for (int stage = 0; stage <= 3; stage++) {
        test_ranks_run(1, train_adamw, &stage);
        test_ranks_run(2, train_adamw, &stage);
        test_ranks_run(5, train_adamw, &stage);
    }
}

/* ---- Skipped steps ---- */

#define SCHEDULED                                                                                  \
    "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": %d},"              \
    " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 1,"                  \
    "   \"warmup_num_steps\": 4, \"warmup_type\": \"linear\"}}}"

static trp_code skip_the_fourth(test_rank *self, trp_error *err) {
    static const double rates[] = {0, 0, .25, .5, .5, .75, 1};
    toy_run t;
    char before[33], after[33];
    trp_step_stats stats;
    trp_model *model = scripted_model(100, 7, 1);
    TEST_REQUIRE(model);
    trp_code code =
        toy_open_model(self, toy_config(SCHEDULED, *(int *)self->arg), 1, model, &t, err);
    for (int step = 1; !code && step <= 7; step++) {
        bool bad = step == 4;
        int32_t token = bad && self->rank == 1 ? SCRIPTED_NAN : 3;
        code = trp_zero_weights_hash(t.engine, before, err);
        if (!code) {
            code = scripted_step(&t, &token, &stats, err);
        }
        if (!code) {
            code = trp_zero_weights_hash(t.engine, after, err);
        }
        if (code) {
            return code;
        }
        TEST_REQUIRE(stats.skipped_now == bad);
        TEST_REQUIRE(stats.step == (uint64_t)step && trp_zero_steps(t.engine) == (uint64_t)step);
        TEST_REQUIRE(stats.skipped == (step >= 4));
        TEST_REQUIRE(stats.lr == rates[step - 1]);
        TEST_REQUIRE(bad == !isfinite(stats.grad_norm));
        TEST_REQUIRE((strcmp(before, after) == 0) == (bad || stats.lr == 0));
        TEST_REQUIRE(t.engine->updates == (uint64_t)step - (step >= 4));
        /* Rank 1's second tensor was the one, and only rank 1 found a bad one in its own gradient.
         */
        TEST_REQUIRE(!bad || t.engine->bad_tensor == (self->rank == 1 ? 1 : -1));
    }
    toy_close(&t);
    return code;
}

static void z12_a_nonfinite_gradient_skips_the_step_on_all_ranks(void **state) {
    for (int stage = 0; stage <= 3; stage++) {
        test_ranks_run(2, skip_the_fourth, &stage);
    }
}

/* ---- Ranks that do not fit together ---- */

static trp_code one_bad_batch(test_rank *self, trp_error *err) {
    toy_run t;
    trp_error refused;
    trp_step_stats stats;
    trp_code code = toy_open(self, "{\"train_batch_size\": 3}", 3, &t, err);
    if (code) {
        return code;
    }
    toy_fill(&t, 0, self->rank, 1, 0);
    trp_batch batch = {.tokens = t.tokens, .targets = t.targets, .rows = 1, .columns = TOY_COLUMNS};
    if (self->rank == 1) {
        t.tokens[5] = TOY_VOCABULARY;
    }
    code = trp_zero_step(t.engine, &batch, 1, &stats, &refused);
    TEST_REQUIRE(code == TRP_EINVALID);
    TEST_REQUIRE(strstr(refused.message, self->rank == 1 ? "token 257 in row 0, column 5"
                                                         : "rank 1 could not take part"));
    batch.targets = self->rank == 2 ? NULL : t.targets;
    t.tokens[5] = 1;
    TEST_REQUIRE(trp_zero_step(t.engine, &batch, 1, &stats, &refused) == TRP_EINVALID);
    TEST_REQUIRE(self->rank != 2 || strstr(refused.message, "without tokens or targets"));
    /* Nobody has moved, so everybody can go on. */
    batch.targets = t.targets;
    code = trp_zero_step(t.engine, &batch, 1, &stats, err);
    TEST_REQUIRE(code || stats.step == 1);
    toy_close(&t);
    return code;
}

static void a_bad_batch_on_one_rank_is_refused_by_all_and_breaks_nothing(void **state) {
    test_ranks_run(3, one_bad_batch, NULL);
}

static trp_code all_ignored(test_rank *self, trp_error *err) {
    toy_run t;
    trp_error refused;
    trp_step_stats stats;
    double loss, again;
    trp_code code = toy_open(self, "{\"train_batch_size\": 2}", 3, &t, err);
    if (code) {
        return code;
    }
    toy_fill(&t, 0, 0, 2, 0);
    trp_batch batch = {.tokens = t.tokens, .targets = t.targets, .rows = 1, .columns = TOY_COLUMNS};
    code = trp_zero_evaluate(t.engine, &batch, &loss, err);
    /* Rank 1 has nothing that counts: the mean is rank 0's, and both have the same loss. */
    for (int i = 0; self->rank == 1 && i < TOY_COLUMNS; i++) {
        t.targets[i] = TRP_IGNORE;
    }
    if (!code) {
        code = trp_zero_evaluate(t.engine, &batch, &again, err);
    }
    if (code) {
        return code;
    }
    TEST_REQUIRE(fabs(loss - again) < 1e-6 * loss);
    for (int i = 0; i < TOY_COLUMNS; i++) {
        t.targets[i] = TRP_IGNORE;
    }
    TEST_REQUIRE(trp_zero_step(t.engine, &batch, 1, &stats, &refused) == TRP_EINVALID);
    TEST_REQUIRE(strstr(refused.message, "no target of the step counts"));
    toy_close(&t);
    return TRP_OK;
}

static void the_loss_is_the_mean_over_the_targets_that_count(void **state) {
    test_ranks_run(2, all_ignored, NULL);
}

static trp_code leave_in_the_middle(test_rank *self, trp_error *err) {
    toy_run t;
    trp_error broken;
    trp_step_stats stats;
    trp_code code = toy_open(self, "{\"train_batch_size\": 2}", 3, &t, err);
    if (code) {
        return code;
    }
    if (self->rank == 1) {
        trp_comm_abort(self->comm);
    }
    TEST_REQUIRE(toy_step(&t, self, 0, &stats, &broken) == TRP_ECOMM_ABORTED);
    TEST_REQUIRE(toy_step(&t, self, 0, &stats, &broken) == TRP_ECOMM_ABORTED);
    toy_close(&t);
    return TRP_OK;
}

static void an_aborted_communicator_ends_the_step_with_its_code(void **state) {
    test_ranks_run(2, leave_in_the_middle, NULL);
}

/* A unit that fails on one rank only, in the middle of the second step. */
static trp_code fail_alone(test_rank *self, trp_error *err) {
    toy_run t;
    trp_error broken;
    char hash[33];
    int32_t token = 3;
    trp_model *model = scripted_model(100, 3, 0);
    TEST_REQUIRE(model);
    trp_code code = toy_open_model(self, "{\"train_batch_size\": 3}", 1, model, &t, err);
    if (!code) {
        code = scripted_step(&t, &token, NULL, err);
    }
    if (code) {
        return code;
    }
    token = self->rank == 2 ? SCRIPTED_FAIL : 3;
    code = scripted_step(&t, &token, NULL, &broken);
    TEST_REQUIRE(code == (self->rank == 2 ? TRP_EDEVICE : TRP_ECOMM_ABORTED));
    TEST_REQUIRE(strstr(broken.message, "step 2: "));
    TEST_REQUIRE(scripted_step(&t, &token, NULL, &broken) == code);
    TEST_REQUIRE(strstr(broken.message, "this engine stopped working"));
    /* What it holds now is no moment of the run. */
    TEST_REQUIRE(trp_zero_save(t.engine, "/tmp", NULL, &broken) == code);
    TEST_REQUIRE(trp_zero_weights_hash(t.engine, hash, &broken) == code);
    toy_close(&t);
    return TRP_OK;
}

static void a_rank_that_fails_in_a_step_ends_it_for_all_at_once(void **state) {
    test_ranks_run(3, fail_alone, NULL);
}

static trp_code different_models(test_rank *self, trp_error *err) {
    toy_run t;
    trp_error refused;
    trp_model *model = scripted_model(100 + 200 * self->rank, 3, 0);
    TEST_REQUIRE(model);
    TEST_REQUIRE(toy_open_model(self, "{\"train_batch_size\": 2}", 1, model, &t, &refused) ==
                 TRP_EINVALID);
    TEST_REQUIRE(strstr(refused.message, "has a model of"));
    return TRP_OK;
}

static void ranks_with_different_models_do_not_start(void **state) {
    test_ranks_run(2, different_models, NULL);
}

static trp_code config_of_another_world(test_rank *self, trp_error *err) {
    trp_zero_config *config = NULL;
    trp_zero *engine = NULL;
    trp_error refused;
    trp_model *model = scripted_model(100, 3, 0);
    TEST_REQUIRE(model);
    trp_code code = trp_zero_config_parse("{\"train_batch_size\": 6}", 3, &config, err);
    if (!code) {
        TEST_REQUIRE(trp_zero_new(&model, self->device, self->comm, config, 1, &engine, &refused) ==
                     TRP_EINVALID);
        TEST_REQUIRE(model && strstr(refused.message, "a world of 3 ranks, this one has 2"));
    }
    trp_zero_config_free(config);
    trp_model_free(model);
    return code;
}

static void a_configuration_for_another_world_is_refused(void **state) {
    test_ranks_run(2, config_of_another_world, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(z08_the_reduced_mean_of_known_gradients_is_exact),
        cmocka_unit_test(z07_the_first_and_the_last_micro_step_count),
        cmocka_unit_test(z13_the_norm_is_the_same_for_all_stages_and_world_sizes),
        cmocka_unit_test(z13_each_tensor_is_once_in_the_norm),
        cmocka_unit_test(z14_clipping_scales_by_the_norm_or_touches_nothing),
        cmocka_unit_test(z15_adamw_follows_a_reference_in_double_for_100_steps),
        cmocka_unit_test(z12_a_nonfinite_gradient_skips_the_step_on_all_ranks),
        cmocka_unit_test(a_bad_batch_on_one_rank_is_refused_by_all_and_breaks_nothing),
        cmocka_unit_test(the_loss_is_the_mean_over_the_targets_that_count),
        cmocka_unit_test(an_aborted_communicator_ends_the_step_with_its_code),
        cmocka_unit_test(a_rank_that_fails_in_a_step_ends_it_for_all_at_once),
        cmocka_unit_test(ranks_with_different_models_do_not_start),
        cmocka_unit_test(a_configuration_for_another_world_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* GPT-2's gradients against finite differences, and its training against PyTorch's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpt2_golden.h"
#include "tests/lib/toy.h"
#include "trainer/engine/engine.h"

#define ROWS 2

/* ---- Gradients ---- */

/* Weights larger than GPT-2's own, so that attention and GELU are far from their linear parts. */
static trp_model *steep_model(trp_error *err) {
    trp_model *model = NULL;
    trp_gpt2_config config = {.vocabulary = TOY_VOCABULARY,
                              .positions = TOY_COLUMNS,
                              .layers = 2,
                              .heads = 3,
                              .width = 48,
                              .init_std = 0.15};
    return trp_gpt2_new(&config, &model, err) ? NULL : model;
}

static trp_code loss_of(toy_run *t, double *ret_loss, trp_error *err) {
    trp_batch batch = {
        .tokens = t->tokens, .targets = t->targets, .rows = ROWS, .columns = TOY_COLUMNS};
    return trp_zero_evaluate(t->engine, &batch, ret_loss, err);
}

/* The derivative of the loss along `direction` of one tensor, from two losses. */
static trp_code slope(toy_run *t, int tensor, const float *direction, double h, double *ret_slope,
                      trp_error *err) {
    const trpi_tensor_place *place = &t->engine->layout.tensors[tensor];
    float *weights = trpi_memory_masters(&t->engine->memory, place->bucket) + place->offset;
    float *kept = malloc((size_t)place->count * sizeof *kept);
    double losses[2];
    trp_code code = TRP_OK;
    TEST_REQUIRE(kept);
    memcpy(kept, weights, (size_t)place->count * sizeof *kept);
    for (int side = 0; !code && side < 2; side++) {
        for (int64_t i = 0; i < place->count; i++) {
            weights[i] = kept[i] + (float)((side ? -h : h) * direction[i]);
        }
        code = loss_of(t, &losses[side], err);
    }
    memcpy(weights, kept, (size_t)place->count * sizeof *kept);
    free(kept);
    *ret_slope = (losses[0] - losses[1]) / (2 * h);
    return code;
}

/* Along the gradient itself the slope is the gradient's length: no component may be too small.
 * Along a random direction it is the projection: no component may be wrong or too many. */
static trp_code check_tensor(toy_run *t, int tensor, const float *grad, trp_error *err) {
    const trpi_tensor_place *place = &t->engine->layout.tensors[tensor];
    float *direction = malloc((size_t)place->count * sizeof *direction);
    double length = 0;
    trp_code code = TRP_OK;
    TEST_REQUIRE(direction);
    for (int64_t i = 0; i < place->count; i++) {
        length += (double)grad[i] * grad[i];
    }
    length = sqrt(length);
    TEST_REQUIRE(length > 1e-6);
    for (int try = 0; !code && try < 4; try++) {
        double expected = 0, found = 0, norm = 0;
        for (int64_t i = 0; i < place->count; i++) {
            uint64_t mixed = ((uint64_t)i * 4 + (uint64_t)try + 1) * UINT64_C(0x9e3779b97f4a7c15);
            direction[i] = try == 0 ? (float)(grad[i] / length) : (mixed >> 33) % 2 ? 1 : -1;
            norm += (double)direction[i] * direction[i];
        }
        for (int64_t i = 0; i < place->count; i++) {
            direction[i] = (float)(direction[i] / sqrt(norm));
            expected += (double)direction[i] * grad[i];
        }
        code = slope(t, tensor, direction, 0.01, &found, err);
        if (!code && fabs(found - expected) > 2e-3 * length) {
            code = trpi_fail(err, TRP_EINTERNAL, "%s, direction %d: gradient %g, slope %g",
                             place->param->name, try, expected, found);
        }
    }
    free(direction);
    return code;
}

static trp_code check_all_gradients(test_rank *self, trp_error *err) {
    toy_run t;
    trp_model *model = steep_model(err);
    TEST_REQUIRE(model);
    trp_code code = toy_open_model(
        self, toy_config("{\"train_micro_batch_size_per_gpu\": %d}", ROWS), 5, model, &t, err);
    if (code) {
        return code;
    }
    toy_fill(&t, 0, 0, ROWS, 0);
    trp_batch batch = {
        .tokens = t.tokens, .targets = t.targets, .rows = ROWS, .columns = TOY_COLUMNS};
    trp_zero *e = t.engine;
    code = trpi_weights_masters(e, err);
    if (!code) {
        code = trpi_update_clear(e, err);
    }
    if (!code) {
        code = trpi_activations_shape(&e->act, ROWS, TOY_COLUMNS, err);
    }
    if (!code) {
        code = trpi_micro_run(e, &e->train_plan, &batch, 0, 1.0f / (ROWS * TOY_COLUMNS), true, err);
    }
    for (int i = 0; !code && i < e->layout.tensor_count; i++) {
        const trpi_tensor_place *place = &e->layout.tensors[i];
        code =
            check_tensor(&t, i, trpi_memory_grads(&e->memory, place->bucket) + place->offset, err);
    }
    toy_close(&t);
    return code;
}

/* The tied table is one of the tensors: its slope is that of both its uses. */
static void z24_gradients_are_the_losses_slopes_for_every_tensor(void **state) {
    test_ranks_run(1, check_all_gradients, NULL);
}

static trp_code evaluate_then_step(test_rank *self, trp_error *err) {
    toy_run t;
    double loss = 0;
    trp_step_stats stats;
    trp_code code = toy_open(self, "{\"train_micro_batch_size_per_gpu\": 2}", 5, &t, err);
    if (code) {
        return code;
    }
    toy_fill(&t, 3, self->rank * ROWS, ROWS, 0);
    code = loss_of(&t, &loss, err);
    if (!code) {
        code = toy_step(&t, self, 3, &stats, err);
    }
    if (!code && loss != stats.loss) {
        code = trpi_fail(err, TRP_EINTERNAL, "evaluate %.17g, step %.17g", loss, stats.loss);
    }
    toy_close(&t);
    return code;
}

static void evaluate_gives_the_loss_that_a_step_on_the_same_batch_gives(void **state) {
    test_ranks_run(1, evaluate_then_step, NULL);
    test_ranks_run(2, evaluate_then_step, NULL);
}

/* ---- PyTorch ---- */

typedef struct golden_case {
    const char *config;
    uint64_t seed;
    int micro, accumulation; /* rows of a micro-batch of one rank; micro-steps */
    bool ignore;
    const golden_step *steps;
    double tolerance;
    const float *first_weights;
} golden_case;

/* As make_gpt2_golden.py does: even rows of a micro-batch lose more than half of their targets. */
static void ignore_some(toy_run *t, int rows) {
    for (int r = 0; r < rows; r += 2) {
        for (int c = 0; c < 20; c++) {
            t->targets[r * TOY_COLUMNS + c] = TRP_IGNORE;
        }
    }
}

static trp_code compare(const golden_step *want, const trp_step_stats *found, double tolerance,
                        trp_error *err) {
    if (fabs(found->loss - want->loss) > tolerance * want->loss ||
        fabs(found->grad_norm - want->norm) > 10 * tolerance * want->norm ||
        fabs(found->lr - want->lr) > 1e-12) {
        return trpi_fail(err, TRP_EINTERNAL,
                         "step %d: loss %.9g, PyTorch %.9g; norm %.9g, PyTorch %.9g; lr %g, %g",
                         (int)found->step, found->loss, want->loss, found->grad_norm, want->norm,
                         found->lr, want->lr);
    }
    return TRP_OK;
}

static trp_code train_golden(test_rank *self, trp_error *err) {
    const golden_case *g = self->arg;
    toy_run t;
    trp_code code = toy_open(self, g->config, g->seed, &t, err);
    if (code) {
        return code;
    }
    code = trpi_weights_masters(t.engine, err);
    for (int i = 0; !code && g->first_weights && i < 5; i++) {
        float weight = trpi_memory_masters(&t.engine->memory, 0)[i];
        if (fabsf(weight - g->first_weights[i]) > 1e-8f) {
            code = trpi_fail(err, TRP_EINTERNAL, "weight %d is %.9g", i, (double)weight);
        }
    }
    for (uint64_t step = 0; !code && step < 10; step++) {
        trp_batch micro[2];
        for (int j = 0; j < g->accumulation; j++) {
            toy_fill(&t, step, j * g->micro, g->micro, j * g->micro);
            micro[j] = (trp_batch){.tokens = t.tokens + j * g->micro * TOY_COLUMNS,
                                   .targets = t.targets + j * g->micro * TOY_COLUMNS,
                                   .rows = g->micro,
                                   .columns = TOY_COLUMNS};
            if (g->ignore) {
                toy_run moved = {.targets = t.targets + j * g->micro * TOY_COLUMNS};
                ignore_some(&moved, g->micro);
            }
        }
        trp_step_stats stats;
        code = trp_zero_step(t.engine, micro, g->accumulation, &stats, err);
        if (!code) {
            code = compare(&g->steps[step], &stats, g->tolerance, err);
        }
    }
    toy_close(&t);
    return code;
}

#define PLAIN                                                                                      \
    "\"train_micro_batch_size_per_gpu\": 4, \"gradient_clipping\": 1.0,"                           \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"betas\": [0.9, 0.95],"      \
    "  \"eps\": 1e-8, \"weight_decay\": 0.1}}"

#define ACCUMULATED                                                                                \
    "\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 2,"                   \
    "\"gradient_clipping\": 0.5,"                                                                  \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-3, \"betas\": [0.9, 0.95],"      \
    "  \"eps\": 1e-8, \"weight_decay\": 0.01}},"                                                   \
    "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 4,"                \
    "  \"warmup_type\": \"linear\"}}"

static void ten_steps_have_pytorchs_losses_and_norms(void **state) {
    golden_case g = {.config = "{" PLAIN "}",
                     .seed = 1234,
                     .micro = 4,
                     .accumulation = 1,
                     .steps = golden_plain,
                     .tolerance = 1e-5,
                     .first_weights = golden_weights};
    test_ranks_run(1, train_golden, &g);
    g.config = "{" PLAIN ", \"zero_optimization\": {\"stage\": 3}}";
    test_ranks_run(1, train_golden, &g);
}

static void accumulation_ignored_targets_and_a_schedule_match_pytorch_too(void **state) {
    golden_case g = {.config = "{" ACCUMULATED "}",
                     .seed = 99,
                     .micro = 3,
                     .accumulation = 2,
                     .ignore = true,
                     .steps = golden_accumulated,
                     .tolerance = 1e-5};
    test_ranks_run(1, train_golden, &g);
    g.config = "{" ACCUMULATED ", \"zero_optimization\": {\"stage\": 2}}";
    test_ranks_run(1, train_golden, &g);
}

static void bf16_stays_near_pytorchs_fp32(void **state) {
    golden_case g = {.config = "{" PLAIN ", \"bf16\": {\"enabled\": true}}",
                     .seed = 1234,
                     .micro = 4,
                     .accumulation = 1,
                     .steps = golden_plain,
                     .tolerance = 1e-3};
    test_ranks_run(1, train_golden, &g);
}

/* ---- Arguments ---- */

static void sizes_that_make_no_model_are_refused(void **state) {
    trp_model *model = NULL;
    trp_error err = {0};
    assert_int_equal(trp_gpt2_new(&(trp_gpt2_config){.width = 50, .heads = 3}, &model, &err),
                     TRP_EINVALID);
    assert_non_null(strstr(err.message, "width 50 is not a multiple of heads 3"));
    assert_int_equal(trp_gpt2_new(&(trp_gpt2_config){.layers = -1}, &model, &err), TRP_EINVALID);
    assert_int_equal(trp_gpt2_new(&(trp_gpt2_config){.init_std = -1}, &model, &err), TRP_EINVALID);
    assert_null(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(z24_gradients_are_the_losses_slopes_for_every_tensor),
        cmocka_unit_test(evaluate_gives_the_loss_that_a_step_on_the_same_batch_gives),
        cmocka_unit_test(ten_steps_have_pytorchs_losses_and_norms),
        cmocka_unit_test(accumulation_ignored_targets_and_a_schedule_match_pytorch_too),
        cmocka_unit_test(bf16_stays_near_pytorchs_fp32),
        cmocka_unit_test(sizes_that_make_no_model_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The stages are one training: what differs is only what a rank keeps. */
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

#define STEPS_MAX 30

typedef struct run {
    int stage, steps, micro, accumulation;
    bool bf16;
    double clip;
    int64_t bucket; /* 0: the default */
    /* Results, of rank 0. */
    double losses[STEPS_MAX], norms[STEPS_MAX];
    char hash[33];
    uint64_t bytes_sent;
    size_t device_bytes;
    int64_t padded;
} run;

static trp_code train(test_rank *self, trp_error *err) {
    run *r = self->arg;
    toy_run t;
    trp_step_stats stats = {0};
    const char *config =
        toy_config("{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d,"
                   " \"bf16\": {\"enabled\": %s}, \"gradient_clipping\": %g,"
                   " \"zero_optimization\": {\"stage\": %d, \"reduce_bucket_size\": %lld},"
                   " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3,"
                   "   \"weight_decay\": 0.1}}}",
                   r->micro, r->accumulation, r->bf16 ? "true" : "false", r->clip, r->stage,
                   (long long)(r->bucket ? r->bucket : 500000000));
    trp_code code = toy_open(self, config, 11, &t, err);
    if (code) {
        return code;
    }
    size_t states = trp_device_bytes(self->device, NULL);
    for (int step = 0; !code && step < r->steps; step++) {
        code = toy_step(&t, self, (uint64_t)step, &stats, err);
        if (self->rank == 0) {
            r->losses[step] = stats.loss;
            r->norms[step] = stats.grad_norm;
        }
    }
    char hash[33];
    if (!code) {
        code = trp_zero_weights_hash(t.engine, hash, err);
    }
    if (!code && self->rank == 0) {
        memcpy(r->hash, hash, sizeof r->hash);
        r->bytes_sent = stats.bytes_sent;
        r->device_bytes = states;
        r->padded = t.engine->layout.padded;
    }
    toy_close(&t);
    return code;
}

static run do_run(int world, run r) {
    r.clip = r.clip != 0 ? r.clip : 1;
    test_ranks_run(world, train, &r);
    return r;
}

static void expect_near(const run *a, const run *b, double tolerance) {
    for (int i = 0; i < a->steps; i++) {
        if (!(fabs(a->losses[i] - b->losses[i]) <= tolerance * fabs(a->losses[i]))) {
            fail_msg("step %d: losses %.9g and %.9g", i + 1, a->losses[i], b->losses[i]);
        }
    }
}

static void expect_equal(const run *a, const run *b) {
    for (int i = 0; i < a->steps; i++) {
        assert_true(a->losses[i] == b->losses[i]);
        assert_true(a->norms[i] == b->norms[i]);
    }
    assert_string_equal(a->hash, b->hash);
}

static void z05_all_stages_have_the_same_bits_in_fp32(void **state) {
    run base = {.steps = 30, .micro = 2, .accumulation = 1};
    run first = do_run(2, base);
    assert_true(first.losses[29] < first.losses[0] - 0.2);
    for (base.stage = 1; base.stage <= 3; base.stage++) {
        run other = do_run(2, base);
        expect_equal(&first, &other);
    }
}

static void z05_all_stages_have_the_same_bits_in_bf16_and_fp32_is_near(void **state) {
    run base = {.steps = 30, .micro = 2, .accumulation = 1, .bf16 = true};
    run first = do_run(2, base);
    for (base.stage = 1; base.stage <= 3; base.stage++) {
        run other = do_run(2, base);
        expect_equal(&first, &other);
    }
    run fp32 = do_run(2, (run){.steps = 30, .micro = 2, .accumulation = 1});
    expect_near(&fp32, &first, 1.6e-2);
    assert_true(fabs(fp32.losses[29] - first.losses[29]) < 0.005 * fp32.losses[29]);
}

/* Where gradients are summed in another order (stages 2 and 3 reduce every micro-step). */
static void z05_stages_agree_with_accumulation(void **state) {
    run base = {.steps = 10, .micro = 1, .accumulation = 3};
    run first = do_run(2, base);
    for (base.stage = 1; base.stage <= 3; base.stage++) {
        run other = do_run(2, base);
        expect_near(&first, &other, 1e-6);
    }
}

static void odd_world_sizes_have_the_same_bits_at_all_stages(void **state) {
    for (int world = 3; world <= 5; world += 2) {
        run base = {.steps = 3, .micro = 1, .accumulation = 1};
        run first = do_run(world, base);
        assert_true(first.padded % (world * TRPI_LAYOUT_ALIGN) == 0);
        for (base.stage = 1; base.stage <= 3; base.stage++) {
            run other = do_run(world, base);
            expect_equal(&first, &other);
        }
    }
}

static void z06_more_ranks_with_fewer_rows_are_one_rank_with_all(void **state) {
    for (int stage = 0; stage <= 3; stage++) {
        run one = do_run(1, (run){.stage = stage, .steps = 5, .micro = 12, .accumulation = 1});
        for (int world = 2; world <= 4; world++) {
            run many = do_run(
                world, (run){.stage = stage, .steps = 5, .micro = 12 / world, .accumulation = 1});
            expect_near(&one, &many, 1e-5);
        }
    }
}

static void z07_accumulated_micro_steps_are_one_large_batch(void **state) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int stage = 0; stage <= 3; stage++) {
            run base = {.stage = stage, .steps = 5, .bf16 = bf16, .micro = 6, .accumulation = 1};
            run large = do_run(2, base);
            base.micro = 2;
            base.accumulation = 3;
            run small = do_run(2, base);
            expect_near(&large, &small, bf16 ? 2e-3 : 1e-5);
        }
    }
}

static void z19_the_bucket_size_changes_no_bit_on_two_ranks(void **state) {
    static const int64_t buckets[] = {1, 1000, 20000, 500000000};
    for (int stage = 0; stage <= 3; stage++) {
        /* Clipping is off: the norm is a sum over buckets, and its last bit may differ. */
        run base = {.stage = stage, .steps = 3, .micro = 2, .accumulation = 1, .clip = 1e9};
        run first = do_run(2, base);
        for (size_t i = 0; i < TRPI_COUNTOF(buckets); i++) {
            base.bucket = buckets[i];
            run other = do_run(2, base);
            assert_string_equal(first.hash, other.hash);
            expect_near(&first, &other, 0);
        }
    }
}

/* Per rank and step, in elements: stages 0 to 2 move 2 P (N-1)/N, stage 3 gathers the parameters
 * for forward and backward. The embedding's backward needs none, so positions travel once.
 * The first step also shares the initial weights, so the second is looked at. */
static void a_step_sends_what_zero_promises(void **state) {
    run r = do_run(2, (run){.stage = 0, .steps = 2, .micro = 1, .accumulation = 1});
    uint64_t all = (uint64_t)r.padded * sizeof(float) / 2, votes = 2 * sizeof(trpi_vote);
    assert_int_equal(r.bytes_sent, 2 * all + votes);
    r = do_run(2, (run){.stage = 1, .steps = 2, .micro = 1, .accumulation = 1});
    assert_int_equal(r.bytes_sent, 2 * all + votes);
    r = do_run(2, (run){.stage = 2, .steps = 2, .micro = 1, .accumulation = 1});
    assert_int_equal(r.bytes_sent, 2 * all + votes);
    r = do_run(2, (run){.stage = 3, .steps = 2, .micro = 1, .accumulation = 1});
    assert_true(r.bytes_sent > 2 * all + votes);
    assert_true(r.bytes_sent <= 3 * all + votes);
    r = do_run(2, (run){.stage = 1, .bf16 = true, .steps = 2, .micro = 1, .accumulation = 1});
    assert_int_equal(r.bytes_sent, all + all / 2 + votes);
}

/* Bytes of the model's state on a rank, exactly: see trainer/engine/memory.h. */
static void a_rank_keeps_what_its_stage_says(void **state) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int stage = 0; stage <= 3; stage++) {
            run r = do_run(
                2, (run){.stage = stage, .bf16 = bf16, .steps = 1, .micro = 1, .accumulation = 1});
            size_t p = (size_t)r.padded, own = p / 2, votes = 2 * sizeof(trpi_vote);
            size_t masters = 4 * (stage == 0 ? p : own), params = stage == 3 ? 0 : 2 * p;
            size_t moments = 2 * masters, grads = 4 * (stage < 2 ? p : own);
            if (!bf16 && stage < 3) {
                masters = 4 * p; /* which are the parameters */
                params = 0;
            }
            size_t states = masters + params + moments + grads + votes;
            assert_true(r.device_bytes >= states);
            size_t pools = r.device_bytes - states;
            if (stage < 2) {
                assert_int_equal(pools, 0);
            } else {
                assert_true(pools > 0 && pools < 4 * p + (stage == 3 ? 4 * p : 0));
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(z05_all_stages_have_the_same_bits_in_fp32),
        cmocka_unit_test(z05_all_stages_have_the_same_bits_in_bf16_and_fp32_is_near),
        cmocka_unit_test(z05_stages_agree_with_accumulation),
        cmocka_unit_test(odd_world_sizes_have_the_same_bits_at_all_stages),
        cmocka_unit_test(z06_more_ranks_with_fewer_rows_are_one_rank_with_all),
        cmocka_unit_test(z07_accumulated_micro_steps_are_one_large_batch),
        cmocka_unit_test(z19_the_bucket_size_changes_no_bit_on_two_ranks),
        cmocka_unit_test(a_step_sends_what_zero_promises),
        cmocka_unit_test(a_rank_keeps_what_its_stage_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* DeepSpeed's configuration, read strictly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/engine/config.h"

static trp_zero_config *parse(const char *text, int world) {
    trp_zero_config *config = NULL;
    trp_error err = {0};
    if (trp_zero_config_parse(text, world, &config, &err)) {
        fail_msg("%s: %s", text, err.message);
    }
    return config;
}

static void expect_refused(const char *text, trp_code code, const char *what) {
    trp_zero_config *config = NULL;
    trp_error err = {0};
    trp_code found = trp_zero_config_parse(text, 2, &config, &err);
    if (found == TRP_OK) {
        trp_zero_config_free(config);
        fail_msg("accepted: %s", text);
    }
    if (found != code || !strstr(err.message, what) || strchr(err.message, '\n')) {
        fail_msg("%s\n  expected %s with \"%s\"\n  found %s: %s", text, trp_code_name(code), what,
                 trp_code_name(found), err.message);
    }
}

static bool has_note(const trp_zero_config *config, const char *what) {
    const char *const *notes;
    size_t count = trp_zero_config_notes(config, &notes);
    for (size_t i = 0; i < count; i++) {
        if (strstr(notes[i], what)) {
            return true;
        }
    }
    return false;
}

/* ---- The batch triple ---- */

/* 0 = not given. */
static void expect_triple(int64_t train, int64_t micro, int64_t accumulation, int64_t want_train,
                          int64_t want_micro, int64_t want_accumulation) {
    trpi_batch_triple t = {train, micro, accumulation, train != 0, micro != 0, accumulation != 0};
    trp_error err = {0};
    trp_code code = trpi_batch_resolve(&t, 2, &err);
    if (code || t.train != want_train || t.micro != want_micro ||
        t.accumulation != want_accumulation) {
        fail_msg("(%lld, %lld, %lld): %s", (long long)train, (long long)micro,
                 (long long)accumulation, err.message);
    }
}

static void z01_the_batch_triple_is_completed(void **state) {
    expect_triple(32, 16, 1, 32, 16, 1);
    expect_triple(32, 8, 2, 32, 8, 2);
    expect_triple(32, 16, 0, 32, 16, 1);
    expect_triple(32, 0, 2, 32, 8, 2);
    expect_triple(0, 8, 2, 32, 8, 2);
    expect_triple(32, 0, 0, 32, 16, 1);
    expect_triple(0, 16, 0, 32, 16, 1);
}

static void z01_a_wrong_triple_is_refused_with_all_four_numbers(void **state) {
    expect_refused("{\"train_batch_size\": 33, \"train_micro_batch_size_per_gpu\": 17, "
                   "\"gradient_accumulation_steps\": 2}",
                   TRP_EINVALID,
                   "(train_batch_size 33, train_micro_batch_size_per_gpu 17, "
                   "gradient_accumulation_steps 2, world size 2)");
    expect_refused("{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 18, "
                   "\"gradient_accumulation_steps\": 1}",
                   TRP_EINVALID, "train_micro_batch_size_per_gpu 18");
    expect_refused("{}", TRP_EINVALID,
                   "must be given (train_batch_size not given, train_micro_batch_size_per_gpu not "
                   "given, gradient_accumulation_steps not given, world size 2)");
    expect_refused("{\"gradient_accumulation_steps\": 4}", TRP_EINVALID,
                   "gradient_accumulation_steps 4");
    expect_refused("{\"train_batch_size\": 0}", TRP_EINVALID, "train_batch_size 0");
    expect_refused("{\"train_batch_size\": -8}", TRP_EINVALID, "train_batch_size -8");
    expect_refused("{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 0}", TRP_EINVALID,
                   "train_micro_batch_size_per_gpu 0");
    expect_refused("{\"train_batch_size\": 4, \"gradient_accumulation_steps\": -1}", TRP_EINVALID,
                   "gradient_accumulation_steps -1");
    expect_refused("{\"train_batch_size\": 1}", TRP_EINVALID, "train_batch_size 1");
    expect_refused("{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 8}", TRP_EINVALID,
                   "train_micro_batch_size_per_gpu 8");
    expect_refused("{\"train_batch_size\": 9223372036854775807}", TRP_EINVALID, "above 2^30");
    expect_refused("{\"train_micro_batch_size_per_gpu\": 1073741824, "
                   "\"gradient_accumulation_steps\": 1073741824}",
                   TRP_EINVALID, "above 2^30");
}

/* ---- Settings ---- */

static void everything_that_is_given_takes_effect(void **state) {
    trp_zero_config *config =
        parse("{\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 4,"
              " \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 0.5, \"steps_per_print\": 7,"
              " \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 5e5},"
              " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-4,"
              "   \"betas\": [0.8, 0.95], \"eps\": 1e-6, \"weight_decay\": 0.1}},"
              " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": 1e-5,"
              "   \"warmup_max_lr\": 2e-3, \"warmup_num_steps\": 5, \"total_num_steps\": 50,"
              "   \"warmup_type\": \"linear\"}}}",
              2);
    const trp_zero_settings *s = trp_zero_config_settings(config);
    assert_int_equal(s->stage, 3);
    assert_int_equal(s->train_batch, 24);
    assert_int_equal(s->micro_batch, 3);
    assert_int_equal(s->accumulation, 4);
    assert_int_equal(s->compute, TRP_BF16);
    assert_int_equal(s->bucket_elements, 500000);
    assert_int_equal(s->steps_per_print, 7);
    assert_true(s->lr == 3e-4 && s->beta1 == 0.8 && s->beta2 == 0.95 && s->eps == 1e-6);
    assert_true(s->weight_decay == 0.1 && s->clip_norm == 0.5);
    const trpi_lr *lr = &config->lr;
    assert_int_equal(lr->kind, TRPI_LR_WARMUP_DECAY);
    assert_int_equal(lr->warmup, 5);
    assert_int_equal(lr->total, 50);
    assert_false(lr->logarithmic);
    assert_true(lr->min == 1e-5 && lr->max == 2e-3);
    trp_zero_config_free(config);
}

static void what_is_left_out_has_deepspeeds_defaults(void **state) {
    trp_zero_config *config = parse("{\"train_batch_size\": 2}", 2);
    const trp_zero_settings *s = trp_zero_config_settings(config);
    assert_int_equal(s->stage, 0);
    assert_int_equal(s->compute, TRP_F32);
    assert_true(s->clip_norm == 1.0 && s->lr == 1e-3 && s->weight_decay == 0);
    assert_true(s->beta1 == 0.9 && s->beta2 == 0.999 && s->eps == 1e-8);
    assert_int_equal(config->lr.kind, TRPI_LR_CONSTANT);
    assert_true(config->lr.max == 1e-3);
    assert_int_equal(config->note_count, 0);
    trp_zero_config_free(config);
}

static void keys_without_effect_are_accepted_and_noted(void **state) {
    trp_zero_config *config =
        parse("{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true},"
              " \"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true,"
              "   \"contiguous_gradients\": true, \"offload_optimizer\": {\"device\": \"none\","
              "   \"pin_memory\": true}}, \"gradient_clipping\": 1.0}",
              2);
    assert_true(has_note(config, "zero_optimization.overlap_comm"));
    assert_true(has_note(config, "zero_optimization.contiguous_gradients"));
    assert_true(has_note(config, "zero_optimization.offload_optimizer.pin_memory"));
    trp_zero_config_free(config);
}

static void z02_the_top_level_spellings_take_effect_or_are_refused(void **state) {
    trp_zero_config *config = parse("{\"train_batch_size\": 2, \"grad_accum_dtype\": \"fp32\"}", 2);
    assert_true(has_note(config, "config.grad_accum_dtype"));
    trp_zero_config_free(config);
    expect_refused("{\"train_batch_size\": 2, \"grad_accum_dtype\": \"bf16\"}", TRP_EUNSUPPORTED,
                   "config.grad_accum_dtype: \"bf16\" is not supported in this version");
    expect_refused("{\"train_batch_size\": 2, \"data_types\": {\"grad_accum_dtype\": \"bf16\"}}",
                   TRP_EUNSUPPORTED, "data_types.grad_accum_dtype");
    expect_refused("{\"train_batch_size\": 2, \"grad_accum_dtype\": \"int8\"}", TRP_EINVALID,
                   "not one of fp32, bf16, fp16");
    expect_refused("{\"train_batch_size\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}",
                   TRP_EUNSUPPORTED, "config.offload_optimizer.device");
    expect_refused("{\"train_batch_size\": 2, \"offload_param\": {\"device\": \"cpu\"}}",
                   TRP_EINVALID, "at zero_optimization.stage 3 only");
    expect_refused("{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": 3,"
                   " \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": true}}}",
                   TRP_EUNSUPPORTED, "zero_optimization.offload_param.device");
    expect_refused("{\"train_batch_size\": 2, \"fp16\": {\"enabled\": true}}", TRP_EUNSUPPORTED,
                   "fp16.enabled");
}

static void z03_typos_are_refused_with_the_nearest_key(void **state) {
    expect_refused("{\"train_batch_size\": 2, \"zero_optimisation\": {\"stage\": 3}}", TRP_EINVALID,
                   "config.zero_optimisation: unknown key; did you mean \"zero_optimization\"?");
    expect_refused(
        "{\"train_batch_size\": 2, \"zero_optimization\": {\"stage3_prefetch_bucketsize\":"
        " 1}}",
        TRP_EINVALID, "did you mean \"stage3_prefetch_bucket_size\"?");
    expect_refused("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\":"
                   " {\"beta\": [1, 2]}}}",
                   TRP_EINVALID, "optimizer.params.beta: unknown key");
    expect_refused("{\"train_batch_size\": 2, \"train_batch_size\": 4}", TRP_EINVALID, "uplicate");
    expect_refused("{\"train_batch_size\": 2", TRP_EINVALID, "config:1:");
    expect_refused("[]", TRP_EINVALID, "a JSON object is needed");
}

static void z03_values_out_of_range_are_refused_with_the_range(void **state) {
    expect_refused("{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": 4}}", TRP_EINVALID,
                   "zero_optimization.stage: 4 is out of range, it must be from 0 to 3");
    expect_refused("{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": true}}",
                   TRP_EINVALID, "expected a whole number, found true");
    expect_refused("{\"train_batch_size\": 2, \"zero_optimization\": {\"offload_optimizer\":"
                   " {\"ratio\": 1.5}}}",
                   TRP_EINVALID, "ratio: 1.5 is out of range");
    expect_refused("{\"train_batch_size\": 2, \"fp16\": {\"loss_scale\": -1}}", TRP_EINVALID,
                   "fp16.loss_scale: -1 is out of range");
    expect_refused("{\"train_batch_size\": 2, \"fp16\": {\"loss_scale\": \"x\"}}", TRP_EINVALID,
                   "expected a number, found \"x\"");
    expect_refused("{\"train_batch_size\": 2, \"fp16\": {\"loss_scale\": NaN}}", TRP_EINVALID,
                   "config:1:");
    expect_refused(
        "{\"train_batch_size\": 2, \"zero_optimization\": {\"allgather_bucket_size\": 7}}",
        TRP_EINVALID, "7 is odd");
    expect_refused("{\"train_batch_size\": 2, \"bf16\": {\"enabled\": true}, \"fp16\":"
                   " {\"enabled\": true}}",
                   TRP_EINVALID, "both true");
    expect_refused(
        "{\"train_batch_size\": 2, \"zero_optimization\": {\"reduce_bucket_size\": 0.5}}",
        TRP_EINVALID, "expected a whole number, found 0.5");
    expect_refused("{\"train_batch_size\": 2, \"gradient_clipping\": -1}", TRP_EINVALID,
                   "gradient_clipping: -1");
    expect_refused("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"AdamW\", \"params\":"
                   " {\"betas\": [0.9, 1.0]}}}",
                   TRP_EINVALID, "betas");
    expect_refused("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\":"
                   " {\"betas\": [0.9, 0.99999999]}}}",
                   TRP_EINVALID, "betas");
    expect_refused("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\":"
                   " {\"eps\": 0}}}",
                   TRP_EINVALID, "optimizer.params.eps");
    expect_refused("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\":"
                   " {\"lr\": 1e39}}}",
                   TRP_EINVALID, "optimizer.params.lr");
}

static void z04_auto_is_refused_by_name(void **state) {
    expect_refused("{\"train_batch_size\": \"auto\"}", TRP_EINVALID,
                   "config.train_batch_size: expected a whole number, found \"auto\"; give the "
                   "value, or leave the key out");
    expect_refused("{\"train_batch_size\": 2, \"zero_optimization\": {\"reduce_bucket_size\":"
                   " \"auto\"}}",
                   TRP_EINVALID, "zero_optimization.reduce_bucket_size");
    expect_refused("{\"train_batch_size\": 2, \"bf16\": {\"enabled\": \"auto\"}}", TRP_EINVALID,
                   "expected true or false, found \"auto\"");
}

static void optimizers_that_are_not_there_are_refused(void **state) {
    expect_refused("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Lion\"}}",
                   TRP_EUNSUPPORTED, "optimizer.type: \"Lion\"");
    expect_refused("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\":"
                   " {\"adam_w_mode\": false}}}",
                   TRP_EUNSUPPORTED, "optimizer.params.adam_w_mode: false");
    expect_refused("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\":"
                   " {\"max_grad_norm\": 1}}}",
                   TRP_EINVALID, "gradient_clipping");
    expect_refused("{\"train_batch_size\": 2, \"optimizer\": {\"params\": {}}}", TRP_EINVALID,
                   "optimizer.type: is missing");
}

static void schedules_are_checked_by_kind(void **state) {
    expect_refused("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"OneCycle\"}}",
                   TRP_EUNSUPPORTED, "scheduler.type: \"OneCycle\"");
    expect_refused("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupDecayLR\"}}",
                   TRP_EINVALID, "scheduler.params.total_num_steps: is missing");
    expect_refused("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupLR\", \"params\":"
                   " {\"total_num_steps\": 10}}}",
                   TRP_EINVALID, "total_num_steps: unknown key");
    expect_refused("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupLR\", \"params\":"
                   " {\"warmup_num_steps\": 0}}}",
                   TRP_EINVALID, "warmup_num_steps: 0 is out of range");
    expect_refused("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupLR\", \"params\":"
                   " {\"warmup_type\": \"cubic\"}}}",
                   TRP_EINVALID, "\"cubic\" is not one of log, linear");
    trp_zero_config *config = parse(
        "{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
        "1e-5}},"
        " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 10}}}",
        2);
    assert_true(config->lr.max == 0.001);
    assert_true(has_note(config, "warmup_max_lr is not given: 0.001"));
    trp_zero_config_free(config);
}

static void a_file_that_is_wrong_is_named(void **state) {
    trp_zero_config *config = NULL;
    trp_error err = {0};
    assert_int_equal(trp_zero_config_load("/nonexistent/ds.json", 1, &config, &err), TRP_ENOTFOUND);
    assert_non_null(strstr(err.message, "/nonexistent/ds.json"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(z01_the_batch_triple_is_completed),
        cmocka_unit_test(z01_a_wrong_triple_is_refused_with_all_four_numbers),
        cmocka_unit_test(everything_that_is_given_takes_effect),
        cmocka_unit_test(what_is_left_out_has_deepspeeds_defaults),
        cmocka_unit_test(keys_without_effect_are_accepted_and_noted),
        cmocka_unit_test(z02_the_top_level_spellings_take_effect_or_are_refused),
        cmocka_unit_test(z03_typos_are_refused_with_the_nearest_key),
        cmocka_unit_test(z03_values_out_of_range_are_refused_with_the_range),
        cmocka_unit_test(z04_auto_is_refused_by_name),
        cmocka_unit_test(optimizers_that_are_not_there_are_refused),
        cmocka_unit_test(schedules_are_checked_by_kind),
        cmocka_unit_test(a_file_that_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

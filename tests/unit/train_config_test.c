/* train_config_test.c: what is refused before anything is started, and what the messages carry. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/run/config.h"

static trp_code nothing(trp_session *session, trp_bytes config, trp_error *err) {
    return TRP_OK;
}

static const trp_train_function functions[] = {{"nothing", nothing}, {NULL, NULL}};

static trp_code check(const trp_train_options *options, trpi_run_plan *plan, trpi_arena *arena,
                      trp_error *err) {
    *err = (trp_error){0};
    return trpi_train_config_check(options, arena, plan, err);
}

/* Each mistake has its own message, which names the field. */
static void expect_refused(const trp_train_options *options, const char *text) {
    trpi_arena arena = {0};
    trpi_run_plan plan;
    trp_error err;
    assert_int_equal(check(options, &plan, &arena, &err), TRP_EINVALID);
    assert_int_equal(err.code, TRP_EINVALID);
    if (strstr(err.message, text) == NULL) {
        fail_msg("\"%s\" does not hold \"%s\"", err.message, text);
    }
    trpi_arena_release(&arena);
}

static void T02_a_train_function_must_be_named_and_registered(void **state) {
    expect_refused(&(trp_train_options){0}, "function is not given");
    expect_refused(&(trp_train_options){.function = "nothin"}, "did you mean \"nothing\"?");
    trp_train_register(NULL);
    expect_refused(&(trp_train_options){.function = "nothing"}, "none is registered");
    trp_train_register(functions);
}

static void T02_bad_numbers_of_workers_are_refused(void **state) {
    trp_train_options options = {.function = "nothing"};
    options.scaling.workers = -1;
    expect_refused(&options, "scaling.workers is -1");
    options.scaling.workers = 1 << 20;
    expect_refused(&options, "scaling.workers is 1048576");
    options.scaling.workers = 1;
    options.scaling.placement = (trp_strategy)9;
    expect_refused(&options, "scaling.placement is 9");
}

static void T02_bad_amounts_are_refused(void **state) {
    trp_train_options options = {.function = "nothing"};
    options.scaling.cpus_per_worker = -0.5;
    expect_refused(&options, "scaling.cpus_per_worker is -0.5");
    options.scaling.cpus_per_worker = NAN;
    expect_refused(&options, "scaling.cpus_per_worker is");
    options.scaling.cpus_per_worker = 0.00001;
    expect_refused(&options, "multiple of 0.0001");
    options.scaling.cpus_per_worker = 0;
    options.scaling.gpus_per_worker = 1.5;
    expect_refused(&options, "whole number");
    options.scaling.gpus_per_worker = 0;
    trp_resource resource = {"disk", -1};
    options.scaling.resources_per_worker = &resource;
    options.scaling.resource_count = 1;
    expect_refused(&options, "\"disk\" is -1");
    resource.name = NULL;
    expect_refused(&options, "[0] has no name");
}

static void T02_bad_checkpoint_settings_are_refused(void **state) {
    trp_train_options options = {.function = "nothing"};
    options.run.checkpoint.keep = -1;
    expect_refused(&options, "run.checkpoint.keep is -1");
    options.run.checkpoint.keep = 0;
    options.run.checkpoint.order = (trp_score_order)2;
    expect_refused(&options, "run.checkpoint.order is 2");
    options.run.checkpoint.order = TRP_SCORE_MIN;
    expect_refused(&options, "score_by names no metric");
    options.run.checkpoint.score_by = "";
    expect_refused(&options, "score_by is empty");
}

static void T02_bad_failure_and_resume_settings_are_refused(void **state) {
    trp_train_options options = {.function = "nothing"};
    options.run.failure.max_failures = -2;
    expect_refused(&options, "run.failure.max_failures is -2");
    options.run.failure.max_failures = -1;
    options.run.resume = (trp_resume)3;
    expect_refused(&options, "run.resume is 3");
    options.run.resume = TRP_RESUME_AUTO;
    options.run.storage_path = "";
    expect_refused(&options, "run.storage_path is empty");
}

static void defaults_are_those_of_the_header(void **state) {
    trpi_arena arena = {0};
    trpi_run_plan plan;
    trp_error err;
    setenv("HOME", "/home/somebody", 1);
    trp_train_options options = {.function = "nothing"};
    assert_int_equal(check(&options, &plan, &arena, &err), TRP_OK);
    assert_int_equal(plan.workers, 1);
    assert_true(plan.cpus == 1 && plan.gpus == 0);
    assert_string_equal(plan.storage, "/home/somebody/troupe_results");
    assert_memory_equal(plan.name, "train_run-20", 12);
    assert_int_equal(strlen(plan.name), strlen("train_run-2026-01-31_23-59-59"));
    assert_int_equal(plan.report_timeout_ms, 60000);
    assert_int_equal(plan.start_timeout_ms, 60000);
    assert_int_equal(plan.keep, 0);
    options.scaling.gpus_per_worker = 2;
    assert_int_equal(check(&options, &plan, &arena, &err), TRP_OK);
    assert_true(plan.cpus == 0 && plan.gpus == 2);
    trpi_arena_release(&arena);
}

static void relative_storage_becomes_absolute(void **state) {
    trpi_arena arena = {0};
    trpi_run_plan plan;
    trp_error err;
    trp_train_options options = {.function = "nothing", .run.storage_path = "runs/here"};
    assert_int_equal(check(&options, &plan, &arena, &err), TRP_OK);
    assert_int_equal(plan.storage[0], '/');
    assert_non_null(strstr(plan.storage, "/runs/here"));
    trpi_arena_release(&arena);
}

/* ---- Messages ---- */

static void fill(trpi_run_report *report, trpi_run_metric *metrics, trpi_run_file *file) {
    metrics[0] = (trpi_run_metric){"loss", 1.25};
    metrics[1] = (trpi_run_metric){"bad", NAN};
    *file = (trpi_run_file){"shard", 77, "00112233445566778899aabbccddeeff"};
    *report = (trpi_run_report){.attempt = 3,
                                .rank = -1,
                                .number = UINT64_MAX,
                                .waits = true,
                                .metrics = metrics,
                                .metrics_count = 2,
                                .files = file,
                                .files_count = 1};
}

static void a_message_survives_its_journey(void **state) {
    trpi_run_metric metrics[2];
    trpi_run_file file;
    trpi_run_report report, back;
    trpi_arena arena = {0};
    trp_buf bytes = {0};
    trp_error err;
    fill(&report, metrics, &file);
    assert_int_equal(trpi_pack_report(&report, &bytes, &err), TRP_OK);
    assert_int_equal(trpi_unpack_report(trp_buf_bytes(&bytes), &arena, &back, &err), TRP_OK);
    assert_int_equal(back.attempt, 3);
    assert_int_equal(back.rank, -1);
    assert_true(back.number == UINT64_MAX && back.waits && !back.has_checkpoint);
    assert_int_equal(back.metrics_count, 2);
    assert_string_equal(back.metrics[0].name, "loss");
    assert_true(back.metrics[0].value == 1.25 && isnan(back.metrics[1].value));
    assert_int_equal(back.files_count, 1);
    assert_string_equal(back.files[0].xxh3, file.xxh3);
    trpi_arena_release(&arena);
    trp_buf_release(&bytes);
}

static void a_torn_message_is_an_error_that_names_the_field(void **state) {
    trpi_run_metric metrics[2];
    trpi_run_file file;
    trpi_run_report report, back;
    trp_buf bytes = {0};
    trp_error err;
    fill(&report, metrics, &file);
    assert_int_equal(trpi_pack_report(&report, &bytes, &err), TRP_OK);
    for (size_t size = 0; size < bytes.size; size++) {
        trpi_arena arena = {0};
        trp_bytes torn = {bytes.data, size};
        assert_int_equal(trpi_unpack_report(torn, &arena, &back, &err), TRP_EPROTOCOL);
        assert_non_null(strstr(err.message, "report: field "));
        trpi_arena_release(&arena);
    }
    trpi_arena arena = {0};
    assert_int_equal(trp_buf_append(&bytes, "x", 1), TRP_OK);
    assert_int_equal(trpi_unpack_report(trp_buf_bytes(&bytes), &arena, &back, &err), TRP_EPROTOCOL);
    assert_non_null(strstr(err.message, "too many"));
    trpi_arena_release(&arena);
    trp_buf_release(&bytes);
}

static void any_bytes_are_safe_to_unpack(void **state) {
    uint64_t seed = 2463534242u;
    trpi_run_metric metrics[2];
    trpi_run_file file;
    trpi_run_report report, back;
    trpi_run_result result;
    trp_buf bytes = {0};
    trp_error err;
    fill(&report, metrics, &file);
    assert_int_equal(trpi_pack_report(&report, &bytes, &err), TRP_OK);
    for (int run = 0; run < 20000; run++) {
        trpi_arena arena = {.limit = 1 << 20};
        unsigned char copy[1024];
        assert_in_range(bytes.size, 1, sizeof(copy));
        memcpy(copy, bytes.data, bytes.size);
        for (int i = 0; i < 1 + run % 4; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            copy[(seed >> 33) % bytes.size] = (unsigned char)(seed >> 24);
        }
        trp_bytes broken = {copy, bytes.size};
        (void)!trpi_unpack_report(broken, &arena, &back, &err);
        (void)!trpi_unpack_result(broken, &arena, &result, &err);
        trpi_arena_release(&arena);
    }
    trp_buf_release(&bytes);
}

static int set_up(void **state) {
    trp_train_register(functions);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T02_a_train_function_must_be_named_and_registered),
        cmocka_unit_test(T02_bad_numbers_of_workers_are_refused),
        cmocka_unit_test(T02_bad_amounts_are_refused),
        cmocka_unit_test(T02_bad_checkpoint_settings_are_refused),
        cmocka_unit_test(T02_bad_failure_and_resume_settings_are_refused),
        cmocka_unit_test(defaults_are_those_of_the_header),
        cmocka_unit_test(relative_storage_becomes_absolute),
        cmocka_unit_test(a_message_survives_its_journey),
        cmocka_unit_test(a_torn_message_is_an_error_that_names_the_field),
        cmocka_unit_test(any_bytes_are_safe_to_unpack),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

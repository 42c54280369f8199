/* train_trouble_test.c: runs that go wrong without anybody's doing but the program's: what it
 * returns, how it ends, how often it reports and what, and what it asks for. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/runs.h"

static test_cluster cluster;
static trp_runtime *rt;

static trp_code report_step(trp_session *session, uint64_t step, bool has_checkpoint,
                            trp_error *err) {
    trp_report report = {.step = step, .has_checkpoint = has_checkpoint};
    return trp_session_report(session, &report, err);
}

/* ---- Train functions that go wrong ---- */

static trp_code rank_one_fails(trp_session *session, trp_bytes config, trp_error *err) {
    trp_code code = report_step(session, 1, false, err);
    if (code == TRP_OK && trp_session_rank(session) == 1) {
        return test_wrong(err, "not today");
    }
    return code == TRP_OK ? trp_comm_barrier(trp_session_comm(session), err) : code;
}

/* Two steps with checkpoints, then the same error, in every attempt. */
static trp_code fails_after_two(trp_session *session, trp_bytes config, trp_error *err) {
    uint64_t step;
    trp_code code =
        test_shard_read(trp_session_checkpoint(session), trp_session_rank(session), &step, err);
    while (code == TRP_OK && step < 2) {
        code = test_shard_write(session, ++step, err);
        if (code == TRP_OK) {
            code = report_step(session, step, true, err);
        }
    }
    return code == TRP_OK ? test_wrong(err, "division by zero") : code;
}

static trp_code rank_one_exits(trp_session *session, trp_bytes config, trp_error *err) {
    trp_code code = report_step(session, 1, false, err);
    if (code == TRP_OK && trp_session_rank(session) == 1) {
        _exit(0);
    }
    return code == TRP_OK ? trp_comm_barrier(trp_session_comm(session), err) : code;
}

static trp_code rank_one_kills_itself(trp_session *session, trp_bytes config, trp_error *err) {
    trp_code code = report_step(session, 1, false, err);
    if (code == TRP_OK && trp_session_rank(session) == 1) {
        (void)raise(SIGKILL);
    }
    return code == TRP_OK ? trp_comm_barrier(trp_session_comm(session), err) : code;
}

/* Rank 0 has reported and returns; rank 1 is busy with something else, for good. */
static trp_code rank_one_never_comes(trp_session *session, trp_bytes config, trp_error *err) {
    if (trp_session_rank(session) == 0) {
        return report_step(session, 1, false, err);
    }
    for (;;) {
        pause();
    }
}

static trp_code reports_odd_numbers(trp_session *session, trp_bytes config, trp_error *err) {
    char name[201] = "";
    memset(name, 'n', 200);
    trp_metric metrics[] = {{"nan", NAN}, {"inf", -INFINITY}, {name, 1e308}, {"\xc3\xa4", 5e-324}};
    trp_report report = {.step = 1, .metrics = metrics, .metric_count = 4, .wait = true};
    return trp_session_report(session, &report, err);
}

/* The configuration's first byte tells what is wrong with the metrics. */
static trp_code reports_bad_metrics(trp_session *session, trp_bytes config, trp_error *err) {
    enum { MANY = 1001 };
    char name[202] = "";
    trp_metric *metrics = calloc(MANY, sizeof *metrics);
    trp_report report = {.step = 1, .metrics = metrics, .metric_count = 1};
    memset(name, 'n', 201);
    switch (*(const char *)config.data) {
    case 'm':
        report.metric_count = MANY;
        break;
    case 'l':
        metrics[0].name = name;
        break;
    case 'u':
        metrics[0].name = "\xff\xfe";
        break;
    default: /* none */
        break;
    }
    trp_code code = trp_session_report(session, &report, err);
    free(metrics);
    return code;
}

static const trp_train_function functions[] = {
    {"counts", test_counts},
    {"rank_one_fails", rank_one_fails},
    {"fails_after_two", fails_after_two},
    {"rank_one_exits", rank_one_exits},
    {"rank_one_kills_itself", rank_one_kills_itself},
    {"rank_one_never_comes", rank_one_never_comes},
    {"reports_odd_numbers", reports_odd_numbers},
    {"reports_bad_metrics", reports_bad_metrics},
    {NULL, NULL},
};

static const trp_actor_type *const types[] = {TRP_TRAIN_TYPES, NULL};

/* ---- What goes wrong ---- */

static void T24_an_error_of_another_rank_is_told_as_its_own(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("rank_one_fails", "rank-one", 3, &seen);
    test_run_fails(rt, &options, TRP_EUSER, "rank 1: not today", &result);
    assert_int_equal(result.failures[0].rank, 1);
    assert_string_equal(result.failures[0].error.message, "not today");
    assert_int_equal(result.failures[0].death.cause, TRP_CAUSE_NONE);
    trp_result_release(&result);
}

static void the_same_error_at_the_same_step_is_tried_twice_and_no_more(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("fails_after_two", "repeated", 2, &seen);
    options.run.failure.max_failures = 100;
    test_run_fails(rt, &options, TRP_EUSER, "the same error at the same step as before", &result);
    assert_non_null(strstr(result.error.message, "division by zero"));
    assert_int_equal(result.restarts, 1);
    assert_non_null(result.checkpoint);
    trp_result_release(&result);
}

static void a_worker_that_exits_in_the_middle_is_a_failure_with_its_code(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("rank_one_exits", "exits", 2, &seen);
    options.run.failure.max_failures = 1;
    test_run_fails(rt, &options, TRP_EACTOR_DIED, "rank 1 died: exit code 0", &result);
    assert_int_equal(result.restarts, 1);
    assert_int_equal(result.failures[0].death.cause, TRP_CAUSE_EXITED);
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

/* A death is a machine's until the retries are spent: a segmentation fault of the program's own is
 * not to be told from one. */
static void a_worker_that_dies_at_every_attempt_spends_the_retries(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("rank_one_kills_itself", "dies", 2, &seen);
    options.run.failure.max_failures = 3;
    test_run_fails(rt, &options, TRP_EACTOR_DIED, "rank 1 died: signal 9 (SIGKILL)", &result);
    assert_int_equal(result.restarts, 3);
    assert_int_equal(seen.failures, 4);
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static void T08_a_rank_that_is_behind_when_the_others_have_returned_is_named(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("rank_one_never_comes", "never", 2, &seen);
    options.run.report_timeout_ms = 500;
    test_run_fails(rt, &options, TRP_ETIMEOUT, "report 1 waits for rank 1 (at report 0)", &result);
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static void deadlines_may_be_for_ever(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    test_count count = {.last = 6, .every = 2};
    trp_train_options options = test_run_options("counts", "for-ever", 2, &seen);
    options.config = (trp_bytes){&count, sizeof count};
    options.run.report_timeout_ms = TRP_FOREVER;
    options.run.start_timeout_ms = TRP_FOREVER;
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(result.steps, 6);
    trp_result_release(&result);
}

static void metrics_may_be_any_number_and_have_long_names(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    char name[201] = "";
    memset(name, 'n', 200);
    trp_train_options options = test_run_options("reports_odd_numbers", "odd", 2, &seen);
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_true(isnan(test_metric(&result, "nan")));
    assert_true(test_metric(&result, "inf") == -INFINITY);
    assert_true(test_metric(&result, name) == 1e308);
    assert_true(test_metric(&result, "\xc3\xa4") == 5e-324);
    trp_result_release(&result);
}

static void metrics_that_cannot_be_written_down_are_refused_with_the_reason(void **state) {
    static const struct {
        const char *what, *text;
    } cases[] = {{"m", "1001 metrics; at most 1000"},
                 {"l", "must have 1 to 200 bytes"},
                 {"u", "the name of metric 0 is not UTF-8"},
                 {"n", "must have 1 to 200 bytes"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_run_seen seen = {0};
        trp_result result;
        char name[32];
        snprintf(name, sizeof name, "bad-%s", cases[i].what);
        trp_train_options options = test_run_options("reports_bad_metrics", name, 2, &seen);
        options.config = trp_bytes_of(cases[i].what);
        test_run_fails(rt, &options, TRP_EINVALID, cases[i].text, &result);
        trp_result_release(&result);
    }
}

static void stop_rank_one(test_run_seen *seen, const trp_train_event *event) {
    if (seen->acted == 0 && event->step >= 5) {
        seen->acted = 1;
        assert_int_equal(kill(seen->pids[1], SIGSTOP), 0);
        sleep(3);
        assert_int_equal(kill(seen->pids[1], SIGCONT), 0);
    }
}

static void T28_a_worker_that_is_stopped_for_three_seconds_is_only_slow(void **state) {
    test_run_seen seen = {.on_report = stop_rank_one};
    trp_result result;
    test_count count = {.last = 30, .every = 5, .pause_ms = 1};
    trp_train_options options = test_run_options("counts", "slow", 3, &seen);
    options.config = (trp_bytes){&count, sizeof count};
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(seen.acted, 1);
    assert_int_equal(result.restarts, 0);
    assert_int_equal(seen.failures, 0);
    trp_result_release(&result);
}

/* ---- Placement ---- */

static void T29_what_no_node_has_fails_within_seconds_with_the_numbers(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    uint64_t begun_ms = test_now_ms();
    trp_train_options options = test_run_options("rank_one_fails", "too-large", 3, &seen);
    options.scaling.cpus_per_worker = 1000;
    test_run_fails(rt, &options, TRP_EINFEASIBLE, "needs 1000 cpu; the most any node has is 2",
                   &result);
    assert_non_null(strstr(result.error.message, "place 3 workers"));
    assert_int_equal(result.state, TRP_RUN_ERRORED);
    trp_result_release(&result);
    options.run.name = "no-gpu";
    options.scaling.cpus_per_worker = 0;
    options.scaling.gpus_per_worker = 2;
    test_run_fails(rt, &options, TRP_EINFEASIBLE, "2 gpu", &result);
    trp_result_release(&result);
    assert_true(test_now_ms() - begun_ms < 2 * 20000); /* and not the 60 s for a start */
}

static void what_others_hold_is_waited_for_until_the_deadline(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_bundle bundle = {.cpus = 2};
    trp_group_options held = {.bundles = &bundle, .bundle_count = 1};
    trp_group group;
    TEST_OK(trp_group_create(rt, &held, &group, err));
    TEST_OK(trp_group_wait(rt, group, 10000, NULL, 0, err));
    trp_train_options options = test_run_options("rank_one_fails", "busy", 2, &seen);
    options.scaling.cpus_per_worker = 2;
    options.run.start_timeout_ms = 500;
    test_run_fails(rt, &options, TRP_ETIMEOUT, "busy: ", &result);
    assert_non_null(strstr(result.error.message, "place 2 workers"));
    trp_result_release(&result);
    TEST_OK(trp_group_remove(rt, group, err));
    test_expect_all_free(rt, 5000);
}

static int start(void **state) {
    return test_runs_begin(&cluster, 2, types, &rt);
}

static int stop(void **state) {
    return test_runs_end(&cluster, &rt);
}

int main(void) {
    trp_train_register(functions);
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T24_an_error_of_another_rank_is_told_as_its_own),
        cmocka_unit_test(the_same_error_at_the_same_step_is_tried_twice_and_no_more),
        cmocka_unit_test(a_worker_that_exits_in_the_middle_is_a_failure_with_its_code),
        cmocka_unit_test(a_worker_that_dies_at_every_attempt_spends_the_retries),
        cmocka_unit_test(T08_a_rank_that_is_behind_when_the_others_have_returned_is_named),
        cmocka_unit_test(deadlines_may_be_for_ever),
        cmocka_unit_test(metrics_may_be_any_number_and_have_long_names),
        cmocka_unit_test(metrics_that_cannot_be_written_down_are_refused_with_the_reason),
        cmocka_unit_test(T28_a_worker_that_is_stopped_for_three_seconds_is_only_slow),
        cmocka_unit_test(T29_what_no_node_has_fails_within_seconds_with_the_numbers),
        cmocka_unit_test(what_others_hold_is_waited_for_until_the_deadline),
    };
    return cmocka_run_group_tests_name("train_trouble", tests, start, stop);
}

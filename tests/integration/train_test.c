/* train_test.c: runs of one function on several ranks, as a user of train.h sees them. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/json.h"
#include "core/sys/file.h"
#include "tests/lib/runs.h"

static test_cluster cluster;
static trp_runtime *rt;

/* ---- Train functions. What they find wrong they say in their error. ---- */

static trp_code empty(trp_session *session, trp_bytes config, trp_error *err) {
    return TRP_OK;
}

enum { PATTERN_BYTES = 100000 };

static trp_code report_step(trp_session *session, uint64_t step, bool has_checkpoint,
                            trp_error *err) {
    trp_metric metrics[] = {{"iteration", (double)step},
                            {"rank", (double)trp_session_rank(session)}};
    trp_report report = {
        .step = step, .metrics = metrics, .metric_count = 2, .has_checkpoint = has_checkpoint};
    return trp_session_report(session, &report, err);
}

/* The same, but in step with the ranks that bring files. */
static trp_code report_together(trp_session *session, uint64_t step, bool has_checkpoint,
                                trp_error *err) {
    trp_report report = {.step = step, .has_checkpoint = has_checkpoint, .wait = true};
    return trp_session_report(session, &report, err);
}

static trp_code expects_pattern(trp_session *session, trp_bytes config, trp_error *err) {
    if (config.size != PATTERN_BYTES) {
        return test_wrong(err, "%zu bytes of configuration", config.size);
    }
    for (size_t i = 0; i < config.size; i++) {
        if (((const unsigned char *)config.data)[i] != (unsigned char)(i * 7 + i / 256)) {
            return test_wrong(err, "byte %zu differs", i);
        }
    }
    return TRP_OK;
}

static int variable(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? (int)strtol(text, NULL, 10) : -1;
}

static bool port_works(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool works = bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0;
    close(fd);
    return works;
}

/* The port of rank 0, which all must have been told. */
static trp_code agree_on_port(trp_session *session, trp_error *err) {
    int32_t port = variable("MASTER_PORT");
    int32_t theirs = port;
    trp_code code = trp_comm_broadcast(trp_session_comm(session), &theirs, sizeof theirs, 0, err);
    if (code == TRP_OK && theirs != port) {
        return test_wrong(err, "rank 0 was told port %d, we %d", theirs, port);
    }
    return code;
}

static trp_code checks_environment(trp_session *session, trp_bytes config, trp_error *err) {
    if (variable("RANK") != trp_session_rank(session) ||
        variable("WORLD_SIZE") != trp_session_world(session) ||
        variable("LOCAL_RANK") != trp_session_local_rank(session) ||
        variable("LOCAL_WORLD_SIZE") != trp_session_local_world(session) ||
        variable("NODE_RANK") != trp_session_node_rank(session)) {
        return test_wrong(err, "the environment and the session disagree");
    }
    if (strcmp(getenv("MASTER_ADDR"), "127.0.0.1") != 0 || variable("MASTER_PORT") <= 0) {
        return test_wrong(err, "MASTER_ADDR=%s MASTER_PORT=%s", getenv("MASTER_ADDR"),
                          getenv("MASTER_PORT"));
    }
    trp_code code = agree_on_port(session, err);
    if (code == TRP_OK && trp_session_rank(session) == 0 && !port_works(variable("MASTER_PORT"))) {
        return test_wrong(err, "MASTER_PORT is in use");
    }
    if (code == TRP_OK) {
        code = trp_comm_barrier(trp_session_comm(session), err);
    }
    if (code == TRP_OK && trp_session_attempt(session) == 1 && trp_session_rank(session) == 1) {
        return test_wrong(err, "planned");
    }
    return code;
}

/* Rank 0 alone, then ranks 1 and 3. */
static trp_code some_report_checkpoints(trp_session *session, trp_bytes config, trp_error *err) {
    int rank = trp_session_rank(session);
    trp_code code = rank == 0 ? test_shard_write(session, 1, err) : TRP_OK;
    if (code == TRP_OK) {
        code = report_step(session, 1, rank == 0, err);
    }
    bool brings = rank == 1 || rank == 3;
    if (code == TRP_OK && brings) {
        code = test_shard_write(session, 2, err);
    }
    return code == TRP_OK ? report_step(session, 2, brings, err) : code;
}

/* Whether run.json, as a second reader finds it, names this checkpoint as the latest. */
static trp_code check_record(trp_session *session, trp_error *err) {
    const char *checkpoint = trp_session_checkpoint(session);
    char run_json[4096];
    json_t *json = NULL;
    const char *latest = "";
    snprintf(run_json, sizeof run_json, "%.*s/run.json",
             (int)(strrchr(checkpoint, '/') - checkpoint), checkpoint);
    trp_code code = trpi_json_load(run_json, &json, err);
    if (code == TRP_OK) {
        code = trpi_json_text(json, "run.json", "checkpoint", true, &latest, err);
    }
    if (code == TRP_OK && strcmp(latest, strrchr(checkpoint, '/') + 1) != 0) {
        code = test_wrong(err, "run.json says %s, report made %s", latest, checkpoint);
    }
    json_decref(json);
    return code;
}

static trp_code six_checkpoints(trp_session *session, trp_bytes config, trp_error *err) {
    trp_code code = TRP_OK;
    for (uint64_t step = 1; code == TRP_OK && step <= 6; step++) {
        code = test_shard_write(session, step, err);
        if (code == TRP_OK) {
            code = report_step(session, step, true, err);
        }
        if (code == TRP_OK) {
            code = check_record(session, err);
        }
    }
    return code;
}

static trp_code rank_zero_fails(trp_session *session, trp_bytes config, trp_error *err) {
    trp_code code = report_step(session, 1, false, err);
    if (code == TRP_OK && trp_session_rank(session) == 0) {
        return test_wrong(err, "out of ideas");
    }
    return code == TRP_OK ? trp_comm_barrier(trp_session_comm(session), err) : code;
}

static trp_code always_fails(trp_session *session, trp_bytes config, trp_error *err) {
    return test_wrong(err, "attempt %d", (int)trp_session_attempt(session));
}

static trp_code append_line(const char *path, int number, trp_error *err) {
    FILE *file = fopen(path, "a");
    if (file == NULL || fprintf(file, "%d\n", number) < 0 || fclose(file) != 0) {
        return test_wrong(err, "%s cannot be written", path);
    }
    return TRP_OK;
}

/* Six iterations, failures planned before 2 and 4; rank 0 brings no files. The configuration is the
 * directory in which each rank writes down what it trains. */
static trp_code six_iterations(trp_session *session, trp_bytes config, trp_error *err) {
    int rank = trp_session_rank(session);
    uint64_t done;
    char log[512];
    snprintf(log, sizeof log, "%.*s/trained-%d", (int)config.size, (const char *)config.data, rank);
    trp_code code = test_shard_read(trp_session_checkpoint(session), 1, &done, err);
    for (int i = (int)done; code == TRP_OK && i < 6; i++) {
        if ((i == 2 && trp_session_attempt(session) == 1) ||
            (i == 4 && trp_session_attempt(session) == 2)) {
            return test_wrong(err, "planned at %d", i);
        }
        code = append_line(log, i, err);
        if (code == TRP_OK && rank != 0) {
            code = test_shard_write(session, (uint64_t)i + 1, err);
        }
        if (code == TRP_OK) {
            code = report_together(session, (uint64_t)i + 1, rank != 0, err);
        }
    }
    return code;
}

static trp_code rank_one_is_silent(trp_session *session, trp_bytes config, trp_error *err) {
    if (trp_session_rank(session) == 1) { /* until the others have given up on it */
        return trp_comm_barrier(trp_session_comm(session), err);
    }
    trp_code code = test_shard_write(session, 1, err);
    return code == TRP_OK ? report_step(session, 1, true, err) : code;
}

static trp_code rank_one_stops_early(trp_session *session, trp_bytes config, trp_error *err) {
    trp_code code = report_step(session, 1, false, err);
    if (code == TRP_OK && trp_session_rank(session) == 0) {
        code = report_step(session, 2, false, err);
    }
    return code;
}

static trp_code reports_until_stopped(trp_session *session, trp_bytes config, trp_error *err) {
    trp_code code = test_shard_write(session, 1, err);
    for (uint64_t step = 1; code == TRP_OK; step++) {
        code = report_step(session, step, step == 1, err);
        if (code == TRP_OK) {
            code = trp_comm_barrier(trp_session_comm(session), err);
        }
        usleep(2000);
    }
    return code;
}

enum { MANY_REPORTS = 2500 };

static trp_code reports_often(trp_session *session, trp_bytes config, trp_error *err) {
    trp_code code = TRP_OK;
    for (uint64_t step = 1; code == TRP_OK && step <= MANY_REPORTS; step++) {
        code = report_step(session, step, false, err);
    }
    return code;
}

static const trp_train_function functions[] = {
    {"empty", empty},
    {"expects_pattern", expects_pattern},
    {"checks_environment", checks_environment},
    {"some_report_checkpoints", some_report_checkpoints},
    {"six_checkpoints", six_checkpoints},
    {"rank_zero_fails", rank_zero_fails},
    {"always_fails", always_fails},
    {"six_iterations", six_iterations},
    {"rank_one_is_silent", rank_one_is_silent},
    {"rank_one_stops_early", rank_one_stops_early},
    {"reports_until_stopped", reports_until_stopped},
    {"reports_often", reports_often},
    {NULL, NULL},
};

static const trp_actor_type *const types[] = {TRP_TRAIN_TYPES, NULL};

/* ---- What the driver sees ---- */

static trp_code fit(const trp_train_options *options, trp_result *result) {
    trp_error err = {0};
    trp_code code = trp_fit(rt, options, result, &err);
    if (code != TRP_OK) {
        print_message("fit: %s: %s\n", trp_code_name(code), err.message);
    }
    return code;
}

static void T01_an_empty_function_finishes(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("empty", "empty", 1, &seen);
    assert_int_equal(fit(&options, &result), TRP_OK);
    assert_int_equal(result.state, TRP_RUN_FINISHED);
    assert_int_equal(result.error.code, TRP_OK);
    assert_string_equal(result.path, test_path(test_run_storage(), "empty"));
    assert_null(result.checkpoint);
    assert_string_equal(seen.states, "INITIALIZING SCHEDULING RUNNING SHUTTING_DOWN FINISHED");
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static void T01_a_run_without_a_name_gets_one_under_the_default_root(void **state) {
    trp_result result;
    char *home = strdup(getenv("HOME"));
    setenv("HOME", test_run_storage(), 1);
    trp_train_options options = {.function = "empty"};
    assert_int_equal(fit(&options, &result), TRP_OK);
    const char *root = test_path(test_run_storage(), "troupe_results/train_run-20");
    assert_memory_equal(result.path, root, strlen(root));
    trp_result_release(&result);
    setenv("HOME", home, 1);
    free(home);
}

static void T01_the_configuration_arrives_byte_equal_on_every_rank(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    unsigned char *pattern = malloc(PATTERN_BYTES);
    for (size_t i = 0; i < PATTERN_BYTES; i++) {
        pattern[i] = (unsigned char)(i * 7 + i / 256);
    }
    trp_train_options options = test_run_options("expects_pattern", "pattern", 3, &seen);
    options.config = (trp_bytes){pattern, PATTERN_BYTES};
    assert_int_equal(fit(&options, &result), TRP_OK);
    trp_result_release(&result);
    free(pattern);
}

/* Nothing was started: no process more, and *result is zeroed. */
static void expect_refused(const trp_train_options *options, trp_code expected, const char *text) {
    pid_t pids[64];
    trp_result result;
    trp_error err = {0};
    size_t before = test_cluster_processes(&cluster, pids, 64);
    assert_int_equal(trp_fit(rt, options, &result, &err), expected);
    assert_non_null(strstr(err.message, text));
    assert_int_equal(test_cluster_processes(&cluster, pids, 64), before);
    assert_null(result.path);
    trp_result_release(&result);
}

static void T02_bad_configurations_start_no_process(void **state) {
    test_run_seen seen = {0};
    trp_train_options options = test_run_options("no such", "refused", 1, &seen);
    expect_refused(&options, TRP_EINVALID, "not registered");
    options.function = "empty";
    options.scaling.workers = -2;
    expect_refused(&options, TRP_EINVALID, "scaling.workers is -2");
    options.scaling.workers = 1;
    options.run.checkpoint.keep = -1;
    expect_refused(&options, TRP_EINVALID, "run.checkpoint.keep");
    options.run.checkpoint.keep = 0;
    options.run.storage_path = "/dev/null/nowhere";
    expect_refused(&options, TRP_EIO, "/dev/null");
    options.run.storage_path = test_run_storage();
    options.run.name = "../up";
    expect_refused(&options, TRP_EINVALID, "../up");
}

static void T02_resume_must_and_never_are_kept(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("empty", "resumed", 1, &seen);
    options.run.resume = TRP_RESUME_MUST;
    expect_refused(&options, TRP_ENOTFOUND, "resumed");
    options.run.resume = TRP_RESUME_NEVER;
    assert_int_equal(fit(&options, &result), TRP_OK);
    trp_result_release(&result);
    expect_refused(&options, TRP_EEXISTS, "resumed");
    options.run.resume = TRP_RESUME_MUST;
    assert_int_equal(fit(&options, &result), TRP_OK);
    trp_result_release(&result);
}

static void T04_the_environment_is_complete_and_the_port_works_after_a_restart(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("checks_environment", "environment", 4, &seen);
    options.run.failure.max_failures = 1;
    assert_int_equal(fit(&options, &result), TRP_OK);
    assert_int_equal(result.restarts, 1);
    assert_non_null(strstr(seen.failure, "rank 1 failed: planned"));
    trp_result_release(&result);
}

static void T06_a_run_with_one_failure_shows_exactly_these_states(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("checks_environment", "states", 2, &seen);
    options.run.failure.max_failures = 1;
    assert_int_equal(fit(&options, &result), TRP_OK);
    assert_string_equal(seen.states, "INITIALIZING SCHEDULING RUNNING RESTARTING SCHEDULING "
                                     "RUNNING SHUTTING_DOWN FINISHED");
    trp_result_release(&result);
}

static void T07_shards_of_some_ranks_are_one_checkpoint_with_rank_zeros_metrics(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("some_report_checkpoints", "shards", 4, &seen);
    assert_int_equal(fit(&options, &result), TRP_OK);
    assert_true(test_metric(&result, "rank") == 0);
    assert_true(test_metric(&result, "iteration") == 2);
    assert_int_equal(test_run_checkpoints(result.path), 2);
    char **names = NULL;
    size_t count = 0;
    TEST_OK(trpi_dir_list(result.checkpoint, &names, &count, err));
    assert_int_equal(count, 3);
    assert_string_equal(names[0], "manifest.json");
    assert_string_equal(names[1], "shard-1");
    assert_string_equal(names[2], "shard-3");
    trpi_names_free(names, count);
    assert_true(trpi_file_exists(test_path(result.path, "checkpoint_000000/shard-0")));
    trp_result_release(&result);
}

static void T18_all_six_checkpoints_stay(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("six_checkpoints", "keep-all", 2, &seen);
    assert_int_equal(fit(&options, &result), TRP_OK);
    assert_int_equal(test_run_checkpoints(result.path), 6);
    assert_int_equal(seen.checkpoints, 6);
    trp_result_release(&result);
}

static void T18_one_by_the_highest_score_is_the_last(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("six_checkpoints", "keep-one", 2, &seen);
    options.run.checkpoint.keep = 1;
    options.run.checkpoint.score_by = "iteration";
    assert_int_equal(fit(&options, &result), TRP_OK);
    assert_int_equal(test_run_checkpoints(result.path), 1);
    assert_string_equal(strrchr(result.checkpoint, '/'), "/checkpoint_000005");
    trp_result_release(&result);
}

static void T24_an_error_without_retries_ends_the_run_with_its_cause(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("rank_zero_fails", "fails", 3, &seen);
    assert_int_equal(fit(&options, &result), TRP_EUSER);
    assert_int_equal(result.state, TRP_RUN_ERRORED);
    assert_true(result.failure_count >= 1);
    assert_int_equal(result.failures[0].rank, 0);
    assert_int_equal(result.failures[0].error.code, TRP_EUSER);
    assert_string_equal(result.failures[0].error.message, "out of ideas");
    assert_int_equal(result.failures[0].death.cause, TRP_CAUSE_NONE);
    assert_non_null(strstr(result.error.message, "rank 0: out of ideas"));
    assert_int_equal(seen.failures, 1);
    assert_string_equal(seen.states, "INITIALIZING SCHEDULING RUNNING SHUTTING_DOWN ERRORED");
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static void expect_trained(const char *dir, int rank) {
    char name[32];
    trp_buf text = {0};
    snprintf(name, sizeof name, "trained-%d", rank);
    TEST_OK(trpi_file_read(test_path(dir, name), 0, &text, err));
    assert_string_equal((const char *)text.data, "0\n1\n2\n3\n4\n5\n");
    trp_buf_release(&text);
}

static void T25_each_iteration_is_trained_once_and_none_when_started_again(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("six_iterations", "iterations", 3, &seen);
    options.run.failure.max_failures = 2;
    options.config = trp_bytes_of(test_run_storage());
    for (int run = 0; run < 2; run++) {
        assert_int_equal(fit(&options, &result), TRP_OK);
        for (int rank = 0; rank < 3; rank++) {
            expect_trained(test_run_storage(), rank);
        }
        assert_int_equal(result.restarts, run == 0 ? 2 : 0);
        assert_int_equal(test_run_checkpoints(result.path), 6);
        assert_true(trpi_file_exists(test_path(result.checkpoint, "shard-1")));
        assert_true(trpi_file_exists(test_path(result.checkpoint, "shard-2")));
        assert_false(trpi_file_exists(test_path(result.checkpoint, "shard-0")));
        trp_result_release(&result);
    }
}

static void T26_exactly_as_many_retries_as_asked_for(void **state) {
    for (int allowed = 0; allowed <= 10; allowed += allowed == 0 ? 1 : 9) {
        test_run_seen seen = {0};
        trp_result result;
        char name[32];
        snprintf(name, sizeof name, "retries-%d", allowed);
        trp_train_options options = test_run_options("always_fails", name, 2, &seen);
        options.run.failure.max_failures = allowed;
        assert_int_equal(fit(&options, &result), TRP_EUSER);
        assert_int_equal(result.restarts, allowed);
        char expected[32];
        snprintf(expected, sizeof expected, "attempt %d", allowed + 1);
        assert_non_null(strstr(result.error.message, expected));
        trp_result_release(&result);
    }
}

static void T09_a_rank_that_never_reports_is_named(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("rank_one_is_silent", "silent", 3, &seen);
    options.run.report_timeout_ms = 500;
    assert_int_equal(fit(&options, &result), TRP_ETIMEOUT);
    assert_non_null(strstr(result.error.message, "report 1 waits for rank 1 (at report 0)"));
    trp_result_release(&result);
}

static void a_rank_that_reports_less_often_is_named(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("rank_one_stops_early", "uneven", 2, &seen);
    assert_int_equal(fit(&options, &result), TRP_EINVALID);
    assert_non_null(strstr(result.error.message, "rank 1 has returned after 1 reports"));
    trp_result_release(&result);
}

static void stop_at_twenty(test_run_seen *seen, const trp_train_event *event) {
    if (event->step >= 20) {
        seen->stop = 1;
    }
}

static void T05_a_run_that_is_stopped_keeps_its_checkpoint_and_no_worker(void **state) {
    test_run_seen seen = {.on_report = stop_at_twenty};
    trp_result result;
    trp_train_options options = test_run_options("reports_until_stopped", "stopped", 3, &seen);
    assert_int_equal(fit(&options, &result), TRP_ECANCELED);
    assert_int_equal(result.state, TRP_RUN_ABORTED);
    assert_non_null(result.checkpoint);
    assert_true(trpi_file_exists(test_path(result.checkpoint, "shard-2")));
    for (size_t i = 0; i < seen.pid_count; i++) {
        assert_int_not_equal(kill(seen.pids[i], 0), 0);
    }
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static size_t lines_of(const char *path) {
    trp_buf text = {0};
    size_t lines = 0;
    TEST_OK(trpi_file_read(path, 0, &text, err));
    for (size_t i = 0; i < text.size; i++) {
        lines += text.data[i] == '\n';
    }
    trp_buf_release(&text);
    return lines;
}

static void T17_many_reports_without_checkpoints_are_all_written_down(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("reports_often", "often", 4, &seen);
    uint64_t begun = test_now_ms();
    assert_int_equal(fit(&options, &result), TRP_OK);
    print_message("%d reports of 4 ranks in %lu ms\n", MANY_REPORTS,
                  (unsigned long)(test_now_ms() - begun));
    assert_int_equal(result.steps, MANY_REPORTS);
    assert_int_equal(lines_of(test_path(result.path, "metrics.jsonl")), MANY_REPORTS);
    trp_result_release(&result);
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
        cmocka_unit_test(T01_an_empty_function_finishes),
        cmocka_unit_test(T01_a_run_without_a_name_gets_one_under_the_default_root),
        cmocka_unit_test(T01_the_configuration_arrives_byte_equal_on_every_rank),
        cmocka_unit_test(T02_bad_configurations_start_no_process),
        cmocka_unit_test(T02_resume_must_and_never_are_kept),
        cmocka_unit_test(T04_the_environment_is_complete_and_the_port_works_after_a_restart),
        cmocka_unit_test(T05_a_run_that_is_stopped_keeps_its_checkpoint_and_no_worker),
        cmocka_unit_test(T06_a_run_with_one_failure_shows_exactly_these_states),
        cmocka_unit_test(T07_shards_of_some_ranks_are_one_checkpoint_with_rank_zeros_metrics),
        cmocka_unit_test(T09_a_rank_that_never_reports_is_named),
        cmocka_unit_test(a_rank_that_reports_less_often_is_named),
        cmocka_unit_test(T17_many_reports_without_checkpoints_are_all_written_down),
        cmocka_unit_test(T18_all_six_checkpoints_stay),
        cmocka_unit_test(T18_one_by_the_highest_score_is_the_last),
        cmocka_unit_test(T24_an_error_without_retries_ends_the_run_with_its_cause),
        cmocka_unit_test(T25_each_iteration_is_trained_once_and_none_when_started_again),
        cmocka_unit_test(T26_exactly_as_many_retries_as_asked_for),
    };
    return cmocka_run_group_tests_name("train", tests, start, stop);
}

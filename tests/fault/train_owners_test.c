/* train_owners_test.c: not a rank dies, but somebody whom a run belongs to: its trainer, its
 * driver, a node, the head. Nothing may be left running, nothing of what was reported may be lost,
 * and the same command goes on from there. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "tests/lib/child.h"
#include "tests/lib/runs.h"

enum { KILL_AT = 12 };

static test_cluster cluster;
static trp_runtime *rt;

static const trp_train_function functions[] = {{"counts", test_counts}, {NULL, NULL}};
static const trp_actor_type *const types[] = {TRP_TRAIN_TYPES, NULL};

static const test_count endless = {.last = 1000000, .every = 4, .pause_ms = 2};

static trp_train_options options_of(const char *name, const test_count *count,
                                    test_run_seen *seen) {
    trp_train_options options = test_run_options("counts", name, 3, seen);
    options.config = (trp_bytes){count, sizeof *count};
    options.run.checkpoint.keep = 2;
    return options;
}

/* The same command again, a little further: from the newest checkpoint, and nothing before it. With
 * `meanwhile` another driver may have got further than that. */
static void expect_goes_on(const char *name, bool meanwhile) {
    test_run_seen seen = {0};
    trp_result result;
    uint64_t step, from = test_run_step(test_path(test_run_storage(), name));
    test_count further = {.last = from + 20, .every = 4};
    assert_true(from + 4 >= KILL_AT); /* a report is told before its checkpoint is committed */
    trp_train_options options = options_of(name, &further, &seen);
    options.run.resume = TRP_RESUME_MUST;
    TEST_OK(trp_fit(rt, &options, &result, err));
    TEST_OK(test_shard_read(result.checkpoint, 2, &step, err));
    if (meanwhile) {
        assert_true(result.steps >= further.last && seen.reports <= 20);
    } else {
        assert_int_equal(result.steps, further.last);
        assert_int_equal(seen.reports, 20);
        assert_int_equal(step, further.last / 4 * 4);
    }
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static void expect_gone(const pid_t *pids, size_t count) {
    for (size_t i = 0; i < count; i++) {
        assert_int_not_equal(kill(pids[i], 0), 0);
    }
}

static bool no_actor_lives(void *arg) {
    pid_t pids[8];
    return test_actor_pids(rt, trp_worker_type.name, pids, 8) == 0 &&
           test_actor_pids(rt, trp_trainer_type.name, pids, 8) == 0;
}

/* ---- The trainer ---- */

static void kill_trainer(test_run_seen *seen, const trp_train_event *event) {
    pid_t pids[2];
    if (seen->acted == 0 && event->step >= KILL_AT) {
        seen->acted = 1;
        assert_int_equal(test_actor_pids(rt, trp_trainer_type.name, pids, 2), 1);
        assert_int_equal(kill(pids[0], SIGKILL), 0);
    }
}

static void a_trainer_that_is_killed_ends_the_run_with_its_cause_and_its_checkpoint(void **state) {
    test_run_seen seen = {.on_report = kill_trainer};
    trp_result result;
    trp_train_options options = options_of("trainer", &endless, &seen);
    options.run.failure.max_failures = -1;
    test_run_fails(rt, &options, TRP_EACTOR_DIED, "signal 9", &result);
    assert_int_equal(result.state, TRP_RUN_ERRORED);
    assert_non_null(result.checkpoint);
    assert_true(trpi_file_exists(test_path(result.checkpoint, "shard-2")));
    trp_result_release(&result);
    assert_true(test_until(no_actor_lives, NULL, 5000));
    expect_gone(seen.pids, seen.pid_count);
    test_expect_all_free(rt, 5000);
    expect_goes_on("trainer", false);
}

static void a_run_whose_trainer_was_killed_is_listed_as_lost(void **state) {
    const char *argv[] = {getenv("TROUPE_BIN"), "list", "runs", NULL};
    test_run_seen seen = {.on_report = kill_trainer};
    trp_result result;
    trp_buf output = {0};
    trp_train_options options = options_of("lost", &endless, &seen);
    test_run_fails(rt, &options, TRP_EACTOR_DIED, "signal 9", &result);
    trp_result_release(&result);
    assert_true(test_until(no_actor_lives, NULL, 5000));
    assert_int_equal(test_run(argv, &output, 10000), 0);
    const char *row = strstr((const char *)output.data, "\nlost ");
    assert_non_null(row);
    assert_non_null(strstr(row, "LOST"));
    trp_buf_release(&output);
}

static void stop_trainer(test_run_seen *seen, const trp_train_event *event) {
    pid_t pids[2];
    if (seen->acted == 0 && event->step >= KILL_AT) {
        seen->acted = 1;
        assert_int_equal(test_actor_pids(rt, trp_trainer_type.name, pids, 2), 1);
        assert_int_equal(kill(pids[0], SIGSTOP), 0);
        sleep(3);
        assert_int_equal(kill(pids[0], SIGCONT), 0);
    }
}

static void a_trainer_that_is_stopped_for_three_seconds_is_only_slow(void **state) {
    test_run_seen seen = {.on_report = stop_trainer};
    trp_result result;
    test_count count = {.last = 40, .every = 4, .pause_ms = 2};
    trp_train_options options = options_of("stopped", &count, &seen);
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(seen.acted, 1);
    assert_int_equal(result.restarts, 0);
    trp_result_release(&result);
}

/* ---- The driver ---- */

/* A driver of its own, as a process: this program with an argument. */
static int drive(const char *name) {
    test_run_seen seen = {0};
    trp_result result;
    trp_error err = {0};
    trp_init_options init = {.address = getenv("TROUPE_ADDRESS")};
    if (trp_init(types, &init, &rt, &err) != TRP_OK) {
        return 70;
    }
    trp_train_options options = options_of(name, &endless, &seen);
    options.run.storage_path = getenv("TEST_STORAGE");
    trp_code code = trp_fit(rt, &options, &result, &err);
    fprintf(stderr, "%s: %s\n", trp_code_name(code), err.message);
    trp_result_release(&result);
    trp_shutdown(&rt);
    return code == TRP_ECANCELED ? 3 : code == TRP_OK ? 0 : 1;
}

static pid_t start_driver(const char *name) {
    setenv("TEST_STORAGE", test_run_storage(), 1);
    return test_child_start((const char *[]){test_exe(), "--drive", name, NULL}, STDOUT_FILENO,
                            STDERR_FILENO);
}

static bool has_step(void *name) {
    return test_run_step(test_path(test_run_storage(), name)) >= KILL_AT;
}

static void T32_a_killed_driver_leaves_nothing_and_can_be_started_again(void **state) {
    char name[] = "driver";
    pid_t workers[8], pid = start_driver(name);
    assert_true(test_until(has_step, name, 60000));
    size_t count = test_actor_pids(rt, trp_worker_type.name, workers, 8);
    assert_int_equal(count, 3);
    test_child_kill(pid);
    assert_true(test_until(no_actor_lives, NULL, 5000));
    expect_gone(workers, count);
    test_expect_all_free(rt, 5000);
    expect_goes_on(name, false);
}

/* The one that came later has the run; the one before ends, and says why. */
static void two_drivers_of_one_run_are_not_at_it_together(void **state) {
    char name[] = "twice";
    pid_t pid = start_driver(name);
    assert_true(test_until(has_step, name, 60000));
    expect_goes_on(name, true);
    assert_int_equal(test_child_exit_code(pid, "the first driver"), 3);
    assert_true(test_until(no_actor_lives, NULL, 5000));
    test_expect_all_free(rt, 5000);
}

/* ---- A node ---- */

/* The one that holds rank 2; its other processes are the run's workers. */
static void kill_last_node(test_run_seen *seen, const trp_train_event *event) {
    pid_t nodes[8];
    if (seen->acted == 0 && event->step >= KILL_AT) {
        seen->acted = 1;
        size_t count = test_cluster_pids(&cluster, "node", nodes, 8);
        assert_true(count >= 2);
        assert_int_equal(kill(nodes[count - 1], SIGKILL), 0);
    }
}

static void a_node_that_is_killed_costs_one_failure(void **state) {
    test_run_seen seen = {.on_report = kill_last_node};
    trp_result result;
    test_count count = {.last = 60, .every = 4, .pause_ms = 2};
    trp_train_options options = options_of("node", &count, &seen);
    options.scaling.placement = TRP_SPREAD;
    options.run.failure.max_failures = 1;
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(seen.acted, 1);
    assert_int_equal(result.steps, count.last);
    trp_result_release(&result);
    test_cluster_add(&cluster, &(test_node){.cpus = 2});
}

/* ---- The head ---- */

static void kill_head(test_run_seen *seen, const trp_train_event *event) {
    pid_t pids[2];
    if (seen->acted == 0 && event->step >= KILL_AT) {
        seen->acted = 1;
        assert_int_equal(test_cluster_pids(&cluster, "head", pids, 2), 1);
        assert_int_equal(kill(pids[0], SIGKILL), 0);
    }
}

static bool no_process(void *arg) {
    pid_t pids[8];
    return test_cluster_processes(&cluster, pids, 8) == 0;
}

/* They would look for their head for minutes. */
static void end_nodes(void) {
    pid_t pids[8], nodes[8];
    size_t count = test_cluster_pids(&cluster, "node", nodes, 8);
    assert_int_equal(count, 2);
    /* Each has its guard (core/sys/guard.h), and of the run nothing is left. */
    assert_int_equal(test_cluster_processes(&cluster, pids, 8), 2 * count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(kill(nodes[i], SIGTERM), 0);
    }
    assert_true(test_until(no_process, NULL, 30000));
}

/* Last: it takes the cluster with it. */
static void a_head_that_is_killed_ends_the_run_and_the_next_cluster_goes_on(void **state) {
    test_run_seen seen = {.on_report = kill_head};
    trp_result result;
    trp_train_options options = options_of("head", &endless, &seen);
    options.run.failure.max_failures = -1;
    test_run_fails(rt, &options, TRP_EDISCONNECTED, "the head has not answered", &result);
    assert_int_equal(result.state, TRP_RUN_ERRORED);
    assert_non_null(result.checkpoint);
    trp_result_release(&result);
    expect_gone(seen.pids, seen.pid_count);
    trp_shutdown(&rt);
    end_nodes();
    test_cluster_stop(&cluster);
    (void)test_runs_begin(&cluster, 2, types, &rt);
    expect_goes_on("head", false);
}

static int start(void **state) {
    return test_runs_begin(&cluster, 2, types, &rt);
}

static int stop(void **state) {
    return test_runs_end(&cluster, &rt);
}

int main(int argc, char **argv) {
    trp_train_register(functions);
    test_serve_if_worker(types);
    if (argc == 3 && strcmp(argv[1], "--drive") == 0) {
        return drive(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_that_is_killed_ends_the_run_with_its_cause_and_its_checkpoint),
        cmocka_unit_test(a_run_whose_trainer_was_killed_is_listed_as_lost),
        cmocka_unit_test(a_trainer_that_is_stopped_for_three_seconds_is_only_slow),
        cmocka_unit_test(T32_a_killed_driver_leaves_nothing_and_can_be_started_again),
        cmocka_unit_test(two_drivers_of_one_run_are_not_at_it_together),
        cmocka_unit_test(a_node_that_is_killed_costs_one_failure),
        cmocka_unit_test(a_head_that_is_killed_ends_the_run_and_the_next_cluster_goes_on),
    };
    return cmocka_run_group_tests_name("train_owners", tests, start, stop);
}

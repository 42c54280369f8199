/* train_kill_test.c: ranks are killed while the others are inside a collective or an upload. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "tests/lib/runs.h"

enum { ELEMENTS = 1 << 16, LAST_STEP = 60, KILL_AT = 20, FILE_BYTES = 8 << 20 };

static test_cluster cluster;
static trp_runtime *rt;

/* Sums of known numbers: a collective that goes on with a rank missing or from another attempt
 * would show. */
static trp_code sum_once(trp_session *session, float *data, uint64_t step, trp_error *err) {
    int world = trp_session_world(session);
    for (int64_t i = 0; i < ELEMENTS; i++) {
        data[i] = (float)(trp_session_rank(session) + (int)step);
    }
    trp_code code = trp_comm_all_reduce(trp_session_comm(session), data, ELEMENTS, TRP_F32,
                                        TRP_REDUCE_SUM, err);
    float expected = (float)(world * (world - 1) / 2 + world * (int)step);
    if (code == TRP_OK && (data[0] != expected || data[ELEMENTS - 1] != expected)) {
        return test_wrong(err, "a sum is wrong");
    }
    return code;
}

static trp_code write_shard(trp_session *session, uint64_t step, trp_error *err) {
    const char *dir;
    char path[4096];
    trp_code code = trp_session_staging(session, &dir, err);
    if (code != TRP_OK) {
        return code;
    }
    snprintf(path, sizeof path, "%s/shard-%d", dir, trp_session_rank(session));
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return test_wrong(err, "a shard cannot be written");
    }
    fprintf(file, "%lu\n", (unsigned long)step);
    for (int i = 0; i < FILE_BYTES / 4096; i++) { /* long enough to be killed in the middle of */
        char block[4096] = "";
        fwrite(block, sizeof block, 1, file);
    }
    return fclose(file) == 0 ? TRP_OK : test_wrong(err, "a shard cannot be written");
}

/* The configuration: how many steps lie between checkpoints. */
static trp_code sums(trp_session *session, trp_bytes config, trp_error *err) {
    float *data = calloc(ELEMENTS, sizeof(*data));
    uint64_t done, every = *(const unsigned char *)config.data;
    trp_code code =
        test_shard_read(trp_session_checkpoint(session), trp_session_rank(session), &done, err);
    trp_session_loaded(session);
    for (uint64_t step = done + 1; code == TRP_OK && step <= LAST_STEP; step++) {
        bool is_due = step % every == 0;
        for (int i = 0; code == TRP_OK && i < 10; i++) {
            code = sum_once(session, data, step, err);
        }
        if (code == TRP_OK && is_due) {
            code = write_shard(session, step, err);
        }
        if (code == TRP_OK) {
            trp_report report = {.step = step, .has_checkpoint = is_due};
            code = trp_session_report(session, &report, err);
        }
    }
    free(data);
    return code;
}

static const trp_train_function functions[] = {{"sums", sums}, {NULL, NULL}};
static const trp_actor_type *const types[] = {TRP_TRAIN_TYPES, NULL};

static void kill_rank_two(test_run_seen *seen, const trp_train_event *event) {
    if (seen->acted == 0 && event->step >= KILL_AT) {
        seen->acted = 1;
        seen->acted_ns = test_now_ns();
        assert_int_equal(kill(seen->pids[2], SIGKILL), 0);
    }
}

static void print_recovery(const test_run_seen *seen, size_t i) {
    const double *ms = seen->recovery_ms[i];
    print_message("kill to notice %.1f ms; told %.1f, respawn %.1f, rendezvous %.1f, load %.1f, "
                  "first step %.1f; kill to next step %.1f ms\n",
                  (double)(seen->failed_ns[i] - seen->acted_ns) / 1e6, ms[0], ms[1], ms[2], ms[3],
                  ms[4], (double)(seen->recovered_ns[i] - seen->acted_ns) / 1e6);
}

/* Survivors keep their processes: only the dead rank has another pid. */
static void T27_a_killed_rank_is_replaced_while_the_others_are_in_a_collective(void **state) {
    test_run_seen seen = {.on_report = kill_rank_two};
    trp_result result;
    trp_train_options options = test_run_options("sums", "collective", 4, &seen);
    options.config = (trp_bytes){"\x05", 1};
    options.run.failure.max_failures = 1;
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(seen.acted, 1);
    assert_int_equal(result.restarts, 1);
    assert_int_equal(result.steps, LAST_STEP);
    assert_int_equal(seen.recoveries, 1);
    assert_non_null(strstr(seen.failure, "rank 2 (pid "));
    assert_non_null(strstr(seen.failure, "signal 9 (SIGKILL)"));
    print_recovery(&seen, 0);
    assert_true(result.goodput > 0 && result.goodput < 1);
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static pid_t survivor;

static void kill_and_remember(test_run_seen *seen, const trp_train_event *event) {
    if (seen->acted == 0) {
        survivor = seen->pids[0];
    } else {
        assert_int_equal(seen->pids[0], survivor);
    }
    kill_rank_two(seen, event);
}

static void T27_survivors_keep_their_processes(void **state) {
    test_run_seen seen = {.on_report = kill_and_remember};
    trp_result result;
    trp_train_options options = test_run_options("sums", "survivors", 4, &seen);
    options.config = (trp_bytes){"\x05", 1};
    options.run.failure.max_failures = 1;
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(result.restarts, 1);
    trp_result_release(&result);
}

/* Kills both workers of one node, and the node daemon with them, while a checkpoint is written. */
static void kill_second_node(test_run_seen *seen, const trp_train_event *event) {
    pid_t nodes[8];
    if (seen->acted == 0 && event->step >= KILL_AT - 1) {
        seen->acted = 1;
        seen->acted_ns = test_now_ns();
        size_t count = test_cluster_pids(&cluster, "node", nodes, 8);
        assert_int_equal(count, 3);
        assert_int_equal(kill(nodes[1], SIGKILL), 0);
    }
}

static void T27_a_node_that_dies_during_an_upload_is_survived(void **state) {
    test_run_seen seen = {.on_report = kill_second_node};
    trp_result result;
    trp_train_options options = test_run_options("sums", "node", 4, &seen);
    options.config = (trp_bytes){"\x05", 1};
    options.scaling.cpus_per_worker = 1;
    options.scaling.placement = TRP_SPREAD;
    options.run.failure.max_failures = 2;
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(seen.acted, 1);
    assert_true(result.restarts >= 1);
    assert_int_equal(result.steps, LAST_STEP);
    print_recovery(&seen, 0);
    trp_result_release(&result);
}

/* The second death comes at a moment that is not chosen: while the survivors leave, while the first
 * is replaced, at the rendezvous, or just after it. */
static void kill_another(test_run_seen *seen, const trp_train_event *event) {
    if (seen->acted > 0 && seen->acted < 5 && strcmp(event->state, "SCHEDULING") == 0) {
        usleep((useconds_t)(seen->acted - 1) * 4000);
        (void)kill(seen->pids[(seen->acted + 2) % 4], SIGKILL);
        seen->acted++;
    }
}

static void T27_more_ranks_die_while_the_group_restarts(void **state) {
    test_run_seen seen = {.on_report = kill_rank_two, .on_state = kill_another};
    trp_result result;
    uint64_t begun_ms = test_now_ms();
    trp_train_options options = test_run_options("sums", "restart", 4, &seen);
    options.config = (trp_bytes){"\x05", 1};
    options.run.failure.max_failures = -1;
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_true(seen.acted >= 2);
    assert_int_equal(result.steps, LAST_STEP);
    print_message("%s, in %lu ms\n", seen.states, (unsigned long)(test_now_ms() - begun_ms));
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static void kill_when_it_goes_on(test_run_seen *seen, const trp_train_event *event) {
    if (seen->acted < 5 && event->step >= (uint64_t)(8 + 9 * seen->acted)) {
        (void)kill(seen->pids[seen->acted % (int)seen->pid_count], SIGKILL);
        seen->acted++;
    }
}

static void five_kills_end_with_every_step_done(void **state) {
    test_run_seen seen = {.on_report = kill_when_it_goes_on};
    trp_result result;
    trp_train_options options = test_run_options("sums", "five", 3, &seen);
    options.config = (trp_bytes){"\x03", 1};
    options.run.failure.max_failures = -1;
    options.run.checkpoint.keep = 1;
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(seen.acted, 5);
    assert_true(result.restarts >= 1 && result.restarts <= 5);
    assert_int_equal(result.steps, LAST_STEP);
    assert_int_equal(test_run_checkpoints(result.path), 1);
    assert_true(trpi_file_exists(test_path(result.checkpoint, "shard-2")));
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static int start(void **state) {
    return test_runs_begin(&cluster, 3, types, &rt);
}

static int stop(void **state) {
    return test_runs_end(&cluster, &rt);
}

int main(void) {
    trp_train_register(functions);
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T27_a_killed_rank_is_replaced_while_the_others_are_in_a_collective),
        cmocka_unit_test(T27_survivors_keep_their_processes),
        cmocka_unit_test(T27_more_ranks_die_while_the_group_restarts),
        cmocka_unit_test(five_kills_end_with_every_step_done),
        cmocka_unit_test(T27_a_node_that_dies_during_an_upload_is_survived),
    };
    return cmocka_run_group_tests_name("train_kill", tests, start, stop);
}

/* train_storm_test.c: ranks of a ZeRO run are killed at random moments, by a thread that knows
 * nothing of steps: in the middle of a collective, of a checkpoint's staging, sealing and commit,
 * at the rendezvous, while loading, and while an earlier kill is recovered from. The weights at the
 * end are those of a run that nobody disturbed, bit for bit, and nothing is left behind.
 *
 * The seed of the moments is printed; TROUPE_SEED=n runs that one again. Which line of code a kill
 * meets is up to the scheduler all the same. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/id.h"
#include "core/sys/file.h"
#include "tests/lib/runs.h"
#include "tests/lib/toy.h"

enum { RANKS = 3, CHECKPOINT_EVERY = 3, TARGETS_MAX = 64 };

static test_cluster cluster;
static trp_runtime *rt;

/* ---- What the ranks do ---- */

typedef struct storm_config {
    int stage;
    uint64_t steps; /* to do in all */
    char done[128]; /* the last step is not done before this file exists; "" = it may */
} storm_config;

#define ZERO_CONFIG                                                                                \
    "{\"train_batch_size\": 12, \"zero_optimization\": {\"stage\": %d, "                           \
    "\"reduce_bucket_size\": 20000}, \"optimizer\": {\"type\": \"AdamW\", \"params\": "            \
    "{\"lr\": 1e-3, \"weight_decay\": 0.1}}}"

static trp_code save_shard(trp_session *session, toy_run *toy, trp_error *err) {
    const char *dir;
    trp_zero_position position = {0};
    trp_code code = trp_session_staging(session, &dir, err);
    return code == TRP_OK ? trp_zero_save(toy->engine, dir, &position, err) : code;
}

/* Rank 0 leaves the hash of the weights beside the others' shards. */
static trp_code save_hash(trp_session *session, toy_run *toy, trp_error *err) {
    const char *dir;
    char hex[33];
    trp_code code = trp_zero_weights_hash(toy->engine, hex, err);
    if (code == TRP_OK && trp_session_rank(session) == 0) {
        code = trp_session_staging(session, &dir, err);
        if (code == TRP_OK) {
            code = trpi_file_write_atomic(test_path(dir, "weights"), trp_bytes_of(hex), err);
        }
    }
    return code;
}

/* Rank 0 looks, and all do what it saw. */
static trp_code may_end(trp_session *session, const storm_config *config, int32_t *ret_may,
                        trp_error *err) {
    *ret_may = config->done[0] == '\0' || trpi_file_exists(config->done);
    return trp_comm_broadcast(trp_session_comm(session), ret_may, sizeof *ret_may, 0, err);
}

static trp_code one_step(trp_session *session, toy_run *toy, const test_rank *self,
                         const storm_config *config, uint64_t step, trp_error *err) {
    trp_step_stats stats = {0};
    bool is_due = step % CHECKPOINT_EVERY == 0 || step == config->steps;
    trp_code code = toy_step(toy, self, step, &stats, err);
    if (code == TRP_OK && is_due) {
        code = save_shard(session, toy, err);
    }
    if (code == TRP_OK && step == config->steps) {
        code = save_hash(session, toy, err);
    }
    if (code == TRP_OK) {
        trp_metric metrics[] = {{"loss", stats.loss}};
        trp_report report = {
            .step = step, .metrics = metrics, .metric_count = 1, .has_checkpoint = is_due};
        code = trp_session_report(session, &report, err);
    }
    return code;
}

/* Holds the last step back until all kills have been done. What is repeated meanwhile changes
 * nothing: collectives, and loading the newest checkpoint. */
static trp_code wait_for_end(trp_session *session, toy_run *toy, const storm_config *config,
                             trp_error *err) {
    int32_t may = 0;
    trp_zero_position position;
    trp_code code = TRP_OK;
    while (code == TRP_OK && !may) {
        code = may_end(session, config, &may, err);
        if (code == TRP_OK && !may && trp_session_checkpoint(session) != NULL) {
            code = trp_zero_load(toy->engine, trp_session_checkpoint(session), &position, err);
        }
    }
    return code;
}

static trp_code train_steps(trp_session *session, toy_run *toy, const test_rank *self,
                            const storm_config *config, trp_error *err) {
    trp_code code = TRP_OK;
    for (uint64_t step = trp_zero_steps(toy->engine) + 1; code == TRP_OK && step <= config->steps;
         step++) {
        if (step == config->steps) {
            code = wait_for_end(session, toy, config, err);
        }
        if (code == TRP_OK) {
            code = one_step(session, toy, self, config, step, err);
        }
    }
    return code;
}

static trp_code trains(trp_session *session, trp_bytes bytes, trp_error *err) {
    storm_config config;
    toy_run toy = {0};
    trp_zero_position position;
    memcpy(&config, bytes.data, sizeof config);
    test_rank self = {.rank = trp_session_rank(session),
                      .world = trp_session_world(session),
                      .comm = trp_session_comm(session)};
    trp_code code = trp_device_open("cpu", &(trp_device_options){.threads = 1}, &self.device, err);
    if (code == TRP_OK) {
        code = toy_open(&self, toy_config(ZERO_CONFIG, config.stage), 5, &toy, err);
    }
    if (code == TRP_OK && trp_session_checkpoint(session) != NULL) {
        code = trp_zero_load(toy.engine, trp_session_checkpoint(session), &position, err);
    }
    if (code == TRP_OK) {
        trp_session_loaded(session);
        code = train_steps(session, &toy, &self, &config, err);
    }
    toy_close(&toy);
    trp_device_close(self.device);
    return code;
}

static const trp_train_function functions[] = {{"trains", trains}, {NULL, NULL}};
static const trp_actor_type *const types[] = {TRP_TRAIN_TYPES, NULL};

/* ---- Who kills them ---- */

typedef struct killer {
    unsigned seed;
    int kills; /* to do */
    const char *done;
    pthread_t thread;
    atomic_int killed;
} killer;

static atomic_ulong reports; /* that the driver has been told of */

static void wait_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static bool has_more_reports(void *before) {
    return atomic_load(&reports) > *(unsigned long *)before;
}

/* One half of the kills meets the recovery from the one before, or what comes right after it. The
 * other half waits until the run trains again, however slow this machine is, and then for a moment
 * that has nothing to do with its steps. */
static void pause_at_random(unsigned *seed) {
    unsigned long before = atomic_load(&reports);
    if (rand_r(seed) % 2 == 0) {
        wait_ms(rand_r(seed) % 100);
    } else {
        (void)test_until(has_more_reports, &before, 3000); /* it may have done all but the end */
        wait_ms(rand_r(seed) % 300);
    }
}

static void *kill_at_random(void *arg) {
    killer *k = arg;
    while (atomic_load(&k->killed) < k->kills) {
        pid_t pids[TARGETS_MAX];
        pause_at_random(&k->seed);
        size_t count = test_actor_pids(rt, trp_worker_type.name, pids, TARGETS_MAX);
        if (count > 0 && kill(pids[(size_t)rand_r(&k->seed) % count], SIGKILL) == 0) {
            atomic_fetch_add(&k->killed, 1);
        }
    }
    (void)!trpi_file_write_atomic(k->done, trp_bytes_of(""), NULL);
    return NULL;
}

/* ---- A run ---- */

static void read_weights(const trp_result *result, char ret_hex[33]) {
    trp_buf text = {0};
    TEST_OK(trpi_file_read(test_path(result->checkpoint, "weights"), 0, &text, err));
    snprintf(ret_hex, 33, "%.32s", (const char *)text.data);
    trp_buf_release(&text);
}

/* Of the run's directory: what is committed, and what belongs there. */
static void expect_clean(const char *run_path) {
    char **names = NULL;
    size_t count = 0;
    TEST_OK(trpi_dir_list(run_path, &names, &count, err));
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], ".staging", 8) == 0 || strncmp(names[i], ".deleted", 8) == 0 ||
            strstr(names[i], ".tmp") != NULL) {
            fail_msg("left in %s: %s", run_path, names[i]);
        }
    }
    trpi_names_free(names, count);
}

static double longest_recovery_ms(const trp_result *result) {
    double longest = 0;
    for (size_t i = 0; i < result->recovery_count; i++) {
        longest = result->recovery_ms[i] > longest ? result->recovery_ms[i] : longest;
    }
    return longest;
}

/* Attempts that got as far as a step. */
static void count_attempts(test_run_seen *seen, const trp_train_event *event) {
    atomic_fetch_add(&reports, 1);
    if ((uint64_t)seen->acted_ns != event->attempt) {
        seen->acted_ns = event->attempt;
        seen->acted++;
    }
}

static void train(int stage, uint64_t steps, killer *k, const char *name, char ret_hex[33]) {
    test_run_seen seen = {.on_report = count_attempts};
    trp_result result;
    storm_config config = {.stage = stage, .steps = steps};
    uint64_t begun_ms = test_now_ms();
    trp_train_options options = test_run_options("trains", name, RANKS, &seen);
    options.run.failure.max_failures = -1;
    options.run.checkpoint.keep = 1;
    if (k != NULL) {
        snprintf(config.done, sizeof config.done, "%s", k->done);
        assert_int_equal(pthread_create(&k->thread, NULL, kill_at_random, k), 0);
    }
    options.config = (trp_bytes){&config, sizeof config};
    TEST_OK(trp_fit(rt, &options, &result, err));
    if (k != NULL) {
        assert_int_equal(pthread_join(k->thread, NULL), 0);
        print_message("%d kills, %d restarts, %d attempts with steps, %lu wasted steps, recoveries "
                      "of at most %.0f ms\n",
                      atomic_load(&k->killed), result.restarts, seen.acted,
                      (unsigned long)result.wasted_steps, longest_recovery_ms(&result));
    }
    print_message("%s: %lu steps in %lu ms\n", name, (unsigned long)steps,
                  (unsigned long)(test_now_ms() - begun_ms));
    assert_int_equal(result.steps, steps);
    assert_int_equal(test_run_checkpoints(result.path), 1);
    read_weights(&result, ret_hex);
    expect_clean(result.path);
    trp_result_release(&result);
    test_expect_all_free(rt, 10000);
}

static unsigned seed_of(int stage) {
    const char *text = getenv("TROUPE_SEED");
    unsigned seed = text != NULL ? (unsigned)strtoul(text, NULL, 10)
                                 : (unsigned)(trpi_random_u64() & 0x7fffffff);
    print_message("stage %d: TROUPE_SEED=%u\n", stage, seed);
    return seed;
}

static void storm(int stage, int kills, uint64_t steps) {
    char calm[33], disturbed[33], name[64], done[128];
    snprintf(done, sizeof done, "%s/done-%d", test_run_storage(), stage);
    killer k = {.seed = seed_of(stage), .kills = kills, .done = done};
    snprintf(name, sizeof name, "calm-%d", stage);
    train(stage, steps, NULL, name, calm);
    snprintf(name, sizeof name, "storm-%d", stage);
    train(stage, steps, &k, name, disturbed);
    assert_string_equal(calm, disturbed);
}

static void twenty_kills_at_random_moments_change_no_bit_at_stage_3(void **state) {
    storm(3, 20, 150);
}

static void five_kills_at_random_moments_change_no_bit_at_stage_2(void **state) {
    storm(2, 5, 60);
}

static void five_kills_at_random_moments_change_no_bit_at_stage_1(void **state) {
    storm(1, 5, 60);
}

static void five_kills_at_random_moments_change_no_bit_at_stage_0(void **state) {
    storm(0, 5, 60);
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
        cmocka_unit_test(twenty_kills_at_random_moments_change_no_bit_at_stage_3),
        cmocka_unit_test(five_kills_at_random_moments_change_no_bit_at_stage_2),
        cmocka_unit_test(five_kills_at_random_moments_change_no_bit_at_stage_1),
        cmocka_unit_test(five_kills_at_random_moments_change_no_bit_at_stage_0),
    };
    return cmocka_run_group_tests_name("train_storm", tests, start, stop);
}

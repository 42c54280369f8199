/* runs.h: short ways to run training in a test, and what its driver saw. */
#ifndef TEST_RUNS_H
#define TEST_RUNS_H

#include <sys/types.h>
#include <troupe/train.h>

#include "tests/lib/cluster.h"

typedef struct test_run_seen {
    char states[1024]; /* "INITIALIZING SCHEDULING RUNNING ..." without repetitions */
    pid_t pids[64];    /* of the workers of the last attempt that ran, by rank */
    size_t pid_count;
    uint64_t reports, checkpoints, failures;
    char failure[1600]; /* text of the first one */
    double recovery_ms[16][5];
    uint64_t failed_ns[16], recovered_ns[16]; /* at_ns of the events */
    size_t recoveries;
    void (*on_report)(struct test_run_seen *seen, const trp_train_event *event);
    void (*on_state)(struct test_run_seen *seen, const trp_train_event *event);
    int acted; /* for the use of those two */
    uint64_t acted_ns;
    volatile int stop;
} test_run_seen;

/* Options for a run `name` in a directory of this process' own, with events going to *seen. */
trp_train_options test_run_options(const char *function, const char *name, int workers,
                                   test_run_seen *seen);
/* That directory; made at the first call, removed by test_run_clean(). */
const char *test_run_storage(void);
void test_run_clean(void);

/* Setup of a group of tests that share a cluster: so many nodes of two CPUs each, and this process
 * as a driver. The teardown asserts that nothing of it is left, and removes the storage. Both
 * return what cmocka wants of them. */
int test_runs_begin(test_cluster *cluster, size_t nodes, const trp_actor_type *const *types,
                    trp_runtime **ret_rt);
int test_runs_end(test_cluster *cluster, trp_runtime **rt);

/* A train function, "counts": counts from 1 to `last`, every step in step with the other ranks, and
 * every `every` steps each rank brings a file shard-R that tells the step. The configuration is a
 * test_count. */
typedef struct test_count {
    uint64_t last, every, pause_ms; /* every 0 = no checkpoints */
} test_count;
trp_code test_counts(trp_session *session, trp_bytes config, trp_error *err);
/* Its parts: a rank's file of a checkpoint, written into its staging directory or read back. */
TRP_CHECKED trp_code test_shard_write(trp_session *session, uint64_t step, trp_error *err);
TRP_CHECKED trp_code test_shard_read(const char *checkpoint, int rank, uint64_t *ret_step,
                                     trp_error *err);

/* What a train function found wrong: puts it into err as TRP_EUSER, which it returns. */
trp_code test_wrong(trp_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fits, expects an error of this code with this text in its message, and prints it. The result is
 * the caller's. */
void test_run_fails(trp_runtime *rt, const trp_train_options *options, trp_code code,
                    const char *text, trp_result *ret_result);

double test_metric(const trp_result *result, const char *name);
uint64_t test_now_ns(void);

/* Pids of the actors of a type that live now, whether they start, serve or leave. */
size_t test_actor_pids(trp_runtime *rt, const char *type, pid_t *pids, size_t max);

/* The step of the newest checkpoint in a run's directory; 0 if there is none. */
uint64_t test_run_step(const char *run_path);

/* Names in a run's directory that are committed checkpoints. */
size_t test_run_checkpoints(const char *run_path);

/* Joins the path of a run's file. Static buffer. */
const char *test_path(const char *dir, const char *name);

#endif

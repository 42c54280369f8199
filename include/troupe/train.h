/* train.h: run one function on N ranks; when ranks die, again from the last committed checkpoint.
 *
 *   fit() -> trainer actor -> placement group -> worker actors -> rendezvous -> communicator
 *         -> train function on every rank -> report(metrics, checkpoint) ... -> result
 *
 * The trainer is an actor, so are the workers; a worker that survives a failure keeps its process
 * and enters the train function again. Which function to run is given by name, from a table that
 * the program registers in every process before trp_init(). */
#ifndef TROUPE_TRAIN_H
#define TROUPE_TRAIN_H

#include <troupe/actor.h>
#include <troupe/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What runs on every rank ---- */

typedef struct trp_session trp_session; /* opaque: a rank's view of one attempt */

/* Returns TRP_OK when training is over, or an error; the rank has done its part when the others
 * have reported as often, for which they have report_timeout_ms. TRP_ECANCELED and
 * TRP_ECOMM_ABORTED from the calls that it makes mean "return now, another attempt is due": pass
 * them on. */
typedef trp_code (*trp_train_fn)(trp_session *session, trp_bytes config, trp_error *err);

typedef struct trp_train_function {
    const char *name;
    trp_train_fn run;
} trp_train_function;

/* Registers a table (ends with { NULL, NULL }, static storage). Call before trp_init(). */
void trp_train_register(const trp_train_function *table);

/* The actor types that a training program adds to its table for trp_init():
 *     static const trp_actor_type *const types[] = {TRP_TRAIN_TYPES, NULL}; */
extern const trp_actor_type trp_trainer_type, trp_worker_type;
#define TRP_TRAIN_TYPES &trp_trainer_type, &trp_worker_type

int trp_session_rank(const trp_session *session);
int trp_session_world(const trp_session *session);
int trp_session_local_rank(const trp_session *session);
int trp_session_local_world(const trp_session *session);
int trp_session_node_rank(const trp_session *session);
uint64_t trp_session_attempt(const trp_session *session); /* 1 at first; fences the dead */
const char *trp_session_run_name(const trp_session *session);
trp_comm *
trp_session_comm(trp_session *session); /* borrowed; exists before the function is entered */
const char *trp_session_device(const trp_session *session); /* "cpu", "cuda:0": this rank's */

/* Directory of the newest committed checkpoint that this rank knows of: the one that this attempt
 * began with, later those that it reported; NULL when there is none. Read-only; the path lives as
 * long as the session, the directory as long as run.checkpoint.keep lets it. */
const char *trp_session_checkpoint(const trp_session *session);

/* A new directory on the run's storage into which this rank writes its files for the next
 * checkpoint. It is this rank's own; at the commit the files of all ranks are moved into one
 * directory, so their names must differ. Waits until every rank has made the reports before this
 * one; ranks that bring no files need not call it. The path lives as long as the session. */
TRP_CHECKED trp_code trp_session_staging(trp_session *session, const char **ret_dir,
                                         trp_error *err);

typedef struct trp_metric {
    const char
        *name;    /* 1 to 200 bytes of UTF-8; of equal names in one report the last one counts */
    double value; /* finite or not; NaN and infinities are kept as such */
} trp_metric;

/* Optional: tells the trainer that loading is over and the first step begins, which is how the time
 * of a recovery is split. */
void trp_session_loaded(trp_session *session);

/* Reports from this rank. Numbered and collective: every rank reports the same number of times.
 * `step` is the training step that is done. With has_checkpoint, the files in this rank's staging
 * directory become part of checkpoint_%06d together with those of the other ranks that bring some
 * in the same report, and report returns only when that is durable. Without, it returns as soon as
 * the report is on its way; every 64th waits for the answers, so no rank runs further ahead.
 * TRP_ECANCELED: return from the train function, a restart or the end is due.
 * TRP_ETIMEOUT names the ranks that are behind; TRP_EINVALID a rank that has returned already. */
typedef struct trp_report {
    uint64_t step;
    const trp_metric *metrics;
    size_t metric_count; /* at most 1000 */
    bool has_checkpoint; /* this rank has put files into the staging directory */
    bool wait; /* return only when every rank has made this report and what others bring with it is
                  durable; has_checkpoint implies it */
} trp_report;
TRP_CHECKED trp_code trp_session_report(trp_session *session, const trp_report *report,
                                        trp_error *err);

/* ---- What the driver asks for. Zero-initialize; 0 and NULL are the defaults given here ---- */

typedef struct trp_scaling_config {
    int workers;            /* 1 */
    double cpus_per_worker; /* 1 if neither cpus, gpus nor resources are given */
    double gpus_per_worker; /* 0 */
    const trp_resource *resources_per_worker;
    size_t resource_count;
    trp_strategy placement; /* PACK */
} trp_scaling_config;

typedef struct trp_failure_config {
    /* 0 = none, -1 = unlimited; N = N retries, the next failure ends the run. An error of the train
     * function with the same text after the same step as its last one ends it in any case, unless
     * its code is one that trying again may mend. */
    int max_failures;
} trp_failure_config;

typedef enum trp_score_order { TRP_SCORE_MAX, TRP_SCORE_MIN } trp_score_order;

typedef struct trp_checkpoint_config {
    int keep;              /* keep this many of the best, and always the latest; 0 = keep all */
    const char *score_by;  /* metric; NULL = the newest are the best */
    trp_score_order order; /* max */
} trp_checkpoint_config;

typedef enum trp_resume { TRP_RESUME_AUTO, TRP_RESUME_MUST, TRP_RESUME_NEVER } trp_resume;

typedef struct trp_run_config {
    const char *name;         /* train_run-YYYY-MM-DD_HH-MM-SS; the identity of the run */
    const char *storage_path; /* ~/troupe_results */
    trp_failure_config failure;
    trp_checkpoint_config checkpoint;
    trp_resume resume;          /* auto: go on if {storage_path}/{name} exists; must: else refuse;
                                   never: refuse if it exists */
    uint64_t report_timeout_ms; /* 60 000: how long a report that waits lets ranks be behind */
    uint64_t start_timeout_ms;  /* 60 000: placement, start and rendezvous of all workers; what no
                                    node can hold is given up after 3 s */
} trp_run_config;

/* A worker of an attempt. */
typedef struct trp_train_worker {
    int rank, local_rank, node_rank;
    uint64_t node;
    int64_t pid;
    const char *devices; /* as in CUDA_VISIBLE_DEVICES; "" for none */
} trp_train_worker;

/* What happens, for a progress display; called in the thread that is inside trp_fit(). Everything
 * in it is borrowed for the call. A display that is too slow to follow misses reports, never the
 * other kinds; metrics.jsonl in the run's directory has them all. */
typedef struct trp_train_event {
    enum {
        TRP_TRAIN_STATE,
        TRP_TRAIN_REPORT,
        TRP_TRAIN_CHECKPOINT,
        TRP_TRAIN_FAILURE,
        TRP_TRAIN_RECOVERED
    } kind;
    const char *text; /* one line, for a human */
    uint64_t attempt, step;
    const trp_metric *metrics; /* REPORT: rank 0's */
    size_t metric_count;
    const char *state;     /* STATE: "RUNNING" ... */
    double recovery_ms[5]; /* RECOVERED: detect, respawn, rendezvous, load, first step */
    uint64_t at_ns; /* CLOCK_MONOTONIC of the trainer's host; of a FAILURE: when it was noticed, so
                       that whoever knows the time of death on that host knows how long that took */
    const trp_train_worker *workers; /* STATE "RUNNING": who trains */
    size_t worker_count;
} trp_train_event;

typedef struct trp_train_options {
    const char *function; /* a registered name */
    trp_bytes config;     /* copied; handed byte-equal to every rank */
    trp_scaling_config scaling;
    trp_run_config run;
    void (*on_event)(void *arg, const trp_train_event *event); /* none */
    void *on_event_arg;
    const volatile int *stop; /* NULL, or set non-zero (by a signal handler) to abort the run */
} trp_train_options;

typedef enum trp_run_state {
    TRP_RUN_INITIALIZING,
    TRP_RUN_SCHEDULING,
    TRP_RUN_RESCHEDULING,
    TRP_RUN_RUNNING,
    TRP_RUN_RESTARTING,
    TRP_RUN_RESIZING,
    TRP_RUN_SHUTTING_DOWN,
    TRP_RUN_ERRORED,
    TRP_RUN_FINISHED,
    TRP_RUN_ABORTED
} trp_run_state;
const char *trp_run_state_name(trp_run_state state); /* "RUNNING"; static */

typedef struct trp_rank_failure {
    int rank;
    trp_error error;
    trp_death death; /* cause NONE when the train function returned an error */
} trp_rank_failure;

typedef struct trp_result {
    trp_run_state state; /* FINISHED, ERRORED or ABORTED */
    trp_error error;     /* code 0 when FINISHED */
    char *path;          /* {storage_path}/{name} */
    char *checkpoint;    /* latest committed directory; NULL if there is none */
    trp_metric *metrics; /* of rank 0's last report */
    size_t metric_count;
    trp_rank_failure *failures; /* of the failure that ended the run, in order of time */
    size_t failure_count;
    int restarts;          /* attempts after the first, in this fit() */
    uint64_t steps;        /* last step reported */
    uint64_t wasted_steps; /* steps that had to be done again */
    double goodput;        /* 0..1: time of steps that counted / time since training began */
    double wall_s;
    double *recovery_ms; /* one per restart: notice of the failure to the next step done */
    size_t recovery_count;
} trp_result;

/* Runs training to its end. Blocks. Returns the code of result->error (TRP_ECANCELED when it was
 * stopped, or when another driver has taken the run over: it belongs to who began last). A
 * configuration that is refused starts nothing and leaves *ret_result zeroed:
 * TRP_EINVALID; TRP_EEXISTS or TRP_ENOTFOUND by run.resume; TRP_EIO for a storage that cannot be
 * written. In every other case the result is filled. Give it back with trp_result_release() in any
 * case. */
TRP_CHECKED trp_code trp_fit(trp_runtime *rt, const trp_train_options *options,
                             trp_result *ret_result, trp_error *err);
void trp_result_release(trp_result *result);

#ifdef __cplusplus
}
#endif
#endif

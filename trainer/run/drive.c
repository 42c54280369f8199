/* drive.c: carries out what the controller decides. Makes no decision itself: every function here
 * ends in the event that says how it went. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/id.h"
#include "core/base/log.h"
#include "trainer/run/clock.h"
#include "trainer/run/trainer.h"

enum {
    SLICE_MS = 50,           /* how late a stop or an expired report is noticed at most */
    LEAVE_TIMEOUT_MS = 5000, /* for survivors to leave the train function */
    DIE_TIMEOUT_MS = 10000,  /* from SIGKILL to the notice of death */
    PUBLISH_MS = 1000,
    START_FAILURES_MAX = 3,
};

static void lock(trpi_trainer *t) {
    pthread_mutex_lock(&t->lock);
}

static void unlock(trpi_trainer *t) {
    pthread_mutex_unlock(&t->lock);
}

/* ---- What the cluster is told: `troupe list runs` ---- */

static void publish(trpi_trainer *t) {
    trp_buf text = {0}, key = {0};
    trp_error err = {0};
    t->published_ns = trpi_run_now_ns();
    lock(t);
    trp_code code =
        trpi_record_summary(&t->record, trp_context_actor(t->ctx).id, t->controller.state,
                            t->controller.restarts, t->progress.step, &text, &err);
    unlock(t);
    if (code == TRP_OK) {
        code = trp_buf_printf(&key, "run/%s", t->plan.name);
    }
    if (code == TRP_OK) {
        code = trp_kv_put(t->rt, (const char *)key.data, trp_buf_bytes(&text), &err);
    }
    if (code != TRP_OK) { /* the list is behind for a while; the run is not */
        trpi_log(TRPI_WARN, "publish_run", "error=\"%s\"", err.message);
    }
    trp_buf_release(&text);
    trp_buf_release(&key);
}

/* ---- Checkpoints ---- */

static void on_damaged(void *arg, const char *text) {
    trpi_news_state(arg, text);
}

/* Whether this trainer has to stop because another one has begun an attempt of the same run. */
static bool is_superseded(trpi_trainer *t) {
    trp_error err = {0};
    lock(t);
    trp_code code = trpi_record_check_owner(&t->record, &err);
    unlock(t);
    if (code != TRP_ECANCELED) { /* a storage that cannot be read fails what needs it */
        return false;
    }
    t->broken = err;
    t->superseded = true;
    return true;
}

/* Finds what the next attempt begins with, and makes its number durable before anybody uses it. */
static trp_code prepare_attempt(trpi_trainer *t, trp_error *err) {
    const trpi_record_entry *newest = NULL;
    uint64_t attempt = t->controller.attempt + 1;
    trp_buf_clear(&t->from);
    trp_code code = trpi_record_begin(&t->record, attempt, on_damaged, t, &newest, err);
    if (code == TRP_OK && newest != NULL) {
        code = trpi_record_path(&t->record, newest->number, &t->from);
    }
    if (code == TRP_OK) {
        t->from_step = newest != NULL ? newest->manifest.step : 0;
        trpi_progress_restart(&t->progress, t->from_step);
        code = trpi_record_write(&t->record, t->controller.state, t->controller.restarts,
                                 t->progress.step, err);
    }
    return code;
}

/* ---- Starting ---- */

static trp_code send_train(trpi_trainer *t, const trpi_run_joined *joined, uint64_t token,
                           trp_error *err) {
    trpi_run_assignment common = {
        .attempt = t->controller.attempt,
        .token = token,
        .address = joined->address,
        .master_addr = joined->master_addr,
        .master_port = joined->master_port,
        .function = t->plan.function,
        .config = t->plan.config,
        .run_name = t->plan.name,
        .run_dir = trpi_ckpt_store_path(t->record.store),
        .checkpoint = t->from.size > 0 ? (const char *)t->from.data : "",
        .step = t->from_step,
        .device = t->plan.gpus > 0 ? "cuda:0" : "cpu",
        .trainer = trp_context_actor(t->ctx).id,
        .report_timeout_ms = t->plan.report_timeout_ms,
        .start_timeout_ms = t->plan.start_timeout_ms,
    };
    lock(t);
    trp_code code = trpi_collector_open(&t->collector, t->controller.attempt, t->gang.count, err);
    unlock(t);
    return code == TRP_OK ? trpi_run_gang_train(&t->gang, &common, err) : code;
}

/* Spawns, assembles, meets and trains. */
static trp_code start_gang(trpi_trainer *t, uint64_t deadline_ns, trp_error *err) {
    trpi_arena arena = {0};
    trpi_run_joined joined;
    uint64_t token = trpi_random_u64();
    trp_code code = trpi_run_gang_spawn(&t->gang, err);
    if (code == TRP_OK) {
        code = trpi_run_gang_assemble(&t->gang, deadline_ns, err);
    }
    t->recovery.respawned_ns = trpi_run_now_ns();
    if (code == TRP_OK) {
        code = trpi_run_gang_join(&t->gang, t->controller.attempt, token, deadline_ns, &arena,
                                  &joined, err);
    }
    if (code == TRP_OK) {
        code = send_train(t, &joined, token, err);
    }
    trpi_arena_release(&arena);
    return code;
}

/* A gang that cannot be placed within its time will not be placed by asking again; a worker that
 * does not start, or dies while starting, may. */
static trpi_control_event start_attempt(trpi_trainer *t) {
    uint64_t deadline_ns = trpi_run_deadline_ns(t->plan.start_timeout_ms);
    t->broken = (trp_error){0};
    trpi_control_event failure = TRPI_ON_BROKEN;
    publish(t);
    trp_code code = trpi_run_gang_place(&t->gang, deadline_ns, &t->broken);
    if (code == TRP_OK) {
        code = start_gang(t, deadline_ns, &t->broken);
        failure = code != TRP_OK && trpi_run_gang_was_hit(&t->gang, code) ? TRPI_ON_START_LOST
                                                                          : TRPI_ON_START_FAILED;
    }
    if (code != TRP_OK) {
        t->broken.code = code;
        return atomic_load(&t->stop) ? TRPI_ON_ABORT : failure;
    }
    return TRPI_ON_STARTED;
}

/* ---- Failures ---- */

/* Ranks that were told to leave, or whose collective broke because another rank was lost, did not
 * fail themselves. */
static bool is_collateral(const trp_rank_failure *failure) {
    return failure->death.cause == TRP_CAUSE_NONE &&
           (failure->error.code == TRP_ECOMM_ABORTED || failure->error.code == TRP_ECANCELED);
}

/* In order of time, but what failed by itself stands before what failed with it. */
static void note_failure(trpi_trainer *t, const trp_rank_failure *failure) {
    t->failures = trpi_realloc(t->failures, (t->failure_count + 1) * sizeof(*t->failures));
    size_t at = t->failure_count++;
    while (!is_collateral(failure) && at > 0 && is_collateral(&t->failures[at - 1])) {
        t->failures[at] = t->failures[at - 1];
        at--;
    }
    t->failures[at] = *failure;
}

/* An error that the function returned and that is not the machine's: what trying again may mend (a
 * timeout, a device, a disk) is. */
static trpi_failure_mark mark_of(const trpi_member_end *end) {
    const trp_error *error = &end->error;
    return (trpi_failure_mark){
        .is_program = end->has_left && !trp_code_retryable(error->code),
        .step = end->step,
        .hash = trpi_hash64(error->message, strlen(error->message)),
    };
}

static void fail(trpi_trainer *t, int rank, const trpi_member_end *end, uint64_t noticed_ns) {
    trp_rank_failure failure = {.rank = rank, .error = end->error, .death = end->death};
    lock(t);
    if (t->recovery.noticed_ns == 0) {
        t->recovery.noticed_ns = noticed_ns;
    }
    note_failure(t, &failure);
    if (!is_collateral(&failure)) {
        trpi_news_failure(t, &failure, noticed_ns);
    }
    if (t->failures[0].rank == rank) {
        t->controller.mark = is_collateral(&failure) ? (trpi_failure_mark){0} : mark_of(end);
    }
    unlock(t);
}

/* Takes the end of a member's call; false if it was a failure. */
static bool collect(trpi_trainer *t, trpi_member *member) {
    trpi_member_end end;
    uint64_t now_ns = trpi_run_now_ns();
    if (trpi_run_gang_collect(&t->gang, member, &end) != TRP_OK) {
        fail(t, member->rank, &end, now_ns);
        return false;
    }
    lock(t);
    trpi_collector_finish(&t->collector, member->rank);
    unlock(t);
    return true;
}

static trpi_control_event watch_attempt(trpi_trainer *t) {
    publish(t);
    while (trpi_run_gang_training(&t->gang) > 0) {
        if (atomic_load(&t->stop)) {
            return TRPI_ON_ABORT;
        }
        trpi_member *member = trpi_run_gang_wait(&t->gang, SLICE_MS);
        if (member != NULL && !collect(t, member)) {
            return is_superseded(t) ? TRPI_ON_BROKEN : TRPI_ON_RANK_FAILED;
        }
        uint64_t now_ns = trpi_run_now_ns();
        lock(t);
        trpi_collector_expire(&t->collector, now_ns);
        unlock(t);
        if (now_ns - t->published_ns > trpi_run_ms(PUBLISH_MS)) {
            if (is_superseded(t)) {
                return TRPI_ON_BROKEN;
            }
            publish(t);
        }
    }
    return TRPI_ON_ALL_FINISHED;
}

/* ---- Stopping ---- */

/* Whoever starts while the survivors leave is not waited for later. */
static void respawn(trpi_trainer *t) {
    trp_error err = {0};
    if (trpi_run_gang_spawn(&t->gang, &err) !=
        TRP_OK) { /* the next start tries again and says so */
        trpi_log(TRPI_WARN, "respawn", "error=\"%s\"", err.message);
    }
}

/* Until no train call is under way, or the time has passed. */
static void settle(trpi_trainer *t, uint64_t timeout_ms, bool replace) {
    uint64_t deadline_ns = trpi_run_deadline_ns(timeout_ms);
    while (trpi_run_gang_training(&t->gang) > 0 && trpi_run_now_ns() < deadline_ns) {
        trpi_member *member = trpi_run_gang_wait(&t->gang, SLICE_MS);
        if (member != NULL && !collect(t, member) && replace && !member->living) {
            respawn(t);
        }
    }
}

/* Gets everybody out of the attempt. With `replace` the dead are spawned again meanwhile. */
static void leave_attempt(trpi_trainer *t, bool replace) {
    lock(t);
    trpi_collector_close(&t->collector, "the attempt is over");
    unlock(t);
    trpi_run_gang_abort(&t->gang, t->controller.attempt);
    t->recovery.told_ns = trpi_run_now_ns();
    if (replace) {
        respawn(t);
    }
    settle(t, LEAVE_TIMEOUT_MS, replace);
    if (trpi_run_gang_training(&t->gang) > 0) {
        trpi_run_gang_kill_training(&t->gang);
        settle(t, DIE_TIMEOUT_MS, replace);
    }
    bool aborted =
        t->controller.state == TRP_RUN_SHUTTING_DOWN && t->controller.outcome == TRP_RUN_ABORTED;
    if (t->failure_count > 0 && is_collateral(&t->failures[0]) && !aborted && !t->superseded) {
        lock(t);
        trpi_news_failure(t, &t->failures[0], t->recovery.noticed_ns);
        unlock(t);
    }
}

/* Bundles of a node that died are placed elsewhere by the head; a group that somebody removed is
 * not. */
static bool placement_is_lost(const trpi_trainer *t) {
    for (size_t i = 0; i < t->failure_count; i++) {
        if (t->failures[i].death.cause == TRP_CAUSE_GROUP_REMOVED) {
            return true;
        }
    }
    return false;
}

static trpi_control_event stop_attempt(trpi_trainer *t) {
    bool anew = placement_is_lost(t);
    leave_attempt(t, !anew);
    if (anew) {
        trpi_run_gang_clear(&t->gang, DIE_TIMEOUT_MS);
    }
    trp_error err = {0};
    lock(t);
    trp_code code = prepare_attempt(t, &err);
    unlock(t);
    if (code != TRP_OK) {
        t->broken = err;
        t->broken.code = code;
        t->superseded = code == TRP_ECANCELED;
        return TRPI_ON_BROKEN;
    }
    free(t->failures);
    t->failures = NULL;
    t->failure_count = 0;
    return atomic_load(&t->stop) ? TRPI_ON_ABORT : TRPI_ON_STOPPED;
}

static trpi_control_event tear_down(trpi_trainer *t) {
    leave_attempt(t, false);
    trpi_run_gang_clear(&t->gang, DIE_TIMEOUT_MS);
    return TRPI_ON_TORN_DOWN;
}

/* ---- The loop ---- */

static trpi_control_event carry_out(trpi_trainer *t, trpi_control_action action) {
    switch (action) {
    case TRPI_DO_START:
        return start_attempt(t);
    case TRPI_DO_WATCH:
        return watch_attempt(t);
    case TRPI_DO_STOP:
        return stop_attempt(t);
    case TRPI_DO_TEAR_DOWN:
        return tear_down(t);
    case TRPI_DO_NOTHING:
    case TRPI_DO_END:
        break;
    }
    return TRPI_ON_BROKEN;
}

static void enter_running(trpi_trainer *t) {
    uint64_t now_ns = trpi_run_now_ns();
    trpi_progress_begin(&t->progress, now_ns);
    if (t->recovery.noticed_ns != 0) {
        t->recovery.started_ns = now_ns;
    } else {
        t->recovery = (trpi_recovery){0};
    }
    trpi_news_running(t);
}

static trpi_control_action step(trpi_trainer *t, trpi_control_event event) {
    lock(t);
    trp_run_state before = t->controller.state;
    trpi_control_action action = trpi_controller_step(&t->controller, event);
    const char *wrong = trpi_controller_check(&t->controller);
    TRP_ASSERT(wrong == NULL && action != TRPI_DO_NOTHING);
    if (t->controller.state == TRP_RUN_RUNNING) {
        enter_running(t);
    } else if (t->controller.state != before) {
        bool is_broken =
            event == TRPI_ON_START_FAILED || event == TRPI_ON_START_LOST || event == TRPI_ON_BROKEN;
        trpi_news_state(t, is_broken ? t->broken.message : "");
    }
    unlock(t);
    return action;
}

/* INITIALIZING: reads the run's directory. */
static trpi_control_event begin(trpi_trainer *t) {
    char text[512] = "";
    trp_error err = {0};
    lock(t);
    trp_code code = trpi_record_open(&t->record, &t->plan, &err);
    t->controller.attempt = t->record.attempt;
    if (code == TRP_OK) {
        code = prepare_attempt(t, &err);
    }
    if (code == TRP_OK && t->from.size > 0) {
        trpi_format(text, sizeof(text), "goes on from %s (step %" PRIu64 ")",
                    (const char *)t->from.data, t->progress.step);
    }
    trpi_news_state(t, text);
    unlock(t);
    t->broken = err;
    t->broken.code = code;
    t->superseded = code == TRP_ECANCELED;
    if (code == TRP_OK) {
        code = trpi_run_gang_init(&t->gang, t->rt, &t->plan, &t->stop, &t->broken);
    }
    return code == TRP_OK ? TRPI_ON_BEGIN : TRPI_ON_BROKEN;
}

static void end(trpi_trainer *t) {
    trp_error err = {0};
    lock(t);
    trpi_progress_end(&t->progress, trpi_run_now_ns());
    trp_code code = TRP_OK;
    bool owns = t->record.owned && !t->superseded;
    if (owns) {
        code = trpi_record_write(&t->record, t->controller.state, t->controller.restarts,
                                 t->progress.step, &err);
    }
    if (code != TRP_OK) {
        trpi_log(TRPI_WARN, "write_run_json", "error=\"%s\"", err.message);
    }
    unlock(t);
    if (owns) {
        publish(t);
    }
    lock(t);
    code = trpi_news_end(t, &err);
    unlock(t);
    if (code != TRP_OK) { /* the driver learns from our death what it cannot be told */
        trpi_log(TRPI_ERROR, "result_lost", "error=\"%s\"", err.message);
        _exit(70);
    }
}

void *trpi_trainer_drive(void *trainer) {
    trpi_trainer *t = trainer;
    t->controller.max_failures = (int)t->plan.max_failures;
    t->controller.start_failures_max = START_FAILURES_MAX;
    trpi_control_action action = step(t, begin(t));
    while (action != TRPI_DO_END) {
        action = step(t, carry_out(t, action));
    }
    end(t);
    return NULL;
}

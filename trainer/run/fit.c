/* fit.c: the driver's side of a run: checks what was asked for, starts the trainer, hands it the
 * plan and listens until it is told the result.
 *
 * The trainer's death ends the run: its workers belong to it and go with it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/log.h"
#include "trainer/ckpt/store.h"
#include "trainer/run/clock.h"
#include "trainer/run/config.h"
#include "trainer/run/messages.h"
#include "trainer/run/result.h"

enum {
    SLICE_MS = 50, /* how late options->stop is noticed at most */
    FIT_TIMEOUT_MS = 60000,
    ABORT_TIMEOUT_MS = 60000, /* for the trainer to stop everybody; then it is killed */
    LEAVE_TIMEOUT_MS = 5000,
    PROBE_MS = 2000,         /* how often the head is asked for a sign of life */
    HEAD_TIMEOUT_MS = 12000, /* by then the nodes have given up what ran under it */
};

typedef struct fit {
    trp_runtime *rt;
    const trp_train_options *options;
    trp_result *result;
    const char *name; /* the run's */
    trp_actor trainer;
    uint64_t heard;          /* number of the last event */
    uint64_t abort_until_ns; /* 0 = not aborted */
    uint64_t probed_ns;      /* when the head was last asked */
    uint64_t head_lost_ns;   /* since when it has not answered; 0 = it does */
    bool ended;
} fit;

/* ---- Before anything is started ---- */

/* Opens the run's directory once from here, so that a storage that cannot be written and a name
 * that exists, or does not, are refused by the process that asked. */
static trp_code check_storage(const trp_train_options *options, const trpi_run_plan *plan,
                              char **ret_path, trp_error *err) {
    static const trpi_ckpt_store_mode modes[] = {TRPI_CKPT_STORE_AUTO, TRPI_CKPT_STORE_MUST,
                                                 TRPI_CKPT_STORE_NEVER};
    trpi_ckpt_store *store = NULL;
    trp_code code = trpi_ckpt_store_open(plan->storage, plan->name, modes[options->run.resume],
                                         &store, NULL, err);
    if (code != TRP_OK) {
        return trpi_context(err, code, "run \"%s\"", plan->name);
    }
    *ret_path = strdup(trpi_ckpt_store_path(store));
    trpi_ckpt_store_close(store);
    return *ret_path != NULL ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "run \"%s\"", plan->name);
}

/* ---- Events ---- */

typedef struct event_lists {
    trp_metric *metrics;
    trp_train_worker *workers;
} event_lists;

static bool copy_lists(const trpi_run_event *from, trpi_arena *arena, event_lists *ret_lists) {
    ret_lists->metrics = trpi_arena_alloc(arena, from->metrics_count * sizeof(trp_metric));
    ret_lists->workers = trpi_arena_alloc(arena, from->members_count * sizeof(trp_train_worker));
    if (ret_lists->metrics == NULL || ret_lists->workers == NULL) {
        return false;
    }
    for (size_t i = 0; i < from->metrics_count; i++) {
        ret_lists->metrics[i] = (trp_metric){from->metrics[i].name, from->metrics[i].value};
    }
    for (size_t i = 0; i < from->members_count; i++) {
        const trpi_run_member *member = &from->members[i];
        ret_lists->workers[i] = (trp_train_worker){.rank = (int)member->rank,
                                                   .local_rank = (int)member->local_rank,
                                                   .node_rank = (int)member->node_rank,
                                                   .node = member->node,
                                                   .pid = member->pid,
                                                   .devices = member->devices};
    }
    return true;
}

static trp_code tell_event(fit *f, trp_bytes packed, trpi_arena *arena, trp_error *err) {
    trpi_run_event from;
    event_lists lists;
    trp_code code = trpi_unpack_event(packed, arena, &from, err);
    if (code != TRP_OK || f->options->on_event == NULL) {
        return code;
    }
    if (!copy_lists(&from, arena, &lists)) {
        return trpi_fail(err, TRP_ENOMEM, "event");
    }
    trp_train_event event = {.text = from.text,
                             .attempt = from.attempt,
                             .step = from.step,
                             .metrics = lists.metrics,
                             .metric_count = from.metrics_count,
                             .state = trp_run_state_name((trp_run_state)from.state),
                             .at_ns = from.at_ns,
                             .workers = lists.workers,
                             .worker_count = from.members_count};
    event.kind = from.kind <= TRP_TRAIN_RECOVERED ? (int)from.kind : TRP_TRAIN_STATE;
    for (size_t i = 0; i < TRPI_MIN(from.recovery_ms_count, TRPI_COUNTOF(event.recovery_ms)); i++) {
        event.recovery_ms[i] = from.recovery_ms[i].value;
    }
    f->options->on_event(f->options->on_event_arg, &event);
    return TRP_OK;
}

static trp_code take_events(fit *f, trp_bytes value, trp_error *err) {
    trpi_arena arena = {0};
    trpi_run_events answer;
    trp_code code = trpi_unpack_events(value, &arena, &answer, err);
    for (size_t i = 0; code == TRP_OK && i < answer.events_count; i++) {
        code = tell_event(f, answer.events[i].bytes, &arena, err);
    }
    if (code == TRP_OK) {
        f->heard = answer.last;
    }
    if (code == TRP_OK && answer.result.size > 0) {
        trpi_run_result message;
        code = trpi_unpack_result(answer.result, &arena, &message, err);
        if (code == TRP_OK) {
            code = trpi_result_fill(f->result, &message, err);
            f->ended = code == TRP_OK;
        }
    }
    trpi_arena_release(&arena);
    return code;
}

/* ---- Stopping ---- */

static bool asked_to_stop(const fit *f) {
    return f->options->stop != NULL && *f->options->stop != 0;
}

static trp_code forward_stop(fit *f, trp_error *err) {
    if (!asked_to_stop(f)) {
        return TRP_OK;
    }
    if (f->abort_until_ns == 0) {
        trp_ref ref;
        f->abort_until_ns = trpi_run_deadline_ns(ABORT_TIMEOUT_MS);
        trp_code code = trp_call(f->rt, f->trainer, "abort", (trp_bytes){0}, 0, &ref, err);
        if (code == TRP_OK) {
            trp_ref_release(f->rt, ref);
        }
        return code;
    }
    return trpi_run_now_ns() < f->abort_until_ns
               ? TRP_OK
               : trpi_fail(err, TRP_ETIMEOUT, "the trainer does not stop the run");
}

/* ---- The head ---- */

/* Of the trainer's death we hear from the head: without one we would listen for ever. */
static trp_code probe_head(fit *f, trp_error *err) {
    trp_error inner = {0};
    trp_buf value = {0};
    uint64_t now_ns = trpi_run_now_ns();
    if (now_ns - f->probed_ns < trpi_run_ms(PROBE_MS)) {
        return TRP_OK;
    }
    f->probed_ns = now_ns;
    trp_code code = trp_kv_get(f->rt, "run", &value, &inner);
    trp_buf_release(&value);
    if (code != TRP_EDISCONNECTED && code != TRP_ETIMEOUT) {
        f->head_lost_ns = 0; /* it has answered, whatever */
        return TRP_OK;
    }
    f->head_lost_ns = f->head_lost_ns != 0 ? f->head_lost_ns : now_ns;
    return now_ns - f->head_lost_ns < trpi_run_ms(HEAD_TIMEOUT_MS)
               ? TRP_OK
               : trpi_fail(err, TRP_EDISCONNECTED,
                           "the head has not answered for %d s, and what ran under it has ended by "
                           "now; when the cluster is up again, the same command goes on from the "
                           "last checkpoint",
                           HEAD_TIMEOUT_MS / 1000);
}

static trp_code look_around(fit *f, trp_error *err) {
    trp_code code = forward_stop(f, err);
    return code == TRP_OK ? probe_head(f, err) : code;
}

/* ---- Listening ---- */

/* Until the trainer has answered; a stop is heard also while one event follows the other. */
static trp_code wait_answer(fit *f, trp_ref ref, uint64_t deadline_ns, trp_bytes *ret_value,
                            trp_error *err) {
    bool done = false;
    trp_code code = look_around(f, err);
    while (code == TRP_OK && !done) {
        uint64_t slice = trpi_run_slice_ms(deadline_ns, SLICE_MS);
        code = trp_wait(f->rt, &ref, 1, 1, slice, &done, err);
        if (code == TRP_OK && !done) {
            code = slice > 0 ? look_around(f, err)
                             : trpi_fail(err, TRP_ETIMEOUT, "the trainer does not answer");
        }
    }
    return code == TRP_OK ? trp_get(f->rt, ref, 0, ret_value, err) : code;
}

static trp_code listen(fit *f, trp_error *err) {
    trp_code code = TRP_OK;
    while (code == TRP_OK && !f->ended) {
        trp_buf args = {0};
        trp_ref ref;
        code = trpi_pack_poll(&(trpi_run_poll){f->heard}, &args, err);
        if (code == TRP_OK) {
            code = trp_call(f->rt, f->trainer, "events", trp_buf_bytes(&args), 0, &ref, err);
        }
        if (code == TRP_OK) {
            trp_bytes value;
            code = wait_answer(f, ref, TRP_FOREVER, &value, err);
            code = code == TRP_OK ? take_events(f, value, err) : code;
            trp_ref_release(f->rt, ref);
        }
        trp_buf_release(&args);
    }
    return code;
}

/* ---- The trainer's life ---- */

static trp_code start_trainer(fit *f, const trpi_run_plan *plan, trp_error *err) {
    trp_buf args = {0};
    trp_ref ref;
    trp_bytes value;
    trp_spawn_options options = {0}; /* it works little and holds no resources */
    trp_code code = trpi_pack_plan(plan, &args, err);
    if (code == TRP_OK) {
        code = trp_spawn(f->rt, trp_trainer_type.name, (trp_bytes){0}, &options, &f->trainer, err);
    }
    if (code == TRP_OK) {
        code = trp_call(f->rt, f->trainer, "fit", trp_buf_bytes(&args), 0, &ref, err);
    }
    if (code == TRP_OK) {
        code = wait_answer(f, ref, trpi_run_deadline_ns(FIT_TIMEOUT_MS), &value, err);
        trp_ref_release(f->rt, ref);
    }
    trp_buf_release(&args);
    return code == TRP_OK ? code : trpi_context(err, code, "start the trainer");
}

/* Returns when it is gone, so that nothing of the run is left when trp_fit() returns. */
static void end_trainer(fit *f) {
    trp_error err = {0};
    if (f->trainer.id == 0) {
        return;
    }
    if (!f->ended || trp_ask(f->rt, f->trainer, "leave", (trp_bytes){0}, LEAVE_TIMEOUT_MS, NULL,
                             &err) != TRP_OK) {
        if (trp_kill(f->rt, f->trainer, false, &err) != TRP_OK) {
            trpi_log(TRPI_WARN, "end_trainer", "error=\"%s\"", err.message);
        }
    }
    uint64_t until_ns = trpi_run_deadline_ns(LEAVE_TIMEOUT_MS);
    trp_actor_info info = {0};
    while (trpi_run_now_ns() < until_ns &&
           trp_actor_get_info(f->rt, f->trainer, &info, &err) == TRP_OK &&
           info.phase != TRP_ACTOR_DEAD) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

/* What the trainer would have told: the run's directory knows it, too. Nothing to be found there is
 * no error of its own beside the one that ended the run. */
static void find_checkpoint(fit *f) {
    trpi_ckpt_store *store = NULL;
    trpi_checkpoint *all = NULL;
    size_t count = 0;
    if (f->result->checkpoint == NULL &&
        trpi_ckpt_store_open_path(f->result->path, &store, NULL) == TRP_OK &&
        trpi_ckpt_store_list(store, &all, &count, NULL) == TRP_OK) {
        const trpi_checkpoint *newest = NULL;
        for (size_t i = 0; i < count; i++) {
            newest = all[i].damage.code == TRP_OK ? &all[i] : newest;
        }
        f->result->checkpoint = newest != NULL ? strdup(newest->path) : NULL;
        f->result->steps = newest != NULL ? newest->manifest.step : 0;
    }
    trpi_checkpoints_free(all, count);
    trpi_ckpt_store_close(store);
}

/* The run ended without the trainer's word. */
static void set_lost(fit *f, trp_code code, const trp_error *err) {
    bool aborted = f->abort_until_ns != 0;
    f->result->state = aborted ? TRP_RUN_ABORTED : TRP_RUN_ERRORED;
    f->result->error = *err;
    f->result->error.code = aborted ? TRP_ECANCELED : code;
    find_checkpoint(f);
    if (code == TRP_EACTOR_DIED || code == TRP_ENODE_DIED) {
        trpi_context(&f->result->error, f->result->error.code,
                     "the trainer of run \"%s\" was lost; the same command goes on from %s",
                     f->name,
                     f->result->checkpoint != NULL ? f->result->checkpoint : "the beginning");
    }
}

trp_code trp_fit(trp_runtime *rt, const trp_train_options *options, trp_result *ret_result,
                 trp_error *err) {
    *ret_result = (trp_result){0};
    fit f = {.rt = rt, .options = options, .result = ret_result};
    uint64_t begun_ns = trpi_run_now_ns();
    trpi_arena arena = {0};
    trpi_run_plan plan;
    trp_error inner = {0};
    trp_code code = trpi_train_config_check(options, &arena, &plan, err);
    if (code == TRP_OK) {
        code = check_storage(options, &plan, &ret_result->path, err);
    }
    if (code != TRP_OK) {
        trpi_arena_release(&arena);
        return code;
    }
    f.name = plan.name;
    code = start_trainer(&f, &plan, &inner);
    if (code == TRP_OK) {
        code = listen(&f, &inner);
    }
    if (code != TRP_OK) {
        set_lost(&f, code, &inner);
    }
    end_trainer(&f);
    ret_result->wall_s = (double)(trpi_run_now_ns() - begun_ns) / 1e9;
    trpi_arena_release(&arena);
    if (ret_result->error.code != TRP_OK && err != NULL) {
        *err = ret_result->error;
    }
    return ret_result->error.code;
}

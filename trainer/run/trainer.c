/* trainer.c: the actor: its methods, served by its first thread. See trainer.h. */
#include "trainer/run/trainer.h"

#include <stdlib.h>

#include "core/base/log.h"
#include "trainer/run/clock.h"

static trp_code start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    trpi_trainer *t = state;
    t->ctx = ctx;
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        return trpi_fail(err, TRP_ENOMEM, "trainer");
    }
    t->collector.hooks = trpi_trainer_hooks(t);
    return TRP_OK;
}

static void stop(trp_context *ctx, void *state) {
    trpi_trainer *t = state;
    if (t->has_thread) {
        atomic_store(&t->stop, true);
        pthread_join(t->thread, NULL);
    }
    trpi_collector_release(&t->collector);
    trpi_record_release(&t->record);
    trpi_journal_release(&t->journal);
    trpi_manifest_release(&t->last);
    trpi_gang_release(&t->gang);
    trp_buf_release(&t->from);
    free(t->recovery_ms);
    free(t->failures);
    trpi_arena_release(&t->arena);
    trp_buf_release(&t->plan_bytes);
    pthread_mutex_destroy(&t->lock);
}

/* The plan outlives the call that brings it, so it is unpacked from a copy. */
static trp_code keep_plan(trpi_trainer *t, trp_bytes args, trp_error *err) {
    trp_code code = trp_buf_append(&t->plan_bytes, args.data, args.size);
    if (code != TRP_OK) {
        return trpi_fail(err, code, "plan");
    }
    code = trpi_unpack_plan(trp_buf_bytes(&t->plan_bytes), &t->arena, &t->plan, err);
    if (code == TRP_OK && (t->plan.workers < 1 || t->plan.workers > INT32_MAX ||
                           t->plan.placement > TRP_STRICT_SPREAD || t->plan.max_failures < -1 ||
                           t->plan.max_failures > INT32_MAX)) {
        return trpi_fail(err, TRP_EPROTOCOL, "plan: out of range");
    }
    return code;
}

static trp_code fit(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply, trp_error *err) {
    trpi_trainer *t = state;
    if (t->has_thread) {
        return trpi_fail(err, TRP_EEXISTS, "this trainer has its run already");
    }
    trp_code code = keep_plan(t, args, err);
    if (code != TRP_OK) {
        return code;
    }
    t->rt = trp_context_runtime(ctx, err);
    if (t->rt == NULL) {
        return err->code;
    }
    if (pthread_create(&t->thread, NULL, trpi_trainer_drive, t) != 0) {
        return trpi_fail(err, TRP_ENOMEM, "trainer: no thread");
    }
    t->has_thread = true;
    return TRP_OK;
}

static trp_code events(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                       trp_error *err) {
    trpi_trainer *t = state;
    trpi_arena arena = {0};
    trpi_run_poll poll;
    trp_promise *promise;
    trp_code code = trpi_unpack_poll(args, &arena, &poll, err);
    if (code == TRP_OK) {
        code = trp_defer(ctx, &promise, err);
    }
    if (code == TRP_OK) {
        pthread_mutex_lock(&t->lock);
        trpi_journal_ask(&t->journal, poll.after, promise);
        pthread_mutex_unlock(&t->lock);
    }
    trpi_arena_release(&arena);
    return code;
}

static trp_code abort_run(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                          trp_error *err) {
    trpi_trainer *t = state;
    atomic_store(&t->stop, true);
    return TRP_OK;
}

static trp_code leave(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                      trp_error *err) {
    trp_context_exit(ctx);
    return TRP_OK;
}

static uint64_t report_deadline_ns(const trpi_trainer *t, bool waits) {
    return waits ? trpi_run_now_ns() + trpi_run_ms(t->plan.report_timeout_ms) : 0;
}

static trp_code report(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                       trp_error *err) {
    trpi_trainer *t = state;
    trpi_arena arena = {0};
    trpi_run_report message;
    trp_promise *promise;
    trp_code code = trpi_unpack_report(args, &arena, &message, err);
    if (code == TRP_OK) {
        code = trp_defer(ctx, &promise, err);
    }
    if (code == TRP_OK) {
        pthread_mutex_lock(&t->lock);
        trpi_collector_report(&t->collector, &message, report_deadline_ns(t, message.waits),
                              promise);
        pthread_mutex_unlock(&t->lock);
    }
    trpi_arena_release(&arena);
    return code;
}

static trp_code stage(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                      trp_error *err) {
    trpi_trainer *t = state;
    trpi_arena arena = {0};
    trpi_run_stage message;
    trp_promise *promise;
    trp_code code = trpi_unpack_stage(args, &arena, &message, err);
    if (code == TRP_OK) {
        code = trp_defer(ctx, &promise, err);
    }
    if (code == TRP_OK) {
        pthread_mutex_lock(&t->lock);
        trpi_collector_stage(&t->collector, &message, report_deadline_ns(t, true), promise);
        pthread_mutex_unlock(&t->lock);
    }
    trpi_arena_release(&arena);
    return code;
}

static const trp_method methods[] = {
    {"fit", fit},     {"events", events}, {"abort", abort_run}, {"leave", leave},
    {"stage", stage}, {"report", report}, {NULL, NULL},
};

const trp_actor_type trp_trainer_type = {
    .name = "troupe.trainer",
    .state_size = sizeof(trpi_trainer),
    .methods = methods,
    .start = start,
    .stop = stop,
};

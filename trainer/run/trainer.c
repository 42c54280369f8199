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
    trpi_run_gang_release(&t->gang);
    trp_buf_release(&t->from);
    free(t->recovery_ms);
    free(t->failures);
    trpi_arena_release(&t->arena);
    trp_buf_release(&t->plan_bytes);
    pthread_mutex_destroy(&t->lock);
}

/* The plan outlives the call that brings it, so it is unpacked from a copy. */
static trp_code keep_plan(trpi_trainer *t, trp_bytes args, trp_error *err) {
    trp_buf_clear(&t->plan_bytes);
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

static uint64_t report_deadline_ns(const trpi_trainer *t) {
    return trpi_run_deadline_ns(t->plan.report_timeout_ms);
}

/* The methods of ranks: unpacked, deferred, and handed to the collector, which answers. */
#define COLLECTOR_METHOD(name, deadline_ns)                                                        \
    static trp_code name(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,            \
                         trp_error *err) {                                                         \
        trpi_trainer *t = state;                                                                   \
        trpi_arena arena = {0};                                                                    \
        trpi_run_##name message;                                                                   \
        trp_promise *promise;                                                                      \
        trp_code code = trpi_unpack_##name(args, &arena, &message, err);                           \
        if (code == TRP_OK) {                                                                      \
            code = trp_defer(ctx, &promise, err);                                                  \
        }                                                                                          \
        if (code == TRP_OK) {                                                                      \
            pthread_mutex_lock(&t->lock);                                                          \
            trpi_collector_##name(&t->collector, &message, deadline_ns, promise);                  \
            pthread_mutex_unlock(&t->lock);                                                        \
        }                                                                                          \
        trpi_arena_release(&arena);                                                                \
        return code;                                                                               \
    }

COLLECTOR_METHOD(report, message.waits ? report_deadline_ns(t) : 0)
COLLECTOR_METHOD(stage, report_deadline_ns(t))
COLLECTOR_METHOD(drain, report_deadline_ns(t))

static const trp_method methods[] = {
    {"fit", fit},     {"events", events}, {"abort", abort_run}, {"leave", leave},
    {"stage", stage}, {"report", report}, {"drain", drain},     {NULL, NULL},
};

const trp_actor_type trp_trainer_type = {
    .name = "troupe.trainer",
    .state_size = sizeof(trpi_trainer),
    .methods = methods,
    .start = start,
    .stop = stop,
};

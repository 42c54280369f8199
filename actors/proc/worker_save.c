/* trp_context_save(): the state goes to the head by way of the node, and the head's word comes back
 * on the control thread. */
#include <string.h>

#include "actors/proc/worker_parts.h"
#include "core/net/clock.h"

#define SAVED_MAX ((size_t)8 * 1024 * 1024)
#define AGAIN_MS 1000 /* then it is said again, for a head that was away; doubles */

void trpi_saving_answered(trpi_control *control, const trpi_msg_saved *saved) {
    trpi_saving *saving = &control->saving;
    pthread_mutex_lock(&control->lock);
    if (saved->request == saving->request && !saving->is_answered) {
        saving->is_answered = true;
        saving->code = saved->code < TRP_CODE_COUNT ? (trp_code)saved->code : TRP_EINTERNAL;
        TRPI_SET(saving->message, saved->message);
        pthread_cond_broadcast(&control->changed);
    }
    pthread_mutex_unlock(&control->lock);
}

static trp_code take_turn(trpi_control *control, uint64_t deadline_ns, trp_error *err) {
    trpi_saving *saving = &control->saving;
    trp_code code = TRP_OK;
    pthread_mutex_lock(&control->lock);
    while (saving->is_taken && code == TRP_OK) {
        if (!trpi_condition_wait(&control->changed, &control->lock, deadline_ns)) {
            code = trpi_fail(err, TRP_ETIMEOUT, "save: another thread's save has not ended");
        }
    }
    saving->is_taken |= code == TRP_OK;
    pthread_mutex_unlock(&control->lock);
    return code;
}

static void leave_turn(trpi_control *control) {
    pthread_mutex_lock(&control->lock);
    control->saving.is_taken = false;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

static trp_code run_hook(trp_context *ctx, trp_buf *state, trp_error *err) {
    const trp_actor_type *type = ctx->worker->type;
    trp_error own = {0};
    err = err ? err : &own;
    ctx->is_saving = true;
    trp_code code = type->save(ctx, ctx->worker->state, state, err);
    ctx->is_saving = false;
    if (code != TRP_OK) {
        if (err->message[0] == '\0') {
            TRPI_SET(err->message, trp_code_text(code));
        }
        return trpi_context(err, code, "save() of %s", type->name);
    }
    if (state->size > SAVED_MAX) {
        return trpi_fail(err, TRP_EINVALID,
                         "save() of %s made %zu bytes; the head keeps at most %zu, larger states "
                         "belong into files or the object store",
                         type->name, state->size, SAVED_MAX);
    }
    return TRP_OK;
}

/* Asks, and asks again, until there is an answer. */
static trp_code ask(trpi_worker *worker, trp_bytes state, uint64_t deadline_ns, trp_error *err) {
    trpi_control *control = &worker->control;
    trpi_saving *saving = &control->saving;
    trpi_msg msg = {.type = TRPI_MSG_SAVE,
                    .save = {.actor = worker->start.actor,
                             .incarnation = worker->start.incarnation,
                             .state = state}};
    pthread_mutex_lock(&control->lock);
    msg.save.request = ++saving->request;
    saving->is_answered = false;
    for (uint64_t again_ms = AGAIN_MS; !saving->is_answered && trpi_now_ns() < deadline_ns;
         again_ms *= 2) {
        pthread_mutex_unlock(&control->lock);
        trpi_control_post(control, &msg);
        uint64_t until_ns = TRPI_MIN(deadline_ns, trpi_deadline_ns(again_ms));
        pthread_mutex_lock(&control->lock);
        while (!saving->is_answered &&
               trpi_condition_wait(&control->changed, &control->lock, until_ns)) {
        }
    }
    trp_code code = saving->code;
    if (!saving->is_answered) {
        code = trpi_fail(err, TRP_ETIMEOUT,
                         "save: the head has not confirmed it; it may be saved or not");
        saving->is_answered = true; /* too late from now on */
    } else if (code != TRP_OK) {
        trpi_fail(err, code, "save: %s", saving->message);
    }
    pthread_mutex_unlock(&control->lock);
    return code;
}

trp_code trp_context_save(trp_context *ctx, uint64_t timeout_ms, trp_error *err) {
    trpi_worker *worker = ctx->worker;
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    trp_buf state = {0};
    if (!worker->type->save) {
        return trpi_fail(err, TRP_EINVALID, "save: %s has no save()", worker->type->name);
    }
    if (ctx == &worker->hooks || ctx->is_saving) {
        return trpi_fail(err, TRP_EINVALID, "save: not in %s",
                         ctx->is_saving ? "save()" : "signal() or drain(), which must not block");
    }
    trp_code code = take_turn(&worker->control, deadline_ns, err);
    if (code != TRP_OK) {
        return code;
    }
    code = run_hook(ctx, &state, err);
    if (code == TRP_OK) {
        code = ask(worker, trp_buf_bytes(&state), deadline_ns, err);
    }
    leave_turn(&worker->control);
    trp_buf_release(&state);
    return code;
}

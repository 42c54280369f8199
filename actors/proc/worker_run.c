/* One method: what is known of it while it runs, and what its caller is answered. */
#include <string.h>

#include "actors/proc/worker_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"

#define REPLY_KEPT_BYTES ((size_t)1024 * 1024) /* capacity kept between calls */

/* ---- What runs where ---- */

void trpi_context_list(trp_context *ctx) {
    _Atomic(trp_context *) *list = &ctx->worker->contexts;
    ctx->next = atomic_load(list);
    while (!atomic_compare_exchange_weak(list, &ctx->next, ctx)) {
    }
}

void trpi_context_enter(trp_context *ctx, const char *method, uint64_t now_ns) {
    trpi_dump_set_method(method);
    if (method != NULL) {
        atomic_store_explicit(&ctx->method, method, memory_order_relaxed);
        atomic_store_explicit(&ctx->since_ns, now_ns, memory_order_release);
    } else {
        atomic_store_explicit(&ctx->since_ns, 0, memory_order_release);
    }
}

void trp_context_beat(trp_context *ctx) {
    uint64_t since_ns = atomic_load_explicit(&ctx->since_ns, memory_order_relaxed);
    /* Another thread's beat must not revive a method that has just ended. */
    if (since_ns != 0) {
        atomic_compare_exchange_strong(&ctx->since_ns, &since_ns, trpi_now_ns());
    }
}

uint64_t trpi_worker_stuck_ms(trpi_worker *worker, uint64_t now_ns, const char **ret_method) {
    uint64_t oldest_ns = UINT64_MAX;
    *ret_method = "";
    for (trp_context *ctx = atomic_load(&worker->contexts); ctx != NULL; ctx = ctx->next) {
        uint64_t since_ns = atomic_load_explicit(&ctx->since_ns, memory_order_acquire);
        if (since_ns != 0 && since_ns < oldest_ns) {
            oldest_ns = since_ns;
            *ret_method = atomic_load_explicit(&ctx->method, memory_order_relaxed);
        }
    }
    if (oldest_ns == UINT64_MAX) {
        return 0;
    }
    /* 0 would say that nothing runs. */
    return oldest_ns < now_ns ? TRPI_MAX((now_ns - oldest_ns) / 1000000u, 1u) : 1;
}

/* ---- A call ---- */

static trp_code save_after(trp_context *ctx, const trp_method *method, trp_error *err) {
    uint64_t timeout_ms = trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS);
    trp_code code = trp_context_save(ctx, timeout_ms, err);
    return code == TRP_OK
               ? code
               : trpi_context(err, code, "%s has run, but the state after it is not saved",
                              method->name);
}

static void set_failure(trpi_answer *answer, trp_code code, trp_error *err) {
    if (code <= TRP_OK || code >= TRP_CODE_COUNT) {
        code = TRP_EUSER;
    }
    *answer = (trpi_answer){.code = code,
                            .message = err->message[0] ? err->message : trp_code_text(code)};
    if (code == TRP_EUSER) {
        /* trp_raise()'s here, or in an actor that this one has called and passed the error on of.
         */
        answer->type = err->type;
        answer->where = err->where;
    }
}

bool trpi_run_task(trp_context *ctx, const trpi_task *task, uint64_t now_ns,
                   trpi_answer *ret_answer, trp_error *ret_error) {
    trpi_worker *worker = ctx->worker;
    trp_buf_clear(&ctx->reply);
    ctx->is_deferred = false;
    ret_error->code = TRP_OK;
    ret_error->message[0] = ret_error->type[0] = ret_error->where[0] = '\0';
    trpi_lease_check();
    trpi_context_enter(ctx, task->method->name, now_ns);
    trp_code code =
        task->method->run(ctx, worker->state, task->packet.body, &ctx->reply, ret_error);
    if (code == TRP_OK && worker->start.save_each_call) {
        code = save_after(ctx, task->method, ret_error);
    }
    trpi_context_enter(ctx, NULL, 0);
    trpi_lease_check();
    if (ctx->is_deferred) {
        if (code != TRP_OK) {
            trpi_log(TRPI_WARN, "error_ignored",
                     "method=%s reason=\"it was deferred\" error=\"%s\"", task->method->name,
                     ret_error->message);
        }
        return false;
    }
    if (code == TRP_OK) {
        *ret_answer = (trpi_answer){.body = trp_buf_bytes(&ctx->reply)};
    } else {
        set_failure(ret_answer, code, ret_error);
    }
    return true;
}

void trpi_run_ended(trp_context *ctx) {
    if (ctx->reply.capacity > REPLY_KEPT_BYTES) {
        trp_buf_release(&ctx->reply);
    }
}

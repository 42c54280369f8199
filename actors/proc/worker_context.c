/* What an actor may ask about itself. */
#include "actors/proc/client.h"
#include "actors/proc/worker_parts.h"
#include "core/base/config.h"
#include "core/net/clock.h"

trp_actor trp_context_actor(const trp_context *ctx) {
    return (trp_actor){ctx->worker->start.actor};
}

uint64_t trp_context_incarnation(const trp_context *ctx) {
    return ctx->worker->start.incarnation;
}

uint64_t trp_context_node(const trp_context *ctx) {
    return ctx->worker->node;
}

const char *trp_context_name(const trp_context *ctx) {
    return ctx->worker->start.name;
}

const char *trp_context_devices(const trp_context *ctx) {
    return ctx->worker->devices;
}

void trp_context_exit(trp_context *ctx) {
    atomic_store(&ctx->worker->exiting, true);
    trpi_desk_ring(&ctx->worker->desk); /* it may be waiting for a call */
}

bool trp_context_canceled(const trp_context *ctx) {
    return trpi_desk_is_canceled(&ctx->worker->desk, ctx, NULL);
}

uint64_t trp_context_caller(const trp_context *ctx) {
    trpi_desk *desk = &ctx->worker->desk;
    pthread_mutex_lock(&desk->lock); /* another thread may ask about the one that runs the method */
    uint64_t client = ctx->task != NULL ? ctx->task->client : 0;
    pthread_mutex_unlock(&desk->lock);
    return client;
}

uint64_t trp_context_drain_ms(const trp_context *ctx) {
    uint64_t drain_ns = atomic_load(&ctx->worker->drain_ns);
    if (drain_ns == UINT64_MAX) {
        return UINT64_MAX;
    }
    uint64_t now_ns = trpi_now_ns();
    return drain_ns > now_ns ? (drain_ns - now_ns) / 1000000u : 0;
}

trp_runtime *trp_context_runtime(trp_context *ctx, trp_error *err) {
    trpi_worker *worker = ctx->worker;
    pthread_mutex_lock(&worker->runtime_lock);
    if (!worker->runtime) {
        trpi_client_options options = {
            .address = worker->address,
            .kind = "worker",
            .job = worker->start.job,
            .namespace_name = worker->start.namespace_name,
            .actor = worker->start.actor,
            .incarnation = worker->start.incarnation,
            .connect_timeout_ms = trpi_config(TRPI_CONFIG_CONNECT_TIMEOUT_MS),
            .types = worker->types,
            .who = worker->start.name[0] ? worker->start.name : worker->start.type};
        if (trpi_client_open(&options, &worker->runtime, err) != TRP_OK) {
            worker->runtime = NULL;
        }
    }
    trp_runtime *runtime = worker->runtime;
    pthread_mutex_unlock(&worker->runtime_lock);
    return runtime;
}

void trpi_worker_close_runtime(trpi_worker *worker) {
    pthread_mutex_lock(&worker->runtime_lock);
    trp_shutdown(&worker->runtime);
    pthread_mutex_unlock(&worker->runtime_lock);
}

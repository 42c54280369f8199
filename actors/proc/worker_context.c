/* What an actor may ask about itself. */
#include <unistd.h>

#include "actors/proc/client.h"
#include "actors/proc/worker_parts.h"
#include "core/base/config.h"

trp_actor trp_context_actor(const trp_context *ctx) {
    return (trp_actor){ctx->start.actor};
}

uint64_t trp_context_incarnation(const trp_context *ctx) {
    return ctx->start.incarnation;
}

uint64_t trp_context_node(const trp_context *ctx) {
    return ctx->node;
}

const char *trp_context_name(const trp_context *ctx) {
    return ctx->start.name;
}

const char *trp_context_devices(const trp_context *ctx) {
    return ctx->devices;
}

void trp_context_exit(trp_context *ctx) {
    atomic_store(&ctx->exiting, true);
    uint64_t one = 1;
    (void)!write(ctx->replies.ring_fd, &one, sizeof one); /* it may be waiting for a call */
}

trp_runtime *trp_context_runtime(trp_context *ctx, trp_error *err) {
    pthread_mutex_lock(&ctx->runtime_lock);
    if (!ctx->runtime) {
        trpi_client_options options = {.address = ctx->address,
                                       .kind = "worker",
                                       .job = ctx->start.job,
                                       .namespace_name = ctx->start.namespace_name,
                                       .actor = ctx->start.actor,
                                       .incarnation = ctx->start.incarnation,
                                       .connect_timeout_ms =
                                           trpi_config(TRPI_CONFIG_CONNECT_TIMEOUT_MS),
                                       .types = ctx->types};
        if (trpi_client_open(&options, &ctx->runtime, err) != TRP_OK) {
            ctx->runtime = NULL;
        }
    }
    trp_runtime *runtime = ctx->runtime;
    pthread_mutex_unlock(&ctx->runtime_lock);
    return runtime;
}

void trpi_worker_close_runtime(trpi_worker *worker) {
    pthread_mutex_lock(&worker->runtime_lock);
    trp_shutdown(&worker->runtime);
    pthread_mutex_unlock(&worker->runtime_lock);
}

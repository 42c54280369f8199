/* client.c: opening and closing a process' connection to a cluster. */
#include "actors/proc/client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/client_options.h"
#include "actors/proc/client_store.h"
#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/sys/host.h"

#define BYE_TIMEOUT_MS 5000

/* Unique among all processes; not a text, so that ZeroMQ keeps it within its small messages. */
static void draw_id(trp_runtime *rt) {
    uint64_t random[2] = {trpi_random_u64(), trpi_random_u64()};
    rt->id[0] = 'p';
    memcpy(rt->id + 1, random, sizeof(random));
}

static trp_code copy_env(trp_runtime *rt, const char *const *env, trp_error *err) {
    trp_code code = trpi_env_check(env, err);
    if (code != TRP_OK) {
        return code;
    }
    for (rt->env_count = 0; env != NULL && env[rt->env_count] != NULL;) {
        rt->env_count++;
    }
    rt->env = trpi_alloc(rt->env_count * sizeof(*rt->env));
    for (size_t i = 0; i < rt->env_count; i++) {
        rt->env[i].value = trpi_strdup(env[i]);
    }
    return TRP_OK;
}

static void free_runtime(trp_runtime *rt) {
    for (size_t i = 0; rt->env != NULL && i < rt->env_count; i++) {
        free((char *)rt->env[i].value);
    }
    free(rt->env);
    free(rt);
}

static trp_code fill_in(trp_runtime *rt, const trpi_client_options *options, trp_error *err) {
    rt->data.wake_fd = rt->data.deaths_fd = rt->data.timer_fd = rt->control.wake_fd = -1;
    rt->data.done.fd = -1;
    TRPI_SET(rt->address, options->address);
    TRPI_SET(rt->kind, options->kind);
    TRPI_SET(rt->job, options->job ? options->job : "");
    TRPI_SET(rt->namespace_name, options->namespace_name ? options->namespace_name : "");
    draw_id(rt);
    trpi_host_id(rt->host_id, sizeof(rt->host_id));
    rt->actor = options->actor;
    rt->incarnation = options->incarnation;
    rt->wants_logs = options->wants_logs;
    rt->types = options->types;
    if (getcwd(rt->cwd, sizeof(rt->cwd)) == NULL) {
        return trpi_fail(err, TRP_EIO, "working directory: %s", strerror(errno));
    }
    trp_code code = copy_env(rt, options->env, err);
    return code == TRP_OK ? trpi_host_exe(rt->exe, sizeof(rt->exe), err) : code;
}

/* What a driver's nodes may lack; a worker's are its driver's. */
static trp_code fill_in_files(trp_runtime *rt, const trpi_client_options *options, trp_error *err) {
    rt->submission = options->submission;
    TRPI_SET(rt->package, options->package_hash ? options->package_hash : "");
    if (options->package != NULL) {
        rt->uploads[1].file = *options->package;
    }
    return strcmp(rt->kind, "driver") == 0 ? trpi_package_of_exe(&rt->uploads[0].file, err)
                                           : TRP_OK;
}

static trp_code await_welcome(trp_runtime *rt, uint64_t timeout_ms, trp_error *err) {
    trpi_control *control = &rt->control;
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    trp_code code = TRP_OK;
    pthread_mutex_lock(&control->lock);
    while (control->link != TRPI_LINK_UP && control->refusal.code == TRP_OK &&
           trpi_cond_wait(&control->changed, &control->lock, deadline_ns)) {
    }
    if (control->link != TRPI_LINK_UP && control->refusal.code != TRP_OK) {
        code = trpi_fail(err, control->refusal.code, "%s", control->refusal.message);
    } else if (control->link != TRPI_LINK_UP) {
        code = trpi_fail(err, TRP_ETIMEOUT,
                         "no head answered at %s within %" PRIu64
                         " ms; is one running there? (troupe start --head)",
                         rt->address, timeout_ms);
    }
    pthread_mutex_unlock(&control->lock);
    return code;
}

/* In the order in which the halves depend on each other: the control thread, which tends to all of
 * them, ends first; the network goes last. */
static void tear_down(trp_runtime *rt) {
    trpi_client_control_close(rt);
    trpi_client_store_close(rt);
    trpi_data_close(rt);
    trpi_net_close(rt->net);
    trpi_package_close(&rt->uploads[1].file);
    free_runtime(rt);
}

trp_code trpi_client_open(const trpi_client_options *options, trp_runtime **ret_runtime,
                          trp_error *err) {
    trp_runtime *rt = trpi_alloc(sizeof(*rt));
    trp_code code = fill_in(rt, options, err);
    if (code == TRP_OK) {
        code = fill_in_files(rt, options, err);
    }
    if (code == TRP_OK) {
        code = trpi_net_open(&rt->net, err);
    }
    if (code != TRP_OK) {
        trpi_package_close(options->package);
        free_runtime(rt);
        return trpi_context(err, code, "connect to %s", options->address);
    }
    trpi_client_store_open(rt, options->who);
    code = trpi_data_open(rt, err);
    trp_code control = trpi_client_control_open(rt, code == TRP_OK ? err : NULL);
    code = code == TRP_OK ? control : code;
    if (code == TRP_OK) {
        uint64_t timeout_ms = options->connect_timeout_ms;
        code = await_welcome(
            rt, timeout_ms ? timeout_ms : trpi_config(TRPI_CONFIG_CONNECT_TIMEOUT_MS), err);
    }
    if (code != TRP_OK) {
        tear_down(rt);
        return trpi_context(err, code, "connect to %s", options->address);
    }
    *ret_runtime = rt;
    return TRP_OK;
}

void trpi_client_close(trp_runtime **rt, bool say_bye) {
    if (rt == NULL || *rt == NULL) {
        return;
    }
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_BYE};
    trpi_data_enter(*rt);
    trpi_corks_flush(*rt);
    trpi_data_leave(*rt);
    /* A head that does not answer in time learns of our end by our silence. */
    if (say_bye &&
        trpi_client_request(*rt, &msg, BYE_TIMEOUT_MS, &storage, &reply, NULL) == TRP_OK) {
        trpi_client_reply_release(storage);
    }
    tear_down(*rt);
    *rt = NULL;
}

const char *trp_runtime_address(const trp_runtime *rt) {
    return rt->address;
}

const char *trp_runtime_namespace(const trp_runtime *rt) {
    return rt->namespace_name;
}

/* init.c: how a program joins a cluster: as a driver, or as one of its workers. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <troupe/runtime.h>

#include "actors/proc/client.h"
#include "actors/proc/client_package.h"
#include "actors/proc/worker.h"
#include "actors/proc/worker_types.h"
#include "actors/proc/zygote.h"
#include "core/base/config.h"

static atomic_bool is_initialized;

const char *trp_version(void) {
    return TROUPE_VERSION;
}

bool trp_is_worker(void) {
    return getenv(TRPI_ZYGOTE_ENV) != NULL;
}

/* Only returns if the variable, which a node daemon sets, is not one of its. */
static trp_code serve(const trp_actor_type *const *types, const char *text, trp_error *err) {
    uint64_t fd = 0;
    if (!trpi_parse_u64(text, INT32_MAX, &fd)) {
        return trpi_fail(err, TRP_EINVALID, "%s=%s is no descriptor", TRPI_ZYGOTE_ENV, text);
    }
    trpi_zygote_main(types, (int)fd);
}

/* The directory in which the workers run: packed and brought here, or that of the submitted job. */
static trp_code find_files(const trp_init_options *options, trpi_client_options *client,
                           trpi_package *package, trp_error *err) {
    const char *job = getenv(TRPI_ENV_JOB), *hash = getenv(TRPI_ENV_PACKAGE);
    if (job != NULL && !trpi_parse_u64(job, UINT64_MAX, &client->submission)) {
        return trpi_fail(err, TRP_EINVALID, "%s=%s is no job's number", TRPI_ENV_JOB, job);
    }
    if (options->working_dir == NULL) {
        client->package_hash = hash != NULL && trpi_is_hash(hash) ? hash : NULL;
        return TRP_OK;
    }
    trp_code code = trpi_package_of_dir(options->working_dir, package, err);
    if (code == TRP_OK) {
        code = trpi_package_bring(client->address, client->connect_timeout_ms, package, err);
    }
    client->package_hash = package->hash;
    client->package = package;
    return code;
}

static trp_code connect_driver(const trp_actor_type *const *types, const trp_init_options *options,
                               trp_runtime **ret_runtime, trp_error *err) {
    char address[128];
    trpi_package package = {0};
    trp_code code = trpi_client_address(options->address, address, sizeof(address), err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_client_options client = {
        .address = address,
        .kind = "driver",
        .job = options->job_name ? options->job_name : program_invocation_short_name,
        .namespace_name = options->namespace_name,
        .connect_timeout_ms = options->connect_timeout_ms,
        .wants_logs = !options->quiet,
        .types = types,
        .env = options->env,
    };
    code = find_files(options, &client, &package, err);
    if (code != TRP_OK) {
        trpi_package_close(&package);
        return code;
    }
    return trpi_client_open(&client, ret_runtime, err);
}

trp_code trp_init(const trp_actor_type *const *types, const trp_init_options *options,
                  trp_runtime **ret_runtime, trp_error *err) {
    static const trp_init_options defaults;
    static const trp_actor_type *const none[] = {NULL};
    const char *zygote = getenv(TRPI_ZYGOTE_ENV);
    types = types != NULL ? types : none;
    trp_code code = trpi_config_load(err);
    if (code == TRP_OK) {
        code = trpi_types_check(types, err);
    }
    if (code == TRP_OK && zygote != NULL) {
        code = serve(types, zygote, err);
    }
    if (code == TRP_OK && atomic_exchange(&is_initialized, true)) {
        return trpi_fail(err, TRP_EBUSY,
                         "init: this process has a runtime already; trp_shutdown() it first");
    }
    if (code == TRP_OK) {
        code = connect_driver(types, options != NULL ? options : &defaults, ret_runtime, err);
        atomic_store(&is_initialized, code == TRP_OK);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "init");
}

void trp_shutdown(trp_runtime **rt) {
    if (rt != NULL && *rt != NULL) {
        trpi_client_close(rt, true);
        atomic_store(&is_initialized, false);
    }
}

/* init.c: how a program joins a cluster: as a driver, or as one of its workers. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <troupe/runtime.h>

#include "actors/proc/client.h"
#include "actors/proc/worker.h"
#include "actors/proc/worker_types.h"
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

static trp_code connect_driver(const trp_actor_type *const *types, const trp_init_options *options,
                               trp_runtime **ret_runtime, trp_error *err) {
    char address[128];
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
    };
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

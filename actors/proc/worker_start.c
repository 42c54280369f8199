/* What START asks of the process, until the actor is constructed. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/worker_parts.h"
#include "actors/proc/zygote.h"
#include "core/base/config.h"
#include "core/net/clock.h"

#define UNITS_PER_CPU 10000

static void (*set_num_threads)(int); /* of OpenMP, where the program has it */

void trpi_worker_prepare(void) {
    *(void **)&set_num_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    trpi_dump_prepare();
    trpi_net_prepare();
}

/* ---- The process ---- */

bool trpi_worker_read_environment(trpi_worker *worker) {
    const char *dir = getenv(TRPI_ENV_NODE_DIR), *host = getenv(TRPI_ENV_HOST);
    const char *address = getenv(TRPI_ENV_ADDRESS), *node = getenv(TRPI_ENV_NODE);
    const char *pid = getenv(TRPI_ENV_NODE_PID);
    uint64_t node_pid = 0;
    if (!dir || !host || !address || !node || !pid ||
        !trpi_parse_u64(node, UINT64_MAX, &worker->node) ||
        !trpi_parse_u64(pid, INT32_MAX, &node_pid)) {
        return false;
    }
    worker->node_pid = (pid_t)node_pid;
    TRPI_SET(worker->node_dir, dir);
    TRPI_SET(worker->host, host);
    TRPI_SET(worker->address, address);
    return true;
}

static trp_code set_environment(const trpi_msg_start *start, trp_error *err) {
    for (size_t i = 0; i < start->env_count; i++) {
        const char *entry = start->env[i].value;
        const char *equals = strchr(entry, '=');
        if (!equals || equals == entry) {
            return trpi_fail(err, TRP_EINVALID, "environment entry \"%s\": expected KEY=value",
                             entry);
        }
        char *key = trpi_strdup(entry);
        key[equals - entry] = '\0';
        int failed = setenv(key, equals + 1, 1);
        free(key);
        if (failed) {
            return trpi_fail(err, TRP_ENOMEM, "environment entry \"%s\"", entry);
        }
    }
    return trpi_config_load(err); /* some may be our own settings */
}

static trp_code set_devices(trpi_worker *worker, trp_error *err) {
    size_t used = 0;
    for (size_t i = 0; i < worker->start.devices_count; i++) {
        const char *id = worker->start.devices[i].value;
        if (used + strlen(id) + 2 > sizeof worker->devices) {
            return trpi_fail(err, TRP_EINVALID, "more device ids than %zu characters",
                             sizeof worker->devices);
        }
        trpi_format(worker->devices + used, sizeof worker->devices - used, "%s%s", i ? "," : "",
                    id);
        used += strlen(worker->devices + used);
    }
    /* Also when there is none: an actor that asked for no GPU must not find one. */
    if (setenv("CUDA_VISIBLE_DEVICES", worker->devices, 1) != 0) {
        return trpi_fail(err, TRP_ENOMEM, "CUDA_VISIBLE_DEVICES");
    }
    return TRP_OK;
}

/* As many threads as CPUs were asked for. OpenMP has read the variable when the zygote was loaded,
 * so where the program has OpenMP it must also be told. */
static void set_threads(const trpi_msg_start *start) {
    char text[24];
    uint64_t threads = 0;
    trpi_format(text, sizeof text, "%lld", (long long)TRPI_MAX(1, start->cpus / UNITS_PER_CPU));
    (void)setenv("OMP_NUM_THREADS", text, 0);
    const char *value = getenv("OMP_NUM_THREADS");
    if (set_num_threads && value && trpi_parse_u64(value, INT32_MAX, &threads) && threads > 0) {
        set_num_threads((int)threads);
    }
}

trp_code trpi_worker_apply_start(trpi_worker *worker, trp_error *err) {
    trp_code code = set_environment(&worker->start, err);
    if (code == TRP_OK) {
        code = set_devices(worker, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    set_threads(&worker->start);
    const char *cwd = worker->start.cwd;
    if (*worker->start.package) {
        return TRP_OK; /* it is in its directory: that is where its zygote was started */
    }
    if (*cwd && chdir(cwd) != 0 && (worker->start.needs_cwd || errno != ENOENT)) {
        return trpi_fail(err, TRP_ENOTFOUND, "change directory to %s: %s", cwd, strerror(errno));
    }
    return TRP_OK;
}

/* ---- The actor ---- */

/* A death's message is text: what the error is besides goes into it. */
static trp_code hook_failed(const trp_actor_type *type, const char *hook, trp_code code,
                            trp_error *err) {
    if (err->message[0] == '\0') {
        TRPI_SET(err->message, trp_code_text(code));
    }
    if (err->type[0] != '\0') {
        char message[sizeof err->message];
        trpi_format(message, sizeof message, "%s: %s (%s)", err->type, err->message, err->where);
        TRPI_SET(err->message, message);
    }
    return trpi_context(err, code, "%s of %s", hook, type->name);
}

/* PONG counts both hooks as the running method: one that hangs is hung. */
static trp_code run_start(trpi_worker *worker, trp_error *err) {
    if (!worker->type->start) {
        return TRP_OK;
    }
    trpi_context_enter(&worker->main, "start", trpi_now_ns());
    trp_code code = worker->type->start(&worker->main, worker->state, worker->start.args, err);
    trpi_context_enter(&worker->main, NULL, 0);
    return code == TRP_OK ? code : hook_failed(worker->type, "constructor", code, err);
}

static trp_code run_load(trpi_worker *worker, trp_error *err) {
    if (!worker->start.has_saved) {
        return TRP_OK;
    }
    if (!worker->type->load) {
        return trpi_fail(err, TRP_EINVALID,
                         "an earlier incarnation has saved its state, but %s has no load()",
                         worker->type->name);
    }
    trpi_context_enter(&worker->main, "load", trpi_now_ns());
    trp_code code = worker->type->load(&worker->main, worker->state, worker->start.saved, err);
    trpi_context_enter(&worker->main, NULL, 0);
    return code == TRP_OK ? code : hook_failed(worker->type, "load()", code, err);
}

static trp_code check_options(const trpi_worker *worker, trp_error *err) {
    const trpi_msg_start *start = &worker->start;
    if (start->max_concurrency > TRPI_GROUP_THREADS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "max_concurrency is %llu; from 1 to %d are possible",
                         (unsigned long long)start->max_concurrency, TRPI_GROUP_THREADS_MAX);
    }
    if (start->save_each_call && !worker->type->save) {
        return trpi_fail(err, TRP_EINVALID, "save_each_call was asked for, but %s has no save()",
                         worker->type->name);
    }
    return TRP_OK;
}

/* Who takes the calls: this thread alone, or a pool. */
static void set_up_desk(trpi_worker *worker) {
    size_t count = trpi_type_group_count(worker->type);
    uint32_t *limits = trpi_alloc(count * sizeof *limits);
    limits[0] = (uint32_t)TRPI_MAX(worker->start.max_concurrency, (uint64_t)1);
    for (size_t i = 1; i < count; i++) {
        limits[i] = (uint32_t)worker->type->concurrency[i - 1].threads;
    }
    trpi_works_init(&worker->desk.works, limits, count);
    worker->desk.is_pooled = count > 1 || limits[0] > 1;
    if (worker->desk.is_pooled) {
        trpi_worker_pool_init(worker, count);
    } else {
        trpi_works_thread_made(&worker->desk.works, 0); /* ours */
    }
    free(limits);
}

trp_code trpi_worker_construct(trpi_worker *worker, trp_error *err) {
    trp_code code =
        trpi_types_find(worker->types, worker->start.type, worker->start.exe, &worker->type, err);
    if (code == TRP_OK) {
        code = check_options(worker, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    worker->state = calloc(1, TRPI_MAX(worker->type->state_size, (size_t)1));
    if (!worker->state) {
        return trpi_fail(err, TRP_ENOMEM, "state of %zu bytes", worker->type->state_size);
    }
    set_up_desk(worker);
    code = run_start(worker, err);
    return code == TRP_OK ? run_load(worker, err) : code;
}

/* The method thread of a worker: becomes the actor that START names, serves its calls, ends it. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/worker_parts.h"
#include "actors/proc/zygote.h"
#include "core/base/config.h"
#include "core/base/log.h"

#define UNITS_PER_CPU 10000
#define TYPES_MAX 256                          /* looked at for the nearest name */
#define REPLY_KEPT_BYTES ((size_t)1024 * 1024) /* capacity kept between calls */

/* ---- What the node told us ---- */

static bool read_environment(trpi_worker *worker) {
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

static void (*set_num_threads)(int); /* of OpenMP, where the program has it */

void trpi_worker_prepare(void) {
    *(void **)&set_num_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
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

static trp_code apply_start(trpi_worker *worker, trp_error *err) {
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
    if (*cwd && chdir(cwd) != 0) {
        return trpi_fail(err, TRP_ENOTFOUND, "change directory to %s: %s", cwd, strerror(errno));
    }
    return TRP_OK;
}

/* ---- Becoming the actor ---- */

static trp_code find_type(trpi_worker *worker, trp_error *err) {
    const char *wanted = worker->start.type, *names[TYPES_MAX];
    size_t count = 0;
    for (const trp_actor_type *const *type = worker->types; *type; type++) {
        if (strcmp((*type)->name, wanted) == 0) {
            worker->type = *type;
            return TRP_OK;
        }
        if (count < TYPES_MAX) {
            names[count++] = (*type)->name;
        }
    }
    const char *near = trpi_nearest(wanted, names, count);
    return trpi_fail(err, TRP_ENOTFOUND, "actor type \"%s\" is not registered in %s%s%s%s", wanted,
                     worker->start.exe, near ? "; did you mean \"" : "", near ? near : "",
                     near ? "\"?" : "");
}

static trp_code open_data(trpi_worker *worker, trp_error *err) {
    trpi_sock *sock = NULL;
    trp_code code = trpi_sock_open(worker->net, TRPI_ROUTER, (trp_bytes){0}, &sock, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(worker->endpoint, sizeof worker->endpoint, "ipc://%s/w%llu", worker->node_dir,
                (unsigned long long)worker->token);
    code = trpi_sock_bind(sock, worker->endpoint, NULL, 0, err);
    if (code == TRP_OK && worker->host[0]) {
        char any_port[128];
        trpi_format(any_port, sizeof any_port, "tcp://%s:*", worker->host);
        code = trpi_sock_bind(sock, any_port, worker->remote_endpoint,
                              sizeof worker->remote_endpoint, err);
    }
    if (code != TRP_OK) {
        trpi_sock_close(sock);
        return code;
    }
    worker->replies.sock = sock;
    return TRP_OK;
}

static trp_code construct(trpi_worker *worker, trp_error *err) {
    worker->state = calloc(1, TRPI_MAX(worker->type->state_size, (size_t)1));
    if (!worker->state) {
        return trpi_fail(err, TRP_ENOMEM, "state of %zu bytes", worker->type->state_size);
    }
    if (!worker->type->start) {
        return TRP_OK;
    }
    trp_code code = worker->type->start(worker, worker->state, worker->start.args, err);
    if (code == TRP_OK) {
        return TRP_OK;
    }
    if (err->message[0] == '\0') {
        TRPI_SET(err->message, trp_code_text(code));
    }
    return trpi_context(err, code, "constructor of %s", worker->type->name);
}

static trp_code become_actor(trpi_worker *worker, trp_error *err) {
    trpi_msg msg;
    char who[32];
    trp_error trouble = {0};
    /* Before anybody waits for it: it takes a tenth of the time of a start. */
    trp_code opened = open_data(worker, &trouble);
    trpi_control_wait_start(worker);
    trp_code code = trpi_decode(trp_buf_bytes(&worker->control.start), &worker->arena, &msg, err);
    if (code != TRP_OK) {
        return code;
    }
    worker->start = msg.start;
    trpi_format(who, sizeof who, "actor a%llu", (unsigned long long)worker->start.actor);
    trpi_log_set_who(who);
    worker->replies.incarnation = worker->start.incarnation;
    if (opened != TRP_OK) {
        return trpi_fail(err, opened, "%s", trouble.message);
    }
    code = apply_start(worker, err);
    if (code == TRP_OK) {
        code = find_type(worker, err);
    }
    return code == TRP_OK ? construct(worker, err) : code;
}

/* ---- Calls ---- */

static const trp_method *find_method(const trp_actor_type *type, const char *name) {
    for (const trp_method *method = type->methods; method && method->name; method++) {
        if (strcmp(method->name, name) == 0) {
            return method;
        }
    }
    return NULL;
}

static void refuse(trpi_worker *worker, const trpi_packet *packet, const trpi_msg_call *call,
                   trp_code code, const char *message) {
    trpi_replies_send(&worker->replies, packet->peer, call->call, code, message, (trp_bytes){0});
}

static void refuse_method(trpi_worker *worker, const trpi_packet *packet,
                          const trpi_msg_call *call) {
    const char *names[TYPES_MAX];
    size_t count = 0;
    const trp_method *methods = worker->type->methods;
    while (methods && methods[count].name && count < TYPES_MAX) {
        names[count] = methods[count].name;
        count++;
    }
    char message[512];
    const char *near = trpi_nearest(call->method, names, count);
    trpi_format(message, sizeof message, "%s has no method \"%.128s\"%s%s%s", worker->type->name,
                call->method, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    refuse(worker, packet, call, TRP_ENOTFOUND, message);
}

static void run_method(trpi_worker *worker, const trpi_packet *packet, const trpi_msg_call *call,
                       const trp_method *method, trp_buf *reply) {
    trp_error err = {0};
    trp_buf_clear(reply);
    worker->call = call->call;
    worker->peer = packet->peer;
    worker->running = true;
    worker->deferred = false;
    trpi_replies_enter(&worker->replies);
    trp_code code = method->run(worker, worker->state, packet->body, reply, &err);
    trpi_replies_leave(&worker->replies);
    worker->running = false;
    if (worker->deferred) {
        if (code != TRP_OK) {
            trpi_log(TRPI_WARN, "error_ignored",
                     "method=%s reason=\"it was deferred\" error=\"%s\"", method->name,
                     err.message);
        }
    } else if (code == TRP_OK) {
        trpi_replies_send(&worker->replies, packet->peer, call->call, TRP_OK, "",
                          trp_buf_bytes(reply));
    } else {
        if (code < TRP_OK || code >= TRP_CODE_COUNT) {
            code = TRP_EUSER;
        }
        refuse(worker, packet, call, code, err.message[0] ? err.message : trp_code_text(code));
    }
    if (reply->capacity > REPLY_KEPT_BYTES) {
        trp_buf_release(reply);
    }
}

static void refuse_message(trpi_worker *worker, const char *event, const char *reason) {
    if (trpi_log_is_due(&worker->refused)) {
        trpi_log(TRPI_WARN, event, "from=caller reason=\"%s\" refused=%llu", reason,
                 (unsigned long long)worker->refused);
    }
}

static void serve_packet(trpi_worker *worker, const trpi_packet *packet, trpi_arena *arena,
                         trp_buf *reply) {
    trpi_msg msg;
    trp_error err = {0};
    trpi_arena_reset(arena);
    if (trpi_decode(packet->header, arena, &msg, &err) != TRP_OK) {
        refuse_message(worker, "message_invalid", err.message);
        return;
    }
    if (msg.type != TRPI_MSG_CALL) {
        refuse_message(worker, "message_unexpected", trpi_msg_name(msg.type));
        return;
    }
    const trpi_msg_call *call = &msg.call;
    if (call->actor != worker->start.actor || call->incarnation != worker->start.incarnation) {
        refuse(worker, packet, call, TRP_EUNAVAILABLE, "stale incarnation");
        return;
    }
    const trp_method *method = find_method(worker->type, call->method);
    if (method) {
        run_method(worker, packet, call, method, reply);
    } else {
        refuse_method(worker, packet, call);
    }
}

static void serve(trpi_worker *worker) {
    trpi_arena arena = {0};
    trp_buf reply = {0};
    trpi_packet packet;
    while (!atomic_load(&worker->exiting)) {
        trpi_poll_item items[] = {{.sock = worker->replies.sock}, {.fd = worker->replies.ring_fd}};
        (void)!trpi_poll(items, 2, -1); /* an actor waits for calls as long as it lives */
        if (items[1].ready) {
            trpi_replies_flush(&worker->replies);
        }
        while (!atomic_load(&worker->exiting) &&
               trpi_sock_recv(worker->replies.sock, &packet) == TRP_OK) {
            serve_packet(worker, &packet, &arena, &reply);
            trpi_packet_release(&packet);
            if (!trpi_sock_has_more(worker->replies.sock)) {
                trpi_replies_send_batch(&worker->replies);
            }
        }
    }
    trpi_arena_release(&arena);
    trp_buf_release(&reply);
}

/* ---- The end ---- */

/* All that was promised must be out before the process is: replies to callers, the word to the
 * node. */
_Noreturn static void leave(trpi_worker *worker, int exit_code) {
    int flush_ms = (int)(trpi_config(TRPI_CONFIG_STOP_TIMEOUT_MS) / 2);
    trpi_sock *sock = trpi_replies_close(&worker->replies);
    trpi_sock_close_after(sock, flush_ms);
    trpi_worker_close_runtime(worker);
    trpi_control_close(worker);
    trpi_net_close(worker->net);
    exit(exit_code);
}

_Noreturn void trpi_worker_main(const trp_actor_type *const *types, uint64_t token) {
    static trpi_worker worker; /* one per process, found by any debugger */
    trp_error err = {0};
    worker.types = types;
    worker.token = token;
    pthread_mutex_init(&worker.runtime_lock, NULL);
    if (!read_environment(&worker)) {
        trpi_fail(&err, TRP_EINVALID, "environment of the node is missing");
    } else if (trpi_net_open(&worker.net, &err) == TRP_OK &&
               trpi_replies_init(&worker.replies, &err) == TRP_OK &&
               trpi_control_open(&worker, &err) == TRP_OK) {
        trpi_error_clear(&err);
    }
    if (err.code != TRP_OK) {
        trpi_log(TRPI_ERROR, "worker_failed", "error=\"%s\"", err.message);
        _exit(1);
    }
    if (become_actor(&worker, &err) != TRP_OK) {
        trpi_control_failed(&worker, TRP_CAUSE_NEVER_STARTED, err.message);
        leave(&worker, 1);
    }
    trpi_control_started(&worker);
    serve(&worker);
    trpi_control_failed(&worker, TRP_CAUSE_FINISHED, "ended itself");
    if (worker.type->stop) {
        worker.type->stop(&worker, worker.state);
    }
    leave(&worker, 0);
}

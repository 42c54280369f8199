/* Zygotes: one process per program, loaded and initialized once, that forks the program's workers.
 *
 *   DOWN -(start)-> STARTING -(its first message)-> READY -(its death)-> DOWN
 *
 * The daemon itself never forks: it holds threads and ZeroMQ, and its heap may be large. A zygote
 * that ends before it was READY says that the program is broken: the starts that wait for it fail.
 * One that ends later was killed by somebody: the starts wait for the next one, with backoff. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "actors/proc/worker.h"
#include "actors/proc/zygote.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/fdpass.h"
#include "core/sys/file.h"
#include "core/sys/process.h"

#define PAUSE_MS 100       /* after a fork or pipe that failed for want of something */
#define FILES_AGAIN_MS 500 /* how far its executable has come is looked at this often */
#define ENVIRONMENT_MAX 7  /* entries that we add */

extern char **environ;

/* ---- Exec ---- */

static uint64_t backoff_ns(const trpi_program *program) {
    uint64_t first = trpi_config(TRPI_CONFIG_RESTART_BACKOFF_MS);
    uint64_t ms = first << TRPI_MIN(program->failures, 20u);
    return TRPI_MIN(ms, trpi_config(TRPI_CONFIG_RESTART_BACKOFF_MAX_MS)) * TRPI_NS_PER_MS;
}

/* Our environment without the names that we set, and with what every worker must know. */
static char **zygote_environment(const trpi_node *node, int sock) {
    static const char *const names[] = {TRPI_ZYGOTE_ENV,   TRPI_ENV_NODE, TRPI_ENV_NODE_PID,
                                        TRPI_ENV_NODE_DIR, TRPI_ENV_HOST, TRPI_ENV_ADDRESS,
                                        TRPI_ENV_BIND_NOW};
    _Static_assert(TRPI_COUNTOF(names) == ENVIRONMENT_MAX, "room for all names");
    char values[ENVIRONMENT_MAX][192];
    size_t count = 0, used = 0;
    trpi_format(values[0], sizeof values[0], "%d", sock);
    trpi_format(values[1], sizeof values[1], "%llu", (unsigned long long)node->id);
    trpi_format(values[2], sizeof values[2], "%d", (int)getpid());
    TRPI_SET(values[3], node->dir);
    TRPI_SET(values[4], node->options->host ? node->options->host : "");
    TRPI_SET(values[5], node->options->address);
    TRPI_SET(values[6], "1");
    while (environ[count]) {
        count++;
    }
    char **env = trpi_alloc((count + ENVIRONMENT_MAX + 1) * sizeof *env);
    for (size_t i = 0; i < count; i++) {
        bool ours = false;
        for (size_t k = 0; k < ENVIRONMENT_MAX; k++) {
            size_t length = strlen(names[k]);
            ours |= strncmp(environ[i], names[k], length) == 0 && environ[i][length] == '=';
        }
        if (!ours) {
            env[used++] = trpi_strdup(environ[i]);
        }
    }
    for (size_t k = 0; k < ENVIRONMENT_MAX; k++) {
        char entry[256];
        trpi_format(entry, sizeof entry, "%s=%s", names[k], values[k]);
        env[used++] = trpi_strdup(entry);
    }
    return env;
}

static void environment_free(char **env) {
    for (size_t i = 0; env[i]; i++) {
        free(env[i]);
    }
    free(env);
}

/* Where its file and its directory are on this host: TRP_EBUSY while they are on their way. */
typedef struct zygote_place {
    char exe[4096], cwd[4096];
} zygote_place;

static trp_code find_place(trpi_node *node, trpi_program *program, zygote_place *ret_place,
                           trp_error *err) {
    /* Both are asked for before either is waited for. */
    trp_code package = TRP_OK;
    trp_error package_err = {0};
    trpi_format(ret_place->cwd, sizeof ret_place->cwd, "%s", program->cwd);
    if (program->package[0]) {
        package = trpi_blobs_package(node, program->package, program->job, &program->package_blob,
                                     ret_place->cwd, sizeof ret_place->cwd, &package_err);
    } else if (!trpi_file_exists(program->cwd)) {
        ret_place->cwd[0] =
            '\0'; /* a directory of the driver's host; a worker decides for itself */
    }
    trp_code code = trpi_blobs_exe(node, program->exe, program->exe_hash, program->job,
                                   &program->exe_blob, ret_place->exe, sizeof ret_place->exe, err);
    if ((code == TRP_OK || code == TRP_EBUSY) && package != TRP_OK) {
        return trpi_fail(err, package, "%s", package_err.message);
    }
    return code;
}

static trp_code exec_zygote(trpi_node *node, trpi_program *program, const zygote_place *place,
                            int sock, int pipe, trp_error *err) {
    char **env = zygote_environment(node, sock);
    const char *argv[] = {program->exe, NULL};
    trpi_spawn spawn = {.exe = place->exe,
                        .argv = argv,
                        .envp = (const char *const *)env,
                        .cwd = *place->cwd ? place->cwd : NULL,
                        .in = -1,
                        .out = pipe,
                        .err = pipe,
                        .keep_fd = sock,
                        .own_group = true,
                        .die_with_parent = true};
    trp_code code = trpi_process_spawn(&spawn, &program->zygote, err);
    environment_free(env);
    return code;
}

static trp_code open_pipe(int fds[2], trp_error *err) {
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return trpi_fail(err, TRP_EBUSY, "pipe: %s", strerror(errno));
    }
    (void)fcntl(fds[0], F_SETFL,
                O_NONBLOCK); /* ours; the writer's end stays as programs expect it */
    return TRP_OK;
}

static trp_code spawn_zygote(trpi_node *node, trpi_program *program, const zygote_place *place,
                             trp_error *err) {
    int socks[2] = {-1, -1}, pipes[2] = {-1, -1};
    trp_code code = trpi_node_may_open(node, 0, err); /* this program counts already */
    if (code == TRP_OK) {
        code = trpi_seqpacket_pair(socks, err);
    }
    if (code == TRP_OK) {
        code = open_pipe(pipes, err);
    }
    if (code == TRP_OK) {
        (void)fcntl(socks[0], F_SETFL, O_NONBLOCK);
        code = exec_zygote(node, program, place, socks[1], pipes[1], err);
    }
    if (code == TRP_OK) {
        program->sock = socks[0];
        program->pipe = pipes[0];
        socks[0] = pipes[0] = -1;
        code = trpi_node_watch_fd(node, program->sock, TRPI_SOURCE_ZYGOTE, program->id, err);
    }
    if (code == TRP_OK) {
        code = trpi_node_watch_fd(node, program->pipe, TRPI_SOURCE_ZYGOTE_OUTPUT, program->id, err);
    }
    int all[] = {socks[0], socks[1], pipes[0], pipes[1]};
    for (size_t i = 0; i < TRPI_COUNTOF(all); i++) {
        if (all[i] >= 0) {
            close(all[i]);
        }
    }
    return code;
}

/* The starts that wait can't be served; each head learns why. */
static void fail_wanted(trpi_node *node, trpi_program *program, const char *reason) {
    char tail[4097];
    trpi_output_tail(&program->output, tail, sizeof tail);
    trpi_log(TRPI_WARN, "program_failed", "exe=%s reason=\"%s\"", program->exe, reason);
    trpi_node_worker *worker;
    program->held++;
    while ((worker = TAILQ_FIRST(&program->wanted)) != NULL) {
        trpi_node_never_started(node, worker, TRP_CAUSE_NEVER_STARTED, reason, tail);
    }
    program->held--;
}

void trpi_zygote_kill(trpi_program *program) {
    if (program->zygote != 0) {
        program->killed = true;
        trpi_kill_group(program->zygote, SIGKILL);
    }
}

static void start_failed(trpi_node *node, trpi_program *program, const trp_error *err) {
    char reason[512];
    TRPI_SET(program->trouble, err->message);
    program->retry_ns = trpi_now_ns() + backoff_ns(program);
    program->failures++;
    if (program->zygote != 0) {
        trpi_zygote_kill(program); /* runs, but we can't hear it */
    } else if (err->code == TRP_EBUSY || err->code == TRP_ENOMEM || err->code == TRP_EIO) {
        trpi_program_wake_at(node, program, program->retry_ns);
    } else {
        trpi_format(reason, sizeof reason, "cannot start the program on node n%llu: %s",
                    (unsigned long long)node->id, err->message);
        fail_wanted(node, program, reason);
        trpi_program_worker_freed(node, program);
    }
}

/* What it needs can't be had here, and waiting does not help. May free it. */
static void files_failed(trpi_node *node, trpi_program *program, const trp_error *err) {
    char reason[900];
    trpi_format(reason, sizeof reason, "cannot start the program on node n%llu: %s",
                (unsigned long long)node->id, err->message);
    trpi_blobs_release(node, &program->exe_blob); /* the next start tries again */
    trpi_blobs_release(node, &program->package_blob);
    fail_wanted(node, program, reason);
    trpi_program_worker_freed(node, program);
}

void trpi_zygote_start(trpi_node *node, trpi_program *program) {
    trp_error err = {0};
    zygote_place place;
    if (trpi_now_ns() < program->retry_ns) {
        trpi_program_wake_at(node, program, program->retry_ns);
        return;
    }
    trp_code code = find_place(node, program, &place, &err);
    if (code == TRP_EBUSY) {
        TRPI_SET(program->trouble, err.message);
        trpi_program_wake_at(node, program, trpi_deadline_ns(FILES_AGAIN_MS));
        return;
    }
    if (code != TRP_OK) {
        files_failed(node, program, &err);
        return;
    }
    program->killed = program->foreign = false;
    trpi_output_release(&program->output);
    if (spawn_zygote(node, program, &place, &err) != TRP_OK) {
        start_failed(node, program, &err);
        return;
    }
    program->phase = TRPI_PROGRAM_STARTING;
    program->ready_due_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_START_TIMEOUT_MS));
    trpi_program_wake_at(node, program, program->ready_due_ns);
    trpi_process_prefer_to_die(program->zygote); /* and its workers, which inherit it */
    trpi_log(TRPI_INFO, "zygote_started", "exe=%s pid=%d", program->exe, (int)program->zygote);
}

void trpi_zygote_close(trpi_node *node, trpi_program *program) {
    trpi_node_unwatch_fd(node, &program->sock);
    trpi_node_unwatch_fd(node, &program->pipe);
}

void trpi_zygote_output(trpi_node *node, trpi_program *program) {
    if (program->pipe < 0) {
        return;
    }
    ssize_t n = read(program->pipe, node->chunk, TRPI_CHUNK_BYTES);
    if (n > 0) {
        trp_buf_clear(&node->lines);
        trpi_output_feed(&program->output, (trp_bytes){node->chunk, (size_t)n}, &node->lines);
    } else if (n == 0) {
        trpi_node_unwatch_fd(node, &program->pipe);
    }
}

/* Workers that it was asked for and will not fork any more. */
static void recall_forking(trpi_node *node, trpi_program *program) {
    size_t cursor = 0, count = 0;
    trpi_node_worker *worker;
    trpi_node_worker **lost = trpi_alloc((program->workers + 1) * sizeof(trpi_node_worker *));
    while ((worker = trpi_map_next(&node->workers, &cursor)) != NULL) {
        if (worker->program == program && worker->phase == TRPI_WORKER_FORKING) {
            lost[count++] = worker;
        }
    }
    for (size_t i = 0; i < count; i++) {
        worker = lost[i];
        if (worker->actor == 0) {
            trpi_node_worker_free(node, worker);
        } else {
            /* A new token: should the old one still show up, it is nobody's. */
            trpi_node_worker_renew(node, worker);
            trpi_program_list_wanted(worker);
        }
    }
    free(lost);
    program->forking = 0;
}

/* What its end means for the starts that wait. */
static void explain_end(trpi_node *node, trpi_program *program, bool was_ready, int status) {
    char ended[64], reason[512];
    trpi_wait_status_text(status, ended, sizeof ended);
    if (program->foreign) {
        trpi_format(reason, sizeof reason,
                    "%s was built with another version of troupe than node n%llu", program->exe,
                    (unsigned long long)node->id);
        fail_wanted(node, program, reason);
    } else if (!program->killed && !was_ready) {
        trpi_format(reason, sizeof reason,
                    "%s on node n%llu ended before it reached trp_init(): %s", program->exe,
                    (unsigned long long)node->id, ended);
        fail_wanted(node, program, reason);
    } else if (!program->killed) {
        trpi_format(program->trouble, sizeof program->trouble, "its zygote ended: %s", ended);
        trpi_log(TRPI_WARN, "zygote_died", "exe=%s how=\"%s\"", program->exe, ended);
    }
}

void trpi_zygote_gone(trpi_node *node, trpi_program *program, int status) {
    trpi_zygote_drain(node, program);
    trpi_zygote_output(node, program);
    bool was_ready = program->phase == TRPI_PROGRAM_READY;
    program->zygote = 0;
    program->phase = TRPI_PROGRAM_DOWN;
    program->retry_ns = trpi_now_ns() + backoff_ns(program);
    program->failures++;
    program->held++;
    trpi_zygote_close(node, program);
    recall_forking(node, program);
    explain_end(node, program, was_ready, status);
    program->held--;
    if (!TAILQ_EMPTY(&program->wanted)) {
        trpi_program_wake_at(node, program, program->retry_ns);
    }
    trpi_program_worker_freed(node, program);
}

/* ---- Forks ---- */

static void pause_forks(trpi_node *node, trpi_program *program, const char *trouble) {
    TRPI_SET(program->trouble, trouble);
    program->paused_ns = trpi_deadline_ns(PAUSE_MS);
    trpi_program_wake_at(node, program, program->paused_ns);
}

/* Said once, until one succeeds. Nobody waits for what the pool lacks. */
static void forks_refused(trpi_node *node, const trpi_node_worker *worker, const char *trouble) {
    if (worker->actor != 0 && !node->forks_refused) {
        node->forks_refused = true;
        trpi_log(TRPI_WARN, "no_worker", "actor=%llu error=\"%s\"",
                 (unsigned long long)worker->actor, trouble);
    }
}

static trp_code ask_fork(trpi_program *program, trpi_node_worker *worker, trp_error *err) {
    int out[2], errors[2];
    trpi_fork_request request = {.magic = TRPI_ZYGOTE_MAGIC, .token = worker->token};
    trp_code code = open_pipe(out, err);
    if (code != TRP_OK) {
        return code;
    }
    code = open_pipe(errors, err);
    if (code != TRP_OK) {
        close(out[0]);
        close(out[1]);
        return code;
    }
    code = trpi_fd_send(program->sock, (trp_bytes){&request, sizeof request},
                        (int[]){out[1], errors[1]}, 2, err);
    close(out[1]);
    close(errors[1]);
    worker->pipes[0] = out[0];
    worker->pipes[1] = errors[0];
    return code;
}

/* From here on its time for an answer runs. */
static void expect_forks(trpi_node *node, trpi_program *program) {
    program->fork_due_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_FORK_TIMEOUT_MS));
    if (program->fork_wake_ns <= trpi_now_ns()) {
        program->fork_wake_ns = program->fork_due_ns;
        trpi_program_wake_at(node, program, program->fork_due_ns);
    }
}

/* False when nothing more can be asked for now. */
bool trpi_zygote_fork(trpi_node *node, trpi_program *program, trpi_node_worker *worker) {
    trp_error err = {0};
    /* A spare is counted already, a wanted one is not. */
    size_t more = worker->list == TRPI_LIST_WANTED ? TRPI_WORKER_DESCRIPTORS : 0;
    if (trpi_node_may_open(node, more, &err) != TRP_OK ||
        trpi_node_may_fork(node, &err) != TRP_OK || ask_fork(program, worker, &err) != TRP_OK) {
        trpi_node_unwatch_fd(node, &worker->pipes[0]);
        trpi_node_unwatch_fd(node, &worker->pipes[1]);
        forks_refused(node, worker, err.message);
        pause_forks(node, program, err.message);
        return false;
    }
    node->forks_refused = false;
    trpi_program_unlist(worker);
    worker->phase = TRPI_WORKER_FORKING;
    if (program->forking++ == 0) {
        expect_forks(node, program);
    }
    if (worker->actor != 0) {
        trpi_node_output_start(node, worker);
    } else {
        trpi_program_list_spare(worker);
    }
    return true;
}

static void fork_failed(trpi_node *node, trpi_program *program, trpi_node_worker *worker,
                        int error) {
    char trouble[128];
    trpi_format(trouble, sizeof trouble, "fork: %s", strerror(error));
    pause_forks(node, program, trouble);
    trpi_node_unwatch_fd(node, &worker->pipes[0]);
    trpi_node_unwatch_fd(node, &worker->pipes[1]);
    if (worker->actor == 0) {
        trpi_node_worker_free(node, worker);
    } else {
        trpi_program_list_wanted(worker);
    }
}

static void take_reply(trpi_node *node, trpi_program *program, const trpi_fork_reply *reply) {
    if (reply->token == 0) {
        program->phase = TRPI_PROGRAM_READY;
        program->failures = 0;
        program->trouble[0] = '\0';
        return;
    }
    program->forking -= program->forking > 0;
    expect_forks(node, program);
    trpi_node_worker *worker = trpi_map_get(&node->workers, reply->token);
    if (!worker || worker->phase != TRPI_WORKER_FORKING) {
        trpi_log(TRPI_WARN, "fork_unexpected", "exe=%s token=%llu", program->exe,
                 (unsigned long long)reply->token);
    } else if (reply->error != 0) {
        fork_failed(node, program, worker, reply->error);
    } else {
        trpi_node_worker_has_pid(node, worker, (pid_t)reply->pid);
    }
}

void trpi_zygote_drain(trpi_node *node, trpi_program *program) {
    trp_buf data = {0};
    bool any = false;
    program->held++;
    while (program->sock >= 0) {
        size_t fd_count = 0;
        trp_buf_clear(&data);
        trp_code code = trpi_fd_recv(program->sock, &data, NULL, 0, &fd_count, NULL);
        if (code == TRP_ETIMEOUT) {
            break;
        }
        trpi_fork_reply reply;
        if (code != TRP_OK) {
            trpi_node_unwatch_fd(node, &program->sock); /* its death is on its way */
        } else if (data.size != sizeof reply ||
                   (memcpy(&reply, data.data, sizeof reply), reply.magic) != TRPI_ZYGOTE_MAGIC) {
            program->foreign = true;
            trpi_zygote_kill(program);
            trpi_node_unwatch_fd(node, &program->sock);
        } else {
            take_reply(node, program, &reply);
            any = true;
        }
    }
    trp_buf_release(&data);
    program->held--;
    if (any) {
        trpi_program_refill(node, program);
    }
}

void trpi_zygotes_drain(trpi_node *node) {
    size_t cursor = 0;
    trpi_program *program;
    while ((program = trpi_map_next(&node->programs_by_id, &cursor)) != NULL) {
        if (program->forking > 0) {
            trpi_zygote_drain(node, program);
        }
    }
}

trpi_program *trpi_zygote_of_pid(const trpi_node *node, pid_t pid) {
    size_t cursor = 0;
    trpi_program *program;
    while ((program = trpi_map_next(&node->programs_by_id, &cursor)) != NULL) {
        if (program->zygote == pid) {
            break;
        }
    }
    return program;
}

#include "actors/proc/node_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "actors/proc/output_log.h"
#include "actors/proc/zygote.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/process.h"

#define NEVER_STARTED_EXIT 127 /* as a shell's for a command that it can't run */
#define LAST_WORDS_MAX 32 /* chunks read of a dead one's pipe: somebody else may write for ever */
#define NO_GRACE 0

extern char **environ;

static const char marks[2] = {'o', 'e'};

/* ---- The table ---- */

static trpi_node_job *find(const trpi_node *node, uint64_t id) {
    trpi_node_job *job;
    TAILQ_FOREACH(job, &node->jobs, link) {
        if (job->id == id) {
            return job;
        }
    }
    return NULL;
}

trpi_node_job *trpi_jobs_of_pid(const trpi_node *node, pid_t pid) {
    trpi_node_job *job;
    TAILQ_FOREACH(job, &node->jobs, link) {
        if (job->pid == pid) {
            return job;
        }
    }
    return NULL;
}

static void job_free(trpi_node *node, trpi_node_job *job) {
    trpi_node_log_ends(node, true, job->id);
    for (int i = 0; i < 2; i++) {
        trpi_node_unwatch_fd(node, &job->pipes[i]);
        trpi_output_release(&job->streams[i]);
    }
    trpi_blobs_release(node, &job->package);
    TAILQ_REMOVE(&node->jobs, job, link);
    trpi_arena_release(&job->arena);
    trp_buf_release(&job->frame);
    free(job);
}

void trpi_jobs_clear(trpi_node *node) {
    trpi_node_job *job;
    while ((job = TAILQ_FIRST(&node->jobs)) != NULL) {
        job_free(node, job);
    }
}

size_t trpi_jobs_descriptors(const trpi_node *node) {
    const trpi_node_job *job;
    size_t count = 0;
    TAILQ_FOREACH(job, &node->jobs, link) {
        count += TRPI_COUNTOF(job->pipes);
    }
    return count;
}

bool trpi_jobs_log(const trpi_node *node, uint64_t id, char *out, size_t size) {
    trpi_node_log_path(node, true, id, out, size);
    return find(node, id) != NULL;
}

/* ---- What the head is told ---- */

static void say_started(trpi_node *node, const trpi_node_job *job) {
    trpi_msg msg = {.type = TRPI_MSG_JOB_STARTED, .job_started = {.job = job->id, .pid = job->pid}};
    trpi_node_say(node, &msg);
}

static void say_exited(trpi_node *node, uint64_t id, int exit_code, int signal_number,
                       const char *message) {
    trpi_msg msg = {
        .type = TRPI_MSG_JOB_EXITED,
        .job_exited = {
            .job = id, .exit_code = exit_code, .signal = signal_number, .message = message}};
    trpi_log(TRPI_INFO, "job_exited", "job=%llu message=\"%s\"", (unsigned long long)id, message);
    if (node->phase == TRPI_NODE_SERVING) {
        trpi_node_say(node, &msg);
        trpi_node_keep_said(node);
    }
}

static void write_log(trpi_node *node, const trpi_node_job *job, char mark, trp_bytes lines) {
    char path[256];
    trp_error err = {0};
    (void)trpi_jobs_log(node, job->id, path, sizeof path);
    trpi_output_log log = trpi_node_log(path);
    if (lines.size > 0 && trpi_output_log_append(&log, mark, lines, &err) != TRP_OK &&
        !node->log_failing) {
        node->log_failing = true; /* once, and not for every line of a full disk */
        trpi_log(TRPI_ERROR, "log_lost", "job=%llu error=\"%s\"", (unsigned long long)job->id,
                 err.message);
    }
}

/* It ends before it was anything; its log tells why, too. */
static void never_started(trpi_node *node, trpi_node_job *job, int signal_number,
                          const char *message) {
    char line[1024];
    trpi_format(line, sizeof line, "%s\n", message);
    write_log(node, job, 'e', trp_bytes_of(line));
    say_exited(node, job->id, signal_number ? 0 : NEVER_STARTED_EXIT, signal_number, message);
    job_free(node, job);
}

/* ---- Its environment: the daemon's, what the submitter asked for, what a driver must know ---- */

static bool same_name(const char *a, const char *b) {
    size_t length = strcspn(b, "=");
    return strncmp(a, b, length) == 0 && a[length] == '=';
}

/* The last entry of a name wins. */
static void put_entry(char **env, size_t *count, const char *entry) {
    for (size_t i = 0; i < *count; i++) {
        if (same_name(env[i], entry)) {
            free(env[i]);
            env[i] = trpi_strdup(entry);
            return;
        }
    }
    env[(*count)++] = trpi_strdup(entry);
}

static char **make_environment(const trpi_node *node, const trpi_msg_job_start *start) {
    char own[4][256];
    size_t count = 0, room = 0;
    trpi_format(own[0], sizeof own[0], "%s=%s", TRPI_ENV_ADDRESS,
                start->address[0] ? start->address : node->options->address);
    trpi_format(own[1], sizeof own[1], "%s=%llu", TRPI_ENV_JOB, (unsigned long long)start->job);
    trpi_format(own[2], sizeof own[2], "%s=%s", TRPI_ENV_PACKAGE, start->package);
    /* What the guard of a killed daemon knows its processes by: a job's children outlive its
     * leader, who dies with the daemon. */
    trpi_format(own[3], sizeof own[3], "%s=%s", TRPI_ENV_NODE_DIR, node->dir);
    while (environ[room]) {
        room++;
    }
    char **env = trpi_alloc((room + start->env_count + TRPI_COUNTOF(own) + 1) * sizeof *env);
    for (size_t i = 0; i < room; i++) {
        put_entry(env, &count, environ[i]);
    }
    for (size_t i = 0; i < start->env_count; i++) {
        if (strchr(start->env[i].value, '=')) {
            put_entry(env, &count, start->env[i].value);
        }
    }
    for (size_t i = 0; i < TRPI_COUNTOF(own); i++) {
        put_entry(env, &count, own[i]);
    }
    return env;
}

static const char *value_of(char *const *env, const char *name) {
    for (size_t i = 0; env[i]; i++) {
        if (strncmp(env[i], name, strlen(name)) == 0 && env[i][strlen(name)] == '=') {
            return env[i] + strlen(name) + 1;
        }
    }
    return "";
}

static void free_environment(char **env) {
    for (size_t i = 0; env[i]; i++) {
        free(env[i]);
    }
    free(env);
}

/* ---- Spawning ---- */

static trp_code open_pipes(int ours[2], int theirs[2], trp_error *err) {
    for (int i = 0; i < 2; i++) {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC) != 0) {
            return trpi_fail(err, TRP_EBUSY, "pipe: %s", strerror(errno));
        }
        (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
        ours[i] = fds[0];
        theirs[i] = fds[1];
    }
    return TRP_OK;
}

static void close_both(int fds[2]) {
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
}

static trp_code exec_job(trpi_node *node, trpi_node_job *job, const char *cwd, char **env,
                         int theirs[2], trp_error *err) {
    const trpi_msg_job_start *start = &job->msg.job_start;
    char exe[4096];
    trp_code code =
        trpi_program_find(start->argv[0].value, cwd, value_of(env, "PATH"), exe, sizeof exe, err);
    if (code != TRP_OK) {
        return code;
    }
    const char **argv = trpi_alloc((start->argv_count + 1) * sizeof *argv);
    for (size_t i = 0; i < start->argv_count; i++) {
        argv[i] = start->argv[i].value;
    }
    trpi_spawn spawn = {.exe = exe,
                        .argv = argv,
                        .envp = (const char *const *)env,
                        .cwd = cwd,
                        .in = -1,
                        .out = theirs[0],
                        .err = theirs[1],
                        .keep_fd = -1,
                        .own_group = true,
                        .die_with_parent = true,
                        .subreaper = true};
    code = trpi_process_spawn(&spawn, &job->pid, err);
    free(argv);
    return code;
}

static trp_code spawn(trpi_node *node, trpi_node_job *job, const char *cwd, trp_error *err) {
    int theirs[2] = {-1, -1};
    char **env = make_environment(node, &job->msg.job_start);
    trp_code code = trpi_node_may_open(node, 2, err);
    if (code == TRP_OK) {
        code = open_pipes(job->pipes, theirs, err);
    }
    for (int i = 0; i < 2 && code == TRP_OK; i++) {
        code = trpi_node_watch_fd(node, job->pipes[i],
                                  i == 0 ? TRPI_SOURCE_JOB_STDOUT : TRPI_SOURCE_JOB_STDERR, job->id,
                                  err);
    }
    if (code == TRP_OK) {
        code = exec_job(node, job, cwd, env, theirs, err);
    }
    close_both(theirs);
    free_environment(env);
    return code;
}

/* The command's directory: the package, the one that was asked for, else the daemon's own. */
static trp_code find_cwd(trpi_node *node, trpi_node_job *job, char *out, size_t size,
                         trp_error *err) {
    const trpi_msg_job_start *start = &job->msg.job_start;
    if (start->package[0]) {
        return trpi_blobs_package(node, start->package, 0, &job->package, out, size, err);
    }
    if (start->cwd[0]) {
        trpi_format(out, size, "%s", start->cwd);
    } else if (!getcwd(out, size)) {
        return trpi_fail(err, TRP_EIO, "working directory: %s", strerror(errno));
    }
    return TRP_OK;
}

/* Starts it, if what it needs is here. May free it. */
static void go_on(trpi_node *node, trpi_node_job *job) {
    char cwd[4096], message[1024];
    trp_error err = {0};
    trp_code code = find_cwd(node, job, cwd, sizeof cwd, &err);
    if (code == TRP_EBUSY && job->package) {
        return; /* on its way */
    }
    if (code == TRP_OK) {
        code = spawn(node, job, cwd, &err);
    }
    if (code != TRP_OK) {
        trpi_format(message, sizeof message, "cannot start on node n%llu: %s",
                    (unsigned long long)node->id, err.message);
        never_started(node, job, 0, message);
        return;
    }
    trpi_log(TRPI_INFO, "job_started", "job=%llu pid=%d command=%s cwd=%s",
             (unsigned long long)job->id, (int)job->pid, job->msg.job_start.argv[0].value, cwd);
    say_started(node, job);
}

void trpi_jobs_go_on(trpi_node *node) {
    trpi_node_job *job, *next;
    TRPI_TAILQ_FOREACH_SAFE(job, &node->jobs, link, next) {
        if (job->pid == 0 && node->phase == TRPI_NODE_SERVING) {
            go_on(node, job);
        }
    }
}

void trpi_jobs_start(trpi_node *node, const trpi_msg_job_start *start, trp_bytes frame) {
    trpi_node_job *job = find(node, start->job);
    trp_error err = {0};
    if (job) { /* said twice */
        if (job->pid != 0) {
            say_started(node, job);
        }
        return;
    }
    if (start->argv_count == 0) {
        say_exited(node, start->job, NEVER_STARTED_EXIT, 0, "there is no command");
        return;
    }
    job = trpi_alloc(sizeof *job);
    job->id = start->job;
    job->pipes[0] = job->pipes[1] = -1;
    TAILQ_INSERT_TAIL(&node->jobs, job, link);
    /* The message that is being handled goes with its packet. */
    trp_code code = trp_buf_append(&job->frame, frame.data, frame.size);
    if (code == TRP_OK) {
        code = trpi_decode(trp_buf_bytes(&job->frame), &job->arena, &job->msg, &err);
    }
    if (code != TRP_OK) {
        job_free(node, job);
        say_exited(node, start->job, NEVER_STARTED_EXIT, 0, "the node is out of memory");
        return;
    }
    go_on(node, job);
}

/* ---- Its end ---- */

void trpi_jobs_end(trpi_node *node, const trpi_msg_job_end *end) {
    trpi_node_job *job = find(node, end->job);
    if (!job) { /* its JOB_EXITED was lost: the same answer however often it comes */
        say_exited(node, end->job, 0, 0, "no process of it is left on this node");
        return;
    }
    if (job->pid == 0) {
        never_started(node, job, SIGTERM, "stopped before it started");
        return;
    }
    uint64_t kill_ns = trpi_deadline_ns(end->grace_ms);
    if (!job->must_end || end->grace_ms == NO_GRACE) { /* said again, it is no second request */
        trpi_kill_group(job->pid, end->grace_ms == NO_GRACE ? SIGKILL : SIGTERM);
    }
    job->kill_ns = job->must_end ? TRPI_MIN(job->kill_ns, kill_ns) : kill_ns;
    job->must_end = true;
    trpi_node_timer(node, TRPI_TIMER_JOB, job->id, job->kill_ns);
}

void trpi_jobs_due(trpi_node *node, uint64_t id, uint64_t now_ns) {
    trpi_node_job *job = find(node, id);
    if (job && job->must_end && job->kill_ns <= now_ns) {
        trpi_log(TRPI_WARN, "job_killed", "job=%llu reason=\"its grace has passed\"",
                 (unsigned long long)id);
        trpi_kill_group(job->pid, SIGKILL);
    }
}

void trpi_jobs_gone(trpi_node *node, trpi_node_job *job, int status) {
    char message[64];
    for (int i = 0; i < 2; i++) {
        for (int chunks = 0; chunks < LAST_WORDS_MAX && job->pipes[i] >= 0; chunks++) {
            trpi_jobs_read(node, job->id, i);
        }
        trp_buf_clear(&node->lines);
        trpi_output_finish(&job->streams[i], &node->lines);
        write_log(node, job, marks[i], trp_buf_bytes(&node->lines));
    }
    trpi_wait_status_text(status, message, sizeof message);
    say_exited(node, job->id, WIFEXITED(status) ? WEXITSTATUS(status) : 0,
               WIFSIGNALED(status) ? WTERMSIG(status) : 0, message);
    job_free(node, job);
}

void trpi_jobs_say_again(trpi_node *node) {
    trpi_node_job *job;
    TAILQ_FOREACH(job, &node->jobs, link) {
        if (job->pid != 0) {
            say_started(node, job);
        }
    }
}

/* ---- Its output ---- */

void trpi_jobs_read(trpi_node *node, uint64_t id, int stream) {
    trpi_node_job *job = find(node, id);
    if (!job || job->pipes[stream] < 0) {
        return;
    }
    ssize_t n = read(job->pipes[stream], node->chunk, TRPI_CHUNK_BYTES);
    if (n < 0) {
        return;
    }
    trp_buf_clear(&node->lines);
    if (n == 0) {
        trpi_node_unwatch_fd(node, &job->pipes[stream]);
        trpi_output_finish(&job->streams[stream], &node->lines);
    } else {
        trpi_output_feed(&job->streams[stream], (trp_bytes){node->chunk, (size_t)n}, &node->lines);
    }
    write_log(node, job, marks[stream], trp_buf_bytes(&node->lines));
}

/* From SIGCHLD to EXITED.
 *
 * Children are learned of by SIGCHLD on a signalfd and not by a pidfd each: as the subreaper the
 * daemon is also sent processes that it never started, and those must be reaped as well. A pid is
 * used only while we have not reaped it, so it can't be another process'. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "actors/proc/worker_name.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/process.h"

#define SAID_KEPT_NS (60 * 1000 * TRPI_NS_PER_MS)
#define KILL_AGAIN_MS 100

/* ---- EXITED ---- */

void trpi_node_keep_said(trpi_node *node) {
    trpi_said *said = &node->said[node->said_next];
    node->said_next = (node->said_next + 1) % TRPI_SAID_MAX;
    trp_buf_clear(&said->frame);
    said->at_ns = trpi_now_ns();
    if (trp_buf_append(&said->frame, node->frame.data, node->frame.size) != TRP_OK) {
        trp_buf_release(&said->frame);
    }
}

void trpi_node_say_again(trpi_node *node) {
    uint64_t now_ns = trpi_now_ns();
    for (size_t i = 0; i < TRPI_SAID_MAX && node->head; i++) {
        const trpi_said *said = &node->said[(node->said_next + i) % TRPI_SAID_MAX];
        if (said->frame.size > 0 && now_ns - said->at_ns < SAID_KEPT_NS) {
            (void)!trpi_sock_send(node->head, (trp_bytes){0}, trp_buf_bytes(&said->frame),
                                  (trp_bytes){0}, NULL);
        }
    }
}

void trpi_node_forget_said(trpi_node *node) {
    for (size_t i = 0; i < TRPI_SAID_MAX; i++) {
        trp_buf_release(&node->said[i].frame);
    }
}

static void say_exited(trpi_node *node, uint64_t actor, trpi_death *death) {
    trpi_msg msg = {.type = TRPI_MSG_EXITED,
                    .exited = {.actor = actor, .death = death, .death_count = 1}};
    trpi_log(TRPI_INFO, "worker_exited",
             "actor=%llu incarnation=%llu pid=%lld cause=\"%s\" message=\"%s\" core=\"%s\"",
             (unsigned long long)actor, (unsigned long long)death->incarnation,
             (long long)death->pid, trp_cause_text((trp_cause)death->cause), death->message,
             death->core);
    if (node->phase == TRPI_NODE_SERVING) {
        /* In the other phases the head knows from elsewhere: NODE_BYE, or the lease. */
        trpi_node_say(node, &msg);
        trpi_node_keep_said(node);
    }
}

void trpi_node_say_never_started(trpi_node *node, const trpi_node_worker *worker, trp_cause cause,
                                 const char *reason, const char *tail) {
    trpi_death death = {.incarnation = worker->incarnation,
                        .node = node->id,
                        .pid = worker->pid,
                        .cause = cause,
                        .message = reason,
                        .stderr_tail = tail,
                        .core = ""};
    say_exited(node, worker->actor, &death);
}

void trpi_node_never_started(trpi_node *node, trpi_node_worker *worker, trp_cause cause,
                             const char *reason, const char *tail) {
    if (worker->actor != 0) {
        trpi_node_say_never_started(node, worker, cause, reason, tail);
    }
    trpi_node_worker_free(node, worker);
}

/* It was asked to stop in good order, and ended: did it? */
static bool stopped_badly(const trpi_node_worker *worker, int status) {
    return worker->kill_at_ns != 0 && worker->told_cause == TRP_CAUSE_NONE && status != 0;
}

/* How far it came that has ended by itself. */
static const char *before_what(const trpi_node_worker *worker) {
    return worker->phase == TRPI_WORKER_ALIVE      ? ""
           : worker->phase >= TRPI_WORKER_STARTING ? " before its constructor returned"
                                                   : " before it registered";
}

/* What the process' end means: what was asked for explains it best, then what it said itself. */
static void explain(trpi_node *node, const trpi_node_worker *worker, int status, trpi_death *death,
                    char *message, size_t size) {
    char ended[64];
    trpi_wait_status_text(status, ended, sizeof ended);
    death->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    death->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    death->message = message;
    if (worker->killed_ns == 0 && death->signal == SIGKILL &&
        trpi_node_memory_kernel_killed(node)) {
        death->cause = TRP_CAUSE_OUT_OF_MEMORY;
        trpi_format(message, size, "killed by the kernel's out-of-memory killer");
    } else if (worker->asked_cause != TRP_CAUSE_NONE && !stopped_badly(worker, status)) {
        death->cause = worker->asked_cause;
        trpi_format(message, size, "%s", worker->asked_reason);
    } else if (worker->asked_cause != TRP_CAUSE_NONE) {
        death->cause = WIFSIGNALED(status) ? TRP_CAUSE_SIGNALED : TRP_CAUSE_EXITED;
        trpi_format(message, size, "%s while it was asked to stop: %s", ended,
                    worker->asked_reason);
    } else if (worker->told_cause == TRP_CAUSE_FINISHED && status != 0) {
        death->cause = TRP_CAUSE_FINISHED;
        trpi_format(message, size, "%s, then %s", worker->told_reason, ended);
    } else if (worker->told_cause != TRP_CAUSE_NONE) {
        death->cause = worker->told_cause;
        trpi_format(message, size, "%s", worker->told_reason);
    } else {
        death->cause = WIFSIGNALED(status) ? TRP_CAUSE_SIGNALED : TRP_CAUSE_EXITED;
        trpi_format(message, size, "%s%s", ended, before_what(worker));
    }
}

static void remove_socket(const trpi_node *node, const trpi_node_worker *worker) {
    char path[256];
    if (worker->phase >= TRPI_WORKER_STARTING) {
        trpi_format(path, sizeof path, "%s/w%llu", node->dir, (unsigned long long)worker->token);
        unlink(path);
    }
}

/* Before START reached it: the actor has not begun to live. Looked at before it is reaped. */
static bool is_lost(const trpi_node *node, const trpi_node_worker *worker) {
    return node->phase == TRPI_NODE_SERVING && worker->actor != 0 &&
           worker->phase <= TRPI_WORKER_STARTING && worker->asked_cause == TRP_CAUSE_NONE &&
           worker->told_cause == TRP_CAUSE_NONE &&
           !trpi_worker_name_is_taken(worker->pid, worker->actor);
}

static void worker_gone(trpi_node *node, trpi_node_worker *worker, int status, bool is_lost,
                        const trpi_core_trace *trace) {
    trpi_node_output_end(node, worker);
    remove_socket(node, worker);
    if (is_lost && trpi_node_start_again(node, worker)) {
        trpi_node_worker_free(node, worker);
        return;
    }
    if (worker->actor != 0) {
        char message[1024], tail[4097], core[256];
        trpi_death death = {
            .incarnation = worker->incarnation, .node = node->id, .pid = worker->pid};
        explain(node, worker, status, &death, message, sizeof message);
        trpi_core_find(node, worker, status, trace, core, sizeof core);
        death.core = core;
        trpi_output_tail(&worker->streams[1], tail, sizeof tail);
        death.stderr_tail = tail;
        say_exited(node, worker->actor, &death);
    } else if (worker->asked_cause == TRP_CAUSE_NONE && node->phase == TRPI_NODE_SERVING) {
        char ended[64];
        trpi_wait_status_text(status, ended, sizeof ended);
        trpi_log(TRPI_WARN, "idle_worker_died", "pid=%d program=%s how=\"%s\"", (int)worker->pid,
                 worker->program->exe, ended);
    }
    trpi_node_worker_free(node, worker);
}

/* ---- Reaping ---- */

/* The worker of a child that has ended. A zygote tells a pid before the process can be our child,
 * so a pid that we don't know yet is waiting in a socket, or was never a worker. */
static trpi_node_worker *worker_of(trpi_node *node, pid_t pid) {
    trpi_node_worker *worker = trpi_map_get(&node->pids, (uint64_t)pid);
    if (!worker) {
        trpi_zygotes_drain(node);
        worker = trpi_map_get(&node->pids, (uint64_t)pid);
    }
    return worker;
}

static void reap_one(trpi_node *node, pid_t pid, bool dumped) {
    int status = 0;
    bool lost = false;
    trpi_core_trace trace = {0};
    trpi_program *program = trpi_zygote_of_pid(node, pid);
    trpi_node_job *job = trpi_jobs_of_pid(node, pid);
    trpi_node_worker *worker = program || job ? NULL : worker_of(node, pid);
    if (worker || job) {
        /* Its children, while its zombie still keeps the group's number from being used again. */
        trpi_kill_group(pid, SIGKILL);
    }
    if (worker) {
        lost = is_lost(node, worker);
    }
    if (worker && dumped) {
        trpi_core_look(pid, &trace);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (program) {
        trpi_zygote_gone(node, program, status);
        return;
    }
    if (worker) {
        worker_gone(node, worker, status, lost, &trace);
    } else if (job) {
        trpi_jobs_gone(node, job, status);
    } else if (trpi_blobs_reaped(node, pid, status)) {
        return;
    }
    trpi_node_sweep_soon(node); /* what it had as children may be ours now */
}

void trpi_node_reap(trpi_node *node) {
    siginfo_t info;
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
            return;
        }
        reap_one(node, info.si_pid, info.si_code == CLD_DUMPED);
    }
}

bool trpi_node_has_ended(pid_t pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

bool trpi_node_has_children(void) {
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

/* ---- Killing everything ---- */

void trpi_node_kill_all(trpi_node *node) {
    size_t cursor = 0;
    trpi_node_worker *worker;
    while ((worker = trpi_map_next(&node->workers, &cursor)) != NULL) {
        trpi_node_worker_kill(worker);
    }
    cursor = 0;
    trpi_program *program;
    while ((program = trpi_map_next(&node->programs_by_id, &cursor)) != NULL) {
        trpi_zygote_kill(program);
    }
    trpi_node_kill_children(); /* also what a worker left behind */
    if (node->phase == TRPI_NODE_STOPPING && node->stop_until_ns == 0) {
        node->stop_until_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_STOP_TIMEOUT_MS));
    }
    if (node->phase == TRPI_NODE_STOPPING && trpi_now_ns() >= node->stop_until_ns) {
        trpi_log(TRPI_ERROR, "children_left", "reason=\"they do not die\"");
        node->end_reached = true;
    }
    /* A zygote may have forked between our look and its own death. */
    trpi_node_timer(node, TRPI_TIMER_END, 0, trpi_deadline_ns(KILL_AGAIN_MS));
}

/* The table of workers: from START to STARTED, and how one is asked to end. */
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "actors/proc/node_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/process.h"

#define TRIM_WORKERS 32   /* gone since the last time, before it is worth the while */
#define TRIM_AFTER_MS 500 /* when their connections are gone, too */

static const char *const phase_texts[] = {
    [TRPI_WORKER_WANTED] = "waited for a process of its program",
    [TRPI_WORKER_FORKING] = "waited for its process",
    [TRPI_WORKER_FORKED] = "its process hung before it registered",
    [TRPI_WORKER_IDLE] = "idle",
    [TRPI_WORKER_STARTING] = "its constructor had not returned",
    [TRPI_WORKER_ALIVE] = "alive",
};

static void replace_text(char **text, const char *with) {
    free(*text);
    *text = trpi_strdup(with);
}

/* ---- Records ---- */

trpi_node_worker *trpi_node_worker_new(trpi_node *node, trpi_program *program) {
    trpi_node_worker *worker = trpi_alloc(sizeof *worker);
    worker->token = ++node->last_token;
    worker->program = program;
    worker->pipes[0] = worker->pipes[1] = -1;
    worker->streams[1].tail_max = trpi_config(TRPI_CONFIG_LOG_TAIL_BYTES);
    program->workers++;
    trpi_map_set(&node->workers, worker->token, worker);
    return worker;
}

static void forget_actor(trpi_node *node, trpi_node_worker *worker) {
    if (worker->actor != 0) {
        worker->program->bound--;
        if (trpi_map_get(&node->actors, worker->actor) == worker) {
            trpi_map_remove(&node->actors, worker->actor);
        }
    }
}

/* A connection costs ZeroMQ 40 KiB, and glibc keeps what is freed unless it is asked. */
void trpi_node_trim(trpi_node *node) {
    node->trim_due = false;
    node->freed = 0;
    malloc_trim(0);
}

static void trim_soon(trpi_node *node) {
    if (++node->freed >= TRIM_WORKERS && !node->trim_due) {
        node->trim_due = true;
        trpi_node_timer(node, TRPI_TIMER_TRIM, 0, trpi_deadline_ns(TRIM_AFTER_MS));
    }
}

void trpi_node_worker_free(trpi_node *node, trpi_node_worker *worker) {
    trpi_program *program = worker->program;
    trpi_program_unlist(worker);
    forget_actor(node, worker);
    trpi_map_remove(&node->workers, worker->token);
    if (worker->pid != 0) {
        trpi_map_remove(&node->pids, (uint64_t)worker->pid);
    }
    if (worker->in_flush) {
        TAILQ_REMOVE(&node->flush, worker, flush);
    }
    for (int i = 0; i < 2; i++) {
        trpi_node_unwatch_fd(node, &worker->pipes[i]);
        trpi_output_release(&worker->streams[i]);
        trp_buf_release(&worker->batch[i]);
    }
    trp_buf_release(&worker->start);
    free(worker->label);
    free(worker->endpoint);
    free(worker->remote_endpoint);
    free(worker->asked_reason);
    free(worker->told_reason);
    free(worker);
    program->workers--;
    trim_soon(node);
    trpi_program_worker_freed(node, program);
}

void trpi_node_worker_renew(trpi_node *node, trpi_node_worker *worker) {
    trpi_map_remove(&node->workers, worker->token);
    worker->token = ++node->last_token;
    trpi_map_set(&node->workers, worker->token, worker);
    trpi_node_unwatch_fd(node, &worker->pipes[0]);
    trpi_node_unwatch_fd(node, &worker->pipes[1]);
    trpi_node_timer(node, TRPI_TIMER_WORKER, worker->token, worker->due_ns);
}

void trpi_node_worker_has_pid(trpi_node *node, trpi_node_worker *worker, pid_t pid) {
    worker->pid = pid;
    trpi_map_set(&node->pids, (uint64_t)pid, worker);
    if (worker->phase == TRPI_WORKER_FORKING) {
        worker->phase = TRPI_WORKER_FORKED;
    }
    if (worker->asked_cause != TRP_CAUSE_NONE) {
        trpi_kill_group(pid, SIGKILL); /* its end was wanted before it began */
    }
}

/* ---- START ---- */

static void set_due(trpi_node *node, trpi_node_worker *worker, uint64_t timeout_ms) {
    worker->due_ns = trpi_deadline_ns(timeout_ms);
    trpi_node_timer(node, TRPI_TIMER_WORKER, worker->token, worker->due_ns);
}

/* The frame from the head goes on as it is: worker and head mean the same by START. */
static void send_start(trpi_node *node, trpi_node_worker *worker) {
    /* A worker that can't be reached has just died; its death is on its way to us. */
    (void)trpi_node_tell_frame(node, worker->token, trp_buf_bytes(&worker->start));
    trp_buf_release(&worker->start);
    worker->phase = TRPI_WORKER_STARTING;
}

static void bind_actor(trpi_node *node, trpi_node_worker *worker, const trpi_msg_start *start) {
    worker->actor = start->actor;
    worker->incarnation = start->incarnation;
    worker->job = start->owner_job;
    replace_text(&worker->label, *start->name ? start->name : start->type);
    worker->program->bound++;
    trpi_map_set(&node->actors, worker->actor, worker);
}

/* Whether this START begins a life that is new here. */
static bool is_new_life(trpi_node *node, const trpi_msg_start *start) {
    trpi_node_worker *old = trpi_map_get(&node->actors, start->actor);
    if (!old) {
        return true;
    }
    if (old->incarnation >= start->incarnation) {
        /* Said twice, by a head that restarted, or overtaken. */
        if (old->incarnation == start->incarnation && old->phase == TRPI_WORKER_ALIVE) {
            trpi_node_say_started(node, old);
        }
        return false;
    }
    trpi_node_worker_end(node, old, TRP_CAUSE_KILLED, "a later incarnation was started");
    return true;
}

void trpi_node_start(trpi_node *node, const trpi_msg_start *start, trp_bytes frame) {
    if (start->actor == 0 || !is_new_life(node, start)) {
        return;
    }
    trpi_program *program = trpi_program_get(node, start);
    trpi_node_worker *worker = trpi_program_worker(node, program);
    bind_actor(node, worker, start);
    uint64_t timeout_ms = start->start_timeout_ms ? start->start_timeout_ms
                                                  : trpi_config(TRPI_CONFIG_START_TIMEOUT_MS);
    set_due(node, worker, timeout_ms);
    if (trp_buf_append(&worker->start, frame.data, frame.size) != TRP_OK) {
        trpi_node_worker_end(node, worker, TRP_CAUSE_OUT_OF_MEMORY, "no memory for START");
        return;
    }
    trpi_node_output_start(node, worker);
    if (worker->phase == TRPI_WORKER_IDLE) {
        send_start(node, worker);
        trpi_program_refill_soon(node, program);
    } else {
        trpi_program_refill(node, program);
    }
}

/* ---- What a worker says ---- */

static void refuse(trpi_node *node, const char *event, uint64_t actor, uint64_t incarnation,
                   const char *type) {
    if (trpi_log_is_due(&node->refused)) {
        trpi_log(TRPI_WARN, event, "actor=%llu incarnation=%llu type=%s refused=%llu",
                 (unsigned long long)actor, (unsigned long long)incarnation, type,
                 (unsigned long long)node->refused);
    }
}

static void hello(trpi_node *node, uint64_t token) {
    trpi_node_worker *worker = trpi_map_get(&node->workers, token);
    if (!worker) {
        /* Forked by a zygote that died before it could tell us; nobody waits for it. */
        trpi_msg msg = {.type = TRPI_MSG_END, .end = {.cause = TRP_CAUSE_KILLED, .reason = ""}};
        (void)trpi_node_tell(node, token, &msg);
        return;
    }
    if (worker->pid == 0) {
        trpi_zygote_drain(node, worker->program);
    }
    if (worker->phase != TRPI_WORKER_FORKED) {
        refuse(node, "hello_unexpected", worker->actor, worker->incarnation, "");
    } else if (worker->asked_cause != TRP_CAUSE_NONE) {
        trpi_log(TRPI_DEBUG, "hello_late", "worker=%llu", (unsigned long long)token);
    } else if (worker->actor != 0) {
        send_start(node, worker);
    } else {
        worker->phase = TRPI_WORKER_IDLE;
        trpi_program_list_idle(worker);
    }
}

void trpi_node_say_started(trpi_node *node, const trpi_node_worker *worker) {
    trpi_msg msg = {.type = TRPI_MSG_STARTED,
                    .started = {.actor = worker->actor,
                                .incarnation = worker->incarnation,
                                .pid = worker->pid,
                                .endpoint = worker->endpoint,
                                .remote_endpoint = worker->remote_endpoint}};
    trpi_node_say(node, &msg);
}

static void started(trpi_node *node, trpi_node_worker *worker, const trpi_msg_started *msg) {
    if (worker->phase != TRPI_WORKER_STARTING || worker->actor != msg->actor ||
        worker->incarnation != msg->incarnation) {
        refuse(node, "started_stale", msg->actor, msg->incarnation, "STARTED");
        return;
    }
    worker->phase = TRPI_WORKER_ALIVE;
    replace_text(&worker->endpoint, msg->endpoint);
    replace_text(&worker->remote_endpoint, msg->remote_endpoint);
    if (worker->asked_cause == TRP_CAUSE_NONE) {
        trpi_node_say_started(node, worker);
    }
}

static void failed(trpi_node *node, trpi_node_worker *worker, const trpi_msg_worker_failed *msg,
                   trp_bytes frame) {
    if (worker->actor != msg->actor || worker->incarnation != msg->incarnation ||
        (msg->cause != TRP_CAUSE_NEVER_STARTED && msg->cause != TRP_CAUSE_FINISHED)) {
        refuse(node, "worker_failed_invalid", msg->actor, msg->incarnation, "WORKER_FAILED");
        return;
    }
    worker->told_cause = (trp_cause)msg->cause;
    replace_text(&worker->told_reason, msg->message);
    (void)trpi_node_tell_frame(node, worker->token, frame);
    worker->due_ns = UINT64_MAX; /* from here on another clock runs */
    trpi_node_timer(node, TRPI_TIMER_STOP, worker->token,
                    trpi_deadline_ns(trpi_config(TRPI_CONFIG_STOP_TIMEOUT_MS)));
}

void trpi_node_from_worker(trpi_node *node, uint64_t token, const trpi_msg *msg, trp_bytes frame) {
    if (node->phase != TRPI_NODE_SERVING || token == 0) {
        return;
    }
    if (msg->type == TRPI_MSG_WORKER_HELLO) {
        hello(node, token);
        return;
    }
    trpi_node_worker *worker = trpi_map_get(&node->workers, token);
    if (!worker || worker->actor == 0) {
        trpi_log(TRPI_INFO, "message_stale", "worker=%llu type=%s", (unsigned long long)token,
                 trpi_msg_name(msg->type));
    } else if (msg->type == TRPI_MSG_STARTED) {
        started(node, worker, &msg->started);
    } else if (msg->type == TRPI_MSG_WORKER_FAILED) {
        failed(node, worker, &msg->worker_failed, frame);
    } else if (msg->type != TRPI_MSG_PONG) {
        refuse(node, "message_unexpected", worker->actor, worker->incarnation,
               trpi_msg_name(msg->type));
    }
}

/* ---- SIGNAL and END ---- */

void trpi_node_signal(trpi_node *node, const trpi_msg_signal *signal, trp_bytes frame) {
    trpi_node_worker *worker = trpi_map_get(&node->actors, signal->actor);
    if (!worker || worker->phase < TRPI_WORKER_STARTING ||
        (signal->incarnation != 0 && signal->incarnation != worker->incarnation)) {
        trpi_log(TRPI_INFO, "signal_stale", "actor=%llu incarnation=%llu",
                 (unsigned long long)signal->actor, (unsigned long long)signal->incarnation);
        return;
    }
    (void)trpi_node_tell_frame(node, worker->token, frame);
}

void trpi_node_worker_end(trpi_node *node, trpi_node_worker *worker, trp_cause cause,
                          const char *reason) {
    if (worker->asked_cause != TRP_CAUSE_NONE) {
        return;
    }
    worker->asked_cause = cause == TRP_CAUSE_NONE ? TRP_CAUSE_KILLED : cause;
    replace_text(&worker->asked_reason, reason);
    if (worker->actor == 0) {
        trpi_program_unlist(worker); /* dying: no actor may be given to it */
    }
    if (worker->phase == TRPI_WORKER_WANTED) {
        trpi_node_never_started(node, worker, worker->asked_cause, reason, "");
    } else if (worker->pid != 0) {
        trpi_kill_group(worker->pid, SIGKILL);
    }
}

/* The living record of that incarnation, which may have been superseded and is then dying. */
static trpi_node_worker *find_incarnation(trpi_node *node, uint64_t actor, uint64_t incarnation) {
    trpi_node_worker *worker = trpi_map_get(&node->actors, actor);
    if (!worker || worker->incarnation == incarnation) {
        return worker;
    }
    size_t cursor = 0;
    while ((worker = trpi_map_next(&node->workers, &cursor)) != NULL) {
        if (worker->actor == actor && worker->incarnation == incarnation) {
            return worker;
        }
    }
    return NULL;
}

void trpi_node_end(trpi_node *node, const trpi_msg_end *end) {
    if (end->actor == 0 || end->cause >= TRP_CAUSE_COUNT) {
        return;
    }
    trpi_node_worker *worker = find_incarnation(node, end->actor, end->incarnation);
    if (worker) {
        trpi_node_worker_end(node, worker, (trp_cause)end->cause, end->reason);
        return;
    }
    /* Its EXITED was lost, or the head restarted: END gets the same answer however often it comes.
     */
    trpi_death death = {.incarnation = end->incarnation,
                        .node = node->id,
                        .cause = end->cause,
                        .message = "no process of it is left on this node"};
    trpi_msg msg = {.type = TRPI_MSG_EXITED,
                    .exited = {.actor = end->actor, .death = &death, .death_count = 1}};
    trpi_node_say(node, &msg);
}

/* ---- Timers ---- */

void trpi_node_worker_due(trpi_node *node, uint64_t token, uint64_t now_ns) {
    trpi_node_worker *worker = trpi_map_get(&node->workers, token);
    if (!worker || worker->due_ns > now_ns || worker->phase == TRPI_WORKER_IDLE ||
        worker->phase == TRPI_WORKER_ALIVE) {
        return;
    }
    char reason[512];
    const char *trouble = worker->phase <= TRPI_WORKER_FORKING ? worker->program->trouble : "";
    trpi_format(reason, sizeof reason, "not ready at its deadline: %s%s%s",
                phase_texts[worker->phase], *trouble ? "; " : "", trouble);
    trpi_log(TRPI_WARN, "start_timeout", "actor=%llu incarnation=%llu pid=%d reason=\"%s\"",
             (unsigned long long)worker->actor, (unsigned long long)worker->incarnation,
             (int)worker->pid, reason);
    trpi_program *program = worker->program;
    if (worker->phase == TRPI_WORKER_FORKING ||
        (worker->phase == TRPI_WORKER_WANTED && program->phase == TRPI_PROGRAM_STARTING)) {
        /* It hangs, before trp_init() or behind it. Its end tells what became of the forks, also of
         * those that are not wanted any more. */
        trpi_zygote_kill(program);
    }
    trpi_node_worker_end(node, worker, TRP_CAUSE_START_TIMEOUT, reason);
}

void trpi_node_worker_overdue(trpi_node *node, uint64_t token) {
    trpi_node_worker *worker = trpi_map_get(&node->workers, token);
    if (worker && worker->pid != 0) {
        trpi_log(TRPI_WARN, "stop_timeout", "actor=%llu pid=%d", (unsigned long long)worker->actor,
                 (int)worker->pid);
        trpi_kill_group(worker->pid, SIGKILL);
    }
}

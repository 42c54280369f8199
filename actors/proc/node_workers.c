/* The table of workers: from START to STARTED, and what travels between them and the head. */
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "actors/proc/node_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/process.h"

#define LOST_MAX 3        /* processes of one start that die before START reaches them */
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
    trpi_node_untell(node, worker->token);
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
    trpi_node_dump_free(worker);
    trp_buf_release(&worker->start);
    free(worker->label);
    free(worker->cwd);
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
        trpi_node_worker_kill(worker); /* its end was wanted before it began */
    }
}

/* ---- START ---- */

static void tell_drain(trpi_node *node, const trpi_node_worker *worker) {
    uint64_t now_ns = trpi_now_ns();
    uint64_t left_ns = node->drain_until_ns > now_ns ? node->drain_until_ns - now_ns : 0;
    trpi_msg msg = {
        .type = TRPI_MSG_DRAIN_NOTICE,
        .drain_notice = {.deadline_ms = left_ns / TRPI_NS_PER_MS, .reason = node->drain_reason}};
    (void)trpi_node_tell(node, worker->token, &msg);
}

/* The frame from the head goes on as it is: worker and head mean the same by START. False when it
 * can't be reached, so that it has not become the actor: its death is on its way to us. */
static bool send_start(trpi_node *node, trpi_node_worker *worker) {
    if (!trpi_node_tell_frame(node, worker->token, trp_buf_bytes(&worker->start))) {
        return false;
    }
    worker->phase = TRPI_WORKER_STARTING;
    trpi_node_liveness_begin(node, worker);
    if (node->drain_until_ns != 0) {
        tell_drain(node, worker);
    }
    return true;
}

static void bind_actor(trpi_node *node, trpi_node_worker *worker, const trpi_msg_start *start) {
    worker->actor = start->actor;
    worker->incarnation = start->incarnation;
    worker->job = start->owner_job;
    worker->exclusive = start->exclusive;
    worker->restartable = start->restartable;
    worker->bound_ns = trpi_now_ns();
    replace_text(&worker->label, *start->name ? start->name : start->type);
    replace_text(&worker->cwd, start->cwd);
    worker->program->bound++;
    trpi_map_set(&node->actors, worker->actor, worker);
    trpi_node_liveness_set(node, worker, start);
}

void trpi_node_worker_unbind(trpi_node *node, trpi_node_worker *worker) {
    forget_actor(node, worker);
    worker->actor = worker->job = 0;
    trp_buf_release(&worker->start);
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

/* Gives the actor a worker. An idle one may have died without our having noticed: then it is the
 * turn of the next. */
static void place(trpi_node *node, trpi_program *program, const trpi_msg_start *start,
                  trp_bytes frame, uint64_t due_ns, unsigned lost) {
    for (;;) {
        trpi_node_worker *worker = trpi_program_worker(node, program);
        bind_actor(node, worker, start);
        worker->lost = lost;
        worker->due_ns = due_ns;
        trpi_node_timer(node, TRPI_TIMER_WORKER, worker->token, due_ns);
        if (trp_buf_append(&worker->start, frame.data, frame.size) != TRP_OK) {
            trpi_node_worker_end(node, worker, TRP_CAUSE_OUT_OF_MEMORY, "no memory for START");
            return;
        }
        trpi_node_output_start(node, worker);
        if (worker->phase != TRPI_WORKER_IDLE) {
            trpi_program_refill(node, program);
            return;
        }
        if (!trpi_node_has_ended(worker->pid) && send_start(node, worker)) {
            trpi_program_refill_soon(node, program);
            return;
        }
        trpi_node_worker_unbind(node, worker);
    }
}

void trpi_node_start(trpi_node *node, const trpi_msg_start *start, trp_bytes frame) {
    if (start->actor == 0 || !is_new_life(node, start)) {
        return;
    }
    trpi_program *program = trpi_program_get(node, start);
    uint64_t timeout_ms = start->start_timeout_ms ? start->start_timeout_ms
                                                  : trpi_config(TRPI_CONFIG_START_TIMEOUT_MS);
    place(node, program, start, frame, trpi_deadline_ns(timeout_ms), 0);
}

bool trpi_node_start_again(trpi_node *node, trpi_node_worker *worker) {
    trpi_msg msg;
    trp_buf frame = worker->start;
    trpi_arena arena = {0};
    if (worker->lost >= LOST_MAX ||
        trpi_decode(trp_buf_bytes(&frame), &arena, &msg, NULL) != TRP_OK) {
        trpi_arena_release(&arena);
        return false;
    }
    trpi_log(TRPI_WARN, "start_again", "actor=%llu incarnation=%llu pid=%d reason=\"%s\"",
             (unsigned long long)worker->actor, (unsigned long long)worker->incarnation,
             (int)worker->pid, "its process died before it had become the actor");
    worker->start = (trp_buf){0};
    unsigned lost = worker->lost + 1;
    uint64_t due_ns = worker->due_ns;
    trpi_node_worker_unbind(node, worker);
    place(node, worker->program, &msg.start, trp_buf_bytes(&frame), due_ns, lost);
    trpi_arena_release(&arena);
    trp_buf_release(&frame);
    return true;
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
        (void)send_start(node, worker);
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
    trp_buf_release(&worker->start);
    replace_text(&worker->endpoint, msg->endpoint);
    replace_text(&worker->remote_endpoint, msg->remote_endpoint);
    if (worker->asked_cause == TRP_CAUSE_NONE) {
        trpi_node_say_started(node, worker);
    }
}

static void failed(trpi_node *node, trpi_node_worker *worker, const trpi_msg_worker_failed *msg,
                   trp_bytes frame) {
    if (worker->actor != msg->actor || worker->incarnation != msg->incarnation ||
        (msg->cause != TRP_CAUSE_NEVER_STARTED && msg->cause != TRP_CAUSE_FINISHED &&
         msg->cause != TRP_CAUSE_STOPPED)) {
        refuse(node, "worker_failed_invalid", msg->actor, msg->incarnation, "WORKER_FAILED");
        return;
    }
    worker->told_cause = (trp_cause)msg->cause;
    replace_text(&worker->told_reason, msg->message);
    (void)trpi_node_tell_frame(node, worker->token, frame);
    worker->due_ns = UINT64_MAX; /* from here on another clock runs */
    if (worker->kill_at_ns != 0) {
        return; /* that one, while it is asked to stop: its stop hook may need all of its grace */
    }
    trpi_node_timer(node, TRPI_TIMER_STOP, worker->token,
                    trpi_deadline_ns(trpi_config(TRPI_CONFIG_STOP_TIMEOUT_MS)));
}

static void save(trpi_node *node, trpi_node_worker *worker, const trpi_msg_save *msg,
                 trp_bytes frame) {
    if (worker->actor != msg->actor || worker->incarnation != msg->incarnation ||
        worker->killed_ns != 0) {
        refuse(node, "save_stale", msg->actor, msg->incarnation, "SAVE");
        return;
    }
    trpi_node_say_frame(node, frame);
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
    } else if (msg->type == TRPI_MSG_PONG) {
        trpi_node_pong(node, worker, &msg->pong);
    } else if (msg->type == TRPI_MSG_SAVE) {
        save(node, worker, &msg->save, frame);
    } else {
        refuse(node, "message_unexpected", worker->actor, worker->incarnation,
               trpi_msg_name(msg->type));
    }
}

/* ---- SIGNAL, SAVED, DRAIN_NOTICE ---- */

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

void trpi_node_saved(trpi_node *node, const trpi_msg_saved *saved, trp_bytes frame) {
    trpi_node_worker *worker = trpi_map_get(&node->actors, saved->actor);
    if (worker && worker->incarnation == saved->incarnation) {
        (void)trpi_node_tell_frame(node, worker->token, frame);
    }
}

void trpi_node_drain(trpi_node *node, const trpi_msg_drain_notice *notice) {
    node->drain_until_ns = trpi_deadline_ns(notice->deadline_ms);
    TRPI_SET(node->drain_reason, notice->reason);
    trpi_log(TRPI_INFO, "node_drains", "deadline_ms=%llu reason=\"%s\"",
             (unsigned long long)notice->deadline_ms, notice->reason);
    size_t cursor = 0;
    trpi_node_worker *worker;
    while ((worker = trpi_map_next(&node->actors, &cursor)) != NULL) {
        if (worker->phase >= TRPI_WORKER_STARTING) {
            tell_drain(node, worker);
        }
    }
}

/* ---- The start's deadline ---- */

/* Whether other starts wait for the same zygote. */
static bool is_awaited(const trpi_node *node, const trpi_program *program) {
    size_t cursor = 0;
    const trpi_node_worker *worker;
    if (!TAILQ_EMPTY(&program->wanted)) {
        return true;
    }
    while (program->forking > 0 && (worker = trpi_map_next(&node->workers, &cursor)) != NULL) {
        if (worker->program == program && worker->phase == TRPI_WORKER_FORKING &&
            worker->actor != 0) {
            return true;
        }
    }
    return false;
}

/* It waits for its zygote, which is slow or hangs: that of all who wait for it, the last one to
 * give up decides, or the zygote's own deadline. */
static void zygote_overdue(trpi_node *node, trpi_node_worker *worker, const char *reason) {
    trpi_program *program = worker->program;
    bool is_out = worker->phase == TRPI_WORKER_FORKING;
    program->held++;
    trpi_node_worker_end(node, worker, TRP_CAUSE_START_TIMEOUT, reason);
    program->held--;
    if ((is_out || program->phase == TRPI_PROGRAM_STARTING) && !is_awaited(node, program)) {
        /* Its end tells what became of the forks, also of those that are not wanted any more. */
        trpi_zygote_kill(program);
    }
    trpi_program_worker_freed(node, program);
}

void trpi_node_worker_due(trpi_node *node, uint64_t token, uint64_t now_ns) {
    trpi_node_worker *worker = trpi_map_get(&node->workers, token);
    if (!worker || worker->due_ns > now_ns || worker->phase == TRPI_WORKER_IDLE ||
        worker->phase == TRPI_WORKER_ALIVE ||
        (worker->asked_cause != TRP_CAUSE_NONE && worker->phase != TRPI_WORKER_FORKING)) {
        return;
    }
    char reason[512];
    const char *trouble = worker->phase <= TRPI_WORKER_FORKING ? worker->program->trouble : "";
    trpi_format(reason, sizeof reason, "not ready at its deadline: %s%s%s",
                phase_texts[worker->phase], *trouble ? "; " : "", trouble);
    trpi_log(TRPI_WARN, "start_timeout", "actor=%llu incarnation=%llu pid=%d reason=\"%s\"",
             (unsigned long long)worker->actor, (unsigned long long)worker->incarnation,
             (int)worker->pid, reason);
    if (worker->phase <= TRPI_WORKER_FORKING) {
        zygote_overdue(node, worker, reason);
    } else if (worker->phase == TRPI_WORKER_STARTING) {
        trpi_node_worker_end_hung(node, worker, TRP_CAUSE_START_TIMEOUT, reason);
    } else {
        trpi_node_worker_end(node, worker, TRP_CAUSE_START_TIMEOUT, reason);
    }
}

/* How a worker is asked to end.
 *
 *   END grace 0 ─────────────────────────────────────> SIGKILL to its process group
 *   END with a grace ──STOP──> it answers what it has got and exits; at the deadline: SIGKILL
 *   hung ──> what its threads do is taken down (node_dump.c) ──────────────────> SIGKILL
 *
 * Of several ENDs the earliest deadline holds, with the cause that came with it. */
#include <signal.h>
#include <stdlib.h>

#include "actors/proc/node_parts.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/process.h"

static void set_asked(trpi_node_worker *worker, trp_cause cause, const char *reason) {
    char *text = trpi_strdup(reason); /* which may be the one that is replaced */
    free(worker->asked_reason);
    worker->asked_reason = text;
    worker->asked_cause = cause == TRP_CAUSE_NONE ? TRP_CAUSE_KILLED : cause;
    if (worker->actor == 0) {
        trpi_program_unlist(worker); /* dying: no actor may be given to it */
    }
}

void trpi_node_worker_kill(trpi_node_worker *worker) {
    if (worker->pid != 0) {
        worker->killed_ns = trpi_now_ns();
        trpi_kill_group(worker->pid, SIGKILL);
    }
}

void trpi_node_worker_end(trpi_node *node, trpi_node_worker *worker, trp_cause cause,
                          const char *reason) {
    bool is_first = worker->asked_cause == TRP_CAUSE_NONE;
    if (worker->killed_ns != 0) {
        return;
    }
    if (is_first || worker->kill_at_ns != 0) {
        /* Who asked for an orderly end, and asks again without a grace, does not get one. */
        bool is_forced = !is_first && cause == TRP_CAUSE_STOPPED;
        set_asked(worker, is_forced ? TRP_CAUSE_KILLED : cause, reason);
        worker->kill_at_ns = 0;
    }
    if (worker->phase == TRPI_WORKER_WANTED) {
        trpi_node_never_started(node, worker, worker->asked_cause, reason, "");
    } else if (worker->phase == TRPI_WORKER_FORKING && worker->actor != 0) {
        /* Nothing of it runs yet, and its zygote may hang: what comes of it is killed then. */
        trpi_node_say_never_started(node, worker, worker->asked_cause, reason, "");
        trpi_node_worker_unbind(node, worker);
    } else {
        trpi_node_worker_kill(worker);
    }
}

void trpi_node_worker_end_hung(trpi_node *node, trpi_node_worker *worker, trp_cause cause,
                               const char *reason) {
    if (worker->asked_cause == TRP_CAUSE_NONE) {
        set_asked(worker, cause, reason);
        trpi_node_dump_start(node, worker);
    }
}

/* ---- END ---- */

static void stop(trpi_node *node, trpi_node_worker *worker, const trpi_msg_end *end) {
    uint64_t kill_at_ns = trpi_deadline_ns(end->grace_ms);
    if (worker->phase < TRPI_WORKER_STARTING) {
        /* Nothing of it has begun, so nothing has to be brought to an end. */
        trpi_node_worker_end(node, worker, (trp_cause)end->cause, end->reason);
        return;
    }
    bool is_first = worker->asked_cause == TRP_CAUSE_NONE;
    if (!is_first && (worker->kill_at_ns == 0 || kill_at_ns >= worker->kill_at_ns)) {
        return; /* it has less time than that */
    }
    set_asked(worker, (trp_cause)end->cause, end->reason);
    worker->kill_at_ns = kill_at_ns;
    trpi_node_timer(node, TRPI_TIMER_KILL, worker->token, kill_at_ns);
    trpi_msg msg = {.type = TRPI_MSG_STOP,
                    .stop = {.actor = worker->actor,
                             .incarnation = worker->incarnation,
                             .grace_ms = end->grace_ms}};
    (void)trpi_node_tell(node, worker->token, &msg);
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
    if (worker && end->grace_ms > 0) {
        stop(node, worker, end);
        return;
    }
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

/* ---- Deadlines ---- */

void trpi_node_worker_kill_due(trpi_node *node, uint64_t token) {
    trpi_node_worker *worker = trpi_map_get(&node->workers, token);
    if (!worker || worker->kill_at_ns == 0 || worker->killed_ns != 0 ||
        trpi_now_ns() < worker->kill_at_ns) {
        return;
    }
    char reason[512];
    trpi_format(reason, sizeof reason, "%s%sit had not ended when its grace was over",
                worker->asked_reason, *worker->asked_reason ? "; " : "");
    trpi_log(TRPI_WARN, "grace_over", "actor=%llu pid=%d", (unsigned long long)worker->actor,
             (int)worker->pid);
    trpi_node_worker_end(node, worker, worker->asked_cause, reason);
}

void trpi_node_worker_overdue(trpi_node *node, uint64_t token) {
    trpi_node_worker *worker = trpi_map_get(&node->workers, token);
    if (worker && worker->pid != 0 && worker->kill_at_ns == 0) {
        trpi_log(TRPI_WARN, "stop_timeout", "actor=%llu pid=%d", (unsigned long long)worker->actor,
                 (int)worker->pid);
        trpi_node_worker_kill(worker);
    }
}

/* PING and PONG with workers that asked for a liveness or are exclusive.
 *
 * Whether one hangs is state/liveness.c's to say. An exclusive one is also lent a part of the
 * node's own lease with each ping: what is left of it, counted from the ping's sending, so that a
 * worker that was stopped meanwhile does not take an old ping for a new one. When the head is
 * silent nothing is left to lend, and the worker ends by itself. */
#include <string.h>

#include "actors/proc/node_parts.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/process.h"

#define PINGS_PER_LIMIT 3

void trpi_node_liveness_set(const trpi_node *node, trpi_node_worker *worker,
                            const trpi_msg_start *start) {
    uint64_t limit_ns =
        start->liveness_ms <= UINT64_MAX / TRPI_NS_PER_MS ? start->liveness_ms * TRPI_NS_PER_MS : 0;
    uint64_t period_ns = limit_ns / PINGS_PER_LIMIT;
    if (start->exclusive) {
        uint64_t beat_ns = node->heartbeat_ms * TRPI_NS_PER_MS;
        period_ns = period_ns ? TRPI_MIN(period_ns, beat_ns) : beat_ns;
    }
    worker->liveness =
        (trpi_liveness){.limit_ns = limit_ns, .period_ns = period_ns, .next_ns = UINT64_MAX};
}

static void wake(trpi_node *node, const trpi_node_worker *worker) {
    trpi_node_timer(node, TRPI_TIMER_LIVENESS, worker->token, worker->liveness.next_ns);
}

static void ping(trpi_node *node, const trpi_node_worker *worker, uint64_t now_ns) {
    uint64_t lease_ms = worker->exclusive ? trpi_heartbeat_lease_ms(node->heartbeat, now_ns) : 0;
    if (worker->exclusive && lease_ms == 0) {
        return;
    }
    trpi_msg msg = {.type = TRPI_MSG_PING, .ping = {.seq = now_ns, .lease_ms = lease_ms}};
    (void)trpi_node_tell(node, worker->token, &msg);
}

void trpi_node_liveness_begin(trpi_node *node, trpi_node_worker *worker) {
    trpi_liveness *liveness = &worker->liveness;
    if (liveness->period_ns > 0) {
        trpi_liveness_init(liveness, liveness->limit_ns, liveness->period_ns, trpi_now_ns());
        trpi_node_liveness_due(node, worker->token, trpi_now_ns());
    }
}

/* 'T': somebody stopped it; for the message. */
static void silent(trpi_node *node, trpi_node_worker *worker) {
    char reason[256];
    char state = trpi_process_state(worker->pid);
    trpi_format(reason, sizeof reason, "answered no ping for %.1f s%s",
                (double)worker->liveness.limit_ns / 1e9,
                state == 'T' || state == 't' ? " (stopped: state T)"
                : state == 'D'               ? " (waits in the kernel: state D)"
                                             : "");
    trpi_node_worker_end_hung(node, worker, TRP_CAUSE_HUNG, reason);
}

static void stuck(trpi_node *node, trpi_node_worker *worker, const trpi_msg_pong *pong) {
    char reason[512];
    trpi_format(reason, sizeof reason,
                "method %.128s ran %.1f s without trp_context_beat(), limit %.1f s", pong->method,
                (double)pong->stuck_ms / 1e3, (double)worker->liveness.limit_ns / 1e9);
    trpi_node_worker_end_hung(node, worker, TRP_CAUSE_HUNG, reason);
}

void trpi_node_liveness_due(trpi_node *node, uint64_t token, uint64_t now_ns) {
    trpi_node_worker *worker = trpi_map_get(&node->workers, token);
    if (!worker || worker->actor == 0 || worker->killed_ns != 0) {
        return;
    }
    if (worker->asked_cause != TRP_CAUSE_NONE) {
        worker->liveness.limit_ns = 0; /* other deadlines hold; a lease is lent until its end */
    }
    trpi_liveness_verdict verdict = trpi_liveness_due(&worker->liveness, now_ns);
    if (verdict == TRPI_LIVENESS_ASK) {
        ping(node, worker, now_ns);
        wake(node, worker);
    } else if (verdict == TRPI_LIVENESS_SILENT) {
        silent(node, worker);
    }
}

void trpi_node_pong(trpi_node *node, trpi_node_worker *worker, const trpi_msg_pong *pong) {
    uint64_t next_ns = worker->liveness.next_ns;
    if (worker->asked_cause != TRP_CAUSE_NONE) {
        return;
    }
    uint64_t stuck_ns = TRPI_MIN(pong->stuck_ms, UINT64_MAX / TRPI_NS_PER_MS) * TRPI_NS_PER_MS;
    if (trpi_liveness_heard(&worker->liveness, stuck_ns, trpi_now_ns()) == TRPI_LIVENESS_STUCK) {
        stuck(node, worker, pong);
    } else if (worker->liveness.next_ns != next_ns) {
        wake(node, worker);
    }
}

/* What the threads of a hung worker do, taken down before it is killed.
 *
 * Its own handler (worker_dump.c) writes their stacks to stderr, when it gets the signal: a thread
 * that is stopped or in the kernel for good does not. What /proc tells is added in any case. Both
 * go where its stderr goes: the log, the driver and the notice of its death. The daemon does not
 * wait: it looks again every few milliseconds, and kills when no thread is in the handler any more
 * or LIVENESS_DUMP_MS are over. */
#include <stdlib.h>
#include <string.h>

#include "actors/proc/node_parts.h"
#include "actors/proc/worker.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/threads.h"

#define LOOK_MS 5

typedef struct trpi_dump {
    uint64_t until_ns;
    trp_buf facts; /* of /proc */
    size_t count;  /* threads that were sent the signal */
    pid_t tids[TRPI_THREADS_MAX];
} trpi_dump;

void trpi_node_dump_free(trpi_node_worker *worker) {
    if (worker->dump) {
        trp_buf_release(&worker->dump->facts);
        free(worker->dump);
        worker->dump = NULL;
    }
}

static void finish(trpi_node *node, trpi_node_worker *worker) {
    trp_buf *facts = &worker->dump->facts;
    trpi_node_output_drain(node, worker);
    trpi_node_output_note(node, worker, trp_buf_bytes(facts));
    trpi_node_dump_free(worker);
    trpi_node_worker_kill(worker);
}

void trpi_node_dump_start(trpi_node *node, trpi_node_worker *worker) {
    trpi_dump *dump = trpi_alloc(sizeof *dump);
    worker->dump = dump;
    dump->until_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_LIVENESS_DUMP_MS));
    (void)!trp_buf_printf(&dump->facts, "actor a%llu (%s), pid %d, is killed: %s\n",
                          (unsigned long long)worker->actor, worker->label, (int)worker->pid,
                          worker->asked_reason);
    trpi_threads_describe(worker->pid, &dump->facts); /* before the signal wakes them */
    trpi_log(TRPI_WARN, "worker_hung", "actor=%llu incarnation=%llu pid=%d reason=\"%s\"",
             (unsigned long long)worker->actor, (unsigned long long)worker->incarnation,
             (int)worker->pid, worker->asked_reason);
    if (dump->until_ns > trpi_now_ns()) {
        dump->count = trpi_threads_signal(worker->pid, trpi_worker_dump_signal(), dump->tids);
    }
    trpi_node_dump_due(node, worker->token, trpi_now_ns());
}

void trpi_node_dump_due(trpi_node *node, uint64_t token, uint64_t now_ns) {
    trpi_node_worker *worker = trpi_map_get(&node->workers, token);
    trpi_dump *dump = worker ? worker->dump : NULL;
    if (!dump || worker->killed_ns != 0) {
        return;
    }
    if (now_ns >= dump->until_ns || trpi_threads_handling(worker->pid, trpi_worker_dump_signal(),
                                                          dump->tids, dump->count) == 0) {
        finish(node, worker);
        return;
    }
    trpi_node_timer(node, TRPI_TIMER_DUMP, token, trpi_deadline_ns(LOOK_MS));
}

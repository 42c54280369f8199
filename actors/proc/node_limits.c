/* What the system allows this daemon and its host: looked at before a worker is forked, since who
 * runs into a limit is not always the one who can say so. ZeroMQ ends a process that has no
 * descriptor for a connection that it accepts, or no thread. */
#include <inttypes.h>

#include "actors/proc/node_parts.h"
#include "core/net/clock.h"
#include "core/sys/limits.h"

#define DESCRIPTORS_OWN 40 /* with those that are open for moments: logs, /proc, an exec */
#define DESCRIPTORS_LEAST 64
#define KEPT_PART                                                                                  \
    16 /* of all descriptors: connections of dead workers are open for a moment more */
#define TASKS_PER_WORKER 4 /* two threads of its own, two of ZeroMQ */
#define TASKS_KEPT_PART 32 /* so that somebody can still log in */
#define LOOK_EVERY_NS (100 * TRPI_NS_PER_MS)

/* The usual soft limit of 1,024 would be reached at 300 workers. */
trp_code trpi_node_limits_open(trpi_node *node, trp_error *err) {
    node->descriptors_max = trpi_descriptors_raise();
    if (node->descriptors_max < DESCRIPTORS_LEAST) {
        return trpi_fail(err, TRP_EBUSY, "a node needs at least %d descriptors, ulimit -n is %zu",
                         DESCRIPTORS_LEAST, node->descriptors_max);
    }
    return TRP_OK;
}

static size_t waiting_workers(const trpi_node *node) {
    size_t cursor = 0, count = 0;
    const trpi_program *program;
    while ((program = trpi_map_next(&node->programs_by_id, &cursor)) != NULL) {
        count += program->waiting;
    }
    return count;
}

static size_t forking_workers(const trpi_node *node) {
    size_t cursor = 0, count = 0;
    const trpi_program *program;
    while ((program = trpi_map_next(&node->programs_by_id, &cursor)) != NULL) {
        count += program->forking;
    }
    return count;
}

trp_code trpi_node_may_open(const trpi_node *node, size_t count, trp_error *err) {
    size_t used = DESCRIPTORS_OWN + node->watches.count + trpi_jobs_descriptors(node) +
                  trpi_node_store_descriptors(node);
    size_t cursor = 0;
    const trpi_program *program;
    while ((program = trpi_map_next(&node->programs_by_id, &cursor)) != NULL) {
        used += TRPI_ZYGOTE_DESCRIPTORS +
                (program->workers - program->waiting) * TRPI_WORKER_DESCRIPTORS;
    }
    if (used + count + node->descriptors_max / KEPT_PART <= node->descriptors_max) {
        return TRP_OK;
    }
    size_t waiting = waiting_workers(node);
    size_t wanted = used + TRPI_MAX(count, waiting * TRPI_WORKER_DESCRIPTORS);
    return trpi_fail(err, TRP_EBUSY,
                     "no descriptors left: this node's daemon may have %zu and has %zu in use, one "
                     "in %d is kept free; for the %zu workers that wait, ulimit -n must be %zu",
                     node->descriptors_max, used, KEPT_PART, waiting,
                     wanted + wanted / (KEPT_PART - 1) + 1);
}

/* Looked at now and then; what was forked since is counted off. */
trp_code trpi_node_may_fork(trpi_node *node, trp_error *err) {
    uint64_t now_ns = trpi_now_ns();
    trpi_tasks tasks;
    if (node->tasks_left >= TASKS_PER_WORKER && now_ns < node->tasks_due_ns) {
        node->tasks_left -= TASKS_PER_WORKER;
        return TRP_OK;
    }
    node->tasks_due_ns = now_ns + LOOK_EVERY_NS;
    node->tasks_left = UINT64_MAX;
    if (!trpi_tasks_look("", &tasks)) {
        return TRP_OK;
    }
    uint64_t kept = tasks.limit / TASKS_KEPT_PART;
    /* Those that were forked last may not have all their threads yet. */
    uint64_t used = tasks.used + kept + forking_workers(node) * TASKS_PER_WORKER;
    node->tasks_left = used < tasks.limit ? tasks.limit - used : 0;
    if (node->tasks_left >= TASKS_PER_WORKER) {
        node->tasks_left -= TASKS_PER_WORKER;
        return TRP_OK;
    }
    size_t waiting = waiting_workers(node);
    uint64_t wanted = tasks.used + TRPI_MAX(waiting, (size_t)1) * TASKS_PER_WORKER;
    return trpi_fail(err, TRP_EBUSY,
                     "no room for processes: %s allows %" PRIu64
                     " processes and threads, and there "
                     "are %" PRIu64 ", one in %d is kept free; for the %zu workers that wait it "
                     "must be %" PRIu64,
                     tasks.what, tasks.limit, tasks.used, TASKS_KEPT_PART, waiting,
                     wanted + wanted / (TASKS_KEPT_PART - 1) + 1);
}

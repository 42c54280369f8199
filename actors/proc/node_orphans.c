/* Processes that workers left behind.
 *
 * What a worker started in its own process group dies with that group. What has left the group
 * (setsid, a daemon) is still the worker's descendant: a worker is a subreaper, so an orphan below
 * it stays below it, and becomes the daemon's child only when the worker dies; so is a job. Hence a
 * child that the daemon has not started itself belongs to somebody dead. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/process.h"

/* Once for many deaths: the list of children is as long as all workers, and takes its time to read.
 */
#define SWEEP_AFTER_MS 20
#define WORKERS_PER_MS 40

/* The daemon's children, zombies too; free with free(). None where the kernel does not tell. */
static pid_t *list_children(size_t *ret_count) {
    char path[64];
    size_t count = 0, capacity = 0;
    pid_t *pids = NULL;
    int pid;
    /* Adopted processes are listed under the main thread, which is also the one that starts
     * zygotes. */
    trpi_format(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%d", &pid) == 1) {
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            pids = trpi_realloc(pids, capacity * sizeof *pids);
        }
        pids[count++] = pid;
    }
    if (file) {
        fclose(file);
    }
    *ret_count = count;
    return pids;
}

/* A child that we have not reaped keeps its number, so this can't hit anybody else. */
static void kill_child(pid_t pid) {
    trpi_kill_group(pid, SIGKILL); /* when it leads one */
    kill(pid, SIGKILL);
}

void trpi_node_kill_children(void) {
    size_t count;
    pid_t *pids = list_children(&count);
    for (size_t i = 0; i < count; i++) {
        kill_child(pids[i]);
    }
    free(pids);
}

void trpi_node_sweep_soon(trpi_node *node) {
    if (!node->sweep_due && node->phase == TRPI_NODE_SERVING) {
        node->sweep_due = true;
        uint64_t after_ms = SWEEP_AFTER_MS + node->pids.count / WORKERS_PER_MS;
        trpi_node_timer(node, TRPI_TIMER_SWEEP, 0, trpi_deadline_ns(after_ms));
    }
}

void trpi_node_sweep(trpi_node *node) {
    size_t count;
    node->sweep_due = false;
    pid_t *pids = list_children(&count);
    /* A worker is our child only after its pid has been told, so all workers in the list are known
     * now. */
    trpi_zygotes_drain(node);
    for (size_t i = 0; i < count; i++) {
        if (!trpi_map_get(&node->pids, (uint64_t)pids[i]) && !trpi_zygote_of_pid(node, pids[i]) &&
            !trpi_jobs_of_pid(node, pids[i]) && !trpi_blobs_owns(node, pids[i])) {
            trpi_log(TRPI_INFO, "orphan_killed", "pid=%d", (int)pids[i]);
            kill_child(pids[i]); /* and its own children when it is reaped */
        }
    }
    free(pids);
}

/* head.h: the head process. One thread, one loop: messages and time go into the pure cluster
 * machine (actors/state), its actions come out as messages. Decides nothing itself. */
#ifndef TRPI_HEAD_H
#define TRPI_HEAD_H

#include "core/base/base.h"

typedef struct trpi_head_options {
    const char *host; /* to bind; NULL = 127.0.0.1 */
    uint16_t port;    /* 0 = any free one */
    int ready_fd;     /* gets "HOST:PORT CLUSTER\n" once calls are served, then is closed; or one
                         line "error: ...\n" when it can't. -1 = none */
} trpi_head_options;

/* What LISTED.json holds, by the query's `what`. Amounts are numbers ("memory" in MiB), ids are
 * integers, times are seconds before now. All lists are in the order of the ids.
 *
 *   "nodes"   [{id, state: "alive"|"draining"|"dead", incarnation, name, host, host_id, uuid, pid,
 *               actors, age_s, heard_s, expected, reason, draining, drain_reason, drain_left_s,
 *               labels, stats: null | {memory_total, memory_used, store_capacity, store_used,
 *               store_objects, workers, workers_idle, memory_kills, age_s},
 *               total: {name: n}, used: {name: n}, reserved: {name: n}}]
 *   "actors"  [{id, state: "pending"|"alive"|"restarting"|"dead", type, name, namespace, job,
 *               owner, detached, node, pid, incarnation, restarts, restarts_counted, restarts_max,
 *               gang, group, bundle, resources, devices, labels, exclusive, draining, links,
 *               saved_bytes, waiting_for, age_s,
 *               death: null | {incarnation, node, pid, cause, signal, exit_code, final, message,
 *                              core, stderr}}]; cause as in TRP_CAUSE_MAP, in lower case
 *   "groups"  [{id, name, state: "placed"|"pending"|"removing", strategy, job, owner, detached,
 *               waiting_for, bundles: [{node, resources}]}]
 *   "gangs"   [{id, name, state: "running"|"restarting"|"over", policy, members, running, restarts,
 *               restarts_max, job, owner, detached, reason}]
 *   "jobs"    [{id, name, state: trpi_job_state_name(), submitted, stopping, namespace, exe, pid,
 *               actors, age_s, ended_s, reason; of submitted ones: argv, node, exit_code, signal,
 *               duration_s}]
 *   "runs"    the values of all keys that start with "run/" and are JSON objects: [{key, ...}]
 *   "status"  {cluster, version, address, pid, uptime_s, stopping, nodes: as above,
 *              resources: {name: {total, used, reserved, reserved_used}},
 *              actors: {pending, alive, restarting, dead},
 *              demand: [{count, what: "actors"|"groups", first, resources, labels, infeasible,
 *                        why}],
 *              deaths: [{actor, what, node, age_s, cause, final, message}], newest first,
 *              jobs: those that run, runs, counts}
 *   "actors/7", and so on: an array of that row, or an empty one. Not for runs. */

/* Runs until SIGTERM, SIGINT or a HEAD_SHUTDOWN message: then tells all nodes to shut down, waits
 * for their goodbyes at most STOP_TIMEOUT_MS, removes its pid file. Returns the process' exit code.
 */
int trpi_head_main(const trpi_head_options *options);

#endif

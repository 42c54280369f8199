/* node_jobs.h: submitted drivers: commands that this node runs for `troupe submit`.
 *
 *   WAITING -(1)-> RUNNING -(2)-> gone       (1) its working directory is here; spawned
 *      |              ^                      (2) its leader has ended and the group was killed
 *      +-- JOB_END ---+--> SIGTERM, SIGKILL after the grace
 *
 * A job is a process group with the command as its leader, a subreaper, which dies with the daemon;
 * what is left of the group when the leader ends is killed. Both streams go into one file of the
 * daemon's log directory. */
#ifndef TRPI_NODE_JOBS_H
#define TRPI_NODE_JOBS_H

#include <sys/queue.h>
#include <sys/types.h>

#include "actors/proc/node_blobs.h"
#include "actors/proc/output.h"
#include "core/base/arena.h"

typedef struct trpi_node_job {
    uint64_t id;
    trpi_arena arena;
    trpi_msg msg; /* its JOB_START; texts live in the arena */
    trp_buf frame;
    trpi_blob *package; /* held; NULL = none */
    pid_t pid;          /* 0 while it waits */
    int pipes[2];       /* stdout, stderr; -1 = none or at its end */
    trpi_output streams[2];
    bool must_end;
    uint64_t kill_ns; /* when must_end: SIGKILL then */
    TAILQ_ENTRY(trpi_node_job) link;
} trpi_node_job;

TAILQ_HEAD(trpi_node_job_list, trpi_node_job);

void trpi_jobs_start(trpi_node *node, const trpi_msg_job_start *start, trp_bytes frame);
void trpi_jobs_end(trpi_node *node, const trpi_msg_job_end *end);
void trpi_jobs_go_on(trpi_node *node); /* a package that one waits for has come, or will not */
void trpi_jobs_due(trpi_node *node, uint64_t id, uint64_t now_ns);
void trpi_jobs_read(trpi_node *node, uint64_t id, int stream); /* its pipe */
void trpi_jobs_say_again(trpi_node *node);                     /* to a head that has restarted */

trpi_node_job *trpi_jobs_of_pid(const trpi_node *node, pid_t pid); /* NULL: of none */
void trpi_jobs_gone(trpi_node *node, trpi_node_job *job, int wait_status);
void trpi_jobs_clear(trpi_node *node); /* their processes are gone, and nobody is told */

size_t trpi_jobs_descriptors(const trpi_node *node); /* that they cost the daemon */
/* The file of a job's output, and whether it may still grow. */
bool trpi_jobs_log(const trpi_node *node, uint64_t id, char *out, size_t size);

#endif

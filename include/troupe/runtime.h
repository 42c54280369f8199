/* runtime.h: a process' connection to a cluster. */
#ifndef TROUPE_RUNTIME_H
#define TROUPE_RUNTIME_H

#include <troupe/actor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trp_init_options { /* zero-initialize */
    const char *address;          /* "HOST:PORT" of the head; TROUPE_ADDRESS, else 127.0.0.1:6390 */
    const char *job_name;         /* the program's base name */
    const char *namespace_name; /* names of actors live in it; default: anonymous, own to the job */
    uint64_t connect_timeout_ms; /* 10 000 */
    bool quiet;                  /* do not print what this job's workers write */
    const char *const *env;      /* "KEY=value" for all workers of this job, ends with NULL; none */
    const char *working_dir; /* none: workers run in this program's directory, if their host has it,
                                else in the node's; else a directory whose files are sent (at most
                                TROUPE_PACKAGE_BYTES_MAX), by content hash, to each node that runs a
                                worker: workers start in their copy of it */
} trp_init_options;

/* Connects this program to a cluster, as its driver. `types` (ends with NULL, static storage) are
 * the actor types that its workers serve. In a worker process, which is this same program started
 * by a node daemon, trp_init() serves calls and never returns: so call it first in main().
 * options may be NULL. Blocks up to connect_timeout_ms; TRP_ETIMEOUT says which address did not
 * answer, TRP_EPROTOCOL that the head is of another version.
 * One runtime per process at a time. Starts a thread, beside those of ZeroMQ, and installs no
 * signal handler. */
TRP_CHECKED trp_code trp_init(const trp_actor_type *const *types, const trp_init_options *options,
                              trp_runtime **ret_runtime, trp_error *err);

/* True in a process that a node daemon started to serve as a worker, where trp_init() will not
 * return: for programs that read their options, or open things, before they call it. */
bool trp_is_worker(void);

/* Says goodbye: actors and groups that this driver owns (not detached ones) are ended by the head;
 * waits for its word at most 5 s. Sets *rt to NULL. NULL is fine. */
void trp_shutdown(trp_runtime **rt);

const char *trp_version(void);                            /* "0.1.0" */
const char *trp_runtime_address(const trp_runtime *rt);   /* the head's, lives as long as rt */
const char *trp_runtime_namespace(const trp_runtime *rt); /* lives as long as rt */

#ifdef __cplusplus
}
#endif
#endif

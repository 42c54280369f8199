/* client.h: a process as a caller: the driver, a worker whose actor calls others, the troupe
 * command. */
#ifndef TRPI_CLIENT_H
#define TRPI_CLIENT_H

#include <troupe/runtime.h>

#include "core/wire/msg.h"

typedef struct trpi_client_options {
    const char *address; /* of the head, "HOST:PORT" */
    const char *kind;    /* "driver", "worker", "tool" */
    const char *job;
    const char *namespace_name;
    uint64_t actor, incarnation; /* a worker's own */
    uint64_t connect_timeout_ms;
    bool wants_logs;
    const trp_actor_type *const *types; /* to check the type of a spawn; NULL for tools */
    uint64_t submission;                /* the job that a driver was submitted as; 0 = none */
    const char *package_hash;           /* of the workers' working directory; NULL = none ... */
    struct trpi_package *package; /* ... and its file, which is taken whatever happens; or NULL */
    const char *const *env; /* "KEY=value" for all workers of the job, ends with NULL; or NULL */
    const char *who;        /* a worker's actor, for display */
} trpi_client_options;

TRP_CHECKED trp_code trpi_client_open(const trpi_client_options *options, trp_runtime **ret_runtime,
                                      trp_error *err);

/* Sends a request (its `request` field is filled in here) and waits for the answer with the same
 * number. *ret_reply borrows from `storage`, which the caller releases with
 * trpi_client_reply_release(). */
typedef struct trpi_client_reply trpi_client_reply;
TRP_CHECKED trp_code trpi_client_request(trp_runtime *rt, trpi_msg *msg, uint64_t timeout_ms,
                                         trpi_client_reply **ret_storage,
                                         const trpi_msg **ret_reply, trp_error *err);
void trpi_client_reply_release(trpi_client_reply *reply);

/* Says goodbye as trp_shutdown() does, or, without it, only closes: a tool owns nothing. */
void trpi_client_close(trp_runtime **rt, bool say_bye);

/* The head's address: `given` (a flag or an option; may be NULL), else TROUPE_ADDRESS, else the one
 * head of this user on this host, else 127.0.0.1:PORT. Checked to be HOST:PORT. TRP_EINVALID when
 * several heads live here and none is chosen. */
TRP_CHECKED trp_code trpi_client_address(const char *given, char *out, size_t size, trp_error *err);

#endif

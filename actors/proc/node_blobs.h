/* node_blobs.h: executables and working directories that come to this node by the hash of their
 * content (core/sys/content.h).
 *
 *   FETCHING -(1)-> UNPACKING -(2)-> READY          (1) all parts came, and have that hash
 *      |                |              ^            (2) tar has ended well
 *      |      executables: straight ---+
 *      v                v
 *    FAILED           FAILED                        told to who waits, then forgotten
 *
 * They lie in <session directory>/blobs/HASH and packages/HASH and go with it. Who uses one holds
 * it; of the others those that were used last stay, as far as TROUPE_BLOB_BYTES goes. One fetch
 * serves all who wait for the same content; they look again (trpi_programs_go_on(),
 * trpi_jobs_go_on()) when it is there or has failed. */
#ifndef TRPI_NODE_BLOBS_H
#define TRPI_NODE_BLOBS_H

#include <sys/queue.h>
#include <sys/types.h>

#include "core/base/hash.h"
#include "core/sys/content.h"
#include "core/wire/msg.h"

typedef struct trpi_node trpi_node;

typedef enum trpi_blob_phase {
    TRPI_BLOB_FETCHING,
    TRPI_BLOB_UNPACKING,
    TRPI_BLOB_READY,
    TRPI_BLOB_FAILED,
} trpi_blob_phase;

typedef struct trpi_blob {
    uint64_t id;
    char hash[TRPI_HASH_TEXT];
    bool is_package;
    trpi_blob_phase phase;
    unsigned users;
    uint64_t used_ns; /* last given back */
    uint64_t job;     /* whose driver may have it */
    uint64_t offset, total;
    uint64_t request, asked_ns, moved_ns; /* moved: when something of it came last */
    int fd;
    trpi_hasher *hasher;
    pid_t tar;
    trp_error trouble;
    TAILQ_ENTRY(trpi_blob) link;
} trpi_blob;

TAILQ_HEAD(trpi_blob_list, trpi_blob);

/* A file of this host whose hash is known, or being found out. */
typedef struct trpi_local_file {
    trpi_file_id id;
    char path[1024];
    char hash[TRPI_HASH_TEXT]; /* "" = not yet */
    int fd;
    trpi_hasher *hasher;
    TAILQ_ENTRY(trpi_local_file) link;
} trpi_local_file;

TAILQ_HEAD(trpi_local_list, trpi_local_file);

typedef struct trpi_blobs {
    struct trpi_blob_list list;
    struct trpi_local_list locals; /* the one that was asked for last first */
    size_t local_count;
    uint64_t last_id, last_request;
    bool local_due;
} trpi_blobs;

void trpi_blobs_init(trpi_node *node);

/* Where the program of that content is. TRP_OK: in `out`, which is `path` itself where this host
 * has it there. TRP_EBUSY: it is on its way; err says how far. Else it can't be had, and err says
 * why. An empty hash stands for whatever is at the path. *held is NULL at first, and given back by
 * trpi_blobs_release() whatever came out. */
TRP_CHECKED trp_code trpi_blobs_exe(trpi_node *node, const char *path, const char *hash,
                                    uint64_t job, trpi_blob **held, char *out, size_t size,
                                    trp_error *err);
/* The same for the directory into which a package was unpacked. */
TRP_CHECKED trp_code trpi_blobs_package(trpi_node *node, const char *hash, uint64_t job,
                                        trpi_blob **held, char *out, size_t size, trp_error *err);
void trpi_blobs_release(trpi_node *node, trpi_blob **held);

void trpi_blobs_data(trpi_node *node, const trpi_msg_blob_data *data); /* from the head */
void trpi_blobs_due(trpi_node *node, uint64_t id, uint64_t now_ns);    /* the timer */
/* A child has ended: whether it was one of ours. */
bool trpi_blobs_reaped(trpi_node *node, pid_t pid, int wait_status);
bool trpi_blobs_owns(const trpi_node *node, pid_t pid);
void trpi_blobs_clear(trpi_node *node); /* nobody holds any; the session directory goes, too */

/* ---- What node_blobs*.c call of each other ---- */

void trpi_blob_path(const trpi_node *node, const trpi_blob *blob, char *out, size_t size);
void trpi_blob_ready(trpi_node *node, trpi_blob *blob);
void trpi_blob_fail(trpi_node *node, trpi_blob *blob, const trp_error *why);
void trpi_blob_timer(trpi_node *node, const trpi_blob *blob, uint64_t ms);

/* node_blobs_unpack.c */
void trpi_unpack_start(trpi_node *node, trpi_blob *blob, const char *tar_file);
void trpi_unpack_due(trpi_node *node, trpi_blob *blob, uint64_t now_ns);
void trpi_unpack_ended(trpi_node *node, trpi_blob *blob, int wait_status);

/* node_blobs_local.c */
/* Whether the file at that path has that hash: TRP_OK; TRP_ENOTFOUND; TRP_EBUSY: not known yet. */
TRP_CHECKED trp_code trpi_local_is(trpi_node *node, const char *path, const char *hash);
void trpi_local_go_on(trpi_node *node);
void trpi_local_clear(trpi_node *node);

#endif

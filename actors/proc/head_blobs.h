/* head_blobs.h: the head's store of files by the hash of their content: executables and packed
 * working directories, on their way from a driver to the nodes.
 *
 * A file counts when all of it is here and has that hash. Two who upload the same one do so
 * together: a part that is here already is taken as said. Who asks for one that is not here waits,
 * while a driver that has it is asked (BLOB_WANTED), and is told to ask again when that takes long:
 * so a driver that dies, or a message that is lost, costs time and nothing else. Of files that
 * nobody uses any more, those used last stay, as far as TROUPE_BLOB_BYTES goes.
 *
 * Files lie in a directory of the head's, which is made for the first of them and goes with it. */
#ifndef TRPI_HEAD_BLOBS_H
#define TRPI_HEAD_BLOBS_H

#include "core/wire/msg.h"

typedef struct trpi_head_blobs trpi_head_blobs;

/* What the store asks of the rest of the head; `arg` is handed back to all of them. */
typedef struct trpi_head_blobs_calls {
    void (*send)(void *arg, uint64_t peer, const trpi_msg *msg);
    /* The peer of a driver that named this hash in its hello, that of `job` before others; 0 =
     * none. */
    uint64_t (*holder)(void *arg, const char *hash, uint64_t job);
    bool (*is_used)(void *arg, const char *hash); /* by a driver, a job or an actor that lives */
    void *arg;
} trpi_head_blobs_calls;

trpi_head_blobs *trpi_head_blobs_new(const char *dir, const trpi_head_blobs_calls *calls);
void trpi_head_blobs_free(trpi_head_blobs *blobs); /* and its directory; NULL is fine */

/* BLOB_PUT or BLOB_GET; answers through `send`, now or later. */
void trpi_head_blobs_take(trpi_head_blobs *blobs, uint64_t peer, const trpi_msg *msg,
                          uint64_t now_ns);
/* Tells those who have waited for long to ask again. */
void trpi_head_blobs_tick(trpi_head_blobs *blobs, uint64_t now_ns);
uint64_t trpi_head_blobs_wake_ns(const trpi_head_blobs *blobs); /* of that; UINT64_MAX = never */

#endif

/* store_server.h: a node daemon's object store: a thread of its own around the machine of
 * actors/state/store.h, so that neither the daemon's loop nor its heartbeats wait behind data.
 *
 *   processes of this host --- unix socket, descriptors ---> [ thread ] <--- zmq ---> other stores
 *                                                               |
 *                                       daemon's loop: trpi_store_tell(), trpi_store_word()
 *
 * It talks to the head through the daemon: it has words for it (STORE_QUERY), and is told what
 * comes (STORE_AT, CLIENT_GONE, NODE_GONE). */
#ifndef TRPI_STORE_SERVER_H
#define TRPI_STORE_SERVER_H

#include "actors/state/store.h"
#include "core/base/base.h"

typedef struct trpi_store_server trpi_store_server;

typedef struct trpi_store_options {
    const char *uuid;       /* of the daemon: its sockets are named by it */
    const char *host;       /* address for other hosts; NULL or "" = loopback only */
    uint64_t capacity;      /* bytes */
    size_t descriptors_max; /* that the store may use */
    uint64_t serial;        /* what trpi_store_stop() returned last; 0 at first */
    int event_fd;           /* gets 1 added when there is a word for the head */
} trpi_store_options;

/* Binds the sockets, so that their addresses can be told. Nothing is served yet. */
TRP_CHECKED trp_code trpi_store_open(const trpi_store_options *options,
                                     trpi_store_server **ret_server, trp_error *err);
const char *trpi_store_path(const trpi_store_server *server); /* NODE_HELLO.store_path */
const char *trpi_store_endpoint(const trpi_store_server *server);

/* Starts the thread: this is node `node` now, in that incarnation. */
TRP_CHECKED trp_code trpi_store_serve(trpi_store_server *server, uint64_t node,
                                      uint64_t incarnation, trp_error *err);
/* Ends it. All connections are closed and its memory goes, as far as nobody has it mapped. Returns
 * the serial to begin the next one with. NULL is fine. */
uint64_t trpi_store_stop(trpi_store_server *server);

/* ---- From the daemon's loop ---- */

void trpi_store_tell(trpi_store_server *server, trp_bytes frame); /* what the head says */
/* The next frame for the head; false when there is none. */
bool trpi_store_word(trpi_store_server *server, trp_buf *ret_frame);
trpi_store_figures trpi_store_server_figures(trpi_store_server *server);
size_t trpi_store_descriptors(trpi_store_server *server); /* that it uses now */

#endif

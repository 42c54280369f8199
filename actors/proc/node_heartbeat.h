/* node_heartbeat.h: tells the head that this node lives, and this node that it may let its workers
 * live.
 *
 * A thread with a context and a socket of its own, so that beats never wait behind data nor behind
 * what the daemon's loop does. It knows nothing of workers: it raises events for the loop.
 *
 * The lease: the head counts a node as dead when it has heard nothing for node_timeout_ms. A beat
 * that was acknowledged had reached the head, so the lease runs for that long from when that beat
 * was SENT; the head can't have counted from an earlier moment. When it is out, another node may
 * already run what runs here. */
#ifndef TRPI_NODE_HEARTBEAT_H
#define TRPI_NODE_HEARTBEAT_H

#include "core/base/base.h"

typedef struct trpi_heartbeat trpi_heartbeat;

typedef struct trpi_heartbeat_options {
    const char *address; /* of the head, "HOST:PORT" */
    uint64_t node, incarnation;
    uint64_t period_ms, timeout_ms;
    int event_fd; /* gets 1 added whenever an event is raised */
} trpi_heartbeat_options;

typedef enum trpi_heartbeat_event {
    TRPI_HEARTBEAT_LOST = 1,    /* the lease is out; the thread beats no more */
    TRPI_HEARTBEAT_UNKNOWN = 2, /* the head knows no such living node; beats no more */
    TRPI_HEARTBEAT_RESUMED = 4, /* heard the head again after a silence of several periods */
} trpi_heartbeat_event;

/* Starts the thread; the lease runs from now. */
TRP_CHECKED trp_code trpi_heartbeat_start(const trpi_heartbeat_options *options,
                                          trpi_heartbeat **ret_heartbeat, trp_error *err);
/* The events since the last call, OR-ed. */
unsigned trpi_heartbeat_events(trpi_heartbeat *heartbeat);
/* What is left of the lease, in ms; 0 = it is out. */
uint64_t trpi_heartbeat_lease_ms(const trpi_heartbeat *heartbeat, uint64_t now_ns);
void trpi_heartbeat_stop(trpi_heartbeat *heartbeat); /* joins the thread; NULL is fine */

#endif

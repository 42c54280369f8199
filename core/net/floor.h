/* floor.h: ZeroMQ and nothing else, as the limit that calls are compared with: a DEALER and a
 * ROUTER in two processes. Not used by the runtime. */
#ifndef TRPI_FLOOR_H
#define TRPI_FLOOR_H

#include "core/base/base.h"

typedef struct trpi_floor trpi_floor;

/* Answers every message with itself until an empty one comes. The peer's process runs this. */
TRP_CHECKED trp_code trpi_floor_serve(const char *endpoint, trp_error *err);

/* Connects to all the peers, which then get messages in turns, and waits for a first answer of each
 * at most timeout_ms. */
TRP_CHECKED trp_code trpi_floor_open(const char *const *endpoints, size_t count,
                                     uint64_t timeout_ms, trpi_floor **ret_floor, trp_error *err);
/* One message of that size there and back. Blocks, at most the timeout given to open. */
TRP_CHECKED trp_code trpi_floor_round_trip(trpi_floor *floor, size_t size, trp_error *err);
/* `count` messages, `window` of them under way. */
TRP_CHECKED trp_code trpi_floor_pipeline(trpi_floor *floor, size_t size, size_t count,
                                         size_t window, trp_error *err);
void trpi_floor_close(trpi_floor *floor); /* ends the peers; NULL is fine */

/* Several clients at once: a process that sends messages to peers of its own when it is told to. */
typedef struct trpi_floor_drive {
    uint64_t count, window, size; /* as in trpi_floor_pipeline() */
} trpi_floor_drive;
TRP_CHECKED trp_code trpi_floor_serve_drive(const char *endpoint, const char *const *targets,
                                            size_t count, uint64_t timeout_ms, trp_error *err);
/* Tells the peer; its answer comes when it has done so. */
TRP_CHECKED trp_code trpi_floor_tell(trpi_floor *floor, const trpi_floor_drive *drive,
                                     trp_error *err);
TRP_CHECKED trp_code trpi_floor_receive(trpi_floor *floor, trp_error *err);

#endif

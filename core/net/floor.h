/* floor.h: ZeroMQ and nothing else, as the limit that calls are compared with: a DEALER and a
 * ROUTER in two processes. Not used by the runtime. */
#ifndef TRPI_FLOOR_H
#define TRPI_FLOOR_H

#include "core/base/base.h"

typedef struct trpi_floor trpi_floor;

/* Answers every message with itself until an empty one comes. The peer's process runs this. */
TRP_CHECKED trp_code trpi_floor_serve(const char *endpoint, trp_error *err);

/* Connects to the peer and waits for a first answer at most timeout_ms. */
TRP_CHECKED trp_code trpi_floor_open(const char *endpoint, uint64_t timeout_ms,
                                     trpi_floor **ret_floor, trp_error *err);
/* One message of that size there and back. Blocks, at most the timeout given to open. */
TRP_CHECKED trp_code trpi_floor_round_trip(trpi_floor *floor, size_t size, trp_error *err);
/* `count` messages, `window` of them under way. */
TRP_CHECKED trp_code trpi_floor_pipeline(trpi_floor *floor, size_t size, size_t count,
                                         size_t window, trp_error *err);
void trpi_floor_close(trpi_floor *floor); /* ends the peer; NULL is fine */

#endif

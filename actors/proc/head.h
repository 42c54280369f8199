/* head.h: the head process. One thread, one loop: messages and time go into the pure cluster machine
 * (actors/state), its actions come out as messages. Decides nothing itself. */
#ifndef TRPI_HEAD_H
#define TRPI_HEAD_H

#include "core/base/base.h"

typedef struct trpi_head_options {
    const char *host; /* to bind; NULL = 127.0.0.1 */
    uint16_t    port; /* 0 = any free one */
    int         ready_fd; /* gets "HOST:PORT CLUSTER\n" once calls are served, then is closed; or one
                             line "error: ...\n" when it can't. -1 = none */
} trpi_head_options;

/* Runs until SIGTERM, SIGINT or a HEAD_SHUTDOWN message: then tells all nodes to shut down, waits for
 * their goodbyes at most STOP_TIMEOUT_MS, removes its pid file. Returns the process' exit code. */
int trpi_head_main(const trpi_head_options *options);

#endif

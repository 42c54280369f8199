/* worker.h: the user's program in worker mode.
 *
 * A node daemon starts the program once per executable as a zygote (TROUPE_ZYGOTE_FD in its
 * environment): trp_init() finds that variable and calls trpi_zygote_main(), which holds no thread,
 * no zmq and no device context and forks one worker per request. A forked child becomes a worker:
 * it says WORKER_HELLO to its node, becomes the actor that START names, and serves calls until it
 * ends. */
#ifndef TRPI_WORKER_H
#define TRPI_WORKER_H

#include <troupe/actor.h>

#include "core/base/base.h"

#define TRPI_ZYGOTE_ENV "TROUPE_ZYGOTE_FD"

_Noreturn void trpi_zygote_main(const trp_actor_type *const *types, int zygote_fd);

/* A worker's thread that gets this signal (tgkill) writes its stack to stderr. Only for workers
 * that are actors: it ends any other process. */
int trpi_worker_dump_signal(void);

#endif

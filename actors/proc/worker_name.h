/* worker_name.h: what a worker's process is called once it is an actor, in ps and top: "a12
 * counter".
 *
 * It takes that name before any of the actor's code runs, and a process keeps its name until it is
 * reaped: so its node can tell one that died as an actor from one that START has never reached. */
#ifndef TRPI_WORKER_NAME_H
#define TRPI_WORKER_NAME_H

#include <sys/types.h>

#include "core/base/base.h"

void trpi_worker_name_take(uint64_t actor, const char *type); /* the main thread */
bool trpi_worker_name_is_taken(pid_t pid, uint64_t actor);    /* also by a zombie */

#endif

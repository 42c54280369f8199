/* guard.h: a process that outlives this one by a moment, to kill what it left behind.
 *
 * Whoever is killed can't clean up after itself. Its children may be set to die with it, theirs
 * may not, and find a new parent when it is gone. They are known by what they have inherited: an
 * entry of the environment. A process that has changed its own is not found. */
#ifndef TRPI_GUARD_H
#define TRPI_GUARD_H

#include "core/base/base.h"

/* Starts the guard: when this process has ended, it kills all processes (of this user, on this
 * host) with an environment entry that begins and ends so, and goes. Forks: so call it before there
 * is any thread. *ret_fd is given to trpi_guard_end(), and no child may have it (it is
 * close-on-exec). */
TRP_CHECKED trp_code trpi_guard_start(const char *entry_begin, const char *entry_end, int *ret_fd,
                                      trp_error *err);
/* Nothing is left: it ends without looking. Waits for that, at most for a second. Closes the
 * descriptor; -1 is fine. */
void trpi_guard_end(int fd);

#endif

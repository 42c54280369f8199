/* threads.h: the threads of another process, as /proc shows them. Nothing here waits for them. */
#ifndef TRPI_THREADS_H
#define TRPI_THREADS_H

#include <sys/types.h>

#include "core/base/base.h"

#define TRPI_THREADS_MAX 256 /* looked at per process */

/* Appends a line per thread: number, name, state, and what it waits for in the kernel, as far as
 * that can be read. */
void trpi_threads_describe(pid_t pid, trp_buf *out);

/* Sends the signal to each thread, if the process has a handler for it and the thread does not
 * block it: it can neither end nor stop the process. Returns how many were sent it, and which. */
size_t trpi_threads_signal(pid_t pid, int signal, pid_t ret_tids[TRPI_THREADS_MAX]);
/* How many of them have not got it yet, or are still in its handler. */
size_t trpi_threads_handling(pid_t pid, int signal, const pid_t *tids, size_t count);

#endif

/* session.h: where the processes of one cluster on one host keep their sockets, pid files and logs.
 *
 *   ROOT/<first 8 of cluster id>/          ROOT = $TROUPE_SESSION_ROOT, else /tmp/troupe-<uid>
 *       head.pid  node-<uuid8>.pid         "pid start_time address cluster dir", one line
 *       node-<uuid8>/                      a node daemon's own: its sockets, its workers', logs/
 *
 * A directory goes with its owner: the daemon removes its own at an orderly end, `troupe stop` and
 * the next `troupe start` sweep what a killed one left (its pid file names a process that is gone).
 * So write the pid file before making the directory, and remove the directory before the
 * pid file. */
#ifndef TRPI_SESSION_H
#define TRPI_SESSION_H

#include <sys/types.h>

#include "core/base/base.h"

/* The absolute path of ROOT, which is made with mode 0700 if missing. TRP_EINVALID when it is not
 * ours alone, or so long that paths of sockets below it would not fit into 107 characters. */
TRP_CHECKED trp_code trpi_session_root(char *out, size_t size, trp_error *err);

/* Removes ROOT when nothing is in it and nobody gave it to us: true when it is gone. */
bool trpi_session_root_remove(void);

typedef struct trpi_pidfile {
    char path[256];
    pid_t pid;
    uint64_t start_time;
    char role[16];     /* "head" or "node" */
    char address[128]; /* head's HOST:PORT */
    char cluster[40];  /* cluster id */
    char dir[256];     /* directory that belongs to this process; "" = none */
} trpi_pidfile;

/* Atomic; makes the directory that the file is in. `role` is told by the file's name. */
TRP_CHECKED trp_code trpi_pidfile_write(const trpi_pidfile *pidfile, trp_error *err);
/* At the end of its process; empties its path. One with an empty path is fine. */
void trpi_pidfile_remove(trpi_pidfile *pidfile);
/* All pid files under ROOT; `alive` tells whether the process still is that one. Free both with
 * free(). */
TRP_CHECKED trp_code trpi_pidfile_list(trpi_pidfile **ret_files, bool **ret_alive,
                                       size_t *ret_count, trp_error *err);
/* Removes pid files, directories and empty cluster directories of dead processes. */
void trpi_session_sweep(void);

#endif

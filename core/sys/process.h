/* process.h: children, pidfds, process groups. */
#ifndef TRPI_PROCESS_H
#define TRPI_PROCESS_H

#include <sys/types.h>

#include "core/base/base.h"

/* vfork+exec: never copies a large heap. The child has default signal handling and an empty signal
 * mask, and no descriptors but 0, 1, 2 and `keep_fd` (-1 = none; else at least 3, same number
 * there). With die_with_parent it dies by SIGKILL when the calling *thread* ends (PR_SET_PDEATHSIG,
 * checked against the race), so call it from one that lives as long as the process. Returns once
 * exec has succeeded: TRP_ENOTFOUND (exe or cwd), TRP_EINVALID (exe cannot be run), TRP_EBUSY
 * (limit of processes or descriptors), TRP_EIO. */
typedef struct trpi_spawn {
    const char *exe;         /* a path, taken from cwd when relative; no search in PATH */
    const char *const *argv; /* ends with NULL */
    const char *const *envp; /* ends with NULL; NULL = ours */
    const char *cwd;         /* NULL = ours */
    int in, out, err;        /* -1 = /dev/null */
    int keep_fd;
    bool own_group; /* setpgid(0, 0) */
    bool die_with_parent;
    bool new_session; /* setsid: a daemon that outlives the terminal */
    bool subreaper;   /* orphans below it stay below it as long as it lives */
} trpi_spawn;
TRP_CHECKED trp_code trpi_process_spawn(const trpi_spawn *spawn, pid_t *ret_pid, trp_error *err);

int trpi_pidfd_open(pid_t pid); /* -1: no such process (or no permission); readable when it ends */
/* To the very process that the descriptor was opened for; no error when it is gone. */
void trpi_pidfd_signal(int pidfd, int signal);
void trpi_kill_group(pid_t pgid, int signal); /* no error when it is gone */

/* Start time in clock ticks since boot (/proc/PID/stat field 22); 0 = no such process, or only its
 * exit status is left (a zombie); TRPI_START_TIME_UNKNOWN = it can't be looked at, for want of a
 * descriptor or memory. (pid, start time) names a process for good. */
#define TRPI_START_TIME_UNKNOWN UINT64_MAX
uint64_t trpi_process_start_time(pid_t pid);

/* When memory is out the kernel kills it rather than others. What it forks inherits that. */
void trpi_process_prefer_to_die(pid_t pid);

/* Its state as `ps` shows it: 'R', 'S', 'D', 'T', 'Z'; 0 = no such process. */
char trpi_process_state(pid_t pid);

TRP_CHECKED trp_code trpi_become_subreaper(trp_error *err);
/* SIGKILL for us when our parent dies; returns false if it is already gone (parent != expected). */
bool trpi_die_with_parent(pid_t expected_parent);

/* The path of a program as a shell would find it: a name with a slash from cwd; else a file of that
 * name in cwd (NULL = not there), then in the directories of `path` ("/usr/local/bin:/bin").
 * TRP_ENOTFOUND says where it was looked for, TRP_EINVALID that it can't be run. */
#define TRPI_TOOLS_PATH "/usr/local/bin:/usr/bin:/bin" /* of tar, whatever a user's PATH says */
TRP_CHECKED trp_code trpi_program_find(const char *name, const char *cwd, const char *path,
                                       char *out, size_t size, trp_error *err);

/* "signal 11 (SIGSEGV)" or "exit code 4" of a wait status. */
void trpi_wait_status_text(int status, char *out, size_t size);

#endif

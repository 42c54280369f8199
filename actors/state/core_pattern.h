/* core_pattern.h: where the kernel put a core file, from /proc/sys/kernel/core_pattern and what is
 * known of the dead process. Pure: whether the file is there is for the caller to look. See
 * core(5). */
#ifndef TRPI_CORE_PATTERN_H
#define TRPI_CORE_PATTERN_H

#include "core/base/base.h"

typedef struct trpi_core_facts {
    int64_t pid;
    int signal;
    uint32_t uid, gid;
    uint64_t time_s;  /* of the dump, Unix time */
    uint64_t limit;   /* RLIMIT_CORE, bytes */
    const char *comm; /* of the thread that crashed */
    const char *exe;  /* absolute path */
    const char *host;
    const char *cwd; /* of the process */
} trpi_core_facts;

/* Whether cores are handed to a program ("|/usr/lib/systemd/systemd-coredump ..."). */
bool trpi_core_is_piped(const char *pattern);
/* The absolute path. False when it does not fit, or is piped, or the pattern is empty. uses_pid:
 * core_uses_pid, which appends ".PID" when the pattern lacks %p. */
bool trpi_core_path(const char *pattern, bool uses_pid, const trpi_core_facts *facts, char *out,
                    size_t size);

#endif

/* memory.h: how full this host's memory is, control groups considered, and what the kernel has
 * killed for it. Reads /proc and /sys/fs/cgroup below `root`, which is "" but for tests. */
#ifndef TRPI_MEMORY_H
#define TRPI_MEMORY_H

#include <sys/types.h>

#include "core/base/base.h"

/* File cache does not count as used: it is given back when memory is short. */
typedef struct trpi_memory {
    uint64_t total, used; /* bytes */
} trpi_memory;

/* Of the host, or of a control group that we are in (v1 or v2, those above us too), whichever is
 * fuller. False when the kernel tells nothing. */
bool trpi_memory_look(const char *root, trpi_memory *ret_memory);
/* What is available now: the least room that the host and those groups leave. */
uint64_t trpi_memory_room(const char *root);
/* Processes of our control group, or of the host where that does not count them, that the kernel's
 * out-of-memory killer has ended. Only rises. */
uint64_t trpi_memory_kernel_kills(const char *root);
/* What a process alone holds in memory: resident, without what it shares through files or shared
 * memory. 0 when it is gone. */
uint64_t trpi_memory_resident(pid_t pid);

#endif

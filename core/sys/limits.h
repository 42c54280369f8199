/* limits.h: how many descriptors this process may have, and how many processes and threads this
 * host: what to raise when a machine is to hold ten thousand actors. */
#ifndef TRPI_LIMITS_H
#define TRPI_LIMITS_H

#include "core/base/base.h"

/* The soft limit of descriptors becomes the hard one, which is what nobody has to be asked for.
 * Returns the limit that holds now. */
size_t trpi_descriptors_raise(void);

/* Whether this process may open `more` descriptors; does the above when it comes to that. TRP_EBUSY
 * says what `ulimit -n` must be. */
TRP_CHECKED trp_code trpi_descriptors_room(size_t more, trp_error *err);

/* Tasks, as the kernel calls processes and threads together. */
typedef struct trpi_tasks {
    uint64_t limit, used;
    char what[192]; /* the limit's name: "kernel.pid_max", or a control group's file */
} trpi_tasks;

/* The limit that leaves the least room, of the host and of our control groups (v1 or v2). Reads
 * /proc and /sys/fs/cgroup below `root`, which is "" but for tests. False when the kernel tells
 * nothing. */
bool trpi_tasks_look(const char *root, trpi_tasks *ret_tasks);

#endif

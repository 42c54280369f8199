/* victim.h: which actor a node kills to free memory. Pure.
 *
 * One that can be restarted before one that can't: its work is not lost for good. Among equals the
 * newest: it has lost the least, and what has run for long keeps running. */
#ifndef TRPI_VICTIM_H
#define TRPI_VICTIM_H

#include "core/base/base.h"

typedef struct trpi_candidate {
    int64_t restartable; /* restarts left, -1 = for ever */
    uint64_t since_ns;   /* became the actor then */
    uint64_t actor;
} trpi_candidate;

/* Its index; SIZE_MAX when there is none to choose from. */
size_t trpi_victim_choose(const trpi_candidate *candidates, size_t count);

#endif

/* ranks.h: who is rank 0, and who sits beside whom. Pure.
 *
 * Ranks of one node are contiguous: nodes come in the order in which they are first met, and inside
 * a node the workers are ordered by the lowest device that they hold, so that rank and device agree
 * on every machine. Workers without devices keep the order in which they were made. */
#ifndef TRPI_RANKS_H
#define TRPI_RANKS_H

#include "core/base/base.h"

typedef struct trpi_rank_slot {
    uint64_t node;       /* in */
    const char *devices; /* in: "0,1" as in CUDA_VISIBLE_DEVICES; "" for none */
    int rank, local_rank, local_world, node_rank; /* out */
} trpi_rank_slot;

/* The slots stay where they are; only their out fields are written. */
void trpi_ranks_assign(trpi_rank_slot *slots, size_t count);

#endif

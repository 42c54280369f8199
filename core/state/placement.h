/* placement.h: on which nodes the bundles of a group go, all of them or none.
 *
 * The head is the only one who counts, so a group is placed in one step: nobody ever holds half of
 * it while waiting for the rest, and two groups cannot block each other.
 *
 *   PACK           one node if one can hold all, else as few as first-fit finds
 *   SPREAD         each bundle on the node with the fewest bundles of this group
 *   STRICT_PACK    one node or nothing
 *   STRICT_SPREAD  one bundle per node or nothing; found by matching, so it is found if it exists
 *
 * Bundles are tried big ones first (gpu, then cpu, then memory). */
#ifndef TRPI_PLACEMENT_H
#define TRPI_PLACEMENT_H

#include <troupe/actor.h>

#include "core/state/scheduler.h"

#define TRPI_BUNDLES_MAX 4096

typedef struct trpi_bundle_seat {
    trpi_request request;
    uint64_t node;    /* 0 = not placed */
    trpi_grant grant; /* of that node */
} trpi_bundle_seat;

/* Places those bundles that are not placed yet, in view of those that are. True: all of them are
 * placed now; false: nothing has changed. Room that is kept for `who` is theirs. */
TRP_CHECKED bool trpi_place(trpi_sched *sched, trp_strategy strategy, trpi_bundle_seat *bundles,
                            size_t count, uint64_t who);

/* Where they would go if nobody else held anything: of the open nodes above `skip`, and, with a
 * `who`, only of those where no room is kept for another. False: nowhere. ret_nodes: `count`, may
 * be NULL. */
bool trpi_place_plan(const trpi_sched *sched, trp_strategy strategy,
                     const trpi_bundle_seat *bundles, size_t count, uint64_t who, uint64_t skip,
                     uint64_t *ret_nodes);

/* Why not: busy, or infeasible on the nodes there are even if nobody else held anything. */
trpi_verdict trpi_place_explain(const trpi_sched *sched, trp_strategy strategy,
                                const trpi_bundle_seat *bundles, size_t count,
                                const trpi_resource_names *names, char *out, size_t size);

const char *trpi_strategy_name(trp_strategy strategy); /* "PACK" */

#endif

#include "actors/state/victim.h"

/* Whether a is rather to be killed than b. */
static bool before(const trpi_candidate *a, const trpi_candidate *b) {
    if ((a->restartable != 0) != (b->restartable != 0)) {
        return a->restartable != 0;
    }
    if (a->since_ns != b->since_ns) {
        return a->since_ns > b->since_ns;
    }
    return a->actor > b->actor;
}

size_t trpi_victim_choose(const trpi_candidate *candidates, size_t count) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        if (best == SIZE_MAX || before(&candidates[i], &candidates[best])) {
            best = i;
        }
    }
    return best;
}

/* progress.h: what failures cost a run. Pure: times come in, in nanoseconds of one monotonic clock.
 *
 * Time is lost from the moment at which the furthest step before a failure was reached until it is
 * reached again (or passed): detection, restart, loading, and the steps done twice. What remains of
 * the time since training began is goodput. */
#ifndef TRPI_PROGRESS_H
#define TRPI_PROGRESS_H

#include "core/base/base.h"

typedef struct trpi_progress { /* zero-initialize */
    bool begun, ended;
    bool behind; /* a failure happened and the furthest step has not been reached again */
    uint64_t begun_ns, ended_ns;
    uint64_t step;          /* last one reported; set back by a restart */
    uint64_t furthest_step; /* ever reported */
    uint64_t furthest_ns;   /* when that was reached last */
    uint64_t lost_ns, wasted_steps;
} trpi_progress;

void trpi_progress_begin(trpi_progress *progress, uint64_t now_ns); /* the first one counts */
void trpi_progress_step(trpi_progress *progress, uint64_t step, uint64_t now_ns);
/* The attempt is over, the next one goes on behind `from_step`, that of the checkpoint (0 = none).
 */
void trpi_progress_restart(trpi_progress *progress, uint64_t from_step);
void trpi_progress_end(trpi_progress *progress, uint64_t now_ns);

/* Since training began, up to the end. */
uint64_t trpi_progress_total_ns(const trpi_progress *progress, uint64_t now_ns);

#endif

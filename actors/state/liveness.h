/* liveness.h: whether a worker that is pinged makes progress. Pure.
 *
 *   due() -> ASK ──ping──> worker ──pong──> heard()
 *     │                                        └> STUCK: its oldest running method is over the
 * limit └> SILENT: no pong for as long as the limit, since the first ping that was not answered
 *
 * Whoever drives it may itself have been stopped: a due() that comes late by more than a period
 * passes no verdict, and none is passed until it has listened for as long as the limit again. */
#ifndef TRPI_LIVENESS_H
#define TRPI_LIVENESS_H

#include "core/base/base.h"

typedef enum trpi_liveness_verdict {
    TRPI_LIVENESS_FINE,
    TRPI_LIVENESS_ASK, /* send a ping now */
    TRPI_LIVENESS_SILENT,
    TRPI_LIVENESS_STUCK,
} trpi_liveness_verdict;

typedef struct trpi_liveness {
    uint64_t limit_ns;  /* 0 = pinged only, no verdicts */
    uint64_t period_ns; /* 0 = not watched at all */
    uint64_t next_ns;   /* due() is wanted then; UINT64_MAX = never */
    uint64_t asked_ns;  /* of the first ping that has no answer; 0 = none */
    uint64_t tilted_ns; /* no verdict before */
} trpi_liveness;

/* The first ping is due at once. */
void trpi_liveness_init(trpi_liveness *liveness, uint64_t limit_ns, uint64_t period_ns,
                        uint64_t now_ns);
/* At next_ns or later; earlier it is FINE. */
trpi_liveness_verdict trpi_liveness_due(trpi_liveness *liveness, uint64_t now_ns);
/* A pong. May set next_ns to an earlier time: when what runs would be over the limit. */
trpi_liveness_verdict trpi_liveness_heard(trpi_liveness *liveness, uint64_t stuck_ns,
                                          uint64_t now_ns);

#endif

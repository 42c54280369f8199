#include "actors/state/liveness.h"

#define AFTER_NS UINT64_C(1000000) /* so that what is asked at the limit is over it */

void trpi_liveness_init(trpi_liveness *liveness, uint64_t limit_ns, uint64_t period_ns,
                        uint64_t now_ns) {
    *liveness = (trpi_liveness){
        .limit_ns = limit_ns, .period_ns = period_ns, .next_ns = period_ns ? now_ns : UINT64_MAX};
}

trpi_liveness_verdict trpi_liveness_due(trpi_liveness *liveness, uint64_t now_ns) {
    if (now_ns < liveness->next_ns) {
        return TRPI_LIVENESS_FINE;
    }
    if (now_ns - liveness->next_ns > liveness->period_ns) {
        liveness->asked_ns = 0;
        liveness->tilted_ns = now_ns + liveness->limit_ns;
    }
    if (liveness->limit_ns > 0 && liveness->asked_ns > 0 &&
        now_ns - liveness->asked_ns >= liveness->limit_ns) {
        liveness->next_ns = UINT64_MAX;
        return TRPI_LIVENESS_SILENT;
    }
    if (liveness->asked_ns == 0) {
        liveness->asked_ns = now_ns;
    }
    liveness->next_ns = now_ns + liveness->period_ns;
    if (liveness->limit_ns > 0) {
        liveness->next_ns = TRPI_MIN(liveness->next_ns, liveness->asked_ns + liveness->limit_ns);
    }
    return TRPI_LIVENESS_ASK;
}

trpi_liveness_verdict trpi_liveness_heard(trpi_liveness *liveness, uint64_t stuck_ns,
                                          uint64_t now_ns) {
    if (liveness->next_ns == UINT64_MAX) {
        return TRPI_LIVENESS_FINE; /* judged already, or never asked */
    }
    liveness->asked_ns = 0;
    if (liveness->limit_ns == 0 || stuck_ns == 0) {
        return TRPI_LIVENESS_FINE;
    }
    if (stuck_ns > liveness->limit_ns && now_ns >= liveness->tilted_ns) {
        liveness->next_ns = UINT64_MAX;
        return TRPI_LIVENESS_STUCK;
    }
    if (stuck_ns <= liveness->limit_ns) {
        uint64_t over_ns = now_ns + (liveness->limit_ns - stuck_ns) + AFTER_NS;
        liveness->next_ns = TRPI_MIN(liveness->next_ns, over_ns);
    }
    return TRPI_LIVENESS_FINE;
}

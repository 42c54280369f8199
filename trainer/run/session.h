/* session.h: a rank's view of one attempt, from the worker's side. */
#ifndef TRPI_SESSION_RUN_H
#define TRPI_SESSION_RUN_H

#include <stdatomic.h>
#include <troupe/train.h>

#include "trainer/run/messages.h"

enum { TRPI_SESSION_UNANSWERED_MAX = 64 };

struct trp_session {
    trpi_run_assignment assignment; /* borrows from the arguments of the call, and from arena */
    trp_runtime *rt;
    trp_comm *comm;
    atomic_bool canceled;                            /* set by the control thread */
    trpi_arena arena;                                /* paths that live as long as the session */
    uint64_t reports;                                /* made */
    uint64_t step;                                   /* of the last one, or of the checkpoint */
    trp_ref unanswered[TRPI_SESSION_UNANSWERED_MAX]; /* oldest first */
    size_t unanswered_count;
    const char *checkpoint;                    /* NULL = none */
    const char *staging;                       /* of the next report; NULL = not asked for yet */
    uint64_t entered_ns, opened_ns, loaded_ns; /* 0 = not yet */
};

/* Begins where the assignment's checkpoint ends. */
void trpi_session_begin(trp_session *session);
/* Waits until every rank has reported as often as this one and all that is answered. By the run's
 * deadline for reports TRP_ETIMEOUT names the ranks that are behind. */
TRP_CHECKED trp_code trpi_session_drain(trp_session *session, trp_error *err);
void trpi_session_release(trp_session *session);

#endif

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
    trp_ref unanswered[TRPI_SESSION_UNANSWERED_MAX]; /* oldest first */
    size_t unanswered_count;
    const char *checkpoint;                    /* NULL = none */
    const char *staging;                       /* of the next report; NULL = not asked for yet */
    uint64_t entered_ns, opened_ns, loaded_ns; /* 0 = not yet */
};

/* Waits for the answers to all reports: each comes when the slowest rank has reported as often,
 * when the attempt ends or when the trainer dies, so the wait has no deadline of its own. */
TRP_CHECKED trp_code trpi_session_drain(trp_session *session, trp_error *err);
void trpi_session_release(trp_session *session);

#endif

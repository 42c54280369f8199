/* clang-format off */
/* controller.h: the life of a run. Pure: events come in, the next thing to do comes out.
 *
 *   INITIALIZING --BEGIN--> SCHEDULING --STARTED--> RUNNING --ALL_FINISHED--> SHUTTING_DOWN
 *                            |  ^  ^                 |                         ^    |
 *                 START_FAILED  |  '--STOPPED--.     | RANK_FAILED             | TORN_DOWN
 *                            v  | STOPPED      |     v                         |    v
 *                        RESCHEDULING        RESTARTING                        |  FINISHED, ERRORED,
 *                            |                       |                         |  ABORTED (for good)
 *                            '-- no retry left ------'-- or BROKEN, or ABORT --'
 *
 * What holds: an attempt's number is drawn on the way into SCHEDULING and never used again, so it
 * fences everything that an earlier attempt still sends. One failure of the group spends one retry,
 * however many of its ranks failed; an error of the program that comes again at the same step ends
 * the run, since no retry will mend it. A start that fails spends none of them: it has a small
 * budget of its own, which a start that succeeds fills up again. When that is used up the run ends,
 * unless it was a machine that failed: that costs a retry from then on. */
/* clang-format on */
#ifndef TRPI_CONTROLLER_H
#define TRPI_CONTROLLER_H

#include <troupe/train.h>

#include "core/base/base.h"

typedef enum trpi_control_event {
    TRPI_ON_BEGIN,
    TRPI_ON_STARTED,      /* every rank has been told to train */
    TRPI_ON_START_FAILED, /* placement, a worker's start or the rendezvous */
    TRPI_ON_START_LOST,   /* the same, but of a machine's doing: a worker was killed meanwhile */
    TRPI_ON_RANK_FAILED,  /* at least one rank died or returned an error */
    TRPI_ON_ALL_FINISHED, /* every rank has returned without one */
    TRPI_ON_STOPPED,      /* nobody works for the failed attempt any more */
    TRPI_ON_BROKEN,       /* something that no other attempt will mend */
    TRPI_ON_ABORT,        /* the user asked for the end */
    TRPI_ON_TORN_DOWN     /* all workers and the placement group are gone */
} trpi_control_event;

typedef enum trpi_control_action {
    TRPI_DO_NOTHING,
    TRPI_DO_START,     /* answer with STARTED, START_FAILED, START_LOST, BROKEN or ABORT */
    TRPI_DO_WATCH,     /* ... ALL_FINISHED, RANK_FAILED or ABORT */
    TRPI_DO_STOP,      /* ... STOPPED, BROKEN or ABORT */
    TRPI_DO_TEAR_DOWN, /* ... TORN_DOWN */
    TRPI_DO_END
} trpi_control_action;

/* Of a failure, what tells a machine's fault from the program's. */
typedef struct trpi_failure_mark {
    bool is_program; /* the train function returned an error that trying again does not mend */
    uint64_t step;   /* the last one done by the rank that failed */
    uint64_t hash;   /* of the error's text */
} trpi_failure_mark;

typedef struct trpi_controller {
    int max_failures;       /* in: -1 = unlimited */
    int start_failures_max; /* in: in a row */
    trpi_failure_mark mark; /* in: of the failure that RANK_FAILED tells of */

    trp_run_state state;
    trp_run_state outcome;  /* where SHUTTING_DOWN leads */
    uint64_t attempt;       /* in: the last one used before, 0 in a new run */
    int failures;           /* of the group, so far */
    int start_failures;     /* since the last start that succeeded */
    int restarts;           /* attempts that followed a failure of the group */
    trpi_failure_mark last; /* of the last failure that was the program's */
    bool is_repeated;       /* that one came twice, which ended the run */
} trpi_controller;

/* An event that the state has no transition for changes nothing: TRPI_DO_NOTHING. */
trpi_control_action trpi_controller_step(trpi_controller *controller, trpi_control_event event);

bool trpi_run_state_is_final(trp_run_state state);
const char *trpi_controller_check(const trpi_controller *controller); /* NULL, or what is broken */

#endif

#include "trainer/state/controller.h"

const char *trp_run_state_name(trp_run_state state) {
    static const char *const names[] = {"INITIALIZING", "SCHEDULING", "RESCHEDULING",  "RUNNING",
                                        "RESTARTING",   "RESIZING",   "SHUTTING_DOWN", "ERRORED",
                                        "FINISHED",     "ABORTED"};
    return (unsigned)state < TRPI_COUNTOF(names) ? names[state] : "UNKNOWN";
}

bool trpi_run_state_is_final(trp_run_state state) {
    return state == TRP_RUN_ERRORED || state == TRP_RUN_FINISHED || state == TRP_RUN_ABORTED;
}

static trpi_control_action shut_down(trpi_controller *c, trp_run_state outcome) {
    c->state = TRP_RUN_SHUTTING_DOWN;
    c->outcome = outcome;
    return TRPI_DO_TEAR_DOWN;
}

static trpi_control_action schedule(trpi_controller *c) {
    c->state = TRP_RUN_SCHEDULING;
    c->attempt++;
    return TRPI_DO_START;
}

/* Whether the program has failed of this at this step before. Kills in between do not count: what
 * is remembered is the program's last error. */
static bool comes_again(trpi_controller *c) {
    const trpi_failure_mark *mark = &c->mark;
    if (!mark->is_program) {
        return false;
    }
    bool same = c->last.is_program && c->last.step == mark->step && c->last.hash == mark->hash;
    c->last = *mark;
    return same;
}

static trpi_control_action rank_failed(trpi_controller *c) {
    c->failures++;
    bool again = comes_again(c);
    if (c->max_failures >= 0 && c->failures > c->max_failures) {
        return shut_down(c, TRP_RUN_ERRORED);
    }
    if (again) {
        c->is_repeated = true;
        return shut_down(c, TRP_RUN_ERRORED);
    }
    c->restarts++;
    c->state = TRP_RUN_RESTARTING;
    return TRPI_DO_STOP;
}

static trpi_control_action start_failed(trpi_controller *c, bool is_lost) {
    c->start_failures++;
    if (c->start_failures > c->start_failures_max) {
        c->mark = (trpi_failure_mark){0};
        return is_lost ? rank_failed(c) : shut_down(c, TRP_RUN_ERRORED);
    }
    c->state = TRP_RUN_RESCHEDULING;
    return TRPI_DO_STOP;
}

static trpi_control_action in_scheduling(trpi_controller *c, trpi_control_event event) {
    if (event == TRPI_ON_START_FAILED || event == TRPI_ON_START_LOST) {
        return start_failed(c, event == TRPI_ON_START_LOST);
    }
    if (event != TRPI_ON_STARTED) {
        return TRPI_DO_NOTHING;
    }
    c->start_failures = 0;
    c->state = TRP_RUN_RUNNING;
    return TRPI_DO_WATCH;
}

static trpi_control_action in_running(trpi_controller *c, trpi_control_event event) {
    if (event == TRPI_ON_RANK_FAILED) {
        return rank_failed(c);
    }
    return event == TRPI_ON_ALL_FINISHED ? shut_down(c, TRP_RUN_FINISHED) : TRPI_DO_NOTHING;
}

static trpi_control_action in_shutting_down(trpi_controller *c, trpi_control_event event) {
    if (event != TRPI_ON_TORN_DOWN) {
        return TRPI_DO_NOTHING; /* an abort comes too late: the outcome is decided */
    }
    c->state = c->outcome;
    return TRPI_DO_END;
}

trpi_control_action trpi_controller_step(trpi_controller *c, trpi_control_event event) {
    if (c->state == TRP_RUN_SHUTTING_DOWN) {
        return in_shutting_down(c, event);
    }
    if (trpi_run_state_is_final(c->state)) {
        return TRPI_DO_NOTHING;
    }
    if (event == TRPI_ON_ABORT) {
        return shut_down(c, TRP_RUN_ABORTED);
    }
    if (event == TRPI_ON_BROKEN) {
        return shut_down(c, TRP_RUN_ERRORED);
    }
    switch (c->state) {
    case TRP_RUN_INITIALIZING:
        return event == TRPI_ON_BEGIN ? schedule(c) : TRPI_DO_NOTHING;
    case TRP_RUN_SCHEDULING:
        return in_scheduling(c, event);
    case TRP_RUN_RUNNING:
        return in_running(c, event);
    case TRP_RUN_RESTARTING:
    case TRP_RUN_RESCHEDULING:
        return event == TRPI_ON_STOPPED ? schedule(c) : TRPI_DO_NOTHING;
    default:
        return TRPI_DO_NOTHING;
    }
}

const char *trpi_controller_check(const trpi_controller *c) {
    if (c->state > TRP_RUN_ABORTED) {
        return "the state is none";
    }
    if (c->max_failures >= 0 && c->restarts > c->max_failures) {
        return "more restarts than failures were allowed";
    }
    if (c->restarts > c->failures) {
        return "a restart without a failure";
    }
    if (c->is_repeated && c->outcome != TRP_RUN_ERRORED) {
        return "goes on after an error that came twice";
    }
    if (trpi_run_state_is_final(c->state) && c->state != c->outcome) {
        return "ended otherwise than decided";
    }
    if (c->state == TRP_RUN_RUNNING && (c->attempt == 0 || c->start_failures != 0)) {
        return "runs without having started";
    }
    return NULL;
}

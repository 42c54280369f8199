/* journal.h: what has happened to the run and the driver has not heard yet.
 *
 * Events are numbered from 1. The driver asks for those after the last one it has; the answer is
 * deferred until there is one. What it has acknowledged by asking for more is forgotten.
 * Threads: the trainer's lock guards it. */
#ifndef TRPI_JOURNAL_H
#define TRPI_JOURNAL_H

#include <troupe/actor.h>

#include "trainer/run/messages.h"

enum {
    TRPI_JOURNAL_REPORTS_MAX = 4096, /* of reports, which come by the thousand, no more wait */
    TRPI_JOURNAL_ANSWER_MAX = 256    /* events in one answer */
};

typedef struct trpi_journal_entry {
    uint64_t number;
    bool is_report;
    trp_buf packed;
    struct trpi_journal_entry *next;
} trpi_journal_entry;

typedef struct trpi_journal { /* zero-initialize */
    trpi_journal_entry *first, *last;
    uint64_t numbered;   /* so far */
    size_t reports;      /* in the list */
    trp_buf result;      /* packed; empty until the run is over */
    trp_promise *asking; /* a deferred answer, or NULL */
    uint64_t asked_after;
} trpi_journal;

/* Copies the event in, and answers whoever waits. */
TRP_CHECKED trp_code trpi_journal_add(trpi_journal *journal, const trpi_run_event *event,
                                      trp_error *err);
/* The last thing to be heard. */
TRP_CHECKED trp_code trpi_journal_end(trpi_journal *journal, const trpi_run_result *result,
                                      trp_error *err);

/* Takes the promise: answers it now or when something happens. A second one in waiting replaces the
 * first, which fails: there is one driver. */
void trpi_journal_ask(trpi_journal *journal, uint64_t after, trp_promise *promise);

void trpi_journal_release(trpi_journal *journal);

#endif

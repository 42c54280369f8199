/* collector.h: makes rounds out of the reports of single ranks. A round is report n of every rank
 * of the attempt; when the last one is in, it is handed on, and all that wait for it are answered.
 *
 * Stale messages die here: what carries another attempt than the open one is answered
 * TRP_ECANCELED. At most one round at a time has a staging directory, because a rank is given one
 * only when the rounds before are complete; so the number of a checkpoint rises with the number of
 * its report. Threads: the trainer's lock guards it. */
#ifndef TRPI_COLLECTOR_H
#define TRPI_COLLECTOR_H

#include <troupe/actor.h>

#include "trainer/ckpt/manifest.h"
#include "trainer/run/messages.h"
#include "trainer/state/reports.h"

typedef struct trpi_round {
    uint64_t number, step;  /* step: rank 0's */
    bool has_checkpoint;    /* some rank has brought files */
    trpi_manifest manifest; /* rank 0's metrics, everybody's files */
    struct trpi_round *next;
} trpi_round;

typedef struct trpi_waiter {
    trp_promise *promise;
    uint64_t number;      /* of the round that answers it */
    uint64_t deadline_ns; /* 0 = none */
    enum {
        TRPI_WAITS_REPORTED, /* made that report */
        TRPI_WAITS_STAGE,    /* wants a number for the round after */
        TRPI_WAITS_DRAIN     /* only wants to know that it is complete */
    } kind;
} trpi_waiter;

/* What the trainer does with it. */
typedef struct trpi_collector_hooks {
    void *arg;
    TRP_CHECKED trp_code (*next_number)(void *arg, uint64_t *ret_number, trp_error *err);
    /* A round is complete; with has_checkpoint the manifest has its number. Appends the path of
     * what was committed to ret_path. An error fails the reports of this round. May take the
     * manifest. */
    TRP_CHECKED trp_code (*complete)(void *arg, trpi_round *round, trp_buf *ret_path,
                                     trp_error *err);
    void (*discard)(void *arg, uint64_t attempt, uint64_t number); /* nobody brought files */
} trpi_collector_hooks;

typedef struct trpi_collector {
    trpi_collector_hooks hooks;
    uint64_t attempt; /* 0 = closed: everything is stale */
    trpi_reports reports;
    trpi_round *rounds; /* incomplete ones, by number */
    trpi_waiter *waiters;
    size_t waiter_count, waiter_capacity;
    bool staged; /* a staging directory was given out for the next round */
    uint64_t staged_number;
    uint64_t open_ns, load_ns; /* longest of any rank: see messages.def, report */
} trpi_collector;

TRP_CHECKED trp_code trpi_collector_open(trpi_collector *collector, uint64_t attempt, int world,
                                         trp_error *err);
/* Answers all that wait with TRP_ECANCELED and this text. */
void trpi_collector_close(trpi_collector *collector, const char *why);
void trpi_collector_release(trpi_collector *collector); /* closes it, too */

/* All three take the promise and answer it sooner or later, errors included. */
void trpi_collector_report(trpi_collector *collector, const trpi_run_report *report,
                           uint64_t deadline_ns, trp_promise *promise);
void trpi_collector_stage(trpi_collector *collector, const trpi_run_stage *stage,
                          uint64_t deadline_ns, trp_promise *promise);
void trpi_collector_drain(trpi_collector *collector, const trpi_run_drain *drain,
                          uint64_t deadline_ns, trp_promise *promise);

/* The rank's train function has returned without an error. */
void trpi_collector_finish(trpi_collector *collector, int rank);
/* Fails what has waited too long, naming the ranks that are behind. */
void trpi_collector_expire(trpi_collector *collector, uint64_t now_ns);

#endif

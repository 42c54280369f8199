/* reports.h: who has reported how often in this attempt. Pure.
 *
 * Reports are numbered from 1 by each rank. Report n is complete when every rank has made it; only
 * then is it answered, so no rank gets further ahead than it may have answers outstanding. */
#ifndef TRPI_REPORTS_H
#define TRPI_REPORTS_H

#include "core/base/base.h"

typedef struct trpi_reports {
    int world;
    uint64_t *counts;  /* reports made, by rank */
    bool *finished;    /* its train function has returned */
    uint64_t complete; /* the highest number that all ranks have reached */
} trpi_reports;

TRP_CHECKED bool trpi_reports_init(trpi_reports *reports, int world); /* false: out of memory */
void trpi_reports_release(trpi_reports *reports);

/* Counts report `number` of the rank. NULL, or why it cannot be. */
TRP_CHECKED const char *trpi_reports_add(trpi_reports *reports, int rank, uint64_t number);

/* The rank makes no more reports. */
void trpi_reports_finish(trpi_reports *reports, int rank);

/* A rank that will never make report `number` because it has finished, or -1. */
int trpi_reports_never(const trpi_reports *reports, uint64_t number);

/* Ranks that have not made report `number` yet, rising; returns how many, writes at most `max`. */
int trpi_reports_behind(const trpi_reports *reports, uint64_t number, int *ret_ranks, int max);

const char *trpi_reports_check(const trpi_reports *reports); /* NULL, or what is broken */

#endif

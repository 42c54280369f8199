#include "trainer/state/reports.h"

#include <stdlib.h>

bool trpi_reports_init(trpi_reports *reports, int world) {
    *reports = (trpi_reports){.world = world};
    reports->counts = calloc((size_t)world, sizeof(*reports->counts));
    reports->finished = calloc((size_t)world, sizeof(*reports->finished));
    if (reports->counts == NULL || reports->finished == NULL) {
        trpi_reports_release(reports);
        return false;
    }
    return true;
}

void trpi_reports_release(trpi_reports *reports) {
    free(reports->counts);
    free(reports->finished);
    *reports = (trpi_reports){0};
}

static uint64_t lowest_count(const trpi_reports *reports) {
    uint64_t lowest = UINT64_MAX;
    for (int rank = 0; rank < reports->world; rank++) {
        lowest = TRPI_MIN(lowest, reports->counts[rank]);
    }
    return lowest;
}

const char *trpi_reports_add(trpi_reports *reports, int rank, uint64_t number) {
    if (rank < 0 || rank >= reports->world) {
        return "the rank is not one of this attempt";
    }
    if (reports->finished[rank]) {
        return "the rank has finished";
    }
    if (number != reports->counts[rank] + 1) {
        return "reports are numbered one by one";
    }
    reports->counts[rank] = number;
    if (number == reports->complete + 1) { /* only the slowest can complete one */
        reports->complete = lowest_count(reports);
    }
    return NULL;
}

void trpi_reports_finish(trpi_reports *reports, int rank) {
    if (rank >= 0 && rank < reports->world) {
        reports->finished[rank] = true;
    }
}

int trpi_reports_never(const trpi_reports *reports, uint64_t number) {
    for (int rank = 0; rank < reports->world; rank++) {
        if (reports->finished[rank] && reports->counts[rank] < number) {
            return rank;
        }
    }
    return -1;
}

int trpi_reports_behind(const trpi_reports *reports, uint64_t number, int *ret_ranks, int max) {
    int count = 0;
    for (int rank = 0; rank < reports->world; rank++) {
        if (reports->counts[rank] < number) {
            if (count < max) {
                ret_ranks[count] = rank;
            }
            count++;
        }
    }
    return count;
}

const char *trpi_reports_check(const trpi_reports *reports) {
    if (reports->world > 0 && reports->complete != lowest_count(reports)) {
        return "the complete number is not that of the slowest rank";
    }
    return NULL;
}

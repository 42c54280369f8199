/* vote.h: a few numbers that every rank tells all others, so that all decide alike. */
#ifndef TRPI_VOTE_H
#define TRPI_VOTE_H

#include <troupe/comm.h>

#include "core/base/base.h"

typedef struct trpi_vote {
    int64_t status; /* a trp_code */
    int64_t number;
    int64_t step;
    double loss, squares;
} trpi_vote;

typedef struct trpi_ballot {
    trp_device *device; /* borrowed, as is comm */
    trp_comm *comm;
    int world;
    void *box;        /* device memory: one vote per rank */
    trpi_vote *votes; /* the same on the host, valid until the next vote */
} trpi_ballot;

TRP_CHECKED trp_code trpi_ballot_init(trp_device *device, trp_comm *comm, trpi_ballot *ret_ballot,
                                      trp_error *err);
void trpi_ballot_release(trpi_ballot *ballot);

/* Gives this rank's vote; ballot->votes then holds everybody's, by rank. Collective. */
TRP_CHECKED trp_code trpi_ballot_vote(trpi_ballot *ballot, const trpi_vote *own, trp_error *err);

/* TRP_OK if every rank's status is. Otherwise this rank's own error stays as it is in err, or err
 * gets the code of the first rank that failed and says which: the same outcome on every rank. */
TRP_CHECKED trp_code trpi_ballot_agree(trpi_ballot *ballot, trpi_vote own, trp_error *err);

#endif

#include "trainer/engine/vote.h"

#include <stdlib.h>
#include <string.h>

/* Votes travel as raw 32-bit words: an all-gather moves bits and computes nothing. */
#define VOTE_WORDS ((int64_t)(sizeof(trpi_vote) / sizeof(int32_t)))

trp_code trpi_ballot_init(trp_device *device, trp_comm *comm, trpi_ballot *ret_ballot,
                          trp_error *err) {
    trpi_ballot ballot = {.device = device, .comm = comm, .world = trp_comm_world(comm)};
    size_t bytes = (size_t)ballot.world * sizeof(trpi_vote);
    ballot.votes = malloc(bytes);
    if (!ballot.votes) {
        return trpi_fail(err, TRP_ENOMEM, "votes");
    }
    trp_code code = trp_device_alloc(device, bytes, &ballot.box, err);
    if (code) {
        free(ballot.votes);
        return code;
    }
    *ret_ballot = ballot;
    return TRP_OK;
}

void trpi_ballot_release(trpi_ballot *ballot) {
    if (ballot->box) {
        trp_device_free(ballot->device, ballot->box);
    }
    free(ballot->votes);
    *ballot = (trpi_ballot){0};
}

trp_code trpi_ballot_vote(trpi_ballot *ballot, const trpi_vote *own, trp_error *err) {
    trpi_vote *mine = (trpi_vote *)ballot->box + trp_comm_rank(ballot->comm);
    trp_code code = trp_device_upload(ballot->device, mine, own, sizeof *own, err);
    if (!code) {
        code = trp_comm_all_gather(ballot->comm, ballot->box, VOTE_WORDS, TRP_I32, err);
    }
    if (!code) {
        code = trp_device_download(ballot->device, ballot->votes, ballot->box,
                                   (size_t)ballot->world * sizeof(trpi_vote), err);
    }
    return code;
}

trp_code trpi_ballot_agree(trpi_ballot *ballot, trpi_vote own, trp_error *err) {
    trp_error failed;
    trp_code code = trpi_ballot_vote(ballot, &own, &failed);
    if (code) {
        if (own.status) {
            return (trp_code)own.status; /* the reason that is this rank's own says more */
        }
        return trpi_fail(err, code, "%s", failed.message);
    }
    if (own.status) {
        return (trp_code)own.status;
    }
    for (int r = 0; r < ballot->world; r++) {
        if (ballot->votes[r].status) {
            return trpi_fail(err, (trp_code)ballot->votes[r].status,
                             "rank %d could not take part; its own message says why", r);
        }
    }
    return TRP_OK;
}

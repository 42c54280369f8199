/* membership.h: who is there, in which incarnation, and who has been silent for too long.
 *
 * A member that joins again under its id is a new incarnation; what the old one still says is
 * stale, and trpi_membership_hears() is the one place where it is dropped.
 *
 * Silence is only evidence when someone listened. When a tick comes late (the head stalled, was
 * stopped, or the clock jumped) nothing that was sent meanwhile has been read yet; so from then on
 * everyone has a full timeout again before a verdict ("TILT"). */
#ifndef TRPI_MEMBERSHIP_H
#define TRPI_MEMBERSHIP_H

#include "core/base/table.h"

typedef struct trpi_member {
    uint64_t id, incarnation; /* from 1 */
    bool living;
    uint64_t heard_ns, joined_ns;
} trpi_member;

typedef struct trpi_membership {
    trpi_table members; /* the dead too, until forgotten: their incarnation goes on */
    uint64_t timeout_ns;
    uint64_t late_ns; /* a tick that is this late is a jump */
    uint64_t ticked_ns, listening_ns;
    uint64_t tilts; /* how often verdicts were put off */
} trpi_membership;

void trpi_membership_init(trpi_membership *membership, uint64_t timeout_ns, uint64_t late_ns);
void trpi_membership_release(trpi_membership *membership);

/* Returns the incarnation: 1, or one more than last time. It must not be living. */
uint64_t trpi_membership_join(trpi_membership *membership, uint64_t id, uint64_t now_ns);
void trpi_membership_leave(trpi_membership *membership, uint64_t id); /* dead from now on */
void trpi_membership_forget(trpi_membership *membership, uint64_t id);
/* Something came from this incarnation: true if it is the living one (and notes the time). */
bool trpi_membership_hears(trpi_membership *membership, uint64_t id, uint64_t incarnation,
                           uint64_t now_ns);

/* Before asking for the silent ones: notices jumps of time. */
void trpi_membership_tick(trpi_membership *membership, uint64_t now_ns);
/* The next living member above *id that is silent for too long, or NULL. */
const trpi_member *trpi_membership_silent(const trpi_membership *membership, uint64_t *id,
                                          uint64_t now_ns);
const char *trpi_membership_check(const trpi_membership *membership);

#endif

/* lifecycle.h: one actor's life: which phase, which incarnation, and whether a death is the last.
 *
 *            started (2)                 died, restart (3)
 *   PENDING ------------> ALIVE --------------------------> RESTARTING
 *    |  ^ |                 |  <--------------------------    |  |
 *    |  |_| died, restart(3)|         started (2)             |  | died, restart (3): again
 *    |                      |                                 |
 *    +----------------------+----------- died, final (4) -----+--> DEAD
 *
 * (1) trpi_life_init   (2) trpi_life_started   (3)(4) trpi_life_died
 *
 * What holds: incarnation = restarts + 1, always: an incarnation is used up by each death, also by
 * one before a process existed. PENDING has never been ALIVE. DEAD is for ever. restarts never
 * exceeds restarts_max unless that is -1.
 *
 * Which deaths restart: a signal, exit code != 0, death of the node, memory ran out, start took too
 * long, a kill that allows it. Never: exit code 0, the actor's own exit, an error of the
 * constructor, a kill that does not allow it, death of the owner, removal of the group, no place.
 *
 * Backoff: the first restart in a row is at once, the k-th waits backoff * 2^(k-2), at most
 * backoff_max, of which the last quarter is random; a row ends when the actor was alive for
 * `forget`. */
#ifndef TRPI_LIFECYCLE_H
#define TRPI_LIFECYCLE_H

#include <troupe/actor.h>

#include "core/base/base.h"

typedef struct trpi_life_rules {
    int64_t restarts_max; /* -1 = for ever */
    uint64_t backoff_ns, backoff_max_ns, forget_ns;
} trpi_life_rules;

typedef struct trpi_life {
    trpi_life_rules rules;
    trp_actor_phase phase;
    uint64_t incarnation; /* that runs or is next */
    int64_t restarts;
    uint64_t row;      /* restarts since the last forgetting */
    uint64_t alive_ns; /* since when; 0 = not alive */
} trpi_life;

/* xorshift; the seed is part of the machine, so that a replay draws the same. */
uint64_t trpi_random_next(uint64_t *state);

typedef struct trpi_life_end {
    trp_cause cause;
    int64_t exit_code; /* for EXITED */
    bool may_restart;  /* for KILLED */
} trpi_life_end;

void trpi_life_init(trpi_life *life, const trpi_life_rules *rules);
void trpi_life_started(trpi_life *life, uint64_t now_ns);
/* True: it lives on, as the next incarnation, not before *ret_at_ns. False: DEAD. */
TRP_CHECKED bool trpi_life_died(trpi_life *life, const trpi_life_end *end, uint64_t now_ns,
                                uint64_t *random, uint64_t *ret_at_ns);
/* Whether a death of this kind may be followed by a restart at all. */
bool trpi_life_restartable(const trpi_life_end *end);
const char *trpi_phase_name(trp_actor_phase phase); /* "ALIVE" */
const char *trpi_life_check(const trpi_life *life);

#endif

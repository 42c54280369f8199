/* lifecycle.h: one life: which phase, which incarnation, and whether a death is the last. Of an
 * actor, or of a gang, which lives and dies as one.
 *
 *            started (2)                 died, restart (3)
 *   PENDING ------------> ALIVE --------------------------> RESTARTING
 *    |  ^ |                 |  <--------------------------    |  |
 *    |  |_| died, restart(3)|         started (2)             |  | died, restart (3): again
 *    |                      |                                 |
 *    +----------------------+----------- died, final (4) -----+--> DEAD
 *
 * (1) trpi_life_init   (2) trpi_life_started   (3) trpi_life_restart   (4) trpi_life_end
 *
 * What holds: incarnation = restarts + 1, always: an incarnation is used up by each death, also by
 * one before a process existed. PENDING has never been ALIVE. DEAD is for ever. The restarts that
 * count never exceed restarts_max unless that is -1: in the whole life, or with a window in any
 * span of its length (OTP's intensity).
 *
 * Which deaths restart, of type FAILED: a signal, exit code != 0, death of the node, no progress,
 * memory ran out, start took too long, a drained node, a link, a kill that allows it. ALWAYS: also
 * exit code 0 and the actor's own exit. NEVER: none. None of them: an error of the constructor, a
 * kill that does not allow it, an orderly stop, death of the owner, removal of the group, no place.
 * A gang's policy decides for its members.
 *
 * Backoff: the first restart in a row is at once, the k-th waits backoff * 2^(k-2), at most
 * backoff_max, of which the last quarter is random; a row ends when the actor was alive for
 * `forget`. */
#ifndef TRPI_LIFECYCLE_H
#define TRPI_LIFECYCLE_H

#include <troupe/actor.h>

#include "core/base/base.h"

/* With a window every restart within it is remembered. */
#define TRPI_WINDOW_RESTARTS_MAX 1000

typedef struct trpi_life_rules {
    trp_restart restart;
    int64_t restarts_max; /* -1 = for ever; with a window at most TRPI_WINDOW_RESTARTS_MAX */
    uint64_t window_ns;   /* 0 = the whole life */
    uint64_t backoff_ns, backoff_max_ns, forget_ns;
} trpi_life_rules;

typedef struct trpi_life {
    trpi_life_rules rules;
    trp_actor_phase phase;
    uint64_t incarnation; /* that runs or is next */
    int64_t restarts;
    int64_t counted;   /* of them, against restarts_max */
    uint64_t row;      /* restarts since the last forgetting */
    uint64_t alive_ns; /* since when; 0 = not alive */
    uint64_t *times;   /* with a window: a ring of the latest restarts_max that counted */
} trpi_life;

/* xorshift; the seed is part of the machine, so that a replay draws the same. */
uint64_t trpi_random_next(uint64_t *state);

typedef struct trpi_life_end {
    trp_cause cause;
    int64_t exit_code; /* for EXITED */
    bool may_restart;  /* for KILLED */
    bool uncounted;    /* a restart does not count against restarts_max */
} trpi_life_end;

void trpi_life_init(trpi_life *life, const trpi_life_rules *rules);
void trpi_life_release(trpi_life *life);
void trpi_life_started(trpi_life *life, uint64_t now_ns);

/* Whether a death of this kind may be followed by a restart at all. */
bool trpi_life_restartable(trp_restart restart, const trpi_life_end *end);
/* Whether it is, now: it is restartable, and restarts are left. */
bool trpi_life_goes_on(const trpi_life *life, const trpi_life_end *end, uint64_t now_ns);
/* Restarts left; -1 = for ever. */
int64_t trpi_life_left(const trpi_life *life, uint64_t now_ns);

/* It lives on, as the next incarnation. Returns when at the earliest. */
uint64_t trpi_life_restart(trpi_life *life, bool uncounted, uint64_t now_ns, uint64_t *random);
void trpi_life_end_now(trpi_life *life); /* DEAD */

const char *trpi_phase_name(trp_actor_phase phase); /* "ALIVE" */
const char *trpi_life_check(const trpi_life *life);

#endif

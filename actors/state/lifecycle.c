#include "actors/state/lifecycle.h"

#include <stdlib.h>

const char *trpi_phase_name(trp_actor_phase phase) {
    static const char *const names[] = {"PENDING", "ALIVE", "RESTARTING", "DEAD"};
    return (unsigned)phase < TRPI_COUNTOF(names) ? names[phase] : "?";
}

uint64_t trpi_random_next(uint64_t *state) {
    uint64_t x = *state ? *state : 0x9e3779b97f4a7c15u; /* xorshift64* is stuck at 0 */
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545f4914f6cdd1du;
}

void trpi_life_init(trpi_life *life, const trpi_life_rules *rules) {
    *life = (trpi_life){.rules = *rules, .phase = TRP_ACTOR_PENDING, .incarnation = 1};
}

void trpi_life_release(trpi_life *life) {
    free(life->times);
    life->times = NULL;
}

void trpi_life_started(trpi_life *life, uint64_t now_ns) {
    TRP_ASSERT(life->phase == TRP_ACTOR_PENDING || life->phase == TRP_ACTOR_RESTARTING);
    life->phase = TRP_ACTOR_ALIVE;
    life->alive_ns = now_ns;
}

bool trpi_life_restartable(trp_restart restart, const trpi_life_end *end) {
    if (restart == TRP_RESTART_NEVER) {
        return false;
    }
    switch (end->cause) {
    case TRP_CAUSE_SIGNALED:
    case TRP_CAUSE_NODE_DIED:
    case TRP_CAUSE_START_TIMEOUT:
    case TRP_CAUSE_OUT_OF_MEMORY:
    case TRP_CAUSE_HUNG:
    case TRP_CAUSE_LINKED:
    case TRP_CAUSE_DRAINED:
        return true;
    case TRP_CAUSE_EXITED:
        return end->exit_code != 0 || restart == TRP_RESTART_ALWAYS;
    case TRP_CAUSE_FINISHED:
        return restart == TRP_RESTART_ALWAYS;
    case TRP_CAUSE_KILLED:
        return end->may_restart;
    default:
        return false;
    }
}

/* ---- Intensity ---- */

static uint64_t *time_of(const trpi_life *life, int64_t number) {
    return &life->times[number % life->rules.restarts_max];
}

/* How many of the restarts that count are so recent that they still do. */
static int64_t recent(const trpi_life *life, uint64_t now_ns) {
    int64_t count = TRPI_MIN(life->counted, life->rules.restarts_max);
    if (life->rules.window_ns == 0) {
        return life->counted;
    }
    while (count > 0 && now_ns - *time_of(life, life->counted - count) >= life->rules.window_ns) {
        count--;
    }
    return count;
}

int64_t trpi_life_left(const trpi_life *life, uint64_t now_ns) {
    int64_t max = life->rules.restart == TRP_RESTART_NEVER ? 0 : life->rules.restarts_max;
    return max <= 0 ? max : max - recent(life, now_ns);
}

bool trpi_life_goes_on(const trpi_life *life, const trpi_life_end *end, uint64_t now_ns) {
    bool spared = end->uncounted && life->rules.restarts_max != 0;
    return trpi_life_restartable(life->rules.restart, end) &&
           (spared || trpi_life_left(life, now_ns) != 0);
}

static void count_restart(trpi_life *life, uint64_t now_ns) {
    if (life->rules.window_ns && life->rules.restarts_max > 0) {
        if (!life->times) {
            life->times = trpi_alloc((size_t)life->rules.restarts_max * sizeof(uint64_t));
        }
        *time_of(life, life->counted) = now_ns;
    }
    life->counted++;
}

/* The k-th restart in a row (from 1) waits this long. */
static uint64_t backoff_of(const trpi_life *life, uint64_t *random) {
    if (life->row <= 1) {
        return 0;
    }
    uint64_t wait = life->rules.backoff_ns;
    for (uint64_t k = 2; k < life->row && wait < life->rules.backoff_max_ns; k++) {
        wait *= 2;
    }
    wait = TRPI_MIN(wait, life->rules.backoff_max_ns);
    uint64_t jitter = wait / 4;
    return wait - jitter + (jitter ? trpi_random_next(random) % jitter : 0);
}

uint64_t trpi_life_restart(trpi_life *life, bool uncounted, uint64_t now_ns, uint64_t *random) {
    TRP_ASSERT(life->phase != TRP_ACTOR_DEAD);
    bool was_alive = life->phase == TRP_ACTOR_ALIVE;
    if (was_alive && now_ns - life->alive_ns >= life->rules.forget_ns) {
        life->row = 0;
    }
    if (was_alive) {
        life->phase = TRP_ACTOR_RESTARTING;
    }
    if (!uncounted) {
        count_restart(life, now_ns);
    }
    life->alive_ns = 0;
    life->incarnation++;
    life->restarts++;
    life->row++;
    return now_ns + backoff_of(life, random);
}

void trpi_life_end_now(trpi_life *life) {
    TRP_ASSERT(life->phase != TRP_ACTOR_DEAD);
    life->phase = TRP_ACTOR_DEAD;
}

const char *trpi_life_check(const trpi_life *life) {
    if (life->incarnation != (uint64_t)life->restarts + 1) {
        return "incarnation is not restarts + 1";
    }
    bool limited = life->rules.restarts_max >= 0 && !life->rules.window_ns;
    if (life->counted > life->restarts || (limited && life->counted > life->rules.restarts_max)) {
        return "restarted more often than allowed";
    }
    if ((life->phase == TRP_ACTOR_ALIVE) != (life->alive_ns != 0)) {
        return life->phase == TRP_ACTOR_DEAD ? NULL : "alive since when?";
    }
    return NULL;
}

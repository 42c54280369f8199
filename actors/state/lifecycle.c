#include "actors/state/lifecycle.h"

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

void trpi_life_started(trpi_life *life, uint64_t now_ns) {
    TRP_ASSERT(life->phase == TRP_ACTOR_PENDING || life->phase == TRP_ACTOR_RESTARTING);
    life->phase = TRP_ACTOR_ALIVE;
    life->alive_ns = now_ns;
}

bool trpi_life_restartable(const trpi_life_end *end) {
    switch (end->cause) {
    case TRP_CAUSE_SIGNALED:
    case TRP_CAUSE_NODE_DIED:
    case TRP_CAUSE_START_TIMEOUT:
    case TRP_CAUSE_OUT_OF_MEMORY:
        return true;
    case TRP_CAUSE_EXITED:
        return end->exit_code != 0;
    case TRP_CAUSE_KILLED:
        return end->may_restart;
    default:
        return false;
    }
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

bool trpi_life_died(trpi_life *life, const trpi_life_end *end, uint64_t now_ns, uint64_t *random,
                    uint64_t *ret_at_ns) {
    TRP_ASSERT(life->phase != TRP_ACTOR_DEAD);
    bool allowed = life->rules.restarts_max < 0 || life->restarts < life->rules.restarts_max;
    if (!allowed || !trpi_life_restartable(end)) {
        life->phase = TRP_ACTOR_DEAD;
        return false;
    }
    bool was_alive = life->phase == TRP_ACTOR_ALIVE;
    if (was_alive && now_ns - life->alive_ns >= life->rules.forget_ns) {
        life->row = 0;
    }
    if (was_alive) {
        life->phase = TRP_ACTOR_RESTARTING;
    }
    life->alive_ns = 0;
    life->incarnation++;
    life->restarts++;
    life->row++;
    *ret_at_ns = now_ns + backoff_of(life, random);
    return true;
}

const char *trpi_life_check(const trpi_life *life) {
    if (life->incarnation != (uint64_t)life->restarts + 1) {
        return "incarnation is not restarts + 1";
    }
    if (life->rules.restarts_max >= 0 && life->restarts > life->rules.restarts_max) {
        return "restarted more often than allowed";
    }
    if ((life->phase == TRP_ACTOR_ALIVE) != (life->alive_ns != 0)) {
        return life->phase == TRP_ACTOR_DEAD ? NULL : "alive since when?";
    }
    return NULL;
}

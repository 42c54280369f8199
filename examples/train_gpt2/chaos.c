#include "examples/train_gpt2/chaos.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <troupe/train.h>

#include "examples/train_gpt2/options.h"

static uint64_t next_random(uint64_t *seed) {
    *seed += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = *seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int by_step(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t seed_of_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return 1 + now.tv_nsec / 1000;
}

static void print_plan(const options *o) {
    printf("will kill a worker after step%s", o->kill_count > 1 ? "s" : "");
    for (int i = 0; i < o->kill_count; i++) {
        printf("%s %" PRId64, i == 0 ? "" : i == o->kill_count - 1 ? " and" : ",", o->kill_at[i]);
    }
    printf(" (again: --chaos-seed %" PRId64 ")\n", o->chaos_seed);
}

void chaos_plan(options *o) {
    if (o->chaos_seed == 0) {
        o->chaos_seed = seed_of_now();
    }
    uint64_t seed = (uint64_t)o->chaos_seed;
    /* Not after the last step, where there is nothing left to be lost. */
    uint64_t steps = o->job.steps > 1 ? (uint64_t)o->job.steps - 1 : 1;
    for (int64_t i = 0; i < o->chaos && o->kill_count < KILLS_MAX; i++) {
        o->kill_at[o->kill_count++] = 1 + (int64_t)(next_random(&seed) % steps);
    }
    qsort(o->kill_at, (size_t)o->kill_count, sizeof(o->kill_at[0]), by_step);
}

chaos chaos_start(const options *o) {
    if (o->kill_count > 0) {
        print_plan(o);
    }
    return (chaos){.options = o, .random = ~(uint64_t)o->chaos_seed};
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool chaos_is_due(const chaos *c, uint64_t step) {
    return c->kills < c->options->kill_count && c->killed_ns == 0 &&
           (int64_t)step >= c->options->kill_at[c->kills];
}

void chaos_kill(chaos *c, uint64_t step, const trp_train_worker *workers, size_t count) {
    const trp_train_worker *victim = &workers[next_random(&c->random) % count];
    uint64_t before_ns = now_ns();
    bool killed = kill((pid_t)victim->pid, SIGKILL) == 0;
    printf("kill -9 %" PRId64 " (rank %d) after step %" PRIu64 "%s%s\n", victim->pid, victim->rank,
           step, killed ? "" : ": ", killed ? "" : strerror(errno));
    c->kills++;
    c->killed_ns = killed ? before_ns : 0;
}

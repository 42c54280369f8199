/* The whole head under seeded faults, on virtual time: see cluster_sim_test/world.h.
 *
 *   SIM_SEEDS=10000 cluster_sim_test     more seeds (default 1000)
 *   SIM_SEED=77 cluster_sim_test         replays one, and prints every message */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/sim/cluster_sim_test/world.h"

#define SEEDS_DEFAULT 1000
#define REPEAT_EVERY 25 /* this many seeds, one is run twice */

typedef struct totals {
    uint64_t steps, deaths, spawned, tilts, turns, restored, jobs, causes[TRP_CAUSE_COUNT];
} totals;

static uint64_t from_environment(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    uint64_t value = otherwise;
    if (text && !trpi_parse_u64(text, UINT64_MAX, &value)) {
        fail_msg("%s=%s is not a number", name, text);
    }
    return value;
}

/* Returns the hash of all that the head said. */
static uint64_t run_seed(uint64_t seed, bool verbose, totals *sum) {
    sim_world *world = sim_world_new(seed, verbose);
    sim_world_run(world);
    uint64_t trace = world->trace;
    sum->steps += world->steps;
    sum->deaths += world->deaths;
    sum->spawned += world->spawned;
    sum->tilts += world->tilts;
    sum->turns += world->turns;
    sum->restored += world->restored;
    sum->jobs += world->jobs_submitted;
    for (size_t i = 0; i < TRP_CAUSE_COUNT; i++) {
        sum->causes[i] += world->causes[i];
    }
    if (world->failure[0]) {
        fprintf(stderr, "seed=%" PRIu64 ": %s\nSIM_SEED=%" PRIu64 " replays it\n", seed,
                world->failure, seed);
        sim_world_free(world);
        fail();
    }
    sim_world_free(world);
    return trace;
}

/* A simulation in which nothing happens would pass too. */
static void check_that_much_happened(const totals *sum, uint64_t seeds) {
    assert_true(sum->steps > 100 * seeds);
    assert_true(sum->spawned > 10 * seeds);
    assert_true(sum->deaths > 5 * seeds);
    for (size_t i = 1; seeds >= SEEDS_DEFAULT && i < TRP_CAUSE_COUNT; i++) {
        assert_true(sum->causes[i] > seeds / 100);
    }
    assert_true(seeds < SEEDS_DEFAULT || (sum->turns > seeds && sum->restored > seeds));
}

static void the_cluster_keeps_its_invariants_under_any_seed(void **state) {
    uint64_t only = from_environment("SIM_SEED", 0);
    uint64_t first = only ? only : 1;
    uint64_t count = only ? 1 : from_environment("SIM_SEEDS", SEEDS_DEFAULT);
    totals sum = {0};
    for (uint64_t seed = first; seed < first + count; seed++) {
        (void)run_seed(seed, only != 0, &sum);
    }
    printf("seeds=%" PRIu64 " steps=%" PRIu64 " spawned=%" PRIu64 " deaths_told=%" PRIu64
           " tilts=%" PRIu64 "\n",
           count, sum.steps, sum.spawned, sum.deaths, sum.tilts);
    printf("turns=%" PRIu64 " restored=%" PRIu64 " jobs=%" PRIu64, sum.turns, sum.restored,
           sum.jobs);
    for (size_t i = 1; i < TRP_CAUSE_COUNT; i++) {
        printf("%s%" PRIu64 " %s", i == 1 ? "; deaths: " : ", ", sum.causes[i],
               trp_cause_text((trp_cause)i));
    }
    printf("\n");
    if (!only) {
        check_that_much_happened(&sum, count);
    }
}

static void the_same_seed_gives_the_same_actions(void **state) {
    uint64_t count =
        from_environment("SIM_SEED", 0) ? 0 : from_environment("SIM_SEEDS", SEEDS_DEFAULT);
    totals sum = {0};
    for (uint64_t seed = 1; seed <= count; seed += REPEAT_EVERY) {
        assert_int_equal(run_seed(seed, false, &sum), run_seed(seed, false, &sum));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cluster_keeps_its_invariants_under_any_seed),
        cmocka_unit_test(the_same_seed_gives_the_same_actions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Who has waited too long gets its turn, however many small requests come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

#define LIVES_MAX 512

/* What runs, and until when. */
typedef struct life {
    uint64_t actor, incarnation, peer, end_ns;
} life;

static life lives[LIVES_MAX];
static size_t life_count;
static uint64_t stable_until; /* actors up to this id never end */

static void with_reserve(uint64_t reserve_after_ms) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.reserve_after_ms = reserve_after_ms;
    config.node_timeout_ms = config.client_timeout_ms = 1000000000; /* nobody beats here */
    trpi_cluster_free(machine.cluster);
    machine.cluster = trpi_cluster_new(&config);
    life_count = 0;
    stable_until = 0;
}

static void take_starts(void) {
    for (size_t i = 0; i < machine.actions.count; i++) {
        const trpi_cluster_action *action = &machine.actions.items[i];
        if (action->kind == TRPI_ACTION_SEND && action->msg.type == TRPI_MSG_START) {
            assert_true(life_count < LIVES_MAX);
            uint64_t actor = action->msg.start.actor;
            uint64_t end_ns = actor <= stable_until ? UINT64_MAX : machine.now_ns + 1000 * MS;
            lives[life_count++] =
                (life){actor, action->msg.start.incarnation, action->peer, end_ns};
        }
    }
}

static uint64_t spawn(trpi_msg msg) {
    uint64_t actor = machine_spawned(DRIVER, &msg);
    take_starts();
    return actor;
}

static bool runs(uint64_t actor) {
    for (size_t i = 0; i < life_count; i++) {
        if (lives[i].actor == actor) {
            return true;
        }
    }
    return false;
}

static void end_those_due(void) {
    for (size_t i = 0; i < life_count; i++) {
        life one = lives[i];
        if (one.end_ns <= machine.now_ns) {
            lives[i--] = lives[--life_count];
            machine_exited(
                one.peer, one.actor,
                (trpi_death){.incarnation = one.incarnation, .cause = TRP_CAUSE_FINISHED});
            take_starts();
        }
    }
}

/* A stream of requests for one gpu, each held for a second: for each that the nodes have, two are
 * asked for. Ends when all of `wanted` have run; returns after how many seconds, or 0. */
static uint64_t stream(uint64_t per_second, const uint64_t *wanted, size_t count,
                       uint64_t seconds) {
    size_t done = 0;
    bool seen[8] = {false};
    for (uint64_t ms = 0; ms < seconds * 1000; ms += 50) {
        machine.now_ns += 50 * MS;
        machine_event((trpi_cluster_event){.kind = TRPI_EVENT_TICK});
        take_starts();
        end_those_due();
        if (ms % (1000 / per_second) == 0) {
            (void)spawn(machine_spawn(0, 1, 0));
        }
        for (size_t i = 0; i < count; i++) {
            done += !seen[i] && runs(wanted[i]);
            seen[i] |= runs(wanted[i]);
        }
        if (count && done == count) {
            return ms / 1000 + 1;
        }
    }
    return 0;
}

static void without_turns_small_requests_starve_a_large_one(void **state) {
    with_reserve(0);
    machine_node(NODE_A, 8, 4);
    machine_client(DRIVER, "driver", 0, 0);
    (void)stream(5, NULL, 0, 3);
    uint64_t large = spawn(machine_spawn(0, 4, 0));
    assert_int_equal(stream(5, &large, 1, 60), 0);
}

static void a_large_request_gets_in_while_small_ones_come_and_go(void **state) {
    with_reserve(2000);
    machine_node(NODE_A, 8, 4);
    machine_client(DRIVER, "driver", 0, 0);
    (void)stream(5, NULL, 0, 3);
    uint64_t large = spawn(machine_spawn(0, 4, 0));
    uint64_t seconds = stream(5, &large, 1, 60);
    assert_in_range(seconds, 2, 5); /* two of waiting, one until the last small one ends */
    assert_int_equal(trpi_cluster_get_counts(machine.cluster).turns, 0);
    (void)stream(5, NULL, 0, 3); /* and the small ones go on */
    assert_true(life_count >= 3);
}

static void
who_waits_with_room_kept_free_says_so_and_so_do_those_who_may_not_have_it(void **state) {
    with_reserve(2000);
    machine_node(NODE_A, 8, 4);
    machine_client(DRIVER, "driver", 0, 0);
    stable_until = 1;
    uint64_t holder = spawn(machine_spawn(0, 1, 0)), large = spawn(machine_spawn(0, 4, 0));
    machine_pass(3000);
    assert_string_equal(machine_view(large).waiting_for,
                        "busy: needs 4 gpu; the most free on any node is 3; room is kept free for "
                        "it on node n1");
    uint64_t small = spawn(machine_spawn(0, 1, 0));
    assert_string_equal(machine_view(small).waiting_for,
                        "busy: needs 1 gpu; what is free of that is kept for who has waited "
                        "longer");
    uint64_t other = spawn(machine_spawn(2, 0, 0)); /* takes nothing of what is kept */
    assert_true(runs(other));
    machine_kill(DRIVER, large, false);
    take_starts();
    assert_true(runs(small));
    assert_true(runs(holder));
}

/* The least is missing where one actor stays for ever: the turn moves on. */
static void a_turn_moves_to_another_node_when_nothing_comes_back(void **state) {
    with_reserve(1000);
    machine_node(NODE_A, 8, 4);
    machine_node(NODE_B, 8, 4);
    machine_client(DRIVER, "driver", 0, 0);
    stable_until = 1;
    trpi_msg stays = machine_spawn(0, 1, 0);
    stays.spawn.node = 1;
    (void)spawn(stays);
    (void)stream(10, NULL, 0, 3);
    uint64_t large = spawn(machine_spawn(0, 4, 0));
    uint64_t seconds = stream(10, &large, 1, 60);
    assert_in_range(seconds, 1, 20);
}

static void several_large_requests_and_groups_do_not_block_each_other(void **state) {
    with_reserve(1000);
    for (uint64_t i = 0; i < 4; i++) {
        machine_node(100 + i, 8, 4);
    }
    machine_client(DRIVER, "driver", 0, 0);
    (void)stream(20, NULL, 0, 3);
    uint64_t large[4];
    trpi_resource gpus = {"gpu", 30000};
    trpi_bundle bundles[3] = {{&gpus, 1}, {&gpus, 1}, {&gpus, 1}};
    trpi_msg group = {.type = TRPI_MSG_GROUP_CREATE,
                      .group_create = {.request = ++machine.last_request,
                                       .name = "",
                                       .strategy = TRP_STRICT_SPREAD,
                                       .bundles = bundles,
                                       .bundles_count = 3}};
    machine_tell(DRIVER, &group);
    uint64_t id = machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.group;
    for (size_t i = 0; i < 3; i++) {
        large[i] = spawn(machine_spawn(0, i < 2 ? 4 : 3, 0));
    }
    trpi_msg inside = machine_spawn(0, 3, 0);
    inside.spawn.group = id;
    large[3] = spawn(inside);
    assert_in_range(stream(20, large, 4, 120), 1, 30);
}

static void those_who_can_never_fit_are_not_in_the_way(void **state) {
    with_reserve(1000);
    machine_node(NODE_A, 8, 4);
    machine_client(DRIVER, "driver", 0, 0);
    for (int64_t cpus = 100; cpus < 300; cpus++) {
        (void)spawn(machine_spawn(cpus, 0, 0));
    }
    (void)stream(5, NULL, 0, 3);
    uint64_t large = spawn(machine_spawn(0, 4, 0));
    assert_in_range(stream(5, &large, 1, 60), 1, 10);
}

static void a_turn_ends_with_its_node_and_another_one_is_found(void **state) {
    with_reserve(1000);
    machine_node(NODE_A, 8, 4);
    machine_node(NODE_B, 8, 4);
    machine_client(DRIVER, "driver", 0, 0);
    stable_until = 2;
    (void)spawn(machine_spawn(0, 2, 0));
    (void)spawn(machine_spawn(0, 2, 0));
    uint64_t large = spawn(machine_spawn(0, 4, 0));
    machine_pass(1500);
    assert_int_equal(trpi_cluster_get_counts(machine.cluster).turns, 1);
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    machine_pass(1500);
    assert_non_null(strstr(machine_view(large).waiting_for, "kept free for it on node n2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(without_turns_small_requests_starve_a_large_one),
        MACHINE_TEST(a_large_request_gets_in_while_small_ones_come_and_go),
        MACHINE_TEST(who_waits_with_room_kept_free_says_so_and_so_do_those_who_may_not_have_it),
        MACHINE_TEST(a_turn_moves_to_another_node_when_nothing_comes_back),
        MACHINE_TEST(several_large_requests_and_groups_do_not_block_each_other),
        MACHINE_TEST(those_who_can_never_fit_are_not_in_the_way),
        MACHINE_TEST(a_turn_ends_with_its_node_and_another_one_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* devices_test.c: what is asked for is what is held: whole devices, fractions, and no drift. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/actors.h"
#include "tests/lib/cluster.h"

static test_cluster cluster;
static trp_runtime *rt;

static void A24_twelve_actors_get_twelve_devices_and_the_thirteenth_waits(void **state) {
    trp_spawn_options options = {.gpus = 1};
    trp_actor actors[12];
    trp_actor_info infos[12];
    for (int i = 0; i < 12; i++) {
        actors[i] = test_spawn(rt, &options, NULL);
    }
    for (int i = 0; i < 12; i++) {
        TEST_OK(trp_actor_wait_alive(rt, actors[i], 60000, err));
        TEST_OK(trp_actor_get_info(rt, actors[i], &infos[i], err));
        assert_string_equal(test_ask(rt, actors[i], "devices", NULL, NULL, NULL), infos[i].devices);
        assert_int_equal(strlen(infos[i].devices), 1);
        for (int j = 0; j < i; j++) {
            assert_false(infos[i].node == infos[j].node &&
                         strcmp(infos[i].devices, infos[j].devices) == 0);
        }
    }
    trp_actor waits = test_spawn(rt, &options, NULL);
    trp_error error = {0};
    assert_int_equal(trp_actor_wait_alive(rt, waits, 300, &error), TRP_ETIMEOUT);
    assert_non_null(strstr(error.message, "gpu"));
    TEST_OK(trp_kill(rt, actors[7], false, err));
    TEST_OK(trp_actor_wait_alive(rt, waits, 30000, err));
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, waits, &info, err));
    assert_int_equal(info.node, infos[7].node);
    assert_string_equal(info.devices, infos[7].devices);
    for (int i = 0; i < 12; i++) {
        if (i != 7) {
            TEST_OK(trp_kill(rt, actors[i], false, err));
        }
    }
    TEST_OK(trp_kill(rt, waits, false, err));
    test_expect_all_free(rt, 10000);
}

static void an_actor_without_gpus_sees_none(void **state) {
    trp_actor actor = test_spawn(rt, &(trp_spawn_options){.cpus = 0.5}, NULL);
    assert_string_equal(test_ask(rt, actor, "devices", NULL, NULL, NULL), "");
    assert_string_equal(test_ask(rt, actor, "getenv", "OMP_NUM_THREADS", NULL, NULL), "1");
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void A25_halves_are_packed_on_one_device_before_the_next(void **state) {
    trp_resource here = {"three", 0.1};
    trp_spawn_options options = {.gpus = 0.5, .resources = &here, .resource_count = 1};
    const char *expected[3] = {"0", "0", "1"};
    trp_actor actors[3];
    for (int i = 0; i < 3; i++) {
        actors[i] = test_spawn(rt, &options, NULL);
        assert_string_equal(test_ask(rt, actors[i], "devices", NULL, NULL, NULL), expected[i]);
    }
    for (int i = 0; i < 3; i++) {
        TEST_OK(trp_kill(rt, actors[i], false, err));
    }
    test_expect_all_free(rt, 10000);
}

static void A25_amounts_that_cannot_be_held_are_refused(void **state) {
    const trp_spawn_options wrong[] = {{.gpus = 1.5}, {.cpus = 0.00001}, {.cpus = -1}};
    const char *mentions[] = {"1.5", "0.0001", "-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        trp_actor actor = {0};
        trp_error error = {0};
        assert_int_equal(trp_spawn(rt, "subject", (trp_bytes){0}, &wrong[i], &actor, &error),
                         TRP_EINVALID);
        assert_non_null(strstr(error.message, mentions[i]));
    }
}

/* A thousand reservations of a tenth: fixed point ends exactly where it began. Most are canceled
 * while they start, which is the harder way to give back. (Ten thousand: cluster_actors_test.) */
static void A25_a_thousand_tenths_end_exactly_at_full(void **state) {
    enum { ROUNDS = 100, AT_ONCE = 10 };
    trp_spawn_options options = {.cpus = 0.1};
    for (int round = 0; round < ROUNDS; round++) {
        trp_actor actors[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            actors[i] = test_spawn(rt, &options, NULL);
        }
        if (round % 10 == 0) {
            test_ask_number(rt, actors[0], "add", NULL);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            TEST_OK(trp_kill(rt, actors[i], false, err));
        }
    }
    test_expect_all_free(rt, 30000);
}

static int start(void **state) {
    const test_node nodes[] = {{.cpus = 4, .gpus = 4},
                               {.cpus = 4, .gpus = 4},
                               {.cpus = 4, .gpus = 4, .resources = "three=1"}};
    test_cluster_start(&cluster, nodes, 3);
    rt = test_connect(&cluster, test_types);
    return 0;
}

static int stop(void **state) {
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    test_serve_if_worker(test_types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A24_twelve_actors_get_twelve_devices_and_the_thirteenth_waits),
        cmocka_unit_test(an_actor_without_gpus_sees_none),
        cmocka_unit_test(A25_halves_are_packed_on_one_device_before_the_next),
        cmocka_unit_test(A25_amounts_that_cannot_be_held_are_refused),
        cmocka_unit_test(A25_a_thousand_tenths_end_exactly_at_full),
    };
    return cmocka_run_group_tests_name("devices", tests, start, stop);
}

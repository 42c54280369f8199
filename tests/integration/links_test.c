/* links_test.c: a whole cluster whose messages are lost and repeated, whose daemons stand still and
 * whose connections break: nothing restarts, nothing runs twice, all comes in order. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/actors.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proxy.h"

enum { ACTORS = 4, CALLS = 300, WAIT_MS = 60000, PARTITION_MS = 2000 };

static test_cluster cluster;
static trp_runtime *rt;

static void set_faults(const char *drop, const char *repeat) {
    setenv("TROUPE_FAULT_DROP_PERMILLE", drop, 1);
    setenv("TROUPE_FAULT_REPEAT_PERMILLE", repeat, 1);
}

static void expect_number(trp_ref ref, long expected) {
    trp_bytes value;
    char text[32];
    TEST_OK(trp_get(rt, ref, WAIT_MS, &value, err));
    snprintf(text, sizeof text, "%ld", expected);
    assert_int_equal(value.size, strlen(text));
    assert_memory_equal(value.data, text, value.size);
    trp_ref_release(rt, ref);
}

static void expect_first_life(trp_actor actor) {
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    assert_int_equal(info.incarnation, 1);
    assert_int_equal(info.phase, TRP_ACTOR_ALIVE);
}

/* ---- Lost and repeated messages ---- */

static void A14_calls_run_once_and_in_order_though_messages_are_lost_and_repeated(void **state) {
    static trp_ref refs[ACTORS][CALLS];
    trp_actor actors[ACTORS];
    for (int a = 0; a < ACTORS; a++) {
        actors[a] = test_spawn(rt, &(trp_spawn_options){.cpus = 0.5}, NULL);
    }
    for (int i = 0; i < CALLS; i++) {
        for (int a = 0; a < ACTORS; a++) {
            refs[a][i] = test_call(rt, actors[a], "add", NULL);
        }
    }
    for (int i = 0; i < CALLS; i++) {
        for (int a = 0; a < ACTORS; a++) {
            expect_number(refs[a][i], i + 1);
        }
    }
    for (int i = 0; i < 50; i++) { /* nobody speaks behind these, so that only asking helps */
        assert_int_equal(test_ask_number(rt, actors[i % ACTORS], "add", NULL),
                         CALLS + i / ACTORS + 1);
    }
    for (int a = 0; a < ACTORS; a++) {
        expect_first_life(actors[a]);
        TEST_OK(trp_kill(rt, actors[a], false, err));
    }
    test_expect_all_free(rt, WAIT_MS);
}

static void A39_requests_to_the_head_are_carried_out_once_though_messages_are_lost(void **state) {
    trp_buf value = {0};
    for (int i = 0; i < 10; i++) {
        char name[32];
        trp_actor found;
        snprintf(name, sizeof name, "actor %d", i);
        trp_actor actor =
            test_spawn(rt, &(trp_spawn_options){.name = name, .restarts_max = 1}, NULL);
        TEST_OK(trp_lookup(rt, name, &found, err));
        assert_int_equal(found.id, actor.id);
        assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
        TEST_OK(trp_kv_put(rt, name, trp_bytes_of(name), err));
        TEST_OK(trp_kv_get(rt, name, &value, err));
        assert_int_equal(value.size, strlen(name));
        trp_buf_clear(&value);
        TEST_OK(trp_kill(rt, actor, true, err)); /* the death, the restart and the end are told */
        TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
        assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
        TEST_OK(trp_kill(rt, actor, false, err));
    }
    trp_buf_release(&value);
    test_expect_all_free(rt, WAIT_MS);
}

static int start_faulty(void **state) {
    setenv("TROUPE_LINK_PROBE_MS", "20", 1);
    set_faults("50", "50");
    test_cluster_start(&cluster, (test_node[]){{.cpus = 2}, {.cpus = 2}}, 2);
    rt = test_connect(&cluster, test_types);
    return 0;
}

static int stop_cluster(void **state) {
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    set_faults("0", "0");
    unsetenv("TROUPE_LINK_PROBE_MS");
    return 0;
}

/* ---- A node behind a connection that breaks ---- */

static test_proxy *proxy;
static char head_address[64];
static trp_actor far_actor;
static long far_count;

static trp_actor spawn_far(void) {
    trp_resource there = {"far", 1};
    return test_spawn(
        rt,
        &(trp_spawn_options){
            .resources = &there, .resource_count = 1, .restarts_max = -1, .call_retries_max = 3},
        NULL);
}

static void expect_nothing_happened(void) {
    assert_int_equal(test_ask_number(rt, far_actor, "add", NULL), ++far_count);
    expect_first_life(far_actor);
}

static void A35_a_daemon_that_stands_still_for_two_seconds_restarts_nothing(void **state) {
    pid_t nodes[2];
    assert_int_equal(test_cluster_pids(&cluster, "node", nodes, 2), 2);
    assert_int_equal(kill(nodes[1], SIGSTOP), 0);
    uint64_t end_ms = test_now_ms() + PARTITION_MS;
    while (test_now_ms() < end_ms) { /* calls need no daemon */
        assert_int_equal(test_ask_number(rt, far_actor, "add", NULL), ++far_count);
        usleep(20000);
    }
    assert_int_equal(kill(nodes[1], SIGCONT), 0);
    expect_nothing_happened();
    trp_actor other = spawn_far(); /* it takes orders again */
    assert_int_equal(test_ask_number(rt, other, "add", NULL), 1);
    TEST_OK(trp_kill(rt, other, false, err));
}

static void A35_packets_that_are_held_for_two_seconds_restart_nothing(void **state) {
    test_proxy_stall(proxy, true);
    usleep(PARTITION_MS * 1000);
    test_proxy_stall(proxy, false);
    trp_actor other = spawn_far();
    assert_int_equal(test_ask_number(rt, other, "add", NULL), 1);
    TEST_OK(trp_kill(rt, other, false, err));
    expect_nothing_happened();
}

static void A35_no_connection_for_two_seconds_restarts_nothing(void **state) {
    test_proxy_shut(proxy, true);
    uint64_t end_ms = test_now_ms() + PARTITION_MS;
    while (test_now_ms() < end_ms) {
        assert_int_equal(test_ask_number(rt, far_actor, "add", NULL), ++far_count);
        usleep(20000);
    }
    test_proxy_shut(proxy, false);
    trp_actor other = spawn_far();
    assert_int_equal(test_ask_number(rt, other, "add", NULL), 1);
    TEST_OK(trp_kill(rt, other, false, err));
    expect_nothing_happened();
}

static void connections_that_break_again_and_again_cost_nothing_but_time(void **state) {
    for (int i = 0; i < 12; i++) {
        trp_actor other = spawn_far();
        test_proxy_cut(proxy);
        trp_ref ref = test_call(rt, other, "add", NULL);
        usleep((useconds_t)(i % 4) * 10000);
        test_proxy_cut(proxy);
        expect_number(ref, 1);
        expect_first_life(other);
        test_proxy_cut(proxy);
        TEST_OK(trp_kill(rt, other, false, err));
    }
    assert_true(test_proxy_connections(proxy) > 12);
    expect_nothing_happened();
}

static int start_far(void **state) {
    test_cluster_start(&cluster, &(test_node){.cpus = 2}, 1);
    memcpy(head_address, cluster.address, sizeof head_address);
    proxy = test_proxy_open(head_address);
    snprintf(cluster.address, sizeof cluster.address, "%s", test_proxy_address(proxy));
    test_cluster_add(&cluster, &(test_node){.cpus = 2, .resources = "far=2"});
    rt = test_connect(&cluster, test_types);
    far_actor = spawn_far();
    assert_int_equal(test_ask_number(rt, far_actor, "add", NULL), 1);
    far_count = 1;
    return 0;
}

static bool one_node_is_left(void *arg) {
    pid_t nodes[2];
    return test_cluster_pids(&cluster, "node", nodes, 2) == 1;
}

/* The proxy's descriptors must be gone when the cluster's end is checked. */
static int stop_far(void **state) {
    pid_t nodes[2];
    trp_shutdown(&rt);
    assert_int_equal(test_cluster_pids(&cluster, "node", nodes, 2), 2);
    assert_int_equal(kill(nodes[1], SIGTERM), 0);
    assert_true(test_until(one_node_is_left, NULL, WAIT_MS));
    test_proxy_close(proxy);
    memcpy(cluster.address, head_address, sizeof head_address);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    const struct CMUnitTest faulty[] = {
        cmocka_unit_test(A14_calls_run_once_and_in_order_though_messages_are_lost_and_repeated),
        cmocka_unit_test(A39_requests_to_the_head_are_carried_out_once_though_messages_are_lost),
    };
    const struct CMUnitTest far[] = {
        cmocka_unit_test(A35_a_daemon_that_stands_still_for_two_seconds_restarts_nothing),
        cmocka_unit_test(A35_packets_that_are_held_for_two_seconds_restart_nothing),
        cmocka_unit_test(A35_no_connection_for_two_seconds_restarts_nothing),
        cmocka_unit_test(connections_that_break_again_and_again_cost_nothing_but_time),
    };
    test_serve_if_worker(test_types);
    int failed =
        cmocka_run_group_tests_name("lost and repeated", faulty, start_faulty, stop_cluster);
    return failed + cmocka_run_group_tests_name("broken connections", far, start_far, stop_far);
}

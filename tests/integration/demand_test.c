/* demand_test.c: who waits for resources, and why: actors and placement groups on real nodes that
 * are full, gone, or join later. */
#include <inttypes.h>
#include <pthread.h>
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
#include "tests/lib/listing.h"

enum { WAIT_MS = 30000, QUEUED = 1000, ROUNDS = 20 };

static test_cluster cluster;
static trp_runtime *rt;

/* ---- What the head tells ---- */

/* Of the demand that `troupe status` shows, the row of this actor or group; the caller's, or NULL.
 */
static json_t *demand_of(const char *what, uint64_t first) {
    json_t *status = test_list(rt, "status"), *found = NULL;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(status, "demand"), i, row) {
        if (strcmp(test_row_text(row, "what"), what) == 0 &&
            test_row_number(row, "first") == (long long)first) {
            found = json_incref(row);
        }
    }
    json_decref(status);
    return found;
}

static void expect_demand(const char *what, uint64_t first, bool infeasible, const char *why) {
    json_t *row = demand_of(what, first);
    assert_non_null(row);
    print_message("%s\n", test_row_text(row, "why"));
    assert_int_equal(json_is_true(json_object_get(row, "infeasible")), infeasible);
    assert_non_null(strstr(test_row_text(row, "why"), why));
    json_decref(row);
}

static bool is_demanded(void *arg) {
    json_t *row = demand_of("actors", ((trp_actor *)arg)->id);
    json_decref(row);
    return row != NULL;
}

static void expect_no_demand(void) {
    json_t *status = test_list(rt, "status");
    assert_int_equal(json_array_size(json_object_get(status, "demand")), 0);
    json_decref(status);
}

/* Of all nodes together: what is reserved by groups or held by actors. */
static double taken(const char *resource) {
    json_t *status = test_list(rt, "status");
    const json_t *row = json_object_get(json_object_get(status, "resources"), resource);
    double amount = json_number_value(json_object_get(row, "used"));
    json_decref(status);
    return amount;
}

static pid_t pid_of_node(uint64_t node) {
    json_t *rows = test_list(rt, "nodes");
    pid_t pid = (pid_t)test_row_number(test_row(rows, "id", node), "pid");
    json_decref(rows);
    assert_true(pid > 1);
    return pid;
}

static bool node_is_dead(void *arg) {
    json_t *rows = test_list(rt, "nodes");
    bool dead = strcmp(test_row_text(test_row(rows, "id", *(uint64_t *)arg), "state"), "dead") == 0;
    json_decref(rows);
    return dead;
}

static void kill_node(uint64_t node) {
    assert_int_equal(kill(pid_of_node(node), SIGKILL), 0);
    assert_true(test_until(node_is_dead, &node, WAIT_MS));
}

/* The number of the node that has just been added. */
static uint64_t add_node(const test_node *node) {
    test_cluster_add(&cluster, node);
    json_t *rows = test_list(rt, "nodes");
    uint64_t last =
        (uint64_t)test_row_number(json_array_get(rows, json_array_size(rows) - 1), "id");
    json_decref(rows);
    return last;
}

static trp_actor spawn_alive(const trp_spawn_options *options) {
    trp_actor actor = test_spawn(rt, options, NULL);
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    return actor;
}

static uint64_t node_of(trp_actor actor) {
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    return info.node;
}

static void end(trp_actor actor) {
    TEST_OK(trp_kill(rt, actor, false, err));
}

static bool waits(trp_actor actor) {
    trp_error error;
    return trp_actor_wait_alive(rt, actor, 200, &error) == TRP_ETIMEOUT;
}

/* ---- Actors ---- */

static void A19_a_kill_of_a_pending_actor_removes_its_demand(void **state) {
    trp_actor actor = test_spawn(rt, &(trp_spawn_options){.gpus = 3}, NULL);
    expect_demand("actors", actor.id, true, "needs 3 gpu");
    end(actor);
    expect_no_demand();

    actor = test_spawn(rt, &(trp_spawn_options){.gpus = 3, .restarts_max = 2}, NULL);
    for (int restart = 1; restart <= 2; restart++) {
        TEST_OK(trp_kill(rt, actor, true, err));
        assert_true(test_until(is_demanded, &actor, WAIT_MS)); /* again, after its backoff */
        expect_demand("actors", actor.id, true, "needs 3 gpu");
    }
    TEST_OK(trp_kill(rt, actor, true, err)); /* used up */
    expect_no_demand();
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    assert_int_equal(info.phase, TRP_ACTOR_DEAD);
    assert_int_equal(info.restarts, 2);
}

static void A27_infeasible_and_busy_are_told_with_what_is_missing(void **state) {
    trp_actor impossible = test_spawn(rt, &(trp_spawn_options){.cpus = 64}, NULL);
    expect_demand("actors", impossible.id, true, "needs 64 cpu; the most any node has is 4");
    trp_actor holds = spawn_alive(&(trp_spawn_options){.cpus = 3});
    trp_actor later = test_spawn(rt, &(trp_spawn_options){.cpus = 2}, NULL);
    expect_demand("actors", later.id, false, "2 cpu");
    trp_error error = {0};
    assert_int_equal(trp_actor_wait_alive(rt, later, 100, &error), TRP_ETIMEOUT);
    print_message("%s\n", error.message);
    assert_non_null(strstr(error.message, "busy"));
    assert_int_equal(trp_actor_wait_alive(rt, impossible, 100, &error), TRP_ETIMEOUT);
    print_message("%s\n", error.message);
    assert_non_null(strstr(error.message, "64 cpu"));
    end(holds);
    TEST_OK(trp_actor_wait_alive(rt, later, WAIT_MS, err)); /* it was only busy */
    end(later);
    end(impossible);
    expect_no_demand();
}

static void A27_a_dead_node_fails_hard_affinity_at_once_and_a_busy_one_waits(void **state) {
    uint64_t node = add_node(&(test_node){.cpus = 1});
    trp_spawn_options hard = {.cpus = 1, .node = node};
    trp_spawn_options soft = {.cpus = 1, .node = node, .node_soft = true};
    trp_actor holds = spawn_alive(&hard);
    assert_int_equal(node_of(holds), node);
    trp_actor moves = spawn_alive(&soft);
    assert_int_not_equal(node_of(moves), node);
    end(moves);
    trp_actor later = test_spawn(rt, &hard, NULL);
    assert_true(waits(later));
    end(holds);
    TEST_OK(trp_actor_wait_alive(rt, later, WAIT_MS, err));
    assert_int_equal(node_of(later), node);
    end(later);

    kill_node(node);
    trp_actor fails = test_spawn(rt, &hard, NULL);
    trp_error error = {0};
    uint64_t start_ms = test_now_ms();
    assert_int_equal(trp_actor_wait_alive(rt, fails, WAIT_MS, &error), TRP_EACTOR_DIED);
    print_message("%s\n", error.message);
    assert_true(test_now_ms() - start_ms < 2000);
    TEST_OK(trp_monitor(rt, fails, err));
    assert_int_equal(test_wait_death(rt, fails).cause, TRP_CAUSE_UNSCHEDULABLE);
    moves = spawn_alive(&soft);
    assert_int_not_equal(node_of(moves), node);
    end(moves);
}

/* ---- Groups ---- */

static trp_group create(const char *resource, double amount, size_t bundles) {
    static trp_bundle each[8];
    static trp_resource what;
    trp_group group;
    what = (trp_resource){resource, amount};
    for (size_t i = 0; i < bundles; i++) {
        each[i] = (trp_bundle){.resources = &what, .resource_count = 1};
    }
    TEST_OK(trp_group_create(rt, &(trp_group_options){.bundles = each, .bundle_count = bundles},
                             &group, err));
    return group;
}

static bool is_placed(trp_group group) {
    trp_error error;
    return trp_group_wait(rt, group, 0, NULL, 0, &error) == TRP_OK;
}

typedef struct rival {
    pthread_barrier_t *together;
    trp_group group;
} rival;

static void *contend(void *arg) {
    rival *r = arg;
    trp_resource seat = {"seat", 1};
    trp_bundle bundles[3];
    trp_error error;
    for (int i = 0; i < 3; i++) {
        bundles[i] = (trp_bundle){.resources = &seat, .resource_count = 1};
    }
    pthread_barrier_wait(r->together);
    if (trp_group_create(rt, &(trp_group_options){.bundles = bundles, .bundle_count = 3}, &r->group,
                         &error) != TRP_OK) {
        r->group.id = 0;
    }
    return NULL;
}

/* Two nodes have two seats each, and each rival wants three of the four. */
static void A28_of_two_rivals_one_has_all_and_the_other_nothing(void **state) {
    pthread_barrier_t together;
    (void)add_node(&(test_node){.resources = "seat=2"});
    (void)add_node(&(test_node){.resources = "seat=2"});
    assert_int_equal(pthread_barrier_init(&together, NULL, 2), 0);
    for (int round = 0; round < ROUNDS; round++) {
        rival rivals[2] = {{&together, {0}}, {&together, {0}}};
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, contend, &rivals[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            assert_int_not_equal(rivals[i].group.id, 0);
        }
        trp_group first = rivals[0].group, second = rivals[1].group;
        if (first.id > second.id) {
            first = rivals[1].group;
            second = rivals[0].group;
        }
        TEST_OK(trp_group_wait(rt, first, WAIT_MS, NULL, 0, err));
        assert_false(is_placed(second));
        assert_true(taken("seat") == 3);
        expect_demand("groups", second.id, false, "seat");
        TEST_OK(trp_group_remove(rt, first, err));
        TEST_OK(trp_group_wait(rt, second, WAIT_MS, NULL, 0, err));
        TEST_OK(trp_group_remove(rt, second, err));
        assert_true(taken("seat") == 0);
    }
    pthread_barrier_destroy(&together);
}

static size_t count_placed(const trp_group *groups) {
    size_t placed = 0;
    json_t *rows = test_list(rt, "groups");
    for (size_t i = 0; i < QUEUED; i++) {
        const json_t *row = test_row(rows, "id", groups[i].id);
        placed += strcmp(test_row_text(row, "state"), "placed") == 0;
        /* In the order in which they were asked for. */
        assert_true(placed == i + 1 || strcmp(test_row_text(row, "state"), "pending") == 0);
    }
    json_decref(rows);
    return placed;
}

static void A28_a_thousand_queued_groups_start_one_by_one_as_nodes_join(void **state) {
    static trp_group groups[QUEUED];
    static const struct {
        const char *resources;
        size_t placed;
    } steps[] = {{"berth=1", 1}, {"berth=2", 3}, {"berth=7", 10}, {"berth=990", QUEUED}};
    uint64_t start_ms = test_now_ms();
    for (size_t i = 0; i < QUEUED; i++) {
        groups[i] = create("berth", 1, 1);
    }
    assert_int_equal(count_placed(groups), 0);
    assert_true(taken("berth") == 0);
    for (size_t step = 0; step < sizeof steps / sizeof steps[0]; step++) {
        (void)add_node(&(test_node){.resources = steps[step].resources});
        TEST_OK(trp_group_wait(rt, groups[steps[step].placed - 1], WAIT_MS, NULL, 0, err));
        assert_int_equal(count_placed(groups), steps[step].placed);
        assert_true(taken("berth") == (double)steps[step].placed);
    }
    for (size_t i = 0; i < QUEUED; i++) {
        TEST_OK(trp_group_remove(rt, groups[i], err));
    }
    assert_true(taken("berth") == 0);
    print_message("%d groups in %" PRIu64 " ms\n", QUEUED, test_now_ms() - start_ms);
}

static void A30_the_surviving_bundle_is_untouched_and_the_lost_one_returns(void **state) {
    uint64_t here = add_node(&(test_node){.resources = "post=1"});
    uint64_t there = add_node(&(test_node){.resources = "post=1"});
    uint64_t nodes[2];
    trp_resource post = {"post", 1};
    trp_group group = create("post", 1, 2);
    TEST_OK(trp_group_wait(rt, group, WAIT_MS, nodes, 2, err));
    assert_int_not_equal(nodes[0], nodes[1]);
    int kept = nodes[0] == here ? 0 : 1;
    trp_spawn_options options = {
        .resources = &post, .resource_count = 1, .group = group, .restarts_max = 1};
    options.bundle = kept;
    trp_actor stays = spawn_alive(&options);
    options.bundle = 1 - kept;
    trp_actor moves = spawn_alive(&options);
    assert_int_equal(node_of(stays), here);
    assert_int_equal(node_of(moves), there);
    long pid = test_ask_number(rt, stays, "pid", NULL);
    trp_ref running = test_call(rt, stays, "sleep", "1500");
    usleep(100000); /* it runs by now, or waits to */

    TEST_OK(trp_monitor(rt, moves, err));
    kill_node(there);
    trp_death death = test_wait_death(rt, moves);
    assert_int_equal(death.cause, TRP_CAUSE_NODE_DIED);
    assert_false(death.final);
    assert_false(is_placed(group));
    assert_true(waits(moves));

    trp_bytes value;
    TEST_OK(trp_get(rt, running, WAIT_MS, &value, err));
    assert_int_equal(value.size, strlen("slept"));
    trp_ref_release(rt, running);
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, stays, &info, err));
    assert_int_equal(info.incarnation, 1);
    assert_int_equal(info.pid, pid);

    uint64_t joins = add_node(&(test_node){.resources = "post=1"});
    TEST_OK(trp_group_wait(rt, group, WAIT_MS, nodes, 2, err));
    assert_int_equal(nodes[kept], here);
    assert_int_equal(nodes[1 - kept], joins);
    TEST_OK(trp_actor_wait_alive(rt, moves, WAIT_MS, err));
    assert_int_equal(node_of(moves), joins);
    assert_int_equal(test_ask_number(rt, moves, "add", NULL), 1);
    assert_int_equal(test_ask_number(rt, stays, "pid", NULL), pid);
    TEST_OK(trp_group_remove(rt, group, err));
    assert_true(taken("post") == 0);
}

static int set_up(void **state) {
    test_cluster_start(&cluster, &(test_node){.cpus = 4}, 1);
    rt = test_connect(&cluster, test_types);
    return 0;
}

static int tear_down(void **state) {
    test_expect_all_free(rt, WAIT_MS);
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    test_serve_if_worker(test_types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A19_a_kill_of_a_pending_actor_removes_its_demand),
        cmocka_unit_test(A27_infeasible_and_busy_are_told_with_what_is_missing),
        cmocka_unit_test(A27_a_dead_node_fails_hard_affinity_at_once_and_a_busy_one_waits),
        cmocka_unit_test(A28_of_two_rivals_one_has_all_and_the_other_nothing),
        cmocka_unit_test(A28_a_thousand_queued_groups_start_one_by_one_as_nodes_join),
        cmocka_unit_test(A30_the_surviving_bundle_is_untouched_and_the_lost_one_returns),
    };
    return cmocka_run_group_tests_name("demand", tests, set_up, tear_down);
}

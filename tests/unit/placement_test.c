#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/state/placement.h"

enum { MOST = 8 };

typedef struct world {
    trpi_resource_names names;
    trpi_sched sched;
    trpi_bundle_seat seats[MOST];
    size_t count;
} world;

static world w;

static int set_up(void **state) {
    w = (world){0};
    trpi_resource_names_init(&w.names);
    return 0;
}

static int tear_down(void **state) {
    for (size_t i = 0; i < MOST; i++) {
        trpi_request_release(&w.seats[i].request);
        trpi_grant_drop(&w.seats[i].grant);
    }
    trpi_sched_release(&w.sched);
    trpi_resource_names_release(&w.names);
    return 0;
}

static trpi_request ask(int64_t cpu, int64_t gpu) {
    trpi_resource list[] = {{"cpu", cpu * TRPI_ONE}, {"gpu", gpu * TRPI_ONE}};
    trpi_request request = {0};
    assert_int_equal(trpi_request_parse(&w.names, list, 2, &request, NULL), TRP_OK);
    return request;
}

static void node(uint64_t id, int64_t cpu, int64_t gpu) {
    trpi_request has = ask(cpu, gpu);
    trpi_sched_add(&w.sched, id, &has, NULL);
    trpi_request_release(&has);
}

static void bundle(int64_t cpu, int64_t gpu) {
    w.seats[w.count++].request = ask(cpu, gpu);
}

static bool place(trp_strategy strategy) {
    bool placed = trpi_place(&w.sched, strategy, w.seats, w.count, 0);
    assert_null(trpi_sched_check(&w.sched));
    return placed;
}

static void seated(const uint64_t *nodes) {
    for (size_t i = 0; i < w.count; i++) {
        assert_int_equal(w.seats[i].node, nodes[i]);
        assert_true(w.seats[i].grant.held);
    }
}

static void nothing_held(void) {
    trpi_sched_node *of;
    uint64_t id = 0;
    while ((of = trpi_table_next(&w.sched.nodes, &id)) != NULL) {
        assert_true(trpi_pool_unused(&of->pool));
        assert_int_equal(of->grants, 0);
    }
    for (size_t i = 0; i < w.count; i++) {
        assert_int_equal(w.seats[i].node, 0);
        assert_false(w.seats[i].grant.held);
    }
}

static void explained(trp_strategy strategy, trpi_verdict verdict, const char *text) {
    char why[400];
    assert_int_equal(
        trpi_place_explain(&w.sched, strategy, w.seats, w.count, &w.names, why, sizeof(why)),
        verdict);
    assert_string_equal(why, text);
}

static void pack_takes_one_node_that_holds_all(void **state) {
    node(1, 2, 0);
    node(2, 4, 0);
    bundle(1, 0);
    bundle(2, 0);
    bundle(1, 0);
    assert_true(place(TRP_PACK));
    seated((uint64_t[]){2, 2, 2});
}

static void pack_takes_several_nodes_when_it_must(void **state) {
    node(1, 2, 0);
    node(2, 2, 0);
    bundle(1, 0);
    bundle(2, 0);
    bundle(1, 0);
    assert_true(place(TRP_PACK));
    seated((uint64_t[]){2, 1, 2});
}

static void spread_takes_each_node_once_before_any_twice(void **state) {
    node(1, 9, 0);
    node(2, 9, 0);
    for (int i = 0; i < 3; i++) {
        bundle(1, 0);
    }
    assert_true(place(TRP_SPREAD));
    seated((uint64_t[]){1, 2, 1});
}

static void strict_pack_is_one_node_or_nothing(void **state) {
    node(1, 2, 0);
    node(2, 2, 0);
    bundle(2, 0);
    bundle(1, 0);
    assert_false(place(TRP_STRICT_PACK));
    nothing_held();
    explained(TRP_STRICT_PACK, TRPI_INFEASIBLE,
              "STRICT_PACK needs one node with 3 cpu; no node has that");
    node(3, 3, 0);
    assert_true(place(TRP_STRICT_PACK));
    seated((uint64_t[]){3, 3});
}

/* A greedy choice fails here: the bundle that fits everywhere must leave node 1 to the other one.
 */
static void strict_spread_is_found_if_it_exists(void **state) {
    node(1, 2, 1);
    node(2, 2, 0);
    node(3, 1, 0);
    bundle(1, 0);
    bundle(2, 0);
    bundle(2, 1);
    assert_true(place(TRP_STRICT_SPREAD));
    seated((uint64_t[]){3, 2, 1});
}

static void strict_spread_is_different_nodes_or_nothing(void **state) {
    node(1, 8, 0);
    node(2, 8, 0);
    for (int i = 0; i < 3; i++) {
        bundle(1, 0);
    }
    assert_false(place(TRP_STRICT_SPREAD));
    nothing_held();
    explained(
        TRP_STRICT_SPREAD, TRPI_INFEASIBLE,
        "STRICT_SPREAD needs 3 nodes, each with room for one bundle; the cluster's 2 nodes do "
        "not have that");
}

static void A28_a_group_that_does_not_fit_as_a_whole_holds_nothing(void **state) {
    node(1, 2, 1);
    node(2, 2, 1);
    bundle(2, 1);
    bundle(2, 1);
    bundle(1, 0);
    assert_false(place(TRP_PACK));
    nothing_held();
    explained(TRP_PACK, TRPI_INFEASIBLE,
              "needs 5 cpu, 2 gpu in 3 bundles; the cluster's 2 nodes do not have that");
}

static void a_bundle_that_no_node_can_hold_is_named(void **state) {
    node(1, 4, 1);
    bundle(1, 0);
    bundle(1, 2);
    assert_false(place(TRP_SPREAD));
    explained(TRP_SPREAD, TRPI_INFEASIBLE, "bundle 1 of 2 needs 2 gpu; the most any node has is 1");
}

static void a_group_that_waits_for_others_is_busy_and_not_infeasible(void **state) {
    node(1, 4, 0);
    bundle(3, 0);
    trpi_request two = ask(2, 0);
    trpi_grant grant = {0};
    assert_true(trpi_sched_take(&w.sched, trpi_sched_node_of(&w.sched, 1), &two, &grant));
    assert_false(place(TRP_PACK));
    explained(TRP_PACK, TRPI_BUSY, "bundle 0 of 1 needs 3 cpu; the most free on any node is 2");
    trpi_sched_give(&w.sched, trpi_sched_node_of(&w.sched, 1), &two, &grant);
    assert_true(place(TRP_PACK));
    trpi_request_release(&two);
}

static void A30_only_what_was_lost_is_placed_again(void **state) {
    node(1, 1, 0);
    node(2, 1, 0);
    node(3, 1, 0);
    bundle(1, 0);
    bundle(1, 0);
    assert_true(place(TRP_STRICT_SPREAD));
    uint64_t kept = w.seats[0].node, lost = w.seats[1].node;
    trpi_grant_drop(&w.seats[1].grant);
    w.seats[1].node = 0;
    trpi_sched_remove(&w.sched, lost);
    assert_true(place(TRP_STRICT_SPREAD));
    assert_int_equal(w.seats[0].node, kept);
    assert_int_equal(w.seats[1].node, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pack_takes_one_node_that_holds_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pack_takes_several_nodes_when_it_must, set_up, tear_down),
        cmocka_unit_test_setup_teardown(spread_takes_each_node_once_before_any_twice, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(strict_pack_is_one_node_or_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(strict_spread_is_found_if_it_exists, set_up, tear_down),
        cmocka_unit_test_setup_teardown(strict_spread_is_different_nodes_or_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(A28_a_group_that_does_not_fit_as_a_whole_holds_nothing,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bundle_that_no_node_can_hold_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_group_that_waits_for_others_is_busy_and_not_infeasible,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(A30_only_what_was_lost_is_placed_again, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

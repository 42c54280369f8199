#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/state/scheduler.h"

static trpi_resource_names names;

static int set_up(void **state) {
    trpi_resource_names_init(&names);
    return 0;
}

static int tear_down(void **state) {
    trpi_resource_names_release(&names);
    return 0;
}

static trpi_request ask(int64_t cpu, int64_t gpu) {
    trpi_resource list[] = {{"cpu", cpu * TRPI_ONE}, {"gpu", gpu * TRPI_ONE}};
    trpi_request request = {0};
    assert_int_equal(trpi_request_parse(&names, list, 2, &request, NULL), TRP_OK);
    return request;
}

static void add(trpi_sched *sched, uint64_t id, int64_t cpu, int64_t gpu) {
    trpi_request has = ask(cpu, gpu);
    trpi_sched_add(sched, id, &has, NULL);
    trpi_request_release(&has);
}

/* Where a request for this goes, and takes it there (the grant is forgotten: its node is too). */
static uint64_t place(trpi_sched *sched, int64_t cpu, int64_t gpu, uint64_t avoid) {
    trpi_request request = ask(cpu, gpu);
    trpi_wish wish = {.request = &request, .avoid = avoid};
    trpi_sched_node *node = trpi_sched_pick(sched, &wish);
    uint64_t id = node ? node->id : 0;
    trpi_grant grant = {0};
    if (node) {
        assert_true(trpi_sched_take(sched, node, &request, &grant));
        trpi_grant_drop(&grant);
    }
    trpi_request_release(&request);
    return id;
}

static void nodes_fill_to_a_half_one_after_the_other_and_then_evenly(void **state) {
    static const uint64_t order[] = {1, 1, 2, 2, 1, 2, 1, 2, 0};
    trpi_sched sched = {0};
    add(&sched, 1, 4, 0);
    add(&sched, 2, 4, 0);
    for (size_t i = 0; i < TRPI_COUNTOF(order); i++) {
        assert_int_equal(place(&sched, 1, 0, 0), order[i]);
    }
    trpi_sched_release(&sched);
}

static void who_needs_no_gpu_goes_where_there_is_none_if_there_is_room(void **state) {
    trpi_sched sched = {0};
    add(&sched, 1, 8, 4);
    add(&sched, 2, 1, 0);
    assert_int_equal(place(&sched, 1, 0, 0), 2);
    assert_int_equal(place(&sched, 1, 0, 0), 1);
    assert_int_equal(place(&sched, 1, 1, 0), 1);
    trpi_sched_release(&sched);
}

static void a_restart_avoids_the_node_that_failed_it_if_another_fits(void **state) {
    trpi_sched sched = {0};
    add(&sched, 1, 4, 0);
    add(&sched, 2, 1, 0);
    assert_int_equal(place(&sched, 1, 0, 1), 2);
    assert_int_equal(place(&sched, 1, 0, 1), 1);
    trpi_sched_release(&sched);
}

static void what_asks_for_nothing_goes_where_the_fewest_are(void **state) {
    static const uint64_t order[] = {1, 2, 3, 1, 2, 3};
    trpi_sched sched = {0};
    for (uint64_t id = 1; id <= 3; id++) {
        add(&sched, id, 1, 0);
    }
    for (size_t i = 0; i < TRPI_COUNTOF(order); i++) {
        assert_int_equal(place(&sched, 0, 0, 0), order[i]);
    }
    trpi_sched_release(&sched);
}

static void A24_twelve_whole_gpus_are_twelve_devices_and_the_thirteenth_waits(void **state) {
    trpi_sched sched = {0};
    trpi_request one = ask(0, 1);
    trpi_grant grants[12] = {0};
    uint64_t where[12], held[4] = {0};
    for (uint64_t id = 1; id <= 3; id++) {
        add(&sched, id, 4, 4);
    }
    trpi_wish wish = {.request = &one};
    for (size_t i = 0; i < 12; i++) {
        trpi_sched_node *node = trpi_sched_pick(&sched, &wish);
        assert_non_null(node);
        assert_true(trpi_sched_take(&sched, node, &one, &grants[i]));
        where[i] = node->id;
        uint64_t bit = (uint64_t)1 << grants[i].parts[0].device;
        assert_int_equal(held[node->id] & bit, 0);
        held[node->id] |= bit;
    }
    assert_null(trpi_sched_pick(&sched, &wish));
    uint32_t freed = grants[5].parts[0].device;
    trpi_sched_settle(&sched);
    trpi_sched_give(&sched, trpi_sched_node_of(&sched, where[5]), &one, &grants[5]);
    wish.fresh = true; /* who waits looks at what was given back only */
    trpi_sched_node *node = trpi_sched_pick(&sched, &wish);
    assert_int_equal(node->id, where[5]);
    assert_true(trpi_sched_take(&sched, node, &one, &grants[5]));
    assert_int_equal(grants[5].parts[0].device, freed);
    assert_null(trpi_sched_check(&sched));
    for (size_t i = 0; i < 12; i++) {
        trpi_grant_drop(&grants[i]);
    }
    trpi_request_release(&one);
    trpi_sched_release(&sched);
}

static void explains(const trpi_sched *sched, int64_t cpu, int64_t gpu, uint64_t only,
                     trpi_verdict verdict, const char *text) {
    trpi_request request = ask(cpu, gpu);
    trpi_wish wish = {.request = &request, .only = only};
    char why[256];
    assert_int_equal(trpi_sched_explain(sched, &wish, &names, why, sizeof(why)), verdict);
    assert_string_equal(why, text);
    trpi_request_release(&request);
}

static void A27_busy_and_infeasible_are_told_apart_with_the_missing_amounts(void **state) {
    trpi_sched sched = {0};
    explains(&sched, 1, 0, 0, TRPI_INFEASIBLE, "needs 1 cpu; the cluster has no nodes");
    add(&sched, 1, 4, 1);
    add(&sched, 2, 8, 0);
    explains(&sched, 1, 2, 0, TRPI_INFEASIBLE, "needs 2 gpu; the most any node has is 1");
    explains(&sched, 8, 1, 0, TRPI_INFEASIBLE, "needs 8 cpu, 1 gpu; no node has that together");
    explains(&sched, 1, 0, 9, TRPI_INFEASIBLE, "node n9 is not there");
    explains(&sched, 8, 0, 1, TRPI_INFEASIBLE, "needs 8 cpu; that node has 4");
    explains(&sched, 8, 0, 0, TRPI_FITS, "");
    assert_int_equal(place(&sched, 6, 0, 0), 2);
    explains(&sched, 8, 0, 0, TRPI_BUSY, "needs 8 cpu; the most free on any node is 4");
    trpi_sched_release(&sched);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_fill_to_a_half_one_after_the_other_and_then_evenly),
        cmocka_unit_test(who_needs_no_gpu_goes_where_there_is_none_if_there_is_room),
        cmocka_unit_test(a_restart_avoids_the_node_that_failed_it_if_another_fits),
        cmocka_unit_test(what_asks_for_nothing_goes_where_the_fewest_are),
        cmocka_unit_test(A24_twelve_whole_gpus_are_twelve_devices_and_the_thirteenth_waits),
        cmocka_unit_test(A27_busy_and_infeasible_are_told_apart_with_the_missing_amounts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Placement groups: all or nothing, shared out, lost and found again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static const trpi_msg_group_state *group(uint64_t peer, trp_strategy strategy, size_t count,
                                         int64_t cpus) {
    static trpi_resource resource;
    static trpi_bundle bundles[8];
    resource = (trpi_resource){"cpu", cpus * 10000};
    for (size_t i = 0; i < count; i++) {
        bundles[i] = (trpi_bundle){&resource, 1};
    }
    trpi_msg msg = {.type = TRPI_MSG_GROUP_CREATE,
                    .group_create = {++machine.last_request, "", strategy, bundles, count, false}};
    machine_tell(peer, &msg);
    return &machine_must_hear(peer, TRPI_MSG_GROUP_STATE)->group_state;
}

static trpi_msg spawn_in(uint64_t of, int64_t bundle, int64_t cpus, int64_t restarts_max) {
    trpi_msg msg = machine_spawn(cpus, 0, restarts_max);
    msg.spawn.group = of;
    msg.spawn.bundle = bundle;
    return msg;
}

static void A28_of_two_groups_one_has_all_and_the_other_nothing(void **state) {
    machine_node(NODE_A, 2, 0);
    machine_node(NODE_B, 2, 0);
    machine_client(DRIVER, "driver", 0, 0);
    assert_true(group(DRIVER, TRP_STRICT_SPREAD, 2, 2)->placed);
    const trpi_msg_group_state *second = group(DRIVER, TRP_STRICT_SPREAD, 2, 2);
    assert_false(second->placed);
    assert_string_equal(second->message,
                        "busy: bundle 0 of 2 needs 2 cpu; the most free on any node is 0");
    assert_int_equal(machine_used("cpu"), 40000);
    trpi_msg remove = {.type = TRPI_MSG_GROUP_REMOVE, .group_remove = {++machine.last_request, 1}};
    machine_tell(DRIVER, &remove);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
    const trpi_msg_group_state *now = &machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state;
    assert_int_equal(now->group, 2);
    assert_true(now->placed);
}

static void A28_a_thousand_groups_start_one_by_one_as_nodes_join(void **state) {
    machine_client(DRIVER, "driver", 0, 0);
    for (uint64_t i = 1; i <= 1000; i++) {
        trpi_resource resource = {"cpu", 10000};
        trpi_bundle bundle = {&resource, 1};
        trpi_msg msg = {.type = TRPI_MSG_GROUP_CREATE,
                        .group_create = {++machine.last_request, "", TRP_PACK, &bundle, 1, false}};
        trpi_cluster_event quick = {.kind = TRPI_EVENT_MESSAGE,
                                    .now_ns = machine.now_ns,
                                    .peer = DRIVER,
                                    .msg = machine_decoded(&msg)};
        trpi_cluster_step(machine.cluster, &quick, &machine.actions);
    }
    for (uint64_t i = 1; i <= 10; i++) {
        machine_node(1000 + i, 1, 0);
        const trpi_msg_group_state *now =
            &machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state;
        assert_int_equal(now->group, i);
        assert_true(now->placed);
    }
}

static void actors_take_from_their_bundle_and_wait_for_it(void **state) {
    machine_node(NODE_A, 4, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t id = group(DRIVER, TRP_PACK, 2, 1)->group;
    trpi_msg msg = spawn_in(id, 0, 1, 0);
    uint64_t first = machine_spawned(DRIVER, &msg);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_START)->start.actor, first);
    msg = spawn_in(id, 0, 1, 0);
    uint64_t second = machine_spawned(DRIVER, &msg);
    assert_null(machine_heard(NODE_A, TRPI_MSG_START));
    assert_string_equal(machine_view(second).waiting_for,
                        "busy: bundle 0 of group g1 has not 1 cpu free");
    msg = spawn_in(id, -1, 1, 0);
    (void)machine_spawned(DRIVER, &msg);
    (void)machine_must_hear(NODE_A, TRPI_MSG_START); /* in bundle 1 */
    msg = spawn_in(id, 1, 2, 0);
    machine_refused(DRIVER, &msg, TRP_EINVALID, "2 cpu is more than that bundle of group g1 has");
    msg = spawn_in(id, 2, 1, 0);
    machine_refused(DRIVER, &msg, TRP_EINVALID, "group g1 has bundles 0 to 1");
    assert_int_equal(machine_used("cpu"), 20000);
    machine_exited(NODE_A, first, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_FINISHED});
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_START)->start.actor, second);
}

static void A30_the_surviving_bundle_is_untouched_and_the_lost_one_comes_back(void **state) {
    machine_node(NODE_A, 1, 0);
    machine_node(NODE_B, 1, 0);
    machine_client(DRIVER, "driver", 0, 0);
    const trpi_msg_group_state *placed = group(DRIVER, TRP_STRICT_SPREAD, 2, 1);
    uint64_t id = placed->group, survivor = placed->nodes[0].node == 1 ? 0 : 1;
    trpi_msg msg = spawn_in(id, (int64_t)survivor, 1, 0);
    uint64_t stays = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, stays, 1);
    msg = spawn_in(id, 1 - (int64_t)survivor, 1, 1);
    uint64_t moves = machine_spawned(DRIVER, &msg);
    machine_started(NODE_B, moves, 1);
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 2, .incarnation = 1, .reason = "its process ended"});
    assert_false(machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.placed);
    assert_int_equal(machine_view(stays).phase, TRP_ACTOR_ALIVE);
    assert_int_equal(machine_view(moves).phase, TRP_ACTOR_RESTARTING);
    machine_node(NODE_C, 1, 0);
    assert_true(machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.placed);
    assert_int_equal(machine_must_hear(NODE_C, TRPI_MSG_START)->start.actor, moves);
}

static void a_removed_group_takes_its_actors_with_it(void **state) {
    machine_node(NODE_A, 4, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t id = group(DRIVER, TRP_PACK, 1, 1)->group;
    trpi_msg msg = spawn_in(id, 0, 1, -1);
    uint64_t runs = machine_spawned(DRIVER, &msg);
    msg = spawn_in(id, 0, 1, -1);
    uint64_t waits = machine_spawned(DRIVER, &msg);
    trpi_msg remove = {.type = TRPI_MSG_GROUP_REMOVE, .group_remove = {++machine.last_request, id}};
    machine_tell(DRIVER, &remove);
    assert_null(machine_heard(DRIVER, TRPI_MSG_DONE));
    trpi_actor_view gone = machine_view(waits);
    machine_says(&gone, TRP_CAUSE_GROUP_REMOVED,
                 "placement group g1 was removed by driver program");
    machine_exited(NODE_A, runs, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.request, machine.last_request);
    assert_int_equal(machine_used("cpu"), 0);
}

static void bundles_are_bounded_and_given_back(void **state) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.bundles_max = 5;
    trpi_cluster_free(machine.cluster);
    machine.cluster = trpi_cluster_new(&config);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t id = group(DRIVER, TRP_PACK, 3, 1)->group;
    const trpi_msg_group_state *refused = group(DRIVER, TRP_PACK, 3, 1);
    assert_int_equal(refused->code, TRP_EBUSY);
    assert_non_null(strstr(refused->message, "1 placement groups with 3 bundles"));
    trpi_msg remove = {.type = TRPI_MSG_GROUP_REMOVE, .group_remove = {++machine.last_request, id}};
    machine_tell(DRIVER, &remove);
    assert_int_equal(group(DRIVER, TRP_PACK, 5, 1)->code, TRP_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(A28_of_two_groups_one_has_all_and_the_other_nothing),
        MACHINE_TEST(A28_a_thousand_groups_start_one_by_one_as_nodes_join),
        MACHINE_TEST(actors_take_from_their_bundle_and_wait_for_it),
        MACHINE_TEST(A30_the_surviving_bundle_is_untouched_and_the_lost_one_comes_back),
        MACHINE_TEST(a_removed_group_takes_its_actors_with_it),
        MACHINE_TEST(bundles_are_bounded_and_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

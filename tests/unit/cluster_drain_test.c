/* Nodes that are going away, and actors that are asked to end in good order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static void drain(uint64_t node, uint64_t deadline_ms) {
    trpi_msg msg = {.type = TRPI_MSG_DRAIN,
                    .drain = {++machine.last_request, node, "preemption", deadline_ms}};
    machine_tell(DRIVER, &msg);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
}

static uint64_t running_on(uint64_t node, uint64_t peer, int64_t restarts_max) {
    trpi_msg msg = machine_spawn(1, 0, restarts_max);
    msg.spawn.node = node;
    msg.spawn.node_soft = true;
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_started(peer, actor, 1);
    return actor;
}

static void both_nodes_beat(uint64_t ms) {
    for (uint64_t past = 0; past < ms; past += 500) {
        for (uint64_t node = 1; node <= 2; node++) {
            trpi_msg beat = {.type = TRPI_MSG_HEARTBEAT,
                             .heartbeat = {.node = node, .incarnation = 1}};
            machine_tell(BEAT, &beat);
        }
        trpi_msg alive = {.type = TRPI_MSG_HEARTBEAT, .heartbeat = {.client = 1}};
        machine_tell(DRIVER, &alive);
        machine_pass(TRPI_MIN(ms - past, (uint64_t)500));
    }
}

static void A34_a_draining_node_takes_nothing_new_and_its_actors_stay(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_node(NODE_B, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t stays = running_on(1, NODE_A, 0);
    machine_subscribe(DRIVER, stays);
    drain(1, 3000);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_DRAIN_NOTICE)->drain_notice.deadline_ms,
                     3000);
    const trpi_msg_actor_state *told =
        &machine_must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state;
    assert_true(told->draining);
    assert_int_equal(told->drain_ms, 3000);
    for (int i = 0; i < 4; i++) {
        trpi_msg msg = machine_spawn(1, 0, 0);
        (void)machine_spawned(DRIVER, &msg);
        (void)machine_must_hear(NODE_B, TRPI_MSG_START);
    }
    trpi_msg affine = machine_spawn(1, 0, 0);
    affine.spawn.node = 1;
    trpi_actor_view refused = machine_view(machine_spawned(DRIVER, &affine));
    machine_says(&refused, TRP_CAUSE_UNSCHEDULABLE, "node n1 is being drained");
    assert_int_equal(machine_view(stays).phase, TRP_ACTOR_ALIVE);
    trpi_node_view node;
    uint64_t id = 0;
    assert_true(trpi_cluster_next_node(machine.cluster, &id, &node));
    assert_true(node.draining);
    assert_string_equal(node.drain_reason, "preemption");
    assert_int_equal(node.drain_left_ms, 3000);
}

static void A34_after_the_deadline_a_restart_is_not_counted_and_before_it_is(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_node(NODE_B, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t early = running_on(1, NODE_A, 1), late = running_on(1, NODE_A, 1);
    drain(1, 2000);
    machine_crash(NODE_A, early, 1);
    assert_int_equal(machine_view(early).restarts_counted, 1);
    both_nodes_beat(2100);
    const trpi_msg_end *end = NULL;
    for (uint64_t ms = 0; !end && ms < 3000; ms += 50) {
        machine_pass(50);
        const trpi_msg *heard = machine_heard(NODE_A, TRPI_MSG_END);
        end = heard ? &heard->end : NULL;
    }
    assert_non_null(end); /* said again */
    assert_int_equal(end->actor, late);
    assert_int_equal(end->cause, TRP_CAUSE_DRAINED);
    machine_exited(NODE_A, late, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    trpi_actor_view view = machine_view(late);
    machine_says(&view, TRP_CAUSE_DRAINED, "was drained (preemption), and its deadline has passed");
    machine_says(&view, TRP_CAUSE_DRAINED, "a restart follows, which is not counted");
    assert_int_equal(view.restarts, 1);
    assert_int_equal(view.restarts_counted, 0);
    assert_int_equal(machine_must_hear(NODE_B, TRPI_MSG_START)->start.actor, late);
}

static void A34_the_death_of_a_draining_node_is_not_counted(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_node(NODE_B, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t actor = running_on(1, NODE_A, 1);
    drain(1, 60000);
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {1, "SIGTERM"}};
    machine_tell(NODE_A, &bye);
    assert_int_equal(machine_view(actor).restarts, 1);
    assert_int_equal(machine_view(actor).restarts_counted, 0);
}

static void A34_bundles_move_when_nobody_uses_them_any_more(void **state) {
    machine_node(NODE_A, 2, 0);
    machine_node(NODE_B, 2, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_resource cpu = {"cpu", 10000};
    trpi_bundle bundles[] = {{&cpu, 1}, {&cpu, 1}};
    trpi_msg create = {
        .type = TRPI_MSG_GROUP_CREATE,
        .group_create = {++machine.last_request, "pair", TRP_STRICT_PACK, bundles, 2, false}};
    machine_tell(DRIVER, &create);
    const trpi_msg_group_state *placed =
        &machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state;
    uint64_t group = placed->group;
    assert_int_equal(placed->nodes[0].node, 1);
    trpi_msg msg = machine_spawn(1, 0, 1);
    msg.spawn.group = group;
    msg.spawn.bundle = 0;
    uint64_t user = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, user, 1);
    drain(1, 60000);
    assert_false(machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.placed);
    msg.spawn.request = ++machine.last_request;
    msg.spawn.bundle = 1;
    uint64_t waits = machine_spawned(DRIVER, &msg);
    machine_exited(NODE_A, user, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_FINISHED});
    const trpi_msg_group_state *moved =
        &machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state;
    assert_true(moved->placed);
    assert_int_equal(moved->nodes[1].node, 2);
    assert_int_equal(machine_must_hear(NODE_B, TRPI_MSG_START)->start.actor, waits);
}

static void a_daemon_that_registers_again_is_still_drained(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    drain(1, 60000);
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "unheard"});
    assert_int_equal(machine_node(NODE_A, 8, 0), 1);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_DRAIN_NOTICE)->drain_notice.deadline_ms,
                     60000);
    trpi_msg msg = machine_spawn(1, 0, 0);
    uint64_t waits = machine_spawned(DRIVER, &msg);
    assert_string_equal(machine_view(waits).waiting_for,
                        "infeasible: needs 1 cpu; the cluster has no nodes that are not being "
                        "drained");
}

/* ---- Orderly ends ---- */

static void stop(uint64_t peer, uint64_t actor, uint64_t grace_ms) {
    trpi_msg msg = {.type = TRPI_MSG_KILL,
                    .kill = {++machine.last_request, actor, false, grace_ms}};
    machine_tell(peer, &msg);
}

static uint64_t running(void) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    machine_client(OTHER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, -1);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, actor, 1);
    return actor;
}

static void A22_who_is_asked_to_stop_has_time_and_the_first_deadline_holds(void **state) {
    uint64_t actor = running();
    stop(DRIVER, actor, 5000);
    const trpi_msg_end *end = &machine_must_hear(NODE_A, TRPI_MSG_END)->end;
    assert_int_equal(end->cause, TRP_CAUSE_STOPPED);
    assert_int_equal(end->grace_ms, 5000);
    stop(OTHER, actor, 60000);
    assert_null(machine_heard(NODE_A, TRPI_MSG_END));
    machine_exited(NODE_A, actor,
                   (trpi_death){.incarnation = 1, .pid = 7, .cause = TRP_CAUSE_EXITED});
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
    assert_int_equal(machine_must_hear(OTHER, TRPI_MSG_DONE)->done.code, TRP_OK);
    trpi_actor_view view = machine_view(actor);
    machine_says(&view, TRP_CAUSE_STOPPED, "stopped by driver program");
    assert_int_equal(view.phase, TRP_ACTOR_DEAD);
}

static void A22_who_does_not_stop_in_time_was_killed_and_that_is_told(void **state) {
    uint64_t actor = running();
    stop(DRIVER, actor, 1000);
    machine.now_ns += 1001 * MS;
    machine_exited(
        NODE_A, actor,
        (trpi_death){.incarnation = 1, .pid = 7, .cause = TRP_CAUSE_STOPPED, .signal = 9});
    const trpi_msg_done *done = &machine_must_hear(DRIVER, TRPI_MSG_DONE)->done;
    assert_int_equal(done->code, TRP_ETIMEOUT);
    assert_string_equal(done->message, "actor a1 did not stop in time and was killed");
    trpi_actor_view view = machine_view(actor);
    machine_says(&view, TRP_CAUSE_STOPPED, "and killed because it took too long");
}

static void a_kill_hurries_an_orderly_end(void **state) {
    uint64_t actor = running();
    stop(DRIVER, actor, 60000);
    machine_kill(OTHER, actor, true); /* cannot make it less final */
    const trpi_msg_end *end = &machine_must_hear(NODE_A, TRPI_MSG_END)->end;
    assert_int_equal(end->grace_ms, 0);
    assert_int_equal(end->cause, TRP_CAUSE_STOPPED);
    machine_exited(
        NODE_A, actor,
        (trpi_death){.incarnation = 1, .pid = 7, .signal = 9, .cause = TRP_CAUSE_KILLED});
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_ETIMEOUT);
    assert_int_equal(machine_must_hear(OTHER, TRPI_MSG_DONE)->done.code, TRP_OK);
    assert_int_equal(machine_view(actor).phase, TRP_ACTOR_DEAD);
}

static void who_has_not_begun_is_canceled(void **state) {
    machine_node(NODE_A, 1, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    uint64_t starts = machine_spawned(DRIVER, &msg);
    msg = machine_spawn(1, 0, 0);
    uint64_t waits = machine_spawned(DRIVER, &msg);
    stop(DRIVER, waits, 5000);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
    stop(DRIVER, starts, 5000);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_END)->end.grace_ms, 0);
    machine_exited(NODE_A, starts,
                   (trpi_death){.incarnation = 1, .signal = 9, .cause = TRP_CAUSE_KILLED});
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(A34_a_draining_node_takes_nothing_new_and_its_actors_stay),
        MACHINE_TEST(A34_after_the_deadline_a_restart_is_not_counted_and_before_it_is),
        MACHINE_TEST(A34_the_death_of_a_draining_node_is_not_counted),
        MACHINE_TEST(A34_bundles_move_when_nobody_uses_them_any_more),
        MACHINE_TEST(a_daemon_that_registers_again_is_still_drained),
        MACHINE_TEST(A22_who_is_asked_to_stop_has_time_and_the_first_deadline_holds),
        MACHINE_TEST(A22_who_does_not_stop_in_time_was_killed_and_that_is_told),
        MACHINE_TEST(a_kill_hurries_an_orderly_end),
        MACHINE_TEST(who_has_not_begun_is_canceled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

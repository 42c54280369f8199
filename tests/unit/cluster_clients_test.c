/* Drivers and workers as callers: what they own, and how it is learned that they are gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static void A15_what_a_driver_owns_ends_with_it_and_the_detached_lives(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg plain = machine_spawn(1, 0, -1), detached = machine_spawn(1, 0, -1);
    detached.spawn.detached = true;
    uint64_t parent = machine_spawned(DRIVER, &plain),
             free_one = machine_spawned(DRIVER, &detached);
    machine_started(NODE_A, parent, 1);
    machine_started(NODE_A, free_one, 1);
    machine_client(OTHER, "worker", parent, 1);
    trpi_msg child_msg = machine_spawn(1, 0, -1);
    uint64_t child = machine_spawned(OTHER, &child_msg);
    machine_started(NODE_A, child, 1);
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_CLIENT_GONE, .id = 1, .reason = "its process ended"});
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_END)->end.actor, parent);
    machine_exited(NODE_A, parent, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_END)->end.actor, child);
    machine_exited(NODE_A, child, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    trpi_actor_view gone = machine_view(child);
    machine_says(&gone, TRP_CAUSE_OWNER_DIED,
                 "its owner, actor a1 (incarnation 1, pid 211), is gone");
    assert_int_equal(machine_view(free_one).phase, TRP_ACTOR_ALIVE);
    assert_int_equal(machine_used("cpu"), 10000);
}

static void A11_children_of_an_incarnation_do_not_outlive_it(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, -1);
    uint64_t parent = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, parent, 1);
    machine_client(OTHER, "worker", parent, 1);
    msg = machine_spawn(1, 0, 0);
    uint64_t child = machine_spawned(OTHER, &msg);
    machine_started(NODE_A, child, 1);
    machine_crash(NODE_A, parent, 1);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_END)->end.actor, child);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_START)->start.actor, parent);
    trpi_msg stale = machine_spawn(1, 0, 0); /* of the dead incarnation's client, still under way */
    machine_tell(OTHER, &stale);
    assert_int_equal(machine_must_hear(OTHER, TRPI_MSG_DONE)->done.code, TRP_EDISCONNECTED);
}

static void a_silent_driver_is_gone_and_a_silent_node_too(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    msg.spawn.detached = true;
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_pass(5200);
    trpi_actor_view dead = machine_view(actor);
    machine_says(&dead, TRP_CAUSE_NODE_DIED, "silent for 5.0 s (NODE_TIMEOUT_MS is 5.0 s)");
    trpi_msg beat = {.type = TRPI_MSG_HEARTBEAT, .heartbeat = {.node = 1, .incarnation = 1}};
    machine_tell(BEAT, &beat);
    assert_false(machine_must_hear(BEAT, TRPI_MSG_HEARTBEAT_ACK)->heartbeat_ack.known);
    machine_pass(5200);
    assert_false(trpi_cluster_knows(machine.cluster, DRIVER));
    assert_false(trpi_cluster_knows(machine.cluster, NODE_A));
}

static void strangers_are_told_that_they_are(void **state) {
    trpi_msg msg = machine_spawn(1, 0, 0);
    machine_tell(THIRD, &msg);
    assert_int_equal(machine_must_hear(THIRD, TRPI_MSG_DONE)->done.code, TRP_EDISCONNECTED);
    assert_int_equal(machine_must_hear(THIRD, TRPI_MSG_DONE)->done.request, msg.spawn.request);
    trpi_msg hello = {.type = TRPI_MSG_CLIENT_HELLO,
                      .client_hello = {.version = "9.9",
                                       .kind = "driver",
                                       .host_id = "",
                                       .job = "",
                                       .namespace_name = "",
                                       .exe = "",
                                       .cwd = ""}};
    machine_tell(THIRD, &hello);
    assert_int_equal(machine_must_hear(THIRD, TRPI_MSG_DONE)->done.code, TRP_EPROTOCOL);
    assert_false(trpi_cluster_knows(machine.cluster, THIRD));
}

static void a_driver_is_watched_by_a_node_of_its_host_and_by_the_next_when_that_dies(void **state) {
    machine_client(DRIVER, "driver", 0, 0);
    machine_node(NODE_A, 1, 0);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_WATCH_PID)->watch_pid.pid, 200 + DRIVER);
    machine_node(NODE_B, 1, 0);
    assert_null(machine_heard(NODE_B, TRPI_MSG_WATCH_PID));
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {1, "SIGTERM"}};
    machine_tell(NODE_A, &bye);
    assert_int_equal(machine_must_hear(NODE_B, TRPI_MSG_WATCH_PID)->watch_pid.client, 1);
    trpi_msg gone = {.type = TRPI_MSG_PID_GONE, .pid_gone = {1}};
    machine_tell(NODE_B, &gone);
    assert_false(trpi_cluster_knows(machine.cluster, DRIVER));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(A15_what_a_driver_owns_ends_with_it_and_the_detached_lives),
        MACHINE_TEST(A11_children_of_an_incarnation_do_not_outlive_it),
        MACHINE_TEST(a_silent_driver_is_gone_and_a_silent_node_too),
        MACHINE_TEST(strangers_are_told_that_they_are),
        MACHINE_TEST(a_driver_is_watched_by_a_node_of_its_host_and_by_the_next_when_that_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Nodes that come back, and a head that stalls or ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static void hello_again(uint64_t peer, uint64_t seq, uint64_t join, trpi_holding *held,
                        size_t count) {
    trpi_resource resources[] = {{"cpu", 20000}};
    trpi_msg msg = {.type = TRPI_MSG_NODE_HELLO,
                    .node_hello = {.version = TROUPE_VERSION,
                                   .uuid = "back",
                                   .host = "",
                                   .host_id = "here",
                                   .name = "back",
                                   .resources = resources,
                                   .resources_count = 1,
                                   .holdings = held,
                                   .holdings_count = count,
                                   .seq = seq,
                                   .join = join}};
    machine_tell(peer, &msg);
}

static void after_a_stall_of_the_head_nobody_is_dead_at_once(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    machine.now_ns += 60000 * MS;
    machine_event((trpi_cluster_event){.kind = TRPI_EVENT_TICK});
    assert_true(trpi_cluster_knows(machine.cluster, NODE_A));
    assert_true(trpi_cluster_knows(machine.cluster, DRIVER));
    assert_int_equal(trpi_cluster_get_counts(machine.cluster).tilts, 1);
    machine_pass(5200);
    assert_false(trpi_cluster_knows(machine.cluster, NODE_A));
}

static void a_node_that_says_hello_again_keeps_its_actors(void **state) {
    machine_client(DRIVER, "driver", 0, 0);
    hello_again(NODE_A, 1, 1, NULL, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, actor, 1);
    trpi_holding held[] = {{actor, 1, 1001, "ipc"}, {99, 3, 1002, "ipc"}};
    hello_again(NODE_A, 2, 1, held, 2);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_NODE_WELCOME)->node_welcome.incarnation, 1);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_END)->end.actor, 99);
    assert_int_equal(machine_view(actor).phase, TRP_ACTOR_ALIVE);
    hello_again(NODE_A, 3, 1, NULL, 0); /* and now it is gone, and nobody said so */
    trpi_actor_view lost = machine_view(actor);
    machine_says(&lost, TRP_CAUSE_NODE_DIED, "the node does not hold it any more");
}

static void a_node_that_begins_anew_is_a_new_incarnation_of_it(void **state) {
    machine_client(DRIVER, "driver", 0, 0);
    hello_again(NODE_A, 1, 1, NULL, 0);
    trpi_msg msg = machine_spawn(1, 0, 1);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    hello_again(NODE_B, 5, 2, NULL, 0);
    assert_int_equal(machine_must_hear(NODE_B, TRPI_MSG_NODE_WELCOME)->node_welcome.incarnation, 2);
    assert_int_equal(machine_must_hear(NODE_B, TRPI_MSG_START)->start.incarnation, 2);
    assert_int_equal(machine_view(actor).restarts, 1);
    hello_again(NODE_A, 4, 1, NULL, 0); /* late, from the connection that it has left */
    assert_int_equal(machine.actions.count, 0);
    assert_true(trpi_cluster_knows(machine.cluster, NODE_B));
}

static void a_shutdown_ends_when_the_last_node_has_said_goodbye(void **state) {
    machine_node(NODE_A, 1, 0);
    machine_client(DRIVER, "tool", 0, 0);
    trpi_msg msg = {.type = TRPI_MSG_HEAD_SHUTDOWN,
                    .head_shutdown = {++machine.last_request, "another"}};
    machine_tell(DRIVER, &msg);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_EINVALID);
    msg.head_shutdown.cluster = "test";
    machine_tell(DRIVER, &msg);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
    (void)machine_must_hear(NODE_A, TRPI_MSG_NODE_SHUTDOWN);
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {1, "shutdown"}};
    machine_tell(NODE_A, &bye);
    assert_int_equal(machine.actions.items[machine.actions.count - 1].kind, TRPI_ACTION_STOPPED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(after_a_stall_of_the_head_nobody_is_dead_at_once),
        MACHINE_TEST(a_node_that_says_hello_again_keeps_its_actors),
        MACHINE_TEST(a_node_that_begins_anew_is_a_new_incarnation_of_it),
        MACHINE_TEST(a_shutdown_ends_when_the_last_node_has_said_goodbye),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

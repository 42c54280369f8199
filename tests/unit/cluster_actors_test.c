/* What clients ask about actors, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static void A18_a_name_is_one_actor_for_all_who_ask(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    machine_client(OTHER, "driver", 0, 0); /* of the same namespace */
    trpi_msg msg = machine_spawn(1, 0, 0);
    msg.spawn.name = "one";
    uint64_t first = machine_spawned(DRIVER, &msg);
    machine_refused(OTHER, &msg, TRP_EEXISTS, "name \"one\" is held by actor a1 of type counter");
    msg.spawn.get_if_exists = true;
    assert_int_equal(machine_spawned(OTHER, &msg), first);
    machine_kill(DRIVER, first, false); /* on its way out: the name is free at once */
    assert_int_not_equal(machine_spawned(OTHER, &msg), first);
    trpi_msg lookup = {.type = TRPI_MSG_LOOKUP, .lookup = {++machine.last_request, "two"}};
    machine_tell(DRIVER, &lookup);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_SPAWNED)->spawned.code, TRP_ENOTFOUND);
}

static void A25_requests_without_sense_are_refused_with_the_reason(void **state) {
    machine_node(NODE_A, 4, 2);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_resource bad = {"gpu", 15000};
    trpi_msg msg = machine_spawn(1, 0, 0);
    msg.spawn.resources = &bad;
    msg.spawn.resources_count = 1;
    machine_refused(DRIVER, &msg, TRP_EINVALID, "1.5 gpu: above 1 it must be a whole number");
    msg = machine_spawn(1, 0, -2);
    machine_refused(DRIVER, &msg, TRP_EINVALID, "restarts_max -2");
    msg = machine_spawn(1, 3, 0);
    msg.spawn.fail_if_infeasible = true;
    machine_refused(DRIVER, &msg, TRP_EINFEASIBLE, "needs 3 gpu; the most any node has is 2");
    msg = machine_spawn(1, 0, 0);
    msg.spawn.group = 9;
    machine_refused(DRIVER, &msg, TRP_ENOTFOUND, "placement group g9 does not exist");
}

static void A27_affinity_to_a_dead_node_fails_at_once_and_to_a_busy_one_waits(void **state) {
    machine_node(NODE_A, 1, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, -1), second = machine_spawn(1, 0, -1);
    msg.spawn.node = second.spawn.node = 1;
    uint64_t holder = machine_spawned(DRIVER, &msg), waiter = machine_spawned(DRIVER, &second);
    machine_node(NODE_B, 4, 0);
    assert_int_equal(machine_view(waiter).phase, TRP_ACTOR_PENDING);
    assert_string_equal(machine_view(waiter).waiting_for, "busy: needs 1 cpu; free there is 0");
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    trpi_actor_view one = machine_view(holder), two = machine_view(waiter);
    machine_says(&one, TRP_CAUSE_UNSCHEDULABLE,
                 "it may run on node n1 (uuid-1) only, which is dead");
    machine_says(&two, TRP_CAUSE_UNSCHEDULABLE,
                 "it may run on node n1 (uuid-1) only, which is dead");
    trpi_actor_view late = machine_view(machine_spawned(DRIVER, &msg));
    machine_says(&late, TRP_CAUSE_UNSCHEDULABLE,
                 "it may run on node n1 (uuid-1) only, which is dead");
    msg.spawn.node = 77;
    trpi_actor_view lost = machine_view(machine_spawned(DRIVER, &msg));
    machine_says(&lost, TRP_CAUSE_UNSCHEDULABLE, "node n77 only, which does not exist");
    msg.spawn.fail_if_infeasible = true;
    machine_refused(DRIVER, &msg, TRP_EINFEASIBLE, "node n77 is not there");
    msg = machine_spawn(8, 0, 0);
    msg.spawn.node = 2;
    trpi_actor_view large = machine_view(machine_spawned(DRIVER, &msg));
    machine_says(&large, TRP_CAUSE_UNSCHEDULABLE, "needs 8 cpu; that node has 4");
}

static void what_is_kept_for_starts_is_bounded_and_given_back(void **state) {
    static char args[100];
    trpi_cluster_config config = trpi_cluster_config_default();
    config.start_bytes_max = 250;
    trpi_cluster_free(machine.cluster);
    machine.cluster = trpi_cluster_new(&config);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    msg.spawn.args = (trp_bytes){args, sizeof(args)};
    msg.spawn.name = "first";
    uint64_t first = machine_spawned(DRIVER, &msg);
    trpi_text env[] = {{"NAME=value"}};
    trpi_msg second = msg;
    second.spawn.name = "";
    second.spawn.env = env;
    second.spawn.env_count = 1;
    (void)machine_spawned(DRIVER, &second);
    machine_refused(DRIVER, &second, TRP_EBUSY, "the head keeps 211 bytes of arguments");
    msg.spawn.get_if_exists = true; /* needs nothing new */
    assert_int_equal(machine_spawned(DRIVER, &msg), first);
    machine_kill(DRIVER, first, false);
    (void)machine_spawned(DRIVER, &second);
}

/* Real processes do a tenth of it: devices_test. */
static void A25_ten_thousand_tenths_end_exactly_at_full(void **state) {
    enum { ROUNDS = 1000, AT_ONCE = 10 };
    uint64_t actors[AT_ONCE];
    trpi_cluster_config config = trpi_cluster_config_default();
    config.dead_actors_kept = AT_ONCE; /* the checks look at each */
    trpi_cluster_free(machine.cluster);
    machine.cluster = trpi_cluster_new(&config);
    machine_node(NODE_A, 1, 0);
    machine_client(DRIVER, "driver", 0, 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            trpi_msg msg = machine_spawn(0, 0, 0);
            msg.spawn.resources[0].amount = 1000;
            actors[i] = machine_spawned(DRIVER, &msg);
        }
        assert_int_equal(machine_used("cpu"), 10000);
        for (int i = 0; i < AT_ONCE; i++) {
            bool has_begun = (round + i) % 2 == 0; /* the others are killed while they start */
            if (has_begun) {
                machine_started(NODE_A, actors[i], 1);
            }
            machine_kill(DRIVER, actors[i], false);
            machine_crash(NODE_A, actors[i], 1);
        }
        assert_int_equal(machine_used("cpu"), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(A18_a_name_is_one_actor_for_all_who_ask),
        MACHINE_TEST(A25_requests_without_sense_are_refused_with_the_reason),
        MACHINE_TEST(A25_ten_thousand_tenths_end_exactly_at_full),
        MACHINE_TEST(A27_affinity_to_a_dead_node_fails_at_once_and_to_a_busy_one_waits),
        MACHINE_TEST(what_is_kept_for_starts_is_bounded_and_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

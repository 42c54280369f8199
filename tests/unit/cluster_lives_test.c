/* What happens to actors: places, starts, deaths, restarts, ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static void an_actor_is_placed_started_and_gives_back_what_it_held(void **state) {
    machine_node(NODE_A, 4, 2);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(2, 1, 0);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    const trpi_msg_start *start = &machine_must_hear(NODE_A, TRPI_MSG_START)->start;
    assert_int_equal(start->actor, actor);
    assert_int_equal(start->incarnation, 1);
    assert_string_equal(start->exe, "/bin/program");
    assert_int_equal(start->devices_count, 1);
    assert_string_equal(start->devices[0].value, "0");
    assert_int_equal(machine_used("cpu"), 20000);
    machine_started(NODE_A, actor, 1);
    assert_int_equal(machine_view(actor).phase, TRP_ACTOR_ALIVE);
    machine_exited(NODE_A, actor, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_EXITED});
    assert_int_equal(machine_view(actor).phase, TRP_ACTOR_DEAD);
    assert_int_equal(machine_used("cpu"), 0);
    assert_int_equal(machine_used("gpu"), 0);
}

static void subscribers_hear_of_every_death_with_its_whole_cause(void **state) {
    machine_node(NODE_A, 4, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 1);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, actor, 1);
    machine_subscribe(DRIVER, actor);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state.phase,
                     TRP_ACTOR_ALIVE);
    machine_crash(NODE_A, actor, 1);
    const trpi_msg_actor_state *told =
        &machine_must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state;
    assert_int_equal(told->phase, TRP_ACTOR_RESTARTING);
    assert_int_equal(told->incarnation, 2);
    assert_int_equal(told->death_count, 1);
    assert_int_equal(told->death[0].incarnation, 1);
    assert_int_equal(told->death[0].signal, 11);
    assert_string_equal(told->death[0].stderr_tail, "oops");
    assert_string_equal(told->death[0].message,
                        "actor a1 (counter) on node n1 (uuid-1), pid 1001: signal 11 (SIGSEGV); "
                        "restart 1 of 1 follows");
    machine_started(NODE_A, actor, 2);
    machine_crash(NODE_A, actor, 2);
    told = &machine_must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state;
    assert_int_equal(told->phase, TRP_ACTOR_DEAD);
    assert_true(told->death[0].is_final);
    assert_non_null(strstr(told->death[0].message, "all 1 restarts of restarts_max are used up"));
}

static void what_is_told_of_an_earlier_incarnation_changes_nothing(void **state) {
    machine_node(NODE_A, 4, 0);
    machine_node(NODE_B, 4, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, -1);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, actor, 1);
    machine_crash(NODE_A, actor, 1); /* avoids A now */
    assert_int_equal(machine_must_hear(NODE_B, TRPI_MSG_START)->start.incarnation, 2);
    machine_started(NODE_B, actor, 2);
    machine_crash(NODE_A, actor, 1);
    machine_crash(NODE_A, actor, 2); /* not where it is */
    machine_crash(NODE_B, actor, 1);
    assert_int_equal(machine_view(actor).phase, TRP_ACTOR_ALIVE);
    assert_int_equal(machine_view(actor).incarnation, 2);
    machine_started(NODE_A, actor, 1); /* a process that nobody wants */
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_END)->end.incarnation, 1);
}

static void A08_each_class_of_death_has_its_own_cause(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t actors[4];
    for (size_t i = 0; i < 4; i++) {
        trpi_msg msg = machine_spawn(1, 0, -1);
        actors[i] = machine_spawned(DRIVER, &msg);
        machine_started(NODE_A, actors[i], 1);
    }
    machine_kill(DRIVER, actors[0], false);
    machine_exited(NODE_A, actors[0],
                   (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED, .signal = 9});
    trpi_actor_view killed = machine_view(actors[0]);
    machine_says(&killed, TRP_CAUSE_KILLED, "killed by driver program (job j1, pid 210)");
    machine_exited(NODE_A, actors[1],
                   (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_NEVER_STARTED});
    trpi_actor_view failed = machine_view(actors[1]);
    machine_says(&failed, TRP_CAUSE_NEVER_STARTED, "final: this is never restarted");
    machine_exited(NODE_A, actors[2],
                   (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_OUT_OF_MEMORY});
    trpi_actor_view large = machine_view(actors[2]);
    machine_says(&large, TRP_CAUSE_OUT_OF_MEMORY, "restart 1 follows");
    assert_int_not_equal(large.phase, TRP_ACTOR_DEAD);
    trpi_msg bye = {.type = TRPI_MSG_CLIENT_BYE, .client_bye = {++machine.last_request}};
    machine_tell(DRIVER, &bye);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.request, machine.last_request);
    machine_exited(NODE_A, actors[3], (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_SIGNALED});
    trpi_actor_view orphan = machine_view(actors[3]);
    machine_says(&orphan, TRP_CAUSE_OWNER_DIED,
                 "its owner, driver program (job j1, pid 210), is gone");
}

/* Names may be 255 bytes each, the reason is the program's, and a sentence has 511. */
static void a_death_tells_cause_and_sequel_however_long_the_names_are(void **state) {
    char name[256], reason[2000];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (size_t i = 0; i < sizeof(reason) - 2; i += 2) {
        memcpy(reason + i, "\xc3\xa9", 2); /* a character of two bytes */
    }
    memcpy(reason, "first words", 11);
    reason[11] = ' ';
    reason[sizeof(reason) - 2] = '\0';
    machine_node(NODE_A, 1, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    msg.spawn.type = msg.spawn.name = name;
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_exited(
        NODE_A, actor,
        (trpi_death){.incarnation = 1, .pid = 7, .cause = TRP_CAUSE_EXITED, .message = reason});
    trpi_actor_view dead = machine_view(actor);
    machine_says(&dead, TRP_CAUSE_EXITED, "actor a1 (xxx");
    machine_says(&dead, TRP_CAUSE_EXITED, "x...\") on node n1 (uuid-1), pid 7: first words");
    machine_says(&dead, TRP_CAUSE_EXITED,
                 "\xc3\xa9...; final: only restart type ALWAYS restarts an orderly end");
    assert_in_range(strlen(dead.death->message), 500, 511);
}

static void A09_a_node_that_dies_during_a_constructor_costs_one_restart(void **state) {
    machine_node(NODE_A, 2, 0);
    uint64_t second = machine_node(NODE_B, 1, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 3);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    (void)machine_must_hear(NODE_A, TRPI_MSG_START);
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    assert_int_equal(machine_must_hear(NODE_B, TRPI_MSG_START)->start.restarts, 1);
    trpi_actor_view moved = machine_view(actor);
    assert_int_equal(moved.node, second);
    assert_int_equal(moved.restarts, 1);
    machine_says(&moved, TRP_CAUSE_NODE_DIED, "node n1 (uuid-1) died: its process ended");
}

static void A12_a_crash_loop_is_slowed_down(void **state) {
    machine_node(NODE_A, 2, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, -1);
    uint64_t actor = machine_spawned(DRIVER, &msg), starts = 0;
    uint64_t end = machine.now_ns + 60000 * MS;
    while (machine.now_ns < end) {
        trpi_actor_view of = machine_view(actor);
        if (of.phase != TRP_ACTOR_DEAD && machine_used("cpu")) {
            machine_crash(NODE_A, actor, of.incarnation);
            starts++;
        }
        trpi_msg beat = {.type = TRPI_MSG_HEARTBEAT, .heartbeat = {.node = 1, .incarnation = 1}};
        machine_tell(BEAT, &beat);
        beat.heartbeat = (trpi_msg_heartbeat){.client = 1};
        machine_tell(DRIVER, &beat);
        machine_pass(50);
    }
    assert_in_range(starts, 8, 20); /* 0, 0.1, 0.2, ... 10, 10, 10 s */
    assert_int_equal(machine_view(actor).restarts, starts);
}

static void a_kill_is_answered_when_the_process_is_gone_and_not_before(void **state) {
    machine_node(NODE_A, 2, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, actor, 1);
    machine_kill(DRIVER, actor, false);
    assert_null(machine_heard(DRIVER, TRPI_MSG_DONE));
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_END)->end.cause, TRP_CAUSE_KILLED);
    assert_int_equal(machine_used("cpu"), 10000);
    machine_pass(2200); /* END may be lost: it is said again */
    machine.now_ns += MS;
    machine_exited(NODE_A, actor, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.request, machine.last_request);
    assert_int_equal(machine_used("cpu"), 0);
}

static void end_is_said_again_until_it_is_answered(void **state) {
    machine_node(NODE_A, 2, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    uint64_t actor = machine_spawned(DRIVER, &msg), ends = 0;
    machine_kill(DRIVER, actor, false);
    for (int i = 0; i < 80; i++) {
        machine_pass(50);
        ends += machine_heard(NODE_A, TRPI_MSG_END) != NULL;
    }
    assert_in_range(ends, 1, 3);
}

static void A19_a_kill_of_a_waiting_actor_takes_its_demand_away(void **state) {
    machine_node(NODE_A, 2, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 3, 2);
    uint64_t actor = machine_spawned(DRIVER, &msg), ticket = 0;
    trpi_demand_view demand;
    assert_true(trpi_cluster_next_demand(machine.cluster, false, &ticket, &demand));
    assert_true(demand.infeasible);
    assert_string_equal(demand.why, "needs 3 gpu; the most any node has is 0");
    for (int64_t restarts = 1; restarts <= 2; restarts++) { /* allowed: it waits on */
        machine_kill(DRIVER, actor, true);
        assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
        assert_int_equal(machine_view(actor).restarts, restarts);
        assert_int_equal(machine_view(actor).phase, TRP_ACTOR_PENDING);
        machine_pass(200);
    }
    ticket = 0;
    assert_true(trpi_cluster_next_demand(machine.cluster, false, &ticket, &demand));
    machine_kill(DRIVER, actor, true); /* used up */
    assert_int_equal(machine_view(actor).phase, TRP_ACTOR_DEAD);
    ticket = 0;
    assert_false(trpi_cluster_next_demand(machine.cluster, false, &ticket, &demand));
}

static void waiting_actors_start_in_order_when_room_comes(void **state) {
    machine_client(DRIVER, "driver", 0, 0);
    for (int i = 0; i < 3; i++) {
        trpi_msg msg = machine_spawn(1, 0, 0);
        assert_int_equal(machine_spawned(DRIVER, &msg), i + 1);
    }
    machine_node(NODE_A, 1, 0);
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_START)->start.actor, 1);
    machine_exited(NODE_A, 1, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_FINISHED});
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_START)->start.actor, 2);
    machine_exited(NODE_A, 2, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_FINISHED});
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_START)->start.actor, 3);
}

static void only_so_many_of_the_dead_are_kept(void **state) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.dead_actors_kept = 3;
    config.dead_tails_kept = 1;
    trpi_cluster_free(machine.cluster);
    machine.cluster = trpi_cluster_new(&config);
    machine_node(NODE_A, 1, 0);
    machine_client(DRIVER, "driver", 0, 0);
    for (uint64_t i = 1; i <= 5; i++) {
        trpi_msg msg = machine_spawn(1, 0, 0);
        assert_int_equal(machine_spawned(DRIVER, &msg), i);
        machine_crash(NODE_A, i, 1);
    }
    trpi_actor_view found;
    assert_false(trpi_cluster_actor(machine.cluster, 2, &found));
    assert_string_equal(machine_view(4).death->stderr_tail, "");
    assert_string_equal(machine_view(5).death->stderr_tail, "oops");
    machine_subscribe(DRIVER, 2);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state.phase,
                     TRPI_PHASE_UNKNOWN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(an_actor_is_placed_started_and_gives_back_what_it_held),
        MACHINE_TEST(subscribers_hear_of_every_death_with_its_whole_cause),
        MACHINE_TEST(what_is_told_of_an_earlier_incarnation_changes_nothing),
        MACHINE_TEST(A08_each_class_of_death_has_its_own_cause),
        MACHINE_TEST(a_death_tells_cause_and_sequel_however_long_the_names_are),
        MACHINE_TEST(A09_a_node_that_dies_during_a_constructor_costs_one_restart),
        MACHINE_TEST(A12_a_crash_loop_is_slowed_down),
        MACHINE_TEST(a_kill_is_answered_when_the_process_is_gone_and_not_before),
        MACHINE_TEST(end_is_said_again_until_it_is_answered),
        MACHINE_TEST(A19_a_kill_of_a_waiting_actor_takes_its_demand_away),
        MACHINE_TEST(waiting_actors_start_in_order_when_room_comes),
        MACHINE_TEST(only_so_many_of_the_dead_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

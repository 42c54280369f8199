/* Gangs and links: who lives and dies with whom. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static uint64_t gang(trp_gang_policy policy, int64_t restarts_max) {
    trpi_msg msg = {.type = TRPI_MSG_GANG_CREATE,
                    .gang_create = {.request = ++machine.last_request,
                                    .name = "ranks",
                                    .policy = policy,
                                    .restarts_max = restarts_max}};
    machine_tell(DRIVER, &msg);
    const trpi_msg_ganged *answer = &machine_must_hear(DRIVER, TRPI_MSG_GANGED)->ganged;
    assert_int_equal(answer->code, TRP_OK);
    return answer->gang;
}

static uint64_t member(uint64_t of) {
    trpi_msg msg = machine_spawn(1, 0, 0);
    msg.spawn.gang = of;
    return machine_spawned(DRIVER, &msg);
}

static bool is_gone(uint64_t of) {
    trpi_gang_view view;
    uint64_t id = of - 1;
    return !trpi_cluster_next_gang(machine.cluster, &id, &view) || id != of;
}

/* Three that run on NODE_A. */
static uint64_t running_gang(trp_gang_policy policy, int64_t restarts_max, uint64_t *members) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t id = gang(policy, restarts_max);
    for (size_t i = 0; i < 3; i++) {
        members[i] = member(id);
        machine_started(NODE_A, members[i], 1);
    }
    return id;
}

static void ended(uint64_t actor, uint64_t incarnation) {
    machine_exited(NODE_A, actor,
                   (trpi_death){.incarnation = incarnation,
                                .pid = 1000 + (int64_t)actor,
                                .cause = TRP_CAUSE_KILLED,
                                .signal = 9});
}

static void one_death_restarts_them_all_when_the_last_is_gone(void **state) {
    uint64_t m[3];
    (void)running_gang(TRP_GANG_RESTART, 1, m);
    machine_crash(NODE_A, m[1], 1);
    assert_null(machine_heard(NODE_A, TRPI_MSG_START));
    const trpi_msg_end *end = &machine_must_hear(NODE_A, TRPI_MSG_END)->end;
    assert_int_equal(end->actor, m[2]);
    assert_int_equal(end->cause, TRP_CAUSE_GANG);
    assert_non_null(strstr(machine_view(m[1]).waiting_for,
                           "gang x1 (\"ranks\") restarts when 2 more of its processes are gone"));
    ended(m[0], 1);
    assert_null(machine_heard(NODE_A, TRPI_MSG_START));
    ended(m[2], 1);
    for (size_t i = 0; i < 3; i++) {
        trpi_actor_view view = machine_view(m[i]);
        assert_int_equal(view.incarnation, 2);
        assert_non_null(strstr(view.waiting_for, "starts on node"));
        machine_started(NODE_A, m[i], 2);
    }
    trpi_actor_view crashed = machine_view(m[1]), other = machine_view(m[0]);
    machine_says(&crashed, TRP_CAUSE_SIGNALED, "with gang x1 (\"ranks\"): restart 1 of 1 follows");
    machine_says(&other, TRP_CAUSE_GANG, "gang x1 (\"ranks\") restarts: actor a2 (counter) died");
    assert_int_equal(other.restarts_counted, 0); /* the gang's count is what counts */
    trpi_gang_view view;
    uint64_t id = 0;
    assert_true(trpi_cluster_next_gang(machine.cluster, &id, &view));
    assert_int_equal(view.restarts, 1);
    assert_int_equal(view.running, 3);
}

static void a_gang_whose_restarts_are_used_up_ends_with_its_members(void **state) {
    uint64_t m[3], id = running_gang(TRP_GANG_RESTART, 0, m);
    machine_crash(NODE_A, m[0], 1);
    assert_int_equal(machine_view(m[0]).phase, TRP_ACTOR_DEAD);
    trpi_msg late = machine_spawn(1, 0, 0);
    late.spawn.gang = id;
    machine_refused(DRIVER, &late, TRP_ENOTFOUND, "gang x1 does not exist (any more)");
    ended(m[1], 1);
    ended(m[2], 1);
    trpi_actor_view last = machine_view(m[2]);
    assert_int_equal(last.phase, TRP_ACTOR_DEAD);
    machine_says(&last, TRP_CAUSE_GANG, "has ended: actor a1 (counter) died: ended by a signal");
    assert_true(is_gone(id));
}

static void policy_end_ends_them_all_at_the_first_death(void **state) {
    uint64_t m[3], id = running_gang(TRP_GANG_END, 0, m), waits = 0;
    trpi_msg large = machine_spawn(8, 0, 0);
    large.spawn.gang = id;
    waits = machine_spawned(DRIVER, &large);
    machine_exited(NODE_A, m[1], (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_EXITED});
    trpi_actor_view first = machine_view(m[1]), waiting = machine_view(waits);
    machine_says(&first, TRP_CAUSE_EXITED, "final: gang x1 (\"ranks\") ends with it");
    machine_says(&waiting, TRP_CAUSE_GANG, "actor a2 (counter) died: process exited");
    ended(m[0], 1);
    ended(m[2], 1);
    assert_true(is_gone(id));
    assert_int_equal(machine_used("cpu"), 0);
}

static void who_finishes_or_is_stopped_leaves_the_others_alone(void **state) {
    uint64_t m[3];
    (void)running_gang(TRP_GANG_END, 0, m);
    machine_exited(NODE_A, m[0], (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_FINISHED});
    trpi_msg stop = {.type = TRPI_MSG_KILL, .kill = {++machine.last_request, m[1], false, 1000}};
    machine_tell(DRIVER, &stop);
    machine_exited(NODE_A, m[1],
                   (trpi_death){.incarnation = 1, .pid = 7, .cause = TRP_CAUSE_EXITED});
    assert_int_equal(machine_view(m[1]).phase, TRP_ACTOR_DEAD);
    assert_int_equal(machine_view(m[2]).phase, TRP_ACTOR_ALIVE);
}

static void the_death_of_a_node_is_one_death_of_the_gang(void **state) {
    uint64_t m[3];
    (void)running_gang(TRP_GANG_RESTART, 1, m);
    machine_node(NODE_B, 8, 0);
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    trpi_gang_view view;
    uint64_t id = 0;
    assert_true(trpi_cluster_next_gang(machine.cluster, &id, &view));
    assert_int_equal(view.restarts, 1);
    for (size_t i = 0; i < 3; i++) {
        machine_started(NODE_B, m[i], 2);
        assert_int_equal(machine_view(m[i]).phase, TRP_ACTOR_ALIVE);
    }
}

static void a_gang_ends_with_its_owner_or_when_it_is_asked_to(void **state) {
    uint64_t m[3], id = running_gang(TRP_GANG_RESTART, -1, m);
    trpi_msg end = {.type = TRPI_MSG_GANG_END, .gang_end = {++machine.last_request, id}};
    machine_tell(DRIVER, &end);
    assert_null(machine_heard(DRIVER, TRPI_MSG_DONE));
    for (size_t i = 0; i < 3; i++) {
        ended(m[i], 1);
    }
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
    machine_tell(DRIVER, &end); /* it is as asked for */
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
    uint64_t other = gang(TRP_GANG_RESTART, -1), owned = member(other);
    trpi_msg bye = {.type = TRPI_MSG_CLIENT_BYE, .client_bye = {++machine.last_request}};
    machine_tell(DRIVER, &bye);
    ended(owned, 1);
    assert_true(is_gone(other));
}

/* ---- Links ---- */

static trp_code link_to(uint64_t peer, uint64_t other, bool cut) {
    trpi_msg msg = {.type = TRPI_MSG_LINK, .link = {++machine.last_request, other, cut}};
    machine_tell(peer, &msg);
    return (trp_code)machine_must_hear(peer, TRPI_MSG_DONE)->done.code;
}

static uint64_t caller(uint64_t peer, int64_t restarts_max) {
    trpi_msg msg = machine_spawn(1, 0, restarts_max);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, actor, 1);
    machine_client(peer, "worker", actor, 1);
    return actor;
}

static void a_final_death_kills_who_is_linked_and_its_own_rules_decide(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t one = caller(OTHER, 1), two = caller(THIRD, 1);
    assert_int_equal(link_to(OTHER, two, false), TRP_OK);
    assert_int_equal(link_to(THIRD, one, false), TRP_OK); /* the same link */
    assert_int_equal(trpi_cluster_get_counts(machine.cluster).links, 1);
    machine_crash(NODE_A, one, 1);
    assert_null(machine_heard(NODE_A, TRPI_MSG_END)); /* not final: the link holds */
    machine_started(NODE_A, one, 2);
    machine_crash(NODE_A, one, 2);
    const trpi_msg_end *end = &machine_must_hear(NODE_A, TRPI_MSG_END)->end;
    assert_int_equal(end->actor, two);
    assert_int_equal(end->cause, TRP_CAUSE_LINKED);
    ended(two, 1);
    trpi_actor_view view = machine_view(two);
    machine_says(&view, TRP_CAUSE_LINKED, "it was linked to actor a1 (counter), which is dead");
    assert_int_equal(view.incarnation, 2);
    assert_int_equal(view.links, 0);
}

static void links_are_refused_where_they_make_no_sense_and_can_be_cut(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t one = caller(OTHER, 0), two = caller(THIRD, 0);
    assert_int_equal(link_to(DRIVER, one, false), TRP_EINVALID);
    assert_int_equal(link_to(OTHER, one, false), TRP_EINVALID);
    assert_int_equal(link_to(OTHER, 99, false), TRP_EACTOR_DIED);
    assert_int_equal(link_to(OTHER, two, false), TRP_OK);
    assert_int_equal(link_to(OTHER, two, true), TRP_OK);
    machine_crash(NODE_A, one, 1);
    assert_int_equal(machine_view(two).phase, TRP_ACTOR_ALIVE);
    assert_int_equal(link_to(THIRD, one, false), TRP_EACTOR_DIED);
}

static void a_chain_of_links_falls_one_after_the_other(void **state) {
    machine_node(NODE_A, 40, 0);
    machine_client(DRIVER, "driver", 0, 0);
    uint64_t first = caller(1000, 0), last = first;
    for (uint64_t peer = 1001; peer < 1040; peer++) {
        uint64_t next = caller(peer, 0);
        assert_int_equal(link_to(peer, last, false), TRP_OK);
        last = next;
    }
    machine_crash(NODE_A, first, 1);
    for (uint64_t actor = first + 1; actor <= last; actor++) {
        assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_END)->end.actor, actor);
        ended(actor, 1);
    }
    assert_int_equal(machine_used("cpu"), 0);
    assert_int_equal(trpi_cluster_get_counts(machine.cluster).links, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(one_death_restarts_them_all_when_the_last_is_gone),
        MACHINE_TEST(a_gang_whose_restarts_are_used_up_ends_with_its_members),
        MACHINE_TEST(policy_end_ends_them_all_at_the_first_death),
        MACHINE_TEST(who_finishes_or_is_stopped_leaves_the_others_alone),
        MACHINE_TEST(the_death_of_a_node_is_one_death_of_the_gang),
        MACHINE_TEST(a_gang_ends_with_its_owner_or_when_it_is_asked_to),
        MACHINE_TEST(a_final_death_kills_who_is_linked_and_its_own_rules_decide),
        MACHINE_TEST(links_are_refused_where_they_make_no_sense_and_can_be_cut),
        MACHINE_TEST(a_chain_of_links_falls_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

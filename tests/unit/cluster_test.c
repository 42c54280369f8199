/* The head's machine, one situation at a time: what it is told, and what it must answer. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/state/cluster.h"

#define MS UINT64_C(1000000)

enum { NODE_A = 1, NODE_B, NODE_C, DRIVER = 10, OTHER, THIRD, BEAT };

static trpi_cluster *cluster;
static trpi_actions actions;
static uint64_t now_ns, last_request;

/* ---- Talking to it ---- */

static void event(trpi_cluster_event what) {
    what.now_ns = now_ns;
    trpi_cluster_step(cluster, &what, &actions);
    const char *broken = trpi_cluster_check(cluster);
    if (broken) {
        fail_msg("%s", broken);
    }
}

static void tell(uint64_t peer, const trpi_msg *msg) {
    event((trpi_cluster_event){.kind = TRPI_EVENT_MESSAGE, .peer = peer, .msg = msg});
}

static void pass(uint64_t ms) { /* as the shell does: a tick often enough that it is no stall */
    for (uint64_t end = now_ns + ms * MS; now_ns < end;) {
        now_ns = TRPI_MIN(now_ns + 50 * MS, end);
        event((trpi_cluster_event){.kind = TRPI_EVENT_TICK});
    }
}

/* The last message of this type to this peer among the actions, or NULL. */
static const trpi_msg *heard(uint64_t peer, trpi_msg_type type) {
    const trpi_msg *found = NULL;
    for (size_t i = 0; i < actions.count; i++) {
        const trpi_cluster_action *action = &actions.items[i];
        if (action->kind == TRPI_ACTION_SEND && action->peer == peer && action->msg.type == type) {
            found = &action->msg;
        }
    }
    return found;
}

static const trpi_msg *must_hear(uint64_t peer, trpi_msg_type type) {
    const trpi_msg *msg = heard(peer, type);
    if (!msg) {
        fail_msg("peer %" PRIu64 " does not hear %s", peer, trpi_msg_name(type));
    }
    return msg;
}

static uint64_t node(uint64_t peer, int64_t cpus, int64_t gpus) {
    char uuid[16];
    trpi_resource resources[] = {{"cpu", cpus * 10000}, {"gpu", gpus * 10000}};
    trpi_text devices[] = {{"0"}, {"1"}, {"2"}, {"3"}};
    trpi_format(uuid, sizeof(uuid), "uuid-%" PRIu64, peer);
    trpi_msg msg = {.type = TRPI_MSG_NODE_HELLO,
                    .node_hello = {.version = TROUPE_VERSION,
                                   .uuid = uuid,
                                   .host = "",
                                   .host_id = "here",
                                   .pid = 100,
                                   .name = uuid,
                                   .resources = resources,
                                   .resources_count = 2,
                                   .devices = devices,
                                   .devices_count = (size_t)gpus}};
    tell(peer, &msg);
    return must_hear(peer, TRPI_MSG_NODE_WELCOME)->node_welcome.node;
}

static uint64_t client(uint64_t peer, const char *kind, uint64_t actor, uint64_t incarnation) {
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_HELLO,
                    .client_hello = {.version = TROUPE_VERSION,
                                     .kind = kind,
                                     .host_id = "here",
                                     .pid = 200 + (int64_t)peer,
                                     .actor = actor,
                                     .incarnation = incarnation,
                                     .job = "program",
                                     .namespace_name = strcmp(kind, "driver") == 0 ? "space" : "",
                                     .exe = "/bin/program",
                                     .cwd = "/"}};
    tell(peer, &msg);
    return must_hear(peer, TRPI_MSG_CLIENT_WELCOME)->client_welcome.client;
}

static trpi_msg spawn(int64_t cpus, int64_t gpus, int64_t restarts_max) {
    static trpi_resource resources[2];
    resources[0] = (trpi_resource){"cpu", cpus * 10000};
    resources[1] = (trpi_resource){"gpu", gpus * 10000};
    return (trpi_msg){.type = TRPI_MSG_SPAWN,
                      .spawn = {.request = ++last_request,
                                .type = "counter",
                                .name = "",
                                .resources = resources,
                                .resources_count = 2,
                                .bundle = -1,
                                .restarts_max = restarts_max}};
}

static uint64_t spawned(uint64_t peer, const trpi_msg *msg) {
    tell(peer, msg);
    const trpi_msg *answer = must_hear(peer, TRPI_MSG_SPAWNED);
    assert_int_equal(answer->spawned.request, msg->spawn.request);
    assert_int_equal(answer->spawned.code, TRP_OK);
    return answer->spawned.actor;
}

static void refused(uint64_t peer, const trpi_msg *msg, trp_code code, const char *words) {
    tell(peer, msg);
    const trpi_msg *answer = must_hear(peer, TRPI_MSG_SPAWNED);
    assert_int_equal(answer->spawned.code, code);
    if (!strstr(answer->spawned.message, words)) {
        fail_msg("\"%s\" does not say \"%s\"", answer->spawned.message, words);
    }
}

static void started(uint64_t peer, uint64_t actor, uint64_t incarnation) {
    trpi_msg msg = {.type = TRPI_MSG_STARTED,
                    .started = {actor, incarnation, 1000 + (int64_t)actor, "ipc", ""}};
    tell(peer, &msg);
}

static void exited(uint64_t peer, uint64_t actor, trpi_death death) {
    death.message = death.message ? death.message : "";
    death.stderr_tail = "oops";
    trpi_msg msg = {.type = TRPI_MSG_EXITED, .exited = {actor, &death, 1}};
    tell(peer, &msg);
}

static void crash(uint64_t peer, uint64_t actor, uint64_t incarnation) {
    exited(peer, actor,
           (trpi_death){.incarnation = incarnation,
                        .pid = 1000 + (int64_t)actor,
                        .cause = TRP_CAUSE_SIGNALED,
                        .signal = 11,
                        .message = "signal 11 (SIGSEGV)"});
}

static void kill_actor(uint64_t peer, uint64_t actor, bool may_restart) {
    trpi_msg msg = {.type = TRPI_MSG_KILL, .kill = {++last_request, actor, may_restart}};
    tell(peer, &msg);
}

static void subscribe(uint64_t peer, uint64_t actor) {
    trpi_msg msg = {.type = TRPI_MSG_SUBSCRIBE, .subscribe = {actor}};
    tell(peer, &msg);
}

static trpi_actor_view view(uint64_t actor) {
    trpi_actor_view found;
    assert_true(trpi_cluster_actor(cluster, actor, &found));
    return found;
}

static void says(const trpi_actor_view *actor, trp_cause cause, const char *words) {
    assert_non_null(actor->death);
    assert_int_equal(actor->death->cause, cause);
    if (!strstr(actor->death->message, words)) {
        fail_msg("\"%s\" does not say \"%s\"", actor->death->message, words);
    }
}

static int64_t used(const char *resource) {
    trpi_resource_view found;
    for (size_t i = 0; trpi_cluster_resource_at(cluster, 0, i, &found); i++) {
        if (strcmp(found.name, resource) == 0) {
            return found.used;
        }
    }
    return 0;
}

static int set_up(void **state) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.cluster = "test";
    now_ns = 1000 * MS;
    last_request = 0;
    cluster = trpi_cluster_new(&config);
    event((trpi_cluster_event){.kind = TRPI_EVENT_TICK});
    return 0;
}

static int tear_down(void **state) {
    trpi_cluster_free(cluster);
    trpi_actions_release(&actions);
    return 0;
}

/* ---- Lives ---- */

static void an_actor_is_placed_started_and_gives_back_what_it_held(void **state) {
    node(NODE_A, 4, 2);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(2, 1, 0);
    uint64_t actor = spawned(DRIVER, &msg);
    const trpi_msg_start *start = &must_hear(NODE_A, TRPI_MSG_START)->start;
    assert_int_equal(start->actor, actor);
    assert_int_equal(start->incarnation, 1);
    assert_string_equal(start->exe, "/bin/program");
    assert_int_equal(start->devices_count, 1);
    assert_string_equal(start->devices[0].value, "0");
    assert_int_equal(used("cpu"), 20000);
    started(NODE_A, actor, 1);
    assert_int_equal(view(actor).phase, TRP_ACTOR_ALIVE);
    exited(NODE_A, actor, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_EXITED});
    assert_int_equal(view(actor).phase, TRP_ACTOR_DEAD);
    assert_int_equal(used("cpu"), 0);
    assert_int_equal(used("gpu"), 0);
}

static void subscribers_hear_of_every_death_with_its_whole_cause(void **state) {
    node(NODE_A, 4, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 0, 1);
    uint64_t actor = spawned(DRIVER, &msg);
    started(NODE_A, actor, 1);
    subscribe(DRIVER, actor);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state.phase, TRP_ACTOR_ALIVE);
    crash(NODE_A, actor, 1);
    const trpi_msg_actor_state *told = &must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state;
    assert_int_equal(told->phase, TRP_ACTOR_RESTARTING);
    assert_int_equal(told->incarnation, 2);
    assert_int_equal(told->death_count, 1);
    assert_int_equal(told->death[0].incarnation, 1);
    assert_int_equal(told->death[0].signal, 11);
    assert_string_equal(told->death[0].stderr_tail, "oops");
    assert_string_equal(told->death[0].message,
                        "actor a1 (counter) on node n1 (uuid-1), pid 1001: signal 11 (SIGSEGV); "
                        "restart 1 of 1 follows");
    started(NODE_A, actor, 2);
    crash(NODE_A, actor, 2);
    told = &must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state;
    assert_int_equal(told->phase, TRP_ACTOR_DEAD);
    assert_true(told->death[0].is_final);
    assert_non_null(strstr(told->death[0].message, "all 1 restarts of restarts_max are used up"));
}

static void what_is_told_of_an_earlier_incarnation_changes_nothing(void **state) {
    node(NODE_A, 4, 0);
    node(NODE_B, 4, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 0, -1);
    uint64_t actor = spawned(DRIVER, &msg);
    started(NODE_A, actor, 1);
    crash(NODE_A, actor, 1); /* avoids A now */
    assert_int_equal(must_hear(NODE_B, TRPI_MSG_START)->start.incarnation, 2);
    started(NODE_B, actor, 2);
    crash(NODE_A, actor, 1);
    crash(NODE_A, actor, 2); /* not where it is */
    crash(NODE_B, actor, 1);
    assert_int_equal(view(actor).phase, TRP_ACTOR_ALIVE);
    assert_int_equal(view(actor).incarnation, 2);
    started(NODE_A, actor, 1); /* a process that nobody wants */
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_END)->end.incarnation, 1);
}

static void A08_each_class_of_death_has_its_own_cause(void **state) {
    node(NODE_A, 8, 0);
    client(DRIVER, "driver", 0, 0);
    uint64_t actors[4];
    for (size_t i = 0; i < 4; i++) {
        trpi_msg msg = spawn(1, 0, -1);
        actors[i] = spawned(DRIVER, &msg);
        started(NODE_A, actors[i], 1);
    }
    kill_actor(DRIVER, actors[0], false);
    exited(NODE_A, actors[0],
           (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED, .signal = 9});
    trpi_actor_view killed = view(actors[0]);
    says(&killed, TRP_CAUSE_KILLED, "killed by driver program (job j1, pid 210)");
    exited(NODE_A, actors[1], (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_NEVER_STARTED});
    trpi_actor_view failed = view(actors[1]);
    says(&failed, TRP_CAUSE_NEVER_STARTED, "final: this is never restarted");
    exited(NODE_A, actors[2], (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_OUT_OF_MEMORY});
    trpi_actor_view large = view(actors[2]);
    says(&large, TRP_CAUSE_OUT_OF_MEMORY, "restart 1 follows");
    assert_int_not_equal(large.phase, TRP_ACTOR_DEAD);
    trpi_msg bye = {.type = TRPI_MSG_CLIENT_BYE, .client_bye = {++last_request}};
    tell(DRIVER, &bye);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_DONE)->done.request, last_request);
    exited(NODE_A, actors[3], (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_SIGNALED});
    trpi_actor_view orphan = view(actors[3]);
    says(&orphan, TRP_CAUSE_OWNER_DIED, "its owner, driver program (job j1, pid 210), is gone");
}

static void A09_a_node_that_dies_during_a_constructor_costs_one_restart(void **state) {
    node(NODE_A, 2, 0);
    uint64_t second = node(NODE_B, 1, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 0, 3);
    uint64_t actor = spawned(DRIVER, &msg);
    (void)must_hear(NODE_A, TRPI_MSG_START);
    event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    assert_int_equal(must_hear(NODE_B, TRPI_MSG_START)->start.restarts, 1);
    trpi_actor_view moved = view(actor);
    assert_int_equal(moved.node, second);
    assert_int_equal(moved.restarts, 1);
    says(&moved, TRP_CAUSE_NODE_DIED, "node n1 (uuid-1) died: its process ended");
}

static void A12_a_crash_loop_is_slowed_down(void **state) {
    node(NODE_A, 2, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 0, -1);
    uint64_t actor = spawned(DRIVER, &msg), starts = 0;
    uint64_t end = now_ns + 60000 * MS;
    while (now_ns < end) {
        trpi_actor_view of = view(actor);
        if (of.phase != TRP_ACTOR_DEAD && used("cpu")) {
            crash(NODE_A, actor, of.incarnation);
            starts++;
        }
        trpi_msg beat = {.type = TRPI_MSG_HEARTBEAT, .heartbeat = {.node = 1, .incarnation = 1}};
        tell(BEAT, &beat);
        beat.heartbeat = (trpi_msg_heartbeat){.client = 1};
        tell(DRIVER, &beat);
        pass(50);
    }
    assert_in_range(starts, 8, 20); /* 0, 0.1, 0.2, ... 10, 10, 10 s */
    assert_int_equal(view(actor).restarts, starts);
}

static void a_kill_is_answered_when_the_process_is_gone_and_not_before(void **state) {
    node(NODE_A, 2, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 0, 0);
    uint64_t actor = spawned(DRIVER, &msg);
    started(NODE_A, actor, 1);
    kill_actor(DRIVER, actor, false);
    assert_null(heard(DRIVER, TRPI_MSG_DONE));
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_END)->end.cause, TRP_CAUSE_KILLED);
    assert_int_equal(used("cpu"), 10000);
    pass(2200); /* END may be lost: it is said again */
    now_ns += MS;
    exited(NODE_A, actor, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_DONE)->done.request, last_request);
    assert_int_equal(used("cpu"), 0);
}

static void end_is_said_again_until_it_is_answered(void **state) {
    node(NODE_A, 2, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 0, 0);
    uint64_t actor = spawned(DRIVER, &msg), ends = 0;
    kill_actor(DRIVER, actor, false);
    for (int i = 0; i < 80; i++) {
        pass(50);
        ends += heard(NODE_A, TRPI_MSG_END) != NULL;
    }
    assert_in_range(ends, 1, 3);
}

static void A19_a_kill_of_a_waiting_actor_takes_its_demand_away(void **state) {
    node(NODE_A, 2, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 3, 2);
    uint64_t actor = spawned(DRIVER, &msg), ticket = 0;
    trpi_demand_view demand;
    assert_true(trpi_cluster_next_demand(cluster, false, &ticket, &demand));
    assert_true(demand.infeasible);
    assert_string_equal(demand.why, "needs 3 gpu; the most any node has is 0");
    for (int64_t restarts = 1; restarts <= 2; restarts++) { /* allowed: it waits on */
        kill_actor(DRIVER, actor, true);
        assert_int_equal(must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
        assert_int_equal(view(actor).restarts, restarts);
        assert_int_equal(view(actor).phase, TRP_ACTOR_PENDING);
        pass(200);
    }
    ticket = 0;
    assert_true(trpi_cluster_next_demand(cluster, false, &ticket, &demand));
    kill_actor(DRIVER, actor, true); /* used up */
    assert_int_equal(view(actor).phase, TRP_ACTOR_DEAD);
    ticket = 0;
    assert_false(trpi_cluster_next_demand(cluster, false, &ticket, &demand));
}

static void waiting_actors_start_in_order_when_room_comes(void **state) {
    client(DRIVER, "driver", 0, 0);
    for (int i = 0; i < 3; i++) {
        trpi_msg msg = spawn(1, 0, 0);
        assert_int_equal(spawned(DRIVER, &msg), i + 1);
    }
    node(NODE_A, 1, 0);
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_START)->start.actor, 1);
    exited(NODE_A, 1, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_FINISHED});
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_START)->start.actor, 2);
    exited(NODE_A, 2, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_FINISHED});
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_START)->start.actor, 3);
}

/* ---- Owners and names ---- */

static void A15_what_a_driver_owns_ends_with_it_and_the_detached_lives(void **state) {
    node(NODE_A, 8, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg plain = spawn(1, 0, -1), detached = spawn(1, 0, -1);
    detached.spawn.detached = true;
    uint64_t parent = spawned(DRIVER, &plain), free_one = spawned(DRIVER, &detached);
    started(NODE_A, parent, 1);
    started(NODE_A, free_one, 1);
    client(OTHER, "worker", parent, 1);
    trpi_msg child_msg = spawn(1, 0, -1);
    uint64_t child = spawned(OTHER, &child_msg);
    started(NODE_A, child, 1);
    event((trpi_cluster_event){
        .kind = TRPI_EVENT_CLIENT_GONE, .id = 1, .reason = "its process ended"});
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_END)->end.actor, parent);
    exited(NODE_A, parent, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_END)->end.actor, child);
    exited(NODE_A, child, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    trpi_actor_view gone = view(child);
    says(&gone, TRP_CAUSE_OWNER_DIED, "its owner, actor a1 (incarnation 1, pid 211), is gone");
    assert_int_equal(view(free_one).phase, TRP_ACTOR_ALIVE);
    assert_int_equal(used("cpu"), 10000);
}

static void A11_children_of_an_incarnation_do_not_outlive_it(void **state) {
    node(NODE_A, 8, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 0, -1);
    uint64_t parent = spawned(DRIVER, &msg);
    started(NODE_A, parent, 1);
    client(OTHER, "worker", parent, 1);
    msg = spawn(1, 0, 0);
    uint64_t child = spawned(OTHER, &msg);
    started(NODE_A, child, 1);
    crash(NODE_A, parent, 1);
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_END)->end.actor, child);
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_START)->start.actor, parent);
    trpi_msg stale = spawn(1, 0, 0); /* of the dead incarnation's client, still under way */
    tell(OTHER, &stale);
    assert_int_equal(must_hear(OTHER, TRPI_MSG_DONE)->done.code, TRP_EDISCONNECTED);
}

static void A18_a_name_is_one_actor_for_all_who_ask(void **state) {
    node(NODE_A, 8, 0);
    client(DRIVER, "driver", 0, 0);
    client(OTHER, "driver", 0, 0); /* of the same namespace */
    trpi_msg msg = spawn(1, 0, 0);
    msg.spawn.name = "one";
    uint64_t first = spawned(DRIVER, &msg);
    refused(OTHER, &msg, TRP_EEXISTS, "name \"one\" is held by actor a1 of type counter");
    msg.spawn.get_if_exists = true;
    assert_int_equal(spawned(OTHER, &msg), first);
    kill_actor(DRIVER, first, false); /* on its way out: the name is free at once */
    assert_int_not_equal(spawned(OTHER, &msg), first);
    trpi_msg lookup = {.type = TRPI_MSG_LOOKUP, .lookup = {++last_request, "two"}};
    tell(DRIVER, &lookup);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_SPAWNED)->spawned.code, TRP_ENOTFOUND);
}

static void a_silent_driver_is_gone_and_a_silent_node_too(void **state) {
    node(NODE_A, 8, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 0, 0);
    msg.spawn.detached = true;
    uint64_t actor = spawned(DRIVER, &msg);
    pass(5200);
    trpi_actor_view dead = view(actor);
    says(&dead, TRP_CAUSE_NODE_DIED, "silent for 5.0 s (NODE_TIMEOUT_MS is 5.0 s)");
    trpi_msg beat = {.type = TRPI_MSG_HEARTBEAT, .heartbeat = {.node = 1, .incarnation = 1}};
    tell(BEAT, &beat);
    assert_false(must_hear(BEAT, TRPI_MSG_HEARTBEAT_ACK)->heartbeat_ack.known);
    pass(5200);
    assert_false(trpi_cluster_knows(cluster, DRIVER));
    assert_false(trpi_cluster_knows(cluster, NODE_A));
}

static void after_a_stall_of_the_head_nobody_is_dead_at_once(void **state) {
    node(NODE_A, 8, 0);
    client(DRIVER, "driver", 0, 0);
    now_ns += 60000 * MS;
    event((trpi_cluster_event){.kind = TRPI_EVENT_TICK});
    assert_true(trpi_cluster_knows(cluster, NODE_A));
    assert_true(trpi_cluster_knows(cluster, DRIVER));
    assert_int_equal(trpi_cluster_get_counts(cluster).tilts, 1);
    pass(5200);
    assert_false(trpi_cluster_knows(cluster, NODE_A));
}

/* ---- Requests that cannot be ---- */

static void A25_requests_without_sense_are_refused_with_the_reason(void **state) {
    node(NODE_A, 4, 2);
    client(DRIVER, "driver", 0, 0);
    trpi_resource bad = {"gpu", 15000};
    trpi_msg msg = spawn(1, 0, 0);
    msg.spawn.resources = &bad;
    msg.spawn.resources_count = 1;
    refused(DRIVER, &msg, TRP_EINVALID,
            "spawn counter: 1.5 gpu: above 1 it must be a whole number");
    msg = spawn(1, 0, -2);
    refused(DRIVER, &msg, TRP_EINVALID, "restarts_max -2");
    msg = spawn(1, 3, 0);
    msg.spawn.fail_if_infeasible = true;
    refused(DRIVER, &msg, TRP_EINFEASIBLE, "needs 3 gpu; the most any node has is 2");
    msg = spawn(1, 0, 0);
    msg.spawn.group = 9;
    refused(DRIVER, &msg, TRP_ENOTFOUND, "placement group g9 does not exist");
}

static void A27_affinity_to_a_dead_node_fails_at_once_and_to_a_busy_one_waits(void **state) {
    node(NODE_A, 1, 0);
    client(DRIVER, "driver", 0, 0);
    trpi_msg msg = spawn(1, 0, -1), second = spawn(1, 0, -1);
    msg.spawn.node = second.spawn.node = 1;
    uint64_t holder = spawned(DRIVER, &msg), waiter = spawned(DRIVER, &second);
    node(NODE_B, 4, 0);
    assert_int_equal(view(waiter).phase, TRP_ACTOR_PENDING);
    assert_string_equal(view(waiter).waiting_for, "busy: needs 1 cpu; free there is 0");
    event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    trpi_actor_view one = view(holder), two = view(waiter);
    says(&one, TRP_CAUSE_UNSCHEDULABLE, "it may run on node n1 (uuid-1) only, which is dead");
    says(&two, TRP_CAUSE_UNSCHEDULABLE, "it may run on node n1 (uuid-1) only, which is dead");
    refused(DRIVER, &msg, TRP_EINFEASIBLE, "node n1 (uuid-1) is dead: its process ended");
    msg.spawn.node = 77;
    refused(DRIVER, &msg, TRP_EINFEASIBLE, "there is no node n77");
}

static void strangers_are_told_that_they_are(void **state) {
    trpi_msg msg = spawn(1, 0, 0);
    tell(THIRD, &msg);
    assert_int_equal(must_hear(THIRD, TRPI_MSG_DONE)->done.code, TRP_EDISCONNECTED);
    assert_int_equal(must_hear(THIRD, TRPI_MSG_DONE)->done.request, msg.spawn.request);
    trpi_msg hello = {.type = TRPI_MSG_CLIENT_HELLO,
                      .client_hello = {.version = "9.9",
                                       .kind = "driver",
                                       .host_id = "",
                                       .job = "",
                                       .namespace_name = "",
                                       .exe = "",
                                       .cwd = ""}};
    tell(THIRD, &hello);
    assert_int_equal(must_hear(THIRD, TRPI_MSG_DONE)->done.code, TRP_EPROTOCOL);
    assert_false(trpi_cluster_knows(cluster, THIRD));
}

/* ---- Groups ---- */

static const trpi_msg_group_state *group(uint64_t peer, trp_strategy strategy, size_t count,
                                         int64_t cpus) {
    static trpi_resource resource;
    static trpi_bundle bundles[8];
    resource = (trpi_resource){"cpu", cpus * 10000};
    for (size_t i = 0; i < count; i++) {
        bundles[i] = (trpi_bundle){&resource, 1};
    }
    trpi_msg msg = {.type = TRPI_MSG_GROUP_CREATE,
                    .group_create = {++last_request, "", strategy, bundles, count, false}};
    tell(peer, &msg);
    return &must_hear(peer, TRPI_MSG_GROUP_STATE)->group_state;
}

static trpi_msg spawn_in(uint64_t of, int64_t bundle, int64_t cpus, int64_t restarts_max) {
    trpi_msg msg = spawn(cpus, 0, restarts_max);
    msg.spawn.group = of;
    msg.spawn.bundle = bundle;
    return msg;
}

static void A28_of_two_groups_one_has_all_and_the_other_nothing(void **state) {
    node(NODE_A, 2, 0);
    node(NODE_B, 2, 0);
    client(DRIVER, "driver", 0, 0);
    assert_true(group(DRIVER, TRP_STRICT_SPREAD, 2, 2)->placed);
    const trpi_msg_group_state *second = group(DRIVER, TRP_STRICT_SPREAD, 2, 2);
    assert_false(second->placed);
    assert_string_equal(second->message,
                        "busy: bundle 0 of 2 needs 2 cpu; the most free on any node is 0");
    assert_int_equal(used("cpu"), 40000);
    trpi_msg remove = {.type = TRPI_MSG_GROUP_REMOVE, .group_remove = {++last_request, 1}};
    tell(DRIVER, &remove);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
    const trpi_msg_group_state *now = &must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state;
    assert_int_equal(now->group, 2);
    assert_true(now->placed);
}

static void A28_a_thousand_groups_start_one_by_one_as_nodes_join(void **state) {
    client(DRIVER, "driver", 0, 0);
    for (uint64_t i = 1; i <= 1000; i++) {
        trpi_resource resource = {"cpu", 10000};
        trpi_bundle bundle = {&resource, 1};
        trpi_msg msg = {.type = TRPI_MSG_GROUP_CREATE,
                        .group_create = {++last_request, "", TRP_PACK, &bundle, 1, false}};
        trpi_cluster_event quick = {
            .kind = TRPI_EVENT_MESSAGE, .now_ns = now_ns, .peer = DRIVER, .msg = &msg};
        trpi_cluster_step(cluster, &quick, &actions);
    }
    for (uint64_t i = 1; i <= 10; i++) {
        node(1000 + i, 1, 0);
        const trpi_msg_group_state *now = &must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state;
        assert_int_equal(now->group, i);
        assert_true(now->placed);
    }
}

static void actors_take_from_their_bundle_and_wait_for_it(void **state) {
    node(NODE_A, 4, 0);
    client(DRIVER, "driver", 0, 0);
    uint64_t id = group(DRIVER, TRP_PACK, 2, 1)->group;
    trpi_msg msg = spawn_in(id, 0, 1, 0);
    uint64_t first = spawned(DRIVER, &msg);
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_START)->start.actor, first);
    msg = spawn_in(id, 0, 1, 0);
    uint64_t second = spawned(DRIVER, &msg);
    assert_null(heard(NODE_A, TRPI_MSG_START));
    assert_string_equal(view(second).waiting_for, "busy: bundle 0 of group g1 has not 1 cpu free");
    msg = spawn_in(id, -1, 1, 0);
    (void)spawned(DRIVER, &msg);
    (void)must_hear(NODE_A, TRPI_MSG_START); /* in bundle 1 */
    msg = spawn_in(id, 1, 2, 0);
    refused(DRIVER, &msg, TRP_EINVALID, "2 cpu is more than that bundle of group g1 has");
    msg = spawn_in(id, 2, 1, 0);
    refused(DRIVER, &msg, TRP_EINVALID, "group g1 has bundles 0 to 1");
    assert_int_equal(used("cpu"), 20000);
    exited(NODE_A, first, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_FINISHED});
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_START)->start.actor, second);
}

static void A30_the_surviving_bundle_is_untouched_and_the_lost_one_comes_back(void **state) {
    node(NODE_A, 1, 0);
    node(NODE_B, 1, 0);
    client(DRIVER, "driver", 0, 0);
    const trpi_msg_group_state *placed = group(DRIVER, TRP_STRICT_SPREAD, 2, 1);
    uint64_t id = placed->group, survivor = placed->nodes[0].node == 1 ? 0 : 1;
    trpi_msg msg = spawn_in(id, (int64_t)survivor, 1, 0);
    uint64_t stays = spawned(DRIVER, &msg);
    started(NODE_A, stays, 1);
    msg = spawn_in(id, 1 - (int64_t)survivor, 1, 1);
    uint64_t moves = spawned(DRIVER, &msg);
    started(NODE_B, moves, 1);
    event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 2, .incarnation = 1, .reason = "its process ended"});
    assert_false(must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.placed);
    assert_int_equal(view(stays).phase, TRP_ACTOR_ALIVE);
    assert_int_equal(view(moves).phase, TRP_ACTOR_RESTARTING);
    node(NODE_C, 1, 0);
    assert_true(must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.placed);
    assert_int_equal(must_hear(NODE_C, TRPI_MSG_START)->start.actor, moves);
}

static void a_removed_group_takes_its_actors_with_it(void **state) {
    node(NODE_A, 4, 0);
    client(DRIVER, "driver", 0, 0);
    uint64_t id = group(DRIVER, TRP_PACK, 1, 1)->group;
    trpi_msg msg = spawn_in(id, 0, 1, -1);
    uint64_t runs = spawned(DRIVER, &msg);
    msg = spawn_in(id, 0, 1, -1);
    uint64_t waits = spawned(DRIVER, &msg);
    trpi_msg remove = {.type = TRPI_MSG_GROUP_REMOVE, .group_remove = {++last_request, id}};
    tell(DRIVER, &remove);
    assert_null(heard(DRIVER, TRPI_MSG_DONE));
    trpi_actor_view gone = view(waits);
    says(&gone, TRP_CAUSE_GROUP_REMOVED, "placement group g1 was removed by driver program");
    exited(NODE_A, runs, (trpi_death){.incarnation = 1, .cause = TRP_CAUSE_KILLED});
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_DONE)->done.request, last_request);
    assert_int_equal(used("cpu"), 0);
}

/* ---- Nodes that come back ---- */

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
    tell(peer, &msg);
}

static void a_node_that_says_hello_again_keeps_its_actors(void **state) {
    client(DRIVER, "driver", 0, 0);
    hello_again(NODE_A, 1, 1, NULL, 0);
    trpi_msg msg = spawn(1, 0, 0);
    uint64_t actor = spawned(DRIVER, &msg);
    started(NODE_A, actor, 1);
    trpi_holding held[] = {{actor, 1, 1001, "ipc"}, {99, 3, 1002, "ipc"}};
    hello_again(NODE_A, 2, 1, held, 2);
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_NODE_WELCOME)->node_welcome.incarnation, 1);
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_END)->end.actor, 99);
    assert_int_equal(view(actor).phase, TRP_ACTOR_ALIVE);
    hello_again(NODE_A, 3, 1, NULL, 0); /* and now it is gone, and nobody said so */
    trpi_actor_view lost = view(actor);
    says(&lost, TRP_CAUSE_NODE_DIED, "the node does not hold it any more");
}

static void a_node_that_begins_anew_is_a_new_incarnation_of_it(void **state) {
    client(DRIVER, "driver", 0, 0);
    hello_again(NODE_A, 1, 1, NULL, 0);
    trpi_msg msg = spawn(1, 0, 1);
    uint64_t actor = spawned(DRIVER, &msg);
    hello_again(NODE_B, 5, 2, NULL, 0);
    assert_int_equal(must_hear(NODE_B, TRPI_MSG_NODE_WELCOME)->node_welcome.incarnation, 2);
    assert_int_equal(must_hear(NODE_B, TRPI_MSG_START)->start.incarnation, 2);
    assert_int_equal(view(actor).restarts, 1);
    hello_again(NODE_A, 4, 1, NULL, 0); /* late, from the connection that it has left */
    assert_int_equal(actions.count, 0);
    assert_true(trpi_cluster_knows(cluster, NODE_B));
}

/* ---- The small things ---- */

static trp_code put(const char *key, trp_bytes value, bool erase) {
    trpi_msg msg = {.type = TRPI_MSG_KV_PUT, .kv_put = {++last_request, key, erase, value}};
    tell(DRIVER, &msg);
    return (trp_code)must_hear(DRIVER, TRPI_MSG_DONE)->done.code;
}

static void values_are_kept_erased_and_bounded(void **state) {
    client(DRIVER, "driver", 0, 0);
    static char large[(1 << 20) + 1];
    trp_bytes value = {"hello", 5}, found;
    assert_int_equal(put("run/a", value, false), TRP_OK);
    assert_int_equal(put("", value, false), TRP_EINVALID);
    assert_int_equal(put("k", (trp_bytes){large, sizeof(large)}, false), TRP_EINVALID);
    trpi_msg get = {.type = TRPI_MSG_KV_GET, .kv_get = {++last_request, "run/a"}};
    tell(DRIVER, &get);
    const trpi_msg_kv_value *got = &must_hear(DRIVER, TRPI_MSG_KV_VALUE)->kv_value;
    assert_int_equal(got->code, TRP_OK);
    assert_memory_equal(got->value.data, "hello", 5);
    assert_string_equal(trpi_cluster_kv_next(cluster, "run/", false, &found), "run/a");
    assert_null(trpi_cluster_kv_next(cluster, "run/a", true, &found));
    assert_int_equal(put("run/a", (trp_bytes){0}, true), TRP_OK);
    tell(DRIVER, &get);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_KV_VALUE)->kv_value.code, TRP_ENOTFOUND);
    assert_int_equal(trpi_cluster_get_counts(cluster).kv_bytes, 0);
    for (size_t i = 0; i < 64; i++) {
        char key[16];
        trpi_format(key, sizeof(key), "k%zu", i);
        trp_code code = put(key, (trp_bytes){large, 1 << 20}, false);
        assert_int_equal(code, i < 63 ? TRP_OK : TRP_EBUSY);
    }
}

static void output_finds_its_driver_and_its_reader(void **state) {
    node(NODE_A, 2, 0);
    trpi_msg hello = {.type = TRPI_MSG_CLIENT_HELLO,
                      .client_hello = {.version = TROUPE_VERSION,
                                       .kind = "driver",
                                       .host_id = "there",
                                       .job = "p",
                                       .namespace_name = "",
                                       .exe = "",
                                       .cwd = "",
                                       .wants_logs = true}};
    tell(DRIVER, &hello);
    trpi_msg lines = {.type = TRPI_MSG_LOG_LINES,
                      .log_lines = {.job = 1, .label = "x", .text = {"line\n", 5}}};
    tell(NODE_A, &lines);
    assert_memory_equal(must_hear(DRIVER, TRPI_MSG_LOG_LINES)->log_lines.text.data, "line\n", 5);
    trpi_msg query = {.type = TRPI_MSG_LOGS_QUERY,
                      .logs_query = {.request = ++last_request, .actor = 7, .stream = ""}};
    tell(DRIVER, &query);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_LOGS_DATA)->logs_data.code, TRP_ENOTFOUND);
    trpi_msg msg = spawn(1, 0, 0);
    query.logs_query.actor = spawned(DRIVER, &msg);
    tell(DRIVER, &query);
    uint64_t asker = must_hear(NODE_A, TRPI_MSG_LOGS_QUERY)->logs_query.client;
    trpi_msg data = {.type = TRPI_MSG_LOGS_DATA,
                     .logs_data = {.request = last_request, .client = asker, .message = ""}};
    tell(NODE_A, &data);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_LOGS_DATA)->logs_data.request, last_request);
}

static void a_driver_is_watched_by_a_node_of_its_host_and_by_the_next_when_that_dies(void **state) {
    client(DRIVER, "driver", 0, 0);
    node(NODE_A, 1, 0);
    assert_int_equal(must_hear(NODE_A, TRPI_MSG_WATCH_PID)->watch_pid.pid, 200 + DRIVER);
    node(NODE_B, 1, 0);
    assert_null(heard(NODE_B, TRPI_MSG_WATCH_PID));
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {1, "SIGTERM"}};
    tell(NODE_A, &bye);
    assert_int_equal(must_hear(NODE_B, TRPI_MSG_WATCH_PID)->watch_pid.client, 1);
    trpi_msg gone = {.type = TRPI_MSG_PID_GONE, .pid_gone = {1}};
    tell(NODE_B, &gone);
    assert_false(trpi_cluster_knows(cluster, DRIVER));
}

static void a_shutdown_ends_when_the_last_node_has_said_goodbye(void **state) {
    node(NODE_A, 1, 0);
    client(DRIVER, "tool", 0, 0);
    trpi_msg msg = {.type = TRPI_MSG_HEAD_SHUTDOWN, .head_shutdown = {++last_request, "another"}};
    tell(DRIVER, &msg);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_EINVALID);
    msg.head_shutdown.cluster = "test";
    tell(DRIVER, &msg);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_DONE)->done.code, TRP_OK);
    (void)must_hear(NODE_A, TRPI_MSG_NODE_SHUTDOWN);
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {1, "shutdown"}};
    tell(NODE_A, &bye);
    assert_int_equal(actions.items[actions.count - 1].kind, TRPI_ACTION_STOPPED);
}

static void only_so_many_of_the_dead_are_kept(void **state) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.dead_actors_kept = 3;
    config.dead_tails_kept = 1;
    trpi_cluster_free(cluster);
    cluster = trpi_cluster_new(&config);
    node(NODE_A, 1, 0);
    client(DRIVER, "driver", 0, 0);
    for (uint64_t i = 1; i <= 5; i++) {
        trpi_msg msg = spawn(1, 0, 0);
        assert_int_equal(spawned(DRIVER, &msg), i);
        crash(NODE_A, i, 1);
    }
    trpi_actor_view found;
    assert_false(trpi_cluster_actor(cluster, 2, &found));
    assert_string_equal(view(4).death->stderr_tail, "");
    assert_string_equal(view(5).death->stderr_tail, "oops");
    subscribe(DRIVER, 2);
    assert_int_equal(must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state.phase,
                     TRPI_PHASE_UNKNOWN);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_actor_is_placed_started_and_gives_back_what_it_held),
        TEST(subscribers_hear_of_every_death_with_its_whole_cause),
        TEST(what_is_told_of_an_earlier_incarnation_changes_nothing),
        TEST(A08_each_class_of_death_has_its_own_cause),
        TEST(A09_a_node_that_dies_during_a_constructor_costs_one_restart),
        TEST(A12_a_crash_loop_is_slowed_down),
        TEST(a_kill_is_answered_when_the_process_is_gone_and_not_before),
        TEST(end_is_said_again_until_it_is_answered),
        TEST(A19_a_kill_of_a_waiting_actor_takes_its_demand_away),
        TEST(waiting_actors_start_in_order_when_room_comes),
        TEST(A15_what_a_driver_owns_ends_with_it_and_the_detached_lives),
        TEST(A11_children_of_an_incarnation_do_not_outlive_it),
        TEST(A18_a_name_is_one_actor_for_all_who_ask),
        TEST(a_silent_driver_is_gone_and_a_silent_node_too),
        TEST(after_a_stall_of_the_head_nobody_is_dead_at_once),
        TEST(A25_requests_without_sense_are_refused_with_the_reason),
        TEST(A27_affinity_to_a_dead_node_fails_at_once_and_to_a_busy_one_waits),
        TEST(strangers_are_told_that_they_are),
        TEST(A28_of_two_groups_one_has_all_and_the_other_nothing),
        TEST(A28_a_thousand_groups_start_one_by_one_as_nodes_join),
        TEST(actors_take_from_their_bundle_and_wait_for_it),
        TEST(A30_the_surviving_bundle_is_untouched_and_the_lost_one_comes_back),
        TEST(a_removed_group_takes_its_actors_with_it),
        TEST(a_node_that_says_hello_again_keeps_its_actors),
        TEST(a_node_that_begins_anew_is_a_new_incarnation_of_it),
        TEST(values_are_kept_erased_and_bounded),
        TEST(output_finds_its_driver_and_its_reader),
        TEST(a_driver_is_watched_by_a_node_of_its_host_and_by_the_next_when_that_dies),
        TEST(a_shutdown_ends_when_the_last_node_has_said_goodbye),
        TEST(only_so_many_of_the_dead_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

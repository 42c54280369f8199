/* Where actors start and with what: labels, affinity, spreading, environments, saved states,
 * leases; and what object stores are told. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static void labeled_node(uint64_t peer, int64_t cpus, const char *label) {
    char uuid[16];
    trpi_resource resources[] = {{"cpu", cpus * 10000}};
    trpi_text labels[] = {{label}};
    trpi_format(uuid, sizeof(uuid), "uuid-%" PRIu64, peer);
    trpi_msg msg = {.type = TRPI_MSG_NODE_HELLO,
                    .node_hello = {.version = TROUPE_VERSION,
                                   .uuid = uuid,
                                   .host_id = "here",
                                   .name = uuid,
                                   .resources = resources,
                                   .resources_count = 1,
                                   .labels = labels,
                                   .labels_count = 1,
                                   .store_path = "/run/store",
                                   .store_endpoint = "tcp://x"}};
    machine_tell(peer, &msg);
    (void)machine_must_hear(peer, TRPI_MSG_NODE_WELCOME);
}

static trpi_msg labeled(const char *rule, int64_t cpus) {
    static trpi_text labels[1];
    labels[0].value = rule;
    trpi_msg msg = machine_spawn(cpus, 0, 0);
    msg.spawn.labels = labels;
    msg.spawn.labels_count = 1;
    return msg;
}

static void A27_labels_choose_the_node_and_tell_what_is_missing(void **state) {
    labeled_node(NODE_A, 4, "zone=a");
    labeled_node(NODE_B, 8, "zone=b");
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = labeled("zone=b", 1);
    (void)machine_spawned(DRIVER, &msg);
    (void)machine_must_hear(NODE_B, TRPI_MSG_START);
    msg = labeled("zone!=b", 8);
    uint64_t large = machine_spawned(DRIVER, &msg);
    assert_string_equal(machine_view(large).waiting_for,
                        "infeasible: needs 8 cpu; the most any node with zone!=b has is 4");
    msg = labeled("ssd", 1);
    uint64_t lost = machine_spawned(DRIVER, &msg);
    assert_string_equal(machine_view(lost).waiting_for,
                        "infeasible: needs a node with label ssd; no node has it");
    assert_string_equal(machine_view(lost).labels, "ssd");
    msg = labeled("zone=b", 8);
    uint64_t busy = machine_spawned(DRIVER, &msg);
    assert_string_equal(machine_view(busy).waiting_for,
                        "busy: needs 8 cpu; the most free on any node with zone=b is 7");
    msg = labeled("ssd", 1);
    msg.spawn.fail_if_infeasible = true;
    machine_refused(DRIVER, &msg, TRP_EINFEASIBLE, "no node has it");
    msg = labeled("a b", 1);
    machine_refused(DRIVER, &msg, TRP_EINVALID, "label \"a b\"");
    labeled_node(NODE_C, 1, "ssd");
    assert_int_equal(machine_must_hear(NODE_C, TRPI_MSG_START)->start.actor, lost);
    trpi_demand_view demand;
    uint64_t ticket = 0;
    assert_true(trpi_cluster_next_demand(machine.cluster, false, &ticket, &demand));
    assert_string_equal(demand.labels, "zone!=b");
}

static void A27_soft_affinity_moves_when_its_node_is_busy_or_dead(void **state) {
    machine_node(NODE_A, 1, 0);
    machine_node(NODE_B, 4, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 1);
    msg.spawn.node = 1;
    msg.spawn.node_soft = true;
    uint64_t first = machine_spawned(DRIVER, &msg);
    (void)machine_must_hear(NODE_A, TRPI_MSG_START);
    msg.spawn.request = ++machine.last_request;
    (void)machine_spawned(DRIVER, &msg);
    (void)machine_must_hear(NODE_B, TRPI_MSG_START);
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    assert_int_equal(machine_must_hear(NODE_B, TRPI_MSG_START)->start.actor, first);
}

static void what_is_to_be_spread_goes_where_the_fewest_of_its_job_are(void **state) {
    static const uint64_t order[] = {NODE_A, NODE_B, NODE_C, NODE_A, NODE_B, NODE_C};
    for (uint64_t peer = NODE_A; peer <= NODE_C; peer++) {
        machine_node(peer, 8, 0);
    }
    machine_client(DRIVER, "driver", 0, 0);
    machine_client(OTHER, "driver", 0, 0);
    trpi_msg packed = machine_spawn(1, 0, 0);
    (void)machine_spawned(OTHER, &packed); /* of another job: on A */
    for (size_t i = 0; i < TRPI_COUNTOF(order); i++) {
        trpi_msg msg = machine_spawn(1, 0, 0);
        msg.spawn.schedule = TRP_SCHEDULE_SPREAD;
        (void)machine_spawned(DRIVER, &msg);
        (void)machine_must_hear(order[i], TRPI_MSG_START);
    }
}

static void a_start_carries_all_that_was_asked_for(void **state) {
    trpi_text job_env[] = {{"A=job"}, {"B=job"}}, env[] = {{"B=actor"}}, retry[] = {{"KeyError"}};
    machine_node(NODE_A, 8, 0);
    trpi_msg hello = {.type = TRPI_MSG_CLIENT_HELLO,
                      .client_hello = {.version = TROUPE_VERSION,
                                       .kind = "driver",
                                       .host_id = "here",
                                       .job = "program",
                                       .exe = "/bin/program",
                                       .exe_hash = "e1",
                                       .package = "p1",
                                       .cwd = "/",
                                       .env = job_env,
                                       .env_count = 2}};
    machine_tell(DRIVER, &hello);
    trpi_msg msg = machine_spawn(1, 0, 5);
    msg.spawn.env = env;
    msg.spawn.env_count = 1;
    msg.spawn.retry_on = retry;
    msg.spawn.retry_on_count = 1;
    msg.spawn.max_concurrency = 4;
    msg.spawn.max_pending_calls = 9;
    msg.spawn.liveness_ms = 700;
    msg.spawn.exclusive = msg.spawn.save_each_call = true;
    uint64_t actor = machine_spawned(DRIVER, &msg);
    const trpi_msg_start *start = &machine_must_hear(NODE_A, TRPI_MSG_START)->start;
    assert_int_equal(start->env_count, 2);
    assert_string_equal(start->env[0].value, "A=job");
    assert_string_equal(start->env[1].value, "B=actor");
    assert_string_equal(start->exe_hash, "e1");
    assert_string_equal(start->package, "p1");
    assert_int_equal(start->max_concurrency, 4);
    assert_int_equal(start->liveness_ms, 700);
    assert_int_equal(start->restartable, 5);
    assert_true(start->exclusive && start->save_each_call && !start->has_saved);
    machine_subscribe(DRIVER, actor);
    const trpi_msg_actor_state *told =
        &machine_must_hear(DRIVER, TRPI_MSG_ACTOR_STATE)->actor_state;
    assert_int_equal(told->max_pending_calls, 9);
    assert_string_equal(told->retry_on[0].value, "KeyError");
    msg.spawn.cwd = "/elsewhere";
    (void)machine_spawned(DRIVER, &msg);
    start = &machine_must_hear(NODE_A, TRPI_MSG_START)->start;
    assert_string_equal(start->cwd, "/elsewhere");
    assert_string_equal(start->package, ""); /* which that directory is not of */
}

static void requests_out_of_range_are_refused(void **state) {
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_text bad[] = {{"=x"}};
    trpi_msg msg = machine_spawn(1, 0, 5000);
    msg.spawn.restart_window_ms = 1000;
    machine_refused(DRIVER, &msg, TRP_EINVALID, "with restart_window_ms: at most 1000");
    msg = machine_spawn(1, 0, 0);
    msg.spawn.max_concurrency = 1025;
    machine_refused(DRIVER, &msg, TRP_EINVALID, "max_concurrency 1025: at most 1024");
    msg = machine_spawn(1, 0, 0);
    msg.spawn.cwd = "relative";
    machine_refused(DRIVER, &msg, TRP_EINVALID, "not an absolute path");
    msg = machine_spawn(1, 0, 0);
    msg.spawn.env = bad;
    msg.spawn.env_count = 1;
    machine_refused(DRIVER, &msg, TRP_EINVALID, "\"=x\" is not KEY=value");
    msg = machine_spawn(1, 0, 0);
    msg.spawn.gang = 4;
    machine_refused(DRIVER, &msg, TRP_ENOTFOUND, "gang x4 does not exist");
}

/* ---- Saved states ---- */

static const trpi_msg_saved *save(uint64_t actor, uint64_t incarnation, trp_bytes bytes) {
    trpi_msg msg = {.type = TRPI_MSG_SAVE,
                    .save = {actor, incarnation, ++machine.last_request, bytes}};
    machine_tell(NODE_A, &msg);
    const trpi_msg_saved *answer = &machine_must_hear(NODE_A, TRPI_MSG_SAVED)->saved;
    assert_int_equal(answer->request, machine.last_request);
    return answer;
}

static void the_next_incarnation_gets_what_the_living_one_saved_last(void **state) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.saved_bytes_max = 5;
    trpi_cluster_free(machine.cluster);
    machine.cluster = trpi_cluster_new(&config);
    machine_node(NODE_A, 8, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, -1);
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, actor, 1);
    assert_int_equal(save(actor, 1, (trp_bytes){"one", 3})->code, TRP_OK);
    assert_int_equal(save(actor, 1, (trp_bytes){"two22", 5})->code, TRP_OK);
    assert_int_equal(save(actor, 1, (trp_bytes){"three!", 6})->code, TRP_EBUSY);
    assert_int_equal(machine_view(actor).saved_bytes, 5);
    machine_crash(NODE_A, actor, 1);
    const trpi_msg_start *start = &machine_must_hear(NODE_A, TRPI_MSG_START)->start;
    assert_true(start->has_saved);
    assert_memory_equal(start->saved.data, "two22", 5);
    assert_int_equal(save(actor, 1, (trp_bytes){"old", 3})->code, TRP_EACTOR_DIED);
    machine_started(NODE_A, actor, 2);
    machine_exited(NODE_A, actor, (trpi_death){.incarnation = 2, .cause = TRP_CAUSE_FINISHED});
    assert_int_equal(trpi_cluster_get_counts(machine.cluster).saved_bytes, 0);
}

/* ---- Exclusive ---- */

static void an_exclusive_actor_waits_until_the_lease_of_a_lost_node_is_out(void **state) {
    machine_node(NODE_A, 1, 0);
    machine_node(NODE_B, 1, 0);
    machine_client(DRIVER, "driver", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, -1);
    msg.spawn.exclusive = true;
    uint64_t actor = machine_spawned(DRIVER, &msg);
    machine_started(NODE_A, actor, 1);
    machine.now_ns += 1000 * MS;
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 1, .incarnation = 1, .reason = "its process ended"});
    assert_null(machine_heard(NODE_B, TRPI_MSG_START));
    assert_non_null(strstr(machine_view(actor).waiting_for, "exclusive: starts in 4.3 s"));
    uint64_t waited = 0;
    for (; !machine_heard(NODE_B, TRPI_MSG_START); waited += 50) {
        trpi_msg beat = {.type = TRPI_MSG_HEARTBEAT, .heartbeat = {.node = 2, .incarnation = 1}};
        machine_tell(BEAT, &beat);
        machine_pass(50);
        assert_true(waited < 6000);
    }
    assert_in_range(waited, 4000, 4500); /* five seconds after it was heard, and a little */
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {2, "SIGTERM"}};
    machine_node(NODE_C, 1, 0);
    machine_tell(NODE_B, &bye); /* whose workers are gone */
    assert_non_null(strstr(machine_view(actor).waiting_for, "restart 2 in a row: starts in 0."));
}

/* ---- Names and stores ---- */

static void names_are_found_in_other_namespaces_and_groups_by_theirs(void **state) {
    machine_node(NODE_A, 4, 0);
    machine_client(DRIVER, "driver", 0, 0);
    machine_client(OTHER, "tool", 0, 0);
    trpi_msg msg = machine_spawn(1, 0, 0);
    msg.spawn.name = "tom";
    uint64_t actor = machine_spawned(DRIVER, &msg);
    trpi_msg lookup = {.type = TRPI_MSG_LOOKUP, .lookup = {1, "tom", "space"}};
    machine_tell(OTHER, &lookup);
    assert_int_equal(machine_must_hear(OTHER, TRPI_MSG_SPAWNED)->spawned.actor, actor);
    lookup.lookup.namespace_name = "elsewhere";
    machine_tell(OTHER, &lookup);
    assert_int_equal(machine_must_hear(OTHER, TRPI_MSG_SPAWNED)->spawned.code, TRP_ENOTFOUND);
    trpi_resource cpu = {"cpu", 10000};
    trpi_bundle bundle = {&cpu, 1};
    trpi_msg group = {.type = TRPI_MSG_GROUP_CREATE,
                      .group_create = {2, "gang", TRP_PACK, &bundle, 1, false}};
    machine_tell(DRIVER, &group);
    uint64_t id = machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.group;
    machine_tell(DRIVER, &group);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.code,
                     TRP_EEXISTS);
    trpi_msg find = {.type = TRPI_MSG_GROUP_LOOKUP, .group_lookup = {3, "gang"}};
    machine_tell(DRIVER, &find);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.group, id);
    trpi_msg remove = {.type = TRPI_MSG_GROUP_REMOVE, .group_remove = {4, id}};
    machine_tell(DRIVER, &remove);
    machine_tell(DRIVER, &find);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_GROUP_STATE)->group_state.code,
                     TRP_ENOTFOUND);
}

static const trpi_msg_store_at *ask_store(uint64_t peer, uint64_t node) {
    trpi_msg msg = {.type = TRPI_MSG_STORE_QUERY, .store_query = {++machine.last_request, node}};
    machine_tell(peer, &msg);
    return &machine_must_hear(peer, TRPI_MSG_STORE_AT)->store_at;
}

static void stores_are_found_and_told_together_who_is_gone(void **state) {
    machine_client(DRIVER, "driver", 0, 0);
    assert_int_equal(ask_store(DRIVER, 0)->code, TRP_ENOTFOUND);
    labeled_node(NODE_A, 4, "x");
    labeled_node(NODE_B, 4, "x");
    assert_int_equal(ask_store(DRIVER, 0)->node, 1);
    assert_int_equal(ask_store(NODE_B, 0)->node, 2);
    assert_string_equal(ask_store(NODE_B, 1)->endpoint, "tcp://x");
    assert_int_equal(ask_store(NODE_B, 9)->code, TRP_ENOTFOUND);
    uint64_t others[] = {machine_client(OTHER, "driver", 0, 0),
                         machine_client(THIRD, "driver", 0, 0)};
    for (uint64_t peer = OTHER; peer <= THIRD; peer++) {
        trpi_msg bye = {.type = TRPI_MSG_CLIENT_BYE, .client_bye = {++machine.last_request}};
        machine_tell(peer, &bye);
        assert_null(machine_heard(NODE_A, TRPI_MSG_CLIENT_GONE));
    }
    machine_pass(50);
    const trpi_msg_client_gone *gone =
        &machine_must_hear(NODE_A, TRPI_MSG_CLIENT_GONE)->client_gone;
    assert_int_equal(gone->clients_count, 2);
    assert_int_equal(gone->clients[1].client, others[1]);
    (void)machine_must_hear(NODE_B, TRPI_MSG_CLIENT_GONE);
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_NODE_GONE, .id = 2, .incarnation = 1, .reason = "its process ended"});
    assert_int_equal(machine_must_hear(NODE_A, TRPI_MSG_NODE_GONE)->node_gone.node, 2);
    labeled_node(NODE_B, 4, "x");
    gone = &machine_must_hear(NODE_B, TRPI_MSG_CLIENT_GONE)->client_gone;
    assert_int_equal(gone->all_but_until, others[1]);
    assert_int_equal(gone->clients_count, 1); /* who is left */
}

static void what_nodes_tell_of_themselves_is_shown(void **state) {
    machine_node(NODE_A, 4, 0);
    trpi_msg msg = {.type = TRPI_MSG_NODE_STATS,
                    .node_stats = {.memory_total = 1000, .memory_used = 10, .memory_kills = 2}};
    machine_tell(NODE_A, &msg);
    trpi_node_view node;
    uint64_t id = 0;
    assert_true(trpi_cluster_next_node(machine.cluster, &id, &node));
    assert_int_equal(node.stats->memory_used, 10);
    assert_int_equal(trpi_cluster_get_counts(machine.cluster).memory_kills, 2);
}

static void files_are_passed_to_who_keeps_them(void **state) {
    machine_node(NODE_A, 4, 0);
    trpi_msg get = {.type = TRPI_MSG_BLOB_GET, .blob_get = {1, "e1", 0, 100, 1}};
    machine_tell(NODE_A, &get);
    assert_int_equal(machine.actions.count, 1);
    assert_int_equal(machine.actions.items[0].kind, TRPI_ACTION_BLOB);
    assert_string_equal(machine.actions.items[0].msg.blob_get.hash, "e1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(A27_labels_choose_the_node_and_tell_what_is_missing),
        MACHINE_TEST(A27_soft_affinity_moves_when_its_node_is_busy_or_dead),
        MACHINE_TEST(what_is_to_be_spread_goes_where_the_fewest_of_its_job_are),
        MACHINE_TEST(a_start_carries_all_that_was_asked_for),
        MACHINE_TEST(requests_out_of_range_are_refused),
        MACHINE_TEST(the_next_incarnation_gets_what_the_living_one_saved_last),
        MACHINE_TEST(an_exclusive_actor_waits_until_the_lease_of_a_lost_node_is_out),
        MACHINE_TEST(names_are_found_in_other_namespaces_and_groups_by_theirs),
        MACHINE_TEST(stores_are_found_and_told_together_who_is_gone),
        MACHINE_TEST(what_nodes_tell_of_themselves_is_shown),
        MACHINE_TEST(files_are_passed_to_who_keeps_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

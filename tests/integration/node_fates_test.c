/* node_fates_test.c: how a node ends or goes away, as the list, its actors and their callers tell
 * it; and calls whose messages do not get through for a while. */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/actors.h"
#include "tests/lib/cluster.h"
#include "tests/lib/listing.h"

enum { WAIT_MS = 30000, HOLDS = 200, AT_ONCE = 4, HOLD_MS = 60, PARTITION_MS = 2000 };

static test_cluster cluster;
static trp_runtime *rt;

/* ---- Nodes ---- */

static json_t *node_row(uint64_t node) {
    json_t *rows = test_list(rt, "nodes"), *row = test_row(rows, "id", node);
    assert_non_null(row);
    json_incref(row);
    json_decref(rows);
    return row;
}

static pid_t pid_of_node(uint64_t node) {
    json_t *row = node_row(node);
    pid_t pid = (pid_t)test_row_number(row, "pid");
    json_decref(row);
    assert_true(pid > 1);
    return pid;
}

static bool node_is_dead(void *arg) {
    json_t *row = node_row(*(uint64_t *)arg);
    bool dead = strcmp(test_row_text(row, "state"), "dead") == 0;
    json_decref(row);
    return dead;
}

static trp_actor spawn_alive(const trp_spawn_options *options) {
    trp_actor actor = test_spawn(rt, options, NULL);
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    return actor;
}

static uint64_t node_of(trp_actor actor) {
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    return info.node;
}

/* A node of this name alone and an actor on it. */
static trp_actor spawn_on_new_node(const char *name, trp_spawn_options options) {
    char amount[32];
    trp_resource there = {name, 1};
    snprintf(amount, sizeof amount, "%s=2", name);
    test_cluster_add(&cluster, &(test_node){.cpus = 2, .resources = amount});
    options.resources = &there;
    options.resource_count = 1;
    return spawn_alive(&options);
}

/* ---- A33 ---- */

/* Ends its daemon by this signal and expects all to tell that, and this. */
static void end_node(int signal, const char *name, uint64_t within_ms, const char *says) {
    trp_actor actor = spawn_on_new_node(name, (trp_spawn_options){0});
    uint64_t node = node_of(actor);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_ref running = test_call(rt, actor, "sleep", "60000");
    pid_t pid = pid_of_node(node);
    uint64_t start_ms = test_now_ms();
    assert_int_equal(kill(pid, signal), 0);
    assert_true(test_until(node_is_dead, &node, WAIT_MS));
    uint64_t ms = test_now_ms() - start_ms;
    json_t *row = node_row(node);
    print_message("after %" PRIu64 " ms: %s\n", ms, test_row_text(row, "reason"));
    assert_true(ms < within_ms);
    assert_int_equal(json_is_true(json_object_get(row, "expected")), signal == SIGTERM);
    assert_non_null(strstr(test_row_text(row, "reason"), says));
    json_decref(row);

    trp_death death = test_wait_death(rt, actor);
    assert_int_equal(death.cause, TRP_CAUSE_NODE_DIED);
    assert_int_equal(death.node, node);
    assert_non_null(strstr(death.message, says));
    trp_error error = {0};
    trp_bytes value;
    assert_int_equal(trp_get(rt, running, WAIT_MS, &value, &error), TRP_EACTOR_DIED);
    print_message("%s\n", error.message);
    assert_non_null(strstr(error.message, says));
    assert_int_equal(error.actor, actor.id);
    trp_ref_release(rt, running);
}

static void A33_sigterm_on_a_node_is_an_expected_end(void **state) {
    end_node(SIGTERM, "asked", 2000, "expected: SIGTERM");
}

static void A33_sigkill_on_a_node_is_an_unexpected_end(void **state) {
    end_node(SIGKILL, "killed", 5000, "unexpected: its process ended"); /* NODE_TIMEOUT_MS */
}

/* ---- A34 ---- */

static void A34_a_draining_node_takes_no_actor_and_no_bundle(void **state) {
    enum { DEADLINE_MS = 3000 };
    trp_actor there = spawn_on_new_node("leaves", (trp_spawn_options){.restarts_max = 1});
    uint64_t node = node_of(there);
    trp_resource left = {"leaves", 1};
    trp_bundle bundle = {.resources = &left, .resource_count = 1};
    trp_group group;
    uint64_t start_ms = test_now_ms();
    TEST_OK(trp_monitor(rt, there, err));
    TEST_OK(trp_drain_node(rt, node, "preemption", DEADLINE_MS, err));
    /* There is room for both, but nowhere else. */
    trp_actor later =
        test_spawn(rt, &(trp_spawn_options){.resources = &left, .resource_count = 1}, NULL);
    TEST_OK(trp_group_create(rt, &(trp_group_options){.bundles = &bundle, .bundle_count = 1},
                             &group, err));
    trp_error error = {0};
    assert_int_equal(trp_actor_wait_alive(rt, later, 300, &error), TRP_ETIMEOUT);
    assert_true(trp_group_wait(rt, group, 300, NULL, 0, &error) != TRP_OK);
    print_message("%s\n", error.message);
    assert_int_equal(test_ask_number(rt, there, "add", NULL), 1); /* it stays */
    trp_death death = test_wait_death(rt, there);
    assert_true(test_now_ms() - start_ms >= DEADLINE_MS);
    assert_int_equal(death.cause, TRP_CAUSE_DRAINED);
    assert_false(death.final);
    test_cluster_add(&cluster, &(test_node){.resources = "leaves=3"});
    TEST_OK(trp_actor_wait_alive(rt, later, WAIT_MS, err));
    TEST_OK(trp_group_wait(rt, group, WAIT_MS, NULL, 0, err));
    TEST_OK(trp_actor_wait_alive(rt, there, WAIT_MS, err));
    json_t *row = test_listed_actor(rt, there);
    assert_int_equal(test_row_number(row, "restarts"), 1);
    assert_int_equal(test_row_number(row, "restarts_counted"), 0);
    json_decref(row);
    TEST_OK(trp_group_remove(rt, group, err));
    TEST_OK(trp_kill(rt, later, false, err));
    TEST_OK(trp_kill(rt, there, false, err));
}

static void kill_process_of(trp_actor actor) {
    assert_int_equal(kill((pid_t)test_ask_number(rt, actor, "pid", NULL), SIGKILL), 0);
}

static void A34_a_death_before_the_deadline_counts(void **state) {
    trp_actor actor = spawn_alive(&(trp_spawn_options){.restarts_max = 1});
    uint64_t node = node_of(actor);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_actor other = spawn_on_new_node("refuge", (trp_spawn_options){0});
    TEST_OK(trp_drain_node(rt, node, "maintenance", 600000, err));
    kill_process_of(actor);
    assert_false(test_wait_death(rt, actor).final);
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    assert_int_not_equal(node_of(actor), node);
    json_t *row = test_listed_actor(rt, actor);
    assert_int_equal(test_row_number(row, "restarts_counted"), 1);
    json_decref(row);
    kill_process_of(actor);
    assert_true(test_wait_death(rt, actor).final); /* its one restart was used up */
    TEST_OK(trp_kill(rt, other, false, err));
}

/* ---- A35 ---- */

typedef struct holder {
    _Atomic int running[HOLDS], runs[HOLDS];
} holder;

/* Takes a while, in which its caller may lose patience: no call may run beside itself, or twice. */
static trp_code holder_hold(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    holder *self = state;
    uint32_t number;
    if (args.size != sizeof number) {
        return trp_raise(err, "BadCall", "%zu bytes", args.size);
    }
    memcpy(&number, args.data, sizeof number);
    if (self->running[number]++ != 0 || self->runs[number]++ != 0) {
        return trp_raise(err, "Again", "call %u ran %d times", number, self->runs[number]);
    }
    nanosleep(&(struct timespec){.tv_nsec = HOLD_MS * 1000000}, NULL);
    self->running[number]--;
    return trp_buf_append(reply, args.data, args.size);
}

static trp_code holder_pid(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    return trp_buf_printf(reply, "%d", (int)getpid());
}

static const trp_method holder_methods[] = {
    {"hold", holder_hold, NULL}, {"pid", holder_pid, NULL}, {NULL, NULL, NULL}};
static const trp_actor_type holder_type = {
    .name = "holder", .state_size = sizeof(holder), .methods = holder_methods};
static const trp_actor_type *const types[] = {&test_subject_type, &holder_type, NULL};

/* Its node's daemon and then its worker stand still, while a fifth of all messages is lost. */
static void A35_no_call_runs_beside_its_own_retry(void **state) {
    trp_spawn_options options = {
        .restarts_max = -1, .call_retries_max = -1, .max_concurrency = 2 * AT_ONCE};
    trp_actor actor;
    static trp_ref refs[HOLDS];
    TEST_OK(trp_spawn(rt, "holder", (trp_bytes){0}, &options, &actor, err));
    pid_t worker = (pid_t)test_ask_number(rt, actor, "pid", NULL);
    pid_t daemon = pid_of_node(node_of(actor));
    for (uint32_t i = 0; i < HOLDS; i++) {
        TEST_OK(trp_call(rt, actor, "hold", (trp_bytes){&i, sizeof i}, 0, &refs[i], err));
    }
    const pid_t stopped[] = {daemon, worker};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(stopped[i], SIGSTOP), 0);
        usleep(PARTITION_MS * 1000 / 2);
        assert_int_equal(kill(stopped[i], SIGCONT), 0);
    }
    for (uint32_t i = 0; i < HOLDS; i++) {
        trp_bytes value;
        TEST_OK(trp_get(rt, refs[i], WAIT_MS, &value, err));
        assert_int_equal(value.size, sizeof i);
        assert_memory_equal(value.data, &i, sizeof i);
        trp_ref_release(rt, refs[i]);
    }
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    assert_int_equal(info.incarnation, 1);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static int set_up(void **state) {
    test_cluster_start(&cluster, &(test_node){.cpus = 2}, 1);
    rt = test_connect(&cluster, types);
    return 0;
}

static int tear_down(void **state) {
    test_expect_all_free(rt, WAIT_MS);
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

static int set_up_lossy(void **state) {
    setenv("TROUPE_FAULT_DROP_PERMILLE", "200", 1);
    setenv("TROUPE_FAULT_REPEAT_PERMILLE", "200", 1);
    setenv("TROUPE_LINK_PROBE_MS", "10", 1);
    return set_up(state);
}

static int tear_down_lossy(void **state) {
    unsetenv("TROUPE_FAULT_DROP_PERMILLE");
    unsetenv("TROUPE_FAULT_REPEAT_PERMILLE");
    unsetenv("TROUPE_LINK_PROBE_MS");
    return tear_down(state);
}

int main(void) {
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A33_sigterm_on_a_node_is_an_expected_end),
        cmocka_unit_test(A33_sigkill_on_a_node_is_an_unexpected_end),
        cmocka_unit_test(A34_a_draining_node_takes_no_actor_and_no_bundle),
        cmocka_unit_test(A34_a_death_before_the_deadline_counts), /* its node stays so: the last */
    };
    const struct CMUnitTest lossy[] = {
        cmocka_unit_test(A35_no_call_runs_beside_its_own_retry),
    };
    int failed = cmocka_run_group_tests_name("fates of nodes", tests, set_up, tear_down);
    return failed + cmocka_run_group_tests_name("lossy", lossy, set_up_lossy, tear_down_lossy);
}

/* owners_test.c: actors that other actors own, when those die: before the child is made, while it
 * is made, and after. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/actors.h"
#include "tests/lib/cluster.h"
#include "tests/lib/listing.h"
#include "tests/lib/methods.h"

enum { WAIT_MS = 30000 };

static test_cluster cluster;
static trp_runtime *rt;

/* ---- The actors ---- */

/* "child": is made with what its owner answers. Its argument is that owner. */
static trp_code child_start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    trp_actor owner = {(uint64_t)test_number_of(args)};
    if (own == NULL || owner.id == 0) {
        return own == NULL ? err->code : TRP_OK;
    }
    return trp_ask(own, owner, "argument", (trp_bytes){0}, TRP_FOREVER, NULL, err);
}

static trp_code any_pid(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                        trp_error *err) {
    return trp_buf_printf(reply, "%d", (int)getpid());
}

static const trp_method child_methods[] = {{"pid", any_pid, NULL}, {NULL, NULL, NULL}};
static const trp_actor_type child_type = {
    .name = "child", .methods = child_methods, .start = child_start};

typedef struct parent {
    trp_actor child;
} parent;

/* "parent": with the argument "child" it has one from the start. */
static trp_code parent_start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    parent *self = state;
    trp_runtime *own = trp_context_runtime(ctx, err);
    if (own == NULL || args.size == 0) {
        return own == NULL ? err->code : TRP_OK;
    }
    trp_code code =
        trp_spawn(own, "child", (trp_bytes){0}, &(trp_spawn_options){.cpus = 1}, &self->child, err);
    return code != TRP_OK ? code : trp_actor_wait_alive(own, self->child, WAIT_MS, err);
}

static trp_code parent_child(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    return trp_buf_printf(reply, "%" PRIu64, ((parent *)state)->child.id);
}

/* Makes a child that waits for this actor's word in its constructor; on node 1, and detached if the
 * argument says so. */
static trp_code parent_bear(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    char id[32];
    trp_actor child;
    trp_runtime *own = trp_context_runtime(ctx, err);
    trp_spawn_options options = {.node = 1, .restarts_max = -1, .detached = args.size > 0};
    snprintf(id, sizeof id, "%" PRIu64, trp_context_actor(ctx).id);
    trp_code code =
        own == NULL ? err->code : trp_spawn(own, "child", trp_bytes_of(id), &options, &child, err);
    return code != TRP_OK ? code : trp_buf_printf(reply, "%" PRIu64, child.id);
}

/* The answer that never comes. */
static trp_code parent_argument(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                                trp_error *err) {
    while (pause() == -1) {
    }
    return TRP_OK;
}

static const trp_method parent_methods[] = {{"pid", any_pid, NULL},
                                            {"child", parent_child, NULL},
                                            {"bear", parent_bear, NULL},
                                            {"argument", parent_argument, NULL},
                                            {NULL, NULL, NULL}};
static const trp_actor_type parent_type = {.name = "parent",
                                           .state_size = sizeof(parent),
                                           .methods = parent_methods,
                                           .start = parent_start};
static const trp_actor_type *const types[] = {&parent_type, &child_type, NULL};

/* ---- Tests ---- */

static bool process_gone(void *arg) {
    return kill(*(pid_t *)arg, 0) != 0 && errno == ESRCH;
}

/* Processors that are held, or -1 while the head has not told. */
static double cpus_used(void) {
    json_t *status = test_list(rt, "status");
    const json_t *cpu = json_object_get(json_object_get(status, "resources"), "cpu");
    double used = json_number_value(json_object_get(cpu, "used"));
    json_decref(status);
    return used;
}

static bool two_cpus_are_used(void *arg) {
    return cpus_used() == 2;
}

static trp_actor spawn_parent(const char *argument, trp_spawn_options options) {
    trp_actor actor;
    TEST_OK(trp_spawn(rt, "parent", trp_bytes_of(argument), &options, &actor, err));
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    return actor;
}

static void A11_a_parent_that_restarts_has_a_new_child_and_not_the_old_one(void **state) {
    trp_actor mother = spawn_parent("child", (trp_spawn_options){.cpus = 1, .restarts_max = -1});
    trp_actor before = {(uint64_t)test_ask_number(rt, mother, "child", NULL)};
    pid_t old = (pid_t)test_ask_number(rt, before, "pid", NULL);
    TEST_OK(trp_monitor(rt, before, err));
    TEST_OK(trp_monitor(rt, mother, err));
    for (int life = 2; life <= 4; life++) {
        assert_int_equal(kill((pid_t)test_ask_number(rt, mother, "pid", NULL), SIGKILL), 0);
        bool mother_told = false, child_told = false;
        while (!mother_told || !child_told) {
            trp_death death;
            TEST_OK(trp_next_death(rt, WAIT_MS, &death, err));
            mother_told = mother_told || death.actor.id == mother.id;
            if (death.actor.id == before.id) {
                child_told = true;
                assert_int_equal(death.cause, TRP_CAUSE_OWNER_DIED);
                assert_true(death.final);
            }
        }
        TEST_OK(trp_actor_wait_alive(rt, mother, WAIT_MS, err));
        assert_true(test_until(process_gone, &old, WAIT_MS));
        trp_actor after = {(uint64_t)test_ask_number(rt, mother, "child", NULL)};
        assert_int_not_equal(after.id, before.id);
        old = (pid_t)test_ask_number(rt, after, "pid", NULL);
        TEST_OK(trp_monitor(rt, after, err));
        assert_true(test_until(two_cpus_are_used, NULL, WAIT_MS));
        before = after;
    }
    TEST_OK(trp_kill(rt, mother, false, err));
    assert_true(test_until(process_gone, &old, WAIT_MS));
    test_expect_all_free(rt, WAIT_MS);
}

/* A child in its constructor, where it waits for its owner, and a call that waits for the child. */
typedef struct birth {
    trp_actor owner, child;
    trp_ref call;
} birth;

static bool owner_is_asked(void *arg) {
    trp_actor_info info;
    trp_error error;
    return trp_actor_get_info(rt, *(trp_actor *)arg, &info, &error) == TRP_OK && info.pid != 0;
}

static birth begin_birth(uint64_t node, const char *detached) {
    birth b = {.owner = spawn_parent(NULL, (trp_spawn_options){.node = node})};
    b.child.id = (uint64_t)test_ask_number(rt, b.owner, "bear", detached);
    TEST_OK(trp_call(rt, b.child, "pid", (trp_bytes){0}, 0, &b.call, err));
    (void)test_until(owner_is_asked, &b.child, 300); /* mostly it has its process by then */
    return b;
}

/* The call that waited, one that is made now and the monitor: all are told within the deadline. */
static void expect_told(const birth *b, trp_cause cause, const char *says) {
    trp_bytes value;
    trp_error error = {0};
    trp_code code;
    uint64_t start_ms = test_now_ms();
    assert_int_equal(trp_get(rt, b->call, WAIT_MS, &value, &error), TRP_EACTOR_DIED);
    print_message("after %" PRIu64 " ms: %s\n", test_now_ms() - start_ms, error.message);
    assert_int_equal(error.actor, b->child.id);
    assert_non_null(strstr(error.message, says));
    trp_ref_release(rt, b->call);
    test_ask(rt, b->child, "pid", NULL, &code, &error);
    assert_int_equal(code, TRP_EACTOR_DIED);
    TEST_OK(trp_monitor(rt, b->child, err));
    trp_death death = test_wait_death(rt, b->child);
    assert_true(death.final);
    assert_int_equal(death.cause, cause);
    assert_true(test_now_ms() - start_ms < 10000);
}

static void A16_callers_of_a_child_are_told_when_its_owner_dies_first(void **state) {
    birth b = begin_birth(1, NULL);
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, b.owner, &info, err));
    assert_int_equal(kill((pid_t)info.pid, SIGKILL), 0);
    expect_told(&b, TRP_CAUSE_OWNER_DIED, "owner");
}

/* Nobody ends it with its owner: it fails by what it waits for. */
static void A16_so_are_those_of_a_detached_child(void **state) {
    birth b = begin_birth(1, "detached");
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, b.owner, &info, err));
    assert_int_equal(kill((pid_t)info.pid, SIGKILL), 0);
    expect_told(&b, TRP_CAUSE_NEVER_STARTED, "constructor of child");
}

static pid_t pid_of_node(uint64_t node) {
    json_t *rows = test_list(rt, "nodes");
    pid_t pid = (pid_t)test_row_number(test_row(rows, "id", node), "pid");
    json_decref(rows);
    assert_true(pid > 1);
    return pid;
}

static void A16_callers_of_a_child_are_told_when_its_owners_node_dies_first(void **state) {
    birth b = begin_birth(2, NULL), detached = begin_birth(2, "detached");
    assert_int_equal(kill(pid_of_node(2), SIGKILL), 0);
    expect_told(&b, TRP_CAUSE_OWNER_DIED, "owner");
    expect_told(&detached, TRP_CAUSE_NEVER_STARTED, "constructor of child");
}

static int set_up(void **state) {
    test_cluster_start(&cluster, (test_node[]){{.cpus = 4}, {.cpus = 4}}, 2);
    rt = test_connect(&cluster, types);
    return 0;
}

static int tear_down(void **state) {
    test_expect_all_free(rt, WAIT_MS);
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A11_a_parent_that_restarts_has_a_new_child_and_not_the_old_one),
        cmocka_unit_test(A16_callers_of_a_child_are_told_when_its_owner_dies_first),
        cmocka_unit_test(A16_so_are_those_of_a_detached_child),
        cmocka_unit_test(A16_callers_of_a_child_are_told_when_its_owners_node_dies_first),
    };
    return cmocka_run_group_tests_name("owners", tests, set_up, tear_down);
}

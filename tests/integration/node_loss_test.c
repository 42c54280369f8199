/* A real cluster that loses what a node runs: the node itself, or an actor that hangs there. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "tests/lib/actors.h"
#include "tests/lib/cluster.h"

static test_cluster cluster;
static trp_runtime *rt;

/* Its constructor leaves the file that its argument names, and takes its time. */
static trp_code late_start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    char path[256];
    trpi_format(path, sizeof path, "%.*s", (int)args.size, (const char *)args.data);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    (void)poll(NULL, 0, 700);
    return TRP_OK;
}

static const trp_method late_methods[] = {{NULL, NULL, NULL}};
static const trp_actor_type late_type = {
    .name = "late", .methods = late_methods, .start = late_start};
static const trp_actor_type *const types[] = {&late_type, &test_subject_type, NULL};

static bool is_there(void *arg) {
    return trpi_file_exists(arg);
}

static void A09_a_node_that_dies_during_a_constructor_costs_one_restart(void **state) {
    char path[64];
    pid_t nodes[4];
    trp_actor actor;
    trp_actor_info info;
    trpi_format(path, sizeof path, "/tmp/late-%d", (int)getpid());
    trp_spawn_options options = {.cpus = 1, .node = 2, .node_soft = true, .restarts_max = 3};
    TEST_OK(trp_spawn(rt, "late", trp_bytes_of(path), &options, &actor, err));
    assert_true(test_until(is_there, path, 30000));
    assert_int_equal(test_cluster_pids(&cluster, "node", nodes, 4), 2);
    kill(nodes[1], SIGKILL);
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    assert_int_equal(info.node, 1);
    assert_int_equal(info.incarnation, 2);
    assert_int_equal(info.restarts, 1);
    TEST_OK(trp_kill(rt, actor, false, err));
    unlink(path);
}

static void a_hung_actor_is_told_with_its_stack_and_started_again(void **state) {
    trp_spawn_options options = {.liveness_ms = 400, .restarts_max = 1};
    trp_actor actor = test_spawn(rt, &options, NULL);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_ref ref = test_call(rt, actor, "sleep", "60000");
    trp_death death = test_wait_death(rt, actor);
    assert_int_equal(death.cause, TRP_CAUSE_HUNG);
    assert_false(death.final);
    assert_non_null(strstr(death.message, "method sleep ran 0.4 s without trp_context_beat()"));
    assert_non_null(strstr(death.stderr_tail, "in method sleep:"));
    assert_non_null(strstr(death.stderr_tail, "thread "));
    trp_error failure;
    assert_int_not_equal(trp_get(rt, ref, 30000, NULL, &failure), TRP_OK);
    trp_ref_release(rt, ref);
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static int setup(void **state) {
    test_node nodes[] = {{.cpus = 2}, {.cpus = 2}};
    test_cluster_start(&cluster, nodes, 2);
    rt = test_connect(&cluster, types);
    return 0;
}

static int teardown(void **state) {
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hung_actor_is_told_with_its_stack_and_started_again),
        cmocka_unit_test(A09_a_node_that_dies_during_a_constructor_costs_one_restart),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* head_lost_test.c: a program that outlives its head, and the next head on the same address. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/actors.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"

enum { COMMAND_MS = 60000, WAIT_MS = 30000 };

static trp_buf output;

static const char *troupe(const char *command, const char *const *more) {
    const char *argv[16] = {getenv("TROUPE_BIN"), command};
    size_t count = 2;
    while (*more != NULL && count + 1 < 16) {
        argv[count++] = *more++;
    }
    trp_buf_clear(&output);
    assert_int_equal(test_run(argv, &output, COMMAND_MS), 0);
    assert_int_equal(trp_buf_append(&output, "", 0), TRP_OK); /* data is there, and ends with NUL */
    return (const char *)output.data;
}

static bool spawn_says_another_cluster(void *arg) {
    trp_actor actor;
    trp_error err;
    trp_code code = trp_spawn(arg, "subject", (trp_bytes){0}, NULL, &actor, &err);
    assert_int_not_equal(code, TRP_OK); /* never there */
    return code == TRP_EDISCONNECTED && strstr(err.message, "serves cluster") != NULL;
}

typedef struct group_waiter {
    pthread_t thread;
    trp_runtime *rt;
    trp_group group;
    trp_code code;
} group_waiter;

static void *wait_for_group(void *arg) {
    group_waiter *w = arg;
    w->code = trp_group_wait(w->rt, w->group, 4 * WAIT_MS, NULL, 0, NULL);
    return NULL;
}

/* Ids of actors begin at 1 in each cluster: what it calls a1 is somebody else's there. */
static void a_driver_stays_out_of_the_cluster_that_has_its_heads_address_now(void **state) {
    test_cluster cluster;
    pid_t head;
    trp_error error;
    trp_code code;
    setenv("TROUPE_CLIENT_TIMEOUT_MS", "3000", 1);
    test_cluster_start(&cluster, &(test_node){.cpus = 1}, 1);
    trp_runtime *rt = test_connect(&cluster, test_types);
    trp_actor actor = test_spawn(rt, &(trp_spawn_options){.call_retries_max = -1}, NULL);
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    group_waiter waiter = {.rt = rt};
    trp_bundle bundle = {.cpus = 1000};
    TEST_OK(trp_group_create(rt, &(trp_group_options){.bundles = &bundle, .bundle_count = 1},
                             &waiter.group, err));
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_group, &waiter), 0);
    TEST_OK(trp_monitor(rt, actor, err));
    assert_int_equal(test_cluster_pids(&cluster, "head", &head, 1), 1);
    assert_int_equal(kill(head, SIGKILL), 0);
    (void)troupe("stop", (const char *[]){NULL}); /* its node */
    trp_ref call = test_call(rt, actor, "add", NULL);
    (void)troupe("start", (const char *[]){"--head", "--port", strrchr(cluster.address, ':') + 1,
                                           "--num-cpus", "1", "--num-gpus", "0", NULL});
    trp_bytes value;
    code = trp_get(rt, call, WAIT_MS, &value, &error);
    assert_int_equal(code, TRP_EDISCONNECTED);
    assert_non_null(strstr(error.message, "serves cluster"));
    trp_ref_release(rt, call);
    trp_death death = test_wait_death(rt, actor);
    assert_true(death.final);
    assert_non_null(strstr(death.message, "serves cluster"));
    assert_int_equal(pthread_join(waiter.thread, NULL), 0);
    assert_int_equal(waiter.code, TRP_EDISCONNECTED);
    assert_true(test_until(spawn_says_another_cluster, rt, WAIT_MS));
    assert_null(strstr(troupe("list", (const char *[]){"jobs", NULL}), "running"));
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    unsetenv("TROUPE_CLIENT_TIMEOUT_MS");
    trp_buf_release(&output);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_stays_out_of_the_cluster_that_has_its_heads_address_now),
    };
    test_serve_if_worker(test_types);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* client_test.c: a process as a caller: many threads on one socket, options that are wrong, a head
 * that goes silent, and what comes to those who wait. */
#include "actors/proc/client.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/actors.h"
#include "tests/lib/cluster.h"

enum { THREADS = 16, CALLS_PER_THREAD = 300, IN_FLIGHT = 100000 };

static test_cluster cluster;
static trp_runtime *rt;

static trp_actor alive(const trp_spawn_options *options) {
    trp_actor actor = test_spawn(rt, options, NULL);
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    return actor;
}

static void end(trp_actor actor) {
    TEST_OK(trp_kill(rt, actor, false, err));
}

/* ---- Threads ---- */

typedef struct caller_thread {
    pthread_t thread;
    trp_actor actor;
    int failures;
} caller_thread;

/* Asserting is the main thread's: this one counts. */
static void *echo_calls(void *arg) {
    caller_thread *t = arg;
    for (int i = 0; i < CALLS_PER_THREAD; i++) {
        char text[32], answer[32] = "";
        trp_buf reply = {0};
        snprintf(text, sizeof text, "%p %d", arg, i);
        trp_code code = trp_ask(rt, t->actor, "echo", trp_bytes_of(text), 30000, &reply, NULL);
        snprintf(answer, sizeof answer, "%.*s", (int)reply.size,
                 reply.size ? (const char *)reply.data : "");
        t->failures += code != TRP_OK || strcmp(text, answer) != 0;
        trp_buf_release(&reply);
    }
    return NULL;
}

static void many_threads_share_one_socket(void **state) {
    trp_actor actors[2] = {alive(NULL), alive(NULL)};
    caller_thread threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (caller_thread){.actor = actors[i % 2]};
        assert_int_equal(pthread_create(&threads[i].thread, NULL, echo_calls, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].thread, NULL);
        assert_int_equal(threads[i].failures, 0);
    }
    end(actors[0]);
    end(actors[1]);
}

static void *release_later(void *arg) {
    struct timespec pause = {.tv_nsec = 100000000};
    nanosleep(&pause, NULL);
    trp_ref_release(rt, *(trp_ref *)arg);
    return NULL;
}

static void a_ref_that_is_given_back_ends_the_wait_for_it(void **state) {
    trp_actor actor = alive(NULL);
    trp_ref ref = test_call(rt, actor, "sleep", "60000");
    pthread_t thread;
    trp_bytes value;
    trp_error error = {0};
    assert_int_equal(pthread_create(&thread, NULL, release_later, &ref), 0);
    assert_int_equal(trp_get(rt, ref, 30000, &value, &error), TRP_EINVALID);
    pthread_join(thread, NULL);
    end(actor);
}

static void *kill_later(void *arg) {
    struct timespec pause = {.tv_nsec = 100000000};
    nanosleep(&pause, NULL);
    (void)!trp_kill(rt, *(trp_actor *)arg, false, NULL);
    return NULL;
}

/* The thread that waits owns the data socket; the one that kills must be able to get it. */
static void a_thread_that_waits_does_not_lock_others_out(void **state) {
    trp_actor slow = alive(NULL), quick = alive(NULL);
    trp_ref ref = test_call(rt, slow, "sleep", "60000");
    caller_thread other = {.actor = quick};
    pthread_t killer;
    trp_bytes value;
    trp_error error = {0};
    assert_int_equal(pthread_create(&other.thread, NULL, echo_calls, &other), 0);
    assert_int_equal(pthread_create(&killer, NULL, kill_later, &slow), 0);
    assert_int_equal(trp_get(rt, ref, 30000, &value, &error), TRP_EACTOR_DIED);
    assert_int_equal(error.actor, slow.id);
    pthread_join(killer, NULL);
    pthread_join(other.thread, NULL);
    assert_int_equal(other.failures, 0);
    trp_ref_release(rt, ref);
    end(quick);
}

/* ---- Many ---- */

static void a_hundred_thousand_calls_are_under_way_at_once(void **state) {
    trp_actor actor = alive(NULL);
    trp_ref *refs = calloc(IN_FLIGHT, sizeof *refs);
    trp_bytes *values = calloc(IN_FLIGHT, sizeof *values);
    for (int i = 0; i < IN_FLIGHT; i++) {
        TEST_OK(trp_call(rt, actor, "add", (trp_bytes){NULL, 0}, 0, &refs[i], err));
    }
    TEST_OK(trp_get_all(rt, refs, IN_FLIGHT, 60000, values, err));
    for (int i = 0; i < IN_FLIGHT; i++) {
        char text[16];
        snprintf(text, sizeof text, "%.*s", (int)values[i].size, (const char *)values[i].data);
        assert_int_equal(strtol(text, NULL, 10), i + 1);
        trp_ref_release(rt, refs[i]);
    }
    free(refs);
    free(values);
    end(actor);
}

static void calls_whose_refs_are_given_back_at_once_still_run(void **state) {
    trp_actor actor = alive(NULL);
    for (int i = 0; i < 5000; i++) {
        trp_ref_release(rt, test_call(rt, actor, "add", NULL));
    }
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 5001);
    end(actor);
}

static void a_wait_for_some_returns_when_they_are_done(void **state) {
    trp_actor quick = alive(NULL), slow = alive(NULL);
    trp_ref refs[3] = {test_call(rt, slow, "sleep", "60000"), test_call(rt, quick, "add", NULL),
                       test_call(rt, quick, "add", NULL)};
    bool done[3];
    TEST_OK(trp_wait(rt, refs, 3, 2, 30000, done, err));
    assert_false(done[0]);
    assert_true(done[1] && done[2]);
    TEST_OK(trp_wait(rt, refs, 3, 3, 0, done, err));
    assert_false(done[0]);
    trp_error error = {0};
    assert_int_equal(trp_wait(rt, refs, 3, 4, 0, done, &error), TRP_EINVALID);
    assert_int_equal(trp_get_all(rt, refs, 3, 10, NULL, &error), TRP_ETIMEOUT);
    for (int i = 0; i < 3; i++) {
        trp_ref_release(rt, refs[i]);
    }
    end(quick);
    end(slow);
}

/* ---- Options ---- */

static void refused(trp_spawn_options options, const char *part) {
    trp_actor actor;
    trp_error error = {0};
    assert_int_equal(trp_spawn(rt, "subject", (trp_bytes){NULL, 0}, &options, &actor, &error),
                     TRP_EINVALID);
    if (strstr(error.message, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", error.message, part);
    }
}

static void wrong_options_are_refused_with_what_to_change(void **state) {
    refused((trp_spawn_options){.cpus = -1}, "cpus");
    refused((trp_spawn_options){.cpus = NAN}, "cpus");
    refused((trp_spawn_options){.cpus = 0.00001}, "finer than 0.0001");
    refused((trp_spawn_options){.gpus = 1.5}, "whole number");
    refused((trp_spawn_options){.resources = &(trp_resource){"cpu", 1}, .resource_count = 1},
            "cpus");
    refused(
        (trp_spawn_options){.resources = (trp_resource[]){{"x", 1}, {"x", 2}}, .resource_count = 2},
        "twice");
    refused((trp_spawn_options){.restarts_max = -2}, "restarts_max");
    refused((trp_spawn_options){.call_retries_max = -2}, "call_retries_max");
    refused((trp_spawn_options){.get_if_exists = true}, "name");
    refused((trp_spawn_options){.bundle = 1}, "group");
    refused((trp_spawn_options){.env = (const char *const[]){"novalue", NULL}}, "KEY=value");
    trp_actor actor;
    trp_error error = {0};
    assert_int_equal(trp_spawn(rt, "subjekt", (trp_bytes){NULL, 0}, NULL, &actor, &error),
                     TRP_EINVALID);
    assert_non_null(strstr(error.message, "did you mean \"subject\"?"));
}

static void handles_that_are_none_are_refused(void **state) {
    trp_ref ref = {12345};
    trp_bytes value;
    trp_error error = {0};
    assert_int_equal(trp_get(rt, ref, 0, &value, &error), TRP_EINVALID);
    assert_int_equal(trp_call(rt, (trp_actor){0}, "add", value, 0, &ref, &error), TRP_EINVALID);
    assert_int_equal(trp_monitor(rt, (trp_actor){0}, &error), TRP_EINVALID);
    TEST_OK(trp_call(rt, (trp_actor){999999}, "add", (trp_bytes){NULL, 0}, 0, &ref, err));
    assert_int_equal(trp_get(rt, ref, 30000, &value, &error), TRP_ENOTFOUND);
    trp_ref_release(rt, ref);
    trp_ref_release(rt, ref); /* twice does nothing */
}

static void a_second_runtime_is_refused(void **state) {
    trp_runtime *other = NULL;
    trp_error error = {0};
    assert_int_equal(trp_init(test_types, NULL, &other, &error), TRP_EBUSY);
    assert_null(other);
}

/* ---- Deaths ---- */

static void deaths_wake_a_poll_loop(void **state) {
    trp_actor actor = alive(&(trp_spawn_options){.restarts_max = 1});
    struct pollfd item = {.fd = trp_deaths_fd(rt), .events = POLLIN};
    TEST_OK(trp_monitor(rt, actor, err));
    assert_int_equal(poll(&item, 1, 0), 0);
    pid_t pid = (pid_t)test_ask_number(rt, actor, "pid", NULL);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(poll(&item, 1, 30000), 1);
    trp_death death;
    TEST_OK(trp_next_death(rt, 0, &death, err));
    assert_int_equal(death.actor.id, actor.id);
    assert_int_equal(death.pid, pid);
    assert_int_equal(death.signal, SIGKILL);
    assert_false(death.final);
    assert_int_equal(poll(&item, 1, 0), 0);
    trp_error error = {0};
    assert_int_equal(trp_next_death(rt, 0, &death, &error), TRP_ETIMEOUT);
    end(actor);
    death = test_wait_death(rt, actor);
    assert_true(death.final);
    assert_int_equal(death.cause, TRP_CAUSE_KILLED);
}

/* ---- The store and the groups ---- */

static void the_store_keeps_what_is_put(void **state) {
    trp_buf value = {0};
    trp_error error = {0};
    TEST_OK(trp_kv_put(rt, "client_test/key", trp_bytes_of("one"), err));
    TEST_OK(trp_kv_put(rt, "client_test/key", trp_bytes_of("two"), err));
    TEST_OK(trp_kv_get(rt, "client_test/key", &value, err));
    assert_int_equal(value.size, 3);
    assert_memory_equal(value.data, "two", 3);
    TEST_OK(trp_kv_del(rt, "client_test/key", err));
    assert_int_equal(trp_kv_get(rt, "client_test/key", &value, &error), TRP_ENOTFOUND);
    assert_int_equal(trp_kv_put(rt, "", trp_bytes_of("x"), &error), TRP_EINVALID);
    trp_buf_release(&value);
}

/* What the head passes on is refused here, and not lost on the way. */
static void what_is_too_large_for_the_head_is_refused(void **state) {
    const size_t size = ((size_t)1 << 20) + 1;
    trp_bytes large = {calloc(1, size), size}, most = {large.data, size - 1};
    trp_error error = {0};
    trp_actor actor = alive(NULL);
    assert_int_equal(trp_kv_put(rt, "client_test/large", large, &error), TRP_EINVALID);
    assert_int_equal(trp_signal(rt, actor, 0, large, &error), TRP_EINVALID);
    assert_non_null(strstr(error.message, "1 MiB"));
    TEST_OK(trp_signal(rt, actor, 0, most, err));
    TEST_OK(trp_kill(rt, actor, false, err));
    free((void *)(uintptr_t)large.data);
}

static void a_group_is_placed_or_tells_what_is_missing(void **state) {
    trp_bundle bundles[2] = {{.cpus = 1}, {.cpus = 1}};
    trp_group_options options = {.bundles = bundles, .bundle_count = 2};
    trp_group group;
    uint64_t nodes[2];
    trp_error error = {0};
    TEST_OK(trp_group_create(rt, &options, &group, err));
    TEST_OK(trp_group_wait(rt, group, 30000, nodes, 2, err));
    assert_true(nodes[0] != 0 && nodes[1] != 0);
    trp_actor actor = alive(&(trp_spawn_options){.cpus = 1, .group = group, .bundle = 1});
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    TEST_OK(trp_group_remove(rt, group, err));

    bundles[0].cpus = 100000;
    TEST_OK(trp_group_create(rt, &options, &group, err));
    assert_int_equal(trp_group_wait(rt, group, 100, NULL, 0, &error), TRP_EINFEASIBLE);
    assert_non_null(strstr(error.message, "cpu"));
    TEST_OK(trp_group_remove(rt, group, err));
    options.bundle_count = 0;
    assert_int_equal(trp_group_create(rt, &options, &group, &error), TRP_EINVALID);
    test_expect_all_free(rt, 30000);
}

/* ---- The head ---- */

static bool requests_fail(void *arg) {
    trp_buf value = {0};
    trp_code code = trp_kv_get(rt, "client_test/none", &value, NULL);
    trp_buf_release(&value);
    return code == TRP_EDISCONNECTED;
}

static bool requests_work(void *arg) {
    trp_buf value = {0};
    trp_code code = trp_kv_get(rt, "client_test/none", &value, NULL);
    trp_buf_release(&value);
    return code == TRP_ENOTFOUND;
}

static void calls_go_on_while_the_head_is_silent(void **state) {
    trp_actor actor = alive(NULL);
    pid_t head;
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    assert_int_equal(test_cluster_pids(&cluster, "head", &head, 1), 1);
    assert_int_equal(kill(head, SIGSTOP), 0);
    bool noticed = test_until(requests_fail, NULL, 30000);
    int number = (int)test_ask_number(rt, actor, "add", NULL);
    assert_int_equal(kill(head, SIGCONT), 0);
    assert_true(noticed);
    assert_int_equal(number, 2);
    assert_true(test_until(requests_work, NULL, 30000));
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 3);
    end(actor);
}

static void nobody_answers_where_no_head_is(void **state) {
    trp_runtime *other = NULL;
    trp_error error = {0};
    trpi_client_options options = {
        .address = "127.0.0.1:1", .kind = "tool", .connect_timeout_ms = 200};
    assert_int_equal(trpi_client_open(&options, &other, &error), TRP_ETIMEOUT);
    assert_non_null(strstr(error.message, "127.0.0.1:1"));
    char address[64];
    assert_int_equal(trpi_client_address("nonsense", address, sizeof address, &error),
                     TRP_EINVALID);
}

static int set_up(void **state) {
    setenv("TROUPE_CLIENT_TIMEOUT_MS", "1500", 1);
    setenv("TROUPE_REQUEST_TIMEOUT_MS", "3000", 1);
    setenv("TROUPE_HEARTBEAT_MS", "100", 1);
    test_cluster_start(&cluster, &(test_node){.cpus = 4}, 1);
    rt = test_connect(&cluster, test_types);
    return 0;
}

static int tear_down(void **state) {
    trp_shutdown(&rt);
    trp_shutdown(&rt); /* nothing twice */
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_share_one_socket),
        cmocka_unit_test(a_ref_that_is_given_back_ends_the_wait_for_it),
        cmocka_unit_test(a_thread_that_waits_does_not_lock_others_out),
        cmocka_unit_test(a_hundred_thousand_calls_are_under_way_at_once),
        cmocka_unit_test(calls_whose_refs_are_given_back_at_once_still_run),
        cmocka_unit_test(a_wait_for_some_returns_when_they_are_done),
        cmocka_unit_test(wrong_options_are_refused_with_what_to_change),
        cmocka_unit_test(handles_that_are_none_are_refused),
        cmocka_unit_test(a_second_runtime_is_refused),
        cmocka_unit_test(deaths_wake_a_poll_loop),
        cmocka_unit_test(the_store_keeps_what_is_put),
        cmocka_unit_test(what_is_too_large_for_the_head_is_refused),
        cmocka_unit_test(a_group_is_placed_or_tells_what_is_missing),
        cmocka_unit_test(calls_go_on_while_the_head_is_silent),
        cmocka_unit_test(nobody_answers_where_no_head_is),
    };
    test_serve_if_worker(test_types);
    return cmocka_run_group_tests_name("client", tests, set_up, tear_down);
}

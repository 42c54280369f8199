/* calls_test.c: what callers see when actors answer, die and come back. */
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

static test_cluster cluster;
static trp_runtime *rt;

static void a_call_is_answered(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 2);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void large_arguments_and_results_arrive_whole(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    size_t size = 8 << 20;
    unsigned char *data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++) {
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    trp_buf reply = {0};
    TEST_OK(trp_ask(rt, actor, "echo", (trp_bytes){data, size}, 30000, &reply, err));
    assert_int_equal(reply.size, size);
    assert_memory_equal(reply.data, data, size);
    trp_buf_release(&reply);
    free(data);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void an_unknown_method_is_an_error_that_names_the_nearest(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    trp_code code;
    trp_error error = {0};
    test_ask(rt, actor, "ad", NULL, &code, &error);
    assert_int_equal(code, TRP_ENOTFOUND);
    assert_non_null(strstr(error.message, "add"));
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void a_method_that_fails_reports_its_own_words(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    trp_code code;
    trp_error error = {0};
    test_ask(rt, actor, "fail", NULL, &code, &error);
    assert_int_equal(code, TRP_EUSER);
    assert_non_null(strstr(error.message, "asked to fail"));
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void a_deadline_fails_the_call_and_not_the_actor(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    trp_ref ref;
    trp_bytes value;
    trp_error error = {0};
    TEST_OK(trp_call(rt, actor, "sleep", trp_bytes_of("600"), 100, &ref, err));
    uint64_t before = test_now_ms();
    assert_int_equal(trp_get(rt, ref, 20000, &value, &error), TRP_ETIMEOUT);
    assert_true(test_now_ms() - before < 590);
    trp_ref_release(rt, ref);
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    TEST_OK(trp_kill(rt, actor, false, err));
}

/* The number that a call answered, or -1 with *ret_code; the ref is given back. */
static long number_of(trp_ref ref, trp_code *ret_code) {
    trp_bytes value;
    trp_error error = {0};
    char text[16] = "-1";
    *ret_code = trp_get(rt, ref, 30000, &value, &error);
    if (*ret_code == TRP_OK) {
        snprintf(text, sizeof text, "%.*s", (int)value.size, (const char *)value.data);
    }
    trp_ref_release(rt, ref);
    return strtol(text, NULL, 10);
}

/* 200 numbered calls; the process ends itself in the 100th, with a hundred more behind it. */
static void A01_results_stay_in_order_across_a_restart(void **state) {
    trp_actor actor = test_spawn(rt, &(trp_spawn_options){.restarts_max = 1}, NULL);
    trp_ref refs[200];
    trp_code code;
    for (int i = 0; i < 99; i++) {
        refs[i] = test_call(rt, actor, "crash_at", "100");
    }
    for (int i = 0; i < 99; i++) {
        assert_int_equal(number_of(refs[i], &code), i + 1);
    }
    for (int i = 99; i < 200; i++) {
        refs[i] = test_call(rt, actor, "crash_at", i == 99 ? "100" : "100000");
    }
    long last = 0; /* the new process counts from the start */
    for (int i = 99; i < 200; i++) {
        long number = number_of(refs[i], &code);
        if (code == TRP_OK) {
            assert_true(i > 99);
            assert_int_equal(number, ++last);
        } else {
            assert_true(code == TRP_EUNAVAILABLE || code == TRP_EACTOR_DIED);
            assert_int_equal(last, 0); /* no failure behind a success */
        }
    }
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    for (int i = 1; i <= 20; i++) {
        assert_int_equal(test_ask_number(rt, actor, "add", NULL), last + i);
    }
    trp_error error = {0};
    test_ask(rt, actor, "raise", "9", &code, &error);
    assert_int_equal(code, TRP_EACTOR_DIED);
    for (int i = 0; i < 3; i++) {
        test_ask(rt, actor, "add", NULL, &code, &error);
        assert_int_equal(code, TRP_EACTOR_DIED);
    }
}

static void A02_calls_with_retries_survive_a_kill_in_flight(void **state) {
    trp_spawn_options options = {.restarts_max = 1, .call_retries_max = -1};
    trp_actor actor = test_spawn(rt, &options, NULL);
    pid_t pid = (pid_t)test_ask_number(rt, actor, "pid", NULL);
    trp_ref refs[100];
    refs[0] = test_call(rt, actor, "sleep", "100");
    char text[100][16];
    for (int i = 1; i < 100; i++) {
        snprintf(text[i], sizeof text[i], "value-%d", i);
        refs[i] = test_call(rt, actor, "echo", text[i]);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    for (int i = 0; i < 100; i++) {
        trp_bytes value;
        TEST_OK(trp_get(rt, refs[i], 30000, &value, err));
        const char *expected = i == 0 ? "slept" : text[i];
        assert_int_equal(value.size, strlen(expected));
        assert_memory_equal(value.data, expected, value.size);
        trp_ref_release(rt, refs[i]);
    }
    pid_t second = (pid_t)test_ask_number(rt, actor, "pid", NULL);
    assert_int_not_equal(second, pid);
    TEST_OK(trp_monitor(rt, actor, err));
    assert_int_equal(kill(second, SIGKILL), 0);
    trp_death death = test_wait_death(rt, actor);
    assert_true(death.final);
    trp_code code;
    trp_error error = {0};
    test_ask(rt, actor, "add", NULL, &code, &error);
    assert_int_equal(code, TRP_EACTOR_DIED);
}

static void A03_a_call_in_flight_fails_with_the_whole_cause(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    pid_t pid = (pid_t)test_ask_number(rt, actor, "pid", NULL);
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    assert_int_equal(info.pid, pid);
    trp_ref ref = test_call(rt, actor, "sleep", "60000");
    uint64_t before = test_now_ms();
    assert_int_equal(kill(pid, SIGKILL), 0);
    trp_bytes value;
    trp_error error = {0};
    assert_int_equal(trp_get(rt, ref, 20000, &value, &error), TRP_EACTOR_DIED);
    assert_true(test_now_ms() - before < 1000);
    char pid_text[16], node_text[32];
    snprintf(pid_text, sizeof pid_text, "%d", (int)pid);
    snprintf(node_text, sizeof node_text, "n%llu", (unsigned long long)info.node);
    assert_non_null(strstr(error.message, pid_text));
    assert_non_null(strstr(error.message, node_text));
    assert_non_null(strstr(error.message, "SIGKILL"));
    assert_int_equal(error.actor, actor.id);
    trp_ref_release(rt, ref);
}

/* The next life would be in that long call, or would have counted those behind it. */
static void A03_a_call_without_retries_is_not_run_again_by_the_next_life(void **state) {
    enum { BEHIND = 50 };
    trp_actor actor = test_spawn(rt, &(trp_spawn_options){.restarts_max = -1}, NULL);
    pid_t pid = (pid_t)test_ask_number(rt, actor, "pid", NULL);
    trp_ref refs[1 + BEHIND];
    refs[0] = test_call(rt, actor, "sleep", "3600000");
    for (int i = 1; i <= BEHIND; i++) {
        refs[i] = test_call(rt, actor, "add", NULL);
    }
    usleep(50000); /* they are at the worker */
    uint64_t before = test_now_ms();
    assert_int_equal(kill(pid, SIGKILL), 0);
    for (int i = 0; i <= BEHIND; i++) {
        trp_bytes value;
        trp_error error = {0};
        trp_code code = trp_get(rt, refs[i], 20000, &value, &error);
        assert_true(code == TRP_EUNAVAILABLE || code == TRP_EACTOR_DIED);
        assert_non_null(strstr(error.message, "SIGKILL"));
        trp_ref_release(rt, refs[i]);
    }
    assert_true(test_now_ms() - before < 1000);
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void A04_a_restarting_actor_fails_calls_at_once_and_then_works(void **state) {
    trp_spawn_options options = {.restarts_max = -1, .restart_backoff_ms = 1500};
    trp_actor actor = test_spawn(rt, &options, NULL);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_code code;
    trp_error error = {0};
    for (int i = 0; i < 3; i++) { /* the first restart is at once, later ones wait */
        test_ask(rt, actor, "raise", "9", &code, &error);
        trp_death death = test_wait_death(rt, actor);
        assert_false(death.final);
        if (i < 2) {
            TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
        }
    }
    uint64_t before = test_now_ms();
    test_ask(rt, actor, "add", NULL, &code, &error);
    assert_int_equal(code, TRP_EUNAVAILABLE);
    assert_true(test_now_ms() - before < 500);
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    TEST_OK(trp_kill(rt, actor, false, err));
    trp_demonitor(rt, actor);
}

static void A13_one_failed_member_fails_the_list_at_once(void **state) {
    trp_actor hangs = test_spawn(rt, NULL, NULL), fails = test_spawn(rt, NULL, NULL);
    test_ask_number(rt, hangs, "add", NULL);
    test_ask_number(rt, fails, "add", NULL);
    trp_ref refs[3] = {test_call(rt, hangs, "sleep", "60000"), test_call(rt, fails, "fail", NULL),
                       test_call(rt, hangs, "add", NULL)};
    trp_error error = {0};
    uint64_t before = test_now_ms();
    assert_int_equal(trp_get_all(rt, refs, 3, 30000, NULL, &error), TRP_EUSER);
    assert_true(test_now_ms() - before < 5000);
    for (int i = 0; i < 3; i++) {
        trp_ref_release(rt, refs[i]);
    }
    TEST_OK(trp_kill(rt, hangs, false, err));
    TEST_OK(trp_kill(rt, fails, false, err));
}

static void wait_tells_which_are_done(void **state) {
    trp_actor slow = test_spawn(rt, NULL, NULL), fast = test_spawn(rt, NULL, NULL);
    test_ask_number(rt, slow, "add", NULL);
    test_ask_number(rt, fast, "add", NULL);
    trp_ref refs[2] = {test_call(rt, slow, "sleep", "60000"), test_call(rt, fast, "add", NULL)};
    bool done[2];
    TEST_OK(trp_wait(rt, refs, 2, 1, 30000, done, err));
    assert_false(done[0]);
    assert_true(done[1]);
    uint64_t before = test_now_ms();
    TEST_OK(trp_wait(rt, refs, 2, 2, 50, done, err));
    assert_true(test_now_ms() - before >= 49);
    assert_false(done[0]);
    for (int i = 0; i < 2; i++) {
        trp_ref_release(rt, refs[i]);
    }
    TEST_OK(trp_kill(rt, slow, false, err));
    TEST_OK(trp_kill(rt, fast, false, err));
}

/* ---- Calls that are made faster than they are answered travel together ---- */

/* Small ones are held back for others, large ones are not: still none overtakes another. */
static void many_calls_keep_their_order_whatever_their_size(void **state) {
    enum { ACTORS = 3, CALLS = 300 };
    static trp_ref refs[ACTORS][CALLS];
    static const char large[20000];
    trp_actor actors[ACTORS];
    trp_bytes value;
    trp_code code;
    for (int a = 0; a < ACTORS; a++) {
        actors[a] = test_spawn(rt, NULL, NULL);
        TEST_OK(trp_actor_wait_alive(rt, actors[a], 30000, err));
    }
    for (int i = 0; i < CALLS; i++) {
        for (int a = 0; a < ACTORS; a++) {
            trp_bytes args = {large, i % 50 == 49 ? sizeof(large) : 16};
            TEST_OK(
                trp_call(rt, actors[a], i % 10 == 9 ? "echo" : "add", args, 0, &refs[a][i], err));
        }
    }
    for (int a = 0; a < ACTORS; a++) {
        for (int i = 0, sum = 0; i < CALLS; i++) {
            if (i % 10 == 9) {
                TEST_OK(trp_get(rt, refs[a][i], 30000, &value, err));
                assert_int_equal(value.size, i % 50 == 49 ? sizeof(large) : 16);
                trp_ref_release(rt, refs[a][i]);
            } else {
                assert_int_equal(number_of(refs[a][i], &code), ++sum);
            }
        }
        TEST_OK(trp_kill(rt, actors[a], false, err));
    }
}

static void calls_that_nobody_waits_for_go_out(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    TEST_OK(trp_monitor(rt, actor, err));
    for (int i = 0; i < 40; i++) {
        trp_ref_release(rt, test_call(rt, actor, "add", NULL));
    }
    trp_ref_release(rt, test_call(rt, actor, "exit", "7"));
    trp_death death = test_wait_death(rt, actor); /* told by the head: no reply is read for it */
    assert_int_equal(death.exit_code, 7);
}

static void finished_calls_are_answered_while_a_slow_one_runs(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    trp_ref refs[62];
    trp_error error = {0};
    refs[0] = test_call(rt, actor, "sleep", "50"); /* the others are there when it is over */
    for (int i = 1; i < 60; i++) {
        refs[i] = test_call(rt, actor, "add", NULL);
    }
    refs[60] = test_call(rt, actor, "sleep", "60000");
    refs[61] = test_call(rt, actor, "add", NULL);
    TEST_OK(trp_get_all(rt, refs, 60, 30000, NULL, err));
    assert_int_equal(trp_get(rt, refs[60], 0, NULL, &error), TRP_ETIMEOUT);
    TEST_OK(trp_kill(rt, actor, false, err));
    assert_int_equal(trp_get(rt, refs[61], 30000, NULL, &error), TRP_EACTOR_DIED);
    for (int i = 0; i < 62; i++) {
        trp_ref_release(rt, refs[i]);
    }
}

static int start(void **state) {
    test_cluster_start(&cluster, (test_node[]){{.cpus = 4}}, 1);
    rt = test_connect(&cluster, test_types);
    return 0;
}

static int stop(void **state) {
    test_expect_all_free(rt, 10000);
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    test_serve_if_worker(test_types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_answered),
        cmocka_unit_test(large_arguments_and_results_arrive_whole),
        cmocka_unit_test(an_unknown_method_is_an_error_that_names_the_nearest),
        cmocka_unit_test(a_method_that_fails_reports_its_own_words),
        cmocka_unit_test(a_deadline_fails_the_call_and_not_the_actor),
        cmocka_unit_test(A01_results_stay_in_order_across_a_restart),
        cmocka_unit_test(A02_calls_with_retries_survive_a_kill_in_flight),
        cmocka_unit_test(A03_a_call_in_flight_fails_with_the_whole_cause),
        cmocka_unit_test(A03_a_call_without_retries_is_not_run_again_by_the_next_life),
        cmocka_unit_test(A04_a_restarting_actor_fails_calls_at_once_and_then_works),
        cmocka_unit_test(A13_one_failed_member_fails_the_list_at_once),
        cmocka_unit_test(wait_tells_which_are_done),
        cmocka_unit_test(many_calls_keep_their_order_whatever_their_size),
        cmocka_unit_test(calls_that_nobody_waits_for_go_out),
        cmocka_unit_test(finished_calls_are_answered_while_a_slow_one_runs),
    };
    return cmocka_run_group_tests_name("calls", tests, start, stop);
}

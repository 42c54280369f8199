/* What a worker does with its calls, under a node daemon that this test plays: concurrency groups,
 * cancel, errors. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "tests/lib/fake_node.h"
#include "tests/lib/porter.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1 /* its own memory and thread come on top */
#else
#define HAS_SANITIZER 0
#endif

#define PATIENCE_MS 20000

static test_fake_node node;
static test_worker worker;
static test_caller *caller = &worker.caller;

static uint64_t call(const char *method, const char *args) {
    return test_caller_call(caller, &(trpi_msg_call){.method = method}, args);
}

static const char *ask(const char *method, const char *args) {
    return test_caller_expect(caller, call(method, args), TRP_OK);
}

/* The code of a reply, of whichever call; its number in *ret_call. */
static trp_code next_reply(uint64_t *ret_call) {
    const trpi_msg_reply *reply = test_caller_reply(caller, PATIENCE_MS);
    assert_non_null(reply);
    *ret_call = reply->call;
    return (trp_code)reply->code;
}

static bool reply_is(const char *text) {
    trp_bytes body = caller->packet.body;
    return body.size == strlen(text) && memcmp(body.data, text, body.size) == 0;
}

static int start_porter(void **state) {
    test_worker_start(&node, &worker, &(trpi_msg_start){.type = "porter"});
    return 0;
}

static int start_serial(void **state) {
    test_worker_start(&node, &worker, &(trpi_msg_start){.type = "serial"});
    return 0;
}

static int start_concurrent(void **state) {
    test_worker_start(&node, &worker, &(trpi_msg_start){.type = "serial", .max_concurrency = 4});
    return 0;
}

static int end(void **state) {
    test_worker_release(&node, &worker);
    return 0;
}

/* ---- Groups ---- */

static void calls_run_one_by_one_unless_asked_otherwise(void **state) {
    uint64_t number;
    for (int i = 0; i < 10; i++) {
        call("busy", "5");
    }
    for (uint64_t i = 1; i <= 10; i++) {
        assert_int_equal(next_reply(&number), TRP_OK);
        assert_int_equal(number, i); /* in the order of the calls */
    }
    assert_string_equal(ask("many", ""), "1");
}

static void the_default_group_has_max_concurrency_threads(void **state) {
    uint64_t number;
    for (int i = 0; i < 12; i++) {
        call("busy", "30");
    }
    for (uint64_t i = 1; i <= 12; i++) {
        assert_int_equal(next_reply(&number), TRP_OK);
    }
    assert_string_equal(ask("many", ""), "4");
}

static void groups_run_side_by_side(void **state) {
    uint64_t number;
    call("meet", "4");
    call("io_meet", "4");
    call("io_meet", "4");
    call("wide_meet", "4");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(next_reply(&number), TRP_OK);
        assert_true(reply_is("met"));
    }
}

static void a_group_runs_no_more_at_once_than_it_has_threads(void **state) {
    uint64_t number;
    for (int i = 0; i < 3; i++) {
        call("io_sleep", "100");
    }
    uint64_t start_ns = trpi_now_ns();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(next_reply(&number), TRP_OK);
    }
    assert_true(trpi_now_ns() - start_ns > 150 * 1000000u); /* two, and then one */
}

static void a_full_group_does_not_hold_up_another_one(void **state) {
    uint64_t slow = call("sleep", "400"), number;
    call("sleep", "0"); /* waits behind it */
    uint64_t quick = call("io_sleep", "0");
    assert_int_equal(next_reply(&number), TRP_OK);
    assert_int_equal(number, quick);
    assert_int_equal(next_reply(&number), TRP_OK);
    assert_int_equal(number, slow);
    assert_int_equal(next_reply(&number), TRP_OK);
}

static void threads_are_made_when_calls_need_them(void **state) {
    uint64_t number;
    size_t idle = test_thread_count(worker.pid, NULL, 0);
    for (int i = 0; i < 5; i++) {
        ask("add", NULL);
    }
    assert_int_equal(test_thread_count(worker.pid, NULL, 0), idle + 1);
    for (int i = 0; i < 3; i++) {
        call("wide_sleep", "200");
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(next_reply(&number), TRP_OK);
    }
    assert_int_equal(test_thread_count(worker.pid, NULL, 0), idle + 4);
    for (int i = 0; i < 30; i++) {
        call("wide_sleep", "5");
    }
    for (int i = 0; i < 30; i++) {
        assert_int_equal(next_reply(&number), TRP_OK);
    }
    assert_int_equal(test_thread_count(worker.pid, NULL, 0), idle + 9); /* eight of that group */
}

static void a_thread_that_cannot_be_made_fails_its_call_only(void **state) {
    if (HAS_SANITIZER) {
        skip();
    }
    ask("narrow", NULL);
    uint64_t refused = call("io_sleep", "0"), number;
    assert_int_equal(next_reply(&number), TRP_EBUSY);
    assert_int_equal(number, refused);
    assert_non_null(strstr(caller->msg.reply.message, "no thread could be made for method"));
    assert_string_equal(ask("add", NULL), "1");
    ask("narrow", "1");
    assert_string_equal(ask("io_sleep", "0"), "slept");
}

static void an_idle_worker_has_three_threads(void **state) {
    test_worker_fork(&node, &worker);
    if (!HAS_SANITIZER) {
        assert_int_equal(test_thread_count(worker.pid, NULL, 0), 3); /* two are ZeroMQ's */
    }
}

/* ---- Cancel ---- */

static void a_call_that_waits_and_is_canceled_does_not_run(void **state) {
    uint64_t number;
    uint64_t slow = call("sleep", "150"), doomed = call("add", NULL), kept = call("add", NULL);
    test_caller_cancel(caller, doomed);
    unsigned seen = 0;
    for (int i = 0; i < 3; i++) {
        trp_code code = next_reply(&number);
        assert_int_equal(code, number == doomed ? TRP_ECANCELED : TRP_OK);
        seen |= 1u << number;
    }
    assert_int_equal(seen, 1u << slow | 1u << doomed | 1u << kept);
    assert_string_equal(ask("count", NULL), "1");
}

static void a_running_call_sees_that_it_is_canceled(void **state) {
    uint64_t running = call("until_canceled", NULL), number;
    assert_null(test_caller_reply(caller, 50));
    test_caller_cancel(caller, running);
    assert_int_equal(next_reply(&number), TRP_OK);
    assert_int_equal(number, running);
    assert_true(reply_is("canceled"));
}

static void a_cancel_concerns_one_call_only(void **state) {
    uint64_t number;
    uint64_t first = call("until_canceled", NULL), second = call("until_canceled", NULL);
    test_caller_cancel(caller, 99); /* there is none */
    assert_null(test_caller_reply(caller, 50));
    test_caller_cancel(caller, first);
    assert_int_equal(next_reply(&number), TRP_OK);
    assert_int_equal(number, first);
    assert_null(test_caller_reply(caller, 100)); /* runs, since the first has ended */
    test_caller_cancel(caller, second);
    assert_int_equal(next_reply(&number), TRP_OK);
    assert_int_equal(number, second);
    assert_true(reply_is("canceled"));
}

static void a_deferred_call_that_is_canceled_is_not_answered(void **state) {
    uint64_t deferred = call("defer_canceled", NULL);
    assert_string_equal(ask("add", NULL), "1");
    test_caller_cancel(caller, deferred);
    assert_null(test_caller_reply(caller, 100));
    assert_string_equal(ask("add", NULL), "2");
}

static void many_canceled_calls_cost_no_walks(void **state) {
    enum { CALLS = 20000 };
    uint64_t number, canceled = 0;
    call("sleep", "300");
    for (int i = 0; i < CALLS; i++) {
        call("add", NULL);
    }
    for (uint64_t i = 2; i < CALLS + 2; i += 2) {
        test_caller_cancel(caller, i);
    }
    for (int i = 0; i < CALLS + 1; i++) {
        canceled += next_reply(&number) == TRP_ECANCELED;
    }
    assert_int_equal(canceled, CALLS / 2);
}

/* ---- What a call is told ---- */

static void a_method_knows_its_caller(void **state) {
    uint64_t number =
        test_caller_call(caller, &(trpi_msg_call){.method = "caller", .client = 42}, NULL);
    assert_string_equal(test_caller_expect(caller, number, TRP_OK), "42");
}

static void an_error_carries_its_type_and_place(void **state) {
    test_caller_expect(caller, call("raise", NULL), TRP_EUSER);
    const trpi_msg_reply *reply = &caller->msg.reply;
    assert_string_equal(reply->message, "no key 7");
    assert_string_equal(reply->error_type, "KeyError");
    assert_non_null(strstr(reply->error_where, "porter.c:"));
    test_caller_expect(caller, call("pass_on", NULL), TRP_EUSER);
    assert_string_equal(reply->error_type, "ValueError");
    assert_string_equal(reply->error_where, "far.c:1 f()");
    test_caller_expect(caller, call("ad", NULL), TRP_ENOTFOUND);
    assert_string_equal(reply->error_type, "");
    assert_non_null(strstr(reply->message, "did you mean \"add\"?"));
}

#define OF(kind, test)                                                                             \
    { #kind ": " #test, test, start_##kind, end, NULL }

int main(void) {
    test_worker_if_asked(test_porter_types);
    const struct CMUnitTest tests[] = {
        OF(serial, calls_run_one_by_one_unless_asked_otherwise),
        OF(concurrent, the_default_group_has_max_concurrency_threads),
        OF(porter, groups_run_side_by_side),
        OF(porter, a_group_runs_no_more_at_once_than_it_has_threads),
        OF(porter, a_full_group_does_not_hold_up_another_one),
        OF(porter, threads_are_made_when_calls_need_them),
        OF(porter, a_thread_that_cannot_be_made_fails_its_call_only),
        cmocka_unit_test_teardown(an_idle_worker_has_three_threads, end),
        OF(serial, a_call_that_waits_and_is_canceled_does_not_run),
        OF(porter, a_call_that_waits_and_is_canceled_does_not_run),
        OF(serial, a_running_call_sees_that_it_is_canceled),
        OF(porter, a_running_call_sees_that_it_is_canceled),
        OF(concurrent, a_running_call_sees_that_it_is_canceled),
        OF(serial, a_cancel_concerns_one_call_only),
        OF(porter, a_cancel_concerns_one_call_only),
        OF(serial, a_deferred_call_that_is_canceled_is_not_answered),
        OF(porter, a_deferred_call_that_is_canceled_is_not_answered),
        OF(serial, many_canceled_calls_cost_no_walks),
        OF(porter, many_canceled_calls_cost_no_walks),
        OF(serial, a_method_knows_its_caller),
        OF(porter, a_method_knows_its_caller),
        OF(serial, an_error_carries_its_type_and_place),
        OF(porter, an_error_carries_its_type_and_place),
    };
    test_fake_node_open(&node);
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    test_fake_node_close(&node);
    return failures;
}

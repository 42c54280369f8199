/* Unit tests of actors/state/worker_works.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/state/worker_works.h"

static trpi_works works;

static int setup(void **state) {
    static const uint32_t threads_max[] = {1, 2};
    trpi_works_init(&works, threads_max, 2);
    return 0;
}

static int teardown(void **state) {
    trpi_works_release(&works);
    return 0;
}

static void check(void) {
    const char *broken = trpi_works_check(&works);
    if (broken != NULL) {
        fail_msg("%s", broken);
    }
}

static bool add(trpi_work *work, const char *peer, uint64_t call, uint32_t group) {
    *work = (trpi_work){.peer = trp_bytes_of(peer), .call = call, .group = group};
    bool wants_thread = trpi_works_add(&works, work);
    check();
    return wants_thread;
}

static void calls_leave_a_line_in_the_order_of_their_arrival(void **state) {
    trpi_work calls[3];
    for (uint64_t i = 0; i < 3; i++) {
        add(&calls[i], "anna", i, 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(trpi_works_next(&works, 0), &calls[i]);
        trpi_works_end(&works, &calls[i]);
        check();
    }
    assert_null(trpi_works_next(&works, 0));
}

static void groups_do_not_wait_for_each_other(void **state) {
    trpi_work slow, quick;
    add(&slow, "anna", 1, 0);
    add(&quick, "anna", 2, 1);
    assert_ptr_equal(trpi_works_next(&works, 1), &quick);
    assert_null(trpi_works_next(&works, 1));
    assert_ptr_equal(trpi_works_next(&works, 0), &slow);
    trpi_works_end(&works, &slow);
    trpi_works_end(&works, &quick);
}

static void a_thread_is_wanted_only_when_all_that_there_are_have_work(void **state) {
    trpi_work calls[4];
    assert_true(add(&calls[0], "anna", 0, 1));
    trpi_works_thread_made(&works, 1); /* it is on its way to the first call */
    trpi_works_next(&works, 1);
    assert_true(add(&calls[1], "anna", 1, 1));
    trpi_works_thread_made(&works, 1);
    trpi_works_next(&works, 1);
    assert_false(add(&calls[2], "anna", 2, 1)); /* the group has as many as it may have */
    trpi_works_end(&works, &calls[0]);
    trpi_works_next(&works, 1);
    trpi_works_end(&works, &calls[1]);
    assert_false(add(&calls[3], "anna", 3, 1)); /* one of them has nothing to do */
    for (int i = 2; i < 4; i++) {
        trpi_works_end(&works, &calls[i]);
    }
    check();
}

static void a_call_that_waits_is_taken_out_by_its_cancel(void **state) {
    trpi_work calls[3];
    for (uint64_t i = 0; i < 3; i++) {
        add(&calls[i], "anna", i, 0);
    }
    assert_null(trpi_works_cancel(&works, trp_bytes_of("bert"), 1)); /* not his */
    assert_null(trpi_works_cancel(&works, trp_bytes_of("anna"), 7));
    assert_ptr_equal(trpi_works_cancel(&works, trp_bytes_of("anna"), 1), &calls[1]);
    assert_null(trpi_works_cancel(&works, trp_bytes_of("anna"), 1)); /* said twice */
    check();
    assert_ptr_equal(trpi_works_next(&works, 0), &calls[0]);
    trpi_works_end(&works, &calls[0]);
    assert_ptr_equal(trpi_works_next(&works, 0), &calls[2]);
    trpi_works_end(&works, &calls[2]);
}

static void a_call_that_runs_is_told_of_its_cancel(void **state) {
    trpi_work call;
    add(&call, "anna", 1, 0);
    trpi_works_next(&works, 0);
    assert_null(trpi_works_cancel(&works, trp_bytes_of("anna"), 1));
    assert_true(call.is_canceled);
    trpi_works_end(&works, &call);
    assert_null(trpi_works_cancel(&works, trp_bytes_of("anna"), 1)); /* too late for it */
    check();
}

static void a_deferred_call_can_be_canceled_before_and_after_its_method_returns(void **state) {
    for (int round = 0; round < 2; round++) {
        trpi_work call, deferred = {.peer = trp_bytes_of("anna")};
        add(&call, "anna", 1, 0);
        trpi_works_next(&works, 0);
        trpi_works_defer(&works, &call, &deferred);
        check();
        if (round == 0) {
            trpi_works_end(&works, &call);
        }
        assert_null(trpi_works_cancel(&works, trp_bytes_of("anna"), 1));
        assert_true(deferred.is_canceled);
        assert_int_equal(works.counts[TRPI_WORK_DEFERRED], 1);
        trpi_works_end(&works, &deferred);
        if (round == 1) {
            assert_true(call.is_canceled);
            trpi_works_end(&works, &call);
        }
        check();
    }
}

/* Many calls of many callers, ended in an order of their own: the index grows and stays right. */
static void any_order_of_adding_canceling_and_ending_leaves_nothing(void **state) {
    enum { CALLS = 3000 };
    static trpi_work calls[CALLS];
    static char peers[CALLS][12];
    uint64_t seed = 1;
    size_t taken = 0, running = 0;
    for (uint64_t i = 0; i < CALLS; i++) {
        trpi_format(peers[i], sizeof peers[i], "peer%d", (int)(i % 7));
        calls[i] = (trpi_work){.peer = trp_bytes_of(peers[i]), .call = i, .group = i % 2};
        trpi_works_add(&works, &calls[i]);
    }
    check();
    while (works.counts[TRPI_WORK_WAITING] > 0) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        trpi_work *any = &calls[(seed >> 33) % CALLS];
        if (seed >> 62 == 0) {
            taken += trpi_works_cancel(&works, any->peer, any->call) != NULL;
        } else {
            trpi_work *next = trpi_works_next(&works, (seed >> 40) % 2);
            running += next != NULL;
        }
    }
    check();
    assert_int_equal(taken + running, CALLS);
    for (int i = 0; i < CALLS; i++) {
        if (calls[i].phase == TRPI_WORK_RUNNING) {
            trpi_works_end(&works, &calls[i]);
        }
    }
    check();
    assert_int_equal(works.counts[TRPI_WORK_RUNNING], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_leave_a_line_in_the_order_of_their_arrival, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(groups_do_not_wait_for_each_other, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thread_is_wanted_only_when_all_that_there_are_have_work,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_call_that_waits_is_taken_out_by_its_cancel, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_call_that_runs_is_told_of_its_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_deferred_call_can_be_canceled_before_and_after_its_method_returns, setup, teardown),
        cmocka_unit_test_setup_teardown(any_order_of_adding_canceling_and_ending_leaves_nothing,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

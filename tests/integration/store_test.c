/* store_test.c: the object store under real daemons: who can get what, what it costs when somebody
 * dies, and that all memory comes back. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <troupe/object.h>

#include "tests/lib/cluster.h"

#define MIB ((size_t)1 << 20)
#define STORE_BYTES "67108864" /* 64 MiB: small, so that it can be filled */

static test_cluster cluster;
static trp_runtime *rt;

/* ---- The actor ---- */

static trp_object object_in(trp_bytes args) {
    trp_object object = {0};
    memcpy(&object.id, args.data, args.size < sizeof(object.id) ? args.size : sizeof(object.id));
    return object;
}

static uint64_t number_in(trp_bytes args) {
    return object_in(args).id;
}

static trp_code reply_number(trp_buf *reply, uint64_t number) {
    return trp_buf_append(reply, &number, sizeof(number));
}

static uint64_t sum_of(trp_bytes bytes) {
    const unsigned char *data = bytes.data;
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes.size; i++) {
        sum += data[i];
    }
    return sum;
}

/* Gets the object, sums its bytes, and lets go of it. */
static trp_code keeper_sum(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    trp_bytes bytes;
    trp_object object = object_in(args);
    trp_code code =
        own != NULL ? trp_object_get(own, object, 20000, &bytes, err) : TRP_EDISCONNECTED;
    if (code == TRP_OK) {
        code = reply_number(reply, sum_of(bytes));
        trp_object_release(own, object);
    }
    return code;
}

/* Gets the object and keeps it. */
static trp_code keeper_keep(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    trp_bytes bytes;
    trp_code code =
        own != NULL ? trp_object_get(own, object_in(args), 20000, &bytes, err) : TRP_EDISCONNECTED;
    return code == TRP_OK ? reply_number(reply, sum_of(bytes)) : code;
}

/* An object of so many bytes, all 1, which it keeps. */
static trp_code make(trp_runtime *own, size_t size, trp_object *ret_object, trp_error *err) {
    void *data;
    trp_code code = trp_object_create(own, size, &data, ret_object, err);
    if (code == TRP_OK) {
        memset(data, 1, size);
        code = trp_object_seal(own, *ret_object, err);
    }
    return code;
}

static trp_code keeper_make(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    trp_object object;
    trp_code code = own != NULL ? make(own, number_in(args), &object, err) : TRP_EDISCONNECTED;
    return code == TRP_OK ? reply_number(reply, object.id) : code;
}

/* The same, for its caller. */
static trp_code keeper_give(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    trp_object object;
    trp_code code = own != NULL ? make(own, number_in(args), &object, err) : TRP_EDISCONNECTED;
    if (code == TRP_OK) {
        code = trp_give(ctx, object, err);
    }
    return code == TRP_OK ? reply_number(reply, object.id) : code;
}

/* Passes on what it holds. */
static trp_code keeper_pass(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    return trp_give(ctx, object_in(args), err);
}

static trp_code keeper_used(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    trp_store_info info;
    trp_code code = own != NULL ? trp_store_get_info(own, &info, err) : TRP_EDISCONNECTED;
    return code == TRP_OK ? reply_number(reply, info.used) : code;
}

static trp_code keeper_pid(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    return reply_number(reply, (uint64_t)getpid());
}

static const trp_method keeper_methods[] = {
    {"sum", keeper_sum, NULL},   {"keep", keeper_keep, NULL}, {"make", keeper_make, NULL},
    {"give", keeper_give, NULL}, {"pass", keeper_pass, NULL}, {"used", keeper_used, NULL},
    {"pid", keeper_pid, NULL},   {NULL, NULL, NULL}};
static const trp_actor_type keeper_type = {.name = "keeper", .methods = keeper_methods};
static const trp_actor_type *const types[] = {&keeper_type, NULL};

/* ---- Short ways ---- */

static trp_actor keeper_on(uint64_t node) {
    trp_spawn_options options = {.node = node, .name = NULL};
    trp_actor actor;
    TEST_OK(trp_spawn(rt, "keeper", (trp_bytes){0}, &options, &actor, err));
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    return actor;
}

static trp_code ask(trp_actor actor, const char *method, uint64_t number, uint64_t *ret_number,
                    trp_error *err) {
    trp_buf reply = {0};
    trp_code code =
        trp_ask(rt, actor, method, (trp_bytes){&number, sizeof(number)}, 30000, &reply, err);
    if (code == TRP_OK) {
        *ret_number = reply.size == sizeof(uint64_t) ? object_in(trp_buf_bytes(&reply)).id : 0;
    }
    trp_buf_release(&reply);
    return code;
}

static uint64_t number_of(trp_actor actor, const char *method, uint64_t number) {
    uint64_t answer = 0;
    TEST_OK(ask(actor, method, number, &answer, err));
    return answer;
}

static uint64_t used(void) {
    trp_store_info info;
    TEST_OK(trp_store_get_info(rt, &info, err));
    return info.used;
}

static bool is_unused(void *arg) {
    return used() == 0;
}

static bool is_unused_there(void *arg) {
    return number_of(*(trp_actor *)arg, "used", 0) == 0;
}

/* What is said without an answer, or by others, arrives soon. */
static void expect_unused(void) {
    assert_true(test_until(is_unused, NULL, 20000));
}

static trp_object put_ones(size_t size) {
    void *data = malloc(size);
    trp_object object;
    assert_non_null(data);
    memset(data, 1, size);
    TEST_OK(trp_put(rt, (trp_bytes){data, size}, &object, err));
    free(data);
    return object;
}

/* ---- One node ---- */

static void what_is_put_is_got_and_its_memory_comes_back(void **state) {
    trp_object object = put_ones(3 * MIB);
    trp_bytes bytes, again;
    assert_true(used() >= 3 * MIB);
    TEST_OK(trp_object_get(rt, object, 1000, &bytes, err));
    TEST_OK(trp_object_get(rt, object, 1000, &again, err));
    assert_int_equal(bytes.size, 3 * MIB);
    assert_ptr_equal(bytes.data, again.data);
    assert_int_equal(sum_of(bytes), 3 * MIB);
    trp_object_release(rt, object);
    trp_object_release(rt, object);
    assert_int_equal(sum_of(again), 3 * MIB);
    trp_object_release(rt, object);
    assert_int_equal(used(), 0);
    trp_error error;
    assert_int_equal(trp_object_get(rt, object, 1000, &bytes, &error), TRP_EOBJECT_LOST);
    trp_object_release(rt, object); /* unknown: ignored */
}

static void what_is_sealed_cannot_be_written(void **state) {
    void *data;
    trp_object object;
    trp_bytes bytes;
    trp_error error;
    TEST_OK(trp_object_create(rt, MIB, &data, &object, err));
    memset(data, 7, MIB);
    assert_int_equal(trp_object_get(rt, object, 0, &bytes, &error), TRP_ETIMEOUT);
    TEST_OK(trp_object_seal(rt, object, err));
    assert_int_equal(trp_object_seal(rt, object, &error), TRP_EINVALID);
    TEST_OK(trp_object_get(rt, object, 1000, &bytes, err));
    assert_int_equal(mprotect((void *)bytes.data, 4096, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
    trp_object_release(rt, object);
    trp_object_release(rt, object);
    TEST_OK(trp_object_create(rt, MIB, &data, &object, err));
    trp_object_release(rt, object); /* given up unsealed */
    assert_int_equal(used(), 0);
}

static void an_argument_by_reference_is_held_until_the_call_is_done(void **state) {
    trp_actor actor = keeper_on(0);
    trp_object object = put_ones(2 * MIB);
    trp_call_options options = {.objects = &object, .object_count = 1, .deadline_ms = 30000};
    trp_ref ref;
    trp_bytes value;
    TEST_OK(trp_call_with(rt, actor, "sum", (trp_bytes){&object.id, sizeof(object.id)}, &options,
                          &ref, err));
    trp_object_release(rt, object);
    TEST_OK(trp_get(rt, ref, 30000, &value, err));
    assert_int_equal(number_in(value), 2 * MIB);
    trp_ref_release(rt, ref);
    expect_unused();
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void a_result_is_given_to_its_caller(void **state) {
    trp_actor actor = keeper_on(0);
    trp_object object = {number_of(actor, "give", 5 * MIB)};
    trp_bytes bytes;
    /* Its maker may go: it is ours now. */
    TEST_OK(trp_kill(rt, actor, false, err));
    assert_true(used() >= 5 * MIB);
    TEST_OK(trp_object_get(rt, object, 1000, &bytes, err));
    assert_int_equal(sum_of(bytes), 5 * MIB);
    trp_object_release(rt, object);
    assert_true(used() >= 5 * MIB);
    trp_object_release(rt, object);
    assert_int_equal(used(), 0);
}

static void what_a_killed_holder_held_comes_back(void **state) {
    trp_actor actor = keeper_on(0);
    trp_object object = put_ones(MIB);
    assert_int_equal(number_of(actor, "keep", object.id), MIB);
    (void)number_of(actor, "make", 4 * MIB);
    trp_object_release(rt, object);
    assert_true(used() >= 5 * MIB);
    TEST_OK(trp_monitor(rt, actor, err));
    assert_int_equal(kill((pid_t)number_of(actor, "pid", 0), SIGKILL), 0);
    expect_unused();
    trp_death death;
    TEST_OK(trp_next_death(rt, 20000, &death, err));
}

static void a_full_store_names_who_holds_it(void **state) {
    trp_actor actor = keeper_on(0);
    (void)number_of(actor, "make", 40 * MIB);
    trp_object object;
    trp_error error;
    void *data;
    assert_int_equal(trp_object_create(rt, 30 * MIB, &data, &object, &error), TRP_EBUSY);
    assert_non_null(strstr(error.message, "is full: 30.0 MiB asked for, 40.0 MiB of 64.0 MiB"));
    char expected[80];
    snprintf(expected, sizeof expected, "a%llu (keeper) (pid %llu) holds 40.0 MiB in 1 object",
             (unsigned long long)actor.id, (unsigned long long)number_of(actor, "pid", 0));
    assert_non_null(strstr(error.message, expected));
    assert_int_equal(trp_object_create(rt, 65 * MIB, &data, &object, &error), TRP_EINVALID);
    TEST_OK(trp_kill(rt, actor, false, err));
    expect_unused();
    TEST_OK(trp_object_create(rt, 30 * MIB, &data, &object, err));
    trp_object_release(rt, object);
}

static void memory_that_is_used_again_is_clean_for_its_reader(void **state) {
    for (int i = 0; i < 50; i++) {
        trp_object object = put_ones(MIB / 2 + (size_t)i * 1000);
        trp_bytes bytes;
        TEST_OK(trp_object_get(rt, object, 1000, &bytes, err));
        assert_int_equal(sum_of(bytes), bytes.size);
        trp_object_release(rt, object);
        trp_object_release(rt, object);
    }
    assert_int_equal(used(), 0);
}

/* ---- Two nodes ---- */

static void an_object_is_got_from_another_node(void **state) {
    trp_actor far = keeper_on(2);
    trp_object object = put_ones(10 * MIB + 123);
    assert_int_equal(number_of(far, "sum", object.id), 10 * MIB + 123);
    assert_int_equal(number_of(far, "sum", object.id), 10 * MIB + 123); /* of the kept copy */
    trp_object_release(rt, object);
    expect_unused();
    trp_error error;
    uint64_t sum;
    assert_int_equal(ask(far, "sum", object.id, &sum, &error), TRP_EOBJECT_LOST);
    /* And back, as a result. */
    object.id = number_of(far, "give", 3 * MIB);
    trp_bytes bytes;
    TEST_OK(trp_object_get(rt, object, 10000, &bytes, err));
    assert_int_equal(sum_of(bytes), 3 * MIB);
    trp_object_release(rt, object);
    assert_true(number_of(far, "used", 0) >= 3 * MIB); /* what was given to us is left */
    trp_object_release(rt, object);
    expect_unused();
    assert_true(test_until(is_unused_there, &far, 20000));
    TEST_OK(trp_kill(rt, far, false, err));
}

static void readers_of_one_node_share_a_copy(void **state) {
    enum { READERS = 6 };
    trp_actor readers[READERS];
    trp_ref refs[READERS];
    trp_object object = put_ones(6 * MIB);
    for (int i = 0; i < READERS; i++) {
        readers[i] = keeper_on(2);
    }
    for (int i = 0; i < READERS; i++) {
        TEST_OK(trp_call(rt, readers[i], "keep", (trp_bytes){&object.id, sizeof(object.id)}, 30000,
                         &refs[i], err));
    }
    TEST_OK(trp_get_all(rt, refs, READERS, 30000, NULL, err));
    assert_int_equal(number_of(readers[0], "used", 0), 6 * MIB);
    trp_object_release(rt, object); /* they hold it, there and here */
    assert_int_equal(used(), 6 * MIB);
    for (int i = 0; i < READERS; i++) {
        trp_ref_release(rt, refs[i]);
        TEST_OK(trp_kill(rt, readers[i], false, err));
    }
    expect_unused();
}

static void a_reader_passes_on_what_another_node_has(void **state) {
    trp_actor far = keeper_on(2), near = keeper_on(1);
    trp_object object = {number_of(near, "make", MIB)};
    assert_int_equal(number_of(far, "keep", object.id), MIB);
    (void)number_of(far, "pass", object.id);
    TEST_OK(trp_kill(rt, near, false, err));
    TEST_OK(trp_kill(rt, far, false, err));
    trp_bytes bytes;
    TEST_OK(trp_object_get(rt, object, 10000, &bytes, err));
    assert_int_equal(sum_of(bytes), MIB);
    trp_object_release(rt, object);
    assert_true(used() >= MIB);
    trp_object_release(rt, object);
    expect_unused();
}

/* ---- Daemons that die. The last ones: they leave the cluster without ---- */

static void a_dead_home_is_an_error_and_what_is_mapped_stays(void **state) {
    trp_actor far = keeper_on(2);
    trp_object mapped = {number_of(far, "give", 2 * MIB)}, lost = {number_of(far, "give", MIB)};
    trp_bytes bytes, none;
    trp_error error;
    TEST_OK(trp_object_get(rt, mapped, 10000, &bytes, err));
    pid_t nodes[4];
    assert_int_equal(test_cluster_pids(&cluster, "node", nodes, 4), 2);
    kill(nodes[1], SIGKILL);
    assert_int_equal(trp_object_get(rt, lost, 30000, &none, &error), TRP_EOBJECT_LOST);
    assert_int_equal(sum_of(bytes), 2 * MIB);
    trp_object_release(rt, mapped);
    expect_unused();
}

static bool calls_fail(void *arg) {
    trp_store_info info;
    trp_error error;
    trp_code code = trp_store_get_info(rt, &info, &error);
    return code == TRP_EUNSUPPORTED;
}

static void without_its_daemon_a_process_is_told_and_keeps_what_it_has_mapped(void **state) {
    trp_object object = put_ones(MIB), other;
    trp_bytes bytes;
    trp_error error;
    TEST_OK(trp_object_get(rt, object, 1000, &bytes, err));
    pid_t nodes[4];
    assert_int_equal(test_cluster_pids(&cluster, "node", nodes, 4), 1);
    kill(nodes[0], SIGKILL);
    assert_true(test_until(calls_fail, NULL, 30000));
    assert_int_equal(trp_put(rt, (trp_bytes){"x", 1}, &other, &error), TRP_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "no node daemon"));
    assert_int_equal(sum_of(bytes), MIB);
    trp_object_release(rt, object);
    trp_object_release(rt, object);
}

static int start(void **state) {
    setenv("TROUPE_STORE_BYTES", STORE_BYTES, 1);
    setenv("TROUPE_NODE_TIMEOUT_MS", "2000", 1);
    test_cluster_start(&cluster, (test_node[]){{.cpus = 4}, {.cpus = 4}}, 2);
    rt = test_connect(&cluster, types);
    return 0;
}

static int stop(void **state) {
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_got_and_its_memory_comes_back),
        cmocka_unit_test(what_is_sealed_cannot_be_written),
        cmocka_unit_test(an_argument_by_reference_is_held_until_the_call_is_done),
        cmocka_unit_test(a_result_is_given_to_its_caller),
        cmocka_unit_test(what_a_killed_holder_held_comes_back),
        cmocka_unit_test(a_full_store_names_who_holds_it),
        cmocka_unit_test(memory_that_is_used_again_is_clean_for_its_reader),
        cmocka_unit_test(an_object_is_got_from_another_node),
        cmocka_unit_test(readers_of_one_node_share_a_copy),
        cmocka_unit_test(a_reader_passes_on_what_another_node_has),
        cmocka_unit_test(a_dead_home_is_an_error_and_what_is_mapped_stays),
        cmocka_unit_test(without_its_daemon_a_process_is_told_and_keeps_what_it_has_mapped),
    };
    return cmocka_run_group_tests_name("store", tests, start, stop);
}

/* society_test.c: actors that end in good order, and those whose lives depend on others or on their
 * node, as a program sees them. */
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
#include "tests/lib/methods.h"

enum { WAIT_MS = 30000 };

static test_cluster cluster;
static trp_runtime *rt;

/* ---- The actor ---- */

typedef struct member {
    long count;
    long stop_ms; /* that its stop hook takes */
} member;

static trp_code member_start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    ((member *)state)->stop_ms = test_number_of(args);
    return TRP_OK;
}

/* Leaves behind how many calls it had answered. */
static void member_stop(trp_context *ctx, void *state) {
    member *self = state;
    char key[64], count[32];
    trp_error err = {0};
    trp_runtime *own = trp_context_runtime(ctx, &err);
    snprintf(key, sizeof key, "society/%" PRIu64, trp_context_actor(ctx).id);
    snprintf(count, sizeof count, "%ld", self->count);
    if (own == NULL || trp_kv_put(own, key, trp_bytes_of(count), &err) != TRP_OK) {
        fprintf(stderr, "%s is not written: %s\n", key, err.message);
    }
    test_sleep_ms(self->stop_ms);
}

static trp_code member_add(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    test_sleep_ms(test_number_of(args));
    return trp_buf_printf(reply, "%ld", ++((member *)state)->count);
}

static trp_code member_pid(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    return trp_buf_printf(reply, "%d", (int)getpid());
}

static trp_code member_link(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    return own == NULL ? err->code
                       : trp_link(own, (trp_actor){(uint64_t)test_number_of(args)}, err);
}

static trp_code member_unlink(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                              trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    return own == NULL ? err->code
                       : trp_unlink(own, (trp_actor){(uint64_t)test_number_of(args)}, err);
}

static trp_code member_sees(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    char cwd[256];
    const char *job = getenv("SOCIETY_JOB"), *own = getenv("SOCIETY_OWN");
    return trp_buf_printf(reply, "%s %s %s", getcwd(cwd, sizeof cwd), job ? job : "-",
                          own ? own : "-");
}

static const trp_method member_methods[] = {
    {"add", member_add},       {"pid", member_pid},   {"link", member_link},
    {"unlink", member_unlink}, {"sees", member_sees}, {NULL, NULL},
};
static const trp_actor_type member_type = {.name = "member",
                                           .state_size = sizeof(member),
                                           .methods = member_methods,
                                           .start = member_start,
                                           .stop = member_stop};
static const trp_actor_type *const types[] = {&member_type, NULL};

/* A living one whose deaths are told. */
static trp_actor spawn(const trp_spawn_options *options, const char *stop_ms) {
    trp_actor actor;
    TEST_OK(trp_spawn(rt, "member", trp_bytes_of(stop_ms), options, &actor, err));
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    TEST_OK(trp_monitor(rt, actor, err));
    return actor;
}

static void kill_process_of(trp_actor actor) {
    assert_int_equal(kill((pid_t)test_ask_number(rt, actor, "pid", NULL), SIGKILL), 0);
}

static void expect_final(trp_actor actor, trp_cause cause) {
    trp_death death = test_wait_death(rt, actor);
    if (death.cause != cause || !death.final) {
        fail_msg("%s, final %d", death.message, death.final);
    }
}

/* The next death of each of them, in any order. */
static void wait_deaths(const trp_actor *actors, int count, bool are_final) {
    unsigned seen = 0;
    while (seen != (1u << count) - 1) {
        trp_death death;
        TEST_OK(trp_next_death(rt, WAIT_MS, &death, err));
        for (int i = 0; i < count; i++) {
            if (death.actor.id == actors[i].id) {
                assert_int_equal(seen >> i & 1, 0);
                assert_int_equal(death.final, are_final);
                seen |= 1u << i;
            }
        }
    }
}

static const char *id_text(trp_actor actor) {
    static char text[32];
    snprintf(text, sizeof text, "%" PRIu64, actor.id);
    return text;
}

/* ---- The end in good order ---- */

static void A22_a_stopped_actor_answers_what_it_has_got_and_cleans_up(void **state) {
    trp_actor actor = spawn(&(trp_spawn_options){.restarts_max = -1}, NULL);
    trp_ref refs[10];
    char key[64];
    trp_buf left = {0};
    trp_error error = {0};
    for (int i = 0; i < 10; i++) {
        refs[i] = test_call(rt, actor, "add", "10");
    }
    TEST_OK(trp_get(rt, refs[0], WAIT_MS, NULL, err));
    TEST_OK(trp_stop(rt, actor, WAIT_MS, err));
    TEST_OK(trp_get_all(rt, refs, 10, WAIT_MS, NULL, err));
    snprintf(key, sizeof key, "society/%" PRIu64, actor.id);
    TEST_OK(trp_kv_get(rt, key, &left, err));
    assert_int_equal(left.size, 2);
    assert_memory_equal(left.data, "10", 2);
    expect_final(actor, TRP_CAUSE_STOPPED);
    assert_int_equal(trp_ask(rt, actor, "add", (trp_bytes){0}, WAIT_MS, NULL, &error),
                     TRP_EACTOR_DIED);
    for (int i = 0; i < 10; i++) {
        trp_ref_release(rt, refs[i]);
    }
    trp_buf_release(&left);
}

static void A22_a_stop_that_takes_too_long_is_a_kill(void **state) {
    trp_actor actor = spawn(NULL, "60000");
    trp_error error = {0};
    uint64_t before = test_now_ms();
    assert_int_equal(trp_stop(rt, actor, 300, &error), TRP_ETIMEOUT);
    uint64_t took_ms = test_now_ms() - before;
    assert_true(took_ms >= 290 && took_ms < 10000);
    assert_true(test_wait_death(rt, actor).final);
}

static void A22_a_kill_skips_the_hook(void **state) {
    trp_actor actor = spawn(NULL, NULL);
    char key[64];
    trp_buf left = {0};
    trp_error error = {0};
    assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
    TEST_OK(trp_kill(rt, actor, false, err));
    expect_final(actor, TRP_CAUSE_KILLED);
    snprintf(key, sizeof key, "society/%" PRIu64, actor.id);
    assert_int_equal(trp_kv_get(rt, key, &left, &error), TRP_ENOTFOUND);
    trp_buf_release(&left);
}

static void a_pending_actor_is_stopped_by_canceling_it(void **state) {
    trp_actor actor;
    TEST_OK(
        trp_spawn(rt, "member", (trp_bytes){0}, &(trp_spawn_options){.cpus = 100000}, &actor, err));
    TEST_OK(trp_stop(rt, actor, WAIT_MS, err));
    trp_error error = {0};
    assert_int_equal(trp_actor_wait_alive(rt, actor, WAIT_MS, &error), TRP_EACTOR_DIED);
}

/* ---- Links and gangs ---- */

static void linked_actors_die_together(void **state) {
    trp_actor one = spawn(NULL, NULL), other = spawn(NULL, NULL), third = spawn(NULL, NULL);
    TEST_OK(trp_ask(rt, one, "link", trp_bytes_of(id_text(other)), WAIT_MS, NULL, err));
    TEST_OK(trp_ask(rt, one, "link", trp_bytes_of(id_text(third)), WAIT_MS, NULL, err));
    TEST_OK(trp_ask(rt, one, "unlink", trp_bytes_of(id_text(third)), WAIT_MS, NULL, err));
    kill_process_of(other);
    expect_final(other, TRP_CAUSE_SIGNALED);
    expect_final(one, TRP_CAUSE_LINKED);
    assert_int_equal(test_ask_number(rt, third, "add", NULL), 1);
    trp_error error = {0};
    assert_int_equal(
        trp_ask(rt, third, "link", trp_bytes_of(id_text(other)), WAIT_MS, NULL, &error),
        TRP_EACTOR_DIED);
    TEST_OK(trp_kill(rt, third, false, err));
    expect_final(third, TRP_CAUSE_KILLED);
}

static void a_gang_ends_with_one_of_its_members(void **state) {
    trp_gang gang;
    trp_actor actors[3];
    TEST_OK(trp_gang_create(rt, NULL, &gang, err));
    for (int i = 0; i < 3; i++) {
        actors[i] = spawn(&(trp_spawn_options){.gang = gang, .restarts_max = -1}, NULL);
    }
    TEST_OK(trp_stop(rt, actors[2], WAIT_MS, err)); /* leaves the others alone */
    expect_final(actors[2], TRP_CAUSE_STOPPED);
    assert_int_equal(test_ask_number(rt, actors[1], "add", NULL), 1);
    kill_process_of(actors[0]);
    assert_true(test_wait_death(rt, actors[0]).final);
    expect_final(actors[1], TRP_CAUSE_GANG);
}

static void a_gang_restarts_together(void **state) {
    trp_gang gang;
    trp_actor actors[3];
    trp_gang_options options = {.policy = TRP_GANG_RESTART, .restarts_max = 1};
    TEST_OK(trp_gang_create(rt, &options, &gang, err));
    for (int i = 0; i < 3; i++) {
        actors[i] = spawn(&(trp_spawn_options){.gang = gang}, NULL);
        assert_int_equal(test_ask_number(rt, actors[i], "add", NULL), 1);
    }
    kill_process_of(actors[0]);
    wait_deaths(actors, 3, false);
    for (int i = 0; i < 3; i++) {
        trp_actor_info info;
        TEST_OK(trp_actor_wait_alive(rt, actors[i], WAIT_MS, err));
        TEST_OK(trp_actor_get_info(rt, actors[i], &info, err));
        assert_int_equal(info.incarnation, 2);
        assert_int_equal(test_ask_number(rt, actors[i], "add", NULL), 1);
    }
    TEST_OK(trp_gang_end(rt, gang, err));
    wait_deaths(actors, 3, true);
}

/* ---- Where and as whom ---- */

static void names_are_looked_up_in_any_namespace(void **state) {
    trp_actor actor = spawn(&(trp_spawn_options){.name = "tom"}, NULL), found = {0};
    trp_error error = {0};
    trp_bundle bundle = {.cpus = 1};
    trp_group group, same = {0};
    TEST_OK(trp_lookup_in(rt, trp_runtime_namespace(rt), "tom", &found, err));
    assert_int_equal(found.id, actor.id);
    assert_int_equal(trp_lookup_in(rt, "elsewhere", "tom", &found, &error), TRP_ENOTFOUND);
    TEST_OK(trp_group_create(
        rt, &(trp_group_options){.name = "trio", .bundles = &bundle, .bundle_count = 1}, &group,
        err));
    TEST_OK(trp_group_lookup(rt, "trio", &same, err));
    assert_int_equal(same.id, group.id);
    assert_int_equal(trp_group_lookup(rt, "duo", &same, &error), TRP_ENOTFOUND);
    TEST_OK(trp_group_remove(rt, group, err));
    TEST_OK(trp_kill(rt, actor, false, err));
    expect_final(actor, TRP_CAUSE_KILLED);
}

static void an_actors_environment_is_over_its_jobs(void **state) {
    static const char *const own[] = {"SOCIETY_OWN=mine", NULL};
    static const char *const over[] = {"SOCIETY_JOB=over", NULL};
    trp_actor plain = spawn(NULL, NULL);
    trp_actor dressed = spawn(&(trp_spawn_options){.env = own, .cwd = "/"}, NULL);
    trp_actor covered = spawn(&(trp_spawn_options){.env = over}, NULL);
    char here[256], expected[300];
    snprintf(expected, sizeof expected, "%s job -", getcwd(here, sizeof here));
    assert_string_equal(test_ask(rt, plain, "sees", NULL, NULL, NULL), expected);
    assert_string_equal(test_ask(rt, dressed, "sees", NULL, NULL, NULL), "/ job mine");
    assert_non_null(strstr(test_ask(rt, covered, "sees", NULL, NULL, NULL), " over -"));
    trp_actor all[] = {plain, dressed, covered};
    for (int i = 0; i < 3; i++) {
        TEST_OK(trp_kill(rt, all[i], false, err));
        expect_final(all[i], TRP_CAUSE_KILLED);
    }
}

static void labels_that_no_node_has_are_told_at_once(void **state) {
    trp_actor actor;
    trp_error error = {0};
    static const char *const ssd[] = {"ssd", NULL}, *const no_ssd[] = {"!ssd", "zone!=a", NULL};
    trp_spawn_options options = {.labels = ssd, .fail_if_infeasible = true};
    assert_int_equal(trp_spawn(rt, "member", (trp_bytes){0}, &options, &actor, &error),
                     TRP_EINFEASIBLE);
    options.labels = no_ssd;
    actor = spawn(&options, NULL);
    TEST_OK(trp_kill(rt, actor, false, err));
    expect_final(actor, TRP_CAUSE_KILLED);
}

/* ---- A node that goes away: the last test, it is not given back ---- */

static bool is_draining(void *arg) {
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, *(trp_actor *)arg, &info, err));
    return info.draining;
}

static void A34_a_drained_node_keeps_its_actors_until_the_deadline(void **state) {
    trp_actor leaves = spawn(&(trp_spawn_options){.restarts_max = 1}, NULL);
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, leaves, &info, err));
    uint64_t drained = info.node;
    assert_false(info.draining);
    TEST_OK(trp_drain_node(rt, drained, "preemption", 1500, err));
    assert_true(test_until(is_draining, &leaves, WAIT_MS));
    TEST_OK(trp_actor_get_info(rt, leaves, &info, err));
    assert_true(info.drain_ms > 0 && info.drain_ms <= 1500);
    trp_actor later = spawn(NULL, NULL);
    TEST_OK(trp_actor_get_info(rt, later, &info, err));
    assert_int_not_equal(info.node, drained);
    assert_int_equal(test_ask_number(rt, leaves, "add", NULL), 1); /* it is still there */
    trp_death death = test_wait_death(rt, leaves);
    assert_int_equal(death.cause, TRP_CAUSE_DRAINED);
    assert_false(death.final);
    TEST_OK(trp_actor_wait_alive(rt, leaves, WAIT_MS, err));
    TEST_OK(trp_actor_get_info(rt, leaves, &info, err));
    assert_int_not_equal(info.node, drained);
    kill_process_of(leaves); /* its one restart is still left */
    assert_false(test_wait_death(rt, leaves).final);
    TEST_OK(trp_kill(rt, leaves, false, err));
    TEST_OK(trp_kill(rt, later, false, err));
}

static int set_up(void **state) {
    static const char *const env[] = {"SOCIETY_JOB=job", NULL};
    test_cluster_start(&cluster, (test_node[]){{.cpus = 4}, {.cpus = 4}}, 2);
    trp_init_options options = {.address = cluster.address, .env = env};
    TEST_OK(trp_init(types, &options, &rt, err));
    return 0;
}

static int tear_down(void **state) {
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A22_a_stopped_actor_answers_what_it_has_got_and_cleans_up),
        cmocka_unit_test(A22_a_stop_that_takes_too_long_is_a_kill),
        cmocka_unit_test(A22_a_kill_skips_the_hook),
        cmocka_unit_test(a_pending_actor_is_stopped_by_canceling_it),
        cmocka_unit_test(linked_actors_die_together),
        cmocka_unit_test(a_gang_ends_with_one_of_its_members),
        cmocka_unit_test(a_gang_restarts_together),
        cmocka_unit_test(names_are_looked_up_in_any_namespace),
        cmocka_unit_test(an_actors_environment_is_over_its_jobs),
        cmocka_unit_test(labels_that_no_node_has_are_told_at_once),
        cmocka_unit_test(A34_a_drained_node_keeps_its_actors_until_the_deadline),
    };
    return cmocka_run_group_tests_name("society", tests, set_up, tear_down);
}

/* lives_test.c: how actors end, who is told, and what goes with them. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "tests/lib/actors.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"

enum { RACERS = 100 };

static test_cluster cluster;
static trp_runtime *rt;

static bool process_gone(void *arg) {
    return kill(*(pid_t *)arg, 0) != 0 && errno == ESRCH;
}

static bool no_actor_named(void *arg) {
    trp_actor actor;
    trp_error error;
    return trp_lookup(rt, arg, &actor, &error) == TRP_ENOTFOUND;
}

/* Ends an actor with infinite restarts by `method` and returns how it died. */
static trp_death end_by(const char *method, const char *argument) {
    trp_actor actor = test_spawn(rt, &(trp_spawn_options){.restarts_max = -1}, NULL);
    test_ask_number(rt, actor, "add", NULL);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_code code;
    test_ask(rt, actor, method, argument, &code, NULL);
    trp_death death = test_wait_death(rt, actor);
    if (!death.final) {
        TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
        assert_int_equal(test_ask_number(rt, actor, "add", NULL), 1);
        TEST_OK(trp_kill(rt, actor, false, err));
    }
    return death;
}

static void A06_orderly_exits_are_final_and_crashes_are_not(void **state) {
    trp_death death = end_by("exit", "0");
    assert_true(death.final);
    assert_int_equal(death.cause, TRP_CAUSE_EXITED);
    assert_int_equal(death.exit_code, 0);

    death = end_by("leave", NULL);
    assert_true(death.final);
    assert_int_equal(death.cause, TRP_CAUSE_FINISHED);

    death = end_by("exit", "4");
    assert_false(death.final);
    assert_int_equal(death.cause, TRP_CAUSE_EXITED);
    assert_int_equal(death.exit_code, 4);
    assert_non_null(strstr(death.message, "exit code 4"));

    death = end_by("raise", "11");
    assert_false(death.final);
    assert_int_equal(death.cause, TRP_CAUSE_SIGNALED);
    assert_int_equal(death.signal, SIGSEGV);
    assert_non_null(strstr(death.stderr_tail, "subject raises 11"));

    trp_actor actor = test_spawn(rt, &(trp_spawn_options){.restarts_max = -1}, "fail");
    TEST_OK(trp_monitor(rt, actor, err));
    death = test_wait_death(rt, actor);
    assert_true(death.final);
    assert_int_equal(death.cause, TRP_CAUSE_NEVER_STARTED);
    assert_non_null(strstr(death.message, "asked to fail at start"));
}

/* Its driver has the reply, and has not looked at its connections since. */
static void an_actor_that_ends_itself_does_not_wait_for_its_busy_driver(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    test_ask_number(rt, actor, "add", NULL);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_code code;
    test_ask(rt, actor, "leave", NULL, &code, NULL);
    uint64_t left_ns = trpi_now_ns();
    assert_int_equal(test_wait_death(rt, actor).cause, TRP_CAUSE_FINISHED);
    assert_true(trpi_now_ns() - left_ns < 3000000000u);
}

static void A08_each_way_of_dying_is_told_apart(void **state) {
    trp_error error = {0};
    trp_code code;

    trp_actor killed = test_spawn(rt, NULL, NULL);
    test_ask_number(rt, killed, "add", NULL);
    TEST_OK(trp_kill(rt, killed, false, err));
    test_ask(rt, killed, "add", NULL, &code, &error);
    assert_int_equal(code, TRP_EACTOR_DIED);
    assert_non_null(strstr(error.message, "killed by"));
    assert_int_equal(error.actor, killed.id);

    trp_actor never = test_spawn(rt, NULL, "fail");
    test_ask(rt, never, "add", NULL, &code, &error);
    assert_int_equal(code, TRP_EACTOR_DIED);
    assert_non_null(strstr(error.message, "asked to fail at start"));
    assert_int_equal(error.actor, never.id);

    trp_actor impossible = {0};
    trp_spawn_options options = {.gpus = 64, .fail_if_infeasible = true};
    assert_int_equal(trp_spawn(rt, "subject", (trp_bytes){0}, &options, &impossible, &error),
                     TRP_EINFEASIBLE);
    assert_non_null(strstr(error.message, "64"));

    trp_actor slow = test_spawn(rt, &(trp_spawn_options){.start_timeout_ms = 300}, "sleep");
    TEST_OK(trp_monitor(rt, slow, err));
    trp_death death = test_wait_death(rt, slow);
    assert_int_equal(death.cause, TRP_CAUSE_START_TIMEOUT);

    trp_actor parent = test_spawn(rt, NULL, NULL);
    trp_actor child = {(uint64_t)test_ask_number(rt, parent, "spawn", NULL)};
    test_ask_number(rt, child, "add", NULL);
    TEST_OK(trp_monitor(rt, child, err));
    TEST_OK(trp_kill(rt, parent, false, err));
    death = test_wait_death(rt, child);
    assert_int_equal(death.cause, TRP_CAUSE_OWNER_DIED);
    test_ask(rt, child, "add", NULL, &code, &error);
    assert_int_equal(code, TRP_EACTOR_DIED);
    assert_int_equal(error.actor, child.id);
}

static void A08_a_dead_node_is_the_cause_of_its_actors_deaths(void **state) {
    test_cluster_add(&cluster, &(test_node){.cpus = 1, .resources = "doomed=1"});
    trp_resource doomed = {"doomed", 1};
    trp_actor actor =
        test_spawn(rt, &(trp_spawn_options){.resources = &doomed, .resource_count = 1}, NULL);
    pid_t worker = (pid_t)test_ask_number(rt, actor, "pid", NULL);
    TEST_OK(trp_monitor(rt, actor, err));
    pid_t nodes[8];
    size_t count = test_cluster_pids(&cluster, "node", nodes, 8);
    assert_int_equal(count, 2);
    assert_int_equal(kill(nodes[1], SIGKILL), 0);
    trp_death death = test_wait_death(rt, actor);
    assert_int_equal(death.cause, TRP_CAUSE_NODE_DIED);
    assert_true(test_until(process_gone, &worker, 5000));
}

static void a_dead_actors_own_children_go_with_it(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    pid_t child = (pid_t)test_ask_number(rt, actor, "fork", NULL);
    assert_int_equal(kill(child, 0), 0);
    TEST_OK(trp_kill(rt, actor, false, err));
    assert_true(test_until(process_gone, &child, 5000));
}

static void monitoring_a_dead_actor_tells_at_once(void **state) {
    trp_actor actor = test_spawn(rt, NULL, NULL);
    test_ask_number(rt, actor, "add", NULL);
    TEST_OK(trp_kill(rt, actor, false, err));
    trp_code code;
    test_ask(rt, actor, "add", NULL, &code, NULL);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_death death = test_wait_death(rt, actor);
    assert_true(death.final);
    assert_int_equal(death.cause, TRP_CAUSE_KILLED);
}

static void names_are_unique_and_come_free_with_death(void **state) {
    trp_spawn_options options = {.name = "only"};
    trp_actor first = test_spawn(rt, &options, NULL), again = {0};
    trp_error error = {0};
    assert_int_equal(trp_spawn(rt, "subject", (trp_bytes){0}, &options, &again, &error),
                     TRP_EEXISTS);
    assert_non_null(strstr(error.message, "only"));
    TEST_OK(trp_lookup(rt, "only", &again, err));
    assert_int_equal(again.id, first.id);
    TEST_OK(trp_kill(rt, first, false, err));
    assert_true(test_until(no_actor_named, (void *)"only", 5000));
    again = test_spawn(rt, &options, NULL);
    assert_int_not_equal(again.id, first.id);
    TEST_OK(trp_kill(rt, again, false, err));
}

static void *race(void *arg) {
    trp_spawn_options options = {.name = "race", .get_if_exists = true};
    *(trp_actor *)arg = test_spawn(rt, &options, NULL);
    return NULL;
}

static void A18_get_or_create_makes_one_actor_for_a_hundred_racers(void **state) {
    pthread_t threads[RACERS];
    trp_actor actors[RACERS];
    for (int i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, race, &actors[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(actors[i].id, actors[0].id);
    }
    assert_int_equal(test_ask_number(rt, actors[0], "add", NULL), 1);
    TEST_OK(trp_kill(rt, actors[0], false, err));
}

/* ---- A15: a second driver, which is this program started again ---- */

/* Spawns an actor, its child, a group and a detached actor, prints their pids and sleeps. */
static int be_a_driver(void) {
    trp_runtime *own = NULL;
    trp_error error = {0};
    if (trp_init(test_types, NULL, &own, &error) != TRP_OK) {
        printf("error: %s\n", error.message);
        return 1;
    }
    rt = own;
    trp_actor actor = test_spawn(rt, &(trp_spawn_options){.cpus = 1, .restarts_max = -1}, NULL);
    trp_actor child = {(uint64_t)test_ask_number(rt, actor, "spawn", NULL)};
    trp_actor stays = test_spawn(rt, &(trp_spawn_options){.detached = true}, NULL);
    trp_group group;
    trp_bundle bundle = {.cpus = 1};
    TEST_OK(trp_group_create(rt, &(trp_group_options){.bundles = &bundle, .bundle_count = 1},
                             &group, err));
    TEST_OK(trp_group_wait(rt, group, 10000, NULL, 0, err));
    long pids[4] = {
        test_ask_number(rt, actor, "pid", NULL), test_ask_number(rt, child, "pid", NULL),
        test_ask_number(rt, actor, "fork", NULL), test_ask_number(rt, stays, "pid", NULL)};
    printf("pids %ld %ld %ld %ld actor %llu\n", pids[0], pids[1], pids[2], pids[3],
           (unsigned long long)stays.id);
    fflush(stdout);
    for (;;) {
        pause();
    }
}

static void A15_a_killed_driver_takes_all_but_its_detached_actors_with_it(void **state) {
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t driver =
        test_child_start((const char *[]){test_exe(), "--driver", NULL}, fds[1], STDERR_FILENO);
    close(fds[1]);
    char line[256];
    int pids[4];
    unsigned long long detached;
    (void)test_read_line(fds[0], line, sizeof line, "the driver");
    close(fds[0]);
    assert_int_equal(sscanf(line, "pids %d %d %d %d actor %llu", &pids[0], &pids[1], &pids[2],
                            &pids[3], &detached),
                     5);
    uint64_t before = test_now_ms();
    test_child_kill(driver);
    for (int i = 0; i < 3; i++) {
        assert_true(test_until(process_gone, &pids[i], 5000));
    }
    test_expect_all_free(rt, 5000);
    assert_true(test_now_ms() - before < 5000);
    assert_int_equal(kill(pids[3], 0), 0);
    trp_actor stays = {detached};
    assert_int_equal(test_ask_number(rt, stays, "pid", NULL), pids[3]);
    TEST_OK(trp_kill(rt, stays, false, err));
    assert_true(test_until(process_gone, &pids[3], 5000));
}

static int start(void **state) {
    test_cluster_start(&cluster, (test_node[]){{.cpus = 8}}, 1);
    rt = test_connect(&cluster, test_types);
    return 0;
}

static int stop(void **state) {
    test_expect_all_free(rt, 10000);
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(int argc, char **argv) {
    test_serve_if_worker(test_types);
    if (argc > 1 && strcmp(argv[1], "--driver") == 0) {
        return be_a_driver();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A06_orderly_exits_are_final_and_crashes_are_not),
        cmocka_unit_test(an_actor_that_ends_itself_does_not_wait_for_its_busy_driver),
        cmocka_unit_test(A08_each_way_of_dying_is_told_apart),
        cmocka_unit_test(A08_a_dead_node_is_the_cause_of_its_actors_deaths),
        cmocka_unit_test(a_dead_actors_own_children_go_with_it),
        cmocka_unit_test(monitoring_a_dead_actor_tells_at_once),
        cmocka_unit_test(names_are_unique_and_come_free_with_death),
        cmocka_unit_test(A18_get_or_create_makes_one_actor_for_a_hundred_racers),
        cmocka_unit_test(A15_a_killed_driver_takes_all_but_its_detached_actors_with_it),
    };
    return cmocka_run_group_tests_name("lives", tests, start, stop);
}

/* causes_test.c: every cause of death of a real actor, as its monitor, its callers and the list
 * tell it; and those who die again and again. */
#include <inttypes.h>
#include <pthread.h>
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
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"
#include "tests/lib/listing.h"
#include "tests/lib/methods.h"

enum { WAIT_MS = 30000, MEAL_MIB = 400 };

static test_cluster cluster;
static trp_runtime *rt;

/* ---- What the subject cannot do ---- */

static trp_code mortal_pid(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    return trp_buf_printf(reply, "%d", (int)getpid());
}

static trp_code mortal_link(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    return own == NULL ? err->code
                       : trp_link(own, (trp_actor){(uint64_t)test_number_of(args)}, err);
}

/* Takes memory until somebody minds. */
static trp_code mortal_eat(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    size_t size = (size_t)test_number_of(args) << 20;
    char *meal = malloc(size);
    for (size_t i = 0; meal != NULL && i < size; i += 4096) {
        ((volatile char *)meal)[i] = 1;
    }
    pause();
    free(meal);
    return TRP_OK;
}

static const trp_method mortal_methods[] = {{"pid", mortal_pid, NULL},
                                            {"link", mortal_link, NULL},
                                            {"eat", mortal_eat, NULL},
                                            {NULL, NULL, NULL}};
static const trp_actor_type mortal_type = {.name = "mortal", .methods = mortal_methods};
static const trp_actor_type *const types[] = {&mortal_type, &test_subject_type, NULL};

/* ---- One actor to die ---- */

static trp_actor spawn(const char *type, const trp_spawn_options *options) {
    trp_actor actor;
    TEST_OK(trp_spawn(rt, type, (trp_bytes){0}, options, &actor, err));
    return actor;
}

static trp_actor subject(void) {
    trp_actor actor = spawn("subject", NULL);
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    return actor;
}

static trp_actor after(trp_actor actor, const char *method, const char *argument) {
    trp_code code;
    test_ask(rt, actor, method, argument, &code, NULL);
    assert_int_equal(code, TRP_EACTOR_DIED);
    return actor;
}

static trp_actor killed(void) {
    trp_actor actor = subject();
    TEST_OK(trp_kill(rt, actor, false, err));
    return actor;
}

static trp_actor signaled(void) {
    return after(subject(), "raise", "11");
}

static trp_actor exited(void) {
    return after(subject(), "exit", "4");
}

static trp_actor finished(void) {
    trp_actor actor = subject();
    test_ask(rt, actor, "leave", NULL, NULL, NULL);
    return actor;
}

static trp_actor never_started(void) {
    return test_spawn(rt, NULL, "fail");
}

static trp_actor start_timeout(void) {
    return test_spawn(rt, &(trp_spawn_options){.start_timeout_ms = 300}, "sleep");
}

static trp_actor owner_died(void) {
    trp_actor parent = subject();
    trp_actor child = {(uint64_t)test_ask_number(rt, parent, "spawn", NULL)};
    TEST_OK(trp_kill(rt, parent, false, err));
    return child;
}

static uint64_t node_of(trp_actor actor) {
    trp_actor_info info;
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    TEST_OK(trp_actor_get_info(rt, actor, &info, err));
    return info.node;
}

/* On a node of its own, which is added for it and ends with the test. */
static trp_actor on_a_node(const char *type, const char *resource, trp_spawn_options options) {
    char amount[32];
    trp_resource there = {resource, 1};
    snprintf(amount, sizeof amount, "%s=1", resource);
    test_cluster_add(&cluster, &(test_node){.cpus = 1, .resources = amount});
    options.resources = &there;
    options.resource_count = 1;
    trp_actor actor = spawn(type, &options);
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    return actor;
}

static pid_t pid_of_node(uint64_t node) {
    json_t *rows = test_list(rt, "nodes");
    pid_t pid = (pid_t)test_row_number(test_row(rows, "id", node), "pid");
    json_decref(rows);
    assert_true(pid > 1);
    return pid;
}

static trp_actor node_died(void) {
    trp_actor actor = on_a_node("subject", "doomed", (trp_spawn_options){0});
    assert_int_equal(kill(pid_of_node(node_of(actor)), SIGKILL), 0);
    return actor;
}

static trp_actor unschedulable(void) {
    trp_actor there = on_a_node("subject", "leaving", (trp_spawn_options){0});
    trp_actor actor = spawn("subject", &(trp_spawn_options){.cpus = 1, .node = node_of(there)});
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    trp_actor waits = spawn("subject", &(trp_spawn_options){.cpus = 1, .node = node_of(there)});
    assert_int_equal(kill(pid_of_node(node_of(there)), SIGKILL), 0);
    return waits;
}

static trp_actor group_removed(void) {
    trp_group group;
    trp_bundle bundle = {.cpus = 1};
    TEST_OK(trp_group_create(rt, &(trp_group_options){.bundles = &bundle, .bundle_count = 1},
                             &group, err));
    trp_actor actor = spawn("subject", &(trp_spawn_options){.cpus = 1, .group = group});
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    TEST_OK(trp_group_remove(rt, group, err));
    return actor;
}

static trp_actor out_of_memory(void) {
    setenv("TROUPE_WORKER_BYTES_MAX", "314572800", 1);
    setenv("TROUPE_MEMORY_MONITOR_MS", "50", 1);
    trp_actor actor = on_a_node("mortal", "meagre", (trp_spawn_options){0});
    unsetenv("TROUPE_WORKER_BYTES_MAX");
    unsetenv("TROUPE_MEMORY_MONITOR_MS");
    char mib[16];
    snprintf(mib, sizeof mib, "%d", MEAL_MIB);
    return after(actor, "eat", mib);
}

static trp_actor hung(void) {
    trp_actor actor = spawn("subject", &(trp_spawn_options){.liveness_ms = 300});
    return after(actor, "sleep", "60000");
}

static trp_actor stopped(void) {
    trp_actor actor = subject();
    TEST_OK(trp_stop(rt, actor, WAIT_MS, err));
    return actor;
}

static trp_actor linked(void) {
    char id[32];
    trp_actor other = subject(), actor = spawn("mortal", NULL);
    snprintf(id, sizeof id, "%" PRIu64, other.id);
    test_ask(rt, actor, "link", id, NULL, NULL);
    TEST_OK(trp_kill(rt, other, false, err));
    return actor;
}

static trp_actor in_a_gang(void) {
    trp_gang gang;
    TEST_OK(trp_gang_create(rt, &(trp_gang_options){0}, &gang, err));
    trp_actor one = spawn("subject", &(trp_spawn_options){.gang = gang});
    trp_actor two = spawn("subject", &(trp_spawn_options){.gang = gang});
    TEST_OK(trp_actor_wait_alive(rt, two, WAIT_MS, err));
    (void)after(one, "raise", "9");
    return two;
}

static trp_actor drained(void) {
    trp_actor actor = on_a_node("subject", "drained", (trp_spawn_options){0});
    TEST_OK(trp_drain_node(rt, node_of(actor), "maintenance", 100, err));
    return actor;
}

typedef struct ending {
    trp_actor (*end)(void);
    trp_cause cause;
    const char *word; /* of the cause, as the list has it */
    const char *says; /* in the message and in the error of a call */
} ending;

static const ending endings[] = {
    {killed, TRP_CAUSE_KILLED, "killed", "killed by"},
    {signaled, TRP_CAUSE_SIGNALED, "signaled", "SIGSEGV"},
    {exited, TRP_CAUSE_EXITED, "exited", "exit code 4"},
    {finished, TRP_CAUSE_FINISHED, "finished", "ended itself"},
    {never_started, TRP_CAUSE_NEVER_STARTED, "never_started", "asked to fail at start"},
    {start_timeout, TRP_CAUSE_START_TIMEOUT, "start_timeout", "its constructor had not returned"},
    {owner_died, TRP_CAUSE_OWNER_DIED, "owner_died", "owner"},
    {node_died, TRP_CAUSE_NODE_DIED, "node_died", "unexpected: its process ended"},
    {unschedulable, TRP_CAUSE_UNSCHEDULABLE, "unschedulable", "node n"},
    {group_removed, TRP_CAUSE_GROUP_REMOVED, "group_removed", "removed"},
    {out_of_memory, TRP_CAUSE_OUT_OF_MEMORY, "out_of_memory", "GiB"},
    {hung, TRP_CAUSE_HUNG, "hung", "method sleep ran 0.3 s"},
    {stopped, TRP_CAUSE_STOPPED, "stopped", "stop"},
    {linked, TRP_CAUSE_LINKED, "linked", "link"},
    {in_a_gang, TRP_CAUSE_GANG, "gang", "gang"},
    {drained, TRP_CAUSE_DRAINED, "drained", "maintenance"},
};

static void expect_text(const char *text, const char *part, const char *of) {
    if (strstr(text, part) == NULL) {
        fail_msg("%s: \"%s\" is not in \"%s\"", of, part, text);
    }
}

static void expect_told_everywhere(trp_actor actor, const ending *e) {
    TEST_OK(trp_monitor(rt, actor, err));
    trp_death death = test_wait_death(rt, actor);
    print_message("%s: %s\n", e->word, death.message);
    assert_int_equal(death.cause, e->cause);
    assert_true(death.final);
    expect_text(death.message, e->says, e->word);

    trp_code code;
    trp_error error = {0};
    test_ask(rt, actor, "pid", NULL, &code, &error);
    assert_int_equal(code, TRP_EACTOR_DIED);
    assert_int_equal(error.actor, actor.id);
    expect_text(error.message, e->says, e->word);

    json_t *row = test_listed_actor(rt, actor);
    const json_t *listed = json_object_get(row, "death");
    assert_string_equal(test_row_text(row, "state"), "dead");
    assert_string_equal(test_row_text(listed, "cause"), e->word);
    assert_int_equal(test_row_number(listed, "signal"), death.signal);
    assert_int_equal(test_row_number(listed, "exit_code"), death.exit_code);
    assert_int_equal(test_row_number(listed, "pid"), death.pid);
    assert_int_equal(test_row_number(listed, "node"), death.node);
    expect_text(test_row_text(listed, "message"), e->says, e->word);
    json_decref(row);
}

static void A08_every_cause_is_told_apart_by_monitor_callers_and_list(void **state) {
    bool seen[TRP_CAUSE_COUNT] = {[TRP_CAUSE_NONE] = true};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        expect_told_everywhere(endings[i].end(), &endings[i]);
        seen[endings[i].cause] = true;
    }
    for (int cause = 0; cause < TRP_CAUSE_COUNT; cause++) {
        assert_true(seen[cause]);
    }
}

static void A06_the_list_tells_how_a_process_ended(void **state) {
    const struct {
        const char *method, *argument, *cause, *says;
        int signal, exit_code;
    } ends[] = {{"exit", "4", "exited", "exit code 4", 0, 4},
                {"exit", "0", "exited", "exit code 0", 0, 0},
                {"raise", "11", "signaled", "SIGSEGV", SIGSEGV, 0}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        trp_actor actor = after(subject(), ends[i].method, ends[i].argument);
        json_t *row = test_listed_actor(rt, actor);
        const json_t *death = json_object_get(row, "death");
        assert_string_equal(test_row_text(death, "cause"), ends[i].cause);
        assert_int_equal(test_row_number(death, "signal"), ends[i].signal);
        assert_int_equal(test_row_number(death, "exit_code"), ends[i].exit_code);
        expect_text(test_row_text(death, "message"), ends[i].says, ends[i].cause);
        json_decref(row);
    }
}

/* ---- Again and again ---- */

/* Processor time that a daemon has used, in ms. */
static uint64_t processor_ms(pid_t pid) {
    char path[64];
    unsigned long user = 0, system = 0;
    trp_buf text = {0};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    TEST_OK(trpi_file_read(path, 0, &text, err));
    TEST_OK(trp_buf_append(&text, "", 1) == TRP_OK ? TRP_OK : TRP_ENOMEM);
    const char *behind = strrchr((const char *)text.data, ')');
    assert_non_null(behind);
    assert_int_equal(
        sscanf(behind, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
    trp_buf_release(&text);
    return (user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK);
}

static uint64_t daemons_ms(void) {
    pid_t pids[8];
    uint64_t sum = 0;
    const char *roles[] = {"head", "node"};
    for (int role = 0; role < 2; role++) {
        size_t count = test_cluster_pids(&cluster, roles[role], pids, 8);
        for (size_t i = 0; i < count; i++) {
            sum += processor_ms(pids[i]);
        }
    }
    return sum;
}

/* Deaths, each of which is counted as a restart to come, at 0, 0, 100, 300, 700, 1500 and 3100 ms,
 * or up to a quarter of that earlier. */
static void A12_a_crash_loop_is_slow_and_disturbs_nobody(void **state) {
    enum { WATCH_MS = 2500, RESTARTS_MIN = 2, RESTARTS_MAX = 7 };
    trp_actor other = subject();
    trp_actor crashes = test_spawn(rt, &(trp_spawn_options){.restarts_max = -1}, "crash");
    uint64_t before_ms = daemons_ms(), end_ms = test_now_ms() + WATCH_MS, slowest_ms = 0;
    long calls = 0;
    while (test_now_ms() < end_ms) {
        uint64_t start_ms = test_now_ms();
        assert_int_equal(test_ask_number(rt, other, "add", NULL), ++calls);
        uint64_t ms = test_now_ms() - start_ms;
        slowest_ms = ms > slowest_ms ? ms : slowest_ms;
        usleep(10000);
    }
    uint64_t used_ms = daemons_ms() - before_ms;
    json_t *row = test_listed_actor(rt, crashes);
    long long restarts = test_row_number(row, "restarts");
    print_message("%lld restarts, daemons used %" PRIu64 " ms, %ld calls, slowest %" PRIu64 " ms\n",
                  restarts, used_ms, calls, slowest_ms);
    assert_in_range(restarts, RESTARTS_MIN, RESTARTS_MAX);
    assert_int_equal(test_row_number(row, "restarts_max"), -1);
    assert_string_equal(test_row_text(json_object_get(row, "death"), "cause"), "signaled");
    assert_true(used_ms < WATCH_MS / 2);
    assert_true(slowest_ms < 2000);
    json_decref(row);
    TEST_OK(trp_kill(rt, crashes, false, err));
    TEST_OK(trp_kill(rt, other, false, err));
}

static void A12_a_crash_loop_ends_at_its_limit(void **state) {
    trp_spawn_options options = {.restarts_max = 3, .restart_backoff_ms = 10};
    trp_actor crashes = test_spawn(rt, &options, "crash");
    TEST_OK(trp_monitor(rt, crashes, err));
    trp_death told;
    do { /* the first ones may have been before anybody listened */
        told = test_wait_death(rt, crashes);
        assert_int_equal(told.cause, TRP_CAUSE_SIGNALED);
        assert_int_equal(told.signal, SIGSEGV);
        assert_int_equal(told.final, told.incarnation == 4);
    } while (!told.final);
    trp_actor_info info;
    TEST_OK(trp_actor_get_info(rt, crashes, &info, err));
    assert_int_equal(info.phase, TRP_ACTOR_DEAD);
    assert_int_equal(info.restarts, 3);
}

/* ---- Processes that never come to register ---- */

/* What the program's own code does in each worker right after the fork, as a handler of a library
 * might: nothing, or what the file says that the test left. */
static int depth; /* forks between the zygote and this process: a worker is behind two */

static void in_a_forked_child(void) {
    const char *path = getenv("CAUSES_FLAG");
    trp_buf text = {0};
    depth++;
    if (depth < 2 || path == NULL || trpi_file_read(path, 0, &text, NULL) != TRP_OK) {
        return;
    }
    if (text.size > 0 && text.data[0] == 'h') {
        for (;;) {
            pause();
        }
    }
    abort();
}

static void leave_flag(const char *text) {
    FILE *file = fopen(getenv("CAUSES_FLAG"), "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* In the log of the daemon. */
static void expect_logged(const char *text) {
    const char *argv[] = {"/bin/grep", "-rq", text, cluster.root, NULL};
    trp_buf output = {0};
    assert_int_equal(test_run(argv, &output, WAIT_MS), 0);
    trp_buf_release(&output);
}

static void A32_a_worker_that_hangs_before_it_registers_is_killed_and_told(void **state) {
    trp_spawn_options options = {
        .restarts_max = 2, .restart_backoff_ms = 10, .start_timeout_ms = 400};
    leave_flag("hang");
    trp_actor actor = test_spawn(rt, &options, NULL);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_death told;
    do {
        told = test_wait_death(rt, actor);
        print_message("%s\n", told.message);
        assert_int_equal(told.cause, TRP_CAUSE_START_TIMEOUT);
        assert_non_null(strstr(told.message, "hung before it registered"));
        assert_int_equal(told.final, told.incarnation == 3);
        assert_true(told.pid == 0 || kill((pid_t)told.pid, 0) != 0);
    } while (!told.final);
    expect_logged("start_timeout.*hung before it registered");
    trp_code code;
    trp_error error = {0};
    test_ask(rt, actor, "add", NULL, &code, &error);
    assert_int_equal(code, TRP_EACTOR_DIED);
    assert_non_null(strstr(error.message, "hung before it registered"));
}

static void A32_a_worker_that_crashes_before_it_registers_is_told_as_crashed(void **state) {
    leave_flag("crash");
    trp_actor actor = test_spawn(rt, NULL, NULL);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_death told = test_wait_death(rt, actor);
    print_message("%s\n", told.message);
    assert_int_equal(told.cause, TRP_CAUSE_SIGNALED);
    assert_int_equal(told.signal, SIGABRT);
    assert_non_null(strstr(told.message, "before it registered"));
    expect_logged("its process died before it had become the actor");
    assert_true(told.final);
    assert_int_equal(unlink(getenv("CAUSES_FLAG")), 0);
    actor = subject(); /* the program is well again */
    TEST_OK(trp_kill(rt, actor, false, err));
}

static int set_up(void **state) {
    test_cluster_start(&cluster, &(test_node){.cpus = 4}, 1);
    rt = test_connect(&cluster, types);
    return 0;
}

static int tear_down(void **state) {
    test_expect_all_free(rt, WAIT_MS);
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

static int set_up_flagged(void **state) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/causes-flag-%d", (int)getpid());
    setenv("CAUSES_FLAG", path, 1);
    setenv("TROUPE_WARM_WORKERS", "0", 1); /* each start forks */
    return set_up(state);
}

static int tear_down_flagged(void **state) {
    (void)unlink(getenv("CAUSES_FLAG"));
    unsetenv("TROUPE_WARM_WORKERS");
    return tear_down(state);
}

int main(void) {
    assert_int_equal(pthread_atfork(NULL, NULL, in_a_forked_child), 0);
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A06_the_list_tells_how_a_process_ended),
        cmocka_unit_test(A08_every_cause_is_told_apart_by_monitor_callers_and_list),
        cmocka_unit_test(A12_a_crash_loop_is_slow_and_disturbs_nobody),
        cmocka_unit_test(A12_a_crash_loop_ends_at_its_limit),
    };
    const struct CMUnitTest flagged[] = {
        cmocka_unit_test(A32_a_worker_that_hangs_before_it_registers_is_killed_and_told),
        cmocka_unit_test(A32_a_worker_that_crashes_before_it_registers_is_told_as_crashed),
    };
    int failed = cmocka_run_group_tests_name("causes of death", tests, set_up, tear_down);
    return failed + cmocka_run_group_tests_name("before they register", flagged, set_up_flagged,
                                                tear_down_flagged);
}

/* jobs_test.c: troupe submit and troupe jobs as a user types them, on a cluster of two nodes; and
 * drivers whose program and directory a node does not have. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/sys/content.h"
#include "core/sys/file.h"
#include "core/sys/process.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"
#include "tests/lib/listing.h"

enum { TIMEOUT_MS = 60000, WORDS_MAX = 24 };

static test_cluster cluster;
static trp_buf output;
static char scratch[64];
static bool is_clean;   /* nothing was left: cmocka does not count what a teardown finds */
static bool has_hidden; /* a third node, which does not see the directory of the test's programs */

/* ---- The program that is submitted: this one ---- */

static trp_code scout_read(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    trp_code code = trpi_file_read("data", 4096, reply, err);
    const char *color = getenv("COLOR");
    return code == TRP_OK ? trp_buf_printf(reply, " %s", color ? color : "none") : code;
}

static trp_code scout_exe(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                          trp_error *err) {
    char path[512];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    return trp_buf_append(reply, path, size > 0 ? (size_t)size : 0);
}

static const trp_method scout_methods[] = {{"read", scout_read}, {"exe", scout_exe}, {NULL, NULL}};
static const trp_actor_type scout_type = {.name = "scout", .methods = scout_methods};
static const trp_actor_type *const types[] = {&scout_type, NULL};

/* Asks a scout that holds one of this resource; prints its answer. */
static trp_code ask_scout(trp_runtime *rt, const char *resource, const char *method,
                          trp_error *err) {
    trp_resource far = {resource, 1};
    trp_spawn_options options = {.resources = &far, .resource_count = 1};
    trp_actor actor;
    trp_buf reply = {0};
    trp_code code = trp_spawn(rt, "scout", (trp_bytes){0}, &options, &actor, err);
    if (code == TRP_OK) {
        code = trp_ask(rt, actor, method, (trp_bytes){0}, TIMEOUT_MS / 2, &reply, err);
    }
    if (code == TRP_OK) {
        printf("scout: %.*s\n", (int)reply.size, (const char *)reply.data);
        fflush(stdout);
    }
    trp_buf_release(&reply);
    return code;
}

/* One that outlives this driver, and has no node yet. */
static trp_code leave_scout(trp_runtime *rt, const char *resource, trp_error *err) {
    trp_resource later = {resource, 1};
    trp_spawn_options options = {
        .name = "stays", .resources = &later, .resource_count = 1, .detached = true};
    trp_actor actor;
    return trp_spawn(rt, "scout", (trp_bytes){0}, &options, &actor, err);
}

/* ARGV: driver RESOURCE METHOD [WORKING-DIR]; METHOD is a scout's, or "leave". */
static int drive(int argc, char **argv) {
    trp_runtime *rt = NULL;
    trp_error err = {0};
    trp_buf data = {0};
    const char *color = getenv("COLOR");
    if (trpi_file_read("data", 4096, &data, NULL) == TRP_OK) {
        printf("driver: %.*s %s\n", (int)data.size, (const char *)data.data, color ? color : "");
    }
    trp_buf_release(&data);
    trp_init_options options = {.working_dir = argc > 4 ? argv[4] : NULL};
    trp_code code = trp_init(types, &options, &rt, &err);
    if (code == TRP_OK) {
        code = strcmp(argv[3], "leave") == 0 ? leave_scout(rt, argv[2], &err)
                                             : ask_scout(rt, argv[2], argv[3], &err);
    }
    trp_shutdown(&rt);
    if (code != TRP_OK) {
        fprintf(stderr, "%s\n", err.message);
    }
    return code == TRP_OK ? 4 : 5;
}

/* ---- Commands ---- */

static int run(const char *const *argv) {
    trp_buf_clear(&output);
    int code = test_run(argv, &output, TIMEOUT_MS);
    assert_int_equal(trp_buf_append(&output, "", 1), TRP_OK);
    return code;
}

/* Runs `troupe LINE`; words are separated by single spaces, and what stands in '' is one. */
static int troupe(const char *line) {
    char text[1024];
    const char *argv[WORDS_MAX] = {getenv("TROUPE_BIN")};
    size_t count = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *at = text; *at != '\0' && count + 1 < WORDS_MAX;) {
        char end = *at == '\'' ? '\'' : ' ';
        at += end == '\'';
        argv[count++] = at;
        at += strcspn(at, end == '\'' ? "'" : " ");
        if (*at != '\0') {
            *at++ = '\0';
        }
        at += end == '\'' && *at == ' ';
    }
    return run(argv);
}

static const char *said(void) {
    return (const char *)output.data;
}

static void says(const char *part) {
    if (strstr(said(), part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", said(), part);
    }
}

static json_t *job_row(const char *job) {
    char line[64];
    snprintf(line, sizeof line, "jobs get %s --format json", job);
    assert_int_equal(troupe(line), 0);
    json_t *row = test_json_in(said());
    assert_non_null(row);
    return row;
}

static bool state_is(const char *job, const char *state) {
    json_t *row = job_row(job);
    bool is = strcmp(json_string_value(json_object_get(row, "state")), state) == 0;
    json_decref(row);
    return is;
}

static const char *awaited_job, *awaited_state, *awaited_text;

static bool has_state(void *arg) {
    return state_is(awaited_job, awaited_state);
}

static void wait_state(const char *job, const char *state) {
    awaited_job = job;
    awaited_state = state;
    if (!test_until(has_state, NULL, TIMEOUT_MS)) {
        fail_msg("%s is not %s: %s", job, state, said());
    }
}

static bool has_text(void *arg) {
    char line[64];
    snprintf(line, sizeof line, "jobs logs %s", awaited_job);
    return troupe(line) == 0 && strstr(said(), awaited_text) != NULL;
}

static void wait_text(const char *job, const char *text) {
    awaited_job = job;
    awaited_text = text;
    if (!test_until(has_text, NULL, TIMEOUT_MS)) {
        fail_msg("%s has not written \"%s\": %s", job, text, said());
    }
}

/* Submits without waiting; the job's id, in static storage. */
static const char *submit(const char *line) {
    static char job[32];
    char text[1024];
    snprintf(text, sizeof text, "submit --no-wait %s", line);
    assert_int_equal(troupe(text), 0);
    snprintf(job, sizeof job, "%.*s", (int)strcspn(said(), "\n"), said());
    assert_int_equal(job[0], 'j');
    return job;
}

/* ---- The cluster ---- */

static void copy_program(const char *to) {
    const char *argv[] = {"/bin/cp", test_exe(), to, NULL};
    if (run(argv) != 0) {
        fail_msg("%s", said());
    }
}

static void write_text(const char *name, const char *text) {
    char path[256], dir[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    TEST_OK(trpi_dir_make(dir, 0755, err));
    TEST_OK(trpi_file_write_atomic(path, trp_bytes_of(text), err));
}

/* A node as on another host: in its mount namespace the scratch directory is an empty one. */
static bool start_hidden_node(const char *resource) {
    char line[512];
    snprintf(line, sizeof line,
             "mount -t tmpfs none %s && cd / && exec %s start --address %s --num-cpus 1 "
             "--resources %s=8",
             scratch, getenv("TROUPE_BIN"), cluster.address, resource);
    const char *argv[] = {"/usr/bin/unshare", "-m", "/bin/sh", "-c", line, NULL};
    int code = run(argv);
    if (code != 0) {
        print_message("no mount namespaces here: %s\n", said());
    }
    return code == 0;
}

static int setup(void **state) {
    char path[128];
    test_node nodes[] = {{.cpus = 2}, {.cpus = 2, .resources = "far=8"}};
    snprintf(scratch, sizeof scratch, "/tmp/jobs-test-XXXXXX");
    assert_non_null(mkdtemp(scratch));
    write_text("work/data", "of the job");
    write_text("work/sub/x", "");
    snprintf(path, sizeof path, "%s/work/driver", scratch);
    copy_program(path);
    test_cluster_start(&cluster, nodes, 2);
    has_hidden = start_hidden_node("hidden");
    return 0;
}

static int teardown(void **state) {
    test_cluster_stop(&cluster);
    trp_buf_release(&output);
    is_clean = trpi_dir_remove(scratch, NULL) == TRP_OK;
    return is_clean ? 0 : -1;
}

/* ---- Submitting ---- */

static void what_a_job_writes_and_its_exit_code_come_back(void **state) {
    assert_int_equal(troupe("submit -- sh -c 'echo out; echo oops >&2; exit 3'"), 3);
    says("out\n");
    says("oops\n");
    says("FAILED (exit code 3)");
    assert_int_equal(troupe("submit true"), 0);
    says("SUCCEEDED (exit code 0)");
    assert_int_equal(troupe("submit sh -c 'kill -9 $$'"), 128 + SIGKILL);
    says("SIGKILL");
}

static void a_program_that_is_not_there_says_where_it_was_looked_for(void **state) {
    assert_int_equal(troupe("submit ./none"), 127);
    says("there is no program ./none");
    assert_int_equal(troupe("submit none"), 127);
    says("nor in PATH");
}

static void wrong_usage_is_one_line(void **state) {
    static const char *const wrong[][2] = {
        {"submit", "PROGRAM"},
        {"submit --env red true", "NAME=VALUE"},
        {"submit --wiat true", "there is no option --wiat"},
        {"jobs stpo j1", "did you mean stop"},
        {"jobs stop", "needs a job"},
        {"jobs stop x", "is no job"},
        {"jobs stop j1 --grace soon", "--grace"},
        {"jobs --format xml", "json"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(troupe(wrong[i][0]), 2);
        says(wrong[i][1]);
    }
    assert_int_equal(troupe("jobs get j4711"), 1);
    says("there is no job j4711");
    assert_int_equal(troupe("submit --working-dir /nowhere true"), 1);
    says("/nowhere");
}

static void the_driver_and_its_workers_on_another_node_run_in_the_jobs_directory(void **state) {
    char line[512];
    snprintf(line, sizeof line,
             "submit --working-dir %s/work --env COLOR=red --env X=a=b --name walker -- ./driver "
             "driver far read",
             scratch);
    if (troupe(line) != 4) {
        fail_msg("%s", said());
    }
    says("driver: of the job red\n");
    says("scout: of the job"); /* its environment is the driver's own affair */
    assert_int_equal(troupe("jobs"), 0);
    says("walker");
    says("FAILED");
    says("./driver driver far read");
}

static void a_job_runs_on_when_nobody_follows_it_and_is_stopped_with_its_grace(void **state) {
    char job[32], line[128];
    snprintf(job, sizeof job, "%s",
             submit("-- sh -c 'trap \"echo bye; exit 6\" TERM; echo up; sleep 3600 & wait'"));
    wait_text(job, "up");
    assert_true(state_is(job, "RUNNING"));
    snprintf(line, sizeof line, "jobs stop %s", job);
    assert_int_equal(troupe(line), 0);
    says("stopped j");
    assert_true(state_is(job, "STOPPED"));
    json_t *row = job_row(job);
    assert_int_equal(json_integer_value(json_object_get(row, "exit_code")), 6);
    json_decref(row);
    wait_text(job, "bye");
    assert_int_equal(troupe(line), 0); /* once more: it is over */

    snprintf(job, sizeof job, "%s", submit("-- sh -c 'trap \"\" TERM; echo up; sleep 3600'"));
    wait_text(job, "up");
    snprintf(line, sizeof line, "jobs stop %s --grace 0.1", job);
    assert_int_equal(troupe(line), 0);
    row = job_row(job);
    assert_int_equal(json_integer_value(json_object_get(row, "signal")), SIGKILL);
    json_decref(row);
}

static void ctrl_c_ends_the_following_and_not_the_job(void **state) {
    int fds[2];
    char line[256], job[32];
    const char *argv[] = {getenv("TROUPE_BIN"),  "submit", "--", "sh", "-c",
                          "echo up; sleep 3600", NULL};
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = test_child_start(argv, fds[1], fds[1]);
    close(fds[1]);
    (void)test_read_line(fds[0], line, sizeof line, "troupe submit");
    assert_int_equal(sscanf(line, "troupe submit: job %31s", job), 1);
    (void)test_read_line(fds[0], line, sizeof line, "the job");
    assert_string_equal(line, "up\n");
    kill(pid, SIGINT);
    assert_int_equal(test_child_exit_code(pid, "troupe submit"), 128 + SIGINT);
    trp_buf rest = {0};
    char text[1024];
    size_t size = test_read(fds[0], text, sizeof text - 1, "troupe submit");
    text[size] = '\0';
    close(fds[0]);
    trp_buf_release(&rest);
    snprintf(line, sizeof line, "troupe jobs stop %s stops it", job);
    assert_non_null(strstr(text, line));
    assert_true(state_is(job, "RUNNING"));
    snprintf(line, sizeof line, "jobs stop %s --grace 0", job);
    assert_int_equal(troupe(line), 0);
}

static void a_job_that_writes_much_is_followed_to_its_end(void **state) {
    assert_int_equal(troupe("submit -- sh -c 'seq 1 100000; echo the end'"), 0);
    says("\n99999\n100000\nthe end\n");
}

/* ---- Drivers by hand ---- */

static int drive_here(const char *exe, const char *resource, const char *method,
                      const char *working_dir) {
    const char *argv[] = {exe, "driver", resource, method, working_dir, NULL};
    return run(argv);
}

static void a_node_that_cannot_see_the_program_gets_it(void **state) {
    char exe[128];
    if (!has_hidden) {
        skip();
    }
    snprintf(exe, sizeof exe, "%s/work/driver", scratch);
    for (int i = 0; i < 2; i++) { /* the second time it is there */
        if (drive_here(exe, "hidden", "exe", NULL) != 4) {
            fail_msg("%s", said());
        }
        says("/blobs/");
    }
    if (drive_here(exe, "far", "exe", NULL) != 4) {
        fail_msg("%s", said());
    }
    says(exe); /* where it is seen, it is run where it is */
}

static void a_node_that_cannot_see_the_working_directory_gets_it(void **state) {
    char exe[128], dir[128];
    if (!has_hidden) {
        skip();
    }
    snprintf(exe, sizeof exe, "%s/work/driver", scratch);
    snprintf(dir, sizeof dir, "%s/work", scratch);
    if (drive_here(exe, "hidden", "read", dir) != 4) {
        fail_msg("%s", said());
    }
    says("scout: of the job none");
}

static bool scout_lives(void *arg) {
    assert_int_equal(troupe("list actors --format json"), 0);
    json_t *rows = test_json_in(said()), *row;
    bool lives = false;
    size_t i;
    json_array_foreach(rows, i, row) {
        lives |= strcmp(json_string_value(json_object_get(row, "name")), "stays") == 0 &&
                 strcmp(json_string_value(json_object_get(row, "state")), "alive") == 0;
    }
    json_decref(rows);
    return lives;
}

static void an_actor_that_outlives_its_driver_starts_where_its_program_is_not(void **state) {
    char exe[128];
    if (!has_hidden) {
        skip();
    }
    snprintf(exe, sizeof exe, "%s/work/driver", scratch);
    assert_int_equal(drive_here(exe, "later", "leave", NULL), 4);
    assert_true(start_hidden_node("later"));
    if (!test_until(scout_lives, NULL, TIMEOUT_MS)) {
        fail_msg("%s", said());
    }
}

static void a_working_directory_that_is_none_fails_before_anything_runs(void **state) {
    assert_int_equal(drive_here(test_exe(), "far", "read", "/nowhere"), 5);
    says("init: working directory: /nowhere: No such file or directory");
}

static void a_job_fails_when_its_node_dies(void **state) {
    char job[32];
    pid_t pids[4];
    snprintf(job, sizeof job, "%s", submit("-- sh -c 'echo up; sleep 3600 & wait'"));
    wait_text(job, "up");
    json_t *row = job_row(job);
    pid_t leader = (pid_t)json_integer_value(json_object_get(row, "pid"));
    json_decref(row);
    assert_true(test_cluster_pids(&cluster, "node", pids, 4) >= 2);
    kill(pids[0], SIGKILL); /* the node beside the head, where jobs run */
    wait_state(job, "FAILED");
    says("died");
    uint64_t end = test_now_ms() + TIMEOUT_MS;
    while (trpi_process_start_time(leader) != 0 && test_now_ms() < end) {
        usleep(5000);
    }
    assert_int_equal(trpi_process_start_time(leader), 0);
}

int main(int argc, char **argv) {
    test_serve_if_worker(types);
    if (argc >= 4 && strcmp(argv[1], "driver") == 0) {
        return drive(argc, argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_job_writes_and_its_exit_code_come_back),
        cmocka_unit_test(a_program_that_is_not_there_says_where_it_was_looked_for),
        cmocka_unit_test(wrong_usage_is_one_line),
        cmocka_unit_test(the_driver_and_its_workers_on_another_node_run_in_the_jobs_directory),
        cmocka_unit_test(a_job_runs_on_when_nobody_follows_it_and_is_stopped_with_its_grace),
        cmocka_unit_test(ctrl_c_ends_the_following_and_not_the_job),
        cmocka_unit_test(a_job_that_writes_much_is_followed_to_its_end),
        cmocka_unit_test(a_node_that_cannot_see_the_program_gets_it),
        cmocka_unit_test(a_node_that_cannot_see_the_working_directory_gets_it),
        cmocka_unit_test(an_actor_that_outlives_its_driver_starts_where_its_program_is_not),
        cmocka_unit_test(a_working_directory_that_is_none_fails_before_anything_runs),
        cmocka_unit_test(a_job_fails_when_its_node_dies),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    return failed + !is_clean;
}

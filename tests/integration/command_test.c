/* command_test.c: the troupe command as a user types it. */
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/base/base.h"
#include "core/sys/process.h"
#include "core/sys/session.h"
#include "tests/lib/actors.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"
#include "tests/lib/listing.h"

enum { TIMEOUT_MS = 60000, WORDS_MAX = 16 };

static test_cluster cluster;
static trp_runtime *rt;
static trp_buf output;

/* Runs `troupe LINE`, words separated by single spaces; the output stays until the next. */
static int troupe(const char *line) {
    char text[512];
    const char *argv[WORDS_MAX] = {getenv("TROUPE_BIN")};
    size_t count = 1;
    char *rest = text, *word;
    snprintf(text, sizeof text, "%s", line);
    while ((word = strsep(&rest, " ")) != NULL && count + 1 < WORDS_MAX) {
        argv[count++] = word;
    }
    trp_buf_clear(&output);
    int code = test_run(argv, &output, TIMEOUT_MS);
    assert_int_equal(trp_buf_append(&output, "", 0), TRP_OK); /* data is there, and ends with NUL */
    return code;
}

static const char *text_of(const trp_buf *buf) {
    return buf->data != NULL ? (const char *)buf->data : "";
}

static void says(const char *part) {
    if (strstr(text_of(&output), part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", text_of(&output), part);
    }
}

/* Parsed output of a command; the caller drops it. */
static json_t *json_of(const char *line) {
    assert_int_equal(troupe(line), 0);
    json_t *json = test_json_in(text_of(&output));
    if (json == NULL) {
        fail_msg("not JSON: %s", text_of(&output));
    }
    return json;
}

/* ---- Usage ---- */

static void wrong_usage_is_one_line_with_the_nearest_word(void **state) {
    static const char *const wrong[][2] = {
        {"strat", "did you mean start?"},
        {"start --hed", "did you mean --head?"},
        {"start", "--head"},
        {"start --head --address 1.2.3.4:5", "--head"},
        {"start --head --port x", "--port"},
        {"start --head --num-cpus -1", "--num-cpus"},
        {"start --head --memory lots", "--memory"},
        {"start --head --resources disk", "NAME=AMOUNT"},
        {"start --head --resources gpu=1", "--num-gpus"},
        {"start --head --resources disk=nan", "NAME=AMOUNT"},
        {"start --head --resources disk=-1", "NAME=AMOUNT"},
        {"start --head --resources disk=1e18", "multiples of 0.0001"},
        {"start --head --resources disk=0.00001", "multiples of 0.0001"},
        {"start --head --resources disk=1,disk=2", "disk is given twice"},
        {"start --head --labels zone", "KEY=VALUE"},
        {"list", "missing"},
        {"list actrs", "did you mean actors"},
        {"list actors --format xml", "json"},
        {"logs a1 --stream both", "--stream"},
        {"kill", "missing"},
        {"kill a1 a2", "what is"},
        {"status --address", "needs a value"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int code = troupe(wrong[i][0]);
        if (code != 2) {
            fail_msg("troupe %s: exit code %d", wrong[i][0], code);
        }
        says(wrong[i][1]);
        assert_ptr_equal(strchr(text_of(&output), '\n'), text_of(&output) + output.size - 1);
    }
}

static void each_command_has_help_with_its_exit_codes(void **state) {
    static const char *const commands[] = {
        "start",  "status", "list", "get",    "summary", "health",     "logs",    "kill", "drain",
        "submit", "jobs",   "stop", "config", "bench",   "completion", "version", "help"};
    char line[64];
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        snprintf(line, sizeof line, "%s --help", commands[i]);
        assert_int_equal(troupe(line), 0);
        says(commands[i]);
        says("exit codes");
        says("example:");
    }
    assert_int_equal(troupe("help"), 0);
    says("start");
    assert_int_equal(troupe("--version"), 0);
    says(trp_version());
}

static void output_that_is_not_written_is_a_failure(void **state) {
    const char *argv[] = {"/bin/sh", "-c", "\"$TROUPE_BIN\" config > /dev/full", NULL};
    trp_buf_clear(&output);
    assert_int_equal(test_run(argv, &output, TIMEOUT_MS), 1);
    assert_int_equal(trp_buf_append(&output, "", 0), TRP_OK);
    says("could not be written");
}

static void no_descriptors_are_a_failure_and_no_crash(void **state) {
    for (int limit = 4; limit < 24; limit++) {
        char line[96];
        const char *argv[] = {"/bin/sh", "-c", line, NULL};
        snprintf(line, sizeof line, "ulimit -n %d; exec \"$TROUPE_BIN\" status", limit);
        trp_buf_clear(&output);
        int code = test_run(argv, &output, TIMEOUT_MS);
        if (code != 0 && code != 1 && code != 3) {
            fail_msg("%d descriptors: exit code %d: %.*s", limit, code, (int)output.size,
                     text_of(&output));
        }
    }
}

static void config_tells_value_and_origin(void **state) {
    setenv("TROUPE_WARM_IDLE_MS", "1234", 1);
    json_t *rows = json_of("config --format json"), *row;
    size_t i, seen = 0;
    json_array_foreach(rows, i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *origin = json_string_value(json_object_get(row, "origin"));
        if (strcmp(name, "TROUPE_WARM_IDLE_MS") == 0) {
            assert_int_equal(json_integer_value(json_object_get(row, "value")), 1234);
            assert_string_equal(origin, "environment");
            seen++;
        } else if (strcmp(name, "TROUPE_PORT") == 0) {
            assert_string_equal(origin, "default");
            seen++;
        }
    }
    json_decref(rows);
    unsetenv("TROUPE_WARM_IDLE_MS");
    assert_int_equal(seen, 2);
    setenv("TROUPE_PORT", "nonsense", 1);
    assert_int_equal(troupe("config"), 2);
    says("TROUPE_PORT");
    unsetenv("TROUPE_PORT");
}

/* ---- A cluster ---- */

static void status_shows_the_cluster(void **state) {
    assert_int_equal(troupe("status"), 0);
    says(cluster.address);
    says("1 alive");
    says("disk");
    json_t *status = json_of("status --format json");
    assert_string_equal(json_string_value(json_object_get(status, "address")), cluster.address);
    json_decref(status);
}

static void list_shows_rows(void **state) {
    trp_spawn_options options = {.name = "listed", .cpus = 0.5, .detached = true};
    trp_actor actor = test_spawn(rt, &options, NULL);
    char line[64];
    TEST_OK(trp_actor_wait_alive(rt, actor, 30000, err));
    assert_int_equal(troupe("list nodes"), 0);
    says("n1");
    assert_int_equal(troupe("list actors"), 0);
    says("listed");
    says("subject");
    snprintf(line, sizeof line, "a%llu", (unsigned long long)actor.id);
    says(line);
    json_t *rows = json_of("list actors --format json");
    assert_true(json_array_size(rows) >= 1);
    json_decref(rows);
    assert_int_equal(troupe("list jobs"), 0);
    says("command_test");
    assert_int_equal(troupe("list groups"), 0);
    says("GROUP");
    trp_bytes run = trp_bytes_of("{\"name\":\"a-run\",\"state\":\"RUNNING\",\"step\":7}");
    TEST_OK(trp_kv_put(rt, "run/a-run", run, err));
    assert_int_equal(troupe("list runs"), 0);
    says("\na-run  RUNNING  7");
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void a_name_can_neither_break_a_row_nor_reach_the_terminal(void **state) {
    trp_actor actor = test_spawn(
        rt, &(trp_spawn_options){.name = "two\nlines, \x1b[31m red, \xc2\x9b, \xff\xfe"}, NULL);
    assert_int_equal(troupe("list actors"), 0);
    says("two?lines, ?[31m red, ??, \xef\xbf\xbd\xef\xbf\xbd ");
    json_t *rows = json_of("list actors --format json"), *row;
    size_t i, found = 0;
    json_array_foreach(rows, i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        found += strstr(name, "two\nlines") != NULL;
    }
    json_decref(rows);
    assert_int_equal(found, 1);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static bool logs_are_there(void *arg) {
    return troupe(arg) == 0 && strstr(text_of(&output), "words to keep") != NULL;
}

static void logs_print_what_an_actor_wrote(void **state) {
    trp_actor actor = test_spawn(rt, &(trp_spawn_options){.name = "writer"}, NULL);
    char line[64];
    test_ask(rt, actor, "print", "words to keep", NULL, NULL);
    assert_true(test_until(logs_are_there, (void *)"logs writer", 30000));
    snprintf(line, sizeof line, "logs %llu --stream err --tail 1KiB", (unsigned long long)actor.id);
    assert_true(test_until(logs_are_there, line, 30000));
    TEST_OK(trp_kill(rt, actor, false, err));
    assert_int_equal(troupe("logs a999999"), 1);
    says("troupe logs: ");
}

static void kill_ends_an_actor_by_name_or_id(void **state) {
    trp_actor first = test_spawn(rt, &(trp_spawn_options){.name = "victim"}, NULL);
    trp_actor second = test_spawn(rt, &(trp_spawn_options){.restarts_max = 1}, NULL);
    char line[64];
    TEST_OK(trp_actor_wait_alive(rt, first, 30000, err));
    TEST_OK(trp_actor_wait_alive(rt, second, 30000, err));
    TEST_OK(trp_monitor(rt, first, err));
    TEST_OK(trp_monitor(rt, second, err));
    assert_int_equal(troupe("kill victim"), 0);
    assert_int_equal(test_wait_death(rt, first).cause, TRP_CAUSE_KILLED);
    snprintf(line, sizeof line, "kill a%llu --restart", (unsigned long long)second.id);
    assert_int_equal(troupe(line), 0);
    assert_false(test_wait_death(rt, second).final);
    snprintf(line, sizeof line, "kill %llu", (unsigned long long)second.id);
    assert_int_equal(troupe(line), 0);
    assert_true(test_wait_death(rt, second).final);
    assert_int_equal(troupe(line), 0);
    says("dead already");
    assert_int_equal(troupe("kill victim"), 1);
    says("no living actor");
}

static void no_head_is_a_failure_that_names_the_address(void **state) {
    setenv("TROUPE_CONNECT_TIMEOUT_MS", "200", 1);
    assert_int_equal(troupe("status --address 127.0.0.1:1"), 3);
    says("127.0.0.1:1");
    says("within 200 ms");
    unsetenv("TROUPE_CONNECT_TIMEOUT_MS");
    assert_int_equal(troupe("status --address 127.0.0.1:1"), 3);
    says("within 2000 ms"); /* whoever looks does not wait as long as a program does */
    assert_int_equal(troupe("start --address 127.0.0.1:1"), 3);
}

static int set_up(void **state) {
    setenv("TROUPE_START_TIMEOUT_MS", "3000", 1);
    test_cluster_start(&cluster, &(test_node){.cpus = 4, .resources = "disk=2.5"}, 1);
    rt = test_connect(&cluster, test_types);
    return 0;
}

static int tear_down(void **state) {
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    trp_buf_release(&output);
    return 0;
}

/* ---- Starting and stopping, without the shared cluster ---- */

static void stop_says_so_when_nothing_runs(void **state) {
    char root[] = "/tmp/trp-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    setenv("TROUPE_SESSION_ROOT", root, 1);
    unsetenv("TROUPE_ADDRESS");
    assert_int_equal(troupe("stop"), 0);
    says("no cluster");
    assert_int_equal(troupe("stop --cluster abcdef"), 0);
    says("abcdef");
    assert_int_equal(rmdir(root), 0);
}

static void word_behind(const char *title, char *out, size_t size) {
    const char *at = strstr(text_of(&output), title);
    assert_non_null(at);
    at += strlen(title);
    at += strspn(at, " ");
    snprintf(out, size, "%.*s", (int)strcspn(at, " ,\n"), at);
}

static void stop_takes_the_cluster_that_is_named_and_no_other(void **state) {
    char root[] = "/tmp/trp-test-XXXXXX", first[64], second[64], line[128];
    assert_non_null(mkdtemp(root));
    setenv("TROUPE_SESSION_ROOT", root, 1);
    unsetenv("TROUPE_ADDRESS");
    assert_int_equal(troupe("start --head --port 0 --num-cpus 1 --num-gpus 0"), 0);
    word_behind("cluster ", first, sizeof first);
    says("troupe stop");
    assert_int_equal(troupe("start --head --port 0 --num-cpus 1 --num-gpus 0"), 0);
    word_behind("cluster ", second, sizeof second);
    assert_string_not_equal(first, second);
    assert_int_equal(troupe("status"), 2); /* which one? */
    says("several clusters");
    assert_int_equal(troupe("stop --cluster="), 2); /* not: all of them */
    says("which one?");
    snprintf(line, sizeof line, "stop --cluster %.8s", first);
    assert_int_equal(troupe(line), 0);
    assert_non_null(strstr(text_of(&output), "stopped head"));
    assert_null(strstr(text_of(&output), second));
    assert_int_equal(troupe("status"), 0);
    says(second);
    assert_int_equal(troupe("stop"), 0);
    says("stopped head");
    says("stopped node");
    assert_int_equal(rmdir(root), 0); /* nothing is left, logs neither */
}

/* As the pid file of a head of this cluster names it. */
static pid_t stand_in(const char *root, const char *id) {
    trpi_pidfile file = {.pid = test_child_sleeper(), .role = "head"};
    file.start_time = trpi_process_start_time(file.pid);
    snprintf(file.cluster, sizeof file.cluster, "%s", id);
    snprintf(file.path, sizeof file.path, "%s/%.8s/head.pid", root, id);
    TEST_OK(trpi_pidfile_write(&file, err));
    return file.pid;
}

static void stop_asks_which_of_two_that_begin_alike(void **state) {
    char root[] = "/tmp/trp-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    setenv("TROUPE_SESSION_ROOT", root, 1);
    pid_t one = stand_in(root, "abcd0000-0000-0000-0000-000000000001");
    pid_t two = stand_in(root, "abce0000-0000-0000-0000-000000000002");
    assert_int_equal(troupe("stop --cluster abc"), 2);
    says("both begin so");
    assert_int_equal(kill(one, 0), 0);
    assert_int_equal(kill(two, 0), 0);
    test_child_kill(one);
    test_child_kill(two);
    assert_int_equal(troupe("stop"), 0); /* sweeps what they left */
    assert_int_equal(rmdir(root), 0);
}

/* Of the last `troupe start`: its output names the head first. */
static pid_t started_head(void) {
    const char *at = strstr(text_of(&output), "pid ");
    assert_non_null(at);
    return (pid_t)strtol(at + 4, NULL, 10);
}

static void stop_ends_daemons_that_do_not_listen(void **state) {
    char root[] = "/tmp/trp-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    setenv("TROUPE_SESSION_ROOT", root, 1);
    unsetenv("TROUPE_ADDRESS");
    setenv("TROUPE_STOP_TIMEOUT_MS", "300", 1);
    assert_int_equal(troupe("start --head --port 0 --num-cpus 1 --num-gpus 0"), 0);
    pid_t head = started_head();
    assert_int_equal(kill(head, SIGSTOP), 0);
    assert_int_equal(troupe("stop"), 0);
    says("killed");
    assert_int_equal(trpi_process_start_time(head), 0); /* gone, or waits to be reaped */
    unsetenv("TROUPE_STOP_TIMEOUT_MS");
    assert_int_equal(rmdir(root), 0);
}

static bool is_missing(void *path) {
    return access(path, F_OK) != 0;
}

/* It has no registration then, asks the address for a head again and again, and would do so for
 * minutes. */
static void stop_ends_a_node_that_has_lost_its_head(void **state) {
    char root[] = "/tmp/trp-test-XXXXXX", cluster_id[64], node_dir[128], pattern[128];
    glob_t found;
    assert_non_null(mkdtemp(root));
    setenv("TROUPE_SESSION_ROOT", root, 1);
    unsetenv("TROUPE_ADDRESS");
    setenv("TROUPE_NODE_TIMEOUT_MS", "1000", 1);
    setenv("TROUPE_HEARTBEAT_MS", "100", 1);
    assert_int_equal(troupe("start --head --port 0 --num-cpus 1 --num-gpus 0"), 0);
    word_behind("cluster ", cluster_id, sizeof cluster_id);
    snprintf(pattern, sizeof pattern, "%s/%.8s/node-*/", root, cluster_id);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    snprintf(node_dir, sizeof node_dir, "%s", found.gl_pathv[0]);
    globfree(&found);
    assert_int_equal(kill(started_head(), SIGKILL), 0);
    assert_true(test_until(is_missing, node_dir, 30000)); /* the lease is lost, all is cleared */
    assert_int_equal(troupe("stop"), 0);
    says("stopped node");
    assert_int_equal(rmdir(root), 0);
    unsetenv("TROUPE_NODE_TIMEOUT_MS");
    unsetenv("TROUPE_HEARTBEAT_MS");
}

static void a_head_with_a_timeout_that_no_heartbeat_meets_says_so(void **state) {
    char root[] = "/tmp/trp-test-XXXXXX";
    assert_non_null(mkdtemp(root));
    setenv("TROUPE_SESSION_ROOT", root, 1);
    setenv("TROUPE_HEARTBEAT_MS", "6000", 1);
    assert_int_equal(troupe("start --head --port 0"), 1);
    says("TROUPE_NODE_TIMEOUT_MS=5000 is less than 2 times TROUPE_HEARTBEAT_MS=6000");
    unsetenv("TROUPE_HEARTBEAT_MS");
    assert_int_equal(rmdir(root), 0);
}

static void a_relative_session_root_means_the_directory_of_the_command(void **state) {
    char dir[] = "/tmp/trp-test-XXXXXX", before[256], root[64];
    assert_non_null(mkdtemp(dir));
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(dir), 0);
    setenv("TROUPE_SESSION_ROOT", "sessions", 1);
    unsetenv("TROUPE_ADDRESS");
    assert_int_equal(troupe("start --head --port 0 --num-cpus 1 --num-gpus 0"), 0);
    assert_int_equal(troupe("stop"), 0);
    says("stopped head");
    says("stopped node");
    snprintf(root, sizeof root, "%s/sessions", dir);
    assert_int_equal(rmdir(root), 0);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_usage_is_one_line_with_the_nearest_word),
        cmocka_unit_test(each_command_has_help_with_its_exit_codes),
        cmocka_unit_test(output_that_is_not_written_is_a_failure),
        cmocka_unit_test(no_descriptors_are_a_failure_and_no_crash),
        cmocka_unit_test(config_tells_value_and_origin),
        cmocka_unit_test(status_shows_the_cluster),
        cmocka_unit_test(list_shows_rows),
        cmocka_unit_test(a_name_can_neither_break_a_row_nor_reach_the_terminal),
        cmocka_unit_test(logs_print_what_an_actor_wrote),
        cmocka_unit_test(kill_ends_an_actor_by_name_or_id),
        cmocka_unit_test(no_head_is_a_failure_that_names_the_address),
    };
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(stop_says_so_when_nothing_runs),
        cmocka_unit_test(stop_takes_the_cluster_that_is_named_and_no_other),
        cmocka_unit_test(stop_asks_which_of_two_that_begin_alike),
        cmocka_unit_test(stop_ends_daemons_that_do_not_listen),
        cmocka_unit_test(stop_ends_a_node_that_has_lost_its_head),
        cmocka_unit_test(a_head_with_a_timeout_that_no_heartbeat_meets_says_so),
        cmocka_unit_test(a_relative_session_root_means_the_directory_of_the_command),
    };
    test_serve_if_worker(test_types);
    int failed = cmocka_run_group_tests_name("command", tests, set_up, tear_down);
    failed += cmocka_run_group_tests_name("command, alone", alone, NULL, NULL);
    trp_buf_release(&output);
    return failed;
}

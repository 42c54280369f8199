/* logs_test.c: what actors write, until it is on somebody's screen. */
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
#include "tests/lib/actors.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"

enum { TIMEOUT_MS = 60000, WORDS_MAX = 16, LINE = 100, FLOOD_LINES = 100000 }; /* 10 MB */

static test_cluster cluster;
static trp_runtime *rt;
static trp_buf output;

/* ---- An actor that writes ---- */

static void text_of_args(trp_bytes args, char *out, size_t size) {
    trpi_format(out, size, "%.*s", (int)args.size, (const char *)args.data);
}

/* "FROM TO": numbered lines of LINE bytes. */
static trp_code writer_flood(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    char text[64];
    int from = 0, to = 0;
    text_of_args(args, text, sizeof text);
    (void)sscanf(text, "%d %d", &from, &to);
    for (int i = from; i < to; i++) {
        printf("%06d %*s\n", i, LINE - 8, "x");
    }
    fflush(stdout);
    return TRP_OK;
}

static trp_code writer_flood_and_die(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                                     trp_error *err) {
    (void)writer_flood(ctx, state, args, reply, err);
    fprintf(stderr, "the very last word");
    raise(SIGKILL);
    return TRP_OK;
}

static trp_code writer_say(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    char text[256];
    text_of_args(args, text, sizeof text);
    printf("out: %s\n", text);
    fprintf(stderr, "err: %s\n", text);
    fflush(stdout);
    return TRP_OK;
}

static trp_code writer_die(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    raise(SIGKILL);
    return TRP_OK;
}

static const trp_method writer_methods[] = {{"flood", writer_flood},
                                            {"flood_and_die", writer_flood_and_die},
                                            {"say", writer_say},
                                            {"die", writer_die},
                                            {NULL, NULL}};
static const trp_actor_type writer_type = {.name = "writer", .methods = writer_methods};
static const trp_actor_type *const types[] = {&writer_type, NULL};

static trp_actor spawn_writer(const char *name, int restarts_max) {
    trp_actor actor;
    trp_spawn_options options = {.cpus = 0.1, .name = name, .restarts_max = restarts_max};
    TEST_OK(trp_spawn(rt, "writer", (trp_bytes){0}, &options, &actor, err));
    TEST_OK(trp_actor_wait_alive(rt, actor, TIMEOUT_MS, err));
    return actor;
}

/* ---- Commands ---- */

static int troupe(const char *line) {
    char text[512];
    const char *argv[WORDS_MAX] = {getenv("TROUPE_BIN")};
    size_t count = 1;
    char *rest = text, *word;
    trpi_format(text, sizeof text, "%s", line);
    while ((word = strsep(&rest, " ")) != NULL && count + 1 < WORDS_MAX) {
        argv[count++] = word;
    }
    trp_buf_clear(&output);
    int code = test_run(argv, &output, TIMEOUT_MS);
    assert_int_equal(trp_buf_append(&output, "", 1), TRP_OK);
    return code;
}

static const char *text_of_output(void) {
    return (const char *)output.data;
}

static size_t count_of(const char *part) {
    size_t count = 0;
    const char *at = text_of_output();
    for (; (at = strstr(at, part)) != NULL; at += strlen(part)) {
        count++;
    }
    return count;
}

static bool says_part(void *arg) {
    const char *const *line_and_part = arg;
    return troupe(line_and_part[0]) == 0 && strstr(text_of_output(), line_and_part[1]) != NULL;
}

/* Until the command's output has the part: what an actor wrote is on its way for a moment. */
static void comes(const char *line, const char *part) {
    const char *both[2] = {line, part};
    if (!test_until(says_part, both, TIMEOUT_MS)) {
        fail_msg("\"%s\" does not say \"%s\" but \"%.500s\"", line, part, text_of_output());
    }
}

/* ---- Tests ---- */

static void ten_megabytes_before_a_sigkill_are_all_there(void **state) {
    char words[64];
    trp_actor actor = spawn_writer("flooder", 0);
    TEST_OK(trp_monitor(rt, actor, err));
    trpi_format(words, sizeof words, "0 %d", FLOOD_LINES);
    trp_ref ref = test_call(rt, actor, "flood_and_die", words);
    trp_death death = test_wait_death(rt, actor);
    assert_int_equal(death.signal, SIGKILL);
    assert_string_equal(death.stderr_tail, "the very last word");
    trp_ref_release(rt, ref);
    trpi_format(words, sizeof words, "logs a%d --stream out --tail 1GiB", (int)actor.id);
    assert_int_equal(troupe(words), 0);
    assert_int_equal(output.size - 1, (size_t)FLOOD_LINES * LINE);
    for (int i = 0; i < FLOOD_LINES; i += 997) {
        assert_int_equal(strtol(text_of_output() + (size_t)i * LINE, NULL, 10), i);
    }
    trpi_format(words, sizeof words, "logs a%d --tail 2", (int)actor.id);
    assert_int_equal(troupe(words), 0);
    assert_int_equal(count_of("\n"), 2);
    assert_int_equal(count_of("099999 "), 1);
    assert_int_equal(count_of("the very last word\n"), 1);
}

static void the_output_of_the_incarnation_that_died_is_read_alone(void **state) {
    trp_actor actor = spawn_writer("again", 2);
    test_ask(rt, actor, "say", "first life", NULL, NULL);
    assert_int_equal(troupe("logs again --previous"), 1);
    comes("logs again", "out: first life\n");
    TEST_OK(trp_monitor(rt, actor, err));
    trp_ref ref = test_call(rt, actor, "die", "");
    (void)test_wait_death(rt, actor);
    trp_ref_release(rt, ref);
    TEST_OK(trp_actor_wait_alive(rt, actor, TIMEOUT_MS, err));
    test_ask(rt, actor, "say", "second life", NULL, NULL);
    comes("logs again", "out: second life\n");
    assert_int_equal(count_of("first life"), 2); /* both lives are in it, both streams */
    assert_int_equal(troupe("logs again --previous --stream err"), 0);
    assert_int_equal(count_of("err: first life\n"), 1);
    assert_int_equal(count_of("second life"), 0);
    assert_int_equal(count_of("out: "), 0);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static void following_goes_on_through_restarts_until_the_end(void **state) {
    const char *argv[] = {getenv("TROUPE_BIN"), "logs", "chased", "--follow", NULL};
    trp_actor actor = spawn_writer("chased", 1);
    int pipe_fds[2];
    char line[256];
    test_ask(rt, actor, "say", "one", NULL, NULL);
    comes("logs chased --stream out", "out: one\n");
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t follower = test_child_start(argv, pipe_fds[1], -1);
    close(pipe_fds[1]);
    TEST_OK(trp_monitor(rt, actor, err));
    trp_ref ref = test_call(rt, actor, "die", "");
    (void)test_wait_death(rt, actor);
    trp_ref_release(rt, ref);
    TEST_OK(trp_actor_wait_alive(rt, actor, TIMEOUT_MS, err));
    test_ask(rt, actor, "say", "two", NULL, NULL);
    do {
        test_read_line(pipe_fds[0], line, sizeof line, "troupe logs --follow");
    } while (strcmp(line, "out: two\n") != 0);
    TEST_OK(trp_kill(rt, actor, false, err));
    assert_int_equal(test_child_exit_code(follower, "troupe logs --follow"), 0);
    close(pipe_fds[0]);
}

/* The drivers' printing: this program once more, as a driver of its own. */
enum { SAYERS = 6 };

static int say_as_driver(void) {
    trp_runtime *driver;
    trp_error err;
    trp_actor actors[SAYERS];
    trp_spawn_options options = {.cpus = 0.1};
    if (trp_init(types, NULL, &driver, &err) != TRP_OK) {
        return 1;
    }
    for (int i = 0; i < SAYERS; i++) {
        if (trp_spawn(driver, "writer", (trp_bytes){0}, &options, &actors[i], &err) != TRP_OK ||
            trp_actor_wait_alive(driver, actors[i], TIMEOUT_MS, &err) != TRP_OK) {
            return 2;
        }
    }
    for (int i = 0; i < SAYERS; i++) {
        trp_buf reply = {0};
        char text[32];
        trpi_format(text, sizeof text, "rank %d is up", i);
        if (trp_ask(driver, actors[i], "say", trp_bytes_of(text), TIMEOUT_MS, &reply, &err) !=
            TRP_OK) {
            return 3;
        }
        trp_buf_release(&reply);
    }
    sleep(1); /* lines travel in batches: there is no event to wait for */
    trp_shutdown(&driver);
    return 0;
}

static void a_driver_prints_what_all_say_once_and_how_often(void **state) {
    const char *argv[] = {test_exe(), "--say-as-driver", NULL};
    trp_buf_clear(&output);
    assert_int_equal(test_run(argv, &output, TIMEOUT_MS), 0);
    assert_int_equal(trp_buf_append(&output, "", 1), TRP_OK);
    assert_int_equal(count_of("out: rank 0 is up\n"), 1);
    assert_int_equal(count_of("out: rank"), 2);
    assert_int_equal(count_of("err: rank"), 2);
    assert_int_equal(count_of(" is up [repeated 5x across 6 actors]\n"), 2);
    assert_int_equal(count_of("(writer a"), 4);
    setenv("TROUPE_LOG_REPEAT_MS", "0", 1);
    trp_buf_clear(&output);
    assert_int_equal(test_run(argv, &output, TIMEOUT_MS), 0);
    assert_int_equal(trp_buf_append(&output, "", 1), TRP_OK);
    unsetenv("TROUPE_LOG_REPEAT_MS");
    assert_int_equal(count_of("out: rank"), SAYERS);
    assert_int_equal(count_of("repeated"), 0);
}

static int set_up(void **state) {
    test_cluster_start(&cluster, &(test_node){.cpus = 2}, 1);
    rt = test_connect(&cluster, types);
    return 0;
}

static int tear_down(void **state) {
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    trp_buf_release(&output);
    return 0;
}

/* ---- Small files ---- */

static void a_log_that_rotates_says_what_is_missing(void **state) {
    char line[64];
    trp_actor actor = spawn_writer("rotator", 0);
    test_ask(rt, actor, "flood", "0 1000", NULL, NULL);
    comes("logs rotator --tail 1", "000999 ");
    assert_int_equal(troupe("logs rotator --stream out --tail 1MiB"), 0);
    assert_in_range(output.size, 80 * LINE, 122 * LINE); /* of 1000 lines */
    assert_int_equal(count_of("000999 "), 1);
    assert_int_equal(count_of("000000 "), 0);
    trpi_format(line, sizeof line, "logs a%d --tail 5", (int)actor.id);
    assert_int_equal(troupe(line), 0);
    assert_int_equal(count_of("\n"), 5);
    TEST_OK(trp_kill(rt, actor, false, err));
}

static bool log_is_gone(void *line) {
    return troupe(line) == 1 && strstr(text_of_output(), "has written nothing") != NULL;
}

static void logs_of_the_dead_go_when_there_are_too_many(void **state) {
    char line[64];
    trp_actor first = spawn_writer(NULL, 0), second;
    trpi_format(line, sizeof line, "logs a%d", (int)first.id);
    test_ask(rt, first, "say", "I was here", NULL, NULL);
    comes(line, "I was here");
    TEST_OK(trp_kill(rt, first, false, err));
    assert_int_equal(troupe(line), 0);
    for (int i = 0; i < 3; i++) { /* 12 KB each are kept of these, and 30 KB of all */
        second = spawn_writer(NULL, 0);
        test_ask(rt, second, "flood", "0 200", NULL, NULL);
        TEST_OK(trp_kill(rt, second, false, err));
    }
    assert_true(test_until(log_is_gone, line, TIMEOUT_MS));
    trpi_format(line, sizeof line, "logs a%d --tail 1", (int)second.id);
    assert_int_equal(troupe(line), 0);
    assert_int_equal(count_of("000199 "), 1);
}

static int set_up_small(void **state) {
    setenv("TROUPE_LOG_FILE_BYTES", "4096", 1);
    setenv("TROUPE_LOG_FILES", "3", 1);
    setenv("TROUPE_LOG_DEAD_BYTES", "30000", 1);
    test_cluster_start(&cluster, &(test_node){.cpus = 2}, 1);
    unsetenv("TROUPE_LOG_FILE_BYTES");
    unsetenv("TROUPE_LOG_FILES");
    unsetenv("TROUPE_LOG_DEAD_BYTES");
    rt = test_connect(&cluster, types);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_megabytes_before_a_sigkill_are_all_there),
        cmocka_unit_test(the_output_of_the_incarnation_that_died_is_read_alone),
        cmocka_unit_test(following_goes_on_through_restarts_until_the_end),
        cmocka_unit_test(a_driver_prints_what_all_say_once_and_how_often),
    };
    const struct CMUnitTest small[] = {
        cmocka_unit_test(a_log_that_rotates_says_what_is_missing),
        cmocka_unit_test(logs_of_the_dead_go_when_there_are_too_many),
    };
    if (argc > 1 && strcmp(argv[1], "--say-as-driver") == 0) {
        return say_as_driver();
    }
    test_serve_if_worker(types);
    int failed = cmocka_run_group_tests_name("logs", tests, set_up, tear_down);
    failed += cmocka_run_group_tests_name("logs in small files", small, set_up_small, tear_down);
    return failed;
}

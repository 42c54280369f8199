/* quickstart_test.c: the quickstart with programs that are built already and a model that takes
 * milliseconds: its last three lines, and that it leaves nothing behind however it ends. */
#include <fcntl.h>
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"
#include "tests/lib/runs.h"

enum { TIMEOUT_MS = 90000, ARGS_MAX = 32 };

/* Everything that the script makes lies in TMPDIR; what it starts has that in its environment. */
static char temp_dir[128], temp_entry[160], data_path[128], output_path[128], script[4096];
static trp_buf output;

static void arguments(const char **argv, const char *steps) {
    const char *all[] = {script,    "--build",  getenv("TROUPE_BINARY_DIR"),
                         "--data",  data_path,  "--steps",
                         steps,     "--kills",  "1",
                         "--",      "--layers", "1",
                         "--width", "32",       "--heads",
                         "2",       "--seq",    "32",
                         NULL};
    memcpy(argv, all, sizeof all);
}

static bool is_gone(void *arg) {
    pid_t pids[16];
    (void)arg;
    return test_processes_with(temp_entry, pids, 16) == 0;
}

static void expect_nothing_left(void) {
    char **names = NULL;
    size_t count = 0;
    assert_true(test_until(is_gone, NULL, 5000)); /* a killed process takes a moment to vanish */
    TEST_OK(trpi_dir_list(temp_dir, &names, &count, err));
    for (size_t i = 0; i < count; i++) {
        print_error("left behind: %s/%s\n", temp_dir, names[i]);
    }
    assert_int_equal(count, 0);
    trpi_names_free(names, count);
}

static void ends_with(const char *pattern) {
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, (const char *)output.data, 0, NULL, 0) != 0) {
        print_error("%s\n", (const char *)output.data);
        fail_msg("the output does not end with %s", pattern);
    }
    regfree(&regex);
}

static void it_ends_with_three_lines_and_leaves_nothing(void **state) {
    const char *argv[ARGS_MAX] = {NULL};
    arguments(argv, "30");
    trp_buf_clear(&output);
    assert_int_equal(test_run(argv, &output, TIMEOUT_MS), 0);
    ends_with(
        "\nundisturbed: steps 30, final loss [0-9]\\.[0-9]{4}, weights [0-9a-f]{8}…"
        "\nkilled:      steps 30, final loss [0-9]\\.[0-9]{4}, weights [0-9a-f]{8}…, kills 1, "
        "restarts 1, recovery p50 [0-9]+ ms, wasted steps [0-9]+, goodput [0-9]+\\.[0-9] %"
        "\nidentical: yes\n$");
    assert_non_null(strstr((const char *)output.data, "died: signal 9 (SIGKILL)\n"));
    assert_non_null(strstr((const char *)output.data, "\nrecovered in "));
    expect_nothing_left();
}

static void wrong_usage_is_told_before_anything_starts(void **state) {
    static const char *const wrong[][3] = {
        {"--steps", "many", "--steps is 'many'; it must be a number"},
        {"--kills", NULL, "--kills needs a value"},
        {"--build", "/nowhere", "/nowhere"},
        {"--chaos", NULL, "unknown option '--chaos'"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *argv[] = {script, wrong[i][0], wrong[i][1], NULL};
        trp_buf_clear(&output);
        assert_int_equal(test_run(argv, &output, TIMEOUT_MS), 2);
        assert_non_null(strstr((const char *)output.data, wrong[i][2]));
        assert_null(strstr((const char *)output.data, "=="));
    }
    expect_nothing_left();
}

static bool is_said(void *text) {
    trp_buf_clear(&output);
    return trpi_file_read(output_path, 0, &output, NULL) == TRP_OK && output.size > 0 &&
           strstr((const char *)output.data, text) != NULL;
}

/* In a process group of its own, as a shell with job control starts it. */
static pid_t start_script(const char **argv) {
    int fd = open(output_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    pid_t pid = test_child_start(argv, fd, fd);
    close(fd);
    return pid;
}

/* Sends the signal when `text` has been printed; `to_group`: as a terminal does. */
static void interrupt_at(char *text, int number, bool to_group) {
    const char *argv[ARGS_MAX] = {NULL};
    arguments(argv, "1000000");
    unlink(output_path);
    pid_t pid = start_script(argv);
    if (!test_until(is_said, text, TIMEOUT_MS)) {
        kill(-pid, SIGTERM);
        fail_msg("never said \"%s\": %s", text, (const char *)output.data);
    }
    assert_int_equal(kill(to_group ? -pid : pid, number), 0);
    assert_int_equal(test_child_exit_code(pid, "the script"), 128 + number);
    expect_nothing_left();
}

static void an_interrupt_at_the_terminal_ends_everything(void **state) {
    char text[] = "\nstep ";
    interrupt_at(text, SIGINT, true);
    assert_true(is_said((char[]){"interrupted; the last checkpoint is "}));
}

static void an_interrupt_of_the_script_alone_ends_everything(void **state) {
    char text[] = "\nstep ";
    interrupt_at(text, SIGINT, false);
}

static void a_cluster_that_has_just_been_started_is_stopped_too(void **state) {
    char text[] = "== cluster";
    interrupt_at(text, SIGTERM, false);
}

static int prepare(void **state) {
    static const char line[] = "the quick brown fox jumps over the lazy dog. ";
    char text[8192];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = line[i * 7 % (sizeof line - 1)];
    }
    snprintf(data_path, sizeof data_path, "%s/text", test_run_storage());
    snprintf(output_path, sizeof output_path, "%s/output", test_run_storage());
    snprintf(temp_dir, sizeof temp_dir, "%s/tmp", test_run_storage());
    snprintf(temp_entry, sizeof temp_entry, "TMPDIR=%s", temp_dir);
    snprintf(script, sizeof script, "%s/examples/quickstart.sh", getenv("TROUPE_SOURCE_DIR"));
    TEST_OK(trpi_dir_make(temp_dir, 0700, err));
    TEST_OK(trpi_file_write_atomic(data_path, (trp_bytes){text, sizeof text}, err));
    return setenv("TMPDIR", temp_dir, 1);
}

static int clean_up(void **state) {
    trp_buf_release(&output);
    test_run_clean();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_usage_is_told_before_anything_starts),
        cmocka_unit_test(it_ends_with_three_lines_and_leaves_nothing),
        cmocka_unit_test(an_interrupt_at_the_terminal_ends_everything),
        cmocka_unit_test(an_interrupt_of_the_script_alone_ends_everything),
        cmocka_unit_test(a_cluster_that_has_just_been_started_is_stopped_too),
    };
    return cmocka_run_group_tests_name("quickstart", tests, prepare, clean_up);
}

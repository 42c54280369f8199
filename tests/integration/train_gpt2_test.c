/* train_gpt2_test.c: the example as a user types it: its exit codes, and that kills change no bit.
 */
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
#include "tests/lib/runs.h"

enum { ARGS_MAX = 40, TIMEOUT_MS = 90000 };

static test_cluster cluster;
static char data_path[128];

static const char *program(void) {
    static char path[4096];
    const char *build = getenv("TROUPE_BINARY_DIR");
    snprintf(path, sizeof path, "%s/examples/train_gpt2", build != NULL ? build : ".");
    return path;
}

/* A model that takes milliseconds a step. */
static void small_run(const char **argv, const char *name, const char *steps) {
    const char *all[] = {program(),
                         "--data",
                         data_path,
                         "--storage",
                         test_run_storage(),
                         "--name",
                         name,
                         "--steps",
                         steps,
                         "--layers",
                         "1",
                         "--width",
                         "32",
                         "--heads",
                         "2",
                         "--seq",
                         "32",
                         "--batch",
                         "4",
                         "--cpus-per-worker",
                         "0.5",
                         "--keep",
                         "1",
                         "--checkpoint-every",
                         "3",
                         NULL};
    memcpy(argv, all, sizeof all);
}

static size_t arguments(const char **argv) {
    size_t count = 0;
    while (argv[count] != NULL) {
        count++;
    }
    return count;
}

static int run(const char **argv, trp_buf *output) {
    trp_buf_clear(output);
    int code = test_run(argv, output, TIMEOUT_MS);
    assert_int_equal(trp_buf_append(output, "", 1), TRP_OK);
    return code;
}

static void help_and_wrong_usage_have_their_exit_codes(void **state) {
    trp_buf output = {0};
    assert_int_equal(run((const char *[]){program(), "--help", NULL}, &output), 0);
    assert_non_null(strstr((const char *)output.data, "--kill-worker-at"));
    assert_int_equal(run((const char *[]){program(), NULL}, &output), 2);
    assert_non_null(strstr((const char *)output.data, "--data is missing"));
    assert_int_equal(
        run((const char *[]){program(), "--data", data_path, "--steps", "x", NULL}, &output), 2);
    assert_non_null(strstr((const char *)output.data, "--steps is \"x\""));
    assert_int_equal(run((const char *[]){program(), "--data", "/nowhere", NULL}, &output), 2);
    assert_non_null(strstr((const char *)output.data, "/nowhere"));
    assert_int_equal(
        run((const char *[]){program(), "--data", data_path, "--heads", "3", NULL}, &output), 2);
    assert_non_null(strstr((const char *)output.data, "width 128 is not a multiple of heads 3"));
    trp_buf_release(&output);
}

static void weights_of(const trp_buf *output, char ret_hex[33]) {
    const char *line = strstr((const char *)output->data, "\nweights ");
    assert_non_null(line);
    memcpy(ret_hex, line + strlen("\nweights "), 32);
    ret_hex[32] = '\0';
}

static void random_kills_can_be_repeated(void **state) {
    const char *argv[ARGS_MAX] = {NULL};
    char first[128] = "", line[128];
    trp_buf output = {0};
    for (int i = 0; i < 2; i++) {
        small_run(argv, i == 0 ? "chaos-1" : "chaos-2", "30");
        size_t count = arguments(argv);
        argv[count++] = "--chaos";
        argv[count++] = "2";
        argv[count++] = "--chaos-seed";
        argv[count++] = "7";
        argv[count] = NULL;
        assert_int_equal(run(argv, &output), 0);
        const char *plan = strstr((const char *)output.data, "will kill a worker after steps ");
        assert_non_null(plan);
        snprintf(line, sizeof line, "%.*s", (int)strcspn(plan, "\n"), plan);
        assert_non_null(strstr(line, "(again: --chaos-seed 7)"));
        assert_true(i == 0 || strcmp(first, line) == 0);
        snprintf(first, sizeof first, "%s", line);
    }
    trp_buf_release(&output);
}

/* At most two kills, so that the run goes on between them. */
static void a_killed_run_ends_with_the_same_weights(void **state) {
    const char *argv[ARGS_MAX] = {NULL};
    char undisturbed[33], killed[33];
    trp_buf output = {0};
    small_run(argv, "undisturbed", "30");
    assert_int_equal(run(argv, &output), 0);
    weights_of(&output, undisturbed);
    small_run(argv, "killed", "30");
    size_t count = arguments(argv);
    argv[count++] = "--kill-worker-at";
    argv[count++] = "4,15";
    argv[count] = NULL;
    assert_int_equal(run(argv, &output), 0);
    weights_of(&output, killed);
    assert_string_equal(undisturbed, killed);
    assert_non_null(strstr((const char *)output.data, "recovered in "));
    assert_non_null(strstr((const char *)output.data, "steps 30, final loss "));
    assert_non_null(strstr((const char *)output.data, ", kills "));
    trp_buf_release(&output);
}

static void a_run_that_is_finished_trains_nothing_more(void **state) {
    const char *argv[ARGS_MAX] = {NULL};
    trp_buf output = {0};
    small_run(argv, "undisturbed", "30");
    assert_int_equal(run(argv, &output), 0);
    assert_null(strstr((const char *)output.data, "step    30/30"));
    assert_non_null(strstr((const char *)output.data, "steps 30, final loss "));
    small_run(argv, "undisturbed", "20");
    assert_int_equal(run(argv, &output), 1);
    assert_non_null(strstr((const char *)output.data, "gone beyond --steps 20 already"));
    trp_buf_release(&output);
}

static bool has_checkpoints(void *name) {
    char **names = NULL;
    size_t count = 0;
    bool found = false;
    if (trpi_dir_list(test_path(test_run_storage(), name), &names, &count, NULL) == TRP_OK) {
        for (size_t i = 0; i < count; i++) {
            found = found || strncmp(names[i], "checkpoint_", 11) == 0;
        }
    }
    trpi_names_free(names, count);
    return found;
}

static void T05_an_interrupt_ends_it_with_130_and_an_intact_checkpoint(void **state) {
    const char *argv[ARGS_MAX] = {NULL};
    small_run(argv, "interrupted", "1000000");
    pid_t pid = test_child_start(argv, STDOUT_FILENO, STDERR_FILENO);
    char name[] = "interrupted";
    assert_true(test_until(has_checkpoints, name, 60000));
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(test_child_exit_code(pid, "the interrupted run"), 130);
    assert_int_equal(test_run_checkpoints(test_path(test_run_storage(), "interrupted")), 1);
}

static int start(void **state) {
    static const test_node nodes[] = {{.cpus = 2}};
    char text[8192];
    test_cluster_start(&cluster, nodes, 1);
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = "the quick brown fox jumps over the lazy dog. "[i * 7 % 45];
    }
    snprintf(data_path, sizeof data_path, "%s/text", test_run_storage());
    TEST_OK(trpi_file_write_atomic(data_path, (trp_bytes){text, sizeof text}, err));
    return 0;
}

static int stop(void **state) {
    test_cluster_stop(&cluster);
    test_run_clean();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_wrong_usage_have_their_exit_codes),
        cmocka_unit_test(a_killed_run_ends_with_the_same_weights),
        cmocka_unit_test(random_kills_can_be_repeated),
        cmocka_unit_test(a_run_that_is_finished_trains_nothing_more),
        cmocka_unit_test(T05_an_interrupt_ends_it_with_130_and_an_intact_checkpoint),
    };
    return cmocka_run_group_tests_name("train_gpt2", tests, start, stop);
}

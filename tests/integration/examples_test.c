/* examples_test.c: each example of a page runs, and says what examples/README.md shows. */
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "tests/lib/child.h"
#include "tests/lib/cluster.h"

enum { TIMEOUT_MS = 60000 };

static test_cluster cluster;
static trp_buf output;

/* Runs an example and expects all of its output to match the pattern. */
static void says(const char *name, const char *pattern) {
    char path[512], whole[4096];
    regex_t regex;
    snprintf(path, sizeof path, "%s/examples/%s", getenv("TROUPE_BINARY_DIR"), name);
    snprintf(whole, sizeof whole, "^(%s)$", pattern);
    const char *const argv[] = {path, NULL};
    trp_buf_clear(&output);
    int code = test_run(argv, &output, TIMEOUT_MS);
    const char *text = output.size > 0 ? (const char *)output.data : "";
    assert_int_equal(regcomp(&regex, whole, REG_EXTENDED | REG_NOSUB), 0);
    if (code != 0 || regexec(&regex, text, 0, NULL, 0) != 0) {
        fail_msg("%s ended with %d and said:\n%s", name, code, text);
    }
    regfree(&regex);
}

#define WHO(type) "actor a[0-9]+ \\(" type "\\) on node n1 \\([^)]*\\), pid [0-9]+"

static void hello_counts_dies_and_comes_back(void **state) {
    says("hello", "counted to 1, then: " WHO("counter") ": killed by driver hello \\(job j[0-9]+, "
                                                        "pid [0-9]+\\); restart 1 of 1 follows\n");
}

static void restarts_tells_a_call_with_retries_from_one_without(void **state) {
    says("restarts", "add: 1\nadd: 2\n"
                     "add_if_lucky: actor unavailable \\(.*signal 9 \\(SIGKILL\\).*\\)\n"
                     "add: 1\nadd_if_lucky: 1\n");
}

static void account_keeps_its_balance_across_a_kill(void **state) {
    says("account",
         "\\+100: \\{\"balance\": 100, \"entries\": 1\\}\n-30: \\{\"balance\": 70, \"entries\": "
         "2\\}\n" WHO("account") ": killed by driver account .*; restart 1 follows\n"
                                 "-60: \\{\"balance\": 10, \"entries\": 3\\}\n"
                                 "-60: Overdrawn: .*: 10 is all there is\n");
}

static void pool_finishes_all_tasks_although_a_worker_dies(void **state) {
    says("pool", "a worker died: " WHO("worker") ": signal 11 \\(SIGSEGV\\).*; restart 1 follows\n"
                                                 "primes below 240000: 21221\n");
}

static void parameter_server_converges(void **state) {
    says("parameter_server",
         "weights:( [0-9]\\.[0-9]{2}){8}\n3 workers, 150 steps each: converged\n");
}

static void shared_sum_is_right(void **state) {
    says("shared_sum", "8388608 numbers, 4 workers: 35184367894528, right\n");
}

static void own_loop_hears_of_results_deaths_and_its_timer(void **state) {
    says("own_loop", "(result: slept 100 ms\n|timer: that is too long\n|failed: actor died\n|"
                     "death: " WHO("sleeper") ": killed by driver own_loop .*\n){4}");
    assert_non_null(strstr((const char *)output.data, "result: slept 100 ms\n"));
    assert_non_null(strstr((const char *)output.data, "failed: actor died\n"));
    assert_non_null(strstr((const char *)output.data, "death: actor "));
}

static void no_gpus_tells_never_from_not_now(void **state) {
    says("no_gpus",
         "a bundle with a GPU: no node can ever hold this request\n  .* needs 1 gpu; .*\n"
         "an actor with a GPU: no node can ever hold this request\n  .* needs 1 gpu; .*\n"
         "a CPU when all 4 are taken: deadline passed\n  .*busy: .* needs 1 cpu; .*\n");
}

static void gang_is_restarted_as_a_whole(void **state) {
    says("gang", "generations: 1 1 1\n(" WHO("member") ": .*restart 1 of 1 follows\n){3}"
                                                       "generations: 2 2 2\n");
}

static int prepare(void **state) {
    test_node node = {.cpus = 4};
    test_cluster_start(&cluster, &node, 1);
    return 0;
}

static int clean_up(void **state) {
    trp_buf_release(&output);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_counts_dies_and_comes_back),
        cmocka_unit_test(restarts_tells_a_call_with_retries_from_one_without),
        cmocka_unit_test(account_keeps_its_balance_across_a_kill),
        cmocka_unit_test(pool_finishes_all_tasks_although_a_worker_dies),
        cmocka_unit_test(parameter_server_converges),
        cmocka_unit_test(shared_sum_is_right),
        cmocka_unit_test(own_loop_hears_of_results_deaths_and_its_timer),
        cmocka_unit_test(no_gpus_tells_never_from_not_now),
        cmocka_unit_test(gang_is_restarted_as_a_whole),
    };
    return cmocka_run_group_tests_name("examples", tests, prepare, clean_up);
}

/* Where the kernel puts core files, pattern by pattern. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "actors/state/core_pattern.h"

static const trpi_core_facts facts = {.pid = 4711,
                                      .signal = 11,
                                      .uid = 1000,
                                      .gid = 100,
                                      .time_s = 1700000000,
                                      .limit = 4096,
                                      .comm = "train/er",
                                      .exe = "/opt/bin/train_gpt2",
                                      .host = "box",
                                      .cwd = "/home/me"};

static void expect(const char *pattern, bool uses_pid, const char *path) {
    char out[256];
    assert_true(trpi_core_path(pattern, uses_pid, &facts, out, sizeof out));
    assert_string_equal(out, path);
}

static void a_relative_pattern_lies_in_the_process_directory(void **state) {
    expect("core", false, "/home/me/core");
    expect("cores/core", false, "/home/me/cores/core");
    trpi_core_facts at_root = facts;
    char out[64];
    at_root.cwd = "/";
    assert_true(trpi_core_path("core", false, &at_root, out, sizeof out));
    assert_string_equal(out, "/core");
}

static void the_pid_is_appended_where_the_kernel_appends_it(void **state) {
    expect("core", true, "/home/me/core.4711");
    expect("core.%p", true, "/home/me/core.4711");
    expect("/var/%e", true, "/var/train!er.4711");
    expect("/var/c%P", true, "/var/c4711.4711"); /* only %p counts */
}

static void every_specifier_is_filled_in(void **state) {
    expect("/c/%p-%P-%s-%t-%u-%g-%h-%c", false, "/c/4711-4711-11-1700000000-1000-100-box-4096");
    expect("/c/%e.%E.%f", false, "/c/train!er.!opt!bin!train_gpt2.train_gpt2");
    expect("/c/100%%", false, "/c/100%");
    expect("/c/%Zx%", false, "/c/x"); /* unknown ones and a lone one are dropped */
}

static void a_piped_pattern_names_no_file(void **state) {
    char out[64];
    assert_true(trpi_core_is_piped("|/usr/lib/systemd/systemd-coredump %P"));
    assert_false(trpi_core_is_piped("core"));
    assert_false(trpi_core_path("|/bin/x %p", false, &facts, out, sizeof out));
    assert_false(trpi_core_path("", false, &facts, out, sizeof out));
}

static void a_path_that_does_not_fit_is_none(void **state) {
    char out[16];
    assert_true(trpi_core_path("/234567890abcde", false, &facts, out, sizeof out));
    assert_false(trpi_core_path("/234567890abcdef", false, &facts, out, sizeof out));
    assert_false(trpi_core_path("/c/%E", false, &facts, out, sizeof out));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_relative_pattern_lies_in_the_process_directory),
        cmocka_unit_test(the_pid_is_appended_where_the_kernel_appends_it),
        cmocka_unit_test(every_specifier_is_filled_in),
        cmocka_unit_test(a_piped_pattern_names_no_file),
        cmocka_unit_test(a_path_that_does_not_fit_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

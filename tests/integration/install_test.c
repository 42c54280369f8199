/* install_test.c: what a user does after `cmake --install`: programs outside of this tree, in C and
 * C++, that find troupe by find_package or by pkg-config, and run. */
#include <setjmp.h>
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

enum { TIMEOUT_MS = 110000 };

static test_cluster cluster;
static char prefix[160];
static trp_buf output;

/* Runs a line of shell in the directory that the test has for itself; shows what went wrong. */
__attribute__((format(printf, 1, 2))) static const char *shell(const char *format, ...) {
    char line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const char *const argv[] = {"/bin/sh", "-euc", line, NULL};
    trp_buf_clear(&output);
    int code = test_run(argv, &output, TIMEOUT_MS);
    if (code != 0) {
        fail_msg("%s\nended with %d: %s", line, code, output.size ? (char *)output.data : "");
    }
    return output.size > 0 ? (const char *)output.data : "";
}

static void expect_hello(const char *text) {
    if (strstr(text, "counted to 1, then: actor ") == NULL ||
        strstr(text, "restart 1 of 1 follows\n") == NULL) {
        fail_msg("hello said: %s", text);
    }
}

static const char words_said[] = "to 1\nbe 1\nor 1\nnot 1\nto 2\nbe 2\nstd::exception: ";

static void expect_words(const char *text) {
    if (strncmp(text, words_said, sizeof words_said - 1) != 0 ||
        strstr(text, "an empty word\n") == NULL) {
        fail_msg("words said: %s", text);
    }
}

static void what_a_user_needs_is_where_it_belongs(void **state) {
    static const char *const paths[] = {"bin/troupe",
                                        "bin/troupe-step-bench",
                                        "include/troupe/runtime.h",
                                        "include/troupe/ops.def",
                                        "lib*/libtroupe.a",
                                        "lib*/pkgconfig/troupe.pc",
                                        "lib*/cmake/troupe/troupe-config.cmake",
                                        "lib*/cmake/troupe/troupe-config-version.cmake",
                                        "share/doc/troupe/LICENSE",
                                        "share/doc/troupe/README.md",
                                        "share/doc/troupe/examples/hello.c"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        (void)shell("test -s %s/%s", prefix, paths[i]);
    }
    assert_string_equal(shell("%s/bin/troupe --version | tail -c 6", prefix), "0.1.0\n");
    assert_string_equal(shell("pkg-config --modversion troupe"), "0.1.0\n");
}

/* Whatever a program brings along, its names do not meet ours (a sanitizer adds some that begin
 * with two underlines); and none of ours is there twice, which a linker tells only those who happen
 * to need both. */
static void all_names_in_the_archive_are_ours_and_differ(void **state) {
    const char *names = shell("nm -g --defined-only %s/lib*/libtroupe.a 2>/dev/null |"
                              " awk '$2 ~ /^[A-Z]$/ && $2 != \"W\" {print $3}' | sort > names;"
                              " uniq -d names; grep -vE '^(trpi?|_)_' names || true",
                              prefix);
    assert_string_equal(names, "");
}

static void a_c_program_finds_it_by_find_package(void **state) {
    (void)shell("cp -r $TROUPE_SOURCE_DIR/tests/outside/c c; cd c;"
                "cp $TROUPE_SOURCE_DIR/examples/hello.c .;"
                "cmake -B build -DCMAKE_PREFIX_PATH=%s; cmake --build build",
                prefix);
    expect_hello(shell("c/build/hello"));
}

static void a_c_program_finds_it_by_pkg_config(void **state) {
    (void)shell("cc -std=c11 -Wall -Wextra -pedantic -Werror $TROUPE_SOURCE_DIR/examples/hello.c "
                "$(pkg-config --cflags --libs troupe) -o hello");
    expect_hello(shell("./hello"));
}

static void a_cpp_program_finds_it_by_find_package(void **state) {
    (void)shell("cp -r $TROUPE_SOURCE_DIR/tests/outside/cxx cxx; cd cxx;"
                "cmake -B build -DCMAKE_PREFIX_PATH=%s; cmake --build build",
                prefix);
    expect_words(shell("cxx/build/words"));
}

static void a_cpp_program_finds_it_by_pkg_config(void **state) {
    (void)shell("c++ -std=c++17 -Wall -Wextra -pedantic -Werror "
                "$TROUPE_SOURCE_DIR/tests/outside/cxx/words.cpp "
                "$(pkg-config --cflags --libs troupe) -o words");
    expect_words(shell("./words"));
}

/* -rdynamic reaches programs outside, too: backtrace_symbols() finds the names of their methods. */
static void the_functions_of_a_program_have_names(void **state) {
    assert_string_equal(shell("nm -D --defined-only c/build/hello | grep -c ' main$'"), "1\n");
    assert_string_equal(shell("nm -D --defined-only hello | grep -c ' main$'"), "1\n");
}

static void who_does_not_train_does_not_load_what_training_needs(void **state) {
    assert_string_equal(shell("ldd hello | grep -cE 'dnnl|gomp|libomp' || true"), "0\n");
}

static void the_prefix_may_be_moved(void **state) {
    (void)shell("cp -r %s moved", prefix);
    (void)shell("cc $TROUPE_SOURCE_DIR/examples/hello.c $(PKG_CONFIG_PATH=$(echo "
                "$PWD/moved/lib*/pkgconfig) pkg-config --cflags --libs troupe) -o moved-hello");
    (void)shell("cmake -S c -B c/moved -DCMAKE_PREFIX_PATH=$PWD/moved; cmake --build c/moved "
                "--verbose | grep moved/lib");
    expect_hello(shell("./moved-hello"));
}

static int prepare(void **state) {
    test_node node = {.cpus = 2};
    test_cluster_start(&cluster, &node, 1);
    assert_int_equal(chdir(test_run_storage()), 0);
    snprintf(prefix, sizeof prefix, "%s/prefix", test_run_storage());
    setenv("CMAKE_BUILD_PARALLEL_LEVEL", "1", 1);
    unsetenv("CMAKE_PREFIX_PATH");
    (void)shell("cmake --install $TROUPE_BINARY_DIR --prefix %s", prefix);
    (void)shell("echo %s/lib*/pkgconfig", prefix);
    output.data[strcspn((char *)output.data, "\n")] = '\0';
    return setenv("PKG_CONFIG_PATH", (char *)output.data, 1);
}

static int clean_up(void **state) {
    trp_buf_release(&output);
    assert_int_equal(chdir("/"), 0);
    test_cluster_stop(&cluster);
    test_run_clean();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_user_needs_is_where_it_belongs),
        cmocka_unit_test(all_names_in_the_archive_are_ours_and_differ),
        cmocka_unit_test(a_c_program_finds_it_by_find_package),
        cmocka_unit_test(a_c_program_finds_it_by_pkg_config),
        cmocka_unit_test(a_cpp_program_finds_it_by_find_package),
        cmocka_unit_test(a_cpp_program_finds_it_by_pkg_config),
        cmocka_unit_test(the_functions_of_a_program_have_names),
        cmocka_unit_test(who_does_not_train_does_not_load_what_training_needs),
        cmocka_unit_test(the_prefix_may_be_moved),
    };
    return cmocka_run_group_tests_name("install", tests, prepare, clean_up);
}

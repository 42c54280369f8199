/* teardown_test.c: a program whose group's teardown fails has failed (tests/lib/teardown.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/child.h"

/* ---- The program that is looked at: this one, with an argument ---- */

static void nothing(void **state) {
}

static int asserts(void **state) {
    fail();
    return 0;
}

static int returns(void **state) {
    return -1;
}

static int succeeds(void **state) {
    return 0;
}

static int run_group(const char *how) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing)};
    CMFixtureFunction teardown = strcmp(how, "asserts") == 0   ? asserts
                                 : strcmp(how, "returns") == 0 ? returns
                                                               : succeeds;
    return cmocka_run_group_tests(tests, NULL, teardown);
}

/* ---- The tests ---- */

static int exit_code(const char *how) {
    const char *argv[] = {test_exe(), how, NULL};
    return test_run(argv, NULL, TEST_CHILD_MS);
}

static void a_teardown_that_fails_fails_its_program(void **state) {
    assert_int_equal(exit_code("asserts"), 1);
    assert_int_equal(exit_code("returns"), 1);
}

static void a_teardown_that_succeeds_does_not(void **state) {
    assert_int_equal(exit_code("succeeds"), 0);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        return run_group(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_teardown_that_fails_fails_its_program),
        cmocka_unit_test(a_teardown_that_succeeds_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

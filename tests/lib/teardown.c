/* cmocka prints the failure of a group's teardown and does not count it. What a test leaves behind
 * is found there, so every program's runs are wrapped (-Wl,--wrap in tests/CMakeLists.txt), and a
 * failed teardown is one more failure of the group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The names are the linker's. */
int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);

static CMFixtureFunction wrapped; /* the group's own */
static bool succeeded;            /* stays false when an assert in it jumps away */

static int watched_teardown(void **state) {
    int failed = wrapped(state);
    succeeded = failed == 0;
    return failed;
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown) {
    if (teardown == NULL) {
        return __real__cmocka_run_group_tests(name, tests, count, setup, NULL);
    }
    wrapped = teardown;
    succeeded = false;
    int failed = __real__cmocka_run_group_tests(name, tests, count, setup, watched_teardown);
    return failed + (succeeded ? 0 : 1);
}

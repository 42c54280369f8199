/* Limits of descriptors and tasks: what is in force, and what a user is told to raise. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/limits.h"
#include "tests/lib/fake_root.h"

static void put_host(void) {
    test_root_clear();
    test_root_put("/proc/loadavg", "1.50 0.20 0.30 3/1200 4711\n");
    test_root_put("/proc/sys/kernel/pid_max", "32768\n");
    test_root_put("/proc/sys/kernel/threads-max", "192730\n");
    test_root_put("/proc/self/cgroup", "0::/user.slice/job\n");
}

static void expect(const char *what, uint64_t limit, uint64_t used) {
    trpi_tasks tasks;
    assert_true(trpi_tasks_look(test_root, &tasks));
    assert_string_equal(tasks.what, what);
    assert_int_equal(tasks.limit, limit);
    assert_int_equal(tasks.used, used);
}

static void the_host_limits_tasks_by_their_numbers(void **state) {
    put_host();
    expect("kernel.pid_max", 32768, 1200);
}

static void a_group_above_ours_that_is_tighter_counts(void **state) {
    put_host();
    test_root_put("/sys/fs/cgroup/user.slice/job/pids.max", "max\n");
    test_root_put("/sys/fs/cgroup/user.slice/job/pids.current", "5\n");
    test_root_put("/sys/fs/cgroup/user.slice/pids.max", "1000\n");
    test_root_put("/sys/fs/cgroup/user.slice/pids.current", "990\n");
    expect("/sys/fs/cgroup/user.slice/pids.max", 1000, 990);
}

static void a_container_sees_its_group_at_the_top(void **state) {
    put_host();
    test_root_put("/proc/self/cgroup", "7:cpu:/x\n8:pids:/docker/1234\n");
    test_root_put("/sys/fs/cgroup/pids/pids.max", "512\n");
    test_root_put("/sys/fs/cgroup/pids/pids.current", "600\n"); /* the limit was lowered */
    expect("/sys/fs/cgroup/pids/pids.max", 512, 600);
}

static void without_proc_nothing_is_known(void **state) {
    trpi_tasks tasks;
    test_root_clear();
    assert_false(trpi_tasks_look(test_root, &tasks));
    assert_true(trpi_tasks_look("", &tasks)); /* this machine tells */
    assert_true(tasks.limit > 0 && tasks.used > 0);
}

static void the_soft_limit_of_descriptors_is_raised_when_it_comes_to_that(void **state) {
    struct rlimit old, low, now;
    trp_error err;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = (struct rlimit){128, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(trpi_descriptors_room(1, &err), TRP_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, 128); /* there was room */
    assert_int_equal(trpi_descriptors_room(100, &err), TRP_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, old.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

static void at_the_hard_limit_the_number_that_is_needed_is_said(void **state) {
    trp_error err;
    size_t limit = trpi_descriptors_raise();
    assert_int_equal(trpi_descriptors_room(limit, &err), TRP_EBUSY);
    assert_non_null(strstr(err.message, "no descriptors left"));
    const char *said = strstr(err.message, "ulimit -n must be ");
    assert_non_null(said);
    assert_true(strtoull(said + strlen("ulimit -n must be "), NULL, 10) > limit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_limits_tasks_by_their_numbers),
        cmocka_unit_test(a_group_above_ours_that_is_tighter_counts),
        cmocka_unit_test(a_container_sees_its_group_at_the_top),
        cmocka_unit_test(without_proc_nothing_is_known),
        cmocka_unit_test(the_soft_limit_of_descriptors_is_raised_when_it_comes_to_that),
        cmocka_unit_test(at_the_hard_limit_the_number_that_is_needed_is_said),
    };
    return cmocka_run_group_tests(tests, test_root_set_up, test_root_tear_down);
}

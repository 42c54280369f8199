/* What /proc and the control groups tell, from trees of files that this test writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/memory.h"
#include "tests/lib/fake_root.h"

#define GIB (UINT64_C(1) << 30)

static void put_host(void) {
    test_root_clear();
    test_root_put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\n"
                                   "MemAvailable:    8388608 kB\n");
    test_root_put("/proc/vmstat", "nr_free_pages 1\noom_kill 7\n");
}

static void expect(uint64_t total, uint64_t used, uint64_t room) {
    trpi_memory memory = {0};
    assert_true(trpi_memory_look(test_root, &memory));
    assert_true(memory.total == total);
    assert_true(memory.used == used);
    assert_true(trpi_memory_room(test_root) == room);
}

static void without_groups_the_host_counts(void **state) {
    put_host();
    test_root_put("/proc/self/cgroup", "0::/\n");
    expect(16 * GIB, 8 * GIB, 8 * GIB);
    assert_int_equal(trpi_memory_kernel_kills(test_root), 7);
}

static void a_group_of_v2_that_is_fuller_counts_without_its_cache(void **state) {
    put_host();
    test_root_put("/proc/self/cgroup", "0::/user.slice/job\n");
    test_root_put("/sys/fs/cgroup/user.slice/job/memory.max", "4294967296\n");
    test_root_put("/sys/fs/cgroup/user.slice/job/memory.current", "4080218931\n");
    test_root_put("/sys/fs/cgroup/user.slice/job/memory.stat",
                  "anon 1\ninactive_file 22122547\nactive_file 300000000\n");
    test_root_put("/sys/fs/cgroup/user.slice/job/memory.events", "low 0\noom 3\noom_kill 2\n");
    expect(4 * GIB, 3758096384, 536870912);
    assert_int_equal(trpi_memory_kernel_kills(test_root), 2); /* its own, not the host's */
}

static void a_limit_of_a_group_above_counts_too(void **state) {
    put_host();
    test_root_put("/proc/self/cgroup", "0::/user.slice/job\n");
    test_root_put("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
    test_root_put("/sys/fs/cgroup/user.slice/job/memory.current", "1\n");
    test_root_put("/sys/fs/cgroup/user.slice/memory.max", "1073741824\n");
    test_root_put("/sys/fs/cgroup/user.slice/memory.current", "1063004406\n");
    expect(GIB, 1063004406, GIB - 1063004406);
}

static void a_group_that_is_less_full_leaves_the_host(void **state) {
    put_host();
    test_root_put("/proc/self/cgroup", "0::/job\n");
    test_root_put("/sys/fs/cgroup/job/memory.max", "1073741824\n");
    test_root_put("/sys/fs/cgroup/job/memory.current", "107374182\n");
    expect(16 * GIB, 8 * GIB, GIB - 107374182);
}

static void groups_of_v1_are_read_where_they_are(void **state) {
    put_host();
    test_root_put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/box/me\n1:cpu:/\n0::/\n");
    test_root_put("/sys/fs/cgroup/memory/box/me/memory.limit_in_bytes", "1073741824\n");
    test_root_put("/sys/fs/cgroup/memory/box/me/memory.usage_in_bytes", "1000000000\n");
    test_root_put("/sys/fs/cgroup/memory/box/me/memory.stat",
                  "cache 5\ntotal_inactive_file 100000000\ntotal_active_file 0\n");
    test_root_put("/sys/fs/cgroup/memory/box/me/memory.oom_control",
                  "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    test_root_put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    test_root_put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000000\n");
    expect(GIB, 900000000, GIB - 900000000);
    assert_int_equal(trpi_memory_kernel_kills(test_root), 5);
}

static void a_tree_that_tells_nothing_is_no_memory(void **state) {
    trpi_memory memory;
    test_root_clear();
    assert_false(trpi_memory_look(test_root, &memory));
    assert_int_equal(trpi_memory_kernel_kills(test_root), 0);
    test_root_put("/proc/meminfo", "MemTotal: lots\n");
    assert_false(trpi_memory_look(test_root, &memory));
}

static void this_host_and_this_process_are_told(void **state) {
    trpi_memory memory = {0};
    assert_true(trpi_memory_look("", &memory));
    assert_true(memory.total > 64 << 20);
    assert_true(memory.used > 0 && memory.used <= memory.total);
    uint64_t before = trpi_memory_resident(getpid());
    size_t size = (size_t)32 << 20;
    char *data = malloc(size);
    assert_non_null(data);
    memset(data, 1, size);
    uint64_t after = trpi_memory_resident(getpid());
    assert_true(after >= before + size / 2);
    assert_int_equal(data[size - 1], 1);
    free(data);
    assert_int_equal(trpi_memory_resident(-1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_groups_the_host_counts),
        cmocka_unit_test(a_group_of_v2_that_is_fuller_counts_without_its_cache),
        cmocka_unit_test(a_limit_of_a_group_above_counts_too),
        cmocka_unit_test(a_group_that_is_less_full_leaves_the_host),
        cmocka_unit_test(groups_of_v1_are_read_where_they_are),
        cmocka_unit_test(a_tree_that_tells_nothing_is_no_memory),
        cmocka_unit_test(this_host_and_this_process_are_told),
    };
    return cmocka_run_group_tests(tests, test_root_set_up, test_root_tear_down);
}

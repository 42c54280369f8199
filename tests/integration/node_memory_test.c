/* The memory monitor of a node, the kernel's own kills, and NODE_STATS. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "core/sys/memory.h"
#include "tests/lib/trouble.h"

/* Two that have eaten fit below the limit and three do not, also with what a sanitizer adds. */
#define MEAL_MIB "200"
#define LIMIT_BYTES "524288000"

static void open_node(test_head *head) {
    test_head_open(head);
    head->timeout_ms = 60000;
    test_head_start_node(head);
    (void)test_head_wait(head, TRPI_MSG_NODE_HELLO);
}

static void eat(test_caller *caller) {
    (void)test_caller_ask(caller, "eat", MEAL_MIB);
}

/* Deaths are said again to a head that was silent for a while. */
static bool exits_within(test_head *head, uint64_t actor, uint64_t ms) {
    uint64_t until_ns = trpi_deadline_ns(ms);
    for (;;) {
        uint64_t now_ns = trpi_now_ns();
        const trpi_msg *msg = test_head_try(head, TRPI_MSG_EXITED,
                                            now_ns < until_ns ? (until_ns - now_ns) / 1000000 : 0);
        if (!msg || msg->exited.actor == actor) {
            return msg != NULL;
        }
    }
}

static void expect_killed(test_head *head, uint64_t actor, const char *why) {
    const trpi_death *death = test_wait_exit(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_OUT_OF_MEMORY);
    assert_int_equal(death->signal, SIGKILL);
    if (!strstr(death->message, why)) {
        fail_msg("\"%s\" lacks \"%s\"", death->message, why);
    }
    print_message("%s\n", death->message);
}

static const trpi_msg_node_stats *wait_stats(test_head *head, uint64_t workers, uint64_t idle) {
    const trpi_msg_node_stats *stats;
    do {
        stats = &test_head_wait(head, TRPI_MSG_NODE_STATS)->node_stats;
    } while (stats->workers != workers || stats->workers_idle != idle);
    return stats;
}

static void the_newest_that_can_be_restarted_is_killed_and_nobody_else(void **state) {
    test_head head;
    test_caller lasting, single, newest;
    setenv("TROUPE_WORKER_BYTES_MAX", LIMIT_BYTES, 1);
    open_node(&head);
    unsetenv("TROUPE_WORKER_BYTES_MAX");
    test_start_trouble(&head, &(test_start){.restartable = -1}, &lasting, NULL);
    test_start_trouble(&head, &(test_start){.restartable = 3}, &newest, NULL);
    test_start_trouble(&head, &(test_start){0}, &single, NULL);
    eat(&lasting);
    eat(&single);
    (void)wait_stats(&head, 5, 2);              /* there is room: the pool is kept */
    test_caller_send(&newest, "eat", MEAL_MIB); /* it may be killed at its meal */
    expect_killed(&head, newest.actor, "workers of node n7 use 0.");
    assert_false(exits_within(&head, lasting.actor, 700));
    assert_string_equal(test_caller_ask(&single, "sleep", "0"), "slept");
    eat(&single);
    expect_killed(&head, lasting.actor, "GiB resident; top: a");
    assert_string_equal(test_caller_ask(&single, "sleep", "0"), "slept");
    test_caller_send(&single, "eat", MEAL_MIB);
    expect_killed(&head, single.actor, "newest of those that cannot be restarted");
    test_caller_close(&lasting);
    test_caller_close(&newest);
    test_caller_close(&single);
    test_head_close(&head);
}

static void idle_workers_go_before_any_actor_and_come_back(void **state) {
    test_head head;
    test_caller caller;
    setenv("TROUPE_WORKER_BYTES_MAX", "268435456", 1);
    setenv("TROUPE_STATS_MS", "50", 1);
    setenv("TROUPE_MEMORY_MONITOR_MS", "500", 1); /* time to see it */
    open_node(&head);
    unsetenv("TROUPE_WORKER_BYTES_MAX");
    unsetenv("TROUPE_STATS_MS");
    unsetenv("TROUPE_MEMORY_MONITOR_MS");
    test_start_trouble(&head, &(test_start){.restartable = -1}, &caller, NULL);
    (void)wait_stats(&head, 3, 2);
    test_caller_send(&caller, "eat", "300");
    const trpi_msg_node_stats *stats = wait_stats(&head, 1, 0);
    assert_int_equal(stats->memory_kills, 0);
    assert_true(stats->memory_total > 0 && stats->memory_used > 0);
    expect_killed(&head, caller.actor, "newest restartable");
    test_caller_close(&caller);
    test_start_trouble(&head, &(test_start){0}, &caller, NULL);
    stats = wait_stats(&head, 3, 2);
    assert_int_equal(stats->memory_kills, 1);
    test_end_probe(&head, &caller);
    test_head_close(&head);
}

static void a_full_host_is_told_with_its_figures(void **state) {
    test_head head;
    trpi_memory memory;
    char expected[64];
    if (!trpi_memory_look("", &memory) || memory.used < memory.total / 80) {
        print_message("hardly any of this host's memory is in use\n");
        skip();
    }
    setenv("TROUPE_MEMORY_PERCENT_MAX", "1", 1);
    setenv("TROUPE_MEMORY_MONITOR_MS", "400", 1); /* time to start one */
    open_node(&head);
    unsetenv("TROUPE_MEMORY_PERCENT_MAX");
    unsetenv("TROUPE_MEMORY_MONITOR_MS");
    uint64_t actor = test_say_start(&head, &(test_start){.type = "trouble", .restartable = 1});
    trpi_format(expected, sizeof expected, "(limit 1 %%): killed a%llu (bob), newest restartable",
                (unsigned long long)actor);
    expect_killed(&head, actor, expected);
    test_head_close(&head);
}

/* ---- The kernel's kills ---- */

static bool put(const char *dir, const char *file, const char *text) {
    char path[512];
    trpi_format(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

/* A control group for a node with little memory, below our own; false where we may make none. */
static bool make_group(char *dir, size_t size, const char *limit_bytes) {
    char line[256], group[256] = "";
    bool is_v1 = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        const char *v1 = strstr(line, ":memory:");
        if (v1 || (strncmp(line, "0::", 3) == 0 && !is_v1)) {
            is_v1 = v1 != NULL;
            const char *path = v1 ? v1 + 8 : line + 3;
            trpi_format(group, sizeof group, "%.*s", (int)strcspn(path, "\n"), path);
        }
    }
    if (file) {
        fclose(file);
    }
    trpi_format(dir, size, "/sys/fs/cgroup%s%s/node-test-%d", is_v1 ? "/memory" : "",
                strcmp(group, "/") == 0 ? "" : group, (int)getpid());
    if (mkdir(dir, 0755) != 0) {
        return false;
    }
    if (!put(dir, is_v1 ? "memory.limit_in_bytes" : "memory.max", limit_bytes)) {
        (void)rmdir(dir);
        return false;
    }
    (void)put(dir, is_v1 ? "memory.swappiness" : "memory.swap.max", "0");
    return true;
}

static void the_kernels_kill_is_told_from_somebodys(void **state) {
    test_head head;
    test_caller caller;
    int64_t pid;
    char group[512], node[16];
    if (!make_group(group, sizeof group, "314572800")) {
        print_message("no control group may be made here: %s\n", strerror(errno));
        skip();
    }
    setenv("TROUPE_MEMORY_MONITOR_MS", "0", 1); /* or it may be quicker than the kernel */
    open_node(&head);
    unsetenv("TROUPE_MEMORY_MONITOR_MS");
    trpi_format(node, sizeof node, "%d", (int)head.node);
    assert_true(put(group, "cgroup.procs", node));
    test_start_trouble(&head, &(test_start){0}, &caller, &pid);
    test_head_listen(&head, 1200); /* the daemon has looked at the group's counter */
    kill((pid_t)pid, SIGKILL);
    const trpi_death *death = test_wait_exit(&head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_SIGNALED);
    assert_int_equal(death->signal, SIGKILL);
    test_caller_close(&caller);
    test_start_trouble(&head, &(test_start){0}, &caller, NULL);
    test_caller_send(&caller, "eat", "1000");
    expect_killed(&head, caller.actor, "killed by the kernel's out-of-memory killer");
    test_caller_close(&caller);
    test_head_close(&head);
    for (int i = 0; i < 100 && rmdir(group) != 0 && errno == EBUSY; i++) {
        (void)poll(NULL, 0, 20);
    }
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, test_trouble_types);
    test_head_own_root();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_that_can_be_restarted_is_killed_and_nobody_else),
        cmocka_unit_test(idle_workers_go_before_any_actor_and_come_back),
        cmocka_unit_test(a_full_host_is_told_with_its_figures),
        cmocka_unit_test(the_kernels_kill_is_told_from_somebodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

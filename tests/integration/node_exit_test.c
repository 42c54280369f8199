/* What is left of a worker that crashed, and of a node daemon that was killed or asked to end. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "core/sys/file.h"
#include "core/sys/process.h"
#include "core/sys/session.h"
#include "tests/lib/trouble.h"

static void open_node(test_head *head) {
    test_head_open(head);
    test_head_start_node(head);
    (void)test_head_wait(head, TRPI_MSG_NODE_HELLO);
}

static bool cores_are_written(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false; /* they forbid it, for the size of their shadow */
#else
    struct rlimit limit;
    return getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_max > 0;
#endif
}

static void a_core_file_is_told_where_it_is(void **state) {
    test_head head;
    test_caller caller;
    int64_t pid;
    char dir[64], pattern[256] = "";
    if (!cores_are_written()) {
        print_message("no core files are written here\n");
        skip();
    }
    FILE *file = fopen("/proc/sys/kernel/core_pattern", "re");
    assert_non_null(file);
    assert_non_null(fgets(pattern, sizeof pattern, file));
    fclose(file);
    trpi_format(dir, sizeof dir, "/tmp/core-test-%d", (int)getpid());
    assert_int_equal(trpi_dir_make(dir, 0700, NULL), TRP_OK);
    open_node(&head);
    test_start_trouble(&head, &(test_start){.cwd = dir}, &caller, &pid);
    test_caller_send(&caller, "core", "");
    const trpi_death *death = test_wait_exit(&head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_SIGNALED);
    assert_int_equal(death->signal, SIGABRT);
    print_message("core: %s\n", death->core);
    if (pattern[0] == '|') {
        assert_int_equal(strncmp(death->core, "piped to /", 10), 0);
    } else {
        assert_true(trpi_file_exists(death->core));
        assert_true(pattern[0] == '/' || strncmp(death->core, dir, strlen(dir)) == 0);
    }
    test_caller_close(&caller);
    test_start_trouble(&head, &(test_start){0}, &caller, &pid);
    kill((pid_t)pid, SIGKILL); /* leaves none */
    assert_string_equal(test_wait_exit(&head, caller.actor)->core, "");
    test_caller_close(&caller);
    test_head_close(&head);
    assert_int_equal(trpi_dir_remove(dir, NULL), TRP_OK);
}

/* ---- Ends of the daemon ---- */

typedef struct family {
    pid_t worker, child, escaped, stopped;
    test_caller callers[2];
} family;

static pid_t asked(test_caller *caller, const char *method) {
    return (pid_t)atoi(test_caller_ask(caller, method, ""));
}

/* An actor that computes, with a child in its group and one out of it, and one that is stopped. */
static void raise_family(test_head *head, family *f) {
    int64_t worker, stopped;
    test_start_trouble(head, &(test_start){0}, &f->callers[0], &worker);
    test_start_trouble(head, &(test_start){0}, &f->callers[1], &stopped);
    f->worker = (pid_t)worker;
    f->stopped = (pid_t)stopped;
    f->child = asked(&f->callers[0], "child");
    f->escaped = asked(&f->callers[0], "daemon");
    test_caller_send(&f->callers[0], "spin", "600000");
    kill(f->stopped, SIGSTOP);
    test_head_listen(head, 100);
    assert_true(trpi_process_start_time(f->escaped) != 0);
    assert_true(trpi_process_start_time(f->child) != 0);
}

static void expect_gone(family *f, uint64_t within_ms, uint64_t start_ns) {
    pid_t all[] = {f->worker, f->stopped, f->child, f->escaped};
    for (size_t i = 0; i < TRPI_COUNTOF(all); i++) {
        assert_true(test_process_gone(all[i]));
    }
    uint64_t ms = (trpi_now_ns() - start_ns) / 1000000;
    print_message("all gone after %llu ms\n", (unsigned long long)ms);
    assert_true(ms < within_ms);
    test_caller_close(&f->callers[0]);
    test_caller_close(&f->callers[1]);
}

static void a23_what_a_killed_daemon_leaves_behind_ends_within_two_seconds(void **state) {
    test_head head;
    family f;
    open_node(&head);
    raise_family(&head, &f);
    uint64_t start_ns = trpi_now_ns();
    kill(head.node, SIGKILL);
    assert_int_equal(test_head_wait_node(&head, 10000), -1);
    expect_gone(&f, 2000, start_ns);
    test_head_close(&head);
    trpi_session_sweep(); /* its directory */
}

static void a33_a_daemon_that_is_asked_to_end_says_so_and_takes_all_with_it(void **state) {
    test_head head;
    family f;
    open_node(&head);
    raise_family(&head, &f);
    uint64_t start_ns = trpi_now_ns();
    kill(head.node, SIGTERM);
    const trpi_msg_node_bye *bye = &test_head_wait(&head, TRPI_MSG_NODE_BYE)->node_bye;
    assert_string_equal(bye->reason, "SIGTERM");
    assert_int_equal(test_head_wait_node(&head, 10000), 0);
    expect_gone(&f, 2000, start_ns);
    test_head_close(&head);
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, test_trouble_types);
    test_head_own_root();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_core_file_is_told_where_it_is),
        cmocka_unit_test(a23_what_a_killed_daemon_leaves_behind_ends_within_two_seconds),
        cmocka_unit_test(a33_a_daemon_that_is_asked_to_end_says_so_and_takes_all_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

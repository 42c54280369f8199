/* sys_process_test.c: children of process.h, and descriptors passed by fdpass.h. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <poll.h>

#include "core/sys/fdpass.h"
#include "core/sys/process.h"
#include "tests/lib/child.h"

#define PATIENCE_MS 20000

/* Runs a shell command to its end; its output and status come back. */
static int run_shell(trpi_spawn spawn, const char *script, char *output, size_t size) {
    const char *argv[] = {"sh", "-c", script, NULL};
    int fds[2];
    pid_t pid;
    trp_error err = {0};
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    spawn.exe = "/bin/sh";
    spawn.argv = argv;
    spawn.out = fds[1];
    trp_code code = trpi_process_spawn(&spawn, &pid, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(code, TRP_OK);
    close(fds[1]);
    output[test_read(fds[0], output, size - 1, "the shell")] = '\0';
    close(fds[0]);
    return test_child_wait(pid, "the shell", PATIENCE_MS);
}

static const trpi_spawn plain = {.in = -1, .out = -1, .err = -1, .keep_fd = -1};

static void a_child_gets_its_arguments_and_reports_its_exit_code(void **state) {
    char output[256], text[64];
    int status = run_shell(plain, "echo hello; exit 4", output, sizeof(output));
    assert_string_equal(output, "hello\n");
    trpi_wait_status_text(status, text, sizeof(text));
    assert_string_equal(text, "exit code 4");
}

static void a_child_gets_directory_and_environment(void **state) {
    static const char *const env[] = {"COLOR=blue", NULL};
    char output[256];
    trpi_spawn spawn = plain;
    spawn.cwd = "/";
    spawn.envp = env;
    run_shell(spawn, "pwd; echo $COLOR $HOME", output, sizeof(output));
    assert_string_equal(output, "/\nblue\n");
}

static void a_child_has_no_descriptors_but_those_it_was_given(void **state) {
    char output[512];
    int leaked = open("/dev/null", O_RDONLY); /* on purpose without close-on-exec */
    int kept = open("/dev/null", O_RDONLY | O_CLOEXEC);
    trpi_spawn spawn = plain;
    assert_true(leaked >= 3 && kept >= 3);
    char expected[64];
    spawn.keep_fd = kept;
    snprintf(expected, sizeof(expected), "[ -e /proc/$$/fd/%d ] && [ ! -e /proc/$$/fd/%d ]", kept,
             leaked);
    assert_int_equal(run_shell(spawn, expected, output, sizeof(output)), 0);
    spawn.keep_fd = -1;
    snprintf(expected, sizeof(expected), "[ ! -e /proc/$$/fd/%d ]", kept);
    assert_int_equal(run_shell(spawn, expected, output, sizeof(output)), 0);
    close(leaked);
    close(kept);
}

static void standard_streams_may_be_given_in_any_order(void **state) {
    char output[64];
    int fds[2], saved = dup(1);
    const char *argv[] = {"sh", "-c", "echo out; echo err >&2", NULL};
    pid_t pid;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    /* Our own 1 as the child's 2, and a pipe as its 1. */
    fflush(stdout);
    dup2(fds[1], 1);
    trpi_spawn spawn = {
        .exe = "/bin/sh", .argv = argv, .in = -1, .out = fds[1], .err = 1, .keep_fd = -1};
    assert_int_equal(trpi_process_spawn(&spawn, &pid, NULL), TRP_OK);
    dup2(saved, 1);
    close(saved);
    close(fds[1]);
    output[test_read(fds[0], output, sizeof(output) - 1, "the shell")] = '\0';
    (void)test_child_wait(pid, "the shell", PATIENCE_MS);
    assert_string_equal(output, "out\nerr\n");
    close(fds[0]);
}

static void a_child_has_default_signals_and_an_empty_mask(void **state) {
    char output[512];
    sigset_t mask, before;
    void (*old)(int) = signal(SIGUSR1, SIG_IGN);
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_BLOCK, &mask, &before);
    run_shell(plain, "grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f 2", output, sizeof(output));
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGUSR1, old);
    assert_string_equal(output, "0000000000000000\n0000000000000000\n");
}

static void our_own_signal_mask_is_as_before(void **state) {
    char output[64];
    sigset_t before, after;
    sigprocmask(SIG_SETMASK, NULL, &before);
    run_shell(plain, "true", output, sizeof(output));
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < NSIG; number++) {
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
    }
}

static void what_cannot_be_started_says_why_and_leaves_no_child(void **state) {
    static const char *const argv[] = {"x", NULL};
    trpi_spawn spawn = plain;
    trp_error err;
    pid_t pid = 77;
    spawn.argv = argv;
    spawn.exe = "/no/such/program";
    assert_int_equal(trpi_process_spawn(&spawn, &pid, &err), TRP_ENOTFOUND);
    assert_string_equal(err.message, "exec /no/such/program: No such file or directory");
    spawn.exe = "/bin/true";
    spawn.cwd = "/no/such/directory";
    assert_int_equal(trpi_process_spawn(&spawn, &pid, &err), TRP_ENOTFOUND);
    assert_string_equal(err.message,
                        "change directory /no/such/directory: No such file or directory");
    spawn.cwd = NULL;
    spawn.exe = "/etc/hostname";
    assert_int_equal(trpi_process_spawn(&spawn, &pid, &err), TRP_EINVALID);
    spawn.exe = "/bin/true";
    spawn.keep_fd = 1;
    assert_int_equal(trpi_process_spawn(&spawn, &pid, &err), TRP_EINVALID);
    assert_int_equal(pid, 77);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static bool readable(int fd, int timeout_ms) {
    struct pollfd item = {.fd = fd, .events = POLLIN};
    return poll(&item, 1, timeout_ms) == 1;
}

static void a_group_dies_with_its_children_and_the_pidfd_tells(void **state) {
    static const char *const argv[] = {"sh", "-c", "sleep 1000 & sleep 1000", NULL};
    trpi_spawn spawn = plain;
    pid_t pid;
    char text[64];
    spawn.exe = "/bin/sh";
    spawn.argv = argv;
    spawn.own_group = true;
    assert_int_equal(trpi_process_spawn(&spawn, &pid, NULL), TRP_OK);
    assert_int_equal(getpgid(pid), pid);
    int pidfd = trpi_pidfd_open(pid);
    assert_true(pidfd >= 0);
    assert_true((fcntl(pidfd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_false(readable(pidfd, 0));
    trpi_kill_group(pid, SIGKILL);
    assert_true(readable(pidfd, PATIENCE_MS));
    int status = test_child_wait(pid, "the group's leader", PATIENCE_MS);
    trpi_wait_status_text(status, text, sizeof(text));
    assert_string_equal(text, "signal 9 (SIGKILL)");
    close(pidfd);
    trpi_kill_group(pid, SIGKILL);
    trpi_kill_group(0, SIGKILL);
    trpi_kill_group(1, SIGKILL);
}

static void a_new_session_has_no_terminal_of_ours(void **state) {
    static const char *const argv[] = {"sleep", "1000", NULL};
    trpi_spawn spawn = plain;
    pid_t pid;
    spawn.exe = "/bin/sleep";
    spawn.argv = argv;
    spawn.new_session = true;
    assert_int_equal(trpi_process_spawn(&spawn, &pid, NULL), TRP_OK);
    assert_int_equal(getsid(pid), pid);
    test_child_kill(pid);
}

static void a_child_dies_with_its_parent(void **state) {
    int fds[2];
    pid_t grandchild = 0;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t middle = test_child_fork();
    if (middle == 0) {
        static const char *const argv[] = {"sleep", "1000", NULL};
        trpi_spawn spawn = plain;
        spawn.exe = "/bin/sleep";
        spawn.argv = argv;
        spawn.die_with_parent = true;
        pid_t pid = 0;
        if (trpi_process_spawn(&spawn, &pid, NULL) == TRP_OK) {
            ssize_t written = write(fds[1], &pid, sizeof(pid));
            (void)written;
        }
        pause();
        _exit(0);
    }
    assert_int_equal(test_read(fds[0], &grandchild, sizeof(grandchild), "the child"),
                     sizeof(grandchild));
    int pidfd = trpi_pidfd_open(grandchild);
    assert_true(pidfd >= 0);
    test_child_kill(middle);
    assert_true(readable(pidfd, PATIENCE_MS));
    close(pidfd);
    close(fds[0]);
    close(fds[1]);
}

static void a_parent_that_is_gone_is_noticed(void **state) {
    pid_t pid = test_child_fork();
    if (pid == 0) {
        _exit(trpi_die_with_parent(getpid()) ? 1 : 0);
    }
    assert_int_equal(test_child_exit_code(pid, "the child"), 0);
}

/* 0 if a child's child that lost its parent is ours now. Runs in a child: no asserts. */
static int adopt_an_orphan(void) {
    static const char *const argv[] = {"sh", "-c", "sleep 1000 & echo $!", NULL};
    trpi_spawn spawn = plain;
    char line[64] = "";
    int fds[2];
    pid_t parent, ended, rest = -1;
    spawn.exe = "/bin/sh";
    spawn.argv = argv;
    if (trpi_become_subreaper(NULL) != TRP_OK || pipe2(fds, O_CLOEXEC) != 0) {
        return 1;
    }
    spawn.out = fds[1];
    if (trpi_process_spawn(&spawn, &parent, NULL) != TRP_OK) {
        return 2;
    }
    struct pollfd end = {.fd = trpi_pidfd_open(parent), .events = POLLIN};
    if (poll(&end, 1, PATIENCE_MS) == 1 && read(fds[0], line, sizeof(line) - 1) > 0) {
        pid_t orphan = (pid_t)strtol(line, NULL, 10);
        ended = waitpid(parent, NULL, WNOHANG);
        rest = waitpid(orphan, NULL, WNOHANG); /* no child of ours would be an error */
        kill(orphan, SIGKILL);
        return ended == parent && rest == 0 ? 0 : 3;
    }
    return 4;
}

static void orphans_come_to_a_subreaper(void **state) {
    pid_t pid = test_child_fork();
    if (pid == 0) {
        _exit(adopt_an_orphan());
    }
    assert_int_equal(test_child_exit_code(pid, "the subreaper"), 0);
}

static void pid_and_start_time_name_a_process(void **state) {
    uint64_t ours = trpi_process_start_time(getpid());
    assert_true(ours > 0);
    assert_true(trpi_process_start_time(getpid()) == ours);
    /* A name with blanks and parentheses must not confuse the reader of /proc. */
    prctl(PR_SET_NAME, "a) Z (b 1 2");
    assert_true(trpi_process_start_time(getpid()) == ours);
    prctl(PR_SET_NAME, "sys_process");
    assert_true(trpi_process_start_time(0x7ffffff0) == 0);
}

static void a_process_that_cannot_be_looked_at_is_not_called_gone(void **state) {
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    uint64_t start_time = trpi_process_start_time(getpid());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(start_time == TRPI_START_TIME_UNKNOWN);
}

static void a_zombie_is_no_process_any_more(void **state) {
    pid_t pid = test_child_fork();
    if (pid == 0) {
        _exit(0);
    }
    int pidfd = trpi_pidfd_open(pid);
    assert_true(readable(pidfd, PATIENCE_MS));
    assert_true(trpi_process_start_time(pid) == 0);
    assert_int_equal(test_child_exit_code(pid, "the zombie"), 0);
    close(pidfd);
}

static void a_pidfd_of_nobody_is_none(void **state) {
    assert_int_equal(trpi_pidfd_open(0x7ffffff0), -1);
}

/* ---- Passing descriptors ---- */

static void a_message_brings_its_descriptors(void **state) {
    int pair[2], fds[2], received[8];
    size_t count = 99;
    trp_buf data = {0};
    trp_error err;
    assert_int_equal(trpi_seqpacket_pair(pair, &err), TRP_OK);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(trp_buf_append(&data, "before ", 7), TRP_OK);
    assert_int_equal(trpi_fd_send(pair[0], trp_bytes_of("hello"), fds, 2, &err), TRP_OK);
    assert_int_equal(trpi_fd_send(pair[0], trp_bytes_of("plain"), NULL, 0, &err), TRP_OK);
    assert_int_equal(trpi_fd_recv(pair[1], &data, received, 8, &count, &err), TRP_OK);
    assert_int_equal(count, 2);
    assert_string_equal((char *)data.data, "before hello");
    assert_true((fcntl(received[0], F_GETFD) & FD_CLOEXEC) != 0);
    char byte = 0;
    assert_int_equal(write(received[1], "x", 1), 1);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(trpi_fd_recv(pair[1], &data, received + 2, 6, &count, &err), TRP_OK);
    assert_int_equal(count, 0);
    assert_string_equal((char *)data.data, "before helloplain");
    close(received[0]);
    close(received[1]);
    close(fds[0]);
    close(fds[1]);
    close(pair[0]);
    close(pair[1]);
    trp_buf_release(&data);
}

static int count_open(void) {
    int count = 0;
    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

static void more_descriptors_than_expected_are_closed_and_refused(void **state) {
    int pair[2], received[8];
    size_t count;
    trp_buf data = {0};
    trp_error err;
    assert_int_equal(trpi_seqpacket_pair(pair, &err), TRP_OK);
    int fds[3] = {pair[0], pair[0], pair[0]};
    assert_int_equal(trpi_fd_send(pair[0], trp_bytes_of("x"), fds, 3, &err), TRP_OK);
    int before = count_open();
    assert_int_equal(trpi_fd_recv(pair[1], &data, received, 2, &count, &err), TRP_EPROTOCOL);
    assert_int_equal(count_open(), before);
    assert_int_equal(data.size, 0);
    close(pair[0]);
    close(pair[1]);
    trp_buf_release(&data);
}

static void the_end_of_the_peer_is_told_to_both_sides(void **state) {
    int pair[2], received[8];
    size_t count;
    trp_buf data = {0};
    trp_error err;
    assert_int_equal(trpi_seqpacket_pair(pair, &err), TRP_OK);
    assert_int_equal(fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(trpi_fd_recv(pair[1], &data, received, 8, &count, &err), TRP_ETIMEOUT);
    close(pair[0]);
    assert_int_equal(trpi_fd_recv(pair[1], &data, received, 8, &count, &err), TRP_EDISCONNECTED);
    assert_int_equal(trpi_fd_send(pair[1], trp_bytes_of("x"), NULL, 0, &err), TRP_EDISCONNECTED);
    close(pair[1]);
    trp_buf_release(&data);
}

static void what_cannot_be_one_message_is_refused(void **state) {
    int pair[2], received[1];
    size_t count;
    static char large[65537];
    trp_buf data = {0};
    assert_int_equal(trpi_seqpacket_pair(pair, NULL), TRP_OK);
    assert_int_equal(trpi_fd_send(pair[0], trp_bytes_of(NULL), NULL, 0, NULL), TRP_EINVALID);
    assert_int_equal(trpi_fd_send(pair[0], (trp_bytes){large, sizeof(large)}, NULL, 0, NULL),
                     TRP_EINVALID);
    assert_int_equal(trpi_fd_send(pair[0], trp_bytes_of("x"), pair, 9, NULL), TRP_EINVALID);
    assert_int_equal(trpi_fd_send(pair[0], (trp_bytes){large, 65536}, NULL, 0, NULL), TRP_OK);
    assert_int_equal(trpi_fd_recv(pair[1], &data, received, 1, &count, NULL), TRP_OK);
    assert_int_equal(data.size, 65536);
    /* From a peer that does not keep to it. */
    assert_int_equal(send(pair[0], large, sizeof(large), 0), sizeof(large));
    assert_int_equal(trpi_fd_recv(pair[1], &data, received, 1, &count, NULL), TRP_EPROTOCOL);
    assert_int_equal(data.size, 65536);
    close(pair[0]);
    close(pair[1]);
    trp_buf_release(&data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_gets_its_arguments_and_reports_its_exit_code),
        cmocka_unit_test(a_child_gets_directory_and_environment),
        cmocka_unit_test(a_child_has_no_descriptors_but_those_it_was_given),
        cmocka_unit_test(standard_streams_may_be_given_in_any_order),
        cmocka_unit_test(a_child_has_default_signals_and_an_empty_mask),
        cmocka_unit_test(our_own_signal_mask_is_as_before),
        cmocka_unit_test(what_cannot_be_started_says_why_and_leaves_no_child),
        cmocka_unit_test(a_group_dies_with_its_children_and_the_pidfd_tells),
        cmocka_unit_test(a_new_session_has_no_terminal_of_ours),
        cmocka_unit_test(a_child_dies_with_its_parent),
        cmocka_unit_test(a_parent_that_is_gone_is_noticed),
        cmocka_unit_test(orphans_come_to_a_subreaper),
        cmocka_unit_test(pid_and_start_time_name_a_process),
        cmocka_unit_test(a_process_that_cannot_be_looked_at_is_not_called_gone),
        cmocka_unit_test(a_zombie_is_no_process_any_more),
        cmocka_unit_test(a_pidfd_of_nobody_is_none),
        cmocka_unit_test(a_message_brings_its_descriptors),
        cmocka_unit_test(more_descriptors_than_expected_are_closed_and_refused),
        cmocka_unit_test(the_end_of_the_peer_is_told_to_both_sides),
        cmocka_unit_test(what_cannot_be_one_message_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

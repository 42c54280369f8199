#include "tests/lib/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "core/sys/host.h"
#include "core/sys/process.h"

enum { KILLED_MS = 20000 };

/* ---- Start ---- */

const char *test_exe(void) {
    static char exe[4096];
    trp_error err = {0};
    if (exe[0] == '\0' && trpi_host_exe(exe, sizeof exe, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    return exe;
}

pid_t test_child_start(const char *const *argv, int out, int err) {
    pid_t pid = 0;
    trp_error error = {0};
    trpi_spawn how = {.exe = argv[0],
                      .argv = argv,
                      .in = -1,
                      .out = out,
                      .err = err,
                      .keep_fd = -1,
                      .own_group = true,
                      .die_with_parent = true};
    if (trpi_process_spawn(&how, &pid, &error) != TRP_OK) {
        fail_msg("%s", error.message);
    }
    return pid;
}

pid_t test_child_sleeper(void) {
    return test_child_start((const char *[]){"/bin/sleep", "3600", NULL}, -1, -1);
}

/* ThreadSanitizer has one of its own, and takes care of it. */
#ifdef __SANITIZE_THREAD__
enum { THREADS_MAX = 2 };
#else
enum { THREADS_MAX = 1 };
#endif

static int count_threads(void) {
    DIR *dir = opendir("/proc/self/task");
    int count = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(dir);
    return count;
}

pid_t test_child_fork(void) {
    uint64_t deadline_ns = trpi_deadline_ns(1000);
    /* One that has been joined is still listed for a moment. */
    while (count_threads() > THREADS_MAX && trpi_left_ms(deadline_ns) > 0) {
        (void)poll(NULL, 0, 1);
    }
    int threads = count_threads();
    if (threads > THREADS_MAX) {
        fail_msg("fork() in a program with %d threads: start it by exec", threads);
    }
    pid_t parent = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (pid == 0 && !trpi_die_with_parent(parent)) {
        _exit(127);
    }
    return pid;
}

trp_code test_stray_start(bool as_daemon, pid_t *ret_pid, trp_error *err) {
    const char *sleeper[] = {"/bin/sleep", "3600", NULL};
    const char *shell[] = {"/bin/sh", "-c", "sleep 3600 >&2 & echo $!", NULL};
    trpi_spawn how = {.exe = sleeper[0],
                      .argv = sleeper,
                      .in = -1,
                      .out = STDOUT_FILENO,
                      .err = STDERR_FILENO,
                      .keep_fd = -1};
    if (!as_daemon) {
        return trpi_process_spawn(&how, ret_pid, err);
    }
    int fds[2];
    pid_t parent = 0;
    char line[32];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return trpi_fail(err, TRP_EIO, "pipe: %s", strerror(errno));
    }
    how.exe = shell[0];
    how.argv = shell;
    how.out = fds[1];
    how.new_session = true;
    trp_code code = trpi_process_spawn(&how, &parent, err);
    close(fds[1]);
    if (code == TRP_OK) {
        (void)test_read_line(fds[0], line, sizeof line, "the daemon's parent");
        *ret_pid = (pid_t)strtol(line, NULL, 10);
        (void)test_child_exit_code(parent, "the daemon's parent");
    }
    close(fds[0]);
    return code;
}

/* ---- Wait ---- */

/* The first line of a file below /proc/PID/task. */
static void read_task(pid_t pid, const char *thread, const char *name, char *text, int size) {
    char path[128];
    trpi_format(path, sizeof path, "/proc/%d/task/%s/%s", (int)pid, thread, name);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(text, size, file) == NULL) {
        trpi_format(text, (size_t)size, "?");
    }
    if (file != NULL) {
        fclose(file);
    }
    text[strcspn(text, "\n")] = '\0';
}

void test_child_describe(pid_t pid, const char *who) {
    char path[64], name[64], where[64], call[128];
    print_error("%s, pid %d:\n", who, (int)pid);
    trpi_format(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            read_task(pid, entry->d_name, "comm", name, sizeof name);
            read_task(pid, entry->d_name, "wchan", where, sizeof where);
            read_task(pid, entry->d_name, "syscall", call, sizeof call);
            print_error("  thread %s (%s) is in %s, system call %.*s\n", entry->d_name, name, where,
                        (int)strcspn(call, " "), call);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static bool ends_by(pid_t pid, uint64_t deadline_ns, int *ret_status) {
    struct pollfd end = {.fd = trpi_pidfd_open(pid), .events = POLLIN};
    for (;;) {
        pid_t got = waitpid(pid, ret_status, WNOHANG);
        int left_ms = trpi_left_ms(deadline_ns);
        if (got != 0 || left_ms == 0) {
            if (end.fd >= 0) {
                close(end.fd);
            }
            assert_true(got >= 0); /* else it was no child of ours */
            return got == pid;
        }
        (void)poll(&end, 1, end.fd >= 0 ? left_ms : 5);
    }
}

static int end_now(pid_t pid) {
    int status = 0;
    /* Ours, and not yet waited for: the number is still its own. */
    (void)kill(pid, SIGKILL);
    trpi_kill_group(pid, SIGKILL);
    if (!ends_by(pid, trpi_deadline_ns(KILLED_MS), &status)) {
        fail_msg("pid %d does not even end by SIGKILL", (int)pid);
    }
    return status;
}

int test_child_wait(pid_t pid, const char *who, uint64_t timeout_ms) {
    int status = 0;
    if (!ends_by(pid, trpi_deadline_ns(timeout_ms), &status)) {
        test_child_describe(pid, who);
        (void)end_now(pid);
        fail_msg("%s did not end within %lu ms", who, (unsigned long)timeout_ms);
    }
    return status;
}

int test_child_exit_code(pid_t pid, const char *who) {
    int status = test_child_wait(pid, who, TEST_CHILD_MS);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void test_child_kill(pid_t pid) {
    (void)end_now(pid);
}

/* ---- Hear ---- */

/* As read(), and -1 with ETIMEDOUT. */
static ssize_t read_by(int fd, void *data, size_t size, uint64_t deadline_ns) {
    for (;;) {
        struct pollfd item = {.fd = fd, .events = POLLIN};
        int left_ms = trpi_left_ms(deadline_ns);
        int ready = poll(&item, 1, left_ms);
        if (ready > 0) {
            return read(fd, data, size);
        }
        if (ready < 0 && errno != EINTR) {
            return -1;
        }
        if (left_ms == 0) {
            errno = ETIMEDOUT;
            return -1;
        }
    }
}

size_t test_read(int fd, void *data, size_t size, const char *from) {
    uint64_t deadline_ns = trpi_deadline_ns(TEST_CHILD_MS);
    size_t used = 0;
    while (used < size) {
        ssize_t got = read_by(fd, (char *)data + used, size - used, deadline_ns);
        if (got < 0) {
            fail_msg("%s: after %zu bytes: %s", from, used, strerror(errno));
        }
        if (got == 0) {
            break;
        }
        used += (size_t)got;
    }
    return used;
}

size_t test_read_line(int fd, char *text, size_t size, const char *from) {
    size_t used = 0;
    while (used + 1 < size && test_read(fd, text + used, 1, from) == 1) {
        if (text[used++] == '\n') {
            break;
        }
    }
    text[used] = '\0';
    return used;
}

/* ---- Commands ---- */

int test_run(const char *const *argv, trp_buf *output, uint64_t timeout_ms) {
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    char chunk[4096];
    int fds[2], status = 0;
    ssize_t got;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = test_child_start(argv, fds[1], fds[1]);
    close(fds[1]);
    while ((got = read_by(fds[0], chunk, sizeof chunk, deadline_ns)) > 0) {
        if (output != NULL) {
            assert_int_equal(trp_buf_append(output, chunk, (size_t)got), TRP_OK);
        }
    }
    close(fds[0]);
    if (got < 0 || !ends_by(pid, deadline_ns, &status)) {
        test_child_describe(pid, argv[0]);
        (void)end_now(pid);
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

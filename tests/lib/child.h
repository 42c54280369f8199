/* child.h: the other processes of a test: how they are started, heard and waited for.
 *
 * They are started by exec. What fork() alone makes has one thread and the memory of all: a lock
 * that another thread (ZeroMQ's, OpenMP's) held at that instant, such as the allocator's, is held
 * in the child for ever. Every wait has a deadline; who does not end in time is described, killed,
 * and fails the test. */
#ifndef TEST_CHILD_H
#define TEST_CHILD_H

#include <sys/types.h>
#include <troupe/bytes.h>
#include <troupe/error.h>

/* Generous, so that only a failure waits for it, and less than what CTest allows a program. */
#define TEST_CHILD_MS 60000

/* The path of this test program: as argv[0] it starts the same program again. */
const char *test_exe(void);

/* Starts argv[0], a path, with these arguments (ends with NULL) in a process group of its own.
 * `out` and `err` become its stdout and stderr, -1 is /dev/null. It is killed when the calling
 * thread ends. Ends the test when it can't. */
pid_t test_child_start(const char *const *argv, int out, int err);

/* One that does nothing, to be watched. */
pid_t test_child_sleeper(void);

/* fork(), for a child that goes on in this program and leaves it by _exit(). Ends the test when
 * there is another thread than the caller. */
pid_t test_child_fork(void);

/* The status of wait() once it has ended. */
int test_child_wait(pid_t pid, const char *who, uint64_t timeout_ms);
/* The same within TEST_CHILD_MS: its exit code, -1 after a signal. */
int test_child_exit_code(pid_t pid, const char *who);
void test_child_kill(pid_t pid); /* SIGKILL, and waits */

/* Prints what each of its threads waits for. */
void test_child_describe(pid_t pid, const char *who);

/* Bytes that came before the end of the file or filled the buffer; fails the test when neither
 * happens within TEST_CHILD_MS. */
size_t test_read(int fd, void *data, size_t size, const char *from);
/* The same up to the end of a line, as text with its newline. */
size_t test_read_line(int fd, char *text, size_t size, const char *from);

/* Runs a command with arguments (ends with NULL), output captured (stdout and stderr); returns its
 * exit code, -1 when it did not end by itself within the timeout (it is killed then). */
int test_run(const char *const *argv, trp_buf *output, uint64_t timeout_ms);

/* A child as an actor's own code may have one, in its group and with its output, which sleeps for
 * an hour; as a daemon in a session of its own and without a parent. */
TRP_CHECKED trp_code test_stray_start(bool as_daemon, pid_t *ret_pid, trp_error *err);

#endif

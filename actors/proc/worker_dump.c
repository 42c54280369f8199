/* The stacks of a worker's threads, for the node daemon's notice of a hung one.
 *
 * The daemon sends a signal to each thread; its handler writes the backtrace of what it interrupted
 * to stderr. It must work whatever was interrupted, malloc() included: so it allocates nothing, and
 * backtrace() is called once before, since its first call loads a library. What can still stop it
 * is the dynamic linker's lock (names are looked up), held by a thread inside of dlopen(): then the
 * daemon's deadline ends the process with one stack less. */
#include <errno.h>
#include <execinfo.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actors/proc/worker_parts.h"

#define FRAMES_MAX 64
#define TURNS_MAX 20000 /* given to another thread's stack, so that lines do not mix */

static _Thread_local __attribute__((tls_model("initial-exec"))) const char *volatile method_here;
static atomic_flag is_writing = ATOMIC_FLAG_INIT;

/* Behind those that libc, sanitizers and profilers are known to use. */
int trpi_worker_dump_signal(void) {
    return SIGRTMIN + 1;
}

void trpi_dump_set_method(const char *method) {
    method_here = method;
}

static size_t add_text(char *line, size_t size, size_t used, const char *text) {
    while (*text && used < size) {
        line[used++] = *text++;
    }
    return used;
}

static size_t add_number(char *line, size_t size, size_t used, long number) {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return add_text(line, size, used, digits + at);
}

/* "stack of thread NAME (TID) in method M:" */
static void write_head(void) {
    char line[256], name[17] = "?";
    size_t used = 0, size = sizeof line - 2;
    const char *method = method_here;
    (void)prctl(PR_GET_NAME, name);
    used = add_text(line, size, used, "stack of thread ");
    used = add_text(line, size, used, name);
    used = add_text(line, size, used, " (");
    used = add_number(line, size, used, syscall(SYS_gettid));
    used = add_text(line, size, used, method ? ") in method " : ")");
    used = add_text(line, size, used, method ? method : "");
    line[used++] = ':';
    line[used++] = '\n';
    (void)!write(STDERR_FILENO, line, used);
}

static void write_stack(int number) {
    int old_errno = errno;
    void *frames[FRAMES_MAX];
    int turns = 0;
    while (atomic_flag_test_and_set(&is_writing) && turns++ < TURNS_MAX) {
        sched_yield();
    }
    write_head();
    /* The first two are this handler and the kernel's way into it. */
    int count = backtrace(frames, FRAMES_MAX);
    if (count > 2) {
        backtrace_symbols_fd(frames + 2, count - 2, STDERR_FILENO);
    }
    atomic_flag_clear(&is_writing);
    errno = old_errno;
}

void trpi_dump_prepare(void) {
    void *frame[1];
    (void)backtrace(frame, 1);
}

void trpi_dump_open(void) {
    struct sigaction action = {.sa_handler = write_stack, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    (void)sigaction(trpi_worker_dump_signal(), &action, NULL);
}

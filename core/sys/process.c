/* process.c: how children are made, named and ended.
 *
 * Why vfork: fork copies the page tables of the parent (38 ms for 1 GiB of heap), and posix_spawn
 * can neither set PR_SET_PDEATHSIG nor check that the parent lived long enough to receive it,
 * unless a helper program is exec'd in between, which costs a second exec. After vfork the child
 * borrows our memory while the calling thread waits, so until exec it must only make system calls
 * and must not run our signal handlers: all signals are blocked across it. What went wrong comes
 * back through a close-on-exec pipe and not through the shared memory, since ThreadSanitizer and
 * valgrind turn vfork into fork. */
#include "core/sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- In the child, between vfork and exec: system calls only ---- */

enum stage { STAGE_FORK, STAGE_PARENT, STAGE_GROUP, STAGE_CWD, STAGE_FILES, STAGE_EXEC };

struct failure {
    enum stage stage;
    int error;
};

_Noreturn static void child_failed(int report_fd, enum stage stage) {
    struct failure failure = {stage, errno};
    ssize_t written = write(report_fd, &failure, sizeof(failure));
    (void)written;
    _exit(127);
}

/* Marks every descriptor from 3 on close-on-exec. */
static void close_all_on_exec(void) {
    if (syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) == 0) {
        return;
    }
    /* A kernel before 5.11, or one that is emulated. */
    struct rlimit limit;
    int end = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1048576
                  ? (int)limit.rlim_cur
                  : 1048576;
    for (int fd = 3; fd < end; fd++) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
}

/* A copy of fd (or of /dev/null for -1) that is out of the way of 0, 1 and 2. */
static int aside(int fd) {
    if (fd >= 0) {
        return fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    return null_fd < 0 ? -1 : fcntl(null_fd, F_DUPFD_CLOEXEC, 3);
}

static bool set_files(const trpi_spawn *spawn) {
    const int wanted[3] = {spawn->in, spawn->out, spawn->err};
    int copies[3];
    for (int i = 0; i < 3; i++) {
        copies[i] = aside(wanted[i]);
        if (copies[i] < 0) {
            return false;
        }
    }
    for (int i = 0; i < 3; i++) {
        if (dup2(copies[i], i) < 0) {
            return false;
        }
    }
    close_all_on_exec();
    return spawn->keep_fd < 0 || fcntl(spawn->keep_fd, F_SETFD, 0) == 0;
}

static void reset_signals(void) {
    struct sigaction action;
    sigset_t none;
    memset(&action, 0, sizeof(action));
    action.sa_handler = SIG_DFL;
    for (int number = 1; number < NSIG; number++) {
        (void)sigaction(number, &action, NULL); /* fails for SIGKILL, SIGSTOP and libc's own */
    }
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

_Noreturn static void child_main(const trpi_spawn *spawn, pid_t parent, int report_fd) {
    if (spawn->die_with_parent && !trpi_die_with_parent(parent)) {
        errno = ESRCH;
        child_failed(report_fd, STAGE_PARENT);
    }
    if ((spawn->new_session && setsid() < 0) ||
        (spawn->own_group && !spawn->new_session && setpgid(0, 0) != 0)) {
        child_failed(report_fd, STAGE_GROUP);
    }
    if (spawn->subreaper && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        child_failed(report_fd, STAGE_GROUP);
    }
    if (spawn->cwd != NULL && chdir(spawn->cwd) != 0) {
        child_failed(report_fd, STAGE_CWD);
    }
    if (!set_files(spawn)) {
        child_failed(report_fd, STAGE_FILES);
    }
    reset_signals();
    char *const *envp = spawn->envp != NULL ? (char *const *)spawn->envp : environ;
    execve(spawn->exe, (char *const *)spawn->argv, envp);
    child_failed(report_fd, STAGE_EXEC);
}

/* ---- In the parent ---- */

static trp_code spawn_failed(const trpi_spawn *spawn, struct failure failure, trp_error *err) {
    static const char *const doing[] = {
        [STAGE_FORK] = "fork",           [STAGE_PARENT] = "wait for the parent's death",
        [STAGE_GROUP] = "process group", [STAGE_CWD] = "change directory",
        [STAGE_FILES] = "descriptors",   [STAGE_EXEC] = "exec",
    };
    trp_code code = TRP_EIO;
    if (failure.error == ENOENT || failure.error == ENOTDIR) {
        code = TRP_ENOTFOUND;
    } else if (failure.error == EAGAIN || failure.error == EMFILE || failure.error == ENFILE) {
        code = TRP_EBUSY;
    } else if (failure.error == ENOMEM) {
        code = TRP_ENOMEM;
    } else if (failure.error == E2BIG || failure.error == EACCES || failure.error == ENOEXEC) {
        code = TRP_EINVALID;
    }
    const char *object = failure.stage == STAGE_CWD ? spawn->cwd : spawn->exe;
    return trpi_fail(err, code, "%s %s: %s", doing[failure.stage], object, strerror(failure.error));
}

/* A function of its own, so that no variable of the caller lives across vfork's two returns. */
__attribute__((noinline)) static pid_t vfork_child(const trpi_spawn *spawn, pid_t parent,
                                                   int report_fd) {
    pid_t pid = vfork();
    if (pid == 0) {
        child_main(spawn, parent, report_fd);
    }
    return pid;
}

/* Both ends close-on-exec; the child's end is none of 0, 1 and 2, which the child replaces. */
static bool report_pipe(int fds[2]) {
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return false;
    }
    int moved = fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
    int error = errno;
    close(fds[1]);
    if (moved < 0) {
        close(fds[0]);
        errno = error;
        return false;
    }
    fds[1] = moved;
    return true;
}

/* True when the child reported a failure; false at the end of file, which exec brings. */
static bool read_failure(int fd, struct failure *failure) {
    ssize_t size;
    do {
        size = read(fd, failure, sizeof(*failure));
    } while (size < 0 && errno == EINTR);
    return size == (ssize_t)sizeof(*failure);
}

trp_code trpi_process_spawn(const trpi_spawn *spawn, pid_t *ret_pid, trp_error *err) {
    int report[2];
    sigset_t all, before;
    struct failure failure = {STAGE_FORK, 0};
    if (spawn->keep_fd >= 0 && spawn->keep_fd < 3) {
        return trpi_fail(err, TRP_EINVALID, "spawn %s: keep_fd is a standard stream", spawn->exe);
    }
    if (!report_pipe(report)) {
        failure.error = errno;
        return spawn_failed(spawn, failure, err);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = vfork_child(spawn, getpid(), report[1]);
    failure.error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(report[1]);
    bool failed = pid < 0 || read_failure(report[0], &failure);
    close(report[0]);
    if (!failed) {
        *ret_pid = pid;
        return TRP_OK;
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return spawn_failed(spawn, failure, err);
}

int trpi_pidfd_open(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

void trpi_pidfd_signal(int pidfd, int signal) {
    (void)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

void trpi_kill_group(pid_t pgid, int signal) {
    /* kill(-1) would be everybody, kill(0) ourselves. */
    if (pgid > 1) {
        (void)kill(-pgid, signal);
    }
}

uint64_t trpi_process_start_time(pid_t pid) {
    char path[64], line[1024];
    trpi_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errno == ENOENT || errno == ESRCH ? 0 : TRPI_START_TIME_UNKNOWN;
    }
    size_t size = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[size] = '\0';
    /* "pid (comm) state ppid ... start_time": comm may hold blanks and parentheses. */
    const char *rest = strrchr(line, ')');
    char state;
    unsigned long long start_time;
    if (rest == NULL ||
        sscanf(rest,
               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
               "%llu",
               &state, &start_time) != 2) {
        return 0;
    }
    /* A zombie is only its exit status: in a container whose init reaps nothing it stays for ever.
     */
    return state == 'Z' || state == 'X' ? 0 : start_time;
}

void trpi_process_prefer_to_die(pid_t pid) {
    char path[64];
    trpi_format(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    FILE *file = fopen(path, "we");
    if (file != NULL) {
        (void)fputs("1000", file);
        fclose(file);
    }
}

char trpi_process_state(pid_t pid) {
    char path[64], line[512], state = 0;
    trpi_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        line[fread(line, 1, sizeof(line) - 1, file)] = '\0';
        fclose(file);
        const char *rest = strrchr(line, ')');
        if (rest == NULL || sscanf(rest, ") %c", &state) != 1) {
            state = 0;
        }
    }
    return state;
}

trp_code trpi_become_subreaper(trp_error *err) {
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        return trpi_fail(err, TRP_EUNSUPPORTED, "become subreaper: %s", strerror(errno));
    }
    return TRP_OK;
}

bool trpi_die_with_parent(pid_t expected_parent) {
    /* First ask for the signal, then look: a parent that dies in between is seen by the look. */
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == expected_parent;
}

/* ---- Finding a program ---- */

static bool is_program(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static trp_code check_program(const char *name, const char *path, trp_error *err) {
    struct stat info;
    if (is_program(path)) {
        return TRP_OK;
    }
    if (stat(path, &info) == 0) {
        return trpi_fail(err, TRP_EINVALID, "%s: %s", path,
                         S_ISREG(info.st_mode) ? "not executable (chmod +x)" : "is no file");
    }
    return trpi_fail(err, TRP_ENOTFOUND, "there is no program %s: %s: %s", name, path,
                     strerror(errno));
}

trp_code trpi_program_find(const char *name, const char *cwd, const char *path, char *out,
                           size_t size, trp_error *err) {
    if (name[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "the program has no name");
    }
    if (strchr(name, '/') != NULL) {
        bool in_cwd = name[0] != '/' && cwd != NULL;
        trpi_format(out, size, "%s%s%s", in_cwd ? cwd : "", in_cwd ? "/" : "", name);
        return check_program(name, out, err);
    }
    if (cwd != NULL) {
        trpi_format(out, size, "%s/%s", cwd, name);
        if (is_program(out)) {
            return TRP_OK;
        }
    }
    for (const char *at = path; *at != '\0';) {
        size_t length = strcspn(at, ":");
        trpi_format(out, size, "%.*s/%s", (int)length, at, name);
        if (length > 0 && is_program(out)) { /* an empty entry would be the current directory */
            return TRP_OK;
        }
        at += length + (at[length] == ':');
    }
    return trpi_fail(err, TRP_ENOTFOUND, "there is no program %s, neither in %s nor in PATH (%s)",
                     name, cwd != NULL ? cwd : "a working directory", path);
}

void trpi_wait_status_text(int status, char *out, size_t size) {
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        if (name != NULL) {
            trpi_format(out, size, "signal %d (SIG%s)", WTERMSIG(status), name);
        } else {
            trpi_format(out, size, "signal %d", WTERMSIG(status));
        }
    } else if (WIFEXITED(status)) {
        trpi_format(out, size, "exit code %d", WEXITSTATUS(status));
    } else {
        trpi_format(out, size, "wait status 0x%x", (unsigned)status);
    }
}

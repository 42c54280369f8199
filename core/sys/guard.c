#include "core/sys/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/sys/file.h"
#include "core/sys/process.h"

#define ENVIRONMENT_MAX_BYTES ((size_t)4 << 20)
#define ROUNDS_MAX 40 /* one that was just forking is found by the next */
#define ROUND_MS 25
#define END_MS 1000

/* ---- In the guard ---- */

static bool entry_matches(const char *entry, const char *begin, const char *end) {
    size_t size = strlen(entry), begin_size = strlen(begin), end_size = strlen(end);
    return size >= begin_size + end_size && memcmp(entry, begin, begin_size) == 0 &&
           memcmp(entry + size - end_size, end, end_size) == 0;
}

static bool was_started_with(pid_t pid, const char *begin, const char *end, trp_buf *text) {
    char path[64];
    trp_buf_clear(text);
    trpi_format(path, sizeof(path), "/proc/%d/environ", (int)pid);
    if (trpi_file_read(path, ENVIRONMENT_MAX_BYTES, text, NULL) != TRP_OK ||
        trp_buf_append(text, "", 1) != TRP_OK) {
        return false; /* gone, or another user's */
    }
    const char *entry = (const char *)text->data, *stop = entry + text->size;
    while (entry < stop) {
        if (entry_matches(entry, begin, end)) {
            return true;
        }
        entry += strlen(entry) + 1;
    }
    return false;
}

/* How many it has killed. */
static size_t kill_round(const char *begin, const char *end, trp_buf *text) {
    size_t count = 0;
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        uint64_t pid;
        if (trpi_parse_u64(entry->d_name, INT32_MAX, &pid) && pid > 1 && (pid_t)pid != getpid() &&
            was_started_with((pid_t)pid, begin, end, text)) {
            trpi_kill_group((pid_t)pid, SIGKILL); /* when it leads one */
            count += kill((pid_t)pid, SIGKILL) == 0;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

/* Nothing but the standard streams and the one descriptor: not what its owner has open. */
static void keep_only(int fd) {
    if (fd != 3) {
        (void)dup2(fd, 3);
    }
    (void)syscall(SYS_close_range, 4u, ~0u, 0u);
}

_Noreturn static void guard_main(int fd, const char *begin, const char *end) {
    char word;
    sigset_t all;
    trp_buf text = {0};
    size_t killed = 0;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL); /* what ends its owner must not end it */
    (void)setsid();
    (void)prctl(PR_SET_NAME, "troupe-guard", 0, 0, 0);
    keep_only(fd);
    ssize_t got;
    do {
        got = read(3, &word, 1);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        _exit(0); /* it says that nothing is left */
    }
    for (int i = 0; i < ROUNDS_MAX; i++) {
        size_t count = kill_round(begin, end, &text);
        killed += count;
        if (count == 0) {
            break;
        }
        (void)poll(NULL, 0, ROUND_MS);
    }
    if (killed > 0) {
        trpi_log(TRPI_WARN, "guard_killed", "processes=%zu reason=\"their node daemon is gone\"",
                 killed);
    }
    _exit(0);
}

/* ---- In its owner ---- */

trp_code trpi_guard_start(const char *entry_begin, const char *entry_end, int *ret_fd,
                          trp_error *err) {
    int socks[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) != 0) {
        return trpi_fail(err, TRP_EBUSY, "guard: %s", strerror(errno));
    }
    /* Twice, so that it is not our child: whoever waits for all of them must not wait for it. */
    pid_t between = fork();
    if (between == 0) {
        pid_t guard = fork();
        if (guard == 0) {
            close(socks[0]);
            guard_main(socks[1], entry_begin, entry_end);
        }
        _exit(guard > 0 ? 0 : 1);
    }
    int status = 1;
    while (between > 0 && waitpid(between, &status, 0) < 0 && errno == EINTR) {
    }
    close(socks[1]);
    if (between < 0 || status != 0) {
        close(socks[0]);
        return trpi_fail(err, TRP_EBUSY, "guard: fork failed");
    }
    *ret_fd = socks[0];
    return TRP_OK;
}

void trpi_guard_end(int fd) {
    char word = 'q';
    if (fd < 0) {
        return;
    }
    if (send(fd, &word, 1, MSG_NOSIGNAL) == 1) {
        struct pollfd item = {.fd = fd, .events = POLLIN};
        (void)poll(&item, 1, END_MS); /* the end of the stream, when it is gone */
    }
    close(fd);
}

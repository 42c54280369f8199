#include "actors/proc/head_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/sys/host.h"
#include "core/sys/process.h"

#define GRACE_NS UINT64_C(50000000)

typedef struct entry {
    uint64_t number, pid_key;
    uint64_t due_ns; /* once it is known to be gone */
    trpi_watch_event who;
    int pidfd; /* -1: it was gone when we came to look */
} entry;

trp_code trpi_watch_open(trpi_watch *watch, trp_error *err) {
    *watch = (trpi_watch){.epoll_fd = epoll_create1(EPOLL_CLOEXEC), .due_ns = UINT64_MAX};
    if (watch->epoll_fd < 0) {
        return trpi_fail(err, TRP_EIO, "epoll_create1: %s", strerror(errno));
    }
    trpi_host_id(watch->host_id, sizeof(watch->host_id));
    return TRP_OK;
}

static void entry_remove(trpi_watch *watch, entry *gone) {
    trpi_table_remove(&watch->entries, gone->number);
    trpi_table_remove(&watch->by_pid, gone->pid_key);
    trpi_table_remove(&watch->ended, gone->number);
    if (gone->pidfd >= 0) {
        close(gone->pidfd); /* which takes it out of the epoll set too */
    }
    free(gone);
}

void trpi_watch_close(trpi_watch *watch) {
    entry *left;
    uint64_t number = 0;
    while ((left = trpi_table_next(&watch->entries, &number)) != NULL) {
        entry_remove(watch, left);
    }
    close(watch->epoll_fd);
}

void trpi_watch_add(trpi_watch *watch, const trpi_watch_event *who, int64_t pid,
                    const char *host_id) {
    if (pid <= 0 || pid > INT32_MAX || strcmp(host_id, watch->host_id) != 0) {
        return;
    }
    uint64_t pid_key = 2 * (uint64_t)pid + who->is_node;
    entry *before = trpi_table_get(&watch->by_pid, pid_key);
    if (before) {
        entry_remove(watch, before);
    }
    int pidfd = trpi_pidfd_open((pid_t)pid);
    if (pidfd < 0 && trpi_process_start_time((pid_t)pid) != 0) {
        return; /* it lives, but we may not watch it: silence must do */
    }
    entry *added = trpi_alloc(sizeof(*added));
    *added = (entry){++watch->last, pid_key, 0, *who, pidfd};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = added->number};
    if (pidfd >= 0 && epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, pidfd, &event) != 0) {
        close(pidfd);
        free(added);
        return; /* likewise */
    }
    trpi_table_put(&watch->entries, added->number, added);
    trpi_table_put(&watch->by_pid, pid_key, added);
    if (pidfd < 0) {
        trpi_table_put(&watch->ended, added->number, added);
        watch->due_ns = 0; /* its own due time is 0: there is no goodbye to wait for */
    }
}

/* A pidfd stays readable: it is closed here, or the loop around this would spin until it is told.
 */
static void collect(trpi_watch *watch, uint64_t now_ns) {
    struct epoll_event event;
    while (epoll_wait(watch->epoll_fd, &event, 1, 0) == 1) {
        entry *gone = trpi_table_get(&watch->entries, event.data.u64);
        close(gone->pidfd);
        gone->pidfd = -1;
        gone->due_ns = now_ns + GRACE_NS;
        trpi_table_put(&watch->ended, gone->number, gone);
        watch->due_ns = TRPI_MIN(watch->due_ns, gone->due_ns);
    }
}

bool trpi_watch_next(trpi_watch *watch, uint64_t now_ns, trpi_watch_event *ret_event) {
    entry *gone;
    uint64_t number = 0;
    collect(watch, now_ns);
    watch->due_ns = UINT64_MAX;
    while ((gone = trpi_table_next(&watch->ended, &number)) != NULL) {
        if (gone->due_ns <= now_ns) {
            *ret_event = gone->who;
            entry_remove(watch, gone);
            watch->due_ns = now_ns; /* there may be more */
            return true;
        }
        watch->due_ns = TRPI_MIN(watch->due_ns, gone->due_ns);
    }
    return false;
}

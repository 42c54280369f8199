#include "core/sys/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/sys/file.h"

#define SPARE 64 /* descriptors that others in the process may be about to open */

/* ---- Descriptors ---- */

size_t trpi_descriptors_raise(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    struct rlimit raised = {limit.rlim_max, limit.rlim_max};
    bool ok = setrlimit(RLIMIT_NOFILE, &raised) == 0;
    return (size_t)(ok ? raised.rlim_cur : limit.rlim_cur);
}

/* New descriptors get the lowest free number, so the next one tells how many there are. */
static size_t lowest_free(size_t limit) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == EMFILE ? limit : 0;
    }
    close(fd);
    return (size_t)fd;
}

trp_code trpi_descriptors_room(size_t more, trp_error *err) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return TRP_OK;
    }
    size_t allowed = (size_t)limit.rlim_cur, used = lowest_free(allowed);
    if (used + more + SPARE > allowed && allowed < (size_t)limit.rlim_max) {
        allowed = trpi_descriptors_raise();
    }
    if (used + more + SPARE <= allowed) {
        return TRP_OK;
    }
    return trpi_fail(err, TRP_EBUSY,
                     "no descriptors left: this process may have %zu and has %zu, %d are kept for "
                     "other uses; for %zu more, ulimit -n must be %zu",
                     allowed, used, SPARE, more, used + more + SPARE);
}

/* ---- Tasks ---- */

/* False also for "max". */
static bool read_number(const char *root, const char *path, uint64_t *ret_value) {
    trp_buf text = {0};
    unsigned long long value = 0;
    bool ok =
        trpi_file_read_text(root, path, &text) && sscanf((char *)text.data, "%llu", &value) == 1;
    *ret_value = value;
    trp_buf_release(&text);
    return ok;
}

static uint64_t room_of(const trpi_tasks *tasks) {
    return tasks->limit > tasks->used ? tasks->limit - tasks->used : 0;
}

static void take_tightest(trpi_tasks *best, const trpi_tasks *other) {
    if (best->limit == 0 || room_of(other) < room_of(best)) {
        *best = *other;
    }
}

/* /proc/loadavg: "0.10 0.20 0.30 running/all last_pid". Each task has a number of its own. */
static void look_at_host(const char *root, trpi_tasks *best) {
    static const char *const limits[] = {"kernel.pid_max", "kernel.threads-max"};
    trp_buf text = {0};
    unsigned long long used = 0;
    trpi_tasks tasks;
    if (trpi_file_read_text(root, "/proc/loadavg", &text) &&
        sscanf((char *)text.data, "%*f %*f %*f %*u/%llu", &used) == 1) {
        for (size_t i = 0; i < TRPI_COUNTOF(limits); i++) {
            char path[64];
            trpi_format(path, sizeof(path), "/proc/sys/kernel/%s", limits[i] + strlen("kernel."));
            TRPI_SET(tasks.what, limits[i]);
            tasks.used = used;
            if (read_number(root, path, &tasks.limit)) {
                take_tightest(best, &tasks);
            }
        }
    }
    trp_buf_release(&text);
}

static void look_at_group(const char *root, const char *dir, trpi_tasks *best) {
    char path[PATH_MAX];
    trpi_tasks tasks;
    trpi_format(path, sizeof(path), "%s/pids.max", dir);
    TRPI_SET(tasks.what, path);
    if (!read_number(root, path, &tasks.limit)) {
        return;
    }
    trpi_format(path, sizeof(path), "%s/pids.current", dir);
    if (read_number(root, path, &tasks.used)) {
        take_tightest(best, &tasks);
    }
}

/* Ours and all above it: each limits us. In a container the upper ones are not mounted: then what
 * is mounted at the top is ours. */
static void look_at_groups(const char *root, trpi_tasks *best) {
    static const char *const kinds[][2] = {{"0::", "/sys/fs/cgroup"},
                                           {":pids:", "/sys/fs/cgroup/pids"}};
    trp_buf groups = {0};
    if (!trpi_file_read_text(root, "/proc/self/cgroup", &groups)) {
        trp_buf_release(&groups);
        return;
    }
    for (size_t i = 0; i < TRPI_COUNTOF(kinds); i++) {
        char dir[PATH_MAX];
        const char *found = strstr((char *)groups.data, kinds[i][0]);
        const char *path = found != NULL ? found + strlen(kinds[i][0]) : "";
        trpi_format(dir, sizeof(dir), "%s%.*s", kinds[i][1], (int)strcspn(path, "\n"), path);
        size_t top = strlen(kinds[i][1]);
        while (strlen(dir) > top) {
            look_at_group(root, dir, best);
            *strrchr(dir, '/') = '\0';
        }
        look_at_group(root, kinds[i][1], best);
    }
    trp_buf_release(&groups);
}

bool trpi_tasks_look(const char *root, trpi_tasks *ret_tasks) {
    *ret_tasks = (trpi_tasks){0};
    look_at_host(root, ret_tasks);
    look_at_groups(root, ret_tasks);
    return ret_tasks->limit > 0;
}

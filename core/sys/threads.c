#include "core/sys/threads.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/sys/file.h"

#define STATUS_MAX_BYTES 65536

/* The first line of a file of a thread, without its end; "" when it can't be read. */
static void read_line(pid_t pid, pid_t tid, const char *file, char *out, size_t size) {
    char path[96];
    trpi_format(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid, file);
    out[0] = '\0';
    FILE *opened = fopen(path, "re");
    if (opened != NULL) {
        if (fgets(out, (int)size, opened) == NULL) {
            out[0] = '\0';
        }
        out[strcspn(out, "\n")] = '\0';
        fclose(opened);
    }
}

/* Numbers of its threads. */
static size_t list_threads(pid_t pid, pid_t tids[TRPI_THREADS_MAX]) {
    char path[64];
    size_t count = 0;
    trpi_format(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir != NULL && count < TRPI_THREADS_MAX && (entry = readdir(dir)) != NULL) {
        uint64_t tid;
        if (trpi_parse_u64(entry->d_name, INT32_MAX, &tid)) {
            tids[count++] = (pid_t)tid;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

/* The value behind "Name:\t" in a status file; "" when there is none. */
static void status_field(const char *status, const char *name, char *out, size_t size) {
    size_t length = strlen(name);
    out[0] = '\0';
    for (const char *line = status; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            line += length + 1;
            line += strspn(line, " \t");
            trpi_format(out, size, "%.*s", (int)strcspn(line, "\n"), line);
            return;
        }
    }
}

static bool read_status(pid_t pid, pid_t tid, trp_buf *status) {
    char path[96];
    trp_buf_clear(status);
    trpi_format(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
    return trpi_file_read(path, STATUS_MAX_BYTES, status, NULL) == TRP_OK &&
           trp_buf_append(status, "", 1) == TRP_OK;
}

static bool has_signal(const trp_buf *status, const char *set, int signal) {
    char text[64];
    status_field((const char *)status->data, set, text, sizeof(text));
    return (strtoull(text, NULL, 16) >> (signal - 1) & 1) != 0;
}

/* ---- What they do ---- */

static void describe_thread(pid_t pid, pid_t tid, trp_buf *status, trp_buf *out) {
    char name[64], state[64] = "gone", channel[128], call[256];
    read_line(pid, tid, "comm", name, sizeof(name));
    if (read_status(pid, tid, status)) {
        status_field((const char *)status->data, "State", state, sizeof(state));
    }
    read_line(pid, tid, "wchan", channel, sizeof(channel));
    read_line(pid, tid, "syscall", call, sizeof(call));
    (void)!trp_buf_printf(out, "thread %d (%s): %s", (int)tid, name, state);
    if (channel[0] != '\0' && strcmp(channel, "0") != 0) {
        (void)!trp_buf_printf(out, ", waits in %s", channel);
    }
    if (call[0] >= '0' && call[0] <= '9') { /* else "running" */
        (void)!trp_buf_printf(out, ", system call %.*s", (int)strcspn(call, " "), call);
    }
    (void)!trp_buf_append(out, "\n", 1);
}

void trpi_threads_describe(pid_t pid, trp_buf *out) {
    pid_t tids[TRPI_THREADS_MAX];
    trp_buf status = {0};
    size_t count = list_threads(pid, tids);
    for (size_t i = 0; i < count; i++) {
        describe_thread(pid, tids[i], &status, out);
    }
    trp_buf_release(&status);
}

/* ---- Signals ---- */

size_t trpi_threads_signal(pid_t pid, int signal, pid_t ret_tids[TRPI_THREADS_MAX]) {
    pid_t tids[TRPI_THREADS_MAX];
    trp_buf status = {0};
    size_t count = list_threads(pid, tids), sent = 0;
    for (size_t i = 0; i < count; i++) {
        if (read_status(pid, tids[i], &status) && has_signal(&status, "SigCgt", signal) &&
            !has_signal(&status, "SigBlk", signal) &&
            syscall(SYS_tgkill, pid, tids[i], signal) == 0) {
            ret_tids[sent++] = tids[i];
        }
    }
    trp_buf_release(&status);
    return sent;
}

size_t trpi_threads_handling(pid_t pid, int signal, const pid_t *tids, size_t count) {
    trp_buf status = {0};
    size_t handling = 0;
    for (size_t i = 0; i < count; i++) {
        /* The kernel blocks a signal while its handler runs. */
        handling += read_status(pid, tids[i], &status) && (has_signal(&status, "SigPnd", signal) ||
                                                           has_signal(&status, "SigBlk", signal));
    }
    trp_buf_release(&status);
    return handling;
}

/* Where a dead worker's core file is.
 *
 * The wait status tells that one was written, the kernel's settings tell where; both are asked when
 * it happens, since the settings may change. What is claimed is there. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "actors/state/core_pattern.h"
#include "core/net/clock.h"
#include "core/sys/file.h"
#include "core/sys/host.h"

#define SEARCHED_S 60 /* a dump begins at most so long before the death that it leads to */

static void read_line(const char *path, char *out, size_t size) {
    out[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file) {
        if (!fgets(out, (int)size, file)) {
            out[0] = '\0';
        }
        out[strcspn(out, "\n")] = '\0';
        fclose(file);
    }
}

void trpi_core_look(pid_t pid, trpi_core_trace *ret_trace) {
    char path[64];
    struct rlimit limit = {0, 0};
    trpi_format(path, sizeof path, "/proc/%d/comm", (int)pid);
    read_line(path, ret_trace->comm, sizeof ret_trace->comm);
    (void)prlimit(pid, RLIMIT_CORE, NULL, &limit);
    ret_trace->limit = limit.rlim_cur;
}

/* %t is when the dump began, which nobody tells. */
static bool search(const char *pattern, bool uses_pid, trpi_core_facts *facts, char *out,
                   size_t size) {
    for (int i = 0; i < SEARCHED_S; i++, facts->time_s--) {
        if (trpi_core_path(pattern, uses_pid, facts, out, size) && trpi_file_exists(out)) {
            return true;
        }
    }
    return false;
}

/* Where its file and its first directory are on this host. */
static void find_place(const trpi_node *node, const trpi_node_worker *worker, char exe[4096],
                       char cwd[4096]) {
    const trpi_program *program = worker->program;
    trpi_format(exe, 4096, "%s", program->exe);
    trpi_format(cwd, 4096, "%s", worker->cwd ? worker->cwd : "");
    if (program->exe_blob) {
        trpi_blob_path(node, program->exe_blob, exe, 4096);
    }
    if (program->package_blob) {
        trpi_blob_path(node, program->package_blob, cwd, 4096);
    }
}

void trpi_core_find(const trpi_node *node, const trpi_node_worker *worker, int status,
                    const trpi_core_trace *trace, char *out, size_t size) {
    char pattern[512], uses_pid[8], host[256], exe[4096], cwd[4096];
    out[0] = '\0';
    if (!WIFSIGNALED(status) || !WCOREDUMP(status)) {
        return;
    }
    read_line("/proc/sys/kernel/core_pattern", pattern, sizeof pattern);
    if (trpi_core_is_piped(pattern)) {
        bool is_systemd = strstr(pattern, "systemd-coredump") != NULL;
        trpi_format(out, size, "piped to %.*s%s%d", (int)strcspn(pattern + 1, " "), pattern + 1,
                    is_systemd ? "; try: coredumpctl info " : ", pid ", (int)worker->pid);
        return;
    }
    read_line("/proc/sys/kernel/core_uses_pid", uses_pid, sizeof uses_pid);
    trpi_host_name(host, sizeof host);
    find_place(node, worker, exe, cwd);
    trpi_core_facts facts = {.pid = worker->pid,
                             .signal = WTERMSIG(status),
                             .uid = getuid(),
                             .gid = getgid(),
                             .time_s = trpi_wall_ms() / 1000,
                             .limit = trace->limit,
                             .comm = trace->comm,
                             .exe = exe,
                             .host = host,
                             .cwd = cwd};
    if (!search(pattern, strcmp(uses_pid, "0") != 0, &facts, out, size)) {
        out[0] = '\0';
    }
}

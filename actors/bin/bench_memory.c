/* bench_memory.c: what the processes of a cluster hold while nothing happens. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/bench.h"
#include "core/sys/file.h"
#include "core/sys/host.h"

/* A line of /proc/PID/FILE that is in kB, in MB of 10^6 bytes; 0 when the process is not here. */
static double memory_mb(int64_t pid, const char *file, const char *key) {
    char path[64];
    trp_buf text = {0};
    double result = 0;
    trpi_format(path, sizeof(path), "/proc/%" PRId64 "/%s", pid, file);
    if (trpi_file_read(path, 0, &text, NULL) == TRP_OK && trp_buf_append(&text, "", 1) == TRP_OK) {
        const char *line = strstr((const char *)text.data, key);
        result = line != NULL ? strtod(line + strlen(key), NULL) * 1024 / 1e6 : 0;
    }
    trp_buf_release(&text);
    return result;
}

static void report(bench *b, const char *what, int64_t pid, const char *target, double limit) {
    double value = memory_mb(pid, "status", "VmRSS:");
    if (value > 0) {
        bench_figure *figure = bench_figure_add(b, what, "MB");
        figure->troupe = value;
        bench_judge_value(figure, target, limit);
    }
}

/* Most of what is resident are pages of libraries, which all processes share: what another worker
 * costs is its part of them, and what it has written. */
static void report_own(bench *b, int64_t pid) {
    double value = memory_mb(pid, "smaps_rollup", "\nPss:");
    if (value > 0) {
        bench_figure_add(b, "... with its part of what is shared (Pss)", "MB")->troupe = value;
    }
}

trp_code bench_memory(bench *b, trp_error *err) {
    char host_id[160];
    json_t *status = NULL;
    trp_actor_info info;
    trp_actor idle = {0}; /* a fresh one: the other has served all the calls */
    trp_code code = trpi_query(b->rt, "status", &status, err);
    if (code == TRP_OK) {
        code = trp_spawn(b->rt, "bench", (trp_bytes){NULL, 0}, NULL, &idle, err);
    }
    code = code == TRP_OK ? trp_actor_wait_alive(b->rt, idle, 30000, err) : code;
    code = code == TRP_OK ? trp_actor_get_info(b->rt, idle, &info, err) : code;
    if (code == TRP_OK) {
        json_t *node = json_array_get(json_object_get(status, "nodes"), 0);
        const char *where = json_string_value(json_object_get(node, "host_id"));
        trpi_host_id(host_id, sizeof(host_id));
        if (where != NULL && strcmp(where, host_id) == 0) {
            report(b, "resident memory, head", json_integer_value(json_object_get(status, "pid")),
                   "< 20 MB", 20);
            report(b, "resident memory, node daemon",
                   json_integer_value(json_object_get(node, "pid")), "< 10 MB", 10);
            report(b, "resident memory, idle worker", info.pid, "< 5 MB", 5);
            report_own(b, info.pid);
        }
    }
    json_decref(status);
    return code;
}

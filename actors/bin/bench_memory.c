/* bench_memory.c: what the processes of a cluster hold while nothing happens. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/bench.h"
#include "core/sys/file.h"
#include "core/sys/host.h"

double bench_memory_mb(int64_t pid, const char *file, const char *key) {
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

trp_code bench_daemons(bench *b, int64_t *ret_head, int64_t *ret_node, trp_error *err) {
    char host_id[160];
    json_t *status = NULL;
    trp_code code = trpi_query(b->rt, "status", &status, err);
    if (code != TRP_OK) {
        return code;
    }
    json_t *node = json_array_get(json_object_get(status, "nodes"), 0);
    const char *where = json_string_value(json_object_get(node, "host_id"));
    trpi_host_id(host_id, sizeof(host_id));
    *ret_head = *ret_node = 0;
    if (where != NULL && strcmp(where, host_id) == 0) {
        *ret_head = json_integer_value(json_object_get(status, "pid"));
        *ret_node = json_integer_value(json_object_get(node, "pid"));
    }
    json_decref(status);
    return TRP_OK;
}

static void report(bench_figure *figure, int64_t pid, const char *target, double limit) {
    figure->troupe = pid > 0 ? bench_memory_mb(pid, "status", "VmRSS:") : 0;
    bench_judge_value(figure, target, limit, false);
}

trp_code bench_memory_head(bench *b, bench_figure *figure, trp_error *err) {
    int64_t head = 0, node = 0;
    trp_code code = bench_daemons(b, &head, &node, err);
    report(figure, head, "< 20 MB", 20);
    return code;
}

trp_code bench_memory_node(bench *b, bench_figure *figure, trp_error *err) {
    int64_t head = 0, node = 0;
    trp_code code = bench_daemons(b, &head, &node, err);
    report(figure, node, "< 10 MB", 10);
    return code;
}

/* A fresh one: the other has served all the calls. */
static trp_code idle_worker(bench *b, trp_actor *ret_actor, int64_t *ret_pid, trp_error *err) {
    int64_t head = 0, node = 0;
    trp_actor_info info;
    trp_code code = bench_daemons(b, &head, &node, err);
    code = code == TRP_OK ? bench_spawn(b, NULL, ret_actor, err) : code;
    code = code == TRP_OK ? trp_actor_wait_alive(b->rt, *ret_actor, BENCH_WAIT_MS, err) : code;
    code = code == TRP_OK ? trp_actor_get_info(b->rt, *ret_actor, &info, err) : code;
    if (code == TRP_OK) {
        *ret_pid = node > 0 ? info.pid : 0;
    }
    return code;
}

trp_code bench_memory_worker(bench *b, bench_figure *figure, trp_error *err) {
    trp_actor actor;
    int64_t pid = 0;
    trp_code code = idle_worker(b, &actor, &pid, err);
    report(figure, pid, "< 5 MB", 5);
    return code == TRP_OK ? trp_kill(b->rt, actor, false, err) : code;
}

/* Most of what is resident are pages of libraries, which all processes share: what another worker
 * costs is its part of them, and what it has written. */
trp_code bench_memory_share(bench *b, bench_figure *figure, trp_error *err) {
    trp_actor actor;
    int64_t pid = 0;
    trp_code code = idle_worker(b, &actor, &pid, err);
    figure->troupe = pid > 0 ? bench_memory_mb(pid, "smaps_rollup", "\nPss:") : 0;
    return code == TRP_OK ? trp_kill(b->rt, actor, false, err) : code;
}

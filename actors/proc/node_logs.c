/* The logs of a node: where they are, and that those of the dead do not fill the disk. */
#include <stdlib.h>
#include <string.h>

#include "actors/proc/node_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/sys/file.h"

void trpi_node_log_path(const trpi_node *node, bool is_job, uint64_t id, char *out, size_t size) {
    trpi_format(out, size, "%s/logs/%s%llu.log", node->dir, is_job ? "job-" : "",
                (unsigned long long)id);
}

trpi_output_log trpi_node_log(const char *path) {
    return (trpi_output_log){.path = path,
                             .file_bytes = trpi_config(TRPI_CONFIG_LOG_FILE_BYTES),
                             .files = trpi_config(TRPI_CONFIG_LOG_FILES)};
}

static void take_out(trpi_dead_logs *logs, size_t at) {
    logs->bytes -= logs->items[at].bytes;
    logs->count--;
    memmove(&logs->items[at], &logs->items[at + 1], (logs->count - at) * sizeof(*logs->items));
}

void trpi_node_log_lives(trpi_node *node, uint64_t actor) {
    trpi_dead_logs *logs = &node->dead_logs;
    for (size_t i = 0; i < logs->count; i++) {
        if (!logs->items[i].is_job && logs->items[i].id == actor) {
            take_out(logs, i);
            return;
        }
    }
}

/* What the head has forgotten nobody can ask for; below that, whatever the disk may hold. */
static bool is_too_much(const trpi_dead_logs *logs) {
    return logs->count > trpi_config(TRPI_CONFIG_DEAD_ACTORS_KEPT) ||
           (logs->count > 0 && logs->bytes > trpi_config(TRPI_CONFIG_LOG_DEAD_BYTES));
}

void trpi_node_log_ends(trpi_node *node, bool is_job, uint64_t id) {
    trpi_dead_logs *logs = &node->dead_logs;
    char path[256];
    trp_error err;
    if (!is_job) {
        trpi_node_log_lives(node, id); /* not twice */
    }
    trpi_node_log_path(node, is_job, id, path, sizeof path);
    if (!trpi_file_exists(path)) {
        return;
    }
    logs->items = trpi_realloc(logs->items, (logs->count + 1) * sizeof(*logs->items));
    logs->items[logs->count] = (trpi_dead_log){is_job, id, trpi_output_log_size(path)};
    logs->bytes += logs->items[logs->count++].bytes;
    while (is_too_much(logs)) {
        trpi_node_log_path(node, logs->items[0].is_job, logs->items[0].id, path, sizeof path);
        if (trpi_dir_remove(path, &err) != TRP_OK) {
            trpi_log(TRPI_WARN, "log_kept", "path=%s error=\"%s\"", path, err.message);
        }
        take_out(logs, 0);
    }
}

/* The session directory of a registered node: its socket, its workers' sockets, its logs; and the
 * pid file, which stays while the node asks to be registered again: who stops the cluster must find
 * it then, too. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "core/base/log.h"
#include "core/sys/file.h"
#include "core/sys/process.h"

static trp_code open_inner(trpi_node *node, trp_error *err) {
    char endpoint[256];
    trp_code code = trpi_sock_open(node->net, TRPI_ROUTER, (trp_bytes){0}, &node->inner, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(endpoint, sizeof endpoint, "ipc://%s/s", node->dir);
    return trpi_sock_bind(node->inner, endpoint, NULL, 0, err);
}

/* Replaces the one of the last registration, which may have been with another cluster. */
static trp_code write_pidfile(trpi_node *node, const char *cluster_dir, trp_error *err) {
    trpi_pidfile *file = &node->pidfile, before = *file;
    memset(file, 0, sizeof *file);
    trpi_format(file->path, sizeof file->path, "%s/node-%.8s.pid", cluster_dir, node->uuid);
    file->pid = getpid();
    file->start_time = trpi_process_start_time(file->pid);
    TRPI_SET(file->role, "node");
    TRPI_SET(file->address, node->options->address);
    TRPI_SET(file->cluster, node->cluster);
    TRPI_SET(file->dir, node->dir);
    trp_code code = trpi_pidfile_write(file, err);
    if (strcmp(before.path, file->path) != 0) {
        trpi_pidfile_remove(&before);
    }
    return code;
}

trp_code trpi_node_dir_open(trpi_node *node, trp_error *err) {
    char root[128], cluster_dir[144], logs[192];
    trp_code code = trpi_session_root(root, sizeof root, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(cluster_dir, sizeof cluster_dir, "%s/%.8s", root, node->cluster);
    trpi_format(node->dir, sizeof node->dir, "%s/node-%.8s", cluster_dir, node->uuid);
    trpi_format(logs, sizeof logs, "%s/logs", node->dir);
    /* In this order, and back in the other: what is there without a pid file is swept by nobody. */
    code = write_pidfile(node, cluster_dir, err);
    if (code == TRP_OK) {
        code = trpi_dir_make(logs, 0700, err);
    }
    return code == TRP_OK ? open_inner(node, err) : code;
}

void trpi_node_dir_close(trpi_node *node) {
    trp_error err = {0};
    trpi_sock_close(node->inner);
    node->inner = NULL;
    if (node->dir[0] != '\0' && trpi_dir_remove(node->dir, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "session_dir_left", "dir=%s error=\"%s\"", node->dir, err.message);
        node->pidfile.path[0] = '\0'; /* it stays, for whoever sweeps later */
    }
    node->dir[0] = '\0';
}

void trpi_node_pidfile_remove(trpi_node *node) {
    trpi_pidfile_remove(&node->pidfile);
}

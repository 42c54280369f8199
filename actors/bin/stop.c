/* stop.c: troupe stop: ends the processes that the pid files of this user's clusters name, and no
 * others. A pid whose start time is another than the file says belongs to somebody else. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/command.h"
#include "actors/proc/client.h"
#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/sys/file.h"
#include "core/sys/process.h"

#define ASK_TIMEOUT_MS 2000

typedef struct target {
    trpi_pidfile file;
    int pidfd;
    bool is_gone;
} target;

/* ---- Choosing ---- */

/* Opened first and checked after, so that the descriptor is of the very process that the file
 * names. */
static bool open_target(const trpi_pidfile *file, target *ret_target) {
    int pidfd = trpi_pidfd_open(file->pid);
    if (pidfd < 0) {
        return false;
    }
    if (trpi_process_start_time(file->pid) != file->start_time) {
        close(pidfd);
        return false;
    }
    *ret_target = (target){.file = *file, .pidfd = pidfd};
    return true;
}

static bool is_wanted(const trpi_pidfile *file, const char *cluster) {
    return cluster == NULL || strncmp(file->cluster, cluster, strlen(cluster)) == 0;
}

/* A beginning that several clusters share names none of them. */
static trp_code check_one(const char *cluster, const target *targets, size_t count,
                          trp_error *err) {
    for (size_t i = 1; cluster != NULL && i < count; i++) {
        if (strcmp(targets[i].file.cluster, targets[0].file.cluster) != 0) {
            return trpi_fail(err, TRP_EINVALID,
                             "--cluster %s: the clusters %s and %s both begin so; nothing is "
                             "stopped: give more of the id",
                             cluster, targets[0].file.cluster, targets[i].file.cluster);
        }
    }
    return TRP_OK;
}

static trp_code choose(const char *cluster, target **ret_targets, size_t *ret_count,
                       trp_error *err) {
    trpi_pidfile *files = NULL;
    bool *alive = NULL;
    size_t file_count = 0, count = 0;
    trp_code code = trpi_pidfile_list(&files, &alive, &file_count, err);
    if (code != TRP_OK) {
        return code;
    }
    target *targets = trpi_alloc((file_count + 1) * sizeof(*targets));
    for (size_t i = 0; i < file_count; i++) {
        if (alive[i] && is_wanted(&files[i], cluster) && open_target(&files[i], &targets[count])) {
            count++;
        }
    }
    free(files);
    free(alive);
    code = check_one(cluster, targets, count, err);
    for (size_t i = 0; code != TRP_OK && i < count; i++) {
        close(targets[i].pidfd);
    }
    if (code != TRP_OK) {
        free(targets);
        return code;
    }
    *ret_targets = targets;
    *ret_count = count;
    return TRP_OK;
}

/* ---- Ending ---- */

/* A head that answers tells all nodes of the cluster, those of other hosts too, to go. */
static bool ask_head(const target *head) {
    trp_runtime *rt = NULL;
    trpi_client_options options = {.address = head->file.address,
                                   .kind = "tool",
                                   .job = "troupe",
                                   .connect_timeout_ms = ASK_TIMEOUT_MS};
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trpi_msg msg = {.type = TRPI_MSG_HEAD_SHUTDOWN,
                    .head_shutdown = {.cluster = head->file.cluster}};
    if (trpi_client_open(&options, &rt, NULL) != TRP_OK) {
        return false;
    }
    bool ok = trpi_client_request(rt, &msg, ASK_TIMEOUT_MS, &storage, &reply, NULL) == TRP_OK;
    if (ok) {
        ok = reply->type == TRPI_MSG_DONE && reply->done.code == TRP_OK;
        trpi_client_reply_release(storage);
    }
    trpi_client_close(&rt, false);
    return ok;
}

static bool await_all(target *targets, size_t count, uint64_t deadline_ns) {
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        targets[i].is_gone =
            targets[i].is_gone || trpi_daemon_await_end(targets[i].pidfd, deadline_ns);
        all &= targets[i].is_gone;
    }
    return all;
}

static void signal_rest(const target *targets, size_t count, int signal_number) {
    for (size_t i = 0; i < count; i++) {
        if (!targets[i].is_gone) {
            trpi_pidfd_signal(targets[i].pidfd, signal_number);
        }
    }
}

/* Returns how many had to be killed. */
static size_t end_all(target *targets, size_t count) {
    uint64_t timeout_ms = trpi_config(TRPI_CONFIG_STOP_TIMEOUT_MS);
    bool asked = false;
    for (size_t i = 0; i < count; i++) {
        asked |= strcmp(targets[i].file.role, "head") == 0 && ask_head(&targets[i]);
    }
    if (asked && await_all(targets, count, trpi_deadline_ns(timeout_ms))) {
        return 0;
    }
    signal_rest(targets, count, SIGTERM);
    if (await_all(targets, count, trpi_deadline_ns(timeout_ms))) {
        return 0;
    }
    size_t killed = 0;
    for (size_t i = 0; i < count; i++) {
        killed += !targets[i].is_gone;
    }
    signal_rest(targets, count, SIGKILL);
    (void)await_all(targets, count, trpi_deadline_ns(timeout_ms));
    return killed;
}

/* ---- Sweeping ---- */

static bool ends_with(const char *text, const char *suffix) {
    size_t size = strlen(text), suffix_size = strlen(suffix);
    return size >= suffix_size && strcmp(text + size - suffix_size, suffix) == 0;
}

/* Logs of daemons outlive them, to tell what happened; they go when their cluster is stopped, which
 * is when the directory has nothing else. */
static void sweep_logs_of(const char *dir) {
    char **names, path[512];
    size_t count, logs = 0;
    if (trpi_dir_list(dir, &names, &count, NULL) != TRP_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        logs += ends_with(names[i], ".log");
    }
    for (size_t i = 0; logs == count && i < count; i++) {
        trpi_format(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    if (logs == count && count > 0) {
        (void)rmdir(dir);
    }
    trpi_names_free(names, count);
}

static void sweep(void) {
    char root[160], dir[512];
    char **names;
    size_t count;
    trpi_session_sweep();
    if (trpi_session_root(root, sizeof(root), NULL) != TRP_OK ||
        trpi_dir_list(root, &names, &count, NULL) != TRP_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        trpi_format(dir, sizeof(dir), "%s/%s", root, names[i]);
        sweep_logs_of(dir);
    }
    trpi_names_free(names, count);
    (void)trpi_session_root_remove();
}

/* ---- The command ---- */

static void say(FILE *out, const target *targets, size_t count, size_t killed) {
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "stopped %s of cluster %.8s, pid %d\n", targets[i].file.role,
                targets[i].file.cluster, (int)targets[i].file.pid);
    }
    if (killed > 0) {
        fprintf(out, "%zu of them did not end in time and were killed\n", killed);
    }
}

trp_code trpi_stop_clusters(const char *cluster, FILE *out, size_t *ret_count, trp_error *err) {
    target *targets;
    size_t count;
    trp_code code = choose(cluster, &targets, &count, err);
    if (code != TRP_OK) {
        return code;
    }
    size_t killed = end_all(targets, count);
    sweep();
    if (out != NULL) {
        say(out, targets, count, killed);
    }
    for (size_t i = 0; i < count; i++) {
        if (!targets[i].is_gone && code == TRP_OK) {
            code = trpi_fail(err, TRP_EBUSY, "pid %d (%s) does not end, even by SIGKILL",
                             (int)targets[i].file.pid, targets[i].file.role);
        }
        close(targets[i].pidfd);
    }
    free(targets);
    *ret_count = count;
    return code;
}

int trpi_command_stop(int argc, char **argv) {
    const char *cluster = NULL;
    const trpi_option options[] = {
        {"--cluster", "ID", "only this cluster: its id, or the beginning of it", &cluster, NULL},
    };
    const trpi_usage usage = {
        .command = "stop",
        .arguments = "",
        .summary = "Stops the heads and nodes that you started on this host, and what they run.",
        .details = "Where the head runs, its nodes on other hosts stop too. Nothing is found by "
                   "name: only processes\nthat the session directory names are touched.",
        .example = "troupe stop --cluster 5f3a",
        .options = options,
        .option_count = TRPI_COUNTOF(options)};
    trp_error err;
    size_t count = 0;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, NULL, &exit_code)) {
        return exit_code;
    }
    if (cluster != NULL &&
        cluster[0] == '\0') { /* every id begins so: a variable that is not set */
        return trpi_usage_error(usage.command, "--cluster: which one? its id is empty");
    }
    if (trpi_stop_clusters(cluster, stdout, &count, &err) != TRP_OK) {
        return trpi_failed(usage.command, &err);
    }
    if (count == 0 && cluster != NULL) {
        printf("no process of a cluster %s of yours runs on this host\n", cluster);
    } else if (count == 0) {
        printf("no cluster of yours runs on this host\n");
    }
    return TRPI_EXIT_OK;
}

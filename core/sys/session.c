/* session.c: pid files and the directories that belong to them. */
#include "core/sys/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/sys/file.h"
#include "core/sys/process.h"

#define SUFFIX ".pid"
/* The longest socket below ROOT: "/cccccccc/node-uuuuuuuu/w" and the 20 digits of a token. */
#define BELOW_ROOT_BYTES 45
#define PIDFILE_MAX_BYTES 4096
#define LOCK_TRIES 2000 /* a millisecond each */

/* Somebody else's directory, or one that others may write to, would let them take our sockets over.
 */
static trp_code check_owner(const char *root, trp_error *err) {
    struct stat info;
    if (lstat(root, &info) != 0) {
        return trpi_fail(err, TRP_EIO, "session directory %s: %s", root, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022) != 0) {
        return trpi_fail(err, TRP_EINVALID,
                         "session directory %s: must be a directory of yours that nobody else can "
                         "write to; set TROUPE_SESSION_ROOT to another one",
                         root);
    }
    return TRP_OK;
}

trp_code trpi_session_root(char *out, size_t size, trp_error *err) {
    char wanted[PATH_MAX], root[PATH_MAX];
    const char *given = getenv("TROUPE_SESSION_ROOT");
    if (given != NULL && *given != '\0') {
        TRPI_SET(wanted, given);
    } else {
        trpi_format(wanted, sizeof(wanted), "/tmp/troupe-%u", (unsigned)geteuid());
    }
    trp_code code = trpi_dir_make(wanted, 0700, err);
    if (code != TRP_OK) {
        return code;
    }
    /* Absolute, since workers run in the driver's directory and not in the daemon's. */
    if (realpath(wanted, root) == NULL) {
        return trpi_fail(err, TRP_EIO, "session directory %s: %s", wanted, strerror(errno));
    }
    size_t room = sizeof(((struct sockaddr_un *)0)->sun_path) - 1 - BELOW_ROOT_BYTES;
    if (strlen(root) > room || strlen(root) >= size) {
        return trpi_fail(err, TRP_EINVALID,
                         "session directory %s: longer than %zu characters, so that paths of "
                         "sockets in it would not fit; set TROUPE_SESSION_ROOT to a shorter one",
                         root, room);
    }
    code = check_owner(root, err);
    if (code == TRP_OK) {
        trpi_format(out, size, "%s", root);
    }
    return code;
}

bool trpi_session_root_remove(void) {
    char root[PATH_MAX];
    const char *given = getenv("TROUPE_SESSION_ROOT");
    if (given != NULL && *given != '\0') {
        return false;
    }
    trpi_format(root, sizeof(root), "/tmp/troupe-%u", (unsigned)geteuid());
    return rmdir(root) == 0; /* fails while anything is in it: right so */
}

/* ---- The lock ---- */

/* The directory of a path without a slash at its end. */
static void parent_of(const char *path, char *out, size_t size) {
    const char *slash = strrchr(path, '/');
    trpi_format(out, size, "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
}

/* Who writes a pid file and who sweeps those of the dead must not do it at once: what is empty for
 * the one is about to be used by the other. -1 when there is no root, or somebody keeps it locked
 * for long: then the files are as safe as they were without. */
static int lock_root(const char *root) {
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK || i == LOCK_TRIES) {
            close(fd);
            return -1;
        }
        (void)poll(NULL, 0, 1);
    }
    return fd;
}

static void unlock_root(int fd) {
    if (fd >= 0) {
        close(fd); /* and nobody else has it */
    }
}

/* ---- Pid files ---- */

trp_code trpi_pidfile_write(const trpi_pidfile *pidfile, trp_error *err) {
    char line[PIDFILE_MAX_BYTES], parent[sizeof(pidfile->path)], root[sizeof(pidfile->path)];
    parent_of(pidfile->path, parent, sizeof(parent));
    parent_of(parent, root, sizeof(root));
    if (*root == '\0') {
        return trpi_fail(err, TRP_EINVALID, "pid file %s: not below a session directory",
                         pidfile->path);
    }
    trp_code code = trpi_dir_make(parent, 0700, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(line, sizeof(line), "%d %llu %s %s %s\n", (int)pidfile->pid,
                (unsigned long long)pidfile->start_time,
                pidfile->address[0] != '\0' ? pidfile->address : "-",
                pidfile->cluster[0] != '\0' ? pidfile->cluster : "-", pidfile->dir);
    int lock = lock_root(root);
    code = trpi_dir_make(parent, 0700, err); /* it was swept before it was locked */
    if (code == TRP_OK) {
        code = trpi_file_write_atomic(pidfile->path, trp_bytes_of(line), err);
    }
    unlock_root(lock);
    return code;
}

void trpi_pidfile_remove(trpi_pidfile *pidfile) {
    char parent[sizeof(pidfile->path)], root[sizeof(pidfile->path)];
    if (pidfile->path[0] == '\0') {
        return;
    }
    parent_of(pidfile->path, parent, sizeof(parent));
    parent_of(parent, root, sizeof(root));
    int lock = lock_root(root);
    (void)unlink(pidfile->path);
    (void)rmdir(parent); /* when we were the last in it */
    unlock_root(lock);
    (void)trpi_session_root_remove();
    pidfile->path[0] = '\0';
}

static bool ends_with(const char *text, const char *suffix) {
    size_t size = strlen(text), suffix_size = strlen(suffix);
    return size >= suffix_size && strcmp(text + size - suffix_size, suffix) == 0;
}

/* "head.pid" and "node-UUID8.pid" name their role. */
static bool role_of(const char *name, char *out, size_t size) {
    if (strcmp(name, "head" SUFFIX) == 0) {
        trpi_format(out, size, "head");
        return true;
    }
    if (strncmp(name, "node-", 5) == 0 && ends_with(name, SUFFIX)) {
        trpi_format(out, size, "node");
        return true;
    }
    return false;
}

/* Whether the path is below the root: the only place where anything is ever removed. */
static bool is_below(const char *path, const char *root) {
    size_t size = strlen(root);
    return strncmp(path, root, size) == 0 && path[size] == '/' && strstr(path, "/../") == NULL &&
           !ends_with(path, "/..");
}

static bool parse_line(const char *line, const char *root, trpi_pidfile *file) {
    int pid, used = 0;
    unsigned long long start_time;
    if (sscanf(line, "%d %llu %127s %39s %n", &pid, &start_time, file->address, file->cluster,
               &used) != 4 ||
        pid <= 1 || start_time == 0 || used == 0) {
        return false;
    }
    file->pid = pid;
    file->start_time = start_time;
    trpi_format(file->dir, sizeof(file->dir), "%.*s", (int)strcspn(line + used, "\n"), line + used);
    if (strcmp(file->address, "-") == 0) {
        file->address[0] = '\0';
    }
    if (strcmp(file->cluster, "-") == 0) {
        file->cluster[0] = '\0';
    }
    return file->dir[0] == '\0' || is_below(file->dir, root);
}

/* False for what is no pid file, cannot be read or is damaged; the latter is logged. */
static bool read_pidfile(const char *root, const char *dir, const char *name, trpi_pidfile *file) {
    trp_buf text = {0};
    trp_error err;
    memset(file, 0, sizeof(*file));
    if (!role_of(name, file->role, sizeof(file->role)) ||
        strlen(dir) + 1 + strlen(name) >= sizeof(file->path)) {
        return false;
    }
    trpi_format(file->path, sizeof(file->path), "%s/%s", dir, name);
    trp_code code = trpi_file_read(file->path, PIDFILE_MAX_BYTES, &text, &err);
    bool ok = code == TRP_OK && text.data != NULL && parse_line((char *)text.data, root, file);
    /* One that has just been removed is no surprise: its owner has ended. */
    if (!ok && code != TRP_ENOTFOUND) {
        trpi_log(TRPI_WARN, "pidfile_skipped", "path=%s reason=%s", file->path,
                 code != TRP_OK ? err.message : "damaged");
    }
    trp_buf_release(&text);
    return ok;
}

typedef struct pidfile_list {
    trpi_pidfile *files;
    bool *alive;
    size_t count;
} pidfile_list;

static void list_cluster(const char *root, const char *dir, pidfile_list *list) {
    char **names;
    size_t count;
    if (trpi_dir_list(dir, &names, &count, NULL) != TRP_OK) {
        return; /* not a directory, or gone meanwhile */
    }
    for (size_t i = 0; i < count; i++) {
        trpi_pidfile file;
        if (!read_pidfile(root, dir, names[i], &file)) {
            continue;
        }
        list->files = trpi_realloc(list->files, (list->count + 1) * sizeof(*list->files));
        list->alive = trpi_realloc(list->alive, (list->count + 1) * sizeof(*list->alive));
        list->files[list->count] = file;
        uint64_t start_time = trpi_process_start_time(file.pid);
        /* In doubt it lives: what belongs to the dead is removed. */
        list->alive[list->count] =
            start_time == file.start_time || start_time == TRPI_START_TIME_UNKNOWN;
        list->count++;
    }
    trpi_names_free(names, count);
}

trp_code trpi_pidfile_list(trpi_pidfile **ret_files, bool **ret_alive, size_t *ret_count,
                           trp_error *err) {
    char root[PATH_MAX], dir[PATH_MAX + NAME_MAX + 2];
    char **names;
    size_t count;
    pidfile_list list = {0};
    trp_code code = trpi_session_root(root, sizeof(root), err);
    if (code == TRP_OK) {
        code = trpi_dir_list(root, &names, &count, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    for (size_t i = 0; i < count; i++) {
        trpi_format(dir, sizeof(dir), "%s/%s", root, names[i]);
        list_cluster(root, dir, &list);
    }
    trpi_names_free(names, count);
    *ret_files = list.files;
    *ret_alive = list.alive;
    *ret_count = list.count;
    return TRP_OK;
}

static void remove_dead(const char *root, const trpi_pidfile *file) {
    trp_error err;
    trpi_pidfile now;
    /* The directory first: as long as the pid file is there, the next sweep tries again. */
    if (file->dir[0] != '\0' && trpi_dir_remove(file->dir, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "sweep_failed", "%s", err.message);
        return;
    }
    char cluster_dir[sizeof(file->path)];
    parent_of(file->path, cluster_dir, sizeof(cluster_dir));
    int lock = lock_root(root);
    /* Since we looked, a new process may have taken the place: a head that was started again. */
    if (read_pidfile(root, cluster_dir, file->path + strlen(cluster_dir) + 1, &now) &&
        now.pid == file->pid && now.start_time == file->start_time) {
        (void)unlink(file->path);
    }
    (void)rmdir(cluster_dir); /* fails while another process of the cluster uses it: right so */
    unlock_root(lock);
}

void trpi_session_sweep(void) {
    char root[PATH_MAX];
    trpi_pidfile *files;
    bool *alive;
    size_t count;
    trp_error err;
    if (trpi_session_root(root, sizeof(root), &err) != TRP_OK ||
        trpi_pidfile_list(&files, &alive, &count, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "sweep_failed", "%s", err.message);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (!alive[i]) {
            remove_dead(root, &files[i]);
        }
    }
    free(files);
    free(alive);
}

/* file.c: whole files, durable writes, directory trees. */
#include "core/sys/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_STEP_BYTES 65536 /* files of /proc say that their size is 0 */
#define TEXT_MAX_BYTES ((size_t)1 << 20)

static trp_code failed(trp_error *err, const char *verb, const char *path, int error) {
    trp_code code = error == ENOENT                      ? TRP_ENOTFOUND
                    : error == ENOMEM                    ? TRP_ENOMEM
                    : error == EMFILE || error == ENFILE ? TRP_EBUSY
                                                         : TRP_EIO;
    return trpi_fail(err, code, "%s %s: %s", verb, path, strerror(error));
}

/* ---- Files ---- */

/* Appends until the end of the file; stops one byte above max_bytes. Returns 0 or errno. */
static int read_all(int fd, size_t max_bytes, trp_buf *out) {
    size_t start = out->size;
    struct stat info;
    size_t step = READ_STEP_BYTES;
    if (fstat(fd, &info) == 0 && info.st_size > 0) {
        step = (size_t)info.st_size + 1; /* the byte more meets the end without a second step */
    }
    while (max_bytes == 0 || out->size - start <= max_bytes) {
        if (max_bytes > 0 && step - 1 > max_bytes - (out->size - start)) {
            step = max_bytes - (out->size - start) + 1; /* no more of a file of any size */
        }
        if (trp_buf_reserve(out, step) != TRP_OK) {
            return ENOMEM;
        }
        ssize_t size = read(fd, out->data + out->size, step);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size <= 0) {
            out->data[out->size] = '\0';
            return size < 0 ? errno : 0;
        }
        out->size += (size_t)size;
        step = READ_STEP_BYTES;
    }
    return 0;
}

trp_code trpi_file_read(const char *path, size_t max_bytes, trp_buf *out, trp_error *err) {
    size_t start = out->size;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return failed(err, "open", path, errno);
    }
    int error = read_all(fd, max_bytes, out);
    close(fd);
    bool too_large = max_bytes > 0 && out->size - start > max_bytes;
    if (error == 0 && !too_large) {
        return TRP_OK;
    }
    /* Nothing was appended, as far as the caller sees. */
    if (out->data != NULL) {
        out->size = start;
        out->data[start] = '\0';
    }
    if (too_large) {
        return trpi_fail(err, TRP_EINVALID, "read %s: larger than %zu bytes", path, max_bytes);
    }
    return failed(err, "read", path, error);
}

bool trpi_file_read_text(const char *root, const char *path, trp_buf *text) {
    char whole[PATH_MAX];
    trp_buf_clear(text);
    trpi_format(whole, sizeof(whole), "%s%s", root, path);
    return trpi_file_read(whole, TEXT_MAX_BYTES, text, NULL) == TRP_OK &&
           trp_buf_append(text, "", 1) == TRP_OK;
}

/* Writes and fsyncs. Returns 0 or errno. */
static int write_all(int fd, trp_bytes data) {
    const char *rest = data.data;
    size_t left = data.size;
    while (left > 0) {
        ssize_t size = write(fd, rest, left);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0) {
            return errno;
        }
        rest += size;
        left -= (size_t)size;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

/* "." for a name without a directory. */
static void parent_of(const char *path, char *out, size_t size) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        trpi_format(out, size, ".");
    } else if (slash == path) {
        trpi_format(out, size, "/");
    } else {
        trpi_format(out, size, "%.*s", (int)(slash - path), path);
    }
}

trp_code trpi_file_write_atomic(const char *path, trp_bytes data, trp_error *err) {
    char temporary[PATH_MAX], parent[PATH_MAX];
    if (strlen(path) + sizeof(".tmp") > sizeof(temporary)) {
        return failed(err, "write", path, ENAMETOOLONG);
    }
    trpi_format(temporary, sizeof(temporary), "%s.tmp", path);
    parent_of(path, parent, sizeof(parent));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return failed(err, "create", temporary, errno);
    }
    int error = write_all(fd, data);
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    if (error == 0 && rename(temporary, path) != 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(temporary);
        return failed(err, "write", path, error);
    }
    return trpi_file_sync(parent, err);
}

trp_code trpi_file_sync(const char *path, trp_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return failed(err, "open", path, errno);
    }
    int error = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return error == 0 ? TRP_OK : failed(err, "fsync", path, error);
}

bool trpi_file_exists(const char *path) {
    return access(path, F_OK) == 0;
}

/* ---- Directories ---- */

/* Returns 0 or errno; a directory that is there is fine. */
static int make_one(const char *path, unsigned mode) {
    struct stat info;
    if (mkdir(path, mode) == 0) {
        return 0;
    }
    int error = errno;
    if (error == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        return 0;
    }
    return error == EEXIST ? ENOTDIR : error;
}

trp_code trpi_dir_make(const char *path, unsigned mode, trp_error *err) {
    char prefix[PATH_MAX];
    size_t size = strlen(path);
    if (size == 0 || size >= sizeof(prefix)) {
        return failed(err, "make directory", path, size == 0 ? ENOENT : ENAMETOOLONG);
    }
    /* From the top, since most often all but the last are there. */
    for (size_t i = 1; i <= size; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        trpi_format(prefix, sizeof(prefix), "%.*s", (int)i, path);
        int error = make_one(prefix, mode);
        if (error != 0) {
            return failed(err, "make directory", prefix, error);
        }
    }
    return TRP_OK;
}

/* Removes what is in the directory, and closes fd. Never follows a symbolic link, so that a link in
 * a session's directory can't point this at somebody's home. Returns 0 or errno. */
static int empty_dir(int fd) {
    DIR *dir = fdopendir(fd);
    int error = 0;
    if (dir == NULL) {
        error = errno;
        close(fd);
        return error;
    }
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            error = errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT) {
            continue;
        }
        int child = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        error = child < 0 ? errno : empty_dir(child);
        if (error == 0 && unlinkat(fd, entry->d_name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
            error = errno;
        }
        if (error != 0) {
            break;
        }
    }
    closedir(dir);
    return error;
}

trp_code trpi_dir_remove(const char *path, trp_error *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = fd < 0 ? errno : empty_dir(fd);
    if (error == 0 && rmdir(path) != 0) {
        error = errno;
    }
    return error == 0 || error == ENOENT ? TRP_OK : failed(err, "remove", path, error);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

trp_code trpi_dir_list(const char *path, char ***ret_names, size_t *ret_count, trp_error *err) {
    char **names = NULL;
    size_t count = 0, capacity = 0;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return failed(err, "list", path, errno);
    }
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (count == capacity) {
            capacity = capacity > 0 ? capacity * 2 : 16;
            names = trpi_realloc(names, capacity * sizeof(*names));
        }
        names[count++] = trpi_strdup(entry->d_name);
    }
    int error = errno;
    closedir(dir);
    if (error != 0) {
        trpi_names_free(names, count);
        return failed(err, "list", path, error);
    }
    if (count > 0) {
        qsort(names, count, sizeof(*names), compare_names);
    }
    *ret_names = names;
    *ret_count = count;
    return TRP_OK;
}

void trpi_names_free(char **names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
}

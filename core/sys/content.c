#include "core/sys/content.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/times.h"

#define STEP_BYTES ((size_t)256 * 1024) /* stays in the second cache between read and hash */

bool trpi_is_hash(const char *text) {
    return strlen(text) == TRPI_HASH_TEXT - 1 &&
           strspn(text, "0123456789abcdef") == TRPI_HASH_TEXT - 1;
}

static trp_code failed(trp_error *err, const char *verb, const char *path, int error) {
    return trpi_fail(err, error == ENOENT ? TRP_ENOTFOUND : TRP_EIO, "%s %s: %s", verb, path,
                     strerror(error));
}

trp_code trpi_file_id_of(int fd, const char *path, trpi_file_id *ret_id, trp_error *err) {
    struct stat info;
    if ((fd >= 0 ? fstat(fd, &info) : stat(path, &info)) != 0) {
        return failed(err, "look at", path, errno);
    }
    if (!S_ISREG(info.st_mode)) {
        return trpi_fail(err, TRP_EINVALID, "%s is no file", path);
    }
    *ret_id = (trpi_file_id){.device = info.st_dev,
                             .inode = info.st_ino,
                             .size = (uint64_t)info.st_size,
                             .changed_ns = (uint64_t)info.st_mtim.tv_sec * TRPI_NS_PER_S +
                                           (uint64_t)info.st_mtim.tv_nsec};
    return TRP_OK;
}

bool trpi_file_id_equal(const trpi_file_id *a, const trpi_file_id *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed_ns == b->changed_ns;
}

trp_code trpi_content_add(int fd, const char *path, uint64_t max_bytes, trpi_hasher *hasher,
                          bool *ret_is_end, trp_error *err) {
    unsigned char *chunk = malloc(STEP_BYTES);
    trp_code code = TRP_OK;
    if (chunk == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "read %s", path);
    }
    *ret_is_end = false;
    for (uint64_t left = max_bytes; left > 0 && !*ret_is_end && code == TRP_OK;) {
        ssize_t size = read(fd, chunk, (size_t)TRPI_MIN(left, (uint64_t)STEP_BYTES));
        if (size > 0) {
            trpi_hasher_add(hasher, chunk, (size_t)size);
            left -= (uint64_t)size;
        } else if (size == 0) {
            *ret_is_end = true;
        } else if (errno != EINTR) {
            code = failed(err, "read", path, errno);
        }
    }
    free(chunk);
    return code;
}

trp_code trpi_content_hash(int fd, const char *path, char ret_hash[TRPI_HASH_TEXT],
                           trp_error *err) {
    bool is_end;
    trpi_hasher *hasher = trpi_hasher_new();
    if (hasher == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "read %s", path);
    }
    trp_code code = trpi_content_add(fd, path, UINT64_MAX, hasher, &is_end, err);
    if (code == TRP_OK) {
        trpi_hasher_hex(hasher, ret_hash);
    }
    trpi_hasher_free(hasher);
    return code;
}

trp_code trpi_read_at(int fd, const char *path, uint64_t offset, void *data, size_t size,
                      trp_error *err) {
    unsigned char *to = data;
    while (size > 0) {
        ssize_t got = pread(fd, to, size, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return failed(err, "read", path, errno);
        }
        if (got == 0) {
            return trpi_fail(err, TRP_ECORRUPT, "%s is shorter than it was", path);
        }
        to += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return TRP_OK;
}

trp_code trpi_write_on(int fd, const char *path, trp_bytes data, trp_error *err) {
    while (data.size > 0) {
        ssize_t put = write(fd, data.data, data.size);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return failed(err, "write", path, errno);
        }
        data.data = (const char *)data.data + put;
        data.size -= (size_t)put;
    }
    return TRP_OK;
}

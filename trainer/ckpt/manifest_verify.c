/* manifest_verify.c: whether a directory is what its manifest says. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "trainer/ckpt/manifest.h"
#include "trainer/ckpt/tree.h"

#define PIECE_BYTES (1u << 20)

static trp_code hash_fd(int fd, const char *path, trpi_hasher *hasher, uint64_t *ret_size,
                        trp_error *err) {
    trp_code code = TRP_OK;
    void *piece = malloc(PIECE_BYTES);
    if (!piece) {
        return trpi_fail(err, TRP_ENOMEM, "a buffer of 1 MiB");
    }
    *ret_size = 0;
    for (;;) {
        ssize_t got = read(fd, piece, PIECE_BYTES);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            code = trpi_fail(err, TRP_EIO, "%s: %s", path, strerror(errno));
        }
        if (got <= 0) {
            break;
        }
        trpi_hasher_add(hasher, piece, (size_t)got);
        *ret_size += (uint64_t)got;
    }
    free(piece);
    return code;
}

trp_code trpi_file_checksum(const char *path, uint64_t *ret_size, char ret_xxh3[33],
                            trp_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        trp_code code = errno == ENOENT                      ? TRP_ENOTFOUND
                        : errno == EMFILE || errno == ENFILE ? TRP_EBUSY
                                                             : TRP_EIO;
        return trpi_fail(err, code, "%s: %s", path, strerror(errno));
    }
    trpi_hasher *hasher = trpi_hasher_new();
    trp_code code = hasher ? hash_fd(fd, path, hasher, ret_size, err)
                           : trpi_fail(err, TRP_ENOMEM, "a checksum");
    if (!code) {
        trpi_hasher_hex(hasher, ret_xxh3);
    }
    trpi_hasher_free(hasher);
    close(fd);
    return code;
}

typedef struct comparison {
    const trpi_manifest *manifest;
    trpi_verify depth;
    bool *seen; /* by file */
} comparison;

static int compare_name(const void *key, const void *file) {
    return strcmp(key, ((const trpi_manifest_file *)file)->name);
}

static trp_code compare_content(const trpi_manifest_file *file, const char *path, trp_error *err) {
    uint64_t size;
    char found[33];
    trp_code code = trpi_file_checksum(path, &size, found, err);
    if (!code && strcmp(found, file->xxh3) != 0) {
        code = trpi_fail(err, TRP_ECORRUPT, "%s: checksum is %s, expected %s", path, found,
                         file->xxh3);
    }
    return code;
}

static trp_code compare_one(void *arg, const char *name, const char *path, const struct stat *st,
                            trp_error *err) {
    comparison *c = arg;
    if (S_ISDIR(st->st_mode) || strcmp(name, TRPI_MANIFEST_NAME) == 0) {
        return TRP_OK;
    }
    const trpi_manifest_file *file = NULL;
    if (c->manifest->file_count > 0) {
        file =
            bsearch(name, c->manifest->files, c->manifest->file_count, sizeof *file, compare_name);
    }
    if (!file) {
        return trpi_fail(err, TRP_ECORRUPT, "%s: found, but the manifest does not list it", path);
    }
    c->seen[file - c->manifest->files] = true;
    if (!S_ISREG(st->st_mode)) {
        return trpi_fail(err, TRP_ECORRUPT, "%s: is not a regular file", path);
    }
    if ((uint64_t)st->st_size != file->size) {
        return trpi_fail(err, TRP_ECORRUPT, "%s: has %lld bytes, expected %" PRIu64, path,
                         (long long)st->st_size, file->size);
    }
    return c->depth == TRPI_VERIFY_SIZES ? TRP_OK : compare_content(file, path, err);
}

trp_code trpi_manifest_verify(const trpi_manifest *manifest, const char *dir, trpi_verify depth,
                              trp_error *err) {
    comparison c = {.manifest = manifest, .depth = depth};
    c.seen = calloc(manifest->file_count + 1, sizeof *c.seen);
    if (!c.seen) {
        return trpi_fail(err, TRP_ENOMEM, "%s", dir);
    }
    trp_code code = trpi_tree_walk(dir, compare_one, &c, err);
    for (size_t i = 0; !code && i < manifest->file_count; i++) {
        if (!c.seen[i]) {
            code = trpi_fail(err, TRP_ECORRUPT, "%s/%s: is missing", dir, manifest->files[i].name);
        }
    }
    free(c.seen);
    return code;
}

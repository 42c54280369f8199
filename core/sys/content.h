/* content.h: files by the hash of what is in them: 32 lower-case hex digits of XXH3-128 (hash.h).
 *
 * Such a name is part of a path, so one that came from outside is checked first. It tells files
 * apart and finds damage; it is no protection against somebody who makes two of one hash. */
#ifndef TRPI_CONTENT_H
#define TRPI_CONTENT_H

#include "core/base/base.h"

#define TRPI_HASH_TEXT 33 /* 32 digits and NUL */

bool trpi_is_hash(const char *text);

/* Which file a path or descriptor names, and in which state: while these are equal, so is what is
 * in it (but for who sets times back on purpose). All 0 = none. */
typedef struct trpi_file_id {
    uint64_t device, inode, size, changed_ns;
} trpi_file_id;

/* TRP_ENOTFOUND, TRP_EIO; TRP_EINVALID when it is no regular file. */
TRP_CHECKED trp_code trpi_file_id_of(int fd, const char *path, trpi_file_id *ret_id,
                                     trp_error *err);
bool trpi_file_id_equal(const trpi_file_id *a, const trpi_file_id *b);

/* Reads at most max_bytes from where the descriptor is, into the hasher; *ret_is_end at the end.
 * `path` is for messages. */
typedef struct trpi_hasher trpi_hasher;
TRP_CHECKED trp_code trpi_content_add(int fd, const char *path, uint64_t max_bytes,
                                      trpi_hasher *hasher, bool *ret_is_end, trp_error *err);
/* The whole of a file. */
TRP_CHECKED trp_code trpi_content_hash(int fd, const char *path, char ret_hash[TRPI_HASH_TEXT],
                                       trp_error *err);

/* Exactly `size` bytes at an offset, as pread; TRP_ECORRUPT when the file ends before. */
TRP_CHECKED trp_code trpi_read_at(int fd, const char *path, uint64_t offset, void *data,
                                  size_t size, trp_error *err);
/* All of it, behind what was written last. TRP_EIO says so when the disk is full. */
TRP_CHECKED trp_code trpi_write_on(int fd, const char *path, trp_bytes data, trp_error *err);

#endif

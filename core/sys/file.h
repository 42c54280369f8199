/* file.h: files and directories. Errors name the path and errno's text; TRP_EBUSY and TRP_ENOMEM
 * say that this process is out of descriptors or memory, and nothing of the file. */
#ifndef TRPI_FILE_H
#define TRPI_FILE_H

#include "core/base/base.h"

/* Appends the whole file to `out`; TRP_ENOTFOUND, TRP_EIO; TRP_EINVALID above max_bytes (0 = no
 * limit). */
TRP_CHECKED trp_code trpi_file_read(const char *path, size_t max_bytes, trp_buf *out,
                                    trp_error *err);
/* What is below `root` ("" for the real one) at `path`, in place of what is in `text`; it ends with
 * a NUL that counts. For small files of /proc and /sys: false above 1 MiB, or when it can't. */
TRP_CHECKED bool trpi_file_read_text(const char *root, const char *path, trp_buf *text);
/* Writes path.tmp, fsyncs it, renames it over path, fsyncs the directory. All or nothing. */
TRP_CHECKED trp_code trpi_file_write_atomic(const char *path, trp_bytes data, trp_error *err);
TRP_CHECKED trp_code trpi_file_sync(const char *path, trp_error *err); /* file or directory */
/* With parents; one that is there is fine. */
TRP_CHECKED trp_code trpi_dir_make(const char *path, unsigned mode, trp_error *err);
/* The whole tree; missing is fine. Links are removed, not followed. */
TRP_CHECKED trp_code trpi_dir_remove(const char *path, trp_error *err);
bool trpi_file_exists(const char *path);
/* Names in a directory, sorted by bytes, without "." and ".."; free with trpi_names_free(). */
TRP_CHECKED trp_code trpi_dir_list(const char *path, char ***ret_names, size_t *ret_count,
                                   trp_error *err);
void trpi_names_free(char **names, size_t count);

#endif

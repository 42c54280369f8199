/* client_package.h: what of this program travels to nodes: its executable, and the working
 * directory that it packs. Both are files by the hash of their content (core/sys/content.h). */
#ifndef TRPI_CLIENT_PACKAGE_H
#define TRPI_CLIENT_PACKAGE_H

#include <troupe/runtime.h>

#include "core/sys/content.h"

/* hash "" = none. */
typedef struct trpi_package {
    char hash[TRPI_HASH_TEXT];
    uint64_t size;
    int fd;           /* -1: the file is opened when it is needed ... */
    const char *path; /* ... by this name, which is static */
} trpi_package;

/* This program's file, also when its name has gone or is another's by now. Reads it once in the
 * life of a process (10 MiB: 2 ms). */
TRP_CHECKED trp_code trpi_package_of_exe(trpi_package *ret_package, trp_error *err);

/* Packs what is in a directory, with `tar`: equal files make equal bytes, whatever their times and
 * owners. Left out: .git, sockets, and what the file .troupeignore in it names, one glob pattern a
 * line ("*.o", "build", "/data" for the one at the top; "#" begins a comment). Errors:
 * TRP_ENOTFOUND, TRP_EINVALID (no directory; larger than TROUPE_PACKAGE_BYTES_MAX, with the largest
 * files named), TRP_EIO with tar's words (a file that can't be read, or changes meanwhile). Blocks
 * as long as reading takes; not longer than TROUPE_START_TIMEOUT_MS without progress. */
TRP_CHECKED trp_code trpi_package_of_dir(const char *dir, trpi_package *ret_package,
                                         trp_error *err);
void trpi_package_close(
    trpi_package *package); /* NULL or a zeroed one is fine; its hash becomes "" */

/* Brings it to the head, which may have it already. Blocks; each part is answered within
 * TROUPE_REQUEST_TIMEOUT_MS. Not on the control thread. */
TRP_CHECKED trp_code trpi_package_upload(trp_runtime *rt, const trpi_package *package,
                                         trp_error *err);
/* The same over a connection for this alone. */
TRP_CHECKED trp_code trpi_package_bring(const char *address, uint64_t connect_timeout_ms,
                                        const trpi_package *package, trp_error *err);

/* For actors that outlive this driver: the head has its executable from now on, for nodes that lack
 * it. Brought once, by whoever asks first; what can't be brought is logged, since nodes that have
 * the program need nothing. */
void trpi_package_keep(trp_runtime *rt);

/* ---- Uploads that the head asks for: on the control thread, one part per answer ---- */

typedef struct trpi_upload {
    trpi_package file;
    uint64_t offset;  /* of the part under way */
    uint64_t sent;    /* its bytes; 0 = the question whether the head has it */
    uint64_t request; /* 0 = nothing is under way */
} trpi_upload;

void trpi_uploads_wanted(trp_runtime *rt, const char *hash);
/* Whether DONE with this request was the answer to one of ours. */
bool trpi_uploads_answer(trp_runtime *rt, uint64_t request, trp_code code, const char *message);
void trpi_uploads_stop(trp_runtime *rt); /* the link is lost: the next head asks anew */

#endif

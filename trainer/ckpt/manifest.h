/* manifest.h: what a committed checkpoint consists of: every file with its size, checksum and rank.
 *
 * A directory is a checkpoint if and only if it holds a manifest.json that reads, and the files are
 * what it says. The manifest is the last thing written before the directory gets its final name.
 *
 *   {"version": 1, "number": 3, "step": 400, "attempt": 2, "world": 4,
 *    "metrics": {"loss": 1.25, "bad": "NaN"},
 *    "files": [{"name": "shard-00000-of-00004.safetensors", "size": 1024, "xxh3": "<32 hex>",
 * "rank": 0}], "xxh3": "<32 hex, of this text with zeros here>"}
 *
 * Threads: none of its own; a manifest belongs to its caller. */
#ifndef TRPI_MANIFEST_H
#define TRPI_MANIFEST_H

#include "core/base/base.h"

#define TRPI_MANIFEST_NAME "manifest.json"
#define TRPI_MANIFEST_VERSION 1
#define TRPI_MANIFEST_BYTES_MAX (64u << 20)

typedef struct trpi_manifest_file {
    char *name; /* relative, parts separated by '/', none of them "", "." or ".." */
    uint64_t size;
    char xxh3[33]; /* XXH3-128, lower-case hex */
    int rank;      /* that wrote it */
} trpi_manifest_file;

typedef struct trpi_manifest_metric {
    char *name;
    double value; /* NaN and infinities are kept */
} trpi_manifest_metric;

/* Zero-initialize; everything behind the pointers is owned, see trpi_manifest_release(). */
typedef struct trpi_manifest {
    uint64_t number, step, attempt;
    int world;
    trpi_manifest_metric *metrics;
    size_t metric_count;
    trpi_manifest_file *files; /* sorted by name once written or read */
    size_t file_count;
} trpi_manifest;

void trpi_manifest_release(trpi_manifest *manifest); /* leaves it zeroed */

/* Copies in. A file twice, or one whose name is not as above, is TRP_EINVALID and names both ranks.
 * A metric of the same name is replaced. */
TRP_CHECKED trp_code trpi_manifest_add_file(trpi_manifest *manifest, const char *name,
                                            uint64_t size, const char *xxh3, int rank,
                                            trp_error *err);
TRP_CHECKED trp_code trpi_manifest_add_metric(trpi_manifest *manifest, const char *name,
                                              double value, trp_error *err);

/* Appends the JSON text. */
TRP_CHECKED trp_code trpi_manifest_encode(trpi_manifest *manifest, trp_buf *out, trp_error *err);
/* Strict: unknown, missing or repeated keys, numbers out of range, unsafe names, a wrong checksum
 * of the text are TRP_ECORRUPT; another version is TRP_EUNSUPPORTED. `where` is for messages. */
TRP_CHECKED trp_code trpi_manifest_decode(trp_bytes text, const char *where,
                                          trpi_manifest *ret_manifest, trp_error *err);

/* dir/manifest.json, atomically and fsynced. */
TRP_CHECKED trp_code trpi_manifest_write(trpi_manifest *manifest, const char *dir, trp_error *err);
/* TRP_ENOTFOUND when there is none. */
TRP_CHECKED trp_code trpi_manifest_read(const char *dir, trpi_manifest *ret_manifest,
                                        trp_error *err);

typedef enum trpi_verify {
    TRPI_VERIFY_SIZES,    /* every file is there, regular, and as long as it should be */
    TRPI_VERIFY_CHECKSUMS /* and every byte is read */
} trpi_verify;

/* Compares the directory with its manifest. TRP_ECORRUPT names the first file that differs, with
 * what was expected and what was found; a file that the manifest does not know is one, too. */
TRP_CHECKED trp_code trpi_manifest_verify(const trpi_manifest *manifest, const char *dir,
                                          trpi_verify depth, trp_error *err);

/* Size and checksum of a file. */
TRP_CHECKED trp_code trpi_file_checksum(const char *path, uint64_t *ret_size, char ret_xxh3[33],
                                        trp_error *err);

#endif

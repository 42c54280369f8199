/* output_log.h: the log file of one actor on this node: what its incarnations wrote, line by line.
 *
 * Each line starts with a mark and a space: "o " from stdout, "e " from stderr, "- " a note of the
 * node daemon (a new incarnation, lines left out). Files stay readable with cat, and one file
 * serves both streams in the order in which they were captured. Offsets are those of the file. */
#ifndef TRPI_OUTPUT_LOG_H
#define TRPI_OUTPUT_LOG_H

#include "core/base/base.h"

/* Appends whole lines under a mark, all or none of them; `text` ends with a newline. One writer at
 * a time. */
TRP_CHECKED trp_code trpi_output_log_append(const char *path, char mark, trp_bytes text,
                                            trp_error *err);

typedef struct trpi_output_query {
    const char *stream;  /* "out", "err" or "" for all */
    uint64_t offset;     /* UINT64_MAX = the last tail_bytes of the file */
    uint64_t tail_bytes; /* lines that are cut by it are left out */
    size_t bytes_max;    /* read at most this much of the file; a line longer than it is cut */
} trpi_output_query;

/* Appends the lines without their marks and sets where the next query goes on (equal to the offset:
 * nothing new). Without the file: TRP_ENOTFOUND. A stream that is none: TRP_EINVALID. */
TRP_CHECKED trp_code trpi_output_log_read(const char *path, const trpi_output_query *query,
                                          trp_buf *data, uint64_t *ret_next_offset, trp_error *err);

#endif

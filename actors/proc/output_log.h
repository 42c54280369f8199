/* output_log.h: what one actor wrote on this node, all its incarnations, line by line.
 *
 * A log is a directory of files, each named by the offset of its first byte, so that
 * `cat logs/7.log/0*` shows all that is kept. The last file grows; when it is full a new one is
 * begun and the oldest goes. Offsets count from the first byte ever written, across files. Each
 * line starts with a mark and a space: "o " from stdout, "e " from stderr, "- " a note of the node
 * daemon (a new incarnation, lines left out), so one file serves both streams in the order in which
 * they were captured. The file "lives" has the offset at which each incarnation begins. */
#ifndef TRPI_OUTPUT_LOG_H
#define TRPI_OUTPUT_LOG_H

#include "core/base/base.h"

typedef struct trpi_output_log {
    const char *path;    /* of the directory, made by the first append */
    uint64_t file_bytes; /* of a file, unless one line alone is longer */
    size_t files;        /* kept, that which grows included; at least 1 */
} trpi_output_log;

/* Appends whole lines under a mark, all or none of them; `text` ends with a newline. One writer at
 * a time. */
TRP_CHECKED trp_code trpi_output_log_append(const trpi_output_log *log, char mark, trp_bytes text,
                                            trp_error *err);

/* From here on it is this incarnation that writes. */
TRP_CHECKED trp_code trpi_output_log_begin(const trpi_output_log *log, uint64_t incarnation,
                                           trp_error *err);

typedef struct trpi_output_query {
    const char *stream;   /* "out", "err" or "" for all */
    uint64_t offset;      /* UINT64_MAX = the last tail_lines, or tail_bytes when these are 0 */
    uint64_t tail_bytes;  /* lines that are cut by it are left out */
    size_t bytes_max;     /* read at most this much; a line longer than it is cut */
    uint64_t tail_lines;  /* of the stream */
    uint64_t incarnation; /* only what this one wrote; 0 = all */
} trpi_output_query;

typedef struct trpi_output_answer {
    uint64_t next_offset; /* where the next query goes on; equal to the offset: nothing new */
    uint64_t lost;        /* bytes between the offset asked for and the data that are not kept */
} trpi_output_answer;

/* Appends the lines without their marks. Without the log, or that incarnation in it: TRP_ENOTFOUND.
 * A stream that is none: TRP_EINVALID. */
TRP_CHECKED trp_code trpi_output_log_read(const trpi_output_log *log,
                                          const trpi_output_query *query, trp_buf *data,
                                          trpi_output_answer *ret_answer, trp_error *err);

/* Bytes on disk; 0: there is none. */
uint64_t trpi_output_log_size(const char *path);

#endif

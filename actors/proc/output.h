/* output.h: what one stream (stdout or stderr) of a worker wrote, cut into lines. Memory only: the
 * node reads the pipe and writes the file (output_log.h). */
#ifndef TRPI_OUTPUT_H
#define TRPI_OUTPUT_H

#include "core/base/base.h"

/* A line without an end is passed on in pieces of this size. */
#define TRPI_OUTPUT_LINE_MAX ((size_t)16 * 1024)

typedef struct trpi_output { /* zero-initialize; holds no memory until something was written */
    trp_buf partial;         /* the line that has no newline yet */
    trp_buf tail;            /* the last bytes, at most twice tail_max */
    size_t tail_max;         /* 0 = keep none */
} trpi_output;

/* Takes what was read and appends the lines that are whole now, each with its newline, to `lines`.
 * What memory can't hold is left out: output is worth less than the daemon. */
void trpi_output_feed(trpi_output *output, trp_bytes chunk, trp_buf *lines);
/* The stream has ended: what is left counts as a line. */
void trpi_output_finish(trpi_output *output, trp_buf *lines);
/* The last lines in at most tail_max bytes, as text: NULs and broken ends of lines removed. */
void trpi_output_tail(const trpi_output *output, char *out, size_t size);
void trpi_output_release(trpi_output *output);

#endif

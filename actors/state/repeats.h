/* repeats.h: lines that many workers write, told once. Pure: time comes in.
 *
 * Lines are alike when they are equal but for words with a digit in them (pids, ranks, times). The
 * first line is printed at once, whatever comes later. A line like one that another source wrote
 * within the window is counted and not printed; when the window ends, the last of those is printed
 * with their count. What one source alone says again and again is printed each time: that is
 * progress and not noise. */
#ifndef TRPI_REPEATS_H
#define TRPI_REPEATS_H

#include "core/base/base.h"

#define TRPI_REPEATS_MAX 256         /* kinds of lines watched at a time; others are all printed */
#define TRPI_REPEAT_SOURCES_MAX 1024 /* told apart per kind */

typedef struct trpi_repeat {
    uint64_t hash; /* of the key */
    bool is_stderr;
    char *key;  /* what is alike */
    char *last; /* the last line that was not printed, as it would have been; NULL: none */
    uint64_t until_ns;
    uint64_t count;    /* lines that were not printed */
    uint64_t *sources; /* that wrote any */
    size_t source_count;
} trpi_repeat;

typedef struct trpi_repeats {            /* zero-initialize; release */
    uint64_t window_ns;                  /* 0: all lines are printed */
    trpi_repeat items[TRPI_REPEATS_MAX]; /* in the order in which their windows end */
    size_t count;
} trpi_repeats;

/* A line of a source (an actor's id), and `shown`, as it would be printed. True: print it now. */
bool trpi_repeats_line(trpi_repeats *repeats, uint64_t now_ns, uint64_t source, bool is_stderr,
                       trp_bytes line, trp_bytes shown);

/* For windows that have ended by now, or for all (UINT64_MAX): appends "LAST [repeated 99x across
 * 12 actors]" and a newline to texts[is_stderr]. Call it before the lines that come now. */
void trpi_repeats_tell(trpi_repeats *repeats, uint64_t now_ns, trp_buf texts[2]);

/* When the next window ends; UINT64_MAX: none is open. */
uint64_t trpi_repeats_next_ns(const trpi_repeats *repeats);

void trpi_repeats_release(trpi_repeats *repeats);

#endif

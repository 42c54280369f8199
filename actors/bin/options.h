/* options.h: one table of options per subcommand makes the parser and the help text. */
#ifndef TRPI_OPTIONS_H
#define TRPI_OPTIONS_H

#include "core/base/base.h"

/* What every subcommand returns, and what --help says of it. */
enum { TRPI_EXIT_OK = 0, TRPI_EXIT_FAILED = 1, TRPI_EXIT_USAGE = 2 };

/* Texts of argv, in order. */
typedef struct trpi_words {
    const char **items; /* free() it */
    size_t count;
} trpi_words; /* zero-initialize */

typedef struct trpi_option {
    const char *name;      /* "--port" */
    const char *value;     /* what stands behind it, for the help: "N"; NULL: it is a switch */
    const char *help;      /* one sentence */
    const char **ret_text; /* the value */
    bool *ret_is_set;      /* of a switch */
    trpi_words *ret_words; /* all values of an option that may be given again and again */
} trpi_option;

typedef struct trpi_usage {
    const char *command;   /* "start" */
    const char *arguments; /* "ACTOR", "" for none */
    const char *summary;   /* one line */
    const char *details;   /* more lines for --help; may be NULL */
    const trpi_option *options;
    size_t option_count;
    size_t arguments_min, arguments_max;
    bool ends_at_argument; /* what follows the first argument is a command's own, and no option */
} trpi_usage;

/* Reads argv behind the subcommand's name; arguments that are no options, and all behind "--", go
 * to ret_arguments (arguments_max + 1 entries, ends with NULL). True: go on. False: the subcommand
 * is over with *ret_exit, because --help was asked for or the usage is wrong (said in one line on
 * stderr). */
TRP_CHECKED bool trpi_options_parse(const trpi_usage *usage, int argc, char **argv,
                                    const char **ret_arguments, int *ret_exit);

/* One line on stderr: "troupe start: ..."; returns TRPI_EXIT_USAGE or TRPI_EXIT_FAILED. */
int trpi_usage_error(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int trpi_failed(const char *command, const trp_error *err);

/* "512", "4GiB", "1.5G": bytes. */
TRP_CHECKED bool trpi_parse_size(const char *text, uint64_t *ret_bytes);
/* "1.5 GiB" */
void trpi_size_text(uint64_t bytes, char *out, size_t size);

#endif

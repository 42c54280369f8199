/* options.h: one table of options per subcommand makes the parser and the help text. */
#ifndef TRPI_OPTIONS_H
#define TRPI_OPTIONS_H

#include "core/base/base.h"

/* What every subcommand returns, and what --help says of it. */
enum { TRPI_EXIT_OK = 0, TRPI_EXIT_FAILED = 1, TRPI_EXIT_USAGE = 2, TRPI_EXIT_UNREACHABLE = 3 };
#define TRPI_EXIT_TEXT                                                                             \
    "exit codes: 0 good, 1 the request failed, 2 wrong usage, 3 the cluster is not reachable"

/* Texts of argv, in order. */
typedef struct trpi_words {
    const char **items; /* free() it */
    size_t count;
} trpi_words; /* zero-initialize */

typedef struct trpi_option {
    const char *name;      /* "--port" */
    const char *value;     /* what stands behind it, for the help: "N", or, as one of a few words,
                              "out|err"; NULL: it is a switch */
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
    const char *example;   /* "troupe start --head" */
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

/* Until it is set to NULL again, trpi_options_parse() hands its usage to this and ends the
 * subcommand: how `troupe completion` learns all options, from the tables that parse them. */
typedef void trpi_usage_reader(const trpi_usage *usage, void *arg);
void trpi_options_read(trpi_usage_reader *reader, void *arg);

/* One line on stderr: "troupe start: ..."; returns TRPI_EXIT_USAGE, or what the error says:
 * TRP_EDISCONNECTED is TRPI_EXIT_UNREACHABLE, TRP_EINVALID TRPI_EXIT_USAGE, others
 * TRPI_EXIT_FAILED. */
int trpi_usage_error(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int trpi_failed(const char *command, const trp_error *err);

/* "512", "4GiB", "1.5G": bytes. */
TRP_CHECKED bool trpi_parse_size(const char *text, uint64_t *ret_bytes);

/* Values of options. False: it is none, which is said on stderr with what is allowed. Without a
 * text *ret stays as it is. */
TRP_CHECKED bool trpi_option_seconds(const char *command, const char *option, const char *text,
                                     uint64_t *ret_ms);
TRP_CHECKED bool trpi_option_number(const char *command, const char *option, const char *text,
                                    uint64_t max, uint64_t *ret_number);

#endif

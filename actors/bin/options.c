#include "actors/bin/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 32

/* ---- Help ---- */

static void print_help(const trpi_usage *usage) {
    printf("usage: troupe %s%s%s%s\n\n%s\n", usage->command,
           usage->option_count > 0 ? " [options]" : "", usage->arguments[0] ? " " : "",
           usage->arguments, usage->summary);
    if (usage->details != NULL) {
        printf("\n%s\n", usage->details);
    }
    printf("\noptions:\n");
    for (size_t i = 0; i < usage->option_count; i++) {
        const trpi_option *option = &usage->options[i];
        char left[64];
        trpi_format(left, sizeof(left), "%s%s%s", option->name, option->value ? " " : "",
                    option->value ? option->value : "");
        printf("  %-26s %s\n", left, option->help);
    }
    printf("  %-26s %s\n", "--help", "this text");
    if (usage->example != NULL) {
        printf("\nexample:\n  %s\n", usage->example);
    }
    printf("\n%s\n", TRPI_EXIT_TEXT);
}

static trpi_usage_reader *usage_reader;
static void *usage_reader_arg;

void trpi_options_read(trpi_usage_reader *reader, void *arg) {
    usage_reader = reader;
    usage_reader_arg = arg;
}

int trpi_usage_error(const char *command, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "troupe %s: %s (see troupe %s --help)\n", command, text, command);
    return TRPI_EXIT_USAGE;
}

int trpi_failed(const char *command, const trp_error *err) {
    fprintf(stderr, "troupe %s: %s\n", command, err->message);
    return err->code == TRP_EDISCONNECTED ? TRPI_EXIT_UNREACHABLE
           : err->code == TRP_EINVALID    ? TRPI_EXIT_USAGE
                                          : TRPI_EXIT_FAILED;
}

/* ---- Parsing ---- */

static const trpi_option *find_option(const trpi_usage *usage, const char *name, size_t size) {
    for (size_t i = 0; i < usage->option_count; i++) {
        if (strlen(usage->options[i].name) == size &&
            strncmp(usage->options[i].name, name, size) == 0) {
            return &usage->options[i];
        }
    }
    return NULL;
}

static int unknown_option(const trpi_usage *usage, const char *word) {
    const char *names[OPTIONS_MAX + 1] = {"--help"};
    size_t count = 1;
    for (size_t i = 0; i < usage->option_count && count <= OPTIONS_MAX; i++) {
        names[count++] = usage->options[i].name;
    }
    const char *near = trpi_nearest(word, names, count);
    return near ? trpi_usage_error(usage->command, "there is no option %s; did you mean %s?", word,
                                   near)
                : trpi_usage_error(usage->command, "there is no option %s", word);
}

static void take_value(const trpi_option *option, const char *value) {
    trpi_words *words = option->ret_words;
    if (words == NULL) {
        *option->ret_text = value;
        return;
    }
    words->items = trpi_realloc(words->items, (words->count + 1) * sizeof(*words->items));
    words->items[words->count++] = value;
}

/* "--name value", "--name=value" or "--switch". Moves *at over what it took. */
static int take_option(const trpi_usage *usage, int argc, char **argv, int *at) {
    const char *word = argv[*at];
    const char *equals = strchr(word, '=');
    const trpi_option *option =
        find_option(usage, word, equals ? (size_t)(equals - word) : strlen(word));
    if (option == NULL) {
        return unknown_option(usage, word);
    }
    if (option->value == NULL) {
        if (equals != NULL) {
            return trpi_usage_error(usage->command, "%s takes no value", option->name);
        }
        *option->ret_is_set = true;
    } else if (equals != NULL) {
        take_value(option, equals + 1);
    } else if (*at + 1 < argc) {
        take_value(option, argv[++*at]);
    } else {
        return trpi_usage_error(usage->command, "%s needs a value: %s %s", option->name,
                                option->name, option->value);
    }
    return TRPI_EXIT_OK;
}

bool trpi_options_parse(const trpi_usage *usage, int argc, char **argv, const char **ret_arguments,
                        int *ret_exit) {
    size_t count = 0;
    bool is_behind = false; /* of what ends the options */
    if (usage_reader != NULL) {
        usage_reader(usage, usage_reader_arg);
        *ret_exit = TRPI_EXIT_OK;
        return false;
    }
    for (int at = 0; at < argc; at++) {
        if (!is_behind && strcmp(argv[at], "--") == 0) {
            is_behind = true;
        } else if (!is_behind && (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0)) {
            print_help(usage);
            *ret_exit = TRPI_EXIT_OK;
            return false;
        } else if (!is_behind && argv[at][0] == '-' && argv[at][1] != '\0') {
            *ret_exit = take_option(usage, argc, argv, &at);
            if (*ret_exit != TRPI_EXIT_OK) {
                return false;
            }
        } else if (count < usage->arguments_max) {
            ret_arguments[count++] = argv[at];
            is_behind |= usage->ends_at_argument;
        } else {
            *ret_exit = trpi_usage_error(usage->command, "what is \"%s\"?", argv[at]);
            return false;
        }
    }
    if (count < usage->arguments_min) {
        *ret_exit = trpi_usage_error(usage->command, "%s is missing", usage->arguments);
        return false;
    }
    if (ret_arguments != NULL) {
        ret_arguments[count] = NULL;
    }
    return true;
}

/* ---- Sizes ---- */

bool trpi_parse_size(const char *text, uint64_t *ret_bytes) {
    static const char units[] = "KMGTP";
    char *end;
    double value = strtod(text, &end);
    if (end == text || !isfinite(value) || value < 0) {
        return false;
    }
    if (*end != '\0' && strchr(units, *end) != NULL) {
        for (const char *unit = units;; unit++) {
            value *= 1024;
            if (*unit == *end) {
                break;
            }
        }
        end++;
        end += *end == 'i';
        end += *end == 'B';
    }
    if (*end != '\0' || value > 9e18) {
        return false;
    }
    *ret_bytes = (uint64_t)value;
    return true;
}

/* ---- Values ---- */

bool trpi_option_seconds(const char *command, const char *option, const char *text,
                         uint64_t *ret_ms) {
    double seconds;
    if (text == NULL) {
        return true;
    }
    if (!trpi_parse_double(text, &seconds) || seconds < 0 || seconds > 1e6) {
        (void)trpi_usage_error(command, "%s: \"%s\" is no number of seconds from 0 to 1000000",
                               option, text);
        return false;
    }
    *ret_ms = (uint64_t)(seconds * 1000);
    return true;
}

bool trpi_option_number(const char *command, const char *option, const char *text, uint64_t max,
                        uint64_t *ret_number) {
    if (text != NULL && !trpi_parse_u64(text, max, ret_number)) {
        char upto[32] = " on";
        if (max < UINT64_MAX) {
            trpi_format(upto, sizeof(upto), " to %" PRIu64, max);
        }
        (void)trpi_usage_error(command, "%s: \"%s\" is no whole number from 0%s", option, text,
                               upto);
        return false;
    }
    return true;
}

/* list.c: troupe list, get and summary: rows of what the head knows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/command.h"
#include "actors/bin/filter.h"
#include "actors/bin/kinds.h"
#include "actors/bin/units.h"
#include "actors/proc/client.h"

enum { TABLE_LIMIT = 100 };

/* ---- list ---- */

typedef struct list_flags {
    const char *address, *format, *sort, *limit;
    trpi_words filters;
    bool is_json;
    uint64_t limit_count;
} list_flags;

static void cut(json_t *rows, uint64_t limit) {
    while (limit != 0 && json_array_size(rows) > limit) {
        json_array_remove(rows, json_array_size(rows) - 1);
    }
}

/* A list that was cut in silence is a wrong answer. */
static void say_cut(size_t shown_count, size_t count) {
    char shown[32], all[32];
    if (shown_count < count) {
        trpi_count_text(shown_count, shown, sizeof(shown));
        trpi_count_text(count, all, sizeof(all));
        fflush(stdout);
        fprintf(stderr, "%s of %s rows; --limit 0 for all\n", shown, all);
    }
}

static trp_code print_list(const trpi_kind *kind, const list_flags *flags, json_t *rows,
                           trp_error *err) {
    trp_code code = trpi_filter(rows, &flags->filters, err);
    if (code == TRP_OK && flags->sort != NULL) {
        code = trpi_sort(rows, flags->sort, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    size_t count = json_array_size(rows);
    cut(rows, flags->limit_count);
    if (flags->is_json) {
        trpi_json_print(stdout, rows);
    } else {
        trpi_kind_print(stdout, kind, rows);
    }
    say_cut(json_array_size(rows), count);
    return TRP_OK;
}

static int list(const char *word, list_flags *flags) {
    trp_error err;
    json_t *rows = NULL;
    const trpi_kind *kind = trpi_kind_find("list", word);
    if (kind == NULL || !trpi_parse_format("list", flags->format, &flags->is_json)) {
        return TRPI_EXIT_USAGE;
    }
    flags->limit_count = flags->is_json ? 0 : TABLE_LIMIT;
    if (!trpi_option_number("list", "--limit", flags->limit, UINT64_MAX, &flags->limit_count)) {
        return TRPI_EXIT_USAGE;
    }
    trp_code code = trpi_query_once(flags->address, kind->many, &rows, &err);
    if (code == TRP_OK) {
        code = print_list(kind, flags, rows, &err);
        json_decref(rows);
    }
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed("list", &err);
}

int trpi_command_list(int argc, char **argv) {
    list_flags flags = {.format = "table"};
    const char *words[2];
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(flags.address),
        {"--filter", "KEY=VALUE", "only rows for which it holds, or KEY!=VALUE; may be given again",
         NULL, NULL, &flags.filters},
        {"--sort", "KEY", "by this key; -KEY: largest first (default: by id)", &flags.sort, NULL,
         NULL},
        {"--limit", "N", "at most so many rows, 0: all (default: 100, for json 0)", &flags.limit,
         NULL, NULL},
        TRPI_OPTION_FORMAT(flags.format),
    };
    const trpi_usage usage = {
        .command = "list",
        .arguments = TRPI_KINDS_TEXT,
        .summary = "Prints one line for each of what the head knows.",
        .details =
            "Keys are those of --format json; \"death.cause\" is a member of a member. Values\n"
            "are equal whatever their case; ids may have their letter.",
        .example = "troupe list actors --filter state!=dead --filter node=n2 --sort -restarts",
        .options = options,
        .option_count = TRPI_COUNTOF(options),
        .arguments_min = 1,
        .arguments_max = 1};
    int exit_code = TRPI_EXIT_OK;
    if (trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        exit_code = list(words[0], &flags);
    }
    free(flags.filters.items);
    return exit_code;
}

/* ---- get ---- */

static json_t *row_named(json_t *rows, const char *name) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        const char *text = json_string_value(json_object_get(row, "name"));
        if (text != NULL && strcmp(text, name) == 0) {
            return json_incref(row);
        }
    }
    return NULL;
}

trp_code trpi_find_row(trp_runtime *rt, const char *kind, uint64_t id, json_t **ret_row,
                       trp_error *err) {
    char what[48];
    json_t *rows;
    trpi_format(what, sizeof(what), "%s/%" PRIu64, kind, id);
    trp_code code = trpi_query(rt, what, &rows, err);
    if (code != TRP_OK) {
        return code;
    }
    *ret_row = json_incref(json_array_get(rows, 0));
    json_decref(rows);
    if (*ret_row == NULL) {
        const trpi_kind *found = trpi_kind_find("get", kind);
        return trpi_fail(err, TRP_ENOTFOUND,
                         "there is no %s %s%" PRIu64 " (any more); troupe list %s has all",
                         found->one, found->prefix, id, kind);
    }
    return TRP_OK;
}

/* Runs have no number: their names are looked for among all. */
static trp_code find_run(trp_runtime *rt, const char *name, json_t **ret_row, trp_error *err) {
    json_t *rows;
    trp_code code = trpi_query(rt, "runs", &rows, err);
    if (code != TRP_OK) {
        return code;
    }
    *ret_row = row_named(rows, name);
    json_decref(rows);
    return *ret_row != NULL ? TRP_OK
                            : trpi_fail(err, TRP_ENOTFOUND,
                                        "there is no run %s (troupe list runs has all)", name);
}

static trp_code find(trp_runtime *rt, const trpi_kind *kind, const char *word, uint64_t id,
                     json_t **ret_row, trp_error *err) {
    if (kind->prefix == NULL) {
        return find_run(rt, word, ret_row, err);
    }
    trp_actor actor = {id};
    trp_code code =
        kind->prefix[0] == 'a' ? trpi_find_actor(rt, word, &actor, err) : TRP_OK; /* or its name */
    return code == TRP_OK ? trpi_find_row(rt, kind->many, actor.id, ret_row, err) : code;
}

static int get(const char *const *words, const char *address, const char *format) {
    trp_runtime *rt = NULL;
    trp_error err;
    json_t *row = NULL;
    uint64_t id = 0;
    bool is_json;
    const trpi_kind *kind = trpi_kind_find("get", words[0]);
    if (kind == NULL || !trpi_parse_format("get", format, &is_json)) {
        return TRPI_EXIT_USAGE;
    }
    bool has_number = kind->prefix != NULL && kind->prefix[0] != 'a';
    if (has_number && !trpi_kind_id("get", kind, words[1], &id)) {
        return TRPI_EXIT_USAGE;
    }
    trp_code code = trpi_connect(address, &rt, &err);
    if (code == TRP_OK) {
        code = find(rt, kind, words[1], id, &row, &err);
    }
    if (code == TRP_OK && is_json) {
        trpi_json_print(stdout, row);
    } else if (code == TRP_OK) {
        trpi_row_print(stdout, row, kind->prefix);
    }
    if (row != NULL) {
        json_decref(row);
    }
    trpi_client_close(&rt, true);
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed("get", &err);
}

int trpi_command_get(int argc, char **argv) {
    const char *address = NULL, *format = "table", *words[3];
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(address),
        TRPI_OPTION_FORMAT(format),
    };
    const trpi_usage usage = {.command = "get",
                              .arguments = TRPI_KIND_TEXT " ID",
                              .summary = "Prints all that the head knows of one of them.",
                              .details = "ID is n1, a7, g2, x1 or j3, an actor's name, or a run's.",
                              .example = "troupe get actor a7",
                              .options = options,
                              .option_count = TRPI_COUNTOF(options),
                              .arguments_min = 2,
                              .arguments_max = 2};
    int exit_code = TRPI_EXIT_OK;
    return trpi_options_parse(&usage, argc, argv, words, &exit_code) ? get(words, address, format)
                                                                     : exit_code;
}

/* ---- summary ---- */

/* Rows that agree in two members are one row of the summary, with a count and how many are on which
 * node. */
static json_t *group_of(json_t *groups, json_t *row, const char *const keys[2]) {
    size_t i;
    json_t *group;
    json_array_foreach(groups, i, group) {
        if (json_equal(json_object_get(group, keys[0]), json_object_get(row, keys[0])) &&
            json_equal(json_object_get(group, keys[1]), json_object_get(row, keys[1]))) {
            return group;
        }
    }
    group = json_object();
    json_object_set(group, keys[0], json_object_get(row, keys[0]));
    json_object_set(group, keys[1], json_object_get(row, keys[1]));
    json_object_set_new(group, "count", json_integer(0));
    json_object_set_new(group, "by_node", json_object());
    json_array_append_new(groups, group);
    return group;
}

static void count_up(json_t *object, const char *key) {
    json_int_t count = json_integer_value(json_object_get(object, key));
    json_object_set_new(object, key, json_integer(count + 1));
}

static json_t *summarize(json_t *rows, const char *const keys[2]) {
    json_t *groups = json_array(), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        json_t *group = group_of(groups, row, keys);
        json_int_t node = json_integer_value(json_object_get(row, "node"));
        char name[32];
        count_up(group, "count");
        if (node != 0) {
            trpi_format(name, sizeof(name), "n%lld", (long long)node);
            count_up(json_object_get(group, "by_node"), name);
        }
    }
    return groups;
}

static int summary(const char *word, const char *address, const char *format) {
    static const struct {
        const char *what, *keys[2];
        trpi_column columns[4];
    } forms[] = {{"actors",
                  {"type", "state"},
                  {{"TYPE", "type", NULL},
                   {"STATE", "state", NULL},
                   {"COUNT", "count", NULL},
                   {"ON NODES", "by_node", NULL}}},
                 {"nodes",
                  {"name", "state"},
                  {{"NAME", "name", NULL},
                   {"STATE", "state", NULL},
                   {"COUNT", "count", NULL},
                   {"ON NODES", "by_node", NULL}}},
                 {"jobs",
                  {"name", "state"},
                  {{"NAME", "name", NULL},
                   {"STATE", "state", NULL},
                   {"COUNT", "count", NULL},
                   {"ON NODES", "by_node", NULL}}}};
    trp_error err;
    json_t *rows;
    bool is_json;
    size_t at = 0;
    while (at < TRPI_COUNTOF(forms) && strcmp(word, forms[at].what) != 0) {
        at++;
    }
    if (at == TRPI_COUNTOF(forms)) {
        return trpi_usage_error("summary", "there is no summary of %s; it is actors, nodes or jobs",
                                word);
    }
    if (!trpi_parse_format("summary", format, &is_json)) {
        return TRPI_EXIT_USAGE;
    }
    if (trpi_query_once(address, word, &rows, &err) != TRP_OK) {
        return trpi_failed("summary", &err);
    }
    json_t *groups = summarize(rows, forms[at].keys);
    if (trpi_sort(groups, "-count", &err) == TRP_OK && is_json) {
        trpi_json_print(stdout, groups);
    } else if (!is_json) {
        trpi_rows_print(stdout, groups, forms[at].columns, TRPI_COUNTOF(forms[at].columns));
    }
    json_decref(groups);
    json_decref(rows);
    return TRPI_EXIT_OK;
}

int trpi_command_summary(int argc, char **argv) {
    const char *address = NULL, *format = "table", *words[2] = {NULL};
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(address),
        TRPI_OPTION_FORMAT(format),
    };
    const trpi_usage usage = {.command = "summary",
                              .arguments = "[actors|nodes|jobs]",
                              .summary =
                                  "Counts actors by type, state and node; or nodes, or jobs.",
                              .example = "troupe summary actors",
                              .options = options,
                              .option_count = TRPI_COUNTOF(options),
                              .arguments_max = 1};
    int exit_code = TRPI_EXIT_OK;
    return trpi_options_parse(&usage, argc, argv, words, &exit_code)
               ? summary(words[0] ? words[0] : "actors", address, format)
               : exit_code;
}

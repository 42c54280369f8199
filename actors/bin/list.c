/* list.c: troupe list: rows of what the head knows. */
#include <stdio.h>
#include <string.h>

#include "actors/bin/command.h"
#include "actors/bin/rows.h"

typedef struct listing {
    const char *what;
    void (*prepare)(json_t *row); /* adds members that only the table shows */
    trpi_column columns[12];
    size_t count;
} listing;

static void no_preparation(json_t *row) {
    (void)row;
}

/* "signaled, signal 9" instead of all that is known of a death. */
static void prepare_actor(json_t *row) {
    json_t *death = json_object_get(row, "death");
    const char *cause = json_string_value(json_object_get(death, "cause"));
    json_int_t signal_number = json_integer_value(json_object_get(death, "signal"));
    json_int_t exit_code = json_integer_value(json_object_get(death, "exit_code"));
    char text[256];
    if (cause == NULL) {
        return;
    }
    trpi_format(text, sizeof(text), "%s", cause);
    if (signal_number != 0) {
        trpi_format(text, sizeof(text), "%s, signal %d", cause, (int)signal_number);
    } else if (exit_code != 0) {
        trpi_format(text, sizeof(text), "%s, exit code %d", cause, (int)exit_code);
    }
    json_object_set_new(row, "last_death", json_string(text));
}

static void prepare_group(json_t *row) {
    json_t *bundles = json_object_get(row, "bundles"), *bundle;
    json_t *nodes = json_array(), *needs = json_array();
    size_t i;
    json_array_foreach(bundles, i, bundle) {
        json_array_append(nodes, json_object_get(bundle, "node"));
        json_array_append(needs, json_object_get(bundle, "resources"));
    }
    json_object_set_new(row, "bundle_nodes", nodes);
    json_object_set_new(row, "bundle_needs", needs);
}

static const listing listings[] = {
    {"nodes",
     no_preparation,
     {{"NODE", "id", "n"},
      {"STATE", "state", NULL},
      {"NAME", "name", NULL},
      {"HOST", "host", NULL},
      {"PID", "pid", NULL},
      {"ACTORS", "actors", NULL},
      {"USED", "used", NULL},
      {"TOTAL", "total", NULL},
      {"REASON", "reason", NULL}},
     9},
    {"actors",
     prepare_actor,
     {{"ACTOR", "id", "a"},
      {"STATE", "state", NULL},
      {"TYPE", "type", NULL},
      {"NAME", "name", NULL},
      {"JOB", "job", "j"},
      {"NODE", "node", "n"},
      {"PID", "pid", NULL},
      {"RESTARTS", "restarts", NULL},
      {"RESOURCES", "resources", NULL},
      {"DEVICES", "devices", NULL},
      {"LAST DEATH", "last_death", NULL},
      {"WAITING FOR", "waiting_for", NULL}},
     12},
    {"groups",
     prepare_group,
     {{"GROUP", "id", "g"},
      {"STATE", "state", NULL},
      {"NAME", "name", NULL},
      {"STRATEGY", "strategy", NULL},
      {"JOB", "job", "j"},
      {"BUNDLES", "bundle_needs", NULL},
      {"NODES", "bundle_nodes", "n"},
      {"WAITING FOR", "waiting_for", NULL}},
     8},
    {"jobs",
     no_preparation,
     {{"JOB", "id", "j"},
      {"STATE", "state", NULL},
      {"NAME", "name", NULL},
      {"PID", "pid", NULL},
      {"NAMESPACE", "namespace", NULL},
      {"ACTORS", "actors", NULL},
      {"AGE (S)", "age_s", NULL},
      {"REASON", "reason", NULL}},
     8},
    {"runs",
     no_preparation,
     {{"RUN", "name", NULL},
      {"STATE", "state", NULL},
      {"STEP", "step", NULL},
      {"ATTEMPT", "attempt", NULL},
      {"WORKERS", "workers", NULL},
      {"RESTARTS", "restarts", NULL},
      {"CHECKPOINT", "checkpoint", NULL},
      {"DIRECTORY", "dir", NULL}},
     8},
};

static const listing *find_listing(const char *word) {
    for (size_t i = 0; i < TRPI_COUNTOF(listings); i++) {
        if (strcmp(word, listings[i].what) == 0) {
            return &listings[i];
        }
    }
    return NULL;
}

static int unknown_listing(const char *word) {
    const char *names[TRPI_COUNTOF(listings)];
    for (size_t i = 0; i < TRPI_COUNTOF(listings); i++) {
        names[i] = listings[i].what;
    }
    const char *near = trpi_nearest(word, names, TRPI_COUNTOF(listings));
    return trpi_usage_error("list", "there are no %s to list; %s%s", word,
                            near ? "did you mean " : "nodes, actors, groups, jobs or runs",
                            near ? near : "");
}

static void print_table(json_t *rows, const listing *listing_of) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        listing_of->prepare(row);
    }
    trpi_rows_print(stdout, rows, listing_of->columns, listing_of->count);
}

int trpi_command_list(int argc, char **argv) {
    const char *address = NULL, *format = "table", *words[2];
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(address),
        TRPI_OPTION_FORMAT(format),
    };
    const trpi_usage usage = {.command = "list",
                              .arguments = "nodes|actors|groups|jobs|runs",
                              .summary = "Prints one line for each of what the head knows.",
                              .options = options,
                              .option_count = TRPI_COUNTOF(options),
                              .arguments_min = 1,
                              .arguments_max = 1};
    trp_error err;
    json_t *answer = NULL;
    bool is_json;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    const listing *found = find_listing(words[0]);
    if (found == NULL) {
        return unknown_listing(words[0]);
    }
    if (!trpi_parse_format(usage.command, format, &is_json)) {
        return TRPI_EXIT_USAGE;
    }
    if (trpi_query_once(address, words[0], &answer, &err) != TRP_OK) {
        return trpi_failed(usage.command, &err);
    }
    if (is_json) {
        trpi_json_print(stdout, answer);
    } else {
        print_table(answer, found);
    }
    json_decref(answer);
    return TRPI_EXIT_OK;
}

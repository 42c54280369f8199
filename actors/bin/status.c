/* status.c: troupe status: the cluster on one screen. */
#include <stdio.h>
#include <string.h>

#include "actors/bin/command.h"
#include "actors/bin/rows.h"

static void print_section(const char *title, json_t *rows, const trpi_column *columns,
                          size_t count) {
    if (json_array_size(rows) > 0) {
        printf("\n%s\n", title);
        trpi_rows_print(stdout, rows, columns, count);
    }
}

static const char *text_of(json_t *answer, const char *key) {
    const char *text = json_string_value(json_object_get(answer, key));
    return text ? text : "-";
}

static void print_facts(json_t *answer) {
    char actors[128];
    size_t alive = 0, i;
    json_t *nodes = json_object_get(answer, "nodes"), *node;
    json_array_foreach(nodes, i, node) {
        alive += strcmp(text_of(node, "state"), "alive") == 0;
    }
    trpi_value_text(json_object_get(answer, "actors"), NULL, actors, sizeof(actors));
    printf("cluster  %s%s\n", text_of(answer, "cluster"),
           json_is_true(json_object_get(answer, "stopping")) ? ", stopping" : "");
    printf("head     %s, troupe %s, pid %lld, up %.0f s\n", text_of(answer, "address"),
           text_of(answer, "version"),
           (long long)json_integer_value(json_object_get(answer, "pid")),
           json_number_value(json_object_get(answer, "uptime_s")));
    printf("nodes    %zu alive, %zu dead\n", alive, json_array_size(nodes) - alive);
    printf("actors   %s\n", actors);
}

/* {name: {total, used, ...}} as rows, amounts as people write them. */
static json_t *rows_of_resources(json_t *resources) {
    json_t *rows = json_array(), *amounts;
    const char *name;
    json_object_foreach(resources, name, amounts) {
        static const char *const keys[] = {"used", "total", "reserved"};
        json_t *row = json_pack("{s:s}", "name", name);
        for (size_t i = 0; i < TRPI_COUNTOF(keys); i++) {
            char text[64];
            trpi_rows_amount(name, json_object_get(amounts, keys[i]), text, sizeof(text));
            json_object_set_new(row, keys[i], json_string(text));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static void print_status(json_t *answer) {
    static const trpi_column resources[] = {{"RESOURCE", "name", NULL},
                                            {"USED", "used", NULL},
                                            {"TOTAL", "total", NULL},
                                            {"HELD BY GROUPS", "reserved", NULL}};
    static const trpi_column demands[] = {{"COUNT", "count", NULL},
                                          {"WHAT", "what", NULL},
                                          {"NEED", "resources", NULL},
                                          {"NEVER", "infeasible", NULL},
                                          {"WHY", "why", NULL}};
    static const trpi_column deaths[] = {{"ACTOR", "actor", "a"},
                                         {"AGE (S)", "age_s", NULL},
                                         {"CAUSE", "cause", NULL},
                                         {"FINAL", "final", NULL},
                                         {"MESSAGE", "message", NULL}};
    json_t *rows = rows_of_resources(json_object_get(answer, "resources"));
    print_facts(answer);
    print_section("resources", rows, resources, TRPI_COUNTOF(resources));
    print_section("waiting", json_object_get(answer, "demand"), demands, TRPI_COUNTOF(demands));
    print_section("latest deaths", json_object_get(answer, "deaths"), deaths, TRPI_COUNTOF(deaths));
    json_decref(rows);
}

int trpi_command_status(int argc, char **argv) {
    const char *address = NULL, *format = "table";
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(address),
        TRPI_OPTION_FORMAT(format),
    };
    const trpi_usage usage = {
        .command = "status",
        .arguments = "",
        .summary = "Prints what the cluster has, what is in use, what waits and why.",
        .options = options,
        .option_count = TRPI_COUNTOF(options)};
    trp_error err;
    json_t *answer = NULL;
    bool is_json;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, NULL, &exit_code)) {
        return exit_code;
    }
    if (!trpi_parse_format(usage.command, format, &is_json)) {
        return TRPI_EXIT_USAGE;
    }
    if (trpi_query_once(address, "status", &answer, &err) != TRP_OK) {
        return trpi_failed(usage.command, &err);
    }
    if (is_json) {
        trpi_json_print(stdout, answer);
    } else {
        print_status(answer);
    }
    json_decref(answer);
    return TRPI_EXIT_OK;
}

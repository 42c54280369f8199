/* status.c: troupe status: the cluster on one screen. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actors/bin/command.h"
#include "actors/bin/kinds.h"
#include "actors/bin/units.h"
#include "actors/proc/client.h"

enum {
    DEAD_SHOWN_S = 3600, /* how long a dead node is news */
    DEATHS_SHOWN = 10
};

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

static const char *text_of(json_t *answer, const char *key) {
    const char *text = json_string_value(json_object_get(answer, key));
    return text ? text : "-";
}

static double number(json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key));
}

static bool is_state(json_t *row, const char *state) {
    return strcmp(text_of(row, "state"), state) == 0;
}

static void print_section(const char *title, json_t *rows, const trpi_column *columns,
                          size_t count) {
    if (json_array_size(rows) > 0) {
        printf("\n%s\n", title);
        trpi_rows_print(stdout, rows, columns, count);
    }
}

/* ---- Facts ---- */

static void print_node_counts(json_t *nodes) {
    size_t i, alive = 0, draining = 0, dead = 0;
    json_t *node;
    json_array_foreach(nodes, i, node) {
        alive += is_state(node, "alive");
        draining += is_state(node, "draining");
        dead += is_state(node, "dead");
    }
    printf("nodes    %zu alive", alive);
    if (draining > 0) {
        printf(", %zu draining", draining);
    }
    printf(", %zu dead\n", dead);
}

static void print_facts(json_t *answer) {
    char actors[128], up[32];
    trpi_value_text(json_object_get(answer, "actors"), NULL, actors, sizeof(actors));
    trpi_duration_text(number(answer, "uptime_s"), up, sizeof(up));
    printf("cluster  %s%s\n", text_of(answer, "cluster"),
           json_is_true(json_object_get(answer, "stopping")) ? ", stopping" : "");
    printf("head     %s, troupe %s, pid %.0f, up %s\n", text_of(answer, "address"),
           text_of(answer, "version"), number(answer, "pid"), up);
    print_node_counts(json_object_get(answer, "nodes"));
    printf("actors   %s\n", actors);
}

/* ---- Nodes ---- */

static void print_nodes(json_t *nodes) {
    json_t *shown = json_array(), *node;
    size_t i;
    json_array_foreach(nodes, i, node) {
        if (!is_state(node, "dead") || number(node, "age_s") < DEAD_SHOWN_S) {
            json_array_append(shown, node);
        }
    }
    static const trpi_column columns[] = {
        {"NODE", "id", "n"},        {"STATE", "state", NULL},
        {"NAME", "name", NULL},     {"SINCE", "age_s", NULL, TRPI_SECONDS},
        {"ACTORS", "actors", NULL}, {"HOST'S MEMORY", "memory", NULL},
        {"STORE", "store", NULL},   {"LABELS", "labels", NULL},
        {"NOTE", "note", NULL}};
    const trpi_kind *kind = trpi_kind_find("status", "node");
    json_array_foreach(shown, i, node) {
        kind->prepare(node);
    }
    print_section("nodes", shown, columns, TRPI_COUNTOF(columns));
    json_decref(shown);
}

/* {name: {total, used, ...}} as rows, amounts as people write them. */
static void print_resources(json_t *resources) {
    static const trpi_column columns[] = {{"RESOURCE", "name", NULL},
                                          {"USED", "used", NULL},
                                          {"TOTAL", "total", NULL},
                                          {"HELD BY GROUPS", "reserved", NULL},
                                          {"OF THAT USED", "reserved_used", NULL}};
    json_t *rows = json_array(), *amounts;
    const char *name;
    json_object_foreach(resources, name, amounts) {
        static const char *const keys[] = {"used", "total", "reserved", "reserved_used"};
        json_t *row = json_pack("{s:s}", "name", name);
        for (size_t i = 0; i < TRPI_COUNTOF(keys); i++) {
            char text[64];
            trpi_rows_amount(name, json_object_get(amounts, keys[i]), text, sizeof(text));
            json_object_set_new(row, keys[i], json_string(text));
        }
        json_array_append_new(rows, row);
    }
    print_section("resources", rows, columns, TRPI_COUNTOF(columns));
    json_decref(rows);
}

/* ---- What waits, what failed ---- */

/* "never" is for the cluster as it is; a node that joins may change it. */
static void print_demand(json_t *demand) {
    static const trpi_column columns[] = {
        {"COUNT", "count", NULL},   {"WHAT", "what", NULL}, {"NEED", "resources", NULL},
        {"LABELS", "labels", NULL}, {"FITS", "fits", NULL}, {"WHY IT WAITS", "why", NULL}};
    size_t i;
    json_t *row;
    json_array_foreach(demand, i, row) {
        bool never = json_is_true(json_object_get(row, "infeasible"));
        json_object_set_new(row, "fits", json_string(never ? "no node" : "later"));
    }
    print_section("waiting", demand, columns, TRPI_COUNTOF(columns));
}

/* Without "actor a7 (...) on node n1 (...), pid 12: ", which the columns before it say. What died
 * before it had a process has no pid there, but its reason may name one. */
static const char *reason_of(const char *message) {
    const char *colon = strstr(message, "): "), *pid = strstr(message, "), pid ");
    if (pid != NULL && (colon == NULL || pid < colon)) {
        colon = strstr(pid, ": ");
        return colon != NULL ? colon + 2 : message;
    }
    return colon != NULL ? colon + 3 : message;
}

/* An end that somebody wanted is no news: a driver that said goodbye has taken its actors along. */
static bool is_news(json_t *death) {
    static const char *const wanted[] = {"owner_died", "finished", "stopped"};
    for (size_t i = 0; i < TRPI_COUNTOF(wanted); i++) {
        if (strcmp(text_of(death, "cause"), wanted[i]) == 0) {
            return false;
        }
    }
    return true;
}

static void print_deaths(json_t *deaths) {
    static const trpi_column columns[] = {{"ACTOR", "actor", "a"},  {"WHAT", "what", NULL},
                                          {"WHEN", "when", NULL},   {"NODE", "node", "n"},
                                          {"CAUSE", "cause", NULL}, {"THEN", "then", NULL},
                                          {"HOW", "how", NULL}};
    size_t i;
    json_t *row, *shown = json_array();
    json_array_foreach(deaths, i, row) {
        char ago[32], when[40];
        if (!is_news(row) || json_array_size(shown) == DEATHS_SHOWN) {
            continue;
        }
        bool is_final = json_is_true(json_object_get(row, "final"));
        trpi_duration_text(number(row, "age_s"), ago, sizeof(ago));
        trpi_format(when, sizeof(when), "%s ago", ago);
        json_object_set_new(row, "when", json_string(when));
        json_object_set_new(row, "how", trpi_json_of_text(reason_of(text_of(row, "message"))));
        json_object_set_new(row, "then", json_string(is_final ? "dead" : "restarted"));
        json_array_append(shown, row);
    }
    print_section("latest deaths", shown, columns, TRPI_COUNTOF(columns));
    json_decref(shown);
}

static void print_kind(const char *title, const char *kind, json_t *rows) {
    if (json_array_size(rows) > 0) {
        printf("\n%s\n", title);
        trpi_kind_print(stdout, trpi_kind_find("status", kind), rows);
    }
}

static void print_status(json_t *answer) {
    print_facts(answer);
    print_nodes(json_object_get(answer, "nodes"));
    print_resources(json_object_get(answer, "resources"));
    print_demand(json_object_get(answer, "demand"));
    print_kind("jobs that run", "job", json_object_get(answer, "jobs"));
    print_kind("runs", "run", json_object_get(answer, "runs"));
    print_deaths(json_object_get(answer, "deaths"));
}

/* ---- The command ---- */

typedef struct status_flags {
    const char *address, *format;
    bool is_json, watches;
    uint64_t every_ms;
} status_flags;

static trp_code look(trp_runtime *rt, const status_flags *flags, trp_error *err) {
    json_t *answer = NULL;
    trp_code code = trpi_query(rt, "status", &answer, err);
    if (code != TRP_OK) {
        return code;
    }
    if (flags->watches && isatty(STDOUT_FILENO)) {
        printf("\033[H\033[2J"); /* a fresh screen */
    }
    if (flags->is_json) {
        trpi_json_print(stdout, answer);
    } else {
        print_status(answer);
    }
    fflush(stdout);
    json_decref(answer);
    return TRP_OK;
}

static int run(const status_flags *flags) {
    trp_runtime *rt = NULL;
    trp_error err;
    struct sigaction action = {.sa_handler = on_interrupt};
    trp_code code = trpi_connect(flags->address, &rt, &err);
    if (code == TRP_OK && flags->watches) {
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
    }
    while (code == TRP_OK && !is_interrupted) {
        code = look(rt, flags, &err);
        if (!flags->watches) {
            break;
        }
        struct timespec rest = {(time_t)(flags->every_ms / 1000),
                                (long)(flags->every_ms % 1000) * 1000000};
        if (code == TRP_OK && !is_interrupted) {
            (void)nanosleep(&rest, NULL); /* a signal ends it early */
        }
    }
    trpi_client_close(&rt, true);
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed("status", &err);
}

int trpi_command_status(int argc, char **argv) {
    status_flags flags = {.format = "table", .every_ms = 2000};
    const char *words[2] = {NULL};
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(flags.address),
        TRPI_OPTION_FORMAT(flags.format),
        {"--watch", NULL, "again and again, until Ctrl-C: every SECONDS (default: 2)", NULL,
         &flags.watches, NULL},
    };
    const trpi_usage usage = {
        .command = "status",
        .arguments = "[SECONDS]",
        .summary = "Prints what the cluster has, what is in use, what waits and why.",
        .details = "FITS says whether a node of the cluster as it is could ever hold what waits.",
        .example = "troupe status --watch 5",
        .options = options,
        .option_count = TRPI_COUNTOF(options),
        .arguments_max = 1};
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    if (!trpi_parse_format(usage.command, flags.format, &flags.is_json) ||
        !trpi_option_seconds(usage.command, "--watch", words[0], &flags.every_ms)) {
        return TRPI_EXIT_USAGE;
    }
    if (words[0] != NULL && !flags.watches) {
        return trpi_usage_error(usage.command, "what is \"%s\"? seconds stand behind --watch",
                                words[0]);
    }
    if (flags.every_ms < 100) {
        return trpi_usage_error(usage.command, "--watch: every 0.1 seconds at most");
    }
    return run(&flags);
}

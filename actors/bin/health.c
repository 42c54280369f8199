/* health.c: troupe health: one question for scripts and for who is in a hurry. */
#include <stdio.h>
#include <string.h>

#include "actors/bin/command.h"
#include "actors/bin/units.h"

static const char *text_of(json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static double age_of(json_t *row) {
    return json_number_value(json_object_get(row, "age_s"));
}

static bool is_state(json_t *row, const char *state) {
    return strcmp(text_of(row, "state"), state) == 0;
}

/* A node that was lost is no news any more once another one of its name on its host has come since:
 * each of these makes up for one. */
static bool is_replaced(json_t *nodes, json_t *lost) {
    size_t i, came = 0, gone = 0;
    json_t *node;
    json_array_foreach(nodes, i, node) {
        bool is_same = strcmp(text_of(node, "name"), text_of(lost, "name")) == 0 &&
                       strcmp(text_of(node, "host_id"), text_of(lost, "host_id")) == 0;
        bool is_gone = is_state(node, "dead") && !json_is_true(json_object_get(node, "expected"));
        came += is_same && !is_state(node, "dead") && age_of(node) < age_of(lost);
        gone += is_same && is_gone && age_of(node) <= age_of(lost);
    }
    return came >= gone;
}

static size_t say_nodes(json_t *nodes, size_t *ret_alive) {
    size_t i, wrong = 0;
    json_t *node;
    *ret_alive = 0;
    json_array_foreach(nodes, i, node) {
        char ago[32];
        *ret_alive += !is_state(node, "dead");
        if (!is_state(node, "dead") || json_is_true(json_object_get(node, "expected")) ||
            is_replaced(nodes, node)) {
            continue;
        }
        trpi_duration_text(age_of(node), ago, sizeof(ago));
        printf("node n%lld (%s) died %s ago: %s\n",
               (long long)json_integer_value(json_object_get(node, "id")), text_of(node, "name"),
               ago, text_of(node, "reason"));
        wrong++;
    }
    return wrong;
}

static int judge(json_t *status) {
    size_t alive, wrong = say_nodes(json_object_get(status, "nodes"), &alive);
    if (alive == 0) {
        printf("no node is there\n");
        wrong++;
    }
    if (json_is_true(json_object_get(status, "stopping"))) {
        printf("the cluster is being stopped\n");
        wrong++;
    }
    if (wrong == 0) {
        printf("healthy: the head at %s answers, %zu node%s alive\n", text_of(status, "address"),
               alive, alive == 1 ? " is" : "s are");
    }
    return wrong == 0 ? TRPI_EXIT_OK : TRPI_EXIT_FAILED;
}

int trpi_command_health(int argc, char **argv) {
    const char *address = NULL;
    const trpi_option options[] = {TRPI_OPTION_ADDRESS(address)};
    const trpi_usage usage = {
        .command = "health",
        .arguments = "",
        .summary = "Says whether the head answers and its nodes live; else what is wrong.",
        .details =
            "A node that was stopped in good order is not missed, and one that was lost is not\n"
            "any more when another of its name on its host has joined since.",
        .example = "troupe health || troupe status",
        .options = options,
        .option_count = TRPI_COUNTOF(options)};
    trp_error err;
    json_t *status;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, NULL, &exit_code)) {
        return exit_code;
    }
    if (trpi_query_once(address, "status", &status, &err) != TRP_OK) {
        return trpi_failed(usage.command, &err);
    }
    exit_code = judge(status);
    json_decref(status);
    return exit_code;
}

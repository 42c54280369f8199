/* drain.c: troupe drain: a node is going to be taken away. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/command.h"
#include "actors/bin/kinds.h"
#include "actors/bin/units.h"
#include "actors/proc/client.h"
#include "core/base/config.h"

enum { LOOK_MS = 200 };

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

typedef struct drain_flags {
    const char *address, *deadline, *reason;
    bool waits;
    uint64_t deadline_ms;
} drain_flags;

/* Until nothing is left there, or the node is gone. Says what changes. */
static trp_code follow(trp_runtime *rt, uint64_t node, trp_error *err) {
    json_int_t before = -1;
    while (!is_interrupted) {
        json_t *row;
        char left[32];
        trp_code code = trpi_find_row(rt, "nodes", node, &row, err);
        if (code != TRP_OK) {
            return code;
        }
        const char *state = json_string_value(json_object_get(row, "state"));
        json_int_t actors = json_integer_value(json_object_get(row, "actors"));
        bool is_dead = state != NULL && strcmp(state, "dead") == 0;
        trpi_duration_text(json_number_value(json_object_get(row, "drain_left_s")), left,
                           sizeof(left));
        json_decref(row);
        if (is_dead || actors == 0) {
            printf("n%" PRIu64 " is %s\n", node, is_dead ? "gone" : "empty");
            return TRP_OK;
        }
        if (actors != before) {
            printf("%lld actor%s left, to be killed in %s\n", (long long)actors,
                   actors == 1 ? "" : "s", left);
            fflush(stdout);
        }
        before = actors;
        usleep(LOOK_MS * 1000); /* a signal ends it early */
    }
    return trpi_fail(err, TRP_ECANCELED,
                     "interrupted; the node drains on (troupe get node n%" PRIu64 ")", node);
}

static int drain(uint64_t node, const drain_flags *flags) {
    trp_runtime *rt = NULL;
    trp_error err;
    char left[32];
    struct sigaction action = {.sa_handler = on_interrupt};
    trp_code code = trpi_connect(flags->address, &rt, &err);
    if (code == TRP_OK) {
        code = trp_drain_node(rt, node, flags->reason, flags->deadline_ms, &err);
    }
    if (code == TRP_OK) {
        trpi_duration_text((double)flags->deadline_ms / 1000, left, sizeof(left));
        printf("n%" PRIu64 " drains: nothing new is placed there; what is still there in %s is "
               "killed\n",
               node, left);
    }
    if (code == TRP_OK && flags->waits) {
        fflush(stdout);
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        code = follow(rt, node, &err);
    }
    trpi_client_close(&rt, true);
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed("drain", &err);
}

int trpi_command_drain(int argc, char **argv) {
    drain_flags flags = {.reason = "troupe drain",
                         .deadline_ms = trpi_config(TRPI_CONFIG_STOP_GRACE_MS)};
    const char *words[2];
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(flags.address),
        {"--deadline", "SECONDS", "what is there after this is killed (default: 30)",
         &flags.deadline, NULL, NULL},
        {"--reason", "TEXT", "for display (default: troupe drain)", &flags.reason, NULL, NULL},
        {"--wait", NULL, "return when nothing is left there", NULL, &flags.waits, NULL},
    };
    const trpi_usage usage = {
        .command = "drain",
        .arguments = "NODE",
        .summary =
            "Prepares a node to be taken away: nothing new is placed there, actors are told.",
        .details = "Actors that may restart do so elsewhere, and this is not counted as a restart.",
        .example = "troupe drain n2 --deadline 120 --reason \"spot instance\" --wait",
        .options = options,
        .option_count = TRPI_COUNTOF(options),
        .arguments_min = 1,
        .arguments_max = 1};
    int exit_code = TRPI_EXIT_OK;
    uint64_t node;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    if (!trpi_kind_id("drain", trpi_kind_find("drain", "node"), words[0], &node) ||
        !trpi_option_seconds("drain", "--deadline", flags.deadline, &flags.deadline_ms)) {
        return TRPI_EXIT_USAGE;
    }
    return drain(node, &flags);
}

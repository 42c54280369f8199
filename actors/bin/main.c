/* main.c: the troupe command: one table of subcommands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/command.h"
#include "actors/proc/worker.h"
#include "core/base/config.h"

typedef struct subcommand {
    const char *name;
    const char *summary; /* NULL: hidden */
    int (*run)(int argc, char **argv);
} subcommand;

static int run_version(int argc, char **argv);
static int run_help(int argc, char **argv);

static const subcommand subcommands[] = {
    {"start", "start a head and a node on this host, or a node that joins a cluster",
     trpi_command_start},
    {"status", "what the cluster has, what is in use, what waits and why", trpi_command_status},
    {"list", "rows of nodes, actors, groups, jobs or runs", trpi_command_list},
    {"logs", "what an actor wrote to stdout and stderr", trpi_command_logs},
    {"kill", "end an actor", trpi_command_kill},
    {"submit", "run a program as a job on the cluster, and follow its output", trpi_command_submit},
    {"jobs", "submitted jobs: list, get, logs, stop", trpi_command_jobs},
    {"stop", "stop your clusters' processes on this host", trpi_command_stop},
    {"config", "every setting: its value, where it comes from, what it does", trpi_command_config},
    {"bench", "measure this machine: calls, starts and restarts beside their limits",
     trpi_command_bench},
    {"version", "print the version", run_version},
    {"help", "this text", run_help},
    {"head-process", NULL, trpi_command_head},
    {"node-process", NULL, trpi_command_node},
    {"bench-peer", NULL, trpi_command_bench_peer},
};

static int run_version(int argc, char **argv) {
    static const trpi_usage usage = {
        .command = "version", .arguments = "", .summary = "Prints the version."};
    int code = TRPI_EXIT_OK;
    if (trpi_options_parse(&usage, argc, argv, NULL, &code)) {
        printf("troupe %s\n", trp_version());
    }
    return code;
}

static int run_help(int argc, char **argv) {
    printf("usage: troupe COMMAND [options]\n\ncommands:\n");
    for (size_t i = 0; i < TRPI_COUNTOF(subcommands); i++) {
        if (subcommands[i].summary != NULL) {
            printf("  %-10s %s\n", subcommands[i].name, subcommands[i].summary);
        }
    }
    printf("\ntroupe COMMAND --help tells more of each.\n"
           "exit codes: 0 done, 1 failed, 2 wrong usage\n");
    return TRPI_EXIT_OK;
}

static int unknown_command(const char *word) {
    const char *names[TRPI_COUNTOF(subcommands)];
    size_t count = 0;
    for (size_t i = 0; i < TRPI_COUNTOF(subcommands); i++) {
        if (subcommands[i].summary != NULL) {
            names[count++] = subcommands[i].name;
        }
    }
    const char *near = trpi_nearest(word, names, count);
    fprintf(stderr, "troupe: there is no command %s%s%s%s (see troupe help)\n", word,
            near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return TRPI_EXIT_USAGE;
}

int main(int argc, char **argv) {
    trp_error err;
    const char *zygote = getenv(TRPI_ZYGOTE_ENV);
    uint64_t fd;
    if (zygote != NULL && trpi_parse_u64(zygote, INT32_MAX, &fd)) {
        trpi_zygote_main(trpi_bench_types, (int)fd);
    }
    if (trpi_config_load(&err) != TRP_OK) {
        fprintf(stderr, "troupe: %s\n", err.message);
        return TRPI_EXIT_USAGE;
    }
    if (argc < 2) {
        (void)run_help(0, NULL);
        return TRPI_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        name = "help";
    } else if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    for (size_t i = 0; i < TRPI_COUNTOF(subcommands); i++) {
        if (strcmp(name, subcommands[i].name) == 0) {
            return subcommands[i].run(argc - 2, argv + 2);
        }
    }
    return unknown_command(name);
}

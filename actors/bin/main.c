/* main.c: the troupe command: one table of subcommands. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/command.h"
#include "actors/proc/worker.h"
#include "core/base/config.h"

static int run_version(int argc, char **argv);
static int run_help(int argc, char **argv);

const trpi_subcommand trpi_subcommands[] = {
    {"start", "start a head and a node on this host, or a node that joins a cluster",
     trpi_command_start},
    {"status", "what the cluster has, what is in use, what waits and why", trpi_command_status},
    {"list", "rows of nodes, actors, groups, gangs, jobs or runs", trpi_command_list},
    {"get", "all that is known of one of them", trpi_command_get},
    {"summary", "actors, nodes or jobs, counted by type and state", trpi_command_summary},
    {"health", "does the head answer, and do all nodes live", trpi_command_health},
    {"logs", "what an actor wrote to stdout and stderr", trpi_command_logs},
    {"kill", "end an actor, at once or in good order", trpi_command_kill},
    {"drain", "prepare a node to be taken away", trpi_command_drain},
    {"submit", "run a program as a job on the cluster, and follow its output", trpi_command_submit},
    {"jobs", "submitted jobs: list, get, logs, stop", trpi_command_jobs},
    {"stop", "stop your clusters' processes on this host", trpi_command_stop},
    {"config", "every setting: its value, where it comes from, what it does", trpi_command_config},
    {"bench", "measure this machine: calls, starts and restarts beside their limits",
     trpi_command_bench},
    {"completion", "a script that completes commands, options and ids in bash",
     trpi_command_completion},
    {"version", "print the version", run_version},
    {"help", "this text", run_help},
    {"head-process", NULL, trpi_command_head},
    {"node-process", NULL, trpi_command_node},
    {"bench-peer", NULL, trpi_command_bench_peer},
    {"complete-ids", NULL, trpi_command_complete_ids},
};
const size_t trpi_subcommand_count = TRPI_COUNTOF(trpi_subcommands);

static int run_version(int argc, char **argv) {
    static const trpi_usage usage = {.command = "version",
                                     .arguments = "",
                                     .summary = "Prints the version.",
                                     .example = "troupe version"};
    int code = TRPI_EXIT_OK;
    if (trpi_options_parse(&usage, argc, argv, NULL, &code)) {
        printf("troupe %s\n", trp_version());
    }
    return code;
}

static const trpi_subcommand *find(const char *name) {
    for (size_t i = 0; i < TRPI_COUNTOF(trpi_subcommands); i++) {
        if (strcmp(name, trpi_subcommands[i].name) == 0) {
            return &trpi_subcommands[i];
        }
    }
    return NULL;
}

static int unknown_command(const char *word) {
    const char *names[TRPI_COUNTOF(trpi_subcommands)];
    size_t count = 0;
    for (size_t i = 0; i < TRPI_COUNTOF(trpi_subcommands); i++) {
        if (trpi_subcommands[i].summary != NULL) {
            names[count++] = trpi_subcommands[i].name;
        }
    }
    const char *near = trpi_nearest(word, names, count);
    fprintf(stderr, "troupe: there is no command %s%s%s%s (see troupe help)\n", word,
            near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return TRPI_EXIT_USAGE;
}

static void print_commands(void) {
    printf("usage: troupe COMMAND [options]\n\ncommands:\n");
    for (size_t i = 0; i < TRPI_COUNTOF(trpi_subcommands); i++) {
        if (trpi_subcommands[i].summary != NULL) {
            printf("  %-10s %s\n", trpi_subcommands[i].name, trpi_subcommands[i].summary);
        }
    }
    printf("\nids: n1 a node, a7 an actor, g2 a placement group, x1 a gang, j3 a job\n"
           "troupe COMMAND --help tells more of each; troupe config has the settings.\n\n"
           "%s\n",
           TRPI_EXIT_TEXT);
}

static int run_help(int argc, char **argv) {
    static const trpi_usage usage = {.command = "help",
                                     .arguments = "[COMMAND]",
                                     .summary = "Prints what there is, or a "
                                                "command's help.",
                                     .arguments_max = 1,
                                     .example = "troupe help drain"};
    int code = TRPI_EXIT_OK;
    const char *words[2] = {NULL};
    if (!trpi_options_parse(&usage, argc, argv, words, &code)) {
        return code;
    }
    if (words[0] == NULL) {
        print_commands();
        return TRPI_EXIT_OK;
    }
    const trpi_subcommand *found = find(words[0]);
    char *help[] = {(char *)"--help", NULL};
    return found != NULL ? found->run(1, help) : unknown_command(words[0]);
}

/* What a script saved of us may be cut off, and it should not believe that that was all. */
static bool is_written(const char *name) {
    bool is_good = fflush(stdout) == 0 && !ferror(stdout);
    if (!is_good) {
        fprintf(stderr, "troupe %s: the output could not be written: %s\n", name, strerror(errno));
    }
    return is_good;
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
        print_commands();
        return TRPI_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        name = "help";
    } else if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    const trpi_subcommand *found = find(name);
    int code = found != NULL ? found->run(argc - 2, argv + 2) : unknown_command(name);
    return is_written(name) || code != TRPI_EXIT_OK ? code : TRPI_EXIT_FAILED;
}

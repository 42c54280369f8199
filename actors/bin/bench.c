/* bench.c: troupe bench: this machine's figures, each beside its limit in the same run. */
#include "actors/bin/bench.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/rows.h"
#include "core/sys/file.h"

#define SECONDS_MAX 3600
#define SIMULATED_NODES_MIN 100 /* a tenth of a tenth of them must be one */

/* In this order; those of one cluster together. */
static const bench_row rows[] = {
    {"call_round_trip", "us", "call of 16 bytes, there and back, p50", BENCH_WARM, bench_round_trip,
     false},
    {"calls_16_bytes", "/s", "calls of 16 bytes, 1000 under way", BENCH_WARM, bench_small_calls,
     false},
    {"calls_1_kib", "/s", "calls of 1 KiB, 1000 under way", BENCH_WARM, bench_large_calls, false},
    {"1_1_actor_calls_sync", "/s", "one call, wait, repeat", BENCH_WARM, bench_sync, false},
    {"1_1_actor_calls_async", "/s", "1000 calls, then all results", BENCH_WARM, bench_async, false},
    {"1_1_actor_calls_concurrent", "/s", "the same with max_concurrency 16", BENCH_WARM,
     bench_concurrent, false},
    {"1_n_actor_calls_async", "/s",
     "5000 calls of one client to n actors: 4 for each CPU, 32 at most, or --actors", BENCH_WARM,
     bench_one_to_many, false},
    {"n_n_actor_calls_async", "/s", "the same of 4 clients at once", BENCH_WARM, bench_many_to_many,
     false},
    {"n_n_actor_calls_with_arg_async", "/s", "the same with an object that the actor reads",
     BENCH_WARM, bench_many_to_many_objects, false},
    {"single_client_get_calls", "/s", "gets of a small object in the store", BENCH_WARM, bench_get,
     false},
    {"single_client_put_calls", "/s", "puts of a small object", BENCH_WARM, bench_put, false},
    {"multi_client_put_calls", "/s", "the same of 4 clients at once", BENCH_WARM, bench_multi_put,
     false},
    {"single_client_put_gigabytes", "GB/s", "puts of 64 MiB", BENCH_WARM, bench_put_bytes, false},
    {"multi_client_put_gigabytes", "GB/s", "the same of 4 clients at once", BENCH_WARM,
     bench_multi_put_bytes, false},
    {"single_client_wait_1k_refs", "/s", "1000 calls under way, waited for one by one", BENCH_WARM,
     bench_wait, false},
    {"placement_group_create/removal", "/s", "groups of one bundle: 100 made, awaited, removed",
     BENCH_WARM, bench_group, false},
    {"groups_of_40_bundles", "/s", "groups of 40 bundles, made, awaited, removed", BENCH_WARM,
     bench_group_of_40, false},
    {"actor_start_warm", "ms", "spawn to first answer, by an idle worker, p50", BENCH_WARM,
     bench_start_warm, false},
    {"actor_starts_at_once", "/s", "32 actors spawned at once, until all have answered", BENCH_WARM,
     bench_starts, false},
    {"restart_p50", "ms", "SIGKILL of an actor to its next answer, p50", BENCH_WARM,
     bench_restart_p50, false},
    {"restart_p99", "ms", "the same, p99", BENCH_WARM, bench_restart_p99, false},
    {"memory_head", "MB", "resident memory of the head", BENCH_WARM, bench_memory_head, false},
    {"memory_node", "MB", "resident memory of the node daemon", BENCH_WARM, bench_memory_node,
     false},
    {"memory_worker", "MB", "resident memory of an idle worker", BENCH_WARM, bench_memory_worker,
     false},
    {"memory_worker_share", "MB", "the same with its part of what is shared (Pss)", BENCH_WARM,
     bench_memory_share, false},
    {"many_actors", "/s", "as many actors as --actors says (1000), all alive at once", BENCH_WARM,
     bench_many, true},
    {"actor_start_cold", "ms", "spawn to first answer, with a new process, p50", BENCH_COLD,
     bench_start_cold, false},
    {"training_step", "ms", "step of the quickstart's model, 2 ranks, ZeRO 3, p50",
     BENCH_NO_CLUSTER, bench_step, false},
};

/* ---- Signals, progress ---- */

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

trp_code bench_go_on(trp_error *err) {
    return is_interrupted ? trpi_fail(err, TRP_ECANCELED, "interrupted") : TRP_OK;
}

void bench_progress(const char *format, ...) {
    char text[128];
    va_list args;
    if (!isatty(STDERR_FILENO)) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "\r\033[K%s", text);
}

/* ---- Which rows ---- */

static bool is_word_of(const char *name, const char *words) {
    size_t size = strlen(name);
    for (const char *at = words; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, size) == 0 && (at[size] == ',' || at[size] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool is_chosen(const bench_row *row, const char *only) {
    return only != NULL ? is_word_of(row->name, only) : !row->is_asked_for;
}

/* Every word of --only must be a row's name. */
static bool check_only(const char *only, int *ret_exit) {
    const char *names[TRPI_COUNTOF(rows)];
    for (size_t i = 0; i < TRPI_COUNTOF(rows); i++) {
        names[i] = rows[i].name;
    }
    for (const char *at = only; at != NULL; at = strchr(at, ',')) {
        char word[64];
        bool is_known = false;
        at += *at == ',';
        trpi_format(word, sizeof(word), "%.*s", (int)strcspn(at, ","), at);
        for (size_t i = 0; i < TRPI_COUNTOF(rows); i++) {
            is_known |= strcmp(word, rows[i].name) == 0;
        }
        if (!is_known) {
            const char *near = trpi_nearest(word, names, TRPI_COUNTOF(names));
            *ret_exit = trpi_usage_error("bench", "--only: there is no row \"%s\"%s%s%s", word,
                                         near ? "; did you mean " : "; see --list",
                                         near ? near : "", near ? "?" : "");
            return false;
        }
    }
    return true;
}

/* ---- The command ---- */

static trp_code run_row(bench *b, const bench_row *row, size_t at, size_t count, trp_error *err) {
    bench_progress("[%zu/%zu] %s", at, count, row->name);
    trp_code code = bench_cluster_need(b, row->cluster, err);
    if (code == TRP_OK) {
        code = row->run(b, bench_figure_add(b, row), err);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "%s", row->name);
}

static trp_code run_rows(bench *b, const char *only, trp_error *err) {
    size_t count = 0, done = 0;
    trp_code code = TRP_OK;
    for (size_t i = 0; i < TRPI_COUNTOF(rows); i++) {
        count += is_chosen(&rows[i], only);
    }
    for (size_t i = 0; i < TRPI_COUNTOF(rows) && code == TRP_OK; i++) {
        /* How many idle workers a user's own cluster keeps is its own affair. */
        bool is_possible = b->address == NULL || rows[i].cluster != BENCH_COLD;
        if (is_chosen(&rows[i], only) && is_possible) {
            code = run_row(b, &rows[i], ++done, count, err);
        }
    }
    bench_floor_close(b);
    bench_cluster_end(b);
    return code;
}

typedef struct bench_flags {
    const char *address, *format, *only, *seconds, *actors, *nodes;
    bool is_json, is_list;
} bench_flags;

static bool read_numbers(const bench_flags *flags, bench *b, uint64_t *ret_nodes, int *ret_exit) {
    *ret_exit = TRPI_EXIT_USAGE;
    if (flags->seconds != NULL && (!trpi_parse_double(flags->seconds, &b->seconds) ||
                                   b->seconds <= 0 || b->seconds > SECONDS_MAX)) {
        (void)trpi_usage_error("bench", "--seconds: a number above 0, at most %d", SECONDS_MAX);
        return false;
    }
    if (flags->actors != NULL &&
        (!trpi_parse_u64(flags->actors, 10000000, &b->actors) || b->actors == 0)) {
        (void)trpi_usage_error("bench", "--actors: a number from 1 to 10000000");
        return false;
    }
    if (flags->nodes != NULL &&
        (!trpi_parse_u64(flags->nodes, 100000, ret_nodes) || *ret_nodes < SIMULATED_NODES_MIN)) {
        (void)trpi_usage_error("bench", "--nodes-simulated: a number from %d to 100000",
                               SIMULATED_NODES_MIN);
        return false;
    }
    return check_only(flags->only, ret_exit);
}

static int run_bench(bench *b, const bench_flags *flags, uint64_t nodes, bool is_json) {
    bench_machine machine;
    trp_error err;
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bench_machine_find(&machine);
    b->address = flags->address;
    trp_code code = nodes > 0 ? bench_simulated(b, nodes, &err) : run_rows(b, flags->only, &err);
    if (b->dir[0] != '\0') {
        (void)!trpi_dir_remove(b->dir, NULL);
    }
    bench_progress("%s", "");
    bench_print(b, &machine, is_json);
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed("bench", &err);
}

int trpi_command_bench(int argc, char **argv) {
    static bench b = {.seconds = 1};
    bench_flags flags = {.format = "table"};
    const trpi_option options[] = {
        {"--only", "NAME[,...]", "measure these rows", &flags.only, NULL, NULL},
        {"--seconds", "S", "for each side of a row (default 1)", &flags.seconds, NULL, NULL},
        {"--list", NULL, "what each row means, and measure nothing", NULL, &flags.is_list, NULL},
        {"--address", "HOST:PORT", "measure this cluster (default: a temporary one)",
         &flags.address, NULL, NULL},
        {"--nodes-simulated", "N",
         "instead: the head alone, with N nodes and --actors (100 N) that are only told of",
         &flags.nodes, NULL, NULL},
        {"--actors", "N", "how many actors, for rows with many", &flags.actors, NULL, NULL},
        {"--json", NULL, "the same as --format json", NULL, &flags.is_json, NULL},
        TRPI_OPTION_FORMAT(flags.format),
    };
    const trpi_usage usage = {
        .command = "bench",
        .arguments = "",
        .summary = "Measures calls, objects, groups, starts, restarts, memory and a training step "
                   "on this machine,\neach beside what the machine can do without troupe.",
        .details =
            "Takes less than 90 seconds. Medians of rounds, in turns with the raw measurement; "
            "small figures\nneed a quiet machine. Rows named as in Ray's microbenchmark measure "
            "the same: methods that return\n2 bytes, actors that hold no CPU. Of that list is "
            "left out what troupe does not have: tasks\nwithout an actor, asyncio actors (see "
            "max_concurrency), and a client behind a proxy.",
        .example = "troupe bench --json > figures.json",
        .options = options,
        .option_count = TRPI_COUNTOF(options)};
    bool format_is_json;
    uint64_t nodes = 0;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, NULL, &exit_code) ||
        !read_numbers(&flags, &b, &nodes, &exit_code)) {
        return exit_code;
    }
    if (!trpi_parse_format(usage.command, flags.format, &format_is_json)) {
        return TRPI_EXIT_USAGE;
    }
    if (flags.is_list) {
        bench_print_rows(rows, TRPI_COUNTOF(rows), flags.is_json || format_is_json);
        return TRPI_EXIT_OK;
    }
    return run_bench(&b, &flags, nodes, flags.is_json || format_is_json);
}

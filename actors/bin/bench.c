/* bench.c: troupe bench: this machine's figures, each beside its limit in the same run. */
#include "actors/bin/bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/rows.h"
#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/sys/file.h"

#define WAIT_MS 30000

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

trp_code bench_go_on(trp_error *err) {
    return is_interrupted ? trpi_fail(err, TRP_ECANCELED, "interrupted") : TRP_OK;
}

/* ---- Figures ---- */

double bench_now_us(void) {
    return (double)trpi_now_ns() / 1e3;
}

void bench_add(bench_samples *samples, double value) {
    TRP_ASSERT(samples->count < BENCH_SAMPLES_MAX);
    samples->values[samples->count++] = value;
}

static int compare(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double bench_median(bench_samples *samples) {
    if (samples->count == 0) {
        return 0;
    }
    qsort(samples->values, samples->count, sizeof(double), compare);
    return samples->values[samples->count / 2];
}

bench_figure *bench_figure_add(bench *b, const char *what, const char *unit) {
    TRP_ASSERT(b->figure_count < BENCH_FIGURES_MAX);
    bench_figure *figure = &b->figures[b->figure_count++];
    *figure = (bench_figure){.what = what, .unit = unit};
    return figure;
}

void bench_judge_ratio(bench_figure *figure, const char *target, double limit, bool is_least) {
    double ratio = figure->troupe / figure->raw;
    figure->target = target;
    figure->has_target = true;
    figure->is_met = is_least ? ratio >= limit : ratio <= limit;
}

void bench_judge_value(bench_figure *figure, const char *target, double limit) {
    figure->target = target;
    figure->has_target = true;
    figure->is_met = figure->troupe <= limit;
}

/* ---- Printing ---- */

static void number_text(double value, const char *unit, char *out, size_t size) {
    if (value == 0) {
        trpi_format(out, size, "-");
    } else {
        trpi_format(out, size, value >= 100 ? "%.0f %s" : "%.2f %s", value, unit);
    }
}

static json_t *row_of_figure(const bench_figure *figure) {
    char troupe[48], raw[96], ratio[32] = "-";
    number_text(figure->troupe, figure->unit, troupe, sizeof(troupe));
    number_text(figure->raw, figure->unit, raw, sizeof(raw));
    if (figure->raw != 0) {
        trpi_format(ratio, sizeof(ratio), "%.2f x", figure->troupe / figure->raw);
        size_t used = strlen(raw);
        trpi_format(raw + used, sizeof(raw) - used, " (%s)", figure->raw_what);
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "what", figure->what, "troupe", troupe,
                     "raw", raw, "ratio", ratio, "target", figure->target ? figure->target : "-",
                     "met",
                     !figure->has_target ? "-"
                     : figure->is_met    ? "yes"
                                         : "NO");
}

static json_t *json_of_figure(const bench_figure *figure) {
    json_t *row = json_pack("{s:s, s:s, s:f}", "what", figure->what, "unit", figure->unit, "troupe",
                            figure->troupe);
    if (figure->raw != 0) {
        json_object_set_new(row, "raw", json_real(figure->raw));
        json_object_set_new(row, "raw_what", json_string(figure->raw_what));
        json_object_set_new(row, "ratio", json_real(figure->troupe / figure->raw));
    }
    if (figure->has_target) {
        json_object_set_new(row, "target", json_string(figure->target));
        json_object_set_new(row, "met", json_boolean(figure->is_met));
    }
    return row;
}

static void print_figures(const bench *b, const bench_machine *machine, bool is_json) {
    static const trpi_column columns[] = {{"WHAT", "what", NULL},     {"TROUPE", "troupe", NULL},
                                          {"RAW", "raw", NULL},       {"RATIO", "ratio", NULL},
                                          {"TARGET", "target", NULL}, {"MET", "met", NULL}};
    json_t *rows = json_array();
    for (size_t i = 0; i < b->figure_count; i++) {
        json_array_append_new(rows, is_json ? json_of_figure(&b->figures[i])
                                            : row_of_figure(&b->figures[i]));
    }
    if (is_json) {
        json_t *all =
            json_pack("{s:o, s:O}", "machine", bench_machine_json(machine), "figures", rows);
        trpi_json_print(stdout, all);
        json_decref(all);
    } else {
        bench_machine_print(machine);
        trpi_rows_print(stdout, rows, columns, TRPI_COUNTOF(columns));
    }
    json_decref(rows);
}

/* ---- The cluster ---- */

/* A session root of our own, so that nothing of another cluster is near. */
static trp_code make_root(bench *b, trp_error *err) {
    TRPI_SET(b->dir, "/tmp/troupe-bench-XXXXXX");
    if (mkdtemp(b->dir) == NULL) {
        b->dir[0] = '\0';
        return trpi_fail(err, TRP_EIO, "/tmp: %s", strerror(errno));
    }
    if (setenv("TROUPE_SESSION_ROOT", b->dir, 1) != 0) {
        return trpi_fail(err, TRP_ENOMEM, "environment: out of memory");
    }
    return TRP_OK;
}

static trp_code start_cluster(const char *warm_workers, char *ret_address, size_t size,
                              trp_error *err) {
    const char *head_argv[8] = {"troupe", "head-process", "--port", "0"};
    const char *node_argv[12] = {"troupe",     "node-process", "--address",  ret_address,
                                 "--num-cpus", "64",           "--num-gpus", "0"};
    trpi_daemon head = {0}, node = {0};
    trp_code code = TRP_OK;
    if (warm_workers != NULL && setenv("TROUPE_WARM_WORKERS", warm_workers, 1) != 0) {
        return trpi_fail(err, TRP_ENOMEM, "environment: out of memory");
    }
    code = trpi_daemon_start(head_argv, 4, -1, &head, err);
    if (code != TRP_OK) {
        return trpi_context(err, code, "head");
    }
    trpi_daemon_adopt_log(&head, "head", head.words[1]);
    close(head.pidfd);
    trpi_format(ret_address, size, "%s", head.words[0]);
    code = trpi_daemon_start(node_argv, 8, -1, &node, err);
    if (code != TRP_OK) {
        return trpi_context(err, code, "node daemon");
    }
    trpi_daemon_adopt_log(&node, "node", node.words[1]);
    close(node.pidfd);
    return TRP_OK;
}

static trp_code connect_to(bench *b, const char *address, trp_error *err) {
    trp_init_options options = {.address = address, .job_name = "bench", .quiet = true};
    trp_code code = trp_init(trpi_bench_types, &options, &b->rt, err);
    if (code == TRP_OK) {
        code = trp_spawn(b->rt, "bench", (trp_bytes){NULL, 0}, NULL, &b->echo, err);
    }
    return code == TRP_OK ? trp_actor_wait_alive(b->rt, b->echo, WAIT_MS, err) : code;
}

static void end_cluster(bench *b) {
    trp_error err;
    size_t count;
    trp_shutdown(&b->rt);
    if (b->dir[0] != '\0' && trpi_stop_clusters(NULL, NULL, &count, &err) != TRP_OK) {
        fprintf(stderr, "troupe bench: %s\n", err.message);
    }
}

/* ---- The command ---- */

static trp_code measure(bench *b, const char *address, trp_error *err) {
    char own[160];
    trp_code code = TRP_OK;
    if (address == NULL) {
        code = make_root(b, err);
        code = code == TRP_OK ? start_cluster(NULL, own, sizeof(own), err) : code;
        address = own;
    }
    code = code == TRP_OK ? connect_to(b, address, err) : code;
    code = code == TRP_OK ? bench_calls(b, err) : code;
    code = code == TRP_OK ? bench_starts(b, false, err) : code;
    code = code == TRP_OK ? bench_restarts(b, err) : code;
    code = code == TRP_OK ? bench_memory(b, err) : code;
    end_cluster(b);
    if (code != TRP_OK || b->dir[0] == '\0') {
        return code == TRP_OK ? bench_step(b, err) : code;
    }
    /* Cold starts need a node that keeps no idle workers. */
    code = start_cluster("0", own, sizeof(own), err);
    code = code == TRP_OK ? connect_to(b, own, err) : code;
    code = code == TRP_OK ? bench_starts(b, true, err) : code;
    end_cluster(b);
    return code == TRP_OK ? bench_step(b, err) : code;
}

int trpi_command_bench(int argc, char **argv) {
    const char *address = NULL, *format = "table";
    bool is_json = false;
    const trpi_option options[] = {
        {"--address", "HOST:PORT", "measure this cluster (default: a temporary one)", &address,
         NULL},
        {"--json", NULL, "the same as --format json", NULL, &is_json},
        {"--format", "table|json", "how to print", &format, NULL},
    };
    const trpi_usage usage = {
        .command = "bench",
        .arguments = "",
        .summary =
            "Measures calls, starts, restarts and a training step on this machine, each beside "
            "its limit.",
        .details = "Takes less than a minute. Medians of 9 rounds and more, in turns with the raw "
                   "measurement.\nSmall figures need a quiet machine.",
        .options = options,
        .option_count = TRPI_COUNTOF(options)};
    bench b = {.figure_count = 0};
    bench_machine machine;
    bool format_is_json;
    trp_error err;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, NULL, &exit_code)) {
        return exit_code;
    }
    if (!trpi_parse_format(usage.command, format, &format_is_json)) {
        return TRPI_EXIT_USAGE;
    }
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bench_machine_find(&machine);
    trp_code code = measure(&b, address, &err);
    if (b.dir[0] != '\0') {
        (void)!trpi_dir_remove(b.dir, NULL);
    }
    print_figures(&b, &machine, is_json || format_is_json);
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed(usage.command, &err);
}

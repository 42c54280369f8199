/* bench_figures.c: rounds, what is in the middle of them, and the table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/bench.h"
#include "actors/bin/rows.h"
#include "core/net/clock.h"

/* ---- Samples ---- */

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

double bench_quantile(bench_samples *samples, unsigned permille) {
    if (samples->count == 0) {
        return 0;
    }
    qsort(samples->values, samples->count, sizeof(double), compare);
    size_t at = (samples->count * permille + 999) / 1000;
    return samples->values[at > 0 ? at - 1 : 0];
}

double bench_median(bench_samples *samples) {
    return bench_quantile(samples, 500);
}

size_t bench_trials(const bench *b, size_t least, size_t most) {
    size_t count = b->seconds < 1 ? (size_t)(b->seconds * (double)most) : most;
    return TRPI_MAX(count, least);
}

/* ---- Figures ---- */

bench_figure *bench_figure_add(bench *b, const bench_row *row) {
    TRP_ASSERT(b->figure_count < BENCH_FIGURES_MAX);
    bench_figure *figure = &b->figures[b->figure_count++];
    *figure = (bench_figure){.row = row};
    return figure;
}

static void judge(bench_figure *figure, const char *target, double value, double limit,
                  bool is_least) {
    figure->target = target;
    figure->has_target = true;
    figure->is_met = is_least ? value >= limit : value <= limit;
}

void bench_judge_ratio(bench_figure *figure, const char *target, double limit, bool is_least) {
    if (figure->raw > 0) {
        judge(figure, target, figure->troupe / figure->raw, limit, is_least);
    }
}

void bench_judge_value(bench_figure *figure, const char *target, double limit, bool is_least) {
    if (figure->troupe > 0) {
        judge(figure, target, figure->troupe, limit, is_least);
    }
}

static trp_code run_round(bench *b, bench_work work, void *arg, double us, bench_samples *rates,
                          trp_error *err) {
    double units = 0, start_us = bench_now_us(), spent_us = 0;
    trp_code code = TRP_OK;
    do {
        code = bench_go_on(err);
        code = code == TRP_OK ? work(b, arg, &units, err) : code;
        spent_us = bench_now_us() - start_us;
    } while (code == TRP_OK && spent_us < us);
    if (rates != NULL) {
        bench_add(rates, units / (spent_us / 1e6));
    }
    return code;
}

trp_code bench_compare(bench *b, bench_figure *figure, bench_work troupe, bench_work raw, void *arg,
                       trp_error *err) {
    bench_samples *rates = trpi_alloc(2 * sizeof(*rates)); /* ours, raw */
    double us = b->seconds * 1e6 / BENCH_ROUNDS;
    trp_code code = run_round(b, troupe, arg, us / 2, NULL, err); /* warms up */
    if (code == TRP_OK && raw != NULL) {
        code = run_round(b, raw, arg, us / 2, NULL, err);
    }
    for (int round = 0; round < BENCH_ROUNDS && code == TRP_OK; round++) {
        code = raw != NULL ? run_round(b, raw, arg, us, &rates[1], err) : TRP_OK;
        code = code == TRP_OK ? run_round(b, troupe, arg, us, &rates[0], err) : code;
    }
    figure->troupe = bench_median(&rates[0]);
    figure->raw = bench_median(&rates[1]);
    free(rates);
    return code;
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
    char name[112], troupe[48], raw[96], ratio[32] = "-";
    trpi_format(name, sizeof(name), "%s%s%s%s", figure->row->name, *figure->note ? " (" : "",
                figure->note, *figure->note ? ")" : "");
    number_text(figure->troupe, figure->row->unit, troupe, sizeof(troupe));
    number_text(figure->raw, figure->row->unit, raw, sizeof(raw));
    if (figure->raw != 0) {
        trpi_format(ratio, sizeof(ratio), "%.2f x", figure->troupe / figure->raw);
        size_t used = strlen(raw);
        trpi_format(raw + used, sizeof(raw) - used, " (%s)", figure->raw_what);
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "name", name, "troupe", troupe, "raw", raw,
                     "ratio", ratio, "target", figure->target ? figure->target : "-", "met",
                     !figure->has_target ? "-"
                     : figure->is_met    ? "yes"
                                         : "NO");
}

static json_t *json_of_figure(const bench_figure *figure) {
    const bench_row *row = figure->row;
    json_t *json = json_pack("{s:s, s:s, s:s, s:f}", "name", row->name, "what", row->what, "unit",
                             row->unit, "troupe", figure->troupe);
    if (*figure->note) {
        json_object_set_new(json, "note", json_string(figure->note));
    }
    if (figure->raw != 0) {
        json_object_set_new(json, "raw", json_real(figure->raw));
        json_object_set_new(json, "raw_what", json_string(figure->raw_what));
        json_object_set_new(json, "ratio", json_real(figure->troupe / figure->raw));
    }
    if (figure->has_target) {
        json_object_set_new(json, "target", json_string(figure->target));
        json_object_set_new(json, "met", json_boolean(figure->is_met));
    }
    return json;
}

void bench_print(const bench *b, const bench_machine *machine, bool is_json) {
    static const trpi_column columns[] = {{"WHAT", "name", NULL},     {"TROUPE", "troupe", NULL},
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

void bench_print_rows(const bench_row *rows, size_t count, bool is_json) {
    static const trpi_column columns[] = {
        {"NAME", "name", NULL}, {"UNIT", "unit", NULL}, {"WHAT", "what", NULL}};
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "name", rows[i].name, "unit",
                                              rows[i].unit, "what", rows[i].what, "asked_for",
                                              (int)rows[i].is_asked_for));
    }
    if (is_json) {
        trpi_json_print(stdout, list);
    } else {
        trpi_rows_print(stdout, list, columns, TRPI_COUNTOF(columns));
    }
    json_decref(list);
}

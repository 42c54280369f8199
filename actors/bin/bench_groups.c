/* bench_groups.c: placement groups made and removed. Each is two requests to the head, which two
 * raw messages there and back stand for. */
#include "actors/bin/bench.h"

#define GROUPS 100 /* made, then waited for, then removed, as Ray's benchmark does */
#define BUNDLES 40
#define LARGE_GROUPS 10

static trp_code make_all(bench *b, size_t count, const trp_group_options *options, double *units,
                         trp_error *err) {
    trp_group groups[GROUPS];
    trp_code code = TRP_OK;
    size_t made = 0;
    for (; made < count && code == TRP_OK; made += code == TRP_OK) {
        code = trp_group_create(b->rt, options, &groups[made], err);
    }
    for (size_t i = 0; i < made && code == TRP_OK; i++) {
        code = trp_group_wait(b->rt, groups[i], BENCH_WAIT_MS, NULL, 0, err);
    }
    for (size_t i = 0; i < made && code == TRP_OK; i++) {
        code = trp_group_remove(b->rt, groups[i], err);
    }
    *units += (double)count;
    return code;
}

static trp_code do_small(bench *b, void *arg, double *units, trp_error *err) {
    static const trp_bundle bundle = {.cpus = 0.01};
    return make_all(b, GROUPS, &(trp_group_options){.bundles = &bundle, .bundle_count = 1}, units,
                    err);
}

static trp_code do_large(bench *b, void *arg, double *units, trp_error *err) {
    trp_bundle bundles[BUNDLES];
    for (size_t i = 0; i < BUNDLES; i++) {
        bundles[i] = (trp_bundle){.cpus = 0.01};
    }
    return make_all(b, LARGE_GROUPS,
                    &(trp_group_options){.bundles = bundles, .bundle_count = BUNDLES}, units, err);
}

static trp_code raw_groups(bench *b, void *arg, double *units, trp_error *err) {
    double trips = 0;
    trp_code code = bench_raw_trips(b, NULL, &trips, err);
    *units += trips / 2;
    return code;
}

static trp_code measure(bench *b, bench_figure *figure, bench_work work, trp_error *err) {
    trp_code code = bench_floor(b, err);
    code = code == TRP_OK ? bench_compare(b, figure, work, raw_groups, NULL, err) : code;
    figure->raw_what = "2 raw round trips";
    return code;
}

trp_code bench_group(bench *b, bench_figure *figure, trp_error *err) {
    return measure(b, figure, do_small, err);
}

trp_code bench_group_of_40(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = measure(b, figure, do_large, err);
    bench_judge_value(figure, ">= 500 /s", 500, true);
    return code;
}

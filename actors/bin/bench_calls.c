/* bench_calls.c: one caller and one actor, beside raw ZeroMQ. */
#include <stdlib.h>

#include "actors/bin/bench.h"

#define PIPELINE_CALLS 10000
#define WINDOW 1000
#define BATCH 1000
#define SYNC_CALLS 20
#define SMALL_BYTES 16
#define LARGE_BYTES 1024

static const char body[LARGE_BYTES];

/* ---- There and back ---- */

static trp_code time_trip(bench *b, bool is_raw, bench_samples *samples, trp_error *err) {
    double start_us = bench_now_us();
    trp_code code = is_raw ? trpi_floor_round_trip(b->floor, SMALL_BYTES, err)
                           : trp_ask(b->rt, b->echo, "echo", (trp_bytes){body, SMALL_BYTES},
                                     BENCH_WAIT_MS, NULL, err);
    bench_add(samples, bench_now_us() - start_us);
    return code;
}

/* The median of one round goes to `rounds`. */
static trp_code time_trips(bench *b, bool is_raw, bench_samples *rounds, trp_error *err) {
    bench_samples *samples = trpi_alloc(sizeof(*samples));
    double until_us = bench_now_us() + b->seconds * 1e6 / BENCH_ROUNDS;
    trp_code code = bench_go_on(err);
    while (code == TRP_OK && samples->count < BENCH_SAMPLES_MAX && bench_now_us() < until_us) {
        code = time_trip(b, is_raw, samples, err);
    }
    bench_add(rounds, bench_median(samples));
    free(samples);
    return code;
}

trp_code bench_round_trip(bench *b, bench_figure *figure, trp_error *err) {
    bench_samples *rounds = trpi_alloc(2 * sizeof(*rounds)); /* ours, raw */
    trp_code code = bench_floor(b, err);
    for (int round = 0; round < BENCH_ROUNDS && code == TRP_OK; round++) {
        code = time_trips(b, true, &rounds[1], err);
        code = code == TRP_OK ? time_trips(b, false, &rounds[0], err) : code;
    }
    figure->troupe = bench_median(&rounds[0]);
    figure->raw = bench_median(&rounds[1]);
    figure->raw_what = "raw ZeroMQ";
    bench_judge_ratio(figure, "<= 1.3 x", 1.3, false);
    free(rounds);
    return code;
}

static trp_code do_sync(bench *b, void *arg, double *units, trp_error *err) {
    trp_code code = TRP_OK;
    for (int i = 0; i < SYNC_CALLS && code == TRP_OK; i++) {
        code = bench_ask(b, b->echo, err);
        (*units)++;
    }
    return code;
}

trp_code bench_sync(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = bench_floor(b, err);
    code = code == TRP_OK ? bench_compare(b, figure, do_sync, bench_raw_trips, NULL, err) : code;
    figure->raw_what = "raw ZeroMQ";
    bench_judge_ratio(figure, ">= 0.77 x", 0.77, true);
    return code;
}

/* ---- A thousand under way all the time ---- */

static trp_code finish_one(bench *b, trp_ref ref, trp_error *err) {
    trp_bytes value;
    trp_code code = trp_get(b->rt, ref, BENCH_WAIT_MS, &value, err);
    trp_ref_release(b->rt, ref);
    return code;
}

static trp_code do_window(bench *b, void *arg, double *units, trp_error *err) {
    static trp_ref refs[WINDOW];
    size_t size = *(const size_t *)arg;
    trp_code code = TRP_OK;
    for (size_t sent = 0, received = 0; received < PIPELINE_CALLS && code == TRP_OK;) {
        if (sent < PIPELINE_CALLS && sent - received < WINDOW) {
            code = trp_call(b->rt, b->echo, "echo", (trp_bytes){body, size}, 0,
                            &refs[sent % WINDOW], err);
            sent += code == TRP_OK;
        } else {
            code = finish_one(b, refs[received % WINDOW], err);
            received++;
        }
    }
    *units += PIPELINE_CALLS;
    return code;
}

static trp_code raw_window(bench *b, void *arg, double *units, trp_error *err) {
    *units += PIPELINE_CALLS;
    return trpi_floor_pipeline(b->floor, *(const size_t *)arg, PIPELINE_CALLS, WINDOW, err);
}

static trp_code measure_window(bench *b, bench_figure *figure, size_t size, trp_error *err) {
    trp_code code = bench_floor(b, err);
    code = code == TRP_OK ? bench_compare(b, figure, do_window, raw_window, &size, err) : code;
    figure->raw_what = "raw ZeroMQ";
    bench_judge_ratio(figure, ">= 0.6 x", 0.6, true);
    return code;
}

trp_code bench_small_calls(bench *b, bench_figure *figure, trp_error *err) {
    return measure_window(b, figure, SMALL_BYTES, err);
}

trp_code bench_large_calls(bench *b, bench_figure *figure, trp_error *err) {
    return measure_window(b, figure, LARGE_BYTES, err);
}

/* ---- A thousand calls, then all their results ---- */

static trp_code do_batch(bench *b, void *arg, double *units, trp_error *err) {
    bench_order order = {
        .deed = BENCH_CALL, .count = BATCH, .actor_count = 1, .actors = {*(const trp_actor *)arg}};
    *units += BATCH;
    return bench_drive(b->rt, &order, err);
}

static trp_code raw_batch(bench *b, void *arg, double *units, trp_error *err) {
    *units += BATCH;
    return trpi_floor_pipeline(b->floor, SMALL_BYTES, BATCH, BATCH, err);
}

static trp_code measure_batches(bench *b, bench_figure *figure, trp_actor actor, trp_error *err) {
    trp_code code = bench_floor(b, err);
    code = code == TRP_OK ? bench_compare(b, figure, do_batch, raw_batch, &actor, err) : code;
    figure->raw_what = "raw ZeroMQ";
    return code;
}

trp_code bench_async(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = measure_batches(b, figure, b->echo, err);
    bench_judge_ratio(figure, ">= 0.6 x", 0.6, true);
    return code;
}

trp_code bench_concurrent(bench *b, bench_figure *figure, trp_error *err) {
    trp_spawn_options options = {.max_concurrency = 16};
    trp_actor actor;
    trp_code code = bench_spawn(b, &options, &actor, err);
    if (code != TRP_OK) {
        return code;
    }
    code = measure_batches(b, figure, actor, err);
    return code == TRP_OK ? trp_kill(b->rt, actor, false, err) : code;
}

/* ---- Waiting for one of a thousand, a thousand times ---- */

/* Takes the first that is done out of the list, as ray.wait() does. */
static trp_code take_one(bench *b, trp_ref *refs, size_t *count, bool *done, trp_error *err) {
    trp_code code = trp_wait(b->rt, refs, *count, 1, BENCH_WAIT_MS, done, err);
    for (size_t i = 0; i < *count && code == TRP_OK; i++) {
        if (done[i]) {
            trp_ref_release(b->rt, refs[i]);
            refs[i] = refs[--*count];
            return TRP_OK;
        }
    }
    return code == TRP_OK ? trpi_fail(err, TRP_ETIMEOUT, "a call was not answered") : code;
}

static trp_code do_wait(bench *b, void *arg, double *units, trp_error *err) {
    static trp_ref refs[BATCH];
    static bool done[BATCH];
    size_t count = 0;
    trp_code code = TRP_OK;
    while (count < BATCH && code == TRP_OK) {
        code = trp_call(b->rt, b->echo, "ok", (trp_bytes){NULL, 0}, 0, &refs[count], err);
        count += code == TRP_OK;
    }
    while (count > 0 && code == TRP_OK) {
        code = take_one(b, refs, &count, done, err);
    }
    (*units)++;
    return code;
}

static trp_code raw_wait(bench *b, void *arg, double *units, trp_error *err) {
    (*units)++;
    return trpi_floor_pipeline(b->floor, SMALL_BYTES, BATCH, BATCH, err);
}

trp_code bench_wait(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = bench_floor(b, err);
    code = code == TRP_OK ? bench_compare(b, figure, do_wait, raw_wait, NULL, err) : code;
    figure->raw_what = "1000 raw messages";
    return code;
}

/* bench_calls.c: calls beside raw ZeroMQ, in turns, so that a noisy moment hits both. */
#include <unistd.h>

#include "actors/bin/bench.h"
#include "core/net/floor.h"

#define SYNC_CALLS 1000
#define PIPELINE_CALLS 60000
#define WINDOW 1000
#define SMALL_BYTES 16
#define LARGE_BYTES 1024
#define WAIT_MS 10000

static const char body[LARGE_BYTES];

static trp_code time_raw_sync(trpi_floor *floor, bench_samples *rounds, trp_error *err) {
    bench_samples samples = {.count = 0};
    trp_code code = TRP_OK;
    for (int i = 0; i < SYNC_CALLS && code == TRP_OK; i++) {
        double start_us = bench_now_us();
        code = trpi_floor_round_trip(floor, SMALL_BYTES, err);
        bench_add(&samples, bench_now_us() - start_us);
    }
    bench_add(rounds, bench_median(&samples));
    return code;
}

static trp_code time_sync(bench *b, bench_samples *rounds, trp_error *err) {
    bench_samples samples = {.count = 0};
    trp_code code = TRP_OK;
    for (int i = 0; i < SYNC_CALLS && code == TRP_OK; i++) {
        double start_us = bench_now_us();
        code = trp_ask(b->rt, b->echo, "echo", (trp_bytes){body, SMALL_BYTES}, WAIT_MS, NULL, err);
        bench_add(&samples, bench_now_us() - start_us);
    }
    bench_add(rounds, bench_median(&samples));
    return code;
}

static trp_code time_raw_pipeline(trpi_floor *floor, size_t size, bench_samples *rounds,
                                  trp_error *err) {
    double start_us = bench_now_us();
    trp_code code = trpi_floor_pipeline(floor, size, PIPELINE_CALLS, WINDOW, err);
    bench_add(rounds, PIPELINE_CALLS / ((bench_now_us() - start_us) / 1e6));
    return code;
}

static trp_code finish_one(bench *b, trp_ref ref, trp_error *err) {
    trp_bytes value;
    trp_code code = trp_get(b->rt, ref, WAIT_MS, &value, err);
    trp_ref_release(b->rt, ref);
    return code;
}

static trp_code time_pipeline(bench *b, size_t size, bench_samples *rounds, trp_error *err) {
    static trp_ref refs[WINDOW];
    double start_us = bench_now_us();
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
    bench_add(rounds, PIPELINE_CALLS / ((bench_now_us() - start_us) / 1e6));
    return code;
}

typedef struct call_rounds {
    bench_samples sync, raw_sync;
    bench_samples pipeline[2], raw_pipeline[2]; /* small, large */
} call_rounds;

static trp_code measure_round(bench *b, trpi_floor *floor, call_rounds *rounds, trp_error *err) {
    static const size_t sizes[2] = {SMALL_BYTES, LARGE_BYTES};
    trp_code code = bench_go_on(err);
    code = code == TRP_OK ? time_raw_sync(floor, &rounds->raw_sync, err) : code;
    code = code == TRP_OK ? time_sync(b, &rounds->sync, err) : code;
    for (int i = 0; i < 2; i++) {
        code = code == TRP_OK ? time_raw_pipeline(floor, sizes[i], &rounds->raw_pipeline[i], err)
                              : code;
        code = code == TRP_OK ? time_pipeline(b, sizes[i], &rounds->pipeline[i], err) : code;
    }
    return code;
}

static void report(bench *b, const char *what, const char *unit, bench_samples *troupe,
                   bench_samples *raw) {
    bench_figure *figure = bench_figure_add(b, what, unit);
    figure->troupe = bench_median(troupe);
    figure->raw = bench_median(raw);
    figure->raw_what = "raw ZeroMQ";
    if (unit[0] == 'u') {
        bench_judge_ratio(figure, "<= 1.3 x", 1.3, false);
    } else {
        bench_judge_ratio(figure, ">= 0.6 x", 0.6, true);
    }
}

trp_code bench_calls(bench *b, trp_error *err) {
    static call_rounds rounds; /* large, and used once */
    char endpoint[256];
    pid_t peer = 0;
    trpi_floor *floor = NULL;
    trp_code code = bench_peer_start(b, endpoint, sizeof(endpoint), &peer, err);
    if (code == TRP_OK) {
        code = trpi_floor_open(endpoint, WAIT_MS, &floor, err);
    }
    for (int round = 0; round < BENCH_ROUNDS && code == TRP_OK; round++) {
        code = measure_round(b, floor, &rounds, err);
    }
    if (code == TRP_OK) {
        report(b, "call of 16 bytes, there and back, p50", "us", &rounds.sync, &rounds.raw_sync);
        report(b, "calls of 16 bytes, 1000 under way", "/s", &rounds.pipeline[0],
               &rounds.raw_pipeline[0]);
        report(b, "calls of 1 KiB, 1000 under way", "/s", &rounds.pipeline[1],
               &rounds.raw_pipeline[1]);
    }
    trpi_floor_close(floor);
    bench_peer_end(peer);
    return code;
}

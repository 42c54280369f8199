/* bench_calls.c: calls beside raw ZeroMQ, in turns, so that a noisy moment hits both. */
#include <unistd.h>

#include "actors/bin/bench.h"
#include "core/net/floor.h"

#define SYNC_CALLS 2000
#define PIPELINE_CALLS 100000
#define WINDOW 1000
#define BODY_BYTES 16
#define WAIT_MS 10000

static const char body[BODY_BYTES];

static trp_code time_raw_sync(trpi_floor *floor, bench_samples *rounds, trp_error *err) {
    bench_samples samples = {.count = 0};
    trp_code code = TRP_OK;
    for (int i = 0; i < SYNC_CALLS && code == TRP_OK; i++) {
        double start_us = bench_now_us();
        code = trpi_floor_round_trip(floor, BODY_BYTES, err);
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
        code = trp_ask(b->rt, b->echo, "echo", (trp_bytes){body, BODY_BYTES}, WAIT_MS, NULL, err);
        bench_add(&samples, bench_now_us() - start_us);
    }
    bench_add(rounds, bench_median(&samples));
    return code;
}

static trp_code time_raw_pipeline(trpi_floor *floor, bench_samples *rounds, trp_error *err) {
    double start_us = bench_now_us();
    trp_code code = trpi_floor_pipeline(floor, BODY_BYTES, PIPELINE_CALLS, WINDOW, err);
    bench_add(rounds, PIPELINE_CALLS / ((bench_now_us() - start_us) / 1e6));
    return code;
}

static trp_code finish_one(bench *b, trp_ref ref, trp_error *err) {
    trp_bytes value;
    trp_code code = trp_get(b->rt, ref, WAIT_MS, &value, err);
    trp_ref_release(b->rt, ref);
    return code;
}

static trp_code time_pipeline(bench *b, bench_samples *rounds, trp_error *err) {
    static trp_ref refs[WINDOW];
    double start_us = bench_now_us();
    trp_code code = TRP_OK;
    for (size_t sent = 0, received = 0; received < PIPELINE_CALLS && code == TRP_OK;) {
        if (sent < PIPELINE_CALLS && sent - received < WINDOW) {
            code = trp_call(b->rt, b->echo, "echo", (trp_bytes){body, BODY_BYTES}, 0,
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

trp_code bench_calls(bench *b, trp_error *err) {
    char endpoint[256];
    pid_t peer = 0;
    trpi_floor *floor = NULL;
    bench_samples sync = {.count = 0}, raw_sync = sync, pipeline = sync, raw_pipeline = sync;
    trp_code code = bench_peer_start(b, endpoint, sizeof(endpoint), &peer, err);
    if (code == TRP_OK) {
        code = trpi_floor_open(endpoint, WAIT_MS, &floor, err);
    }
    for (int round = 0; round < BENCH_ROUNDS && code == TRP_OK; round++) {
        code = bench_go_on(err);
        code = code == TRP_OK ? time_raw_sync(floor, &raw_sync, err) : code;
        code = code == TRP_OK ? time_sync(b, &sync, err) : code;
        code = code == TRP_OK ? time_raw_pipeline(floor, &raw_pipeline, err) : code;
        code = code == TRP_OK ? time_pipeline(b, &pipeline, err) : code;
    }
    if (code == TRP_OK) {
        bench_figure *figure = bench_figure_add(b, "call, there and back, p50", "us");
        figure->troupe = bench_median(&sync);
        figure->raw = bench_median(&raw_sync);
        figure->raw_what = "raw ZeroMQ";
        bench_judge_ratio(figure, "<= 1.3 x", 1.3, false);
        figure = bench_figure_add(b, "calls, 1000 under way", "/s");
        figure->troupe = bench_median(&pipeline);
        figure->raw = bench_median(&raw_pipeline);
        figure->raw_what = "raw ZeroMQ";
        bench_judge_ratio(figure, ">= 0.6 x", 0.6, true);
    }
    trpi_floor_close(floor);
    bench_peer_end(peer);
    return code;
}

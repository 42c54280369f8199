/* bench_lives.c: how long it takes until an actor answers: started warm, started cold, restarted.
 *
 * A warm start is 1.0 to 1.1 ms on two cores with nothing else to do, where a message of raw ZeroMQ
 * goes there and back in 25 to 60 us. None of it is one large thing: about thirty threads are woken
 * one after the other. 0.7 ms until the driver knows where the actor is (driver, head, node, worker
 * and back, an I/O thread at each end of each way; the head computes 0.1 ms), 0.3 ms to connect to
 * it, which takes ZeroMQ two exchanges, and to be answered. What could still go is the connecting,
 * if the driver were told the worker's endpoint while the constructor runs. */
#include <signal.h>
#include <unistd.h>

#include "actors/bin/bench.h"
#include "core/net/floor.h"

#define STARTS 25
#define BURST 32
#define RESTARTS 21
#define WAIT_MS 30000
#define REFILL_MS 40 /* for the pool to have an idle worker again */

static trp_code ask(bench *b, trp_actor actor, trp_error *err) {
    return trp_ask(b->rt, actor, "echo", (trp_bytes){"x", 1}, WAIT_MS, NULL, err);
}

/* A process of this program that answers its first message: what no runtime can be faster than. */
static trp_code time_raw_start(bench *b, bench_samples *samples, trp_error *err) {
    char endpoint[256];
    pid_t peer = 0;
    trpi_floor *floor = NULL;
    double start_us = bench_now_us();
    trp_code code = bench_peer_start(b, endpoint, sizeof(endpoint), &peer, err);
    if (code == TRP_OK) {
        code = trpi_floor_open(endpoint, WAIT_MS, &floor, err);
    }
    bench_add(samples, (bench_now_us() - start_us) / 1e3);
    trpi_floor_close(floor);
    bench_peer_end(peer);
    return code;
}

static trp_code time_start(bench *b, bench_samples *samples, trp_error *err) {
    trp_actor actor;
    double start_us = bench_now_us();
    trp_code code = trp_spawn(b->rt, "bench", (trp_bytes){NULL, 0}, NULL, &actor, err);
    if (code != TRP_OK) {
        return code;
    }
    code = ask(b, actor, err);
    bench_add(samples, (bench_now_us() - start_us) / 1e3);
    return code == TRP_OK ? trp_kill(b->rt, actor, false, err) : code;
}

/* Many at once: the pool is empty after the first few. */
static trp_code time_burst(bench *b, bench_samples *rates, trp_error *err) {
    trp_actor actors[BURST];
    trp_code code = TRP_OK;
    double start_us = bench_now_us();
    for (int i = 0; i < BURST && code == TRP_OK; i++) {
        code = trp_spawn(b->rt, "bench", (trp_bytes){NULL, 0}, NULL, &actors[i], err);
    }
    for (int i = 0; i < BURST && code == TRP_OK; i++) {
        code = ask(b, actors[i], err);
    }
    bench_add(rates, BURST / ((bench_now_us() - start_us) / 1e6));
    for (int i = 0; i < BURST && code == TRP_OK; i++) {
        code = trp_kill(b->rt, actors[i], false, err);
    }
    return code;
}

static void report_starts(bench *b, bool is_cold, bench_samples *starts, bench_samples *raw) {
    bench_figure *figure = bench_figure_add(
        b, is_cold ? "actor started, cold, p50" : "actor started, warm, p50", "ms");
    figure->troupe = bench_median(starts);
    figure->raw = bench_median(raw);
    figure->raw_what = "fork+exec+connect";
    if (is_cold) {
        bench_judge_ratio(figure, "<= 2 x", 2, false);
    } else {
        bench_judge_value(figure, "<= 1 ms", 1);
    }
}

trp_code bench_starts(bench *b, bool is_cold, trp_error *err) {
    bench_samples starts = {.count = 0}, raw = starts, rates = starts;
    trp_code code = TRP_OK;
    for (int i = 0; i < STARTS && code == TRP_OK; i++) {
        code = bench_go_on(err);
        code = code == TRP_OK ? time_raw_start(b, &raw, err) : code;
        if (!is_cold) {
            usleep(REFILL_MS * 1000);
        }
        code = code == TRP_OK ? time_start(b, &starts, err) : code;
    }
    for (int round = 0; round < BENCH_ROUNDS && code == TRP_OK && !is_cold; round++) {
        code = bench_go_on(err);
        code = code == TRP_OK ? time_burst(b, &rates, err) : code;
    }
    if (code != TRP_OK) {
        return code;
    }
    report_starts(b, is_cold, &starts, &raw);
    if (!is_cold) {
        bench_figure *figure = bench_figure_add(b, "actors started, 32 at once", "/s");
        figure->troupe = bench_median(&rates);
        figure->raw = 1e3 / bench_median(&raw);
        figure->raw_what = "fork+exec+connect";
    }
    return TRP_OK;
}

/* A fresh actor each time: a second restart in a row waits on purpose. */
static trp_code time_restart(bench *b, bench_samples *samples, trp_error *err) {
    trp_spawn_options options = {.restarts_max = -1, .call_retries_max = -1};
    trp_actor actor;
    trp_actor_info info;
    trp_code code = trp_spawn(b->rt, "bench", (trp_bytes){NULL, 0}, &options, &actor, err);
    code = code == TRP_OK ? ask(b, actor, err) : code;
    code = code == TRP_OK ? trp_actor_get_info(b->rt, actor, &info, err) : code;
    if (code != TRP_OK) {
        return code;
    }
    usleep(REFILL_MS * 1000);
    double start_us = bench_now_us();
    (void)kill((pid_t)info.pid, SIGKILL);
    code = ask(b, actor, err);
    bench_add(samples, (bench_now_us() - start_us) / 1e3);
    return code == TRP_OK ? trp_kill(b->rt, actor, false, err) : code;
}

trp_code bench_restarts(bench *b, trp_error *err) {
    bench_samples samples = {.count = 0};
    trp_code code = TRP_OK;
    for (int i = 0; i < RESTARTS && code == TRP_OK; i++) {
        code = bench_go_on(err);
        code = code == TRP_OK ? time_restart(b, &samples, err) : code;
    }
    if (code == TRP_OK) {
        bench_figure *figure = bench_figure_add(b, "SIGKILL to restarted and answering, p50", "ms");
        figure->troupe = bench_median(&samples);
        bench_judge_value(figure, "<= 20 ms", 20);
    }
    return code;
}

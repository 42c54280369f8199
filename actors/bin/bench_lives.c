/* bench_lives.c: how long it takes until an actor answers: started warm, started cold, restarted.
 *
 * A warm start is 1.0 to 1.1 ms on two cores with nothing else to do, where a message of raw ZeroMQ
 * goes there and back in 25 to 60 us. None of it is one large thing: about thirty threads are woken
 * one after the other. 0.7 ms until the driver knows where the actor is (driver, head, node, worker
 * and back, an I/O thread at each end of each way; the head computes 0.1 ms), 0.3 ms to connect to
 * it, which takes ZeroMQ two exchanges, and to be answered. What could still go is the connecting,
 * if the driver were told the worker's endpoint while the constructor runs. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "actors/bin/bench.h"

#define STARTS 25
#define BURST 32
#define RESTARTS 100
#define REFILL_MS 40 /* for the pool to have an idle worker again */

/* ---- Starts ---- */

/* A process of this program that answers its first message: what no runtime can be faster than. */
static trp_code time_raw_start(bench *b, bench_samples *samples, trp_error *err) {
    char endpoint[256];
    const char *only[] = {endpoint};
    pid_t peer = 0;
    trpi_floor *floor = NULL;
    double start_us = bench_now_us();
    trp_code code = bench_peer_start(b, NULL, 0, endpoint, sizeof(endpoint), &peer, err);
    if (code == TRP_OK) {
        code = trpi_floor_open(only, 1, BENCH_WAIT_MS, &floor, err);
    }
    bench_add(samples, (bench_now_us() - start_us) / 1e3);
    trpi_floor_close(floor);
    bench_peer_end(peer);
    return code;
}

static trp_code time_start(bench *b, bench_samples *samples, trp_error *err) {
    trp_actor actor;
    double start_us = bench_now_us();
    trp_code code = bench_spawn(b, NULL, &actor, err);
    if (code != TRP_OK) {
        return code;
    }
    code = bench_ask(b, actor, err);
    bench_add(samples, (bench_now_us() - start_us) / 1e3);
    return code == TRP_OK ? trp_kill(b->rt, actor, false, err) : code;
}

static trp_code measure_starts(bench *b, bench_figure *figure, bool is_cold, trp_error *err) {
    bench_samples *samples = trpi_alloc(2 * sizeof(*samples)); /* ours, raw */
    trp_code code = TRP_OK;
    for (size_t i = bench_trials(b, 3, STARTS); i > 0 && code == TRP_OK; i--) {
        code = bench_go_on(err);
        code = code == TRP_OK ? time_raw_start(b, &samples[1], err) : code;
        if (!is_cold) {
            usleep(REFILL_MS * 1000);
        }
        code = code == TRP_OK ? time_start(b, &samples[0], err) : code;
    }
    figure->troupe = bench_median(&samples[0]);
    figure->raw = bench_median(&samples[1]);
    figure->raw_what = "fork+exec+connect";
    free(samples);
    return code;
}

trp_code bench_start_warm(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = measure_starts(b, figure, false, err);
    bench_judge_value(figure, "<= 1 ms", 1, false);
    return code;
}

trp_code bench_start_cold(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = measure_starts(b, figure, true, err);
    bench_judge_ratio(figure, "<= 2 x", 2, false);
    return code;
}

/* ---- Many at once: the pool is empty after the first few ---- */

static trp_code time_burst(bench *b, bench_samples *rates, trp_error *err) {
    trp_actor actors[BURST];
    trp_code code = TRP_OK;
    double start_us = bench_now_us();
    for (int i = 0; i < BURST && code == TRP_OK; i++) {
        code = bench_spawn(b, NULL, &actors[i], err);
    }
    for (int i = 0; i < BURST && code == TRP_OK; i++) {
        code = bench_ask(b, actors[i], err);
    }
    bench_add(rates, BURST / ((bench_now_us() - start_us) / 1e6));
    for (int i = 0; i < BURST && code == TRP_OK; i++) {
        code = trp_kill(b->rt, actors[i], false, err);
    }
    return code;
}

/* The same as processes: all are started, then all are connected to. */
static trp_code time_raw_burst(bench *b, bench_samples *rates, trp_error *err) {
    static char endpoints[BURST][256];
    const char *all[BURST];
    pid_t peers[BURST];
    size_t started = 0;
    trpi_floor *floor = NULL;
    trp_code code = TRP_OK;
    double start_us = bench_now_us();
    for (; started < BURST && code == TRP_OK; started += code == TRP_OK) {
        all[started] = endpoints[started];
        code = bench_peer_start(b, NULL, 0, endpoints[started], sizeof(endpoints[0]),
                                &peers[started], err);
    }
    code = code == TRP_OK ? trpi_floor_open(all, BURST, BENCH_WAIT_MS, &floor, err) : code;
    bench_add(rates, BURST / ((bench_now_us() - start_us) / 1e6));
    trpi_floor_close(floor);
    for (size_t i = 0; i < started; i++) {
        bench_peer_end(peers[i]);
    }
    return code;
}

trp_code bench_starts(bench *b, bench_figure *figure, trp_error *err) {
    bench_samples *rates = trpi_alloc(2 * sizeof(*rates)); /* ours, raw */
    trp_code code = TRP_OK;
    for (size_t i = bench_trials(b, 1, BENCH_ROUNDS); i > 0 && code == TRP_OK; i--) {
        code = bench_go_on(err);
        code = code == TRP_OK ? time_raw_burst(b, &rates[1], err) : code;
        code = code == TRP_OK ? time_burst(b, &rates[0], err) : code;
    }
    figure->troupe = bench_median(&rates[0]);
    figure->raw = bench_median(&rates[1]);
    figure->raw_what = "fork+exec+connect";
    trpi_format(figure->note, sizeof(figure->note), "%d actors", BURST);
    free(rates);
    return code;
}

/* ---- Restarts ---- */

/* A fresh actor each time: a second restart in a row waits on purpose. */
static trp_code time_restart(bench *b, trp_error *err) {
    trp_spawn_options options = {.restarts_max = -1, .call_retries_max = -1};
    trp_actor actor;
    trp_actor_info info;
    trp_code code = bench_spawn(b, &options, &actor, err);
    code = code == TRP_OK ? bench_ask(b, actor, err) : code;
    code = code == TRP_OK ? trp_actor_get_info(b->rt, actor, &info, err) : code;
    if (code != TRP_OK) {
        return code;
    }
    usleep(REFILL_MS * 1000);
    double start_us = bench_now_us();
    (void)kill((pid_t)info.pid, SIGKILL);
    code = bench_ask(b, actor, err);
    bench_add(&b->restarts, (bench_now_us() - start_us) / 1e3);
    return code == TRP_OK ? trp_kill(b->rt, actor, false, err) : code;
}

/* Measured once for both rows. */
static trp_code measure_restarts(bench *b, trp_error *err) {
    size_t count = b->restarts.count > 0 ? 0 : bench_trials(b, 5, RESTARTS);
    trp_code code = TRP_OK;
    for (; count > 0 && code == TRP_OK; count--) {
        code = bench_go_on(err);
        code = code == TRP_OK ? time_restart(b, err) : code;
        code = code == TRP_OK && count % 4 == 0 ? time_raw_start(b, &b->raw_starts, err) : code;
    }
    return code;
}

static trp_code restart_row(bench *b, bench_figure *figure, unsigned permille, trp_error *err) {
    trp_code code = measure_restarts(b, err);
    figure->troupe = bench_quantile(&b->restarts, permille);
    figure->raw = bench_quantile(&b->raw_starts, permille);
    figure->raw_what = "fork+exec+connect";
    return code;
}

trp_code bench_restart_p50(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = restart_row(b, figure, 500, err);
    bench_judge_value(figure, "<= 20 ms", 20, false);
    return code;
}

trp_code bench_restart_p99(bench *b, bench_figure *figure, trp_error *err) {
    return restart_row(b, figure, 990, err);
}

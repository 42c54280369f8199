/* bench_fleet.c: one caller and many actors, several callers and many actors, several who put. The
 * callers are actors that are told to call; beside them the same number of raw processes. */
#include <stdlib.h>
#include <string.h>

#include "actors/bin/bench.h"
#include "core/sys/host.h"

#define CALLS 5000 /* of each client in one go */
#define PUTS 20
#define WINDOW_ONE 1

typedef struct fleet {
    bench_order order; /* with the actors in it */
    trp_actor clients[BENCH_CLIENTS];
    size_t client_count;
    struct {
        pid_t pid;
        char endpoint[256];
    } peers[BENCH_ACTORS_MAX];
    pid_t driver_pids[BENCH_CLIENTS];
    trpi_floor *drivers[BENCH_CLIENTS];
    size_t peer_count, driver_count;
    trpi_floor_drive raw; /* what each of the raw clients does */
} fleet;

/* Ray's 32, on machines that could run them. */
static size_t actors_here(const bench *b) {
    size_t count = b->actors > 0 ? (size_t)b->actors : 4 * (size_t)trpi_host_cpus();
    return TRPI_MIN(count, (size_t)BENCH_ACTORS_MAX);
}

static trp_code spawn_all(bench *b, trp_actor *actors, size_t *count, size_t want, trp_error *err) {
    trp_code code = TRP_OK;
    while (*count < want && code == TRP_OK) {
        code = bench_spawn(b, NULL, &actors[*count], err);
        *count += code == TRP_OK;
    }
    for (size_t i = 0; i < *count && code == TRP_OK; i++) {
        code = bench_ask(b, actors[i], err);
    }
    return code;
}

static trp_code start_drivers(bench *b, fleet *f, size_t want, trp_error *err) {
    const char *targets[BENCH_ACTORS_MAX];
    char endpoint[256];
    const char *only[] = {endpoint};
    trp_code code = TRP_OK;
    for (size_t i = 0; i < f->peer_count; i++) {
        targets[i] = f->peers[i].endpoint;
    }
    while (f->driver_count < want && code == TRP_OK) {
        code = bench_peer_start(b, targets, f->peer_count, endpoint, sizeof(endpoint),
                                &f->driver_pids[f->driver_count], err);
        if (code == TRP_OK) {
            code = trpi_floor_open(only, 1, BENCH_WAIT_MS, &f->drivers[f->driver_count], err);
            f->driver_count++;
        }
    }
    return code;
}

static trp_code start_peers(bench *b, fleet *f, size_t want, trp_error *err) {
    trp_code code = TRP_OK;
    while (f->peer_count < want && code == TRP_OK) {
        code = bench_peer_start(b, NULL, 0, f->peers[f->peer_count].endpoint,
                                sizeof(f->peers[0].endpoint), &f->peers[f->peer_count].pid, err);
        f->peer_count += code == TRP_OK;
    }
    return code;
}

static trp_code end_fleet(bench *b, fleet *f, trp_code code, trp_error *err) {
    for (size_t i = 0; i < f->driver_count; i++) {
        trpi_floor_close(f->drivers[i]);
        bench_peer_end(f->driver_pids[i]);
    }
    for (size_t i = 0; i < f->peer_count; i++) {
        bench_peer_end(f->peers[i].pid);
    }
    for (size_t i = 0; i < f->client_count && code == TRP_OK; i++) {
        code = trp_kill(b->rt, f->clients[i], false, err);
    }
    for (size_t i = 0; i < f->order.actor_count && code == TRP_OK; i++) {
        code = trp_kill(b->rt, f->order.actors[i], false, err);
    }
    free(f);
    return code;
}

/* ---- What they do ---- */

/* Tells each of our clients what to do and waits for all. */
static trp_code do_orders(bench *b, void *arg, double *units, trp_error *err) {
    const fleet *f = arg;
    trp_ref refs[BENCH_CLIENTS];
    size_t made = 0;
    trp_code code = TRP_OK;
    for (; made < f->client_count && code == TRP_OK; made += code == TRP_OK) {
        code = trp_call(b->rt, f->clients[made], "drive", (trp_bytes){&f->order, sizeof(f->order)},
                        0, &refs[made], err);
    }
    code = code == TRP_OK ? trp_get_all(b->rt, refs, made, BENCH_WAIT_MS, NULL, err) : code;
    for (size_t i = 0; i < made; i++) {
        trp_ref_release(b->rt, refs[i]);
    }
    *units += (double)(f->order.count * f->client_count);
    return code;
}

static trp_code raw_orders(bench *b, void *arg, double *units, trp_error *err) {
    const fleet *f = arg;
    trp_code code = TRP_OK;
    for (size_t i = 0; i < f->driver_count && code == TRP_OK; i++) {
        code = trpi_floor_tell(f->drivers[i], &f->raw, err);
    }
    for (size_t i = 0; i < f->driver_count && code == TRP_OK; i++) {
        code = trpi_floor_receive(f->drivers[i], err);
    }
    *units += (double)(f->raw.count * f->driver_count);
    return code;
}

static trp_code do_order(bench *b, void *arg, double *units, trp_error *err) {
    const fleet *f = arg;
    *units += (double)f->order.count;
    return bench_drive(b->rt, &f->order, err);
}

/* ---- Calls ---- */

static trp_code measure_calls(bench *b, bench_figure *figure, bench_deed deed, size_t clients,
                              trp_error *err) {
    fleet *f = trpi_alloc(sizeof(*f));
    size_t actors = actors_here(b), started = 0;
    f->raw = (trpi_floor_drive){.count = CALLS, .window = CALLS, .size = 2};
    f->order.deed = deed;
    f->order.count = CALLS;
    trp_code code = spawn_all(b, f->order.actors, &started, actors, err);
    f->order.actor_count = started;
    /* One client is this process itself; its raw counterpart is a process like any other. */
    if (clients > 1 && code == TRP_OK) {
        code = spawn_all(b, f->clients, &f->client_count, clients, err);
    }
    code = code == TRP_OK ? start_peers(b, f, actors, err) : code;
    code = code == TRP_OK ? start_drivers(b, f, clients, err) : code;
    if (code == TRP_OK) {
        code = bench_compare(b, figure, clients > 1 ? do_orders : do_order, raw_orders, f, err);
    }
    figure->raw_what = "raw ZeroMQ";
    trpi_format(figure->note, sizeof(figure->note), "%zu actors", actors);
    return end_fleet(b, f, code, err);
}

trp_code bench_one_to_many(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = measure_calls(b, figure, BENCH_CALL, 1, err);
    bench_judge_ratio(figure, ">= 0.6 x", 0.6, true);
    return code;
}

trp_code bench_many_to_many(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = measure_calls(b, figure, BENCH_CALL, BENCH_CLIENTS, err);
    bench_judge_ratio(figure, ">= 0.6 x", 0.6, true);
    return code;
}

trp_code bench_many_to_many_objects(bench *b, bench_figure *figure, trp_error *err) {
    return measure_calls(b, figure, BENCH_CALL_WITH_OBJECT, BENCH_CLIENTS, err);
}

/* ---- Puts ---- */

/* A put asks the node's store: beside it clients that ask one raw process. */
trp_code bench_multi_put(bench *b, bench_figure *figure, trp_error *err) {
    fleet *f = trpi_alloc(sizeof(*f));
    f->raw = (trpi_floor_drive){.count = PUTS, .window = WINDOW_ONE, .size = 16};
    f->order = (bench_order){.deed = BENCH_PUT, .count = PUTS, .put_bytes = 1};
    trp_code code = spawn_all(b, f->clients, &f->client_count, BENCH_CLIENTS, err);
    code = code == TRP_OK ? start_peers(b, f, 1, err) : code;
    code = code == TRP_OK ? start_drivers(b, f, BENCH_CLIENTS, err) : code;
    code = code == TRP_OK ? bench_compare(b, figure, do_orders, raw_orders, f, err) : code;
    figure->raw_what = "raw ZeroMQ";
    trpi_format(figure->note, sizeof(figure->note), "%d clients", BENCH_CLIENTS);
    return end_fleet(b, f, code, err);
}

static trp_code do_put_bytes(bench *b, void *arg, double *units, trp_error *err) {
    double puts = 0;
    trp_code code = do_orders(b, arg, &puts, err);
    *units += puts * (double)BENCH_LARGE_BYTES / 1e9;
    return code;
}

static trp_code raw_put_bytes(bench *b, void *arg, double *units, trp_error *err) {
    size_t threads = BENCH_CLIENTS;
    return bench_raw_copies(b, &threads, units, err);
}

trp_code bench_multi_put_bytes(bench *b, bench_figure *figure, trp_error *err) {
    fleet *f = trpi_alloc(sizeof(*f));
    f->order = (bench_order){.deed = BENCH_PUT, .count = 1, .put_bytes = BENCH_LARGE_BYTES};
    trp_code code = spawn_all(b, f->clients, &f->client_count, BENCH_CLIENTS, err);
    code = code == TRP_OK ? bench_compare(b, figure, do_put_bytes, raw_put_bytes, f, err) : code;
    figure->raw_what = "memcpy";
    trpi_format(figure->note, sizeof(figure->note), "%d clients", BENCH_CLIENTS);
    return end_fleet(b, f, code, err);
}

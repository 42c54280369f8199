/* bench_objects.c: one client and the object store, beside a raw message and memcpy. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/bench.h"

#define ROUND 20

/* ---- Small ones ---- */

static trp_code do_get(bench *b, void *arg, double *units, trp_error *err) {
    trp_object object = *(const trp_object *)arg;
    trp_code code = TRP_OK;
    for (int i = 0; i < ROUND && code == TRP_OK; i++) {
        trp_bytes bytes;
        code = trp_object_get(b->rt, object, BENCH_WAIT_MS, &bytes, err);
        if (code == TRP_OK) {
            trp_object_release(b->rt, object);
        }
    }
    *units += ROUND;
    return code;
}

trp_code bench_get(bench *b, bench_figure *figure, trp_error *err) {
    trp_object object;
    trp_code code = trp_put(b->rt, (trp_bytes){"0", 1}, &object, err);
    if (code != TRP_OK) {
        return code;
    }
    code = bench_floor(b, err);
    code = code == TRP_OK ? bench_compare(b, figure, do_get, bench_raw_trips, &object, err) : code;
    figure->raw_what = "raw ZeroMQ";
    trp_object_release(b->rt, object);
    return code;
}

static trp_code do_put(bench *b, void *arg, double *units, trp_error *err) {
    bench_order order = {.deed = BENCH_PUT, .count = ROUND, .put_bytes = 1};
    *units += ROUND;
    return bench_drive(b->rt, &order, err);
}

trp_code bench_put(bench *b, bench_figure *figure, trp_error *err) {
    trp_code code = bench_floor(b, err);
    code = code == TRP_OK ? bench_compare(b, figure, do_put, bench_raw_trips, NULL, err) : code;
    figure->raw_what = "raw ZeroMQ";
    return code;
}

/* ---- Large ones ---- */

typedef struct copier {
    pthread_t thread;
    const char *from;
    char *to;
} copier;

/* Both sides have been touched; kept for the next rounds, as the store keeps its memory. */
static copier copiers[BENCH_CLIENTS];

static void *copy(void *arg) {
    copier *c = arg;
    memcpy(c->to, c->from, BENCH_LARGE_BYTES);
    return NULL;
}

static trp_code prepare(size_t count, trp_error *err) {
    for (size_t i = 0; i < count; i++) {
        if (copiers[i].to == NULL) {
            char *memory = malloc(2 * BENCH_LARGE_BYTES);
            if (memory == NULL) {
                return trpi_fail(err, TRP_ENOMEM, "%zu bytes", 2 * BENCH_LARGE_BYTES);
            }
            memset(memory, 1, 2 * BENCH_LARGE_BYTES);
            copiers[i].to = memory;
            copiers[i].from = memory + BENCH_LARGE_BYTES;
        }
    }
    return TRP_OK;
}

trp_code bench_raw_copies(bench *b, void *threads, double *units, trp_error *err) {
    size_t count = *(const size_t *)threads, made = 0;
    trp_code code = prepare(count, err);
    for (; made < count && code == TRP_OK; made++) {
        if (pthread_create(&copiers[made].thread, NULL, copy, &copiers[made]) != 0) {
            code = trpi_fail(err, TRP_EBUSY, "no thread for memcpy");
            break;
        }
    }
    for (size_t i = 0; i < made; i++) {
        (void)pthread_join(copiers[i].thread, NULL);
    }
    *units += (double)(made * BENCH_LARGE_BYTES) / 1e9;
    return code;
}

static trp_code do_put_bytes(bench *b, void *arg, double *units, trp_error *err) {
    bench_order order = {.deed = BENCH_PUT, .count = 1, .put_bytes = BENCH_LARGE_BYTES};
    *units += (double)BENCH_LARGE_BYTES / 1e9;
    return bench_drive(b->rt, &order, err);
}

trp_code bench_put_bytes(bench *b, bench_figure *figure, trp_error *err) {
    size_t threads = 1;
    trp_code code = bench_compare(b, figure, do_put_bytes, bench_raw_copies, &threads, err);
    figure->raw_what = "memcpy";
    return code;
}

/* bench_actor.c: the actor that is measured, which can be a client itself. */
#include <stdlib.h>
#include <string.h>

#include "actors/bin/bench.h"

static trp_code run_echo(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                         trp_error *err) {
    return trp_buf_append(reply, args.data, args.size);
}

static trp_code run_ok(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                       trp_error *err) {
    return trp_buf_append(reply, "ok", 2);
}

/* Reads the object that its argument names. */
static trp_code run_ok_object(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                              trp_error *err) {
    trp_object object;
    trp_bytes bytes;
    if (args.size != sizeof(object)) {
        return trpi_fail(err, TRP_EINVALID, "an object's number has %zu bytes, not %zu",
                         sizeof(object), args.size);
    }
    memcpy(&object, args.data, sizeof(object));
    trp_runtime *rt = trp_context_runtime(ctx, err);
    trp_code code = rt != NULL ? trp_object_get(rt, object, BENCH_WAIT_MS, &bytes, err) : err->code;
    if (code != TRP_OK) {
        return code;
    }
    trp_object_release(rt, object);
    return trp_buf_append(reply, "ok", 2);
}

static trp_code run_drive(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                          trp_error *err) {
    bench_order order;
    if (args.size != sizeof(order)) {
        return trpi_fail(err, TRP_EINVALID, "an order has %zu bytes, not %zu", sizeof(order),
                         args.size);
    }
    memcpy(&order, args.data, sizeof(order));
    trp_runtime *rt = trp_context_runtime(ctx, err);
    return rt != NULL ? bench_drive(rt, &order, err) : err->code;
}

static const trp_method methods[] = {{"echo", run_echo, NULL},
                                     {"ok", run_ok, NULL},
                                     {"ok_object", run_ok_object, NULL},
                                     {"drive", run_drive, NULL},
                                     {NULL, NULL, NULL}};
static const trp_actor_type bench_type = {.name = "bench", .methods = methods};
const trp_actor_type *const trpi_bench_types[] = {&bench_type, NULL};

/* ---- What a client does ---- */

/* Makes all the calls, then gets all the results. */
static trp_code call_all(trp_runtime *rt, const bench_order *order, const char *method,
                         trp_bytes args, const trp_call_options *options, trp_error *err) {
    trp_ref *refs = trpi_alloc(order->count * sizeof(*refs));
    trp_code code = TRP_OK;
    size_t made = 0;
    for (; made < order->count && code == TRP_OK; made += code == TRP_OK) {
        code = trp_call_with(rt, order->actors[made % order->actor_count], method, args, options,
                             &refs[made], err);
    }
    code = code == TRP_OK ? trp_get_all(rt, refs, made, BENCH_WAIT_MS, NULL, err) : code;
    for (size_t i = 0; i < made; i++) {
        trp_ref_release(rt, refs[i]);
    }
    free(refs);
    return code;
}

static trp_code call_with_object(trp_runtime *rt, const bench_order *order, trp_error *err) {
    trp_object object;
    trp_code code = trp_put(rt, (trp_bytes){"0", 1}, &object, err);
    if (code == TRP_OK) {
        trp_call_options options = {.objects = &object, .object_count = 1};
        code =
            call_all(rt, order, "ok_object", (trp_bytes){&object, sizeof(object)}, &options, err);
        trp_object_release(rt, object);
    }
    return code;
}

static trp_code put_all(trp_runtime *rt, const bench_order *order, trp_error *err) {
    static char *data; /* touched once: what is measured is the way into the store */
    static size_t size;
    if (size < order->put_bytes) {
        free(data);
        data = malloc(order->put_bytes);
        size = data != NULL ? order->put_bytes : 0;
        if (data == NULL) {
            return trpi_fail(err, TRP_ENOMEM, "%llu bytes", (unsigned long long)order->put_bytes);
        }
        memset(data, 1, size);
    }
    trp_code code = TRP_OK;
    for (uint64_t i = 0; i < order->count && code == TRP_OK; i++) {
        trp_object object;
        code = trp_put(rt, (trp_bytes){data, order->put_bytes}, &object, err);
        if (code == TRP_OK) {
            trp_object_release(rt, object);
        }
    }
    return code;
}

trp_code bench_drive(trp_runtime *rt, const bench_order *order, trp_error *err) {
    bool is_call = order->deed != BENCH_PUT;
    if (is_call && (order->actor_count == 0 || order->actor_count > BENCH_ACTORS_MAX)) {
        return trpi_fail(err, TRP_EINVALID, "an order to call %llu actors",
                         (unsigned long long)order->actor_count);
    }
    switch (order->deed) {
    case BENCH_CALL:
        return call_all(rt, order, "ok", (trp_bytes){NULL, 0}, NULL, err);
    case BENCH_CALL_WITH_OBJECT:
        return call_with_object(rt, order, err);
    case BENCH_PUT:
        return put_all(rt, order, err);
    }
    return trpi_fail(err, TRP_EINVALID, "an order of another kind");
}

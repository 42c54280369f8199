/* shared_sum.c: one array in shared memory, summed by four processes. It is written once, by the
 * driver, and read in place by all others on this host; only its number travels. */
#include <inttypes.h>
#include <stdio.h>
#include <troupe/object.h>
#include <troupe/runtime.h>
#include <troupe/value.h>

enum { NUMBERS = 8 << 20, WORKERS = 4, PART = NUMBERS / WORKERS };

static trp_code sum(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply, trp_error *err) {
    trp_object array;
    trp_bytes bytes;
    int64_t first, total = 0;
    (void)state;
    trp_runtime *rt = trp_context_runtime(ctx, err);
    trp_code code =
        rt ? trp_unpack(args, err, "{s:o,s:i}", "array", &array, "first", &first) : err->code;
    if (code == TRP_OK && (first < 0 || first > NUMBERS - PART)) {
        code = trp_raise(err, "RangeError", "no part begins at %" PRId64, first);
    }
    if (code == TRP_OK) {
        code = trp_object_get(rt, array, 10000, &bytes, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    for (const int64_t *at = (const int64_t *)bytes.data + first, *end = at + PART; at < end;
         at++) {
        total += *at;
    }
    trp_object_release(rt, array);
    return trp_pack(reply, err, "i", total);
}

static const trp_method methods[] = {{.name = "sum", .run = sum}, {.name = NULL}};
static const trp_actor_type summer = {.name = "summer", .methods = methods};
static const trp_actor_type *const types[] = {&summer, NULL};

/* The numbers from 0 on, without a copy: straight into the store. */
static trp_code make_array(trp_runtime *rt, trp_object *ret_array, trp_error *err) {
    void *data;
    trp_code code = trp_object_create(rt, NUMBERS * sizeof(int64_t), &data, ret_array, err);
    for (int64_t i = 0; i < NUMBERS && code == TRP_OK; i++) {
        ((int64_t *)data)[i] = i;
    }
    return code == TRP_OK ? trp_object_seal(rt, *ret_array, err) : code;
}

/* A summer and its call; naming the object keeps it until the call is done. */
static trp_code start_sum(trp_runtime *rt, trp_object array, int64_t first, trp_ref *ret_ref,
                          trp_error *err) {
    const trp_call_options options = {.deadline_ms = 30000, .objects = &array, .object_count = 1};
    trp_actor actor;
    trp_buf args = {0};
    trp_code code = trp_spawn(rt, "summer", (trp_bytes){0}, NULL, &actor, err);
    if (code == TRP_OK) {
        code = trp_pack(&args, err, "{s:o,s:i}", "array", array, "first", first);
    }
    if (code == TRP_OK) {
        code = trp_call_with(rt, actor, "sum", trp_buf_bytes(&args), &options, ret_ref, err);
    }
    trp_buf_release(&args);
    return code;
}

int main(void) {
    trp_object array;
    trp_ref refs[WORKERS];
    trp_bytes values[WORKERS];
    trp_runtime *rt;
    trp_error err;
    int64_t total = 0, part;
    trp_code code = trp_init(types, NULL, &rt, &err);
    if (code == TRP_OK) {
        code = make_array(rt, &array, &err);
    }
    for (int i = 0; i < WORKERS && code == TRP_OK; i++) {
        code = start_sum(rt, array, (int64_t)i * PART, &refs[i], &err);
    }
    if (code == TRP_OK) {
        code = trp_get_all(rt, refs, WORKERS, TRP_FOREVER, values, &err);
    }
    for (int i = 0; i < WORKERS && code == TRP_OK; i++) {
        code = trp_unpack(values[i], &err, "i", &part);
        total += part;
    }
    if (code != TRP_OK) {
        return fprintf(stderr, "shared_sum: %s\n", err.message), 1;
    }
    trp_object_release(rt, array);
    printf("%d numbers, %d workers: %" PRId64 ", %s\n", NUMBERS, WORKERS, total,
           total == (int64_t)NUMBERS * (NUMBERS - 1) / 2 ? "right" : "wrong");
    trp_shutdown(&rt);
    return 0;
}

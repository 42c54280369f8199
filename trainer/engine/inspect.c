/* inspect.c: full fp32 weights, whatever the stage: for hashes, tests and tools. */
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "trainer/engine/engine.h"

/* At stages 1 to 3 each rank brings its slice; the whole bucket is on the device for that long. */
trp_code trpi_inspect_masters(trp_zero *engine, int bucket, float *out, trp_error *err) {
    const trpi_memory *memory = &engine->memory;
    const trpi_bucket *b = &engine->layout.buckets[bucket];
    const float *masters = trpi_memory_masters(memory, bucket);
    size_t bytes = (size_t)b->padded * sizeof *out;
    void *box = NULL;
    if (memory->stage == 0) {
        return trp_device_download(engine->device, out, masters, bytes, err);
    }
    trp_code code = trp_device_alloc(engine->device, bytes, &box, err);
    if (code) {
        return code;
    }
    code = trp_op_cast(engine->device,
                       &(trp_cast_args){.count = b->slice,
                                        .x = masters,
                                        .y = (float *)box + engine->rank * b->slice,
                                        .from = TRP_F32,
                                        .to = TRP_F32},
                       err);
    if (!code) {
        code = trp_comm_all_gather(engine->comm, box, b->slice, TRP_F32, err);
    }
    if (!code) {
        code = trp_device_download(engine->device, out, box, bytes, err);
    }
    trp_device_free(engine->device, box);
    return code;
}

static int64_t largest_bucket(const trpi_layout *layout) {
    int64_t largest = 0;
    for (int b = 0; b < layout->bucket_count; b++) {
        largest = TRPI_MAX(largest, layout->buckets[b].padded);
    }
    return largest;
}

/* All ranks are ready, or none starts: a rank that left alone would leave the others waiting. */
static trp_code make_room(trp_zero *engine, bool ready, int64_t elements, float **ret_room,
                          trp_error *err) {
    float *room = ready ? malloc((size_t)elements * sizeof *room) : NULL;
    trp_code code =
        room ? trpi_weights_masters(engine, err) : trpi_fail(err, TRP_ENOMEM, "a bucket's weights");
    trpi_vote vote = {.status = code};
    code = trpi_ballot_agree(&engine->ballot, vote, err);
    if (code) {
        free(room);
        return code;
    }
    *ret_room = room;
    return TRP_OK;
}

/* trpi_inspect_masters(), and when it fails no rank waits for this one. */
static trp_code fetch(trp_zero *engine, int bucket, float *room, trp_error *err) {
    trp_code code = trpi_inspect_masters(engine, bucket, room, err);
    return code ? trpi_engine_break(engine, code, err) : TRP_OK;
}

trp_code trp_zero_weights_hash(trp_zero *engine, char ret_hex[33], trp_error *err) {
    trp_error ignored;
    err = err ? err : &ignored;
    const trpi_layout *layout = &engine->layout;
    trp_code code = trpi_engine_usable(engine, err);
    if (code) {
        return code;
    }
    trpi_hasher *hasher = trpi_hasher_new();
    float *room = NULL;
    code = make_room(engine, hasher != NULL, largest_bucket(layout), &room, err);
    for (int b = 0; !code && b < layout->bucket_count; b++) {
        const trpi_bucket *bucket = &layout->buckets[b];
        code = fetch(engine, b, room, err);
        for (int t = bucket->tensor; !code && t < bucket->tensor + bucket->tensor_count; t++) {
            const trpi_tensor_place *place = &layout->tensors[t];
            trpi_hasher_add(hasher, room + place->offset, (size_t)place->count * sizeof *room);
        }
    }
    if (!code) {
        trpi_hasher_hex(hasher, ret_hex);
    }
    trpi_hasher_free(hasher);
    free(room);
    return code;
}

trp_code trp_zero_get_tensor(trp_zero *engine, const char *name, float *out, int64_t count,
                             trp_error *err) {
    trp_error ignored;
    err = err ? err : &ignored;
    const trpi_layout *layout = &engine->layout;
    int tensor = trpi_layout_find(layout, engine->model, name);
    float *room = NULL;
    if (tensor < 0) {
        return trpi_fail(err, TRP_ENOTFOUND, "no tensor is named %s", name);
    }
    const trpi_tensor_place *place = &layout->tensors[tensor];
    if (count != place->count) {
        return trpi_fail(err, TRP_EINVALID, "%s has %lld elements, not %lld", name,
                         (long long)place->count, (long long)count);
    }
    trp_code code = trpi_engine_usable(engine, err);
    if (!code) {
        code = make_room(engine, true, layout->buckets[place->bucket].padded, &room, err);
    }
    if (!code) {
        code = fetch(engine, place->bucket, room, err);
    }
    if (!code) {
        memcpy(out, room + place->offset, (size_t)count * sizeof *out);
    }
    free(room);
    return code;
}

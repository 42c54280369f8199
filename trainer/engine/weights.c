/* weights.c: where an engine's weights come from when no checkpoint brings them. */
#include <stdlib.h>

#include "trainer/engine/engine.h"
#include "trainer/engine/random.h"

#define CHUNK 16384

static trp_code init_tensor(trp_zero *engine, int tensor, float *chunk, trp_error *err) {
    const trpi_tensor_place *place = &engine->layout.tensors[tensor];
    int64_t from = trpi_memory_kept_from(&engine->memory, place->bucket);
    int64_t kept = trpi_memory_kept_count(&engine->memory, place->bucket);
    trpi_piece piece = trpi_layout_piece(&engine->layout, tensor, from, kept);
    float *masters = trpi_memory_masters(&engine->memory, place->bucket);
    for (int64_t done = 0; done < piece.count; done += CHUNK) {
        int64_t count = TRPI_MIN(CHUNK, piece.count - done);
        trpi_random_init(place->param, engine->seed, (uint64_t)tensor, piece.tensor_offset + done,
                         count, chunk);
        trp_code code =
            trp_device_upload(engine->device, masters + (piece.bucket_offset - from) + done, chunk,
                              (size_t)count * sizeof *chunk, err);
        if (code) {
            return code;
        }
    }
    return TRP_OK;
}

trp_code trpi_weights_masters(trp_zero *engine, trp_error *err) {
    if (engine->has_masters) {
        return TRP_OK;
    }
    float *chunk = malloc(CHUNK * sizeof *chunk);
    trp_code code = chunk ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "initial weights");
    for (int t = 0; !code && t < engine->layout.tensor_count; t++) {
        code = init_tensor(engine, t, chunk, err);
    }
    free(chunk);
    engine->has_masters = !code;
    return code;
}

trp_code trpi_weights_params(trp_zero *engine, trp_error *err) {
    if (engine->has_params) {
        return TRP_OK;
    }
    trp_code code = trpi_update_publish(engine, err);
    engine->has_params = !code;
    return code;
}

/* load.c: a checkpoint of any world size and stage, into this engine.
 *
 * Everything that can be seen without reading the data is checked first, and all ranks agree that
 * nothing is wrong before any of them changes. Checksums are compared while copying; what fails
 * then breaks the engine, on all ranks. What is copied are runs of elements of tensors, so it does
 * not matter how many ranks wrote the checkpoint or at which stage. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/engine/engine.h"
#include "trainer/engine/shard.h"

/* ---- Is it a checkpoint of this model? ---- */

static void show_shape(char *out, size_t size, const int64_t *shape, int dims) {
    size_t used = 0;
    trpi_format(out, size, "()");
    for (int d = 0; d < dims && used < size; d++) {
        trpi_format(out + used, size - used, "%s%" PRId64 "%s", d == 0 ? "(" : ", ", shape[d],
                    d == dims - 1 ? ")" : "");
        used += strlen(out + used);
    }
}

static trp_code check_tensor(const trpi_tensor_place *place, const trpi_shard_tensor *found,
                             trp_error *err) {
    const trp_param *param = place->param;
    if (strcmp(param->name, found->name) != 0) {
        return trpi_fail(err, TRP_ECORRUPT, "found tensor %s where this model has %s", found->name,
                         param->name);
    }
    size_t bytes = (size_t)param->dims * sizeof param->shape[0];
    if (param->dims == found->dims && memcmp(param->shape, found->shape, bytes) == 0) {
        return TRP_OK;
    }
    char expected[128], shape[128];
    show_shape(expected, sizeof expected, param->shape, param->dims);
    show_shape(shape, sizeof shape, found->shape, found->dims);
    return trpi_fail(err, TRP_ECORRUPT, "tensor %s: expected shape %s, found %s", param->name,
                     expected, shape);
}

static const trpi_shard_alias *find_alias(const trpi_shards *shards, const char *name) {
    for (size_t a = 0; a < shards->alias_count; a++) {
        if (strcmp(shards->aliases[a].name, name) == 0) {
            return &shards->aliases[a];
        }
    }
    return NULL;
}

/* Weights that were tied when they were saved and are not now, or the other way round, would train
 * another model than the one that was saved. */
static trp_code check_aliases(const trp_model *model, const trpi_shards *shards, trp_error *err) {
    size_t tied = 0;
    for (int u = 0; u < model->unit_count; u++) {
        for (int p = 0; p < model->units[u].param_count; p++) {
            const trp_param *param = &model->units[u].params[p];
            const trpi_shard_alias *alias = find_alias(shards, param->name);
            tied += param->tied_to != NULL;
            if (param->tied_to && (!alias || strcmp(alias->of, param->tied_to) != 0)) {
                return trpi_fail(
                    err, TRP_ECORRUPT,
                    "tensor %s is tied to %s in this model, and to %s in the checkpoint",
                    param->name, param->tied_to, alias ? alias->of : "none");
            }
            if (!param->tied_to && alias) {
                return trpi_fail(err, TRP_ECORRUPT,
                                 "tensor %s is tied to %s in the checkpoint, and to none in this "
                                 "model",
                                 param->name, alias->of);
            }
        }
    }
    if (tied != shards->alias_count) {
        return trpi_fail(err, TRP_ECORRUPT, "%zu tensors are tied in this model, %zu there", tied,
                         shards->alias_count);
    }
    return TRP_OK;
}

static trp_code check_model(const trp_zero *engine, const trpi_shards *shards, trp_error *err) {
    const trpi_layout *layout = &engine->layout;
    trp_code code = check_aliases(engine->model, shards, err);
    size_t tensors = TRPI_MIN((size_t)layout->tensor_count, shards->tensor_count);
    for (size_t t = 0; !code && t < tensors; t++) {
        code = check_tensor(&layout->tensors[t], &shards->tensors[t], err);
    }
    if (!code && (size_t)layout->tensor_count != shards->tensor_count) {
        code = trpi_fail(err, TRP_ECORRUPT, "%zu tensors, this model has %d", shards->tensor_count,
                         layout->tensor_count);
    }
    return code;
}

/* ---- Copying ---- */

/* The part of one shard's run that this rank keeps, of one tensor. */
typedef struct overlap {
    int bucket;
    int64_t skip;  /* elements into the run */
    int64_t at;    /* elements into the kept part of the bucket */
    int64_t count; /* 0: none */
} overlap;

static overlap find_overlap(const trp_zero *engine, int tensor, const trpi_shard_slice *run) {
    const trpi_memory *memory = &engine->memory;
    int bucket = engine->layout.tensors[tensor].bucket;
    int64_t from = trpi_memory_kept_from(memory, bucket);
    trpi_piece kept =
        trpi_layout_piece(&engine->layout, tensor, from, trpi_memory_kept_count(memory, bucket));
    int64_t begin = TRPI_MAX(kept.tensor_offset, run->offset);
    int64_t end = TRPI_MIN(kept.tensor_offset + kept.count, run->offset + run->count);
    if (begin >= end) {
        return (overlap){0};
    }
    return (overlap){.bucket = bucket,
                     .skip = begin - run->offset,
                     .at = kept.bucket_offset - from + (begin - kept.tensor_offset),
                     .count = end - begin};
}

static trp_code copy_run(trp_zero *engine, const trpi_shards *shards, int rank, int tensor,
                         float *room, trp_error *err) {
    const trpi_memory *memory = &engine->memory;
    overlap o = find_overlap(engine, tensor, &shards->slices[rank][tensor]);
    if (o.count == 0) {
        return TRP_OK;
    }
    float *const states[] = {
        [TRPI_SHARD_MASTER] = trpi_memory_masters(memory, o.bucket),
        [TRPI_SHARD_M] = trpi_memory_m(memory, o.bucket),
        [TRPI_SHARD_V] = trpi_memory_v(memory, o.bucket),
    };
    trp_code code = TRP_OK;
    for (int s = 0; !code && s < TRPI_SHARD_STATES; s++) {
        /* The whole run is read although a part may do: its checksum covers all of it. */
        code = trpi_shards_read(shards, rank, (size_t)tensor, (trpi_shard_state)s, room, err);
        if (!code) {
            code = trp_device_upload(engine->device, states[s] + o.at, room + o.skip,
                                     (size_t)o.count * sizeof *room, err);
        }
    }
    return code;
}

static int64_t longest_run(const trpi_shards *shards) {
    int64_t longest = 1;
    for (int r = 0; r < shards->world; r++) {
        for (size_t t = 0; t < shards->tensor_count; t++) {
            longest = TRPI_MAX(longest, shards->slices[r][t].count);
        }
    }
    return longest;
}

static trp_code copy_all(trp_zero *engine, const trpi_shards *shards, trp_error *err) {
    float *room = malloc((size_t)longest_run(shards) * sizeof *room);
    trp_code code = room ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "loading");
    for (int r = 0; !code && r < shards->world; r++) {
        for (int t = 0; !code && t < engine->layout.tensor_count; t++) {
            code = copy_run(engine, shards, r, t, room, err);
        }
    }
    free(room);
    return code;
}

/* All ranks have opened the same moment of the same run. */
static trp_code agree(trp_zero *engine, const trpi_shards *shards, trp_code status,
                      trp_error *err) {
    trpi_vote vote = {
        .status = status, .number = (int64_t)shards->updates, .step = (int64_t)shards->step};
    trp_code code = trpi_ballot_agree(&engine->ballot, vote, err);
    for (int r = 0; !code && r < engine->world; r++) {
        const trpi_vote *theirs = &engine->ballot.votes[r];
        if (theirs->number != vote.number || theirs->step != vote.step) {
            code =
                trpi_fail(err, TRP_EINVALID,
                          "rank %d loads a checkpoint of step %" PRId64 ", this rank of %" PRId64,
                          r, theirs->step, vote.step);
        }
    }
    return code;
}

trp_code trp_zero_load(trp_zero *engine, const char *dir, trp_zero_position *ret_position,
                       trp_error *err) {
    trp_error ignored;
    err = err ? err : &ignored;
    trpi_shards shards = {0};
    trp_code code = trpi_engine_usable(engine, err);
    if (code) {
        return code;
    }
    code = trpi_shards_open(dir, &shards, err);
    if (!code) {
        code = check_model(engine, &shards, err);
        if (code) {
            (void)trpi_context(err, code, "%s", dir);
        }
    }
    code = agree(engine, &shards, code, err);
    if (code) {
        trpi_shards_close(&shards);
        return code;
    }
    code = agree(engine, &shards, copy_all(engine, &shards, err), err);
    if (code) { /* some of the state is the checkpoint's, some is not; all ranks know it */
        engine->broken = *err;
    } else {
        engine->has_masters = true;
        engine->has_params = false;
        code = trpi_weights_params(engine, err);
        if (code) {
            (void)trpi_engine_break(engine, code, err);
        }
    }
    if (!code) {
        engine->steps = shards.step;
        engine->updates = shards.updates;
        engine->skipped = shards.skipped;
        engine->seed = shards.seed;
        if (ret_position) {
            *ret_position = shards.position;
        }
    }
    trpi_shards_close(&shards);
    return code;
}

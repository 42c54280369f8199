#include "trainer/engine/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/sys/file.h"

trp_code trpi_shard_tensor_name(trpi_shard_state state, const char *name, trp_buf *out,
                                trp_error *err) {
    static const char *const prefixes[] = {"master", "exp_avg", "exp_avg_sq"};
    trp_buf_clear(out);
    trp_code code = trp_buf_printf(out, "%s.%s", prefixes[state], name);
    return code ? trpi_fail(err, code, "name of a tensor") : TRP_OK;
}

void trpi_shards_close(trpi_shards *shards) {
    for (int r = 0; r < shards->world; r++) {
        if (shards->files) {
            trpi_tensor_file_close(shards->files[r]);
        }
        if (shards->slices) {
            free(shards->slices[r]);
        }
    }
    free(shards->files);
    free(shards->slices);
    trpi_shard_meta lists = {.tensors = shards->tensors,
                             .tensor_count = shards->tensor_count,
                             .aliases = shards->aliases,
                             .alias_count = shards->alias_count};
    trpi_shard_meta_release(&lists);
    *shards = (trpi_shards){0};
}

/* ---- Which files there are ---- */

/* Strict: the name must be what TRPI_SHARD_NAME makes of the two numbers. */
static bool parse_name(const char *name, int *ret_rank, int *ret_world) {
    char again[64];
    int rank, world;
    if (sscanf(name, "shard-%5d-of-%5d.safetensors", &rank, &world) != 2 || rank < 0 || world < 1) {
        return false;
    }
    trpi_format(again, sizeof again, TRPI_SHARD_NAME, rank, world);
    *ret_rank = rank;
    *ret_world = world;
    return strcmp(name, again) == 0;
}

/* The world size that the file names speak of; all must agree. */
static trp_code find_world(const char *dir, int *ret_world, trp_error *err) {
    char **names = NULL;
    size_t count = 0;
    int world = 0;
    trp_code code = trpi_dir_list(dir, &names, &count, err);
    for (size_t i = 0; !code && i < count; i++) {
        int rank, of;
        if (!parse_name(names[i], &rank, &of)) {
            continue;
        }
        if (rank >= of || (world && of != world)) {
            code = trpi_fail(err, TRP_ECORRUPT, "%s/%s: this shard is not of the same checkpoint",
                             dir, names[i]);
        }
        world = of;
    }
    trpi_names_free(names, count);
    if (!code && world == 0) {
        code = trpi_fail(err, TRP_ENOTFOUND, "%s: there are no shards", dir);
    }
    *ret_world = world;
    return code;
}

/* ---- One file ---- */

static trp_code check_same_tensors(const trpi_shards *shards, const trpi_shard_meta *meta,
                                   trp_error *err) {
    for (size_t t = 0; t < TRPI_MIN(meta->tensor_count, shards->tensor_count); t++) {
        const trpi_shard_tensor *a = &shards->tensors[t], *b = &meta->tensors[t];
        if (strcmp(a->name, b->name) != 0 || a->dims != b->dims ||
            memcmp(a->shape, b->shape, sizeof a->shape) != 0) {
            return trpi_fail(err, TRP_ECORRUPT, "tensor %zu is %s, but %s in the first shard", t,
                             b->name, a->name);
        }
    }
    if (meta->tensor_count != shards->tensor_count) {
        return trpi_fail(err, TRP_ECORRUPT, "%zu tensors, but %zu in the first shard",
                         meta->tensor_count, shards->tensor_count);
    }
    return TRP_OK;
}

static trp_code check_same_moment(const trpi_shards *shards, const trpi_shard_meta *meta,
                                  trp_error *err) {
    if (meta->step != shards->step || meta->updates != shards->updates ||
        meta->skipped != shards->skipped || meta->seed != shards->seed ||
        memcmp(&meta->position, &shards->position, sizeof meta->position) != 0) {
        return trpi_fail(err, TRP_ECORRUPT,
                         "it is of step %" PRIu64 " (%" PRIu64 " updates), the first shard of step "
                         "%" PRIu64 " (%" PRIu64 " updates), or of another run",
                         meta->step, meta->updates, shards->step, shards->updates);
    }
    return TRP_OK;
}

/* Takes over from meta what is the same in all shards. */
static void adopt(trpi_shards *shards, trpi_shard_meta *meta) {
    shards->step = meta->step;
    shards->updates = meta->updates;
    shards->skipped = meta->skipped;
    shards->seed = meta->seed;
    shards->position = meta->position;
    shards->tensors = meta->tensors;
    shards->tensor_count = meta->tensor_count;
    shards->aliases = meta->aliases;
    shards->alias_count = meta->alias_count;
    meta->tensors = NULL;
    meta->aliases = NULL;
}

static trp_code check_tensor(const trpi_tensor_file *file, const trpi_shard_tensor *tensor,
                             int64_t count, trp_buf *name, trp_error *err) {
    for (int s = 0; count > 0 && s < TRPI_SHARD_STATES; s++) {
        trp_code code = trpi_shard_tensor_name((trpi_shard_state)s, tensor->name, name, err);
        if (code) {
            return code;
        }
        const char *text = (const char *)name->data;
        const trpi_tensor *found = trpi_tensor_file_find(file, text);
        if (!found) {
            return trpi_fail(err, TRP_ECORRUPT, "tensor %s is missing", text);
        }
        if (found->dtype != TRPI_STORED_F32 || found->elements != count) {
            return trpi_fail(err, TRP_ECORRUPT,
                             "tensor %s: expected F32 with %" PRId64 " elements, found %s with "
                             "%" PRId64,
                             text, count, trpi_stored_name(found->dtype), found->elements);
        }
    }
    return TRP_OK;
}

static trp_code take_meta(trpi_shards *shards, int rank, trpi_shard_meta *meta, trp_error *err) {
    trp_buf name = {0};
    trp_code code = TRP_OK;
    if (meta->rank != rank || meta->world != shards->world) {
        return trpi_fail(err, TRP_ECORRUPT, "inside it is shard %" PRId64 " of %" PRId64,
                         meta->rank, meta->world);
    }
    if (rank == 0) {
        adopt(shards, meta);
    } else {
        code = check_same_moment(shards, meta, err);
        if (!code) {
            code = check_same_tensors(shards, meta, err);
        }
    }
    shards->slices[rank] = meta->slices;
    meta->slices = NULL;
    for (size_t t = 0; !code && t < shards->tensor_count; t++) {
        code = check_tensor(shards->files[rank], &shards->tensors[t], shards->slices[rank][t].count,
                            &name, err);
    }
    trp_buf_release(&name);
    return code;
}

static trp_code open_shard(trpi_shards *shards, const char *dir, int rank, trp_error *err) {
    char name[64];
    trp_buf path = {0};
    trpi_shard_meta meta = {0};
    trpi_format(name, sizeof name, TRPI_SHARD_NAME, rank, shards->world);
    trp_code code = trp_buf_printf(&path, "%s/%s", dir, name);
    if (code) {
        return trpi_fail(err, code, "%s", dir);
    }
    const char *text = (const char *)path.data;
    code = trpi_tensor_file_open(text, &shards->files[rank], err);
    if (code == TRP_ENOTFOUND) {
        code = trpi_fail(err, TRP_ECORRUPT, "%s is missing, the shard of rank %d", text, rank);
    } else if (!code) {
        const char *json = trpi_tensor_file_meta(shards->files[rank], TRPI_SHARD_META);
        code = json ? trpi_shard_meta_decode(json, &meta, err)
                    : trpi_fail(err, TRP_ECORRUPT, "it has no metadata of troupe's");
        if (!code) {
            code = take_meta(shards, rank, &meta, err);
        }
        if (code) {
            (void)trpi_context(err, code, "%s", text);
        }
    }
    trpi_shard_meta_release(&meta);
    trp_buf_release(&path);
    return code;
}

/* ---- All files ---- */

/* Shards lie in rank order in every tensor, so one walk sees holes and overlaps. */
static trp_code check_coverage(const trpi_shards *shards, const char *dir, trp_error *err) {
    for (size_t t = 0; t < shards->tensor_count; t++) {
        int64_t covered = 0;
        for (int r = 0; r < shards->world; r++) {
            const trpi_shard_slice *slice = &shards->slices[r][t];
            if (slice->count == 0) {
                continue;
            }
            if (slice->offset != covered) {
                return trpi_fail(err, TRP_ECORRUPT,
                                 "%s: tensor %s: the shard of rank %d starts at element %" PRId64
                                 ", expected %" PRId64,
                                 dir, shards->tensors[t].name, r, slice->offset, covered);
            }
            covered += slice->count;
        }
        if (covered != shards->tensors[t].elements) {
            return trpi_fail(err, TRP_ECORRUPT,
                             "%s: tensor %s: the shards have %" PRId64 " of %" PRId64 " elements",
                             dir, shards->tensors[t].name, covered, shards->tensors[t].elements);
        }
    }
    return TRP_OK;
}

trp_code trpi_shards_open(const char *dir, trpi_shards *ret_shards, trp_error *err) {
    trpi_shards shards = {0};
    int world = 0;
    trp_code code = find_world(dir, &world, err);
    if (code) {
        return code;
    }
    shards.files = calloc((size_t)world, sizeof *shards.files);
    shards.slices = calloc((size_t)world, sizeof *shards.slices);
    shards.world = world;
    if (!shards.files || !shards.slices) {
        code = trpi_fail(err, TRP_ENOMEM, "%s: %d shards", dir, world);
    }
    for (int r = 0; !code && r < world; r++) {
        code = open_shard(&shards, dir, r, err);
    }
    if (!code) {
        code = check_coverage(&shards, dir, err);
    }
    if (code) {
        trpi_shards_close(&shards);
        return code;
    }
    *ret_shards = shards;
    return TRP_OK;
}

trp_code trpi_shards_read(const trpi_shards *shards, int rank, size_t tensor,
                          trpi_shard_state state, float *out, trp_error *err) {
    trp_buf name = {0};
    trp_code code = trpi_shard_tensor_name(state, shards->tensors[tensor].name, &name, err);
    if (!code) {
        const trpi_tensor *found =
            trpi_tensor_file_find(shards->files[rank], (const char *)name.data);
        TRP_ASSERT(found); /* looked up when it was opened */
        code = trpi_tensor_file_read_all(shards->files[rank], found, out, err);
    }
    trp_buf_release(&name);
    return code;
}

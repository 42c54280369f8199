/* shard_meta.c: what a shard says of itself, from JSON. Every number is checked: it came from disk.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/engine/shard.h"

#define ELEMENTS_MAX ((int64_t)1 << 48)

void trpi_shard_meta_release(trpi_shard_meta *meta) {
    for (size_t t = 0; meta->tensors && t < meta->tensor_count; t++) {
        free(meta->tensors[t].name);
    }
    for (size_t a = 0; meta->aliases && a < meta->alias_count; a++) {
        free(meta->aliases[a].name);
        free(meta->aliases[a].of);
    }
    free(meta->tensors);
    free(meta->slices);
    free(meta->aliases);
    *meta = (trpi_shard_meta){0};
}

static trp_code read_count(json_t *object, const char *where, const char *key, uint64_t *ret_value,
                           trp_error *err) {
    int64_t value = 0;
    trp_code code = trpi_json_i64(object, where, key, true, &value, err);
    if (!code && value < 0) {
        code = trpi_fail(err, TRP_ECORRUPT, "%s.%s: %" PRId64 " is negative", where, key, value);
    }
    *ret_value = (uint64_t)value;
    return code;
}

/* A text, because JSON's readers lose the upper bits of large numbers. */
static trp_code read_u64(json_t *object, const char *where, const char *key, uint64_t *ret_value,
                         trp_error *err) {
    const char *text = NULL;
    trp_code code = trpi_json_text(object, where, key, true, &text, err);
    if (!code && !trpi_parse_u64(text, UINT64_MAX, ret_value)) {
        code = trpi_fail(err, TRP_ECORRUPT, "%s.%s: \"%s\" is no number", where, key, text);
    }
    return code;
}

static trp_code read_name(json_t *object, const char *where, const char *key, char **ret_name,
                          trp_error *err) {
    const char *text = NULL;
    trp_code code = trpi_json_text(object, where, key, true, &text, err);
    if (code) {
        return code;
    }
    *ret_name = strdup(text);
    return *ret_name ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "%s.%s", where, key);
}

static trp_code read_shape(json_t *object, trpi_shard_tensor *tensor, trp_error *err) {
    json_t *shape = json_object_get(object, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > TRP_SHAPE_MAX) {
        return trpi_fail(err, TRP_ECORRUPT, "%s: its shape is no list of at most %d numbers",
                         tensor->name, TRP_SHAPE_MAX);
    }
    tensor->dims = (int)json_array_size(shape);
    tensor->elements = 1;
    for (int d = 0; d < tensor->dims; d++) {
        json_t *extent = json_array_get(shape, (size_t)d);
        tensor->shape[d] = json_integer_value(extent);
        if (tensor->shape[d] < 1 || tensor->shape[d] > ELEMENTS_MAX / tensor->elements) {
            return trpi_fail(err, TRP_ECORRUPT, "%s: dimension %d of its shape is out of range",
                             tensor->name, d);
        }
        tensor->elements *= tensor->shape[d];
    }
    return TRP_OK;
}

static trp_code read_tensor(json_t *object, trpi_shard_tensor *tensor, trpi_shard_slice *slice,
                            trp_error *err) {
    trp_code code = read_name(object, "tensors", "name", &tensor->name, err);
    if (!code) {
        code = read_shape(object, tensor, err);
    }
    if (!code) {
        code = trpi_json_i64(object, tensor->name, "offset", true, &slice->offset, err);
    }
    if (!code) {
        code = trpi_json_i64(object, tensor->name, "count", true, &slice->count, err);
    }
    if (!code && (slice->offset < 0 || slice->count < 0 || slice->offset > tensor->elements ||
                  slice->count > tensor->elements - slice->offset)) {
        code = trpi_fail(err, TRP_ECORRUPT, "%s: elements %" PRId64 " + %" PRId64 " of %" PRId64,
                         tensor->name, slice->offset, slice->count, tensor->elements);
    }
    return code;
}

static trp_code read_lists(json_t *root, trpi_shard_meta *meta, trp_error *err) {
    json_t *tensors = json_object_get(root, "tensors");
    json_t *aliases = json_object_get(root, "aliases");
    if (!json_is_array(tensors) || !json_is_array(aliases)) {
        return trpi_fail(err, TRP_ECORRUPT, "tensors and aliases must be lists");
    }
    meta->tensor_count = json_array_size(tensors);
    meta->alias_count = json_array_size(aliases);
    meta->tensors = calloc(meta->tensor_count + 1, sizeof *meta->tensors);
    meta->slices = calloc(meta->tensor_count + 1, sizeof *meta->slices);
    meta->aliases = calloc(meta->alias_count + 1, sizeof *meta->aliases);
    if (!meta->tensors || !meta->slices || !meta->aliases) {
        return trpi_fail(err, TRP_ENOMEM, "tensor list");
    }
    trp_code code = TRP_OK;
    for (size_t t = 0; !code && t < meta->tensor_count; t++) {
        code = read_tensor(json_array_get(tensors, t), &meta->tensors[t], &meta->slices[t], err);
    }
    for (size_t a = 0; !code && a < meta->alias_count; a++) {
        json_t *alias = json_array_get(aliases, a);
        code = read_name(alias, "aliases", "name", &meta->aliases[a].name, err);
        if (!code) {
            code = read_name(alias, "aliases", "of", &meta->aliases[a].of, err);
        }
    }
    return code;
}

static trp_code read_position(json_t *root, trp_zero_position *position, trp_error *err) {
    json_t *object = json_object_get(root, "position");
    trp_code code = read_count(object, "position", "epoch", &position->epoch, err);
    if (!code) {
        code = read_count(object, "position", "sample", &position->sample, err);
    }
    if (!code) {
        code = read_u64(object, "position", "data_seed", &position->data_seed, err);
    }
    return code;
}

static trp_code read_root(json_t *root, trpi_shard_meta *meta, trp_error *err) {
    const char *where = "metadata";
    int64_t version = 0;
    trp_code code = trpi_json_i64(root, where, "version", true, &version, err);
    if (!code && version != TRPI_SHARD_VERSION) {
        return trpi_fail(err, TRP_EUNSUPPORTED, "version %" PRId64 ", this program reads %d",
                         version, TRPI_SHARD_VERSION);
    }
    if (!code) {
        code = trpi_json_i64(root, where, "rank", true, &meta->rank, err);
    }
    if (!code) {
        code = trpi_json_i64(root, where, "world", true, &meta->world, err);
    }
    if (!code) {
        code = read_count(root, where, "step", &meta->step, err);
    }
    if (!code) {
        code = read_count(root, where, "updates", &meta->updates, err);
    }
    if (!code) {
        code = read_count(root, where, "skipped", &meta->skipped, err);
    }
    if (!code) {
        code = read_u64(root, where, "seed", &meta->seed, err);
    }
    if (!code) {
        code = read_position(root, &meta->position, err);
    }
    return code ? code : read_lists(root, meta, err);
}

trp_code trpi_shard_meta_decode(const char *text, trpi_shard_meta *ret_meta, trp_error *err) {
    trpi_shard_meta meta = {0};
    trp_error inner = {0};
    json_t *root = NULL;
    trp_code code = trpi_json_parse(text, strlen(text), "metadata", &root, &inner);
    if (!code) {
        code = read_root(root, &meta, &inner);
    }
    json_decref(root);
    if (code) {
        trpi_shard_meta_release(&meta);
        /* JSON that is not as it should be is an invalid argument to its reader; here it is damage.
         */
        return trpi_fail(err, code == TRP_EINVALID ? TRP_ECORRUPT : code, "%s", inner.message);
    }
    *ret_meta = meta;
    return TRP_OK;
}

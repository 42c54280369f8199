#include "trainer/engine/layout.h"

#include <stdlib.h>
#include <string.h>

static int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

static int count_params(const trp_model *model) {
    int count = 0;
    for (int u = 0; u < model->unit_count; u++) {
        count += model->units[u].param_count;
    }
    return count;
}

/* One row of tensor_of per unit; the rows lie in one block behind the first. */
static bool make_tensor_of(trpi_layout *layout, const trp_model *model, int params) {
    layout->tensor_of = calloc((size_t)model->unit_count + 1, sizeof *layout->tensor_of);
    int *rows = calloc((size_t)params + 1, sizeof *rows);
    if (!layout->tensor_of || !rows) {
        free(rows);
        return false;
    }
    layout->tensor_of[0] = rows;
    for (int u = 0; u < model->unit_count; u++) {
        layout->tensor_of[u + 1] = layout->tensor_of[u] + model->units[u].param_count;
    }
    return true;
}

static int find_tensor(const trpi_layout *layout, const char *name) {
    for (int t = 0; t < layout->tensor_count; t++) {
        if (strcmp(layout->tensors[t].param->name, name) == 0) {
            return t;
        }
    }
    return -1;
}

/* Lists the tensors and, for each parameter, which one it is. */
static void list_tensors(trpi_layout *layout, const trp_model *model) {
    for (int u = 0; u < model->unit_count; u++) {
        const trpi_unit *unit = &model->units[u];
        for (int p = 0; p < unit->param_count; p++) {
            const trp_param *param = &unit->params[p];
            int at;
            if (param->tied_to) {
                at = find_tensor(layout, param->tied_to); /* trp_model_add() made sure of it */
                TRP_ASSERT(at >= 0);
                layout->tensors[at].shared = true;
            } else {
                at = layout->tensor_count++;
                layout->tensors[at] = (trpi_tensor_place){
                    .param = param, .unit = u, .count = trpi_param_elements(param)};
                layout->parameters += layout->tensors[at].count;
            }
            layout->tensor_of[u][p] = at;
        }
    }
}

/* Whether the tensor goes into the bucket that is being filled. */
static bool fits(const trpi_bucket *bucket, const trpi_tensor_place *last,
                 const trpi_tensor_place *tensor, int64_t bucket_elements) {
    return bucket && bucket->unit == tensor->unit && !last->shared && !tensor->shared &&
           round_up(bucket->count, TRPI_LAYOUT_ALIGN) + tensor->count <= bucket_elements;
}

static void fill_buckets(trpi_layout *layout, int64_t bucket_elements) {
    trpi_bucket *bucket = NULL;
    for (int t = 0; t < layout->tensor_count; t++) {
        trpi_tensor_place *tensor = &layout->tensors[t];
        if (!fits(bucket, tensor - (t > 0), tensor, bucket_elements)) {
            bucket = &layout->buckets[layout->bucket_count++];
            *bucket = (trpi_bucket){.unit = tensor->unit, .last_unit = tensor->unit, .tensor = t};
        }
        tensor->bucket = layout->bucket_count - 1;
        tensor->offset = round_up(bucket->count, TRPI_LAYOUT_ALIGN);
        bucket->count = tensor->offset + tensor->count;
        bucket->tensor_count++;
    }
}

static void cut_buckets(trpi_layout *layout) {
    int64_t start = 0, slice_start = 0;
    for (int b = 0; b < layout->bucket_count; b++) {
        trpi_bucket *bucket = &layout->buckets[b];
        bucket->padded = round_up(bucket->count, (int64_t)layout->world * TRPI_LAYOUT_ALIGN);
        bucket->slice = bucket->padded / layout->world;
        bucket->start = start;
        bucket->slice_start = slice_start;
        start += bucket->padded;
        slice_start += bucket->slice;
    }
    layout->padded = start;
}

static void note_last_users(trpi_layout *layout, const trp_model *model) {
    for (int u = 0; u < model->unit_count; u++) {
        for (int p = 0; p < model->units[u].param_count; p++) {
            int b = layout->tensors[layout->tensor_of[u][p]].bucket;
            layout->buckets[b].last_unit = TRPI_MAX(layout->buckets[b].last_unit, u);
        }
    }
}

trp_code trpi_layout_init(const trp_model *model, int world, int64_t bucket_elements,
                          trpi_layout *ret_layout, trp_error *err) {
    TRP_ASSERT(world >= 1 && bucket_elements >= 1);
    int params = count_params(model);
    trpi_layout layout = {.world = world, .unit_count = model->unit_count};
    if (params == 0) {
        return trpi_fail(err, TRP_EINVALID, "model %s has no parameters", model->name);
    }
    layout.tensors = calloc((size_t)params, sizeof *layout.tensors);
    layout.buckets = calloc((size_t)params, sizeof *layout.buckets);
    if (!layout.tensors || !layout.buckets || !make_tensor_of(&layout, model, params)) {
        trpi_layout_release(&layout);
        return trpi_fail(err, TRP_ENOMEM, "layout of model %s", model->name);
    }
    list_tensors(&layout, model);
    fill_buckets(&layout, bucket_elements);
    cut_buckets(&layout);
    note_last_users(&layout, model);
    *ret_layout = layout;
    return TRP_OK;
}

void trpi_layout_release(trpi_layout *layout) {
    if (layout->tensor_of) {
        free(layout->tensor_of[0]);
    }
    free(layout->tensor_of);
    free(layout->tensors);
    free(layout->buckets);
    *layout = (trpi_layout){0};
}

trpi_piece trpi_layout_piece(const trpi_layout *layout, int tensor, int64_t from, int64_t count) {
    const trpi_tensor_place *place = &layout->tensors[tensor];
    int64_t begin = TRPI_MAX(from, place->offset);
    int64_t end = TRPI_MIN(from + count, place->offset + place->count);
    if (begin >= end) {
        return (trpi_piece){0};
    }
    return (trpi_piece){begin - place->offset, begin, end - begin};
}

trpi_piece trpi_layout_owned(const trpi_layout *layout, int tensor, int rank) {
    const trpi_bucket *bucket = &layout->buckets[layout->tensors[tensor].bucket];
    return trpi_layout_piece(layout, tensor, rank * bucket->slice, bucket->slice);
}

int trpi_layout_find(const trpi_layout *layout, const trp_model *model, const char *name) {
    for (int u = 0; u < model->unit_count; u++) {
        for (int p = 0; p < model->units[u].param_count; p++) {
            if (strcmp(model->units[u].params[p].name, name) == 0) {
                return layout->tensor_of[u][p];
            }
        }
    }
    return -1;
}

#include "trainer/model/model.h"

#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX ((int64_t)1 << 48)

trp_code trp_model_new(const char *name, const trp_model_limits *limits, trp_model **ret_model,
                       trp_error *err) {
    trp_model *model = calloc(1, sizeof *model);
    if (!model) {
        return trpi_fail(err, TRP_ENOMEM, "model %s", name);
    }
    TRPI_SET(model->name, name);
    model->limits = *limits;
    *ret_model = model;
    return TRP_OK;
}

static void free_params(trp_param *params, int count) {
    for (int p = 0; params && p < count; p++) {
        free((char *)params[p].name);
        free((char *)params[p].tied_to);
    }
    free(params);
}

void trp_model_free(trp_model *model) {
    if (!model) {
        return;
    }
    for (int u = 0; u < model->unit_count; u++) {
        trpi_unit *unit = &model->units[u];
        if (unit->type->free) {
            unit->type->free(unit->state);
        }
        free_params(unit->params, unit->param_count);
    }
    free(model->units);
    free(model);
}

int64_t trpi_param_elements(const trp_param *param) {
    int64_t elements = 1;
    for (int d = 0; d < param->dims; d++) {
        elements *= param->shape[d];
    }
    return elements;
}

const trp_param *trpi_model_find(const trp_model *model, const char *name, int unit_end) {
    for (int u = 0; u < unit_end; u++) {
        const trpi_unit *unit = &model->units[u];
        for (int p = 0; p < unit->param_count; p++) {
            if (strcmp(unit->params[p].name, name) == 0) {
                return &unit->params[p];
            }
        }
    }
    return NULL;
}

static trp_code check_shape(const trp_param *param, trp_error *err) {
    if (param->dims < 0 || param->dims > TRP_SHAPE_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%s has %d dimensions, at most %d are allowed",
                         param->name, param->dims, TRP_SHAPE_MAX);
    }
    int64_t elements = 1;
    for (int d = 0; d < param->dims; d++) {
        int64_t extent = param->shape[d];
        if (extent < 1 || extent > ELEMENTS_MAX / elements) {
            return trpi_fail(err, TRP_EINVALID, "%s: dimension %d is %lld", param->name, d,
                             (long long)extent);
        }
        elements *= extent;
    }
    return TRP_OK;
}

static trp_code check_param(const trp_model *model, const trp_param *params, int at,
                            trp_error *err) {
    const trp_param *param = &params[at];
    if (!param->name || !param->name[0]) {
        return trpi_fail(err, TRP_EINVALID, "parameter %d has no name", at);
    }
    trp_code code = check_shape(param, err);
    if (code) {
        return code;
    }
    bool known = trpi_model_find(model, param->name, model->unit_count) != NULL;
    for (int p = 0; p < at; p++) {
        known = known || strcmp(params[p].name, param->name) == 0;
    }
    if (known) {
        return trpi_fail(err, TRP_EINVALID, "two parameters are named %s", param->name);
    }
    if (!param->tied_to) {
        return TRP_OK;
    }
    const trp_param *other = trpi_model_find(model, param->tied_to, model->unit_count);
    if (!other) {
        return trpi_fail(err, TRP_EINVALID, "%s is tied to %s, which no earlier unit has",
                         param->name, param->tied_to);
    }
    if (other->tied_to) {
        return trpi_fail(err, TRP_EINVALID, "%s is tied to %s, which is itself tied to %s",
                         param->name, param->tied_to, other->tied_to);
    }
    if (other->dims != param->dims ||
        memcmp(other->shape, param->shape, (size_t)param->dims * sizeof param->shape[0]) != 0) {
        return trpi_fail(err, TRP_EINVALID, "%s is tied to %s, but their shapes differ",
                         param->name, param->tied_to);
    }
    return TRP_OK;
}

static trp_param *copy_params(const trp_param *params, int count) {
    trp_param *copy = calloc((size_t)count + 1, sizeof *copy);
    if (!copy) {
        return NULL;
    }
    bool failed = false;
    for (int p = 0; p < count; p++) {
        copy[p] = params[p];
        copy[p].name = strdup(params[p].name);
        copy[p].tied_to = params[p].tied_to ? strdup(params[p].tied_to) : NULL;
        failed = failed || !copy[p].name || (params[p].tied_to && !copy[p].tied_to);
    }
    if (failed) {
        free_params(copy, count);
        return NULL;
    }
    return copy;
}

trp_code trp_model_add(trp_model *model, const trp_unit_type *type, void *state,
                       const trp_param *params, int param_count, trp_error *err) {
    trp_code code = TRP_OK;
    for (int p = 0; p < param_count; p++) {
        code = check_param(model, params, p, err);
        if (code) {
            return trpi_context(err, code, "model %s, unit %d (%s)", model->name, model->unit_count,
                                type->name);
        }
    }
    trpi_unit *units =
        realloc(model->units, ((size_t)model->unit_count + 1) * sizeof *model->units);
    if (!units) {
        return trpi_fail(err, TRP_ENOMEM, "model %s", model->name);
    }
    model->units = units;
    trp_param *copy = copy_params(params, param_count);
    if (!copy) {
        return trpi_fail(err, TRP_ENOMEM, "model %s", model->name);
    }
    units[model->unit_count++] = (trpi_unit){type, state, copy, param_count};
    return TRP_OK;
}

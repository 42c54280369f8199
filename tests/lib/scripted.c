#include "tests/lib/scripted.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/base.h"

typedef struct script {
    int64_t counts[2];
    int ramp;
} script;

static void sizes(const void *state, int64_t rows, int64_t columns, trp_dtype dtype,
                  trp_unit_sizes *ret_sizes) {
    *ret_sizes = (trp_unit_sizes){0};
}

static trp_code forward(const void *state, const trp_unit_io *io, trp_error *err) {
    for (int64_t i = 0; i < io->rows * io->columns; i++) {
        io->losses[i] = (float)io->tokens[i];
    }
    return TRP_OK;
}

static trp_code backward(const void *state, const trp_unit_io *io, trp_error *err) {
    const script *s = state;
    for (int64_t t = 0; t < io->rows * io->columns; t++) {
        int32_t token = io->tokens[t];
        if (token == SCRIPTED_FAIL) {
            return trpi_fail(err, TRP_EDEVICE, "asked to fail");
        }
        for (int p = 0; p < 2 && token != 0; p++) {
            for (int64_t i = 0; i < s->counts[p]; i++) {
                float value = (float)(token + s->ramp * i);
                if (token == SCRIPTED_NAN) {
                    value = p == 1 ? NAN : 1;
                }
                io->grads[p][i] += value * io->loss_scale;
            }
        }
    }
    return TRP_OK;
}

static const trp_unit_type scripted_type = {
    .name = "scripted", .sizes = sizes, .forward = forward, .backward = backward, .free = free};

trp_model *scripted_model(int64_t w, int64_t b, int ramp) {
    trp_model *model = NULL;
    script *state = malloc(sizeof *state);
    trp_param params[] = {
        {.name = "w", .shape = {w}, .dims = 1, .init = TRP_INIT_ONES, .decay = true},
        {.name = "b", .shape = {b}, .dims = 1, .init = TRP_INIT_ONES},
    };
    if (!state || trp_model_new("scripted", &(trp_model_limits){0}, &model, NULL)) {
        free(state);
        return NULL;
    }
    *state = (script){{w, b}, ramp};
    if (trp_model_add(model, &scripted_type, state, params, 2, NULL)) {
        free(state);
        trp_model_free(model);
        return NULL;
    }
    return model;
}

trp_code scripted_step(toy_run *toy, const int32_t *tokens, trp_step_stats *ret_stats,
                       trp_error *err) {
    trp_batch micro[16];
    int count = (int)trp_zero_config_settings(toy->config)->accumulation;
    for (int j = 0; j < count; j++) {
        micro[j] =
            (trp_batch){.tokens = &tokens[j], .targets = &tokens[j], .rows = 1, .columns = 1};
    }
    return trp_zero_step(toy->engine, micro, count, ret_stats, err);
}

#include "tests/lib/toy.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/base.h"

trp_code toy_open_model(test_rank *self, const char *config, uint64_t seed, trp_model *model,
                        toy_run *ret_toy, trp_error *err) {
    toy_run t = {0};
    size_t bytes = (size_t)TOY_ROWS_MAX * TOY_COLUMNS * sizeof(int32_t);
    t.tokens = malloc(bytes);
    t.targets = malloc(bytes);
    trp_code code = t.tokens && t.targets ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "toy");
    if (!code) {
        code = trp_zero_config_parse(config, self->world, &t.config, err);
    }
    if (!code) {
        code = trp_zero_new(&model, self->device, self->comm, t.config, seed, &t.engine, err);
    }
    if (code) {
        trp_model_free(model);
        toy_close(&t);
        return code;
    }
    *ret_toy = t;
    return TRP_OK;
}

trp_code toy_open(test_rank *self, const char *config, uint64_t seed, toy_run *ret_toy,
                  trp_error *err) {
    trp_model *model = NULL;
    trp_gpt2_config gpt2 = {.vocabulary = TOY_VOCABULARY,
                            .positions = TOY_COLUMNS,
                            .layers = 2,
                            .heads = 3,
                            .width = 48};
    trp_code code = trp_gpt2_new(&gpt2, &model, err);
    return code ? code : toy_open_model(self, config, seed, model, ret_toy, err);
}

void toy_close(toy_run *toy) {
    trp_zero_free(toy->engine);
    trp_zero_config_free(toy->config);
    free(toy->tokens);
    free(toy->targets);
    *toy = (toy_run){0};
}

/* A line of text that can be learned: each token follows from the one before, but for a start and a
 * stride that belong to the row. */
static int32_t token_at(uint64_t step, int row, int column) {
    uint64_t mixed = (step * 64 + (uint64_t)row + 1) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t start = mixed >> 40, stride = 1 + (mixed >> 20) % 3;
    return (int32_t)((start + stride * (uint64_t)column) % TOY_VOCABULARY);
}

void toy_fill(toy_run *toy, uint64_t step, int row, int rows, int at) {
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < TOY_COLUMNS; c++) {
            toy->tokens[(at + r) * TOY_COLUMNS + c] = token_at(step, row + r, c);
            toy->targets[(at + r) * TOY_COLUMNS + c] = token_at(step, row + r, c + 1);
        }
    }
}

trp_code toy_step(toy_run *toy, const test_rank *self, uint64_t step, trp_step_stats *ret_stats,
                  trp_error *err) {
    const trp_zero_settings *s = trp_zero_config_settings(toy->config);
    int micro = (int)s->micro_batch, count = (int)s->accumulation;
    trp_batch batches[16];
    TRP_ASSERT(count <= 16 && micro * count <= TOY_ROWS_MAX);
    for (int j = 0; j < count; j++) {
        toy_fill(toy, step, (j * self->world + self->rank) * micro, micro, j * micro);
        batches[j] = (trp_batch){.tokens = toy->tokens + j * micro * TOY_COLUMNS,
                                 .targets = toy->targets + j * micro * TOY_COLUMNS,
                                 .rows = micro,
                                 .columns = TOY_COLUMNS};
    }
    return trp_zero_step(toy->engine, batches, count, ret_stats, err);
}

const char *toy_config(const char *format, ...) {
    static _Thread_local char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

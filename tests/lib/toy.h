/* toy.h: the toy GPT-2 that engine tests train (two layers, width 48, three heads, vocabulary 257:
 * odd on purpose) and its data, a pure function of step and global row. */
#ifndef TEST_TOY_H
#define TEST_TOY_H

#include <troupe/model.h>
#include <troupe/zero.h>

#include "tests/lib/ranks.h"

#define TOY_COLUMNS 32
#define TOY_ROWS_MAX 64
#define TOY_VOCABULARY 257

typedef struct toy_run {
    trp_zero_config *config;
    trp_zero *engine;
    int32_t *tokens, *targets; /* room for TOY_ROWS_MAX rows */
} toy_run;

trp_code toy_open(test_rank *self, const char *config, uint64_t seed, toy_run *ret_toy,
                  trp_error *err);
/* The same with a model of the caller's, which is taken. */
trp_code toy_open_model(test_rank *self, const char *config, uint64_t seed, trp_model *model,
                        toy_run *ret_toy, trp_error *err);
void toy_close(toy_run *toy);

/* Fills rows [row, row + rows) of the global batch of `step` into toy's room from row `at` on. */
void toy_fill(toy_run *toy, uint64_t step, int row, int rows, int at);

/* One step of this rank: its share of a global batch of world * micro * accumulation rows.
 * Micro-step j of rank r has rows (j * world + r) * micro and on. */
trp_code toy_step(toy_run *toy, const test_rank *self, uint64_t step, trp_step_stats *ret_stats,
                  trp_error *err);

/* A configuration text: format's result lives until the next call of the same thread. */
const char *toy_config(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

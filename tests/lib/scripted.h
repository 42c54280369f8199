/* scripted.h: a model whose gradients are what the batch says, for tests that know the answer.
 *
 * One unit with a tensor "w" (weight decay applies) and a tensor "b" (it does not), both starting
 * as ones. A token k adds k + ramp * i to the gradient of element i of each tensor, and 0 when k is
 * 0; SCRIPTED_NAN makes the gradient of "b" not a number, SCRIPTED_FAIL makes backward fail. The
 * loss of a token is k. */
#ifndef TEST_SCRIPTED_H
#define TEST_SCRIPTED_H

#include "tests/lib/toy.h"

#define SCRIPTED_NAN 1000
#define SCRIPTED_FAIL 1001

trp_model *scripted_model(int64_t w, int64_t b, int ramp); /* NULL when memory is out */

/* One step whose micro-steps have one row and one column each: `tokens` has one per micro-step of
 * this rank. */
trp_code scripted_step(toy_run *toy, const int32_t *tokens, trp_step_stats *ret_stats,
                       trp_error *err);

#endif

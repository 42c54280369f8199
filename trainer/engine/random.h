/* random.h: initial weights as a pure function of (seed, tensor, element), so that every rank makes
 * its own part of them and all world sizes and stages start alike. */
#ifndef TRPI_RANDOM_H
#define TRPI_RANDOM_H

#include "trainer/model/model.h"

/* Elements [from, from + count) of tensor number `tensor` of a model. */
void trpi_random_init(const trp_param *param, uint64_t seed, uint64_t tensor, int64_t from,
                      int64_t count, float *out);

#endif

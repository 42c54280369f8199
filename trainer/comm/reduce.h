/* reduce.h: element-wise reductions of several arrays, in one fixed order. */
#ifndef TRPI_REDUCE_H
#define TRPI_REDUCE_H

#include <troupe/comm.h>

#include "core/base/base.h"

/* out[i] = in[0][i] op in[1][i] op ... op in[n-1][i], from left to right; F32 and BF16 in fp32 and
 * rounded once (to nearest even), I32 modulo 2^32; an average is the sum divided by n; a NaN is the
 * maximum of anything. What an element becomes does not depend on where it stands, so neither
 * chunking nor alignment changes a bit. out may be one of the inputs; otherwise no overlap. */
void trpi_reduce(void *out, const void *const *in, int n, int64_t count, trp_dtype dtype,
                 trp_reduce op);

#endif

#include "trainer/engine/lr.h"

#include <math.h>

#define PI 3.14159265358979323846

/* How far the warm-up has come, 0 to 1. */
static double warmup_fraction(const trpi_lr *lr, double i, double warmup) {
    if (i >= warmup) {
        return 1;
    }
    return lr->logarithmic ? log(i + 1) / log(warmup) : i / warmup;
}

static double cosine(const trpi_lr *lr, double i, double warmup) {
    if (i < 0) {
        return lr->min_ratio;
    }
    if (i < warmup) {
        return lr->min_ratio + (1 - lr->min_ratio) * warmup_fraction(lr, i, warmup);
    }
    double span = TRPI_MAX(1, (double)lr->total - warmup);
    double phase = TRPI_MIN(1, (i - warmup + 1) / span);
    return lr->end_ratio + (1 - lr->end_ratio) * (1 + cos(PI * phase)) / 2;
}

/* DeepSpeed sets the rate after each update, for the next one, and counts from -1: update k uses
 * position k - 2, and the first two updates are both at the start of the warm-up. */
double trpi_lr_at(const trpi_lr *lr, uint64_t k) {
    double i = (double)k - 2;
    double warmup = (double)TRPI_MAX(2, lr->warmup);
    switch (lr->kind) {
    case TRPI_LR_CONSTANT:
        return lr->max;
    case TRPI_LR_WARMUP_COSINE:
        return lr->max * cosine(lr, i, warmup);
    case TRPI_LR_WARMUP:
    case TRPI_LR_WARMUP_DECAY:
        break;
    }
    if (i < 0) {
        return lr->min;
    }
    if (i < warmup || lr->kind == TRPI_LR_WARMUP) {
        return lr->min + (lr->max - lr->min) * warmup_fraction(lr, i, warmup);
    }
    double span = TRPI_MAX(1, (double)lr->total - warmup);
    double left = TRPI_MAX(0, ((double)lr->total - i) / span);
    return lr->min + (lr->max - lr->min) * left;
}

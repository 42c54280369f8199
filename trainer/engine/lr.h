/* lr.h: learning rate schedules, DeepSpeed's by name and number. Pure: a rate is a function of how
 * many updates came before, so a resume needs one number and a skipped step moves nothing. */
#ifndef TRPI_LR_H
#define TRPI_LR_H

#include "core/base/base.h"

typedef enum trpi_lr_kind {
    TRPI_LR_CONSTANT,
    TRPI_LR_WARMUP,       /* WarmupLR: from min to max, then max */
    TRPI_LR_WARMUP_DECAY, /* WarmupDecayLR: then linearly to 0 at total */
    TRPI_LR_WARMUP_COSINE /* WarmupCosineLR: then half a cosine to cos_min_ratio of max */
} trpi_lr_kind;

typedef struct trpi_lr {
    trpi_lr_kind kind;
    double max;       /* CONSTANT and WARMUP_COSINE: the optimizer's lr */
    double min;       /* WARMUP, WARMUP_DECAY */
    double min_ratio; /* WARMUP_COSINE: warm-up starts at this times max */
    double end_ratio; /* WARMUP_COSINE: ends at this times max */
    int64_t warmup;   /* steps; counts as 2 when less */
    int64_t total;    /* steps, of the decaying kinds */
    bool logarithmic; /* warm-up by log(i), else linear */
} trpi_lr;

/* The rate of update number k, counted from 1. */
double trpi_lr_at(const trpi_lr *lr, uint64_t k);

#endif

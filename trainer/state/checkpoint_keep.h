/* checkpoint_keep.h: which checkpoints stay when only some may. Pure: scores come in as integers
 * that are ordered as the metric is (see trpi_record_score), so no float is compared here. */
#ifndef TRPI_CHECKPOINT_KEEP_H
#define TRPI_CHECKPOINT_KEEP_H

#include "core/base/base.h"

#define TRPI_SCORE_WORST INT64_MIN /* for a metric that is missing or not a number */

typedef struct trpi_keep {
    uint64_t number; /* in: rising with time */
    int64_t score;   /* in: higher is better */
    bool keep;       /* out */
} trpi_keep;

/* Keeps the `best` highest scores (of equal ones the newer) and always the latest, so that there
 * may be one more than `best`. 0 keeps all. */
void trpi_keep_select(trpi_keep *entries, size_t count, size_t best);

#endif

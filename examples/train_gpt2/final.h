/* final.h: final.txt in a run's last checkpoint: a hash of all weights, the loss and the step. It
 * is what two runs are compared by; it lies in the checkpoint, so that a run which is started again
 * after its end has it, too. */
#ifndef TRAIN_GPT2_FINAL_H
#define TRAIN_GPT2_FINAL_H

#include "examples/train_gpt2/rank.h"

typedef struct final_state {
    char weights[33]; /* trp_zero_weights_hash() */
    double loss;
    uint64_t step;
} final_state;

/* Called by every rank, as the hash is made by all of them; rank 0 writes. */
trp_code final_write(rank_state *r, const char *dir, const trp_step_stats *stats, trp_error *err);

/* False when the checkpoint, which may be NULL, is not the last one of a run. */
bool final_read(const char *checkpoint, final_state *ret_final);

#endif

/* data.h: text to batches, as a pure function of (seed, epoch, position).
 *
 * A dataset is a flat array of tokens cut into samples of `columns` tokens (plus the one that
 * follows, for the targets). The order of an epoch is a permutation that is computed, not stored,
 * so a position can be resumed at any world size without replaying what came before. Threads: a
 * dataset is immutable after opening and may be shared. */
#ifndef TROUPE_DATA_H
#define TROUPE_DATA_H

#include <troupe/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trp_dataset trp_dataset;

/* Reads a text file; its bytes are the tokens (vocabulary 256). TRP_EINVALID if it is shorter than
 * one sample. */
TRP_CHECKED trp_code trp_dataset_open_bytes(const char *path, int64_t columns,
                                            trp_dataset **ret_dataset, trp_error *err);
void trp_dataset_close(trp_dataset *dataset); /* NULL is fine */
int64_t trp_dataset_samples(const trp_dataset *dataset);

/* Element `index` of the permutation of [0, count) that belongs to (seed, epoch). A keyed Feistel
 * network with cycle walking (Black, Rogaway 2002): no memory, any element at once. */
uint64_t trp_shuffle(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

/* Where the training stands: the same on every rank. */
typedef struct trp_data_position {
    uint64_t seed, epoch, sample; /* next sample, in the epoch's order */
} trp_data_position;

/* Fills this rank's rows of the next global batch (world * rows samples) and advances the position
 * past the whole of it, into the next epoch where this one has fewer samples left (each sample is
 * used exactly once per epoch; a batch may straddle epochs). tokens, targets (rows, columns).
 * Global row g of the batch goes to rank g / rows. */
void trp_dataset_batch(const trp_dataset *dataset, trp_data_position *position, int rank, int world,
                       int64_t rows, int32_t *tokens, int32_t *targets);

#ifdef __cplusplus
}
#endif
#endif

/* rank.h: what a rank holds while it trains: a device, an engine with the model in it, a dataset
 * and the place where it reads. */
#ifndef TRAIN_GPT2_RANK_H
#define TRAIN_GPT2_RANK_H

#include <troupe/data.h>
#include <troupe/model.h>
#include <troupe/train.h>
#include <troupe/zero.h>

#include "examples/train_gpt2/job.h"

enum { VOCABULARY = 256 }; /* the bytes of a text */

typedef struct rank_state {
    trp_session *session;
    gpt2_job job;
    char *config_text;
    trp_zero_config *config;
    trp_device *device;
    trp_dataset *dataset;
    trp_zero *engine;
    int32_t *tokens, *targets; /* (accumulation, micro_batch, columns) */
    trp_batch *micro;          /* (accumulation): views of those */
    trp_data_position position;
} rank_state;

/* Close it in any case. */
trp_code rank_open(rank_state *r, trp_session *session, trp_bytes job, trp_error *err);
void rank_close(rank_state *r);

/* One training step on this rank's part of the next batch. */
trp_code rank_step(rank_state *r, trp_step_stats *ret_stats, trp_error *err);

/* The model that a job asks for. */
trp_code rank_model(const gpt2_job *job, trp_model **ret_model, trp_error *err);

#endif

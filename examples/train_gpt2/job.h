/* job.h: what the driver tells every rank: which text, which model, how long. It travels as bytes,
 * this struct and then the engine's configuration as JSON text; driver and ranks are one program,
 * so the layout is the same. */
#ifndef TRAIN_GPT2_JOB_H
#define TRAIN_GPT2_JOB_H

#include <troupe/bytes.h>

typedef struct gpt2_job {
    char data[512]; /* absolute: workers have other working directories */
    int64_t steps, checkpoint_every;
    int64_t layers, width, heads, columns;
    uint64_t seed;
} gpt2_job;

typedef struct options options;

/* The driver's end. Checks text, model and configuration while nothing has been started yet, and
 * prints what will be trained. */
trp_code job_make(const options *o, trp_buf *ret_bytes, trp_error *err);

/* A rank's end. *ret_config is a copy, to be freed. */
trp_code job_read(trp_bytes bytes, gpt2_job *ret_job, char **ret_config, trp_error *err);

/* Writes "what: detail" into err and returns code. */
trp_code fail(trp_error *err, trp_code code, const char *what, const char *detail);

#endif

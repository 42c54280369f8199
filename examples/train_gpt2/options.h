/* options.h: what the user asks for. */
#ifndef TRAIN_GPT2_OPTIONS_H
#define TRAIN_GPT2_OPTIONS_H

#include "examples/train_gpt2/chaos.h"
#include "examples/train_gpt2/job.h"

struct options {
    gpt2_job job;
    int64_t workers, batch, stage, keep, max_failures, log_every, chaos, chaos_seed, json;
    double cpus, lr;
    const char *data, *ds_config, *name, *storage, *address, *kill_list;
    int64_t kill_at[KILLS_MAX]; /* steps, ascending */
    int kill_count;
};

/* Returns -1 to go on, else the program's exit code: help was asked for, or one line on stderr has
 * said what is wrong. */
int options_read(int argc, char **argv, options *ret_options);

#endif

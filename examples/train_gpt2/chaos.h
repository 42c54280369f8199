/* chaos.h: kills workers on purpose: which, when, and how it is known afterwards. */
#ifndef TRAIN_GPT2_CHAOS_H
#define TRAIN_GPT2_CHAOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KILLS_MAX = 64 };

typedef struct options options;
typedef struct trp_train_worker trp_train_worker;

/* Adds --chaos random steps to the listed ones and sorts them; chooses a seed if none was given. */
void chaos_plan(options *o);

typedef struct chaos {
    const options *options;
    uint64_t random;
    int kills;          /* so far */
    uint64_t killed_ns; /* CLOCK_MONOTONIC of the kill that has not been recovered from; 0 = none */
} chaos;

/* Says what will happen. */
chaos chaos_start(const options *o);

/* Whether a worker is to be killed now that `step` is done; not while a kill is being recovered. */
bool chaos_is_due(const chaos *c, uint64_t step);
void chaos_kill(chaos *c, uint64_t step, const trp_train_worker *workers, size_t count);

#endif

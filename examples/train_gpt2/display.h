/* display.h: what happens in a run, as lines for a human. */
#ifndef TRAIN_GPT2_DISPLAY_H
#define TRAIN_GPT2_DISPLAY_H

#include <troupe/train.h>

#include "examples/train_gpt2/chaos.h"
#include "examples/train_gpt2/options.h"

enum { WORKERS_MAX = 256 };

typedef struct display {
    const options *options;
    chaos chaos;
    trp_train_worker workers[WORKERS_MAX]; /* of the attempt that runs */
    size_t worker_count;                   /* 0 while none does */
    double recovery_ms[KILLS_MAX];         /* from our kill to the next step done */
    int recoveries;
    uint64_t last_ns; /* of the last progress line; 0 = none in this attempt */
    double last_tokens;
    uint64_t open_step; /* the step of a line that is not ended yet: its checkpoint may follow */
    int open_pad;       /* columns that this line is shorter than others */
} display;

void display_init(display *d, const options *o);

/* For trp_train_options.on_event; arg is the display. */
void display_event(void *arg, const trp_train_event *event);

/* The run is over: the final lines, or what went wrong. `code` and `err` are trp_fit()'s. Returns
 * the program's exit code. Its home is summary.c. */
int display_result(display *d, const trp_result *result, trp_code code, const trp_error *err);

#endif

/* bench.h: what the files of `troupe bench` share. */
#ifndef TRPI_BENCH_H
#define TRPI_BENCH_H

#include <troupe/runtime.h>

#include "actors/bin/command.h"
#include "core/base/json.h"

#define BENCH_ROUNDS 9
#define BENCH_SAMPLES_MAX 4096
#define BENCH_FIGURES_MAX 16

/* One row of the table. A value of 0 was not measured. */
typedef struct bench_figure {
    const char *what, *unit;
    double troupe, raw;
    const char *raw_what; /* what `raw` is */
    const char *target;
    bool has_target, is_met;
} bench_figure;

typedef struct bench_machine {
    char model[128]; /* of the CPU */
    int cpus;
    double load; /* average of the last minute, before the first measurement; -1 = not known */
} bench_machine;

typedef struct bench {
    trp_runtime *rt;
    trp_actor echo;
    char dir[64]; /* session root of our own clusters; "" when the cluster is not ours */
    int peers;    /* raw peers started so far */
    bench_figure figures[BENCH_FIGURES_MAX];
    size_t figure_count;
} bench;

/* Values of rounds or trials, and what is in the middle of them. */
typedef struct bench_samples {
    double values[BENCH_SAMPLES_MAX];
    size_t count;
} bench_samples;

void bench_add(bench_samples *samples, double value);
double bench_median(bench_samples *samples);
double bench_now_us(void);

bench_figure *bench_figure_add(bench *b, const char *what, const char *unit);
/* "<= 1.3 x": troupe / raw must not be above (or, with is_least, below) the limit. */
void bench_judge_ratio(bench_figure *figure, const char *target, double limit, bool is_least);
void bench_judge_value(bench_figure *figure, const char *target, double limit);

/* A signal asked for the end: TRP_ECANCELED. Asked between trials. */
TRP_CHECKED trp_code bench_go_on(trp_error *err);

/* bench_calls.c */
TRP_CHECKED trp_code bench_calls(bench *b, trp_error *err);
/* bench_lives.c: starts, restarts */
TRP_CHECKED trp_code bench_starts(bench *b, bool is_cold, trp_error *err);
TRP_CHECKED trp_code bench_restarts(bench *b, trp_error *err);
/* bench_memory.c */
TRP_CHECKED trp_code bench_memory(bench *b, trp_error *err);
/* bench_step.c */
TRP_CHECKED trp_code bench_step(bench *b, trp_error *err);
/* bench_machine.c */
void bench_machine_find(bench_machine *machine);
void bench_machine_print(const bench_machine *machine);
json_t *bench_machine_json(const bench_machine *machine);
/* bench_peer.c: raw peers: processes that only echo over ZeroMQ */
TRP_CHECKED trp_code bench_peer_start(bench *b, char *ret_endpoint, size_t size, pid_t *ret_pid,
                                      trp_error *err);
void bench_peer_end(pid_t pid);

#endif

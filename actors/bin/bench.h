/* bench.h: what the files of `troupe bench` share.
 *
 * A row is a name, what it means and a function that measures one figure: ours, and in turns with
 * it what this machine can do without us. Files: bench.c (the command and the table of rows),
 * bench_figures.c (samples, rounds, printing), bench_cluster.c (the clusters that are measured),
 * bench_calls.c, bench_fleet.c (several callers and callees), bench_objects.c, bench_groups.c,
 * bench_lives.c (starts and restarts), bench_memory.c, bench_many.c (ten thousand actors),
 * bench_step.c, bench_simulated.c (the head's machine alone), bench_actor.c (what the actors do),
 * bench_peer.c (processes of the raw measurements), bench_machine.c. */
#ifndef TRPI_BENCH_H
#define TRPI_BENCH_H

#include <troupe/object.h>
#include <troupe/runtime.h>

#include "actors/bin/command.h"
#include "core/base/json.h"
#include "core/net/floor.h"

#define BENCH_ROUNDS 5
#define BENCH_SAMPLES_MAX 8192
#define BENCH_FIGURES_MAX 64
#define BENCH_WAIT_MS 30000
#define BENCH_ACTORS_MAX 32
#define BENCH_CLIENTS 4 /* of what several clients do at once */

typedef struct bench bench;
typedef struct bench_figure bench_figure;

typedef enum bench_cluster {
    BENCH_NO_CLUSTER,
    BENCH_WARM, /* with idle workers at hand; --address measures this one */
    BENCH_COLD  /* its node keeps no idle workers */
} bench_cluster;

typedef struct bench_row {
    const char *name, *unit, *what;
    bench_cluster cluster;
    trp_code (*run)(bench *b, bench_figure *figure, trp_error *err);
    bool is_asked_for; /* measured only when --only names it */
} bench_row;

/* One line of the table. A value of 0 was not measured. */
struct bench_figure {
    const bench_row *row;
    double troupe, raw;
    const char *raw_what; /* what `raw` is */
    const char *target;
    bool has_target, is_met;
    char note[48]; /* "8 actors" */
};

typedef struct bench_machine {
    char model[128]; /* of the CPU */
    int cpus;
    double load; /* average of the last minute, before the first measurement; -1 = not known */
} bench_machine;

/* Values of rounds or trials, and what is in the middle of them. */
typedef struct bench_samples {
    double values[BENCH_SAMPLES_MAX];
    size_t count;
} bench_samples;

struct bench {
    const char *address; /* of the user's cluster; NULL: we start our own */
    double seconds;      /* for each side of a row */
    uint64_t actors;     /* --actors; 0 = what the row thinks best */
    trp_runtime *rt;     /* NULL until a row needs a cluster */
    bench_cluster cluster;
    size_t nodes; /* of our own cluster */
    trp_actor echo;
    trpi_floor *floor; /* what `echo` is compared with; bench_floor() opens it */
    pid_t floor_pid;
    char dir[64]; /* session root of our own clusters; "" when there was none */
    int peers;    /* raw peers started so far */
    bench_samples restarts, raw_starts;
    bench_figure figures[BENCH_FIGURES_MAX];
    size_t figure_count;
};

/* ---- bench_figures.c ---- */

void bench_add(bench_samples *samples, double value);
/* The smallest value that `permille` of them do not exceed. 0 of none. */
double bench_quantile(bench_samples *samples, unsigned permille);
double bench_median(bench_samples *samples);
double bench_now_us(void);
/* `most` trials when there is a second or more, fewer in a shorter time, `least` at least. */
size_t bench_trials(const bench *b, size_t least, size_t most);

bench_figure *bench_figure_add(bench *b, const bench_row *row);
/* "<= 1.3 x": troupe / raw must not be above (or, with is_least, below) the limit. */
void bench_judge_ratio(bench_figure *figure, const char *target, double limit, bool is_least);
void bench_judge_value(bench_figure *figure, const char *target, double limit, bool is_least);

/* A piece of work that adds to *units what it has done. */
typedef trp_code (*bench_work)(bench *b, void *arg, double *units, trp_error *err);
/* Both in turns, so that a noisy moment hits both: units per second, medians of the rounds. raw may
 * be NULL. */
TRP_CHECKED trp_code bench_compare(bench *b, bench_figure *figure, bench_work troupe,
                                   bench_work raw, void *arg, trp_error *err);

void bench_print(const bench *b, const bench_machine *machine, bool is_json);
void bench_print_rows(const bench_row *rows, size_t count, bool is_json);

/* ---- bench.c ---- */

/* A signal asked for the end: TRP_ECANCELED. Asked between trials. */
TRP_CHECKED trp_code bench_go_on(trp_error *err);
/* One line that replaces the last one, where stderr is a terminal; "" takes it away. */
void bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- bench_cluster.c ---- */

/* Makes b->rt one of such a cluster. */
TRP_CHECKED trp_code bench_cluster_need(bench *b, bench_cluster cluster, trp_error *err);
void bench_cluster_end(bench *b);
TRP_CHECKED trp_code bench_spawn(bench *b, const trp_spawn_options *options, trp_actor *ret_actor,
                                 trp_error *err);
/* One call that says "ok". */
TRP_CHECKED trp_code bench_ask(bench *b, trp_actor actor, trp_error *err);

/* ---- bench_actor.c ---- */

/* What a client among the actors is asked to do, in the arguments of "drive": the same program on
 * both sides, so a struct. */
typedef enum bench_deed { BENCH_CALL, BENCH_CALL_WITH_OBJECT, BENCH_PUT } bench_deed;
typedef struct bench_order {
    bench_deed deed;
    uint64_t count;       /* of calls or puts, one after the other */
    uint64_t put_bytes;   /* of each */
    uint64_t actor_count; /* calls go to them in turns */
    trp_actor actors[BENCH_ACTORS_MAX];
} bench_order;
TRP_CHECKED trp_code bench_drive(trp_runtime *rt, const bench_order *order, trp_error *err);

/* ---- bench_peer.c ---- */

/* A process that answers at *ret_endpoint: with the message itself; or, with targets, by driving
 * those (floor.h). */
TRP_CHECKED trp_code bench_peer_start(bench *b, const char *const *targets, size_t target_count,
                                      char *ret_endpoint, size_t size, pid_t *ret_pid,
                                      trp_error *err);
void bench_peer_end(pid_t pid);
/* b->floor, connected to a peer that echoes. */
TRP_CHECKED trp_code bench_floor(bench *b, trp_error *err);
void bench_floor_close(bench *b);
/* Round trips of 16 bytes. */
trp_code bench_raw_trips(bench *b, void *arg, double *units, trp_error *err);

/* ---- Rows ---- */

typedef trp_code bench_run(bench *b, bench_figure *figure, trp_error *err);
/* bench_calls.c */
bench_run bench_round_trip, bench_small_calls, bench_large_calls, bench_sync, bench_async,
    bench_concurrent, bench_wait;
/* bench_fleet.c */
bench_run bench_one_to_many, bench_many_to_many, bench_many_to_many_objects, bench_multi_put,
    bench_multi_put_bytes;
/* bench_objects.c */
bench_run bench_get, bench_put, bench_put_bytes;
trp_code bench_raw_copies(bench *b, void *threads, double *units, trp_error *err);
#define BENCH_LARGE_BYTES ((size_t)64 << 20)
/* bench_groups.c */
bench_run bench_group, bench_group_of_40;
/* bench_lives.c */
bench_run bench_start_warm, bench_start_cold, bench_starts, bench_restart_p50, bench_restart_p99;
/* bench_memory.c */
bench_run bench_memory_head, bench_memory_node, bench_memory_worker, bench_memory_share;
/* A line of /proc/PID/FILE that is in kB, in MB of 10^6 bytes; 0 when the process is not here. */
double bench_memory_mb(int64_t pid, const char *file, const char *key);
/* Process ids of the head and of its first node; 0 when they are on another host. */
TRP_CHECKED trp_code bench_daemons(bench *b, int64_t *ret_head, int64_t *ret_node, trp_error *err);
/* bench_many.c */
bench_run bench_many;
/* bench_step.c */
bench_run bench_step;
/* bench_simulated.c: takes no row of the table, adds figures of its own */
TRP_CHECKED trp_code bench_simulated(bench *b, uint64_t nodes, trp_error *err);

/* bench_machine.c */
void bench_machine_find(bench_machine *machine);
void bench_machine_print(const bench_machine *machine);
json_t *bench_machine_json(const bench_machine *machine);

#endif

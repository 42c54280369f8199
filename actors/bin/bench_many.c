/* bench_many.c: as many actors at once as one machine holds. Spawns them all, waits until each has
 * answered, looks at what the processes hold, and ends them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/bench.h"
#include "core/sys/file.h"

#define ACTORS 1000
#define LOOKED_AT 50 /* workers whose memory is read: reading it takes 0.2 ms each */
#define WAIT_MS 300000

typedef struct crowd {
    trp_actor *actors;
    trp_ref *refs;
    size_t count, asked;
} crowd;

static const bench_row rows[] = {
    {"many_actors_worker_private", "MB", "private memory of one of them", BENCH_WARM, NULL, true},
    {"many_actors_worker_pss", "MB", "the same with its part of what is shared", BENCH_WARM, NULL,
     true},
    {"many_actors_head", "MB", "resident memory of the head with all of them", BENCH_WARM, NULL,
     true},
    {"many_actors_node", "MB", "resident memory of the node daemon", BENCH_WARM, NULL, true},
    {"many_actors_head_cpu", "us", "CPU time of the head for one start", BENCH_WARM, NULL, true},
    {"many_actors_node_cpu", "us", "CPU time of the node daemon for one start", BENCH_WARM, NULL,
     true},
    {"many_actors_driver", "MB", "resident memory of the driver that is connected to all",
     BENCH_WARM, NULL, true},
    {"many_actors_call_all", "/s", "one call to each, then all results", BENCH_WARM, NULL, true},
    {"many_actors_end", "/s", "killed until their processes are gone", BENCH_WARM, NULL, true},
};
enum {
    ROW_PRIVATE,
    ROW_PSS,
    ROW_HEAD,
    ROW_NODE,
    ROW_HEAD_CPU,
    ROW_NODE_CPU,
    ROW_DRIVER,
    ROW_CALLS,
    ROW_END
};

static trp_code spawn_all(bench *b, crowd *c, size_t want, trp_error *err) {
    trp_spawn_options options = {.schedule = TRP_SCHEDULE_SPREAD};
    trp_code code = TRP_OK;
    double start_us = bench_now_us();
    while (c->count < want && code == TRP_OK) {
        code = bench_spawn(b, &options, &c->actors[c->count], err);
        if (code == TRP_OK) {
            code = trp_call(b->rt, c->actors[c->count++], "ok", (trp_bytes){NULL, 0}, 0,
                            &c->refs[c->asked], err);
            c->asked += code == TRP_OK;
        }
        if (c->count % 100 == 0) {
            code = code == TRP_OK ? bench_go_on(err) : code;
            bench_progress("many_actors: %zu asked for, %.1f s", c->count,
                           (bench_now_us() - start_us) / 1e6);
        }
    }
    return code;
}

/* In order: when the last has answered, all have. */
static trp_code await_all(bench *b, crowd *c, trp_error *err) {
    trp_code code = TRP_OK;
    double start_us = bench_now_us();
    for (size_t i = 0; i < c->asked && code == TRP_OK; i++) {
        trp_bytes value;
        code = trp_get(b->rt, c->refs[i], WAIT_MS, &value, err);
        if (code == TRP_OK && i % 100 == 0) {
            code = bench_go_on(err);
            bench_progress("many_actors: %zu have answered, %.1f s", i,
                           (bench_now_us() - start_us) / 1e6);
        }
    }
    for (size_t i = 0; i < c->asked; i++) {
        trp_ref_release(b->rt, c->refs[i]);
    }
    c->asked = 0;
    return code;
}

/* Since it began: fields 14 and 15 of /proc/PID/stat, behind a name in brackets. */
static double cpu_us(int64_t pid) {
    char path[64];
    trp_buf text = {0};
    unsigned long long user = 0, system = 0;
    trpi_format(path, sizeof(path), "/proc/%" PRId64 "/stat", pid);
    if (trpi_file_read(path, 0, &text, NULL) == TRP_OK && trp_buf_append(&text, "", 1) == TRP_OK) {
        const char *behind = strrchr((const char *)text.data, ')');
        if (behind == NULL ||
            sscanf(behind + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                   &system) != 2) {
            user = system = 0;
        }
    }
    trp_buf_release(&text);
    return (double)(user + system) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

static void add_value(bench *b, int row, double value) {
    bench_figure_add(b, &rows[row])->troupe = value;
}

static trp_code measure_memory(bench *b, const crowd *c, trp_error *err) {
    int64_t head = 0, node = 0;
    double private_mb = 0, pss_mb = 0;
    size_t looked_at = TRPI_MIN(c->count, (size_t)LOOKED_AT);
    trp_code code = bench_daemons(b, &head, &node, err);
    for (size_t i = 0; i < looked_at && code == TRP_OK && node > 0; i++) {
        trp_actor_info info;
        code = trp_actor_get_info(b->rt, c->actors[i * c->count / looked_at], &info, err);
        if (code == TRP_OK) {
            private_mb += bench_memory_mb(info.pid, "smaps_rollup", "\nPrivate_Clean:") +
                          bench_memory_mb(info.pid, "smaps_rollup", "\nPrivate_Dirty:");
            pss_mb += bench_memory_mb(info.pid, "smaps_rollup", "\nPss:");
        }
    }
    if (code == TRP_OK && node > 0) {
        add_value(b, ROW_PRIVATE, private_mb / (double)looked_at);
        bench_judge_value(&b->figures[b->figure_count - 1], "< 2 MB", 2, false);
        add_value(b, ROW_PSS, pss_mb / (double)looked_at);
        add_value(b, ROW_HEAD, bench_memory_mb(head, "status", "VmRSS:"));
        add_value(b, ROW_NODE, bench_memory_mb(node, "status", "VmRSS:"));
        add_value(b, ROW_HEAD_CPU, cpu_us(head) / (double)c->count);
        add_value(b, ROW_NODE_CPU, cpu_us(node) / (double)c->count * (double)b->nodes);
        add_value(b, ROW_DRIVER, bench_memory_mb(getpid(), "status", "VmRSS:"));
    }
    return code;
}

static trp_code measure_calls(bench *b, crowd *c, trp_error *err) {
    trp_code code = TRP_OK;
    double start_us = bench_now_us();
    for (size_t i = 0; i < c->count && code == TRP_OK; i++) {
        code = trp_call(b->rt, c->actors[i], "ok", (trp_bytes){NULL, 0}, 0, &c->refs[i], err);
        c->asked += code == TRP_OK;
    }
    code = code == TRP_OK ? await_all(b, c, err) : code;
    add_value(b, ROW_CALLS, (double)c->count / ((bench_now_us() - start_us) / 1e6));
    return code;
}

/* A death is told when the process is gone and its resources are given back. */
static trp_code end_all(bench *b, crowd *c, trp_error *err) {
    trp_code code = TRP_OK;
    trp_death *death = trpi_alloc(sizeof(*death));
    for (size_t i = 0; i < c->count && code == TRP_OK; i++) {
        code = trp_monitor(b->rt, c->actors[i], err);
    }
    double start_us = bench_now_us();
    for (size_t i = 0; i < c->count && code == TRP_OK; i++) {
        code = trp_kill(b->rt, c->actors[i], false, err);
    }
    for (size_t i = 0; i < c->count && code == TRP_OK; i++) {
        code = trp_next_death(b->rt, WAIT_MS, death, err);
        if (i % 100 == 0) {
            bench_progress("many_actors: %zu have ended, %.1f s", i,
                           (bench_now_us() - start_us) / 1e6);
        }
    }
    add_value(b, ROW_END, (double)c->count / ((bench_now_us() - start_us) / 1e6));
    free(death);
    return code;
}

trp_code bench_many(bench *b, bench_figure *figure, trp_error *err) {
    size_t want = b->actors > 0 ? (size_t)b->actors : ACTORS;
    crowd c = {.actors = trpi_alloc(want * sizeof(*c.actors)),
               .refs = trpi_alloc(want * sizeof(*c.refs))};
    double start_us = bench_now_us();
    trp_code code = spawn_all(b, &c, want, err);
    code = code == TRP_OK ? await_all(b, &c, err) : code;
    if (code == TRP_OK) {
        figure->troupe = (double)want / ((bench_now_us() - start_us) / 1e6);
        trpi_format(figure->note, sizeof(figure->note), "%zu actors, %zu node%s", want, b->nodes,
                    b->nodes == 1 ? "" : "s");
        bench_judge_value(figure, ">= 1000 /s", 1000, true);
        code = measure_memory(b, &c, err);
    }
    code = code == TRP_OK ? measure_calls(b, &c, err) : code;
    code = code == TRP_OK ? end_all(b, &c, err) : code;
    free(c.actors);
    free(c.refs);
    return code;
}

/* train_gpt2.c: trains a GPT-2 on the bytes of a text, sharded by ZeRO over N workers, and survives
 * their deaths.
 *
 * The first half is what runs on every rank: a model, an engine, a dataset, and a report after each
 * step. The second half is the driver: options in, trp_fit(), progress out. Both are this one
 * program; trp_init() finds out which half is wanted.
 *
 * Not for tokenized text or fine-tuning: the vocabulary is the 256 bytes. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <troupe/data.h>
#include <troupe/model.h>
#include <troupe/runtime.h>
#include <troupe/train.h>
#include <troupe/zero.h>
#include <unistd.h>

enum { KILLS_MAX = 64, VOCABULARY = 256 };

/* What the driver tells every rank. The configuration of the engine, JSON text, follows it. */
typedef struct gpt2_job {
    char data[512]; /* path of the text */
    int64_t steps, checkpoint_every;
    int64_t layers, width, heads, columns;
    uint64_t seed;
} gpt2_job;

static trp_code fail(trp_error *err, trp_code code, const char *what, const char *detail) {
    err->code = code;
    snprintf(err->message, sizeof(err->message), "%.500s: %.200s", what, detail);
    return code;
}

/* ---- On every rank ---- */

typedef struct rank_state {
    trp_session *session;
    gpt2_job job;
    char *config_text;
    trp_zero_config *config;
    trp_device *device;
    trp_dataset *dataset;
    trp_zero *engine;
    int32_t *tokens, *targets; /* (accumulation, micro_batch, columns) */
    trp_batch *micro;          /* (accumulation) */
    trp_data_position position;
} rank_state;

static trp_code open_engine(rank_state *r, trp_error *err) {
    trp_gpt2_config shape = {.vocabulary = VOCABULARY,
                             .positions = r->job.columns,
                             .layers = r->job.layers,
                             .heads = r->job.heads,
                             .width = r->job.width};
    trp_model *model = NULL;
    trp_code code = trp_device_open(trp_session_device(r->session), NULL, &r->device, err);
    if (code == TRP_OK) {
        code = trp_gpt2_new(&shape, &model, err);
    }
    if (code == TRP_OK) {
        code = trp_zero_new(&model, r->device, trp_session_comm(r->session), r->config, r->job.seed,
                            &r->engine, err);
    }
    trp_model_free(model);
    return code;
}

static trp_code open_data(rank_state *r, trp_error *err) {
    const trp_zero_settings *settings = trp_zero_config_settings(r->config);
    size_t batch = (size_t)(settings->micro_batch * r->job.columns);
    size_t count = (size_t)settings->accumulation;
    r->tokens = calloc(batch * count, sizeof(*r->tokens));
    r->targets = calloc(batch * count, sizeof(*r->targets));
    r->micro = calloc(count, sizeof(*r->micro));
    if (r->tokens == NULL || r->targets == NULL || r->micro == NULL) {
        return fail(err, TRP_ENOMEM, "batch", "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        r->micro[i] = (trp_batch){.tokens = r->tokens + i * batch,
                                  .targets = r->targets + i * batch,
                                  .rows = settings->micro_batch,
                                  .columns = r->job.columns};
    }
    r->position = (trp_data_position){.seed = r->job.seed};
    return trp_dataset_open_bytes(r->job.data, r->job.columns, &r->dataset, err);
}

/* Goes on where the run's last checkpoint ends, weights and data alike. */
static trp_code resume(rank_state *r, trp_error *err) {
    const char *checkpoint = trp_session_checkpoint(r->session);
    trp_zero_position position = {0};
    if (checkpoint == NULL) {
        return TRP_OK;
    }
    trp_code code = trp_zero_load(r->engine, checkpoint, &position, err);
    if (code == TRP_OK) {
        r->position = (trp_data_position){position.data_seed, position.epoch, position.sample};
    }
    return code;
}

static trp_code one_step(rank_state *r, trp_step_stats *stats, trp_error *err) {
    const trp_zero_settings *settings = trp_zero_config_settings(r->config);
    int count = (int)settings->accumulation;
    for (int i = 0; i < count; i++) {
        trp_dataset_batch(r->dataset, &r->position, trp_session_rank(r->session),
                          trp_session_world(r->session), settings->micro_batch,
                          (int32_t *)r->micro[i].tokens, (int32_t *)r->micro[i].targets);
    }
    return trp_zero_step(r->engine, r->micro, count, stats, err);
}

/* final.txt in the last checkpoint: what two runs are compared by. Rank 0 writes it. */
static trp_code write_final(rank_state *r, const char *dir, const trp_step_stats *stats,
                            trp_error *err) {
    char hex[33], path[4096];
    trp_code code = trp_zero_weights_hash(r->engine, hex, err);
    if (code != TRP_OK || trp_session_rank(r->session) != 0) {
        return code;
    }
    snprintf(path, sizeof(path), "%s/final.txt", dir);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return fail(err, TRP_EIO, path, strerror(errno));
    }
    int written = fprintf(file, "%s %.17g %" PRIu64 "\n", hex, stats->loss, stats->step);
    if (fclose(file) != 0 || written < 0) {
        return fail(err, TRP_EIO, path, "cannot be written");
    }
    return TRP_OK;
}

static trp_code save(rank_state *r, const trp_step_stats *stats, bool is_last, trp_error *err) {
    trp_zero_position position = {r->position.epoch, r->position.sample, r->position.seed};
    const char *dir;
    trp_code code = trp_session_staging(r->session, &dir, err);
    if (code == TRP_OK) {
        code = trp_zero_save(r->engine, dir, &position, err);
    }
    if (code == TRP_OK && is_last) {
        code = write_final(r, dir, stats, err);
    }
    return code;
}

static trp_code report(rank_state *r, const trp_step_stats *stats, bool with_checkpoint,
                       trp_error *err) {
    const trp_zero_settings *settings = trp_zero_config_settings(r->config);
    double tokens = (double)(settings->train_batch * r->job.columns) * (double)stats->step;
    const trp_metric metrics[] = {{"loss", stats->loss},
                                  {"lr", stats->lr},
                                  {"grad_norm", stats->grad_norm},
                                  {"tokens", tokens}};
    trp_report made = {.step = stats->step,
                       .metrics = metrics,
                       .metric_count = sizeof(metrics) / sizeof(metrics[0]),
                       .has_checkpoint = with_checkpoint};
    return trp_session_report(r->session, &made, err);
}

static trp_code train_steps(rank_state *r, trp_error *err) {
    uint64_t steps = (uint64_t)r->job.steps;
    uint64_t every = (uint64_t)r->job.checkpoint_every;
    trp_code code = TRP_OK;
    while (code == TRP_OK && trp_zero_steps(r->engine) < steps) {
        trp_step_stats stats;
        code = one_step(r, &stats, err);
        bool is_last = code == TRP_OK && stats.step >= steps;
        bool is_due = code == TRP_OK && (is_last || (every > 0 && stats.step % every == 0));
        if (code == TRP_OK && is_due) {
            code = save(r, &stats, is_last, err);
        }
        if (code == TRP_OK) {
            code = report(r, &stats, is_due, err);
        }
    }
    return code;
}

static void release(rank_state *r) {
    trp_zero_free(r->engine);
    trp_dataset_close(r->dataset);
    trp_device_close(r->device);
    trp_zero_config_free(r->config);
    free(r->tokens);
    free(r->targets);
    free(r->micro);
    free(r->config_text);
}

/* The train function. Every attempt enters it anew, also on ranks that lived through the failure.
 */
static trp_code train(trp_session *session, trp_bytes config, trp_error *err) {
    rank_state r = {.session = session};
    if (config.size <= sizeof(r.job)) {
        return fail(err, TRP_EINVALID, "train_gpt2", "the job is cut short");
    }
    memcpy(&r.job, config.data, sizeof(r.job));
    r.config_text = strndup((const char *)config.data + sizeof(r.job), config.size - sizeof(r.job));
    if (r.config_text == NULL) {
        return fail(err, TRP_ENOMEM, "train_gpt2", "out of memory");
    }
    trp_code code =
        trp_zero_config_parse(r.config_text, trp_session_world(session), &r.config, err);
    if (code == TRP_OK) {
        code = open_data(&r, err);
    }
    if (code == TRP_OK) {
        code = open_engine(&r, err);
    }
    if (code == TRP_OK) {
        code = resume(&r, err);
    }
    trp_session_loaded(session);
    if (code == TRP_OK) {
        code = train_steps(&r, err);
    }
    release(&r);
    return code;
}

static const trp_train_function functions[] = {{"gpt2", train}, {NULL, NULL}};
static const trp_actor_type *const types[] = {TRP_TRAIN_TYPES, NULL};

/* ---- The driver: options ---- */

typedef struct options {
    gpt2_job job;
    int64_t workers, batch, stage, keep, max_failures, log_every, chaos, chaos_seed;
    double cpus, lr;
    const char *data, *ds_config, *name, *storage, *address, *kill_list;
    int64_t json;
    int64_t kill_at[KILLS_MAX];
    int kill_count;
} options;

/* One row per option: where its value goes, what it may be, and what --help says. */
typedef struct option_row {
    const char *name, *argument; /* argument NULL: a flag */
    enum { WHOLE, REAL, TEXT, HEADING } kind;
    size_t offset;
    double low, high;
    const char *text;
} option_row;

#define AT(field) offsetof(options, field)
static const option_row rows[] = {
    {"data", "FILE", TEXT, AT(data), 0, 0, "text to train on"},
    {"steps", "N", WHOLE, AT(job.steps), 1, 1e9, "training steps (200)"},
    {"seed", "N", WHOLE, AT(job.seed), 0, 1e15, "of the weights and the order of the data (1)"},
    {"layers", "N", WHOLE, AT(job.layers), 1, 1000, "of the model (4)"},
    {"width", "N", WHOLE, AT(job.width), 1, 65536, "of the model (128)"},
    {"heads", "N", WHOLE, AT(job.heads), 1, 1024, "of the model (4)"},
    {"seq", "N", WHOLE, AT(job.columns), 1, 65536, "tokens of a sample (128)"},
    {"ds-config", "FILE", TEXT, AT(ds_config), 0, 0, "DeepSpeed configuration; without it AdamW:"},
    {"batch", "N", WHOLE, AT(batch), 1, 1e6, "samples of a step, over all workers (8)"},
    {"stage", "N", WHOLE, AT(stage), 0, 3, "of ZeRO (3)"},
    {"lr", "X", REAL, AT(lr), 0, 10, "peak learning rate (0.003)"},
    {NULL, NULL, HEADING, 0, 0, 0, "run"},
    {"num-workers", "N", WHOLE, AT(workers), 1, 256, "(2)"},
    {"cpus-per-worker", "X", REAL, AT(cpus), 0.0001, 4096, "(1)"},
    {"name", "NAME", TEXT, AT(name), 0, 0, "of the run; the same name goes on where it ended"},
    {"storage", "DIR", TEXT, AT(storage), 0, 0, "(~/troupe_results)"},
    {"checkpoint-every", "N", WHOLE, AT(job.checkpoint_every), 0, 1e9,
     "steps (10); the last step always makes one"},
    {"keep", "N", WHOLE, AT(keep), 0, 1e6, "checkpoints; 0 = all (2)"},
    {"max-failures", "N", WHOLE, AT(max_failures), -1, 1e6, "-1 = any number (-1)"},
    {"address", "HOST:PORT", TEXT, AT(address), 0, 0, "of the head ($TROUPE_ADDRESS, else local)"},
    {NULL, NULL, HEADING, 0, 0, 0, "trouble, to see that it does no harm (workers on this host)"},
    {"kill-worker-at", "S,...", TEXT, AT(kill_list), 0, 0,
     "SIGKILL a random worker when step S is done"},
    {"chaos", "N", WHOLE, AT(chaos), 0, KILLS_MAX, "the same at N random steps"},
    {"chaos-seed", "N", WHOLE, AT(chaos_seed), 1, 1e15, "which steps and workers (random)"},
    {NULL, NULL, HEADING, 0, 0, 0, "output"},
    {"log-every", "N", WHOLE, AT(log_every), 1, 1e9, "steps between progress lines (10)"},
    {"json", NULL, WHOLE, AT(json), 0, 0, "the last line as JSON"},
    {"help", NULL, WHOLE, 0, 0, 0, "this text"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void print_help(void) {
    printf("usage: train_gpt2 --data FILE [options]\n\n"
           "Trains a GPT-2 on the bytes of FILE, on a cluster started by `troupe start`.\n\n");
    for (int i = 0; i < ROWS; i++) {
        char left[64];
        if (rows[i].kind == HEADING) {
            printf("%s:\n", rows[i].text);
            continue;
        }
        snprintf(left, sizeof(left), "--%s %s", rows[i].name,
                 rows[i].argument != NULL ? rows[i].argument : "");
        printf("  %-24s %s\n", left, rows[i].text);
    }
    printf("\nexit code: 0 trained, 1 failed, 2 wrong usage, 130 interrupted\n");
}

static bool parse_number(const option_row *row, const char *text, double *ret_value) {
    char *end;
    *ret_value = strtod(text, &end);
    bool whole = row->kind == REAL || *ret_value == (double)(int64_t)*ret_value;
    if (end == text || *end != '\0' || !(*ret_value >= row->low && *ret_value <= row->high) ||
        !whole) {
        fprintf(stderr, "train_gpt2: --%s is \"%s\"; it must be %s from %.15g to %.15g\n",
                row->name, text, row->kind == REAL ? "a number" : "a whole number", row->low,
                row->high);
        return false;
    }
    return true;
}

static bool set_option(options *o, const option_row *row, const char *text) {
    char *at = (char *)o + row->offset;
    double value = 1; /* of a flag */
    if (row->kind == TEXT) {
        memcpy(at, &text, sizeof(text));
        return true;
    }
    if (row->argument != NULL && !parse_number(row, text, &value)) {
        return false;
    }
    int64_t whole = (int64_t)value;
    memcpy(at, row->kind == REAL ? (void *)&value : (void *)&whole, 8);
    return true;
}

static uint64_t next_random(uint64_t *seed) {
    *seed += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = *seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int by_step(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The steps at which a worker is killed: those that were listed, and --chaos random ones. */
static bool plan_kills(options *o) {
    static const option_row row = {"kill-worker-at", "S", WHOLE, 0, 1, 1e9, NULL};
    char copy[1024];
    double step;
    snprintf(copy, sizeof(copy), "%s", o->kill_list != NULL ? o->kill_list : "");
    for (char *rest = copy, *part; *copy != '\0' && (part = strsep(&rest, ",")) != NULL;) {
        if (o->kill_count == KILLS_MAX || !parse_number(&row, part, &step)) {
            return false;
        }
        o->kill_at[o->kill_count++] = (int64_t)step;
    }
    if (o->chaos_seed == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        o->chaos_seed = 1 + (now.tv_nsec / 1000 + getpid()) % 1000000;
    }
    uint64_t seed = (uint64_t)o->chaos_seed;
    for (int64_t i = 0; i < o->chaos && o->kill_count < KILLS_MAX; i++) {
        o->kill_at[o->kill_count++] = 1 + (int64_t)(next_random(&seed) % (uint64_t)o->job.steps);
    }
    qsort(o->kill_at, (size_t)o->kill_count, sizeof(o->kill_at[0]), by_step);
    return true;
}

/* Returns -1 to go on, else the exit code. */
static int read_options(int argc, char **argv, options *o) {
    struct option longs[ROWS + 1] = {{0}};
    int count = 0, index;
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].kind != HEADING) {
            longs[count++] = (struct option){
                rows[i].name, rows[i].argument != NULL ? required_argument : no_argument, NULL, i};
        }
    }
    for (;;) {
        index = getopt_long(argc, argv, "", longs, NULL);
        if (index == -1) {
            break;
        }
        if (index == '?' || index >= ROWS) {
            return 2;
        }
        if (strcmp(rows[index].name, "help") == 0) {
            print_help();
            return 0;
        }
        if (!set_option(o, &rows[index], optarg)) {
            return 2;
        }
    }
    if (optind < argc || o->data == NULL) {
        fprintf(stderr, "train_gpt2: %s (try --help)\n",
                optind < argc ? "an argument too many" : "--data is missing");
        return 2;
    }
    return plan_kills(o) ? -1 : 2;
}

/* ---- The driver: the job ---- */

static const char built_in[] =
    "{\"train_batch_size\": %" PRId64
    ", \"gradient_accumulation_steps\": 1, \"gradient_clipping\": 1.0,\n"
    " \"zero_optimization\": {\"stage\": %" PRId64 "},\n"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": %g, \"betas\": [0.9, 0.95],\n"
    "                \"eps\": 1e-8, \"weight_decay\": 0.1}},\n"
    " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": %" PRId64
    ",\n                \"total_num_steps\": %" PRId64 "}}}\n";

static trp_code append_config(const options *o, trp_buf *out, trp_error *err) {
    if (o->ds_config == NULL) {
        int64_t warmup = o->job.steps / 20 + 2;
        return trp_buf_printf(out, built_in, o->batch, o->stage, o->lr, warmup,
                              o->job.steps > warmup ? o->job.steps : warmup + 1);
    }
    FILE *file = fopen(o->ds_config, "r");
    if (file == NULL) {
        return fail(err, TRP_ENOTFOUND, o->ds_config, strerror(errno));
    }
    char chunk[4096];
    size_t got;
    trp_code code = TRP_OK;
    while (code == TRP_OK && (got = fread(chunk, 1, sizeof(chunk), file)) > 0) {
        code = trp_buf_append(out, chunk, got);
    }
    fclose(file);
    return code;
}

/* The ranks would find out as well, but here nothing has been started yet. */
static trp_code check_job(const options *o, const trp_buf *job, trp_error *err) {
    trp_zero_config *config;
    trp_dataset *dataset;
    trp_code code = trp_dataset_open_bytes(o->job.data, o->job.columns, &dataset, err);
    if (code != TRP_OK) {
        return code;
    }
    trp_dataset_close(dataset);
    code = trp_zero_config_parse((const char *)job->data + sizeof(o->job), (int)o->workers, &config,
                                 err);
    if (code != TRP_OK) {
        return code;
    }
    const trp_zero_settings *settings = trp_zero_config_settings(config);
    printf("GPT-2: %" PRId64 " layers of width %" PRId64 ", ZeRO stage %d, %s, %" PRId64
           " workers, "
           "%" PRId64 " x %" PRId64 " tokens a step, %" PRId64 " steps\n",
           o->job.layers, o->job.width, settings->stage, trp_dtype_name(settings->compute),
           o->workers, settings->train_batch, o->job.columns, o->job.steps);
    const char *const *notes;
    size_t count = trp_zero_config_notes(config, &notes);
    for (size_t i = 0; o->ds_config != NULL && i < count; i++) {
        printf("note: %s\n", notes[i]);
    }
    trp_zero_config_free(config);
    return TRP_OK;
}

/* Workers have other working directories. */
static trp_code make_job(options *o, trp_buf *job, trp_error *err) {
    char *path = realpath(o->data, NULL);
    if (path == NULL) {
        return fail(err, TRP_ENOTFOUND, o->data, strerror(errno));
    }
    bool fits = snprintf(o->job.data, sizeof(o->job.data), "%s", path) < (int)sizeof(o->job.data);
    free(path);
    if (!fits) {
        return fail(err, TRP_EINVALID, "--data", "the path is too long");
    }
    trp_code code = trp_buf_append(job, &o->job, sizeof(o->job));
    if (code == TRP_OK) {
        code = append_config(o, job, err);
    }
    return code == TRP_OK ? check_job(o, job, err) : code;
}

/* ---- The driver: progress ---- */

static volatile int stop_requested;

static void on_interrupt(int signal) {
    static volatile sig_atomic_t count;
    if (++count >= 3) {
        _exit(130);
    }
    stop_requested = 1;
}

typedef struct progress {
    const options *options;
    trp_train_worker workers[256]; /* of the attempt that runs */
    size_t worker_count;           /* 0 while none does */
    int kills;
    uint64_t killed_ns; /* the kill that has not been recovered from; 0 = none */
    double recovery_ms[KILLS_MAX];
    int recoveries;
    uint64_t random;
    uint64_t last_ns;
    double last_tokens, loss;
} progress;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double metric(const trp_train_event *event, const char *name) {
    for (size_t i = 0; i < event->metric_count; i++) {
        if (strcmp(event->metrics[i].name, name) == 0) {
            return event->metrics[i].value;
        }
    }
    return 0;
}

static void maybe_kill(progress *p, uint64_t step) {
    const options *o = p->options;
    if (p->kills >= o->kill_count || p->worker_count == 0 || p->killed_ns != 0 ||
        (int64_t)step < o->kill_at[p->kills]) {
        return;
    }
    const trp_train_worker *victim = &p->workers[next_random(&p->random) % p->worker_count];
    p->killed_ns = now_ns();
    p->kills++;
    if (kill((pid_t)victim->pid, SIGKILL) != 0) {
        printf("kill -9 %" PRId64 " (rank %d): %s\n", victim->pid, victim->rank, strerror(errno));
        p->killed_ns = 0;
        return;
    }
    printf("kill -9 %" PRId64 " (rank %d) after step %" PRIu64 "\n", victim->pid, victim->rank,
           step);
}

static void on_report(progress *p, const trp_train_event *event) {
    double tokens = metric(event, "tokens");
    p->loss = metric(event, "loss");
    if (event->step % (uint64_t)p->options->log_every == 0 || p->last_ns == 0) {
        double seconds = (double)(event->at_ns - p->last_ns) / 1e9;
        printf("step %5" PRIu64 "/%" PRId64 "  loss %.4f  lr %.2e  norm %.2f", event->step,
               p->options->job.steps, p->loss, metric(event, "lr"), metric(event, "grad_norm"));
        if (p->last_ns != 0 && tokens > p->last_tokens) {
            printf("  %.0f tokens/s", (tokens - p->last_tokens) / seconds);
        }
        printf("\n");
        p->last_ns = event->at_ns;
        p->last_tokens = tokens;
    }
    maybe_kill(p, event->step);
}

/* The trainer measures from the notice of the death; who killed knows how long before that it was.
 */
static void on_recovered(progress *p, const trp_train_event *event) {
    const double *ms = event->recovery_ms;
    double before_ms = 0;
    if (p->killed_ns != 0) {
        double total_ms = (double)(event->at_ns - p->killed_ns) / 1e6;
        before_ms = total_ms - (ms[0] + ms[1] + ms[2] + ms[3] + ms[4]);
        if (p->recoveries < KILLS_MAX) {
            p->recovery_ms[p->recoveries++] = total_ms;
        }
        p->killed_ns = 0;
    }
    printf("recovered in %.0f ms: detect %.0f, respawn %.0f, rendezvous %.0f, load %.0f, "
           "first step %.0f\n",
           before_ms + ms[0] + ms[1] + ms[2] + ms[3] + ms[4], before_ms + ms[0], ms[1], ms[2],
           ms[3], ms[4]);
}

static void on_state(progress *p, const trp_train_event *event) {
    size_t room = sizeof(p->workers) / sizeof(p->workers[0]);
    p->worker_count = event->worker_count < room ? event->worker_count : room;
    if (p->worker_count > 0) {
        memcpy(p->workers, event->workers, p->worker_count * sizeof(p->workers[0]));
    }
    printf("%s\n", event->text);
}

static void on_event(void *arg, const trp_train_event *event) {
    progress *p = arg;
    switch (event->kind) {
    case TRP_TRAIN_STATE:
        on_state(p, event);
        break;
    case TRP_TRAIN_REPORT:
        on_report(p, event);
        break;
    case TRP_TRAIN_RECOVERED:
        on_recovered(p, event);
        break;
    case TRP_TRAIN_FAILURE:
        p->worker_count = 0;
        p->last_ns = 0; /* the rate starts anew */
        printf("%s\n", event->text);
        break;
    case TRP_TRAIN_CHECKPOINT:
        printf("%s\n", event->text);
        break;
    }
    fflush(stdout);
}

/* ---- The driver: the end ---- */

typedef struct summary {
    char weights[33];
    double loss;
    uint64_t step;
} summary;

static bool read_final(const trp_result *result, summary *ret_summary) {
    char path[4096];
    if (result->checkpoint == NULL) {
        return false;
    }
    snprintf(path, sizeof(path), "%s/final.txt", result->checkpoint);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    int got = fscanf(file, "%32s %lf %" SCNu64, ret_summary->weights, &ret_summary->loss,
                     &ret_summary->step);
    fclose(file);
    return got == 3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    if (count == 0) {
        return 0;
    }
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void print_summary(progress *p, const trp_result *result, const summary *s) {
    double p50 = median(p->recovery_ms, p->recoveries);
    if (p->options->json != 0) {
        printf("{\"steps\": %" PRIu64 ", \"final_loss\": %.17g, \"weights\": \"%s\", "
               "\"kills\": %d, \"restarts\": %d, \"recovery_p50_ms\": %.1f, "
               "\"wasted_steps\": %" PRIu64 ", \"goodput\": %.4f, \"seconds\": %.2f}\n",
               s->step, s->loss, s->weights, p->kills, result->restarts, p50, result->wasted_steps,
               result->goodput, result->wall_s);
        return;
    }
    printf("weights %s (XXH3-128 of all fp32 master weights), in %s\n", s->weights,
           result->checkpoint);
    printf("steps %" PRIu64 ", final loss %.4f, weights %.8s…", s->step, s->loss, s->weights);
    if (p->kills > 0) {
        printf(", kills %d, restarts %d, recovery p50 %.0f ms, wasted steps %" PRIu64
               ", goodput %.1f %%",
               p->kills, result->restarts, p50, result->wasted_steps, 100 * result->goodput);
    }
    printf("\n");
}

static int finish(progress *p, const trp_result *result, trp_code code, const trp_error *err) {
    summary s = {0};
    if (code == TRP_ECANCELED && stop_requested) {
        printf("interrupted; the last checkpoint is %s\n",
               result->checkpoint != NULL ? result->checkpoint : "none");
        return 130;
    }
    if (code != TRP_OK) {
        fprintf(stderr, "train_gpt2: %s\n", err->message);
        for (size_t i = 0; i < result->failure_count; i++) {
            const trp_rank_failure *failure = &result->failures[i];
            fprintf(stderr, "  rank %d: %s\n%s", failure->rank, failure->error.message,
                    failure->death.stderr_tail);
        }
        return code == TRP_EINVALID && result->path == NULL ? 2 : 1;
    }
    if (!read_final(result, &s)) {
        fprintf(stderr, "train_gpt2: the run has no final checkpoint; was it made with more "
                        "steps? Choose another --name\n");
        return 1;
    }
    print_summary(p, result, &s);
    return 0;
}

static int run(options *o, trp_runtime *rt) {
    trp_buf job = {0};
    trp_result result = {0};
    trp_error err = {0};
    progress p = {.options = o, .random = (uint64_t)o->chaos_seed};
    trp_code code = make_job(o, &job, &err);
    if (code != TRP_OK) {
        fprintf(stderr, "train_gpt2: %s\n", err.message);
        trp_buf_release(&job);
        return 2;
    }
    for (int i = 0; i < o->kill_count; i++) {
        printf("%s%" PRId64, i == 0 ? "will kill a worker after step " : ", ", o->kill_at[i]);
    }
    if (o->kill_count > 0) {
        printf(" (--chaos-seed %" PRId64 ")\n", o->chaos_seed);
    }
    trp_train_options fit = {.function = "gpt2",
                             .config = trp_buf_bytes(&job),
                             .on_event = on_event,
                             .on_event_arg = &p,
                             .stop = &stop_requested};
    fit.scaling.workers = (int)o->workers;
    fit.scaling.cpus_per_worker = o->cpus;
    fit.run.name = o->name;
    fit.run.storage_path = o->storage;
    fit.run.failure.max_failures = (int)o->max_failures;
    fit.run.checkpoint.keep = (int)o->keep;
    code = trp_fit(rt, &fit, &result, &err);
    int exit_code = finish(&p, &result, code, &err);
    trp_result_release(&result);
    trp_buf_release(&job);
    return exit_code;
}

int main(int argc, char **argv) {
    trp_runtime *rt = NULL;
    trp_error err = {0};
    options o = {.workers = 2,
                 .batch = 8,
                 .stage = 3,
                 .keep = 2,
                 .max_failures = -1,
                 .log_every = 10,
                 .cpus = 1,
                 .lr = 0.003,
                 .job = {.steps = 200,
                         .checkpoint_every = 10,
                         .layers = 4,
                         .width = 128,
                         .heads = 4,
                         .columns = 128,
                         .seed = 1}};
    trp_train_register(functions);
    if (getenv("TROUPE_ZYGOTE_FD") == NULL) { /* a worker has no options to read */
        int exit_code = read_options(argc, argv, &o);
        if (exit_code >= 0) {
            return exit_code;
        }
        struct sigaction action = {.sa_handler = on_interrupt};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
    }
    trp_init_options init = {.address = o.address, .job_name = "train_gpt2"};
    if (trp_init(types, &init, &rt, &err) != TRP_OK) {
        fprintf(stderr, "train_gpt2: %s\n", err.message);
        return 1;
    }
    int exit_code = run(&o, rt);
    trp_shutdown(&rt);
    return exit_code;
}

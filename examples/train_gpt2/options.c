#include "examples/train_gpt2/options.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    {NULL, NULL, HEADING, 0, 0, 0, "training"},
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
    {"num-workers", "N", WHOLE, AT(workers), 1, 256, "processes that share the training (2)"},
    {"cpus-per-worker", "X", REAL, AT(cpus), 0.0001, 4096, "(1)"},
    {"name", "NAME", TEXT, AT(name), 0, 0, "of the run; the same name goes on where it ended"},
    {"storage", "DIR", TEXT, AT(storage), 0, 0, "of the runs (~/troupe_results)"},
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

static const options defaults = {.workers = 2,
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

static void print_help(void) {
    printf("usage: train_gpt2 --data FILE [options]\n\n"
           "Trains a GPT-2 on the bytes of FILE, on a cluster started by `troupe start`.\n");
    for (int i = 0; i < ROWS; i++) {
        char left[64];
        if (rows[i].kind == HEADING) {
            printf("\n%s:\n", rows[i].text);
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
    bool fits = *ret_value >= row->low && *ret_value <= row->high; /* false for a NaN */
    bool whole = fits && (row->kind == REAL || *ret_value == (double)(int64_t)*ret_value);
    if (end == text || *end != '\0' || !whole) {
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

static bool read_kill_list(options *o) {
    static const option_row row = {"kill-worker-at", "S", WHOLE, 0, 1, 1e9, NULL};
    char copy[1024];
    double step;
    if (snprintf(copy, sizeof(copy), "%s", o->kill_list) >= (int)sizeof(copy)) {
        fprintf(stderr, "train_gpt2: --kill-worker-at: the list is too long\n");
        return false;
    }
    for (char *rest = copy, *part; (part = strsep(&rest, ",")) != NULL;) {
        if (!parse_number(&row, part, &step)) {
            return false;
        }
        if (o->kill_count == KILLS_MAX) {
            fprintf(stderr, "train_gpt2: --kill-worker-at: more than %d steps\n", KILLS_MAX);
            return false;
        }
        o->kill_at[o->kill_count++] = (int64_t)step;
    }
    return true;
}

/* Tells getopt of every row; an option's value there is its row's index. */
static void list_options(struct option *longs) {
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].kind != HEADING) {
            *longs++ = (struct option){
                rows[i].name, rows[i].argument != NULL ? required_argument : no_argument, NULL, i};
        }
    }
    *longs = (struct option){0};
}

static int read_arguments(int argc, char **argv, options *o) {
    struct option longs[ROWS + 1];
    int index;
    list_options(longs);
    while ((index = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (index == '?' || index >= ROWS) {
            return 2; /* getopt has said why */
        }
        if (strcmp(rows[index].name, "help") == 0) {
            print_help();
            return 0;
        }
        if (!set_option(o, &rows[index], optarg)) {
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "train_gpt2: \"%s\" is an argument too many (try --help)\n", argv[optind]);
        return 2;
    }
    return -1;
}

int options_read(int argc, char **argv, options *ret_options) {
    options o = defaults;
    int exit_code = read_arguments(argc, argv, &o);
    if (exit_code >= 0) {
        return exit_code;
    }
    if (o.data == NULL) {
        fprintf(stderr, "train_gpt2: --data is missing (try --help)\n");
        return 2;
    }
    if (o.kill_list != NULL && !read_kill_list(&o)) {
        return 2;
    }
    chaos_plan(&o);
    *ret_options = o;
    return -1;
}

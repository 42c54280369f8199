/* step_bench.c: how long a training step of the quickstart's model takes, beside the time that its
 * matrix products alone take in the same run. What lies between the two is everything else: norms,
 * attention's softmax, the optimizer, collectives, and the engine.
 *
 *     troupe-step-bench [STEPS]
 *     troupe-step-bench --quickstart STEPS
 *
 * The second prints two numbers for the quickstart's own configuration, in milliseconds; `troupe
 * bench` runs it so. It is a program of its own because oneDNN would add 5 MB and 2 ms to every
 * process of troupe. Ranks are threads with one core each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <troupe/model.h>
#include <troupe/zero.h>

#include "core/base/base.h"
#include "core/net/clock.h"

/* examples/quickstart.sh and the defaults of examples/train_gpt2 */
enum { LAYERS = 4, WIDTH = 256, HEADS = 4, VOCABULARY = 256, COLUMNS = 128, ROWS = 8, TOKEN = 1 };

typedef struct bench {
    int world, stage, steps;
    bool bf16;
    const char *address;
} bench;

typedef struct bench_rank {
    const bench *bench;
    int rank;
    pthread_t thread;
    double *step_s, *products_s; /* of every step */
    trp_code code;
    trp_error err;
} bench_rank;

static double now(void) {
    return 1e-9 * (double)trpi_now_ns();
}

/* ---- The step's matrix products, and nothing else ---- */

typedef struct products {
    trp_device *device;
    trp_dtype dtype;
    int64_t rows; /* B * T of a rank */
    void *x, *w, *y;
    float *grad;
} products;

static trp_code product(const products *p, int64_t m, int64_t n, int64_t k, bool trans_a,
                        bool trans_b, trp_error *err) {
    trp_matmul_args args = {.m = m,
                            .n = n,
                            .k = k,
                            .a = p->x,
                            .b = p->w,
                            .c = trans_a ? (void *)p->grad : p->y,
                            .trans_a = trans_a,
                            .trans_b = trans_b,
                            .accumulate = trans_a,
                            .dtype = p->dtype,
                            .dtype_c = trans_a ? TRP_F32 : p->dtype};
    return trp_op_matmul(p->device, &args, err);
}

/* A layer (in, out): y = x . w, dw += x^T . dy, dx = dy . w^T. */
static trp_code layer(const products *p, int64_t in, int64_t out, trp_error *err) {
    trp_code code = product(p, p->rows, out, in, false, false, err);
    if (!code) {
        code = product(p, in, out, p->rows, true, false, err);
    }
    return code ? code : product(p, p->rows, in, out, false, true, err);
}

static trp_code all_products(const products *p, trp_error *err) {
    trp_code code = TRP_OK;
    for (int l = 0; !code && l < LAYERS; l++) {
        code = layer(p, WIDTH, 3 * WIDTH, err);
        if (!code) {
            code = layer(p, WIDTH, WIDTH, err);
        }
        if (!code) {
            code = layer(p, WIDTH, 4 * WIDTH, err);
        }
        if (!code) {
            code = layer(p, 4 * WIDTH, WIDTH, err);
        }
    }
    return code ? code : layer(p, WIDTH, VOCABULARY, err);
}

static trp_code open_products(products *p, const bench *b, trp_device *device, trp_error *err) {
    size_t largest = (size_t)ROWS * COLUMNS * 4 * WIDTH * sizeof(float);
    *p = (products){.device = device, .dtype = b->bf16 ? TRP_BF16 : TRP_F32};
    p->rows = (int64_t)ROWS * COLUMNS / b->world;
    trp_code code = trp_device_alloc(device, largest, &p->x, err);
    if (!code) {
        code = trp_device_alloc(device, largest, &p->w, err);
    }
    if (!code) {
        code = trp_device_alloc(device, largest, &p->y, err);
    }
    if (!code) {
        code = trp_device_alloc(device, largest, (void **)&p->grad, err);
    }
    return code;
}

static void close_products(products *p) {
    void *all[] = {p->x, p->w, p->y, p->grad};
    for (size_t i = 0; p->device && i < TRPI_COUNTOF(all); i++) {
        trp_device_free(p->device, all[i]);
    }
}

/* ---- The step ---- */

static trp_code open_engine(bench_rank *r, trp_device *device, trp_comm *comm,
                            trp_zero_config **ret_config, trp_zero **ret_engine, trp_error *err) {
    char text[256];
    trp_model *model = NULL;
    trp_gpt2_config gpt2 = {.vocabulary = VOCABULARY,
                            .positions = COLUMNS,
                            .layers = LAYERS,
                            .heads = HEADS,
                            .width = WIDTH};
    trpi_format(text, sizeof text,
                "{\"train_batch_size\": %d, \"bf16\": {\"enabled\": %s},"
                " \"zero_optimization\": {\"stage\": %d}}",
                ROWS, r->bench->bf16 ? "true" : "false", r->bench->stage);
    trp_code code = trp_zero_config_parse(text, r->bench->world, ret_config, err);
    if (!code) {
        code = trp_gpt2_new(&gpt2, &model, err);
    }
    if (!code) {
        code = trp_zero_new(&model, device, comm, *ret_config, 1, ret_engine, err);
    }
    trp_model_free(model);
    return code;
}

/* In turn, so that both meet the same machine. */
static trp_code time_both(bench_rank *r, trp_device *device, trp_comm *comm, trp_error *err) {
    static int32_t tokens[ROWS * COLUMNS], targets[ROWS * COLUMNS]; /* zeros do */
    trp_zero_config *config = NULL;
    trp_zero *engine = NULL;
    products p = {0};
    trp_batch batch = {
        .tokens = tokens, .targets = targets, .rows = ROWS / r->bench->world, .columns = COLUMNS};
    trp_code code = open_engine(r, device, comm, &config, &engine, err);
    if (!code) {
        code = open_products(&p, r->bench, device, err);
    }
    for (int i = 0; !code && i < r->bench->steps; i++) {
        double start = now();
        code = trp_zero_step(engine, &batch, 1, NULL, err);
        double middle = now();
        r->step_s[i] = middle - start;
        if (!code) {
            code = all_products(&p, err);
        }
        r->products_s[i] = now() - middle;
    }
    close_products(&p);
    trp_zero_free(engine);
    trp_zero_config_free(config);
    return code;
}

static void *run_rank(void *arg) {
    bench_rank *r = arg;
    trp_device *device = NULL;
    trp_comm *comm = NULL;
    trp_comm_options options = {.address = r->bench->address,
                                .rank = r->rank,
                                .world = r->bench->world,
                                .token = TOKEN,
                                .timeout_ms = 60000};
    r->code = trp_device_open("cpu", &(trp_device_options){.threads = 1}, &device, &r->err);
    if (!r->code) {
        r->code = trp_comm_open(&options, &comm, &r->err);
    }
    if (!r->code) {
        r->code = time_both(r, device, comm, &r->err);
    }
    if (r->code && comm) {
        trp_comm_abort(comm);
    }
    trp_comm_close(comm);
    trp_device_close(device); /* with what is still allocated on it */
    return NULL;
}

static _Noreturn void give_up(const char *why) {
    fprintf(stderr, "troupe-step-bench: %s\n", why);
    exit(1);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int count) {
    qsort(times, (size_t)count, sizeof *times, compare);
    return times[count / 2];
}

/* Medians of the slowest rank. */
typedef struct outcome {
    double step_s, products_s;
} outcome;

static outcome run(bench b) {
    enum { RANKS_MAX = 8 };
    bench_rank ranks[RANKS_MAX] = {0};
    outcome slowest = {0};
    trp_comm_root *root = NULL;
    trp_error err = {0};
    if (trp_comm_root_open(b.world == 1 ? "self" : "host", b.world, TOKEN, &root, &err)) {
        give_up(err.message);
    }
    b.address = trp_comm_root_address(root);
    for (int r = 0; r < b.world; r++) {
        ranks[r] = (bench_rank){.bench = &b, .rank = r};
        ranks[r].step_s = calloc((size_t)b.steps, sizeof(double));
        ranks[r].products_s = calloc((size_t)b.steps, sizeof(double));
        if (!ranks[r].step_s || !ranks[r].products_s) {
            give_up("out of memory");
        }
        if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]) != 0) {
            give_up("no thread");
        }
    }
    for (int r = 0; r < b.world; r++) {
        pthread_join(ranks[r].thread, NULL);
    }
    for (int r = 0; r < b.world; r++) {
        if (ranks[r].code) {
            give_up(ranks[r].err.message);
        }
        slowest.step_s = TRPI_MAX(slowest.step_s, median(ranks[r].step_s, b.steps));
        slowest.products_s = TRPI_MAX(slowest.products_s, median(ranks[r].products_s, b.steps));
        free(ranks[r].step_s);
        free(ranks[r].products_s);
    }
    trp_comm_root_close(root);
    return slowest;
}

static void print_all(int steps) {
    printf("GPT-2, %d layers, width %d, %d x %d tokens a step; medians of %d steps\n\n", LAYERS,
           WIDTH, ROWS, COLUMNS, steps);
    printf("%-6s %-6s %-6s %10s %12s %8s %12s\n", "dtype", "ranks", "stage", "step ms",
           "products ms", "ratio", "tokens/s");
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int world = 1; world <= 2; world++) {
            for (int stage = 0; stage <= 3; stage += 3) {
                outcome t =
                    run((bench){.world = world, .stage = stage, .steps = steps, .bf16 = bf16});
                printf("%-6s %-6d %-6d %10.2f %12.2f %8.2f %12.0f\n", bf16 ? "bf16" : "fp32", world,
                       stage, 1e3 * t.step_s, 1e3 * t.products_s, t.step_s / t.products_s,
                       ROWS * COLUMNS / t.step_s);
            }
        }
    }
}

int main(int argc, char **argv) {
    uint64_t steps = 20;
    bool is_quickstart = argc == 3 && strcmp(argv[1], "--quickstart") == 0;
    if ((argc > 2 && !is_quickstart) ||
        (argc > 1 && !trpi_parse_u64(argv[argc - 1], 100000, &steps)) || steps == 0) {
        fprintf(stderr, "usage: troupe-step-bench [--quickstart] [STEPS]\n");
        return 2;
    }
    if (is_quickstart) {
        outcome t = run((bench){.world = 2, .stage = 3, .steps = (int)steps});
        printf("%.3f %.3f\n", 1e3 * t.step_s, 1e3 * t.products_s);
    } else {
        print_all((int)steps);
    }
    return 0;
}

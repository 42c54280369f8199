/* summary.c: the last lines: what the run ended with. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "examples/train_gpt2/display.h"
#include "examples/train_gpt2/final.h"

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

static void print_json(display *d, const trp_result *result, const final_state *final) {
    printf("{\"steps\": %" PRIu64 ", \"final_loss\": %.17g, \"weights\": \"%s\", "
           "\"kills\": %d, \"restarts\": %d, \"recovery_p50_ms\": %.1f, "
           "\"wasted_steps\": %" PRIu64 ", \"goodput\": %.4f, \"seconds\": %.2f}\n",
           final->step, final->loss, final->weights, d->chaos.kills, result->restarts,
           median(d->recovery_ms, d->recoveries), result->wasted_steps, result->goodput,
           result->wall_s);
}

static void print_lines(display *d, const trp_result *result, const final_state *final) {
    printf("weights %s (XXH3-128 of all fp32 master weights), in %s\n", final->weights,
           result->checkpoint);
    printf("steps %" PRIu64 ", final loss %.4f, weights %.8s…", final->step, final->loss,
           final->weights);
    if (d->chaos.kills > 0) {
        printf(", kills %d, restarts %d, recovery p50 %.0f ms, wasted steps %" PRIu64
               ", goodput %.1f %%",
               d->chaos.kills, result->restarts, median(d->recovery_ms, d->recoveries),
               result->wasted_steps, 100 * result->goodput);
    }
    printf("\n");
}

static void print_failures(const trp_result *result) {
    for (size_t i = 0; i < result->failure_count; i++) {
        const trp_rank_failure *failure = &result->failures[i];
        fprintf(stderr, "  rank %d: %s\n%s", failure->rank, failure->error.message,
                failure->death.stderr_tail);
    }
}

int display_result(display *d, const trp_result *result, trp_code code, const trp_error *err) {
    final_state final;
    if (code == TRP_ECANCELED) {
        printf("interrupted; the last checkpoint is %s\n",
               result->checkpoint != NULL ? result->checkpoint : "none");
        return 130;
    }
    if (code != TRP_OK) {
        fprintf(stderr, "train_gpt2: %s\n", err->message);
        print_failures(result);
        return code == TRP_EINVALID && result->path == NULL ? 2 : 1;
    }
    if (!final_read(result->checkpoint, &final) || final.step != (uint64_t)d->options->job.steps) {
        fprintf(stderr,
                "train_gpt2: the run in %s has gone beyond --steps %" PRId64
                " already; choose another --name or more steps\n",
                result->path, d->options->job.steps);
        return 1;
    }
    if (d->options->json != 0) {
        print_json(d, result, &final);
    } else {
        print_lines(d, result, &final);
    }
    return 0;
}

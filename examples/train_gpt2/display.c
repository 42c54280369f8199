#include "examples/train_gpt2/display.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void display_init(display *d, const options *o) {
    *d = (display){.options = o, .chaos = chaos_start(o)};
}

static double metric(const trp_train_event *event, const char *name) {
    for (size_t i = 0; i < event->metric_count; i++) {
        if (strcmp(event->metrics[i].name, name) == 0) {
            return event->metrics[i].value;
        }
    }
    return 0;
}

enum { RATE_COLUMNS = 17 };

/* A step is reported first and durable a moment later, so its line stays open until it is known
 * whether a checkpoint belongs to it. */
static void close_line(display *d, const trp_train_event *event) {
    if (d->open_step == 0) {
        return;
    }
    if (event->kind == TRP_TRAIN_CHECKPOINT && event->step == d->open_step) {
        printf("%*s  %.*s", d->open_pad, "", (int)strcspn(event->text, ":"), event->text);
    }
    printf("\n");
    d->open_step = 0;
}

static void print_step(display *d, const trp_train_event *event) {
    double tokens = metric(event, "tokens");
    printf("step %5" PRIu64 "/%" PRId64 "  loss %.4f  lr %.2e  norm %5.2f", event->step,
           d->options->job.steps, metric(event, "loss"), metric(event, "lr"),
           metric(event, "grad_norm"));
    d->open_pad = RATE_COLUMNS;
    if (d->last_ns != 0 && event->at_ns > d->last_ns && tokens > d->last_tokens) {
        double seconds = (double)(event->at_ns - d->last_ns) / 1e9;
        d->open_pad -= printf("  %6.0f tokens/s", (tokens - d->last_tokens) / seconds);
    }
    d->open_step = event->step;
    d->last_ns = event->at_ns;
    d->last_tokens = tokens;
}

static void on_report(display *d, const trp_train_event *event) {
    if (event->step % (uint64_t)d->options->log_every == 0 || d->last_ns == 0 ||
        event->step == (uint64_t)d->options->job.steps) {
        print_step(d, event);
    }
    if (chaos_is_due(&d->chaos, event->step) && d->worker_count > 0) {
        close_line(d, event);
        chaos_kill(&d->chaos, event->step, d->workers, d->worker_count);
    }
}

/* The trainer measures from the notice of the death; who killed knows how long before that it was.
 */
static void on_recovered(display *d, const trp_train_event *event) {
    const double *ms = event->recovery_ms;
    double total_ms = ms[0] + ms[1] + ms[2] + ms[3] + ms[4], unnoticed_ms = 0;
    if (d->chaos.killed_ns != 0) {
        double since_kill_ms = (double)(event->at_ns - d->chaos.killed_ns) / 1e6;
        unnoticed_ms = since_kill_ms - total_ms;
        total_ms = since_kill_ms;
        d->recovery_ms[d->recoveries++] = total_ms;
        d->chaos.killed_ns = 0;
    }
    printf("recovered in %.0f ms: detect %.0f, respawn %.0f, rendezvous %.0f, load %.0f, "
           "first step %.0f\n",
           total_ms, unnoticed_ms + ms[0], ms[1], ms[2], ms[3], ms[4]);
}

static void on_state(display *d, const trp_train_event *event) {
    d->worker_count = event->worker_count < WORKERS_MAX ? event->worker_count : WORKERS_MAX;
    if (d->worker_count > 0) {
        memcpy(d->workers, event->workers, d->worker_count * sizeof(d->workers[0]));
    }
    printf("%s\n", event->text);
}

void display_event(void *arg, const trp_train_event *event) {
    display *d = arg;
    close_line(d, event);
    switch (event->kind) {
    case TRP_TRAIN_STATE:
        on_state(d, event);
        break;
    case TRP_TRAIN_REPORT:
        on_report(d, event);
        break;
    case TRP_TRAIN_CHECKPOINT:
        break; /* on the line of its step, if that has one */
    case TRP_TRAIN_FAILURE:
        d->worker_count = 0;
        d->last_ns = 0; /* the rate starts anew */
        printf("%s\n", event->text);
        break;
    case TRP_TRAIN_RECOVERED:
        on_recovered(d, event);
        break;
    }
    fflush(stdout);
}

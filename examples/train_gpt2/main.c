/* main.c: trains a GPT-2 on the bytes of a text, sharded by ZeRO over N workers, and survives their
 * deaths. The driver: options in, trp_fit(), progress out.
 *
 *   main.c --> options.c, chaos.c      what is asked for
 *          --> job.c                   ... as the bytes that every rank gets
 *          --> trp_fit() --> train.c   on every rank, in worker processes: step, save, report
 *          |                 rank.c, final.c
 *          --> display.c, summary.c    what happens, and how it ended
 *
 * Workers are this same program: in them trp_init() serves and never returns.
 * Not for tokenized text or fine-tuning: the vocabulary is the 256 bytes. */
#include <signal.h>
#include <stdio.h>
#include <troupe/runtime.h>
#include <unistd.h>

#include "examples/train_gpt2/display.h"
#include "examples/train_gpt2/train.h"

static const trp_train_function functions[] = {{"gpt2", train}, {NULL, NULL}};
static const trp_actor_type *const types[] = {TRP_TRAIN_TYPES, NULL};

static volatile int stop_requested;

/* Once or twice ends the run in order, with its workers; who insists gets out at once. */
static void on_interrupt(int signal) {
    static volatile sig_atomic_t count;
    (void)signal;
    if (++count >= 3) {
        _exit(130);
    }
    stop_requested = 1;
}

/* What is asked for, checked before anything is started. Returns -1 to go on, else the exit
 * code. */
static int prepare(int argc, char **argv, options *ret_options, trp_buf *ret_job) {
    trp_error err = {0};
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* in a pipe, too: lines in the order of events */
    int exit_code = options_read(argc, argv, ret_options);
    if (exit_code >= 0) {
        return exit_code;
    }
    if (job_make(ret_options, ret_job, &err) != TRP_OK) {
        fprintf(stderr, "train_gpt2: %s\n", err.message);
        return 2;
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    return -1;
}

static int run(trp_runtime *rt, const options *o, const trp_buf *job) {
    static display shown; /* too large for a stack to be taken for granted */
    trp_result result = {0};
    trp_error err = {0};
    display_init(&shown, o);
    trp_train_options fit = {
        .function = "gpt2",
        .config = trp_buf_bytes(job),
        .scaling = {.workers = (int)o->workers, .cpus_per_worker = o->cpus},
        .run = {.name = o->name,
                .storage_path = o->storage,
                .failure.max_failures = (int)o->max_failures,
                .checkpoint.keep = (int)o->keep},
        .on_event = display_event,
        .on_event_arg = &shown,
        .stop = &stop_requested,
    };
    trp_code code = trp_fit(rt, &fit, &result, &err);
    int exit_code = display_result(&shown, &result, code, &err);
    trp_result_release(&result);
    return exit_code;
}

int main(int argc, char **argv) {
    trp_runtime *rt = NULL;
    trp_buf job = {0};
    trp_error err = {0};
    options o = {0};
    trp_train_register(functions);
    int exit_code = trp_is_worker() ? -1 : prepare(argc, argv, &o, &job);
    if (exit_code < 0) {
        trp_init_options init = {.address = o.address, .job_name = "train_gpt2"};
        if (trp_init(types, &init, &rt, &err) == TRP_OK) { /* a worker does not get further */
            exit_code = run(rt, &o, &job);
        } else {
            fprintf(stderr, "train_gpt2: %s\n", err.message);
            exit_code = 1;
        }
    }
    trp_shutdown(&rt);
    trp_buf_release(&job);
    return exit_code;
}

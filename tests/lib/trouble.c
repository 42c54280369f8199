#include "tests/lib/trouble.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/net/clock.h"
#include "tests/lib/child.h"
#include "tests/lib/methods.h"

#define BEAT_MS 20

typedef struct trouble {
    long lingers_ms;
} trouble;

static trp_code trouble_start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    test_sleep_ms(test_number_of(args));
    return TRP_OK;
}

static void trouble_stop(trp_context *ctx, void *state) {
    fprintf(stderr, "stop hook\n");
    test_sleep_ms(((trouble *)state)->lingers_ms);
}

static trp_code trouble_save(trp_context *ctx, void *state, trp_buf *saved, trp_error *err) {
    return trp_buf_printf(saved, "what I was");
}

static trp_code run_sleep(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                          trp_error *err) {
    test_sleep_ms(test_number_of(args));
    return trp_buf_printf(reply, "slept");
}

static trp_code run_spin(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                         trp_error *err) {
    uint64_t until_ns = trpi_deadline_ns((uint64_t)test_number_of(args));
    while (trpi_now_ns() < until_ns) {
    }
    return TRP_OK;
}

static trp_code run_beat(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                         trp_error *err) {
    for (long left = test_number_of(args); left > 0; left -= BEAT_MS) {
        test_sleep_ms(BEAT_MS);
        trp_context_beat(ctx);
    }
    return trp_buf_printf(reply, "beaten");
}

static trp_code run_eat(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                        trp_error *err) {
    size_t size = (size_t)test_number_of(args) << 20;
    char *data = malloc(size);
    if (!data) {
        return TRP_ENOMEM;
    }
    memset(data, 1, size); /* kept: that is what it is for */
    return trp_buf_printf(reply, "%d", (int)getpid() + (data[size - 1] - 1));
}

static trp_code run_linger(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    ((trouble *)state)->lingers_ms = test_number_of(args);
    return TRP_OK;
}

static trp_code run_child(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                          trp_error *err) {
    pid_t pid;
    trp_code code = test_stray_start(false, &pid, err);
    return code != TRP_OK ? code : trp_buf_printf(reply, "%d", (int)pid);
}

static trp_code run_daemon(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    pid_t pid;
    trp_code code = test_stray_start(true, &pid, err);
    return code != TRP_OK ? code : trp_buf_printf(reply, "%d", (int)pid);
}

static trp_code run_core(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                         trp_error *err) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_CORE, &limit);
    }
    abort();
}

static trp_code run_save(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                         trp_error *err) {
    trp_code code = trp_context_save(ctx, 10000, err);
    return trp_buf_printf(reply, "%s", code == TRP_OK ? "saved" : err->message);
}

static trp_code run_drain_ms(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    return trp_buf_printf(reply, "%llu", (unsigned long long)trp_context_drain_ms(ctx));
}

static const trp_method methods[] = {{"sleep", run_sleep, NULL},
                                     {"spin", run_spin, NULL},
                                     {"beat", run_beat, NULL},
                                     {"eat", run_eat, NULL},
                                     {"linger", run_linger, NULL},
                                     {"child", run_child, NULL},
                                     {"daemon", run_daemon, NULL},
                                     {"core", run_core, NULL},
                                     {"save", run_save, NULL},
                                     {"drain_ms", run_drain_ms, NULL},
                                     {NULL, NULL, NULL}};
const trp_actor_type test_trouble_type = {.name = "trouble",
                                          .state_size = sizeof(trouble),
                                          .methods = methods,
                                          .start = trouble_start,
                                          .stop = trouble_stop,
                                          .save = trouble_save};
const trp_actor_type *const test_trouble_types[] = {&test_trouble_type, &test_probe_type, NULL};

void test_start_trouble(test_head *head, const test_start *what, test_caller *caller,
                        int64_t *ret_pid) {
    test_start start = *what;
    start.type = "trouble";
    const trpi_msg_started *started = test_wait_started(head, test_say_start(head, &start));
    if (ret_pid) {
        *ret_pid = started->pid;
    }
    test_caller_open(head, started, caller);
}

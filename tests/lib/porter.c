#include "tests/lib/porter.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/base.h"
#include "core/net/clock.h"
#include "tests/lib/methods.h"

typedef struct porter {
    int log;
    long count;
    trp_promise *promise;
    atomic_int inside; /* of meet */
    atomic_int busy, busy_max;
} porter;

static void note(porter *self, const char *what) {
    char line[64];
    trpi_format(line, sizeof line, "%s\n", what);
    if (self->log > 0) {
        (void)!write(self->log, line, strlen(line));
    }
}

/* ---- Hooks ---- */

static trp_code start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    porter *self = state;
    char text[256];
    test_text_of(args, text, sizeof text);
    char *what = strchr(text, ' ');
    if (what) {
        *what++ = '\0';
    }
    if (*text) {
        self->log = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    if (what && strcmp(what, "fail") == 0) {
        return trp_raise(err, "KeyError", "no key %d", 7);
    }
    if (what && strcmp(what, "slow") == 0) {
        test_sleep_ms(300);
    }
    note(self, "start");
    return TRP_OK;
}

static void stop(trp_context *ctx, void *state) {
    test_sleep_ms(50);
    note(state, "stop");
}

static void stop_never(trp_context *ctx, void *state) {
    note(state, "stop");
    test_sleep_ms(3600000);
}

static trp_code save(trp_context *ctx, void *state, trp_buf *saved, trp_error *err) {
    note(state, "save");
    return trp_buf_printf(saved, "%ld", ((porter *)state)->count);
}

static trp_code load(trp_context *ctx, void *state, trp_bytes saved, trp_error *err) {
    if (saved.size == 3 && memcmp(saved.data, "bad", 3) == 0) {
        return trp_raise(err, "ValueError", "not a number");
    }
    ((porter *)state)->count = test_number_of(saved);
    note(state, "load");
    return TRP_OK;
}

static void drain(trp_context *ctx, void *state, uint64_t deadline_ms) {
    char text[32];
    trpi_format(text, sizeof text, "drain %llu s", (unsigned long long)(deadline_ms + 500) / 1000);
    note(state, text);
}

/* ---- Methods ---- */

static trp_code add(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply, trp_error *err) {
    note(state, "add");
    return trp_buf_printf(reply, "%ld", ++((porter *)state)->count);
}

static trp_code count(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                      trp_error *err) {
    return trp_buf_printf(reply, "%ld", ((porter *)state)->count);
}

static trp_code sleep_(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                       trp_error *err) {
    note(state, "sleep");
    test_sleep_ms(test_number_of(args));
    return trp_buf_printf(reply, "slept");
}

static trp_code meet(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                     trp_error *err) {
    porter *self = state;
    int wanted = (int)test_number_of(args), tries = 5000;
    atomic_fetch_add(&self->inside, 1);
    while (atomic_load(&self->inside) < wanted && tries-- > 0) {
        test_sleep_ms(1);
    }
    return trp_buf_printf(reply, tries > 0 ? "met" : "alone");
}

static trp_code busy(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                     trp_error *err) {
    porter *self = state;
    int now = atomic_fetch_add(&self->busy, 1) + 1, max = atomic_load(&self->busy_max);
    while (now > max && !atomic_compare_exchange_weak(&self->busy_max, &max, now)) {
    }
    test_sleep_ms(test_number_of(args));
    atomic_fetch_sub(&self->busy, 1);
    return TRP_OK;
}

static trp_code many(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                     trp_error *err) {
    return trp_buf_printf(reply, "%d", atomic_load(&((porter *)state)->busy_max));
}

static trp_code until_canceled(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                               trp_error *err) {
    int tries = 5000;
    note(state, "until_canceled");
    while (!trp_context_canceled(ctx) && tries-- > 0) {
        test_sleep_ms(1);
    }
    note(state, tries > 0 ? "canceled" : "not canceled");
    return trp_buf_printf(reply, "%s", tries > 0 ? "canceled" : "not");
}

static void *answer_when_canceled(void *arg) {
    porter *self = arg;
    for (int tries = 0; tries < 5000 && !trp_promise_canceled(self->promise); tries++) {
        test_sleep_ms(1);
    }
    note(self, trp_promise_canceled(self->promise) ? "canceled" : "not canceled");
    trp_promise_resolve(self->promise, trp_bytes_of("late"));
    return NULL;
}

static trp_code defer_canceled(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                               trp_error *err) {
    pthread_t thread;
    trp_code code = trp_defer(ctx, &((porter *)state)->promise, err);
    if (code == TRP_OK) {
        pthread_create(&thread, NULL, answer_when_canceled, state);
        pthread_detach(thread);
    }
    return code;
}

static void *answer_later(void *arg) {
    test_sleep_ms(200);
    trp_promise_resolve(((porter *)arg)->promise, trp_bytes_of("late"));
    return NULL;
}

static trp_code defer(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                      trp_error *err) {
    pthread_t thread;
    trp_code code = trp_defer(ctx, &((porter *)state)->promise, err);
    if (code == TRP_OK) {
        pthread_create(&thread, NULL, answer_later, state);
        pthread_detach(thread);
    }
    return code;
}

static trp_code abandon(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                        trp_error *err) {
    return trp_defer(ctx, &((porter *)state)->promise, err);
}

static trp_code leave(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                      trp_error *err) {
    trp_context_exit(ctx);
    return trp_buf_printf(reply, "leaving");
}

static trp_code save_now(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                         trp_error *err) {
    trp_code code = trp_context_save(ctx, args.size ? (uint64_t)test_number_of(args) : 10000, err);
    return code == TRP_OK ? trp_buf_printf(reply, "saved") : code;
}

static trp_code caller(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                       trp_error *err) {
    return trp_buf_printf(reply, "%llu", (unsigned long long)trp_context_caller(ctx));
}

static trp_code drain_ms(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                         trp_error *err) {
    uint64_t ms = trp_context_drain_ms(ctx);
    return ms == UINT64_MAX ? trp_buf_printf(reply, "none")
                            : trp_buf_printf(reply, "%llu", (unsigned long long)ms);
}

static trp_code raise_(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                       trp_error *err) {
    return trp_raise(err, "KeyError", "no key %d", 7);
}

/* As when another actor has answered that. */
static trp_code pass_on(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                        trp_error *err) {
    trp_error inner = {.code = TRP_EUSER, .type = "ValueError", .where = "far.c:1 f()"};
    TRPI_SET(inner.message, "far away");
    *err = inner;
    return inner.code;
}

static trp_code beat(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                     trp_error *err) {
    test_sleep_ms(300);
    trp_context_beat(ctx);
    test_sleep_ms(300);
    return TRP_OK;
}

/* What is mapped is all that may be: a thread needs a stack. */
static trp_code narrow(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                       trp_error *err) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) {
        return trp_raise(err, "Error", "statm");
    }
    fclose(file);
    rlim_t most = test_number_of(args) ? RLIM_INFINITY
                                       : (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1 << 20);
    struct rlimit limit = {most, RLIM_INFINITY};
    return setrlimit(RLIMIT_AS, &limit) == 0 ? TRP_OK : trp_raise(err, "Error", "setrlimit");
}

static trp_code stamp(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                      trp_error *err) {
    char path[256];
    test_text_of(args, path, sizeof path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(uint64_t)) != 0) {
        return trp_raise(err, "Error", "open %s", path);
    }
    volatile uint64_t *at = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (;;) {
        *at = trpi_boot_ns();
    }
}

#define METHODS                                                                                    \
    {"add", add}, {"count", count}, {"sleep", sleep_}, {"meet", meet}, {"busy", busy},             \
        {"many", many}, {"until_canceled", until_canceled}, {"defer_canceled", defer_canceled},    \
        {"defer", defer}, {"abandon", abandon}, {"exit", leave}, {"save", save_now},               \
        {"caller", caller}, {"drain_ms", drain_ms}, {"raise", raise_}, {"pass_on", pass_on},       \
        {"beat", beat}, {"narrow", narrow}, {                                                      \
        "stamp", stamp                                                                             \
    }

static const trp_method serial_methods[] = {METHODS, {NULL, NULL}};
static const trp_method porter_methods[] = {METHODS,
                                            {"io_meet", meet, "io"},
                                            {"io_sleep", sleep_, "io"},
                                            {"io_until_canceled", until_canceled, "io"},
                                            {"io_defer_canceled", defer_canceled, "io"},
                                            {"io_exit", leave, "io"},
                                            {"wide_meet", meet, "wide"},
                                            {"wide_sleep", sleep_, "wide"},
                                            {NULL, NULL}};
static const trp_concurrency groups[] = {{"io", 2}, {"wide", 8}, {NULL, 0}};

const trp_actor_type test_porter_type = {.name = "porter",
                                         .state_size = sizeof(porter),
                                         .methods = porter_methods,
                                         .start = start,
                                         .stop = stop,
                                         .save = save,
                                         .load = load,
                                         .drain = drain,
                                         .concurrency = groups};
const trp_actor_type test_serial_type = {.name = "serial",
                                         .state_size = sizeof(porter),
                                         .methods = serial_methods,
                                         .start = start,
                                         .stop = stop,
                                         .save = save,
                                         .load = load,
                                         .drain = drain};
const trp_actor_type test_unsaved_type = {
    .name = "unsaved", .state_size = sizeof(porter), .methods = serial_methods, .start = start};
const trp_actor_type test_blocker_type = {.name = "blocker",
                                          .state_size = sizeof(porter),
                                          .methods = serial_methods,
                                          .start = start,
                                          .stop = stop_never};
const trp_actor_type *const test_porter_types[] = {&test_porter_type, &test_serial_type,
                                                   &test_unsaved_type, &test_blocker_type, NULL};

#include "tests/lib/ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* After the headers that it needs. */
#include <cmocka.h>

#include "core/base/base.h"

#define TIMEOUT_MS 60000
#define TOKEN 7

typedef struct rank_thread {
    pthread_t thread;
    test_rank self;
    const char *address;
    test_rank_fn fn;
    trp_code code;
    trp_error err;
} rank_thread;

trp_code test_complain(trp_error *err, const char *condition, const char *file, int line) {
    return trpi_fail(err, TRP_EINTERNAL, "%s:%d: %s does not hold", file, line, condition);
}

static void *run_rank(void *arg) {
    rank_thread *t = arg;
    test_rank *self = &t->self;
    trp_comm_options options = {.address = t->address,
                                .rank = self->rank,
                                .world = self->world,
                                .token = TOKEN,
                                .timeout_ms = TIMEOUT_MS};
    t->code = trp_comm_open(&options, &self->comm, &t->err);
    if (!t->code) {
        t->code =
            trp_device_open("cpu", &(trp_device_options){.threads = 1}, &self->device, &t->err);
    }
    if (!t->code) {
        t->code = t->fn(self, &t->err);
    }
    if (t->code && self->comm) {
        trp_comm_abort(self->comm);
    }
    trp_device_close(self->device);
    trp_comm_close(self->comm);
    return NULL;
}

void test_ranks_run(int world, test_rank_fn fn, void *arg) {
    trp_comm_root *root = NULL;
    trp_error err = {0};
    rank_thread *threads = calloc((size_t)world, sizeof *threads);
    assert_non_null(threads);
    if (trp_comm_root_open(world == 1 ? "self" : "host", world, TOKEN, &root, &err)) {
        fail_msg("%s", err.message);
    }
    for (int r = 0; r < world; r++) {
        threads[r].self = (test_rank){.rank = r, .world = world, .arg = arg};
        threads[r].address = trp_comm_root_address(root);
        threads[r].fn = fn;
        assert_int_equal(pthread_create(&threads[r].thread, NULL, run_rank, &threads[r]), 0);
    }
    int first = -1;
    for (int r = 0; r < world; r++) {
        pthread_join(threads[r].thread, NULL);
        bool aborted = threads[r].code == TRP_ECOMM_ABORTED;
        if (threads[r].code &&
            (first < 0 || (!aborted && threads[first].code == TRP_ECOMM_ABORTED))) {
            first = r;
        }
    }
    trp_comm_root_close(root);
    trp_error failed = first >= 0 ? threads[first].err : (trp_error){0};
    free(threads);
    if (first >= 0) {
        fail_msg("rank %d of %d: %s", first, world, failed.message);
    }
}

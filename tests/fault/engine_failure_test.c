/* Whatever fails in an engine, and wherever: every rank is told, none waits, nothing is leaked, and
 * no engine goes on half done. A rank's device fails its n-th allocation, or its communicator the
 * n-th collective, for every n that there is. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "core/base/base.h"
#include "core/sys/file.h"
#include "tests/lib/toy.h"
#include "trainer/comm/comm.h"
#include "trainer/device/device.h"

#define WORLD 2
#define LATE_S 20 /* a rank that waits for a peer would wait for a minute */

static char dir[64];

/* ---- A device and a communicator that fail when they are told to. One rank's thread uses its own.
 */

static _Thread_local int allocs_left = -1, collectives_left = -1; /* -1: never fail */
static const trpi_device_table *real_device;
static const trpi_comm_kind *real_comm;

/* Counts down; true for the one that has to fail. */
static bool strikes(int *left) {
    if (*left < 0) {
        return false;
    }
    return (*left)-- == 0;
}

static trp_code failing_alloc(trp_device *device, size_t bytes, void **ret_data, trp_error *err) {
    if (strikes(&allocs_left)) {
        return trpi_fail(err, TRP_ENOMEM, "injected");
    }
    return real_device->alloc(device, bytes, ret_data, err);
}

static trp_code injected(trp_comm *comm, trp_error *err) {
    real_comm->abort(comm);
    return trpi_fail(err, TRP_ECOMM_ABORTED, "injected");
}

static trp_code failing_all_reduce(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                   trp_reduce op, trp_error *err) {
    return strikes(&collectives_left) ? injected(comm, err)
                                      : real_comm->all_reduce(comm, data, count, dtype, op, err);
}

static trp_code failing_reduce_scatter(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                       trp_reduce op, trp_error *err) {
    return strikes(&collectives_left)
               ? injected(comm, err)
               : real_comm->reduce_scatter(comm, data, count, dtype, op, err);
}

static trp_code failing_all_gather(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                   trp_error *err) {
    return strikes(&collectives_left) ? injected(comm, err)
                                      : real_comm->all_gather(comm, data, count, dtype, err);
}

/* Both ranks do it, with the same outcome, before either goes on. */
static trp_code arm(test_rank *self, trp_error *err) {
    static trpi_device_table device;
    static trpi_comm_kind comm;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!real_device) {
        real_device = self->device->table;
        real_comm = self->comm->kind;
        device = *real_device;
        device.alloc = failing_alloc;
        comm = *real_comm;
        comm.all_reduce = failing_all_reduce;
        comm.reduce_scatter = failing_reduce_scatter;
        comm.all_gather = failing_all_gather;
    }
    pthread_mutex_unlock(&lock);
    self->device->table = &device;
    self->comm->kind = &comm;
    return trp_comm_barrier(self->comm, err);
}

/* ---- Everything that an engine does ---- */

typedef struct strike {
    int stage, rank;
    int allocs, collectives; /* of that rank: how many pass before one fails; -1: all pass */
    /* Results. */
    trp_code codes[WORLD];
    bool struck;
} strike;

static trp_code use(test_rank *self, toy_run *t, trp_error *err) {
    trp_step_stats stats;
    char hex[33];
    double loss;
    trp_batch one = {.tokens = t->tokens, .targets = t->targets, .rows = 1, .columns = 8};
    toy_fill(t, 0, 0, 1, 0);
    trp_code code = trp_zero_evaluate(t->engine, &one, &loss, err);
    for (int i = 0; !code && i < 2; i++) {
        code = toy_step(t, self, trp_zero_steps(t->engine), &stats, err);
    }
    if (!code) {
        code = trp_zero_save(t->engine, dir, NULL, err);
    }
    if (!code) { /* before it is read all shards must be there */
        code = trp_comm_barrier(self->comm, err);
    }
    if (!code) {
        code = trp_zero_load(t->engine, dir, NULL, err);
    }
    if (!code) {
        code = trp_zero_weights_hash(t->engine, hex, err);
    }
    return code;
}

/* An engine that cannot go on refuses everything, at once. */
static trp_code expect_refusals(test_rank *self, toy_run *t, trp_error *err) {
    char hex[33];
    double loss;
    trp_batch one = {.tokens = t->tokens, .targets = t->targets, .rows = 1, .columns = 8};
    TEST_REQUIRE(toy_step(t, self, 9, NULL, NULL) != TRP_OK);
    TEST_REQUIRE(trp_zero_evaluate(t->engine, &one, &loss, NULL) != TRP_OK);
    TEST_REQUIRE(trp_zero_load(t->engine, dir, NULL, NULL) != TRP_OK);
    TEST_REQUIRE(trp_zero_weights_hash(t->engine, hex, NULL) != TRP_OK);
    return TRP_OK;
}

/* What failed either left all ranks as they were, and then all of it works, or it is over. */
static trp_code after_failure(test_rank *self, toy_run *t, trp_error *err) {
    if (trp_comm_barrier(self->comm, NULL)) {
        return expect_refusals(self, t, err);
    }
    return use(self, t, err);
}

static trp_code live(test_rank *self, trp_error *err) {
    strike *s = self->arg;
    toy_run t = {0};
    trp_error ours = {0};
    const char *config = toy_config("{\"train_micro_batch_size_per_gpu\": 1,"
                                    " \"gradient_accumulation_steps\": 2,"
                                    " \"zero_optimization\": {\"stage\": %d}}",
                                    s->stage);
    trp_code code = arm(self, err);
    if (code) {
        return code;
    }
    if (self->rank == s->rank) {
        allocs_left = s->allocs;
        collectives_left = s->collectives;
    }
    s->codes[self->rank] = toy_open(self, config, 3, &t, &ours);
    bool opened = t.engine != NULL;
    if (opened) {
        s->codes[self->rank] = use(self, &t, &ours);
    }
    if (self->rank == s->rank) {
        s->struck =
            (s->allocs >= 0 && allocs_left < 0) || (s->collectives >= 0 && collectives_left < 0);
        allocs_left = collectives_left = -1;
    }
    if (opened && s->codes[self->rank]) {
        code = after_failure(self, &t, err);
    }
    toy_close(&t);
    TEST_REQUIRE(code || trp_device_bytes(self->device, NULL) == 0);
    return code;
}

/* One life with one failure; false when there was nothing left to fail. */
static bool survive(strike *s) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    test_ranks_run(WORLD, live, s);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - start.tv_sec < LATE_S);
    for (int r = 0; r < WORLD; r++) {
        if ((s->codes[r] != TRP_OK) != s->struck) {
            fail_msg("stage %d, allocation %d, collective %d: rank %d ends with code %d", s->stage,
                     s->allocs, s->collectives, r, (int)s->codes[r]);
        }
    }
    return s->struck;
}

static void every_allocation_may_fail(void **state) {
    for (int stage = 0; stage <= 3; stage++) {
        int n = 0;
        while (
            survive(&(strike){.stage = stage, .rank = n % WORLD, .allocs = n, .collectives = -1})) {
            n++;
        }
        assert_true(n > 5);
    }
}

static void every_collective_may_fail(void **state) {
    for (int stage = 0; stage <= 3; stage++) {
        int n = 0;
        while (
            survive(&(strike){.stage = stage, .rank = n % WORLD, .allocs = -1, .collectives = n})) {
            n++;
        }
        assert_true(n > 12);
    }
}

/* ---- A full disk ---- */

static trp_code save_to_full_disk(test_rank *self, trp_error *err) {
    toy_run t;
    trp_step_stats stats;
    char before[33], after[33];
    trp_code code = toy_open(
        self, "{\"train_batch_size\": 1, \"zero_optimization\": {\"stage\": 3}}", 3, &t, err);
    if (!code) {
        code = toy_step(&t, self, 0, &stats, err);
    }
    if (!code) {
        code = trp_zero_weights_hash(t.engine, before, err);
    }
    if (code) {
        return code;
    }
    struct rlimit unlimited, little = {100000, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &unlimited);
    setrlimit(RLIMIT_FSIZE, &little);
    trp_error full = {0};
    code = trp_zero_save(t.engine, dir, NULL, &full);
    setrlimit(RLIMIT_FSIZE, &unlimited);
    TEST_REQUIRE(code == TRP_EIO);
    TEST_REQUIRE(strstr(full.message, "shard-00000-of-00001"));
    char **names = NULL;
    size_t count = 0;
    TEST_REQUIRE(!trpi_dir_list(dir, &names, &count, err));
    trpi_names_free(names, count);
    TEST_REQUIRE(count == 0);
    code = trp_zero_save(t.engine, dir, NULL, err);
    if (!code) {
        code = trp_zero_load(t.engine, dir, NULL, err);
    }
    if (!code) {
        code = trp_zero_weights_hash(t.engine, after, err);
    }
    TEST_REQUIRE(code || strcmp(before, after) == 0);
    toy_close(&t);
    return code;
}

static void a_save_that_finds_no_room_leaves_nothing_and_harms_nothing(void **state) {
    assert_int_equal(trpi_dir_remove(dir, NULL), TRP_OK);
    assert_int_equal(trpi_dir_make(dir, 0700, NULL), TRP_OK);
    signal(SIGXFSZ, SIG_IGN);
    test_ranks_run(1, save_to_full_disk, NULL);
}

static int make_dir(void **state) {
    TRPI_SET(dir, "/tmp/troupe-failure-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    return trpi_dir_remove(dir, NULL) ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_collective_may_fail),
        cmocka_unit_test(a_save_that_finds_no_room_leaves_nothing_and_harms_nothing),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

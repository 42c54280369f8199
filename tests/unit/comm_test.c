/* Communicators: what every rank ends with, and what it is told when the ranks do not agree. Ranks
 * are threads or forked processes; only the main thread asserts, ranks write down what they saw. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <troupe/comm.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/base.h"
#include "core/net/clock.h"
#include "core/sys/file.h"
#include "tests/lib/child.h"

enum { WORLD_MAX = 5, TIMEOUT_MS = 20000 };
#define TOKEN UINT64_C(0x123456789abcdef0)

typedef struct rank_state {
    trp_comm_options options;
    char address[128];
    void (*run)(struct rank_state *rank, trp_comm *comm);
    int kind; /* of the case, for the function */
    trp_code code;
    trp_error error;
    char wrong[256]; /* "" = all as expected */
    double took_ms;
} rank_state;

static void wrong(rank_state *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void wrong(rank_state *rank, const char *format, ...) {
    va_list args;
    if (rank->wrong[0] == '\0') {
        va_start(args, format);
        vsnprintf(rank->wrong, sizeof rank->wrong, format, args);
        va_end(args);
    }
}

static void *rank_main(void *arg) {
    rank_state *rank = arg;
    trp_comm *comm = NULL;
    rank->code = trp_comm_open(&rank->options, &comm, &rank->error);
    if (!rank->code) {
        rank->run(rank, comm);
        trp_comm_close(comm);
    }
    return NULL;
}

static rank_state *new_ranks(int world, trp_comm_root **ret_root,
                             void (*run)(rank_state *, trp_comm *), int kind) {
    size_t bytes = sizeof(rank_state) * WORLD_MAX;
    rank_state *ranks =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ranks != MAP_FAILED);
    trp_error err;
    assert_int_equal(trp_comm_root_open("host", world, TOKEN, ret_root, &err), TRP_OK);
    for (int i = 0; i < world; i++) {
        TRPI_SET(ranks[i].address, trp_comm_root_address(*ret_root));
        ranks[i].run = run;
        ranks[i].kind = kind;
        ranks[i].options = (trp_comm_options){.address = ranks[i].address,
                                              .rank = i,
                                              .world = world,
                                              .token = TOKEN,
                                              .timeout_ms = TIMEOUT_MS};
    }
    return ranks;
}

static void free_ranks(rank_state *ranks) {
    munmap(ranks, sizeof(rank_state) * WORLD_MAX);
}

static void run_threads(rank_state *ranks, int world) {
    pthread_t threads[WORLD_MAX];
    for (int i = 0; i < world; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &ranks[i]), 0);
    }
    for (int i = 0; i < world; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void run_processes(rank_state *ranks, int world) {
    pid_t pids[WORLD_MAX];
    for (int i = 0; i < world; i++) {
        pids[i] = test_child_fork();
        if (pids[i] == 0) {
            rank_main(&ranks[i]);
            _exit(0);
        }
    }
    for (int i = 0; i < world; i++) {
        assert_int_equal(test_child_exit_code(pids[i], "a rank"), 0);
    }
}

/* All ranks run and find nothing wrong. */
static void expect_all_well(int world, bool processes, void (*run)(rank_state *, trp_comm *),
                            int kind) {
    trp_comm_root *root;
    rank_state *ranks = new_ranks(world, &root, run, kind);
    if (processes) {
        run_processes(ranks, world);
    } else {
        run_threads(ranks, world);
    }
    for (int i = 0; i < world; i++) {
        if (ranks[i].code || ranks[i].wrong[0]) {
            fail_msg("rank %d of %d: %s %s", i, world, ranks[i].error.message, ranks[i].wrong);
        }
    }
    trp_comm_root_close(root);
    free_ranks(ranks);
}

/* ---- The data: a function of rank and index, so that every rank knows what the others bring ----
 */

static uint32_t scramble(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static float value_of(int rank, int64_t index) {
    uint32_t bits = scramble((uint32_t)rank * 7919u + (uint32_t)index + 1);
    /* Magnitudes from 2^-8 to 2^7: their sums depend on the order of adding. */
    return ldexpf((float)(int32_t)(bits & 0xffff) - 32768.0f, (int)(bits >> 28) - 23);
}

static float bf16_value(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint16_t to_bf16(float value) { /* finite values only */
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void put(void *data, int64_t at, trp_dtype dtype, int rank, int64_t index) {
    float value = value_of(rank, index);
    if (dtype == TRP_F32) {
        ((float *)data)[at] = value;
    } else if (dtype == TRP_BF16) {
        ((uint16_t *)data)[at] = to_bf16(value);
    } else {
        ((int32_t *)data)[at] = (int32_t)scramble((uint32_t)rank * 31u + (uint32_t)index);
    }
}

/* What the reduction over all ranks must be, bit for bit. */
static void put_reduced(void *data, int64_t at, trp_dtype dtype, trp_reduce op, int world,
                        int64_t index) {
    union {
        float f;
        uint16_t h;
        int32_t i;
    } one = {0};
    float sum = 0;
    uint32_t whole = 0;
    for (int r = 0; r < world; r++) {
        put(&one, 0, dtype, r, index);
        float value = dtype == TRP_BF16 ? bf16_value(one.h) : one.f;
        if (op == TRP_REDUCE_MAX) {
            sum = r == 0 || value > sum ? value : sum;
            whole = r == 0 || one.i > (int32_t)whole ? (uint32_t)one.i : whole;
        } else {
            sum = r == 0 ? value : sum + value;
            whole += (uint32_t)one.i;
        }
    }
    if (op == TRP_REDUCE_AVERAGE) {
        sum /= (float)world;
    }
    if (dtype == TRP_F32) {
        ((float *)data)[at] = sum;
    } else if (dtype == TRP_BF16) {
        ((uint16_t *)data)[at] = to_bf16(sum);
    } else {
        ((int32_t *)data)[at] = (int32_t)whole;
    }
}

static const trp_dtype dtypes[] = {TRP_F32, TRP_BF16, TRP_I32};

static void check_equal(rank_state *rank, const char *what, const void *found, const void *expected,
                        size_t bytes) {
    if (bytes > 0 && memcmp(found, expected, bytes) != 0) {
        wrong(rank, "%s of %zu bytes differs", what, bytes);
    }
}

static void check_code(rank_state *rank, const char *what, trp_code code) {
    if (code) {
        wrong(rank, "%s: %s", what, rank->error.message);
    }
}

static void one_all_reduce(rank_state *rank, trp_comm *comm, int64_t count, trp_dtype dtype,
                           trp_reduce op) {
    int world = trp_comm_world(comm), me = trp_comm_rank(comm);
    size_t bytes = (size_t)count * trp_dtype_size(dtype);
    /* One byte more than asked for would be seen by the sanitizers. */
    void *data = malloc(bytes), *expected = malloc(bytes);
    for (int64_t i = 0; i < count; i++) {
        put(data, i, dtype, me, i);
        put_reduced(expected, i, dtype, op, world, i);
    }
    check_code(rank, "all_reduce", trp_comm_all_reduce(comm, data, count, dtype, op, &rank->error));
    check_equal(rank, "all_reduce", data, expected, bytes);
    free(data);
    free(expected);
}

static void one_reduce_scatter(rank_state *rank, trp_comm *comm, int64_t count, trp_dtype dtype,
                               trp_reduce op) {
    int world = trp_comm_world(comm), me = trp_comm_rank(comm);
    size_t size = trp_dtype_size(dtype), bytes = (size_t)count * size;
    void *data = malloc(bytes * (size_t)world), *expected = malloc(bytes);
    for (int64_t i = 0; i < count * world; i++) {
        put(data, i, dtype, me, i);
    }
    for (int64_t i = 0; i < count; i++) {
        put_reduced(expected, i, dtype, op, world, me * count + i);
    }
    check_code(rank, "reduce_scatter",
               trp_comm_reduce_scatter(comm, data, count, dtype, op, &rank->error));
    check_equal(rank, "reduce_scatter", (char *)data + (size_t)me * bytes, expected, bytes);
    free(data);
    free(expected);
}

static void one_all_gather(rank_state *rank, trp_comm *comm, int64_t count, trp_dtype dtype) {
    int world = trp_comm_world(comm), me = trp_comm_rank(comm);
    size_t size = trp_dtype_size(dtype), bytes = (size_t)(count * world) * size;
    void *data = malloc(bytes), *expected = malloc(bytes);
    if (bytes > 0) {
        memset(data, 0x55, bytes);
    }
    for (int64_t i = 0; i < count * world; i++) {
        put(expected, i, dtype, (int)(i / TRPI_MAX(count, 1)), i);
        if (i / TRPI_MAX(count, 1) == me) {
            put(data, i, dtype, me, i);
        }
    }
    check_code(rank, "all_gather", trp_comm_all_gather(comm, data, count, dtype, &rank->error));
    check_equal(rank, "all_gather", data, expected, bytes);
    free(data);
    free(expected);
}

static void one_broadcast(rank_state *rank, trp_comm *comm, size_t bytes, int root) {
    unsigned char *data = malloc(bytes), *expected = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        expected[i] = (unsigned char)scramble((uint32_t)i + (uint32_t)root);
        data[i] = trp_comm_rank(comm) == root ? expected[i] : 0;
    }
    check_code(rank, "broadcast", trp_comm_broadcast(comm, data, bytes, root, &rank->error));
    check_equal(rank, "broadcast", data, expected, bytes);
    free(data);
    free(expected);
}

static void all_at(rank_state *rank, trp_comm *comm, int64_t count) {
    for (size_t d = 0; d < TRPI_COUNTOF(dtypes); d++) {
        for (int op = TRP_REDUCE_SUM; op <= TRP_REDUCE_MAX; op++) {
            if (dtypes[d] == TRP_I32 && op == TRP_REDUCE_AVERAGE) {
                continue;
            }
            one_all_reduce(rank, comm, count, dtypes[d], (trp_reduce)op);
            one_reduce_scatter(rank, comm, count, dtypes[d], (trp_reduce)op);
        }
        one_all_gather(rank, comm, count, dtypes[d]);
    }
    one_broadcast(rank, comm, (size_t)count, (int)(count % trp_comm_world(comm)));
    check_code(rank, "barrier", trp_comm_barrier(comm, &rank->error));
}

static void run_small(rank_state *rank, trp_comm *comm) {
    static const int64_t counts[] = {0, 1, 2, 3, 4, 5, 7, 64, 511, 512, 513, 1023, 1025, 2049};
    for (size_t i = 0; i < TRPI_COUNTOF(counts); i++) {
        all_at(rank, comm, counts[i]);
    }
}

/* Sizes around a slot and its pieces, and sizes drawn from a seed that all ranks share. */
static void run_large(rank_state *rank, trp_comm *comm) {
    all_at(rank, comm, (512 << 10) / 4);
    all_at(rank, comm, (512 << 10) / 4 + 1);
    one_broadcast(rank, comm, (512 << 10) * 2 + 1, trp_comm_world(comm) - 1);
    for (uint32_t i = 0; i < 6; i++) {
        int64_t count = scramble(i + 99) % 300000;
        trp_dtype dtype = dtypes[i % 3];
        one_all_reduce(rank, comm, count, dtype, TRP_REDUCE_SUM);
        one_reduce_scatter(rank, comm, count / 4, dtype, TRP_REDUCE_SUM);
        one_all_gather(rank, comm, count / 3, dtype);
    }
}

static void every_collective_gives_what_it_says_to_threads(void **state) {
    for (int world = 1; world <= WORLD_MAX; world++) {
        expect_all_well(world, false, run_small, 0);
    }
}

static void every_collective_gives_what_it_says_to_processes(void **state) {
    expect_all_well(2, true, run_small, 0);
    expect_all_well(WORLD_MAX, true, run_small, 0);
    expect_all_well(2, true, run_large, 0);
    expect_all_well(3, true, run_large, 0);
    expect_all_well(WORLD_MAX, true, run_large, 0);
}

static void run_bytes(rank_state *rank, trp_comm *comm) {
    static float data[4 * 1000];
    float *mine = malloc(sizeof data);
    memset(mine, 0, sizeof data);
    check_code(rank, "all_reduce",
               trp_comm_all_reduce(comm, mine, 1000, TRP_F32, TRP_REDUCE_SUM, &rank->error));
    if (trp_comm_bytes_sent(comm) != 6000) { /* 2 (N-1)/N of 4000 */
        wrong(rank, "all_reduce counts %llu", (unsigned long long)trp_comm_bytes_sent(comm));
    }
    check_code(rank, "reduce_scatter",
               trp_comm_reduce_scatter(comm, mine, 1000, TRP_F32, TRP_REDUCE_SUM, &rank->error));
    check_code(rank, "all_gather", trp_comm_all_gather(comm, mine, 1000, TRP_F32, &rank->error));
    if (trp_comm_bytes_sent(comm) != 6000 + 12000 + 12000) {
        wrong(rank, "all count %llu", (unsigned long long)trp_comm_bytes_sent(comm));
    }
    free(mine);
}

static void bytes_are_counted_as_a_ring_sends_them(void **state) {
    expect_all_well(4, false, run_bytes, 0);
}

static void run_nan(rank_state *rank, trp_comm *comm) {
    float one = trp_comm_rank(comm) == 1 ? NAN : 1.0f;
    check_code(rank, "max", trp_comm_all_reduce(comm, &one, 1, TRP_F32, TRP_REDUCE_MAX, NULL));
    if (!isnan(one)) {
        wrong(rank, "the maximum lost a NaN: %f", (double)one);
    }
    uint16_t half = trp_comm_rank(comm) == 2 ? 0x7fff : 0x3f80; /* NaN with all bits, 1 */
    check_code(rank, "sum", trp_comm_all_reduce(comm, &half, 1, TRP_BF16, TRP_REDUCE_SUM, NULL));
    if (!isnan(bf16_value(half))) {
        wrong(rank, "a sum rounded a NaN to %04x", half);
    }
}

static void a_nan_of_any_rank_reaches_all(void **state) {
    expect_all_well(3, false, run_nan, 0);
}

/* ---- Ranks that disagree ---- */

enum { OTHER_OP, OTHER_COUNT, OTHER_DTYPE, OTHER_REDUCTION, OTHER_ROOT, MISMATCHES };

static void run_mismatch(rank_state *rank, trp_comm *comm) {
    bool odd = trp_comm_rank(comm) == trp_comm_world(comm) - 1;
    float data[64] = {0};
    trp_error *err = &rank->error;
    check_code(rank, "barrier", trp_comm_barrier(comm, err));
    switch (rank->kind) {
    case OTHER_OP:
        rank->code = odd ? trp_comm_all_gather(comm, data, 4, TRP_F32, err)
                         : trp_comm_all_reduce(comm, data, 4, TRP_F32, TRP_REDUCE_SUM, err);
        break;
    case OTHER_COUNT:
        rank->code = trp_comm_all_reduce(comm, data, odd ? 5 : 6, TRP_F32, TRP_REDUCE_SUM, err);
        break;
    case OTHER_DTYPE:
        rank->code =
            trp_comm_all_reduce(comm, data, 4, odd ? TRP_F32 : TRP_I32, TRP_REDUCE_SUM, err);
        break;
    case OTHER_REDUCTION:
        rank->code = trp_comm_reduce_scatter(comm, data, 4, TRP_F32,
                                             odd ? TRP_REDUCE_MAX : TRP_REDUCE_SUM, err);
        break;
    default:
        rank->code = trp_comm_broadcast(comm, data, 4, odd ? 1 : 0, err);
    }
    if (trp_comm_barrier(comm, NULL) != TRP_ECOMM_ABORTED) {
        wrong(rank, "the communicator is not broken");
    }
}

static void ranks_that_call_different_things_are_all_told_so(void **state) {
    static const char *const there[MISMATCHES] = {
        "all_gather(4 F32)", "all_reduce(5 F32, sum)", "all_reduce(4 F32, sum)",
        "reduce_scatter(4 F32, max)", "broadcast(4 bytes from rank 1)"};
    static const char *const here[MISMATCHES] = {
        "all_reduce(4 F32, sum)", "all_reduce(6 F32, sum)", "all_reduce(4 I32, sum)",
        "reduce_scatter(4 F32, sum)", "broadcast(4 bytes from rank 0)"};
    for (int kind = 0; kind < MISMATCHES; kind++) {
        for (int world = 2; world <= 4; world++) {
            trp_comm_root *root;
            rank_state *ranks = new_ranks(world, &root, run_mismatch, kind);
            run_threads(ranks, world);
            for (int i = 0; i < world; i++) {
                if (ranks[i].code != TRP_EINVALID || ranks[i].wrong[0] ||
                    !strstr(ranks[i].error.message, here[kind]) ||
                    !strstr(ranks[i].error.message, there[kind])) {
                    fail_msg("rank %d of %d: code %d, %s %s", i, world, ranks[i].code,
                             ranks[i].error.message, ranks[i].wrong);
                }
            }
            trp_comm_root_close(root);
            free_ranks(ranks);
        }
    }
}

static void run_late(rank_state *rank, trp_comm *comm) {
    if (trp_comm_rank(comm) == 1) { /* stays away until the others have given up */
        while (trp_comm_barrier(comm, &rank->error) == TRP_OK) {
            usleep(600 * 1000);
        }
        return;
    }
    check_code(rank, "first barrier", trp_comm_barrier(comm, &rank->error));
    uint64_t before = trpi_now_ns();
    rank->code = trp_comm_barrier(comm, &rank->error);
    rank->took_ms = (double)(trpi_now_ns() - before) / 1e6;
}

static void a_rank_that_stays_away_is_named_at_the_deadline(void **state) {
    trp_comm_root *root;
    rank_state *ranks = new_ranks(3, &root, run_late, 0);
    for (int i = 0; i < 3; i++) {
        ranks[i].options.timeout_ms = 200;
    }
    run_threads(ranks, 3);
    int timeouts = 0;
    for (int i = 0; i < 3; i += 2) {
        timeouts += ranks[i].code == TRP_ETIMEOUT;
        assert_true(ranks[i].code == TRP_ETIMEOUT || ranks[i].code == TRP_ECOMM_ABORTED);
        assert_non_null(strstr(ranks[i].error.message, "barrier 2"));
        assert_non_null(strstr(ranks[i].error.message, "rank(s) 1 of 3"));
        assert_true(ranks[i].took_ms < 5000);
    }
    assert_true(timeouts >= 1);
    trp_comm_root_close(root);
    free_ranks(ranks);
}

static void ranks_that_never_join_are_named(void **state) {
    trp_comm_root *root;
    rank_state *ranks = new_ranks(4, &root, run_small, 0);
    ranks[0].options.timeout_ms = 100;
    rank_main(&ranks[0]);
    assert_int_equal(ranks[0].code, TRP_ETIMEOUT);
    assert_non_null(strstr(ranks[0].error.message, "join 0"));
    assert_non_null(strstr(ranks[0].error.message, "rank(s) 1, 2, 3 of 4"));
    /* One that comes after that is not left waiting. */
    rank_main(&ranks[1]);
    assert_int_equal(ranks[1].code, TRP_ECOMM_ABORTED);
    trp_comm_root_close(root);
    free_ranks(ranks);
}

/* ---- Abort ---- */

static _Atomic uint64_t aborted_at_ns;

static void *abort_soon(void *comm) {
    usleep(50 * 1000);
    aborted_at_ns = trpi_now_ns();
    trp_comm_abort(comm);
    return NULL;
}

/* The last rank aborts from a thread beside; the others wait for it. */
static void run_abort(rank_state *rank, trp_comm *comm) {
    float data[8] = {0};
    if (trp_comm_rank(comm) == trp_comm_world(comm) - 1) {
        pthread_t beside;
        pthread_create(&beside, NULL, abort_soon, comm);
        pthread_join(beside, NULL);
    }
    rank->code = trp_comm_all_reduce(comm, data, 8, TRP_F32, TRP_REDUCE_SUM, &rank->error);
    rank->took_ms = (double)(trpi_now_ns() - aborted_at_ns) / 1e6;
}

static void abort_from_another_thread_ends_all_waits(void **state) {
    trp_comm_root *root;
    double worst = 0;
    rank_state *ranks = new_ranks(4, &root, run_abort, 0);
    run_threads(ranks, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ranks[i].code, TRP_ECOMM_ABORTED);
        assert_non_null(strstr(ranks[i].error.message, "rank 3 aborted"));
        worst = TRPI_MAX(worst, ranks[i].took_ms);
    }
    print_message("abort seen by all after %.2f ms\n", worst);
    assert_true(worst < 2000); /* it is 10 ms on a machine that has nothing else to do */
    trp_comm_root_close(root);
    free_ranks(ranks);
}

/* Rank 1 leaves in good order: what needs nothing of it any more ends well, what does names it. */
static void run_leave(rank_state *rank, trp_comm *comm) {
    float one = 1;
    check_code(rank, "sum",
               trp_comm_all_reduce(comm, &one, 1, TRP_F32, TRP_REDUCE_SUM, &rank->error));
    if (one != 3) {
        wrong(rank, "sum is %f", (double)one);
    }
    if (trp_comm_rank(comm) != 1) {
        rank->code = trp_comm_barrier(comm, &rank->error);
    }
}

static void a_rank_that_leaves_is_not_waited_for(void **state) {
    trp_comm_root *root;
    rank_state *ranks = new_ranks(3, &root, run_leave, 0);
    run_threads(ranks, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(ranks[i].wrong, "");
        assert_int_equal(ranks[i].code, i == 1 ? TRP_OK : TRP_ECOMM_ABORTED);
        if (i != 1) { /* rank 1 left, and then the first of the others gave up */
            assert_non_null(strstr(ranks[i].error.message, "has left the communicator"));
        }
    }
    trp_comm_root_close(root);
    free_ranks(ranks);
}

static void run_nothing(rank_state *rank, trp_comm *comm) {
}

/* Who sees the others late finds some of them gone, with nothing owed to anybody. */
static void ranks_that_join_and_leave_at_once_are_no_loss(void **state) {
    for (int i = 0; i < 150; i++) {
        expect_all_well(4, true, run_nothing, 0);
        expect_all_well(4, false, run_nothing, 0);
    }
}

/* ---- Strangers ---- */

static void expect_refused(const trp_comm_options *options, trp_code code, const char *text) {
    trp_comm *comm = NULL;
    trp_error err = {0};
    trp_code found = trp_comm_open(options, &comm, &err);
    if (found != code || !strstr(err.message, text)) {
        fail_msg("%s: code %d, expected %d with \"%s\": %s", options->address, found, code, text,
                 err.message);
    }
    assert_null(comm);
}

static void a_stranger_is_refused(void **state) {
    trp_comm_root *root;
    assert_int_equal(trp_comm_root_open("host", 2, TOKEN, &root, NULL), TRP_OK);
    char address[128], other[128];
    TRPI_SET(address, trp_comm_root_address(root));
    trp_comm_options options = {
        .address = address, .rank = 0, .world = 2, .token = TOKEN + 1, .timeout_ms = 100};
    expect_refused(&options, TRP_EINVALID, "another attempt");

    /* An address whose token is edited to fit still leads to the other attempt's room. */
    trpi_format(other, sizeof other, "%.*s:%016llx", (int)(strrchr(address, ':') - address),
                address, (unsigned long long)TOKEN + 1);
    options.address = other;
    expect_refused(&options, TRP_EINVALID, "another attempt");

    options = (trp_comm_options){
        .address = address, .rank = 0, .world = 3, .token = TOKEN, .timeout_ms = 100};
    expect_refused(&options, TRP_EINVALID, "not a room for this world");

    options.world = 2;
    expect_refused(&options, TRP_ETIMEOUT, "rank(s) 1 of 2");
    expect_refused(&options, TRP_EEXISTS, "has joined as rank 0 already");
    trp_comm_root_close(root);
    options.rank = 1;
    expect_refused(&options, TRP_EDISCONNECTED, "is gone, or has closed it");
}

static void a_file_that_is_no_room_is_left_alone(void **state) {
    char address[128];
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    int zero = open("/dev/zero", O_RDWR);
    FILE *plain = tmpfile();
    int memory = memfd_create("stranger", 0);
    assert_int_equal(ftruncate(memory, 1 << 20), 0);
    int all[] = {fds[0], fds[1], zero, fileno(plain), memory};
    for (size_t i = 0; i < TRPI_COUNTOF(all); i++) {
        trpi_format(address, sizeof address, "host:%d:%d:%016llx", (int)getpid(), all[i],
                    (unsigned long long)TOKEN);
        trp_comm_options options = {
            .address = address, .rank = 0, .world = 2, .token = TOKEN, .timeout_ms = 100};
        expect_refused(&options, TRP_EINVALID, "is not a room");
    }
    fclose(plain);
    close(fds[0]);
    close(fds[1]);
    close(zero);
    close(memory);
}

static void bad_arguments_are_refused_with_what_to_change(void **state) {
    static const char *const addresses[] = {
        "",      "host",    "host:", "host:1:2", "host:1:x:0", "host:-1:2:0000000000000000",
        "tcp:1", "selfish", "self:1"};
    trp_comm_root *root = NULL;
    for (size_t i = 0; i < TRPI_COUNTOF(addresses); i++) {
        trp_comm_options options = {.address = addresses[i], .world = 1, .timeout_ms = 100};
        expect_refused(&options, TRP_EINVALID, "address");
    }
    trp_error err;
    assert_int_equal(trp_comm_root_open("mpi", 2, 0, &root, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "\"self\" and \"host\""));
    assert_int_equal(trp_comm_root_open("self", 2, 0, &root, &err), TRP_EINVALID);
    assert_int_equal(trp_comm_root_open("host", 0, 0, &root, &err), TRP_EINVALID);
    trp_comm_options options = {.address = "self", .rank = 1, .world = 1};
    expect_refused(&options, TRP_EINVALID, "rank 1 of a world of 1");
}

static void a_world_of_one_needs_no_peer(void **state) {
    trp_comm_root *root;
    trp_comm *comm;
    trp_error err;
    float data[2] = {1.5f, -2};
    assert_int_equal(trp_comm_root_open("self", 1, TOKEN, &root, &err), TRP_OK);
    trp_comm_options options = {.address = trp_comm_root_address(root), .world = 1, .token = TOKEN};
    assert_int_equal(trp_comm_open(&options, &comm, &err), TRP_OK);
    assert_int_equal(trp_comm_all_reduce(comm, data, 2, TRP_F32, TRP_REDUCE_AVERAGE, &err), TRP_OK);
    assert_true(data[0] == 1.5f && data[1] == -2);
    assert_int_equal(trp_comm_all_gather(comm, data, 2, TRP_F32, &err), TRP_OK);
    assert_int_equal(trp_comm_all_reduce(comm, data, -1, TRP_F32, TRP_REDUCE_SUM, &err),
                     TRP_EINVALID);
    assert_int_equal(trp_comm_all_reduce(comm, data, 2, TRP_I32, TRP_REDUCE_AVERAGE, &err),
                     TRP_EUNSUPPORTED);
    assert_int_equal(trp_comm_all_reduce(comm, data, 2, TRP_F16, TRP_REDUCE_SUM, &err),
                     TRP_EUNSUPPORTED);
    assert_int_equal(trp_comm_broadcast(comm, data, 8, 1, &err), TRP_EINVALID);
    assert_int_equal(trp_comm_bytes_sent(comm), 0);
    trp_comm_abort(comm);
    assert_int_equal(trp_comm_barrier(comm, &err), TRP_ECOMM_ABORTED);
    trp_comm_close(comm);
    trp_comm_root_close(root);
    trp_comm_close(NULL);
    trp_comm_root_close(NULL);
}

static size_t count_fds(void) {
    char **names;
    size_t count;
    assert_int_equal(trpi_dir_list("/proc/self/fd", &names, &count, NULL), TRP_OK);
    trpi_names_free(names, count);
    return count;
}

static void no_descriptor_outlives_a_communicator(void **state) {
    size_t before = count_fds();
    a_rank_that_leaves_is_not_waited_for(state);
    ranks_that_never_join_are_named(state);
    a_stranger_is_refused(state);
    assert_int_equal(count_fds(), before);
}

static void run_without_descriptors(rank_state *rank, trp_comm *comm) {
    struct rlimit before;
    if (trp_comm_rank(comm) == 1) { /* is waited for, and looked at, meanwhile */
        usleep(200 * 1000);
        check_code(rank, "barrier", trp_comm_barrier(comm, &rank->error));
        return;
    }
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit none = {0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    check_code(rank, "barrier", trp_comm_barrier(comm, &rank->error));
    setrlimit(RLIMIT_NOFILE, &before);
}

static void a_rank_without_descriptors_takes_nobody_for_dead(void **state) {
    expect_all_well(2, true, run_without_descriptors, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_gives_what_it_says_to_threads),
        cmocka_unit_test(every_collective_gives_what_it_says_to_processes),
        cmocka_unit_test(bytes_are_counted_as_a_ring_sends_them),
        cmocka_unit_test(a_nan_of_any_rank_reaches_all),
        cmocka_unit_test(ranks_that_call_different_things_are_all_told_so),
        cmocka_unit_test(a_rank_that_stays_away_is_named_at_the_deadline),
        cmocka_unit_test(ranks_that_never_join_are_named),
        cmocka_unit_test(abort_from_another_thread_ends_all_waits),
        cmocka_unit_test(a_rank_that_leaves_is_not_waited_for),
        cmocka_unit_test(ranks_that_join_and_leave_at_once_are_no_loss),
        cmocka_unit_test(a_stranger_is_refused),
        cmocka_unit_test(a_file_that_is_no_room_is_left_alone),
        cmocka_unit_test(bad_arguments_are_refused_with_what_to_change),
        cmocka_unit_test(a_world_of_one_needs_no_peer),
        cmocka_unit_test(no_descriptor_outlives_a_communicator),
        cmocka_unit_test(a_rank_without_descriptors_takes_nobody_for_dead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ranks.h: several ranks as threads of one process, each with its own device and communicator. */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <troupe/comm.h>

typedef struct test_rank {
    int rank, world;
    trp_comm *comm;
    trp_device *device; /* "cpu", one thread */
    void *arg;
} test_rank;

/* Runs on each rank's thread. Not a place for cmocka's asserts: return an error instead. */
typedef trp_code (*test_rank_fn)(test_rank *self, trp_error *err);

/* Opens everything, runs fn on `world` ranks, closes everything. Fails the test, with the message,
 * if any rank returned an error. A rank that fails aborts the communicator. */
void test_ranks_run(int world, test_rank_fn fn, void *arg);

/* Puts a test's own complaint into err. */
#define TEST_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return test_complain(err, #condition, __FILE__, __LINE__);                             \
        }                                                                                          \
    } while (0)
trp_code test_complain(trp_error *err, const char *condition, const char *file, int line);

#endif

/* T27, the communicator's half: a rank that dies or stops inside a collective. Survivors must be
 * out of it within a second and know who it was, long before any deadline. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <troupe/comm.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/base.h"
#include "core/net/clock.h"
#include "core/sys/file.h"
#include "tests/lib/child.h"

enum { WORLD = 4, VICTIM = 2, ROUNDS = 12, COUNT = 300000 };

typedef struct survivor {
    trp_code code;
    trp_error error;
    uint64_t left_ns;
    _Atomic uint64_t calls;
} survivor;

static survivor *survivors; /* shared with the children */

/* All-reduces until one fails. */
static void be_rank(const char *address, int rank, uint64_t timeout_ms) {
    survivor *me = &survivors[rank];
    trp_comm *comm = NULL;
    float *data = calloc(COUNT, sizeof *data);
    trp_comm_options options = {
        .address = address, .rank = rank, .world = WORLD, .token = 7, .timeout_ms = timeout_ms};
    me->code = trp_comm_open(&options, &comm, &me->error);
    while (!me->code) {
        me->code = trp_comm_all_reduce(comm, data, COUNT, TRP_F32, TRP_REDUCE_SUM, &me->error);
        me->calls++;
    }
    me->left_ns = trpi_now_ns();
    trp_comm_close(comm);
    free(data);
    _exit(0);
}

static void start(pid_t pids[WORLD], trp_comm_root **ret_root, uint64_t timeout_ms) {
    memset(survivors, 0, sizeof *survivors * WORLD);
    assert_int_equal(trp_comm_root_open("host", WORLD, 7, ret_root, NULL), TRP_OK);
    for (int i = 0; i < WORLD; i++) {
        pids[i] = test_child_fork();
        if (pids[i] == 0) {
            be_rank(trp_comm_root_address(*ret_root), i, timeout_ms);
        }
    }
    uint64_t deadline_ns = trpi_deadline_ns(TEST_CHILD_MS);
    while (survivors[VICTIM].calls < 3) {
        if (trpi_left_ms(deadline_ns) == 0) {
            test_child_describe(pids[VICTIM], "the victim");
            fail_msg("the ranks have not reduced anything");
        }
        usleep(1000);
    }
}

/* Waits for all but the victim; returns how long the slowest was in the collective, in ms. */
static double collect(const pid_t pids[WORLD], uint64_t since_ns) {
    double worst = 0;
    for (int i = 0; i < WORLD; i++) {
        if (i == VICTIM) {
            continue;
        }
        assert_int_equal(test_child_exit_code(pids[i], "a survivor"), 0);
        worst = TRPI_MAX(worst, (double)(survivors[i].left_ns - since_ns) / 1e6);
    }
    return worst;
}

/* The victim is left a zombie until the survivors are done: its parent may be slow to wait for it.
 */
static void survivors_of_a_killed_rank_leave_the_collective_and_name_it(void **state) {
    double worst = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pids[WORLD];
        char name[64];
        trp_comm_root *root;
        start(pids, &root, 60000);
        usleep((useconds_t)(round * 137 % 5000)); /* somewhere else in the call each time */
        uint64_t killed_ns = trpi_now_ns();
        kill(pids[VICTIM], SIGKILL);
        double took = collect(pids, killed_ns);
        worst = TRPI_MAX(worst, took);
        trpi_format(name, sizeof name, "rank %d (pid %d) is gone", VICTIM, (int)pids[VICTIM]);
        for (int i = 0; i < WORLD; i++) {
            if (i != VICTIM && (survivors[i].code != TRP_ECOMM_ABORTED ||
                                !strstr(survivors[i].error.message, name))) {
                fail_msg("rank %d: code %d: %s", i, survivors[i].code, survivors[i].error.message);
            }
        }
        test_child_kill(pids[VICTIM]);
        trp_comm_root_close(root);
    }
    print_message("survivors were out after at most %.1f ms\n", worst);
    assert_true(worst < 1000);
}

/* A stopped process is no dead one: only the deadline can tell, and it says who is missing. */
static void a_stopped_rank_is_named_at_the_deadline(void **state) {
    pid_t pids[WORLD];
    trp_comm_root *root;
    int timeouts = 0;
    start(pids, &root, 500);
    kill(pids[VICTIM], SIGSTOP);
    double took = collect(pids, trpi_now_ns());
    for (int i = 0; i < WORLD; i++) {
        timeouts += survivors[i].code == TRP_ETIMEOUT;
        if (i != VICTIM && !strstr(survivors[i].error.message, "rank(s) 2 of 4")) {
            fail_msg("rank %d: code %d: %s", i, survivors[i].code, survivors[i].error.message);
        }
    }
    assert_true(timeouts >= 1);
    assert_true(took < 10000);
    /* When it goes on, it finds that the others have given up. */
    kill(pids[VICTIM], SIGCONT);
    assert_int_equal(test_child_exit_code(pids[VICTIM], "the victim"), 0);
    assert_int_equal(survivors[VICTIM].code, TRP_ECOMM_ABORTED);
    trp_comm_root_close(root);
}

/* All ranks of an attempt at once, as when a machine's power goes: nothing of theirs is left. */
static void nothing_is_left_of_ranks_that_all_die(void **state) {
    pid_t pids[WORLD];
    trp_comm_root *root;
    start(pids, &root, 60000);
    for (int i = 0; i < WORLD; i++) {
        test_child_kill(pids[i]);
    }
    /* The root is now the only holder; a name would be in /dev/shm. */
    trp_comm_root_close(root);
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(trpi_dir_list("/dev/shm", &names, &count, NULL), TRP_OK);
    for (size_t i = 0; i < count; i++) {
        assert_null(strstr(names[i], "troupe"));
    }
    trpi_names_free(names, count);
}

int main(void) {
    survivors = mmap(NULL, sizeof *survivors * WORLD, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (survivors == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_of_a_killed_rank_leave_the_collective_and_name_it),
        cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
        cmocka_unit_test(nothing_is_left_of_ranks_that_all_die),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

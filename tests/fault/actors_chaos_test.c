/* actors_chaos_test.c: a driver whose actors report to a ledger, while workers and node daemons are
 * killed at random and messages are lost and repeated. Nothing is lost, nothing runs twice in one
 * life, and nothing is left over. TROUPE_CHAOS_SEED chooses what happens. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/child.h"
#include "tests/lib/cluster.h"
#include "tests/lib/listing.h"
#include "tests/lib/methods.h"

enum {
    REPORTERS = 20,
    CALLS = 600,
    AT_ONCE = 8, /* calls of one reporter that are under way */
    CALL_WORK_MS = 15,
    NODES = 3,            /* that are killed; the ledger's is a fourth */
    ACTIONS_PER_NODE = 5, /* each such many kills one is a node daemon's */
    CALL_MS = 20000,
    SETTLE_MS = 20000,
    WHOLE_MS = 90000
};

/* Of /proc/PID/fd, those of the reading itself included. */
static int count_descriptors(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    int count = 0;
    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static void describe_descriptors(pid_t pid) {
    char path[64], target[256];
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t size = readlink(path, target, sizeof target);
        if (size >= 0) {
            print_error("descriptor %d: %.*s\n", fd, (int)size, target);
        }
    }
}

/* ---- The actors ---- */

typedef struct report {
    uint64_t ledger;
    uint32_t reporter, number;
} report;

typedef struct ledger {
    uint32_t count;
    bool has[REPORTERS][CALLS];
} ledger;

static trp_code ledger_enter(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    ledger *self = state;
    report r;
    if (args.size != sizeof r) {
        return trp_raise(err, "BadReport", "%zu bytes", args.size);
    }
    memcpy(&r, args.data, sizeof r);
    bool *has = &self->has[r.reporter][r.number];
    self->count += !*has; /* a reporter that died before it answered says it again */
    *has = true;
    return TRP_OK;
}

static trp_code ledger_count(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    return trp_buf_append(reply, &((ledger *)state)->count, sizeof(uint32_t));
}

static const trp_method ledger_methods[] = {
    {"enter", ledger_enter, NULL}, {"count", ledger_count, NULL}, {NULL, NULL, NULL}};
static const trp_actor_type ledger_type = {
    .name = "ledger", .state_size = sizeof(ledger), .methods = ledger_methods};

typedef struct reporter {
    uint32_t next; /* the least number that may still come to this incarnation */
} reporter;

/* Numbers only rise within a life: none comes twice, none overtakes another. */
static trp_code reporter_report(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                                trp_error *err) {
    reporter *self = state;
    report r;
    trp_runtime *rt = trp_context_runtime(ctx, err);
    if (rt == NULL) {
        return err->code;
    }
    if (args.size != sizeof r) {
        return trp_raise(err, "BadReport", "%zu bytes", args.size);
    }
    memcpy(&r, args.data, sizeof r);
    if (r.number < self->next) {
        return trp_raise(err, "AgainOrLate", "%u came after %u in incarnation %" PRIu64, r.number,
                         self->next - 1, trp_context_incarnation(ctx));
    }
    self->next = r.number + 1;
    test_sleep_ms(CALL_WORK_MS);
    trp_code code = trp_ask(rt, (trp_actor){r.ledger}, "enter", args, CALL_MS, NULL, err);
    uint32_t answer[2] = {r.reporter, r.number * r.number};
    return code != TRP_OK ? code : trp_buf_append(reply, answer, sizeof answer);
}

static const trp_method reporter_methods[] = {{"report", reporter_report, NULL},
                                              {NULL, NULL, NULL}};
static const trp_actor_type reporter_type = {
    .name = "reporter", .state_size = sizeof(reporter), .methods = reporter_methods};

static const trp_actor_type *const types[] = {&ledger_type, &reporter_type, NULL};

/* ---- The driver: this program again ---- */

typedef struct caller {
    trp_runtime *rt;
    trp_actor actor;
    report next;
    trp_ref refs[AT_ONCE];
    uint32_t answered;
    trp_error err; /* TRP_OK: all is well */
} caller;

static trp_code take_answer(caller *c) {
    trp_bytes value;
    trp_ref ref = c->refs[c->answered % AT_ONCE];
    uint32_t expected[2] = {c->next.reporter, c->answered * c->answered};
    trp_code code = trp_get(c->rt, ref, CALL_MS, &value, &c->err);
    if (code == TRP_OK &&
        (value.size != sizeof expected || memcmp(value.data, expected, sizeof expected) != 0)) {
        code = trp_raise(&c->err, "WrongAnswer", "to call %u of reporter %u", c->answered,
                         c->next.reporter);
    }
    trp_ref_release(c->rt, ref);
    c->answered++;
    return code;
}

static void *make_calls(void *arg) {
    caller *c = arg;
    for (; c->next.number < CALLS; c->next.number++) {
        if (c->next.number >= AT_ONCE && take_answer(c) != TRP_OK) {
            return NULL;
        }
        trp_bytes args = {&c->next, sizeof c->next};
        if (trp_call(c->rt, c->actor, "report", args, 0, &c->refs[c->next.number % AT_ONCE],
                     &c->err) != TRP_OK) {
            return NULL;
        }
    }
    while (c->answered < CALLS && take_answer(c) == TRP_OK) {
    }
    return NULL;
}

static bool run_callers(trp_runtime *rt, trp_actor book) {
    static caller callers[REPORTERS];
    pthread_t threads[REPORTERS];
    trp_spawn_options options = {
        .cpus = 1, .restarts_max = -1, .call_retries_max = -1, .restart_backoff_ms = 10};
    trp_actor_info info;
    int restarts = 0;
    bool all_well = true;
    for (uint32_t i = 0; i < REPORTERS; i++) {
        callers[i] = (caller){.rt = rt, .next = {.ledger = book.id, .reporter = i}};
        TEST_OK(trp_spawn(rt, "reporter", (trp_bytes){0}, &options, &callers[i].actor, err));
        assert_int_equal(pthread_create(&threads[i], NULL, make_calls, &callers[i]), 0);
    }
    for (uint32_t i = 0; i < REPORTERS; i++) {
        pthread_join(threads[i], NULL);
        if (callers[i].answered != CALLS || callers[i].err.code != TRP_OK) {
            print_error("reporter %u, answer %u: %s: %s\n", i, callers[i].answered,
                        trp_code_name(callers[i].err.code), callers[i].err.message);
            all_well = false;
        }
        TEST_OK(trp_actor_get_info(rt, callers[i].actor, &info, err));
        restarts = info.restarts > restarts ? info.restarts : restarts;
        TEST_OK(trp_kill(rt, callers[i].actor, false, err));
    }
    print_message("at most %d restarts of one reporter\n", restarts);
    return all_well;
}

static bool has_given_back_descriptors(void *arg) {
    return count_descriptors(getpid()) <= *(int *)arg;
}

static int be_the_driver(void) {
    trp_runtime *rt = NULL;
    trp_actor book;
    trp_buf count = {0};
    uint32_t entered = 0;
    TEST_OK(trp_init(types, NULL, &rt, err));
    int descriptors = count_descriptors(getpid());
    trp_resource there = {"ledger", 1};
    trp_spawn_options options = {.resources = &there, .resource_count = 1};
    TEST_OK(trp_spawn(rt, "ledger", (trp_bytes){0}, &options, &book, err));
    bool well = run_callers(rt, book);
    TEST_OK(trp_ask(rt, book, "count", (trp_bytes){0}, CALL_MS, &count, err));
    assert_int_equal(count.size, sizeof entered);
    memcpy(&entered, count.data, sizeof entered);
    trp_buf_release(&count);
    TEST_OK(trp_kill(rt, book, false, err));
    if (entered != REPORTERS * CALLS) {
        print_error("%u of %u reports were entered\n", entered, REPORTERS * CALLS);
        well = false;
    }
    if (!test_until(has_given_back_descriptors, &descriptors, SETTLE_MS)) {
        describe_descriptors(getpid());
        print_error("the driver began with %d descriptors and has %d\n", descriptors,
                    count_descriptors(getpid()));
        well = false;
    }
    trp_shutdown(&rt);
    return well ? 0 : 1;
}

/* ---- Chaos ---- */

static test_cluster cluster;
static trp_runtime *rt;
static uint64_t seed = 1;
static int worker_kills, node_kills;

static const test_node plain_node = {.cpus = 10};

static uint64_t random_below(uint64_t limit) { /* xorshift64* */
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (seed * 2685821657736338717u >> 32) % limit;
}

/* The first one started is the ledger's, which is spared. */
static void kill_a_node(void) {
    pid_t nodes[NODES + 1];
    size_t count = test_cluster_pids(&cluster, "node", nodes, NODES + 1);
    assert_int_equal(count, NODES + 1);
    assert_int_equal(kill(nodes[1 + random_below(NODES)], SIGKILL), 0);
    node_kills++;
    test_cluster_add(&cluster, &plain_node);
}

static void kill_a_worker(void) {
    pid_t pids[REPORTERS];
    size_t count = 0, i;
    json_t *rows = test_list(rt, "actors"), *row;
    json_array_foreach(rows, i, row) {
        if (strcmp(test_row_text(row, "type"), "reporter") == 0 && count < REPORTERS &&
            strcmp(test_row_text(row, "state"), "alive") == 0) {
            pids[count++] = (pid_t)test_row_number(row, "pid");
        }
    }
    json_decref(rows);
    size_t chosen = random_below(REPORTERS); /* the last ones are not killed more often */
    if (chosen < count && kill(pids[chosen], SIGKILL) == 0) {
        worker_kills++;
    }
}

static void describe_reporters(void) {
    size_t i;
    json_t *rows = test_list(rt, "actors"), *row;
    json_array_foreach(rows, i, row) {
        print_error("a%lld %s: %s, %lld restarts, pid %lld on n%lld %s\n",
                    test_row_number(row, "id"), test_row_text(row, "type"),
                    test_row_text(row, "state"), test_row_number(row, "restarts"),
                    test_row_number(row, "pid"), test_row_number(row, "node"),
                    test_row_text(row, "waiting_for"));
    }
    json_decref(rows);
}

/* Kills until the driver has ended, and returns its exit code. */
static int chaos(pid_t driver) {
    int status = 0;
    uint64_t end_ms = test_now_ms() + WHOLE_MS;
    for (int action = 1; waitpid(driver, &status, WNOHANG) == 0; action++) {
        if (test_now_ms() > end_ms) {
            test_child_describe(driver, "the driver");
            describe_reporters();
            test_child_kill(driver);
            fail_msg("the driver has not ended");
        }
        test_sleep_ms(100 + (long)random_below(300));
        if (action % ACTIONS_PER_NODE == 0) {
            kill_a_node();
        } else {
            kill_a_worker();
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static pid_t head_pid(void) {
    pid_t head;
    assert_int_equal(test_cluster_pids(&cluster, "head", &head, 1), 1);
    return head;
}

typedef struct before {
    pid_t head;
    int descriptors;  /* of the head */
    size_t processes; /* of the cluster */
} before;

static bool head_is_as_before(void *arg) {
    const before *b = arg;
    return count_descriptors(b->head) <= b->descriptors;
}

static bool processes_are_as_before(void *arg) {
    pid_t pids[256];
    return test_cluster_processes(&cluster, pids, 256) <= ((before *)arg)->processes;
}

/* Daemons that have just started connect some more: for their heartbeats, which come on a
 * connection of their own, twice in this time. */
static int settled_descriptors(pid_t pid) {
    int last = -1, now = count_descriptors(pid);
    uint64_t end_ms = test_now_ms() + SETTLE_MS;
    while (last != now && test_now_ms() < end_ms) {
        last = now;
        test_sleep_ms(1000);
        now = count_descriptors(pid);
    }
    return now;
}

static void A39_no_report_is_lost_whatever_is_killed(void **state) {
    pid_t pids[256];
    before b = {.head = head_pid(),
                .descriptors = settled_descriptors(head_pid()),
                .processes = test_cluster_processes(&cluster, pids, 256)};
    uint64_t start_ms = test_now_ms();
    pid_t driver = test_child_start((const char *[]){test_exe(), "--driver", NULL}, STDERR_FILENO,
                                    STDERR_FILENO);
    assert_int_equal(chaos(driver), 0);
    print_message("%d calls, %d workers and %d node daemons killed, %" PRIu64 " ms\n",
                  REPORTERS * CALLS, worker_kills, node_kills, test_now_ms() - start_ms);
    assert_true(worker_kills >= 10 && node_kills >= 3);
    test_expect_all_free(rt, SETTLE_MS);
    if (!test_until(head_is_as_before, &b, SETTLE_MS)) {
        describe_descriptors(b.head);
        fail_msg("the head had %d descriptors and has %d", b.descriptors,
                 count_descriptors(b.head));
    }
    if (!test_until(processes_are_as_before, &b, SETTLE_MS)) {
        fail_msg("the cluster had %zu processes and has %zu", b.processes,
                 test_cluster_processes(&cluster, pids, 256));
    }
}

static int set_up(void **state) {
    const test_node nodes[] = {{.resources = "ledger=1"}, plain_node, plain_node, plain_node};
    const char *chosen = getenv("TROUPE_CHAOS_SEED");
    seed = chosen != NULL ? strtoull(chosen, NULL, 10) : 1;
    seed = seed != 0 ? seed : 1;
    setenv("TROUPE_FAULT_DROP_PERMILLE", "50", 1);
    setenv("TROUPE_FAULT_REPEAT_PERMILLE", "50", 1);
    setenv("TROUPE_LINK_PROBE_MS", "20", 1);
    setenv("TROUPE_RESTART_BACKOFF_MAX_MS", "500", 1); /* nobody lives long here */
    setenv("TROUPE_WARM_IDLE_MS", "500", 1);           /* who runs nothing soon has no processes */
    test_cluster_start(&cluster, nodes, NODES + 1);
    rt = test_connect(&cluster, types);
    return 0;
}

static int tear_down(void **state) {
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(int argc, char **argv) {
    test_serve_if_worker(types);
    if (argc > 1 && strcmp(argv[1], "--driver") == 0) {
        return be_the_driver();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(A39_no_report_is_lost_whatever_is_killed),
    };
    return cmocka_run_group_tests_name("actors' chaos", tests, set_up, tear_down);
}

#include "tests/lib/probe.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/host.h"
#include "core/sys/process.h"
#include "tests/lib/child.h"
#include "tests/lib/methods.h"

/* ---- The actor ---- */

typedef struct probe {
    atomic_int signals;
    atomic_int last;        /* number that came with a signal */
    atomic_bool disorderly; /* one came behind a higher one */
    trp_promise *promise;
    long count;
} probe;

static trp_code probe_start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    char what[32];
    test_text_of(args, what, sizeof what);
    if (strcmp(what, "fail") == 0) {
        err->code = TRP_EUSER;
        TRPI_SET(err->message, "asked to fail");
        return TRP_EUSER;
    }
    if (strcmp(what, "crash") == 0) {
        raise(SIGSEGV);
    }
    if (strcmp(what, "slow") == 0) {
        test_sleep_ms(5);
    }
    if (strcmp(what, "hang") == 0) {
        test_sleep_ms(3600000);
    }
    return TRP_OK;
}

static void probe_stop(trp_context *ctx, void *state) {
    printf("stopped\n");
}

static void probe_signal(trp_context *ctx, void *state, trp_bytes data) {
    probe *self = state;
    char number[16];
    test_text_of(data, number, sizeof number);
    if (data.size > 0) {
        int last = atomic_exchange(&self->last, atoi(number));
        if (atoi(number) <= last) {
            atomic_store(&self->disorderly, true);
        }
    }
    atomic_fetch_add(&self->signals, 1);
}

/* Waits for the signal of that number, and tells whether they came in order. */
static trp_code probe_order(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    probe *self = state;
    char number[16];
    test_text_of(args, number, sizeof number);
    for (int i = 0; i < 5000 && atomic_load(&self->last) != atoi(number); i++) {
        test_sleep_ms(2);
    }
    return trp_buf_printf(reply, "%d %s", atomic_load(&self->last),
                          atomic_load(&self->disorderly) ? "disorderly" : "in order");
}

/* More than can travel; its pages are never touched. */
static trp_code probe_huge(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    size_t size = ((size_t)512 << 20) + 1;
    trp_code code = trp_buf_reserve(reply, size);
    reply->size = code == TRP_OK ? size : 0;
    return code;
}

static trp_code probe_add(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                          trp_error *err) {
    return trp_buf_printf(reply, "%ld", ++((probe *)state)->count);
}

static trp_code probe_sees(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    char cwd[256];
    return trp_buf_printf(
        reply,
        "pid=%d group=%d cwd=%s devices=%s/%s threads=%s color=%s "
        "node=%d incarnation=%d name=%s",
        (int)getpid(), (int)getpgid(0), getcwd(cwd, sizeof cwd), getenv("CUDA_VISIBLE_DEVICES"),
        trp_context_devices(ctx), getenv("OMP_NUM_THREADS"), getenv("COLOR") ? getenv("COLOR") : "",
        (int)trp_context_node(ctx), (int)trp_context_incarnation(ctx), trp_context_name(ctx));
}

static trp_code probe_fail(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    err->code = TRP_EUSER;
    TRPI_SET(err->message, "asked to fail");
    return TRP_EUSER;
}

static trp_code probe_exit(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    char code[16];
    test_text_of(args, code, sizeof code);
    exit(atoi(code));
}

static trp_code probe_leave(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    trp_context_exit(ctx);
    return trp_buf_printf(reply, "leaving");
}

static void *leave_soon(void *arg) {
    test_sleep_ms(50);
    trp_context_exit(arg);
    return NULL;
}

/* Another thread ends the actor while it is idle. */
static trp_code probe_leave_later(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                                  trp_error *err) {
    pthread_t thread;
    pthread_create(&thread, NULL, leave_soon, ctx);
    pthread_detach(thread);
    return TRP_OK;
}

/* Writes many lines and dies at once. */
static trp_code probe_burst(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    for (int i = 0; i < 5000; i++) {
        printf("line %d of the burst\n", i);
    }
    fprintf(stderr, "last words");
    raise(SIGKILL);
    return TRP_OK;
}

static trp_code probe_print(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    char text[256];
    test_text_of(args, text, sizeof text);
    printf("out %s\n", text);
    fprintf(stderr, "err %s\n", text);
    return TRP_OK;
}

static trp_code probe_child(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    pid_t pid;
    trp_code code = test_stray_start(false, &pid, err);
    return code != TRP_OK ? code : trp_buf_printf(reply, "%d", (int)pid);
}

static trp_code probe_daemon(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    pid_t pid;
    trp_code code = test_stray_start(true, &pid, err);
    return code != TRP_OK ? code : trp_buf_printf(reply, "%d", (int)pid);
}

/* Waits until so many signals have come. */
static trp_code probe_signaled(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                               trp_error *err) {
    probe *self = state;
    for (int i = 0; i < 5000 && atomic_load(&self->signals) == 0; i++) {
        test_sleep_ms(2);
    }
    return trp_buf_printf(reply, "%d", atomic_load(&self->signals));
}

static trp_code probe_defer(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    return trp_defer(ctx, &((probe *)state)->promise, err);
}

static void *resolve_soon(void *arg) {
    test_sleep_ms(100);
    trp_promise_resolve(((probe *)arg)->promise, trp_bytes_of("later"));
    return NULL;
}

/* Has the deferred call answered by another thread in 100 ms, and returns at once or after MS. */
static trp_code probe_resolve(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                              trp_error *err) {
    char ms[16];
    pthread_t thread;
    test_text_of(args, ms, sizeof ms);
    pthread_create(&thread, NULL, resolve_soon, state);
    pthread_detach(thread);
    test_sleep_ms(atol(ms));
    return TRP_OK;
}

static const trp_method probe_methods[] = {
    {"add", probe_add},           {"sees", probe_sees},
    {"fail", probe_fail},         {"exit", probe_exit},
    {"leave", probe_leave},       {"leave_later", probe_leave_later},
    {"burst", probe_burst},       {"print", probe_print},
    {"child", probe_child},       {"daemon", probe_daemon},
    {"signaled", probe_signaled}, {"defer", probe_defer},
    {"resolve", probe_resolve},   {"order", probe_order},
    {"huge", probe_huge},         {NULL, NULL}};
const trp_actor_type test_probe_type = {.name = "probe",
                                        .state_size = sizeof(probe),
                                        .methods = probe_methods,
                                        .start = probe_start,
                                        .stop = probe_stop,
                                        .signal = probe_signal};
const trp_actor_type *const test_probe_types[] = {&test_probe_type, NULL};

/* ---- Short ways ---- */

static uint64_t last_actor;

static const char *our_exe(void) {
    static char exe[512];
    trp_error err = {0};
    if (!exe[0] && trpi_host_exe(exe, sizeof exe, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    return exe;
}

uint64_t test_say_start(test_head *head, const test_start *what) {
    trpi_text env[] = {{.value = "COLOR=red=1"}};
    trpi_text devices[] = {{.value = "1"}, {.value = "0"}};
    trpi_msg msg = {.type = TRPI_MSG_START,
                    .start = {.actor = ++last_actor,
                              .incarnation = TEST_PROBE_INCARNATION,
                              .type = what->type ? what->type : "probe",
                              .name = "bob",
                              .exe = what->exe ? what->exe : our_exe(),
                              .cwd = what->cwd ? what->cwd : "/",
                              .needs_cwd = what->cwd != NULL,
                              .job = "node_test",
                              .owner_job = 5,
                              .env = env,
                              .env_count = 1,
                              .devices = devices,
                              .devices_count = 2,
                              .cpus = 25000,
                              .start_timeout_ms = what->timeout_ms ? what->timeout_ms : 20000,
                              .args = trp_bytes_of(what->args),
                              .liveness_ms = what->liveness_ms,
                              .exclusive = what->exclusive,
                              .restartable = what->restartable}};
    test_head_say(head, &msg);
    return last_actor;
}

const trpi_msg_started *test_wait_started(test_head *head, uint64_t actor) {
    const trpi_msg_started *started;
    do { /* others are said again when this test was silent for long; a head drops them by their
            fence */
        started = &test_head_wait(head, TRPI_MSG_STARTED)->started;
    } while (started->actor != actor);
    return started;
}

void test_start_probe(test_head *head, test_caller *caller, int64_t *ret_pid) {
    uint64_t actor = test_say_start(head, &(test_start){0});
    const trpi_msg_started *started = test_wait_started(head, actor);
    assert_int_equal(started->incarnation, TEST_PROBE_INCARNATION);
    assert_int_equal(strncmp(started->endpoint, "ipc://", 6), 0);
    assert_int_equal(strncmp(started->remote_endpoint, "tcp://127.0.0.1:", 16), 0);
    test_caller_open(head, started, caller);
    if (ret_pid) {
        *ret_pid = started->pid;
    }
}

const trpi_death *test_wait_exit(test_head *head, uint64_t actor) {
    const trpi_msg_exited *exited;
    do {
        exited = &test_head_wait(head, TRPI_MSG_EXITED)->exited;
    } while (exited->actor != actor);
    assert_int_equal(exited->death[0].incarnation, TEST_PROBE_INCARNATION);
    assert_int_equal(exited->death[0].node, TEST_NODE_ID);
    return &exited->death[0];
}

void test_say_end(test_head *head, uint64_t actor) {
    trpi_msg msg = {.type = TRPI_MSG_END,
                    .end = {.actor = actor,
                            .incarnation = TEST_PROBE_INCARNATION,
                            .cause = TRP_CAUSE_KILLED,
                            .reason = "asked"}};
    test_head_say(head, &msg);
}

void test_end_probe(test_head *head, test_caller *caller) {
    test_say_end(head, caller->actor);
    (void)test_wait_exit(head, caller->actor);
    test_caller_close(caller);
}

bool test_process_gone(pid_t pid) {
    for (int i = 0; i < 2000; i++) {
        if (trpi_process_start_time(pid) == 0) {
            return true;
        }
        test_sleep_ms(5);
    }
    return false;
}

/* A node daemon and its workers under a head that this test plays: registration, starts, deaths,
 * output, loss of the head, the end. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "core/sys/host.h"
#include "core/sys/process.h"
#include "core/sys/session.h"
#include "tests/lib/fake_head.h"

#define PATIENCE_MS 20000

/* ---- The actor ---- */

typedef struct probe {
    atomic_int signals;
    trp_promise *promise;
    long count;
} probe;

static void text_of(trp_bytes args, char *out, size_t size) {
    trpi_format(out, size, "%.*s", (int)args.size, args.size ? (const char *)args.data : "");
}

static void sleep_ms(long ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static trp_code probe_start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    char what[32];
    text_of(args, what, sizeof what);
    if (strcmp(what, "fail") == 0) {
        err->code = TRP_EUSER;
        TRPI_SET(err->message, "asked to fail");
        return TRP_EUSER;
    }
    if (strcmp(what, "crash") == 0) {
        raise(SIGSEGV);
    }
    if (strcmp(what, "hang") == 0) {
        sleep_ms(3600000);
    }
    return TRP_OK;
}

static void probe_stop(trp_context *ctx, void *state) {
    printf("stopped\n");
}

static void probe_signal(trp_context *ctx, void *state, trp_bytes data) {
    atomic_fetch_add(&((probe *)state)->signals, 1);
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
    text_of(args, code, sizeof code);
    exit(atoi(code));
}

static trp_code probe_leave(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    trp_context_exit(ctx);
    return trp_buf_printf(reply, "leaving");
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
    text_of(args, text, sizeof text);
    printf("out %s\n", text);
    fprintf(stderr, "err %s\n", text);
    return TRP_OK;
}

static trp_code probe_child(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    pid_t pid = fork();
    if (pid == 0) {
        sleep_ms(3600000);
        _exit(0);
    }
    return trp_buf_printf(reply, "%d", (int)pid);
}

/* Waits until so many signals have come. */
static trp_code probe_signaled(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                               trp_error *err) {
    probe *self = state;
    for (int i = 0; i < 5000 && atomic_load(&self->signals) == 0; i++) {
        sleep_ms(2);
    }
    return trp_buf_printf(reply, "%d", atomic_load(&self->signals));
}

static trp_code probe_defer(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    return trp_defer(ctx, &((probe *)state)->promise, err);
}

static void *resolve_soon(void *arg) {
    sleep_ms(100);
    trp_promise_resolve(((probe *)arg)->promise, trp_bytes_of("later"));
    return NULL;
}

/* Has the deferred call answered by another thread in 100 ms, and returns at once or after MS. */
static trp_code probe_resolve(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                              trp_error *err) {
    char ms[16];
    pthread_t thread;
    text_of(args, ms, sizeof ms);
    pthread_create(&thread, NULL, resolve_soon, state);
    pthread_detach(thread);
    sleep_ms(atol(ms));
    return TRP_OK;
}

static const trp_method probe_methods[] = {
    {"add", probe_add},     {"sees", probe_sees},       {"fail", probe_fail},
    {"exit", probe_exit},   {"leave", probe_leave},     {"burst", probe_burst},
    {"print", probe_print}, {"child", probe_child},     {"signaled", probe_signaled},
    {"defer", probe_defer}, {"resolve", probe_resolve}, {NULL, NULL}};
static const trp_actor_type probe_type = {.name = "probe",
                                          .state_size = sizeof(probe),
                                          .methods = probe_methods,
                                          .start = probe_start,
                                          .stop = probe_stop,
                                          .signal = probe_signal};
static const trp_actor_type *const types[] = {&probe_type, NULL};

/* ---- Short ways ---- */

static test_head the_head;
static char our_exe[512];
static uint64_t last_actor;

typedef struct start_case {
    const char *type, *exe, *args;
    uint64_t timeout_ms;
} start_case;

static uint64_t say_start(test_head *head, const start_case *what) {
    trpi_text env[] = {{.value = "COLOR=red=1"}};
    trpi_text devices[] = {{.value = "1"}, {.value = "0"}};
    trpi_msg msg = {.type = TRPI_MSG_START,
                    .start = {.actor = ++last_actor,
                              .incarnation = 3,
                              .type = what->type ? what->type : "probe",
                              .name = "bob",
                              .exe = what->exe ? what->exe : our_exe,
                              .cwd = "/",
                              .job = "node_test",
                              .owner_job = 5,
                              .env = env,
                              .env_count = 1,
                              .devices = devices,
                              .devices_count = 2,
                              .cpus = 25000,
                              .start_timeout_ms = what->timeout_ms ? what->timeout_ms : 20000,
                              .args = trp_bytes_of(what->args)}};
    test_head_say(head, &msg);
    return last_actor;
}

static void start_probe(test_head *head, test_caller *caller, int64_t *ret_pid) {
    uint64_t actor = say_start(head, &(start_case){0});
    const trpi_msg_started *started;
    do { /* others are said again when this test was silent for long; a head drops them by their
            fence */
        started = &test_head_wait(head, TRPI_MSG_STARTED)->started;
    } while (started->actor != actor);
    assert_int_equal(started->incarnation, 3);
    test_caller_open(head, started, caller);
    if (ret_pid) {
        *ret_pid = started->pid;
    }
}

static const trpi_death *wait_death(test_head *head, uint64_t actor) {
    const trpi_msg_exited *exited;
    do {
        exited = &test_head_wait(head, TRPI_MSG_EXITED)->exited;
    } while (exited->actor != actor);
    assert_int_equal(exited->death[0].incarnation, 3);
    assert_int_equal(exited->death[0].node, TEST_NODE_ID);
    return &exited->death[0];
}

static void say_end(test_head *head, uint64_t actor) {
    trpi_msg msg = {
        .type = TRPI_MSG_END,
        .end = {.actor = actor, .incarnation = 3, .cause = TRP_CAUSE_KILLED, .reason = "asked"}};
    test_head_say(head, &msg);
}

static void end_probe(test_head *head, test_caller *caller) {
    say_end(head, caller->actor);
    (void)wait_death(head, caller->actor);
    test_caller_close(caller);
}

static bool gone(pid_t pid) {
    for (int i = 0; i < 2000; i++) {
        if (trpi_process_start_time(pid) == 0) {
            return true;
        }
        sleep_ms(5);
    }
    return false;
}

static int setup(void **state) {
    test_head_open(&the_head);
    test_head_start_node(&the_head);
    const trpi_msg_node_hello *hello = &test_head_wait(&the_head, TRPI_MSG_NODE_HELLO)->node_hello;
    assert_string_equal(hello->name, "testnode");
    assert_int_equal(hello->holdings_count, 0);
    *state = &the_head;
    return 0;
}

static int teardown(void **state) {
    test_head_close(*state);
    return 0;
}

/* ---- Registration ---- */

static void a_node_tells_what_its_host_offers(void **state) {
    test_head head;
    test_head_open(&head);
    test_head_start_node(&head);
    const trpi_msg_node_hello *hello = &test_head_wait(&head, TRPI_MSG_NODE_HELLO)->node_hello;
    assert_int_equal(hello->resources_count, 4);
    assert_string_equal(hello->resources[0].name, "cpu");
    assert_int_equal(hello->resources[0].amount, 80000);
    assert_string_equal(hello->resources[1].name, "gpu");
    assert_int_equal(hello->resources[1].amount, 20000);
    assert_string_equal(hello->resources[2].name, "memory");
    assert_string_equal(hello->resources[3].name, "slots");
    assert_int_equal(hello->devices_count, 2);
    assert_string_equal(hello->devices[1].value, "1");
    assert_int_equal(hello->labels_count, 1);
    assert_int_equal(hello->pid, head.node);
    test_head_close(&head);
}

static void a_node_that_is_not_answered_gives_up_with_an_error(void **state) {
    test_head head;
    test_head_open(&head);
    head.welcomes = false;
    setenv("TROUPE_CONNECT_TIMEOUT_MS", "700", 1);
    test_head_start_node(&head);
    unsetenv("TROUPE_CONNECT_TIMEOUT_MS");
    assert_int_equal(test_head_wait_node(&head, PATIENCE_MS), 1);
    test_head_close(&head);
}

/* ---- Starts and calls ---- */

static void an_actor_starts_and_sees_what_it_was_given(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    char expected[512];
    start_probe(head, &caller, &pid);
    trpi_format(expected, sizeof expected,
                "pid=%d group=%d cwd=/ devices=1,0/1,0 threads=2 color=red=1 node=%d "
                "incarnation=3 name=bob",
                (int)pid, (int)pid, TEST_NODE_ID);
    assert_string_equal(test_caller_ask(&caller, "sees", ""), expected);
    assert_string_equal(test_caller_ask(&caller, "add", ""), "1");
    assert_string_equal(test_caller_ask(&caller, "add", ""), "2");
    end_probe(head, &caller);
}

static void a_call_of_another_incarnation_is_refused(void **state) {
    test_head *head = *state;
    test_caller caller;
    start_probe(head, &caller, NULL);
    caller.incarnation = 2;
    test_caller_send(&caller, "add", "");
    const trpi_msg_reply *reply = test_caller_reply(&caller, PATIENCE_MS);
    assert_non_null(reply);
    assert_int_equal(reply->code, TRP_EUNAVAILABLE);
    assert_string_equal(reply->message, "stale incarnation");
    caller.incarnation = 3;
    assert_string_equal(test_caller_ask(&caller, "add", ""), "1");
    end_probe(head, &caller);
}

static void a_method_that_is_not_there_is_answered_with_the_nearest(void **state) {
    test_head *head = *state;
    test_caller caller;
    start_probe(head, &caller, NULL);
    test_caller_send(&caller, "prnt", "");
    const trpi_msg_reply *reply = test_caller_reply(&caller, PATIENCE_MS);
    assert_int_equal(reply->code, TRP_ENOTFOUND);
    assert_non_null(strstr(reply->message, "did you mean \"print\"?"));
    test_caller_send(&caller, "fail", "");
    reply = test_caller_reply(&caller, PATIENCE_MS);
    assert_int_equal(reply->code, TRP_EUSER);
    assert_string_equal(reply->message, "asked to fail");
    end_probe(head, &caller);
}

static void a_promise_is_answered_at_once_also_while_a_method_runs(void **state) {
    test_head *head = *state;
    test_caller caller;
    start_probe(head, &caller, NULL);
    for (int round = 0; round < 2; round++) {
        test_caller_send(&caller, "defer", "");
        test_caller_send(&caller, "resolve", round == 0 ? "3000" : "0");
        uint64_t first = caller.calls - 1;
        const trpi_msg_reply *reply = test_caller_reply(&caller, PATIENCE_MS);
        if (round == 0) {
            assert_int_equal(reply->call, first); /* long before "resolve" returns */
        }
        const trpi_msg_reply *second =
            reply->call == first ? reply : test_caller_reply(&caller, PATIENCE_MS);
        assert_int_equal(second->call, first);
        assert_memory_equal(caller.packet.body.data, "later", 5);
        if (round == 0) {
            assert_int_equal(test_caller_reply(&caller, PATIENCE_MS)->call, first + 1);
        }
    }
    end_probe(head, &caller);
}

static void a_signal_arrives_while_a_method_runs(void **state) {
    test_head *head = *state;
    test_caller caller;
    start_probe(head, &caller, NULL);
    trpi_msg stale = {.type = TRPI_MSG_SIGNAL, .signal = {.actor = caller.actor, .incarnation = 2}};
    trpi_msg good = {.type = TRPI_MSG_SIGNAL, .signal = {.actor = caller.actor, .incarnation = 3}};
    test_caller_send(&caller, "signaled", "");
    test_head_say(head, &stale);
    test_head_say(head, &good);
    assert_non_null(test_caller_reply(&caller, PATIENCE_MS));
    assert_memory_equal(caller.packet.body.data, "1", 1);
    end_probe(head, &caller);
}

/* ---- Deaths ---- */

static void a_killed_worker_is_told_with_signal_and_last_words(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    start_probe(head, &caller, &pid);
    (void)test_caller_ask(&caller, "print", "good bye");
    kill((pid_t)pid, SIGKILL);
    const trpi_death *death = wait_death(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_SIGNALED);
    assert_int_equal(death->signal, SIGKILL);
    assert_int_equal(death->pid, pid);
    assert_string_equal(death->message, "signal 9 (SIGKILL)");
    assert_string_equal(death->stderr_tail, "err good bye\n");
    assert_int_equal(kill((pid_t)pid, 0), -1); /* reaped */
    test_caller_close(&caller);
}

static void an_exit_code_is_told(void **state) {
    test_head *head = *state;
    const char *codes[] = {"4", "0"};
    for (int i = 0; i < 2; i++) {
        test_caller caller;
        start_probe(head, &caller, NULL);
        test_caller_send(&caller, "exit", codes[i]);
        const trpi_death *death = wait_death(head, caller.actor);
        assert_int_equal(death->cause, TRP_CAUSE_EXITED);
        assert_int_equal(death->exit_code, atoi(codes[i]));
        assert_non_null(strstr(death->message, "exit code"));
        test_caller_close(&caller);
    }
}

static void an_actor_that_ends_itself_replies_first_and_runs_its_stop_hook(void **state) {
    test_head *head = *state;
    for (int i = 0; i < 20; i++) {
        test_caller caller;
        start_probe(head, &caller, NULL);
        assert_string_equal(test_caller_ask(&caller, "leave", ""), "leaving");
        const trpi_death *death = wait_death(head, caller.actor);
        assert_int_equal(death->cause, TRP_CAUSE_FINISHED);
        assert_int_equal(death->exit_code, 0);
        test_caller_close(&caller);
    }
    const trpi_msg_log_lines *lines = &test_head_wait(head, TRPI_MSG_LOG_LINES)->log_lines;
    while (lines->text.size != strlen("stopped\n")) {
        lines = &test_head_wait(head, TRPI_MSG_LOG_LINES)->log_lines;
    }
    assert_memory_equal(lines->text.data, "stopped\n", lines->text.size);
    test_head_forget(head);
}

static void a_constructor_that_fails_is_told_from_one_that_crashes(void **state) {
    test_head *head = *state;
    uint64_t actor = say_start(head, &(start_case){.args = "fail"});
    const trpi_death *death = wait_death(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_NEVER_STARTED);
    assert_string_equal(death->message, "constructor of probe: asked to fail");
    actor = say_start(head, &(start_case){.args = "crash"});
    death = wait_death(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_SIGNALED);
    assert_int_equal(death->signal, SIGSEGV);
    assert_non_null(strstr(death->message, "constructor"));
    actor = say_start(head, &(start_case){.type = "prob"});
    death = wait_death(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_NEVER_STARTED);
    assert_non_null(strstr(death->message, "did you mean \"probe\"?"));
}

static void a_constructor_that_hangs_is_killed_at_its_deadline(void **state) {
    test_head *head = *state;
    uint64_t actor = say_start(head, &(start_case){.args = "hang", .timeout_ms = 300});
    const trpi_death *death = wait_death(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_START_TIMEOUT);
    assert_non_null(strstr(death->message, "constructor"));
    assert_true(gone((pid_t)death->pid));
}

static void a_program_that_cannot_run_says_why(void **state) {
    test_head *head = *state;
    uint64_t actor = say_start(head, &(start_case){.exe = "/nowhere/prog"});
    const trpi_death *death = wait_death(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_NEVER_STARTED);
    assert_non_null(strstr(death->message, "/nowhere/prog"));
    assert_non_null(strstr(death->message, "No such file"));
    actor = say_start(head, &(start_case){.exe = "/bin/false"});
    death = wait_death(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_NEVER_STARTED);
    assert_non_null(strstr(death->message, "before it reached trp_init(): exit code 1"));
    actor = say_start(head, &(start_case){.exe = "/bin/mkdir"});
    death = wait_death(head, actor);
    assert_non_null(strstr(death->stderr_tail, "missing operand"));
}

static void a_program_that_never_reaches_trp_init_is_killed_at_the_deadline(void **state) {
    test_head *head = *state; /* "yes" also floods the daemon with its output */
    uint64_t actor = say_start(head, &(start_case){.exe = "/usr/bin/yes", .timeout_ms = 400});
    const trpi_death *death = wait_death(head, actor);
    assert_int_equal(death->cause, TRP_CAUSE_START_TIMEOUT);
    assert_non_null(strstr(death->message, "program"));
}

static void ending_an_actor_kills_its_children_too(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    start_probe(head, &caller, &pid);
    pid_t child = (pid_t)atoi(test_caller_ask(&caller, "child", ""));
    say_end(head, caller.actor);
    const trpi_death *death = wait_death(head, caller.actor);
    assert_int_equal(death->cause, TRP_CAUSE_KILLED);
    assert_string_equal(death->message, "asked");
    assert_true(gone((pid_t)pid));
    assert_true(gone(child));
    /* Said again, it is answered again. */
    say_end(head, caller.actor);
    assert_int_equal(wait_death(head, caller.actor)->cause, TRP_CAUSE_KILLED);
    test_caller_close(&caller);
}

static void an_actor_can_be_ended_before_it_has_a_process(void **state) {
    test_head *head = *state;
    for (int i = 0; i < 10; i++) {
        uint64_t actor = say_start(head, &(start_case){0});
        say_end(head, actor);
        assert_int_equal(wait_death(head, actor)->cause, TRP_CAUSE_KILLED);
    }
    test_head_forget(head);
}

static void a_driver_that_dies_is_noticed(void **state) {
    test_head *head = *state;
    pid_t pid = fork();
    if (pid == 0) {
        sleep_ms(3600000);
        _exit(0);
    }
    trpi_msg msg = {.type = TRPI_MSG_WATCH_PID, .watch_pid = {.client = 12, .pid = pid}};
    test_head_say(head, &msg);
    assert_null(test_head_try(head, TRPI_MSG_PID_GONE, 100));
    kill(pid, SIGKILL);
    assert_int_equal(test_head_wait(head, TRPI_MSG_PID_GONE)->pid_gone.client, 12);
    waitpid(pid, NULL, 0);
    test_head_say(head, &msg); /* one that is gone already */
    assert_int_equal(test_head_wait(head, TRPI_MSG_PID_GONE)->pid_gone.client, 12);
}

/* ---- Output ---- */

static const trpi_msg_logs_data *query(test_head *head, uint64_t actor, const char *stream,
                                       uint64_t offset, uint64_t tail_bytes) {
    trpi_msg msg = {.type = TRPI_MSG_LOGS_QUERY,
                    .logs_query = {.request = 9,
                                   .actor = actor,
                                   .stream = stream,
                                   .offset = offset,
                                   .tail_bytes = tail_bytes,
                                   .client = 4}};
    test_head_say(head, &msg);
    return &test_head_wait(head, TRPI_MSG_LOGS_DATA)->logs_data;
}

static void output_reaches_the_driver_and_the_log(void **state) {
    test_head *head = *state;
    test_caller caller;
    int64_t pid;
    test_head_forget(head);
    start_probe(head, &caller, &pid);
    (void)test_caller_ask(&caller, "print", "one");
    bool seen[2] = {false, false};
    while (!seen[0] || !seen[1]) {
        const trpi_msg_log_lines *lines = &test_head_wait(head, TRPI_MSG_LOG_LINES)->log_lines;
        assert_int_equal(lines->actor, caller.actor);
        assert_int_equal(lines->job, 5);
        assert_int_equal(lines->pid, pid);
        assert_string_equal(lines->label, "bob");
        assert_int_equal(lines->text.size, 8);
        assert_memory_equal(lines->text.data, lines->is_stderr ? "err one\n" : "out one\n", 8);
        seen[lines->is_stderr] = true;
    }
    const trpi_msg_logs_data *data = query(head, caller.actor, "err", 0, 0);
    assert_int_equal(data->code, TRP_OK);
    assert_int_equal(data->client, 4);
    assert_int_equal(data->request, 9);
    assert_int_equal(data->data.size, 8);
    assert_memory_equal(data->data.data, "err one\n", 8);
    uint64_t next = data->next_offset;
    assert_int_equal(query(head, caller.actor, "", next, 0)->data.size, 0);
    (void)test_caller_ask(&caller, "print", "two");
    end_probe(head, &caller);
    data = query(head, caller.actor, "out", next, 0);
    assert_int_equal(data->data.size, 8);
    assert_memory_equal(data->data.data, "out two\n", 8);
    assert_int_equal(query(head, 4711, "", 0, 0)->code, TRP_ENOTFOUND);
    assert_int_equal(query(head, caller.actor, "both", 0, 0)->code, TRP_EINVALID);
}

static void nothing_written_before_death_is_lost(void **state) {
    test_head *head = *state;
    test_caller caller;
    start_probe(head, &caller, NULL);
    test_caller_send(&caller, "burst", "");
    assert_string_equal(wait_death(head, caller.actor)->stderr_tail, "last words");
    const trpi_msg_logs_data *data = query(head, caller.actor, "out", UINT64_MAX, 50);
    assert_int_equal(data->data.size, 23);
    assert_memory_equal(data->data.data, "line 4999 of the burst\n", 23);
    test_caller_close(&caller);
    test_head_forget(head);
}

/* ---- The lease ---- */

static void workers_die_when_the_head_is_silent_for_too_long(void **state) {
    test_head head;
    test_caller caller;
    int64_t pid;
    test_head_open(&head);
    head.timeout_ms = 400;
    head.heartbeat_ms = 50;
    test_head_start_node(&head);
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    start_probe(&head, &caller, &pid);
    head.deaf = true;
    head.incarnation = 2; /* for the next registration */
    const trpi_msg_node_hello *hello = &test_head_wait(&head, TRPI_MSG_NODE_HELLO)->node_hello;
    assert_int_equal(hello->holdings_count, 0);
    assert_int_equal(trpi_process_start_time((pid_t)pid), 0); /* before it registered again */
    head.deaf = false;
    test_caller_close(&caller);
    start_probe(&head, &caller, &pid); /* and serves again */
    head.denies = true;
    head.incarnation = 3;
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    assert_int_equal(trpi_process_start_time((pid_t)pid), 0);
    head.denies = false;
    test_caller_close(&caller);
    test_head_close(&head);
}

static void a_head_that_was_silent_for_a_while_is_told_what_runs(void **state) {
    test_head head;
    test_caller caller, other;
    int64_t pid, other_pid;
    test_head_open(&head);
    head.timeout_ms = 20000;
    head.heartbeat_ms = 50;
    test_head_start_node(&head);
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    start_probe(&head, &caller, &pid);
    start_probe(&head, &other, &other_pid);
    head.deaf = true;
    kill((pid_t)other_pid, SIGKILL);
    (void)wait_death(&head, other.actor);
    test_head_listen(&head, 400);
    head.deaf = false;
    const trpi_msg_node_hello *hello = &test_head_wait(&head, TRPI_MSG_NODE_HELLO)->node_hello;
    assert_int_equal(hello->holdings_count, 1);
    assert_int_equal(hello->holdings[0].actor, caller.actor);
    assert_int_equal(hello->holdings[0].incarnation, 3);
    assert_int_equal(hello->holdings[0].pid, pid);
    (void)wait_death(&head, other.actor); /* said again, since it may have been lost */
    assert_string_equal(test_caller_ask(&caller, "add", ""), "1");
    test_caller_close(&other);
    test_caller_close(&caller);
    test_head_close(&head);
}

/* ---- The end ---- */

static void sigterm_leaves_nothing_behind(void **state) {
    test_head head;
    test_caller caller;
    int64_t pid;
    char path[256];
    struct stat info;
    test_head_open(&head);
    test_head_start_node(&head);
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    start_probe(&head, &caller, &pid);
    pid_t child = (pid_t)atoi(test_caller_ask(&caller, "child", ""));
    trpi_format(path, sizeof path, "%s/%.8s", getenv("TROUPE_SESSION_ROOT"), head.cluster);
    assert_int_equal(stat(path, &info), 0);
    kill(head.node, SIGTERM);
    assert_string_equal(test_head_wait(&head, TRPI_MSG_NODE_BYE)->node_bye.reason, "SIGTERM");
    assert_int_equal(trpi_process_start_time((pid_t)pid), 0);
    assert_int_equal(trpi_process_start_time(child), 0);
    assert_int_equal(test_head_wait_node(&head, PATIENCE_MS), 0);
    assert_int_equal(stat(path, &info), -1);
    test_caller_close(&caller);
    test_head_close(&head);
}

static void workers_do_not_outlive_a_killed_node(void **state) {
    test_head head;
    test_caller caller;
    int64_t pid;
    test_head_open(&head);
    test_head_start_node(&head);
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    start_probe(&head, &caller, &pid);
    kill(head.node, SIGKILL);
    assert_int_equal(test_head_wait_node(&head, PATIENCE_MS), -1);
    assert_true(gone((pid_t)pid));
    trpi_session_sweep();
    test_caller_close(&caller);
    test_head_close(&head);
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, types);
    static char root[64];
    trpi_format(root, sizeof root, "/tmp/node-test-%d", (int)getpid());
    if (!getenv("TROUPE_SESSION_ROOT")) {
        setenv("TROUPE_SESSION_ROOT", root, 1);
    }
    unsetenv("OMP_NUM_THREADS");
    trp_error err = {0};
    if (trpi_host_exe(our_exe, sizeof our_exe, &err) != TRP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const struct CMUnitTest under_one_node[] = {
        cmocka_unit_test(an_actor_starts_and_sees_what_it_was_given),
        cmocka_unit_test(a_call_of_another_incarnation_is_refused),
        cmocka_unit_test(a_method_that_is_not_there_is_answered_with_the_nearest),
        cmocka_unit_test(a_promise_is_answered_at_once_also_while_a_method_runs),
        cmocka_unit_test(a_signal_arrives_while_a_method_runs),
        cmocka_unit_test(a_killed_worker_is_told_with_signal_and_last_words),
        cmocka_unit_test(an_exit_code_is_told),
        cmocka_unit_test(an_actor_that_ends_itself_replies_first_and_runs_its_stop_hook),
        cmocka_unit_test(a_constructor_that_fails_is_told_from_one_that_crashes),
        cmocka_unit_test(a_constructor_that_hangs_is_killed_at_its_deadline),
        cmocka_unit_test(a_program_that_cannot_run_says_why),
        cmocka_unit_test(a_program_that_never_reaches_trp_init_is_killed_at_the_deadline),
        cmocka_unit_test(ending_an_actor_kills_its_children_too),
        cmocka_unit_test(an_actor_can_be_ended_before_it_has_a_process),
        cmocka_unit_test(a_driver_that_dies_is_noticed),
        cmocka_unit_test(output_reaches_the_driver_and_the_log),
        cmocka_unit_test(nothing_written_before_death_is_lost),
    };
    const struct CMUnitTest lives[] = {
        cmocka_unit_test(a_node_tells_what_its_host_offers),
        cmocka_unit_test(a_node_that_is_not_answered_gives_up_with_an_error),
        cmocka_unit_test(workers_die_when_the_head_is_silent_for_too_long),
        cmocka_unit_test(a_head_that_was_silent_for_a_while_is_told_what_runs),
        cmocka_unit_test(sigterm_leaves_nothing_behind),
        cmocka_unit_test(workers_do_not_outlive_a_killed_node),
    };
    int failed = cmocka_run_group_tests(under_one_node, setup, teardown);
    failed += cmocka_run_group_tests(lives, NULL, NULL);
    rmdir(root);
    return failed;
}

/* The life of a worker, under a node daemon that this test plays: stop, exit, save and load,
 * leases, liveness, drain, stacks. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/worker.h"
#include "core/net/clock.h"
#include "tests/lib/fake_node.h"
#include "tests/lib/porter.h"

#define PATIENCE_MS 20000
#define MS UINT64_C(1000000) /* in ns */

static test_fake_node node;
static test_worker worker;
static test_caller *caller = &worker.caller;
static char log_path[64], stamp_path[64];

static uint64_t call(const char *method, const char *args) {
    return test_caller_call(caller, &(trpi_msg_call){.method = method}, args);
}

static const char *ask(const char *method, const char *args) {
    return test_caller_expect(caller, call(method, args), TRP_OK);
}

static const char *log_text(void) {
    static char text[4096];
    int fd = open(log_path, O_RDONLY);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[size > 0 ? size : 0] = '\0';
    for (char *at = text; *at; at++) {
        *at = *at == '\n' ? ' ' : *at;
    }
    if (fd >= 0) {
        close(fd);
    }
    return text;
}

static void start(const trpi_msg_start *what) {
    trpi_msg_start msg = *what;
    msg.args = what->args.size ? what->args : trp_bytes_of(log_path);
    test_worker_start(&node, &worker, &msg);
}

static int begin(void **state) {
    unlink(log_path);
    unlink(stamp_path);
    node.pings_ms = 0;
    return 0;
}

static int end(void **state) {
    test_worker_release(&node, &worker);
    return 0;
}

static void say_stop(uint64_t grace_ms) {
    trpi_msg msg = {.type = TRPI_MSG_STOP,
                    .stop = {.actor = TEST_NODE_ACTOR,
                             .incarnation = TEST_NODE_INCARNATION,
                             .grace_ms = grace_ms}};
    test_worker_say(&node, &worker, &msg);
}

/* Waits for WORKER_FAILED, answers it, and for the end of the process with that exit code. */
static void expect_end(trp_cause cause, const char *message, int exit_code) {
    const trpi_msg *msg = test_worker_wait(&node, &worker, TRPI_MSG_WORKER_FAILED);
    assert_int_equal(msg->worker_failed.cause, cause);
    assert_int_equal(msg->worker_failed.actor, TEST_NODE_ACTOR);
    assert_non_null(strstr(msg->worker_failed.message, message));
    test_worker_hear_failed(&node, &worker, msg);
    int status = test_worker_end_status(&node, &worker, PATIENCE_MS);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), exit_code);
}

/* ---- STOP ---- */

/* It has got so many calls by now; all are answered, and one that comes later is refused. */
static void expect_orderly_stop(int calls) {
    say_stop(5000);
    for (int i = 0; i < calls; i++) {
        const trpi_msg_reply *reply = test_caller_reply(caller, PATIENCE_MS);
        assert_non_null(reply);
        assert_int_equal(reply->code, TRP_OK);
    }
    uint64_t late = call("add", NULL); /* while the stop hook runs, which takes 50 ms */
    test_caller_expect(caller, late, TRP_EACTOR_DIED);
    assert_string_equal(caller->msg.reply.message,
                        "the actor is being stopped; the call has not run");
    expect_end(TRP_CAUSE_STOPPED, "stopped in good order", 0);
}

static void A22_a_stop_answers_what_has_come_and_then_runs_the_hook(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    call("sleep", "150");
    call("add", NULL);
    call("add", NULL);
    assert_null(test_caller_reply(caller, 50)); /* all of it is there */
    expect_orderly_stop(3);
    assert_string_equal(log_text(), "start sleep add add stop ");
}

static void A22_a_stop_waits_for_the_threads_of_groups(void **state) {
    start(&(trpi_msg_start){.type = "porter"});
    for (int i = 0; i < 3; i++) {
        call("io_sleep", "100");
    }
    call("sleep", "150");
    call("add", NULL);
    assert_null(test_caller_reply(caller, 50));
    expect_orderly_stop(5);
    assert_string_equal(strstr(log_text(), " stop "), " stop "); /* as the last one */
}

static void A22_a_hook_that_blocks_is_left_to_the_node(void **state) {
    start(&(trpi_msg_start){.type = "blocker"});
    say_stop(300);
    assert_null(test_worker_try(&node, &worker, TRPI_MSG_WORKER_FAILED, 600));
    assert_string_equal(log_text(), "start stop ");
    kill(worker.pid, SIGKILL);
    assert_true(WIFSIGNALED(test_worker_end_status(&node, &worker, PATIENCE_MS)));
}

static void a_stop_waits_for_deferred_calls(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    uint64_t deferred = call("defer", NULL);
    assert_null(test_caller_reply(caller, 50));
    say_stop(10000);
    assert_string_equal(test_caller_expect(caller, deferred, TRP_OK), "late");
    expect_end(TRP_CAUSE_STOPPED, "", 0);
}

static void a_stop_waits_half_of_its_time_for_answers_that_never_come(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    call("abandon", NULL);
    assert_null(test_caller_reply(caller, 50));
    uint64_t start_ns = trpi_now_ns();
    say_stop(600);
    expect_end(TRP_CAUSE_STOPPED, "", 0);
    assert_in_range((trpi_now_ns() - start_ns) / MS, 300, 599);
    assert_string_equal(log_text(), "start stop ");
}

static void a_stop_that_comes_while_the_constructor_runs_is_not_lost(void **state) {
    char args[128];
    trpi_format(args, sizeof args, "%s slow", log_path);
    test_worker_fork(&node, &worker);
    test_worker_say_start(&node, &worker,
                          &(trpi_msg_start){.type = "serial", .args = trp_bytes_of(args)});
    say_stop(5000);
    (void)test_worker_wait(&node, &worker, TRPI_MSG_STARTED);
    expect_end(TRP_CAUSE_STOPPED, "", 0);
    assert_string_equal(log_text(), "start stop ");
}

static void a_stop_of_another_incarnation_is_dropped(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    trpi_msg msg = {.type = TRPI_MSG_STOP, .stop = {.actor = TEST_NODE_ACTOR, .incarnation = 2}};
    test_worker_say(&node, &worker, &msg);
    assert_null(test_worker_try(&node, &worker, TRPI_MSG_WORKER_FAILED, 50));
    assert_string_equal(ask("add", NULL), "1");
}

/* ---- Its own exit ---- */

static void after_its_own_exit_no_call_runs(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    call("sleep", "50");
    uint64_t leaving = call("exit", NULL);
    call("add", NULL);
    assert_non_null(test_caller_reply(caller, PATIENCE_MS));
    assert_string_equal(test_caller_expect(caller, leaving, TRP_OK), "leaving");
    expect_end(TRP_CAUSE_FINISHED, "ended itself", 0);
    assert_string_equal(log_text(), "start sleep stop ");
}

static void an_exit_waits_for_methods_of_other_threads(void **state) {
    start(&(trpi_msg_start){.type = "porter"});
    uint64_t slow = call("sleep", "300");
    assert_null(test_caller_reply(caller, 50));
    uint64_t leaving = call("io_exit", NULL);
    test_caller_expect(caller, leaving, TRP_OK);
    assert_string_equal(test_caller_expect(caller, slow, TRP_OK), "slept");
    expect_end(TRP_CAUSE_FINISHED, "ended itself", 0);
}

/* ---- Save and load ---- */

static char saved_state[64];

static uint64_t expect_save(void) {
    const trpi_msg *msg = test_worker_wait(&node, &worker, TRPI_MSG_SAVE);
    assert_int_equal(msg->save.actor, TEST_NODE_ACTOR);
    trpi_format(saved_state, sizeof saved_state, "%.*s", (int)msg->save.state.size,
                (const char *)msg->save.state.data);
    return msg->save.request;
}

static void say_saved(uint64_t request, trp_code code, const char *message) {
    trpi_msg msg = {.type = TRPI_MSG_SAVED,
                    .saved = {.actor = TEST_NODE_ACTOR,
                              .incarnation = TEST_NODE_INCARNATION,
                              .request = request,
                              .code = code,
                              .message = message}};
    test_worker_say(&node, &worker, &msg);
}

static void what_was_saved_outlives_a_kill(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    for (int i = 0; i < 41; i++) {
        ask("add", NULL);
    }
    uint64_t save = call("save", NULL);
    uint64_t request = expect_save();
    assert_string_equal(saved_state, "41");
    assert_null(test_caller_reply(caller, 50)); /* it waits for the head's word */
    say_saved(request, TRP_OK, "");
    assert_string_equal(test_caller_expect(caller, save, TRP_OK), "saved");
    assert_string_equal(ask("add", NULL), "42"); /* is not saved */
    kill(worker.pid, SIGKILL);
    end(NULL);
    start(
        &(trpi_msg_start){.type = "serial", .has_saved = true, .saved = trp_bytes_of(saved_state)});
    assert_string_equal(ask("count", NULL), "41");
    assert_non_null(strstr(log_text(), "start load "));
}

static void a_save_that_the_head_refuses_or_does_not_answer_fails(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    uint64_t save = call("save", NULL);
    say_saved(expect_save(), TRP_EIO, "the disk is full");
    test_caller_expect(caller, save, TRP_EIO);
    assert_string_equal(caller->msg.reply.message, "save: the disk is full");
    save = call("save", "50");
    uint64_t late = expect_save();
    test_caller_expect(caller, save, TRP_ETIMEOUT);
    say_saved(late, TRP_OK, ""); /* nobody waits for it any more */
    save = call("save", NULL);
    uint64_t request = expect_save();
    assert_true(request > late);
    say_saved(late, TRP_EIO, ""); /* not this one's */
    say_saved(request, TRP_OK, "");
    assert_string_equal(test_caller_expect(caller, save, TRP_OK), "saved");
}

static void a_save_is_said_again_to_a_head_that_was_away(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    uint64_t save = call("save", NULL);
    uint64_t request = expect_save();
    assert_int_equal(expect_save(), request);
    say_saved(request, TRP_OK, "");
    test_caller_expect(caller, save, TRP_OK);
}

static void with_save_each_call_a_reply_follows_its_save(void **state) {
    start(&(trpi_msg_start){.type = "serial", .save_each_call = true});
    uint64_t add = call("add", NULL);
    uint64_t request = expect_save();
    assert_string_equal(saved_state, "1");
    assert_null(test_caller_reply(caller, 50));
    say_saved(request, TRP_OK, "");
    assert_string_equal(test_caller_expect(caller, add, TRP_OK), "1");
    add = call("add", NULL);
    say_saved(expect_save(), TRP_EIO, "the disk is full");
    test_caller_expect(caller, add, TRP_EIO);
    assert_string_equal(caller->msg.reply.message,
                        "add has run, but the state after it is not saved: save: the disk is full");
    add = call("raise", NULL); /* has failed: nothing to save */
    test_caller_expect(caller, add, TRP_EUSER);
}

static void expect_not_started(const trpi_msg_start *what, const char *message) {
    trpi_msg_start msg = *what;
    msg.args = what->args.size ? what->args : trp_bytes_of(log_path);
    test_worker_fork(&node, &worker);
    test_worker_say_start(&node, &worker, &msg);
    expect_end(TRP_CAUSE_NEVER_STARTED, message, 1);
    end(NULL);
}

static void what_keeps_an_actor_from_starting_is_told(void **state) {
    char args[128];
    trpi_format(args, sizeof args, "%s fail", log_path);
    expect_not_started(&(trpi_msg_start){.type = "serial", .args = trp_bytes_of(args)},
                       "constructor of serial: KeyError: no key 7 (");
    expect_not_started(
        &(trpi_msg_start){.type = "serial", .has_saved = true, .saved = trp_bytes_of("bad")},
        "load() of serial: ValueError: not a number (");
    expect_not_started(&(trpi_msg_start){.type = "unsaved", .has_saved = true},
                       "but unsaved has no load()");
    expect_not_started(&(trpi_msg_start){.type = "unsaved", .save_each_call = true},
                       "but unsaved has no save()");
    expect_not_started(&(trpi_msg_start){.type = "seriel"}, "did you mean \"serial\"?");
    test_worker_fork(&node, &worker); /* for teardown */
}

/* ---- Leases ---- */

static void expect_lease_end(void) {
    char text[4096];
    int status = test_worker_end_status(&node, &worker, PATIENCE_MS);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    test_worker_read_err(&worker, text, sizeof text);
    assert_non_null(strstr(text, "this actor is exclusive and ends itself"));
}

static void start_exclusive(void) {
    node.pings_ms = 50;
    node.lease_ms = 400;
    start(&(trpi_msg_start){.type = "serial", .exclusive = true});
    assert_null(test_worker_try(&node, &worker, TRPI_MSG_START, 600)); /* is pinged, and lives */
    assert_string_equal(ask("add", NULL), "1");
}

static void an_exclusive_actor_ends_when_its_node_is_silent(void **state) {
    start_exclusive();
    call("stamp", stamp_path); /* also one that is busy in a method */
    node.pings_ms = 0;
    uint64_t start_ns = trpi_now_ns();
    expect_lease_end();
    assert_in_range((trpi_now_ns() - start_ns) / MS, 100, 2000); /* more on a busy machine */
}

static void an_old_ping_lends_nothing(void **state) {
    start_exclusive();
    node.pings_ms = 0;
    uint64_t start_ns = trpi_now_ns();
    while (trpi_now_ns() - start_ns < 2000 * MS && kill(worker.pid, 0) == 0 &&
           waitpid(worker.pid, &worker.status, WNOHANG) == 0) {
        trpi_msg ping = {.type = TRPI_MSG_PING, .ping = {.seq = start_ns, .lease_ms = 400}};
        test_worker_say(&node, &worker, &ping);
        test_head_listen(&node.desk, 20);
    }
    worker.is_gone = true;
    assert_in_range((trpi_now_ns() - start_ns) / MS, 100, 700);
    expect_lease_end();
}

/* Stopped for longer than its lease and pinged all the time: when it wakes up, it must not do
 * anything before it looks at the clock. */
static void A35_an_exclusive_actor_that_was_stopped_does_nothing_more(void **state) {
    start_exclusive();
    call("stamp", stamp_path);
    (void)test_worker_try(&node, &worker, TRPI_MSG_START, 100);
    kill(worker.pid, SIGSTOP);
    (void)test_worker_try(&node, &worker, TRPI_MSG_START, 50);
    uint64_t stopped_ns = trpi_boot_ns();
    (void)test_worker_try(&node, &worker, TRPI_MSG_START, 800);
    kill(worker.pid, SIGCONT);
    node.pings_ms = 0;
    expect_lease_end();
    uint64_t last_ns = 0;
    int fd = open(stamp_path, O_RDONLY);
    assert_int_equal(read(fd, &last_ns, sizeof last_ns), sizeof last_ns);
    close(fd);
    assert_true(last_ns != 0);
    assert_true(last_ns < stopped_ns);
}

/* ---- Liveness ---- */

static uint64_t ping(const char *method) {
    trpi_msg msg = {.type = TRPI_MSG_PING, .ping = {.seq = 77}};
    test_worker_say(&node, &worker, &msg);
    const trpi_msg_pong *pong = &test_worker_wait(&node, &worker, TRPI_MSG_PONG)->pong;
    assert_int_equal(pong->seq, 77);
    assert_string_equal(pong->method, method);
    return pong->stuck_ms;
}

static void a_pong_tells_the_method_that_runs_for_the_longest_time(void **state) {
    start(&(trpi_msg_start){.type = "porter"});
    assert_int_equal(ping(""), 0);
    call("io_sleep", "500");
    assert_null(test_caller_reply(caller, 100));
    call("sleep", "300");
    assert_null(test_caller_reply(caller, 100));
    assert_in_range(ping("io_sleep"), 150, 450);
    assert_non_null(test_caller_reply(caller, PATIENCE_MS));
    assert_non_null(test_caller_reply(caller, PATIENCE_MS));
    assert_int_equal(ping(""), 0);
}

static void a_beat_starts_the_time_anew(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    call("beat", NULL);
    assert_null(test_caller_reply(caller, 250));
    assert_in_range(ping("beat"), 200, 300);
    assert_null(test_caller_reply(caller, 200));
    assert_in_range(ping("beat"), 50, 250);
}

static void a_constructor_counts_as_a_method(void **state) {
    char args[128];
    trpi_format(args, sizeof args, "%s slow", log_path);
    test_worker_fork(&node, &worker);
    test_worker_say_start(&node, &worker,
                          &(trpi_msg_start){.type = "serial", .args = trp_bytes_of(args)});
    assert_null(test_worker_try(&node, &worker, TRPI_MSG_STARTED, 100));
    assert_in_range(ping("start"), 50, 299);
    (void)test_worker_wait(&node, &worker, TRPI_MSG_STARTED);
}

/* ---- Drain, stacks ---- */

static void a_drain_is_told_once_and_can_be_asked_for(void **state) {
    start(&(trpi_msg_start){.type = "serial"});
    assert_string_equal(ask("drain_ms", NULL), "none");
    for (int i = 0; i < 2; i++) {
        trpi_msg msg = {.type = TRPI_MSG_DRAIN_NOTICE, .drain_notice = {.deadline_ms = 20000}};
        test_worker_say(&node, &worker, &msg);
    }
    assert_int_equal(ping(""), 0); /* behind them */
    assert_in_range(atol(ask("drain_ms", NULL)), 15000, 20000);
    assert_string_equal(log_text(), "start drain 20 s ");
}

static void a_drain_that_comes_early_is_told_when_the_actor_is_there(void **state) {
    test_worker_fork(&node, &worker);
    trpi_msg msg = {.type = TRPI_MSG_DRAIN_NOTICE, .drain_notice = {.deadline_ms = 60000}};
    test_worker_say(&node, &worker, &msg);
    test_worker_say_start(&node, &worker,
                          &(trpi_msg_start){.type = "serial", .args = trp_bytes_of(log_path)});
    const trpi_msg *started = test_worker_wait(&node, &worker, TRPI_MSG_STARTED);
    test_caller_open(&node.desk, &started->started, caller);
    assert_int_equal(ping(""), 0);
    assert_string_equal(log_text(), "start drain 60 s ");
}

static void threads_write_their_stacks_when_asked(void **state) {
    pid_t tids[32];
    char text[32768], head[64];
    start(&(trpi_msg_start){.type = "porter"});
    call("io_sleep", "3000");
    call("sleep", "3000");
    assert_null(test_caller_reply(caller, 100));
    size_t count = test_thread_count(worker.pid, tids, 32);
    for (size_t i = 0; i < count; i++) {
        syscall(SYS_tgkill, worker.pid, tids[i], trpi_worker_dump_signal());
    }
    assert_null(test_caller_reply(caller, 300));
    assert_int_equal(test_thread_count(worker.pid, tids, 32), count); /* it lives */
    kill(worker.pid, SIGKILL);
    (void)test_worker_end_status(&node, &worker, PATIENCE_MS);
    test_worker_read_err(&worker, text, sizeof text);
    assert_non_null(strstr(text, ") in method io_sleep:\n"));
    assert_non_null(strstr(text, ") in method sleep:\n"));
    assert_non_null(strstr(text, "stack of thread control ("));
    trpi_format(head, sizeof head, "stack of thread io (");
    assert_non_null(strstr(text, head));
    assert_non_null(strstr(text, "nanosleep"));
    assert_non_null(strstr(text, "trpi_run_task"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    test_worker_if_asked(test_porter_types);
    trpi_format(log_path, sizeof log_path, "/tmp/worker-life-%d.log", (int)getpid());
    trpi_format(stamp_path, sizeof stamp_path, "/tmp/worker-life-%d.stamp", (int)getpid());
    const struct CMUnitTest tests[] = {
        TEST(A22_a_stop_answers_what_has_come_and_then_runs_the_hook),
        TEST(A22_a_stop_waits_for_the_threads_of_groups),
        TEST(A22_a_hook_that_blocks_is_left_to_the_node),
        TEST(a_stop_waits_for_deferred_calls),
        TEST(a_stop_waits_half_of_its_time_for_answers_that_never_come),
        TEST(a_stop_that_comes_while_the_constructor_runs_is_not_lost),
        TEST(a_stop_of_another_incarnation_is_dropped),
        TEST(after_its_own_exit_no_call_runs),
        TEST(an_exit_waits_for_methods_of_other_threads),
        TEST(what_was_saved_outlives_a_kill),
        TEST(a_save_that_the_head_refuses_or_does_not_answer_fails),
        TEST(a_save_is_said_again_to_a_head_that_was_away),
        TEST(with_save_each_call_a_reply_follows_its_save),
        TEST(what_keeps_an_actor_from_starting_is_told),
        TEST(an_exclusive_actor_ends_when_its_node_is_silent),
        TEST(an_old_ping_lends_nothing),
        TEST(A35_an_exclusive_actor_that_was_stopped_does_nothing_more),
        TEST(a_pong_tells_the_method_that_runs_for_the_longest_time),
        TEST(a_beat_starts_the_time_anew),
        TEST(a_constructor_counts_as_a_method),
        TEST(a_drain_is_told_once_and_can_be_asked_for),
        TEST(a_drain_that_comes_early_is_told_when_the_actor_is_there),
        TEST(threads_write_their_stacks_when_asked),
    };
    test_fake_node_open(&node);
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    test_fake_node_close(&node);
    begin(NULL);
    return failures;
}

/* What the workers of a node daemon write: to the driver, to the log, before death. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/process.h"
#include "core/sys/session.h"
#include "tests/lib/probe.h"

#define PATIENCE_MS 20000

static test_head the_head;

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
    test_start_probe(head, &caller, &pid);
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
    test_end_probe(head, &caller);
    data = query(head, caller.actor, "out", next, 0);
    assert_int_equal(data->data.size, 8);
    assert_memory_equal(data->data.data, "out two\n", 8);
    assert_int_equal(query(head, 4711, "", 0, 0)->code, TRP_ENOTFOUND);
    assert_int_equal(query(head, caller.actor, "both", 0, 0)->code, TRP_EINVALID);
}

static void nothing_written_before_death_is_lost(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_probe(head, &caller, NULL);
    test_caller_send(&caller, "burst", "");
    assert_string_equal(test_wait_exit(head, caller.actor)->stderr_tail, "last words");
    const trpi_msg_logs_data *data = query(head, caller.actor, "out", UINT64_MAX, 50);
    assert_int_equal(data->data.size, 23);
    assert_memory_equal(data->data.data, "line 4999 of the burst\n", 23);
    test_caller_close(&caller);
    test_head_forget(head);
}

/* Has both lines printed, and waits until the node has taken them. */
static void print(test_head *head, test_caller *caller, const char *text) {
    test_head_forget(head);
    (void)test_caller_ask(caller, "print", text);
    for (int i = 0; i < 2; i++) {
        (void)test_head_wait(head, TRPI_MSG_LOG_LINES);
    }
}

static void a_log_that_was_full_says_what_is_missing(void **state) {
    test_head *head = *state;
    test_caller caller;
    struct rlimit before, little;
    test_start_probe(head, &caller, NULL);
    print(head, &caller, "one");
    assert_int_equal(prlimit(head->node, RLIMIT_FSIZE, NULL, &before), 0);
    little = before;
    little.rlim_cur = 60; /* the note of its life and the two lines fit */
    assert_int_equal(prlimit(head->node, RLIMIT_FSIZE, &little, NULL), 0);
    print(head, &caller, "a line that is too long for the rest of the file");
    assert_int_equal(prlimit(head->node, RLIMIT_FSIZE, &before, NULL), 0);
    (void)test_caller_ask(&caller, "print", "two");
    test_end_probe(head, &caller);
    const trpi_msg_logs_data *data = query(head, caller.actor, "", 0, 0);
    const char *text = (const char *)data->data.data;
    assert_null(memmem(text, data->data.size, "too long", 8));
    assert_non_null(memmem(text, data->data.size, "\n2 lines are missing here", 24));
    assert_non_null(memmem(text, data->data.size, "\nout two\n", 9));
    test_head_forget(head);
}

static void a_program_that_closed_its_standard_files_has_output(void **state) {
    test_head head;
    test_caller caller;
    test_head_open(&head);
    setenv("TEST_PROGRAM_CLOSES_FILES", "1", 1);
    test_head_start_node(&head);
    unsetenv("TEST_PROGRAM_CLOSES_FILES");
    (void)test_head_wait(&head, TRPI_MSG_NODE_HELLO);
    test_start_probe(&head, &caller, NULL);
    (void)test_caller_ask(&caller, "print", "one");
    test_end_probe(&head, &caller);
    const trpi_msg_logs_data *data = query(&head, caller.actor, "out", 0, 0);
    assert_int_equal(data->data.size, 8);
    assert_memory_equal(data->data.data, "out one\n", 8);
    test_head_close(&head);
}

static void offsets_that_are_none_are_answered(void **state) {
    test_head *head = *state;
    test_caller caller;
    test_start_probe(head, &caller, NULL);
    (void)test_caller_ask(&caller, "print", "one");
    test_end_probe(head, &caller);
    const uint64_t offsets[] = {UINT64_MAX - 1, (uint64_t)1 << 63, INT64_MAX, 1 << 20};
    for (size_t i = 0; i < 4; i++) {
        const trpi_msg_logs_data *data = query(head, caller.actor, "", offsets[i], UINT64_MAX);
        assert_int_equal(data->code, TRP_OK);
        assert_int_equal(data->data.size, 0);
        assert_true(data->next_offset < 1 << 20);
    }
    const trpi_msg_logs_data *data = query(head, caller.actor, "out", UINT64_MAX, UINT64_MAX);
    assert_int_equal(data->data.size, 8); /* a tail that is longer than the file is the file */
    test_head_forget(head);
}

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, test_probe_types);
    test_head_own_root();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_reaches_the_driver_and_the_log),
        cmocka_unit_test(nothing_written_before_death_is_lost),
        cmocka_unit_test(a_log_that_was_full_says_what_is_missing),
        cmocka_unit_test(a_program_that_closed_its_standard_files_has_output),
        cmocka_unit_test(offsets_that_are_none_are_answered),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

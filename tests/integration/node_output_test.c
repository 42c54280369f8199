/* What the workers of a node daemon write: to the driver, to the log, before death. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int main(int argc, char **argv) {
    test_node_if_asked(argc, argv, test_probe_types);
    test_head_own_root();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_reaches_the_driver_and_the_log),
        cmocka_unit_test(nothing_written_before_death_is_lost),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/output_log.h"

#define ALL ((size_t)4096)

static char path[64];

static int setup(void **state) {
    trpi_format(path, sizeof path, "/tmp/output-log-test-%d", (int)getpid());
    unlink(path);
    return 0;
}

static int teardown(void **state) {
    unlink(path);
    return 0;
}

static void append(char mark, const char *text) {
    trp_error err = {0};
    if (trpi_output_log_append(path, mark, trp_bytes_of(text), &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
}

static uint64_t expect(const char *stream, uint64_t offset, uint64_t tail_bytes, size_t bytes_max,
                       const char *text) {
    trp_buf data = {0};
    trp_error err = {0};
    uint64_t next = 0;
    trpi_output_query query = {stream, offset, tail_bytes, bytes_max};
    if (trpi_output_log_read(path, &query, &data, &next, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(data.size, strlen(text));
    if (data.size > 0) {
        assert_memory_equal(data.data, text, data.size);
    }
    trp_buf_release(&data);
    return next;
}

static void streams_are_told_apart_and_keep_their_order(void **state) {
    append('-', "incarnation 1\n");
    append('o', "out 1\nout 2\n");
    append('e', "err 1\n");
    append('o', "\n");
    (void)expect("out", 0, 0, ALL, "out 1\nout 2\n\n");
    (void)expect("err", 0, 0, ALL, "err 1\n");
    (void)expect("", 0, 0, ALL, "incarnation 1\nout 1\nout 2\nerr 1\n\n");
}

static void a_reader_goes_on_where_it_was(void **state) {
    append('o', "one\n");
    uint64_t next = expect("out", 0, 0, ALL, "one\n");
    assert_int_equal(expect("out", next, 0, ALL, ""), next);
    append('e', "not asked for\n");
    append('o', "two\n");
    next = expect("out", next, 0, ALL, "two\n");
    (void)expect("out", next, 0, ALL, "");
    (void)expect("out", UINT64_MAX - 1, 0, ALL, ""); /* behind the end */
}

static void small_answers_together_give_the_whole(void **state) {
    for (int i = 0; i < 10; i++) {
        append(i % 2 ? 'e' : 'o', i % 2 ? "err\n" : "out\n");
    }
    trp_buf all = {0};
    uint64_t next = 0, before = UINT64_MAX;
    while (next != before) {
        before = next;
        trpi_output_query query = {"out", next, 0, 14};
        assert_int_equal(trpi_output_log_read(path, &query, &all, &next, NULL), TRP_OK);
    }
    assert_int_equal(all.size, 20);
    trp_buf_release(&all);
}

static void a_line_longer_than_an_answer_is_cut_and_not_a_dead_end(void **state) {
    append('o', "0123456789\nnext\n");
    uint64_t next = expect("", 0, 0, 6, "0123");
    assert_int_equal(next, 6);
    append('o', "last\n");
}

static void the_tail_starts_with_a_whole_line(void **state) {
    append('o', "first line\nsecond line\nthird line\n");
    (void)expect("", UINT64_MAX, 5, ALL, "");
    (void)expect("", UINT64_MAX, 13, ALL, "third line\n");
    (void)expect("", UINT64_MAX, 14, ALL, "third line\n");
    (void)expect("", UINT64_MAX, 10000, ALL, "first line\nsecond line\nthird line\n");
}

static void what_is_not_there_is_an_error(void **state) {
    trp_buf data = {0};
    uint64_t next = 0;
    trpi_output_query query = {"out", 0, 0, ALL};
    assert_int_equal(trpi_output_log_read(path, &query, &data, &next, NULL), TRP_ENOTFOUND);
    query.stream = "both";
    assert_int_equal(trpi_output_log_read(path, &query, &data, &next, NULL), TRP_EINVALID);
    trp_error err = {0};
    assert_int_equal(trpi_output_log_append("/nowhere/log", 'o', trp_bytes_of("x\n"), &err),
                     TRP_EIO);
    assert_non_null(strstr(err.message, "/nowhere/log"));
}

static void lines_that_do_not_fit_leave_no_part_behind(void **state) {
    struct rlimit before, little;
    trp_error err = {0};
    append('o', "first\n");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = before;
    little.rlim_cur = strlen("o first\n") + 6;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(trpi_output_log_append(path, 'o', trp_bytes_of("second\nthird\n"), &err),
                     TRP_EIO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    append('e', "fourth\n");
    (void)expect("", 0, 0, ALL, "first\nfourth\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(streams_are_told_apart_and_keep_their_order, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_reader_goes_on_where_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(small_answers_together_give_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(a_line_longer_than_an_answer_is_cut_and_not_a_dead_end,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_tail_starts_with_a_whole_line, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_that_do_not_fit_leave_no_part_behind, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

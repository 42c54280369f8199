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
#include "core/sys/file.h"

#define ALL ((size_t)4096)

static char path[64];
static trpi_output_log the_log = {.path = path, .file_bytes = 1000000, .files = 3};

static int setup(void **state) {
    trpi_format(path, sizeof path, "/tmp/output-log-test-%d", (int)getpid());
    the_log.file_bytes = 1000000;
    the_log.files = 3;
    return trpi_dir_remove(path, NULL);
}

static int teardown(void **state) {
    the_log.file_bytes = 1000000;
    the_log.files = 3;
    return trpi_dir_remove(path, NULL);
}

static void append(char mark, const char *text) {
    trp_error err = {0};
    if (trpi_output_log_append(&the_log, mark, trp_bytes_of(text), &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
}

static uint64_t expect(const char *stream, uint64_t offset, uint64_t tail_bytes, size_t bytes_max,
                       const char *text) {
    trp_buf data = {0};
    trp_error err = {0};
    trpi_output_answer answer = {0};
    trpi_output_query query = {
        .stream = stream, .offset = offset, .tail_bytes = tail_bytes, .bytes_max = bytes_max};
    if (trpi_output_log_read(&the_log, &query, &data, &answer, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(data.size, strlen(text));
    if (data.size > 0) {
        assert_memory_equal(data.data, text, data.size);
    }
    trp_buf_release(&data);
    return answer.next_offset;
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
    trpi_output_answer answer = {0};
    uint64_t before = UINT64_MAX;
    while (answer.next_offset != before) {
        before = answer.next_offset;
        trpi_output_query query = {.stream = "out", .offset = before, .bytes_max = 14};
        assert_int_equal(trpi_output_log_read(&the_log, &query, &all, &answer, NULL), TRP_OK);
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
    trpi_output_answer answer;
    trpi_output_query query = {.stream = "out", .bytes_max = ALL};
    assert_int_equal(trpi_output_log_read(&the_log, &query, &data, &answer, NULL), TRP_ENOTFOUND);
    query.stream = "both";
    assert_int_equal(trpi_output_log_read(&the_log, &query, &data, &answer, NULL), TRP_EINVALID);
    trp_error err = {0};
    trpi_output_log nowhere = {.path = "/nowhere/log", .file_bytes = 1000, .files = 1};
    assert_int_equal(trpi_output_log_append(&nowhere, 'o', trp_bytes_of("x\n"), &err), TRP_EIO);
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
    assert_int_equal(trpi_output_log_append(&the_log, 'o', trp_bytes_of("second\nthird\n"), &err),
                     TRP_EIO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    append('e', "fourth\n");
    (void)expect("", 0, 0, ALL, "first\nfourth\n");
}

/* ---- Rotation ---- */

static void fill(int from, int to) {
    for (int i = from; i < to; i++) {
        char line[32];
        trpi_format(line, sizeof line, "line %04d\n", i); /* 12 bytes with its mark */
        append(i % 2 ? 'e' : 'o', line);
    }
}

static trpi_output_answer ask(trpi_output_query query, trp_buf *data) {
    trpi_output_answer answer = {0};
    trp_error err = {0};
    query.bytes_max = query.bytes_max ? query.bytes_max : ALL;
    trp_buf_clear(data);
    if (trpi_output_log_read(&the_log, &query, data, &answer, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    return answer;
}

static void a_log_holds_its_last_files_and_no_more(void **state) {
    the_log.file_bytes = 120; /* ten lines */
    fill(0, 1000);
    assert_in_range(trpi_output_log_size(path), 20 * 12, 30 * 12);
    trp_buf all = {0}, part = {0};
    trpi_output_answer answer = {.next_offset = 970 * 12}; /* where the oldest file begins */
    for (uint64_t before = UINT64_MAX; answer.next_offset != before;) {
        before = answer.next_offset;
        answer = ask((trpi_output_query){.stream = "", .offset = before}, &part);
        assert_int_equal(trp_buf_append(&all, part.data, part.size), TRP_OK);
    }
    assert_int_equal(all.size, 30 * 10);
    assert_memory_equal(all.data, "line 0970\n", 10);
    assert_memory_equal(all.data + 290, "line 0999\n", 10);
    trp_buf_release(&all);
    trp_buf_release(&part);
}

static void a_reader_whose_place_is_gone_is_told_and_goes_on_from_the_oldest(void **state) {
    trp_buf data = {0};
    the_log.file_bytes = 120;
    fill(0, 5);
    trpi_output_answer answer = ask((trpi_output_query){.stream = ""}, &data);
    assert_int_equal(answer.next_offset, 60);
    assert_int_equal(answer.lost, 0);
    fill(5, 100);
    answer = ask((trpi_output_query){.stream = "", .offset = 60}, &data);
    assert_int_equal(answer.lost, 70 * 12 - 60);
    assert_memory_equal(data.data, "line 0070\n", 10);
    answer = ask((trpi_output_query){.stream = "", .offset = answer.next_offset}, &data);
    assert_int_equal(answer.lost, 0);
    trp_buf_release(&data);
}

static void many_lines_at_once_are_several_files(void **state) {
    trp_buf data = {0}, lines = {0};
    the_log.file_bytes = 120;
    for (int i = 0; i < 45; i++) {
        assert_int_equal(trp_buf_printf(&lines, "line %04d\n", i), TRP_OK);
    }
    assert_int_equal(trp_buf_append(&lines, "", 1), TRP_OK);
    append('o', (const char *)lines.data);
    assert_int_equal(trpi_output_log_size(path), 25 * 12);
    (void)ask((trpi_output_query){.stream = "", .offset = 20 * 12}, &data);
    assert_memory_equal(data.data, "line 0020\n", 10);
    trp_buf_release(&data);
    trp_buf_release(&lines);
}

static void a_line_longer_than_a_file_has_one_of_its_own(void **state) {
    trp_buf data = {0};
    the_log.file_bytes = 8;
    append('o', "a\na longer line\nb\n");
    (void)ask((trpi_output_query){.stream = "", .offset = 4}, &data);
    assert_int_equal(data.size, 14);
    assert_memory_equal(data.data, "a longer line\n", 14);
    trp_buf_release(&data);
}

static void one_file_is_enough(void **state) {
    trp_buf data = {0};
    the_log.file_bytes = 120;
    the_log.files = 1;
    fill(0, 95);
    trpi_output_answer answer = ask((trpi_output_query){.stream = "", .offset = 0}, &data);
    assert_int_equal(answer.lost, 90 * 12);
    assert_int_equal(data.size, 50);
    trp_buf_release(&data);
}

static void the_last_lines_are_counted_across_files_and_by_stream(void **state) {
    trp_buf data = {0};
    the_log.file_bytes = 120;
    fill(0, 35);
    for (uint64_t lines = 1; lines <= 25; lines++) {
        trpi_output_query query = {.stream = "", .offset = UINT64_MAX, .tail_lines = lines};
        trp_buf all = {0};
        trpi_output_answer answer = {0};
        for (uint64_t before = 0; answer.next_offset != before || all.size == 0;) {
            before = answer.next_offset;
            answer = ask(query, &data);
            assert_int_equal(trp_buf_append(&all, data.data, data.size), TRP_OK);
            query.offset = answer.next_offset;
        }
        assert_int_equal(all.size, lines * 10);
        trp_buf_release(&all);
    }
    trpi_output_query query = {.stream = "err", .offset = UINT64_MAX, .tail_lines = 2};
    (void)ask(query, &data);
    assert_int_equal(data.size, 20);
    assert_memory_equal(data.data, "line 0031\nline 0033\n", 20);
    query = (trpi_output_query){.stream = "", .offset = UINT64_MAX, .tail_lines = 1000};
    (void)ask(query, &data);
    assert_memory_equal(data.data, "line 0010\n", 10); /* all that is kept */
    trp_buf_release(&data);
}

static void an_incarnation_is_read_alone(void **state) {
    trp_buf data = {0};
    trpi_output_answer answer;
    for (uint64_t life = 1; life <= 3; life++) {
        assert_int_equal(trpi_output_log_begin(&the_log, life, NULL), TRP_OK);
        fill((int)life * 10, (int)life * 10 + 2);
    }
    trpi_output_query query = {.stream = "", .incarnation = 2};
    answer = ask(query, &data);
    assert_int_equal(data.size, 20);
    assert_memory_equal(data.data, "line 0020\nline 0021\n", 20);
    query.offset = answer.next_offset;
    assert_int_equal(ask(query, &data).next_offset, answer.next_offset);
    query =
        (trpi_output_query){.stream = "", .incarnation = 2, .offset = UINT64_MAX, .tail_lines = 1};
    (void)ask(query, &data);
    assert_memory_equal(data.data, "line 0021\n", 10);
    query.incarnation = 3;
    query.tail_lines = 100;
    (void)ask(query, &data);
    assert_int_equal(data.size, 20);
    query.incarnation = 7;
    assert_int_equal(trpi_output_log_read(&the_log, &query, &data, &answer, NULL), TRP_ENOTFOUND);
    trp_buf_release(&data);
}

static void lives_that_were_rotated_away_are_forgotten(void **state) {
    trp_buf data = {0};
    trpi_output_answer answer;
    the_log.file_bytes = 120;
    for (uint64_t life = 1; life <= 50; life++) {
        assert_int_equal(trpi_output_log_begin(&the_log, life, NULL), TRP_OK);
        fill(0, 5);
    }
    trpi_output_query query = {.stream = "", .incarnation = 50, .bytes_max = ALL};
    (void)ask(query, &data);
    assert_int_equal(data.size, 50);
    query.incarnation = 3;
    assert_int_equal(trpi_output_log_read(&the_log, &query, &data, &answer, NULL), TRP_ENOTFOUND);
    trp_buf_release(&data);
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
        cmocka_unit_test_setup_teardown(a_log_holds_its_last_files_and_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_reader_whose_place_is_gone_is_told_and_goes_on_from_the_oldest, setup, teardown),
        cmocka_unit_test_setup_teardown(one_file_is_enough, setup, teardown),
        cmocka_unit_test_setup_teardown(the_last_lines_are_counted_across_files_and_by_stream,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(an_incarnation_is_read_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(lives_that_were_rotated_away_are_forgotten, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(many_lines_at_once_are_several_files, setup, teardown),
        cmocka_unit_test_setup_teardown(a_line_longer_than_a_file_has_one_of_its_own, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

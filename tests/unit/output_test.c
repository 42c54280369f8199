#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/proc/output.h"

static void feed(trpi_output *output, const char *text, trp_buf *lines) {
    trpi_output_feed(output, trp_bytes_of(text), lines);
}

static void expect(const trp_buf *lines, const char *text) {
    assert_int_equal(lines->size, strlen(text));
    if (lines->size > 0) {
        assert_memory_equal(lines->data, text, lines->size);
    }
}

static void only_whole_lines_are_passed_on(void **state) {
    trpi_output output = {0};
    trp_buf lines = {0};
    feed(&output, "one\ntw", &lines);
    expect(&lines, "one\n");
    feed(&output, "o\n\nthr", &lines);
    expect(&lines, "one\ntwo\n\n");
    feed(&output, "ee", &lines);
    trpi_output_finish(&output, &lines);
    expect(&lines, "one\ntwo\n\nthree\n");
    trpi_output_finish(&output, &lines);
    expect(&lines, "one\ntwo\n\nthree\n");
    trpi_output_release(&output);
    trp_buf_release(&lines);
}

static void the_same_bytes_give_the_same_lines_however_they_are_cut(void **state) {
    const char *text = "a\nbb\n\nccc\nd";
    for (size_t cut = 1; cut <= strlen(text); cut++) {
        trpi_output output = {0};
        trp_buf lines = {0};
        for (size_t at = 0; at < strlen(text); at += cut) {
            size_t size = strlen(text) - at < cut ? strlen(text) - at : cut;
            trpi_output_feed(&output, (trp_bytes){text + at, size}, &lines);
        }
        trpi_output_finish(&output, &lines);
        expect(&lines, "a\nbb\n\nccc\nd\n");
        trpi_output_release(&output);
        trp_buf_release(&lines);
    }
}

static void a_line_without_an_end_comes_in_pieces(void **state) {
    trpi_output output = {0};
    trp_buf lines = {0};
    size_t size = 2 * TRPI_OUTPUT_LINE_MAX + 5;
    char *text = malloc(size);
    memset(text, 'x', size);
    trpi_output_feed(&output, (trp_bytes){text, size}, &lines);
    assert_int_equal(lines.size, 2 * (TRPI_OUTPUT_LINE_MAX + 1));
    assert_int_equal(lines.data[TRPI_OUTPUT_LINE_MAX], '\n');
    assert_int_equal(output.partial.size, 5);
    free(text);
    trpi_output_release(&output);
    trp_buf_release(&lines);
}

static void the_tail_holds_the_last_whole_lines(void **state) {
    trpi_output output = {.tail_max = 16};
    trp_buf lines = {0};
    char tail[64];
    trpi_output_tail(&output, tail, sizeof tail);
    assert_string_equal(tail, "");
    feed(&output, "first\n", &lines);
    trpi_output_tail(&output, tail, sizeof tail);
    assert_string_equal(tail, "first\n");
    for (int i = 0; i < 100; i++) {
        feed(&output, "another\n", &lines);
    }
    feed(&output, "last", &lines);
    trpi_output_tail(&output, tail, sizeof tail);
    assert_string_equal(tail, "another\nlast");
    assert_true(output.tail.size <= 2 * output.tail_max);
    feed(&output, "\n0123456789abcdefghijklmnop", &lines); /* one line longer than the tail */
    trpi_output_tail(&output, tail, sizeof tail);
    assert_string_equal(tail, "abcdefghijklmnop");
    trpi_output_release(&output);
    trp_buf_release(&lines);
}

static void the_tail_is_text_even_when_the_output_is_not(void **state) {
    trpi_output output = {.tail_max = 16};
    trp_buf lines = {0};
    char tail[64];
    trpi_output_feed(&output, (trp_bytes){"a\0b\n", 4}, &lines);
    assert_int_equal(lines.size, 4);
    trpi_output_tail(&output, tail, sizeof tail);
    assert_string_equal(tail, "ab\n");
    trpi_output_release(&output);
    trp_buf_release(&lines);
}

static void a_quiet_stream_holds_no_memory(void **state) {
    trpi_output output = {0};
    trp_buf lines = {0};
    feed(&output, "some", &lines);
    assert_non_null(output.partial.data);
    feed(&output, " line\n", &lines);
    assert_null(output.partial.data);
    trpi_output_release(&output);
    trp_buf_release(&lines);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_lines_are_passed_on),
        cmocka_unit_test(the_same_bytes_give_the_same_lines_however_they_are_cut),
        cmocka_unit_test(a_line_without_an_end_comes_in_pieces),
        cmocka_unit_test(the_tail_holds_the_last_whole_lines),
        cmocka_unit_test(the_tail_is_text_even_when_the_output_is_not),
        cmocka_unit_test(a_quiet_stream_holds_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* repeats_test.c: which lines of many workers a driver prints, and what it says of the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "actors/state/repeats.h"

static trpi_repeats repeats;

static int setup(void **state) {
    repeats.window_ns = 1000;
    return 0;
}

static int teardown(void **state) {
    trpi_repeats_release(&repeats);
    return 0;
}

static bool is_printed(uint64_t now_ns, uint64_t actor, bool is_stderr, const char *line) {
    char shown[256];
    trpi_format(shown, sizeof shown, "(a%d) %s", (int)actor, line);
    return trpi_repeats_line(&repeats, now_ns, actor, is_stderr, trp_bytes_of(line),
                             trp_bytes_of(shown));
}

static void tells(uint64_t now_ns, const char *out, const char *err) {
    trp_buf texts[2] = {{0}};
    trpi_repeats_tell(&repeats, now_ns, texts);
    const char *const wanted[2] = {out, err};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(texts[i].size, strlen(wanted[i]));
        if (texts[i].size > 0) {
            assert_memory_equal(texts[i].data, wanted[i], texts[i].size);
        }
        trp_buf_release(&texts[i]);
    }
}

static void the_first_line_is_never_held_back(void **state) {
    assert_true(is_printed(0, 1, false, "loading"));
    assert_true(is_printed(0, 1, false, "loaded"));
    assert_true(is_printed(1, 2, false, "ready"));
    tells(UINT64_MAX, "", "");
}

static void equal_lines_of_several_actors_are_counted(void **state) {
    assert_true(is_printed(0, 1, false, "loading"));
    for (uint64_t actor = 2; actor <= 12; actor++) {
        for (int i = 0; i < 9; i++) {
            assert_false(is_printed(10, actor, false, "loading"));
        }
    }
    tells(999, "", "");
    assert_int_equal(trpi_repeats_next_ns(&repeats), 1000);
    tells(1000, "(a12) loading [repeated 99x across 12 actors]\n", "");
    assert_int_equal(trpi_repeats_next_ns(&repeats), UINT64_MAX);
    assert_true(is_printed(1001, 3, false, "loading")); /* a window of its own */
}

static void words_with_digits_do_not_make_lines_different(void **state) {
    assert_true(is_printed(0, 1, false, "rank 0 of 4 at 0x7f10 is up"));
    assert_false(is_printed(1, 2, false, "rank 1 of 4 at 0x7fab is up"));
    assert_true(is_printed(2, 2, false, "rank 1 of 4 at 0x7fab is down"));
    assert_true(is_printed(3, 2, false, "rank of 4 at 0x7fab is up"));
    tells(UINT64_MAX, "(a2) rank 1 of 4 at 0x7fab is up [repeated 1x across 2 actors]\n", "");
}

static void one_actor_alone_is_printed_each_time(void **state) {
    for (int i = 0; i < 5; i++) {
        assert_true(is_printed((uint64_t)i, 7, false, "step 1 done"));
    }
    tells(UINT64_MAX, "", "");
}

static void both_streams_are_kept_apart(void **state) {
    assert_true(is_printed(0, 1, false, "hello"));
    assert_true(is_printed(0, 2, true, "hello"));
    assert_false(is_printed(0, 3, true, "hello"));
    tells(UINT64_MAX, "", "(a3) hello [repeated 1x across 2 actors]\n");
}

static void without_a_window_all_lines_are_printed(void **state) {
    repeats.window_ns = 0;
    for (uint64_t actor = 1; actor < 5; actor++) {
        assert_true(is_printed(0, actor, false, "hello"));
    }
    tells(UINT64_MAX, "", "");
}

static void kinds_that_do_not_fit_are_printed(void **state) {
    char line[8];
    for (int i = 0; i < 2 * TRPI_REPEATS_MAX; i++) {
        trpi_format(line, sizeof line, "%c%c", 'a' + i / 26, 'a' + i % 26);
        assert_true(is_printed((uint64_t)i, 1, false, line));
    }
    assert_false(is_printed(600, 2, false, "aa"));
    assert_true(is_printed(600, 2, false, line));
    assert_int_equal(repeats.count, TRPI_REPEATS_MAX);
    tells(1000, "(a2) aa [repeated 1x across 2 actors]\n", "");
    assert_int_equal(repeats.count, TRPI_REPEATS_MAX - 1);
}

static void an_empty_line_and_one_of_spaces_are_lines(void **state) {
    assert_true(is_printed(0, 1, false, ""));
    assert_false(is_printed(0, 2, false, ""));
    assert_true(is_printed(0, 1, false, "  "));
    assert_true(is_printed(0, 1, false, " 1 "));
    tells(UINT64_MAX, "(a2)  [repeated 1x across 2 actors]\n", "");
}

static void more_actors_than_are_told_apart_are_said_to_be_more(void **state) {
    char wanted[128];
    for (uint64_t actor = 1; actor <= 2 * TRPI_REPEAT_SOURCES_MAX; actor++) {
        assert_int_equal(is_printed(0, actor, false, "hello"), actor == 1);
    }
    trpi_format(wanted, sizeof wanted, "(a%d) hello [repeated %dx across %d or more actors]\n",
                2 * TRPI_REPEAT_SOURCES_MAX, 2 * TRPI_REPEAT_SOURCES_MAX - 1,
                TRPI_REPEAT_SOURCES_MAX);
    tells(UINT64_MAX, wanted, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_line_is_never_held_back, setup, teardown),
        cmocka_unit_test_setup_teardown(equal_lines_of_several_actors_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(words_with_digits_do_not_make_lines_different, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_actor_alone_is_printed_each_time, setup, teardown),
        cmocka_unit_test_setup_teardown(both_streams_are_kept_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_window_all_lines_are_printed, setup, teardown),
        cmocka_unit_test_setup_teardown(kinds_that_do_not_fit_are_printed, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_line_and_one_of_spaces_are_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(more_actors_than_are_told_apart_are_said_to_be_more, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

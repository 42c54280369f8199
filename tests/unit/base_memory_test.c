/* base_memory_test.c: buffers (bytes.h) and arenas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena.h"

/* ---- Buffers ---- */

static void a_buffer_grows_and_stays_a_c_string(void **state) {
    trp_buf buf = {0};
    char expected[5001] = "";
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(trp_buf_append(&buf, "abcde", 5), TRP_OK);
        memcpy(expected + 5 * i, "abcde", 6);
        assert_int_equal(buf.data[buf.size], '\0');
    }
    assert_int_equal(buf.size, 5000);
    assert_string_equal((char *)buf.data, expected);
    trp_buf_release(&buf);
    assert_null(buf.data);
    assert_int_equal(buf.size, 0);
    assert_int_equal(buf.capacity, 0);
}

static void nothing_appended_is_nothing_but_valid(void **state) {
    trp_buf buf = {0};
    assert_int_equal(trp_buf_append(&buf, NULL, 0), TRP_OK);
    assert_int_equal(buf.size, 0);
    assert_string_equal((char *)buf.data, "");
    trp_buf_release(&buf);
    trp_buf_release(&buf);
    trp_buf_release(NULL);
}

static void reserved_room_is_used_without_moving(void **state) {
    trp_buf buf = {0};
    assert_int_equal(trp_buf_reserve(&buf, 1000), TRP_OK);
    const unsigned char *place = buf.data;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(trp_buf_append(&buf, "0123456789", 10), TRP_OK);
    }
    assert_ptr_equal(buf.data, place);
    trp_buf_release(&buf);
}

static void a_size_that_cannot_be_is_refused_and_changes_nothing(void **state) {
    trp_buf buf = {0};
    assert_int_equal(trp_buf_append(&buf, "abc", 3), TRP_OK);
    assert_int_equal(trp_buf_reserve(&buf, SIZE_MAX), TRP_ENOMEM);
    assert_int_equal(trp_buf_reserve(&buf, SIZE_MAX - 3), TRP_ENOMEM);
    assert_int_equal(trp_buf_reserve(&buf, SIZE_MAX / 2), TRP_ENOMEM);
    assert_string_equal((char *)buf.data, "abc");
    trp_buf_release(&buf);
}

static void formatted_text_is_appended_whole(void **state) {
    trp_buf buf = {0};
    assert_int_equal(trp_buf_printf(&buf, "%s=%d", "x", 1), TRP_OK);
    assert_int_equal(trp_buf_printf(&buf, " %0500d", 7), TRP_OK);
    assert_int_equal(buf.size, 504);
    assert_memory_equal(buf.data, "x=1 000", 7);
    assert_int_equal(buf.data[buf.size], '\0');
    trp_buf_release(&buf);
}

static void a_cleared_buffer_keeps_its_memory(void **state) {
    trp_buf buf = {0};
    trp_buf_clear(&buf);
    assert_int_equal(trp_buf_append(&buf, "abc", 3), TRP_OK);
    size_t capacity = buf.capacity;
    trp_buf_clear(&buf);
    assert_int_equal(buf.size, 0);
    assert_int_equal(buf.capacity, capacity);
    assert_string_equal((char *)buf.data, "");
    trp_buf_release(&buf);
}

static void borrowed_bytes_are_those_of_the_buffer_or_text(void **state) {
    trp_buf buf = {0};
    assert_int_equal(trp_buf_append(&buf, "abc", 3), TRP_OK);
    assert_ptr_equal(trp_buf_bytes(&buf).data, buf.data);
    assert_int_equal(trp_buf_bytes(&buf).size, 3);
    assert_int_equal(trp_bytes_of("four").size, 4);
    assert_int_equal(trp_bytes_of(NULL).size, 0);
    trp_buf_release(&buf);
}

/* ---- Arenas ---- */

static void pieces_are_aligned_zeroed_and_do_not_overlap(void **state) {
    trpi_arena arena = {0};
    for (int round = 0; round < 3; round++) {
        unsigned char *before = NULL;
        for (size_t size = 1; size < 3000; size += 37) {
            unsigned char *piece = trpi_arena_alloc(&arena, size);
            assert_non_null(piece);
            assert_int_equal((uintptr_t)piece % 16, 0);
            for (size_t i = 0; i < size; i++) {
                assert_int_equal(piece[i], 0);
            }
            memset(piece, 0xff, size);
            assert_true(before == NULL || *before == 0xff);
            before = piece;
        }
        trpi_arena_reset(&arena);
        assert_int_equal(arena.total, 0);
    }
    trpi_arena_release(&arena);
}

static void a_piece_beyond_the_limit_is_refused_until_a_reset(void **state) {
    trpi_arena arena = {.limit = 1000};
    assert_non_null(trpi_arena_alloc(&arena, 900));
    assert_null(trpi_arena_alloc(&arena, 200));
    assert_non_null(trpi_arena_alloc(&arena, 80));
    assert_null(trpi_arena_alloc(&arena, SIZE_MAX));
    trpi_arena_reset(&arena);
    assert_non_null(trpi_arena_alloc(&arena, 900));
    trpi_arena_release(&arena);
}

static void a_text_is_copied_with_its_end(void **state) {
    trpi_arena arena = {0};
    char source[] = "abcdef";
    char *text = trpi_arena_text(&arena, source, 3);
    source[0] = 'x';
    assert_string_equal(text, "abc");
    assert_string_equal(trpi_arena_text(&arena, NULL, 0), "");
    assert_null(trpi_arena_text(&arena, source, SIZE_MAX));
    trpi_arena_release(&arena);
}

static void a_huge_piece_does_not_stay_after_a_reset(void **state) {
    trpi_arena arena = {0};
    assert_non_null(trpi_arena_alloc(&arena, 10));
    assert_non_null(trpi_arena_alloc(&arena, 1 << 20));
    trpi_arena_reset(&arena);
    assert_null(arena.first);
    assert_non_null(trpi_arena_alloc(&arena, 10));
    trpi_arena_release(&arena);
    trpi_arena_release(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_grows_and_stays_a_c_string),
        cmocka_unit_test(nothing_appended_is_nothing_but_valid),
        cmocka_unit_test(reserved_room_is_used_without_moving),
        cmocka_unit_test(a_size_that_cannot_be_is_refused_and_changes_nothing),
        cmocka_unit_test(formatted_text_is_appended_whole),
        cmocka_unit_test(a_cleared_buffer_keeps_its_memory),
        cmocka_unit_test(borrowed_bytes_are_those_of_the_buffer_or_text),
        cmocka_unit_test(pieces_are_aligned_zeroed_and_do_not_overlap),
        cmocka_unit_test(a_piece_beyond_the_limit_is_refused_until_a_reset),
        cmocka_unit_test(a_text_is_copied_with_its_end),
        cmocka_unit_test(a_huge_piece_does_not_stay_after_a_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* base_test.c: errors, allocation, parsing, nearest word, ids and hashes of core/base. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <troupe/actor.h>

#include "core/base/base.h"
#include "core/base/hash.h"
#include "core/base/id.h"
#include "core/base/log.h"

/* ---- Errors ---- */

static void every_code_has_a_text_and_a_name(void **state) {
    for (int code = 0; code < TRP_CODE_COUNT; code++) {
        assert_true(strlen(trp_code_text((trp_code)code)) > 0);
        assert_memory_equal(trp_code_name((trp_code)code), "TRP_", 4);
    }
    assert_string_equal(trp_code_name(TRP_ENOMEM), "TRP_ENOMEM");
    assert_string_equal(trp_code_text(TRP_ENOMEM), "out of memory");
}

static void a_number_that_is_no_code_has_a_text_too(void **state) {
    assert_string_equal(trp_code_text((trp_code)TRP_CODE_COUNT), "unknown error");
    assert_string_equal(trp_code_text((trp_code)-1), "unknown error");
    assert_string_equal(trp_code_name((trp_code)9999), "TRP_E?");
    assert_false(trp_code_retryable((trp_code)9999));
}

static void what_may_succeed_later_is_retryable(void **state) {
    assert_true(trp_code_retryable(TRP_ETIMEOUT));
    assert_true(trp_code_retryable(TRP_ENODE_DIED));
    assert_false(trp_code_retryable(TRP_OK));
    assert_false(trp_code_retryable(TRP_EINVALID));
    assert_false(trp_code_retryable(TRP_EUSER));
}

static void every_cause_has_a_text(void **state) {
    for (int cause = 0; cause < TRP_CAUSE_COUNT; cause++) {
        assert_true(strlen(trp_cause_text((trp_cause)cause)) > 0);
    }
    assert_string_equal(trp_cause_text((trp_cause)99), "unknown cause");
}

static void a_failure_fills_the_error_and_returns_its_code(void **state) {
    trp_error err = {.node = 7, .actor = 9};
    assert_int_equal(trpi_fail(&err, TRP_EIO, "disk %d: %s", 3, "full"), TRP_EIO);
    assert_int_equal(err.code, TRP_EIO);
    assert_int_equal(err.node, 0);
    assert_int_equal(err.actor, 0);
    assert_string_equal(err.message, "disk 3: full");
    assert_int_equal(trpi_fail(NULL, TRP_EIO, "nobody listens"), TRP_EIO);
}

static void context_comes_before_the_message_and_keeps_its_place(void **state) {
    trp_error err;
    (void)trpi_fail(&err, TRP_ENOMEM, "out of memory");
    err.node = 3;
    assert_int_equal(trpi_context(&err, TRP_EIO, "spawn %s", "counter"), TRP_EIO);
    assert_string_equal(err.message, "spawn counter: out of memory");
    assert_int_equal(err.code, TRP_EIO);
    assert_int_equal(err.node, 3);
    assert_int_equal(trpi_context(NULL, TRP_EIO, "nobody listens"), TRP_EIO);
}

static void an_endless_context_is_cut_and_terminated(void **state) {
    trp_error err;
    (void)trpi_fail(&err, TRP_EIO, "end");
    for (int i = 0; i < 200; i++) {
        (void)trpi_context(&err, TRP_EIO, "a context of some length");
    }
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
}

static void a_message_may_quote_itself(void **state) {
    trp_error err;
    (void)trpi_fail(&err, TRP_EIO, "inner");
    (void)trpi_fail(&err, TRP_EUSER, "outer (%s)", err.message);
    assert_string_equal(err.message, "outer (inner)");
}

static void a_cleared_error_is_empty(void **state) {
    trp_error err;
    (void)trpi_fail(&err, TRP_EIO, "something");
    trpi_error_clear(&err);
    assert_int_equal(err.code, TRP_OK);
    assert_string_equal(err.message, "");
    trpi_error_clear(NULL);
}

static void a_raised_error_tells_type_and_place_which_context_keeps(void **state) {
    trp_error err;
    assert_int_equal(trp_raise_at(&err, "src/a/counter.c", 42, "add", "KeyError", "no %s", "k"),
                     TRP_EUSER);
    assert_int_equal(err.code, TRP_EUSER);
    assert_string_equal(err.type, "KeyError");
    assert_string_equal(err.where, "counter.c:42 add()");
    (void)trpi_context(&err, err.code, "outer");
    assert_string_equal(err.message, "outer: no k");
    assert_string_equal(err.type, "KeyError");
    assert_string_equal(err.where, "counter.c:42 add()");
    (void)trpi_fail(&err, TRP_EIO, "of another kind");
    assert_string_equal(err.type, "");
    assert_string_equal(err.where, "");
    assert_int_equal(trp_raise(&err, NULL, "%s", "without a type"), TRP_EUSER);
    assert_string_equal(err.type, "");
    assert_non_null(strstr(err.where, "base_test.c:"));
    assert_int_equal(trp_raise(NULL, "KeyError", "nobody listens"), TRP_EUSER);
}

/* ---- Memory and text ---- */

static void allocated_memory_is_zeroed_even_for_no_bytes(void **state) {
    unsigned char *data = trpi_alloc(100);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(data[i], 0);
    }
    data = trpi_realloc(data, 200);
    free(data);
    void *nothing = trpi_alloc(0);
    assert_non_null(nothing);
    free(nothing);
}

static void a_copy_of_no_text_is_empty(void **state) {
    char *empty = trpi_strdup(NULL), *copy = trpi_strdup("abc");
    assert_string_equal(empty, "");
    assert_string_equal(copy, "abc");
    free(empty);
    free(copy);
}

static void a_text_that_does_not_fit_is_cut(void **state) {
    char small[4];
    TRPI_SET(small, "abcdef");
    assert_string_equal(small, "abc");
    trpi_format(small, sizeof(small), "%d", 12345);
    assert_string_equal(small, "123");
}

/* ---- Parsing ---- */

static void whole_numbers_parse_to_their_limits(void **state) {
    uint64_t u = 1;
    int64_t i = 1;
    assert_true(trpi_parse_u64("18446744073709551615", UINT64_MAX, &u));
    assert_true(u == UINT64_MAX);
    assert_true(trpi_parse_u64("0", 0, &u));
    assert_int_equal(u, 0);
    assert_true(trpi_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &i));
    assert_true(i == INT64_MIN);
    assert_true(trpi_parse_i64("9223372036854775807", INT64_MIN, INT64_MAX, &i));
    assert_true(i == INT64_MAX);
}

static void what_is_not_quite_a_whole_number_is_refused(void **state) {
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "+1",
                                      "-1",
                                      "0x10",
                                      "1e3",
                                      "1.0",
                                      "one",
                                      "-",
                                      "18446744073709551616",
                                      "99999999999999999999999"};
    uint64_t u = 42;
    for (size_t k = 0; k < TRPI_COUNTOF(bad); k++) {
        assert_false(trpi_parse_u64(bad[k], UINT64_MAX, &u));
    }
    assert_false(trpi_parse_u64(NULL, UINT64_MAX, &u));
    assert_false(trpi_parse_u64("11", 10, &u));
    assert_int_equal(u, 42);
    int64_t i = 42;
    assert_false(trpi_parse_i64("9223372036854775808", INT64_MIN, INT64_MAX, &i));
    assert_false(trpi_parse_i64("-9223372036854775809", INT64_MIN, INT64_MAX, &i));
    assert_false(trpi_parse_i64("--1", INT64_MIN, INT64_MAX, &i));
    assert_false(trpi_parse_i64("-5", -4, 4, &i));
    assert_false(trpi_parse_i64("5", -4, 4, &i));
    assert_int_equal(i, 42);
}

static void numbers_parse_when_they_are_finite_and_alone(void **state) {
    double value = 1;
    assert_true(trpi_parse_double("0.25", &value) && value == 0.25);
    assert_true(trpi_parse_double("-1e-3", &value) && value == -1e-3);
    assert_true(trpi_parse_double("5", &value) && value == 5);
    static const char *const bad[] = {"", " 1", "1 ", "inf", "nan", "0x1p3", "1,5", "1e999", "e"};
    for (size_t k = 0; k < TRPI_COUNTOF(bad); k++) {
        assert_false(trpi_parse_double(bad[k], &value));
    }
    assert_true(value == 5);
}

static void numbers_parse_the_same_under_every_locale(void **state) {
    double value = 0;
    /* Where no such locale is installed the test says nothing, but still holds. */
    (void)setlocale(LC_ALL, "de_DE.UTF-8");
    assert_true(trpi_parse_double("0.5", &value));
    (void)setlocale(LC_ALL, "C");
    assert_true(value == 0.5);
}

static void the_nearest_word_is_offered_only_when_it_is_near(void **state) {
    static const char *const words[] = {"stage", "overlap_comm", "reduce_bucket_size"};
    assert_string_equal(trpi_nearest("stge", words, 3), "stage");
    assert_string_equal(trpi_nearest("overlap_com", words, 3), "overlap_comm");
    assert_string_equal(trpi_nearest("reduce_bucket", words, 3), "reduce_bucket_size");
    assert_null(trpi_nearest("optimizer", words, 3));
    const char *const commands[] = {"start", "status"}; /* a swap is one slip */
    assert_string_equal(trpi_nearest("stauts", commands, 2), "status");
    assert_string_equal(trpi_nearest("tsart", commands, 2), "start");
    assert_null(trpi_nearest("", words, 3));
    assert_null(trpi_nearest("stage", words, 0));
}

static void a_very_long_word_is_compared_without_harm(void **state) {
    char word[5000];
    static const char *const words[] = {"stage"};
    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    assert_null(trpi_nearest(word, words, 1));
}

/* ---- Ids and hashes ---- */

static void uuids_have_their_form_and_differ(void **state) {
    char a[TRPI_UUID_TEXT], b[TRPI_UUID_TEXT];
    trpi_uuid(a);
    trpi_uuid(b);
    assert_int_equal(strlen(a), 36);
    assert_true(a[8] == '-' && a[13] == '-' && a[18] == '-' && a[23] == '-' && a[14] == '4');
    assert_string_not_equal(a, b);
}

static void random_numbers_use_all_their_bits(void **state) {
    uint64_t ones = 0, zeros = 0;
    for (int i = 0; i < 200; i++) {
        uint64_t value = trpi_random_u64();
        ones |= value;
        zeros |= ~value;
    }
    assert_true(ones == UINT64_MAX);
    assert_true(zeros == UINT64_MAX);
}

static void hashes_are_those_of_xxh3(void **state) {
    /* Published test values of XXH3 with seed 0 for the empty input. */
    assert_true(trpi_hash64(NULL, 0) == 0x2d06800538d394c2u);
    trpi_hasher *hasher = trpi_hasher_new();
    char hex[33];
    assert_non_null(hasher);
    trpi_hasher_hex(hasher, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    trpi_hasher_free(hasher);
    trpi_hasher_free(NULL);
}

static void a_hash_does_not_depend_on_how_the_bytes_come(void **state) {
    unsigned char data[1000];
    char whole[33], pieces[33];
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (unsigned char)(i * 7);
    }
    trpi_hasher *a = trpi_hasher_new(), *b = trpi_hasher_new();
    trpi_hasher_add(a, data, sizeof(data));
    trpi_hasher_add(b, NULL, 0);
    for (size_t i = 0; i < sizeof(data); i += 10) {
        trpi_hasher_add(b, data + i, 10);
    }
    trpi_hasher_hex(a, whole);
    trpi_hasher_hex(b, pieces);
    assert_string_equal(whole, pieces);
    trpi_hasher_free(a);
    trpi_hasher_free(b);
}

static void a_repeated_error_is_said_at_powers_of_two(void **state) {
    uint64_t count = 0, said = 0;
    for (int i = 0; i < 1000; i++) {
        said += trpi_log_is_due(&count);
    }
    assert_int_equal(count, 1000);
    assert_int_equal(said, 10); /* 1, 2, 4 ... 512 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_text_and_a_name),
        cmocka_unit_test(a_number_that_is_no_code_has_a_text_too),
        cmocka_unit_test(what_may_succeed_later_is_retryable),
        cmocka_unit_test(every_cause_has_a_text),
        cmocka_unit_test(a_failure_fills_the_error_and_returns_its_code),
        cmocka_unit_test(context_comes_before_the_message_and_keeps_its_place),
        cmocka_unit_test(an_endless_context_is_cut_and_terminated),
        cmocka_unit_test(a_message_may_quote_itself),
        cmocka_unit_test(a_cleared_error_is_empty),
        cmocka_unit_test(a_raised_error_tells_type_and_place_which_context_keeps),
        cmocka_unit_test(allocated_memory_is_zeroed_even_for_no_bytes),
        cmocka_unit_test(a_copy_of_no_text_is_empty),
        cmocka_unit_test(a_text_that_does_not_fit_is_cut),
        cmocka_unit_test(whole_numbers_parse_to_their_limits),
        cmocka_unit_test(what_is_not_quite_a_whole_number_is_refused),
        cmocka_unit_test(numbers_parse_when_they_are_finite_and_alone),
        cmocka_unit_test(numbers_parse_the_same_under_every_locale),
        cmocka_unit_test(the_nearest_word_is_offered_only_when_it_is_near),
        cmocka_unit_test(a_very_long_word_is_compared_without_harm),
        cmocka_unit_test(uuids_have_their_form_and_differ),
        cmocka_unit_test(random_numbers_use_all_their_bits),
        cmocka_unit_test(hashes_are_those_of_xxh3),
        cmocka_unit_test(a_hash_does_not_depend_on_how_the_bytes_come),
        cmocka_unit_test(a_repeated_error_is_said_at_powers_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

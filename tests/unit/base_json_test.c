/* base_json_test.c: strict JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/json.h"

static json_t *parse(const char *text) {
    json_t *json = NULL;
    trp_error err;
    assert_int_equal(trpi_json_parse(text, strlen(text), "config", &json, &err), TRP_OK);
    return json;
}

static void a_syntax_error_names_place_line_and_column(void **state) {
    static const char text[] = "{\n  \"a\": 1,\n  \"b\": }\n";
    json_t *json = NULL;
    trp_error err;
    assert_int_equal(trpi_json_parse(text, strlen(text), "config", &json, &err), TRP_EINVALID);
    assert_null(json);
    assert_memory_equal(err.message, "config:3:", 9);
    assert_int_equal(trpi_json_parse("", 0, NULL, &json, &err), TRP_EINVALID);
    assert_memory_equal(err.message, "text:", 5);
}

static void duplicate_keys_and_trailing_bytes_are_errors(void **state) {
    static const char *const bad[] = {"{\"a\": 1, \"a\": 2}", "{} {}", "{}x", "[1,]", "nul"};
    for (size_t i = 0; i < TRPI_COUNTOF(bad); i++) {
        json_t *json = NULL;
        assert_int_equal(trpi_json_parse(bad[i], strlen(bad[i]), "c", &json, NULL), TRP_EINVALID);
    }
}

static void members_of_the_right_type_are_read(void **state) {
    json_t *json = parse("{\"i\": -3, \"big\": 5e8, \"x\": 0.5, \"b\": true, \"s\": \"text\"}");
    int64_t i = 0, big = 0, none = 77;
    double x = 0, whole = 0;
    bool b = false;
    const char *s = NULL;
    assert_int_equal(trpi_json_i64(json, "c", "i", true, &i, NULL), TRP_OK);
    assert_int_equal(trpi_json_i64(json, "c", "big", true, &big, NULL), TRP_OK);
    assert_int_equal(trpi_json_number(json, "c", "x", true, &x, NULL), TRP_OK);
    assert_int_equal(trpi_json_number(json, "c", "i", true, &whole, NULL), TRP_OK);
    assert_int_equal(trpi_json_bool(json, "c", "b", true, &b, NULL), TRP_OK);
    assert_int_equal(trpi_json_text(json, "c", "s", true, &s, NULL), TRP_OK);
    assert_int_equal(trpi_json_i64(json, "c", "missing", false, &none, NULL), TRP_OK);
    assert_int_equal(i, -3);
    assert_int_equal(big, 500000000);
    assert_true(x == 0.5 && whole == -3 && b);
    assert_string_equal(s, "text");
    assert_int_equal(none, 77);
    json_decref(json);
}

static void a_wrong_type_or_a_missing_key_is_named_with_its_place(void **state) {
    json_t *json = parse("{\"i\": \"3\", \"half\": 0.5, \"n\": null}");
    int64_t i;
    double x;
    bool b;
    const char *s;
    trp_error err;
    assert_int_equal(trpi_json_i64(json, "zero", "i", false, &i, &err), TRP_EINVALID);
    assert_string_equal(err.message, "zero.i: expected a whole number, found a string");
    assert_int_equal(trpi_json_i64(json, "zero", "half", false, &i, &err), TRP_EINVALID);
    assert_string_equal(err.message, "zero.half: expected a whole number, found 0.5");
    assert_int_equal(trpi_json_number(json, "zero", "n", false, &x, &err), TRP_EINVALID);
    assert_string_equal(err.message, "zero.n: expected a number, found null");
    assert_int_equal(trpi_json_bool(json, "zero", "i", false, &b, &err), TRP_EINVALID);
    assert_int_equal(trpi_json_text(json, "zero", "half", false, &s, &err), TRP_EINVALID);
    assert_int_equal(trpi_json_text(json, "zero", "gone", true, &s, &err), TRP_EINVALID);
    assert_string_equal(err.message, "zero.gone: is missing");
    json_t *array = parse("[]");
    assert_int_equal(trpi_json_i64(array, "zero", "i", false, &i, &err), TRP_EINVALID);
    assert_string_equal(err.message, "zero: expected an object, found an array");
    assert_int_equal(trpi_json_i64(NULL, "zero", "i", false, &i, &err), TRP_EINVALID);
    json_decref(array);
    json_decref(json);
}

static void an_unknown_key_is_named_with_the_nearest_valid_one(void **state) {
    static const char *const keys[] = {"stage", "offload_optimizer"};
    json_t *good = parse("{\"stage\": 1}"), *slip = parse("{\"stge\": 1}");
    json_t *strange = parse("{\"quantum\": 1}");
    trp_error err;
    assert_int_equal(trpi_json_only(good, "zero", keys, 2, &err), TRP_OK);
    assert_int_equal(trpi_json_only(slip, "zero", keys, 2, &err), TRP_EINVALID);
    assert_string_equal(err.message, "zero.stge: unknown key; did you mean \"stage\"?");
    assert_int_equal(trpi_json_only(strange, "zero", keys, 2, &err), TRP_EINVALID);
    assert_string_equal(err.message, "zero.quantum: unknown key");
    json_decref(good);
    json_decref(slip);
    json_decref(strange);
}

static void what_is_written_reads_back_the_same(void **state) {
    json_t *json = parse("{\"z\": 0.1, \"a\": [1, null, \"\\u00e4\\n\"], \"n\": 9007199254740993}");
    trp_buf text = {0};
    assert_int_equal(trp_buf_append(&text, ">", 1), TRP_OK);
    assert_int_equal(trpi_json_write(json, &text, NULL), TRP_OK);
    assert_int_equal(text.data[0], '>');
    json_t *again = parse((char *)text.data + 1);
    assert_true(json_equal(json, again));
    json_decref(json);
    json_decref(again);
    trp_buf_release(&text);
}

static void text_that_is_not_utf8_is_repaired(void **state) {
    static const char *const texts[][2] = {
        {"", ""},
        {"plain \xc3\xa9 \xe2\x98\x83 \xf0\x9f\x8e\x82",
         "plain \xc3\xa9 \xe2\x98\x83 \xf0\x9f\x8e\x82"},
        {"\xff", "\xef\xbf\xbd"},
        {"a\xe2\x98", "a\xef\xbf\xbd\xef\xbf\xbd"},                                 /* cut */
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},                                   /* too long */
        {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                   /* too long */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                   /* surrogate */
        {"\xf4\x90\x80\x80z", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"}, /* too large */
        {"\x80 ok", "\xef\xbf\xbd ok"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(texts); i++) {
        json_t *value = trpi_json_of_text(texts[i][0]);
        assert_non_null(value);
        assert_string_equal(json_string_value(value), texts[i][1]);
        json_decref(value);
    }
}

static void a_file_is_read_or_named_in_the_error(void **state) {
    char path[] = "/tmp/base_json_test_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{\"a\": 1}\n", 9), 9);
    json_t *json = NULL;
    trp_error err;
    assert_int_equal(trpi_json_load(path, &json, &err), TRP_OK);
    assert_int_equal(json_object_size(json), 1);
    json_decref(json);
    assert_int_equal(write(fd, "{", 1), 1);
    close(fd);
    assert_int_equal(trpi_json_load(path, &json, &err), TRP_EINVALID);
    assert_memory_equal(err.message, path, strlen(path));
    unlink(path);
    assert_int_equal(trpi_json_load(path, &json, &err), TRP_ENOTFOUND);
    assert_memory_equal(err.message, path, strlen(path));
    assert_int_equal(trpi_json_load("/tmp", &json, &err), TRP_EIO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_syntax_error_names_place_line_and_column),
        cmocka_unit_test(duplicate_keys_and_trailing_bytes_are_errors),
        cmocka_unit_test(members_of_the_right_type_are_read),
        cmocka_unit_test(a_wrong_type_or_a_missing_key_is_named_with_its_place),
        cmocka_unit_test(an_unknown_key_is_named_with_the_nearest_valid_one),
        cmocka_unit_test(what_is_written_reads_back_the_same),
        cmocka_unit_test(text_that_is_not_utf8_is_repaired),
        cmocka_unit_test(a_file_is_read_or_named_in_the_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

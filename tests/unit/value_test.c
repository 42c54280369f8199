/* value_test.c: what trp_pack writes, trp_unpack reads and trp_value_print shows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <troupe/value.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static trp_buf buf, text;
static trp_error err;

static void expect_packed(trp_code code, const char *bytes, size_t size) {
    if (code != TRP_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(buf.size, size);
    assert_memory_equal(buf.data, bytes, size);
    trp_buf_clear(&buf);
}
#define PACKS(bytes, ...) expect_packed(trp_pack(&buf, &err, __VA_ARGS__), bytes, sizeof(bytes) - 1)

static void values_are_packed_as_msgpack_says(void **state) {
    static const float halves[] = {0.5F, -2.0F};
    static const int64_t counts[] = {1, -1};
    PACKS("\x07", "i", (int64_t)7);
    PACKS("\xff", "i", (int64_t)-1);
    PACKS("\xd3\x80\0\0\0\0\0\0\0", "i", INT64_MIN);
    PACKS("\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "u", UINT64_MAX);
    PACKS("\xcb\x3f\xe0\0\0\0\0\0\0", "d", 0.5);
    PACKS("\xc3", "b", 1);
    PACKS("\xc2", "b", 0);
    PACKS("\xa2hi", "s", "hi");
    PACKS("\xc0", "s", NULL);
    PACKS("\xa3h\0i", "S", "h\0i", (size_t)3);
    PACKS("\xa0", "S", NULL, (size_t)0);
    PACKS("\xc4\x02\x01\x02", "B", (trp_bytes){"\x01\x02", 2});
    PACKS("\xc4\x00", "B", (trp_bytes){NULL, 0});
    PACKS("\xc4\x08\0\0\0\x3f\0\0\0\xc0", "F", halves, (size_t)2);
    PACKS("\xc4\x10\1\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "I", counts, (size_t)2);
    PACKS("\xcc\xc8", "a", (trp_actor){200});
    PACKS("\x05", "o", (trp_object){5});
    PACKS("\xc0", "n");
    PACKS("\x92\x01\x02", "*", (trp_bytes){"\x92\x01\x02", 3});
    PACKS("\x90", "[]");
    PACKS("\x80", "{}");
    PACKS("\x93\x01\x92\x02\x03\x80", "[i, [ii], {}]", (int64_t)1, (int64_t)2, (int64_t)3);
    PACKS("\x82\xa1x\x01\xa1y\x81\xa1z\x90", "{s:i, s:{s:[]}}", "x", (int64_t)1, "y", "z");
}

static void packing_appends_and_a_failure_leaves_the_buffer_as_it_was(void **state) {
    assert_int_equal(trp_buf_append(&buf, "before", 6), TRP_OK);
    assert_int_equal(trp_pack(&buf, &err, "b", 1), TRP_OK);
    assert_int_equal(buf.size, 7);
    assert_int_equal(trp_pack(&buf, &err, "[bbx]", 1, 1), TRP_EINVALID);
    assert_string_equal(err.message, "format \"[bbx]\", at 4: expected a value's letter");
    assert_int_equal(buf.size, 7);
    assert_int_equal(buf.data[7], '\0');
    trp_buf_clear(&buf);
}

static void expect_refused(trp_code code, const char *message) {
    assert_int_equal(code, TRP_EINVALID);
    assert_int_equal(err.code, TRP_EINVALID);
    assert_string_equal(err.message, message);
    assert_int_equal(buf.size, 0);
}
#define REFUSES(message, ...) expect_refused(trp_pack(&buf, &err, __VA_ARGS__), message)

static void wrong_formats_are_refused_with_their_place(void **state) {
    static char nested[] = "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]";
    REFUSES("format \"\", at 0: expected a value's letter", "");
    REFUSES("format \"bb\", at 1: more than one value", "bb", 1, 1);
    REFUSES("format \"[b\", at 2: ] is missing", "[b", 1);
    REFUSES("format \"{\", at 1: } is missing", "{");
    REFUSES("format \"[b}\", at 3: expected a value's letter", "[b}", 1);
    REFUSES("format \"{b}\", at 3: expected a key, \"s:\"", "{b}", 1);
    REFUSES("format \"{s?b}\", at 3: expected a key, \"s:\"", "{s?b}", "k", 1);
    REFUSES("format \"{s:b...}\", at 6: expected a key, \"s:\"", "{s:b...}", "k", 1);
    REFUSES("format \"{s:b}\", at 3: a key is NULL", "{s:b}", NULL, 1);
    REFUSES("format \"S\", at 1: NULL has a size", "S", NULL, (size_t)1);
    REFUSES("pack, argument of *: no msgpack value: 1 bytes come after it", "*",
            (trp_bytes){"\1\2", 2});
    assert_int_equal(trp_pack(&buf, &err, nested), TRP_EINVALID);
    assert_non_null(strstr(err.message, "nested too deeply"));
}

static void what_was_packed_is_unpacked(void **state) {
    float numbers[4] = {0};
    int64_t counts[2], step = 0;
    uint64_t seed = 0;
    double low = 0, high = 0;
    bool is_last = false;
    char name[8];
    trp_bytes raw, label, any;
    trp_actor actor;
    trp_object object;
    size_t number_count = COUNT(numbers), count_count = COUNT(counts);
    assert_int_equal(
        trp_pack(&buf, &err,
                 "{s:i, s:u, s:[di], s:b, s:s, s:S, s:B, s:F, s:I, s:[ao], s:n, s:[ib]}", "step",
                 INT64_MIN, "seed", UINT64_MAX, "range", 0.25, (int64_t)3, "last", 1, "name",
                 "seven77", "label", "a\0b", (size_t)3, "raw", (trp_bytes){"xy", 2}, "numbers",
                 (const float[]){1.5F, -3.0F}, (size_t)2, "counts", (const int64_t[]){7, INT64_MIN},
                 (size_t)2, "who", (trp_actor){9}, (trp_object){10}, "none", "any", (int64_t)1, 0),
        TRP_OK);
    trp_code code =
        trp_unpack(trp_buf_bytes(&buf), &err,
                   "{s:*, s:n, s:[ao], s:I, s:F, s:B, s:S, s:s, s:b, s:[dd], s:u, s:i}", "any",
                   &any, "none", "who", &actor, &object, "counts", counts, &count_count, "numbers",
                   numbers, &number_count, "raw", &raw, "label", &label, "name", name, sizeof name,
                   "last", &is_last, "range", &low, &high, "seed", &seed, "step", &step);
    if (code != TRP_OK) {
        fail_msg("%s", err.message);
    }
    assert_true(step == INT64_MIN && seed == UINT64_MAX && low == 0.25 && high == 3.0 && is_last);
    assert_string_equal(name, "seven77");
    assert_int_equal(label.size, 3);
    assert_memory_equal(label.data, "a\0b", 3);
    assert_int_equal(raw.size, 2);
    assert_true(number_count == 2 && numbers[0] == 1.5F && numbers[1] == -3.0F);
    assert_true(count_count == 2 && counts[0] == 7 && counts[1] == INT64_MIN);
    assert_true(actor.id == 9 && object.id == 10);
    assert_int_equal(any.size, 3);
    assert_memory_equal(any.data, "\x92\x01\xc2", 3);
    trp_buf_clear(&buf);
}

/* Every width that another encoder may have chosen. */
static void an_integer_is_read_in_every_width(void **state) {
    static const struct {
        const char *bytes;
        size_t size;
        int64_t value;
    } rows[] = {
        {"\x7f", 1, 127},
        {"\xe0", 1, -32},
        {"\xcc\xff", 2, 255},
        {"\xcd\x01\x00", 3, 256},
        {"\xd0\x80", 2, -128},
        {"\xd1\xff\xfe", 3, -2},
        {"\xd0\x05", 2, 5},
        {"\xce\xff\xff\xff\xff", 5, UINT32_MAX},
        {"\xd2\x80\0\0\0", 5, INT32_MIN},
        {"\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", 9, INT64_MAX},
        {"\xd3\xff\xff\xff\xff\xff\xff\xff\xff", 9, -1},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t value = 0;
        double real = 0;
        trp_bytes bytes = {rows[i].bytes, rows[i].size};
        assert_int_equal(trp_unpack(bytes, &err, "i", &value), TRP_OK);
        assert_true(value == rows[i].value);
        assert_int_equal(trp_unpack(bytes, &err, "d", &real), TRP_OK);
        assert_true(real == (double)rows[i].value);
    }
}

static void a_key_marked_optional_may_be_missing_or_nil(void **state) {
    static const char both[] = "\x82\xa1y\x05\xa1x\x07", nil[] = "\x82\xa1x\x07\xa1y\xc0";
    static const char missing[] = "\x81\xa1x\x07";
    int64_t x = 0, y = 3, z = 4;
    char name[4] = "ok";
    trp_bytes missed = {missing, sizeof missing - 1};
    assert_int_equal(trp_unpack(missed, &err, "{s:i, s?[iF{s:s, ...}n], s?i}", "x", &x, "list", &z,
                                NULL, NULL, "name", name, sizeof name, "y", &y),
                     TRP_OK);
    assert_true(x == 7 && y == 3 && z == 4);
    assert_string_equal(name, "ok");
    assert_int_equal(
        trp_unpack((trp_bytes){nil, sizeof nil - 1}, &err, "{s:i,s?i}", "x", &x, "y", &y), TRP_OK);
    assert_int_equal(y, 3);
    assert_int_equal(
        trp_unpack((trp_bytes){both, sizeof both - 1}, &err, "{s:i,s?i}", "x", &x, "y", &y),
        TRP_OK);
    assert_int_equal(y, 5);
    assert_int_equal(trp_unpack((trp_bytes){both, sizeof both - 1}, &err, "{s:i,...}", "x", &x),
                     TRP_OK);
}

static void what_does_not_fit_is_told_with_its_place(void **state) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } rows[] = {
        {"", 0, "no msgpack value, at byte 0 of 0: the value is cut off"},
        {"\xc1", 1, "no msgpack value, at byte 1 of 1: a byte is no msgpack"},
        {"\x81\xa4step", 6, "no msgpack value, at byte 6 of 6: the value is cut off"},
        {"\xc0\xc0", 2, "no msgpack value: 1 bytes come after it"},
        {"\xdf\xff\xff\xff\xff\xc0", 6, "no msgpack value, at byte 6 of 6: the value is cut off"},
        {"\xa1x", 2, "argument: expected a map, got text"},
        {"\x80", 1, "argument step: is missing"},
        {"\x81\xa4step\xa1x", 8, "argument step: expected an integer, got text"},
        {"\x81\xa4step\xc0", 7, "argument step: expected an integer, got nil"},
        {"\x81\xa4step\xcb\0\0\0\0\0\0\0\0", 15,
         "argument step: expected an integer, got a number"},
        {"\x81\xa4step\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 15,
         "argument step: the integer is too large"},
        {"\x82\xa4step\x01\xa4step\x01", 13, "argument step: is there twice"},
        {"\x82\xa4step\x01\xa4stop\x01", 13,
         "argument: unknown key \"stop\"; did you mean \"step\"?"},
        {"\x82\xa4step\x01\xa2\x1bz\x01", 11, "argument: unknown key \"?z\""},
        {"\x82\xa4step\x01\x05\x01", 9, "argument: a key is an integer, not text"},
        {"\x82\xa4step\x01\xa5inner\xa1x", 15, "argument inner: expected a map, got text"},
        {"\x82\xa4step\x01\xa5inner\x81\xa4list\x91\x01", 21,
         "argument inner.list: expected 2 elements, got 1"},
        {"\x82\xa4step\x01\xa5inner\x81\xa4list\x92\xa1x\xc0", 23,
         "argument inner.list[1]: expected true or false, got nil"},
        {"\x82\xa4step\x01\xa5inner\x81\xa4list\x92\xa4long\xc2", 26,
         "argument inner.list[0]: a text of 4 bytes, at most 3 fit"},
        {"\x82\xa4step\x01\xa5inner\x81\xa4list\x92\xa2\0y\xc2", 24,
         "argument inner.list[0]: the text has a NUL inside"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t step;
        char word[4];
        bool flag;
        err = (trp_error){0};
        trp_code code =
            trp_unpack((trp_bytes){rows[i].bytes, rows[i].size}, &err, "{s:i, s?{s:[sb]}}", "step",
                       &step, "inner", "list", word, sizeof word, &flag);
        expect_refused(code, rows[i].message);
    }
}

static void numbers_and_bytes_that_do_not_fit_are_told(void **state) {
    float numbers[1];
    size_t room = 1;
    uint64_t number;
    trp_bytes bytes;
    expect_refused(trp_unpack((trp_bytes){"\xc4\x03xyz", 5}, &err, "F", numbers, &room),
                   "argument: 3 bytes are no numbers of 4 bytes");
    expect_refused(trp_unpack((trp_bytes){"\xc4\x08xyzwxyzw", 10}, &err, "F", numbers, &room),
                   "argument: 2 numbers, at most 1 fit");
    expect_refused(trp_unpack((trp_bytes){"\xff", 1}, &err, "u", &number),
                   "argument: expected an integer that is not negative");
    expect_refused(trp_unpack((trp_bytes){"\xa1x", 2}, &err, "B", &bytes),
                   "argument: expected bytes, got text");
    expect_refused(trp_unpack((trp_bytes){"\xd4\x05x", 3}, &err, "[n]"),
                   "argument: expected an array, got an extension");
}

static void wrong_formats_of_unpack_are_refused_too(void **state) {
    static const char *const formats[] = {"",        "x",        "nn",  "[n",    "{s:n",
                                          "{s:n..}", "{...s:n}", "{n}", "{s;n}", "[n}"};
    for (size_t i = 0; i < COUNT(formats); i++) {
        const char *bytes = formats[i][0] == '[' ? "\x91\xc0" : "\x81\xa1k\xc0";
        size_t size = formats[i][0] == '[' ? 2 : 4;
        if (formats[i][0] == 'n') {
            bytes = "\xc0", size = 1;
        }
        assert_int_equal(trp_unpack((trp_bytes){bytes, size}, &err, formats[i], "k"), TRP_EINVALID);
        assert_true(strncmp(err.message, "format \"", 8) == 0);
    }
    assert_int_equal(trp_unpack((trp_bytes){"\x81\xa1k\xc0", 4}, &err, "{s:n,s:n}", "k", "k"),
                     TRP_EINVALID);
    assert_string_equal(err.message, "format \"{s:n,s:n}\", at 7: a key comes twice");
}

static void a_value_that_nests_too_deeply_is_refused(void **state) {
    unsigned char deep[34];
    memset(deep, 0x91, sizeof deep);
    deep[32] = 0xc0;
    assert_int_equal(trp_value_print((trp_bytes){deep, 33}, 100, &text, &err), TRP_OK);
    deep[32] = 0x91;
    deep[33] = 0xc0;
    assert_int_equal(trp_value_print((trp_bytes){deep, 34}, 100, &text, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "nested too deeply"));
    trp_buf_clear(&text);
}

static void values_are_printed_for_people(void **state) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *text;
    } rows[] = {
        {"\xc0", 1, "null"},
        {"\xc3", 1, "true"},
        {"\xff", 1, "-1"},
        {"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, "18446744073709551615"},
        {"\xca\x3d\xcc\xcc\xcd", 5, "0.1"},
        {"\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a", 9, "0.1"},
        {"\xcb\x3f\xd5\x55\x55\x55\x55\x55\x55", 9, "0.3333333333333333"},
        {"\xcb\x7f\xf8\0\0\0\0\0\0", 9, "nan"},
        {"\xa0", 1, "\"\""},
        {"\xa7\"\\\n\x1b\x7f\0z", 8, "\"\\\"\\\\\\n\\u001b\\u007f\\u0000z\""},
        {"\xa5\xc3\xa9\xff\xed\xa0", 6, "\"é\\xff\\xed\\xa0\""},
        {"\xa4\xf0\x9f\x99\x82", 5, "\"🙂\""},
        {"\xa2\xc2\x9b", 3, "\"\\u009b\""},
        {"\xc4\x00", 2, "<0 bytes>"},
        {"\xc4\x01\x0a", 3, "<1 byte 0a>"},
        {"\xc4\x09"
         "123456789",
         11, "<9 bytes 3132333435363738...>"},
        {"\xd4\xff\x2a", 3, "<extension -1, 1 byte 2a>"},
        {"\x90", 1, "[]"},
        {"\x82\xa1x\x92\x01\xc2\x05\x80", 8, "{\"x\": [1, false], 5: {}}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        trp_bytes bytes = {rows[i].bytes, rows[i].size};
        assert_int_equal(trp_value_print(bytes, 1000, &text, &err), TRP_OK);
        assert_string_equal((const char *)text.data, rows[i].text);
        trp_buf_clear(&text);
    }
}

static void a_long_text_is_cut_between_two_characters(void **state) {
    static const char *const cuts[] = {"...",     "[...",      "[\"...", "[\"...",
                                       "[\"é...", "[\"é\"...", "[\"é\"]"};
    for (size_t limit = 0; limit < COUNT(cuts); limit++) {
        assert_int_equal(trp_value_print((trp_bytes){"\x91\xa2\xc3\xa9", 4}, limit, &text, &err),
                         TRP_OK);
        assert_string_equal((const char *)text.data, cuts[limit]);
        trp_buf_clear(&text);
    }
    assert_int_equal(trp_value_print((trp_bytes){"\x91", 1}, 10, &text, &err), TRP_EINVALID);
    assert_int_equal(text.size, 0);
}

static int release(void **state) {
    trp_buf_release(&buf);
    trp_buf_release(&text);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_packed_as_msgpack_says),
        cmocka_unit_test(packing_appends_and_a_failure_leaves_the_buffer_as_it_was),
        cmocka_unit_test(wrong_formats_are_refused_with_their_place),
        cmocka_unit_test(what_was_packed_is_unpacked),
        cmocka_unit_test(an_integer_is_read_in_every_width),
        cmocka_unit_test(a_key_marked_optional_may_be_missing_or_nil),
        cmocka_unit_test(what_does_not_fit_is_told_with_its_place),
        cmocka_unit_test(numbers_and_bytes_that_do_not_fit_are_told),
        cmocka_unit_test(wrong_formats_of_unpack_are_refused_too),
        cmocka_unit_test(a_value_that_nests_too_deeply_is_refused),
        cmocka_unit_test(values_are_printed_for_people),
        cmocka_unit_test(a_long_text_is_cut_between_two_characters),
    };
    return cmocka_run_group_tests_name("value", tests, NULL, release);
}

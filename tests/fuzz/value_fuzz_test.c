/* Any bytes are safe to unpack and to print: they are refused with a reason, or they are one value,
 * which can be shown and packed again as it is. Each input lies in memory of its own size, so that
 * a sanitizer sees a byte too far. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <troupe/value.h>

#include "tests/fuzz/mutate.h"

enum { CAPACITY = 4096, PRINTED = 300 };

static void make_seed(trp_buf *out) {
    static const float numbers[] = {1, 2, 3};
    trp_error err;
    trp_code code = trp_pack(
        out, &err, "{s:i,s:u,s:d,s:b,s:s,s:S,s:B,s:F,s:[a[o{s:n}]],s:{},s:d}", "step",
        (int64_t)-70000, "seed", UINT64_MAX, "lr", 0.1, "last", 1, "name", "the name", "label",
        "la\0bel", (size_t)6, "raw", (trp_bytes){"\x01\x02\x03", 3}, "numbers", numbers, (size_t)3,
        "nested", (trp_actor){77}, (trp_object){1}, "deep", "empty", "end", -1e300);
    assert_int_equal(code, TRP_OK);
}

/* All letters at once; the targets are only written within their bounds. */
static trp_code unpack_all(trp_bytes bytes, trp_error *err) {
    int64_t step;
    uint64_t seed;
    double lr, end;
    bool last;
    char name[12];
    trp_bytes label, raw;
    float numbers[4];
    size_t count = 4;
    trp_actor actor;
    trp_object object;
    trp_code code = trp_unpack(
        bytes, err, "{s:i,s?u,s:d,s?b,s:s,s?S,s?B,s?F,s?[a[o{s:n,...}]],s?{...},s:d,...}", "step",
        &step, "seed", &seed, "lr", &lr, "last", &last, "name", name, sizeof name, "label", &label,
        "raw", &raw, "numbers", numbers, &count, "nested", &actor, &object, "deep", "empty", "end",
        &end);
    if (code == TRP_OK) {
        assert_true(strlen(name) < sizeof name && count <= 4);
    }
    return code;
}

static bool is_printable(const trp_buf *text) {
    for (size_t i = 0; i < text->size; i++) {
        if (text->data[i] < ' ' || text->data[i] == 0x7f) {
            return false;
        }
    }
    return true;
}

/* Returns whether the whole format fitted. */
static bool try_bytes(const unsigned char *data, size_t size, uint64_t *values) {
    unsigned char *copy = malloc(size > 0 ? size : 1);
    trp_bytes bytes = {copy, size}, whole;
    trp_buf text = {0}, again = {0};
    trp_error err = {0};
    memcpy(copy, data, size);
    trp_code is_value = trp_unpack(bytes, &err, "*", &whole);
    assert_int_equal(trp_value_print(bytes, PRINTED, &text, &err), is_value);
    if (is_value == TRP_OK) {
        assert_true(text.size > 0 && text.size <= PRINTED + 3 && is_printable(&text));
        assert_true(whole.data == copy && whole.size == size);
        assert_int_equal(trp_pack(&again, &err, "*", whole), TRP_OK);
        assert_memory_equal(again.data, copy, size);
        (*values)++;
    } else {
        assert_int_equal(is_value, TRP_EINVALID);
        assert_true(text.size == 0 && err.message[0] != '\0');
    }
    trp_code code = unpack_all(bytes, &err);
    assert_true(code == TRP_OK || (code == TRP_EINVALID && err.message[0] != '\0'));
    trp_buf_release(&text);
    trp_buf_release(&again);
    free(copy);
    return code == TRP_OK;
}

static void any_bytes_are_refused_or_are_one_value(void **state) {
    uint64_t seed = fuzz_setting("TROUPE_FUZZ_SEED", 1);
    uint64_t rounds = fuzz_setting("TROUPE_FUZZ_ROUNDS", 200000), values = 0, fitted = 0;
    unsigned char data[CAPACITY];
    trp_buf from = {0};
    make_seed(&from);
    assert_true(try_bytes(from.data, from.size, &values));
    print_message("seed=%llu rounds=%llu\n", (unsigned long long)seed, (unsigned long long)rounds);
    for (uint64_t round = 0; round < rounds; round++) {
        mutator m = {seed * UINT64_C(1000003) + round};
        memcpy(data, from.data, from.size);
        size_t size = mutate(&m, data, from.size, CAPACITY);
        fitted += try_bytes(data, size, &values);
    }
    print_message("%llu were values, %llu fitted the format\n", (unsigned long long)values,
                  (unsigned long long)fitted);
    assert_true(values > rounds / 20 && fitted > rounds / 100); /* or the damage is too coarse */
    trp_buf_release(&from);
}

static void noise_is_refused_or_is_one_value(void **state) {
    mutator m = {fuzz_setting("TROUPE_FUZZ_SEED", 1)};
    unsigned char data[64];
    uint64_t values = 0;
    for (int round = 0; round < 100000; round++) {
        size_t size = mutator_below(&m, sizeof data);
        for (size_t i = 0; i < size; i++) {
            data[i] = (unsigned char)mutator_next(&m);
        }
        (void)try_bytes(data, size, &values);
    }
    assert_true(values > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_are_refused_or_are_one_value),
        cmocka_unit_test(noise_is_refused_or_is_one_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Any bytes are safe to decode as a manifest: they are refused, or what they gave can be encoded
 * and decoded to the same. The checksum of a changed text is made to fit in half of the rounds, or
 * it would keep all damage from the code behind it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "core/base/hash.h"
#include "tests/fuzz/mutate.h"
#include "trainer/ckpt/manifest.h"

enum { CAPACITY = 8192, TAIL = 4, SUM = 32 }; /* the text ends with a quote and "\n}\n" */

static void make_fit(unsigned char *text, size_t length) {
    char digits[33];
    if (length < SUM + TAIL) {
        return;
    }
    unsigned char *sum = text + length - TAIL - SUM;
    trpi_hasher *hasher = trpi_hasher_new();
    memset(sum, '0', SUM);
    trpi_hasher_add(hasher, text, length);
    trpi_hasher_hex(hasher, digits);
    trpi_hasher_free(hasher);
    memcpy(sum, digits, SUM);
}

static bool equal_manifests(const trpi_manifest *a, const trpi_manifest *b) {
    bool equal = a->number == b->number && a->step == b->step && a->attempt == b->attempt &&
                 a->world == b->world && a->file_count == b->file_count &&
                 a->metric_count == b->metric_count;
    for (size_t i = 0; equal && i < a->file_count; i++) {
        equal = strcmp(a->files[i].name, b->files[i].name) == 0 &&
                a->files[i].size == b->files[i].size && a->files[i].rank == b->files[i].rank &&
                strcmp(a->files[i].xxh3, b->files[i].xxh3) == 0;
    }
    for (size_t i = 0; equal && i < a->metric_count; i++) {
        double x = a->metrics[i].value, y = b->metrics[i].value;
        equal = strcmp(a->metrics[i].name, b->metrics[i].name) == 0 &&
                (x == y || (isnan(x) && isnan(y)));
    }
    return equal;
}

static bool decode(const unsigned char *text, size_t length) {
    trpi_manifest manifest = {0}, again = {0};
    trp_error err = {0};
    trp_buf out = {0};
    trp_code code = trpi_manifest_decode((trp_bytes){text, length}, "it", &manifest, &err);
    if (code) {
        assert_true(code == TRP_ECORRUPT || code == TRP_EUNSUPPORTED);
        assert_true(err.message[0] != '\0' && err.code == code);
        return false;
    }
    for (size_t i = 0; i < manifest.file_count; i++) {
        const trpi_manifest_file *file = &manifest.files[i];
        assert_true(file->rank >= 0 && file->rank < manifest.world);
        assert_true(file->name[0] != '/' && strstr(file->name, "//") == NULL);
        assert_true(strncmp(file->name, "../", 3) != 0 && strstr(file->name, "/../") == NULL);
    }
    assert_int_equal(trpi_manifest_encode(&manifest, &out, &err), TRP_OK);
    assert_int_equal(trpi_manifest_decode(trp_buf_bytes(&out), "it", &again, &err), TRP_OK);
    assert_true(equal_manifests(&manifest, &again));
    trpi_manifest_release(&manifest);
    trpi_manifest_release(&again);
    trp_buf_release(&out);
    return true;
}

static void make_seed(trp_buf *out) {
    static const char sum[] = "0123456789abcdef0123456789abcdef";
    trpi_manifest manifest = {.number = 3, .step = 400, .attempt = 2, .world = 9};
    assert_int_equal(trpi_manifest_add_metric(&manifest, "loss", 1.25, NULL), TRP_OK);
    assert_int_equal(trpi_manifest_add_metric(&manifest, "bad", NAN, NULL), TRP_OK);
    assert_int_equal(trpi_manifest_add_file(&manifest, "shard-0", 100, sum, 0, NULL), TRP_OK);
    assert_int_equal(trpi_manifest_add_file(&manifest, "a/b", 0, sum, 8, NULL), TRP_OK);
    assert_int_equal(trpi_manifest_encode(&manifest, out, NULL), TRP_OK);
    trpi_manifest_release(&manifest);
}

static void any_bytes_are_refused_or_mean_what_they_say(void **state) {
    uint64_t seed = fuzz_setting("TROUPE_FUZZ_SEED", 1);
    uint64_t rounds = fuzz_setting("TROUPE_FUZZ_ROUNDS", 60000), decoded = 0;
    unsigned char text[CAPACITY];
    struct rusage usage;
    trp_buf from = {0};
    make_seed(&from);
    assert_true(decode(from.data, from.size));
    print_message("seed=%llu rounds=%llu\n", (unsigned long long)seed, (unsigned long long)rounds);
    for (uint64_t round = 0; round < rounds; round++) {
        mutator m = {seed * UINT64_C(1000003) + round};
        size_t end = SUM + TAIL + 9; /* "xxh3": " */
        memcpy(text, from.data, from.size);
        size_t length = from.size;
        if (mutator_below(&m, 2)) {
            length = mutate(&m, text, from.size - end, CAPACITY - end);
            memcpy(text + length, from.data + from.size - end, end);
            length += end;
            make_fit(text, length);
        } else {
            length = mutate(&m, text, length, CAPACITY);
        }
        decoded += decode(text, length);
    }
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    print_message("%llu of them decoded; at most %ld MiB of memory\n", (unsigned long long)decoded,
                  usage.ru_maxrss >> 10);
    assert_true(decoded > rounds / 100); /* or the damage is too coarse to test anything */
    assert_true(usage.ru_maxrss < 1 << 20);
    trp_buf_release(&from);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_are_refused_or_mean_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

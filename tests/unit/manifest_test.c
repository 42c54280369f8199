/* Manifests: what is written is read back, anything else is refused, and a directory that differs
 * is named with what was expected and what was found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "trainer/ckpt/manifest.h"

static char dir[64];

static int make_dir(void **state) {
    TRPI_SET(dir, "/tmp/troupe-manifest-XXXXXX");
    return mkdtemp(dir) ? 0 : 1;
}

static int remove_dir(void **state) {
    return trpi_dir_remove(dir, NULL);
}

static void must(trp_code code, const trp_error *err) {
    if (code) {
        fail_msg("%s: %s", trp_code_name(code), err->message);
    }
}

#define SUM "0123456789abcdef0123456789abcdef"

static trpi_manifest sample(void) {
    trp_error err;
    trpi_manifest manifest = {.number = 3, .step = 400, .attempt = 2, .world = 4};
    must(trpi_manifest_add_metric(&manifest, "loss", 0.1, &err), &err);
    must(trpi_manifest_add_metric(&manifest, "bad", NAN, &err), &err);
    must(trpi_manifest_add_metric(&manifest, "worse", -INFINITY, &err), &err);
    must(trpi_manifest_add_metric(&manifest, "best", INFINITY, &err), &err);
    must(trpi_manifest_add_file(&manifest, "z.bin", 1, SUM, 3, &err), &err);
    must(trpi_manifest_add_file(&manifest, "checkpoint/größe.json", INT64_MAX, SUM, 0, &err), &err);
    must(trpi_manifest_add_file(&manifest, "a", 0, SUM, 1, &err), &err);
    return manifest;
}

static void what_is_written_is_read_back(void **state) {
    trp_error err;
    trpi_manifest manifest = sample(), read = {0};
    must(trpi_manifest_write(&manifest, dir, &err), &err);
    must(trpi_manifest_read(dir, &read, &err), &err);
    assert_true(read.number == 3 && read.step == 400 && read.attempt == 2 && read.world == 4);
    assert_int_equal(read.metric_count, 4);
    assert_string_equal(read.metrics[0].name, "loss");
    assert_true(read.metrics[0].value == 0.1);
    assert_true(isnan(read.metrics[1].value));
    assert_true(isinf(read.metrics[2].value) && read.metrics[2].value < 0);
    assert_true(isinf(read.metrics[3].value) && read.metrics[3].value > 0);
    assert_int_equal(read.file_count, 3);
    assert_string_equal(read.files[0].name, "a"); /* sorted */
    assert_string_equal(read.files[1].name, "checkpoint/größe.json");
    assert_true(read.files[1].size == INT64_MAX && read.files[1].rank == 0);
    assert_string_equal(read.files[2].xxh3, SUM);
    trpi_manifest_release(&manifest);
    trpi_manifest_release(&read);
    assert_int_equal(read.file_count, 0);
}

static void the_last_value_of_a_metric_counts(void **state) {
    trpi_manifest manifest = sample();
    assert_int_equal(trpi_manifest_add_metric(&manifest, "loss", 7, NULL), TRP_OK);
    assert_int_equal(manifest.metric_count, 4);
    assert_true(manifest.metrics[0].value == 7);
    trpi_manifest_release(&manifest);
}

static void unsafe_names_are_refused(void **state) {
    static const char *const names[] = {"",        "/a",        "a/",
                                        "a//b",    ".",         "..",
                                        "../a",    "a/../b",    "a/./b",
                                        "./a",     "a/.",       "manifest.json",
                                        ".rank-0", ".rank-0/x", "manifest.json.tmp"};
    static const char *const fine[] = {"a..b", ".hidden", "...", "a/manifest.json", "rank-0/x"};
    trp_error err;
    trpi_manifest manifest = {.world = 1};
    for (size_t i = 0; i < TRPI_COUNTOF(names); i++) {
        assert_int_equal(trpi_manifest_add_file(&manifest, names[i], 1, SUM, 0, &err),
                         TRP_EINVALID);
    }
    for (size_t i = 0; i < TRPI_COUNTOF(fine); i++) {
        must(trpi_manifest_add_file(&manifest, fine[i], 1, SUM, 0, &err), &err);
    }
    char long_name[400];
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(trpi_manifest_add_file(&manifest, long_name, 1, SUM, 0, &err), TRP_EINVALID);
    assert_int_equal(trpi_manifest_add_file(&manifest, "b", 1, "0123", 0, &err), TRP_EINVALID);
    assert_int_equal(trpi_manifest_add_file(&manifest, "b", 1, NULL, 0, &err), TRP_EINVALID);
    assert_int_equal(trpi_manifest_add_file(&manifest, "b", 1, SUM, -1, &err), TRP_EINVALID);
    trpi_manifest_release(&manifest);
}

static void a_file_of_two_ranks_is_refused_and_both_are_named(void **state) {
    trp_error err;
    trpi_manifest manifest = sample();
    assert_int_equal(trpi_manifest_add_file(&manifest, "a", 5, SUM, 2, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "\"a\" comes from ranks 1 and 2"));
    trpi_manifest_release(&manifest);
}

static void every_flipped_bit_is_found(void **state) {
    trp_error err;
    trp_buf text = {0};
    trpi_manifest manifest = sample(), read = {0};
    must(trpi_manifest_encode(&manifest, &text, &err), &err);
    for (size_t i = 0; i < text.size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text.data[i] ^= (unsigned char)(1 << bit);
            trp_code code = trpi_manifest_decode(trp_buf_bytes(&text), "it", &read, &err);
            /* In the version's digit it may look like a manifest of another version. */
            if (code != TRP_ECORRUPT && code != TRP_EUNSUPPORTED) {
                fail_msg("byte %zu bit %d: code %d", i, bit, code);
            }
            text.data[i] ^= (unsigned char)(1 << bit);
        }
    }
    for (size_t size = 0; size < text.size; size++) {
        trp_bytes cut = {text.data, size};
        assert_int_equal(trpi_manifest_decode(cut, "it", &read, &err), TRP_ECORRUPT);
    }
    must(trpi_manifest_decode(trp_buf_bytes(&text), "it", &read, &err), &err);
    trpi_manifest_release(&manifest);
    trpi_manifest_release(&read);
    trp_buf_release(&text);
}

static void another_version_is_said_to_be_one(void **state) {
    trp_error err;
    trpi_manifest read = {0};
    assert_int_equal(
        trpi_manifest_decode(trp_bytes_of("{\"version\": 2, \"new\": 1}"), "it", &read, &err),
        TRP_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "version 2"));
}

/* ---- Against a directory ---- */

static void put(const char *name, const char *text) {
    char path[256];
    trpi_format(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static trpi_manifest directory(void) {
    char path[256], xxh3[33];
    uint64_t size;
    trp_error err;
    trpi_manifest manifest = {.world = 2};
    static const char *const names[] = {"one", "sub/two"};
    trpi_format(path, sizeof path, "%s/sub", dir);
    must(trpi_dir_make(path, 0755, &err), &err);
    put("one", "content of one");
    put("sub/two", "");
    for (int i = 0; i < 2; i++) {
        trpi_format(path, sizeof path, "%s/%s", dir, names[i]);
        must(trpi_file_checksum(path, &size, xxh3, &err), &err);
        must(trpi_manifest_add_file(&manifest, names[i], size, xxh3, i, &err), &err);
    }
    must(trpi_manifest_write(&manifest, dir, &err), &err);
    must(trpi_manifest_verify(&manifest, dir, TRPI_VERIFY_CHECKSUMS, &err), &err);
    return manifest;
}

static void expect_damage(const trpi_manifest *manifest, trpi_verify depth, const char *text) {
    trp_error err = {0};
    assert_int_equal(trpi_manifest_verify(manifest, dir, depth, &err), TRP_ECORRUPT);
    if (!strstr(err.message, text) || !strstr(err.message, dir)) {
        fail_msg("%s", err.message);
    }
}

static void Z28_a_directory_that_differs_is_named_with_expected_and_found(void **state) {
    char path[256], link[256];
    trpi_manifest manifest = directory();
    put("one", "Content of one");
    assert_int_equal(trpi_manifest_verify(&manifest, dir, TRPI_VERIFY_SIZES, NULL), TRP_OK);
    expect_damage(&manifest, TRPI_VERIFY_CHECKSUMS, "/one: checksum is ");
    expect_damage(&manifest, TRPI_VERIFY_CHECKSUMS, manifest.files[0].xxh3);
    put("one", "content of on");
    expect_damage(&manifest, TRPI_VERIFY_SIZES, "/one: has 13 bytes, expected 14");
    put("one", "content of one");
    put("sub/three", "");
    expect_damage(&manifest, TRPI_VERIFY_SIZES, "/sub/three: found, but the manifest does not");
    trpi_format(path, sizeof path, "%s/sub/three", dir);
    unlink(path);
    trpi_format(path, sizeof path, "%s/one", dir);
    trpi_format(link, sizeof link, "%s/sub/two", dir);
    unlink(path);
    expect_damage(&manifest, TRPI_VERIFY_SIZES, "/one: is missing");
    assert_int_equal(symlink(link, path), 0);
    expect_damage(&manifest, TRPI_VERIFY_SIZES, "/one: is not a regular file");
    trpi_manifest_release(&manifest);
}

static void a_missing_manifest_is_not_a_damaged_one(void **state) {
    trp_error err;
    trpi_manifest read = {0};
    assert_int_equal(trpi_manifest_read("/tmp", &read, &err), TRP_ENOTFOUND);
    put("manifest.json", "");
    assert_int_equal(trpi_manifest_read(dir, &read, &err), TRP_ECORRUPT);
    assert_non_null(strstr(err.message, dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(the_last_value_of_a_metric_counts),
        cmocka_unit_test(unsafe_names_are_refused),
        cmocka_unit_test(a_file_of_two_ranks_is_refused_and_both_are_named),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(another_version_is_said_to_be_one),
        cmocka_unit_test(Z28_a_directory_that_differs_is_named_with_expected_and_found),
        cmocka_unit_test(a_missing_manifest_is_not_a_damaged_one),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

/* Tensor files: what is written is read back by us and by the format's rules, and no damaged byte
 * goes unnoticed. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/json.h"
#include "core/sys/file.h"
#include "trainer/ckpt/safetensors.h"

static char dir[64], path[128];

static int make_dir(void **state) {
    TRPI_SET(dir, "/tmp/troupe-safetensors-XXXXXX");
    if (!mkdtemp(dir)) {
        return 1;
    }
    trpi_format(path, sizeof path, "%s/model.safetensors", dir);
    return 0;
}

static int remove_dir(void **state) {
    return trpi_dir_remove(dir, NULL);
}

static void must(trp_code code, const trp_error *err) {
    if (code) {
        fail_msg("%s: %s", trp_code_name(code), err->message);
    }
}

/* weight (3, 5) F32, bias (7) BF16, empty (0, 4) I64, scalar U8, and two lines of metadata. */
static const float weight[15] = {1, -2, 3.5f, 0, 1e-30f, 1e30f, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const uint16_t bias[7] = {1, 2, 3, 4, 5, 6, 0xffff};
static const uint8_t scalar = 200;

static void write_sample(const char *to) {
    trp_error err;
    trpi_tensor_writer *writer;
    must(trpi_tensor_writer_open(to, &writer, &err), &err);
    must(trpi_tensor_writer_meta(writer, "format", "pt", &err), &err);
    must(trpi_tensor_writer_meta(writer, "step \"1\"", "zwölf\n", &err), &err);
    must(trpi_tensor_writer_add(writer, "weight", TRPI_STORED_F32, (int64_t[]){3, 5}, 2, &err),
         &err);
    must(trpi_tensor_writer_add(writer, "bias/größe", TRPI_STORED_BF16, (int64_t[]){7}, 1, &err),
         &err);
    must(trpi_tensor_writer_add(writer, "empty", TRPI_STORED_I64, (int64_t[]){0, 4}, 2, &err),
         &err);
    must(trpi_tensor_writer_add(writer, "scalar", TRPI_STORED_U8, NULL, 0, &err), &err);
    /* Interleaved, and in pieces. */
    must(trpi_tensor_writer_append(writer, 3, &scalar, 1, &err), &err);
    must(trpi_tensor_writer_append(writer, 0, weight, 24, &err), &err);
    must(trpi_tensor_writer_append(writer, 1, bias, sizeof bias, &err), &err);
    must(trpi_tensor_writer_append(writer, 0, weight + 6, sizeof weight - 24, &err), &err);
    must(trpi_tensor_writer_finish(&writer, &err), &err);
    assert_null(writer);
}

static void what_is_written_is_read_back(void **state) {
    trp_error err;
    trpi_tensor_file *file;
    float read[15];
    uint16_t part[2];
    const char *value;
    write_sample(path);
    must(trpi_tensor_file_open(path, &file, &err), &err);
    assert_string_equal(trpi_tensor_file_path(file), path);
    assert_int_equal(trpi_tensor_file_count(file), 4);
    assert_int_equal(trpi_tensor_file_meta_count(file), 2);
    assert_string_equal(trpi_tensor_file_meta(file, "format"), "pt");
    assert_string_equal(trpi_tensor_file_meta(file, "step \"1\""), "zwölf\n");
    assert_null(trpi_tensor_file_meta(file, "xxh3"));
    assert_string_equal(trpi_tensor_file_meta_at(file, 0, &value), "format");
    assert_null(trpi_tensor_file_meta_at(file, 2, &value));

    const trpi_tensor *tensor = trpi_tensor_file_find(file, "weight");
    assert_ptr_equal(tensor, trpi_tensor_file_at(file, 0));
    assert_true(tensor->dtype == TRPI_STORED_F32 && tensor->dims == 2 && tensor->shape[0] == 3 &&
                tensor->shape[1] == 5 && tensor->elements == 15 && tensor->bytes == 60);
    assert_int_equal(strlen(tensor->checksum), 32);
    must(trpi_tensor_file_read_all(file, tensor, read, &err), &err);
    assert_memory_equal(read, weight, sizeof weight);

    tensor = trpi_tensor_file_find(file, "bias/größe");
    must(trpi_tensor_file_read(file, tensor, 10, part, 4, &err), &err);
    assert_memory_equal(part, bias + 5, 4);
    assert_int_equal(trpi_tensor_file_read(file, tensor, 12, part, 4, &err), TRP_EINVALID);
    assert_int_equal(trpi_tensor_file_read(file, tensor, UINT64_MAX, part, 4, &err), TRP_EINVALID);

    tensor = trpi_tensor_file_find(file, "empty");
    assert_true(tensor->elements == 0 && tensor->bytes == 0);
    must(trpi_tensor_file_read_all(file, tensor, NULL, &err), &err);
    tensor = trpi_tensor_file_find(file, "scalar");
    assert_true(tensor->dims == 0 && tensor->elements == 1);
    assert_null(trpi_tensor_file_find(file, "none"));
    must(trpi_tensor_file_verify(file, NULL, &err), &err);
    must(trpi_tensor_file_verify(file, tensor, &err), &err);
    trpi_tensor_file_close(file);
}

/* The rules that other readers check: lengths, alignment, offsets without holes, text metadata. */
static void the_file_keeps_the_formats_rules(void **state) {
    trp_buf bytes = {0};
    json_t *header;
    trp_error err;
    write_sample(path);
    must(trpi_file_read(path, 0, &bytes, &err), &err);
    uint64_t length = 0;
    memcpy(&length, bytes.data, 8);
    assert_int_equal((8 + length) % 64, 0);
    assert_int_equal(bytes.data[8], '{');
    assert_int_equal(bytes.size, 8 + length + 60 + 14 + 0 + 1);
    must(trpi_json_parse((const char *)bytes.data + 8, length, "header", &header, &err), &err);
    json_t *offsets = json_object_get(json_object_get(header, "bias/größe"), "data_offsets");
    assert_int_equal(json_integer_value(json_array_get(offsets, 0)), 60);
    assert_int_equal(json_integer_value(json_array_get(offsets, 1)), 74);
    assert_memory_equal(bytes.data + 8 + length, weight, sizeof weight);
    json_decref(header);
    trp_buf_release(&bytes);
}

static void equal_content_gives_equal_bytes(void **state) {
    trp_buf one = {0}, two = {0};
    write_sample(path);
    assert_int_equal(trpi_file_read(path, 0, &one, NULL), TRP_OK);
    write_sample(path);
    assert_int_equal(trpi_file_read(path, 0, &two, NULL), TRP_OK);
    assert_int_equal(one.size, two.size);
    assert_memory_equal(one.data, two.data, one.size);
    trp_buf_release(&one);
    trp_buf_release(&two);
}

static void put_file(const void *data, size_t size) {
    FILE *file = fopen(path, "w");
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

/* Opens and reads everything, as a load does. */
static trp_code load_all(trp_error *err) {
    trpi_tensor_file *file = NULL;
    trp_code code = trpi_tensor_file_open(path, &file, err);
    if (!code) {
        code = trpi_tensor_file_verify(file, NULL, err);
    }
    trpi_tensor_file_close(file);
    return code;
}

static void Z28_every_flipped_bit_is_found(void **state) {
    trp_buf bytes = {0};
    trp_error err;
    write_sample(path);
    must(trpi_file_read(path, 0, &bytes, &err), &err);
    for (size_t i = 0; i < bytes.size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes.data[i] ^= (unsigned char)(1 << bit);
            put_file(bytes.data, bytes.size);
            trp_code code = load_all(&err);
            if (code != TRP_ECORRUPT || !strstr(err.message, path)) {
                fail_msg("byte %zu bit %d: code %d %s", i, bit, code, err.message);
            }
            bytes.data[i] ^= (unsigned char)(1 << bit);
        }
    }
    /* In the data, the tensor is named. */
    bytes.data[bytes.size - 2] ^= 1;
    put_file(bytes.data, bytes.size);
    assert_int_equal(load_all(&err), TRP_ECORRUPT);
    assert_non_null(strstr(err.message, "\"bias/größe\": checksum is"));
    trp_buf_release(&bytes);
}

static void Z28_every_truncation_is_found(void **state) {
    trp_buf bytes = {0};
    trp_error err;
    write_sample(path);
    must(trpi_file_read(path, 0, &bytes, &err), &err);
    for (size_t size = 0; size < bytes.size; size++) {
        put_file(bytes.data, size);
        assert_int_equal(load_all(&err), TRP_ECORRUPT);
    }
    must(trp_buf_append(&bytes, "x", 1), &err);
    put_file(bytes.data, bytes.size);
    assert_int_equal(load_all(&err), TRP_ECORRUPT);
    trp_buf_release(&bytes);
}

/* Header text and `data` bytes of zeros; expects what opening says. */
static void expect_header(const char *header, size_t data, trp_code code, const char *text) {
    trp_error err = {0};
    trpi_tensor_file *file = NULL;
    uint64_t length = strlen(header);
    char bytes[4096] = {0};
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    put_file(bytes, 8 + length + data);
    trp_code found = trpi_tensor_file_open(path, &file, &err);
    if (found != code || (code && !strstr(err.message, text))) {
        fail_msg("%s\ncode %d: %s\nexpected %d: %s", header, found, err.message, code, text);
    }
    trpi_tensor_file_close(file);
}

#define A(dtype, shape, offsets)                                                                   \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                                         \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" first "},"                          \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" second "}}"

static void a_header_that_lies_is_refused(void **state) {
    expect_header(A("F32", "[2]", "[0,8]"), 8, TRP_OK, "");
    expect_header("{}", 0, TRP_OK, "");
    expect_header("{}  ", 0, TRP_OK, "");
    expect_header("{}", 1, TRP_ECORRUPT, "the tensors have 0");
    expect_header("[]", 0, TRP_ECORRUPT, "not an object");
    expect_header("", 0, TRP_ECORRUPT, "header");
    expect_header("{\"a\":1}", 0, TRP_ECORRUPT, "\"a\": is not described by");
    expect_header(A("F31", "[2]", "[0,8]"), 8, TRP_ECORRUPT, "dtype F31 is not known");
    expect_header(A("F32", "[2]", "[0,7]"), 7, TRP_ECORRUPT, "7 bytes for 2 elements of F32");
    expect_header(A("F32", "[-2]", "[0,8]"), 8, TRP_ECORRUPT, "an extent");
    expect_header(A("F32", "[2.0]", "[0,8]"), 8, TRP_ECORRUPT, "an extent");
    expect_header(A("F32", "[4611686018427387904,4]", "[0,0]"), 0, TRP_ECORRUPT, "an extent");
    expect_header(A("F32", "[4611686018427387904]", "[0,0]"), 0, TRP_ECORRUPT, "0 bytes for");
    expect_header(A("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, TRP_ECORRUPT, "at most 8");
    expect_header(A("F32", "2", "[0,8]"), 8, TRP_ECORRUPT, "shape");
    expect_header(A("F32", "[2]", "[8,0]"), 8, TRP_ECORRUPT, "data_offsets");
    expect_header(A("F32", "[2]", "[-8,0]"), 8, TRP_ECORRUPT, "data_offsets");
    expect_header(A("F32", "[2]", "[0,8,9]"), 9, TRP_ECORRUPT, "data_offsets");
    expect_header(A("F32", "[2]", "[0,16]"), 8, TRP_ECORRUPT, "not within the 8 bytes");
    expect_header(A("F32", "[2]", "[4,12]"), 12, TRP_ECORRUPT, "there is a hole before it");
    expect_header(TWO("[0,4]", "[4,8]"), 8, TRP_OK, "");
    expect_header(TWO("[4,8]", "[0,4]"), 8, TRP_OK, "");
    expect_header(TWO("[0,4]", "[2,6]"), 6, TRP_ECORRUPT, "\"b\": overlaps");
    expect_header(TWO("[0,4]", "[0,4]"), 4, TRP_ECORRUPT, "overlaps");
    expect_header(TWO("[0,4]", "[5,9]"), 9, TRP_ECORRUPT, "\"b\": there is a hole");
    expect_header("{\"a\":{},\"a\":{}}", 0, TRP_ECORRUPT, "duplicate");
    expect_header("{\"__metadata__\":{\"k\":1}}", 0, TRP_ECORRUPT, "something else than text");
    expect_header("{\"__metadata__\":[]}", 0, TRP_ECORRUPT, "not an object");
    expect_header("{\"__metadata__\":{\"xxh3\":\"12\"}}", 0, TRP_ECORRUPT, "checksum");
    expect_header("{\"__metadata__\":{\"xxh3.a\":\"12\"}}", 0, TRP_ECORRUPT, "checksum");
}

static void a_header_longer_than_the_file_takes_no_memory(void **state) {
    trp_error err;
    unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
    put_file(huge, sizeof huge);
    assert_int_equal(load_all(&err), TRP_ECORRUPT);
    assert_non_null(strstr(err.message, "a header of 9223372036854775807 bytes in a file of 16"));
}

static void a_file_of_others_is_read_and_says_that_it_has_no_checksums(void **state) {
    trp_error err;
    trpi_tensor_file *file;
    unsigned char read[8];
    expect_header("{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F64\",\"shape\":[1],"
                  "\"data_offsets\":[0,8]}}",
                  8, TRP_OK, "");
    must(trpi_tensor_file_open(path, &file, &err), &err);
    const trpi_tensor *tensor = trpi_tensor_file_find(file, "a");
    assert_string_equal(tensor->checksum, "");
    must(trpi_tensor_file_read_all(file, tensor, read, &err), &err);
    assert_int_equal(trpi_tensor_file_verify(file, NULL, &err), TRP_EUNSUPPORTED);
    trpi_tensor_file_close(file);
}

static void a_writer_refuses_what_would_make_no_file(void **state) {
    trp_error err;
    trpi_tensor_writer *writer;
    int64_t big[] = {INT64_MAX, 2}, two[] = {2};
    must(trpi_tensor_writer_open(path, &writer, &err), &err);
    must(trpi_tensor_writer_add(writer, "a", TRPI_STORED_F32, two, 1, &err), &err);
    assert_int_equal(trpi_tensor_writer_add(writer, "a", TRPI_STORED_U8, two, 1, &err),
                     TRP_EINVALID);
    assert_int_equal(trpi_tensor_writer_add(writer, "__metadata__", TRPI_STORED_U8, two, 1, &err),
                     TRP_EINVALID);
    assert_int_equal(trpi_tensor_writer_add(writer, "b", TRPI_STORED_F32, big, 2, &err),
                     TRP_EINVALID);
    assert_int_equal(trpi_tensor_writer_add(writer, "\xff", TRPI_STORED_F32, two, 1, &err),
                     TRP_EINVALID);
    assert_int_equal(trpi_tensor_writer_meta(writer, "xxh3.a", "0", &err), TRP_EINVALID);
    assert_int_equal(trpi_tensor_writer_append(writer, 1, two, 1, &err), TRP_EINVALID);
    assert_int_equal(trpi_tensor_writer_append(writer, 0, two, 9, &err), TRP_EINVALID);
    must(trpi_tensor_writer_append(writer, 0, two, 4, &err), &err);
    assert_int_equal(trpi_tensor_writer_meta(writer, "late", "0", &err), TRP_EINVALID);
    assert_int_equal(trpi_tensor_writer_add(writer, "late", TRPI_STORED_U8, two, 1, &err),
                     TRP_EINVALID);
    assert_int_equal(trpi_tensor_writer_finish(&writer, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "\"a\" has 4 of its 8 bytes"));
    assert_null(writer);
    assert_false(trpi_file_exists(path));
    trpi_tensor_writer_abort(NULL);
}

/* A process that is killed before finish() leaves a file, but not one that opens. */
static void an_unfinished_file_is_none(void **state) {
    trp_error err;
    trpi_tensor_writer *writer;
    char copy[192];
    trpi_format(copy, sizeof copy, "%s.copy", path);
    must(trpi_tensor_writer_open(path, &writer, &err), &err);
    must(trpi_tensor_writer_add(writer, "a", TRPI_STORED_U8, (int64_t[]){1}, 1, &err), &err);
    must(trpi_tensor_writer_append(writer, 0, "x", 1, &err), &err);
    assert_int_equal(rename(path, copy), 0);
    trpi_tensor_writer_abort(writer);
    assert_int_equal(rename(copy, path), 0);
    assert_int_equal(load_all(&err), TRP_ECORRUPT);
}

static void what_cannot_be_opened_is_named(void **state) {
    trp_error err;
    trpi_tensor_file *file;
    trpi_tensor_writer *writer;
    assert_int_equal(trpi_tensor_file_open("/tmp/none.safetensors", &file, &err), TRP_ENOTFOUND);
    assert_non_null(strstr(err.message, "/tmp/none.safetensors"));
    assert_int_equal(trpi_tensor_file_open(dir, &file, &err), TRP_ECORRUPT);
    assert_int_equal(trpi_tensor_writer_open("/nowhere/x", &writer, &err), TRP_EIO);
    trpi_tensor_file_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(the_file_keeps_the_formats_rules),
        cmocka_unit_test(equal_content_gives_equal_bytes),
        cmocka_unit_test(Z28_every_flipped_bit_is_found),
        cmocka_unit_test(Z28_every_truncation_is_found),
        cmocka_unit_test(a_header_that_lies_is_refused),
        cmocka_unit_test(a_header_longer_than_the_file_takes_no_memory),
        cmocka_unit_test(a_file_of_others_is_read_and_says_that_it_has_no_checksums),
        cmocka_unit_test(a_writer_refuses_what_would_make_no_file),
        cmocka_unit_test(an_unfinished_file_is_none),
        cmocka_unit_test(what_cannot_be_opened_is_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

/* device_test.c: opening, memory, and what happens to arguments that make no sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <troupe/device.h>

static trp_device *open_cpu(int threads) {
    trp_device_options options = {.threads = threads};
    trp_device *device = NULL;
    trp_error error;
    if (trp_device_open("cpu", &options, &device, &error)) {
        fail_msg("%s", error.message);
    }
    return device;
}

static void expect_failure(trp_code code, trp_code want, const trp_error *error, const char *text) {
    assert_int_equal(code, want);
    assert_int_equal(error->code, want);
    if (!strstr(error->message, text)) {
        fail_msg("\"%s\" does not say \"%s\"", error->message, text);
    }
}

static void a_device_is_opened_by_name(void **state) {
    trp_device *device = NULL;
    trp_error error;
    assert_int_equal(trp_device_open("cpu", NULL, &device, &error), TRP_OK);
    assert_string_equal(trp_device_name(device), "cpu");
    assert_true(trp_device_native(device, TRP_F32));
    assert_false(trp_device_native(device, TRP_F16));
    trp_device_close(device);
    trp_device_close(NULL);
}

static void a_name_that_is_no_device_is_told_why(void **state) {
    trp_device *device = NULL;
    trp_error error;
    trp_device_options options = {.threads = -1};
    expect_failure(trp_device_open("cuda:0", NULL, &device, &error), TRP_EUNSUPPORTED, &error,
                   "no CUDA plug-in");
    expect_failure(trp_device_open("tpu", NULL, &device, &error), TRP_EUNSUPPORTED, &error,
                   "no device \"tpu\"");
    expect_failure(trp_device_open("", NULL, &device, &error), TRP_EINVALID, &error, "empty");
    expect_failure(trp_device_open("cpu:1", NULL, &device, &error), TRP_EINVALID, &error,
                   "no index");
    expect_failure(trp_device_open("cpu", &options, &device, &error), TRP_EINVALID, &error,
                   "threads is -1");
    assert_null(device);
    assert_int_equal(trp_device_open("cuda:0", NULL, &device, NULL), TRP_EUNSUPPORTED);
}

static void memory_is_zeroed_aligned_and_counted(void **state) {
    trp_device *device = open_cpu(1);
    void *a = NULL, *b = NULL, *empty = NULL;
    size_t peak;
    assert_int_equal(trp_device_alloc(device, 1000, &a, NULL), TRP_OK);
    assert_int_equal(trp_device_alloc(device, 3, &b, NULL), TRP_OK);
    assert_int_equal(trp_device_alloc(device, 0, &empty, NULL), TRP_OK);
    assert_true((uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0 && (uintptr_t)empty % 64 == 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(((char *)a)[i], 0);
    }
    assert_int_equal(trp_device_bytes(device, &peak), 1003);
    trp_device_free(device, a);
    trp_device_free(device, empty);
    trp_device_free(device, NULL);
    assert_int_equal(trp_device_bytes(device, &peak), 3);
    assert_int_equal(peak, 1003);
    trp_device_free(device, b);
    assert_int_equal(trp_device_bytes(device, NULL), 0);
    trp_device_close(device);
}

static void memory_that_cannot_be_had_is_an_error(void **state) {
    trp_device *device = open_cpu(1);
    void *data = NULL;
    trp_error error;
    expect_failure(trp_device_alloc(device, SIZE_MAX, &data, &error), TRP_ENOMEM, &error,
                   "no memory for");
    assert_null(data);
    assert_int_equal(trp_device_bytes(device, NULL), 0);
    trp_device_close(device);
}

static void uploads_and_downloads_copy(void **state) {
    trp_device *device = open_cpu(1);
    const char text[] = "twelve bytes";
    char back[sizeof(text)];
    void *data = NULL;
    assert_int_equal(trp_device_alloc(device, sizeof(text), &data, NULL), TRP_OK);
    assert_int_equal(trp_device_upload(device, data, text, sizeof(text), NULL), TRP_OK);
    assert_int_equal(trp_device_sync(device, NULL), TRP_OK);
    assert_int_equal(trp_device_download(device, back, data, sizeof(text), NULL), TRP_OK);
    assert_string_equal(back, text);
    trp_device_free(device, data);
    trp_device_close(device);
}

static void dtypes_have_safetensors_names(void **state) {
    assert_string_equal(trp_dtype_name(TRP_F32), "F32");
    assert_string_equal(trp_dtype_name(TRP_BF16), "BF16");
    assert_string_equal(trp_dtype_name(TRP_F16), "F16");
    assert_string_equal(trp_dtype_name(TRP_I32), "I32");
    assert_int_equal(trp_dtype_size(TRP_F32), 4);
    assert_int_equal(trp_dtype_size(TRP_BF16), 2);
}

static void shapes_out_of_range_are_named(void **state) {
    trp_device *device = open_cpu(1);
    trp_error error;
    float x[4] = {0};
    trp_matmul_args product = {.m = 2, .n = 0, .k = 2, .a = x, .b = x, .c = x};
    expect_failure(trp_op_matmul(device, &product, &error), TRP_EINVALID, &error,
                   "matmul: n is 0, must be 1 to 2147483647");
    product.n = (int64_t)INT32_MAX + 1;
    expect_failure(trp_op_matmul(device, &product, &error), TRP_EINVALID, &error,
                   "n is 2147483648");
    product.n = 2;
    product.lda = 1;
    expect_failure(trp_op_matmul(device, &product, &error), TRP_EINVALID, &error, "lda is 1");
    product.lda = 0;
    product.batch = 2;
    expect_failure(trp_op_matmul(device, &product, &error), TRP_EINVALID, &error, "overlap");
    product.batch = 1;
    product.dtype = TRP_I32;
    product.dtype_c = TRP_I32;
    expect_failure(trp_op_matmul(device, &product, &error), TRP_EINVALID, &error, "dtype I32");
    trp_add_args add = {.count = -1, .a = x, .b = x, .y = x};
    expect_failure(trp_op_add(device, &add, &error), TRP_EINVALID, &error, "add: count is -1");
    trp_device_close(device);
}

static void missing_tensors_are_named(void **state) {
    trp_device *device = open_cpu(1);
    trp_error error;
    float x[4] = {0};
    trp_gelu_args gelu = {.count = 4, .x = x};
    expect_failure(trp_op_gelu(device, &gelu, &error), TRP_EINVALID, &error, "gelu: y is NULL");
    gelu.count = 0;
    assert_int_equal(trp_op_gelu(device, &gelu, &error), TRP_OK);
    trp_dropout_args dropout = {.count = 4, .x = x, .y = x, .rate = 1.0f};
    expect_failure(trp_op_dropout(device, &dropout, &error), TRP_EINVALID, &error, "rate is 1");
    dropout.rate = NAN;
    expect_failure(trp_op_dropout(device, &dropout, &error), TRP_EINVALID, &error, "rate is");
    trp_device_close(device);
}

static void a_token_out_of_range_is_named_with_its_place(void **state) {
    trp_device *device = open_cpu(2);
    trp_error error;
    float table[6] = {0}, out[12];
    int32_t tokens[6] = {0, 1, 2, 1, 3, 0};
    trp_embedding_args args = {.batch = 2,
                               .time = 3,
                               .columns = 2,
                               .vocabulary = 3,
                               .tokens = tokens,
                               .token_table = table,
                               .out = out};
    expect_failure(trp_op_embedding(device, &args, &error), TRP_EINVALID, &error,
                   "embedding: tokens[4] is 3, the vocabulary has 3");
    tokens[4] = -1;
    expect_failure(trp_op_embedding(device, &args, &error), TRP_EINVALID, &error,
                   "tokens[4] is -1");
    trp_embedding_backward_args back = {.batch = 2,
                                        .time = 3,
                                        .columns = 2,
                                        .vocabulary = 3,
                                        .tokens = tokens,
                                        .dout = out,
                                        .dtoken_table_add = table};
    expect_failure(trp_op_embedding_backward(device, &back, &error), TRP_EINVALID, &error,
                   "embedding_backward: tokens[4] is -1");
    trp_device_close(device);
}

static void a_target_out_of_range_is_named_unless_ignored(void **state) {
    trp_device *device = open_cpu(1);
    trp_error error;
    float logits[6] = {0}, losses[2];
    int32_t targets[2] = {0, -100};
    trp_xent_args args = {.rows = 2,
                          .vocabulary = 3,
                          .logits = logits,
                          .targets = targets,
                          .losses = losses,
                          .ignore_index = -100};
    assert_int_equal(trp_op_xent(device, &args, &error), TRP_OK);
    assert_true(losses[1] == 0.0f);
    targets[1] = -1;
    expect_failure(trp_op_xent(device, &args, &error), TRP_EINVALID, &error,
                   "xent: targets[1] is -1, the vocabulary has 3");
    trp_device_close(device);
}

static void lengths_of_attention_are_checked(void **state) {
    trp_device *device = open_cpu(1);
    trp_error error;
    float qkv[2 * 3 * 3] = {0}, out[6], lse[6];
    int32_t lengths[2] = {3, 0};
    trp_attention_args args = {.batch = 2,
                               .time = 3,
                               .heads = 1,
                               .head_size = 1,
                               .qkv = qkv,
                               .out = out,
                               .lse = lse,
                               .lengths = lengths};
    expect_failure(trp_op_attention(device, &args, &error), TRP_EINVALID, &error,
                   "lengths[1] is 0, must be 1 to 3");
    args.time = args.heads = args.head_size = INT32_MAX;
    expect_failure(trp_op_attention(device, &args, &error), TRP_EINVALID, &error,
                   "more elements than can be counted");
    args.time = 3;
    args.heads = args.head_size = 1;
    lengths[1] = 4;
    expect_failure(trp_op_attention(device, &args, &error), TRP_EINVALID, &error,
                   "lengths[1] is 4");
    trp_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_opened_by_name),
        cmocka_unit_test(a_name_that_is_no_device_is_told_why),
        cmocka_unit_test(memory_is_zeroed_aligned_and_counted),
        cmocka_unit_test(memory_that_cannot_be_had_is_an_error),
        cmocka_unit_test(uploads_and_downloads_copy),
        cmocka_unit_test(dtypes_have_safetensors_names),
        cmocka_unit_test(shapes_out_of_range_are_named),
        cmocka_unit_test(missing_tensors_are_named),
        cmocka_unit_test(a_token_out_of_range_is_named_with_its_place),
        cmocka_unit_test(a_target_out_of_range_is_named_unless_ignored),
        cmocka_unit_test(lengths_of_attention_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

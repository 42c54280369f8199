/* Any bytes are safe to open as a tensor file: they are refused as damaged, or everything that the
 * reader then says of them can be read. The checksum of a changed header is made to fit in half of
 * the rounds, or it would keep all damage from the code behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "tests/fuzz/mutate.h"
#include "trainer/ckpt/safetensors.h"
#include "trainer/ckpt/safetensors_format.h"

enum { CAPACITY = 8192, SEEDS = 3 };

static int fd = -1;
static char path[64];
static trp_buf seeds[SEEDS];

static void put_length(unsigned char *out, uint64_t length) {
    for (int i = 0; i < 8; i++) {
        out[i] = (unsigned char)(length >> 8 * i);
    }
}

static void seed_of_others(trp_buf *out, const char *header, size_t data) {
    unsigned char length[8], zeros[64] = {0};
    put_length(length, strlen(header));
    assert_int_equal(trp_buf_append(out, length, 8), TRP_OK);
    assert_int_equal(trp_buf_append(out, header, strlen(header)), TRP_OK);
    assert_int_equal(trp_buf_append(out, zeros, data), TRP_OK);
}

static int make_seeds(void **state) {
    trpi_tensor_writer *writer;
    fd = memfd_create("safetensors", MFD_CLOEXEC);
    trpi_format(path, sizeof path, "/proc/self/fd/%d", fd);
    if (trpi_tensor_writer_open(path, &writer, NULL) ||
        trpi_tensor_writer_meta(writer, "layout", "{\"world\": 2}", NULL) ||
        trpi_tensor_writer_add(writer, "a", TRPI_STORED_F32, (int64_t[]){2, 2}, 2, NULL) ||
        trpi_tensor_writer_add(writer, "b.c", TRPI_STORED_BF16, (int64_t[]){3}, 1, NULL) ||
        trpi_tensor_writer_append(writer, 0, "0123456789abcdef", 16, NULL) ||
        trpi_tensor_writer_append(writer, 1, "012345", 6, NULL) ||
        trpi_tensor_writer_finish(&writer, NULL) || trpi_file_read(path, 0, &seeds[0], NULL)) {
        return 1;
    }
    seed_of_others(&seeds[1],
                   "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]},"
                   "\"c\":{\"dtype\":\"I64\",\"shape\":[1,0],\"data_offsets\":[9,9]}}",
                   9);
    seed_of_others(&seeds[2], "{\"__metadata__\":{\"format\":\"pt\"}}", 0);
    return 0;
}

static int drop_seeds(void **state) {
    for (int i = 0; i < SEEDS; i++) {
        trp_buf_release(&seeds[i]);
    }
    return close(fd);
}

/* Makes the length fit the text up to the data, which stays as long as it was, and the checksum. */
static void make_fit(unsigned char *data, size_t length, size_t data_bytes) {
    size_t header = length - 8 - data_bytes;
    put_length(data, header);
    if (header >= TRPI_SAFE_SUM_AT + 32) {
        assert_int_equal(
            trpi_safe_header_sum(data + 8, header, (char *)data + 8 + TRPI_SAFE_SUM_AT, NULL),
            TRP_OK);
    }
}

/* Reads all that the file says it has; returns whether it opened. */
static bool read_through(size_t file_bytes) {
    trpi_tensor_file *file = NULL;
    trp_error err = {0};
    unsigned char *out = malloc(file_bytes + 1);
    trp_code code = trpi_tensor_file_open(path, &file, &err);
    assert_true(code == TRP_OK || code == TRP_ECORRUPT);
    assert_true(code == TRP_OK || err.message[0] != '\0');
    uint64_t sum = 0;
    for (size_t i = 0; !code && i < trpi_tensor_file_count(file); i++) {
        const trpi_tensor *tensor = trpi_tensor_file_at(file, i);
        assert_true(tensor->bytes <= file_bytes);
        assert_ptr_equal(trpi_tensor_file_find(file, tensor->name), tensor);
        assert_true(tensor->bytes == (uint64_t)tensor->elements * trpi_stored_size(tensor->dtype));
        trp_code read = trpi_tensor_file_read_all(file, tensor, out, &err);
        assert_true(read == TRP_OK || read == TRP_ECORRUPT);
        sum += tensor->bytes;
    }
    for (size_t i = 0; !code && i < trpi_tensor_file_meta_count(file); i++) {
        const char *value, *key = trpi_tensor_file_meta_at(file, i, &value);
        assert_string_equal(trpi_tensor_file_meta(file, key), value);
    }
    assert_true(sum <= file_bytes);
    trpi_tensor_file_close(file);
    free(out);
    return !code;
}

static void any_bytes_are_refused_or_can_be_read_through(void **state) {
    uint64_t seed = fuzz_setting("TROUPE_FUZZ_SEED", 1);
    uint64_t rounds = fuzz_setting("TROUPE_FUZZ_ROUNDS", 60000), opened = 0;
    unsigned char data[CAPACITY];
    struct rusage usage;
    print_message("seed=%llu rounds=%llu\n", (unsigned long long)seed, (unsigned long long)rounds);
    for (uint64_t round = 0; round < rounds; round++) {
        mutator m = {seed * UINT64_C(1000003) + round};
        const trp_buf *from = &seeds[mutator_below(&m, SEEDS)];
        size_t data_bytes = from == &seeds[0] ? 22 : from == &seeds[1] ? 9 : 0;
        memcpy(data, from->data, from->size);
        size_t length = from->size;
        if (mutator_below(&m, 2)) { /* the header's text only; the rest is made to fit */
            length = 8 + mutate(&m, data + 8, from->size - 8 - data_bytes, CAPACITY - 64);
            memcpy(data + length, from->data + from->size - data_bytes, data_bytes);
            length += data_bytes;
            make_fit(data, length, data_bytes);
        } else {
            length = mutate(&m, data, length, CAPACITY);
        }
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, data, length, 0), (ssize_t)length);
        opened += read_through(length);
    }
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    print_message("%llu of them opened; at most %ld MiB of memory\n", (unsigned long long)opened,
                  usage.ru_maxrss >> 10);
    assert_true(opened > rounds / 100); /* or the damage is too coarse to test anything */
    assert_true(usage.ru_maxrss < 1 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_are_refused_or_can_be_read_through),
    };
    return cmocka_run_group_tests(tests, make_seeds, drop_seeds);
}

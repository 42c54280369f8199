/* The head's store of files by content: uploads, who waits, bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/head_blobs.h"
#include "core/base/config.h"
#include "core/base/hash.h"
#include "core/sys/file.h"

#define NODE 7
#define DRIVER 9
#define SECOND UINT64_C(1000000000)

/* What the store said last, and of whom it thinks what. */
typedef struct seen {
    trpi_head_blobs *blobs;
    char dir[64];
    trpi_msg_type type;
    uint64_t peer, request, code, total;
    char message[512], data[4096], hash[33];
    size_t size, count;
    uint64_t holder;
    bool used;
} seen;

static seen it;

static void on_send(void *arg, uint64_t peer, const trpi_msg *msg) {
    it.type = msg->type;
    it.peer = peer;
    it.count++;
    if (msg->type == TRPI_MSG_DONE) {
        it.request = msg->done.request;
        it.code = msg->done.code;
        snprintf(it.message, sizeof it.message, "%s", msg->done.message);
    } else if (msg->type == TRPI_MSG_BLOB_DATA) {
        it.request = msg->blob_data.request;
        it.code = msg->blob_data.code;
        it.total = msg->blob_data.total;
        it.size = msg->blob_data.data.size;
        assert_true(it.size <= sizeof it.data);
        if (it.size > 0) {
            memcpy(it.data, msg->blob_data.data.data, it.size);
        }
        snprintf(it.message, sizeof it.message, "%s", msg->blob_data.message);
    } else {
        snprintf(it.hash, sizeof it.hash, "%s", msg->blob_wanted.hash);
    }
}

static uint64_t on_holder(void *arg, const char *hash, uint64_t job) {
    return it.holder;
}

static bool on_is_used(void *arg, const char *hash) {
    return it.used;
}

static int setup(void **state) {
    memset(&it, 0, sizeof it);
    snprintf(it.dir, sizeof it.dir, "/tmp/head-blobs-XXXXXX");
    assert_non_null(mkdtemp(it.dir));
    char dir[80];
    snprintf(dir, sizeof dir, "%s/blobs", it.dir);
    trpi_head_blobs_calls calls = {.send = on_send, .holder = on_holder, .is_used = on_is_used};
    it.blobs = trpi_head_blobs_new(dir, &calls);
    return 0;
}

/* Nothing is left on the disk. */
static int teardown(void **state) {
    trpi_head_blobs_free(it.blobs);
    trpi_config_set(TRPI_CONFIG_BLOB_BYTES, UINT64_C(4) << 30);
    trpi_config_set(TRPI_CONFIG_PACKAGE_BYTES_MAX, 512 << 20);
    return rmdir(it.dir);
}

static const char *hash_of(const char *text) {
    static char hex[33];
    trpi_hasher *hasher = trpi_hasher_new();
    trpi_hasher_add(hasher, text, strlen(text));
    trpi_hasher_hex(hasher, hex);
    trpi_hasher_free(hasher);
    return hex;
}

/* Says one part; the code of the answer. */
static trp_code put(const char *hash, uint64_t size, uint64_t offset, const char *data) {
    trpi_msg msg = {.type = TRPI_MSG_BLOB_PUT,
                    .blob_put = {.request = 5,
                                 .hash = hash,
                                 .size = size,
                                 .offset = offset,
                                 .data = trp_bytes_of(data)}};
    it.code = 999;
    trpi_head_blobs_take(it.blobs, DRIVER, &msg, SECOND);
    return (trp_code)it.code;
}

static void get(const char *hash, uint64_t offset, uint64_t size, uint64_t now_ns) {
    trpi_msg msg = {
        .type = TRPI_MSG_BLOB_GET,
        .blob_get = {.request = 6, .hash = hash, .offset = offset, .size = size, .job = 1}};
    it.type = 0;
    trpi_head_blobs_take(it.blobs, NODE, &msg, now_ns);
}

static void a_file_comes_in_parts_and_goes_in_parts(void **state) {
    const char *hash = hash_of("hello world");
    assert_int_equal(put(hash, 11, 0, NULL), TRP_OK); /* it is not there */
    assert_int_equal(put(hash, 11, 0, "hello "), TRP_OK);
    assert_int_equal(put(hash, 11, 6, "world"), TRP_OK);
    assert_int_equal(put(hash, 11, 0, NULL), TRP_EEXISTS);
    get(hash, 3, 4, SECOND);
    assert_int_equal(it.type, TRPI_MSG_BLOB_DATA);
    assert_int_equal(it.peer, NODE);
    assert_int_equal(it.code, TRP_OK);
    assert_int_equal(it.total, 11);
    assert_int_equal(it.size, 4);
    assert_memory_equal(it.data, "lo w", 4);
    get(hash, 9, 100, SECOND);
    assert_int_equal(it.size, 2);
}

static void two_who_upload_the_same_file_do_so_together(void **state) {
    const char *hash = hash_of("hello world");
    assert_int_equal(put(hash, 11, 0, "hello "), TRP_OK);
    assert_int_equal(put(hash, 11, 0, "hello "), TRP_OK); /* the other one */
    assert_int_equal(put(hash, 11, 6, "wor"), TRP_OK);
    assert_int_equal(put(hash, 11, 6, "world"), TRP_OK);
    assert_int_equal(put(hash, 11, 9, "ld"), TRP_OK);
    get(hash, 0, 100, SECOND);
    assert_memory_equal(it.data, "hello world", 11);
}

static void what_has_another_hash_than_it_says_is_dropped(void **state) {
    const char *hash = hash_of("hello world");
    assert_int_equal(put(hash, 11, 0, "hello "), TRP_OK);
    assert_int_equal(put(hash, 11, 6, "w0rld"), TRP_ECORRUPT);
    assert_int_equal(put(hash, 11, 0, NULL), TRP_OK);
    assert_int_equal(put(hash, 11, 0, "hello world"), TRP_OK);
    assert_int_equal(put(hash, 11, 0, NULL), TRP_EEXISTS);
}

static void parts_that_do_not_fit_are_refused(void **state) {
    const char *hash = hash_of("hello world");
    assert_int_equal(put("../../../../../../../../etc/pass", 11, 0, "x"), TRP_EINVALID);
    assert_int_equal(put("", 11, 0, "x"), TRP_EINVALID);
    assert_int_equal(put(hash, 0, 0, NULL), TRP_EINVALID);
    assert_int_equal(put(hash, 11, 6, "world!"), TRP_EINVALID);
    assert_int_equal(put(hash, 11, 12, NULL), TRP_EINVALID);
    assert_int_equal(put(hash, 11, 6, "world"), TRP_EINVALID); /* the first one is missing */
    assert_int_equal(put(hash, 11, 0, "hello "), TRP_OK);
    assert_int_equal(put(hash, 12, 6, "world"), TRP_EINVALID); /* another size */
    trpi_config_set(TRPI_CONFIG_PACKAGE_BYTES_MAX, 2000);
    assert_int_equal(put(hash_of("x"), 2001, 0, NULL), TRP_EINVALID);
    assert_non_null(strstr(it.message, "TROUPE_PACKAGE_BYTES_MAX"));
}

static void who_asks_for_what_a_driver_has_waits_until_it_is_here(void **state) {
    char hash[33];
    snprintf(hash, sizeof hash, "%s", hash_of("hello"));
    it.holder = DRIVER;
    get(hash, 0, 100, SECOND);
    assert_int_equal(it.type, TRPI_MSG_BLOB_WANTED);
    assert_int_equal(it.peer, DRIVER);
    assert_string_equal(it.hash, hash);
    size_t before = it.count;
    get(hash, 0, 100, SECOND + 1); /* another node: the driver is not asked again at once */
    assert_int_equal(it.count, before);
    assert_int_equal(put(hash, 5, 0, "hello"), TRP_OK);
    assert_int_equal(it.count, before + 3);
    assert_int_equal(it.type, TRPI_MSG_BLOB_DATA);
    assert_memory_equal(it.data, "hello", 5);
    assert_int_equal(trpi_head_blobs_wake_ns(it.blobs), UINT64_MAX);
}

static void who_waits_for_long_is_told_to_ask_again(void **state) {
    const char *hash = hash_of("hello");
    it.holder = DRIVER;
    get(hash, 0, 100, SECOND);
    uint64_t due_ns = trpi_head_blobs_wake_ns(it.blobs);
    assert_true(due_ns > SECOND && due_ns < 10 * SECOND);
    trpi_head_blobs_tick(it.blobs, due_ns - 1);
    assert_int_equal(it.type, TRPI_MSG_BLOB_WANTED);
    trpi_head_blobs_tick(it.blobs, due_ns);
    assert_int_equal(it.type, TRPI_MSG_BLOB_DATA);
    assert_int_equal(it.code, TRP_EBUSY);
    assert_int_equal(trpi_head_blobs_wake_ns(it.blobs), UINT64_MAX);
    it.holder = 0; /* the driver is gone */
    get(hash, 0, 100, due_ns);
    assert_int_equal(it.code, TRP_ENOTFOUND);
    assert_non_null(strstr(it.message, "no driver that has it is connected"));
}

static void who_waits_for_what_is_refused_learns_why(void **state) {
    trpi_config_set(TRPI_CONFIG_PACKAGE_BYTES_MAX, 2000);
    const char *hash = hash_of("hello");
    it.holder = DRIVER;
    get(hash, 0, 100, SECOND);
    assert_int_equal(put(hash, 5000, 0, NULL), TRP_EINVALID);
    assert_int_equal(it.type, TRPI_MSG_BLOB_DATA);
    assert_non_null(strstr(it.message, "TROUPE_PACKAGE_BYTES_MAX"));
}

static void what_nobody_uses_makes_room_the_oldest_first(void **state) {
    char one[33], two[33], three[33];
    char text[3][601];
    for (int i = 0; i < 3; i++) {
        memset(text[i], 'a' + i, 600);
        text[i][600] = '\0';
    }
    snprintf(one, sizeof one, "%s", hash_of(text[0]));
    snprintf(two, sizeof two, "%s", hash_of(text[1]));
    snprintf(three, sizeof three, "%s", hash_of(text[2]));
    trpi_config_set(TRPI_CONFIG_BLOB_BYTES, 1500);
    assert_int_equal(put(one, 600, 0, text[0]), TRP_OK);
    assert_int_equal(put(two, 600, 0, text[1]), TRP_OK);
    get(one, 0, 1, 2 * SECOND); /* used later than the other */
    it.used = true;
    assert_int_equal(put(three, 600, 0, NULL), TRP_EBUSY);
    assert_non_null(strstr(it.message, "TROUPE_BLOB_BYTES"));
    it.used = false;
    assert_int_equal(put(three, 600, 0, text[2]), TRP_OK);
    get(one, 0, 1, 3 * SECOND);
    assert_int_equal(it.code, TRP_OK);
    get(two, 0, 1, 3 * SECOND);
    assert_int_equal(it.code, TRP_ENOTFOUND);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_file_comes_in_parts_and_goes_in_parts),
        TEST(two_who_upload_the_same_file_do_so_together),
        TEST(what_has_another_hash_than_it_says_is_dropped),
        TEST(parts_that_do_not_fit_are_refused),
        TEST(who_asks_for_what_a_driver_has_waits_until_it_is_here),
        TEST(who_waits_for_long_is_told_to_ask_again),
        TEST(who_waits_for_what_is_refused_learns_why),
        TEST(what_nobody_uses_makes_room_the_oldest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

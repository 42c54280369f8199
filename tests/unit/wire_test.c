/* wire_test.c: the protocol. Each message of wire.def is encoded and decoded; what is not exactly
 * one is refused, with its name and field. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <msgpack.h>
#include <troupe/actor.h>

#include "core/base/hash.h"
#include "core/wire/codec.h"
#include "tests/fuzz/wire_samples.h"

#define SAMPLES_EACH 50
#define VERSION "\x02" /* TRPI_WIRE_VERSION, as msgpack writes it */

static trpi_arena arena;
static trp_buf frame;

static int release(void **state) {
    trpi_arena_release(&arena);
    trp_buf_release(&frame);
    return 0;
}

static trp_code decode(const void *data, size_t size, trpi_msg *msg, trp_error *err) {
    return trpi_decode((trp_bytes){data, size}, &arena, msg, err);
}

static void encode(const trpi_msg *msg) {
    trp_error err;
    assert_int_equal(trpi_encode(msg, &frame, &err), TRP_OK);
}

/* ---- Round trips ---- */

static void every_message_comes_back_as_it_was(void **state) {
    for (size_t i = 0; i < SAMPLE_TYPES; i++) {
        for (uint64_t seed = 0; seed < SAMPLES_EACH; seed++) {
            trpi_msg before, after;
            trp_buf again = {0};
            trp_error err = {0};
            sample_message(sample_types[i], seed, &arena, &before);
            encode(&before);
            trp_code code = decode(frame.data, frame.size, &after, &err);
            assert_string_equal(err.message, "");
            assert_int_equal(code, TRP_OK);
            assert_int_equal(after.type, before.type);
            assert_int_equal(trpi_encode(&after, &again, NULL), TRP_OK);
            assert_int_equal(again.size, frame.size);
            assert_memory_equal(again.data, frame.data, frame.size);
            trp_buf_release(&again);
            trpi_arena_reset(&arena);
        }
    }
}

static void every_field_comes_back_by_value(void **state) {
    trpi_resource resources[] = {{"cpu", 20000}, {"disk", 0}};
    trpi_text env[] = {{"A=1"}, {""}};
    trpi_msg before = {.type = TRPI_MSG_SPAWN,
                       .spawn = {.request = UINT64_MAX,
                                 .type = "counter",
                                 .name = NULL,
                                 .resources = resources,
                                 .resources_count = 2,
                                 .bundle = INT64_MIN,
                                 .restarts_max = -1,
                                 .detached = true,
                                 .env = env,
                                 .env_count = 2,
                                 .args = {"\0\1", 2}}};
    trpi_msg after;
    encode(&before);
    assert_int_equal(decode(frame.data, frame.size, &after, NULL), TRP_OK);
    assert_true(after.spawn.request == UINT64_MAX);
    assert_string_equal(after.spawn.type, "counter");
    assert_string_equal(after.spawn.name, "");
    assert_int_equal(after.spawn.resources_count, 2);
    assert_string_equal(after.spawn.resources[1].name, "disk");
    assert_int_equal(after.spawn.resources[0].amount, 20000);
    assert_true(after.spawn.bundle == INT64_MIN);
    assert_int_equal(after.spawn.restarts_max, -1);
    assert_true(after.spawn.detached);
    assert_false(after.spawn.get_if_exists);
    assert_string_equal(after.spawn.env[1].value, "");
    assert_int_equal(after.spawn.args.size, 2);
    assert_memory_equal(after.spawn.args.data, "\0\1", 2);
    /* Blobs are not copied: they may be large. */
    assert_true((const unsigned char *)after.spawn.args.data > frame.data &&
                (const unsigned char *)after.spawn.args.data < frame.data + frame.size);
}

/* ---- The declaration itself ---- */

/* wire.def as text, whatever its comments say. */
static const char declaration[] = ""
#define U64(n) "u64 " #n "\n"
#define I64(n) "i64 " #n "\n"
#define BOOL(n) "bool " #n "\n"
#define STR(n) "str " #n "\n"
#define BIN(n) "bin " #n "\n"
#define LIST(type, n) "list " #type " " #n "\n"
#define STRUCT(name) "struct " #name "\n"
#define END_STRUCT(name) "\n"
#define MESSAGE(NAME, name, number) "message " #NAME " " #number "\n"
#define END_MESSAGE(NAME, name) "\n"
#include "core/wire/wire.def"
#include "core/wire/wire_end.def"
    ;

/* Builds that speak differently must not meet as if they did not. Whoever changes a message raises
 * TRPI_WIRE_VERSION, and writes down here what this version is. */
static void another_protocol_has_another_version(void **state) {
    static const struct {
        int version;
        uint64_t hash;
    } spoken = {2, UINT64_C(0xca61d1ef001c61aa)};
    uint64_t hash = trpi_hash64(declaration, sizeof declaration - 1);
    if (hash != spoken.hash) {
        print_error("wire.def is not version %d any more: its hash is 0x%016" PRIx64 "\n",
                    spoken.version, hash);
    }
    assert_int_equal(TRPI_WIRE_VERSION, spoken.version);
    assert_true(hash == spoken.hash);
}

static void a_frame_is_what_msgpack_understands(void **state) {
    for (size_t i = 0; i < SAMPLE_TYPES; i++) {
        trpi_msg msg;
        msgpack_unpacked unpacked;
        size_t offset = 0;
        sample_message(sample_types[i], 1, &arena, &msg);
        encode(&msg);
        msgpack_unpacked_init(&unpacked);
        assert_int_equal(msgpack_unpack_next(&unpacked, (char *)frame.data, frame.size, &offset),
                         MSGPACK_UNPACK_SUCCESS);
        assert_int_equal(offset, frame.size);
        assert_int_equal(unpacked.data.type, MSGPACK_OBJECT_ARRAY);
        assert_int_equal(unpacked.data.via.array.ptr[0].via.u64, TRPI_WIRE_VERSION);
        assert_int_equal(unpacked.data.via.array.ptr[1].via.u64, sample_types[i]);
        msgpack_unpacked_destroy(&unpacked);
    }
}

/* A PID_GONE with the given encoding of its number. */
static trp_code decode_gone(const char *number, size_t size, trpi_msg *msg, trp_error *err) {
    static char bytes[64];
    memcpy(bytes, "\x93" VERSION "\x2c", 3);
    memcpy(bytes + 3, number, size);
    return decode(bytes, 3 + size, msg, err);
}

static void a_number_is_taken_in_every_width(void **state) {
    static const struct {
        const char *bytes;
        size_t size;
        uint64_t value;
    } cases[] = {
        {"\x05", 1, 5},
        {"\xcc\xff", 2, 255},
        {"\xcd\xff\xfe", 3, 65534},
        {"\xce\xff\xff\xff\xfe", 5, 4294967294u},
        {"\xcf\xff\xff\xff\xff\xff\xff\xff\xfe", 9, UINT64_MAX - 1},
        {"\xd0\x7f", 2, 127},
        {"\xd1\x7f\xff", 3, 32767},
        {"\xd2\x00\x00\x00\x01", 5, 1},
        {"\xd3\x7f\xff\xff\xff\xff\xff\xff\xff", 9, INT64_MAX},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(cases); i++) {
        trpi_msg msg;
        assert_int_equal(decode_gone(cases[i].bytes, cases[i].size, &msg, NULL), TRP_OK);
        assert_true(msg.pid_gone.client == cases[i].value);
    }
}

static void a_negative_number_is_taken_where_it_may_be(void **state) {
    static const struct {
        const char *bytes;
        size_t size;
        int64_t value;
    } cases[] = {
        {"\xe0", 1, -32},
        {"\xff", 1, -1},
        {"\xd0\x80", 2, -128},
        {"\xd1\x80\x00", 3, -32768},
        {"\xd2\x80\x00\x00\x00", 5, INT32_MIN},
        {"\xd3\x80\x00\x00\x00\x00\x00\x00\x00", 9, INT64_MIN},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(cases); i++) {
        char bytes[64] = "\x94" VERSION "\x14"; /* WORKER_HELLO: pid, token */
        trpi_msg msg;
        trp_error err;
        memcpy(bytes + 3, cases[i].bytes, cases[i].size);
        bytes[3 + cases[i].size] = 7;
        assert_int_equal(decode(bytes, 4 + cases[i].size, &msg, &err), TRP_OK);
        assert_true(msg.worker_hello.pid == cases[i].value);
        assert_int_equal(decode_gone(cases[i].bytes, cases[i].size, &msg, &err), TRP_EPROTOCOL);
        assert_string_equal(err.message,
                            "decode PID_GONE.client: expected a number that is not negative");
    }
}

/* ---- What is refused ---- */

static void every_message_cut_anywhere_is_refused(void **state) {
    for (size_t i = 0; i < SAMPLE_TYPES; i++) {
        trpi_msg msg, unused;
        sample_message(sample_types[i], 3, &arena, &msg);
        encode(&msg);
        for (size_t size = 0; size < frame.size; size++) {
            /* A copy of just that size, so that a sanitizer sees each byte read beyond it. */
            void *cut = malloc(size > 0 ? size : 1);
            memcpy(cut, frame.data, size);
            assert_int_equal(decode(cut, size, &unused, NULL), TRP_EPROTOCOL);
            free(cut);
        }
        assert_int_equal(trp_buf_append(&frame, "\x00", 1), TRP_OK);
        trp_error err;
        assert_int_equal(decode(frame.data, frame.size, &unused, &err), TRP_EPROTOCOL);
        assert_non_null(strstr(err.message, "1 bytes too many"));
        assert_non_null(strstr(err.message, trpi_msg_name(sample_types[i])));
        trpi_arena_reset(&arena);
    }
}

static void another_version_is_refused_with_both_versions(void **state) {
    trpi_msg msg;
    trp_error err;
    assert_int_equal(decode("\x93\x07\x16\x05", 4, &msg, &err), TRP_EPROTOCOL);
    assert_non_null(strstr(err.message, "version 7"));
    assert_non_null(strstr(err.message, "this program 2"));
}

static void what_is_no_message_is_refused(void **state) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } cases[] = {
        {"", 0, "decode frame: frame ends early"},
        {"\x01", 1, "decode frame: expected a list"},
        {"\x90", 1, "decode frame: frame ends early"},
        {"\x92\xa1x", 3, "decode frame: expected a whole number"},
        {"\x92" VERSION "\xcd\x03\xe7", 5, "decode frame: no message has number 999"},
        {"\x92" VERSION "\x00", 3, "decode frame: no message has number 0"},
        {"\x92" VERSION "\xcf\x00\x00\x00\x01\x00\x00\x00\x16", 11,
         "decode frame: no message has number 4294967318"},
        {"\x94" VERSION "\x2c\x05\x05", 5, "decode PID_GONE: another number of fields"},
        {"\x92" VERSION "\x2c", 3, "decode PID_GONE: another number of fields"},
        {"\x93" VERSION "\x2c\xa1x", 5, "decode PID_GONE.client: expected a whole number"},
        {"\x93" VERSION "\x2c\xc0", 4, "decode PID_GONE.client: expected a whole number"},
        {"\x93" VERSION "\x2c\xcb\x40\x00\x00\x00\x00\x00\x00\x00", 12,
         "decode PID_GONE.client: expected a whole number"},
        {"\x94" VERSION "\x14\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13,
         "decode WORKER_HELLO.pid: number is too large"},
        {"\x94" VERSION "\x04\x01\x01", 5, "decode HEARTBEAT_ACK.known: expected true or false"},
        {"\x94" VERSION "\x05\x01\x01", 5, "decode NODE_BYE.reason: expected a text"},
        {"\x94" VERSION "\x05\x01\xc4\x01x", 7, "decode NODE_BYE.reason: expected a text"},
        {"\x94" VERSION "\x05\x01\xa3x\0y", 8, "decode NODE_BYE.reason: text contains a NUL"},
        {"\x94" VERSION "\x05\x01\xdb\xff\xff\xff\xff", 9,
         "decode NODE_BYE.reason: longer than the frame"},
        {"\x95" VERSION "\x34\x01\x01\xa1x", 7, "decode SIGNAL.data: expected bytes"},
        {"\x95" VERSION "\x34\x01\x01\xc6\x7f\xff\xff\xff", 10,
         "decode SIGNAL.data: longer than the frame"},
        {"\x94" VERSION "\x08\x01\xdd\xff\xff\xff\xff", 9,
         "decode EXITED.death: list is longer than the frame"},
        {"\x94" VERSION "\x08\x01\x90", 5, "decode EXITED: death must be exactly one"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(cases); i++) {
        trpi_msg msg;
        trp_error err = {0};
        assert_int_equal(decode(cases[i].bytes, cases[i].size, &msg, &err), TRP_EPROTOCOL);
        assert_string_equal(err.message, cases[i].message);
    }
}

static void an_inner_field_is_named_with_those_around_it(void **state) {
    trpi_resource resource = {"cpu", 1};
    trpi_bundle bundle = {&resource, 1};
    trpi_msg msg = {.type = TRPI_MSG_GROUP_CREATE,
                    .group_create = {.bundles = &bundle, .bundles_count = 1}};
    trp_error err;
    encode(&msg);
    /* The amount is the last but one byte; behind it comes `detached`. */
    frame.data[frame.size - 2] = 0xc0;
    assert_int_equal(decode(frame.data, frame.size, &msg, &err), TRP_EPROTOCOL);
    assert_string_equal(err.message,
                        "decode GROUP_CREATE.bundles.resources.amount: expected a whole number");
}

static void a_failed_decode_leaves_the_message_alone(void **state) {
    trpi_msg msg = {.type = TRPI_MSG_PONG, .pong = {.seq = 77}};
    assert_int_equal(decode_gone("\xc0", 1, &msg, NULL), TRP_EPROTOCOL);
    assert_int_equal(msg.type, TRPI_MSG_PONG);
    assert_int_equal(msg.pong.seq, 77);
}

static void a_limit_of_memory_is_kept_and_told(void **state) {
    trpi_arena small = {.limit = 64};
    trpi_msg msg;
    trp_error err;
    sample_message(TRPI_MSG_START, 5, &arena, &msg);
    encode(&msg);
    assert_int_equal(trpi_decode(trp_buf_bytes(&frame), &small, &msg, &err), TRP_ENOMEM);
    trpi_arena_release(&small);
}

static void a_message_that_breaks_its_own_rules_is_refused(void **state) {
    trpi_death death = {.cause = TRP_CAUSE_COUNT};
    trpi_resource negative = {"cpu", -1}, unnamed = {"", 1};
    trpi_bundle bundle = {&negative, 1};
    const trpi_msg bad[] = {
        {.type = TRPI_MSG_EXITED, .exited = {.death = &death, .death_count = 1}},
        {.type = TRPI_MSG_ACTOR_STATE, .actor_state = {.phase = TRP_ACTOR_DEAD + 1}},
        {.type = TRPI_MSG_END, .end = {.cause = TRP_CAUSE_COUNT}},
        {.type = TRPI_MSG_WORKER_FAILED, .worker_failed = {.cause = 1000}},
        {.type = TRPI_MSG_DONE, .done = {.code = TRP_CODE_COUNT}},
        {.type = TRPI_MSG_SPAWNED, .spawned = {.code = UINT64_MAX}},
        {.type = TRPI_MSG_GROUP_STATE, .group_state = {.code = TRP_CODE_COUNT}},
        {.type = TRPI_MSG_KV_VALUE, .kv_value = {.code = TRP_CODE_COUNT}},
        {.type = TRPI_MSG_LISTED, .listed = {.code = TRP_CODE_COUNT}},
        {.type = TRPI_MSG_LOGS_DATA, .logs_data = {.code = TRP_CODE_COUNT}},
        {.type = TRPI_MSG_REPLY, .reply = {.code = TRP_CODE_COUNT}},
        {.type = TRPI_MSG_GROUP_CREATE, .group_create = {.strategy = TRP_STRICT_SPREAD + 1}},
        {.type = TRPI_MSG_GROUP_CREATE, .group_create = {.bundles = &bundle, .bundles_count = 1}},
        {.type = TRPI_MSG_SPAWN, .spawn = {.resources = &negative, .resources_count = 1}},
        {.type = TRPI_MSG_NODE_HELLO, .node_hello = {.resources = &unnamed, .resources_count = 1}},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(bad); i++) {
        trpi_msg msg;
        trp_error err;
        encode(&bad[i]);
        assert_int_equal(decode(frame.data, frame.size, &msg, &err), TRP_EPROTOCOL);
        assert_non_null(strstr(err.message, trpi_msg_name(bad[i].type)));
    }
    const trpi_msg unknown = {.type = TRPI_MSG_ACTOR_STATE,
                              .actor_state = {.phase = TRPI_PHASE_UNKNOWN}};
    assert_null(trpi_msg_invalid(&unknown));
}

/* ---- Names and lines ---- */

static void every_message_has_a_name(void **state) {
    assert_string_equal(trpi_msg_name(TRPI_MSG_SPAWN), "SPAWN");
    assert_string_equal(trpi_msg_name((trpi_msg_type)0), "?");
    assert_string_equal(trpi_msg_name((trpi_msg_type)99999), "?");
}

static void a_line_shows_every_field(void **state) {
    trpi_resource resources[] = {{"cpu", 20000}};
    trpi_msg msg = {.type = TRPI_MSG_SPAWN,
                    .spawn = {.request = 3,
                              .type = "counter",
                              .name = "a b",
                              .resources = resources,
                              .resources_count = 1,
                              .bundle = -1,
                              .args = {"xyz", 3}}};
    char line[1024];
    trpi_msg_print(&msg, line, sizeof(line));
    assert_string_equal(
        line, "SPAWN request=3 type=counter name=\"a b\" resources=[{ name=cpu "
              "amount=20000 }] group=0 bundle=-1 node=0 restarts_max=0 "
              "restart_backoff_ms=0 start_timeout_ms=0 detached=false "
              "get_if_exists=false fail_if_infeasible=false call_retries_max=0 "
              "env=[] args=3B restart=0 restart_window_ms=0 retry_on=[] "
              "liveness_ms=0 exclusive=false max_concurrency=0 max_pending_calls=0 "
              "save_each_call=false gang=0 node_soft=false labels=[] schedule=0 cwd=\"\"");
}

static void a_line_is_cut_to_its_room(void **state) {
    for (size_t i = 0; i < SAMPLE_TYPES; i++) {
        trpi_msg msg;
        sample_message(sample_types[i], 2, &arena, &msg);
        for (size_t size = 1; size < 300; size += 7) {
            char *line = malloc(size);
            trpi_msg_print(&msg, line, size);
            assert_true(strlen(line) < size);
            free(line);
        }
    }
}

#define CLEAN(test) cmocka_unit_test_teardown(test, release)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLEAN(every_message_comes_back_as_it_was),
        CLEAN(every_field_comes_back_by_value),
        CLEAN(another_protocol_has_another_version),
        CLEAN(a_frame_is_what_msgpack_understands),
        CLEAN(a_number_is_taken_in_every_width),
        CLEAN(a_negative_number_is_taken_where_it_may_be),
        CLEAN(every_message_cut_anywhere_is_refused),
        CLEAN(another_version_is_refused_with_both_versions),
        CLEAN(what_is_no_message_is_refused),
        CLEAN(an_inner_field_is_named_with_those_around_it),
        CLEAN(a_failed_decode_leaves_the_message_alone),
        CLEAN(a_limit_of_memory_is_kept_and_told),
        CLEAN(a_message_that_breaks_its_own_rules_is_refused),
        CLEAN(every_message_has_a_name),
        CLEAN(a_line_shows_every_field),
        CLEAN(a_line_is_cut_to_its_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* store_fuzz_test.c: what connects to a store's socket may say anything: the store lives, and goes
 * on serving others. One thread of the store, one process that uses it well, and strangers of the
 * same user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/objects.h"
#include "actors/proc/store_server.h"
#include "core/sys/fdpass.h"
#include "core/wire/codec.h"
#include "tests/lib/cluster.h"

enum { ROUNDS = 30000, CLIENT = 7, STRANGER = 8 };

static trpi_store_server *server;
static trpi_objects *objects;
static int event_fd;
static uint64_t seed = 1;

static uint64_t draw(uint64_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (seed * UINT64_C(0x2545F4914F6CDD1D) >> 20) % below;
}

static trp_code find(void *arg, char *path, size_t size, trp_error *err) {
    trpi_format(path, size, "%s", trpi_store_path(server));
    return TRP_OK;
}

static uint64_t client(void *arg) {
    return CLIENT;
}

/* The store serves well who uses it well. */
static void expect_service(void) {
    trp_object object;
    trp_bytes bytes;
    TEST_OK(trpi_objects_put(objects, trp_bytes_of("what was put"), &object, err));
    TEST_OK(trpi_objects_get(objects, object, 1000, &bytes, err));
    assert_int_equal(bytes.size, 12);
    assert_memory_equal(bytes.data, "what was put", 12);
    trpi_objects_release(objects, object);
    trpi_objects_release(objects, object);
}

/* False when the store has cut it off. */
static bool say(int fd, trp_bytes bytes) {
    int with[] = {STDIN_FILENO, STDERR_FILENO};
    trp_error err;
    return trpi_fd_send(fd, bytes, with, draw(8) == 0 ? 2 : 0, &err) == TRP_OK;
}

static int connect_stranger(void) {
    int fd;
    TEST_OK(trpi_seqpacket_connect(trpi_store_path(server), &fd, err));
    return fd;
}

/* One that has said who it is. */
static int connect_client(void) {
    int fd = connect_stranger();
    trp_buf frame = {0};
    trpi_msg hello = {
        .type = TRPI_MSG_STORE_HELLO,
        .store_hello = {.version = TROUPE_VERSION, .client = STRANGER, .label = "stranger"}};
    TEST_OK(trpi_encode(&hello, &frame, err));
    (void)say(fd, trp_buf_bytes(&frame));
    trp_buf_release(&frame);
    return fd;
}

/* A number of some object, near those that there are, or any. */
static uint64_t some_object(void) {
    switch (draw(4)) {
    case 0:
        return draw(UINT64_MAX);
    case 1:
        return draw(4) << TRPI_OBJECT_NODE_SHIFT | draw(100);
    default:
        return UINT64_C(3) << TRPI_OBJECT_NODE_SHIFT | draw(2000);
    }
}

static uint64_t some_size(void) {
    return draw(3) ? draw(100000) : draw(2) ? UINT64_MAX - draw(3) : draw(UINT64_MAX);
}

/* One of the messages that a process may send, with any content. */
static trpi_msg some_message(void) {
    if (draw(300) == 0) { /* between stores, or of the head: not for this socket */
        return (trpi_msg){.type = draw(2) ? TRPI_MSG_STORE_FETCH : TRPI_MSG_CLIENT_GONE};
    }
    switch (draw(7)) {
    case 0:
        return (trpi_msg){.type = TRPI_MSG_STORE_HELLO,
                          .store_hello = {.version = draw(99) ? TROUPE_VERSION : "none",
                                          .client = draw(50) ? STRANGER + draw(9) : draw(9),
                                          .label = "a stranger whose name is much longer than "
                                                   "anybody has room for, %s %n %d"}};
    case 1:
        return (trpi_msg){.type = TRPI_MSG_STORE_CREATE,
                          .store_create = {.request = draw(9), .size = some_size()}};
    case 2:
        return (trpi_msg){.type = TRPI_MSG_STORE_SEAL, .store_seal = {.object = some_object()}};
    case 3:
        return (trpi_msg){.type = TRPI_MSG_STORE_GET,
                          .store_get = {.object = some_object(), .timeout_ms = some_size()}};
    case 4:
        return (trpi_msg){.type = TRPI_MSG_STORE_HOLD,
                          .store_hold = {.object = some_object(),
                                         .client = draw(3) ? draw(20) : draw(UINT64_MAX)}};
    case 5:
        return (trpi_msg){.type = TRPI_MSG_STORE_RELEASE,
                          .store_release = {.object = some_object(), .count = some_size()}};
    default:
        return (trpi_msg){.type = TRPI_MSG_STORE_INFO_QUERY};
    }
}

static void garbage_cuts_off_only_who_sends_it(void **state) {
    for (int round = 0; round < ROUNDS / 50; round++) {
        int fd = connect_stranger();
        unsigned char noise[300];
        for (size_t i = 0; i < sizeof(noise); i++) {
            noise[i] = (unsigned char)draw(256);
        }
        (void)say(fd, (trp_bytes){noise, 1 + draw(sizeof(noise))});
        close(fd);
    }
    expect_service();
}

static void damaged_messages_do_no_harm(void **state) {
    trp_buf frame = {0};
    int fd = connect_client();
    for (int round = 0; round < ROUNDS; round++) {
        trpi_msg msg = some_message();
        TEST_OK(trpi_encode(&msg, &frame, err));
        frame.data[draw(frame.size)] ^= (unsigned char)(1 << draw(8));
        if (!say(fd, (trp_bytes){frame.data, 1 + draw(frame.size)})) {
            close(fd);
            fd = connect_client();
        }
    }
    close(fd);
    expect_service();
    trp_buf_release(&frame);
}

/* Reads nothing, so that answers pile up, too. */
static void any_order_of_requests_is_answered_or_refused(void **state) {
    trp_buf frame = {0};
    int fd = connect_client();
    for (int round = 0; round < ROUNDS; round++) {
        trpi_msg msg = some_message();
        TEST_OK(trpi_encode(&msg, &frame, err));
        if (!say(fd, trp_buf_bytes(&frame))) {
            close(fd);
            fd = connect_client();
        }
    }
    close(fd);
    expect_service();
    trp_buf_release(&frame);
}

/* By all but this program, which has one session. */
static bool is_unused(void *arg) {
    trpi_store_figures figures = trpi_store_server_figures(server);
    return figures.used == 0 && figures.objects == 0 && figures.sessions == 1;
}

static void strangers_that_are_gone_hold_nothing(void **state) {
    /* What they gave to clients that never were goes with those. */
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_GONE, .client_gone = {.all_but_until = UINT64_MAX}};
    trp_buf frame = {0};
    TEST_OK(trpi_encode(&msg, &frame, err));
    trpi_store_tell(server, trp_buf_bytes(&frame));
    trp_buf_release(&frame);
    assert_true(test_until(is_unused, NULL, 20000));
}

static int start(void **state) {
    trpi_store_options options = {
        .uuid = "fuzz", .capacity = 16 << 20, .descriptors_max = 400, .event_fd = event_fd};
    char uuid[40];
    snprintf(uuid, sizeof(uuid), "fuzz-%d", (int)getpid());
    options.uuid = uuid;
    options.event_fd = event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    TEST_OK(trpi_store_open(&options, &server, err));
    TEST_OK(trpi_store_serve(server, 3, 1, err));
    trpi_objects_options own = {.find = find, .client = client, .label = "driver fuzz"};
    objects = trpi_objects_new(&own);
    expect_service();
    return 0;
}

static int stop(void **state) {
    trpi_objects_free(objects);
    (void)trpi_store_stop(server);
    close(event_fd);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_cuts_off_only_who_sends_it),
        cmocka_unit_test(damaged_messages_do_no_harm),
        cmocka_unit_test(any_order_of_requests_is_answered_or_refused),
        cmocka_unit_test(strangers_that_are_gone_hold_nothing),
    };
    return cmocka_run_group_tests_name("store fuzz", tests, start, stop);
}

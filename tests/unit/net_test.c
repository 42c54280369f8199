/* net_test.c: clock and sockets of core/net. */
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "core/net/clock.h"
#include "core/net/sock.h"
#include "tests/lib/net.h"

#define PATIENCE_MS 10000 /* generous: only a failure waits for it */

static const trp_bytes nobody = {NULL, 0};

/* ---- Clock ---- */

static void the_clock_does_not_run_backwards(void **state) {
    uint64_t before = trpi_now_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = trpi_now_ns();
        assert_true(now >= before);
        before = now;
    }
    assert_true(trpi_wall_ms() > 1600000000000u);
}

static void what_is_left_of_a_deadline_is_rounded_up_and_capped(void **state) {
    uint64_t now = trpi_now_ns();
    assert_int_equal(trpi_left_ms(now), 0);
    assert_int_equal(trpi_left_ms(0), 0);
    int left = trpi_left_ms(trpi_deadline_ns(5000));
    assert_true(left > 4000 && left <= 5000);
    assert_true(trpi_left_ms(trpi_now_ns() + 1000000000) > 0);
    assert_int_equal(trpi_left_ms(UINT64_MAX - 1), INT_MAX);
}

static void for_ever_stays_for_ever(void **state) {
    assert_true(trpi_deadline_ns(UINT64_MAX) == UINT64_MAX);
    assert_true(trpi_deadline_ns(UINT64_MAX / 1000000) == UINT64_MAX);
    assert_int_equal(trpi_left_ms(UINT64_MAX), -1);
}

/* ---- Sockets ---- */

static trpi_net *net;

static int open_net(void **state) {
    return trpi_net_open(&net, NULL) == TRP_OK ? 0 : -1;
}

static int close_net(void **state) {
    test_net_close(net);
    net = NULL;
    return 0;
}

static trpi_sock *open_sock(trpi_sock_kind kind, const char *id) {
    trpi_sock *sock = NULL;
    trp_error err;
    assert_int_equal(trpi_sock_open(net, kind, trp_bytes_of(id), &sock, &err), TRP_OK);
    return sock;
}

static trpi_sock *bound_router(const char *id, char endpoint[128]) {
    trpi_sock *sock = open_sock(TRPI_ROUTER, id);
    trp_error err;
    assert_int_equal(trpi_sock_bind(sock, "tcp://127.0.0.1:*", endpoint, 128, &err), TRP_OK);
    return sock;
}

/* Hears strangers, too, who speak as they like. */
static trpi_sock *bound_mixed(char endpoint[128]) {
    trpi_sock *sock = open_sock(TRPI_ROUTER_MIXED, NULL);
    assert_int_equal(trpi_sock_bind(sock, "tcp://127.0.0.1:*", endpoint, 128, NULL), TRP_OK);
    return sock;
}

static trpi_sock *connected_dealer(const char *id, const char *endpoint) {
    trpi_sock *sock = open_sock(TRPI_DEALER, id);
    assert_int_equal(trpi_sock_connect(sock, endpoint, nobody, NULL), TRP_OK);
    return sock;
}

static void receive(trpi_sock *sock, trpi_packet *packet) {
    uint64_t deadline = trpi_deadline_ns(PATIENCE_MS);
    while (trpi_sock_recv(sock, packet) != TRP_OK) {
        trpi_poll_item item = {.sock = sock};
        int left = trpi_left_ms(deadline);
        assert_true(left > 0);
        (void)!trpi_poll(&item, 1, left);
    }
}

static void assert_bytes(trp_bytes bytes, const char *expected) {
    assert_int_equal(bytes.size, strlen(expected));
    assert_memory_equal(bytes.data, expected, bytes.size);
}

static trp_code send_text(trpi_sock *sock, const char *peer, const char *header, const char *body) {
    return trpi_sock_send(sock, trp_bytes_of(peer), trp_bytes_of(header), trp_bytes_of(body), NULL);
}

static void a_call_and_its_reply_go_through(void **state) {
    char endpoint[128];
    trpi_packet packet;
    trpi_sock *router = bound_router("server", endpoint);
    trpi_sock *dealer = connected_dealer("caller", endpoint);
    assert_int_equal(send_text(dealer, NULL, "call", "arguments"), TRP_OK);
    receive(router, &packet);
    assert_bytes(packet.peer, "caller");
    assert_bytes(packet.header, "call");
    assert_bytes(packet.body, "arguments");
    assert_int_equal(trpi_sock_send(router, packet.peer, trp_bytes_of("reply"), nobody, NULL),
                     TRP_OK);
    trpi_packet_release(&packet);
    receive(dealer, &packet);
    assert_int_equal(packet.peer.size, 0);
    assert_bytes(packet.header, "reply");
    assert_null(packet.body.data);
    trpi_packet_release(&packet);
    trpi_packet_release(&packet);
    assert_int_equal(trpi_sock_recv(dealer, &packet), TRP_ETIMEOUT);
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void routers_reach_each_other_over_a_path(void **state) {
    char path[64], endpoint[128];
    trpi_packet packet;
    snprintf(path, sizeof(path), "ipc:///tmp/net_test_%d", (int)getpid());
    trpi_sock *a = open_sock(TRPI_ROUTER, "a"), *b = open_sock(TRPI_ROUTER, "b");
    assert_int_equal(trpi_sock_bind(a, path, endpoint, sizeof(endpoint), NULL), TRP_OK);
    assert_string_equal(endpoint, path);
    assert_int_equal(trpi_sock_connect(b, path, trp_bytes_of("actor 7"), NULL), TRP_OK);
    assert_int_equal(send_text(b, "actor 7", "hello", NULL), TRP_OK);
    receive(a, &packet);
    assert_bytes(packet.peer, "b");
    trpi_packet_release(&packet);
    assert_int_equal(send_text(a, "b", "welcome", NULL), TRP_OK);
    receive(b, &packet);
    assert_bytes(packet.peer, "actor 7");
    assert_bytes(packet.header, "welcome");
    trpi_packet_release(&packet);
    trpi_sock_forget(b, trp_bytes_of("actor 7"));
    trpi_sock_disconnect(b, path);
    assert_int_equal(send_text(b, "actor 7", "hello", NULL), TRP_ENOTFOUND);
    trpi_sock_close(b);
    trpi_sock_close(a);
    unlink(path + strlen("ipc://")); /* a socket's file stays with whoever owns its directory */
}

static void an_unknown_peer_is_an_error_and_spoils_nothing(void **state) {
    char endpoint[128];
    trpi_packet packet;
    trp_error err;
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_sock *dealer = connected_dealer("known", endpoint);
    assert_int_equal(trpi_sock_send(router, trp_bytes_of("stranger"), trp_bytes_of("header"),
                                    trp_bytes_of("body"), &err),
                     TRP_ENOTFOUND);
    assert_int_equal(send_text(dealer, NULL, "hello", NULL), TRP_OK);
    receive(router, &packet);
    trpi_packet_release(&packet);
    assert_int_equal(send_text(router, "known", "header", "body"), TRP_OK);
    receive(dealer, &packet);
    assert_bytes(packet.header, "header");
    assert_bytes(packet.body, "body");
    trpi_packet_release(&packet);
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void a_dealer_that_nobody_hears_says_so(void **state) {
    trpi_sock *dealer = open_sock(TRPI_DEALER, NULL);
    assert_int_equal(send_text(dealer, NULL, "hello", "body"), TRP_EBUSY);
    trpi_sock_close(dealer);
}

static void a_repeated_id_takes_over(void **state) {
    char endpoint[128];
    trpi_packet packet;
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_sock *first = connected_dealer("same", endpoint);
    assert_int_equal(send_text(first, NULL, "first", NULL), TRP_OK);
    receive(router, &packet);
    trpi_packet_release(&packet);
    trpi_sock *second = connected_dealer("same", endpoint);
    assert_int_equal(send_text(second, NULL, "second", NULL), TRP_OK);
    receive(router, &packet);
    assert_bytes(packet.header, "second");
    trpi_packet_release(&packet);
    assert_int_equal(send_text(router, "same", "to the second", NULL), TRP_OK);
    receive(second, &packet);
    assert_bytes(packet.header, "to the second");
    trpi_packet_release(&packet);
    trpi_sock_close(first);
    trpi_sock_close(second);
    trpi_sock_close(router);
}

static void packets_come_in_the_order_of_sending_whatever_their_size(void **state) {
    char endpoint[128];
    trpi_packet packet;
    static char body[100000];
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_sock *dealer = connected_dealer("d", endpoint);
    for (uint32_t i = 0; i < 3000; i++) {
        trp_bytes header = {&i, sizeof(i)}, bytes = {body, i % 3 == 0 ? i * 33 : i % 50};
        assert_int_equal(trpi_sock_send(dealer, nobody, header, bytes, NULL), TRP_OK);
    }
    for (uint32_t i = 0; i < 3000; i++) {
        receive(router, &packet);
        assert_memory_equal(packet.header.data, &i, sizeof(i));
        assert_int_equal(packet.body.size, i % 3 == 0 ? i * 33 : i % 50);
        trpi_packet_release(&packet);
    }
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void a_packet_with_too_many_frames_is_dropped_and_the_next_one_comes(void **state) {
    char endpoint[128];
    trpi_packet packet;
    trpi_sock *router = bound_mixed(endpoint);
    void *context = zmq_ctx_new(), *raw = zmq_socket(context, ZMQ_DEALER);
    int linger = 0;
    zmq_setsockopt(raw, ZMQ_LINGER, &linger, sizeof(linger));
    assert_int_equal(zmq_connect(raw, endpoint), 0);
    for (int i = 0; i < 9; i++) {
        zmq_send(raw, "x", 1, i < 8 ? ZMQ_SNDMORE : 0);
    }
    zmq_send(raw, "good", 4, 0);
    receive(router, &packet);
    assert_bytes(packet.header, "good");
    trpi_packet_release(&packet);
    zmq_close(raw);
    zmq_ctx_term(context);
    trpi_sock_close(router);
}

/* A small body shares the header's frame, whatever bytes the header has; what claims to be such a
 * frame and is not whole is dropped. */
static void a_small_body_shares_the_frame_of_any_header(void **state) {
    char longer[301] = "\xc1";
    const char *const headers[] = {"plain", "\xc1\x01\x02", longer, ""};
    static char large[100000];
    memset(longer + 1, 'h', sizeof(longer) - 2);
    const trp_bytes bodies[] = {{NULL, 0}, {"b", 1}, {large, 4096}, {large, sizeof(large)}};
    char endpoint[128];
    trpi_packet packet;
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_sock *dealer = connected_dealer("d", endpoint);
    for (size_t i = 0; i < 16; i++) {
        assert_int_equal(
            trpi_sock_send(dealer, nobody, trp_bytes_of(headers[i / 4]), bodies[i % 4], NULL),
            TRP_OK);
        receive(router, &packet);
        assert_bytes(packet.header, headers[i / 4]);
        assert_int_equal(packet.body.size, bodies[i % 4].size);
        trpi_packet_release(&packet);
    }
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void what_no_socket_takes_in_is_not_sent(void **state) {
    trp_error err = {0};
    trpi_sock *sock = NULL;
    assert_int_equal(trpi_sock_open(net, TRPI_DEALER, (trp_bytes){0}, &sock, &err), TRP_OK);
    assert_int_equal(trpi_sock_connect(sock, "tcp://127.0.0.1:9", (trp_bytes){0}, &err), TRP_OK);
    trp_bytes body = {"", ((size_t)512 << 20) + 1}; /* refused before it is looked at */
    assert_int_equal(trpi_sock_send(sock, (trp_bytes){0}, trp_bytes_of("header"), body, &err),
                     TRP_EINVALID);
    assert_non_null(strstr(err.message, "at most 536870912"));
    trpi_sock_close(sock);
}

static void a_damaged_joined_frame_is_dropped(void **state) {
    static const char *const damaged[] = {"\xc1", "\xc1\xff",  "\xc1\x09h",
                                          "\xc0", "\xc0\x02h", "\xc0\x01h\x05"};
    char endpoint[128];
    trpi_packet packet;
    trpi_sock *router = bound_mixed(endpoint);
    void *context = zmq_ctx_new(), *raw = zmq_socket(context, ZMQ_DEALER);
    int linger = 0;
    zmq_setsockopt(raw, ZMQ_LINGER, &linger, sizeof(linger));
    assert_int_equal(zmq_connect(raw, endpoint), 0);
    for (size_t i = 0; i < 6; i++) {
        zmq_send(raw, damaged[i], strlen(damaged[i]), 0);
    }
    zmq_send(raw, "\xc0\x01h\x01", 4, ZMQ_SNDMORE); /* a batch has no body of its own */
    zmq_send(raw, "body", 4, 0);
    zmq_send(raw, "good", 4, 0);
    receive(router, &packet);
    assert_bytes(packet.header, "good");
    trpi_packet_release(&packet);
    zmq_close(raw);
    zmq_ctx_term(context);
    trpi_sock_close(router);
}

static void add(trpi_batch *batch, trp_bytes header, trp_bytes body) {
    assert_true(trpi_batch_takes(batch, header, body));
    assert_int_equal(trpi_batch_add(batch, header, body), TRP_OK);
}

/* One by one, in their place among the others, and each stays whole while later ones come. */
static void packets_of_a_batch_come_one_by_one(void **state) {
    static const char *const headers[] = {"first", "\xc0 marked", "\xc1", "", "last"};
    char endpoint[128], large[4096];
    trpi_batch batch = {0};
    trpi_packet packets[5], moved, packet;
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_sock *dealer = connected_dealer("d", endpoint);
    trpi_poll_item item = {.sock = router};
    memset(large, 'x', sizeof(large));
    for (size_t i = 0; i < 5; i++) {
        add(&batch, trp_bytes_of(headers[i]), (trp_bytes){large, i == 2 ? sizeof(large) : i});
    }
    assert_int_equal(send_text(dealer, NULL, "before", NULL), TRP_OK);
    assert_int_equal(trpi_sock_send_batch(dealer, nobody, &batch, NULL), TRP_OK);
    assert_int_equal(batch.count, 0);
    assert_int_equal(send_text(dealer, NULL, "behind", NULL), TRP_OK);
    receive(router, &packet);
    assert_bytes(packet.header, "before");
    assert_false(trpi_sock_has_more(router));
    trpi_packet_release(&packet);
    for (size_t i = 0; i < 5; i++) {
        receive(router, &packets[i]);
        assert_true(trpi_sock_has_more(router) == (i < 4));
        assert_int_equal(trpi_poll(&item, 1, i < 4 ? 0 : PATIENCE_MS), TRP_OK);
    }
    receive(router, &packet);
    assert_bytes(packet.header, "behind");
    trpi_packet_release(&packet);
    for (size_t i = 0; i < 5; i++) {
        trpi_packet_move(&moved, &packets[i]);
        assert_bytes(moved.peer, "d");
        assert_bytes(moved.header, headers[i]);
        assert_int_equal(moved.body.size, i == 2 ? sizeof(large) : i);
        assert_true(moved.body.size == 0 || memcmp(moved.body.data, large, moved.body.size) == 0);
        trpi_packet_release(&moved);
    }
    trpi_batch_release(&batch);
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void a_small_batch_goes_to_the_peer_that_is_named_or_fails_whole(void **state) {
    char endpoint[128];
    trpi_batch batch = {0};
    trpi_packet packet;
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_sock *dealer = connected_dealer("d", endpoint);
    assert_int_equal(send_text(dealer, NULL, "hello", NULL), TRP_OK);
    receive(router, &packet);
    add(&batch, trp_bytes_of("a"), nobody);
    assert_int_equal(trpi_sock_send_batch(router, trp_bytes_of("stranger"), &batch, NULL),
                     TRP_ENOTFOUND);
    assert_int_equal(batch.count, 0);
    add(&batch, trp_bytes_of("b"), nobody);
    assert_int_equal(trpi_sock_send_batch(router, packet.peer, &batch, NULL), TRP_OK);
    trpi_packet_release(&packet);
    receive(dealer, &packet);
    assert_bytes(packet.header, "b");
    assert_null(packet.body.data);
    trpi_packet_release(&packet);
    add(&batch, trp_bytes_of("left behind"), nobody);
    assert_int_equal(trpi_sock_send_batch(dealer, nobody, &batch, NULL), TRP_OK);
    trpi_batch_release(&batch);
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void a_batch_that_is_full_takes_no_more(void **state) {
    static const char large[5000];
    trpi_batch batch = {0};
    unsigned added = 0;
    assert_false(trpi_batch_takes(&batch, trp_bytes_of("h"), (trp_bytes){large, sizeof(large)}));
    assert_false(trpi_batch_takes(&batch, (trp_bytes){large, sizeof(large)}, nobody));
    for (; trpi_batch_takes(&batch, trp_bytes_of("h"), nobody); added++) {
        add(&batch, trp_bytes_of("h"), nobody);
    }
    assert_int_equal(added, TRPI_BATCH_MAX);
    trpi_batch_clear(&batch);
    for (added = 0; trpi_batch_takes(&batch, trp_bytes_of("h"), (trp_bytes){large, 1000});
         added++) {
        add(&batch, trp_bytes_of("h"), (trp_bytes){large, 1000});
    }
    assert_in_range(batch.bytes.size, TRPI_BATCH_MAX_BYTES - 1010, TRPI_BATCH_MAX_BYTES);
    trpi_batch_release(&batch);
}

static void a_moved_packet_points_at_its_own_frames(void **state) {
    char endpoint[128], large[200];
    trpi_packet packet, moved = {0};
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_sock *dealer = connected_dealer("d", endpoint);
    memset(large, 'x', sizeof(large));
    assert_int_equal(trpi_sock_send(dealer, nobody, trp_bytes_of("small"),
                                    (trp_bytes){large, sizeof(large)}, NULL),
                     TRP_OK);
    receive(router, &packet);
    trpi_packet_move(&moved, &packet);
    assert_int_equal(packet.frame_count, 0);
    memset(&packet, 0xee, sizeof(packet));
    assert_bytes(moved.peer, "d");
    assert_bytes(moved.header, "small");
    assert_int_equal(moved.body.size, sizeof(large));
    assert_memory_equal(moved.body.data, large, sizeof(large));
    trpi_packet_release(&moved);
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void a_bad_endpoint_says_what_to_change(void **state) {
    char endpoint[128], path[200] = "ipc:///tmp/";
    trp_error err;
    trpi_sock *taken = bound_router(NULL, endpoint), *sock = open_sock(TRPI_ROUTER, NULL);
    assert_int_equal(trpi_sock_bind(sock, endpoint, NULL, 0, &err), TRP_EIO);
    assert_non_null(strstr(err.message, "choose another port"));
    memset(path + strlen(path), 'x', 120);
    assert_int_equal(trpi_sock_bind(sock, path, NULL, 0, &err), TRP_EIO);
    assert_non_null(strstr(err.message, "107 characters"));
    assert_int_equal(trpi_sock_connect(sock, path, trp_bytes_of("p"), &err), TRP_EIO);
    assert_int_equal(trpi_sock_bind(sock, "nonsense", NULL, 0, &err), TRP_EIO);
    assert_non_null(strstr(err.message, "tcp://HOST:PORT"));
    assert_int_equal(trpi_sock_bind(sock, "ipc:///nowhere/at/all", NULL, 0, &err), TRP_EIO);
    assert_non_null(strstr(err.message, "/nowhere/at/all"));
    trpi_sock_close(sock);
    trpi_sock_close(taken);
}

static void a_poll_tells_sockets_and_descriptors_apart(void **state) {
    char endpoint[128];
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_poll_item items[] = {{.sock = router}, {.fd = fds[0]}};
    assert_int_equal(trpi_poll(items, 2, 0), TRP_ETIMEOUT);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(trpi_poll(items, 2, PATIENCE_MS), TRP_OK);
    assert_false(items[0].ready);
    assert_true(items[1].ready);
    char byte;
    assert_int_equal(read(fds[0], &byte, 1), 1);
    trpi_sock *dealer = connected_dealer("d", endpoint);
    assert_int_equal(send_text(dealer, NULL, "hello", NULL), TRP_OK);
    assert_int_equal(trpi_poll(items, 2, PATIENCE_MS), TRP_OK);
    assert_true(items[0].ready);
    assert_false(items[1].ready);
    close(fds[1]);
    trpi_poll_item ended = {.fd = fds[0]};
    assert_int_equal(trpi_poll(&ended, 1, PATIENCE_MS), TRP_OK);
    assert_true(ended.ready);
    close(fds[0]);
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

#define ROUNDS 3000

static void *echo(void *sock) {
    for (int i = 0; i < 2 * ROUNDS; i++) {
        trpi_packet packet;
        receive(sock, &packet);
        assert_int_equal(trpi_sock_send(sock, packet.peer, packet.header, packet.body, NULL),
                         TRP_OK);
        trpi_packet_release(&packet);
    }
    return NULL;
}

/* Each send may take in what tells the socket of the last reply: a poll that trusted the descriptor
 * alone would then sleep on a reply that is there. */
static void a_reply_that_came_in_while_sending_is_not_slept_on(void **state) {
    char endpoint[128];
    pthread_t thread;
    trpi_packet packet;
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_sock *dealer = connected_dealer("d", endpoint);
    assert_int_equal(pthread_create(&thread, NULL, echo, router), 0);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(send_text(dealer, NULL, "one", NULL), TRP_OK);
        int early = trpi_sock_recv(dealer, &packet) == TRP_OK;
        if (early) {
            trpi_packet_release(&packet);
        }
        for (volatile int spin = i % 50 * 400; spin > 0; spin--) {
        }
        assert_int_equal(send_text(dealer, NULL, "two", NULL), TRP_OK);
        for (int left = 2 - early; left > 0; left--) {
            receive(dealer, &packet);
            trpi_packet_release(&packet);
        }
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void a_poll_that_is_woken_for_nothing_keeps_its_deadline(void **state) {
    char endpoint[128];
    trpi_sock *router = bound_router(NULL, endpoint);
    trpi_poll_item item = {.sock = router};
    /* A peer that connects and says nothing is news for ZeroMQ only. */
    trpi_sock *silent = connected_dealer("silent", endpoint);
    uint64_t start = trpi_now_ns();
    assert_int_equal(trpi_poll(&item, 1, 200), TRP_ETIMEOUT);
    assert_true(trpi_now_ns() - start >= 199000000);
    trpi_sock_close(silent);
    trpi_sock_close(router);
}

static void closing_nothing_is_fine(void **state) {
    trpi_sock_close(NULL);
    trpi_net_close(NULL);
    trpi_packet packet = {0};
    trpi_packet_release(&packet);
}

#define WITH_NET(test) cmocka_unit_test_setup_teardown(test, open_net, close_net)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_does_not_run_backwards),
        cmocka_unit_test(what_is_left_of_a_deadline_is_rounded_up_and_capped),
        cmocka_unit_test(for_ever_stays_for_ever),
        WITH_NET(a_call_and_its_reply_go_through),
        WITH_NET(routers_reach_each_other_over_a_path),
        WITH_NET(an_unknown_peer_is_an_error_and_spoils_nothing),
        WITH_NET(a_dealer_that_nobody_hears_says_so),
        WITH_NET(a_repeated_id_takes_over),
        WITH_NET(packets_come_in_the_order_of_sending_whatever_their_size),
        WITH_NET(a_packet_with_too_many_frames_is_dropped_and_the_next_one_comes),
        WITH_NET(a_small_body_shares_the_frame_of_any_header),
        WITH_NET(what_no_socket_takes_in_is_not_sent),
        WITH_NET(a_damaged_joined_frame_is_dropped),
        WITH_NET(packets_of_a_batch_come_one_by_one),
        WITH_NET(a_small_batch_goes_to_the_peer_that_is_named_or_fails_whole),
        cmocka_unit_test(a_batch_that_is_full_takes_no_more),
        WITH_NET(a_moved_packet_points_at_its_own_frames),
        WITH_NET(a_bad_endpoint_says_what_to_change),
        WITH_NET(a_poll_tells_sockets_and_descriptors_apart),
        WITH_NET(a_reply_that_came_in_while_sending_is_not_slept_on),
        WITH_NET(a_poll_that_is_woken_for_nothing_keeps_its_deadline),
        cmocka_unit_test(closing_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

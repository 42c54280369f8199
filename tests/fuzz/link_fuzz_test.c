/* link_fuzz_test.c: strangers that speak the language of links, and say anything in it: wild lives
 * and numbers, damaged batches, too many frames. A socket lives, its links keep their invariants,
 * and peers that mean it lose nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <zmq.h>

#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/net/sock_parts.h"
#include "tests/fuzz/mutate.h"
#include "tests/lib/net.h"

enum { ROUNDS = 20000, STRANGERS = 4, BYTES_MAX = 512, PATIENCE_MS = 20000 };

static const trp_bytes nobody = {NULL, 0};
static trpi_net *net;
static mutator dice;
static uint64_t deadline_ns;

static int set_up(void **state) {
    dice.state = fuzz_setting("TROUPE_FUZZ_SEED", 1);
    trpi_config_set(TRPI_CONFIG_LINK_PROBE_MS, 20);
    deadline_ns = trpi_deadline_ns(PATIENCE_MS);
    return trpi_net_open(&net, NULL) == TRP_OK ? 0 : -1;
}

static int tear_down(void **state) {
    test_net_close(net);
    return 0;
}

/* ---- What strangers say ---- */

/* A number near one of use, or any. */
static uint32_t draw_number(const uint32_t near[], size_t count) {
    uint32_t any = (uint32_t)mutator_next(&dice);
    return mutator_below(&dice, 4) == 0 ? any : near[mutator_below(&dice, count)] + any % 4 - 1;
}

/* `link`: of the socket that is spoken to, so that some of it is believed; or NULL. */
static void draw_stamp(const trpi_link *link, unsigned char *out) {
    static const trpi_link none = {.mine = 7, .peer = 8, .next = 1, .expected = 1};
    const trpi_link *about = link != NULL ? link : &none;
    uint32_t lives[] = {about->mine, about->peer, about->born, 0};
    uint32_t numbers[] = {(uint32_t)about->next, (uint32_t)about->expected,
                          (uint32_t)about->unconfirmed, 0, UINT32_MAX};
    bool is_apt = mutator_below(&dice, 2) == 0; /* of this link, as far as lives go */
    trpi_stamp stamp = {
        .kind = (trpi_link_kind)mutator_below(&dice, 4),
        .is_open = mutator_below(&dice, 3) == 0,
        .has_gap = mutator_below(&dice, 4) == 0,
        .from = is_apt ? about->peer : draw_number(lives, TRPI_COUNTOF(lives)),
        .to = is_apt ? about->mine : draw_number(lives, TRPI_COUNTOF(lives)),
        .seq = draw_number(numbers, TRPI_COUNTOF(numbers)),
        .ack = draw_number(numbers, TRPI_COUNTOF(numbers)),
    };
    trpi_stamp_put(out, &stamp);
}

/* A packet, joined or a batch or neither, with damage or without. */
static size_t draw_rest(unsigned char *out, size_t room) {
    char text[64];
    memset(text, 'x', sizeof(text));
    trp_bytes header = {text, mutator_below(&dice, sizeof(text))};
    trp_bytes body = {text, 1 + mutator_below(&dice, sizeof(text) - 1)};
    size_t size = 0;
    trpi_batch batch = {0};
    switch (mutator_below(&dice, 3)) {
    case 0:
        size = trpi_joined_size(header, body);
        trpi_join(out, header, body);
        break;
    case 1:
        for (int i = 0; i < 3; i++) {
            assert_int_equal(trpi_batch_add(&batch, header, i == 1 ? nobody : body), TRP_OK);
        }
        size = batch.bytes.size;
        memcpy(out, batch.bytes.data, size);
        trpi_batch_release(&batch);
        break;
    default:
        memcpy(out, text, size = header.size);
    }
    return mutator_below(&dice, 2) == 0 ? mutate(&dice, out, size, room) : size;
}

/* One message, to `peer` when the stranger is a ROUTER. */
static void say(void *stranger, const void *peer, size_t peer_size, const trpi_link *link) {
    unsigned char frame[BYTES_MAX];
    size_t stamped = mutator_below(&dice, 8) == 0 ? 0 : TRPI_STAMP_SIZE;
    int more = (int)mutator_below(&dice, 8); /* frames behind the first one: mostly none */
    more = more < 4 ? more : 0;
    if (stamped > 0) {
        draw_stamp(link, frame);
    }
    size_t size = stamped + draw_rest(frame + stamped, sizeof(frame) - stamped);
    if (peer != NULL && zmq_send(stranger, peer, peer_size, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        return; /* its queue is full, or it is not there yet */
    }
    if (zmq_send(stranger, frame, size, ZMQ_DONTWAIT | (more > 0 ? ZMQ_SNDMORE : 0)) < 0) {
        return;
    }
    for (; more > 0; more--) {
        size_t length = mutator_below(&dice, 3) * 10;
        (void)!zmq_send(stranger, frame, length, ZMQ_DONTWAIT | (more > 1 ? ZMQ_SNDMORE : 0));
    }
}

static void hush(void *stranger) {
    char bytes[16];
    while (zmq_recv(stranger, bytes, sizeof(bytes), ZMQ_DONTWAIT) >= 0) {
    }
}

/* ---- What must hold ---- */

static void expect_sound(trpi_sock *sock) {
    const trpi_linked *linked = NULL;
    while ((linked = trpi_links_next(&sock->links, linked)) != NULL) {
        const char *broken = trpi_link_check(&linked->link);
        if (broken != NULL) {
            fail_msg("%s", broken);
        }
        assert_int_equal(linked->window.count, linked->link.next - linked->link.unconfirmed);
    }
}

/* Reads all that came as its owner would: to the last byte, and once more after a move. */
static void read_all(trpi_sock *sock, uint32_t *count, trp_bytes friendly) {
    trpi_packet packet, moved;
    while (trpi_sock_recv(sock, &packet) == TRP_OK) {
        volatile unsigned sum = 0;
        memset(&moved, 0, sizeof(moved));
        trpi_packet_move(&moved, &packet);
        for (size_t i = 0; i < moved.header.size; i++) {
            sum += ((const unsigned char *)moved.header.data)[i];
        }
        for (size_t i = 0; i < moved.body.size; i++) {
            sum += ((const unsigned char *)moved.body.data)[i];
        }
        (void)sum; /* read for the sanitizers' sake */
        if (friendly.size > 0 && moved.peer.size == friendly.size &&
            memcmp(moved.peer.data, friendly.data, friendly.size) == 0) {
            uint32_t number;
            assert_int_equal(moved.header.size, sizeof(number));
            memcpy(&number, moved.header.data, sizeof(number));
            assert_int_equal(number, *count);
            ++*count;
        }
        trpi_packet_release(&moved);
    }
}

/* ---- The tests ---- */

static void *stranger_to(void *context, int kind, const char *id, const char *endpoint) {
    void *stranger = zmq_socket(context, kind);
    int zero = 0;
    assert_non_null(stranger);
    assert_int_equal(zmq_setsockopt(stranger, ZMQ_LINGER, &zero, sizeof(zero)), 0);
    if (id != NULL) {
        assert_int_equal(zmq_setsockopt(stranger, ZMQ_ROUTING_ID, id, strlen(id)), 0);
        assert_int_equal(zmq_connect(stranger, endpoint), 0);
    }
    return stranger;
}

static const trpi_link *link_with(trpi_sock *sock, const char *peer) {
    trpi_linked *linked = trpi_sock_linked(sock, trp_bytes_of(peer));
    return linked != NULL ? &linked->link : NULL;
}

/* Strangers speak to a bound ROUTER, and a friend sends numbers in between. */
static void speak_to_router(trpi_sock_kind kind) {
    static const char *const names[STRANGERS] = {"one", "two", "three", "four"};
    const trp_bytes friendly = trp_bytes_of("friend");
    void *context = zmq_ctx_new(), *strangers[STRANGERS];
    char endpoint[128];
    trpi_sock *router, *friend_sock;
    uint32_t sent = 0, received = 0;
    assert_int_equal(trpi_sock_open(net, kind, nobody, &router, NULL), TRP_OK);
    assert_int_equal(trpi_sock_bind(router, "tcp://127.0.0.1:*", endpoint, sizeof(endpoint), NULL),
                     TRP_OK);
    assert_int_equal(trpi_sock_open(net, TRPI_DEALER, friendly, &friend_sock, NULL), TRP_OK);
    assert_int_equal(trpi_sock_connect(friend_sock, endpoint, nobody, NULL), TRP_OK);
    for (int i = 0; i < STRANGERS; i++) {
        strangers[i] = stranger_to(context, ZMQ_DEALER, names[i], endpoint);
    }
    uint64_t rounds = fuzz_setting("TROUPE_FUZZ_ROUNDS", ROUNDS);
    for (uint64_t round = 0; round < rounds || received < sent; round++) {
        trpi_poll_item items[] = {{.sock = router}, {.sock = friend_sock}};
        size_t i = mutator_below(&dice, STRANGERS);
        const trpi_link *link = link_with(router, names[i]);
        assert_true(trpi_now_ns() < deadline_ns || rounds > ROUNDS);
        if (round < rounds) {
            say(strangers[i], NULL, 0, link);
            hush(strangers[i]);
        }
        if (round < rounds && round % 10 == 0 && sent - received < 100) {
            trp_bytes header = {&sent, sizeof(sent)};
            assert_int_equal(trpi_sock_send(friend_sock, nobody, header, nobody, NULL), TRP_OK);
            sent++;
        }
        if (link != NULL &&
            mutator_below(&dice, 4) == 0) { /* so that there is something unconfirmed */
            (void)!trpi_sock_send(router, trp_bytes_of(names[i]), trp_bytes_of("answer"), nobody,
                                  NULL);
        }
        if (round % 8 == 0 || round >= rounds) {
            (void)!trpi_poll(items, TRPI_COUNTOF(items), round < rounds ? 0 : 20);
            read_all(router, &received, friendly);
            read_all(friend_sock, NULL, nobody);
            expect_sound(router);
        }
    }
    assert_true(received > 0);
    for (int i = 0; i < STRANGERS; i++) {
        zmq_close(strangers[i]);
    }
    trpi_sock_close(friend_sock);
    trpi_sock_close(router);
    zmq_ctx_term(context);
}

static void a_router_survives_strangers(void **state) {
    speak_to_router(TRPI_ROUTER);
}

static void a_router_that_takes_both_kinds_survives_strangers(void **state) {
    speak_to_router(TRPI_ROUTER_MIXED);
}

/* What it connected to is not what it took it for. */
static void a_dealer_survives_whom_it_asks(void **state) {
    void *context = zmq_ctx_new();
    void *stranger = stranger_to(context, ZMQ_ROUTER, NULL, NULL);
    char endpoint[128];
    size_t size = sizeof(endpoint);
    trpi_sock *dealer;
    assert_int_equal(zmq_bind(stranger, "tcp://127.0.0.1:*"), 0);
    assert_int_equal(zmq_getsockopt(stranger, ZMQ_LAST_ENDPOINT, endpoint, &size), 0);
    assert_int_equal(trpi_sock_open(net, TRPI_DEALER, trp_bytes_of("asks"), &dealer, NULL), TRP_OK);
    assert_int_equal(trpi_sock_connect(dealer, endpoint, nobody, NULL), TRP_OK);
    uint64_t rounds = fuzz_setting("TROUPE_FUZZ_ROUNDS", ROUNDS);
    for (uint64_t round = 0; round < rounds; round++) {
        trpi_poll_item item = {.sock = dealer};
        trp_bytes peer;
        say(stranger, "asks", 4, link_with(dealer, ""));
        hush(stranger);
        if (round % 8 == 0) {
            (void)!trpi_sock_send(dealer, nobody, trp_bytes_of("question"), nobody, NULL);
            (void)!trpi_poll(&item, 1, 0);
            read_all(dealer, NULL, nobody);
            (void)trpi_sock_take_void(dealer, &peer);
            expect_sound(dealer);
        }
    }
    zmq_close(stranger);
    trpi_sock_close(dealer);
    zmq_ctx_term(context);
}

#define FUZZ_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        FUZZ_TEST(a_router_survives_strangers),
        FUZZ_TEST(a_router_that_takes_both_kinds_survives_strangers),
        FUZZ_TEST(a_dealer_survives_whom_it_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

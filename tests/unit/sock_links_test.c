/* sock_links_test.c: links over real sockets: messages that are lost and repeated, connections that
 * break, peers that come back as somebody else. */
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

#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/net/sock_parts.h"
#include "tests/lib/net.h"
#include "tests/lib/proxy.h"

#define PATIENCE_MS 20000 /* generous: only a failure waits for it */
#define LARGE_BYTES 100000

static const trp_bytes nobody = {NULL, 0};
static trpi_net *net;
static uint64_t deadline_ns;

static int set_up(void **state) {
    trpi_config_set(TRPI_CONFIG_LINK_PROBE_MS, 20);
    deadline_ns = trpi_deadline_ns(PATIENCE_MS);
    return trpi_net_open(&net, NULL) == TRP_OK ? 0 : -1;
}

static void set_faults(unsigned drop, unsigned repeat) {
    trpi_config_set(TRPI_CONFIG_FAULT_DROP_PERMILLE, drop);
    trpi_config_set(TRPI_CONFIG_FAULT_REPEAT_PERMILLE, repeat);
}

static int tear_down(void **state) {
    set_faults(0, 0);
    test_net_close(net);
    return 0;
}

static trpi_sock *open_sock(trpi_sock_kind kind, const char *id) {
    trpi_sock *sock = NULL;
    assert_int_equal(trpi_sock_open(net, kind, trp_bytes_of(id), &sock, NULL), TRP_OK);
    return sock;
}

static trpi_sock *bound(trpi_sock_kind kind, char endpoint[128]) {
    trpi_sock *sock = open_sock(kind, NULL);
    const char *where = endpoint[0] != '\0' ? endpoint : "tcp://127.0.0.1:*";
    char wanted[128];
    snprintf(wanted, sizeof(wanted), "%s", where);
    assert_int_equal(trpi_sock_bind(sock, wanted, endpoint, 128, NULL), TRP_OK);
    return sock;
}

static trpi_sock *connected(trpi_sock_kind kind, const char *id, const char *endpoint) {
    trpi_sock *sock = open_sock(kind, id);
    assert_int_equal(trpi_sock_connect(sock, endpoint, nobody, NULL), TRP_OK);
    return sock;
}

/* ---- Numbered packets, both ways ---- */

typedef struct flow {
    trpi_sock *from, *to;
    trp_bytes peer; /* for a ROUTER */
    uint32_t sent, received, total;
    bool in_batches;
} flow;

static char large[LARGE_BYTES];

static void send_some(flow *f) {
    trpi_batch batch = {0};
    for (int i = 0; i < 7 && f->sent < f->total; i++) {
        trp_bytes header = {&f->sent, sizeof(f->sent)};
        if (f->in_batches) {
            assert_int_equal(trpi_batch_add(&batch, header, nobody), TRP_OK);
        } else {
            trp_bytes body = {large, f->sent % 50 == 0 ? LARGE_BYTES : f->sent % 40};
            assert_int_equal(trpi_sock_send(f->from, f->peer, header, body, NULL), TRP_OK);
        }
        f->sent++;
    }
    if (batch.count > 0) {
        assert_int_equal(trpi_sock_send_batch(f->from, f->peer, &batch, NULL), TRP_OK);
    }
    trpi_batch_release(&batch);
}

static void receive_some(flow *f) {
    trpi_packet packet;
    while (trpi_sock_recv(f->to, &packet) == TRP_OK) {
        uint32_t number;
        assert_int_equal(packet.header.size, sizeof(number));
        memcpy(&number, packet.header.data, sizeof(number));
        assert_int_equal(number, f->received);
        if (!f->in_batches) {
            assert_int_equal(packet.body.size, number % 50 == 0 ? LARGE_BYTES : number % 40);
        }
        f->received++;
        trpi_packet_release(&packet);
    }
}

/* Until all has come; meddle: something to do in between. */
static void run(flow flows[2], void (*meddle)(void *arg), void *arg) {
    while (flows[0].received < flows[0].total || flows[1].received < flows[1].total) {
        trpi_poll_item items[] = {{.sock = flows[0].to}, {.sock = flows[1].to}};
        assert_true(trpi_now_ns() < deadline_ns);
        for (int i = 0; i < 2; i++) {
            if (flows[i].sent - flows[i].received < 300) {
                send_some(&flows[i]);
            }
        }
        (void)!trpi_poll(items, 2, 1);
        receive_some(&flows[0]);
        receive_some(&flows[1]);
        if (meddle != NULL) {
            meddle(arg);
        }
    }
}

/* The next packet of `sock`. Whoever sent it is busy with its link only, and gets none itself. */
static void wait_for(trpi_sock *sock, trpi_sock *other, trpi_packet *ret_packet) {
    while (trpi_sock_recv(sock, ret_packet) != TRP_OK) {
        trpi_packet none;
        trpi_poll_item items[] = {{.sock = sock}, {.sock = other}};
        assert_true(trpi_now_ns() < deadline_ns);
        (void)!trpi_poll(items, 2, 100);
        assert_int_equal(trpi_sock_recv(other, &none), TRP_ETIMEOUT);
    }
}

static void receive(trpi_sock *sock, trpi_sock *other, const char *header) {
    trpi_packet packet;
    wait_for(sock, other, &packet);
    assert_int_equal(packet.header.size, strlen(header));
    assert_memory_equal(packet.header.data, header, strlen(header));
    trpi_packet_release(&packet);
}

/* The ROUTER hears the DEALER once, and can answer from then on. */
static void introduce(trpi_sock *dealer, trpi_sock *router) {
    assert_int_equal(trpi_sock_send(dealer, nobody, trp_bytes_of("hello"), nobody, NULL), TRP_OK);
    receive(router, dealer, "hello");
}

/* ---- Tests ---- */

static void exchange_under_faults(trpi_sock_kind kind, bool in_batches) {
    char endpoint[128] = "";
    set_faults(100, 100);
    trpi_sock *router = bound(kind, endpoint);
    trpi_sock *dealer = connected(TRPI_DEALER, "d", endpoint);
    introduce(dealer, router);
    flow flows[2] = {{.from = dealer, .to = router, .total = 3000, .in_batches = in_batches},
                     {.from = router,
                      .to = dealer,
                      .peer = trp_bytes_of("d"),
                      .total = 3000,
                      .in_batches = in_batches}};
    run(flows, NULL, NULL);
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void what_is_lost_or_repeated_comes_once_and_in_order(void **state) {
    exchange_under_faults(TRPI_ROUTER, false);
    exchange_under_faults(TRPI_ROUTER_MIXED, true);
}

static void a_connecting_router_has_links_too(void **state) {
    char endpoint[128] = "";
    set_faults(100, 100);
    trpi_sock *server = bound(TRPI_ROUTER, endpoint), *caller = open_sock(TRPI_ROUTER, "caller");
    trp_bytes actor = trp_bytes_of("actor 7");
    assert_int_equal(trpi_sock_connect(caller, endpoint, actor, NULL), TRP_OK);
    assert_int_equal(trpi_sock_send(caller, actor, trp_bytes_of("hello"), nobody, NULL), TRP_OK);
    receive(server, caller, "hello");
    flow flows[2] = {{.from = caller, .to = server, .peer = actor, .total = 2000},
                     {.from = server, .to = caller, .peer = trp_bytes_of("caller"), .total = 2000}};
    run(flows, NULL, NULL);
    trpi_sock_close(caller);
    trpi_sock_close(server);
}

typedef struct knife {
    test_proxy *proxy;
    uint64_t next_ns;
    unsigned cuts;
} knife;

static void cut_now_and_then(void *arg) {
    knife *k = arg;
    if (trpi_now_ns() >= k->next_ns) {
        test_proxy_cut(k->proxy);
        k->cuts++;
        k->next_ns = trpi_now_ns() + 60000000; /* three times what it takes to connect again */
    }
}

static test_proxy *proxy_before(char endpoint[128]) {
    test_proxy *proxy = test_proxy_open(endpoint + strlen("tcp://"));
    snprintf(endpoint, 128, "tcp://%s", test_proxy_address(proxy));
    return proxy;
}

static void a_connection_that_breaks_again_and_again_does_not_show(void **state) {
    char endpoint[128] = "";
    trpi_sock *router = bound(TRPI_ROUTER, endpoint);
    knife k = {.proxy = proxy_before(endpoint)};
    trpi_sock *dealer = connected(TRPI_DEALER, NULL, endpoint);
    trpi_packet packet;
    assert_int_equal(trpi_sock_send(dealer, nobody, trp_bytes_of("hello"), nobody, NULL), TRP_OK);
    wait_for(router, dealer, &packet);
    flow flows[2] = {{.from = dealer, .to = router, .total = 60000},
                     {.from = router, .to = dealer, .peer = packet.peer, .total = 60000}};
    run(flows, cut_now_and_then, &k);
    assert_true(k.cuts > 1);
    assert_true(test_proxy_connections(k.proxy) > 1);
    trpi_packet_release(&packet);
    trpi_sock_close(dealer);
    trpi_sock_close(router);
    test_proxy_close(k.proxy);
}

static void a_peer_that_is_away_is_written_to_all_the_same(void **state) {
    char endpoint[128] = "";
    trpi_sock *router = bound(TRPI_ROUTER, endpoint);
    test_proxy *proxy = proxy_before(endpoint);
    trpi_sock *dealer = connected(TRPI_DEALER, "d", endpoint);
    trp_bytes peer = trp_bytes_of("d");
    introduce(dealer, router);
    test_proxy_shut(proxy, true);
    while (router->links.busy == NULL || router->links.busy->link.away_since_ns == 0) {
        trpi_poll_item item = {.sock = router};
        assert_true(trpi_now_ns() < deadline_ns);
        assert_int_equal(trpi_sock_send(router, peer, trp_bytes_of("word"), nobody, NULL), TRP_OK);
        (void)!trpi_poll(&item, 1, 10);
    }
    assert_int_equal(trpi_sock_send(router, peer, trp_bytes_of("last"), nobody, NULL), TRP_OK);
    test_proxy_shut(proxy, false);
    trpi_packet packet;
    for (bool is_last = false; !is_last;) {
        trpi_poll_item items[] = {{.sock = router}, {.sock = dealer}};
        assert_true(trpi_now_ns() < deadline_ns);
        (void)!trpi_poll(items, 2, 100);
        while (trpi_sock_recv(router, &packet) == TRP_OK) {
            trpi_packet_release(&packet);
        }
        while (trpi_sock_recv(dealer, &packet) == TRP_OK) {
            is_last = memcmp(packet.header.data, "last", 4) == 0;
            trpi_packet_release(&packet);
        }
    }
    trpi_sock_close(dealer);
    trpi_sock_close(router);
    test_proxy_close(proxy);
}

static void a_peer_that_was_never_heard_of_is_an_error(void **state) {
    char endpoint[128] = "";
    trpi_sock *router = bound(TRPI_ROUTER, endpoint);
    assert_int_equal(trpi_sock_send(router, trp_bytes_of("x"), trp_bytes_of("h"), nobody, NULL),
                     TRP_ENOTFOUND);
    trpi_sock_close(router);
}

/* A head that was started anew: what the dealer said last may have been taken by the one before. */
static void a_router_that_was_started_anew_voids_the_link_and_begins_another(void **state) {
    char endpoint[128] = "";
    trp_bytes peer;
    trpi_packet packet;
    trpi_sock *first = bound(TRPI_ROUTER, endpoint);
    trpi_sock *dealer = connected(TRPI_DEALER, "d", endpoint);
    introduce(dealer, first);
    assert_int_equal(
        trpi_sock_send(first, trp_bytes_of("d"), trp_bytes_of("welcome"), nobody, NULL), TRP_OK);
    receive(dealer, first, "welcome");
    trpi_sock_close(first);
    assert_false(trpi_sock_take_void(dealer, &peer));
    trpi_sock *second = NULL;
    while (second == NULL) { /* the port may be in use for a moment longer */
        second = open_sock(TRPI_ROUTER, NULL);
        if (trpi_sock_bind(second, endpoint, NULL, 0, NULL) != TRP_OK) {
            trpi_sock_close(second);
            second = NULL;
            usleep(10000);
        }
        assert_true(trpi_now_ns() < deadline_ns);
    }
    assert_int_equal(trpi_sock_send(dealer, nobody, trp_bytes_of("in vain"), nobody, NULL), TRP_OK);
    while (!trpi_sock_take_void(dealer, &peer)) {
        trpi_poll_item items[] = {{.sock = dealer}, {.sock = second}};
        assert_true(trpi_now_ns() < deadline_ns);
        (void)!trpi_poll(items, 2, 100);
        assert_int_equal(trpi_sock_recv(dealer, &packet), TRP_ETIMEOUT);
        assert_int_equal(trpi_sock_recv(second, &packet), TRP_ETIMEOUT);
    }
    assert_false(trpi_sock_take_void(dealer, &peer));
    assert_int_equal(trpi_sock_send(dealer, nobody, trp_bytes_of("anew"), nobody, NULL), TRP_OK);
    receive(second, dealer, "anew");
    trpi_sock_close(dealer);
    trpi_sock_close(second);
}

static void who_was_forgotten_is_told_when_it_speaks_again(void **state) {
    char endpoint[128] = "";
    trp_bytes peer, d = trp_bytes_of("d");
    trpi_packet packet;
    trpi_sock *router = bound(TRPI_ROUTER, endpoint);
    trpi_sock *dealer = connected(TRPI_DEALER, "d", endpoint);
    introduce(dealer, router);
    assert_int_equal(trpi_sock_send(router, d, trp_bytes_of("welcome"), nobody, NULL), TRP_OK);
    receive(dealer, router, "welcome");
    trpi_sock_forget(router, d);
    trpi_sock_forget(router, d);
    assert_int_equal(trpi_sock_send(router, d, trp_bytes_of("word"), nobody, NULL), TRP_ENOTFOUND);
    assert_int_equal(trpi_sock_send(dealer, nobody, trp_bytes_of("word"), nobody, NULL), TRP_OK);
    while (!trpi_sock_take_void(dealer, &peer)) {
        trpi_poll_item items[] = {{.sock = dealer}, {.sock = router}};
        assert_true(trpi_now_ns() < deadline_ns);
        (void)!trpi_poll(items, 2, 100);
        assert_int_equal(trpi_sock_recv(router, &packet), TRP_ETIMEOUT);
        assert_int_equal(trpi_sock_recv(dealer, &packet), TRP_ETIMEOUT);
    }
    introduce(dealer, router);
    assert_int_equal(trpi_sock_send(router, d, trp_bytes_of("again"), nobody, NULL), TRP_OK);
    receive(dealer, router, "again");
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void bare_words_go_beside_the_link(void **state) {
    char endpoint[128] = "";
    trpi_sock *router = bound(TRPI_ROUTER_MIXED, endpoint);
    trpi_sock *bare = connected(TRPI_DEALER_BARE, "bare", endpoint);
    trpi_sock *linked = connected(TRPI_DEALER, "linked", endpoint);
    introduce(linked, router);
    assert_int_equal(trpi_sock_send(bare, nobody, trp_bytes_of("beat"), nobody, NULL), TRP_OK);
    receive(router, bare, "beat");
    assert_int_equal(trpi_sock_send_bare(linked, nobody, trp_bytes_of("beat 2"), NULL), TRP_OK);
    receive(router, linked, "beat 2");
    assert_int_equal(trpi_sock_send(router, trp_bytes_of("bare"), trp_bytes_of("a"), nobody, NULL),
                     TRP_OK);
    receive(bare, router, "a");
    assert_int_equal(
        trpi_sock_send_bare(router, trp_bytes_of("linked"), trp_bytes_of("\xe1 marked"), NULL),
        TRP_OK);
    receive(linked, router, "\xe1 marked");
    assert_int_equal(router->links.count, 1);
    trpi_sock_close(bare);
    trpi_sock_close(linked);
    trpi_sock_close(router);
}

/* Nobody polls the receiver: the sender asks, ever more rarely, and sends nothing twice. */
static void whoever_does_not_listen_gets_no_copies(void **state) {
    char endpoint[128] = "";
    trpi_sock *router = bound(TRPI_ROUTER, endpoint);
    trpi_sock *dealer = connected(TRPI_DEALER, "d", endpoint);
    introduce(dealer, router);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(trpi_sock_send(dealer, nobody, trp_bytes_of("work"), nobody, NULL),
                         TRP_OK);
    }
    trpi_poll_item item = {.sock = dealer};
    assert_int_equal(trpi_poll(&item, 1, 500), TRP_ETIMEOUT);
    trpi_packet packet;
    unsigned messages = 0, questions = 0;
    bool fits;
    while (trpi_frames_recv(router, &packet, &fits)) { /* as they come from ZeroMQ */
        const unsigned char *mark = zmq_msg_data(trpi_packet_frame(&packet, 1));
        messages += (*mark & 3) == TRPI_LINK_DATA;
        questions += (*mark & 3) == TRPI_LINK_PROBE;
        trpi_packet_release(&packet);
    }
    assert_int_equal(messages, 1000);
    assert_in_range(questions, 1, 8); /* after 20, 40, 80, 160, 320 ms */
    trpi_sock_close(dealer);
    trpi_sock_close(router);
}

static void a_close_that_waits_sees_all_arrive(void **state) {
    char endpoint[128] = "";
    trpi_packet packet;
    set_faults(300, 0);
    trpi_sock *router = bound(TRPI_ROUTER, endpoint);
    trpi_sock *dealer = connected(TRPI_DEALER, "d", endpoint);
    introduce(dealer, router);
    set_faults(0, 0);
    unsigned received = 0;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(
            trpi_sock_send(router, trp_bytes_of("d"), trp_bytes_of("word"), nobody, NULL), TRP_OK);
    }
    while (trpi_sock_links_kept(router) > 0) {
        trpi_poll_item items[] = {{.sock = dealer}, {.sock = router}};
        assert_true(trpi_now_ns() < deadline_ns);
        (void)!trpi_poll(items, 2, 100);
        while (trpi_sock_recv(dealer, &packet) == TRP_OK) {
            received++;
            trpi_packet_release(&packet);
        }
        (void)!trpi_sock_recv(router, &packet);
    }
    assert_int_equal(received, 50);
    uint64_t began_ns = trpi_now_ns();
    trpi_sock_close_after(router, 5000); /* all is confirmed: no wait */
    assert_true(trpi_now_ns() - began_ns < 2000000000u);
    trpi_sock_close_after(dealer, 50); /* nobody is there */
}

static void who_does_not_listen_keeps_no_close_waiting(void **state) {
    char endpoint[128] = "";
    trpi_packet packet;
    set_faults(0, 0);
    trpi_sock *router = bound(TRPI_ROUTER, endpoint);
    trpi_sock *dealer = connected(TRPI_DEALER, "d", endpoint);
    introduce(dealer, router);
    assert_int_equal(trpi_sock_send(router, trp_bytes_of("d"), trp_bytes_of("last"), nobody, NULL),
                     TRP_OK);
    uint64_t began_ns = trpi_now_ns();
    trpi_sock_close_after(router, 5000);
    assert_true(trpi_now_ns() - began_ns < 1000000000u);
    trpi_poll_item item = {.sock = dealer};
    while (trpi_sock_recv(dealer, &packet) != TRP_OK) {
        assert_int_equal(trpi_poll(&item, 1, 5000), TRP_OK);
    }
    assert_int_equal(packet.header.size, strlen("last"));
    assert_memory_equal(packet.header.data, "last", strlen("last"));
    trpi_packet_release(&packet);
    trpi_sock_close(dealer);
}

static void the_window_grows_and_shrinks_with_what_is_unconfirmed(void **state) {
    trpi_window window = {0};
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 100; i++) {
            trpi_frames frames = {.has_tail = i % 3 == 0};
            zmq_msg_init_size(&frames.head, 20 + i);
            memset(zmq_msg_data(&frames.head), (int)i, 20 + i);
            if (frames.has_tail) {
                zmq_msg_init_size(&frames.tail, 1000);
            }
            assert_true(trpi_window_push(&window, &frames));
            trpi_frames_close(&frames);
        }
        trpi_window_unpush(&window);
        trpi_window_drop(&window, 60);
    }
    assert_int_equal(window.count, 117);
    trpi_frames oldest;
    trpi_window_get(&window, 0, &oldest);
    assert_int_equal(*(unsigned char *)zmq_msg_data(&oldest.head), 180 - 99);
    trpi_frames_close(&oldest);
    trpi_window_release(&window);
    assert_int_equal(window.bytes, 0);
}

static void a_link_that_rests_is_small(void **state) {
    /* With a client's id, the allocator's share and its place in the table. */
    assert_true(sizeof(trpi_linked) + 17 + 16 + 2 * sizeof(void *) <= 256);
}

#define WITH_NET(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_NET(what_is_lost_or_repeated_comes_once_and_in_order),
        WITH_NET(a_connecting_router_has_links_too),
        WITH_NET(a_connection_that_breaks_again_and_again_does_not_show),
        WITH_NET(a_peer_that_is_away_is_written_to_all_the_same),
        WITH_NET(a_peer_that_was_never_heard_of_is_an_error),
        WITH_NET(a_router_that_was_started_anew_voids_the_link_and_begins_another),
        WITH_NET(who_was_forgotten_is_told_when_it_speaks_again),
        WITH_NET(bare_words_go_beside_the_link),
        WITH_NET(whoever_does_not_listen_gets_no_copies),
        WITH_NET(a_close_that_waits_sees_all_arrive),
        WITH_NET(who_does_not_listen_keeps_no_close_waiting),
        cmocka_unit_test(the_window_grows_and_shrinks_with_what_is_unconfirmed),
        cmocka_unit_test(a_link_that_rests_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

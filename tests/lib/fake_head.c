#include "tests/lib/fake_head.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/worker.h"
#include "core/base/config.h"
#include "core/net/clock.h"
#include "tests/lib/child.h"
#include "tests/lib/net.h"

#define PATIENCE_MS 20000

/* ---- The node daemon ---- */

void test_node_if_asked(int argc, char **argv, const trp_actor_type *const *types) {
    const char *zygote = getenv(TRPI_ZYGOTE_ENV);
    if (zygote) {
        if (getenv("TEST_PROGRAM_CLOSES_FILES")) {
            (void)close(0);
            (void)close(1);
        }
        trpi_zygote_main(types, atoi(zygote));
    }
    if (argc == 3 && strcmp(argv[1], "node") == 0) {
        static const trp_resource customs[] = {{"slots", 4}};
        static char texts[TEST_NODE_LABELS][16];
        static const char *labels[TEST_NODE_LABELS + 1];
        for (int i = 0; i < TEST_NODE_LABELS; i++) {
            trpi_format(texts[i], sizeof texts[i], "key%d=%d", i, i);
            labels[i] = texts[i];
        }
        trpi_node_options options = {.address = argv[2],
                                     .host = "127.0.0.1",
                                     .cpus = 8,
                                     .gpus = 2,
                                     .resources = customs,
                                     .resource_count = 1,
                                     .labels = labels,
                                     .name = "testnode",
                                     .ready_fd = -1};
        const char *descriptors = getenv("TEST_NODE_DESCRIPTORS");
        if (descriptors) {
            struct rlimit limit = {(rlim_t)atoi(descriptors), (rlim_t)atoi(descriptors)};
            (void)setrlimit(RLIMIT_NOFILE, &limit);
        }
        trp_error err = {0};
        if (trpi_config_load(&err) != TRP_OK) {
            fprintf(stderr, "%s\n", err.message);
            exit(2);
        }
        exit(trpi_node_main(&options));
    }
}

void test_head_start_node(test_head *head) {
    const char *argv[] = {test_exe(), "node", head->address, NULL};
    head->node = test_child_start(argv, STDERR_FILENO, STDERR_FILENO);
}

int test_head_wait_node(test_head *head, uint64_t timeout_ms) {
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    while (waitpid(head->node, &head->node_status, WNOHANG) == 0) {
        if (trpi_now_ns() >= deadline_ns) {
            test_child_describe(head->node, "the node daemon");
            test_child_kill(head->node);
            fail_msg("the node daemon did not end");
        }
        test_head_listen(head, 5);
    }
    head->node = 0;
    test_head_listen(head, 50);
    return WIFEXITED(head->node_status) ? WEXITSTATUS(head->node_status) : -1;
}

/* ---- Messages ---- */

static void send_to(test_head *head, trp_bytes peer, const trpi_msg *msg) {
    trp_buf frame = {0};
    assert_int_equal(trpi_encode(msg, &frame, NULL), TRP_OK);
    (void)!trpi_sock_send(head->sock, peer, trp_buf_bytes(&frame), (trp_bytes){0}, NULL);
    trp_buf_release(&frame);
}

void test_head_say(test_head *head, const trpi_msg *msg) {
    send_to(head, (trp_bytes){head->peer, head->peer_size}, msg);
}

static void welcome(test_head *head) {
    trpi_msg msg = {.type = TRPI_MSG_NODE_WELCOME,
                    .node_welcome = {.node = TEST_NODE_ID,
                                     .incarnation = head->incarnation,
                                     .cluster = head->cluster,
                                     .heartbeat_ms = head->heartbeat_ms,
                                     .node_timeout_ms = head->timeout_ms}};
    test_head_say(head, &msg);
}

static void letter_free(test_letter *letter) {
    if (letter) {
        trp_buf_release(&letter->frame);
        trpi_arena_release(&letter->arena);
        free(letter);
    }
}

static void take_heartbeat(test_head *head, trp_bytes peer, const trpi_msg_heartbeat *beat) {
    head->beats++;
    if (!head->deaf) {
        bool known = !head->denies && beat->incarnation == head->incarnation;
        trpi_msg ack = {.type = TRPI_MSG_HEARTBEAT_ACK,
                        .heartbeat_ack = {.seq = beat->seq, .known = known}};
        send_to(head, peer, &ack);
    }
}

static void take_packet(test_head *head, const trpi_packet *packet) {
    test_letter *letter = trpi_alloc(sizeof *letter);
    trp_error err = {0};
    assert_int_equal(trp_buf_append(&letter->frame, packet->header.data, packet->header.size),
                     TRP_OK);
    if (trpi_decode(trp_buf_bytes(&letter->frame), &letter->arena, &letter->msg, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    if (letter->msg.type == TRPI_MSG_HEARTBEAT) {
        take_heartbeat(head, packet->peer, &letter->msg.heartbeat);
        letter_free(letter);
        return;
    }
    head->peer_size = packet->peer.size;
    memcpy(head->peer, packet->peer.data, packet->peer.size);
    if (letter->msg.type == TRPI_MSG_NODE_HELLO && head->welcomes) {
        welcome(head);
    }
    if (head->last) {
        head->last->next = letter;
    } else {
        head->first = letter;
    }
    head->last = letter;
}

static void pump(test_head *head, int timeout_ms) {
    trpi_poll_item item = {.sock = head->sock};
    trpi_packet packet;
    (void)!trpi_poll(&item, 1, timeout_ms);
    while (trpi_sock_recv(head->sock, &packet) == TRP_OK) {
        take_packet(head, &packet);
        trpi_packet_release(&packet);
    }
}

void test_head_listen(test_head *head, uint64_t ms) {
    uint64_t deadline_ns = trpi_deadline_ns(ms);
    do {
        pump(head, trpi_left_ms(deadline_ns));
    } while (trpi_now_ns() < deadline_ns);
}

static test_letter *take_letter(test_head *head, trpi_msg_type type) {
    test_letter *before = NULL;
    for (test_letter *letter = head->first; letter; before = letter, letter = letter->next) {
        if (letter->msg.type == type) {
            if (before) {
                before->next = letter->next;
            } else {
                head->first = letter->next;
            }
            if (head->last == letter) {
                head->last = before;
            }
            return letter;
        }
    }
    return NULL;
}

const trpi_msg *test_head_try(test_head *head, trpi_msg_type type, uint64_t timeout_ms) {
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    letter_free(head->current);
    head->current = take_letter(head, type);
    while (!head->current) {
        int left_ms = trpi_left_ms(deadline_ns);
        if (left_ms == 0) {
            return NULL;
        }
        pump(head, left_ms);
        head->current = take_letter(head, type);
    }
    return &head->current->msg;
}

const trpi_msg *test_head_wait(test_head *head, trpi_msg_type type) {
    const trpi_msg *msg = test_head_try(head, type, PATIENCE_MS);
    if (!msg) {
        fail_msg("%s did not come", trpi_msg_name(type));
    }
    return msg;
}

void test_head_forget(test_head *head) {
    while (head->first) {
        test_letter *next = head->first->next;
        letter_free(head->first);
        head->first = next;
    }
    head->last = NULL;
}

/* ---- Life ---- */

static char own_root[64];

static void remove_own_root(void) {
    (void)rmdir(own_root);
}

void test_head_own_root(void) {
    if (!getenv("TROUPE_SESSION_ROOT")) {
        trpi_format(own_root, sizeof own_root, "/tmp/node-test-%d", (int)getpid());
        setenv("TROUPE_SESSION_ROOT", own_root, 1);
        atexit(remove_own_root);
    }
    unsetenv("OMP_NUM_THREADS");
}

void test_head_open(test_head *head) {
    trp_error err = {0};
    char endpoint[128];
    memset(head, 0, sizeof *head);
    head->welcomes = true;
    head->incarnation = 1;
    head->heartbeat_ms = 500;
    head->timeout_ms = 5000;
    trpi_format(head->cluster, sizeof head->cluster, "%08x-0000-4000-8000-000000000000",
                (unsigned)getpid());
    if (trpi_net_open(&head->net, &err) != TRP_OK ||
        trpi_sock_open(head->net, TRPI_ROUTER_MIXED, (trp_bytes){0}, &head->sock, &err) != TRP_OK ||
        trpi_sock_bind(head->sock, "tcp://127.0.0.1:*", endpoint, sizeof endpoint, &err) !=
            TRP_OK) {
        fail_msg("%s", err.message);
    }
    TRPI_SET(head->address, endpoint + strlen("tcp://"));
}

void test_head_close(test_head *head) {
    if (head->node > 0) {
        kill(head->node, SIGTERM);
        (void)test_head_wait_node(head, PATIENCE_MS);
    }
    test_head_forget(head);
    letter_free(head->current);
    trpi_sock_close(head->sock);
    test_net_close(head->net);
}

/* ---- Calls ---- */

void test_caller_open(test_head *head, const trpi_msg_started *started, test_caller *caller) {
    trp_error err = {0};
    memset(caller, 0, sizeof *caller);
    caller->actor = started->actor;
    caller->incarnation = started->incarnation;
    if (trpi_sock_open(head->net, TRPI_DEALER, (trp_bytes){0}, &caller->sock, &err) != TRP_OK ||
        trpi_sock_connect(caller->sock, started->endpoint, (trp_bytes){0}, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
}

void test_caller_close(test_caller *caller) {
    trpi_packet_release(&caller->packet);
    trpi_arena_release(&caller->arena);
    trpi_sock_close(caller->sock);
}

void test_caller_send(test_caller *caller, const char *method, const char *args) {
    trp_buf frame = {0};
    caller->calls++;
    trpi_msg msg = {.type = TRPI_MSG_CALL,
                    .call = {.call = caller->calls,
                             .seq = caller->calls,
                             .actor = caller->actor,
                             .incarnation = caller->incarnation,
                             .method = method}};
    assert_int_equal(trpi_encode(&msg, &frame, NULL), TRP_OK);
    assert_int_equal(trpi_sock_send(caller->sock, (trp_bytes){0}, trp_buf_bytes(&frame),
                                    trp_bytes_of(args), NULL),
                     TRP_OK);
    trp_buf_release(&frame);
}

const trpi_msg_reply *test_caller_reply(test_caller *caller, uint64_t timeout_ms) {
    trp_error err = {0};
    trpi_poll_item item = {.sock = caller->sock};
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    trpi_packet_release(&caller->packet);
    while (trpi_sock_recv(caller->sock, &caller->packet) != TRP_OK) {
        int left_ms = trpi_left_ms(deadline_ns);
        if (left_ms == 0) {
            return NULL;
        }
        (void)!trpi_poll(&item, 1, left_ms); /* may be ready for a word between links */
    }
    trpi_arena_reset(&caller->arena);
    if (trpi_decode(caller->packet.header, &caller->arena, &caller->msg, &err) != TRP_OK ||
        caller->msg.type != TRPI_MSG_REPLY) {
        fail_msg("not a reply: %s", err.message);
    }
    return &caller->msg.reply;
}

const char *test_caller_ask(test_caller *caller, const char *method, const char *args) {
    static char text[65536];
    test_caller_send(caller, method, args);
    const trpi_msg_reply *reply = test_caller_reply(caller, PATIENCE_MS);
    if (!reply) {
        fail_msg("%s: no reply", method);
    }
    if (reply->code != TRP_OK) {
        fail_msg("%s: %s", method, reply->message);
    }
    trpi_format(text, sizeof text, "%.*s", (int)caller->packet.body.size,
                caller->packet.body.size ? (const char *)caller->packet.body.data : "");
    return text;
}

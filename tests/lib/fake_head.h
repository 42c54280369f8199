/* fake_head.h: a head that a test plays by hand, and a real node daemon under it.
 *
 * Heartbeats are acknowledged while messages are waited for. What comes and is not asked for yet
 * waits in the order in which it came. */
#ifndef TEST_FAKE_HEAD_H
#define TEST_FAKE_HEAD_H

#include <sys/types.h>

#include "actors/proc/node.h"
#include "core/net/sock.h"
#include "core/wire/codec.h"

#define TEST_NODE_ID 7
#define TEST_NODE_LABELS 70

typedef struct test_letter {
    struct test_letter *next;
    trp_buf frame;
    trpi_arena arena;
    trpi_msg msg;
} test_letter;

typedef struct test_head {
    trpi_net *net;
    trpi_sock *sock;
    char address[64];
    char cluster[40];
    unsigned char peer[256]; /* the node's data connection */
    size_t peer_size;
    bool deaf;     /* heartbeats are not acknowledged */
    bool denies;   /* ... are answered with known = false */
    bool welcomes; /* NODE_HELLO is answered at once */
    uint64_t incarnation;
    uint64_t heartbeat_ms, timeout_ms;
    uint64_t beats;
    test_letter *first, *last;
    test_letter *current; /* returned by the last wait */
    pid_t node;
    int node_status;
} test_head;

/* Gives this test program a session root of its own, unless the environment names one; it is empty
 * again when all daemons have ended, and is removed at exit. */
void test_head_own_root(void);

void test_head_open(test_head *head);
void test_head_close(test_head *head);

/* Starts a node daemon: this program again, with "node ADDRESS" as arguments
 * (test_node_if_asked()). TEST_NODE_DESCRIPTORS in the environment is its ulimit -n;
 * with TEST_PROGRAM_CLOSES_FILES its workers' program closes stdin and stdout before trp_init(). */
void test_head_start_node(test_head *head);
/* First thing in main(): plays worker or node when this process was started as one. */
void test_node_if_asked(int argc, char **argv, const trp_actor_type *const *types);
/* Waits until the node daemon has ended; its exit code, or -1 after a signal. */
int test_head_wait_node(test_head *head, uint64_t timeout_ms);

void test_head_say(test_head *head, const trpi_msg *msg);
/* The next message of that type; NULL when none came in time. Valid until the next wait. */
const trpi_msg *test_head_try(test_head *head, trpi_msg_type type, uint64_t timeout_ms);
/* The same, and fails the test after 20 s. */
const trpi_msg *test_head_wait(test_head *head, trpi_msg_type type);
void test_head_forget(test_head *head); /* what waits */
/* Acknowledges heartbeats for so long and keeps what comes. */
void test_head_listen(test_head *head, uint64_t ms);

/* A caller of one worker. */
typedef struct test_caller {
    trpi_sock *sock;
    uint64_t actor, incarnation, calls;
    trpi_packet packet;
    trpi_arena arena;
    trpi_msg msg;
} test_caller;

void test_caller_open(test_head *head, const trpi_msg_started *started, test_caller *ret_caller);
void test_caller_close(test_caller *caller);
void test_caller_send(test_caller *caller, const char *method, const char *args);
/* The next REPLY; its body is in caller->packet.body. NULL when none came in time. */
const trpi_msg_reply *test_caller_reply(test_caller *caller, uint64_t timeout_ms);
/* Sends, waits, and returns the body as text in static storage; fails the test on an error. */
const char *test_caller_ask(test_caller *caller, const char *method, const char *args);

#endif

/* The head process over the wire, with nodes and clients that are only sockets of this test. */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/actor.h>

#include "actors/proc/head.h"
#include "core/base/json.h"
#include "core/net/clock.h"
#include "core/net/sock.h"
#include "core/sys/file.h"
#include "core/sys/host.h"
#include "core/wire/codec.h"
#include "tests/lib/child.h"
#include "tests/lib/net.h"

#define PATIENCE_MS 10000 /* generous: only a failure waits for it */

typedef struct head {
    pid_t pid;
    char address[128], cluster[64];
} head;

typedef struct peer { /* a node or a client */
    trpi_sock *sock;
    trpi_packet packet; /* of the last message heard, which borrows from it */
    trpi_arena arena;
    trpi_msg msg;
} peer;

static char root[64];
static trpi_net *net;

/* ---- Heads ---- */

/* This program again, as a head: argument PORT. Its line goes to the stdout it was given. */
static int be_head(const char *port) {
    trpi_head_options options = {.port = (uint16_t)atoi(port),
                                 .ready_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)};
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    return trpi_head_main(&options);
}

/* The head's ready line, or its error. */
static pid_t launch(const char *port, char *line, size_t size) {
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid =
        test_child_start((const char *[]){test_exe(), "head", port, NULL}, fds[1], STDERR_FILENO);
    close(fds[1]);
    line[test_read(fds[0], line, size - 1, "the head")] = '\0';
    close(fds[0]);
    return pid;
}

static head start_head(void) {
    head h = {0};
    char line[512];
    h.pid = launch("0", line, sizeof(line));
    assert_int_equal(sscanf(line, "%127s %63s\n", h.address, h.cluster), 2);
    return h;
}

static void expect_end(const head *h) {
    assert_int_equal(test_child_exit_code(h->pid, "the head"), 0);
}

static void stop_head(const head *h) {
    kill(h->pid, SIGTERM);
    expect_end(h);
}

/* ---- Peers ---- */

static peer *connect_peer(const head *h) {
    static unsigned count;
    char endpoint[160], id[32];
    peer *p = trpi_alloc(sizeof(*p));
    trpi_format(endpoint, sizeof(endpoint), "tcp://%s", h->address);
    trpi_format(id, sizeof(id), "peer-%u", ++count);
    assert_int_equal(trpi_sock_open(net, TRPI_DEALER, trp_bytes_of(id), &p->sock, NULL), TRP_OK);
    assert_int_equal(trpi_sock_connect(p->sock, endpoint, (trp_bytes){0}, NULL), TRP_OK);
    return p;
}

static void close_peer(peer *p) {
    trpi_packet_release(&p->packet);
    trpi_arena_release(&p->arena);
    trpi_sock_close(p->sock);
    free(p);
}

static void say(peer *p, const trpi_msg *msg) {
    trp_buf frame = {0};
    assert_int_equal(trpi_encode(msg, &frame, NULL), TRP_OK);
    assert_int_equal(
        trpi_sock_send(p->sock, (trp_bytes){0}, trp_buf_bytes(&frame), (trp_bytes){0}, NULL),
        TRP_OK);
    trp_buf_release(&frame);
}

/* The next message of this type; others before it are passed over. */
static const trpi_msg *hear(peer *p, trpi_msg_type type) {
    uint64_t deadline = trpi_deadline_ns(PATIENCE_MS);
    trpi_poll_item item = {.sock = p->sock};
    while (trpi_left_ms(deadline) > 0) {
        trpi_packet_release(&p->packet);
        memset(&p->packet, 0, sizeof(p->packet));
        if (trpi_sock_recv(p->sock, &p->packet) != TRP_OK) {
            trp_code ready = trpi_poll(&item, 1, trpi_left_ms(deadline));
            assert_true(ready == TRP_OK || ready == TRP_ETIMEOUT);
            continue;
        }
        trpi_arena_reset(&p->arena);
        assert_int_equal(trpi_decode(p->packet.header, &p->arena, &p->msg, NULL), TRP_OK);
        if (p->msg.type == type) {
            return &p->msg;
        }
    }
    fail_msg("no %s came", trpi_msg_name(type));
    return NULL;
}

static void say_node_hello(peer *p, const char *uuid, int64_t pid) {
    char host_id[128];
    trpi_host_id(host_id, sizeof(host_id));
    trpi_resource resources[] = {{"cpu", 40000}, {"gpu", 10000}};
    trpi_text devices[] = {{"GPU-x"}};
    trpi_msg msg = {.type = TRPI_MSG_NODE_HELLO,
                    .node_hello = {.version = TROUPE_VERSION,
                                   .uuid = uuid,
                                   .host = "127.0.0.1",
                                   .host_id = host_id,
                                   .pid = pid,
                                   .name = uuid,
                                   .resources = resources,
                                   .resources_count = 2,
                                   .devices = devices,
                                   .devices_count = 1}};
    say(p, &msg);
}

static peer *connect_node(const head *h, const char *uuid, int64_t pid) {
    peer *p = connect_peer(h);
    say_node_hello(p, uuid, pid);
    assert_string_equal(hear(p, TRPI_MSG_NODE_WELCOME)->node_welcome.cluster, h->cluster);
    return p;
}

static peer *connect_client(const head *h, const char *kind, int64_t pid) {
    char host_id[128];
    trpi_host_id(host_id, sizeof(host_id));
    peer *p = connect_peer(h);
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_HELLO,
                    .client_hello = {.version = TROUPE_VERSION,
                                     .kind = kind,
                                     .host_id = host_id,
                                     .pid = pid,
                                     .job = "test",
                                     .namespace_name = "",
                                     .exe = "/bin/true",
                                     .cwd = "/"}};
    say(p, &msg);
    (void)hear(p, TRPI_MSG_CLIENT_WELCOME);
    return p;
}

static uint64_t spawn_actor(peer *client, int64_t gpus) {
    trpi_resource resources[] = {{"cpu", 5000}, {"gpu", gpus}};
    trpi_msg msg = {.type = TRPI_MSG_SPAWN,
                    .spawn = {.request = 7,
                              .type = "actor",
                              .name = "",
                              .resources = resources,
                              .resources_count = 2,
                              .bundle = -1}};
    say(client, &msg);
    const trpi_msg *answer = hear(client, TRPI_MSG_SPAWNED);
    assert_int_equal(answer->spawned.code, TRP_OK);
    return answer->spawned.actor;
}

static json_t *list(peer *client, const char *what) {
    trpi_msg msg = {.type = TRPI_MSG_LIST_QUERY, .list_query = {3, what}};
    say(client, &msg);
    const trpi_msg *answer = hear(client, TRPI_MSG_LISTED);
    assert_int_equal(answer->listed.code, TRP_OK);
    json_t *json = NULL;
    assert_int_equal(
        trpi_json_parse(answer->listed.json.data, answer->listed.json.size, what, &json, NULL),
        TRP_OK);
    return json;
}

static const char *text_of(json_t *list_of_rows, size_t row, const char *key) {
    return json_string_value(json_object_get(json_array_get(list_of_rows, row), key));
}

static int set_up(void **state) {
    trpi_format(root, sizeof(root), "/tmp/troupe-head-%d", (int)getpid());
    setenv("TROUPE_SESSION_ROOT", root, 1);
    return trpi_net_open(&net, NULL) == TRP_OK ? 0 : -1;
}

static int tear_down(void **state) {
    trp_code code = trpi_dir_remove(root, NULL);
    test_net_close(net);
    return code == TRP_OK ? 0 : -1;
}

/* ---- Tests ---- */

static void a_taken_port_is_one_clear_error(void **state) {
    head h = start_head();
    char line[512];
    const char *port = strrchr(h.address, ':') + 1;
    pid_t second = launch(port, line, sizeof(line));
    assert_int_equal(test_child_exit_code(second, "the second head"), EXIT_FAILURE);
    assert_int_equal(strncmp(line, "error: ", 7), 0);
    assert_non_null(strstr(line, port));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    stop_head(&h);
}

static void an_actor_goes_the_whole_way_over_the_wire(void **state) {
    head h = start_head();
    peer *node = connect_node(&h, "node-a", 0), *driver = connect_client(&h, "driver", 0);
    uint64_t actor = spawn_actor(driver, 10000);
    const trpi_msg_start *start = &hear(node, TRPI_MSG_START)->start;
    assert_int_equal(start->actor, actor);
    assert_string_equal(start->devices[0].value, "GPU-x");
    trpi_msg subscribe = {.type = TRPI_MSG_SUBSCRIBE, .subscribe = {actor}};
    say(driver, &subscribe);
    assert_int_equal(hear(driver, TRPI_MSG_ACTOR_STATE)->actor_state.phase, TRP_ACTOR_PENDING);
    trpi_msg started = {.type = TRPI_MSG_STARTED, .started = {actor, 1, 4242, "ipc:///x", ""}};
    say(node, &started);
    const trpi_msg_actor_state *alive = &hear(driver, TRPI_MSG_ACTOR_STATE)->actor_state;
    assert_int_equal(alive->phase, TRP_ACTOR_ALIVE);
    assert_string_equal(alive->endpoint, "ipc:///x");
    trpi_death death = {.incarnation = 1,
                        .pid = 4242,
                        .cause = TRP_CAUSE_EXITED,
                        .exit_code = 4,
                        .message = "exit code 4",
                        .stderr_tail = "last words"};
    trpi_msg exited = {.type = TRPI_MSG_EXITED, .exited = {actor, &death, 1}};
    say(node, &exited);
    const trpi_msg_actor_state *dead = &hear(driver, TRPI_MSG_ACTOR_STATE)->actor_state;
    assert_int_equal(dead->phase, TRP_ACTOR_DEAD);
    assert_string_equal(dead->death[0].stderr_tail, "last words");
    json_t *actors = list(driver, "actors");
    assert_string_equal(text_of(actors, 0, "state"), "dead");
    json_t *row = json_object_get(json_array_get(actors, 0), "death");
    assert_string_equal(json_string_value(json_object_get(row, "cause")), "exited");
    json_decref(actors);
    kill(h.pid, SIGTERM);
    (void)hear(node, TRPI_MSG_NODE_SHUTDOWN);
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {1, "shutdown"}};
    say(node, &bye);
    expect_end(&h);
    close_peer(node);
    close_peer(driver);
}

static void every_list_is_json_and_another_is_refused_with_the_nearest(void **state) {
    static const char *const whats[] = {"status", "nodes", "actors", "groups", "jobs", "runs"};
    head h = start_head();
    peer *node = connect_node(&h, "node-a", 0), *driver = connect_client(&h, "driver", 0);
    spawn_actor(driver, 0);
    spawn_actor(driver, 50000); /* infeasible */
    trpi_resource resource = {"cpu", 10000};
    trpi_bundle bundle = {&resource, 1};
    trpi_msg group = {.type = TRPI_MSG_GROUP_CREATE,
                      .group_create = {9, "gang", TRP_PACK, &bundle, 1, false}};
    say(driver, &group);
    assert_true(hear(driver, TRPI_MSG_GROUP_STATE)->group_state.placed);
    trpi_msg put = {.type = TRPI_MSG_KV_PUT, .kv_put = {10, "run/x", false, {"{\"a\":1}", 7}}};
    say(driver, &put);
    (void)hear(driver, TRPI_MSG_DONE);
    static const size_t rows[] = {0, 1, 2, 1, 1, 1};
    for (size_t i = 0; i < TRPI_COUNTOF(whats); i++) {
        json_t *json = list(driver, whats[i]);
        if (i > 0) {
            assert_int_equal(json_array_size(json), rows[i]);
        } else {
            json_t *demand = json_array_get(json_object_get(json, "demand"), 0);
            assert_true(json_is_true(json_object_get(demand, "infeasible")));
            assert_string_equal(json_string_value(json_object_get(demand, "why")),
                                "needs 5 gpu; the most any node has is 1");
            json_t *cpu = json_object_get(json_object_get(json, "resources"), "cpu");
            assert_true(json_number_value(json_object_get(cpu, "used")) == 1.5);
            assert_true(json_number_value(json_object_get(cpu, "reserved")) == 1.0);
        }
        json_decref(json);
    }
    trpi_msg wrong = {.type = TRPI_MSG_LIST_QUERY, .list_query = {4, "actor"}};
    say(driver, &wrong);
    const trpi_msg *answer = hear(driver, TRPI_MSG_LISTED);
    assert_int_equal(answer->listed.code, TRP_EINVALID);
    assert_non_null(strstr(answer->listed.message, "did you mean actors?"));
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {1, "SIGTERM"}};
    say(node, &bye);
    stop_head(&h);
    close_peer(node);
    close_peer(driver);
}

static void bytes_that_are_no_message_are_dropped_and_counted(void **state) {
    head h = start_head();
    peer *stranger = connect_peer(&h), *tool = connect_client(&h, "tool", 0);
    for (int i = 0; i < 100; i++) {
        unsigned char junk[32];
        for (size_t k = 0; k < sizeof(junk); k++) {
            junk[k] = (unsigned char)(i * 31 + (int)k * 7);
        }
        assert_int_equal(trpi_sock_send(stranger->sock, (trp_bytes){0},
                                        (trp_bytes){junk, sizeof(junk)}, (trp_bytes){0}, NULL),
                         TRP_OK);
    }
    /* A LOOKUP that is cut short still tells its number. */
    trp_buf frame = {0};
    trpi_msg lookup = {.type = TRPI_MSG_LOOKUP, .lookup = {77, "a name"}};
    assert_int_equal(trpi_encode(&lookup, &frame, NULL), TRP_OK);
    assert_int_equal(trpi_sock_send(stranger->sock, (trp_bytes){0},
                                    (trp_bytes){frame.data, frame.size - 3}, (trp_bytes){0}, NULL),
                     TRP_OK);
    trp_buf_release(&frame);
    const trpi_msg *refusal = hear(stranger, TRPI_MSG_DONE);
    assert_int_equal(refusal->done.request, 77);
    assert_int_equal(refusal->done.code, TRP_EPROTOCOL);
    json_t *status = list(tool, "status");
    json_t *bad = json_object_get(json_object_get(status, "counts"), "bad_packets");
    assert_int_equal(json_integer_value(bad), 101);
    json_decref(status);
    close_peer(stranger);
    close_peer(tool);
    stop_head(&h);
}

static void the_end_of_a_local_process_is_noticed_without_waiting_for_silence(void **state) {
    head h = start_head();
    pid_t node_pid = test_child_sleeper(), driver_pid = test_child_sleeper();
    peer *node = connect_node(&h, "node-a", node_pid);
    peer *other = connect_node(&h, "node-b", 0);
    peer *driver = connect_client(&h, "driver", driver_pid);
    peer *tool = connect_client(&h, "tool", 0);
    uint64_t actor = spawn_actor(driver, 0), began = trpi_now_ns();
    assert_int_equal(hear(node, TRPI_MSG_START)->start.actor, actor);
    test_child_kill(driver_pid);
    assert_int_equal(hear(node, TRPI_MSG_END)->end.cause, TRP_CAUSE_OWNER_DIED);
    test_child_kill(node_pid);
    for (;;) { /* silence would take 5 s, and shows in the reason */
        json_t *nodes = list(tool, "nodes");
        bool dead = strcmp(text_of(nodes, 0, "state"), "dead") == 0;
        if (dead) {
            assert_string_equal(text_of(nodes, 0, "reason"), "unexpected: its process ended");
        }
        json_decref(nodes);
        if (dead) {
            break;
        }
        assert_true(trpi_now_ns() - began < (uint64_t)PATIENCE_MS * 1000000);
    }
    json_t *actors = list(tool, "actors");
    assert_string_equal(text_of(actors, 0, "state"), "dead");
    json_decref(actors);
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {2, "SIGTERM"}};
    say(other, &bye);
    stop_head(&h);
    close_peer(node);
    close_peer(other);
    close_peer(driver);
    close_peer(tool);
}

static void heartbeats_of_another_incarnation_are_unknown(void **state) {
    head h = start_head();
    peer *node = connect_node(&h, "node-a", 0), *beats = connect_peer(&h);
    trpi_msg beat = {.type = TRPI_MSG_HEARTBEAT, .heartbeat = {1, 1, 0, 5}};
    say(beats, &beat);
    const trpi_msg *ack = hear(beats, TRPI_MSG_HEARTBEAT_ACK);
    assert_true(ack->heartbeat_ack.known);
    assert_int_equal(ack->heartbeat_ack.seq, 5);
    beat.heartbeat.incarnation = 2;
    say(beats, &beat);
    assert_false(hear(beats, TRPI_MSG_HEARTBEAT_ACK)->heartbeat_ack.known);
    trpi_msg bye = {.type = TRPI_MSG_NODE_BYE, .node_bye = {1, "SIGTERM"}};
    say(node, &bye);
    beat.heartbeat.incarnation = 1;
    do { /* two sockets: the goodbye may come later */
        say(beats, &beat);
    } while (hear(beats, TRPI_MSG_HEARTBEAT_ACK)->heartbeat_ack.known);
    close_peer(node);
    close_peer(beats);
    stop_head(&h);
}

static void a_node_that_says_no_goodbye_delays_the_end_by_its_timeout_only(void **state) {
    setenv("TROUPE_STOP_TIMEOUT_MS", "200", 1);
    head h = start_head();
    unsetenv("TROUPE_STOP_TIMEOUT_MS");
    peer *node = connect_node(&h, "node-a", 0);
    kill(h.pid, SIGTERM);
    (void)hear(node, TRPI_MSG_NODE_SHUTDOWN);
    expect_end(&h);
    close_peer(node);
}

static void a_tool_can_stop_this_cluster_and_no_other(void **state) {
    head h = start_head();
    peer *tool = connect_client(&h, "tool", 0);
    trpi_msg stop = {.type = TRPI_MSG_HEAD_SHUTDOWN, .head_shutdown = {1, "another"}};
    say(tool, &stop);
    assert_int_equal(hear(tool, TRPI_MSG_DONE)->done.code, TRP_EINVALID);
    stop.head_shutdown.cluster = h.cluster;
    say(tool, &stop);
    assert_int_equal(hear(tool, TRPI_MSG_DONE)->done.code, TRP_OK);
    expect_end(&h);
    char pidfile[256];
    trpi_format(pidfile, sizeof(pidfile), "%s/%.8s/head.pid", root, h.cluster);
    assert_false(trpi_file_exists(pidfile));
    close_peer(tool);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "head") == 0) {
        return be_head(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_taken_port_is_one_clear_error),
        cmocka_unit_test(an_actor_goes_the_whole_way_over_the_wire),
        cmocka_unit_test(every_list_is_json_and_another_is_refused_with_the_nearest),
        cmocka_unit_test(bytes_that_are_no_message_are_dropped_and_counted),
        cmocka_unit_test(the_end_of_a_local_process_is_noticed_without_waiting_for_silence),
        cmocka_unit_test(heartbeats_of_another_incarnation_are_unknown),
        cmocka_unit_test(a_node_that_says_no_goodbye_delays_the_end_by_its_timeout_only),
        cmocka_unit_test(a_tool_can_stop_this_cluster_and_no_other),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* The head at the size it is designed for: 1,000 nodes, 10,000 actors. What must not grow with the
 * square of them: time in the common paths, and memory. Prints what it took; asserts only what is
 * no matter of the machine's speed. */
#include <inttypes.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "actors/state/cluster.h"

enum { NODES = 1000, ACTORS = 10000, DRIVER = NODES + 1 };

typedef struct world {
    trpi_cluster *cluster;
    trpi_actions actions;
    uint64_t now_ns, steps, starts;
    uint64_t node_of[2 * ACTORS + 1];        /* actor -> the peer that was told to start it */
    uint64_t incarnation_of[2 * ACTORS + 1]; /* and as which */
} world;

static void tell(world *w, uint64_t peer, const trpi_msg *msg) {
    trpi_cluster_event event = {
        .kind = TRPI_EVENT_MESSAGE, .now_ns = ++w->now_ns, .peer = peer, .msg = msg};
    trpi_cluster_step(w->cluster, &event, &w->actions);
    w->steps++;
    for (size_t i = 0; i < w->actions.count; i++) {
        const trpi_cluster_action *action = &w->actions.items[i];
        if (action->kind == TRPI_ACTION_SEND && action->msg.type == TRPI_MSG_START) {
            w->node_of[action->msg.start.actor] = action->peer;
            w->incarnation_of[action->msg.start.actor] = action->msg.start.incarnation;
            w->starts++;
        }
    }
}

static void join(world *w, uint64_t peer) {
    char uuid[32];
    trpi_resource resources[] = {{"cpu", 100000}};
    trpi_format(uuid, sizeof(uuid), "node-%" PRIu64, peer);
    trpi_msg msg = {.type = TRPI_MSG_NODE_HELLO,
                    .node_hello = {.version = TROUPE_VERSION,
                                   .uuid = uuid,
                                   .host = "10.0.0.1",
                                   .host_id = "host",
                                   .name = uuid,
                                   .store_path = "/tmp/store",
                                   .store_endpoint = "",
                                   .resources = resources,
                                   .resources_count = 1}};
    tell(w, peer, &msg);
}

static void spawn(world *w, uint64_t request) {
    trpi_resource resources[] = {{"cpu", 10000}};
    trpi_msg msg = {.type = TRPI_MSG_SPAWN,
                    .spawn = {.request = request,
                              .type = "actor",
                              .name = "",
                              .cwd = "",
                              .resources = resources,
                              .resources_count = 1,
                              .bundle = -1,
                              .restarts_max = 1}};
    tell(w, DRIVER, &msg);
}

static void started(world *w, uint64_t actor) {
    trpi_msg msg = {.type = TRPI_MSG_STARTED,
                    .started = {actor, w->incarnation_of[actor], 4242,
                                "ipc:///tmp/troupe-0/12345678/node-12345678/w1", ""}};
    tell(w, w->node_of[actor], &msg);
}

static void crash(world *w, uint64_t actor) {
    trpi_death death = {.incarnation = w->incarnation_of[actor],
                        .pid = 4242,
                        .cause = TRP_CAUSE_SIGNALED,
                        .signal = 11,
                        .message = "signal 11 (SIGSEGV)",
                        .stderr_tail = "",
                        .core = ""};
    trpi_msg msg = {.type = TRPI_MSG_EXITED, .exited = {actor, &death, 1}};
    tell(w, w->node_of[actor], &msg);
}

static void report(world *w, const char *what, uint64_t count, struct timespec *since) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    double s = (double)(now.tv_sec - since->tv_sec) + (double)(now.tv_nsec - since->tv_nsec) / 1e9;
    printf("%-44s %8.1f ms  %6.2f us each, heap %.1f MB\n", what, s * 1e3, s * 1e6 / (double)count,
           (double)mallinfo2().uordblks / 1e6);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, since);
}

static void a_thousand_nodes_and_ten_thousand_actors_are_no_effort(void **state) {
    world *w = trpi_alloc(sizeof(*w));
    trpi_cluster_config config = trpi_cluster_config_default();
    struct timespec since;
    size_t before = mallinfo2().uordblks;
    w->cluster = trpi_cluster_new(&config);
    w->now_ns = 1000000000;
    trpi_msg hello = {.type = TRPI_MSG_CLIENT_HELLO,
                      .client_hello = {.version = TROUPE_VERSION,
                                       .kind = "driver",
                                       .host_id = "elsewhere",
                                       .job = "scale",
                                       .namespace_name = "",
                                       .exe = "/bin/true",
                                       .cwd = "/",
                                       .exe_hash = "",
                                       .package = ""}};
    tell(w, DRIVER, &hello);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &since);

    for (uint64_t i = 1; i <= NODES; i++) {
        join(w, i);
    }
    report(w, "1,000 nodes join", NODES, &since);
    for (uint64_t i = 1; i <= 2 * ACTORS; i++) {
        spawn(w, i); /* the second half finds no room */
    }
    report(w, "20,000 actors are spawned, half of them wait", 2 * ACTORS, &since);
    assert_int_equal(w->starts, ACTORS);
    for (uint64_t i = 1; i <= ACTORS; i++) {
        trpi_msg subscribe = {.type = TRPI_MSG_SUBSCRIBE, .subscribe = {i}};
        tell(w, DRIVER, &subscribe);
        started(w, i);
    }
    report(w, "10,000 are subscribed to and start", ACTORS, &since);
    for (uint64_t i = 1; i <= ACTORS; i++) {
        crash(w, i); /* its place goes to the restart, which looks for one at once */
        started(w, i);
    }
    report(w, "10,000 crash and restart", ACTORS, &since);
    for (uint64_t i = 1; i <= ACTORS; i++) {
        crash(w, i); /* for good: one that waits gets the place */
    }
    report(w, "10,000 die, 10,000 others get their places", ACTORS, &since);
    assert_int_equal(w->starts, 3 * ACTORS);
    for (int i = 0; i < 100; i++) {
        trpi_cluster_event tick = {.kind = TRPI_EVENT_TICK, .now_ns = ++w->now_ns};
        trpi_cluster_step(w->cluster, &tick, &w->actions);
    }
    report(w, "100 ticks", 100, &since);
    assert_null(trpi_cluster_check(w->cluster));
    assert_true(mallinfo2().uordblks - before < (size_t)24 << 20);
    trpi_cluster_free(w->cluster);
    trpi_actions_release(&w->actions);
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_nodes_and_ten_thousand_actors_are_no_effort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

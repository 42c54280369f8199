/* bench_simulated.c: the head's machine alone, without sockets or processes: how many nodes and
 * actors one head decides for. The same cluster at three sizes with the same actors per node: where
 * a figure per second stays the same from one size to the next, the head's work grows with what
 * there is to do and not with how much there is already. */
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>

#include "actors/bin/bench.h"
#include "actors/state/cluster.h"

#define GROUPS 200
#define BUNDLES 40
#define TICKS 20
#define CPU 10000 /* units of one */

typedef struct world {
    trpi_cluster *cluster;
    trpi_actions actions;
    uint64_t nodes, actors; /* of this size */
    uint64_t driver;        /* its peer; nodes are peers 1 to `nodes`, as they are numbered */
    uint64_t now_ns, requests;
    uint64_t starts;  /* START messages so far */
    uint64_t *places; /* actor - 1 -> the node that was told to start it last */
    uint64_t *lives;  /* actor - 1 -> as which incarnation */
    uint64_t *todo;   /* actors that were told to start and have not said that they run */
    size_t todo_count;
    uint64_t group; /* that was made last */
} world;

static const bench_row rows[] = {
    {"simulated_nodes_join", "/s", "nodes that join", BENCH_NO_CLUSTER, NULL, true},
    {"simulated_actors_placed", "/s", "actors that are asked for and placed", BENCH_NO_CLUSTER,
     NULL, true},
    {"simulated_actors_run", "/s", "actors that say that they run", BENCH_NO_CLUSTER, NULL, true},
    {"simulated_heartbeats", "/s", "heartbeats of nodes", BENCH_NO_CLUSTER, NULL, true},
    {"simulated_tick", "us", "a look at everything that waits for its time", BENCH_NO_CLUSTER, NULL,
     true},
    {"simulated_groups_of_40", "/s", "groups of 40 bundles made and removed", BENCH_NO_CLUSTER,
     NULL, true},
    {"simulated_storm", "/s", "actors placed anew when a tenth of the nodes dies", BENCH_NO_CLUSTER,
     NULL, true},
    {"simulated_memory_node", "kB", "memory for one node", BENCH_NO_CLUSTER, NULL, true},
    {"simulated_memory_actor", "kB", "memory for one actor", BENCH_NO_CLUSTER, NULL, true},
};
enum {
    ROW_JOIN,
    ROW_PLACE,
    ROW_RUN,
    ROW_HEARTBEAT,
    ROW_TICK,
    ROW_GROUP,
    ROW_STORM,
    ROW_NODE_BYTES,
    ROW_ACTOR_BYTES,
    ROW_COUNT
};

/* ---- Events ---- */

static void take_actions(world *w) {
    for (size_t i = 0; i < w->actions.count; i++) {
        const trpi_cluster_action *action = &w->actions.items[i];
        if (action->kind != TRPI_ACTION_SEND) {
            continue;
        }
        if (action->msg.type == TRPI_MSG_START) {
            uint64_t actor = action->msg.start.actor;
            TRP_ASSERT(actor > 0 && actor <= w->actors && w->todo_count < w->actors);
            w->places[actor - 1] = action->peer;
            w->lives[actor - 1] = action->msg.start.incarnation;
            w->todo[w->todo_count++] = actor;
            w->starts++;
        } else if (action->msg.type == TRPI_MSG_GROUP_STATE) {
            w->group = action->msg.group_state.group;
        }
    }
}

static void step(world *w, trpi_cluster_event event) {
    event.now_ns = ++w->now_ns;
    trpi_cluster_step(w->cluster, &event, &w->actions);
    take_actions(w);
}

static void tell(world *w, uint64_t peer, const trpi_msg *msg) {
    step(w, (trpi_cluster_event){.kind = TRPI_EVENT_MESSAGE, .peer = peer, .msg = msg});
}

static void driver_joins(world *w) {
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_HELLO,
                    .client_hello = {.version = TROUPE_VERSION,
                                     .kind = "driver",
                                     .host_id = "elsewhere",
                                     .job = "bench",
                                     .namespace_name = "",
                                     .exe = "/bin/true",
                                     .cwd = "/",
                                     .exe_hash = "",
                                     .package = ""}};
    tell(w, w->driver, &msg);
}

/* Room for a quarter more actors than there are, so that the others can take in those of a tenth of
 * the nodes. */
static void node_joins(world *w, uint64_t node) {
    char uuid[32];
    int64_t room = (int64_t)(w->actors / w->nodes) * 5 / 4 + 2;
    trpi_resource resources[] = {{"cpu", room * CPU}};
    trpi_format(uuid, sizeof(uuid), "node-%" PRIu64, node);
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
    tell(w, node, &msg);
}

static void spawn(world *w) {
    trpi_resource resources[] = {{"cpu", CPU}};
    trpi_msg msg = {.type = TRPI_MSG_SPAWN,
                    .spawn = {.request = ++w->requests,
                              .type = "actor",
                              .name = "",
                              .cwd = "",
                              .resources = resources,
                              .resources_count = 1,
                              .bundle = -1,
                              .restarts_max = -1}};
    tell(w, w->driver, &msg);
}

static void run_all(world *w) {
    while (w->todo_count > 0) {
        uint64_t actor = w->todo[--w->todo_count];
        trpi_msg msg = {.type = TRPI_MSG_STARTED,
                        .started = {actor, w->lives[actor - 1], 4242,
                                    "ipc:///tmp/troupe-0/12345678/node-12345678/w1", ""}};
        tell(w, w->places[actor - 1], &msg);
    }
}

static void make_group(world *w) {
    trpi_resource resource = {"cpu", CPU / 100};
    trpi_bundle bundles[BUNDLES];
    for (size_t i = 0; i < BUNDLES; i++) {
        bundles[i] = (trpi_bundle){&resource, 1};
    }
    trpi_msg make = {.type = TRPI_MSG_GROUP_CREATE,
                     .group_create = {++w->requests, "", TRP_SPREAD, bundles, BUNDLES, false}};
    tell(w, w->driver, &make);
    trpi_msg removal = {.type = TRPI_MSG_GROUP_REMOVE, .group_remove = {++w->requests, w->group}};
    tell(w, w->driver, &removal);
}

/* ---- One size ---- */

static size_t heap_bytes(void) {
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

static double rate(uint64_t count, double since_us) {
    return (double)count / ((bench_now_us() - since_us) / 1e6);
}

static trp_code fill(world *w, double *values, trp_error *err) {
    size_t before = heap_bytes();
    double start_us = bench_now_us();
    for (uint64_t node = 1; node <= w->nodes; node++) {
        node_joins(w, node);
    }
    values[ROW_JOIN] = rate(w->nodes, start_us);
    values[ROW_NODE_BYTES] = (double)(heap_bytes() - before) / (double)w->nodes / 1e3;
    before = heap_bytes();
    start_us = bench_now_us();
    for (uint64_t i = 0; i < w->actors; i++) {
        spawn(w);
    }
    values[ROW_PLACE] = rate(w->actors, start_us);
    if (w->starts != w->actors) {
        return trpi_fail(err, TRP_EINFEASIBLE, "of %" PRIu64 " actors %" PRIu64 " found a place",
                         w->actors, w->starts);
    }
    start_us = bench_now_us();
    run_all(w);
    values[ROW_RUN] = rate(w->actors, start_us);
    values[ROW_ACTOR_BYTES] = (double)(heap_bytes() - before) / (double)w->actors / 1e3;
    return bench_go_on(err);
}

static void keep_going(world *w, double *values) {
    uint64_t beats = 10 * w->nodes;
    double start_us = bench_now_us();
    for (uint64_t i = 0; i < beats; i++) {
        trpi_msg msg = {.type = TRPI_MSG_HEARTBEAT};
        tell(w, 1 + i % w->nodes, &msg);
    }
    values[ROW_HEARTBEAT] = rate(beats, start_us);
    start_us = bench_now_us();
    for (int i = 0; i < TICKS; i++) {
        step(w, (trpi_cluster_event){.kind = TRPI_EVENT_TICK});
    }
    values[ROW_TICK] = (bench_now_us() - start_us) / TICKS;
    start_us = bench_now_us();
    for (int i = 0; i < GROUPS; i++) {
        make_group(w);
    }
    values[ROW_GROUP] = rate(GROUPS, start_us);
}

/* A tenth of the nodes dies at once; until all their actors run elsewhere. */
static trp_code storm(world *w, double *values, trp_error *err) {
    uint64_t dead = w->nodes / 10, moved = 0;
    for (uint64_t actor = 0; actor < w->actors; actor++) {
        moved += w->places[actor] <= dead;
    }
    uint64_t want = w->starts + moved;
    double start_us = bench_now_us();
    for (uint64_t node = 1; node <= dead; node++) {
        step(w, (trpi_cluster_event){.kind = TRPI_EVENT_NODE_GONE,
                                     .id = node,
                                     .incarnation = 1,
                                     .reason = "its process ended"});
    }
    for (int ticks = 0; w->starts < want && ticks < 1000; ticks++) {
        w->now_ns = TRPI_MAX(w->now_ns, trpi_cluster_wake_ns(w->cluster));
        step(w, (trpi_cluster_event){.kind = TRPI_EVENT_TICK});
    }
    run_all(w);
    values[ROW_STORM] = rate(moved, start_us);
    return w->starts >= want
               ? TRP_OK
               : trpi_fail(err, TRP_EINFEASIBLE,
                           "of %" PRIu64 " actors of dead nodes %" PRIu64 " found no other place",
                           moved, want - w->starts);
}

static trp_code measure(uint64_t nodes, uint64_t actors, double *values, trp_error *err) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.actors_max = TRPI_MAX(config.actors_max, actors);
    config.nodes_max = TRPI_MAX(config.nodes_max, nodes);
    world w = {.nodes = nodes,
               .actors = actors,
               .driver = nodes + 1,
               .now_ns = 1000000000,
               .places = trpi_alloc(actors * sizeof(*w.places)),
               .lives = trpi_alloc(actors * sizeof(*w.lives)),
               .todo = trpi_alloc(actors * sizeof(*w.todo))};
    w.cluster = trpi_cluster_new(&config);
    driver_joins(&w);
    trp_code code = fill(&w, values, err);
    if (code == TRP_OK) {
        keep_going(&w, values);
        code = storm(&w, values, err);
    }
    const char *broken = code == TRP_OK ? trpi_cluster_check(w.cluster) : NULL;
    trpi_cluster_free(w.cluster);
    trpi_actions_release(&w.actions);
    free(w.places);
    free(w.lives);
    free(w.todo);
    return broken != NULL ? trpi_fail(err, TRP_ECORRUPT, "the cluster is wrong: %s", broken) : code;
}

/* ---- All sizes ---- */

trp_code bench_simulated(bench *b, uint64_t nodes, trp_error *err) {
    uint64_t sizes[] = {nodes / 10, nodes * 3 / 10, nodes};
    uint64_t per_node = TRPI_MAX(1, (b->actors > 0 ? b->actors : 100 * nodes) / nodes);
    double values[TRPI_COUNTOF(sizes)][ROW_COUNT];
    for (size_t i = 0; i < TRPI_COUNTOF(sizes); i++) {
        bench_progress("simulated: %" PRIu64 " nodes", sizes[i]);
        trp_code code = measure(sizes[i], sizes[i] * per_node, values[i], err);
        if (code != TRP_OK) {
            return trpi_context(err, code, "%" PRIu64 " nodes", sizes[i]);
        }
    }
    for (int row = 0; row < ROW_COUNT; row++) {
        for (size_t i = 0; i < TRPI_COUNTOF(sizes); i++) {
            bench_figure *figure = bench_figure_add(b, &rows[row]);
            figure->troupe = values[i][row];
            if (row == ROW_GROUP) {
                bench_judge_value(figure, ">= 500 /s", 500, true);
            }
            trpi_format(figure->note, sizeof(figure->note), "%" PRIu64 " nodes, %" PRIu64 " actors",
                        sizes[i], sizes[i] * per_node);
            if (i > 0) {
                figure->raw = values[0][row];
                figure->raw_what = "the smallest";
            }
        }
    }
    return TRP_OK;
}

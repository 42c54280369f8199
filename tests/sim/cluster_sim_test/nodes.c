/* nodes.c: node daemons and their workers, as far as the head can tell. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/cluster_sim_test/world.h"

size_t sim_node_workers(const sim_node *node) {
    size_t count = 0;
    for (int i = 0; node->running && i < SIM_WORKERS; i++) {
        count += node->workers[i].used;
    }
    return count;
}

static sim_event *after_in_life(sim_world *w, int index, uint64_t ms, sim_run run) {
    sim_event *event = sim_after(w, ms, run);
    event->index = index;
    event->life = w->nodes[index].life;
    return event;
}

static void say_exited(sim_world *w, sim_node *node, uint64_t actor, trpi_death death);
static void crash(sim_world *w, int index, bool orderly);

/* ---- Registration ---- */

static void say_hello(sim_world *w, sim_node *node) {
    trpi_resource resources[] = {{"cpu", node->cpus}, {"gpu", SIM_GPUS * 10000}};
    trpi_text devices[SIM_GPUS] = {{"gpu-a"}, {"gpu-b"}};
    trpi_text labels[] = {{node->life % 2 ? "zone=a" : "zone=b"}, {"ssd"}};
    trpi_holding holdings[SIM_WORKERS];
    trpi_msg msg = {.type = TRPI_MSG_NODE_HELLO,
                    .node_hello = {.version = TROUPE_VERSION,
                                   .uuid = node->uuid,
                                   .host = "127.0.0.1",
                                   .host_id = "host",
                                   .pid = 1,
                                   .name = node->uuid,
                                   .resources = resources,
                                   .resources_count = 2,
                                   .devices = devices,
                                   .devices_count = SIM_GPUS,
                                   .labels = labels,
                                   .labels_count = 1 + node->life % 3 / 2,
                                   .store_path = "/store",
                                   .holdings = holdings,
                                   .seq = ++node->hellos,
                                   .join = node->joins}};
    for (int i = 0; i < SIM_WORKERS; i++) {
        const sim_worker *worker = &node->workers[i];
        if (worker->used) {
            holdings[msg.node_hello.holdings_count++] =
                (trpi_holding){worker->actor, worker->incarnation, worker->pid, "ipc"};
        }
    }
    node->hello_ns = w->now_ns;
    sim_to_head(w, node->peer, &msg);
}

static void drop_worker(sim_world *w, sim_worker *worker) {
    if (worker->client >= 0) {
        sim_client_end(w, worker->client);
    }
    *worker = (sim_worker){.client = -1};
}

/* On a connection of its own. */
static void join(sim_world *w, int index) {
    sim_node *node = &w->nodes[index];
    node->joins++;
    node->peer = sim_peer_new(w, SIM_NODE, index, node->life);
    say_hello(w, node);
}

/* The lease is out, or the head has given this node up: everything here ends, nothing is said of
 * it. */
static void clear(sim_world *w, int index) {
    sim_node *node = &w->nodes[index];
    for (int i = 0; i < SIM_WORKERS; i++) {
        if (node->workers[i].used) {
            drop_worker(w, &node->workers[i]);
        }
    }
    sim_jobs_clear(w, index);
    node->registered = node->broken = false;
    node->said_count = 0;
    join(w, index);
}

static void say_again(sim_world *w, sim_node *node) {
    while (!node->broken && node->said_count) {
        node->said_count--;
        say_exited(w, node, node->said_actors[node->said_count], node->said[node->said_count]);
    }
}

static void beat(sim_world *w, sim_event *event) {
    sim_node *node = &w->nodes[event->index];
    if (!node->running || node->life != event->life) {
        return;
    }
    uint64_t silent_ns = w->now_ns - node->ack_ns;
    if (node->registered && silent_ns > w->rules.node_timeout_ms * SIM_MS) {
        clear(w, event->index);
    } else if (!node->registered) {
        node->broken = node->broken && w->now_ns < node->away_until_ns;
        join(w, event->index);
    } else if (node->broken) {
        node->broken = node->broken && w->now_ns < node->away_until_ns;
        say_again(w, node);
        say_hello(w,
                  node); /* of the old life still, with what it holds, when the connection broke */
    }
    trpi_msg msg = {.type = TRPI_MSG_HEARTBEAT,
                    .heartbeat = {node->id, node->incarnation, 0, ++node->seq}};
    node->sent_ns[node->seq % SIM_BEATS] = w->now_ns;
    if (node->registered) {
        sim_to_head(w, node->beat_peer, &msg);
    }
    after_in_life(w, event->index, w->rules.heartbeat_ms, beat);
}

void sim_node_boot(sim_world *w, int index) {
    sim_node *node = &w->nodes[index];
    int64_t cpus = node->cpus;
    *node = (sim_node){.running = true, .life = ++w->last_life, .cpus = cpus};
    trpi_format(node->uuid, sizeof(node->uuid), "node-%d-%" PRIu64, index, node->life);
    for (int i = 0; i < SIM_WORKERS; i++) {
        node->workers[i].client = -1;
    }
    for (int i = 0; i < SIM_JOBS; i++) {
        node->jobs[i].driver = -1;
    }
    node->beat_peer = sim_peer_new(w, SIM_BEAT, index, node->life);
    node->ack_ns = w->now_ns;
    after_in_life(w, index, 0, beat);
}

/* ---- Ends of workers ---- */

/* A connection that is broken loses it; so the node keeps it, to be told again before its hello. */
static void say_exited(sim_world *w, sim_node *node, uint64_t actor, trpi_death death) {
    if (node->broken && node->said_count < TRPI_COUNTOF(node->said)) {
        node->said[node->said_count] = death;
        node->said_actors[node->said_count++] = actor;
    }
    death.message = "as simulated";
    death.stderr_tail = "last words";
    trpi_msg msg = {.type = TRPI_MSG_EXITED, .exited = {actor, &death, 1}};
    sim_to_head(w, node->peer, &msg);
}

static void worker_exits(sim_world *w, sim_node *node, sim_worker *worker, trpi_death death) {
    sim_worker gone = *worker;
    death.incarnation = gone.incarnation;
    death.node = node->id;
    death.pid = gone.pid;
    drop_worker(w, worker);
    say_exited(w, node, gone.actor, death);
}

static sim_worker *worker_of(sim_world *w, const sim_event *event) {
    sim_node *node = &w->nodes[event->index];
    sim_worker *worker = &node->workers[event->slot];
    bool same = node->running && worker->used && worker->life == event->life;
    return same ? worker : NULL;
}

static sim_event *after_in_worker(sim_world *w, int index, int slot, uint64_t ms, sim_run run) {
    sim_event *event = sim_after(w, ms, run);
    event->index = index;
    event->slot = slot;
    event->life = w->nodes[index].workers[slot].life;
    return event;
}

static void dies(sim_world *w, sim_event *event) {
    static const trpi_death ends[] = {
        {.cause = TRP_CAUSE_SIGNALED, .signal = 11},
        {.cause = TRP_CAUSE_EXITED, .exit_code = 4},
        {.cause = TRP_CAUSE_EXITED, .exit_code = 0},
        {.cause = TRP_CAUSE_FINISHED},
        {.cause = TRP_CAUSE_OUT_OF_MEMORY, .signal = 9},
        {.cause = TRP_CAUSE_HUNG, .signal = 9},
    };
    sim_worker *worker = worker_of(w, event);
    if (worker && !worker->dying) {
        uint64_t kind = sim_draw(w, 10);
        worker_exits(w, &w->nodes[event->index], worker,
                     ends[kind < TRPI_COUNTOF(ends) ? kind : 0]);
    }
}

static void killed(sim_world *w, sim_event *event) {
    sim_worker *worker = worker_of(w, event);
    if (worker) {
        worker_exits(w, &w->nodes[event->index], worker,
                     (trpi_death){.cause = TRP_CAUSE_KILLED, .signal = 9});
    }
}

/* ---- Saved states: a number that grows ---- */

static void saves(sim_world *w, sim_event *event) {
    const sim_worker *worker = worker_of(w, event);
    if (!worker || worker->actor >= SIM_ACTORS) {
        return;
    }
    uint64_t number = ++w->actors[worker->actor].saves;
    trpi_msg msg = {
        .type = TRPI_MSG_SAVE,
        .save = {worker->actor, worker->incarnation, number, {&number, sizeof(number)}}};
    sim_to_head(w, w->nodes[event->index].peer, &msg);
    after_in_worker(w, event->index, event->slot, 500 + sim_draw(w, 1000), saves);
}

/* Nothing older than what the actor was told to be saved, and nothing that it has not said. */
static void check_saved(sim_world *w, const trpi_msg_start *msg) {
    const sim_actor *actor = &w->actors[msg->actor % SIM_ACTORS];
    uint64_t number = 0;
    if (msg->has_saved && msg->saved.size == sizeof(number)) {
        memcpy(&number, msg->saved.data, sizeof(number));
    }
    w->restored += msg->has_saved;
    if (number < actor->saved || number > actor->saves) {
        sim_fail(w,
                 "actor a%" PRIu64 " gets state %" PRIu64 " and had saved %" PRIu64 " of %" PRIu64,
                 msg->actor, number, actor->saved, actor->saves);
    }
}

/* ---- Starts of workers ---- */

static void starts(sim_world *w, sim_event *event) {
    sim_worker *worker = worker_of(w, event);
    sim_node *node = &w->nodes[event->index];
    if (!worker || worker->dying) {
        return;
    }
    uint64_t fate = w->quiet ? 100 : sim_draw(w, 100);
    if (fate < 4) {
        worker_exits(w, node, worker, (trpi_death){.cause = TRP_CAUSE_NEVER_STARTED});
        return;
    }
    if (fate < 10) {
        dies(w, event);
        return;
    }
    if (fate < 13) {
        worker_exits(w, node, worker, (trpi_death){.cause = TRP_CAUSE_START_TIMEOUT, .signal = 9});
        return;
    }
    worker->started = true;
    trpi_msg msg = {.type = TRPI_MSG_STARTED,
                    .started = {worker->actor, worker->incarnation, worker->pid, "ipc", ""}};
    sim_to_head(w, node->peer, &msg);
    if (!w->quiet && sim_chance(w, 25)) {
        worker->client = sim_client_start(w, worker, 0);
    }
    if (sim_chance(w, 40)) {
        after_in_worker(w, event->index, event->slot, sim_draw(w, 3000), dies);
    }
    after_in_worker(w, event->index, event->slot, sim_draw(w, 1000), saves);
}

/* What the node itself can see of the head's book-keeping: never more than it has. */
static void check_load(sim_world *w, const sim_node *node) {
    int64_t cpus = 0, gpus[SIM_GPUS] = {0};
    for (int i = 0; i < SIM_WORKERS; i++) {
        const sim_worker *worker = &node->workers[i];
        if (!worker->used || worker->dying) {
            continue;
        }
        cpus += worker->cpus;
        int64_t asked = w->actors[worker->actor].gpus;
        for (size_t k = 0; k < worker->device_count; k++) {
            int device = strcmp(worker->devices[k], "gpu-a") == 0 ? 0 : 1;
            gpus[device] += asked / (int64_t)worker->device_count;
        }
    }
    if (cpus > node->cpus) {
        sim_fail(w, "%s runs %" PRId64 " cpu and has %" PRId64, node->uuid, cpus, node->cpus);
    }
    for (int i = 0; i < SIM_GPUS; i++) {
        if (gpus[i] > 10000) {
            sim_fail(w, "%s shares a gpu beyond 1: %" PRId64, node->uuid, gpus[i]);
        }
    }
}

/* Of an exclusive one, wherever it is: the head may have given up its node, which still runs. */
static void check_alone(sim_world *w, const sim_node *here, uint64_t actor, bool exclusive) {
    for (int i = 0; i < SIM_NODES; i++) {
        const sim_node *node = &w->nodes[i];
        for (int k = 0; node->running && k < SIM_WORKERS; k++) {
            if (node->workers[k].used && node->workers[k].actor == actor && node != here &&
                (exclusive || sim_head_trusts(w, node))) {
                sim_fail(w, "actor a%" PRIu64 " starts on %s and still runs on %s", actor,
                         here->uuid, node->uuid);
            }
        }
    }
}

static void check_orphans(sim_world *w, const trpi_msg_start *msg) {
    for (size_t i = 0; msg->exclusive && i < TRPI_COUNTOF(w->orphans); i++) {
        if (w->orphans[i].actor == msg->actor && w->now_ns < w->orphans[i].until_ns) {
            sim_fail(w, "exclusive actor a%" PRIu64 " starts beside an orphan of its", msg->actor);
        }
    }
}

static int slot_of(const sim_node *node, uint64_t actor, uint64_t incarnation) {
    for (int i = 0; i < SIM_WORKERS; i++) {
        const sim_worker *worker = &node->workers[i];
        if (worker->used && worker->actor == actor && worker->incarnation == incarnation) {
            return i;
        }
    }
    return -1;
}

static void start(sim_world *w, int index, const trpi_msg_start *msg) {
    sim_node *node = &w->nodes[index];
    int slot = 0;
    if (slot_of(node, msg->actor, msg->incarnation) >= 0) {
        sim_fail(w, "actor a%" PRIu64 " is started twice", msg->actor);
        return;
    }
    while (slot < SIM_WORKERS && node->workers[slot].used) {
        slot++;
    }
    if (slot == SIM_WORKERS) {
        sim_fail(w, "%s has no room for another process", node->uuid);
        return;
    }
    sim_worker *worker = &node->workers[slot];
    *worker = (sim_worker){.used = true,
                           .actor = msg->actor,
                           .incarnation = msg->incarnation,
                           .life = ++w->last_life,
                           .pid = ++w->last_pid,
                           .cpus = msg->cpus,
                           .device_count = msg->devices_count,
                           .exclusive = msg->exclusive,
                           .client = -1};
    for (size_t i = 0; i < msg->devices_count && i < SIM_GPUS; i++) {
        TRPI_SET(worker->devices[i], msg->devices[i].value);
    }
    if (sim_head_trusts(w, node)) { /* else this START is from before it was given up */
        check_load(w, node);
        check_alone(w, node, msg->actor, msg->exclusive);
        check_saved(w, msg);
        check_orphans(w, msg);
        if (node->drained_id == node->id) {
            sim_fail(w, "actor a%" PRIu64 " starts on %s, which is drained", msg->actor,
                     node->uuid);
        }
    }
    if (msg->exclusive && w->now_ns >= node->lease_ns) {
        worker_exits(w, node, worker, (trpi_death){.cause = TRP_CAUSE_EXITED, .exit_code = 3});
        return;
    }
    after_in_worker(w, index, slot, sim_draw(w, 200), starts);
}

/* Asked to end in good order: most do in time. */
static void stops(sim_world *w, sim_event *event) {
    sim_worker *worker = worker_of(w, event);
    if (worker) {
        worker_exits(w, &w->nodes[event->index], worker, (trpi_death){.cause = TRP_CAUSE_EXITED});
    }
}

static void end(sim_world *w, int index, const trpi_msg_end *msg) {
    sim_node *node = &w->nodes[index];
    int slot = slot_of(node, msg->actor, msg->incarnation);
    if (slot < 0) {
        say_exited(w, node, msg->actor,
                   (trpi_death){.incarnation = msg->incarnation, .cause = msg->cause});
    } else if (msg->grace_ms == 0) {
        node->workers[slot].dying = true;
        after_in_worker(w, index, slot, sim_draw(w, 20), killed);
    } else if (!node->workers[slot].dying) {
        node->workers[slot].dying = true; /* said again, the first deadline holds */
        after_in_worker(w, index, slot, sim_draw(w, 2 * msg->grace_ms), stops);
        after_in_worker(w, index, slot, msg->grace_ms, killed);
    }
}

/* ---- The head's word ---- */

/* An exclusive worker ends by itself when the head has not been heard for the node timeout. */
static void lease_ends(sim_world *w, sim_event *event) {
    sim_node *node = &w->nodes[event->index];
    for (int i = 0; node->running && node->life == event->life && w->now_ns >= node->lease_ns &&
                    i < SIM_WORKERS;
         i++) {
        if (node->workers[i].used && node->workers[i].exclusive) {
            worker_exits(w, node, &node->workers[i],
                         (trpi_death){.cause = TRP_CAUSE_EXITED, .exit_code = 3});
        }
    }
}

/* The head was there when this was said, at the earliest. */
static void have_lease(sim_world *w, int index, uint64_t since_ns) {
    sim_node *node = &w->nodes[index];
    uint64_t until_ns = since_ns + w->rules.node_timeout_ms * SIM_MS;
    if (until_ns > node->lease_ns) {
        node->lease_ns = until_ns;
        uint64_t left_ns = until_ns > w->now_ns ? until_ns - w->now_ns : 0;
        after_in_life(w, index, (left_ns + SIM_MS - 1) / SIM_MS, lease_ends);
    }
}

static void saved(sim_world *w, const trpi_msg_saved *msg) {
    sim_actor *actor = &w->actors[msg->actor % SIM_ACTORS];
    if (msg->code == TRP_OK) {
        actor->saved = TRPI_MAX(actor->saved, msg->request);
    }
}

static void leaves(sim_world *w, sim_event *event) {
    if (w->nodes[event->index].running && w->nodes[event->index].life == event->life) {
        crash(w, event->index, true);
    }
}

static void welcome(sim_world *w, int index, const trpi_msg_node_welcome *msg) {
    sim_node *node = &w->nodes[index];
    if (node->registered && node->incarnation != msg->incarnation) {
        clear(w, index); /* it was given up: what runs here is nobody's any more */
        return;
    }
    if (!node->registered) {
        node->well_ns = w->now_ns;
    }
    have_lease(w, index, node->hello_ns);
    node->registered = true;
    node->id = msg->node;
    node->incarnation = msg->incarnation;
    node->ack_ns = w->now_ns;
}

void sim_node_hears(sim_world *w, int index, const trpi_msg *msg) {
    sim_node *node = &w->nodes[index];
    switch (msg->type) {
    case TRPI_MSG_NODE_WELCOME:
        welcome(w, index, &msg->node_welcome);
        break;
    case TRPI_MSG_HEARTBEAT_ACK:
        if (msg->heartbeat_ack.known) {
            node->ack_ns = w->now_ns;
            have_lease(w, index, node->sent_ns[msg->heartbeat_ack.seq % SIM_BEATS]);
        } else if (node->registered) {
            clear(w, index);
        }
        break;
    case TRPI_MSG_START:
        start(w, index, &msg->start);
        break;
    case TRPI_MSG_END:
        end(w, index, &msg->end);
        break;
    case TRPI_MSG_JOB_START:
        sim_job_start(w, index, &msg->job_start);
        break;
    case TRPI_MSG_JOB_END:
        sim_job_end(w, index, &msg->job_end);
        break;
    case TRPI_MSG_SAVED:
        saved(w, &msg->saved);
        break;
    case TRPI_MSG_DRAIN_NOTICE:
        if (!node->drained_id) {
            after_in_life(w, index, msg->drain_notice.deadline_ms + sim_draw(w, 1000), leaves);
        }
        node->drained_id = node->id;
        break;
    case TRPI_MSG_WATCH_PID:
    case TRPI_MSG_SIGNAL:
    case TRPI_MSG_CLIENT_GONE:
    case TRPI_MSG_NODE_GONE:
        break;
    default:
        sim_fail(w, "a node hears %s", trpi_msg_name(msg->type));
    }
}

/* A stall of the head is no fault of the node's: it must not cost it its life. */
void sim_nodes_check(sim_world *w) {
    for (int i = 0; i < SIM_NODES; i++) {
        const sim_node *node = &w->nodes[i];
        uint64_t since = TRPI_MAX(node->well_ns, node->away_until_ns);
        since += 2 * w->rules.node_timeout_ms * SIM_MS;
        if (node->running && node->registered && !node->broken && w->now_ns > since &&
            !sim_head_trusts(w, node)) {
            sim_fail(w, "%s could be heard all the time and was given up", node->uuid);
        }
    }
}

/* ---- Faults ---- */

static void reboot(sim_world *w, sim_event *event) {
    if (!w->nodes[event->index].running) {
        sim_node_boot(w, event->index);
    }
}

static void crash(sim_world *w, int index, bool orderly) {
    sim_node *node = &w->nodes[index];
    sim_jobs_clear(w, index);
    for (int i = 0; i < SIM_WORKERS; i++) {
        sim_worker *worker = &node->workers[i];
        if (worker->used && worker->exclusive && !orderly) { /* it may outlive its daemon */
            w->orphans[w->orphan_count++ % TRPI_COUNTOF(w->orphans)] =
                (sim_orphan){worker->actor, node->lease_ns};
        }
        if (worker->used) {
            drop_worker(w, worker);
        }
    }
    if (orderly && node->registered) {
        trpi_msg msg = {.type = TRPI_MSG_NODE_BYE, .node_bye = {node->id, "SIGTERM"}};
        sim_to_head(w, node->peer, &msg);
    } else if (node->registered && sim_chance(w, 50) && w->now_ns >= w->stalled_until_ns) {
        trpi_cluster_event gone = {.kind = TRPI_EVENT_NODE_GONE,
                                   .id = node->id,
                                   .incarnation = node->incarnation,
                                   .reason = "unexpected: its process ended"};
        sim_head_event(w, &gone);
    }
    node->running = false;
    sim_after(w, sim_draw(w, 3000), reboot)->index = index;
}

void sim_node_fault(sim_world *w, int index) {
    sim_node *node = &w->nodes[index];
    if (!node->running) {
        return;
    }
    switch (sim_draw(w, 4)) {
    case 0:
        crash(w, index, false);
        break;
    case 1:
        crash(w, index, true);
        break;
    case 2: /* a partition: what is said arrives late */
        node->away_until_ns = TRPI_MAX(
            node->away_until_ns, w->now_ns + sim_draw(w, 2 * w->rules.node_timeout_ms) * SIM_MS);
        break;
    case 3: /* the connection breaks: what is said is lost, until the next hello */
        node->broken = true;
        node->away_until_ns = TRPI_MAX(node->away_until_ns,
                                       w->now_ns + sim_draw(w, w->rules.node_timeout_ms) * SIM_MS);
        break;
    }
}

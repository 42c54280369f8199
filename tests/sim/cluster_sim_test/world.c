#include "tests/sim/cluster_sim_test/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/lifecycle.h"
#include "core/base/hash.h"
#include "core/wire/codec.h"

/* ---- Chance ---- */

uint64_t sim_draw(sim_world *w, uint64_t below) {
    return trpi_random_next(&w->random) % below;
}

bool sim_chance(sim_world *w, uint64_t percent) {
    return sim_draw(w, 100) < percent;
}

void sim_fail(sim_world *w, const char *format, ...) {
    char text[400];
    va_list args;
    if (w->failure[0]) {
        return; /* the first one is the one to read */
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    trpi_format(w->failure, sizeof(w->failure), "at %" PRIu64 " ms, step %" PRIu64 ": %s",
                w->now_ns / SIM_MS, w->steps, text);
}

/* ---- Time: a binary heap of what is to happen ---- */

static bool earlier(const sim_event *a, const sim_event *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static void swap(sim_event *a, sim_event *b) {
    sim_event kept = *a;
    *a = *b;
    *b = kept;
}

static sim_event *push(sim_world *w, const sim_event *event) {
    if (w->heap_count == w->heap_capacity) {
        w->heap_capacity = TRPI_MAX(2 * w->heap_capacity, (size_t)64);
        w->heap = trpi_realloc(w->heap, w->heap_capacity * sizeof(sim_event));
    }
    size_t at = w->heap_count++;
    w->heap[at] = *event;
    while (at > 0 && earlier(&w->heap[at], &w->heap[(at - 1) / 2])) {
        swap(&w->heap[at], &w->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    return &w->heap[at];
}

static sim_event pop(sim_world *w) {
    sim_event first = w->heap[0];
    size_t at = 0;
    w->heap[0] = w->heap[--w->heap_count];
    for (;;) {
        size_t least = at, left = 2 * at + 1, right = 2 * at + 2;
        if (left < w->heap_count && earlier(&w->heap[left], &w->heap[least])) {
            least = left;
        }
        if (right < w->heap_count && earlier(&w->heap[right], &w->heap[least])) {
            least = right;
        }
        if (least == at) {
            return first;
        }
        swap(&w->heap[at], &w->heap[least]);
        at = least;
    }
}

sim_event *sim_after(sim_world *w, uint64_t ms, sim_run run) {
    sim_event event = {.at_ns = w->now_ns + ms * SIM_MS, .number = ++w->last_number, .run = run};
    return push(w, &event);
}

/* ---- The network ---- */

uint64_t sim_peer_new(sim_world *w, int kind, int index, uint64_t life) {
    if (w->peer_count == w->peer_capacity) {
        w->peer_capacity = TRPI_MAX(2 * w->peer_capacity, (size_t)64);
        w->peers = trpi_realloc(w->peers, w->peer_capacity * sizeof(sim_peer));
    }
    w->peers[w->peer_count] = (sim_peer){.kind = kind, .index = index, .life = life};
    return ++w->peer_count; /* numbers from 1 */
}

static bool peer_stands(const sim_world *w, const sim_peer *peer) {
    switch (peer->kind) {
    case SIM_NODE:
    case SIM_BEAT:
        return w->nodes[peer->index].running && w->nodes[peer->index].life == peer->life;
    case SIM_CLIENT:
        return w->clients[peer->index].running;
    default:
        return false;
    }
}

static uint64_t away_until(const sim_world *w, const sim_peer *peer) {
    return peer->kind == SIM_CLIENT ? w->clients[peer->index].away_until_ns
                                    : w->nodes[peer->index].away_until_ns;
}

static bool loses(const sim_world *w, const sim_peer *peer) {
    return peer->kind != SIM_CLIENT && w->nodes[peer->index].broken;
}

/* When a message sent now arrives: after a delay, after the partition, and never before one that
 * was sent earlier on this connection. */
static uint64_t arrival(sim_world *w, const sim_peer *peer, uint64_t *last_ns) {
    uint64_t at = w->now_ns + sim_draw(w, w->rules.delay_max_ms * 1000 + 1) * 1000;
    at = TRPI_MAX(at, away_until(w, peer));
    at = TRPI_MAX(at, *last_ns);
    *last_ns = at;
    return at;
}

/* The connection may break, but what has no other way to be told again is said again on it: links
 * do that (core/state/link.h). The rest must get by without. */
static bool is_sure(trpi_msg_type type) {
    return type == TRPI_MSG_JOB_START || type == TRPI_MSG_JOB_EXITED;
}

static void step(sim_world *w, const trpi_cluster_event *event);

static void arrive_at_head(sim_world *w, sim_event *event) {
    trpi_msg msg;
    trp_error err = {0};
    if (w->now_ns < w->stalled_until_ns) { /* unread until the head goes on */
        event->at_ns = w->stalled_until_ns;
        push(w, event);
        event->bytes = (trp_buf){0};
        return;
    }
    trpi_arena_reset(&w->arena);
    if (trpi_decode(trp_buf_bytes(&event->bytes), &w->arena, &msg, &err) != TRP_OK) {
        sim_fail(w, "a message does not decode: %s", err.message);
        return;
    }
    if (w->verbose) {
        char text[300];
        trpi_msg_print(&msg, text, sizeof(text));
        printf("%8" PRIu64 " ms  peer %" PRIu64 " -> %s\n", w->now_ns / SIM_MS, event->peer, text);
    }
    trpi_cluster_event in = {.kind = TRPI_EVENT_MESSAGE, .peer = event->peer, .msg = &msg};
    step(w, &in);
}

void sim_to_head(sim_world *w, uint64_t number, const trpi_msg *msg) {
    sim_peer *peer = &w->peers[number - 1];
    sim_event event = {.run = arrive_at_head, .peer = number, .number = ++w->last_number};
    if (loses(w, peer) && !is_sure(msg->type)) {
        return;
    }
    if (trpi_encode(msg, &event.bytes, NULL) != TRP_OK) {
        sim_fail(w, "a message does not encode");
        return;
    }
    event.at_ns = arrival(w, peer, &peer->to_head_ns);
    push(w, &event);
}

static void arrive_from_head(sim_world *w, sim_event *event) {
    const sim_peer peer = w->peers[event->peer - 1];
    trpi_msg msg;
    trpi_arena arena = {0};
    trp_error err = {0};
    if (!peer_stands(w, &peer)) {
        return;
    }
    if (trpi_decode(trp_buf_bytes(&event->bytes), &arena, &msg, &err) != TRP_OK) {
        sim_fail(w, "the head's message does not decode: %s", err.message);
    } else if (peer.kind == SIM_NODE && loses(w, &peer) && !is_sure(msg.type)) {
        trpi_arena_release(&arena);
        return;
    } else if (peer.kind == SIM_CLIENT) {
        sim_client_hears(w, peer.index, &msg);
    } else if (peer.kind == SIM_BEAT || w->nodes[peer.index].peer == event->peer) {
        sim_node_hears(w, peer.index, &msg);
    }
    trpi_arena_release(&arena);
}

/* ---- The head ---- */

static void send_from_head(sim_world *w, const trpi_cluster_action *action) {
    sim_event event = {.run = arrive_from_head, .peer = action->peer, .number = ++w->last_number};
    if (action->peer == 0 || action->peer > w->peer_count) {
        sim_fail(w, "%s to nobody", trpi_msg_name(action->msg.type));
        return;
    }
    sim_peer *peer = &w->peers[action->peer - 1];
    if (trpi_encode(&action->msg, &event.bytes, NULL) != TRP_OK) {
        sim_fail(w, "an action does not encode");
        return;
    }
    w->trace = w->trace * 31 + trpi_hash64(event.bytes.data, event.bytes.size) + action->peer;
    if (w->verbose) {
        char text[700];
        trpi_msg_print(&action->msg, text, sizeof(text));
        printf("%8" PRIu64 " ms  peer %" PRIu64 " <- %s\n", w->now_ns / SIM_MS, action->peer, text);
    }
    event.at_ns = arrival(w, peer, &peer->from_head_ns);
    push(w, &event);
}

static void step(sim_world *w, const trpi_cluster_event *event) {
    trpi_cluster_event timed = *event;
    timed.now_ns = w->now_ns;
    w->steps++;
    trpi_cluster_step(w->cluster, &timed, &w->actions);
    for (size_t i = 0; i < w->actions.count; i++) {
        w->trace = w->trace * 31 + w->actions.items[i].kind;
        if (w->actions.items[i].kind == TRPI_ACTION_SEND) {
            send_from_head(w, &w->actions.items[i]);
        }
    }
    const char *broken = trpi_cluster_check(w->cluster);
    if (broken) {
        sim_fail(w, "%s", broken);
    }
}

void sim_head_event(sim_world *w, trpi_cluster_event *event) {
    step(w, event);
}

bool sim_head_trusts(const sim_world *w, const sim_node *node) {
    trpi_node_view view;
    uint64_t id = node->id ? node->id - 1 : 0;
    return node->id && trpi_cluster_next_node(w->cluster, &id, &view) && id == node->id &&
           view.living && view.incarnation == node->incarnation &&
           strcmp(view.uuid, node->uuid) == 0;
}

static void tick(sim_world *w, sim_event *event) {
    if (w->now_ns < w->stalled_until_ns) { /* a stalled head does not see the time pass either */
        /* and looks at the clock before it reads what came meanwhile: number 0 is before all others
         */
        push(w, &(sim_event){.at_ns = w->stalled_until_ns, .run = tick});
        return;
    }
    step(w, &(trpi_cluster_event){.kind = TRPI_EVENT_TICK});
    sim_nodes_check(w);
    w->turns += trpi_cluster_get_counts(w->cluster).turns > 0;
    sim_after(w, w->rules.tick_ms, tick);
}

/* ---- Faults ---- */

static void fault(sim_world *w, sim_event *event) {
    if (w->quiet) {
        return;
    }
    if (sim_chance(w, w->rules.fault_percent)) {
        uint64_t kind = sim_draw(w, 10);
        if (kind == 0) {
            uint64_t until = w->now_ns + sim_draw(w, 2 * w->rules.node_timeout_ms) * SIM_MS;
            w->stalled_until_ns = TRPI_MAX(w->stalled_until_ns, until);
        } else if (kind < 7) {
            sim_node_fault(w, (int)sim_draw(w, SIM_NODES));
        } else if (w->client_count) {
            sim_client_fault(w, (int)sim_draw(w, (uint64_t)w->client_count));
        }
    }
    sim_after(w, 100, fault);
}

static void be_quiet(sim_world *w, sim_event *event) {
    w->quiet = true;
    sim_clients_settle(w);
}

static void start_driver(sim_world *w, sim_event *event) {
    if (!w->quiet) {
        (void)sim_client_start(w, NULL, 0);
        sim_after(w, 100 + sim_draw(w, 2000), start_driver);
    }
}

/* ---- Beginning and end ---- */

static void draw_rules(sim_world *w) {
    w->rules = (sim_rules){
        .node_timeout_ms = 1000 + sim_draw(w, 1000),
        .client_timeout_ms = 2000 + sim_draw(w, 1000),
        .heartbeat_ms = 200,
        .tick_ms = 100,
        .fault_percent = sim_draw(w, 4) * 10,
        .reserve_after_ms = sim_draw(w, 3) * 300,
        .delay_max_ms = 1 + sim_draw(w, 60),
        .faults_until_ms = 8000,
        .end_ms = 24000,
    };
}

static trpi_cluster_config config_of(sim_world *w) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.cluster = "simulated";
    config.seed = w->seed;
    config.heartbeat_ms = w->rules.heartbeat_ms;
    config.node_timeout_ms = w->rules.node_timeout_ms;
    config.client_timeout_ms = w->rules.client_timeout_ms;
    config.tick_ms = w->rules.tick_ms;
    config.end_repeat_ms = 400;
    config.start_timeout_ms = 500;
    config.restart_backoff_ms = 20;
    config.restart_backoff_max_ms = 500;
    config.restart_forget_ms = 500;
    config.reserve_after_ms = w->rules.reserve_after_ms;
    config.saved_bytes_max = sim_chance(w, 20) ? 20 : 1 << 20;
    config.host_id = sim_chance(w, 50) ? "host" : "";
    config.dead_actors_kept = sim_chance(w, 50) ? 3 : 10000;
    config.dead_nodes_kept = sim_chance(w, 50) ? 1 : 1000;
    config.dead_tails_kept = 4;
    config.jobs_kept = sim_chance(w, 50) ? 2 : 1000;
    return config;
}

sim_world *sim_world_new(uint64_t seed, bool verbose) {
    sim_world *w = trpi_alloc(sizeof(*w));
    w->seed = seed;
    w->random = seed * 0x9e3779b97f4a7c15u + 1;
    w->verbose = verbose;
    w->now_ns = 1000 * SIM_MS;
    draw_rules(w);
    trpi_cluster_config config = config_of(w);
    w->cluster = trpi_cluster_new(&config);
    for (int i = 0; i < SIM_NODES; i++) {
        w->nodes[i].cpus = (int64_t)(2 + sim_draw(w, 3)) * 10000;
        sim_node_boot(w, i);
    }
    sim_after(w, 0, tick);
    sim_after(w, 10, start_driver);
    sim_after(w, 20, start_driver);
    sim_after(w, 300, fault);
    sim_after(w, w->rules.faults_until_ms, be_quiet);
    return w;
}

void sim_world_free(sim_world *w) {
    while (w->heap_count) {
        sim_event event = pop(w);
        trp_buf_release(&event.bytes);
    }
    trpi_cluster_free(w->cluster);
    trpi_actions_release(&w->actions);
    trpi_arena_release(&w->arena);
    free(w->heap);
    free(w->peers);
    free(w);
}

static void check_rest_of_ties(sim_world *w) {
    trpi_cluster_counts counts = trpi_cluster_get_counts(w->cluster);
    trpi_gang_view gang;
    trpi_job_view job;
    uint64_t id = 0;
    if (trpi_cluster_next_gang(w->cluster, &id, &gang)) {
        sim_fail(w, "gang x%" PRIu64 " is left at the end: %s", id, gang.reason);
    }
    id = 0;
    while (trpi_cluster_next_job(w->cluster, &id, &job)) {
        if (job.running) {
            sim_fail(w, "job j%" PRIu64 " is %s at the end", id, trpi_job_state_name(job.state));
        }
    }
    if (counts.links || counts.saved_bytes || counts.turns) {
        sim_fail(w, "links, saved states or turns are left at the end");
    }
}

/* After the faults everything must have come to rest: all dead with a cause, all given back. */
static void check_rest(sim_world *w) {
    trpi_actor_view actor;
    trpi_group_view group;
    trpi_resource_view resource;
    uint64_t id = 0;
    while (trpi_cluster_next_actor(w->cluster, &id, &actor)) {
        if (actor.phase != TRP_ACTOR_DEAD) {
            sim_fail(w, "actor a%" PRIu64 " is %s at the end: %s", id, trpi_phase_name(actor.phase),
                     actor.waiting_for);
        }
    }
    id = 0;
    if (trpi_cluster_next_group(w->cluster, &id, &group)) {
        sim_fail(w, "group g%" PRIu64 " is left at the end", id);
    }
    check_rest_of_ties(w);
    for (size_t i = 0; trpi_cluster_resource_at(w->cluster, 0, i, &resource); i++) {
        if (resource.used) {
            sim_fail(w, "%" PRId64 " of %s were not given back", resource.used, resource.name);
        }
    }
    for (int i = 0; i < SIM_NODES; i++) {
        if (sim_node_workers(&w->nodes[i])) {
            sim_fail(w, "%zu processes outlive their actors on %s", sim_node_workers(&w->nodes[i]),
                     w->nodes[i].uuid);
        }
    }
    for (int i = 0; i < w->client_count; i++) {
        if (w->clients[i].running) {
            sim_fail(w, "client %d has no answer to its goodbye", i);
        }
    }
}

void sim_world_run(sim_world *w) {
    uint64_t end_ns = w->now_ns + w->rules.end_ms * SIM_MS;
    while (!w->failure[0] && w->heap_count && w->heap[0].at_ns <= end_ns) {
        sim_event event = pop(w);
        w->now_ns = TRPI_MAX(w->now_ns, event.at_ns);
        event.run(w, &event);
        trp_buf_release(&event.bytes);
    }
    if (!w->failure[0]) {
        check_rest(w);
    }
    w->tilts = trpi_cluster_get_counts(w->cluster).tilts;
}

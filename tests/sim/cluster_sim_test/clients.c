/* clients.c: drivers, and workers whose actors call others: they ask for anything, at random. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/cluster_sim_test/world.h"

static void say(sim_world *w, int index, const trpi_msg *msg) {
    sim_to_head(w, w->clients[index].peer, msg);
}

static uint64_t new_request(sim_client *client) {
    client->open_requests++;
    return ++client->request;
}

/* The answer waits until processes are gone. */
#define WAIT ((uint64_t)1 << 40)

static uint64_t new_wait(sim_client *client) {
    client->open_waits++;
    return ++client->request | WAIT;
}

/* ---- Beginning ---- */

static void beat(sim_world *w, sim_event *event) {
    const sim_client *client = &w->clients[event->index];
    if (client->running) {
        trpi_msg msg = {.type = TRPI_MSG_HEARTBEAT, .heartbeat = {.client = client->id}};
        if (client->welcomed) {
            say(w, event->index, &msg);
        }
        sim_after(w, w->rules.heartbeat_ms, beat)->index = event->index;
    }
}

static void hello(sim_world *w, sim_event *event) {
    const sim_client *client = &w->clients[event->index];
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_HELLO,
                    .client_hello = {.version = TROUPE_VERSION,
                                     .kind = client->is_worker ? "worker" : "driver",
                                     .host_id = "host",
                                     .pid = event->index + 1,
                                     .actor = client->actor,
                                     .incarnation = client->incarnation,
                                     .job = "simulated",
                                     .namespace_name = client->is_worker ? "" : "shared",
                                     .exe = "/bin/simulated",
                                     .cwd = "/"}};
    if (client->running) {
        say(w, event->index, &msg);
    }
}

int sim_client_start(sim_world *w, const sim_worker *worker) {
    if (w->client_count == SIM_CLIENTS) {
        return -1;
    }
    int index = w->client_count++;
    sim_client *client = &w->clients[index];
    *client = (sim_client){.running = true, .is_worker = worker != NULL};
    if (worker) {
        client->actor = worker->actor;
        client->incarnation = worker->incarnation;
    }
    client->peer = sim_peer_new(w, SIM_CLIENT, index, 0);
    sim_after(w, 0, hello)->index = index;
    sim_after(w, 0, beat)->index = index;
    return index;
}

/* ---- Wishes ---- */

static void wish_actor(sim_world *w, int index) {
    static const char *const names[] = {"", "", "", "red", "green", "blue"};
    static const int64_t gpus[] = {0, 0, 0, 5000, 2500, 10000, 20000, 30000};
    sim_client *client = &w->clients[index];
    trpi_resource resources[2] = {{"cpu", (int64_t)sim_draw(w, 5) * 5000},
                                  {"gpu", gpus[sim_draw(w, TRPI_COUNTOF(gpus))]}};
    const char *name = names[sim_draw(w, TRPI_COUNTOF(names))];
    trpi_msg msg = {.type = TRPI_MSG_SPAWN,
                    .spawn = {.request = new_request(client),
                              .type = "simulated",
                              .name = name,
                              .resources = resources,
                              .resources_count = 2,
                              .bundle = -1,
                              .restarts_max = (int64_t)sim_draw(w, 5) - 1,
                              .detached = sim_chance(w, 10),
                              .get_if_exists = name[0] && sim_chance(w, 60),
                              .fail_if_infeasible = sim_chance(w, 10),
                              .args = {"args", 4}}};
    if (client->group_count && sim_chance(w, 40)) {
        msg.spawn.group = client->groups[sim_draw(w, client->group_count)];
        msg.spawn.bundle = (int64_t)sim_draw(w, 3) - 1;
    } else if (sim_chance(w, 10)) {
        msg.spawn.node = 1 + sim_draw(w, 6);
    }
    say(w, index, &msg);
}

static uint64_t some_actor(sim_world *w) {
    return w->spawned ? 1 + sim_draw(w, w->spawned) : 1;
}

static void wish_kill(sim_world *w, int index) {
    trpi_msg msg = {.type = TRPI_MSG_KILL,
                    .kill = {new_wait(&w->clients[index]), some_actor(w), sim_chance(w, 40)}};
    say(w, index, &msg);
}

static void wish_group(sim_world *w, int index) {
    trpi_resource resources[4][2];
    trpi_bundle bundles[4];
    sim_client *client = &w->clients[index];
    size_t count = 1 + sim_draw(w, 4);
    for (size_t i = 0; i < count; i++) {
        resources[i][0] = (trpi_resource){"cpu", 5000 + (int64_t)sim_draw(w, 3) * 5000};
        resources[i][1] = (trpi_resource){"gpu", (int64_t)sim_draw(w, 3) * 5000};
        bundles[i] = (trpi_bundle){resources[i], 2};
    }
    trpi_msg msg = {.type = TRPI_MSG_GROUP_CREATE,
                    .group_create = {.request = new_request(client),
                                     .name = "",
                                     .strategy = sim_draw(w, 4),
                                     .bundles = bundles,
                                     .bundles_count = count}};
    say(w, index, &msg);
}

static void wish_no_group(sim_world *w, int index) {
    sim_client *client = &w->clients[index];
    uint64_t group = client->group_count ? client->groups[sim_draw(w, client->group_count)] : 1;
    trpi_msg msg = {.type = TRPI_MSG_GROUP_REMOVE, .group_remove = {new_wait(client), group}};
    say(w, index, &msg);
}

static void wish_value(sim_world *w, int index) {
    sim_client *client = &w->clients[index];
    trpi_msg put = {.type = TRPI_MSG_KV_PUT,
                    .kv_put = {new_request(client), "key", sim_chance(w, 30), {"value", 5}}};
    trpi_msg get = {.type = TRPI_MSG_KV_GET, .kv_get = {new_request(client), "key"}};
    say(w, index, &put);
    say(w, index, &get);
}

static void wish_signal(sim_world *w, int index) {
    trpi_msg msg = {.type = TRPI_MSG_SIGNAL, .signal = {some_actor(w), sim_draw(w, 3), {"!", 1}}};
    say(w, index, &msg);
}

static void wish(sim_world *w, sim_event *event) {
    const sim_client *client = &w->clients[event->index];
    if (!client->running || w->quiet) {
        return;
    }
    uint64_t kind = sim_draw(w, 100);
    if (kind < 50) {
        wish_actor(w, event->index);
    } else if (kind < 68) {
        wish_kill(w, event->index);
    } else if (kind < 80) {
        wish_group(w, event->index);
    } else if (kind < 86) {
        wish_no_group(w, event->index);
    } else if (kind < 93) {
        wish_value(w, event->index);
    } else {
        wish_signal(w, event->index);
    }
    sim_after(w, client->is_worker ? 400 + sim_draw(w, 1000) : 10 + sim_draw(w, 300), wish)->index =
        event->index;
}

/* ---- Answers ---- */

static void answered(sim_world *w, int index, uint64_t request) {
    sim_client *client = &w->clients[index];
    uint64_t *open = request & WAIT ? &client->open_waits : &client->open_requests;
    if (request == 0 || (request & ~WAIT) > client->request || *open == 0) {
        sim_fail(w, "client %d hears an answer to request %" PRIu64 " that it did not make", index,
                 request & ~WAIT);
        return;
    }
    --*open;
}

/* The first to hear of an actor watches it. */
static void met(sim_world *w, int index, uint64_t id) {
    if (id == 0 || id >= SIM_ACTORS) {
        return;
    }
    sim_actor *actor = &w->actors[id];
    if (!actor->spawned) {
        actor->spawned = true;
        actor->watcher = index;
        w->spawned = TRPI_MAX(w->spawned, id);
        trpi_msg msg = {.type = TRPI_MSG_SUBSCRIBE, .subscribe = {id}};
        say(w, index, &msg);
    }
}

static void told_of_death(sim_world *w, sim_actor *actor, const trpi_msg_actor_state *state) {
    const trpi_death *death = &state->death[0];
    if (death->cause == TRP_CAUSE_NONE || !death->message[0]) {
        sim_fail(w, "actor a%" PRIu64 " died without cause", state->actor);
    }
    if (death->incarnation > actor->deaths_told) {
        if (death->incarnation != actor->deaths_told + 1 && actor->deaths_told) {
            sim_fail(w, "actor a%" PRIu64 ": the death of incarnation %" PRIu64 " was not told",
                     state->actor, actor->deaths_told + 1);
        }
        actor->deaths_told = death->incarnation;
        w->deaths++;
    }
}

static void told(sim_world *w, int index, const trpi_msg_actor_state *state) {
    if (state->actor >= SIM_ACTORS || w->actors[state->actor].watcher != index ||
        state->phase == TRPI_PHASE_UNKNOWN) {
        return;
    }
    sim_actor *actor = &w->actors[state->actor];
    if (actor->dead) {
        sim_fail(w, "actor a%" PRIu64 " is heard of after its death", state->actor);
    }
    if (state->incarnation < actor->told_incarnation) {
        sim_fail(w, "actor a%" PRIu64 " goes back to incarnation %" PRIu64, state->actor,
                 state->incarnation);
    }
    actor->told_incarnation = state->incarnation;
    if (state->death_count) {
        told_of_death(w, actor, state);
    }
    actor->dead = state->phase == TRP_ACTOR_DEAD;
    if (actor->dead && actor->deaths_told != state->incarnation) {
        sim_fail(w, "actor a%" PRIu64 " is dead, and not the last incarnation", state->actor);
    }
}

static void group_told(sim_world *w, int index, const trpi_msg_group_state *state) {
    sim_client *client = &w->clients[index];
    if (state->request) {
        answered(w, index, state->request);
        if (state->code == TRP_OK && client->group_count < TRPI_COUNTOF(client->groups)) {
            client->groups[client->group_count++] = state->group;
        }
    }
    for (size_t i = 0; state->placed && i < state->nodes_count; i++) {
        if (state->nodes[i].node == 0) {
            sim_fail(w, "group g%" PRIu64 " is placed without bundle %zu", state->group, i);
        }
    }
}

/* The head does not know us any more: we were silent, or our actor has ended. The process ends. */
static void disowned(sim_world *w, int index) {
    sim_client_end(w, index);
}

static void done(sim_world *w, int index, const trpi_msg_done *msg) {
    sim_client *client = &w->clients[index];
    if (msg->code == TRP_EDISCONNECTED || msg->request == 0) {
        disowned(w, index);
        return;
    }
    answered(w, index, msg->request);
    if (msg->request == client->bye) {
        if (client->open_requests) {
            sim_fail(w, "client %d has no answer to %" PRIu64 " requests", index,
                     client->open_requests);
        }
        sim_client_end(w, index);
    }
}

void sim_client_hears(sim_world *w, int index, const trpi_msg *msg) {
    sim_client *client = &w->clients[index];
    switch (msg->type) {
    case TRPI_MSG_CLIENT_WELCOME:
        client->welcomed = true;
        client->id = msg->client_welcome.client;
        sim_after(w, sim_draw(w, 100), wish)->index = index;
        break;
    case TRPI_MSG_HEARTBEAT_ACK:
        if (!msg->heartbeat_ack.known) {
            disowned(w, index);
        }
        break;
    case TRPI_MSG_SPAWNED:
        answered(w, index, msg->spawned.request);
        met(w, index, msg->spawned.actor);
        break;
    case TRPI_MSG_ACTOR_STATE:
        told(w, index, &msg->actor_state);
        break;
    case TRPI_MSG_GROUP_STATE:
        group_told(w, index, &msg->group_state);
        break;
    case TRPI_MSG_KV_VALUE:
        answered(w, index, msg->kv_value.request);
        break;
    case TRPI_MSG_DONE:
        done(w, index, &msg->done);
        break;
    default:
        sim_fail(w, "a client hears %s", trpi_msg_name(msg->type));
    }
}

/* ---- End ---- */

void sim_client_end(sim_world *w, int index) {
    w->clients[index].running = false;
}

void sim_client_fault(sim_world *w, int index) {
    sim_client *client = &w->clients[index];
    if (!client->running || client->is_worker) {
        return;
    }
    if (sim_chance(w, 30)) { /* stopped, or cut off */
        client->away_until_ns =
            TRPI_MAX(client->away_until_ns,
                     w->now_ns + sim_draw(w, 2 * w->rules.client_timeout_ms) * SIM_MS);
        return;
    }
    sim_client_end(w, index);
    if (client->welcomed && sim_chance(w, 50) && w->now_ns >= w->stalled_until_ns) {
        trpi_cluster_event gone = {
            .kind = TRPI_EVENT_CLIENT_GONE, .id = client->id, .reason = "its process ended"};
        sim_head_event(w, &gone);
    }
}

static void say_bye(sim_world *w, sim_event *event) {
    sim_client *client = &w->clients[event->index];
    if (client->running && client->welcomed) {
        client->bye = new_request(client);
        trpi_msg msg = {.type = TRPI_MSG_CLIENT_BYE, .client_bye = {client->bye}};
        say(w, event->index, &msg);
    } else if (client->running) {
        sim_client_end(w, event->index);
    }
}

/* A last driver, which ends what nobody else does: the detached. */
static void sweep(sim_world *w, sim_event *event) {
    trpi_actor_view actor;
    uint64_t id = 0;
    sim_client *client = &w->clients[event->index];
    while (client->welcomed && trpi_cluster_next_actor(w->cluster, &id, &actor)) {
        if (actor.detached && actor.phase != TRP_ACTOR_DEAD) {
            trpi_msg msg = {.type = TRPI_MSG_KILL, .kill = {new_wait(client), id, false}};
            say(w, event->index, &msg);
        }
    }
}

static void start_sweeper(sim_world *w, sim_event *event) {
    w->client_count = TRPI_MIN(w->client_count, SIM_CLIENTS - 1);
    int index = sim_client_start(w, NULL);
    sim_after(w, 1000, sweep)->index = index;
    sim_after(w, 6000, say_bye)->index = index;
}

void sim_clients_settle(sim_world *w) {
    for (int i = 0; i < w->client_count; i++) {
        if (!w->clients[i].is_worker) {
            sim_after(w, 1000 + sim_draw(w, 1000), say_bye)->index = i;
        }
    }
    sim_after(w, 7000, start_sweeper);
}

/* clients.c: drivers, and workers whose actors call others: they ask for anything, at random. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/cluster_sim_test/world.h"

static void say(sim_world *w, int index, const trpi_msg *msg) {
    sim_to_head(w, w->clients[index].peer, msg);
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
                                     .cwd = "/",
                                     .submission = client->submission}};
    if (client->running) {
        say(w, event->index, &msg);
    }
}

int sim_client_start(sim_world *w, const sim_worker *worker, uint64_t submission) {
    if (w->client_count == SIM_CLIENTS) {
        return -1;
    }
    int index = w->client_count++;
    sim_client *client = &w->clients[index];
    *client = (sim_client){.running = true, .is_worker = worker != NULL, .submission = submission};
    if (worker) {
        client->actor = worker->actor;
        client->incarnation = worker->incarnation;
    }
    client->peer = sim_peer_new(w, SIM_CLIENT, index, 0);
    sim_after(w, 0, hello)->index = index;
    sim_after(w, 0, beat)->index = index;
    return index;
}

/* ---- Answers ---- */

static void answered(sim_world *w, int index, uint64_t request) {
    sim_client *client = &w->clients[index];
    uint64_t *open = request & SIM_WAIT ? &client->open_waits : &client->open_requests;
    if (request == 0 || (request & ~SIM_WAIT) > client->request || *open == 0) {
        sim_fail(w, "client %d hears an answer to request %" PRIu64 " that it did not make", index,
                 request & ~SIM_WAIT);
        return;
    }
    --*open;
}

/* The first to hear of an actor watches it. */
static void met(sim_world *w, int index, uint64_t request, uint64_t id) {
    if (id == 0 || id >= SIM_ACTORS) {
        return;
    }
    sim_actor *actor = &w->actors[id];
    if (!actor->spawned) {
        actor->spawned = true;
        actor->watcher = index;
        actor->gpus = w->clients[index].gpus[request % TRPI_COUNTOF(w->clients[index].gpus)];
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
        w->causes[death->cause]++;
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
        sim_after(w, sim_draw(w, 100), sim_wish)->index = index;
        break;
    case TRPI_MSG_HEARTBEAT_ACK:
        if (!msg->heartbeat_ack.known) {
            disowned(w, index);
        }
        break;
    case TRPI_MSG_SPAWNED:
        answered(w, index, msg->spawned.request);
        met(w, index, msg->spawned.request, msg->spawned.actor);
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
    case TRPI_MSG_STORE_AT:
        answered(w, index, msg->store_at.request);
        break;
    case TRPI_MSG_JOBBED:
        answered(w, index, msg->jobbed.request);
        w->jobs_submitted = TRPI_MAX(w->jobs_submitted, msg->jobbed.job);
        break;
    case TRPI_MSG_GANGED:
        answered(w, index, msg->ganged.request);
        if (msg->ganged.code == TRP_OK && client->gang_count < TRPI_COUNTOF(client->gangs)) {
            client->gangs[client->gang_count++] = msg->ganged.gang;
        }
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
        client->bye = sim_request(client, false);
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
            trpi_msg msg = {.type = TRPI_MSG_KILL,
                            .kill = {sim_request(client, true), id, false, sim_draw(w, 2) * 50}};
            say(w, event->index, &msg);
        }
    }
}

static void sweep_more(sim_world *w, sim_event *event) {
    trpi_gang_view gang;
    trpi_job_view job;
    uint64_t id = 0;
    sim_client *client = &w->clients[event->index];
    while (client->welcomed && trpi_cluster_next_gang(w->cluster, &id, &gang)) {
        trpi_msg msg = {.type = TRPI_MSG_GANG_END, .gang_end = {sim_request(client, true), id}};
        say(w, event->index, &msg);
    }
    id = 0;
    while (client->welcomed && trpi_cluster_next_job(w->cluster, &id, &job)) {
        if (job.submitted && job.running) {
            trpi_msg msg = {.type = TRPI_MSG_JOB_STOP,
                            .job_stop = {sim_request(client, true), id, sim_draw(w, 100)}};
            say(w, event->index, &msg);
        }
    }
}

static void start_sweeper(sim_world *w, sim_event *event) {
    w->client_count = TRPI_MIN(w->client_count, SIM_CLIENTS - 1);
    int index = sim_client_start(w, NULL, 0);
    sim_after(w, 1000, sweep_more)->index = index;
    sim_after(w, 2500, sweep)->index = index;
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

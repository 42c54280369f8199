/* wishes.c: drivers and actors ask the head for anything, at random. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/cluster_sim_test/world.h"

static void say(sim_world *w, int index, const trpi_msg *msg) {
    sim_to_head(w, w->clients[index].peer, msg);
}

uint64_t sim_request(sim_client *client, bool wait) {
    client->open_waits += wait;
    client->open_requests += !wait;
    return ++client->request | (wait ? SIM_WAIT : 0);
}

static const char *one_of(sim_world *w, const char *const *texts, size_t count) {
    return texts[sim_draw(w, count)];
}

static uint64_t some_actor(sim_world *w) {
    return w->spawned ? 1 + sim_draw(w, w->spawned) : 1;
}

/* ---- Actors ---- */

static void where(sim_world *w, const sim_client *client, trpi_msg_spawn *spawn, trpi_text *label) {
    static const char *const labels[] = {"zone=a", "zone=a|b", "zone!=a", "ssd", "!ssd", "none"};
    if (client->group_count && sim_chance(w, 40)) {
        spawn->group = client->groups[sim_draw(w, client->group_count)];
        spawn->bundle = (int64_t)sim_draw(w, 3) - 1;
        return;
    }
    if (sim_chance(w, 12)) {
        spawn->node = 1 + sim_draw(w, 6);
        spawn->node_soft = sim_chance(w, 50);
    }
    if (sim_chance(w, 15)) {
        label->value = one_of(w, labels, TRPI_COUNTOF(labels));
        spawn->labels = label;
        spawn->labels_count = 1;
    }
    spawn->schedule = sim_chance(w, 20) ? TRP_SCHEDULE_SPREAD : TRP_SCHEDULE_PACKED;
}

static void lives(sim_world *w, const sim_client *client, trpi_msg_spawn *spawn) {
    spawn->restarts_max = (int64_t)sim_draw(w, 5) - 1;
    spawn->restart = sim_draw(w, 10) < 7 ? TRP_RESTART_FAILED : sim_draw(w, 3);
    spawn->restart_window_ms = sim_chance(w, 30) ? 1 + sim_draw(w, 2000) : 0;
    spawn->exclusive = sim_chance(w, 20);
    spawn->detached = sim_chance(w, 10);
    if (client->gang_count && sim_chance(w, 35)) {
        spawn->gang = client->gangs[sim_draw(w, client->gang_count)];
    }
}

static void wish_actor(sim_world *w, int index) {
    static const char *const names[] = {"", "", "", "red", "green", "blue"};
    static const int64_t gpus[] = {0, 0, 0, 5000, 2500, 10000, 20000, 30000};
    sim_client *client = &w->clients[index];
    trpi_text label;
    trpi_text env[] = {{"A=1"}, {"B=2"}};
    trpi_resource resources[2] = {{"cpu", (int64_t)sim_draw(w, 5) * 5000},
                                  {"gpu", gpus[sim_draw(w, TRPI_COUNTOF(gpus))]}};
    const char *name = one_of(w, names, TRPI_COUNTOF(names));
    trpi_msg msg = {.type = TRPI_MSG_SPAWN,
                    .spawn = {.request = sim_request(client, false),
                              .type = "simulated",
                              .name = name,
                              .resources = resources,
                              .resources_count = 2,
                              .bundle = -1,
                              .get_if_exists = name[0] && sim_chance(w, 60),
                              .fail_if_infeasible = sim_chance(w, 10),
                              .env = env,
                              .env_count = sim_draw(w, 3),
                              .args = {"args", 4}}};
    lives(w, client, &msg.spawn);
    where(w, client, &msg.spawn, &label);
    client->gpus[msg.spawn.request % TRPI_COUNTOF(client->gpus)] =
        msg.spawn.get_if_exists ? 0 : resources[1].amount;
    say(w, index, &msg);
}

static void wish_kill(sim_world *w, int index) {
    uint64_t grace_ms = sim_chance(w, 30) ? 1 + sim_draw(w, 300) : 0;
    trpi_msg msg = {.type = TRPI_MSG_KILL,
                    .kill = {sim_request(&w->clients[index], true), some_actor(w),
                             sim_chance(w, 40), grace_ms}};
    say(w, index, &msg);
}

static void wish_link(sim_world *w, int index) {
    trpi_msg msg = {
        .type = TRPI_MSG_LINK,
        .link = {sim_request(&w->clients[index], false), some_actor(w), sim_chance(w, 20)}};
    say(w, index, &msg);
}

static void wish_signal(sim_world *w, int index) {
    trpi_msg msg = {.type = TRPI_MSG_SIGNAL, .signal = {some_actor(w), sim_draw(w, 3), {"!", 1}}};
    say(w, index, &msg);
}

/* ---- Groups and gangs ---- */

static void wish_group(sim_world *w, int index) {
    static const char *const names[] = {"", "", "north", "south"};
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
                    .group_create = {.request = sim_request(client, false),
                                     .name = one_of(w, names, TRPI_COUNTOF(names)),
                                     .strategy = sim_draw(w, 4),
                                     .bundles = bundles,
                                     .bundles_count = count}};
    say(w, index, &msg);
}

static void wish_no_group(sim_world *w, int index) {
    sim_client *client = &w->clients[index];
    uint64_t group = client->group_count ? client->groups[sim_draw(w, client->group_count)] : 1;
    trpi_msg msg = {.type = TRPI_MSG_GROUP_REMOVE,
                    .group_remove = {sim_request(client, true), group}};
    say(w, index, &msg);
}

static void wish_gang(sim_world *w, int index) {
    trpi_msg msg = {.type = TRPI_MSG_GANG_CREATE,
                    .gang_create = {.request = sim_request(&w->clients[index], false),
                                    .name = "gang",
                                    .policy = sim_draw(w, 10) < 7 ? TRP_GANG_RESTART : TRP_GANG_END,
                                    .restarts_max = (int64_t)sim_draw(w, 5) - 1,
                                    .restart_window_ms = sim_draw(w, 2) * 1000,
                                    .detached = sim_chance(w, 20)}};
    say(w, index, &msg);
}

static void wish_no_gang(sim_world *w, int index) {
    sim_client *client = &w->clients[index];
    uint64_t gang = client->gang_count ? client->gangs[sim_draw(w, client->gang_count)] : 1;
    trpi_msg msg = {.type = TRPI_MSG_GANG_END, .gang_end = {sim_request(client, true), gang}};
    say(w, index, &msg);
}

/* ---- Nodes and jobs ---- */

static void wish_drain(sim_world *w, int index) {
    trpi_msg msg = {.type = TRPI_MSG_DRAIN,
                    .drain = {sim_request(&w->clients[index], false), 1 + sim_draw(w, 12), "drawn",
                              sim_draw(w, 1500)}};
    say(w, index, &msg);
}

static void wish_job(sim_world *w, int index) {
    trpi_text argv[] = {{"/bin/simulated"}, {"word"}};
    trpi_msg msg = {.type = TRPI_MSG_JOB_SUBMIT,
                    .job_submit = {.request = sim_request(&w->clients[index], false),
                                   .argv = argv,
                                   .argv_count = 2,
                                   .cwd = "/"}};
    say(w, index, &msg);
}

static void wish_no_job(sim_world *w, int index) {
    trpi_msg msg = {.type = TRPI_MSG_JOB_STOP,
                    .job_stop = {sim_request(&w->clients[index], true),
                                 1 + sim_draw(w, w->jobs_submitted + 1), sim_draw(w, 300)}};
    say(w, index, &msg);
}

/* ---- Questions ---- */

static void wish_answers(sim_world *w, int index) {
    sim_client *client = &w->clients[index];
    trpi_msg questions[] = {
        {.type = TRPI_MSG_KV_PUT,
         .kv_put = {sim_request(client, false), "key", sim_chance(w, 30), {"value", 5}}},
        {.type = TRPI_MSG_KV_GET, .kv_get = {sim_request(client, false), "key"}},
        {.type = TRPI_MSG_LOOKUP, .lookup = {sim_request(client, false), "red", "shared"}},
        {.type = TRPI_MSG_GROUP_LOOKUP, .group_lookup = {sim_request(client, false), "north"}},
        {.type = TRPI_MSG_STORE_QUERY, .store_query = {sim_request(client, false), sim_draw(w, 6)}},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(questions); i++) {
        say(w, index, &questions[i]);
    }
}

typedef struct chance {
    uint64_t parts;
    void (*wish)(sim_world *w, int index);
} chance;

void sim_wish(sim_world *w, sim_event *event) {
    static const chance chances[] = {
        {500, wish_actor}, {170, wish_kill},   {90, wish_group}, {50, wish_no_group},
        {50, wish_gang},   {20, wish_no_gang}, {40, wish_link},  {40, wish_answers},
        {15, wish_signal}, {8, wish_drain},    {10, wish_job},   {7, wish_no_job},
    };
    const sim_client *client = &w->clients[event->index];
    if (!client->running || w->quiet) {
        return;
    }
    uint64_t kind = sim_draw(w, 1000);
    size_t i = 0;
    while (kind >= chances[i].parts) {
        kind -= chances[i++].parts;
    }
    chances[i].wish(w, event->index);
    sim_after(w, client->is_worker ? 400 + sim_draw(w, 1000) : 10 + sim_draw(w, 300), sim_wish)
        ->index = event->index;
}

/* cluster_actors.c: what clients ask about actors: look up, kill, stop, signal, subscribe.
 *
 * What holds: a subscription is known on both sides. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

void trpi_actor_lookup(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_lookup *msg) {
    const trpi_job_rec *job = trpi_table_get(&c->jobs, client->job);
    const char *space = msg->namespace_name;
    trp_error error;
    if (!space[0] && !job) {
        (void)trpi_fail(&error, TRP_EINVALID,
                        "a troupe command has no namespace of its own to look in: name one");
        trpi_answer_spawn(c, client, msg->request, 0, &error);
        return;
    }
    space = space[0] ? space : job->namespace_name;
    const trpi_actor_rec *actor = trpi_actor_named(c, space, msg->name);
    if (!actor) {
        (void)trpi_fail(&error, TRP_ENOTFOUND,
                        "no living actor is named \"%.200s\" in namespace %.200s", msg->name,
                        space);
    }
    trpi_answer_spawn(c, client, msg->request, actor ? actor->id : 0, actor ? NULL : &error);
}

/* ---- Kill, stop, signal ---- */

/* trp_stop(): final, whatever else was asked. What has not started has nothing to put in order. */
static void stop(trpi_cluster *c, const trpi_client_rec *client, const trpi_msg_kill *msg,
                 trpi_actor_rec *actor, const char *who) {
    char reason[500];
    trpi_format(reason, sizeof(reason), "stopped by %s", who);
    trpi_ask(&actor->stoppers, client->id, msg->request);
    uint64_t grace_ms = actor->place == TRPI_RUNNING ? msg->grace_ms : 0;
    trpi_actor_end(c, actor, TRP_CAUSE_STOPPED, reason, false, grace_ms);
}

void trpi_actor_kill(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_kill *msg) {
    trpi_actor_rec *actor = trpi_table_get(&c->actors, msg->actor);
    char who[400], reason[500];
    trp_error error;
    if (!actor) {
        (void)trpi_fail(&error, TRP_ENOTFOUND, "there is no actor a%" PRIu64 " (any more)",
                        msg->actor);
        trpi_post_done(c, client->peer, msg->request, &error);
        return;
    }
    if (actor->place == TRPI_NOWHERE) {
        trpi_post_done(c, client->peer, msg->request, NULL);
        return;
    }
    trpi_text_client(c, client, who, sizeof(who));
    if (msg->grace_ms) {
        stop(c, client, msg, actor, who);
        return;
    }
    trpi_ask(&actor->killers, client->id, msg->request);
    trpi_format(reason, sizeof(reason), "killed by %s", who);
    trpi_actor_end(c, actor, TRP_CAUSE_KILLED, reason, msg->may_restart, 0);
}

void trpi_actor_signal(trpi_cluster *c, const trpi_msg_signal *msg) {
    const trpi_actor_rec *actor = trpi_table_get(&c->actors, msg->actor);
    bool fits = actor && (msg->incarnation == 0 || msg->incarnation == actor->life.incarnation) &&
                trpi_actor_has_process(actor);
    if (!fits) {
        c->stale++;
        return;
    }
    const trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    trpi_msg *out = trpi_post(c, node->peer, TRPI_MSG_SIGNAL);
    out->signal = *msg;
    out->signal.incarnation = actor->life.incarnation;
}

/* ---- Subscriptions ---- */

static void fill_devices(trpi_cluster *c, const trpi_actor_rec *actor,
                         trpi_msg_actor_state *state) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    size_t count = node ? actor->grant.part_count : 0;
    trpi_text *devices = trpi_keep_array(c, count, sizeof(trpi_text));
    for (size_t i = 0; i < count; i++) {
        devices[i].value = trpi_keep(c, node->devices[actor->grant.parts[i].device]);
    }
    state->devices = devices;
    state->devices_count = count;
}

static void fill_death(trpi_cluster *c, const trpi_actor_rec *actor, trpi_msg_actor_state *state) {
    if (actor->death) {
        trpi_death *death = trpi_keep_array(c, 1, sizeof(*death));
        *death = *actor->death;
        death->message = trpi_keep(c, death->message);
        death->stderr_tail = trpi_keep(c, death->stderr_tail);
        death->core = trpi_keep(c, death->core);
        state->death = death;
        state->death_count = 1;
    }
}

static trpi_msg_actor_state state_of(trpi_cluster *c, const trpi_actor_rec *actor) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    char waiting[400];
    trpi_text_waiting(c, actor, waiting, sizeof(waiting));
    trpi_msg_actor_state state = {
        .actor = actor->id,
        .phase = actor->life.phase,
        .incarnation = actor->life.incarnation,
        .node = actor->node,
        .pid = actor->pid,
        .type = trpi_keep(c, actor->type),
        .name = trpi_keep(c, actor->name),
        .host_id = node ? trpi_keep(c, node->host_id) : "",
        .endpoint = trpi_keep(c, actor->endpoint),
        .remote_endpoint = trpi_keep(c, actor->remote_endpoint),
        .restarts = actor->life.restarts,
        .call_retries_max = actor->call_retries_max,
        .waiting_for = trpi_keep(c, waiting),
        .max_pending_calls = actor->max_pending_calls,
        .retry_on = trpi_keep_texts(c, &actor->retry_on),
        .retry_on_count = actor->retry_on.count,
        .draining = node && node->draining,
        .drain_ms = node && node->draining ? trpi_drain_left_ms(c, node) : 0,
    };
    fill_devices(c, actor, &state);
    fill_death(c, actor, &state);
    return state;
}

void trpi_actor_push(trpi_cluster *c, const trpi_actor_rec *actor) {
    if (actor->subscribers.count == 0) {
        return;
    }
    trpi_msg_actor_state state = state_of(c, actor);
    const trpi_client_rec *client;
    uint64_t id = 0;
    while ((client = trpi_table_next(&actor->subscribers, &id)) != NULL) {
        trpi_post(c, client->peer, TRPI_MSG_ACTOR_STATE)->actor_state = state;
    }
}

void trpi_actor_unsubscribe(trpi_cluster *c, trpi_client_rec *client, trpi_actor_rec *actor) {
    if (trpi_table_remove(&actor->subscribers, client->id)) {
        trpi_table_remove(&client->subscriptions, actor->id);
        c->subscriptions--;
    }
}

void trpi_actor_subscribe(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_subscribe *msg) {
    trpi_actor_rec *actor = trpi_table_get(&c->actors, msg->actor);
    if (!actor) {
        trpi_msg *none = trpi_post(c, client->peer, TRPI_MSG_ACTOR_STATE);
        none->actor_state.actor = msg->actor;
        none->actor_state.phase = TRPI_PHASE_UNKNOWN;
        return;
    }
    bool is_new = !trpi_table_get(&actor->subscribers, client->id);
    if (is_new && actor->place != TRPI_NOWHERE) {
        if (c->subscriptions >= c->config.subscriptions_max) {
            char why[160];
            trpi_format(why, sizeof(why),
                        "the head keeps %" PRIu64 " subscriptions, its limit; this process will "
                        "not be told of actor a%" PRIu64,
                        c->subscriptions, actor->id);
            trpi_msg *none = trpi_post(c, client->peer, TRPI_MSG_ACTOR_STATE);
            none->actor_state.actor = actor->id;
            none->actor_state.phase = TRPI_PHASE_UNKNOWN;
            none->actor_state.waiting_for = trpi_keep(c, why);
            return;
        }
        trpi_table_put(&actor->subscribers, client->id, client);
        trpi_table_put(&client->subscriptions, actor->id, actor);
        c->subscriptions++;
    }
    trpi_msg_actor_state state = state_of(c, actor);
    trpi_post(c, client->peer, TRPI_MSG_ACTOR_STATE)->actor_state = state;
}

/* cluster_clients.c: drivers, workers as callers, and tools; and what ends with its owner.
 *
 * What holds: a client is in the table as long as it lives, with a peer. A driver has a job of its
 * own; a worker belongs to the job of its actor, to one incarnation of it, and ends with that. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

void trpi_client_free(trpi_client_rec *client) {
    free(client->host_id);
    trpi_table_release(&client->actors);
    trpi_table_release(&client->groups);
    trpi_table_release(&client->gangs);
    trpi_table_release(&client->subscriptions);
    trpi_table_release(&client->watches);
    free(client);
}

/* ---- Watching: a node on the driver's host learns of its death at once ---- */

static void watch_by(trpi_cluster *c, trpi_client_rec *client, const trpi_node_rec *node) {
    client->watcher = node->id;
    trpi_msg *msg = trpi_post(c, node->peer, TRPI_MSG_WATCH_PID);
    msg->watch_pid.client = client->id;
    msg->watch_pid.pid = client->pid;
}

static void find_watcher(trpi_cluster *c, trpi_client_rec *client) {
    trpi_node_rec *node;
    uint64_t id = 0;
    client->watcher = 0;
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        if (node->living && strcmp(node->host_id, client->host_id) == 0) {
            watch_by(c, client, node);
            return;
        }
    }
}

void trpi_clients_watch(trpi_cluster *c, trpi_node_rec *node) {
    trpi_client_rec *client;
    uint64_t id = 0;
    while ((client = trpi_table_next(&c->clients, &id)) != NULL) {
        if (client->kind == TRPI_DRIVER && !client->watcher &&
            strcmp(node->host_id, client->host_id) == 0) {
            watch_by(c, client, node);
        }
    }
}

void trpi_clients_unwatch(trpi_cluster *c, const trpi_node_rec *node) {
    trpi_client_rec *client;
    uint64_t id = 0;
    while ((client = trpi_table_next(&c->clients, &id)) != NULL) {
        if (client->watcher == node->id) {
            find_watcher(c, client);
        }
    }
}

/* ---- Hello ---- */

static void welcome(trpi_cluster *c, const trpi_client_rec *client) {
    const trpi_job_rec *job = trpi_table_get(&c->jobs, client->job);
    const char *namespace_name = trpi_keep(c, job ? job->namespace_name : "");
    trpi_msg *msg = trpi_post(c, client->peer, TRPI_MSG_CLIENT_WELCOME);
    msg->client_welcome.client = client->id;
    msg->client_welcome.job = client->job;
    msg->client_welcome.cluster = c->id;
    msg->client_welcome.namespace_name = namespace_name;
    msg->client_welcome.heartbeat_ms = c->config.heartbeat_ms;
}

static trp_code kind_of(const trpi_msg_client_hello *msg, trpi_client_kind *ret_kind,
                        trp_error *err) {
    static const char *const kinds[] = {"driver", "worker", "tool"}; /* as trpi_client_kind */
    for (size_t i = 0; i < TRPI_COUNTOF(kinds); i++) {
        if (strcmp(msg->kind, kinds[i]) == 0) {
            *ret_kind = (trpi_client_kind)i;
            return TRP_OK;
        }
    }
    return trpi_fail(err, TRP_EPROTOCOL, "client kind \"%.32s\": driver, worker or tool",
                     msg->kind);
}

/* The actor that this worker says it is, if that incarnation is running and not about to be killed:
 * one that is being stopped may still have calls to answer, and a hook that needs the cluster. */
static trp_code actor_of_worker(trpi_cluster *c, const trpi_msg_client_hello *msg,
                                trpi_actor_rec **ret_actor, trp_error *err) {
    trpi_actor_rec *actor = trpi_table_get(&c->actors, msg->actor);
    if (!actor || actor->life.incarnation != msg->incarnation || !trpi_actor_has_process(actor) ||
        (actor->end_cause && !actor->end_graceful)) {
        return trpi_fail(err, TRP_EACTOR_DIED,
                         "actor a%" PRIu64 ", incarnation %" PRIu64
                         ": the head knows no such living one",
                         msg->actor, msg->incarnation);
    }
    *ret_actor = actor;
    return TRP_OK;
}

static trp_code check_texts(const trpi_msg_client_hello *msg, trp_error *err) {
    const struct {
        const char *text;
        size_t max;
    } texts[] = {{msg->job, TRPI_TEXT_MAX},     {msg->namespace_name, TRPI_TEXT_MAX},
                 {msg->host_id, TRPI_TEXT_MAX}, {msg->exe_hash, TRPI_TEXT_MAX},
                 {msg->package, TRPI_TEXT_MAX}, {msg->exe, TRPI_PATH_TEXT_MAX},
                 {msg->cwd, TRPI_PATH_TEXT_MAX}};
    for (size_t i = 0; i < TRPI_COUNTOF(texts); i++) {
        if (strlen(texts[i].text) > texts[i].max) {
            return trpi_fail(err, TRP_EINVALID, "\"%.32s...\" is longer than %zu bytes",
                             texts[i].text, texts[i].max);
        }
    }
    return TRP_OK;
}

static trp_code check_hello(trpi_cluster *c, const trpi_msg_client_hello *msg,
                            trpi_client_kind *ret_kind, trpi_actor_rec **ret_actor,
                            trp_error *err) {
    if (strcmp(msg->version, c->version) != 0) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head is troupe %s, this program is troupe %.64s",
                         c->version, msg->version);
    }
    trp_code code = kind_of(msg, ret_kind, err);
    if (code != TRP_OK) {
        return code;
    }
    if (c->stopping && *ret_kind != TRPI_TOOL) {
        return trpi_fail(err, TRP_EUNAVAILABLE, "the cluster is stopping");
    }
    if (c->clients.count >= c->config.clients_max) {
        return trpi_fail(err, TRP_EBUSY, "the head serves %zu clients, its limit",
                         c->clients.count);
    }
    trp_code code_of_texts = check_texts(msg, err);
    if (code_of_texts != TRP_OK) {
        return code_of_texts;
    }
    return *ret_kind == TRPI_WORKER ? actor_of_worker(c, msg, ret_actor, err) : TRP_OK;
}

/* Takes *env. */
static void join_job(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_client_hello *msg,
                     trpi_actor_rec *actor, trpi_texts *env) {
    if (client->kind == TRPI_DRIVER) {
        client->job = trpi_job_of_driver(c, msg, client->id, env)->id;
        find_watcher(c, client);
        const char *host_id = trpi_keep(c, client->host_id);
        trpi_cluster_action *watch = trpi_act(c, TRPI_ACTION_WATCH_CLIENT);
        watch->id = client->id;
        watch->pid = client->pid;
        watch->text = host_id;
    } else if (client->kind == TRPI_WORKER) {
        client->job = actor->job;
        client->actor = actor->id;
        client->incarnation = msg->incarnation;
        trpi_table_put(&actor->workers, client->id, client);
    }
}

/* What a driver wants all its workers to have. */
static trp_code parse_env(const trpi_cluster *c, const trpi_msg_client_hello *msg,
                          trpi_client_kind kind, trpi_texts *ret_env, trp_error *err) {
    if (kind != TRPI_DRIVER) {
        return TRP_OK;
    }
    trp_code code = trpi_env_parse(msg->env, msg->env_count, ret_env, err);
    if (code == TRP_OK && trpi_texts_bytes(ret_env) > c->config.start_bytes_max - c->start_bytes) {
        trpi_texts_release(ret_env);
        return trpi_fail(err, TRP_EBUSY,
                         "the head keeps %" PRIu64 " bytes of arguments and environments, of at "
                         "most %" PRIu64,
                         c->start_bytes, c->config.start_bytes_max);
    }
    return code;
}

void trpi_client_hello(trpi_cluster *c, uint64_t peer, const trpi_msg_client_hello *msg) {
    trpi_client_rec *client = trpi_table_get(&c->client_peers, peer);
    trpi_client_kind kind = TRPI_TOOL;
    trpi_actor_rec *actor = NULL;
    trpi_texts env = {0};
    trp_error error;
    if (client) {
        welcome(c, client); /* said twice; the first welcome may be under way */
        return;
    }
    if (check_hello(c, msg, &kind, &actor, &error) != TRP_OK ||
        parse_env(c, msg, kind, &env, &error) != TRP_OK) {
        trpi_post_done(c, peer, 0, &error);
        return;
    }
    client = trpi_alloc(sizeof(*client));
    client->id = ++c->last_client;
    client->peer = peer;
    client->kind = kind;
    client->pid = msg->pid;
    client->host_id = trpi_strdup(msg->host_id);
    client->wants_logs = msg->wants_logs;
    trpi_table_put(&c->clients, client->id, client);
    trpi_table_put(&c->client_peers, peer, client);
    if (kind != TRPI_WORKER) { /* a worker ends with its incarnation, not by silence */
        (void)trpi_membership_join(&c->client_members, client->id, c->now_ns);
    }
    join_job(c, client, msg, actor, &env);
    welcome(c, client);
}

/* ---- Alive or not ---- */

void trpi_client_heartbeat(trpi_cluster *c, uint64_t peer, const trpi_msg_heartbeat *msg) {
    const trpi_client_rec *client = trpi_table_get(&c->clients, msg->client);
    if (client && client->kind != TRPI_WORKER) {
        (void)trpi_membership_hears(&c->client_members, client->id, 1, c->now_ns);
    }
    c->stale += !client;
    trpi_msg *ack = trpi_post(c, peer, TRPI_MSG_HEARTBEAT_ACK);
    ack->heartbeat_ack.seq = msg->seq;
    ack->heartbeat_ack.known = client != NULL;
}

static void drop_subscriptions(trpi_cluster *c, trpi_client_rec *client) {
    trpi_actor_rec *actor;
    trpi_group_rec *group;
    uint64_t id = 0;
    while ((actor = trpi_table_next(&client->subscriptions, &id)) != NULL) {
        trpi_actor_unsubscribe(c, client, actor);
    }
    id = 0;
    while ((group = trpi_table_next(&client->watches, &id)) != NULL) {
        trpi_table_remove(&group->watchers, client->id);
    }
    trpi_table_release(&client->watches);
}

static void end_owned(trpi_cluster *c, trpi_client_rec *client, const char *reason) {
    trpi_actor_rec *actor;
    trpi_gang_rec *gang;
    trpi_group_rec *group;
    uint64_t id = 0;
    while ((actor = trpi_table_next(&client->actors, &id)) != NULL) {
        actor->owner = 0;
        trpi_actor_end(c, actor, TRP_CAUSE_OWNER_DIED, reason, false, 0);
    }
    id = 0;
    while ((gang = trpi_table_next(&client->gangs, &id)) != NULL) {
        gang->owner = 0;
        trpi_gang_end(c, gang, TRP_CAUSE_OWNER_DIED, reason);
    }
    id = 0;
    while ((group = trpi_table_next(&client->groups, &id)) != NULL) {
        group->owner = 0;
        trpi_group_end(c, group, TRP_CAUSE_OWNER_DIED, reason);
    }
}

void trpi_client_end(trpi_cluster *c, trpi_client_rec *client, bool orderly, const char *reason) {
    char who[400], text[600];
    trpi_text_client(c, client, who, sizeof(who));
    trpi_format(text, sizeof(text), "its owner, %s, is gone: %.160s", who, reason);
    trpi_table_remove(&c->clients, client->id);
    trpi_table_remove(&c->client_peers, client->peer);
    trpi_membership_leave(&c->client_members, client->id);
    trpi_membership_forget(&c->client_members, client->id);
    trpi_actor_rec *actor = trpi_table_get(&c->actors, client->actor);
    if (actor) {
        trpi_table_remove(&actor->workers, client->id);
    }
    drop_subscriptions(c, client);
    end_owned(c, client, text);
    if (client->kind == TRPI_DRIVER) {
        trpi_job_driver_gone(c, client->job, orderly, reason);
    }
    if (client->kind != TRPI_TOOL) {
        trpi_stores_client_gone(c, client->id);
    }
    trpi_client_free(client);
}

void trpi_client_bye(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_client_bye *msg) {
    uint64_t peer = client->peer;
    trpi_client_end(c, client, true, "it said goodbye");
    trpi_post_done(c, peer, msg->request, NULL);
}

void trpi_clients_tick(trpi_cluster *c) {
    const trpi_member *member;
    uint64_t id = 0;
    trpi_membership_tick(&c->client_members, c->now_ns);
    while ((member = trpi_membership_silent(&c->client_members, &id, c->now_ns)) != NULL) {
        char reason[128], silent[32], limit[32];
        trpi_text_seconds(c->now_ns - member->heard_ns, silent, sizeof(silent));
        trpi_text_seconds(c->client_members.timeout_ns, limit, sizeof(limit));
        trpi_format(reason, sizeof(reason), "silent for %s (CLIENT_TIMEOUT_MS is %s)", silent,
                    limit);
        trpi_client_end(c, trpi_table_get(&c->clients, id), false, reason);
    }
}

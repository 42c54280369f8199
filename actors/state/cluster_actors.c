/* cluster_actors.c: what clients ask about actors: spawn, look up, kill, signal, subscribe.
 *
 * What holds: a name is in the index exactly as long as its actor is neither dead nor about to be;
 * a subscription is known on both sides. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

static void death_free(trpi_death *death) {
    if (death) {
        free((char *)death->message);
        free((char *)death->stderr_tail);
        free(death);
    }
}

void trpi_actor_free(trpi_actor_rec *actor) {
    free(actor->type);
    free(actor->name);
    free(actor->endpoint);
    free(actor->remote_endpoint);
    free(actor->end_reason);
    for (size_t i = 0; i < actor->env_count; i++) {
        free((char *)actor->env[i].value);
    }
    free(actor->env);
    free((void *)actor->args.data);
    free(actor->killers.items);
    trpi_request_release(&actor->request);
    trpi_grant_drop(&actor->grant);
    trpi_table_release(&actor->workers);
    trpi_table_release(&actor->subscribers);
    death_free(actor->death);
    free(actor);
}

/* ---- Names ---- */

/* "namespace" NUL "name": no text can hold a NUL, so no two pairs share a key. */
static trp_bytes name_key(char *out, const char *namespace_name, const char *name) {
    size_t first = strlen(namespace_name) + 1, second = strlen(name);
    memcpy(out, namespace_name, first);
    memcpy(out + first, name, second);
    return (trp_bytes){out, first + second};
}

static trpi_actor_rec *actor_named(const trpi_cluster *c, const trpi_job_rec *job,
                                   const char *name) {
    char key[2 * TRPI_TEXT_MAX + 2];
    if (!name[0] || strlen(name) > TRPI_TEXT_MAX) {
        return NULL;
    }
    return trpi_index_get(&c->names, name_key(key, job->namespace_name, name));
}

static void name_take(trpi_cluster *c, const trpi_job_rec *job, trpi_actor_rec *actor) {
    char key[2 * TRPI_TEXT_MAX + 2];
    if (actor->name[0]) {
        (void)trpi_index_put(&c->names, name_key(key, job->namespace_name, actor->name), actor);
        actor->named = true;
    }
}

void trpi_name_drop(trpi_cluster *c, trpi_actor_rec *actor) {
    char key[2 * TRPI_TEXT_MAX + 2];
    const trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    if (actor->named) {
        trpi_index_remove(&c->names, name_key(key, job->namespace_name, actor->name));
        actor->named = false;
    }
}

/* ---- Spawn ---- */

static void answer_spawn(trpi_cluster *c, const trpi_client_rec *client, uint64_t request,
                         uint64_t actor, const trp_error *error) {
    const char *message = error ? trpi_keep(c, error->message) : "";
    trpi_msg *msg = trpi_post(c, client->peer, TRPI_MSG_SPAWNED);
    msg->spawned.request = request;
    msg->spawned.code = error ? error->code : TRP_OK;
    msg->spawned.message = message;
    msg->spawned.actor = actor;
}

static trp_code check_group(const trpi_cluster *c, const trpi_msg_spawn *msg,
                            const trpi_request *request, trp_error *err) {
    const trpi_group_rec *group = trpi_table_get(&c->groups, msg->group);
    char text[192];
    if (!group || group->removing) {
        return trpi_fail(err, TRP_ENOTFOUND, "placement group g%" PRIu64 " does not exist %s",
                         msg->group, group ? "any more" : "(any more)");
    }
    if (msg->node) {
        return trpi_fail(err, TRP_EINVALID,
                         "options group and node exclude each other: the "
                         "bundle decides on the node");
    }
    if (msg->bundle < -1 || msg->bundle >= (int64_t)group->bundle_count) {
        return trpi_fail(err, TRP_EINVALID,
                         "bundle %" PRId64 ": group g%" PRIu64
                         " has bundles 0 to %zu (-1 = any with room)",
                         msg->bundle, group->id, group->bundle_count - 1);
    }
    for (size_t i = 0; i < group->bundle_count; i++) {
        bool asked = msg->bundle == -1 || msg->bundle == (int64_t)i;
        trpi_pool pool;
        if (!asked) {
            continue;
        }
        trpi_pool_init(&pool, &group->seats[i].request);
        bool fits = trpi_pool_could_fit(&pool, request);
        trpi_pool_release(&pool);
        if (fits) {
            return TRP_OK;
        }
    }
    trpi_request_text(request, &c->resource_names, text, sizeof(text));
    return trpi_fail(err, TRP_EINVALID, "%s is more than %s of group g%" PRIu64 " has", text,
                     msg->bundle == -1 ? "any bundle" : "that bundle", group->id);
}

static trp_code check_feasible(const trpi_cluster *c, const trpi_msg_spawn *msg,
                               const trpi_request *request, trp_error *err) {
    trpi_wish wish = {.request = request, .only = msg->node};
    char why[256];
    trpi_verdict verdict;
    if (msg->node && !trpi_sched_node_of(&c->sched, msg->node)) {
        const trpi_node_rec *node = trpi_table_get(&c->nodes, msg->node);
        return node ? trpi_fail(err, TRP_EINFEASIBLE, "node n%" PRIu64 " (%s) is dead: %s",
                                msg->node, node->name, node->reason)
                    : trpi_fail(err, TRP_EINFEASIBLE, "there is no node n%" PRIu64, msg->node);
    }
    if (!msg->fail_if_infeasible && !msg->node) {
        return TRP_OK;
    }
    if (msg->group) {
        const trpi_group_rec *group = trpi_table_get(&c->groups, msg->group);
        if (group->phase == TRPI_GROUP_PLACED) {
            return TRP_OK;
        }
        verdict = trpi_group_explain(c, group, why, sizeof(why));
    } else {
        verdict = trpi_sched_explain(&c->sched, &wish, &c->resource_names, why, sizeof(why));
    }
    return verdict == TRPI_INFEASIBLE ? trpi_fail(err, TRP_EINFEASIBLE, "infeasible: %s", why)
                                      : TRP_OK;
}

static trp_code check_spawn(const trpi_cluster *c, const trpi_client_rec *client,
                            const trpi_msg_spawn *msg, trp_error *err) {
    if (client->kind == TRPI_TOOL) {
        return trpi_fail(err, TRP_EINVALID, "only drivers and actors spawn actors");
    }
    if (c->stopping) {
        return trpi_fail(err, TRP_EUNAVAILABLE, "the cluster is stopping");
    }
    if (!msg->type[0] || strlen(msg->type) > TRPI_TEXT_MAX || strlen(msg->name) > TRPI_TEXT_MAX) {
        return trpi_fail(err, TRP_EINVALID, "a type has 1 to %d bytes, a name at most as many",
                         TRPI_TEXT_MAX);
    }
    if (msg->get_if_exists && !msg->name[0]) {
        return trpi_fail(err, TRP_EINVALID, "get_if_exists needs a name");
    }
    if (msg->restarts_max < -1) {
        return trpi_fail(err, TRP_EINVALID, "restarts_max %" PRId64 ": -1 (for ever), 0 or more",
                         msg->restarts_max);
    }
    if (msg->args.size > TRPI_ARGS_MAX || msg->env_count > TRPI_ENV_MAX) {
        return trpi_fail(err, TRP_EINVALID,
                         "%zu bytes of arguments and %zu environment entries: at most %zu and %d; "
                         "pass large things by path",
                         msg->args.size, msg->env_count, TRPI_ARGS_MAX, TRPI_ENV_MAX);
    }
    return TRP_OK;
}

static uint64_t start_bytes(const trpi_msg_spawn *msg) {
    uint64_t bytes = msg->args.size;
    for (size_t i = 0; i < msg->env_count; i++) {
        bytes += strlen(msg->env[i].value) + 1;
    }
    return bytes;
}

/* Of what the head must keep for an actor that is new. */
static trp_code check_room(const trpi_cluster *c, const trpi_msg_spawn *msg, trp_error *err) {
    if (c->living_actors >= c->config.actors_max) {
        return trpi_fail(err, TRP_EBUSY, "the cluster has %" PRIu64 " actors, its limit",
                         c->living_actors);
    }
    if (start_bytes(msg) > c->config.start_bytes_max - c->start_bytes) {
        return trpi_fail(err, TRP_EBUSY,
                         "the head keeps %" PRIu64 " bytes of arguments and environments of its "
                         "actors, of at most %" PRIu64 "; pass large things by path",
                         c->start_bytes, c->config.start_bytes_max);
    }
    return TRP_OK;
}

static void copy_env(trpi_actor_rec *actor, const trpi_msg_spawn *msg) {
    actor->env_count = msg->env_count;
    actor->env = trpi_alloc(TRPI_MAX(msg->env_count, (size_t)1) * sizeof(trpi_text));
    for (size_t i = 0; i < msg->env_count; i++) {
        actor->env[i].value = trpi_strdup(msg->env[i].value);
    }
}

static trp_bytes copy_bytes(trp_bytes bytes) {
    void *copy = trpi_alloc(TRPI_MAX(bytes.size, (size_t)1));
    if (bytes.size) {
        memcpy(copy, bytes.data, bytes.size);
    }
    return (trp_bytes){copy, bytes.size};
}

static trpi_life_rules rules_of(const trpi_cluster *c, const trpi_msg_spawn *msg) {
    uint64_t max_ms = c->config.restart_backoff_max_ms;
    uint64_t backoff_ms =
        msg->restart_backoff_ms ? msg->restart_backoff_ms : c->config.restart_backoff_ms;
    return (trpi_life_rules){
        .restarts_max = msg->restarts_max,
        .backoff_ns = TRPI_MIN(backoff_ms, max_ms) * TRPI_NS_PER_MS,
        .backoff_max_ns = max_ms * TRPI_NS_PER_MS,
        .forget_ns = c->config.restart_forget_ms * TRPI_NS_PER_MS,
    };
}

/* Takes *request. */
static trpi_actor_rec *new_actor(trpi_cluster *c, trpi_client_rec *client,
                                 const trpi_msg_spawn *msg, trpi_request *request) {
    trpi_actor_rec *actor = trpi_alloc(sizeof(*actor));
    trpi_life_rules rules = rules_of(c, msg);
    actor->id = ++c->last_actor;
    actor->job = client->job;
    actor->type = trpi_strdup(msg->type);
    actor->name = trpi_strdup(msg->name);
    actor->detached = msg->detached;
    actor->request = *request;
    actor->group = msg->group;
    actor->only_node = msg->node;
    actor->bundle_asked = msg->bundle;
    actor->bundle = -1;
    actor->place = TRPI_BACKOFF; /* until trpi_actor_seek() */
    actor->call_retries_max = msg->call_retries_max;
    actor->start_timeout_ms =
        msg->start_timeout_ms ? msg->start_timeout_ms : c->config.start_timeout_ms;
    actor->endpoint = trpi_strdup("");
    actor->remote_endpoint = trpi_strdup("");
    actor->args = copy_bytes(msg->args);
    actor->start_bytes = start_bytes(msg);
    c->start_bytes += actor->start_bytes;
    actor->since_ns = c->now_ns;
    copy_env(actor, msg);
    trpi_life_init(&actor->life, &rules);
    trpi_table_put(&c->actors, actor->id, actor);
    c->living_actors++;
    if (!actor->detached) {
        actor->owner = client->id;
        trpi_table_put(&client->actors, actor->id, actor);
    }
    return actor;
}

/* True: the name settles the matter, and the answer is given. */
static bool name_settles(trpi_cluster *c, const trpi_client_rec *client, const trpi_job_rec *job,
                         const trpi_msg_spawn *msg) {
    const trpi_actor_rec *holder = actor_named(c, job, msg->name);
    trp_error error;
    if (!holder) {
        return false;
    }
    if (msg->get_if_exists && strcmp(holder->type, msg->type) == 0) {
        answer_spawn(c, client, msg->request, holder->id, NULL);
        return true;
    }
    (void)trpi_fail(&error, TRP_EEXISTS,
                    "name \"%s\" is held by actor a%" PRIu64 " of type %s in namespace %s%s",
                    msg->name, holder->id, holder->type, job->namespace_name,
                    msg->get_if_exists ? "" : ": end it first, or set get_if_exists");
    answer_spawn(c, client, msg->request, 0, &error);
    return true;
}

void trpi_actor_spawn(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_spawn *msg) {
    trpi_request request = {0};
    trp_error error;
    trpi_job_rec *job = trpi_table_get(&c->jobs, client->job);
    trp_code code = check_spawn(c, client, msg, &error);
    if (code == TRP_OK && name_settles(c, client, job, msg)) {
        return;
    }
    if (code == TRP_OK) {
        code = check_room(c, msg, &error);
    }
    if (code == TRP_OK) {
        code = trpi_request_parse(&c->resource_names, msg->resources, msg->resources_count,
                                  &request, &error);
    }
    if (code == TRP_OK && msg->group) {
        code = check_group(c, msg, &request, &error);
    }
    if (code == TRP_OK) {
        code = check_feasible(c, msg, &request, &error);
    }
    if (code != TRP_OK) {
        trpi_request_release(&request);
        (void)trpi_context(&error, code, "spawn %.64s", msg->type);
        answer_spawn(c, client, msg->request, 0, &error);
        return;
    }
    trpi_actor_rec *actor = new_actor(c, client, msg, &request);
    job->actors++;
    name_take(c, job, actor);
    if (actor->group) {
        trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
        trpi_table_put(&group->actors, actor->id, actor);
    }
    answer_spawn(c, client, msg->request, actor->id, NULL);
    trpi_actor_seek(c, actor);
}

void trpi_actor_lookup(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_lookup *msg) {
    const trpi_job_rec *job = trpi_table_get(&c->jobs, client->job);
    trp_error error;
    if (!job) {
        (void)trpi_fail(&error, TRP_EINVALID, "a troupe command has no namespace to look in");
        answer_spawn(c, client, msg->request, 0, &error);
        return;
    }
    const trpi_actor_rec *actor = actor_named(c, job, msg->name);
    if (!actor) {
        (void)trpi_fail(&error, TRP_ENOTFOUND,
                        "no living actor is named \"%.200s\" in namespace %s", msg->name,
                        job->namespace_name);
    }
    answer_spawn(c, client, msg->request, actor ? actor->id : 0, actor ? NULL : &error);
}

/* ---- Kill and signal ---- */

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
    trpi_ask(&actor->killers, client->id, msg->request);
    trpi_text_client(c, client, who, sizeof(who));
    trpi_format(reason, sizeof(reason), "killed by %s", who);
    trpi_actor_end(c, actor, TRP_CAUSE_KILLED, reason, msg->may_restart);
}

void trpi_actor_signal(trpi_cluster *c, const trpi_msg_signal *msg) {
    const trpi_actor_rec *actor = trpi_table_get(&c->actors, msg->actor);
    bool fits = actor && (msg->incarnation == 0 || msg->incarnation == actor->life.incarnation) &&
                (actor->place == TRPI_STARTING || actor->place == TRPI_RUNNING);
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

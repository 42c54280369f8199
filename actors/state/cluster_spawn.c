/* cluster_spawn.c: an actor is asked for: what is asked is checked, whole, before anything is kept.
 *
 * What is wrong with the request itself is refused. What only cannot be had (a node that is dead, a
 * label that nobody has) makes an actor that waits, or that is dead at once, unless the request
 * says fail_if_infeasible. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

/* ---- Records ---- */

static void death_free(trpi_death *death) {
    if (death) {
        free((char *)death->message);
        free((char *)death->stderr_tail);
        free((char *)death->core);
        free(death);
    }
}

void trpi_wants_release(trpi_wants *wants) {
    trpi_label_rules_release(&wants->labels);
    trpi_texts_release(&wants->env);
    free((void *)wants->args.data);
    free(wants->cwd);
    wants->args = (trp_bytes){0};
    wants->cwd = NULL;
}

void trpi_actor_free(trpi_actor_rec *actor) {
    char *texts[] = {actor->type,       actor->name, actor->endpoint, actor->remote_endpoint,
                     actor->end_reason, actor->doom};
    for (size_t i = 0; i < TRPI_COUNTOF(texts); i++) {
        free(texts[i]);
    }
    trpi_table *tables[] = {&actor->workers, &actor->subscribers, &actor->links};
    for (size_t i = 0; i < TRPI_COUNTOF(tables); i++) {
        trpi_table_release(tables[i]);
    }
    free((void *)actor->saved.data);
    free(actor->killers.items);
    free(actor->stoppers.items);
    trpi_texts_release(&actor->retry_on);
    trpi_wants_release(&actor->wants);
    trpi_request_release(&actor->request);
    trpi_grant_drop(&actor->grant);
    trpi_life_release(&actor->life);
    death_free(actor->death);
    free(actor);
}

void trpi_answer_spawn(trpi_cluster *c, const trpi_client_rec *client, uint64_t request,
                       uint64_t actor, const trp_error *error) {
    const char *message = error ? trpi_keep(c, error->message) : "";
    trpi_msg *msg = trpi_post(c, client->peer, TRPI_MSG_SPAWNED);
    msg->spawned.request = request;
    msg->spawned.code = error ? error->code : TRP_OK;
    msg->spawned.message = message;
    msg->spawned.actor = actor;
}

/* ---- Whether it may be asked for ---- */

static trp_code check_restarts(const trpi_msg_spawn *msg, trp_error *err) {
    if (msg->restarts_max < -1) {
        return trpi_fail(err, TRP_EINVALID, "restarts_max %" PRId64 ": -1 (for ever), 0 or more",
                         msg->restarts_max);
    }
    if (msg->restart_window_ms && msg->restarts_max > TRPI_WINDOW_RESTARTS_MAX) {
        return trpi_fail(err, TRP_EINVALID,
                         "restarts_max %" PRId64 " with restart_window_ms: at most %d, or -1",
                         msg->restarts_max, TRPI_WINDOW_RESTARTS_MAX);
    }
    return TRP_OK;
}

static trp_code check_sizes(const trpi_msg_spawn *msg, trp_error *err) {
    if (!msg->type[0] || strlen(msg->type) > TRPI_TEXT_MAX || strlen(msg->name) > TRPI_TEXT_MAX) {
        return trpi_fail(err, TRP_EINVALID, "a type has 1 to %d bytes, a name at most as many",
                         TRPI_TEXT_MAX);
    }
    if (msg->args.size > TRPI_ARGS_MAX) {
        return trpi_fail(err, TRP_EINVALID,
                         "%zu bytes of arguments: at most %zu; pass large things by path",
                         msg->args.size, TRPI_ARGS_MAX);
    }
    if (strlen(msg->cwd) > TRPI_PATH_TEXT_MAX || (msg->cwd[0] && msg->cwd[0] != '/')) {
        return trpi_fail(err, TRP_EINVALID,
                         "cwd \"%.64s\" is not an absolute path of at most %d bytes", msg->cwd,
                         TRPI_PATH_TEXT_MAX);
    }
    if (msg->max_concurrency > TRPI_THREADS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "max_concurrency %" PRIu64 ": at most %d",
                         msg->max_concurrency, TRPI_THREADS_MAX);
    }
    if (msg->retry_on_count > TRPI_RETRY_ON_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%zu entries of retry_on: at most %d",
                         msg->retry_on_count, TRPI_RETRY_ON_MAX);
    }
    for (size_t i = 0; i < msg->retry_on_count; i++) {
        if (strlen(msg->retry_on[i].value) > TRPI_TEXT_MAX) {
            return trpi_fail(err, TRP_EINVALID, "retry_on \"%.32s...\" is longer than %d bytes",
                             msg->retry_on[i].value, TRPI_TEXT_MAX);
        }
    }
    return TRP_OK;
}

static trp_code check_spawn(const trpi_cluster *c, const trpi_client_rec *client,
                            const trpi_msg_spawn *msg, trp_error *err) {
    if (client->kind == TRPI_TOOL) {
        return trpi_fail(err, TRP_EINVALID, "only drivers and actors spawn actors");
    }
    if (c->stopping) {
        return trpi_fail(err, TRP_EUNAVAILABLE, "the cluster is stopping");
    }
    if (msg->get_if_exists && !msg->name[0]) {
        return trpi_fail(err, TRP_EINVALID, "get_if_exists needs a name");
    }
    trp_code code = check_sizes(msg, err);
    return code == TRP_OK ? check_restarts(msg, err) : code;
}

static trp_code check_group(const trpi_cluster *c, const trpi_msg_spawn *msg,
                            const trpi_request *request, trp_error *err) {
    const trpi_group_rec *group = trpi_table_get(&c->groups, msg->group);
    char text[192];
    if (!group || group->removing) {
        return trpi_fail(err, TRP_ENOTFOUND, "placement group g%" PRIu64 " does not exist %s",
                         msg->group, group ? "any more" : "(any more)");
    }
    if (msg->node || msg->labels_count || msg->schedule != TRP_SCHEDULE_PACKED) {
        return trpi_fail(err, TRP_EINVALID,
                         "option group excludes node, labels and schedule: the bundle decides on "
                         "the node");
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

/* Of what the head must keep for an actor that is new. */
static trp_code check_room(const trpi_cluster *c, uint64_t bytes, trp_error *err) {
    if (c->living_actors >= c->config.actors_max) {
        return trpi_fail(err, TRP_EBUSY, "the cluster has %" PRIu64 " actors, its limit",
                         c->living_actors);
    }
    if (bytes > c->config.start_bytes_max - c->start_bytes) {
        return trpi_fail(err, TRP_EBUSY,
                         "the head keeps %" PRIu64 " bytes of arguments and environments of its "
                         "actors, of at most %" PRIu64 "; pass large things by path",
                         c->start_bytes, c->config.start_bytes_max);
    }
    return TRP_OK;
}

/* ---- A new record ---- */

static trpi_life_rules rules_of(const trpi_cluster *c, const trpi_msg_spawn *msg) {
    uint64_t max_ms = c->config.restart_backoff_max_ms;
    uint64_t backoff_ms =
        msg->restart_backoff_ms ? msg->restart_backoff_ms : c->config.restart_backoff_ms;
    return (trpi_life_rules){
        .restart = (trp_restart)msg->restart,
        .restarts_max = msg->restarts_max,
        .window_ns = TRPI_MIN(msg->restart_window_ms, TRPI_LONG_MS) * TRPI_NS_PER_MS,
        .backoff_ns = TRPI_MIN(backoff_ms, max_ms) * TRPI_NS_PER_MS,
        .backoff_max_ns = max_ms * TRPI_NS_PER_MS,
        .forget_ns = c->config.restart_forget_ms * TRPI_NS_PER_MS,
    };
}

/* Everything that may turn out to be wrong. */
static trp_code parse(trpi_cluster *c, const trpi_client_rec *client, const trpi_msg_spawn *msg,
                      trpi_actor_rec *actor, trp_error *err) {
    trp_code code = trpi_request_parse(&c->resource_names, msg->resources, msg->resources_count,
                                       &actor->request, err);
    if (code == TRP_OK) {
        code = trpi_label_rules_parse(msg->labels, msg->labels_count, &actor->wants.labels, err);
    }
    if (code == TRP_OK) {
        code = trpi_env_parse(msg->env, msg->env_count, &actor->wants.env, err);
    }
    if (code == TRP_OK && msg->group) {
        code = check_group(c, msg, &actor->request, err);
    }
    if (code == TRP_OK && msg->gang) {
        code = trpi_gang_check_member(c, client, msg->gang, err);
    }
    if (code == TRP_OK) {
        actor->start_bytes =
            msg->args.size + trpi_texts_bytes(&actor->wants.env) + strlen(msg->cwd);
        code = check_room(c, actor->start_bytes, err);
    }
    return code;
}

static void copy_wants(const trpi_cluster *c, const trpi_msg_spawn *msg, trpi_wants *wants) {
    wants->bundle = msg->bundle;
    wants->only_node = msg->node;
    wants->node_soft = msg->node_soft;
    wants->schedule = (trp_schedule)msg->schedule;
    wants->start_timeout_ms =
        msg->start_timeout_ms ? msg->start_timeout_ms : c->config.start_timeout_ms;
    wants->args = trpi_copy_bytes(msg->args);
    wants->cwd = trpi_strdup(msg->cwd);
    wants->max_concurrency = msg->max_concurrency;
    wants->liveness_ms = msg->liveness_ms;
    wants->exclusive = msg->exclusive;
    wants->save_each_call = msg->save_each_call;
}

static trpi_actor_rec *new_actor(const trpi_cluster *c, const trpi_msg_spawn *msg) {
    trpi_actor_rec *actor = trpi_alloc(sizeof(*actor));
    trpi_life_rules rules = rules_of(c, msg);
    actor->type = trpi_strdup(msg->type);
    actor->name = trpi_strdup(msg->name);
    actor->detached = msg->detached;
    actor->group = msg->group;
    actor->gang = msg->gang;
    actor->bundle = -1;
    actor->place = TRPI_BACKOFF; /* until trpi_actor_seek() */
    actor->call_retries_max = msg->call_retries_max;
    actor->max_pending_calls = msg->max_pending_calls;
    actor->retry_on = trpi_texts_copy(msg->retry_on, msg->retry_on_count);
    actor->endpoint = trpi_strdup("");
    actor->remote_endpoint = trpi_strdup("");
    actor->since_ns = c->now_ns;
    copy_wants(c, msg, &actor->wants);
    trpi_life_init(&actor->life, &rules);
    return actor;
}

/* From here on the cluster has it. */
static void add_actor(trpi_cluster *c, trpi_client_rec *client, trpi_actor_rec *actor) {
    actor->id = ++c->last_actor;
    actor->job = client->job;
    trpi_table_put(&c->actors, actor->id, actor);
    c->living_actors++;
    c->start_bytes += actor->start_bytes;
    if (!actor->detached) {
        actor->owner = client->id;
        trpi_table_put(&client->actors, actor->id, actor);
    }
    trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    job->actors++;
    trpi_actor_name_take(c, actor);
    trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    if (group) {
        trpi_table_put(&group->actors, actor->id, actor);
    }
    if (actor->gang) {
        trpi_gang_join(c, actor);
    }
}

/* ---- Spawn ---- */

/* True: the name settles the matter, and the answer is given. */
static bool name_settles(trpi_cluster *c, const trpi_client_rec *client, const char *space,
                         const trpi_msg_spawn *msg) {
    const trpi_actor_rec *holder = trpi_actor_named(c, space, msg->name);
    trp_error error;
    if (!holder) {
        return false;
    }
    if (msg->get_if_exists && strcmp(holder->type, msg->type) == 0) {
        trpi_answer_spawn(c, client, msg->request, holder->id, NULL);
        return true;
    }
    (void)trpi_fail(&error, TRP_EEXISTS,
                    "name \"%s\" is held by actor a%" PRIu64 " of type %s in namespace %s%s",
                    msg->name, holder->id, holder->type, space,
                    msg->get_if_exists ? "" : ": end it first, or set get_if_exists");
    trpi_answer_spawn(c, client, msg->request, 0, &error);
    return true;
}

static trp_code check_feasible(const trpi_cluster *c, const trpi_actor_rec *actor, trp_error *err) {
    char why[400];
    trpi_verdict verdict;
    const trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    if (group) {
        verdict = group->phase == TRPI_GROUP_PLACED
                      ? TRPI_FITS
                      : trpi_group_explain(c, group, why, sizeof(why));
    } else {
        trpi_wish wish = trpi_actor_wish(c, actor);
        verdict = trpi_sched_explain(&c->sched, &wish, &c->resource_names, why, sizeof(why));
    }
    return verdict == TRPI_INFEASIBLE ? trpi_fail(err, TRP_EINFEASIBLE, "infeasible: %s", why)
                                      : TRP_OK;
}

void trpi_actor_spawn(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_spawn *msg) {
    trp_error error;
    const trpi_job_rec *job = trpi_table_get(&c->jobs, client->job);
    trpi_actor_rec *actor = NULL;
    trp_code code = check_spawn(c, client, msg, &error);
    if (code == TRP_OK && name_settles(c, client, job->namespace_name, msg)) {
        return;
    }
    if (code == TRP_OK) {
        actor = new_actor(c, msg);
        code = parse(c, client, msg, actor, &error);
    }
    if (code == TRP_OK && msg->fail_if_infeasible) {
        code = check_feasible(c, actor, &error);
    }
    if (code != TRP_OK) {
        if (actor) {
            trpi_actor_free(actor);
        }
        trpi_answer_spawn(c, client, msg->request, 0, &error);
        return;
    }
    add_actor(c, client, actor);
    trpi_answer_spawn(c, client, msg->request, actor->id, NULL);
    trpi_actor_seek(c, actor);
}

/* client_spawn.c: asking the head for an actor: options are checked here, where they were written.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/client_options.h"
#include "actors/proc/client_resources.h"
#include "core/base/config.h"

#define TYPES_MAX 64               /* looked through for a near name */
#define ARGS_MAX ((size_t)8 << 20) /* that the head keeps for restarts */

/* *ret_type is NULL where types cannot be known. */
static trp_code find_type(const trp_runtime *rt, const char *type, const trp_actor_type **ret_type,
                          trp_error *err) {
    *ret_type = NULL;
    if (type == NULL || type[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "no actor type is named");
    }
    if (rt->types == NULL) {
        return TRP_OK; /* a tool serves no types, so it cannot know them */
    }
    const char *names[TYPES_MAX];
    size_t count = 0;
    for (size_t i = 0; rt->types[i] != NULL; i++) {
        if (strcmp(rt->types[i]->name, type) == 0) {
            *ret_type = rt->types[i];
            return TRP_OK;
        }
        if (count < TYPES_MAX) {
            names[count++] = rt->types[i]->name;
        }
    }
    const char *near = trpi_nearest(type, names, count);
    return trpi_fail(err, TRP_EINVALID,
                     "no actor type \"%s\" is registered with trp_init() in this program%s%s%s",
                     type, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static uint64_t or_setting(uint64_t value, trpi_setting setting) {
    return value != 0 ? value : trpi_config(setting);
}

static trp_code take_spawned(const trpi_msg *reply, trp_actor *ret_actor, trp_error *err) {
    if (reply->type != TRPI_MSG_SPAWNED) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s",
                         trpi_msg_name(reply->type));
    }
    if (reply->spawned.code != TRP_OK) {
        return trpi_fail(err, (trp_code)reply->spawned.code, "%s", reply->spawned.message);
    }
    *ret_actor = (trp_actor){reply->spawned.actor};
    return TRP_OK;
}

static trp_code request_actor(trp_runtime *rt, trpi_msg *msg, trp_actor *ret_actor,
                              trp_error *err) {
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trp_code code = trpi_client_request(rt, msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS),
                                        &storage, &reply, err);
    if (code == TRP_OK) {
        code = take_spawned(reply, ret_actor, err);
        trpi_client_reply_release(storage);
    }
    return code;
}

/* A list of texts as the protocol has it, borrowing them; free() it. */
static trpi_text *texts_of(const char *const *words, size_t *ret_count) {
    size_t count = 0;
    while (words != NULL && words[count] != NULL) {
        count++;
    }
    trpi_text *texts = trpi_alloc((count + 1) * sizeof(*texts));
    for (size_t i = 0; i < count; i++) {
        texts[i].value = words[i];
    }
    *ret_count = count;
    return texts;
}

static void fill_in(const trp_spawn_options *o, trpi_msg_spawn *spawn) {
    spawn->name = o->name;
    spawn->group = o->group.id;
    spawn->bundle = o->bundle;
    spawn->node = o->node;
    spawn->node_soft = o->node_soft;
    spawn->schedule = o->schedule;
    spawn->gang = o->gang.id;
    spawn->restart = o->restart;
    spawn->restarts_max = o->restarts_max;
    spawn->restart_window_ms = o->restart_window_ms;
    spawn->restart_backoff_ms = or_setting(o->restart_backoff_ms, TRPI_CONFIG_RESTART_BACKOFF_MS);
    spawn->start_timeout_ms = or_setting(o->start_timeout_ms, TRPI_CONFIG_START_TIMEOUT_MS);
    spawn->liveness_ms = o->liveness_ms;
    spawn->exclusive = o->exclusive;
    spawn->detached = o->detached;
    spawn->get_if_exists = o->get_if_exists;
    spawn->fail_if_infeasible = o->fail_if_infeasible;
    spawn->call_retries_max = o->call_retries_max;
    spawn->max_concurrency = (uint64_t)o->max_concurrency;
    spawn->max_pending_calls = (uint64_t)o->max_pending_calls;
    spawn->save_each_call = o->save_each_call;
    spawn->cwd = o->cwd;
}

static trp_code send_spawn(trp_runtime *rt, const char *type, trp_bytes args,
                           const trp_spawn_options *o, trp_actor *ret_actor, trp_error *err) {
    trp_bundle wants = {.cpus = o->cpus,
                        .gpus = o->gpus,
                        .memory_bytes = o->memory_bytes,
                        .resources = o->resources,
                        .resource_count = o->resource_count};
    trpi_msg msg = {.type = TRPI_MSG_SPAWN, .spawn = {.type = type, .args = args}};
    trpi_msg_spawn *spawn = &msg.spawn;
    trp_code code = trpi_resources_of(&wants, &spawn->resources, &spawn->resources_count, err);
    if (code != TRP_OK) {
        return code;
    }
    fill_in(o, spawn);
    spawn->env = texts_of(o->env, &spawn->env_count);
    spawn->retry_on = texts_of(o->retry_on, &spawn->retry_on_count);
    spawn->labels = texts_of(o->labels, &spawn->labels_count);
    code = request_actor(rt, &msg, ret_actor, err);
    free(spawn->labels);
    free(spawn->retry_on);
    free(spawn->env);
    free(spawn->resources);
    return code;
}

trp_code trp_spawn(trp_runtime *rt, const char *type, trp_bytes args,
                   const trp_spawn_options *options, trp_actor *ret_actor, trp_error *err) {
    static const trp_spawn_options defaults;
    const trp_spawn_options *o = options != NULL ? options : &defaults;
    const trp_actor_type *known = NULL;
    trp_code code = find_type(rt, type, &known, err);
    if (code == TRP_OK) {
        code = trpi_spawn_check(o, known, err);
    }
    if (code == TRP_OK && args.size > ARGS_MAX) {
        code = trpi_fail(err, TRP_EINVALID,
                         "args: %zu bytes; the head keeps at most 8 MiB of them for restarts: put "
                         "them into the object store or a file",
                         args.size);
    }
    if (code == TRP_OK && o->detached) {
        trpi_package_keep(rt);
    }
    if (code == TRP_OK) {
        code = send_spawn(rt, type, args, o, ret_actor, err);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "spawn %s", type ? type : "");
}

trp_code trp_lookup_in(trp_runtime *rt, const char *namespace_name, const char *name,
                       trp_actor *ret_actor, trp_error *err) {
    if (name == NULL || name[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "lookup: the name is empty");
    }
    trpi_msg msg = {.type = TRPI_MSG_LOOKUP,
                    .lookup = {.name = name, .namespace_name = namespace_name}};
    trp_code code = request_actor(rt, &msg, ret_actor, err);
    return code == TRP_OK ? code : trpi_context(err, code, "lookup %s", name);
}

trp_code trp_lookup(trp_runtime *rt, const char *name, trp_actor *ret_actor, trp_error *err) {
    return trp_lookup_in(rt, "", name, ret_actor, err);
}

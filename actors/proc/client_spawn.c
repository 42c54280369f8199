/* client_spawn.c: asking the head for an actor: options are checked here, where they were written.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/client_resources.h"
#include "core/base/config.h"

#define NAME_MAX_BYTES 255
#define TYPES_MAX 64 /* looked through for a near name */

static trp_code check_type(const trp_runtime *rt, const char *type, trp_error *err) {
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

static trp_code check_env(const char *const *env, size_t *ret_count, trp_error *err) {
    size_t count = 0;
    for (; env != NULL && env[count] != NULL; count++) {
        const char *equals = strchr(env[count], '=');
        if (equals == NULL || equals == env[count]) {
            return trpi_fail(err, TRP_EINVALID, "env[%zu]: \"%s\" is not \"KEY=value\"", count,
                             env[count]);
        }
    }
    *ret_count = count;
    return TRP_OK;
}

static trp_code check_options(const trp_spawn_options *o, trp_error *err) {
    if (o->name != NULL && strlen(o->name) > NAME_MAX_BYTES) {
        return trpi_fail(err, TRP_EINVALID, "name: longer than %d bytes", NAME_MAX_BYTES);
    }
    if (o->get_if_exists && (o->name == NULL || o->name[0] == '\0')) {
        return trpi_fail(err, TRP_EINVALID, "get_if_exists needs a name");
    }
    if (o->restarts_max < -1) {
        return trpi_fail(err, TRP_EINVALID, "restarts_max: %d; use -1 for ever, or 0 and more",
                         o->restarts_max);
    }
    if (o->call_retries_max < -1) {
        return trpi_fail(err, TRP_EINVALID, "call_retries_max: %d; use -1 for ever, or 0 and more",
                         o->call_retries_max);
    }
    if (o->group.id == 0 && o->bundle != 0) {
        return trpi_fail(err, TRP_EINVALID, "bundle: %d, but no group is given", o->bundle);
    }
    if (o->bundle < -1) {
        return trpi_fail(err, TRP_EINVALID, "bundle: %d; use -1 for any, or an index from 0",
                         o->bundle);
    }
    return TRP_OK;
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

static trp_code send_spawn(trp_runtime *rt, const char *type, trp_bytes args,
                           const trp_spawn_options *o, size_t env_count, trp_actor *ret_actor,
                           trp_error *err) {
    trp_bundle wants = {.cpus = o->cpus,
                        .gpus = o->gpus,
                        .memory_bytes = o->memory_bytes,
                        .resources = o->resources,
                        .resource_count = o->resource_count};
    trpi_resource *resources;
    size_t resource_count;
    trp_code code = trpi_resources_of(&wants, &resources, &resource_count, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_text *env = trpi_alloc((env_count + 1) * sizeof(*env));
    for (size_t i = 0; i < env_count; i++) {
        env[i].value = o->env[i];
    }
    trpi_msg msg = {
        .type = TRPI_MSG_SPAWN,
        .spawn = {.type = type,
                  .name = o->name,
                  .resources = resources,
                  .resources_count = resource_count,
                  .group = o->group.id,
                  .bundle = o->bundle,
                  .node = o->node,
                  .restarts_max = o->restarts_max,
                  .restart_backoff_ms =
                      or_setting(o->restart_backoff_ms, TRPI_CONFIG_RESTART_BACKOFF_MS),
                  .start_timeout_ms = or_setting(o->start_timeout_ms, TRPI_CONFIG_START_TIMEOUT_MS),
                  .detached = o->detached,
                  .get_if_exists = o->get_if_exists,
                  .fail_if_infeasible = o->fail_if_infeasible,
                  .call_retries_max = o->call_retries_max,
                  .env = env,
                  .env_count = env_count,
                  .args = args}};
    code = request_actor(rt, &msg, ret_actor, err);
    free(env);
    free(resources);
    return code;
}

trp_code trp_spawn(trp_runtime *rt, const char *type, trp_bytes args,
                   const trp_spawn_options *options, trp_actor *ret_actor, trp_error *err) {
    static const trp_spawn_options defaults;
    const trp_spawn_options *o = options != NULL ? options : &defaults;
    size_t env_count = 0;
    trp_code code = check_type(rt, type, err);
    if (code == TRP_OK) {
        code = check_options(o, err);
    }
    if (code == TRP_OK) {
        code = check_env(o->env, &env_count, err);
    }
    if (code == TRP_OK) {
        code = send_spawn(rt, type, args, o, env_count, ret_actor, err);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "spawn %s", type ? type : "");
}

trp_code trp_lookup(trp_runtime *rt, const char *name, trp_actor *ret_actor, trp_error *err) {
    if (name == NULL || name[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "lookup: the name is empty");
    }
    trpi_msg msg = {.type = TRPI_MSG_LOOKUP, .lookup = {.name = name}};
    trp_code code = request_actor(rt, &msg, ret_actor, err);
    return code == TRP_OK ? code : trpi_context(err, code, "lookup %s", name);
}

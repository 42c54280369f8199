/* client_actors.c: ending, signaling and watching actors. */
#include <inttypes.h>

#include "actors/proc/client_internal.h"
#include "core/base/config.h"
#include "core/net/clock.h"

trp_code trp_kill(trp_runtime *rt, trp_actor actor, bool may_restart, trp_error *err) {
    trpi_msg msg = {.type = TRPI_MSG_KILL, .kill = {.actor = actor.id, .may_restart = may_restart}};
    trp_code code = trpi_client_ask(rt, &msg, err);
    return code == TRP_OK ? code : trpi_context(err, code, "kill a%" PRIu64, actor.id);
}

trp_code trp_signal(trp_runtime *rt, trp_actor actor, uint64_t incarnation, trp_bytes data,
                    trp_error *err) {
    if (actor.id == 0) {
        return trpi_fail(err, TRP_EINVALID, "signal: the actor is 0, which is none");
    }
    trpi_msg msg = {
        .type = TRPI_MSG_SIGNAL,
        .signal = {.actor = actor.id, .incarnation = incarnation, .data = data},
    };
    trp_code code = trpi_client_post(rt, &msg, err);
    return code == TRP_OK ? code : trpi_context(err, code, "signal a%" PRIu64, actor.id);
}

/* Waits for the head's first word on the actor. Locked. */
static trp_code await_info(trp_runtime *rt, trp_actor actor, uint64_t deadline_ns,
                           trp_actor_info *ret_info, trp_error *err) {
    bool exists = false;
    while (!trpi_caller_get_info(rt->data.caller, actor.id, &exists, ret_info)) {
        if (!trpi_data_wait_changed(rt, deadline_ns)) {
            return trpi_fail(err, TRP_ETIMEOUT,
                             "the head at %s has not yet said where a%" PRIu64 " is", rt->address,
                             actor.id);
        }
    }
    if (!exists) {
        return trpi_fail(err, TRP_ENOTFOUND, "the cluster has no actor a%" PRIu64, actor.id);
    }
    return TRP_OK;
}

static void enter_watching(trp_runtime *rt, trp_actor actor) {
    trpi_data_enter(rt);
    trpi_caller_watch(rt->data.caller, actor.id, &rt->data.actions);
    trpi_data_perform(rt);
}

trp_code trp_actor_get_info(trp_runtime *rt, trp_actor actor, trp_actor_info *ret_info,
                            trp_error *err) {
    trp_actor_info info;
    enter_watching(rt, actor);
    trp_code code = await_info(
        rt, actor, trpi_deadline_ns(trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS)), &info, err);
    trpi_data_leave(rt);
    if (code == TRP_OK) {
        *ret_info = info;
    }
    return code;
}

trp_code trp_actor_wait_alive(trp_runtime *rt, trp_actor actor, uint64_t timeout_ms,
                              trp_error *err) {
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    trp_actor_info info;
    char why[640];
    enter_watching(rt, actor);
    trp_code code = await_info(rt, actor, deadline_ns, &info, err);
    while (code == TRP_OK && info.phase != TRP_ACTOR_ALIVE && info.phase != TRP_ACTOR_DEAD) {
        if (!trpi_data_wait_changed(rt, deadline_ns)) {
            trpi_caller_explain(rt->data.caller, actor.id, why, sizeof(why));
            code = trpi_fail(err, TRP_ETIMEOUT, "not alive within %" PRIu64 " ms: %s", timeout_ms,
                             why);
            break;
        }
        code = await_info(rt, actor, deadline_ns, &info, err);
    }
    if (code == TRP_OK && info.phase == TRP_ACTOR_DEAD) {
        trpi_caller_explain(rt->data.caller, actor.id, why, sizeof(why));
        code = trpi_fail(err, TRP_EACTOR_DIED, "%s", why);
    }
    trpi_data_leave(rt);
    if (code != TRP_OK && err != NULL) {
        err->actor = actor.id;
    }
    return code;
}

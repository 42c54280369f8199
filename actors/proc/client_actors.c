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

/* Nodes count in nanoseconds; this is thirty years. */
#define GRACE_MAX_MS 1000000000000ull
#define SIGNAL_MAX (1u << 20) /* it goes through the head, which has others to serve */

trp_code trp_stop(trp_runtime *rt, trp_actor actor, uint64_t deadline_ms, trp_error *err) {
    uint64_t grace_ms = TRPI_MIN(TRPI_MAX(deadline_ms, (uint64_t)1), GRACE_MAX_MS);
    trpi_msg msg = {.type = TRPI_MSG_KILL, .kill = {.actor = actor.id, .grace_ms = grace_ms}};
    if (actor.id == 0) {
        return trpi_fail(err, TRP_EINVALID, "stop: the actor is 0, which is none");
    }
    /* The head answers when it is gone; that it does not answer at all is another matter. */
    trp_code code = trpi_client_ask_within(
        rt, &msg, grace_ms + trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS), err);
    return code == TRP_OK ? code : trpi_context(err, code, "stop a%" PRIu64, actor.id);
}

static trp_code change_link(trp_runtime *rt, trp_actor other, bool cut, trp_error *err) {
    const char *verb = cut ? "unlink" : "link";
    if (rt->actor == 0) {
        return trpi_fail(err, TRP_EINVALID,
                         "%s: this process is no actor; what a driver spawns ends with it anyway",
                         verb);
    }
    if (other.id == 0 || other.id == rt->actor) {
        return trpi_fail(err, TRP_EINVALID, "%s: the other actor is %s", verb,
                         other.id == 0 ? "0, which is none" : "this one");
    }
    trpi_msg msg = {.type = TRPI_MSG_LINK, .link = {.other = other.id, .cut = cut}};
    trp_code code = trpi_client_ask(rt, &msg, err);
    return code == TRP_OK ? code : trpi_context(err, code, "%s a%" PRIu64, verb, other.id);
}

trp_code trp_link(trp_runtime *rt, trp_actor other, trp_error *err) {
    return change_link(rt, other, false, err);
}

trp_code trp_unlink(trp_runtime *rt, trp_actor other, trp_error *err) {
    return change_link(rt, other, true, err);
}

trp_code trp_signal(trp_runtime *rt, trp_actor actor, uint64_t incarnation, trp_bytes data,
                    trp_error *err) {
    if (actor.id == 0) {
        return trpi_fail(err, TRP_EINVALID, "signal: the actor is 0, which is none");
    }
    if (data.size > SIGNAL_MAX) {
        return trpi_fail(err, TRP_EINVALID, "signal a%" PRIu64 ": %zu bytes are more than 1 MiB",
                         actor.id, data.size);
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
    trp_code code;
    do {
        code = trpi_caller_get_info(rt->data.caller, actor.id, ret_info, err);
    } while (code == TRP_ETIMEOUT && trpi_data_wait_changed(rt, deadline_ns));
    return code;
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

/* client_gangs.c: actors that live and die together. */
#include <inttypes.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/client_options.h"
#include "core/base/config.h"

static trp_code take_gang(const trpi_msg *reply, trp_gang *ret_gang, trp_error *err) {
    if (reply->type != TRPI_MSG_GANGED) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s",
                         trpi_msg_name(reply->type));
    }
    if (reply->ganged.code != TRP_OK) {
        return trpi_fail(err, (trp_code)reply->ganged.code, "%s", reply->ganged.message);
    }
    *ret_gang = (trp_gang){reply->ganged.gang};
    return TRP_OK;
}

trp_code trp_gang_create(trp_runtime *rt, const trp_gang_options *options, trp_gang *ret_gang,
                         trp_error *err) {
    static const trp_gang_options defaults;
    const trp_gang_options *o = options != NULL ? options : &defaults;
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trpi_msg msg = {
        .type = TRPI_MSG_GANG_CREATE,
        .gang_create = {.name = o->name,
                        .policy = o->policy,
                        .restarts_max = o->restarts_max,
                        .restart_window_ms = o->restart_window_ms,
                        .restart_backoff_ms = o->restart_backoff_ms != 0
                                                  ? o->restart_backoff_ms
                                                  : trpi_config(TRPI_CONFIG_RESTART_BACKOFF_MS),
                        .detached = o->detached}};
    trp_code code = trpi_gang_check(o, err);
    if (code == TRP_OK) {
        code = trpi_client_request(rt, &msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS), &storage,
                                   &reply, err);
    }
    if (code == TRP_OK) {
        code = take_gang(reply, ret_gang, err);
        trpi_client_reply_release(storage);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "create gang");
}

trp_code trp_gang_end(trp_runtime *rt, trp_gang gang, trp_error *err) {
    trpi_msg msg = {.type = TRPI_MSG_GANG_END, .gang_end = {.gang = gang.id}};
    if (gang.id == 0) {
        return trpi_fail(err, TRP_EINVALID, "end gang: it is 0, which is none");
    }
    trp_code code = trpi_client_ask(rt, &msg, err);
    return code == TRP_OK ? code : trpi_context(err, code, "end gang %" PRIu64, gang.id);
}

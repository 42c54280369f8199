/* client_cluster.c: what a program asks about the cluster and its nodes. */
#include <inttypes.h>

#include "actors/proc/client_internal.h"
#include "core/base/config.h"

trp_code trp_drain_node(trp_runtime *rt, uint64_t node, const char *reason, uint64_t deadline_ms,
                        trp_error *err) {
    trpi_msg msg = {.type = TRPI_MSG_DRAIN,
                    .drain = {.node = node, .reason = reason, .deadline_ms = deadline_ms}};
    if (node == 0) {
        return trpi_fail(err, TRP_EINVALID, "drain: the node is 0, which is none");
    }
    trp_code code = trpi_client_ask(rt, &msg, err);
    return code == TRP_OK ? code : trpi_context(err, code, "drain n%" PRIu64, node);
}

static trp_code take_list(const trpi_msg *reply, trp_buf *json, trp_error *err) {
    if (reply->type != TRPI_MSG_LISTED) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s",
                         trpi_msg_name(reply->type));
    }
    if (reply->listed.code != TRP_OK) {
        return trpi_fail(err, (trp_code)reply->listed.code, "%s", reply->listed.message);
    }
    trp_code code = trp_buf_append(json, reply->listed.json.data, reply->listed.json.size);
    return code == TRP_OK ? code : trpi_fail(err, code, "out of memory");
}

trp_code trp_list(trp_runtime *rt, const char *what, trp_buf *json, trp_error *err) {
    if (what == NULL || what[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "list: nothing is named; ask for \"actors\"");
    }
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trpi_msg msg = {.type = TRPI_MSG_LIST_QUERY, .list_query = {.what = what}};
    trp_code code = trpi_client_request(rt, &msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS),
                                        &storage, &reply, err);
    if (code == TRP_OK) {
        code = take_list(reply, json, err);
        trpi_client_reply_release(storage);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "list %s", what);
}

/* connect.c: the command as a client of a cluster. */
#include <inttypes.h>
#include <string.h>

#include "actors/bin/command.h"
#include "actors/proc/client.h"
#include "core/base/config.h"

/* A head answers in milliseconds. Programs may be started before it and wait longer; who types a
 * command looks at the screen. */
enum { LOOK_TIMEOUT_MS = 2000, TYPING_TIMEOUT_MS = 300 };

static uint64_t connect_timeout_ms(void) {
    bool chosen = strcmp(trpi_config_origin(TRPI_CONFIG_CONNECT_TIMEOUT_MS), "default") != 0;
    return chosen ? trpi_config(TRPI_CONFIG_CONNECT_TIMEOUT_MS) : LOOK_TIMEOUT_MS;
}

static trp_code connect_within(const char *address, uint64_t timeout_ms, trp_runtime **ret_runtime,
                               trp_error *err) {
    char chosen[128];
    trp_code code = trpi_client_address(address, chosen, sizeof(chosen), err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_client_options options = {
        .address = chosen, .kind = "tool", .job = "troupe", .connect_timeout_ms = timeout_ms};
    code = trpi_client_open(&options, ret_runtime, err);
    if (code == TRP_ETIMEOUT) { /* nobody is there, which is worth an exit code of its own */
        code = TRP_EDISCONNECTED;
        if (err != NULL) {
            err->code = code;
        }
    }
    return code;
}

trp_code trpi_connect(const char *address, trp_runtime **ret_runtime, trp_error *err) {
    return connect_within(address, connect_timeout_ms(), ret_runtime, err);
}

static trp_code take_json(const trpi_msg *reply, json_t **ret_json, trp_error *err) {
    if (reply->type != TRPI_MSG_LISTED) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s",
                         trpi_msg_name(reply->type));
    }
    if (reply->listed.code != TRP_OK) {
        return trpi_fail(err, (trp_code)reply->listed.code, "%s", reply->listed.message);
    }
    return trpi_json_parse(reply->listed.json.data, reply->listed.json.size, "the head's answer",
                           ret_json, err);
}

trp_code trpi_query(trp_runtime *rt, const char *what, json_t **ret_json, trp_error *err) {
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trpi_msg msg = {.type = TRPI_MSG_LIST_QUERY, .list_query = {.what = what}};
    trp_code code = trpi_client_request(rt, &msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS),
                                        &storage, &reply, err);
    if (code == TRP_OK) {
        code = take_json(reply, ret_json, err);
        trpi_client_reply_release(storage);
    }
    return code;
}

trp_code trpi_query_once(const char *address, const char *what, json_t **ret_json, trp_error *err) {
    trp_runtime *rt = NULL;
    trp_code code = trpi_connect(address, &rt, err);
    if (code == TRP_OK) {
        code = trpi_query(rt, what, ret_json, err);
    }
    trpi_client_close(&rt, true);
    return code;
}

trp_code trpi_query_quickly(const char *what, json_t **ret_json, trp_error *err) {
    trp_runtime *rt = NULL;
    trp_code code = connect_within(NULL, TYPING_TIMEOUT_MS, &rt, err);
    if (code == TRP_OK) {
        code = trpi_query(rt, what, ret_json, err);
    }
    trpi_client_close(&rt, false);
    return code;
}

static bool is_id(const char *word, uint64_t *ret_id) {
    return trpi_parse_u64(word + (word[0] == 'a'), UINT64_MAX, ret_id) && *ret_id != 0;
}

trp_code trpi_find_actor(trp_runtime *rt, const char *word, trp_actor *ret_actor, trp_error *err) {
    uint64_t id = 0, found = 0;
    size_t count = 0, i;
    json_t *rows, *row;
    if (is_id(word, &id)) {
        *ret_actor = (trp_actor){id};
        return TRP_OK;
    }
    trp_code code = trpi_query(rt, "actors", &rows, err);
    if (code != TRP_OK) {
        return code;
    }
    json_array_foreach(rows, i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *state = json_string_value(json_object_get(row, "state"));
        bool is_dead = state != NULL && strcmp(state, "dead") == 0;
        if (name != NULL && strcmp(name, word) == 0 && !is_dead) {
            found = (uint64_t)json_integer_value(json_object_get(row, "id"));
            count++;
        }
    }
    json_decref(rows);
    if (count == 0) {
        return trpi_fail(err, TRP_ENOTFOUND,
                         "no living actor is named %s; troupe list actors has "
                         "all of them",
                         word);
    }
    if (count > 1) {
        return trpi_fail(err, TRP_EINVALID,
                         "%zu actors in different namespaces are named %s; say which by its id "
                         "(troupe list actors)",
                         count, word);
    }
    *ret_actor = (trp_actor){found};
    return TRP_OK;
}

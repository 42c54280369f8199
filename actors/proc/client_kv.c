/* client_kv.c: the head's key-value store. */
#include "actors/proc/client_internal.h"
#include "core/base/config.h"

#define VALUE_MAX (1u << 20)

static trp_code check_key(const char *key, trp_error *err) {
    if (key == NULL || key[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "kv: the key is empty");
    }
    return TRP_OK;
}

trp_code trp_kv_put(trp_runtime *rt, const char *key, trp_bytes value, trp_error *err) {
    trp_code code = check_key(key, err);
    if (code != TRP_OK) {
        return code;
    }
    if (value.size > VALUE_MAX) {
        return trpi_fail(err, TRP_EINVALID, "kv put %s: %zu bytes are more than 1 MiB", key,
                         value.size);
    }
    trpi_msg msg = {.type = TRPI_MSG_KV_PUT, .kv_put = {.key = key, .value = value}};
    code = trpi_client_ask(rt, &msg, err);
    return code == TRP_OK ? code : trpi_context(err, code, "kv put %s", key);
}

trp_code trp_kv_del(trp_runtime *rt, const char *key, trp_error *err) {
    trp_code code = check_key(key, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_msg msg = {.type = TRPI_MSG_KV_PUT, .kv_put = {.key = key, .erase = true}};
    code = trpi_client_ask(rt, &msg, err);
    return code == TRP_OK ? code : trpi_context(err, code, "kv del %s", key);
}

static trp_code take_value(const trpi_msg *reply, trp_buf *value, trp_error *err) {
    if (reply->type != TRPI_MSG_KV_VALUE) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s",
                         trpi_msg_name(reply->type));
    }
    if (reply->kv_value.code != TRP_OK) {
        trp_code code = (trp_code)reply->kv_value.code;
        return trpi_fail(err, code, "%s", trp_code_text(code));
    }
    trp_code code = trp_buf_append(value, reply->kv_value.value.data, reply->kv_value.value.size);
    return code == TRP_OK ? code : trpi_fail(err, code, "out of memory");
}

trp_code trp_kv_get(trp_runtime *rt, const char *key, trp_buf *value, trp_error *err) {
    trp_code code = check_key(key, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trpi_msg msg = {.type = TRPI_MSG_KV_GET, .kv_get = {.key = key}};
    code = trpi_client_request(rt, &msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS), &storage,
                               &reply, err);
    if (code == TRP_OK) {
        code = take_value(reply, value, err);
        trpi_client_reply_release(storage);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "kv get %s", key);
}

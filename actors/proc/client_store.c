/* client_store.c: object.h for a process that is connected to a cluster: where the store of its
 * host is, and who it is there. */
#include "actors/proc/client_store.h"

#include <inttypes.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/objects.h"
#include "core/base/config.h"

/* A worker's is its own node's; a driver's that of any node on its host: the head knows. */
static trp_code find_store(void *arg, char *path, size_t size, trp_error *err) {
    trp_runtime *rt = arg;
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trpi_msg msg = {.type = TRPI_MSG_STORE_QUERY, .store_query = {.node = 0}};
    trp_code code = trpi_client_request(rt, &msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS),
                                        &storage, &reply, err);
    if (code != TRP_OK) {
        return code;
    }
    if (reply->type == TRPI_MSG_DONE && reply->done.code != TRP_OK) {
        code = trpi_fail(err, (trp_code)reply->done.code, "%s", reply->done.message);
    } else if (reply->type != TRPI_MSG_STORE_AT) {
        code =
            trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s", trpi_msg_name(reply->type));
    } else if (reply->store_at.code == TRP_ENOTFOUND || reply->store_at.path[0] == '\0') {
        code = trpi_fail(err, TRP_EUNSUPPORTED,
                         "no node daemon of this cluster runs on this host, so there is no object "
                         "store (troupe start --address %s)",
                         rt->address);
    } else if (reply->store_at.code != TRP_OK) {
        code = trpi_fail(err, (trp_code)reply->store_at.code, "%s", reply->store_at.message);
    } else {
        trpi_format(path, size, "%s", reply->store_at.path);
    }
    trpi_client_reply_release(storage);
    return code;
}

static uint64_t client_number(void *arg) {
    trp_runtime *rt = arg;
    pthread_mutex_lock(&rt->control.lock);
    uint64_t client = rt->control.client;
    pthread_mutex_unlock(&rt->control.lock);
    return client;
}

void trpi_client_store_open(trp_runtime *rt, const char *who) {
    char label[64];
    if (rt->actor != 0) {
        trpi_format(label, sizeof(label), "a%" PRIu64 " (%s)", rt->actor, who ? who : rt->job);
    } else {
        trpi_format(label, sizeof(label), "%s %s", rt->kind, rt->job);
    }
    trpi_objects_options options = {
        .find = find_store, .client = client_number, .arg = rt, .label = label};
    rt->objects = trpi_objects_new(&options);
}

void trpi_client_store_close(trp_runtime *rt) {
    trpi_objects_free(rt->objects);
    rt->objects = NULL; /* calls that are given up after this have nothing to release */
}

void trpi_client_store_tend(trp_runtime *rt) {
    trpi_objects_tend(rt->objects);
}

/* ---- For calls ---- */

trp_code trpi_client_hold_objects(trp_runtime *rt, const trp_object *objects, size_t count,
                                  trp_error *err) {
    for (size_t i = 0; i < count; i++) {
        trp_code code = trpi_objects_hold(rt->objects, objects[i], err);
        if (code != TRP_OK) {
            trpi_client_release_objects(rt, objects, i);
            return trpi_context(err, code, "hold object %zu of the call", i);
        }
    }
    return TRP_OK;
}

void trpi_client_release_objects(trp_runtime *rt, const trp_object *objects, size_t count) {
    for (size_t i = 0; i < count && rt->objects != NULL; i++) {
        trpi_objects_release(rt->objects, objects[i]);
    }
}

/* ---- object.h ---- */

trp_code trp_put(trp_runtime *rt, trp_bytes bytes, trp_object *ret_object, trp_error *err) {
    trp_code code = trpi_objects_put(rt->objects, bytes, ret_object, err);
    return code == TRP_OK ? code : trpi_context(err, code, "put %zu bytes", bytes.size);
}

trp_code trp_object_create(trp_runtime *rt, size_t size, void **ret_data, trp_object *ret_object,
                           trp_error *err) {
    if (size == 0) {
        return trpi_fail(err, TRP_EINVALID, "create object: size is 0");
    }
    trp_code code = trpi_objects_create(rt->objects, size, ret_data, ret_object, err);
    return code == TRP_OK ? code : trpi_context(err, code, "create object of %zu bytes", size);
}

trp_code trp_object_seal(trp_runtime *rt, trp_object object, trp_error *err) {
    trp_code code = trpi_objects_seal(rt->objects, object, err);
    return code == TRP_OK ? code : trpi_context(err, code, "seal object");
}

trp_code trp_object_get(trp_runtime *rt, trp_object object, uint64_t timeout_ms,
                        trp_bytes *ret_bytes, trp_error *err) {
    trp_code code = trpi_objects_get(rt->objects, object, timeout_ms, ret_bytes, err);
    return code == TRP_OK ? code : trpi_context(err, code, "get object");
}

trp_code trp_object_hold(trp_runtime *rt, trp_object object, trp_error *err) {
    trp_code code = trpi_objects_hold(rt->objects, object, err);
    return code == TRP_OK ? code : trpi_context(err, code, "hold object");
}

void trp_object_release(trp_runtime *rt, trp_object object) {
    trpi_objects_release(rt->objects, object);
}

trp_code trp_give(trp_context *ctx, trp_object object, trp_error *err) {
    uint64_t client = trp_context_caller(ctx);
    if (client == 0) {
        return trpi_fail(err, TRP_EINVALID, "give object: no method runs, so there is no caller");
    }
    trp_runtime *rt = trp_context_runtime(ctx, err);
    if (rt == NULL) {
        return err != NULL ? err->code : TRP_EDISCONNECTED;
    }
    trp_code code = trpi_objects_give(rt->objects, object, client, err);
    return code == TRP_OK ? code : trpi_context(err, code, "give object");
}

trp_code trp_store_get_info(trp_runtime *rt, trp_store_info *ret_info, trp_error *err) {
    trp_code code = trpi_objects_info(rt->objects, ret_info, err);
    return code == TRP_OK ? code : trpi_context(err, code, "object store");
}

/* objects.c: what this process holds, and how often. */
#include "actors/proc/objects.h"

#include <stdlib.h>
#include <string.h>

#include "actors/proc/objects_parts.h"
#include "core/base/config.h"
#include "core/base/times.h"
#include "core/net/clock.h"

trpi_objects *trpi_objects_new(const trpi_objects_options *options) {
    trpi_objects *o = trpi_alloc(sizeof(*o));
    o->options = *options;
    TRPI_SET(o->label, options->label);
    o->fd = -1;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    return o;
}

static uint64_t request_ms(void) {
    return trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS);
}

/* ---- The table. Locked ---- */

static trpi_owned *find(const trpi_objects *o, trp_object object) {
    return object.id == 0 ? NULL : trpi_table_get(&o->held, object.id);
}

/* One more hold, which the store counts too. */
static trpi_owned *count_one(trpi_objects *o, uint64_t object) {
    trpi_owned *held = trpi_table_get(&o->held, object);
    if (held == NULL) {
        held = trpi_alloc(sizeof(*held));
        held->object = object;
        trpi_table_put(&o->held, object, held);
    }
    if (held->life != o->life) { /* what an earlier store counted is forgotten */
        held->life = o->life;
        held->told = 0;
    }
    held->count++;
    held->told++;
    return held;
}

static void post_release(trpi_objects *o, uint64_t object, uint64_t count) {
    trpi_msg msg = {.type = TRPI_MSG_STORE_RELEASE,
                    .store_release = {.object = object, .count = count}};
    trpi_objects_post(o, &msg);
}

/* The mapping goes first: memory that was released may be used again at once. */
static void forget(trpi_objects *o, trpi_owned *held) {
    bool is_known = held->life == o->life && o->fd >= 0;
    if (held->mapping != NULL) {
        trpi_maps_leave(&o->maps, held->mapping, is_known);
    }
    if (is_known) {
        post_release(o, held->object, held->told);
    }
    trpi_table_remove(&o->held, held->object);
    free(held);
}

void trpi_objects_free(trpi_objects *o) {
    if (o == NULL) {
        return;
    }
    pthread_mutex_lock(&o->lock);
    trpi_owned *held;
    uint64_t id = 0;
    while ((held = trpi_table_next(&o->held, &id)) != NULL) {
        forget(o, held);
    }
    trpi_objects_disconnect(o);
    pthread_mutex_unlock(&o->lock);
    trpi_maps_release(&o->maps);
    trpi_table_release(&o->held);
    trp_buf_release(&o->frame);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

/* ---- Writing ---- */

trp_code trpi_objects_create(trpi_objects *o, size_t size, void **ret_data, trp_object *ret_object,
                             trp_error *err) {
    trpi_asked asked;
    trpi_msg msg = {.type = TRPI_MSG_STORE_CREATE, .store_create = {.size = size}};
    trp_code code = trpi_objects_ask(o, &msg, TRPI_MSG_STORE_CREATED, request_ms(), &asked, err);
    if (code != TRP_OK) {
        return code;
    }
    const trpi_msg_store_created *created = &asked.msg.store_created;
    trpi_mapping *mapping = NULL;
    pthread_mutex_lock(&o->lock);
    trpi_owned *held = count_one(o, created->object);
    code = created->bytes >= size
               ? trpi_maps_use(&o->maps, created->segment, created->bytes, true, asked.fd, &mapping,
                               err)
               : trpi_fail(err, TRP_EPROTOCOL, "the store gave less memory than was asked for");
    if (code == TRP_OK) {
        held->mapping = mapping;
        held->size = size;
        held->is_open = true;
        *ret_data = mapping->data;
        ret_object->id = created->object;
    } else {
        forget(o, held);
    }
    pthread_mutex_unlock(&o->lock);
    trpi_asked_release(&asked);
    return code;
}

trp_code trpi_objects_seal(trpi_objects *o, trp_object object, trp_error *err) {
    trpi_asked asked;
    pthread_mutex_lock(&o->lock);
    trpi_owned *held = find(o, object);
    bool is_open = held != NULL && held->is_open;
    bool is_lost = is_open && (held->life != o->life || o->fd < 0);
    if (is_open) {
        trpi_maps_leave(&o->maps, held->mapping, !is_lost);
        held->mapping = NULL;
        held->is_open = false;
    }
    pthread_mutex_unlock(&o->lock);
    if (!is_open) {
        return trpi_fail(err, TRP_EINVALID, "this process is not writing such an object");
    }
    if (is_lost) {
        return trpi_fail(err, TRP_EOBJECT_LOST, "the node daemon that it was in has died");
    }
    trpi_msg msg = {.type = TRPI_MSG_STORE_SEAL, .store_seal = {.object = object.id}};
    trp_code code = trpi_objects_ask(o, &msg, TRPI_MSG_DONE, request_ms(), &asked, err);
    if (code == TRP_OK) {
        trpi_asked_release(&asked);
    }
    return code;
}

trp_code trpi_objects_put(trpi_objects *o, trp_bytes bytes, trp_object *ret_object,
                          trp_error *err) {
    void *data;
    trp_object object;
    trp_code code = trpi_objects_create(o, bytes.size, &data, &object, err);
    if (code != TRP_OK) {
        return code;
    }
    if (bytes.size > 0) {
        memcpy(data, bytes.data, bytes.size);
    }
    code = trpi_objects_seal(o, object, err);
    if (code != TRP_OK) {
        trpi_objects_release(o, object);
        return code;
    }
    *ret_object = object;
    return TRP_OK;
}

/* ---- Reading and holding ---- */

/* One that is mapped here is only counted. */
static bool get_here(trpi_objects *o, trp_object object, trp_bytes *ret_bytes) {
    pthread_mutex_lock(&o->lock);
    trpi_owned *held = find(o, object);
    bool is_here = held != NULL && held->mapping != NULL && !held->is_open;
    if (is_here) {
        held->count++;
        *ret_bytes = (trp_bytes){held->mapping->data, held->size};
    }
    pthread_mutex_unlock(&o->lock);
    return is_here;
}

/* Another thread may have got it meanwhile: then this is one hold more, on the same mapping. */
static trp_code take_got(trpi_objects *o, const trpi_asked *asked, trp_bytes *ret_bytes,
                         trp_error *err) {
    const trpi_msg_store_got *got = &asked->msg.store_got;
    trp_code code = TRP_OK;
    pthread_mutex_lock(&o->lock);
    trpi_owned *held = count_one(o, got->object);
    if (got->bytes < got->size) {
        code = trpi_fail(err, TRP_EPROTOCOL, "the store gave less memory than the object has");
    } else if (held->mapping == NULL) {
        code = trpi_maps_use(&o->maps, got->segment, got->bytes, false, asked->fd, &held->mapping,
                             err);
    }
    if (code == TRP_OK) {
        held->size = got->size;
        *ret_bytes = (trp_bytes){held->mapping->data, held->size};
    } else if (--held->count == 0) {
        forget(o, held);
    }
    pthread_mutex_unlock(&o->lock);
    return code;
}

trp_code trpi_objects_get(trpi_objects *o, trp_object object, uint64_t timeout_ms,
                          trp_bytes *ret_bytes, trp_error *err) {
    trpi_asked asked;
    if (get_here(o, object, ret_bytes)) {
        return TRP_OK;
    }
    trpi_msg msg = {.type = TRPI_MSG_STORE_GET,
                    .store_get = {.object = object.id, .timeout_ms = timeout_ms}};
    trp_code code = trpi_objects_ask(o, &msg, TRPI_MSG_STORE_GOT, timeout_ms, &asked, err);
    if (code != TRP_OK) {
        return code;
    }
    code = take_got(o, &asked, ret_bytes, err);
    trpi_asked_release(&asked);
    return code;
}

trp_code trpi_objects_hold(trpi_objects *o, trp_object object, trp_error *err) {
    trpi_asked asked;
    pthread_mutex_lock(&o->lock);
    trpi_owned *held = find(o, object);
    if (held != NULL) {
        held->count++;
    }
    pthread_mutex_unlock(&o->lock);
    if (held != NULL) {
        return TRP_OK;
    }
    trpi_msg msg = {.type = TRPI_MSG_STORE_HOLD, .store_hold = {.object = object.id}};
    trp_code code = trpi_objects_ask(o, &msg, TRPI_MSG_DONE, request_ms(), &asked, err);
    if (code == TRP_OK) {
        pthread_mutex_lock(&o->lock);
        (void)count_one(o, object.id);
        pthread_mutex_unlock(&o->lock);
        trpi_asked_release(&asked);
    }
    return code;
}

void trpi_objects_release(trpi_objects *o, trp_object object) {
    if (object.id == 0) {
        return;
    }
    pthread_mutex_lock(&o->lock);
    trpi_owned *held = find(o, object);
    bool is_ours = held != NULL;
    bool is_open = o->fd >= 0;
    if (is_ours && --held->count == 0) {
        forget(o, held);
    } else if (!is_ours && is_open) { /* perhaps it was given to us */
        post_release(o, object.id, 1);
    }
    pthread_mutex_unlock(&o->lock);
    if (!is_ours && !is_open && trpi_objects_connect(o, NULL) == TRP_OK) {
        pthread_mutex_lock(&o->lock);
        post_release(o, object.id, 1);
        pthread_mutex_unlock(&o->lock);
    }
}

trp_code trpi_objects_give(trpi_objects *o, trp_object object, uint64_t client, trp_error *err) {
    trpi_asked asked;
    trpi_msg msg = {.type = TRPI_MSG_STORE_HOLD,
                    .store_hold = {.object = object.id, .client = client}};
    trp_code code = trpi_objects_ask(o, &msg, TRPI_MSG_DONE, request_ms(), &asked, err);
    if (code == TRP_OK) {
        trpi_asked_release(&asked);
        trpi_objects_release(o, object);
    }
    return code;
}

trp_code trpi_objects_info(trpi_objects *o, trp_store_info *ret_info, trp_error *err) {
    trpi_asked asked;
    trpi_msg msg = {.type = TRPI_MSG_STORE_INFO_QUERY};
    trp_code code = trpi_objects_ask(o, &msg, TRPI_MSG_STORE_INFO, request_ms(), &asked, err);
    if (code == TRP_OK) {
        *ret_info = (trp_store_info){.capacity = asked.msg.store_info.capacity,
                                     .used = asked.msg.store_info.used,
                                     .objects = asked.msg.store_info.objects};
        trpi_asked_release(&asked);
    }
    return code;
}

void trpi_objects_tend(trpi_objects *o) {
    uint64_t kept_ns = trpi_config(TRPI_CONFIG_STORE_SPARE_MS) * TRPI_NS_PER_MS;
    uint64_t now_ns = trpi_now_ns();
    pthread_mutex_lock(&o->lock);
    if (o->maps.kept_count > 0) {
        bool is_cut = trpi_objects_is_cut(o);
        trpi_maps_expire(&o->maps, is_cut ? UINT64_MAX : now_ns > kept_ns ? now_ns - kept_ns : 0);
    }
    pthread_mutex_unlock(&o->lock);
}

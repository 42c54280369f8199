/* cluster_kv.c: the small key-value store. Bounded: value, number of entries, bytes in all. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

#define KEY_MAX 512
#define VALUE_MAX ((size_t)1 << 20)

typedef struct value {
    size_t size;
    unsigned char data[];
} value;

static void erase(trpi_cluster *c, trp_bytes key) {
    value *old = trpi_index_remove(&c->kv, key);
    if (old) {
        c->kv_bytes -= old->size + key.size;
        free(old);
    }
}

static trp_code check_put(const trpi_cluster *c, const trpi_msg_kv_put *msg, trp_error *err) {
    size_t key_size = strlen(msg->key);
    const value *old = trpi_index_get(&c->kv, trp_bytes_of(msg->key));
    size_t old_size = old ? old->size + key_size : 0;
    if (key_size == 0 || key_size > KEY_MAX) {
        return trpi_fail(err, TRP_EINVALID, "a key has 1 to %d bytes, this one %zu", KEY_MAX,
                         key_size);
    }
    if (msg->value.size > VALUE_MAX) {
        return trpi_fail(err, TRP_EINVALID, "value of %zu bytes for key %.64s: at most %zu",
                         msg->value.size, msg->key, VALUE_MAX);
    }
    if (!msg->erase &&
        ((!old && c->kv.count >= c->config.kv_entries_max) ||
         c->kv_bytes - old_size + key_size + msg->value.size > c->config.kv_bytes_max)) {
        return trpi_fail(err, TRP_EBUSY,
                         "the head's store is full: %zu entries, %" PRIu64 " bytes; erase some",
                         c->kv.count, c->kv_bytes);
    }
    return TRP_OK;
}

void trpi_kv_put(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_kv_put *msg) {
    trp_error error;
    if (check_put(c, msg, &error) != TRP_OK) {
        trpi_post_done(c, client->peer, msg->request, &error);
        return;
    }
    trp_bytes key = trp_bytes_of(msg->key);
    erase(c, key);
    if (!msg->erase) {
        value *copy = trpi_alloc(sizeof(*copy) + msg->value.size);
        copy->size = msg->value.size;
        if (copy->size) {
            memcpy(copy->data, msg->value.data, copy->size);
        }
        (void)trpi_index_put(&c->kv, key, copy);
        c->kv_bytes += copy->size + key.size;
    }
    trpi_post_done(c, client->peer, msg->request, NULL);
}

void trpi_kv_get(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_kv_get *msg) {
    const value *found = trpi_index_get(&c->kv, trp_bytes_of(msg->key));
    trpi_msg *out = trpi_post(c, client->peer, TRPI_MSG_KV_VALUE);
    out->kv_value.request = msg->request;
    out->kv_value.code = found ? TRP_OK : TRP_ENOTFOUND;
    if (found) { /* borrowed: nothing of this step changes it */
        out->kv_value.value = (trp_bytes){found->data, found->size};
    }
}

const char *trpi_cluster_kv_next(const trpi_cluster *c, const char *from, bool after,
                                 trp_bytes *ret_value) {
    trp_bytes key = trp_bytes_of(from);
    size_t at = trpi_index_seek(&c->kv, key);
    void *found = NULL;
    const char *found_key = trpi_index_at(&c->kv, at, &found);
    if (after && found_key && strcmp(found_key, from) == 0) {
        found_key = trpi_index_at(&c->kv, at + 1, &found);
    }
    if (found_key) {
        const value *stored = found;
        *ret_value = (trp_bytes){stored->data, stored->size};
    }
    return found_key;
}

void trpi_kv_release(trpi_cluster *c) {
    void *stored;
    for (size_t i = 0; trpi_index_at(&c->kv, i, &stored); i++) {
        free(stored);
    }
    trpi_index_release(&c->kv);
}

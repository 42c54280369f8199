/* object.h: large values, put once and shared: by shared memory on a host, copied between hosts.
 *
 * An object is immutable bytes in the store of a node daemon. Processes hold it; while anybody
 * does, it stays, and when the last holder releases it or dies, its memory goes back. Its number
 * (eight bytes) travels in arguments and results. Who hands an object on keeps it held until the
 * other side has its own hold:
 *   - in arguments: name it in trp_call_options.objects; the callee holds what it wants to keep
 *     beyond the call;
 *   - in a result: the method calls trp_give(ctx, object), which passes its hold to the caller.
 *
 * Every function needs a node daemon on this host, else TRP_EUNSUPPORTED. When that dies, its
 * objects are lost (calls that wait fail with TRP_ENODE_DIED); what is mapped stays so until it is
 * released. Any thread. A forked child has neither mappings nor holds.
 *
 * Each but trp_object_release() and trp_give() waits for the store's answer, at most
 * TROUPE_REQUEST_TIMEOUT_MS unless it has a timeout_ms of its own. */
#ifndef TROUPE_OBJECT_H
#define TROUPE_OBJECT_H

#include <troupe/actor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the bytes into this host's store; this process holds the object. TRP_EBUSY when the store
 * is full: the message says how much was asked for, how large the store is and who holds what.
 * TRP_EINVALID when it could not hold so much if it were empty (TROUPE_STORE_BYTES). */
TRP_CHECKED trp_code trp_put(trp_runtime *rt, trp_bytes bytes, trp_object *ret_object,
                             trp_error *err);

/* The same without a copy: *ret_data has room for `size` bytes (1 or more, 64-byte aligned,
 * contents undefined) and may be written until trp_object_seal(), before which nobody can get it.
 * trp_object_release() instead of seal gives it up. */
TRP_CHECKED trp_code trp_object_create(trp_runtime *rt, size_t size, void **ret_data,
                                       trp_object *ret_object, trp_error *err);
TRP_CHECKED trp_code trp_object_seal(trp_runtime *rt, trp_object object, trp_error *err);

/* Waits until the object is on this host, maps it and takes a hold: *ret_bytes is read-only shared
 * memory, valid until the matching trp_object_release(). TRP_EOBJECT_LOST: its last holder released
 * it or its node died; TRP_ETIMEOUT; TRP_EBUSY as for trp_put(). */
TRP_CHECKED trp_code trp_object_get(trp_runtime *rt, trp_object object, uint64_t timeout_ms,
                                    trp_bytes *ret_bytes, trp_error *err);

/* Takes one more hold, without mapping it. Each needs its own release. */
TRP_CHECKED trp_code trp_object_hold(trp_runtime *rt, trp_object object, trp_error *err);
/* Gives one hold of this process back; unknown ones are ignored. */
void trp_object_release(trp_runtime *rt, trp_object object);

/* Inside a method: passes one hold of this process to the caller of the running method, which then
 * must release it. Put the object's number into the reply. */
TRP_CHECKED trp_code trp_give(trp_context *ctx, trp_object object, trp_error *err);

typedef struct trp_store_info {
    uint64_t capacity, used; /* bytes, of this host's store */
    uint64_t objects;
} trp_store_info;
TRP_CHECKED trp_code trp_store_get_info(trp_runtime *rt, trp_store_info *ret_info, trp_error *err);

#ifdef __cplusplus
}
#endif
#endif

/* objects.h: a process as a user of the object store of its host: what object.h promises, over the
 * store's socket. Knows no runtime and no head: whoever makes it says where the store is.
 *
 * A process holds an object at the store at most as often as it asked; what it takes again while it
 * has it is only counted here. Any thread; calls that ask the store wait for its answer, and never
 * while another lock of this file's users is held. */
#ifndef TRPI_OBJECTS_H
#define TRPI_OBJECTS_H

#include <troupe/object.h>

#include "core/base/base.h"

typedef struct trpi_objects trpi_objects;

typedef struct trpi_objects_options {
    /* Where the store is; asked at first use, and again when it has gone. */
    trp_code (*find)(void *arg, char *path, size_t size, trp_error *err);
    /* This process' number at the head, which may change. Must not block. */
    uint64_t (*client)(void *arg);
    void *arg;
    const char *label; /* for display; copied */
} trpi_objects_options;

trpi_objects *trpi_objects_new(const trpi_objects_options *options);
void trpi_objects_free(trpi_objects *objects); /* gives all back; NULL is fine */

TRP_CHECKED trp_code trpi_objects_create(trpi_objects *objects, size_t size, void **ret_data,
                                         trp_object *ret_object, trp_error *err);
TRP_CHECKED trp_code trpi_objects_seal(trpi_objects *objects, trp_object object, trp_error *err);
TRP_CHECKED trp_code trpi_objects_put(trpi_objects *objects, trp_bytes bytes,
                                      trp_object *ret_object, trp_error *err);
TRP_CHECKED trp_code trpi_objects_get(trpi_objects *objects, trp_object object, uint64_t timeout_ms,
                                      trp_bytes *ret_bytes, trp_error *err);
TRP_CHECKED trp_code trpi_objects_hold(trpi_objects *objects, trp_object object, trp_error *err);
void trpi_objects_release(trpi_objects *objects, trp_object object);
/* Passes one hold on to another client. */
TRP_CHECKED trp_code trpi_objects_give(trpi_objects *objects, trp_object object, uint64_t client,
                                       trp_error *err);
TRP_CHECKED trp_code trpi_objects_info(trpi_objects *objects, trp_store_info *ret_info,
                                       trp_error *err);

/* From time to time: gives back mappings that are only kept to be quick, at once when the store is
 * gone. Does not wait. */
void trpi_objects_tend(trpi_objects *objects);

#endif

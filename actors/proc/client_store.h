/* client_store.h: objects, as the rest of the client needs them. The public face is object.h. */
#ifndef TRPI_CLIENT_STORE_H
#define TRPI_CLIENT_STORE_H

#include <troupe/object.h>

#include "core/base/base.h"

/* Holds each of them once more on behalf of a call, until trpi_client_release_objects(). All or
 * none: after an error nothing more is held. count 0 needs no store. May wait for the store, so not
 * with the data or control lock held. */
TRP_CHECKED trp_code trpi_client_hold_objects(trp_runtime *rt, const trp_object *objects,
                                              size_t count, trp_error *err);
/* Once the call is done. Does not wait; under any lock. */
void trpi_client_release_objects(trp_runtime *rt, const trp_object *objects, size_t count);

/* Makes the process' side of the store; connects at first use. who: of a worker, its actor's name.
 */
void trpi_client_store_open(trp_runtime *rt, const char *who);
/* From time to time: gives back what is only kept to be quick. Does not wait. */
void trpi_client_store_tend(trp_runtime *rt);
/* Gives everything back and closes the connection to the store. Before the control half closes. */
void trpi_client_store_close(trp_runtime *rt);

#endif

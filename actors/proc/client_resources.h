/* client_resources.h: what a user asks for, as the protocol counts it. */
#ifndef TRPI_CLIENT_RESOURCES_H
#define TRPI_CLIENT_RESOURCES_H

#include <troupe/actor.h>

#include "core/wire/msg.h"

/* Fixed point: 1/10000. TRP_EINVALID says which amount is wrong and what to change: negative, not a
 * number, finer than 0.0001, more than one GPU that is not whole, a reserved or repeated name. Free
 * *ret_list with free(); names are borrowed from the bundle. Amounts of 0 are left out. */
TRP_CHECKED trp_code trpi_resources_of(const trp_bundle *bundle, trpi_resource **ret_list,
                                       size_t *ret_count, trp_error *err);

#endif

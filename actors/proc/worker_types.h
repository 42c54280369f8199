/* worker_types.h: a program's tables of actor types, which come from users. */
#ifndef TRPI_WORKER_TYPES_H
#define TRPI_WORKER_TYPES_H

#include <troupe/actor.h>

#include "core/base/base.h"

#define TRPI_GROUP_THREADS_MAX 1024 /* of one concurrency group */

/* TRP_EINVALID with the type, the method or group and what to change. types ends with NULL. */
TRP_CHECKED trp_code trpi_types_check(const trp_actor_type *const *types, trp_error *err);

/* TRP_ENOTFOUND with the nearest name. */
TRP_CHECKED trp_code trpi_types_find(const trp_actor_type *const *types, const char *name,
                                     const char *exe, const trp_actor_type **ret_type,
                                     trp_error *err);
const trp_method *trpi_type_method(const trp_actor_type *type, const char *name); /* or NULL */
/* "counter has no method "ad"; did you mean "add"?" */
void trpi_type_no_method(const trp_actor_type *type, const char *name, char *out, size_t size);

/* Groups are numbered: 0 is the default one, i is concurrency[i - 1]. */
size_t trpi_type_group_count(const trp_actor_type *type);
/* The group that a method of a checked type runs in. */
uint32_t trpi_type_group(const trp_actor_type *type, const trp_method *method);

#endif

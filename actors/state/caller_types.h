/* caller_types.h: lists of types of failures (trp_raise), as one piece of memory: each with its
 * NUL, and an empty one behind the last. Part of the caller machine (caller.h): pure. */
#ifndef TRPI_CALLER_TYPES_H
#define TRPI_CALLER_TYPES_H

#include "core/base/base.h"

/* Bytes that the list takes; names ends with NULL and may be NULL. */
size_t trpi_types_size(const char *const *names);
void trpi_types_pack(const char *const *names, char *out);

/* Whether the list has that type, or "*". types may be NULL. */
bool trpi_types_have(const char *types, const char *type);

#endif

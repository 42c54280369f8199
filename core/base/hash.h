/* hash.h: checksums (xxHash). Not for secrets. */
#ifndef TRPI_HASH_H
#define TRPI_HASH_H

#include "core/base/base.h"

uint64_t trpi_hash64(const void *data, size_t size); /* XXH3-64 */

/* Streaming XXH3-128, shown as 32 lower-case hex digits. */
typedef struct trpi_hasher trpi_hasher;
trpi_hasher *trpi_hasher_new(void); /* NULL when memory is out */
void trpi_hasher_add(trpi_hasher *hasher, const void *data, size_t size);
void trpi_hasher_hex(const trpi_hasher *hasher, char ret_hex[33]);
void trpi_hasher_free(trpi_hasher *hasher);

#endif

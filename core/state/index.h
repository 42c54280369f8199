/* index.h: what is known by a text, walked in the order of the texts (bytes, unsigned).
 *
 * A sorted array: find is O(log n), insert and removal move pointers. Keys are any bytes, copied
 * and NUL-terminated; values are pointers that the index does not own. Not thread-safe. */
#ifndef TRPI_INDEX_H
#define TRPI_INDEX_H

#include "core/base/base.h"

typedef struct trpi_index {
    struct trpi_index_entry *entries;
    size_t count, capacity;
} trpi_index; /* zero-initialize */

void *trpi_index_get(const trpi_index *index, trp_bytes key); /* NULL if there is none */
/* value not NULL; replaces. Returns the index's own copy of the key, valid until removed. */
const char *trpi_index_put(trpi_index *index, trp_bytes key, void *value);
void *trpi_index_remove(trpi_index *index, trp_bytes key); /* what was there, or NULL */
void trpi_index_release(trpi_index *index);                /* not the values */

/* Position of the first key that is not below `key`, and what stands at a position (NULL behind the
 * end). Positions are good until the index changes. */
size_t trpi_index_seek(const trpi_index *index, trp_bytes key);
const char *trpi_index_at(const trpi_index *index, size_t position, void **ret_value);

#endif

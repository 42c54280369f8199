#include "core/state/index.h"

#include <stdlib.h>
#include <string.h>

struct trpi_index_entry {
    char *key; /* NUL behind its end */
    size_t size;
    void *value;
};
typedef struct trpi_index_entry entry;

static int compare(const entry *a, trp_bytes b) {
    size_t shorter = TRPI_MIN(a->size, b.size);
    int order = shorter ? memcmp(a->key, b.data, shorter) : 0;
    return order ? order : (a->size > b.size) - (a->size < b.size);
}

size_t trpi_index_seek(const trpi_index *index, trp_bytes key) {
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&index->entries[middle], key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static entry *find(const trpi_index *index, trp_bytes key) {
    size_t at = trpi_index_seek(index, key);
    bool is_it = at < index->count && compare(&index->entries[at], key) == 0;
    return is_it ? &index->entries[at] : NULL;
}

void *trpi_index_get(const trpi_index *index, trp_bytes key) {
    const entry *found = find(index, key);
    return found ? found->value : NULL;
}

static char *copy_of(trp_bytes key) {
    char *copy = trpi_alloc(key.size + 1);
    if (key.size) {
        memcpy(copy, key.data, key.size);
    }
    return copy;
}

const char *trpi_index_put(trpi_index *index, trp_bytes key, void *value) {
    TRP_ASSERT(value);
    entry *found = find(index, key);
    if (found) {
        found->value = value;
        return found->key;
    }
    if (index->count == index->capacity) {
        index->capacity = TRPI_MAX(2 * index->capacity, (size_t)8);
        index->entries = trpi_realloc(index->entries, index->capacity * sizeof(entry));
    }
    size_t at = trpi_index_seek(index, key);
    memmove(&index->entries[at + 1], &index->entries[at], (index->count - at) * sizeof(entry));
    index->entries[at] = (entry){.key = copy_of(key), .size = key.size, .value = value};
    index->count++;
    return index->entries[at].key;
}

void *trpi_index_remove(trpi_index *index, trp_bytes key) {
    entry *found = find(index, key);
    if (!found) {
        return NULL;
    }
    void *value = found->value;
    free(found->key);
    size_t behind = index->count - (size_t)(found - index->entries) - 1;
    memmove(found, found + 1, behind * sizeof(entry));
    if (--index->count == 0) {
        trpi_index_release(index);
    }
    return value;
}

const char *trpi_index_at(const trpi_index *index, size_t position, void **ret_value) {
    if (position >= index->count) {
        return NULL;
    }
    *ret_value = index->entries[position].value;
    return index->entries[position].key;
}

void trpi_index_release(trpi_index *index) {
    for (size_t i = 0; i < index->count; i++) {
        free(index->entries[i].key);
    }
    free(index->entries);
    *index = (trpi_index){0};
}

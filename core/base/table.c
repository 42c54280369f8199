#include "core/base/table.h"

#include <stdlib.h>
#include <string.h>

/* value NULL marks a hole: a removed key that still keeps its place in the order.
 * Holes never stand at either end, so the first and last entries are live ones. */
struct trpi_table_entry {
    uint64_t key;
    void *value;
};
typedef struct trpi_table_entry entry;

/* Index of the first entry whose key is `key` or more. */
static size_t lower_bound(const trpi_table *table, uint64_t key) {
    size_t low = table->begin, high = table->end;
    if (low < high && table->entries[high - 1].key < key) {
        return high; /* the usual put: a new and therefore largest id */
    }
    /* Keys are whole numbers in rising order: this one stands at most as far behind the first as it
     * is larger. Where there are no gaps that is its very place. */
    if (low < high && table->entries[low].key <= key) {
        uint64_t farthest = key - table->entries[low].key;
        if (farthest < high - low) {
            high = low + (size_t)farthest;
            if (table->entries[high].key == key) {
                return high;
            }
        }
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->entries[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void close_holes(trpi_table *table) {
    size_t to = 0;
    for (size_t from = table->begin; from < table->end; from++) {
        if (table->entries[from].value) {
            table->entries[to++] = table->entries[from];
        }
    }
    table->begin = 0;
    table->end = to;
}

/* Room for one more behind the end, by closing holes if there are enough of them. */
static void make_room(trpi_table *table) {
    if (table->end < table->capacity) {
        return;
    }
    if (table->count < table->capacity - table->capacity / 4) {
        close_holes(table);
        return;
    }
    table->capacity = TRPI_MAX(2 * table->capacity, (size_t)8);
    table->entries = trpi_realloc(table->entries, table->capacity * sizeof(entry));
}

void *trpi_table_get(const trpi_table *table, uint64_t key) {
    size_t at = lower_bound(table, key);
    return at < table->end && table->entries[at].key == key ? table->entries[at].value : NULL;
}

void trpi_table_put(trpi_table *table, uint64_t key, void *value) {
    TRP_ASSERT(key != 0 && value);
    size_t at = lower_bound(table, key);
    if (at < table->end && table->entries[at].key == key) {
        table->count += !table->entries[at].value;
        table->entries[at].value = value;
        return;
    }
    table->count++;
    if (at < table->end && !table->entries[at].value) {
        table->entries[at] = (entry){.key = key, .value = value}; /* a hole at the right place */
        return;
    }
    if (table->end == table->capacity) {
        make_room(table);
        at = lower_bound(table, key);
    }
    memmove(&table->entries[at + 1], &table->entries[at], (table->end - at) * sizeof(entry));
    table->entries[at] = (entry){.key = key, .value = value};
    table->end++;
}

void *trpi_table_remove(trpi_table *table, uint64_t key) {
    size_t at = lower_bound(table, key);
    if (at >= table->end || table->entries[at].key != key || !table->entries[at].value) {
        return NULL;
    }
    void *value = table->entries[at].value;
    table->entries[at].value = NULL;
    table->count--;
    while (table->begin < table->end && !table->entries[table->begin].value) {
        table->begin++;
    }
    while (table->end > table->begin && !table->entries[table->end - 1].value) {
        table->end--;
    }
    if (table->end - table->begin > 2 * table->count + 8) {
        close_holes(table);
    }
    if (table->count == 0) {
        trpi_table_release(table);
    }
    return value;
}

void *trpi_table_next(const trpi_table *table, uint64_t *key) {
    if (*key == UINT64_MAX) {
        return NULL;
    }
    for (size_t at = lower_bound(table, *key + 1); at < table->end; at++) {
        if (table->entries[at].value) {
            *key = table->entries[at].key;
            return table->entries[at].value;
        }
    }
    return NULL;
}

void trpi_table_release(trpi_table *table) {
    free(table->entries);
    *table = (trpi_table){0};
}

/* table.h: what is known by a number, walked in the order of the numbers.
 *
 * Pure code must do the same on every run, so it walks nothing in hash order. Keys are 1 or more;
 * values are pointers that the table does not own. Ids are handed out in rising order, so a sorted
 * array is all it takes: a put at the end is O(1), a get O(log n), a removal leaves a hole that is
 * closed when half the array is holes. A put in the middle moves what is behind it. Memory that is
 * out ends the process (trpi_alloc). Not thread-safe. */
#ifndef TRPI_TABLE_H
#define TRPI_TABLE_H

#include "core/base/base.h"

typedef struct trpi_table {
    struct trpi_table_entry *entries;
    size_t begin, end, capacity; /* entries[begin..end) are in use, holes included */
    size_t count;                /* without holes */
} trpi_table;                    /* zero-initialize */

void *trpi_table_get(const trpi_table *table, uint64_t key);       /* NULL if there is none */
void trpi_table_put(trpi_table *table, uint64_t key, void *value); /* value not NULL; replaces */
void *trpi_table_remove(trpi_table *table, uint64_t key); /* the value that was there, or NULL */
void trpi_table_release(trpi_table *table);               /* not the values; zeroes the table */

/* The value with the smallest key above *key, which becomes that key; NULL at the end. The table
 * may change between two steps of a walk:
 *
 *     uint64_t key = 0;
 *     while ((value = trpi_table_next(&table, &key)) != NULL) {} */
void *trpi_table_next(const trpi_table *table, uint64_t *key);

#endif

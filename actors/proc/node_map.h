/* node_map.h: from a number (token, pid, actor) to a thing, so that no event makes the node daemon
 * scan its workers. Key 0 is not a key. Memory that runs out ends the process, as trpi_alloc()
 * does. */
#ifndef TRPI_NODE_MAP_H
#define TRPI_NODE_MAP_H

#include "core/base/base.h"

typedef struct trpi_map_slot {
    uint64_t key; /* 0 = empty */
    void *value;
} trpi_map_slot;

typedef struct trpi_map { /* zero-initialize */
    trpi_map_slot *slots;
    size_t capacity, count; /* capacity is a power of two, at most half full */
} trpi_map;

void trpi_map_set(trpi_map *map, uint64_t key, void *value); /* replaces */
void *trpi_map_get(const trpi_map *map, uint64_t key);       /* NULL = none */
void trpi_map_remove(trpi_map *map, uint64_t key);           /* missing is fine */
void trpi_map_release(trpi_map *map);

/* Walks all values, in no order: *cursor starts at 0; NULL at the end. The map must not change. */
void *trpi_map_next(const trpi_map *map, size_t *cursor);

#endif

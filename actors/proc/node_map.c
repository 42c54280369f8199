#include "actors/proc/node_map.h"

#include <stdlib.h>

/* Tokens, pids and actors are consecutive numbers: the multiplication spreads them over the table.
 */
static size_t home_of(const trpi_map *map, uint64_t key) {
    return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (map->capacity - 1);
}

static trpi_map_slot *find(const trpi_map *map, uint64_t key) {
    size_t i = home_of(map, key);
    while (map->slots[i].key != 0 && map->slots[i].key != key) {
        i = (i + 1) & (map->capacity - 1);
    }
    return &map->slots[i];
}

static void grow(trpi_map *map) {
    trpi_map old = *map;
    map->capacity = old.capacity ? old.capacity * 2 : 64;
    map->slots = trpi_alloc(map->capacity * sizeof *map->slots);
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.slots[i].key) {
            *find(map, old.slots[i].key) = old.slots[i];
        }
    }
    free(old.slots);
}

void trpi_map_set(trpi_map *map, uint64_t key, void *value) {
    TRP_ASSERT(key != 0 && value != NULL);
    if ((map->count + 1) * 2 > map->capacity) {
        grow(map);
    }
    trpi_map_slot *slot = find(map, key);
    map->count += slot->key == 0;
    *slot = (trpi_map_slot){key, value};
}

void *trpi_map_get(const trpi_map *map, uint64_t key) {
    return map->capacity && key ? find(map, key)->value : NULL;
}

void trpi_map_remove(trpi_map *map, uint64_t key) {
    if (!trpi_map_get(map, key)) {
        return;
    }
    size_t mask = map->capacity - 1;
    size_t hole = (size_t)(find(map, key) - map->slots);
    map->count--;
    /* Close the hole: what probed past it must stay reachable without tombstones. */
    for (size_t i = (hole + 1) & mask; map->slots[i].key != 0; i = (i + 1) & mask) {
        size_t home = home_of(map, map->slots[i].key);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = (trpi_map_slot){0, NULL};
}

void *trpi_map_next(const trpi_map *map, size_t *cursor) {
    while (*cursor < map->capacity) {
        const trpi_map_slot *slot = &map->slots[(*cursor)++];
        if (slot->key) {
            return slot->value;
        }
    }
    return NULL;
}

void trpi_map_release(trpi_map *map) {
    free(map->slots);
    *map = (trpi_map){0};
}

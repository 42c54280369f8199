/* arena.h: many small pieces of memory with one end. Not thread-safe. */
#ifndef TRPI_ARENA_H
#define TRPI_ARENA_H

#include "core/base/base.h"

typedef struct trpi_arena {
    struct trpi_arena_block *first; /* newest block */
    size_t total, limit;
} trpi_arena; /* zero-initialize; limit 0 = none */

/* 16-byte aligned, zeroed; NULL when memory or the limit is out. Valid until reset or release. */
void *trpi_arena_alloc(trpi_arena *arena, size_t bytes);
/* A NUL-terminated copy of `size` bytes; NULL as above. */
char *trpi_arena_text(trpi_arena *arena, const char *data, size_t size);
/* Ends all pieces at once; keeps the newest block for the next ones, unless it is a huge one. */
void trpi_arena_reset(trpi_arena *arena);
void trpi_arena_release(trpi_arena *arena);

#endif

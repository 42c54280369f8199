/* arena.c: a list of blocks, newest first, each filled from its front. */
#include "core/base/arena.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGN 16
#define BLOCK_FIRST_BYTES 1024
#define BLOCK_LARGEST_BYTES (64 * 1024) /* a larger piece gets a block of its own */

struct trpi_arena_block {
    struct trpi_arena_block *next;
    size_t size, used;
    _Alignas(ARENA_ALIGN) unsigned char data[];
};

/* A block with room for `bytes` in front of the list, or NULL. */
static struct trpi_arena_block *add_block(trpi_arena *arena, size_t bytes) {
    size_t size = arena->first != NULL ? TRPI_MIN(arena->first->size * 2, BLOCK_LARGEST_BYTES)
                                       : BLOCK_FIRST_BYTES;
    size = TRPI_MAX(size, bytes);
    struct trpi_arena_block *block = malloc(sizeof(*block) + size);
    if (block != NULL) {
        block->next = arena->first;
        block->size = size;
        block->used = 0;
        arena->first = block;
    }
    return block;
}

void *trpi_arena_alloc(trpi_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t rounded = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (arena->limit > 0 && rounded > arena->limit - arena->total) {
        return NULL;
    }
    struct trpi_arena_block *block = arena->first;
    if (block == NULL || rounded > block->size - block->used) {
        block = add_block(arena, rounded);
        if (block == NULL) {
            return NULL;
        }
    }
    void *data = block->data + block->used;
    block->used += rounded;
    arena->total += rounded;
    return memset(data, 0, rounded);
}

char *trpi_arena_text(trpi_arena *arena, const char *data, size_t size) {
    char *text = size < SIZE_MAX ? trpi_arena_alloc(arena, size + 1) : NULL;
    if (text != NULL && size > 0) {
        memcpy(text, data, size);
    }
    return text;
}

static void free_blocks(struct trpi_arena_block *block) {
    while (block != NULL) {
        struct trpi_arena_block *next = block->next;
        free(block);
        block = next;
    }
}

void trpi_arena_reset(trpi_arena *arena) {
    struct trpi_arena_block *kept = arena->first;
    if (kept != NULL) {
        free_blocks(kept->next);
        kept->next = NULL;
        kept->used = 0;
        /* One huge message must not stay resident for the life of its connection. */
        if (kept->size > BLOCK_LARGEST_BYTES) {
            free(kept);
            arena->first = NULL;
        }
    }
    arena->total = 0;
}

void trpi_arena_release(trpi_arena *arena) {
    free_blocks(arena->first);
    arena->first = NULL;
    arena->total = 0;
}

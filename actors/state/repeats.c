#include "actors/state/repeats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"

/* ---- What is alike ---- */

static bool has_digit(const char *word, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (word[i] >= '0' && word[i] <= '9') {
            return true;
        }
    }
    return false;
}

/* Its words, those with a digit as "#": how many there are stays. free() it. */
static char *key_of(trp_bytes line) {
    const char *at = line.data, *end = at + line.size;
    char *key = trpi_alloc(line.size + 2);
    size_t used = 0;
    while (at < end) {
        const char *stop = memchr(at, ' ', (size_t)(end - at));
        size_t size = (size_t)((stop != NULL ? stop : end) - at);
        bool varies = has_digit(at, size);
        memcpy(key + used, varies ? "#" : at, varies ? 1 : size);
        used += varies ? 1 : size;
        at += size;
        if (at < end) {
            key[used++] = ' ';
            at++;
        }
    }
    return key;
}

static trpi_repeat *find(trpi_repeats *repeats, const char *key, uint64_t hash, bool is_stderr) {
    for (size_t i = 0; i < repeats->count; i++) {
        trpi_repeat *item = &repeats->items[i];
        if (item->hash == hash && item->is_stderr == is_stderr && strcmp(item->key, key) == 0) {
            return item;
        }
    }
    return NULL;
}

/* ---- Lines ---- */

static void add_source(trpi_repeat *item, uint64_t source) {
    for (size_t i = 0; i < item->source_count; i++) {
        if (item->sources[i] == source) {
            return;
        }
    }
    if (item->source_count < TRPI_REPEAT_SOURCES_MAX) {
        item->sources =
            trpi_realloc(item->sources, (item->source_count + 1) * sizeof(*item->sources));
        item->sources[item->source_count++] = source;
    }
}

bool trpi_repeats_line(trpi_repeats *repeats, uint64_t now_ns, uint64_t source, bool is_stderr,
                       trp_bytes line, trp_bytes shown) {
    if (repeats->window_ns == 0) {
        return true;
    }
    char *key = key_of(line);
    uint64_t hash = trpi_hash64(key, strlen(key));
    trpi_repeat *item = find(repeats, key, hash, is_stderr);
    if (item == NULL && repeats->count < TRPI_REPEATS_MAX) {
        item = &repeats->items[repeats->count++];
        *item = (trpi_repeat){.hash = hash,
                              .is_stderr = is_stderr,
                              .key = key,
                              .until_ns = now_ns + repeats->window_ns};
        add_source(item, source);
        return true;
    }
    free(key);
    if (item == NULL) {
        return true;
    }
    add_source(item, source);
    if (item->source_count == 1) {
        return true;
    }
    item->count++;
    item->last = trpi_realloc(item->last, shown.size + 1);
    memcpy(item->last, shown.data, shown.size);
    item->last[shown.size] = '\0';
    return false;
}

/* ---- Their count ---- */

static void tell(const trpi_repeat *item, trp_buf *text) {
    if (item->count > 0) { /* what memory can't hold is left out, as any output is */
        (void)!trp_buf_printf(text, "%s [repeated %" PRIu64 "x across %zu%s actors]\n", item->last,
                              item->count, item->source_count,
                              item->source_count == TRPI_REPEAT_SOURCES_MAX ? " or more" : "");
    }
}

static void release(trpi_repeat *item) {
    free(item->key);
    free(item->last);
    free(item->sources);
}

void trpi_repeats_tell(trpi_repeats *repeats, uint64_t now_ns, trp_buf texts[2]) {
    size_t ended = 0;
    while (ended < repeats->count && repeats->items[ended].until_ns <= now_ns) {
        tell(&repeats->items[ended], &texts[repeats->items[ended].is_stderr]);
        release(&repeats->items[ended++]);
    }
    repeats->count -= ended;
    memmove(repeats->items, repeats->items + ended, repeats->count * sizeof(*repeats->items));
}

uint64_t trpi_repeats_next_ns(const trpi_repeats *repeats) {
    return repeats->count > 0 ? repeats->items[0].until_ns : UINT64_MAX;
}

void trpi_repeats_release(trpi_repeats *repeats) {
    for (size_t i = 0; i < repeats->count; i++) {
        release(&repeats->items[i]);
    }
    repeats->count = 0;
}

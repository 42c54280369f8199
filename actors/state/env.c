#include "actors/state/env.h"

#include <stdlib.h>
#include <string.h>

trpi_texts trpi_texts_copy(const trpi_text *list, size_t count) {
    trpi_texts texts = {.count = count};
    texts.items = count ? trpi_alloc(count * sizeof(char *)) : NULL;
    for (size_t i = 0; i < count; i++) {
        texts.items[i] = trpi_strdup(list[i].value);
    }
    return texts;
}

void trpi_texts_release(trpi_texts *texts) {
    for (size_t i = 0; i < texts->count; i++) {
        free(texts->items[i]);
    }
    free(texts->items);
    *texts = (trpi_texts){0};
}

uint64_t trpi_texts_bytes(const trpi_texts *texts) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < texts->count; i++) {
        bytes += strlen(texts->items[i]) + 1;
    }
    return bytes;
}

static size_t key_size(const char *entry) {
    return strcspn(entry, "=");
}

static int compare_keys(const char *a, const char *b) {
    size_t a_size = key_size(a), b_size = key_size(b);
    int order = memcmp(a, b, TRPI_MIN(a_size, b_size));
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

/* Sorts pointers into the list: of two equal keys the one that stands later comes later. */
static int by_key_and_place(const void *left, const void *right) {
    const trpi_text *a = *(const trpi_text *const *)left, *b = *(const trpi_text *const *)right;
    int order = compare_keys(a->value, b->value);
    return order != 0 ? order : (a > b) - (a < b);
}

static trpi_texts last_of_each_key(const trpi_text *list, size_t count) {
    trpi_texts env = {.items = trpi_alloc(count * sizeof(char *))};
    const trpi_text **sorted = trpi_alloc(count * sizeof(*sorted));
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &list[i];
    }
    qsort(sorted, count, sizeof(*sorted), by_key_and_place);
    for (size_t i = 0; i < count; i++) {
        if (i + 1 == count || compare_keys(sorted[i]->value, sorted[i + 1]->value) != 0) {
            env.items[env.count++] = trpi_strdup(sorted[i]->value);
        }
    }
    free(sorted);
    return env;
}

trp_code trpi_env_parse(const trpi_text *list, size_t count, trpi_texts *ret_env, trp_error *err) {
    if (count > TRPI_ENV_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%zu environment entries: at most %d", count,
                         TRPI_ENV_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        size_t size = key_size(list[i].value);
        if (size == 0 || list[i].value[size] != '=') {
            return trpi_fail(err, TRP_EINVALID, "environment entry \"%.64s\" is not KEY=value",
                             list[i].value);
        }
    }
    *ret_env = count ? last_of_each_key(list, count) : (trpi_texts){0};
    return TRP_OK;
}

size_t trpi_env_merge(const trpi_texts *under, const trpi_texts *over, trpi_text *out) {
    size_t u = 0, o = 0, count = 0;
    while (u < under->count || o < over->count) {
        int order = u == under->count  ? 1
                    : o == over->count ? -1
                                       : compare_keys(under->items[u], over->items[o]);
        if (order < 0) {
            out[count++].value = under->items[u++];
        } else {
            u += order == 0;
            out[count++].value = over->items[o++];
        }
    }
    return count;
}

/* store_texts.c: what users read of a store. */
#include <inttypes.h>
#include <string.h>

#include "actors/state/store_parts.h"

#define NAMED_MAX 3 /* of those who hold the most */

void trpi_store_name(uint64_t object, char *out, size_t size) {
    trpi_format(out, size, "o%" PRIu64 ".%" PRIu64, object >> TRPI_OBJECT_NODE_SHIFT,
                object & ((UINT64_C(1) << TRPI_OBJECT_NODE_SHIFT) - 1));
}

/* One decimal, in whole numbers. */
void trpi_store_bytes_text(uint64_t bytes, char *out, size_t size) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    while (unit + 1 < TRPI_COUNTOF(units) && bytes >> 10 * (unit + 1) != 0) {
        unit++;
    }
    if (unit == 0) {
        trpi_format(out, size, "%" PRIu64 " bytes", bytes);
        return;
    }
    uint64_t whole = bytes >> 10 * unit;
    uint64_t tenths = ((bytes >> 10 * (unit - 1)) & 1023) * 10 / 1024;
    trpi_format(out, size, "%" PRIu64 ".%" PRIu64 " %s", whole, tenths, units[unit]);
}

typedef struct share {
    const trpi_holder *holder;
    uint64_t bytes, objects;
} share;

static share share_of(const trpi_holder *holder) {
    share own = {.holder = holder};
    const trpi_hold *hold;
    uint64_t id = 0;
    while ((hold = trpi_table_next(&holder->holds, &id)) != NULL) {
        if (hold->count > 0 && hold->object->segment != NULL) {
            own.bytes += hold->object->segment->bytes;
            own.objects++;
        }
    }
    return own;
}

/* The largest, in order. Returns how many hold anything at all. */
static size_t largest(const trpi_store *s, share *top) {
    const trpi_holder *holder;
    uint64_t key = 0;
    size_t count = 0;
    memset(top, 0, NAMED_MAX * sizeof(*top));
    while ((holder = trpi_table_next(&s->holders, &key)) != NULL) {
        share own = share_of(holder);
        count += own.objects > 0;
        for (size_t i = 0; i < NAMED_MAX; i++) {
            if (own.bytes > top[i].bytes) {
                share smaller = top[i];
                top[i] = own;
                own = smaller;
            }
        }
    }
    return count;
}

static void holder_text(const trpi_holder *holder, char *out, size_t size) {
    if (holder->is_node) {
        trpi_format(out, size, "node n%" PRIu64, holder->number);
    } else if (holder->session == 0) {
        trpi_format(out, size, "client %" PRIu64 " (not on this host)", holder->number);
    } else {
        trpi_format(out, size, "%s (pid %" PRId64 ")", holder->label, holder->pid);
    }
}

const char *trpi_store_full_text(trpi_store *s, uint64_t asked) {
    char want[32], used[32], has[32], who[128], bytes[32], list[384] = "";
    share top[NAMED_MAX];
    size_t count = largest(s, top), named = 0;
    trpi_store_bytes_text(asked, want, sizeof(want));
    trpi_store_bytes_text(s->used_bytes, used, sizeof(used));
    trpi_store_bytes_text(s->config.capacity, has, sizeof(has));
    for (; named < NAMED_MAX && top[named].objects > 0; named++) {
        size_t at = strlen(list);
        holder_text(top[named].holder, who, sizeof(who));
        trpi_store_bytes_text(top[named].bytes, bytes, sizeof(bytes));
        trpi_format(list + at, sizeof(list) - at, "%s%s holds %s in %" PRIu64 " object%s",
                    at ? ", " : ": ", who, bytes, top[named].objects,
                    top[named].objects == 1 ? "" : "s");
    }
    if (count > named) {
        size_t at = strlen(list);
        trpi_format(list + at, sizeof(list) - at, ", %zu more", count - named);
    }
    return trpi_store_text(s, "store of node n%" PRIu64 " is full: %s asked for, %s of %s in use%s",
                           s->config.node, want, used, has, list);
}

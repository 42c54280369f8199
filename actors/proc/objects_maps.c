/* objects_maps.c: mappings of the store's memory, and those that are kept. A kept one cannot be
 * touched, so that who goes on using what he has released is told by a signal. When the store gives
 * memory back it cuts its pages off, so a kept mapping holds none. */
#include <stdlib.h>

#include "actors/proc/objects_parts.h"
#include "core/net/clock.h"
#include "core/sys/memfd.h"

#define KEPT_MAX 64
#define KEPT_MAX_BYTES ((size_t)8 << 30) /* of addresses */

static void unlist(trpi_maps *maps, const trpi_mapping *mapping) {
    trpi_mapping **link = &maps->first;
    while (*link != mapping) {
        link = &(*link)->next;
    }
    *link = mapping->next;
}

static void drop(trpi_maps *maps, trpi_mapping *mapping) {
    unlist(maps, mapping);
    trpi_memfd_unmap(mapping->data, mapping->bytes);
    free(mapping);
}

static void drop_kept(trpi_maps *maps, trpi_mapping *mapping) {
    maps->kept_bytes -= mapping->bytes;
    maps->kept_count--;
    drop(maps, mapping);
}

static trpi_mapping *find_kept(const trpi_maps *maps, uint64_t segment, bool writable) {
    trpi_mapping *mapping = maps->first;
    while (mapping != NULL &&
           (mapping->in_use || mapping->segment != segment || mapping->writable != writable)) {
        mapping = mapping->next;
    }
    return mapping;
}

static trpi_mapping *oldest_kept(const trpi_maps *maps) {
    trpi_mapping *oldest = NULL;
    for (trpi_mapping *mapping = maps->first; mapping != NULL; mapping = mapping->next) {
        if (!mapping->in_use && (oldest == NULL || mapping->left_ns < oldest->left_ns)) {
            oldest = mapping;
        }
    }
    return oldest;
}

trp_code trpi_maps_use(trpi_maps *maps, uint64_t segment, size_t bytes, bool writable, int fd,
                       trpi_mapping **ret_mapping, trp_error *err) {
    trpi_mapping *mapping = find_kept(maps, segment, writable);
    if (mapping != NULL && trpi_memfd_allow(mapping->data, mapping->bytes, writable)) {
        maps->kept_bytes -= mapping->bytes;
        maps->kept_count--;
        mapping->in_use = true;
        *ret_mapping = mapping;
        return TRP_OK;
    }
    void *data;
    if (fd < 0) {
        return trpi_fail(err, TRP_EPROTOCOL, "the store sent no descriptor");
    }
    trp_code code = trpi_memfd_map(fd, 0, bytes, writable, &data, err);
    if (code != TRP_OK) {
        return code;
    }
    mapping = trpi_alloc(sizeof(*mapping));
    mapping->segment = segment;
    mapping->data = data;
    mapping->bytes = bytes;
    mapping->writable = writable;
    mapping->in_use = true;
    mapping->next = maps->first;
    maps->first = mapping;
    *ret_mapping = mapping;
    return TRP_OK;
}

void trpi_maps_leave(trpi_maps *maps, trpi_mapping *mapping, bool keep) {
    if (!keep || mapping->bytes > KEPT_MAX_BYTES ||
        !trpi_memfd_forbid(mapping->data, mapping->bytes)) {
        drop(maps, mapping);
        return;
    }
    mapping->in_use = false;
    mapping->left_ns = trpi_now_ns();
    maps->kept_bytes += mapping->bytes;
    maps->kept_count++;
    while (maps->kept_count > KEPT_MAX || maps->kept_bytes > KEPT_MAX_BYTES) {
        drop_kept(maps, oldest_kept(maps));
    }
}

void trpi_maps_expire(trpi_maps *maps, uint64_t older_than_ns) {
    trpi_mapping *oldest;
    while ((oldest = oldest_kept(maps)) != NULL && oldest->left_ns < older_than_ns) {
        drop_kept(maps, oldest);
    }
}

void trpi_maps_release(trpi_maps *maps) {
    while (maps->first != NULL) {
        drop(maps, maps->first);
    }
    *maps = (trpi_maps){0};
}

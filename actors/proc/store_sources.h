/* store_sources.h: what a descriptor in the store's epoll set is; the number beside it is a
 * session's, so that an event of one that went in the same round finds nothing. */
#ifndef TRPI_STORE_SOURCES_H
#define TRPI_STORE_SOURCES_H

#include <stdint.h>

typedef enum trpi_store_source {
    TRPI_STORE_SOURCE_LISTENER,
    TRPI_STORE_SOURCE_TOLD,
    TRPI_STORE_SOURCE_SESSION,
    TRPI_STORE_SOURCE_PROCESS /* a session's pidfd */
} trpi_store_source;

#define TRPI_STORE_SOURCE_SHIFT 56

static inline uint64_t trpi_store_tag(trpi_store_source source, uint64_t id) {
    return (uint64_t)source << TRPI_STORE_SOURCE_SHIFT | id;
}

#endif

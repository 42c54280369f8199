/* links.h: the links of one socket: by peer on a ROUTER, the only one on a DEALER. A table and no
 * protocol: that is core/state/link.h, and sock_links.c between the two. */
#ifndef TRPI_LINKS_H
#define TRPI_LINKS_H

#include "core/net/window.h"
#include "core/state/link.h"

/* What a socket knows of one peer. A head has ten thousand of these. */
typedef struct trpi_linked {
    trpi_link link;
    trpi_window window;
    struct trpi_linked *next_alike;           /* in its bucket */
    struct trpi_linked *next_busy, **at_busy; /* among those that wait for a confirmation */
    uint32_t hash;
    bool is_void; /* the owner has not been told yet */
    uint8_t peer_size;
    unsigned char peer[];
} trpi_linked;

typedef struct trpi_links {
    trpi_linked **buckets;
    uint32_t count, capacity, void_count;
    trpi_linked *last; /* found last: the next one is often the same */
    trpi_linked *busy;
    uint64_t wake_ns;  /* no busy one is due earlier; UINT64_MAX: none is busy */
    uint64_t sweep_ns; /* likewise for all others */
    uint64_t wake_not_before_ns, sweep_not_before_ns; /* a look goes through all of them, so those
                                                         that are due soon after are looked at
                                                         together */
    uint64_t lives;                                   /* drawn from */
    trpi_link_times times;
} trpi_links;

void trpi_links_init(trpi_links *links);
void trpi_links_release(trpi_links *links);

trpi_linked *trpi_links_find(trpi_links *links, trp_bytes peer); /* NULL if there is none */
/* A new one, for which there is none yet; link and window are the caller's to begin. NULL: out of
 * memory. */
trpi_linked *trpi_links_add(trpi_links *links, trp_bytes peer);
void trpi_links_remove(trpi_links *links, trpi_linked *linked); /* and what it keeps */
/* The one behind `linked`, or the first one for NULL; NULL at the end. */
trpi_linked *trpi_links_next(const trpi_links *links, const trpi_linked *linked);
trp_bytes trpi_linked_peer(const trpi_linked *linked);

/* Its timer has been set: the socket wakes up for it. */
void trpi_links_note(trpi_links *links, trpi_linked *linked);
void trpi_links_rest(trpi_linked *linked); /* it keeps nothing: its timer is not urgent any more */

uint32_t trpi_links_life(trpi_links *links); /* a new one */

#endif

/* client_refs.h: futures: what a call came to, or who waits for it. Named by (generation, slot), so
 * that a ref given back is never taken for its slot's next one. Under the data lock. */
#ifndef TRPI_CLIENT_REFS_H
#define TRPI_CLIENT_REFS_H

#include "core/net/sock.h"

typedef struct trpi_waiter trpi_waiter;
typedef struct trpi_ref trpi_ref;

/* That a waiter waits for a ref. */
typedef struct trpi_ref_watcher {
    trpi_waiter *waiter;
    trpi_ref *ref; /* NULL when it is over */
    struct trpi_ref_watcher *next, *prev;
} trpi_ref_watcher;

#define TRPI_REF_INLINE 64

struct trpi_ref {
    uint32_t generation, slot;
    uint32_t next_free;
    bool is_used, is_done;
    trp_code code;
    uint64_t call; /* of the caller machine, while it is not done */
    uint64_t node, actor;
    char *message;       /* of a failure */
    trp_bytes value;     /* in `small`, `copy` or the packet */
    unsigned char *copy; /* of a middling value */
    trpi_packet *packet; /* with a large one */
    trpi_ref_watcher *watches;
    unsigned char small[TRPI_REF_INLINE];
};

typedef struct trpi_refs { /* zero-initialize */
    trpi_ref **chunks;     /* refs never move: values are borrowed from them */
    uint32_t chunk_count;
    uint32_t first_free; /* slot + 1; 0 = none */
} trpi_refs;

trpi_ref *trpi_refs_take(trpi_refs *refs);
void trpi_refs_give_back(trpi_refs *refs, trpi_ref *ref); /* whoever waits for it is told */
void trpi_refs_release(trpi_refs *refs);

uint64_t trpi_ref_id(const trpi_ref *ref);
trpi_ref *trpi_refs_find(trpi_refs *refs, uint64_t id); /* NULL: given back, or never was */

/* Small bodies are copied; a large one stays in the packet, which the ref takes over. */
void trpi_ref_succeed(trpi_ref *ref, trpi_packet *packet);
void trpi_ref_fail(trpi_ref *ref, trp_code code, uint64_t node, uint64_t actor,
                   const char *message);
/* The code, with err filled in. The ref is done. */
trp_code trpi_ref_result(const trpi_ref *ref, trp_error *err);

void trpi_ref_watch(trpi_ref_watcher *watch, trpi_waiter *waiter, trpi_ref *ref);
void trpi_ref_unwatch(trpi_ref_watcher *watch); /* of one that may be over */

/* client_data.c: one of the waiter's refs is done. */
void trpi_waiter_note(trpi_waiter *waiter, bool failed);

#endif

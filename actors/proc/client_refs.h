/* client_refs.h: futures: what a call came to, or who waits for it. Named by (generation, slot), so
 * that a ref given back is never taken for its slot's next one. Under the data lock. */
#ifndef TRPI_CLIENT_REFS_H
#define TRPI_CLIENT_REFS_H

#include <troupe/actor.h>

#include "core/net/sock.h"

typedef struct trpi_waiter trpi_waiter;
typedef struct trpi_ref trpi_ref;

/* That a waiter waits for a ref. */
typedef struct trpi_ref_watcher {
    trpi_waiter *waiter;
    trpi_ref *ref; /* NULL when it is over */
    struct trpi_ref_watcher *next, *prev;
} trpi_ref_watcher;

/* Somebody wants to be called when a ref is done. */
typedef struct trpi_callback {
    trp_done_fn fn;
    void *arg;
    uint64_t ref;
    struct trpi_callback *next;
} trpi_callback;

/* Why a call failed, as the caller machine says it. Texts are borrowed; NULL is "". */
typedef struct trpi_ref_failure {
    trp_code code;
    uint64_t node, actor;
    const char *message, *type, *where;
} trpi_ref_failure;

#define TRPI_REF_INLINE 64

struct trpi_ref {
    uint32_t generation, slot;
    uint32_t next_free;
    bool is_used, is_done;
    bool is_notifying; /* goes into the queue of done refs when it is done */
    bool is_queued;    /* ... in which it is */
    bool is_awaited;   /* counted in trpi_done.awaited */
    trp_code code;
    uint64_t call; /* of the caller machine, while it is not done */
    uint64_t node, actor;
    char *message;       /* of a failure */
    char *type, *where;  /* of one that was raised, else NULL */
    trp_bytes value;     /* in `small`, `copy` or the packet */
    unsigned char *copy; /* of a middling value */
    trpi_packet *packet; /* with a large one */
    trpi_ref_watcher *watches;
    trpi_callback *callbacks; /* newest first */
    struct trpi_ref *next_done, *prev_done;
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
void trpi_ref_fail(trpi_ref *ref, const trpi_ref_failure *failure);
/* The code, with err filled in. The ref is done. */
trp_code trpi_ref_result(const trpi_ref *ref, trp_error *err);

void trpi_ref_watch(trpi_ref_watcher *watch, trpi_waiter *waiter, trpi_ref *ref);
void trpi_ref_unwatch(trpi_ref_watcher *watch); /* of one that may be over */

/* client_data.c: one of the waiter's refs is done. */
void trpi_waiter_note(trpi_waiter *waiter, bool failed);

#endif

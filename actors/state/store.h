/* store.h: one node's object store as a machine: which objects there are, who holds them, which
 * memory they are in, what is fetched from other nodes. Events with their time go in, actions come
 * out. It knows no clock, socket, descriptor or mapping.
 *
 *   An object of this node (its home):
 *
 *     STORE_CREATE -> WRITING -- STORE_SEAL --> SEALED -- the last hold goes --> gone
 *                        \------- the writer's hold goes ------------------------^
 *
 *   A copy of another node's object:
 *
 *     first STORE_GET -> ABSENT -- first STORE_PART --> FILLING -- last one --> SEALED --+--> gone
 *                           \-------- lost, no room, nobody waits any more --------------^
 *
 * Who holds is a client, by its number at the head, or another node. A client holds as long as its
 * session (its process' connection) lives; holds that were given to one that has no session here go
 * when the head says that it is gone. This node as a whole holds the objects that it has copies of,
 * at their home, and counts its own clients itself. A copy that nobody holds is kept, to spare
 * fetching it again: its home does not count it, but says when the object is gone.
 *
 * Memory comes in segments. Those that are free again stay for a while, since their pages are there
 * already; they and copies that nobody holds make room first. A segment that somebody may still
 * look at without holding it is never used again.
 *
 * Files: store.c (door, time, holders), store_objects.c (requests of clients), store_peers.c (both
 * sides of a fetch), store_segments.c, store_texts.c, store_check.c. */
#ifndef TRPI_STORE_H
#define TRPI_STORE_H

#include "core/base/arena.h"
#include "core/wire/msg.h"

#define TRPI_OBJECT_NODE_SHIFT 40 /* an object's number is its home << this | a serial */

typedef struct trpi_store trpi_store;

typedef struct trpi_store_config { /* all must be set */
    uint64_t node, incarnation;
    uint64_t capacity;     /* bytes */
    uint64_t segments_max; /* descriptors that it may use */
    uint64_t spare_bytes;  /* of free segments that are kept, at most */
    uint64_t spare_ns;     /* ... and for so long; the same for copies that nobody holds */
    uint64_t chunk_bytes, chunks_in_flight;
    uint64_t stall_ns;   /* a fetch without progress for this long is asked for again */
    uint64_t request_ns; /* what another node does not answer within this has failed */
    uint64_t serial; /* of the last object that this daemon ever made: numbers do not come back */
} trpi_store_config;

trpi_store *trpi_store_new(const trpi_store_config *config);
void trpi_store_free(trpi_store *store); /* NULL is fine */

/* ---- Events ---- */

typedef enum trpi_store_event_kind {
    TRPI_STORE_EVENT_OPEN,    /* session, pid: a process has connected */
    TRPI_STORE_EVENT_SHUT,    /* session: ... is gone */
    TRPI_STORE_EVENT_MESSAGE, /* session, msg */
    TRPI_STORE_EVENT_PEER,    /* msg (and node, for answers of a home), size of its body */
    TRPI_STORE_EVENT_HEAD,    /* msg */
    TRPI_STORE_EVENT_VOID, /* node: as the home of what we have, it knows nothing of us any more */
    TRPI_STORE_EVENT_FAILED, /* segment, code, reason: no memory for it */
    TRPI_STORE_EVENT_TICK
} trpi_store_event_kind;

typedef struct trpi_store_event {
    trpi_store_event_kind kind;
    uint64_t now_ns; /* never falls */
    uint64_t session, node, segment;
    int64_t pid;
    size_t body_size;
    trp_code code;
    const char *reason;
    const trpi_msg *msg; /* decoded */
} trpi_store_event;

/* ---- Actions ---- */

typedef enum trpi_store_action_kind {
    TRPI_STORE_ANSWER, /* session, msg; with a descriptor of segment if that is not 0 */
    TRPI_STORE_REFUSE, /* session, reason: cut it off; SHUT follows */
    TRPI_STORE_ASK,    /* node: send msg to that node's store, as an asker */
    TRPI_STORE_REPLY,  /* node, incarnation: send msg to the asker of that node; body: so many bytes
                          of the segment from offset on */
    TRPI_STORE_FIND,   /* node: ask the head where its store is; EVENT_HEAD brings STORE_AT */
    TRPI_STORE_MAKE,   /* segment, bytes: new memory */
    TRPI_STORE_FREE,   /* segment: give it back; `clean`: nobody looks at it, cut its pages off */
    TRPI_STORE_WRITE   /* segment, offset: the body of the event's message goes there */
} trpi_store_action_kind;

typedef struct trpi_store_action {
    trpi_store_action_kind kind;
    uint64_t session, node, incarnation, segment, offset, bytes;
    bool writable; /* the descriptor */
    bool clean;
    const char *reason;
    trpi_msg msg;
} trpi_store_action;

typedef struct trpi_store_actions { /* zero-initialize; valid until the next step */
    trpi_store_action *items;
    size_t count, capacity;
    trpi_arena arena;
} trpi_store_actions;
void trpi_store_actions_release(trpi_store_actions *actions);

/* Clears *actions and fills it with what this event makes the store do, in order. */
void trpi_store_step(trpi_store *store, const trpi_store_event *event, trpi_store_actions *actions);

/* When a TICK is due; UINT64_MAX = not before something else happens. */
uint64_t trpi_store_wake_ns(const trpi_store *store);

typedef struct trpi_store_figures {
    uint64_t capacity, used; /* used: by what is held */
    uint64_t objects;        /* held or being fetched */
    uint64_t kept;           /* bytes of spare segments and of copies that nobody holds */
    uint64_t segments, sessions;
    uint64_t serial; /* of the last object made */
} trpi_store_figures;
trpi_store_figures trpi_store_count(const trpi_store *store);

/* NULL, or which invariant is broken. O(everything): for tests. */
const char *trpi_store_check(const trpi_store *store);

#endif

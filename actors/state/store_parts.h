/* store_parts.h: the store machine's own structs, and what its files call of each other.
 *
 *   store.c           the door, the time, and who holds: clients, nodes, their ends
 *   store_objects.c   what clients ask for, who waits for an object, and when one goes
 *   store_segments.c  the memory that they lie in
 *   store_peers.c     between stores: both sides of a fetch, holds for clients of other nodes
 *   store_texts.c     what users read
 *   store_check.c     what must hold after every step */
#ifndef TRPI_STORE_PARTS_H
#define TRPI_STORE_PARTS_H

#include "actors/state/store.h"
#include "core/base/table.h"

typedef struct trpi_segment {
    uint64_t id, bytes;
    struct trpi_object *object; /* NULL = spare */
    uint64_t since_ns;          /* spare since */
    bool is_exposed;            /* somebody who does not hold it may have it mapped */
} trpi_segment;

typedef enum trpi_object_state {
    TRPI_OBJECT_ABSENT, /* a copy without data, not even of known size */
    TRPI_OBJECT_FILLING,
    TRPI_OBJECT_WRITING,
    TRPI_OBJECT_SEALED
} trpi_object_state;

/* This node's own hold on an object of another one, as it asks for it at the home. */
typedef enum trpi_upstream {
    TRPI_UPSTREAM_NONE,
    TRPI_UPSTREAM_ASKED,
    TRPI_UPSTREAM_HELD,
    TRPI_UPSTREAM_DEAD /* the home is gone; what is here stays while it is held */
} trpi_upstream;

/* Somebody who waits for an object: to map it, or only to hold it. */
typedef struct trpi_wait {
    uint64_t session, request, deadline_ns;
    bool wants_data;
    struct trpi_wait *next;
} trpi_wait;

typedef struct trpi_object {
    uint64_t id, size;
    trpi_object_state state;
    trpi_segment *segment; /* NULL while ABSENT */
    uint64_t writer;       /* client, while WRITING */
    trpi_table holds;      /* trpi_hold by the holder's key */
    uint64_t live;         /* holds with a count */
    trpi_wait *waits;
    /* Of copies */
    uint64_t home;
    bool is_copy;
    bool is_wanted; /* data is asked for, not just a hold */
    trpi_upstream upstream;
    uint64_t asked, received; /* bytes */
    uint64_t progress_ns;     /* when anything of it last came or was asked for */
    uint64_t idle_ns;         /* nobody holds it since */
} trpi_object;

/* A client or another node. */
typedef struct trpi_holder {
    uint64_t key;
    bool is_node;
    uint64_t number;  /* client or node */
    uint64_t session; /* of a client; 0 = it has not connected here */
    uint64_t incarnation;
    int64_t pid;
    char label[64];
    trpi_table holds; /* trpi_hold by the object's number */
} trpi_holder;

typedef struct trpi_hold {
    trpi_holder *holder;
    trpi_object *object;
    uint64_t count; /* 0, of a node: it has a copy, and is to be told when the object is gone */
    bool is_mapped; /* it was given a descriptor since it last said that it has none */
} trpi_hold;

typedef struct trpi_session {
    uint64_t id;
    int64_t pid;
    trpi_holder *holder; /* NULL before STORE_HELLO */
} trpi_session;

/* A hold for a client that is asked for at the object's home. */
typedef struct trpi_relay {
    uint64_t id, session, request, object, client, deadline_ns;
    bool is_late; /* the asker has been told that it takes too long */
} trpi_relay;

/* Clients first to last are gone. The head numbers them in rising order, so that there are no more
 * of these than living clients and one. */
typedef struct trpi_gone {
    uint64_t first, last;
} trpi_gone;

struct trpi_store {
    trpi_store_config config;
    uint64_t now_ns, due_ns;
    uint64_t serial, last_segment, last_relay;
    trpi_table sessions, holders, objects, segments, relays;
    trpi_gone *gone;
    size_t gone_count;
    uint64_t used_bytes, spare_bytes, idle_bytes; /* held; free; copies that nobody holds */
    uint64_t idle_copies;
    trpi_store_actions *out;
};

/* store.c */
trpi_store_action *trpi_store_act(trpi_store *s, trpi_store_action_kind kind);
trpi_msg *trpi_store_answer(trpi_store *s, uint64_t session, trpi_msg_type type);
/* code OK: message is "" whatever is given. */
void trpi_store_done(trpi_store *s, uint64_t session, uint64_t request, trp_code code,
                     const char *message);
/* Tells it why, and cuts it off. */
void trpi_store_refuse(trpi_store *s, uint64_t session, trp_code code, const char *reason);
const char *trpi_store_text(trpi_store *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));          /* valid as long as the actions */
void trpi_store_due(trpi_store *s, uint64_t at_ns); /* wake up by then */
trpi_holder *trpi_store_client(trpi_store *s, uint64_t client, bool make);
trpi_holder *trpi_store_node(trpi_store *s, uint64_t node, bool make);
bool trpi_store_is_gone(const trpi_store *s, uint64_t client);
trpi_hold *trpi_store_hold_of(const trpi_holder *holder, const trpi_object *object);
trpi_hold *trpi_store_take(trpi_store *s, trpi_holder *holder, trpi_object *object);
/* Gives up to `count` back and returns how many; the object may be gone afterwards. */
uint64_t trpi_store_give_back(trpi_store *s, trpi_holder *holder, trpi_object *object,
                              uint64_t count);
/* All that it holds. Then it is freed, if nothing else needs it. */
void trpi_store_drop_holder(trpi_store *s, trpi_holder *holder);
void trpi_store_holder_idle(trpi_store *s, trpi_holder *holder); /* frees it if it has nothing */

/* store_objects.c */
void trpi_store_client_message(trpi_store *s, trpi_session *session, const trpi_msg *msg);
void trpi_store_answer_waits(trpi_store *s, trpi_object *object); /* those who can have it now */
void trpi_store_fail_waits(trpi_store *s, trpi_object *object, bool only_data, trp_code code,
                           const char *message);
void trpi_store_session_waits(trpi_store *s, uint64_t session); /* forgets them */
void trpi_store_waits_tick(trpi_store *s, trpi_object *object);
/* After a hold or wait has gone: the object goes, or becomes a copy that nobody holds. */
void trpi_store_settle(trpi_store *s, trpi_object *object);
trpi_object *trpi_store_object_new(trpi_store *s, uint64_t id);
/* Whatever holds it: holds, waits and memory go. */
void trpi_store_destroy(trpi_store *s, trpi_object *object, trp_code code, const char *message);
const char *trpi_store_lost_text(trpi_store *s, uint64_t object);

/* store_peers.c */
void trpi_store_peer_message(trpi_store *s, const trpi_store_event *event);
void trpi_store_want(trpi_store *s, trpi_object *copy, bool data); /* asks the home */
void trpi_store_drop_upstream(trpi_store *s, trpi_object *copy, bool keeps);
void trpi_store_relay_take(trpi_store *s, const trpi_session *session, uint64_t request,
                           uint64_t object, uint64_t client);
void trpi_store_relay_give_back(trpi_store *s, uint64_t object, uint64_t client, uint64_t count);
void trpi_store_forget_copies(trpi_store *s, trpi_object *object); /* tells those who have one */
void trpi_store_node_gone(trpi_store *s, uint64_t node, uint64_t incarnation);
void trpi_store_home_void(trpi_store *s, uint64_t node);
void trpi_store_copy_tick(trpi_store *s, trpi_object *copy);
void trpi_store_relays_tick(trpi_store *s);

/* store_segments.c */
/* Memory for an object, or TRP_EBUSY, TRP_EINVALID with the reason. */
TRP_CHECKED trp_code trpi_store_segment_take(trpi_store *s, trpi_object *object, uint64_t size,
                                             const char **ret_reason);
void trpi_store_segment_leave(trpi_store *s, trpi_object *object); /* becomes spare, or goes */
void trpi_store_spares_tick(trpi_store *s);
void trpi_store_copy_idle(trpi_store *s, trpi_object *copy);   /* nobody holds it any more */
void trpi_store_copy_in_use(trpi_store *s, trpi_object *copy); /* ... somebody does again */

/* store_texts.c */
void trpi_store_name(uint64_t object, char *out, size_t size); /* "o1.7" */
void trpi_store_bytes_text(uint64_t bytes, char *out, size_t size);
const char *trpi_store_full_text(trpi_store *s, uint64_t asked);

#endif

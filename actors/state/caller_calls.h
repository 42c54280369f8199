/* caller_calls.h: the calls that a process has under way, and when one of them is to be looked at
 * next.
 *
 * A call is named by (generation, slot), so that finding it costs one array access and a name whose
 * call is over never finds its slot's next tenant. Part of the caller machine (caller.h): pure. */
#ifndef TRPI_CALLER_CALLS_H
#define TRPI_CALLER_CALLS_H

#include "core/base/base.h"

#define TRPI_CALL_NONE UINT32_MAX

/* What must be kept of a call in order to send it later or again: "method\0", the arguments, and
 * the failures that are tried again where the call names its own (caller_types.h). */
typedef struct trpi_call_payload {
    size_t method_size; /* with its NUL */
    size_t args_size;
    size_t types_size; /* 0: its actor's */
    char data[];
} trpi_call_payload;

typedef enum trpi_call_state {
    TRPI_CALL_WAITS, /* is sent as soon as its actor is connected */
    TRPI_CALL_FLIES, /* was sent to the incarnation that its actor's view is connected to */
    TRPI_CALL_RESTS, /* failed in user code, and waits for wake_ns to be tried again */
} trpi_call_state;

typedef struct trpi_call {
    uint32_t generation;
    uint32_t next, prev; /* in the list of its actor, or the free list; slots */
    uint32_t view;       /* index of its actor's view */
    uint32_t heap_place; /* among the times; TRPI_CALL_NONE without one */
    trpi_call_state state;
    bool used;
    bool is_canceled;  /* never sent again */
    int32_t retries;   /* trp_call_options.retries_max */
    uint32_t failures; /* of user code, that were tried again */
    uint64_t tries;    /* that, and times that an incarnation ended with this call in flight */
    uint64_t deadline_ns;
    uint64_t wake_ns;           /* when it is to be looked at: its deadline, or the next try */
    trpi_call_payload *payload; /* NULL: never needed again */
    void *tag;                  /* whoever waits for it; NULL: nobody */
    void *holds;                /* the shell's, until the call is over; from malloc */
} trpi_call;

typedef struct trpi_calls {
    trpi_call *slots;
    uint32_t slot_count, slot_capacity;
    uint32_t first_free;
    uint32_t used_count, used_max;
    uint32_t *heap; /* slots, the nearest time first */
    uint32_t heap_count, heap_capacity;
} trpi_calls;

void trpi_calls_init(trpi_calls *calls, uint32_t used_max);
void trpi_calls_release(trpi_calls *calls);

/* A zeroed call, or TRPI_CALL_NONE when used_max are under way. */
uint32_t trpi_calls_take(trpi_calls *calls);
void trpi_calls_give_back(trpi_calls *calls, uint32_t slot);

uint64_t trpi_calls_id(const trpi_calls *calls, uint32_t slot);
/* TRPI_CALL_NONE when the call of that name is over or never was. */
uint32_t trpi_calls_find(const trpi_calls *calls, uint64_t id);

/* types: NULL = its actor's; ends with NULL. */
void trpi_calls_keep_payload(trpi_call *call, const char *method, trp_bytes args,
                             const char *const *types);

void trpi_calls_set_wake(trpi_calls *calls, uint32_t slot, uint64_t wake_ns); /* UINT64_MAX: none */
uint32_t trpi_calls_next_wake(const trpi_calls *calls); /* slot, or TRPI_CALL_NONE */

/* NULL, or which invariant broke. */
const char *trpi_calls_check(const trpi_calls *calls);

#endif

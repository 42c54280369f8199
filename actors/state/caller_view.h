/* caller_view.h: what a process knows of an actor: the head's last word on it, the calls that it
 * has under way there, and the one text that says why calls to it fail, if they do. Part of the
 * caller machine (caller.h): pure. */
#ifndef TRPI_CALLER_VIEW_H
#define TRPI_CALLER_VIEW_H

#include <troupe/actor.h>

#include "core/wire/msg.h"

/* Beside trp_actor_phase and TRPI_PHASE_UNKNOWN: asked for, and the head has not answered yet, or
 * will not say. */
#define TRPI_PHASE_ASKED 254
#define TRPI_PHASE_REFUSED 253

typedef struct trpi_view {
    uint64_t actor;
    unsigned phase;
    uint64_t incarnation, node; /* of the process that runs or is next */
    int64_t pid, restarts, retries_max;
    uint64_t pending_max; /* calls under way, of this process; 0 = none */
    char *retry_on;       /* caller_types.h; NULL = none */
    char *label;          /* name, else type; NULL while asked */
    char *devices;
    char *waiting_for;
    bool draining;
    uint64_t drain_ms;
    bool must_ask; /* the head will not tell of changes: ask again when there is a reason to */

    bool has_death; /* of the last incarnation that ended */
    uint64_t death_incarnation, death_node;
    int64_t death_pid;
    uint64_t death_cause;
    int64_t death_signal, death_exit_code;
    bool death_final;
    char *death_message, *death_stderr, *death_core;

    uint64_t connected;   /* incarnation that calls go to; 0 = none, calls wait */
    uint64_t connection;  /* number of the last one made */
    char *endpoint;       /* that it goes to */
    uint64_t seq;         /* calls sent to it so far */
    uint32_t in_flight;   /* of those, how many are under way */
    uint32_t first, last; /* calls under way, in call order */
    uint32_t call_count;  /* of these */
    bool told_crowd;      /* that they are very many */

    trp_code fault; /* why calls fail now; TRP_OK = they do not */
    char *fault_text;
    bool fault_is_lasting; /* no retry helps */

    bool monitored, told_final;
} trpi_view;

/* Views by actor id. Their places (indexes) last as long as the table. */
typedef struct trpi_views {
    trpi_view *items;
    uint32_t count, capacity;
    uint32_t *buckets; /* index + 1; 0 = empty. Open addressing, never more than half full */
    uint32_t bucket_count;
} trpi_views;

void trpi_views_release(trpi_views *views);
trpi_view *trpi_views_find(const trpi_views *views, uint64_t actor); /* NULL: never asked for */
trpi_view *trpi_views_add(trpi_views *views, uint64_t actor);        /* one that is not there yet */

/* Whether the head's word is older than what is known, or repeats what is final. */
bool trpi_view_is_stale(const trpi_view *view, const trpi_msg_actor_state *state);
/* Takes the head's word over. Returns whether it tells of a death that was not known. */
bool trpi_view_update(trpi_view *view, const trpi_msg_actor_state *state);
/* There is no such actor (any more), and nobody knows how it ended. */
void trpi_view_lose(trpi_view *view, const char *why);

void trpi_view_set_endpoint(trpi_view *view, const char *endpoint);
void trpi_view_set_fault(trpi_view *view, trp_code code, bool lasting, const char *text);

/* "actor a7 (counter)" */
void trpi_view_who(const trpi_view *view, char *out, size_t size);
/* "actor a7 (counter) on node n1, pid 123: ended by a signal: signal 9 (SIGKILL)" */
void trpi_view_death_text(const trpi_view *view, char *out, size_t size);
void trpi_view_get_death(const trpi_view *view, trp_death *ret_death);
void trpi_view_get_info(const trpi_view *view, trp_actor_info *ret_info);

#endif

/* link.h: one side of a reliable link, as a pure machine: what is lost, repeated or left over from
 * an earlier life shows here and nowhere above. Knows no message, socket or clock.
 *
 * Each message (data) has a number and is kept by its sender until it is confirmed. Confirmations
 * are cumulative and ride on whatever goes the other way; one of its own is sent only when much is
 * owed, when the other side asks, or when something is missing:
 *
 *     opener                                 accepter
 *       │ ── OPEN 1 ──────────────────────────> │  1  a link begins with the first word of its
 * opener │ <──────────────────────── DATA 1, ack 1 │     in a ping-pong nothing is added │ ── DATA
 * 2, ack 1 ───────── (lost)       │ │ ── PROBE, next 3 ───────────────────> │  2  unconfirmed for a
 * while: asked, not repeated, │ <───────────────────────── ACK 1, gap │     since whoever is merely
 * busy must get no copies │ ── DATA 2, ack 1 ───────────────────> │  3  what is missing is sent
 * again, all from there on
 *
 * Lives: each side draws a number for its life of the link and says it with every message, and the
 * other side's with it, once that is known. Only an opener speaks before it knows the other side
 * (OPEN, which says instead when its life began), so
 *
 *     OPEN from a later life      the old link ends, another one begins       TRPI_LINK_REOPENED
 *     OPEN from an earlier life   it took its time; dropped                   TRPI_LINK_STALE
 *     to a life that is not mine  told so by RESET                            TRPI_LINK_FOREIGN
 *     RESET, or another life that an opener's accepter has now                TRPI_LINK_VOID
 *
 * After VOID nobody can tell what of the unconfirmed was taken, so it must not be sent again. An
 * opener begins anew with trpi_link_open(), an accepter drops the link. */
#ifndef TRPI_LINK_H
#define TRPI_LINK_H

#include "core/base/base.h"

typedef enum trpi_link_kind {
    TRPI_LINK_DATA,
    TRPI_LINK_ACK,
    TRPI_LINK_PROBE, /* answered by ACK */
    TRPI_LINK_RESET  /* there is no such link (any more) */
} trpi_link_kind;

/* What each message says of its link. Numbers are the low halves of 64 bits. */
typedef struct trpi_stamp {
    trpi_link_kind kind;
    bool is_open; /* `to` is not known yet: it says when the life began */
    bool has_gap; /* ACK: what follows `ack` was missed */
    uint32_t from, to;
    uint32_t seq; /* DATA: its number; else the number of the next DATA */
    uint32_t ack; /* all up to this one came; 0 with is_open */
} trpi_stamp;

typedef struct trpi_link_times {
    uint64_t probe_ns, probe_max_ns; /* asks after the first, and at most that long apart */
    uint64_t gap_ns;  /* between two complaints about, or repetitions of, one number */
    uint64_t idle_ns; /* an accepter looks this often whether the other is there */
    uint64_t away_ns; /* an accepter gives up whom it can't reach for this long */
} trpi_link_times;

typedef struct trpi_link {
    bool is_opener;
    bool has_moved;      /* something was confirmed, or heard when idle, since the timer was set */
    uint32_t mine, peer; /* lives; peer 0: not heard yet */
    uint32_t born;       /* the opener's life */
    uint32_t owed_count, owed_bytes; /* came, and not confirmed yet */
    uint64_t next, unconfirmed;      /* [unconfirmed, next) is to be kept */
    uint64_t expected;
    uint64_t complained_of, repeated_from; /* the last number, 0 = none, and when */
    uint64_t complained_ns, repeated_ns;
    uint64_t due_ns, step_ns; /* UINT64_MAX: no timer */
    uint64_t away_since_ns;   /* 0 = can be reached, as far as known */
} trpi_link;

/* Lives are not 0, and a new one is another number. born: of the same peer a later life has a
 * higher one, or the same; it may wrap. */
void trpi_link_open(trpi_link *link, uint32_t life, uint32_t born);
/* For the peer whose message this is, which must be is_open. Take the message next. */
void trpi_link_accept(trpi_link *link, uint32_t life, const trpi_stamp *stamp, uint64_t now_ns,
                      const trpi_link_times *times);

/* ---- Out ---- */

/* What a message that is about to be sent says. A confirmation that goes out with it is no longer
 * owed. */
void trpi_link_stamp(trpi_link *link, trpi_link_kind kind, trpi_stamp *ret_stamp);
/* The DATA that was stamped last is under way, and kept. */
void trpi_link_sent(trpi_link *link, uint64_t now_ns, const trpi_link_times *times);
/* Whether the other side could be reached just now, where that is known. */
void trpi_link_reached(trpi_link *link, bool was_reached, uint64_t now_ns,
                       const trpi_link_times *times);
/* The answer to a message for which there is no link. */
void trpi_link_refuse(const trpi_stamp *stamp, trpi_stamp *ret_reset);

/* ---- In ---- */

typedef enum trpi_link_verdict {
    TRPI_LINK_DELIVER,   /* DATA, the next one */
    TRPI_LINK_DUPLICATE, /* DATA that came before */
    TRPI_LINK_MISSED,    /* DATA before which something is missing: dropped, it comes again */
    TRPI_LINK_NOTED,     /* no DATA */
    TRPI_LINK_STALE,     /* dropped, without a word */
    TRPI_LINK_FOREIGN,   /* dropped; refuse it */
    TRPI_LINK_REOPENED,  /* drop what is kept, accept anew, take it again */
    TRPI_LINK_VOID       /* drop what is kept; open anew, or drop the link */
} trpi_link_verdict;

typedef struct trpi_link_work {
    uint64_t confirmed; /* so many of the oldest that are kept can go */
    bool must_ack;      /* send ACK, */
    bool has_gap;       /* ... with this */
    bool must_repeat;   /* send all that is kept again */
} trpi_link_work;

/* Whether it is DATA as it should be, for which trpi_link_take() need not know the time. */
bool trpi_link_is_in_turn(const trpi_link *link, const trpi_stamp *stamp,
                          const trpi_link_times *times);
/* bytes: of DATA, to know how much is owed. */
trpi_link_verdict trpi_link_take(trpi_link *link, const trpi_stamp *stamp, size_t bytes,
                                 uint64_t now_ns, const trpi_link_times *times,
                                 trpi_link_work *ret_work);

typedef enum trpi_link_task {
    TRPI_LINK_REST,
    TRPI_LINK_ASK,    /* send PROBE */
    TRPI_LINK_LOOK,   /* send ACK: it tells whether the other side can be reached */
    TRPI_LINK_GIVE_UP /* drop the link */
} trpi_link_task;

/* What time asks for, from link->due_ns on. */
trpi_link_task trpi_link_tick(trpi_link *link, uint64_t now_ns, const trpi_link_times *times);

bool trpi_link_is_idle(const trpi_link *link); /* nothing is kept */
/* NULL, or which invariant broke. */
const char *trpi_link_check(const trpi_link *link);

#endif

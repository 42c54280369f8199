/* room.h: where the ranks of one attempt meet on one host: a piece of shared memory without a name.
 *
 *   head                 magic, sizes, world, token; why it is broken, once it is
 *   seat[world]          who sits there; how far it has come (phase); what it calls at the moment
 *   slot[world][2]       bytes that a rank offers to the others, in alternate rounds
 *
 * Rank 0's process makes a memfd. The address names it as /proc/<pid>/fd/<fd>: whoever may see that
 * process may open it, as long as it lives and holds it. There is no name in the file system and no
 * System V id, so nothing can leak: when the last process is gone, by whatever death, so is the
 * memory. A stranger (other token, other world, another file under a number used again) is refused;
 * the file is sealed against change of size, so that no access can fault.
 *
 * Phases. Every rank counts the points at which all must meet. trpi_room_meet() steps its own phase
 * and waits until all others have reached it; with all ranks making the same calls, a phase means
 * the same to all. That they do make the same calls is checked at the first meeting of each call.
 *
 * Slots. In round k a rank may write its slot k % 2 before the round's first meeting, and read all
 * slots k % 2 after it until it turns to round k + 1. That is safe without another meeting: who has
 * met in round k - 1 knows that all are through with round k - 2, which used the same slot.
 * The calls' descriptions alternate likewise, by the call's number.
 *
 * Waiting is a short spin, then a futex with bounded sleep: a waker that dies before its wake costs
 * milliseconds, an abort or a deadline is seen within 10 ms. Peers are watched through pidfds, so a
 * killed one is named long before any deadline.
 *
 * Threads: as comm.h says; trpi_room_abort() from any. */
#ifndef TRPI_ROOM_H
#define TRPI_ROOM_H

#include "core/base/base.h"

#define TRPI_ROOM_SLOT_BYTES (512u << 10) /* a rank's two fit a second-level cache */

typedef struct trpi_room trpi_room;

#define TRPI_ROOM_OP_MAP(X)                                                                        \
    X(JOIN, "join")                                                                                \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(BROADCAST, "broadcast")                                                                      \
    X(BARRIER, "barrier")

typedef enum trpi_room_op {
#define X(name, text) TRPI_ROOM_##name,
    TRPI_ROOM_OP_MAP(X)
#undef X
        TRPI_ROOM_OP_COUNT
} trpi_room_op;

/* What must be equal on all ranks. Unused fields are 0. */
typedef struct trpi_room_call {
    uint32_t op, dtype, reduce, root;
    uint64_t count; /* elements; bytes for broadcast */
} trpi_room_call;

/* Makes the memory; the fd is close-on-exec. */
TRP_CHECKED trp_code trpi_room_create(int world, uint64_t token, int *ret_fd, trp_error *err);

/* `path` is /proc/<pid>/fd/<fd>. Takes seat `rank` and waits for the others. TRP_EDISCONNECTED:
 * nobody holds that memory any more; TRP_EINVALID: it is not this room; TRP_EEXISTS: the seat is
 * taken. */
TRP_CHECKED trp_code trpi_room_join(const char *path, int rank, int world, uint64_t token,
                                    uint64_t timeout_ms, trpi_room **ret_room, trp_error *err);
void trpi_room_leave(trpi_room *room); /* NULL is fine; never waits */

/* Breaks the room for all. */
void trpi_room_abort(trpi_room *room);

/* Begins a call; its deadline is timeout_ms from now. Then one or more rounds, each of them one or
 * more meetings, and trpi_room_turn() between rounds. After any error the room is broken. */
TRP_CHECKED trp_code trpi_room_enter(trpi_room *room, const trpi_room_call *call,
                                     uint64_t timeout_ms, trp_error *err);
TRP_CHECKED trp_code trpi_room_meet(trpi_room *room, trp_error *err);
void trpi_room_turn(trpi_room *room);
void *trpi_room_slot(trpi_room *room, int rank); /* of the current round; TRPI_ROOM_SLOT_BYTES */

#endif

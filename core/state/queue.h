/* queue.h: who waits, in order, without asking for everyone when something becomes free.
 *
 * Requests of one shape (the same bytes: amounts, affinity, strategy) are alike: when the first of
 * them finds no room, the others need not be tried. So they stand in one line per shape, and a walk
 * visits only the heads of the lines, oldest first:
 *
 *     uint64_t ticket = 0;
 *     while ((id = trpi_queue_next(&queue, &ticket)) != 0) {}
 *
 * When the walk removes the id that it stands on, the next of that line is visited in its turn.
 * Within a shape: first come, first served. Across shapes a small request may overtake a big one,
 * and the queue does nothing about that: whoever serves it does. At the head, who has waited for
 * RESERVE_AFTER_MS as the first of its line has room kept free on a node where it could fit, oldest
 * first (actors/state/cluster_turns.c). It gets its place when what is held of that room has come
 * back there; if that takes long the room is kept on the next node, for twice as long each time, so
 * that it gets in as soon as on some node all that is in its way ends within some time, however
 * long. Only what never ends anywhere keeps it out. */
#ifndef TRPI_QUEUE_H
#define TRPI_QUEUE_H

#include "core/base/table.h"
#include "core/state/index.h"

typedef struct trpi_queue {
    trpi_index lines; /* shape -> line */
    trpi_table heads; /* ticket of a line's first -> line */
    trpi_table seats; /* id -> where it stands */
    uint64_t last_ticket;
} trpi_queue; /* zero-initialize */

void trpi_queue_push(trpi_queue *queue, uint64_t id, trp_bytes shape); /* id must not be in it */
bool trpi_queue_remove(trpi_queue *queue, uint64_t id);                /* false: was not in it */
bool trpi_queue_has(const trpi_queue *queue, uint64_t id);
size_t trpi_queue_count(const trpi_queue *queue);
/* The head of the first line whose ticket is above *ticket, or 0. ret_length (may be NULL): how
 * many stand in that line. */
uint64_t trpi_queue_next(const trpi_queue *queue, uint64_t *ticket, size_t *ret_length);
void trpi_queue_release(trpi_queue *queue);
const char *trpi_queue_check(const trpi_queue *queue);

#endif

#include "core/state/queue.h"

#include <stdlib.h>
#include <string.h>

typedef struct seat seat;

typedef struct line {
    trp_bytes shape;  /* the index's own copy */
    trpi_table seats; /* ticket -> seat */
    uint64_t head;    /* smallest ticket in it: its key in queue->heads */
} line;

struct seat {
    uint64_t id, ticket;
    line *line;
};

void trpi_queue_push(trpi_queue *queue, uint64_t id, trp_bytes shape) {
    TRP_ASSERT(!trpi_queue_has(queue, id));
    seat *place = trpi_alloc(sizeof(*place));
    *place = (seat){.id = id, .ticket = ++queue->last_ticket};
    place->line = trpi_index_get(&queue->lines, shape);
    if (!place->line) {
        place->line = trpi_alloc(sizeof(*place->line));
        place->line->head = place->ticket;
        const char *key = trpi_index_put(&queue->lines, shape, place->line);
        place->line->shape = (trp_bytes){.data = key, .size = shape.size};
        trpi_table_put(&queue->heads, place->ticket, place->line);
    }
    trpi_table_put(&place->line->seats, place->ticket, place);
    trpi_table_put(&queue->seats, id, place);
}

/* The line's head has left: the next one takes over, or the line ends. */
static void advance(trpi_queue *queue, line *of) {
    trpi_table_remove(&queue->heads, of->head);
    if (of->seats.count == 0) {
        trpi_index_remove(&queue->lines, of->shape);
        trpi_table_release(&of->seats);
        free(of);
        return;
    }
    of->head = 0;
    (void)trpi_table_next(&of->seats, &of->head);
    trpi_table_put(&queue->heads, of->head, of);
}

bool trpi_queue_remove(trpi_queue *queue, uint64_t id) {
    seat *place = trpi_table_remove(&queue->seats, id);
    if (!place) {
        return false;
    }
    trpi_table_remove(&place->line->seats, place->ticket);
    if (place->line->head == place->ticket) {
        advance(queue, place->line);
    }
    free(place);
    return true;
}

bool trpi_queue_has(const trpi_queue *queue, uint64_t id) {
    return trpi_table_get(&queue->seats, id) != NULL;
}

size_t trpi_queue_count(const trpi_queue *queue) {
    return queue->seats.count;
}

uint64_t trpi_queue_next(const trpi_queue *queue, uint64_t *ticket, size_t *ret_length) {
    const line *found = trpi_table_next(&queue->heads, ticket);
    if (!found) {
        return 0;
    }
    if (ret_length) {
        *ret_length = found->seats.count;
    }
    const seat *first = trpi_table_get(&found->seats, found->head);
    return first->id;
}

void trpi_queue_release(trpi_queue *queue) {
    uint64_t id = 0;
    while (trpi_table_next(&queue->seats, &id)) {
        (void)trpi_queue_remove(queue, id);
    }
    trpi_table_release(&queue->seats);
    trpi_table_release(&queue->heads);
    trpi_index_release(&queue->lines);
}

const char *trpi_queue_check(const trpi_queue *queue) {
    size_t total = 0;
    uint64_t ticket = 0;
    line *of;
    while ((of = trpi_table_next(&queue->heads, &ticket)) != NULL) {
        uint64_t first = 0;
        if (!trpi_table_next(&of->seats, &first) || first != of->head || first != ticket) {
            return "queue: a line's head is not its first";
        }
        if (trpi_index_get(&queue->lines, of->shape) != of) {
            return "queue: a line is not found by its shape";
        }
        total += of->seats.count;
    }
    if (queue->heads.count != queue->lines.count) {
        return "queue: a line without head";
    }
    return total == queue->seats.count ? NULL : "queue: someone stands in no line";
}

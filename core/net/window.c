#include "core/net/window.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_FIRST 4

struct trpi_kept {
    zmq_msg_t head;
    zmq_msg_t *tail; /* of its own memory: few messages have one */
};

/* ---- Frames ---- */

void trpi_frames_close(trpi_frames *frames) {
    zmq_msg_close(&frames->head);
    if (frames->has_tail) {
        zmq_msg_close(&frames->tail);
    }
}

/* ZeroMQ wants the source writable, to count who shares it. Of two valid messages it can't fail. */
static void share(zmq_msg_t *dst, const zmq_msg_t *src) {
    zmq_msg_init(dst);
    (void)zmq_msg_copy(dst, (zmq_msg_t *)(uintptr_t)src);
}

void trpi_frames_share(trpi_frames *dst, const trpi_frames *src) {
    share(&dst->head, &src->head);
    dst->has_tail = src->has_tail;
    if (src->has_tail) {
        share(&dst->tail, &src->tail);
    }
}

/* ---- The ring ---- */

static struct trpi_kept *at(const trpi_window *window, uint32_t index) {
    return &window->kept[(window->first + index) & (window->capacity - 1)];
}

static bool grow(trpi_window *window) {
    uint32_t capacity = TRPI_MAX(2 * window->capacity, (uint32_t)CAPACITY_FIRST);
    struct trpi_kept *kept = malloc(capacity * sizeof(*kept));
    if (kept == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < window->count; i++) {
        struct trpi_kept *from = at(window, i);
        zmq_msg_init(&kept[i].head);
        (void)zmq_msg_move(&kept[i].head, &from->head);
        kept[i].tail = from->tail;
    }
    free(window->kept);
    window->kept = kept;
    window->first = 0;
    window->capacity = capacity;
    return true;
}

static size_t size_of(const struct trpi_kept *kept) {
    return zmq_msg_size(&kept->head) + (kept->tail != NULL ? zmq_msg_size(kept->tail) : 0);
}

bool trpi_window_push(trpi_window *window, const trpi_frames *frames) {
    zmq_msg_t *tail = NULL;
    if (window->count == window->capacity && !grow(window)) {
        return false;
    }
    if (frames->has_tail) {
        tail = malloc(sizeof(*tail));
        if (tail == NULL) {
            return false;
        }
        share(tail, &frames->tail);
    }
    struct trpi_kept *kept = at(window, window->count++);
    share(&kept->head, &frames->head);
    kept->tail = tail;
    window->bytes += size_of(kept);
    return true;
}

static void close_kept(trpi_window *window, struct trpi_kept *kept) {
    window->bytes -= size_of(kept);
    zmq_msg_close(&kept->head);
    if (kept->tail != NULL) {
        zmq_msg_close(kept->tail);
        free(kept->tail);
    }
}

void trpi_window_unpush(trpi_window *window) {
    close_kept(window, at(window, --window->count));
}

void trpi_window_drop(trpi_window *window, uint64_t count) {
    TRP_ASSERT(count <= window->count);
    for (; count > 0; count--) {
        close_kept(window, at(window, 0));
        window->first++;
        window->count--;
    }
}

void trpi_window_get(const trpi_window *window, uint32_t index, trpi_frames *ret_frames) {
    struct trpi_kept *kept = at(window, index);
    share(&ret_frames->head, &kept->head);
    ret_frames->has_tail = kept->tail != NULL;
    if (kept->tail != NULL) {
        share(&ret_frames->tail, kept->tail);
    }
}

void trpi_window_release(trpi_window *window) {
    trpi_window_drop(window, window->count);
    free(window->kept);
    memset(window, 0, sizeof(*window));
}

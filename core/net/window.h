/* window.h: messages that are kept until they are confirmed, oldest first. Large ones are shared
 * with ZeroMQ and not copied. */
#ifndef TRPI_WINDOW_H
#define TRPI_WINDOW_H

#include <zmq.h>

#include "core/base/base.h"

/* A message of one or two frames. */
typedef struct trpi_frames {
    zmq_msg_t head, tail;
    bool has_tail;
} trpi_frames;

void trpi_frames_close(trpi_frames *frames);
/* dst, which holds nothing, gets the same frames. */
void trpi_frames_share(trpi_frames *dst, const trpi_frames *src);

typedef struct trpi_window {
    struct trpi_kept *kept; /* a ring */
    uint32_t first, count, capacity;
    size_t bytes;
} trpi_window; /* zero-initialize */

/* Keeps the frames too. False: out of memory, and nothing has changed. */
TRP_CHECKED bool trpi_window_push(trpi_window *window, const trpi_frames *frames);
void trpi_window_unpush(trpi_window *window);               /* the newest */
void trpi_window_drop(trpi_window *window, uint64_t count); /* so many of the oldest */
/* Shares them; index 0 is the oldest. */
void trpi_window_get(const trpi_window *window, uint32_t index, trpi_frames *ret_frames);
void trpi_window_release(trpi_window *window); /* all, and its memory */

#endif

/* store_words.c: what is handed over between the store's thread and the daemon's loop. */
#include <stdlib.h>
#include <sys/eventfd.h>

#include "actors/proc/store_parts.h"
#include "core/base/log.h"

#define WORDS_MAX 65536 /* a loop that does not take them is about to end */

void trpi_store_frames_add(trpi_store_frames *frames, trp_bytes frame) {
    if (frames->count == WORDS_MAX) {
        return;
    }
    if (frames->count == frames->capacity) {
        frames->capacity = TRPI_MAX(2 * frames->capacity, (size_t)16);
        frames->items = trpi_realloc(frames->items, frames->capacity * sizeof(*frames->items));
    }
    trp_buf copy = {0};
    if (trp_buf_append(&copy, frame.data, frame.size) == TRP_OK) {
        frames->items[frames->count++] = copy;
    }
}

void trpi_store_frames_release(trpi_store_frames *frames) {
    for (size_t i = 0; i < frames->count; i++) {
        trp_buf_release(&frames->items[i]);
    }
    free(frames->items);
    *frames = (trpi_store_frames){0};
}

void trpi_store_say(trpi_store_server *server, const trpi_msg *msg) {
    trp_error error;
    if (trpi_encode(msg, &server->frame, &error) != TRP_OK) {
        trpi_log(TRPI_WARN, "message_lost", "to=head what=%s error=\"%s\"",
                 trpi_msg_name(msg->type), error.message);
        return;
    }
    pthread_mutex_lock(&server->lock);
    trpi_store_frames_add(&server->words, trp_buf_bytes(&server->frame));
    pthread_mutex_unlock(&server->lock);
    (void)!eventfd_write(server->event_fd, 1);
}

bool trpi_store_word(trpi_store_server *server, trp_buf *ret_frame) {
    bool found = false;
    pthread_mutex_lock(&server->lock);
    trpi_store_frames *words = &server->words;
    if (words->count > 0) {
        *ret_frame = words->items[0];
        words->count--;
        for (size_t i = 0; i < words->count; i++) { /* there are a few */
            words->items[i] = words->items[i + 1];
        }
        found = true;
    }
    pthread_mutex_unlock(&server->lock);
    return found;
}

void trpi_store_tell(trpi_store_server *server, trp_bytes frame) {
    pthread_mutex_lock(&server->lock);
    trpi_store_frames_add(&server->told, frame);
    pthread_mutex_unlock(&server->lock);
    (void)!eventfd_write(server->told_fd, 1);
}

trpi_store_figures trpi_store_server_figures(trpi_store_server *server) {
    pthread_mutex_lock(&server->lock);
    trpi_store_figures figures = server->figures;
    pthread_mutex_unlock(&server->lock);
    return figures;
}

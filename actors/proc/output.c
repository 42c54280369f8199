#include "actors/proc/output.h"

#include <string.h>

/* Keeps the last tail_max bytes; trimmed only when twice as many are there, so that each byte is
 * moved at most once. */
static void keep_tail(trpi_output *output, trp_bytes chunk) {
    size_t max = output->tail_max;
    if (max == 0) {
        return;
    }
    if (chunk.size > max) {
        chunk.data = (const char *)chunk.data + (chunk.size - max);
        chunk.size = max;
    }
    trp_buf *tail = &output->tail;
    if (tail->size + chunk.size > 2 * max) {
        size_t keep = max - chunk.size;
        memmove(tail->data, tail->data + (tail->size - keep), keep);
        tail->size = keep;
    }
    (void)!trp_buf_append(tail, chunk.data, chunk.size);
}

static void pass_line(trpi_output *output, trp_bytes end, trp_buf *lines) {
    if (trp_buf_reserve(lines, output->partial.size + end.size + 1) != TRP_OK) {
        return;
    }
    (void)!trp_buf_append(lines, output->partial.data, output->partial.size);
    (void)!trp_buf_append(lines, end.data, end.size);
    (void)!trp_buf_append(lines, "\n", 1);
    trp_buf_clear(&output->partial);
}

void trpi_output_feed(trpi_output *output, trp_bytes chunk, trp_buf *lines) {
    keep_tail(output, chunk);
    const char *data = chunk.data;
    size_t left = chunk.size;
    while (left > 0) {
        size_t room = TRPI_OUTPUT_LINE_MAX - output->partial.size;
        size_t span = TRPI_MIN(left, room);
        const char *newline = memchr(data, '\n', span);
        if (newline) {
            span = (size_t)(newline - data);
        }
        if (newline || span == room) {
            pass_line(output, (trp_bytes){data, span}, lines);
        } else {
            (void)!trp_buf_append(&output->partial, data, span);
        }
        span += newline != NULL;
        data += span;
        left -= span;
    }
    if (output->partial.size == 0) {
        trp_buf_release(&output->partial); /* thousands of quiet workers hold nothing */
    }
}

void trpi_output_finish(trpi_output *output, trp_buf *lines) {
    if (output->partial.size > 0) {
        pass_line(output, (trp_bytes){NULL, 0}, lines);
    }
}

void trpi_output_tail(const trpi_output *output, char *out, size_t size) {
    size_t room = TRPI_MIN(size - 1, output->tail_max);
    size_t count = output->tail.size;
    const char *data = (const char *)output->tail.data;
    if (count > room) {
        data += count - room;
        count = room;
        /* The first line is broken: leave it out, unless there is no other. */
        const char *newline = memchr(data, '\n', count);
        if (newline && newline + 1 < data + count) {
            count -= (size_t)(newline + 1 - data);
            data = newline + 1;
        }
    }
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (data[i] != '\0') {
            out[used++] = data[i];
        }
    }
    out[used] = '\0';
}

void trpi_output_release(trpi_output *output) {
    trp_buf_release(&output->partial);
    trp_buf_release(&output->tail);
}

/* joined.h: how small packets share a frame. Bytes only: no socket is known here.
 *
 * A frame costs about as much as everything else that is done for a small call. So a small body
 * travels in the frame of its header, and packets for one peer that are sent together travel in one
 * frame:
 *
 *     JOINED  size header  body
 *     BATCH   (size header  size body) ...
 *
 * No msgpack of ours begins with either byte; a header of another kind that does, or begins like a
 * stamp (stamp.h), is joined too, with or without a body. A size is one byte, or 0 and four bytes:
 * a reply with a number in it is then within the 33 bytes that ZeroMQ sends without asking for
 * memory. */
#ifndef TRPI_JOINED_H
#define TRPI_JOINED_H

#include "core/base/base.h"

/* Whether the two are to share a frame. */
bool trpi_joins(trp_bytes header, trp_bytes body);
size_t trpi_joined_size(trp_bytes header, trp_bytes body);
void trpi_join(unsigned char *out, trp_bytes header, trp_bytes body); /* that many bytes */
/* Takes a joined frame apart: *header is the frame, *body what came behind it. Others stay as they
 * are. False: it is damaged. */
TRP_CHECKED bool trpi_joined_split(trp_bytes *header, trp_bytes *body);

/* ---- Batches ---- */

#define TRPI_BATCH_MAX 128         /* packets */
#define TRPI_BATCH_MAX_BYTES 32000 /* with their sizes */

typedef struct trpi_batch { /* zero-initialize */
    trp_buf bytes;
    unsigned count;
} trpi_batch;

/* Whether a packet of that size still has room. */
bool trpi_batch_takes(const trpi_batch *batch, trp_bytes header, trp_bytes body);
/* One that it takes. TRP_ENOMEM: the batch is as before. */
TRP_CHECKED trp_code trpi_batch_add(trpi_batch *batch, trp_bytes header, trp_bytes body);
void trpi_batch_clear(trpi_batch *batch); /* the bytes stay where they are until the next one */
void trpi_batch_release(trpi_batch *batch);

/* The packets of a frame that is a batch: false: it is none. */
bool trpi_batch_open(trp_bytes frame, trp_bytes *ret_rest);
/* Takes the first packet off the rest. False: it is damaged. */
TRP_CHECKED bool trpi_batch_next(trp_bytes *rest, trp_bytes *ret_header, trp_bytes *ret_body);

#endif

/* codec.h: messages to bytes and back, over msgpack-c. Threads: any, no shared state. */
#ifndef TRPI_CODEC_H
#define TRPI_CODEC_H

#include "core/base/arena.h"
#include "core/wire/msg.h"

/* Appends the encoding of msg to out (cleared first). */
TRP_CHECKED trp_code trpi_encode(const trpi_msg *msg, trp_buf *out, trp_error *err);

/* Decodes a whole frame. Texts and lists live in the arena, BIN fields borrow from `frame`: the
 * message is valid as long as both are. Any bytes are safe; what does not decode exactly, or breaks
 * a rule of trpi_msg_invalid(), is TRP_EPROTOCOL with the message's name and field. Another
 * TRPI_WIRE_VERSION is TRP_EPROTOCOL with both versions. TRP_ENOMEM when memory or the arena's
 * limit is out: a frame of n bytes takes at most about 16 n of it. */
TRP_CHECKED trp_code trpi_decode(trp_bytes frame, trpi_arena *arena, trpi_msg *ret_msg,
                                 trp_error *err);

/* What a frame that does not decode was meant to be: its type and first number, so that a request
 * can be refused by its number. False when not even that can be read. */
TRP_CHECKED bool trpi_peek(trp_bytes frame, trpi_msg_type *ret_type, uint64_t *ret_first);

/* One line for logs, cut to size: "SPAWN request=3 type=counter ...". BIN shows its size. */
void trpi_msg_print(const trpi_msg *msg, char *out, size_t size);

#endif

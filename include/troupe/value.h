/* value.h: arguments and results as msgpack, built and read by a format, as printf and scanf do.
 *
 *   trp_pack(&args, err, "{s:i,s:[dd],s:b}", "step", (int64_t)7, "range", 0.5, 1.0, "last", true)
 *   trp_unpack(args, err, "{s:i,s:[dd],s?b}", "step", &step, "range", &low, &high, "last", &last)
 *
 *      trp_pack takes           trp_unpack fills     what it is
 *   i  int64_t                  int64_t *            an integer in range
 *   u  uint64_t                 uint64_t *           an integer that is not negative
 *   d  double                   double *             a number; integers are accepted
 *   b  int (0 or 1)             bool *               true or false
 *   s  const char *             char *, size_t       text, NULL packs nil; unpack copies it with a
 *                                                    NUL: no room, or a NUL inside, is an error
 *   S  const char *, size_t     trp_bytes *          text with its length; borrowed
 *   B  trp_bytes                trp_bytes *          bytes; borrowed
 *   F  const float *, size_t    float *, size_t *    numbers as packed little-endian bytes; unpack
 *   I  const int64_t *, size_t  int64_t *, size_t *  copies: *size_t is the room for them before,
 *                                                    and their number after; no room is an error
 *   a  trp_actor                trp_actor *          an actor's handle
 *   o  trp_object               trp_object *         an object's number
 *   n  nothing                  nothing              nil
 *   *  trp_bytes                trp_bytes *          any one value, packed already; borrowed
 *   [ ... ]                                          an array of exactly these values
 *   { s: ... }                                       a map; each key is a const char * argument
 *
 * When a map is read, every key must be there; "s?" instead of "s:" marks one that may be missing
 * or nil: its target stays as it is. A key that the format does not name is an error naming it,
 * unless the map ends with "...". Order does not matter; a key that comes twice is an error. Blanks
 * and commas in a format are ignored; a format that is wrong is TRP_EINVALID, too.
 *
 * No compiler checks these arguments: an integer constant needs its cast, (int64_t)7. Borrowed
 * bytes live as long as those that were read, and are not aligned. Nesting ends at 32 levels. */
#ifndef TROUPE_VALUE_H
#define TROUPE_VALUE_H

#include <troupe/actor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Appends one value; on failure (TRP_ENOMEM, TRP_EINVALID) the buffer is as it was. */
TRP_CHECKED trp_code trp_pack(trp_buf *buf, trp_error *err, const char *format, ...);

/* Reads exactly one value that is all of `bytes`. TRP_EINVALID says what was expected where and
 * what came: "argument step: expected an integer, got text"; targets may then be half filled.
 * Never trusts the input. */
TRP_CHECKED trp_code trp_unpack(trp_bytes bytes, trp_error *err, const char *format, ...);

/* The value as JSON-like text for people, appended: {"step": 7, "data": <3 bytes 0a0b0c>}. At most
 * `limit` bytes of it, cut between two characters, then "...". TRP_EINVALID: it is no one value. */
TRP_CHECKED trp_code trp_value_print(trp_bytes bytes, size_t limit, trp_buf *text, trp_error *err);

#ifdef __cplusplus
}
#endif
#endif

/* value.h: arguments and results as msgpack, built and read by a format, as printf and scanf do.
 *
 *   trp_pack(&args, "{s:i,s:[dd],s:b}", "step", (int64_t)7, "range", 0.5, 1.0, "last", true)
 *   trp_unpack(bytes, err, "{s:i,s?b}", "step", &step, "last", &last)
 *
 * Letters, with what trp_pack takes and what trp_unpack fills:
 *   i  int64_t            int64_t *        an integer in range
 *   u  uint64_t           uint64_t *
 *   d  double             double *         integers are accepted
 *   b  int (0 or 1)       bool *
 *   s  const char *       char *, size_t   text; NULL packs nil. unpack copies it with a NUL, and
 * it is an error when it does not fit or has a NUL inside S  const char *, size_t    trp_bytes *
 * text with its length, borrowed from the input B  trp_bytes          trp_bytes *      bytes,
 * borrowed from the input F  const float *, size_t   const float **, size_t *   an array of numbers
 * as bytes: little-endian, I  const int64_t *, size_t const int64_t **, size_t * packed; unpack
 * checks size and alignment a  trp_actor          trp_actor *      an actor's handle o  trp_object
 * trp_object *     an object's number n  nothing            nothing          nil
 *   *  trp_bytes          trp_bytes *      any one value, already packed; unpack borrows it whole
 *   [ ... ]  an array of exactly these        { key : value, ... }  a map; keys are strings given
 * as arguments ("s:" takes const char *). In unpack every key must be there, but "s?" marks one
 * that may be missing or nil (its target stays as it is), and a key of the input that the format
 * does not name is an error naming it unless the map ends with "...". Blanks and commas are
 * ignored. A format itself that is wrong is TRP_EINVALID too. */
#ifndef TROUPE_VALUE_H
#define TROUPE_VALUE_H

#include <troupe/actor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Appends; on failure (TRP_ENOMEM, TRP_EINVALID) the buffer is as it was. */
TRP_CHECKED trp_code trp_pack(trp_buf *buf, trp_error *err, const char *format, ...);

/* Reads exactly one value that is all of `bytes`. TRP_EINVALID says what was expected where and
 * what came: "argument step: expected an integer, got text". Never trusts the input. */
TRP_CHECKED trp_code trp_unpack(trp_bytes bytes, trp_error *err, const char *format, ...);

/* The value as JSON-like text for people, appended; long ones are cut at `limit` characters. */
TRP_CHECKED trp_code trp_value_print(trp_bytes bytes, size_t limit, trp_buf *text, trp_error *err);

#ifdef __cplusplus
}
#endif
#endif

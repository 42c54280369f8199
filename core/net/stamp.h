/* stamp.h: what a linked message says of its link (core/state/link.h), as the first bytes of its
 * first frame. Bytes only: no socket is known here.
 *
 *     mark  from  to  seq  ack        each number little-endian
 *
 * No msgpack of ours begins with a mark, and a header of another kind that does is joined
 * (joined.h): so linked messages and bare ones can be told apart. */
#ifndef TRPI_STAMP_H
#define TRPI_STAMP_H

#include "core/base/base.h"
#include "core/state/link.h"

#define TRPI_STAMP_SIZE 17
#define TRPI_STAMP_MARK 0xe0u /* with the kind and two flags in its low half */

void trpi_stamp_put(unsigned char *out, const trpi_stamp *stamp); /* that many bytes */
/* Takes it off the frame. False: the frame has none that can be, and stays as it is. */
TRP_CHECKED bool trpi_stamp_take(trp_bytes *frame, trpi_stamp *ret_stamp);

#endif

/* reader.h: a cursor over one frame of msgpack, which expects types instead of finding them out.
 *
 * msgpack-c's unpacker allocates for the length that an array claims before it has seen one
 * element, and builds a tree that would only be walked once to fill a struct. This reads in one
 * pass, and a list takes memory only for elements that the rest of the frame can really hold. Every
 * width that msgpack allows for a number or a length is taken. A function that returns false has
 * set `reason`; what it was to write is then not to be used. */
#ifndef TRPI_READER_H
#define TRPI_READER_H

#include "core/base/arena.h"

#define TRPI_READER_DEPTH 4 /* bundles.resources.amount takes 3 */

typedef struct trpi_reader {
    const unsigned char *at, *end;
    trpi_arena *arena;
    const char *reason;                  /* of the failure */
    const char *path[TRPI_READER_DEPTH]; /* field that failed, then the ones around it */
    int path_depth;
    bool out_of_memory;
} trpi_reader;

/* Says why, and returns false. */
static inline bool trpi_read_refuse(trpi_reader *in, const char *reason) {
    in->reason = reason;
    return false;
}

/* Names the field around a failure, inner ones first, and returns false. */
bool trpi_read_blame(trpi_reader *in, const char *field);

TRP_CHECKED bool trpi_read_u64(trpi_reader *in, uint64_t *ret_value);
TRP_CHECKED bool trpi_read_i64(trpi_reader *in, int64_t *ret_value);
TRP_CHECKED bool trpi_read_bool(trpi_reader *in, bool *ret_value);
TRP_CHECKED bool trpi_read_str(trpi_reader *in, const char **ret_text); /* lives in the arena */
TRP_CHECKED bool trpi_read_bin(trpi_reader *in, trp_bytes *ret_bytes);  /* borrows from the frame */
TRP_CHECKED bool trpi_read_array(trpi_reader *in, uint64_t *ret_count); /* its elements come next */

/* As an array, with memory (NULL for none) for its elements of `size` bytes here, which take at
 * least min_bytes each in the frame. */
TRP_CHECKED bool trpi_read_list(trpi_reader *in, size_t min_bytes, size_t size, void **ret_list,
                                size_t *ret_count);

#endif

/* token.h: the next thing of a msgpack value, whatever it is.
 *
 * reader.h expects types; this finds them out, for values whose shape is the user's own. Any bytes
 * are safe. A function that fails returns the reason, else NULL. */
#ifndef TRPI_TOKEN_H
#define TRPI_TOKEN_H

#include "core/base/base.h"

#define TRPI_VALUE_DEPTH 32 /* arrays and maps inside each other */

typedef enum trpi_token_kind {
    TRPI_TOKEN_NIL,
    TRPI_TOKEN_BOOL,
    TRPI_TOKEN_INTEGER,
    TRPI_TOKEN_FLOAT, /* 32 bits */
    TRPI_TOKEN_DOUBLE,
    TRPI_TOKEN_TEXT,
    TRPI_TOKEN_BYTES,
    TRPI_TOKEN_ARRAY, /* its elements come next */
    TRPI_TOKEN_MAP,   /* its keys and values come next, in turn */
    TRPI_TOKEN_EXTENSION
} trpi_token_kind;

typedef struct trpi_token {
    trpi_token_kind kind;
    bool boolean;
    bool negative;   /* INTEGER: `number` is an int64_t's bits */
    uint64_t number; /* INTEGER */
    double real;     /* FLOAT, DOUBLE */
    trp_bytes body;  /* TEXT, BYTES, EXTENSION; borrowed */
    int8_t type;     /* EXTENSION */
    uint32_t count;  /* ARRAY: elements; MAP: pairs */
} trpi_token;

/* "text", "an array", ...; static. */
const char *trpi_token_text(trpi_token_kind kind);

/* Takes one token from the front of *in. */
TRP_CHECKED const char *trpi_token_take(trp_bytes *in, trpi_token *ret_token);

/* Takes one whole value, of at most `depth` levels, from the front of *in. */
TRP_CHECKED const char *trpi_value_take(trp_bytes *in, int depth);

/* Whether the bytes are one value of at most `depth` levels and nothing else: TRP_EINVALID
 * otherwise. What has passed can be taken apart by the two functions above, which do not fail then.
 */
TRP_CHECKED trp_code trpi_value_check(trp_bytes bytes, int depth, trp_error *err);

#endif

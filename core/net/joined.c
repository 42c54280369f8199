#include "core/net/joined.h"

#include <string.h>

#define JOINED 0xc1
#define BATCH 0xc0
#define STAMPED 0xe0 /* the first half of a byte: stamp.h */
#define SMALL_MAX_BYTES 4096
#define SIZE_MAX_BYTES 5 /* 0 and four */

static bool is_marked(trp_bytes header) {
    const unsigned char *first = header.data;
    return header.size > 0 && (*first == JOINED || *first == BATCH || (*first & 0xf0) == STAMPED);
}

/* ---- Sizes ---- */

static size_t size_of_size(size_t size) {
    return size > 0 && size <= UINT8_MAX ? 1 : SIZE_MAX_BYTES;
}

/* Returns what is behind it. */
static unsigned char *put_size(unsigned char *out, size_t size) {
    if (size_of_size(size) == 1) {
        *out = (unsigned char)size;
        return out + 1;
    }
    *out++ = 0;
    for (int i = 0; i < 4; i++) {
        *out++ = (unsigned char)(size >> (8 * i));
    }
    return out;
}

static unsigned char *put_bytes(unsigned char *out, trp_bytes bytes) {
    if (bytes.size > 0) {
        memcpy(out, bytes.data, bytes.size);
    }
    return out + bytes.size;
}

/* Takes the size off the rest. False: there is none. */
static bool take_size(trp_bytes *rest, size_t *ret_size) {
    const unsigned char *at = rest->data;
    size_t taken = 1, size = 0;
    if (rest->size > 0 && *at != 0) {
        size = *at;
    } else if (rest->size >= SIZE_MAX_BYTES) {
        taken = SIZE_MAX_BYTES;
        for (int i = 0; i < 4; i++) {
            size |= (size_t)at[1 + i] << (8 * i);
        }
    } else {
        return false;
    }
    *rest = (trp_bytes){at + taken, rest->size - taken};
    *ret_size = size;
    return true;
}

/* Takes a size and that many bytes off the rest. */
static bool take_bytes(trp_bytes *rest, trp_bytes *ret_bytes) {
    size_t size;
    if (!take_size(rest, &size) || size > rest->size) {
        return false;
    }
    *ret_bytes = (trp_bytes){rest->data, size};
    *rest = (trp_bytes){(const unsigned char *)rest->data + size, rest->size - size};
    return true;
}

/* ---- One packet ---- */

bool trpi_joins(trp_bytes header, trp_bytes body) {
    bool is_small = body.size > 0 && body.size <= SMALL_MAX_BYTES && header.size <= SMALL_MAX_BYTES;
    return is_small || (is_marked(header) && header.size <= UINT32_MAX);
}

size_t trpi_joined_size(trp_bytes header, trp_bytes body) {
    return 1 + size_of_size(header.size) + header.size + body.size;
}

void trpi_join(unsigned char *out, trp_bytes header, trp_bytes body) {
    *out = JOINED;
    out = put_size(out + 1, header.size);
    put_bytes(put_bytes(out, header), body);
}

bool trpi_joined_split(trp_bytes *header, trp_bytes *body) {
    if (!is_marked(*header)) {
        return true;
    }
    const unsigned char *frame = header->data;
    trp_bytes rest = {frame + 1, header->size - 1};
    if (*frame != JOINED || !take_bytes(&rest, header) || (rest.size > 0 && body->data != NULL)) {
        return false;
    }
    if (rest.size > 0) {
        *body = rest;
    }
    return true;
}

/* ---- Several ---- */

static size_t packet_size(trp_bytes header, trp_bytes body) {
    return size_of_size(header.size) + header.size + size_of_size(body.size) + body.size;
}

bool trpi_batch_takes(const trpi_batch *batch, trp_bytes header, trp_bytes body) {
    return batch->count < TRPI_BATCH_MAX && header.size <= SMALL_MAX_BYTES &&
           body.size <= SMALL_MAX_BYTES &&
           TRPI_MAX(batch->bytes.size, (size_t)1) + packet_size(header, body) <=
               TRPI_BATCH_MAX_BYTES;
}

trp_code trpi_batch_add(trpi_batch *batch, trp_bytes header, trp_bytes body) {
    trp_buf *bytes = &batch->bytes;
    TRP_ASSERT(trpi_batch_takes(batch, header, body));
    if (bytes->capacity < TRPI_BATCH_MAX_BYTES) {
        trp_code code = trp_buf_reserve(bytes, TRPI_BATCH_MAX_BYTES);
        if (code != TRP_OK) {
            return code;
        }
    }
    if (batch->count++ == 0) {
        bytes->data[0] = BATCH;
        bytes->size = 1;
    }
    unsigned char *at = (unsigned char *)bytes->data + bytes->size;
    at = put_bytes(put_size(at, header.size), header);
    put_bytes(put_size(at, body.size), body);
    bytes->size += packet_size(header, body);
    return TRP_OK;
}

void trpi_batch_clear(trpi_batch *batch) {
    batch->count = 0;
    batch->bytes.size = 0;
}

void trpi_batch_release(trpi_batch *batch) {
    trp_buf_release(&batch->bytes);
    batch->count = 0;
}

bool trpi_batch_open(trp_bytes frame, trp_bytes *ret_rest) {
    const unsigned char *first = frame.data;
    if (frame.size < 2 || *first != BATCH) {
        return false;
    }
    *ret_rest = (trp_bytes){first + 1, frame.size - 1};
    return true;
}

bool trpi_batch_next(trp_bytes *rest, trp_bytes *ret_header, trp_bytes *ret_body) {
    if (!take_bytes(rest, ret_header) || !take_bytes(rest, ret_body)) {
        return false;
    }
    if (ret_body->size == 0) {
        *ret_body = (trp_bytes){NULL, 0}; /* as of a packet without one */
    }
    return true;
}

/* bytes.h: borrowed bytes (trp_bytes) and owned, growing bytes (trp_buf). */
#ifndef TROUPE_BYTES_H
#define TROUPE_BYTES_H

#include <troupe/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Borrowed: valid as long as whoever handed it out says. data may be NULL when size is 0. */
typedef struct trp_bytes {
    const void *data;
    size_t size;
} trp_bytes;

/* Owned and growing. Zero-initialize; fields are read-only to callers. */
typedef struct trp_buf {
    unsigned char *data;
    size_t size;
    size_t capacity;
} trp_buf;

/* Appends a copy of `size` bytes. TRP_ENOMEM leaves the buffer as it was. */
TRP_CHECKED trp_code trp_buf_append(trp_buf *buf, const void *data, size_t size);

/* Makes room for `size` more bytes, so that the next appends up to it cannot fail. */
TRP_CHECKED trp_code trp_buf_reserve(trp_buf *buf, size_t size);

/* Appends printf-formatted text, without the closing NUL (one is kept behind the end, uncounted,
 * so that buf->data can be read as a C string). */
TRP_CHECKED trp_code trp_buf_printf(trp_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Forgets the content, keeps the memory. */
void trp_buf_clear(trp_buf *buf);

/* Gives the memory back and zeroes the struct. NULL is fine. */
void trp_buf_release(trp_buf *buf);

/* The content as borrowed bytes, valid until the buffer changes. */
trp_bytes trp_buf_bytes(const trp_buf *buf);

/* Borrowed bytes of a C string, without its NUL. NULL gives no bytes. */
trp_bytes trp_bytes_of(const char *text);

#ifdef __cplusplus
}
#endif
#endif

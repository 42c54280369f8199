/* base.h: what every file may use. Knows only libc. */
#ifndef TRPI_BASE_H
#define TRPI_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <troupe/bytes.h>
#include <troupe/error.h>

#define TRPI_COUNTOF(a) (sizeof(a) / sizeof((a)[0]))
#define TRPI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TRPI_MAX(a, b) ((a) > (b) ? (a) : (b))

/* For our own mistakes only, in release builds too. Bytes from wire, disk, environment or user are
 * never asserted on: they get TRP_EPROTOCOL, TRP_ECORRUPT or TRP_EINVALID. */
#define TRP_ASSERT(condition)                                                                      \
    ((condition) ? (void)0 : trpi_assert_failed(#condition, __FILE__, __LINE__))
_Noreturn void trpi_assert_failed(const char *condition, const char *file, int line);

/* Writes code and message into err (may be NULL) and returns code. */
trp_code trpi_fail(trp_error *err, trp_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before err's message while unwinding. Sets err's code to `code`, and returns
 * it. */
trp_code trpi_context(trp_error *err, trp_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes *err empty (code TRP_OK). NULL is fine. */
void trpi_error_clear(trp_error *err);

/* Allocation that can fail is malloc/calloc with a check. These are for small things of our own
 * whose loss nothing survives (tables of the head, a client's calls): they end the process with one
 * line when memory is out. */
void *trpi_alloc(size_t bytes); /* zeroed */
void *trpi_realloc(void *data, size_t bytes);
char *trpi_strdup(const char *text); /* NULL gives "" */

/* snprintf that always terminates; a text that does not fit is cut. dst must not be
 * one of the arguments. */
void trpi_format(char *dst, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Copies a string into a fixed array, cut to fit. */
#define TRPI_SET(array, text) trpi_format((array), sizeof(array), "%s", (text))

/* Strict: the whole string, in range, no leading blanks. */
TRP_CHECKED bool trpi_parse_u64(const char *text, uint64_t max, uint64_t *ret_value);
TRP_CHECKED bool trpi_parse_i64(const char *text, int64_t min, int64_t max, int64_t *ret_value);
TRP_CHECKED bool trpi_parse_double(const char *text, double *ret_value); /* finite */

/* The nearest of `count` words by edit distance (the first of equals), or NULL if none is near:
 * "did you mean". */
const char *trpi_nearest(const char *word, const char *const *words, size_t count);

#endif

/* listing.h: what `troupe list` shows, as JSON. */
#ifndef TEST_LISTING_H
#define TEST_LISTING_H

#include <jansson.h>
#include <troupe/runtime.h>

/* "actors", "nodes", "status", ...; the caller's. Fails the test when the head does not answer. */
json_t *test_list(trp_runtime *rt, const char *what);

/* Of a list's rows the one with this number or text there; borrowed, NULL if there is none. */
json_t *test_row(const json_t *rows, const char *key, uint64_t number);
json_t *test_row_named(const json_t *rows, const char *key, const char *text);

const char *test_row_text(const json_t *row, const char *key); /* "" if it has none */
long long test_row_number(const json_t *row, const char *key); /* 0 likewise */

/* Of one actor: what the list tells of it; fails the test when it isn't listed. */
json_t *test_listed_actor(trp_runtime *rt, trp_actor actor);

/* The first JSON text that begins a line of a command's captured output, NULL if there is none.
 * What came by stderr, a warning or a sanitizer's word, may stand before and behind it. */
json_t *test_json_in(const char *output);

#endif

/* filter.h: which rows of a list are shown, and in which order. */
#ifndef TRPI_FILTER_H
#define TRPI_FILTER_H

#include "actors/bin/options.h"
#include "core/base/json.h"

/* A row's member by its key; "death.cause" is a member of a member. NULL: none. */
json_t *trpi_member(json_t *row, const char *key);

/* Keeps the rows for which every filter holds: "state=alive", "node!=n2". Texts are equal whatever
 * their case; of a list (labels) one must be equal; ids may have their letter. TRP_EINVALID: a
 * filter is none, or no row has such a key, with the nearest that some have. */
TRP_CHECKED trp_code trpi_filter(json_t *rows, const trpi_words *filters, trp_error *err);

/* By the value of a key: numbers by size, texts by bytes; "-age_s": largest first. */
TRP_CHECKED trp_code trpi_sort(json_t *rows, const char *key, trp_error *err);

#endif

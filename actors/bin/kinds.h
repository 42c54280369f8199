/* kinds.h: what a cluster has of things: their names, how ids are written, how rows are shown. */
#ifndef TRPI_KINDS_H
#define TRPI_KINDS_H

#include "actors/bin/rows.h"

typedef struct trpi_kind {
    const char *one, *many;       /* "actor", "actors"; the head lists it as the latter */
    const char *prefix;           /* of an id: "a"; NULL: it is known by its name */
    void (*prepare)(json_t *row); /* adds members that only tables show */
    trpi_column columns[13];
    size_t column_count;
} trpi_kind;

extern const trpi_kind trpi_kinds[];
extern const size_t trpi_kind_count;

#define TRPI_KINDS_TEXT "nodes|actors|groups|gangs|jobs|runs"
#define TRPI_KIND_TEXT "node|actor|group|gang|job|run"

/* By "actor" or "actors". NULL: there is none, which is said on stderr with the nearest. */
const trpi_kind *trpi_kind_find(const char *command, const char *word);

/* "7" or "a7"; another kind's id, or what is none, is said on stderr with what is allowed. */
TRP_CHECKED bool trpi_kind_id(const char *command, const trpi_kind *kind, const char *word,
                              uint64_t *ret_id);

/* Prints rows as the table of their kind. */
void trpi_kind_print(FILE *out, const trpi_kind *kind, json_t *rows);

#endif

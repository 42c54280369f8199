/* rows.h: JSON objects as an aligned table. */
#ifndef TRPI_ROWS_H
#define TRPI_ROWS_H

#include <stdio.h>

#include "core/base/json.h"

typedef struct trpi_column {
    const char *title;
    const char *key;
    const char *prefix; /* before a number that is an id: "n", "a"; 0 shows as "-" */
} trpi_column;

/* One line per object, after the titles. Members that no column names do not show; a column that no
 * object has is left out. */
void trpi_rows_print(FILE *out, json_t *rows, const trpi_column *columns, size_t count);

/* An amount of a resource; memory, which is counted in MiB, in human sizes. */
void trpi_rows_amount(const char *name, json_t *value, char *out, size_t size);

/* Any value in one line: objects as "cpu 4, gpu 1", with memory in human sizes. */
void trpi_value_text(json_t *value, const char *prefix, char *out, size_t size);

/* The JSON text and a newline. */
void trpi_json_print(FILE *out, json_t *value);

/* The value of --format. False: it is neither table nor json, which is said on stderr. */
TRP_CHECKED bool trpi_parse_format(const char *command, const char *text, bool *ret_is_json);

#endif

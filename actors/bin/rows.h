/* rows.h: JSON objects as an aligned table. */
#ifndef TRPI_ROWS_H
#define TRPI_ROWS_H

#include <stdio.h>

#include "core/base/json.h"

typedef enum trpi_unit { TRPI_PLAIN, TRPI_SECONDS, TRPI_BYTES } trpi_unit;

typedef struct trpi_column {
    const char *title;
    const char *key;
    const char *prefix; /* before a number that is an id: "n", "a"; 0 shows as "-" */
    trpi_unit unit;     /* of a number: how people write it */
} trpi_column;

/* One line per object, after the titles. Members that no column names do not show; a column that no
 * object has, or all of them empty, is left out. On a terminal the longest columns are cut until a
 * line fits, and states have colors (unless NO_COLOR is set). */
void trpi_rows_print(FILE *out, json_t *rows, const trpi_column *columns, size_t count);

/* An amount of a resource; memory, which is counted in MiB, in human sizes. */
void trpi_rows_amount(const char *name, json_t *value, char *out, size_t size);

/* One "key: value" line per member; objects in objects are indented, texts of several lines too.
 * `prefix`: of its id; or NULL. */
void trpi_row_print(FILE *out, json_t *row, const char *prefix);

/* Any value in one line: objects as "cpu 4, gpu 1", with memory in human sizes. */
void trpi_value_text(json_t *value, const char *prefix, char *out, size_t size);

/* The JSON text and a newline. */
void trpi_json_print(FILE *out, json_t *value);

/* The value of --format. False: it is neither table nor json, which is said on stderr. */
TRP_CHECKED bool trpi_parse_format(const char *command, const char *text, bool *ret_is_json);

#endif

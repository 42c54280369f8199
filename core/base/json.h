/* json.h: strict reading and writing of JSON over jansson, the only place that parses it. Errors
 * name file (or "text"), line, column and what was expected. */
#ifndef TRPI_JSON_H
#define TRPI_JSON_H

#include <jansson.h>

#include "core/base/base.h"

/* Duplicate keys are errors. `where` is for messages. Free with json_decref(). */
TRP_CHECKED trp_code trpi_json_parse(const char *text, size_t size, const char *where,
                                     json_t **ret_json, trp_error *err);
TRP_CHECKED trp_code trpi_json_load(const char *path, json_t **ret_json, trp_error *err);

/* Typed access to an object's member. A whole number may be written as 5e8 or 2.0, as far as a
 * double tells whole numbers apart (2^53). When `required` and missing, or of the wrong type:
 * TRP_EINVALID with `where.key`. Missing and not required: *ret untouched, TRP_OK. */
TRP_CHECKED trp_code trpi_json_i64(json_t *object, const char *where, const char *key,
                                   bool required, int64_t *ret_value, trp_error *err);
TRP_CHECKED trp_code trpi_json_number(json_t *object, const char *where, const char *key,
                                      bool required, double *ret_value, trp_error *err);
TRP_CHECKED trp_code trpi_json_bool(json_t *object, const char *where, const char *key,
                                    bool required, bool *ret_value, trp_error *err);
/* Borrowed from the object. */
TRP_CHECKED trp_code trpi_json_text(json_t *object, const char *where, const char *key,
                                    bool required, const char **ret_value, trp_error *err);

/* Every key of the object must be one of `keys`; otherwise TRP_EINVALID names it, its place and the
 * nearest valid one. */
TRP_CHECKED trp_code trpi_json_only(json_t *object, const char *where, const char *const *keys,
                                    size_t count, trp_error *err);

/* A string of a text that may be anything: what is not UTF-8 in it becomes U+FFFD. NULL when memory
 * is out. */
json_t *trpi_json_of_text(const char *text);

/* Appends the text of the value, without blanks or line breaks. */
TRP_CHECKED trp_code trpi_json_write(const json_t *json, trp_buf *out, trp_error *err);

#endif

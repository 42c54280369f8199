/* value_format.h: the formats of value.h, walked by those who pack and unpack by them. */
#ifndef TRPI_VALUE_FORMAT_H
#define TRPI_VALUE_FORMAT_H

#include "core/base/base.h"

typedef struct trpi_format_cursor {
    const char *text, *at;
    trp_error *err;
} trpi_format_cursor;

/* The letter that comes next, blanks and commas left out, '\0' at the end; peek does not take it.
 */
char trpi_format_peek(trpi_format_cursor *format);
char trpi_format_next(trpi_format_cursor *format);

/* How many values, or pairs of a map, come before the closing bracket of where it stands. */
size_t trpi_format_count(const trpi_format_cursor *format);

/* TRP_EINVALID with the format, the place in it, and what is wrong. */
trp_code trpi_format_wrong(const trpi_format_cursor *format, const char *what);

/* Takes "s:" or, where ret_optional is not NULL, "s?". */
TRP_CHECKED trp_code trpi_format_key(trpi_format_cursor *format, bool *ret_optional);

/* Whether `closing` has been taken; an end of the format before it is TRP_EINVALID. */
TRP_CHECKED trp_code trpi_format_closes(trpi_format_cursor *format, char closing, bool *ret_closes);

/* TRP_EINVALID unless the format has come to its end. */
TRP_CHECKED trp_code trpi_format_end(trpi_format_cursor *format);

#endif

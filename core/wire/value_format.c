/* value_format.c: letters, brackets and keys of a format. */
#include "core/wire/value_format.h"

#include <string.h>

char trpi_format_peek(trpi_format_cursor *format) {
    format->at += strspn(format->at, " \t\n,");
    return *format->at;
}

char trpi_format_next(trpi_format_cursor *format) {
    char letter = trpi_format_peek(format);
    format->at += letter != '\0';
    return letter;
}

size_t trpi_format_count(const trpi_format_cursor *format) {
    trpi_format_cursor rest = *format;
    size_t count = 0;
    int depth = 0;
    for (char letter; (letter = trpi_format_next(&rest)) != '\0';) {
        if (strchr("]}", letter) != NULL && depth-- == 0) {
            break;
        }
        count += depth == 0 && strchr(":?]}", letter) == NULL;
        if (depth == 0 && strchr(":?", letter) != NULL) {
            count--; /* a key and its value are one pair */
        }
        depth += strchr("[{", letter) != NULL;
    }
    return count;
}

trp_code trpi_format_wrong(const trpi_format_cursor *format, const char *what) {
    return trpi_fail(format->err, TRP_EINVALID, "format \"%s\", at %td: %s", format->text,
                     format->at - format->text, what);
}

trp_code trpi_format_key(trpi_format_cursor *format, bool *ret_optional) {
    bool is_key = trpi_format_next(format) == 's';
    char mark = trpi_format_next(format);
    if (!is_key || (mark != ':' && (mark != '?' || ret_optional == NULL))) {
        return trpi_format_wrong(format, ret_optional != NULL ? "expected a key, \"s:\" or \"s?\""
                                                              : "expected a key, \"s:\"");
    }
    if (ret_optional != NULL) {
        *ret_optional = mark == '?';
    }
    return TRP_OK;
}

trp_code trpi_format_closes(trpi_format_cursor *format, char closing, bool *ret_closes) {
    char letter = trpi_format_peek(format);
    if (letter == '\0') {
        return trpi_format_wrong(format, closing == ']' ? "] is missing" : "} is missing");
    }
    *ret_closes = letter == closing;
    format->at += *ret_closes;
    return TRP_OK;
}

trp_code trpi_format_end(trpi_format_cursor *format) {
    return trpi_format_peek(format) == '\0' ? TRP_OK
                                            : trpi_format_wrong(format, "more than one value");
}

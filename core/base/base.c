/* base.c: assertion, allocation that may not fail, strict parsing, nearest word. */
#include "core/base/base.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void trpi_assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "troupe: bug at %s:%d: %s does not hold\n", file, line, condition);
    abort();
}

/* ---- Memory ---- */

_Noreturn static void out_of_memory(size_t bytes) {
    fprintf(stderr, "troupe: out of memory (%zu bytes)\n", bytes);
    abort();
}

void *trpi_alloc(size_t bytes) {
    void *data = calloc(1, bytes > 0 ? bytes : 1);
    if (data == NULL) {
        out_of_memory(bytes);
    }
    return data;
}

void *trpi_realloc(void *data, size_t bytes) {
    void *moved = realloc(data, bytes > 0 ? bytes : 1);
    if (moved == NULL) {
        out_of_memory(bytes);
    }
    return moved;
}

char *trpi_strdup(const char *text) {
    size_t size = text != NULL ? strlen(text) : 0;
    char *copy = trpi_alloc(size + 1);
    if (size > 0) {
        memcpy(copy, text, size);
    }
    return copy;
}

void trpi_format(char *dst, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)vsnprintf(dst, size, format, args);
    va_end(args);
}

/* ---- Parsing ---- */

/* Digits to the end of the text, at least one. */
static bool parse_digits(const char *text, uint64_t max, uint64_t *ret_value) {
    uint64_t value = 0;
    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return false;
        }
        unsigned digit = (unsigned)(*text - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    if (value > max) {
        return false;
    }
    *ret_value = value;
    return true;
}

bool trpi_parse_u64(const char *text, uint64_t max, uint64_t *ret_value) {
    return text != NULL && parse_digits(text, max, ret_value);
}

bool trpi_parse_i64(const char *text, int64_t min, int64_t max, int64_t *ret_value) {
    if (text == NULL) {
        return false;
    }
    bool negative = *text == '-';
    uint64_t magnitude;
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    if (!parse_digits(text + negative, limit, &magnitude)) {
        return false;
    }
    /* Negated as unsigned: INT64_MIN has no positive counterpart. */
    int64_t value = (int64_t)(negative ? 0 - magnitude : magnitude);
    if (value < min || value > max) {
        return false;
    }
    *ret_value = value;
    return true;
}

bool trpi_parse_double(const char *text, double *ret_value) {
    /* strtod would also take blanks, hexadecimal, "inf" and "nan". */
    if (text == NULL || *text == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0') {
        return false;
    }
    /* A program that has called setlocale() may expect a decimal comma; its settings don't. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c_locale == (locale_t)0) {
        return false;
    }
    char *end;
    double value = strtod_l(text, &end, c_locale);
    freelocale(c_locale);
    if (*end != '\0' || !isfinite(value)) {
        return false;
    }
    *ret_value = value;
    return true;
}

/* ---- Did you mean ---- */

#define NEAREST_MAX 96 /* longer words are compared by their first characters */

/* Insertions, deletions, replacements and swaps of two neighbours that make b of a. */
static size_t edit_distance(const char *a, const char *b) {
    size_t row[NEAREST_MAX + 1], before[NEAREST_MAX + 1] = {0}; /* of a[i - 1], of a[i - 2] */
    size_t a_size = strnlen(a, NEAREST_MAX), b_size = strnlen(b, NEAREST_MAX);
    for (size_t j = 0; j <= b_size; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t unswapped = 0, next_unswapped = before[0];
        size_t diagonal = row[0];
        before[0] = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t changed = diagonal + (a[i - 1] != b[j - 1]);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                changed = TRPI_MIN(changed, unswapped + 1);
            }
            unswapped = next_unswapped;
            next_unswapped = before[j];
            diagonal = before[j] = row[j];
            row[j] = TRPI_MIN(changed, TRPI_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_size];
}

const char *trpi_nearest(const char *word, const char *const *words, size_t count) {
    const char *nearest = NULL;
    /* Further than a third of the word is another word, not a slip. */
    size_t best = strnlen(word, NEAREST_MAX) / 3 + 2;
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(word, words[i]);
        if (distance < best) {
            best = distance;
            nearest = words[i];
        }
    }
    return nearest;
}

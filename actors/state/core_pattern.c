#include "actors/state/core_pattern.h"

#include <string.h>

typedef struct text {
    char *out;
    size_t size, used;
    bool full;
} text;

static void put(text *t, const char *what) {
    size_t length = strlen(what);
    if (t->used + length >= t->size) {
        t->full = true;
        return;
    }
    memcpy(t->out + t->used, what, length + 1);
    t->used += length;
}

static void put_number(text *t, uint64_t number) {
    char digits[24];
    trpi_format(digits, sizeof digits, "%llu", (unsigned long long)number);
    put(t, digits);
}

/* The kernel writes '!' for '/' in what it fills in, so that it can't lead elsewhere. */
static void put_name(text *t, const char *name) {
    size_t start = t->used;
    put(t, name ? name : "");
    for (size_t i = start; i < t->used; i++) {
        if (t->out[i] == '/') {
            t->out[i] = '!';
        }
    }
}

static void put_specifier(text *t, char letter, const trpi_core_facts *facts) {
    const char *slash = facts->exe ? strrchr(facts->exe, '/') : NULL;
    switch (letter) {
    case '%':
        put(t, "%");
        break;
    case 'p': /* in our pid namespace, and in the first one: the same for all we can see */
    case 'P':
    case 'i': /* of the thread: that of the process, as far as is known */
    case 'I':
        put_number(t, (uint64_t)facts->pid);
        break;
    case 'u':
        put_number(t, facts->uid);
        break;
    case 'g':
        put_number(t, facts->gid);
        break;
    case 'd': /* dumpable: we have no setuid programs */
        put(t, "1");
        break;
    case 's':
        put_number(t, (uint64_t)facts->signal);
        break;
    case 't':
        put_number(t, facts->time_s);
        break;
    case 'c':
        put_number(t, facts->limit);
        break;
    case 'h':
        put_name(t, facts->host);
        break;
    case 'e':
        put_name(t, facts->comm);
        break;
    case 'f':
        put_name(t, slash ? slash + 1 : facts->exe);
        break;
    case 'E':
        put_name(t, facts->exe);
        break;
    default: /* the kernel drops what it does not know */
        break;
    }
}

bool trpi_core_is_piped(const char *pattern) {
    return *pattern == '|';
}

bool trpi_core_path(const char *pattern, bool uses_pid, const trpi_core_facts *facts, char *out,
                    size_t size) {
    text t = {.out = out, .size = size};
    bool has_pid = false;
    if (*pattern == '\0' || trpi_core_is_piped(pattern)) {
        return false;
    }
    if (*pattern != '/') {
        put(&t, facts->cwd);
        put(&t, t.used > 0 && out[t.used - 1] == '/' ? "" : "/");
    }
    for (const char *c = pattern; *c; c++) {
        if (*c != '%') {
            put(&t, (char[]){*c, '\0'});
        } else if (*++c == '\0') {
            break; /* a lone one at the end is dropped */
        } else {
            has_pid |= *c == 'p';
            put_specifier(&t, *c, facts);
        }
    }
    if (uses_pid && !has_pid) {
        put(&t, ".");
        put_number(&t, (uint64_t)facts->pid);
    }
    return !t.full && t.used > 0;
}

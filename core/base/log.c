/* log.c: lines on stderr, each by one write(), so that lines of several threads or processes that
 * share the file never mix. */
#include "core/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEVEL_UNSET (-1)
#define LINE_MAX_BYTES 2048 /* a longer line is cut; less than PIPE_BUF, so pipes keep it whole */

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static _Atomic int level_shown = LEVEL_UNSET;
static pthread_mutex_t who_lock = PTHREAD_MUTEX_INITIALIZER;
static char who_text[64] = "-"; /* guarded by who_lock */

void trpi_log_set_who(const char *who) {
    pthread_mutex_lock(&who_lock);
    TRPI_SET(who_text, who);
    pthread_mutex_unlock(&who_lock);
}

void trpi_log_set_level(trpi_level level) {
    atomic_store(&level_shown, (int)level);
}

static int level_from_environment(void) {
    const char *text = getenv("TROUPE_LOG");
    if (text == NULL || *text == '\0') {
        return TRPI_WARN;
    }
    for (size_t i = 0; i < TRPI_COUNTOF(level_names); i++) {
        if (strcmp(text, level_names[i]) == 0) {
            return (int)i;
        }
    }
    fprintf(stderr, "troupe: TROUPE_LOG=%s: must be debug, info, warn or error; warn is used\n",
            text);
    return TRPI_WARN;
}

bool trpi_log_is_shown(trpi_level level) {
    int shown = atomic_load_explicit(&level_shown, memory_order_relaxed);
    if (shown == LEVEL_UNSET) {
        int from_environment = level_from_environment();
        /* A level that another thread has set meanwhile wins. */
        if (atomic_compare_exchange_strong(&level_shown, &shown, from_environment)) {
            shown = from_environment;
        }
    }
    return (int)level >= shown;
}

bool trpi_log_is_due(uint64_t *count) {
    ++*count;
    return (*count & (*count - 1)) == 0;
}

/* "2026-01-31T12:00:00.123Z warn  node n1   worker_died ": the part before the caller's text. */
static size_t write_prefix(char *line, size_t size, trpi_level level, const char *event) {
    struct timespec now;
    struct tm parts;
    char who[sizeof(who_text)], date[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
    pthread_mutex_lock(&who_lock);
    memcpy(who, who_text, sizeof(who));
    pthread_mutex_unlock(&who_lock);
    int used = snprintf(line, size, "%s.%03ldZ %-5s %s %s ", date, now.tv_nsec / 1000000,
                        level_names[level], who, event);
    return used > 0 ? TRPI_MIN((size_t)used, size - 1) : 0;
}

void trpi_log(trpi_level level, const char *event, const char *format, ...) {
    if (!trpi_log_is_shown(level)) {
        return;
    }
    char line[LINE_MAX_BYTES];
    size_t size = write_prefix(line, sizeof(line) - 1, level, event);
    va_list args;
    va_start(args, format);
    int added = vsnprintf(line + size, sizeof(line) - 1 - size, format, args);
    va_end(args);
    if (added > 0) {
        size = TRPI_MIN(size + (size_t)added, sizeof(line) - 2);
    }
    /* Values may come from peers: one event stays one line whatever they sent. */
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)line[i] < ' ' || line[i] == 127) {
            line[i] = ' ';
        }
    }
    line[size++] = '\n';
    /* A log that can't be written has nobody left to tell. */
    ssize_t written = write(STDERR_FILENO, line, size);
    (void)written;
}

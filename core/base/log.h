/* log.h: one line = time, level, who, event, key=value. Goes to stderr (which a daemon has pointed
 * at its log file). Libraries that users link print nothing below WARN unless TROUPE_LOG asks.
 * Threads: any. */
#ifndef TRPI_LOG_H
#define TRPI_LOG_H

#include "core/base/base.h"

typedef enum trpi_level { TRPI_DEBUG, TRPI_INFO, TRPI_WARN, TRPI_ERROR } trpi_level;

void trpi_log_set_who(const char *who); /* "head", "node n1", "actor a7": copied */
/* Until then: TROUPE_LOG=debug|info|warn|error, else warn. */
void trpi_log_set_level(trpi_level level);
bool trpi_log_is_shown(trpi_level level); /* so that text for a line nobody reads is not made */
/* For errors that a peer can cause as often as it likes: counts, and is true at powers of two. */
bool trpi_log_is_due(uint64_t *count);
/* event: a short noun_verb; then "key=value key=value". */
void trpi_log(trpi_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif

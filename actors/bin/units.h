/* units.h: sizes, times and counts as people write them. */
#ifndef TRPI_UNITS_H
#define TRPI_UNITS_H

#include "core/base/base.h"

/* "1.5 GiB" */
void trpi_size_text(uint64_t bytes, char *out, size_t size);
/* "0.3 s", "45 s", "3 min", "5.2 h", "3.1 days" */
void trpi_duration_text(double seconds, char *out, size_t size);
/* "12,345" */
void trpi_count_text(uint64_t count, char *out, size_t size);

#endif

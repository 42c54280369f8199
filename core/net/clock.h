/* clock.h: the only place that reads a clock (but for core/base/log.c, which dates lines). */
#ifndef TRPI_CLOCK_H
#define TRPI_CLOCK_H

#include "core/base/base.h"

uint64_t trpi_now_ns(void);  /* monotonic; stands still while the host is suspended */
uint64_t trpi_boot_ns(void); /* the same, but goes on then */
uint64_t trpi_wall_ms(void); /* since 1970, for display only */
/* now + ms, saturating; TRP_FOREVER (UINT64_MAX) stays. */
uint64_t trpi_deadline_ns(uint64_t timeout_ms);
/* What is left of a deadline in ms, rounded up, for poll: -1 = for ever, 0 = passed, capped at
 * INT_MAX. */
int trpi_left_ms(uint64_t deadline_ns);

#endif

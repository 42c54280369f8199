/* times.h: units of time. Points in time and what is left are nanoseconds, settings and options
 * milliseconds, both uint64_t. */
#ifndef TRPI_TIMES_H
#define TRPI_TIMES_H

#include <stdint.h>

#define TRPI_NS_PER_MS UINT64_C(1000000)
#define TRPI_NS_PER_S UINT64_C(1000000000)
#define TRPI_DAY_MS                                                                                \
    UINT64_C(86400000) /* the longest that options accept: "for ever" of a start                   \
                        */

#endif

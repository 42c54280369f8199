/* clock.h: the monotonic clock, for this folder, which knows the runtime only by its public
 * headers. */
#ifndef TRPI_RUN_CLOCK_H
#define TRPI_RUN_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t trpi_run_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t trpi_run_ms(uint64_t ms) {
    return ms * 1000000u;
}

static inline double trpi_run_to_ms(uint64_t ns) {
    return (double)ns / 1e6;
}

#endif

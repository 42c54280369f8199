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
    return ms < UINT64_MAX / 1000000u ? ms * 1000000u : UINT64_MAX;
}

/* The moment that is this far away; TRP_FOREVER is one that never comes. */
static inline uint64_t trpi_run_deadline_ns(uint64_t timeout_ms) {
    uint64_t now_ns = trpi_run_now_ns();
    uint64_t left_ns = trpi_run_ms(timeout_ms);
    return left_ns < UINT64_MAX - now_ns ? now_ns + left_ns : UINT64_MAX;
}

/* Milliseconds to wait until the deadline or `most_ms`, whichever is sooner; 0 when it has passed.
 * What a wait is for ends it at once, so slices bound only how late something else is noticed. */
static inline uint64_t trpi_run_slice_ms(uint64_t deadline_ns, uint64_t most_ms) {
    uint64_t now_ns = trpi_run_now_ns();
    uint64_t left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns - 1) / 1000000 + 1 : 0;
    return left_ms < most_ms ? left_ms : most_ms;
}

static inline double trpi_run_to_ms(uint64_t ns) {
    return (double)ns / 1e6;
}

#endif

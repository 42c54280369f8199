/* clock.c: CLOCK_MONOTONIC (leases: CLOCK_BOOTTIME) for decisions, CLOCK_REALTIME for humans. */
#include "core/net/clock.h"

#include <limits.h>
#include <time.h>

#include "core/base/times.h"

uint64_t trpi_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * TRPI_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t trpi_boot_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * TRPI_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t trpi_wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / TRPI_NS_PER_MS;
}

uint64_t trpi_deadline_ns(uint64_t timeout_ms) {
    uint64_t now = trpi_now_ns();
    if (timeout_ms > (UINT64_MAX - now) / TRPI_NS_PER_MS) {
        return UINT64_MAX;
    }
    return now + timeout_ms * TRPI_NS_PER_MS;
}

int trpi_left_ms(uint64_t deadline_ns) {
    if (deadline_ns == UINT64_MAX) {
        return -1;
    }
    uint64_t now = trpi_now_ns();
    if (deadline_ns <= now) {
        return 0;
    }
    /* Rounded up, or a poll loop would spin through the last millisecond. */
    uint64_t left_ms = (deadline_ns - now - 1) / TRPI_NS_PER_MS + 1;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

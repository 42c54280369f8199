/* client_cond.c: how threads of the client wait for and wake each other. */
#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "actors/proc/client_internal.h"
#include "core/base/times.h"

bool trpi_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns) {
    if (deadline_ns == UINT64_MAX) {
        pthread_cond_wait(cond, lock);
        return true;
    }
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / TRPI_NS_PER_S),
                             .tv_nsec = (long)(deadline_ns % TRPI_NS_PER_S)};
    return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT;
}

void trpi_wake(int event_fd) {
    /* Can only fail when the counter is full, and then the other side is awake. */
    (void)!eventfd_write(event_fd, 1);
}

void trpi_wake_clear(int event_fd) {
    eventfd_t count;
    (void)!eventfd_read(event_fd, &count);
}

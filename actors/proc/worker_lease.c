/* The end of an exclusive actor that nobody vouches for.
 *
 * Each PING lends it some time, from when the ping was sent. When that is over, the head may have
 * declared this node dead and started the next incarnation, so this process must not go on. It may
 * have been stopped (SIGSTOP, a frozen cgroup, a suspended host) when that happened, and must not
 * do much when it wakes up. So the end is a timer of the kernel with a signal, by the clock that
 * also counts suspension: the signal is pending when a stopped process goes on, and a thread that
 * was stopped in user code runs its handler before its next instruction. The kernel prefers the
 * main thread, which runs the methods of most actors; those of a pool are asked again before each
 * method and before each answer. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actors/proc/worker_parts.h"
#include "core/base/times.h"
#include "core/net/clock.h"

static _Atomic uint64_t until_ns; /* by trpi_boot_ns(); 0 = no lease */
static timer_t timer;
static char last_words[256];
static bool is_renewed; /* control thread */

/* Async-signal-safe. Its children go with it: they act for it. */
static void end_if_over(void) {
    uint64_t until = atomic_load_explicit(&until_ns, memory_order_relaxed);
    if (until != 0 && trpi_boot_ns() >= until) {
        (void)!write(STDERR_FILENO, last_words, strlen(last_words));
        (void)kill(-getpgrp(), SIGKILL);
        _exit(1);
    }
}

void trpi_lease_check(void) {
    end_if_over();
}

static void timer_rang(int number) {
    int old_errno = errno;
    end_if_over();
    errno = old_errno;
}

static void set_until(uint64_t until) {
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(until / TRPI_NS_PER_S),
                                           .tv_nsec = (long)(until % TRPI_NS_PER_S)}};
    atomic_store(&until_ns, until);
    (void)timer_settime(timer, TIMER_ABSTIME, &when, NULL); /* of valid arguments */
}

trp_code trpi_lease_open(uint64_t lease_ms, trp_error *err) {
    int number = SIGRTMIN + 2;
    struct sigaction action = {.sa_handler = timer_rang, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};
    trpi_format(last_words, sizeof last_words,
                "troupe: this actor is exclusive and ends itself: for the time of its lease it has "
                "heard nothing of its node, or its node nothing of the head\n");
    sigfillset(&action.sa_mask);
    if (sigaction(number, &action, NULL) != 0 ||
        timer_create(CLOCK_BOOTTIME, &event, &timer) != 0) {
        return trpi_fail(err, TRP_EIO, "timer of the lease: %s", strerror(errno));
    }
    set_until(trpi_boot_ns() + lease_ms * 1000000u);
    return TRP_OK;
}

uint64_t trpi_lease_offset_ns(void) {
    return atomic_load(&until_ns) != 0 ? trpi_boot_ns() - trpi_now_ns() : 0;
}

void trpi_lease_renew(uint64_t sent_ns, uint64_t unheard_offset_ns, uint64_t lease_ms) {
    uint64_t now_ns = trpi_now_ns();
    if (atomic_load(&until_ns) == 0 || lease_ms == 0 || lease_ms > UINT32_MAX) {
        return;
    }
    sent_ns = TRPI_MIN(sent_ns, now_ns);
    uint64_t until = sent_ns + unheard_offset_ns + lease_ms * 1000000u;
    /* An earlier one may have lent more. The first time was our own guess. */
    if (until > atomic_load(&until_ns) || !is_renewed) {
        set_until(until);
    }
    is_renewed = true;
    end_if_over();
}

/* client_tend.c: the control thread looks after the data half while no other thread does.
 *
 * What may need it, though nobody waits for a ref:
 *
 *     a ref that tells when it is done (client_done.c): replies must be read as they come
 *     a time of the caller machine: a deadline, a call to be tried again
 *     a time of the socket's links: a message that nobody has confirmed
 *     calls that are held back (client_corks.c), at the latest when the timer says so
 *
 * It never leads: it watches the socket's descriptor, which costs a thread that uses the socket
 * nothing, and takes the lock only to read. The descriptor tells once of what has come, and any use
 * of the socket may swallow that; so whoever used it, and leaves with refs that tell, reads to the
 * end (settle). While a thread leads, watching would only wake two threads for each reply. So the
 * control thread stops when it finds one, and the timer has it look again soon after the leader is
 * gone: a thread that comes back at once, as most do, postpones that. */
#include <pthread.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "actors/proc/client_internal.h"
#include "core/net/clock.h"

#define DELAY_NS 200000
#define LOOK_MIN_NS 1000000
#define LOOK_MAX_NS 100000000

bool trpi_is_control_thread(const trp_runtime *rt) {
    return rt->control.is_running && pthread_equal(pthread_self(), rt->control.thread);
}

trp_code trpi_tend_open(trp_runtime *rt, trp_error *err) {
    rt->data.tend_ns = UINT64_MAX;
    rt->data.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return rt->data.timer_fd >= 0 ? TRP_OK
                                  : trpi_fail(err, TRP_EBUSY, "no descriptors left (ulimit -n)");
}

void trpi_tend_soon(trp_runtime *rt) {
    struct itimerspec delay = {.it_value = {.tv_nsec = DELAY_NS}};
    (void)timerfd_settime(rt->data.timer_fd, 0, &delay, NULL); /* of valid arguments */
}

void trpi_tend_demand(trp_runtime *rt) {
    trpi_data *data = &rt->data;
    if (data->is_watched || data->is_led) {
        return;
    }
    data->is_watched = true;
    trpi_wake(rt->control.wake_fd);
}

static uint64_t next_time(const trpi_data *data) {
    return TRPI_MIN(trpi_caller_next_tick(data->caller), trpi_sock_wake_ns(data->sock));
}

void trpi_tend_settle(trp_runtime *rt) {
    trpi_data *data = &rt->data;
    if (data->done.awaited > 0) {
        if (data->is_touched) {
            trpi_data_read(rt);
        }
        if (!data->is_watched && data->waiters == NULL && data->corks.first == NULL) {
            trpi_tend_soon(rt); /* with calls held back it is set already */
        }
    }
    uint64_t next_ns = next_time(data);
    if (next_ns < data->tend_ns) {
        data->tend_ns = next_ns;
        trpi_wake(rt->control.wake_fd);
    }
}

/* A leader has the socket, and keeps the time itself. What is due at once is not worth a spin here;
 * and a look now and then keeps every thread that has led from having to say when the next is due.
 */
static uint64_t next_look(const trpi_data *data) {
    uint64_t now_ns = trpi_now_ns();
    uint64_t next_ns = TRPI_MAX(trpi_caller_next_tick(data->caller), now_ns + LOOK_MIN_NS);
    return TRPI_MIN(next_ns, now_ns + LOOK_MAX_NS);
}

int trpi_tend_plan(trp_runtime *rt, uint64_t *ret_wake_ns) {
    trpi_data *data = &rt->data;
    trpi_data_lock(rt);
    data->tend_ns = data->is_led ? next_look(data) : next_time(data);
    *ret_wake_ns = data->done.first_call != NULL ? 0 : data->tend_ns;
    int fd = data->is_watched ? trpi_sock_fd(data->sock) : -1;
    pthread_mutex_unlock(&data->lock);
    return fd;
}

void trpi_tend(trp_runtime *rt, bool has_news, bool is_timer) {
    trpi_data *data = &rt->data;
    uint64_t count;
    if (is_timer) {
        (void)!read(data->timer_fd, &count, sizeof(count));
    }
    trpi_data_lock(rt);
    if (data->is_led || data->done.awaited == 0) {
        data->is_watched &= !has_news;
    } else {
        data->is_watched = true;
    }
    if (!data->is_led) { /* else the leader sees to it */
        if (is_timer) {
            trpi_corks_flush(rt);
        }
        if (!is_timer || data->done.awaited > 0) { /* not for a thread that is just not there yet */
            trpi_data_read(rt);
        }
    }
    trpi_data_leave(rt);
}

#include "actors/proc/node_heartbeat.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/times.h"
#include "core/net/clock.h"
#include "core/net/sock.h"
#include "core/wire/codec.h"

/* A gap of this many periods may have been a restart of the head: then it is told again what runs
 * here. Fewer would tell it after every hiccup, more would leave a restarted head without our word
 * for long. */
#define SILENT_PERIODS 3

struct trpi_heartbeat {
    trpi_heartbeat_options options;
    trpi_net *net;
    trpi_sock *sock;
    int stop_fd;
    pthread_t thread;
    atomic_uint events;
    _Atomic uint64_t lease_from_ns; /* when the last acknowledged beat was sent */
    uint64_t heard_ns;
    trpi_arena arena;
    trp_buf frame;
};

static void raise_event(trpi_heartbeat *hb, trpi_heartbeat_event event) {
    atomic_fetch_or(&hb->events, (unsigned)event);
    uint64_t one = 1;
    (void)!write(hb->options.event_fd, &one, sizeof one);
}

/* A beat's number is the time of its sending, so that its acknowledgement says from when on the
 * lease runs without any table here. */
static void send_beat(trpi_heartbeat *hb, uint64_t now_ns) {
    trpi_msg msg = {.type = TRPI_MSG_HEARTBEAT,
                    .heartbeat = {.node = hb->options.node,
                                  .incarnation = hb->options.incarnation,
                                  .seq = now_ns}};
    trp_error err = {0};
    trp_code code = trpi_encode(&msg, &hb->frame, &err);
    if (code == TRP_OK) {
        code = trpi_sock_send(hb->sock, (trp_bytes){NULL, 0}, trp_buf_bytes(&hb->frame),
                              (trp_bytes){NULL, 0}, &err);
    }
    if (code != TRP_OK) {
        trpi_log(TRPI_WARN, "heartbeat_not_sent", "error=\"%s\"", err.message);
    }
}

/* False when the head says that it knows no such node. */
static bool take_ack(trpi_heartbeat *hb, const trpi_msg *msg, uint64_t now_ns) {
    const trpi_msg_heartbeat_ack *ack = &msg->heartbeat_ack;
    if (!ack->known) {
        return false;
    }
    if (ack->seq <= now_ns && ack->seq > hb->lease_from_ns) {
        hb->lease_from_ns = ack->seq;
    }
    if (now_ns - hb->heard_ns > SILENT_PERIODS * hb->options.period_ms * TRPI_NS_PER_MS) {
        raise_event(hb, TRPI_HEARTBEAT_RESUMED);
    }
    hb->heard_ns = now_ns;
    return true;
}

static bool take_acks(trpi_heartbeat *hb) {
    bool known = true;
    trpi_packet packet;
    while (known && trpi_sock_recv(hb->sock, &packet) == TRP_OK) {
        trpi_msg msg;
        trp_error err = {0};
        trpi_arena_reset(&hb->arena);
        if (trpi_decode(packet.header, &hb->arena, &msg, &err) != TRP_OK) {
            trpi_log(TRPI_WARN, "heartbeat_ack_invalid", "error=\"%s\"", err.message);
        } else if (msg.type == TRPI_MSG_HEARTBEAT_ACK) {
            known = take_ack(hb, &msg, trpi_now_ns());
        }
        trpi_packet_release(&packet);
    }
    return known;
}

static void *beat(void *arg) {
    trpi_heartbeat *hb = arg;
    uint64_t period_ns = hb->options.period_ms * TRPI_NS_PER_MS;
    uint64_t timeout_ns = hb->options.timeout_ms * TRPI_NS_PER_MS;
    uint64_t next_ns = trpi_now_ns();
    for (;;) {
        uint64_t now_ns = trpi_now_ns();
        if (now_ns >= next_ns) {
            send_beat(hb, now_ns);
            next_ns = now_ns + period_ns;
        }
        uint64_t lease_ns = hb->lease_from_ns + timeout_ns;
        trpi_poll_item items[] = {{.sock = hb->sock}, {.fd = hb->stop_fd}};
        (void)!trpi_poll(items, 2, trpi_left_ms(TRPI_MIN(next_ns, lease_ns)));
        if (items[1].ready) {
            return NULL;
        }
        if (!take_acks(hb)) {
            raise_event(hb, TRPI_HEARTBEAT_UNKNOWN);
            return NULL;
        }
        if (trpi_now_ns() >= hb->lease_from_ns + timeout_ns) {
            raise_event(hb, TRPI_HEARTBEAT_LOST);
            return NULL;
        }
    }
}

static trp_code open_sock(trpi_heartbeat *hb, trp_error *err) {
    char endpoint[256];
    trp_code code = trpi_net_open(&hb->net, err);
    if (code != TRP_OK) {
        return code;
    }
    code = trpi_sock_open(hb->net, TRPI_DEALER_BARE, (trp_bytes){NULL, 0}, &hb->sock, err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(endpoint, sizeof endpoint, "tcp://%s", hb->options.address);
    return trpi_sock_connect(hb->sock, endpoint, (trp_bytes){NULL, 0}, err);
}

static void dispose(trpi_heartbeat *hb) {
    trpi_sock_close(hb->sock);
    trpi_net_close(hb->net);
    if (hb->stop_fd >= 0) {
        close(hb->stop_fd);
    }
    trpi_arena_release(&hb->arena);
    trp_buf_release(&hb->frame);
    free(hb);
}

trp_code trpi_heartbeat_start(const trpi_heartbeat_options *options, trpi_heartbeat **ret_heartbeat,
                              trp_error *err) {
    trpi_heartbeat *hb = trpi_alloc(sizeof *hb);
    hb->options = *options;
    hb->heard_ns = trpi_now_ns();
    atomic_init(&hb->lease_from_ns, hb->heard_ns);
    hb->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    trp_code code = TRP_OK;
    if (hb->stop_fd < 0) {
        code = trpi_fail(err, TRP_EIO, "heartbeat: eventfd: %s", strerror(errno));
        goto out;
    }
    code = open_sock(hb, err);
    if (code != TRP_OK) {
        code = trpi_context(err, code, "heartbeat");
        goto out;
    }
    /* All signals are the loop's. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&hb->thread, NULL, beat, hb);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        code = trpi_fail(err, TRP_EIO, "heartbeat: thread: %s", strerror(failed));
        goto out;
    }
    *ret_heartbeat = hb;
    return TRP_OK;
out:
    dispose(hb);
    return code;
}

unsigned trpi_heartbeat_events(trpi_heartbeat *hb) {
    return atomic_exchange(&hb->events, 0);
}

uint64_t trpi_heartbeat_lease_ms(const trpi_heartbeat *hb, uint64_t now_ns) {
    uint64_t until_ns = atomic_load(&hb->lease_from_ns) + hb->options.timeout_ms * TRPI_NS_PER_MS;
    return now_ns < until_ns ? (until_ns - now_ns) / TRPI_NS_PER_MS : 0;
}

void trpi_heartbeat_stop(trpi_heartbeat *hb) {
    if (!hb) {
        return;
    }
    uint64_t one = 1;
    (void)!write(hb->stop_fd, &one, sizeof one);
    pthread_join(hb->thread, NULL);
    dispose(hb);
}

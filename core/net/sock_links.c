/* sock_links.c: the links of a socket: what the machine decides is carried out. */
#include <errno.h>

#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/net/sock_parts.h"

/* Kept for one peer that confirms nothing: beyond this its senders are told. */
#define KEPT_BYTES_MAX ((size_t)1 << 30)
#define BUSY_PART 16 /* between two looks, of the time until the first question */
#define IDLE_PART 2
#define BORN_SHIFT 26 /* of ns: finer than two lives of one peer, and wraps after nine years */

static bool is_reliable(const trpi_sock *sock) {
    return sock->kind != TRPI_DEALER_BARE;
}

void trpi_sock_links_init(trpi_sock *sock) {
    if (is_reliable(sock)) {
        trpi_links_init(&sock->links);
    } else {
        sock->links.wake_ns = sock->links.sweep_ns = UINT64_MAX;
    }
}

/* A DEALER has one peer, without an id. */
static trp_bytes key_of(const trpi_sock *sock, trp_bytes peer) {
    return trpi_sock_is_router(sock) ? peer : (trp_bytes){"", 0};
}

trpi_linked *trpi_sock_linked(trpi_sock *sock, trp_bytes peer) {
    return is_reliable(sock) ? trpi_links_find(&sock->links, key_of(sock, peer)) : NULL;
}

static void open_anew(trpi_sock *sock, trpi_linked *linked) {
    trpi_links_rest(linked);
    trpi_window_release(&linked->window);
    trpi_link_open(&linked->link, trpi_links_life(&sock->links),
                   (uint32_t)(trpi_now_ns() >> BORN_SHIFT));
}

bool trpi_sock_link_open(trpi_sock *sock, trp_bytes peer) {
    if (!is_reliable(sock)) {
        return true;
    }
    trpi_linked *linked = trpi_sock_linked(sock, peer);
    if (linked == NULL) {
        linked = trpi_links_add(&sock->links, key_of(sock, peer));
    }
    if (linked != NULL) {
        open_anew(sock, linked);
    }
    return linked != NULL;
}

/* ---- Out ---- */

static int send_stamp(trpi_sock *sock, trp_bytes peer, const trpi_stamp *stamp) {
    trpi_frames frames = {.has_tail = false};
    if (zmq_msg_init_size(&frames.head, TRPI_STAMP_SIZE) != 0) {
        return ENOMEM;
    }
    trpi_stamp_put(zmq_msg_data(&frames.head), stamp);
    return trpi_frames_send_faulty(sock, peer, &frames);
}

/* Only a ROUTER is told that its peer is out of reach, and only by the attempt. */
static void note_reached(trpi_sock *sock, trpi_linked *linked, int error) {
    if (error == EHOSTUNREACH || linked->link.away_since_ns != 0) {
        trpi_link_reached(&linked->link, error == 0, trpi_now_ns(), &sock->links.times);
    }
    trpi_links_note(&sock->links, linked);
}

static void send_word(trpi_sock *sock, trpi_linked *linked, trpi_link_kind kind, bool has_gap) {
    trpi_stamp stamp;
    trpi_link_stamp(&linked->link, kind, &stamp);
    stamp.has_gap = has_gap;
    note_reached(sock, linked, send_stamp(sock, trpi_linked_peer(linked), &stamp));
}

int trpi_sock_link_send(trpi_sock *sock, trpi_linked *linked, trpi_frames *frames) {
    trpi_link *link = &linked->link;
    trpi_stamp stamp;
    if (linked->window.bytes >= KEPT_BYTES_MAX) {
        trpi_frames_close(frames);
        return EBUSY;
    }
    trpi_link_stamp(link, TRPI_LINK_DATA, &stamp);
    trpi_stamp_put(zmq_msg_data(&frames->head), &stamp);
    if (!trpi_window_push(&linked->window, frames)) {
        trpi_frames_close(frames);
        return ENOMEM;
    }
    int error = trpi_frames_send_faulty(sock, trpi_linked_peer(linked), frames);
    if (error != 0 && error != EHOSTUNREACH) {
        trpi_window_unpush(&linked->window);
        return error;
    }
    bool was_idle = trpi_link_is_idle(link);
    trpi_link_sent(link, was_idle ? trpi_now_ns() : 0, &sock->links.times);
    if (was_idle || error != 0 || link->away_since_ns != 0) {
        note_reached(sock, linked, error);
    }
    return 0;
}

/* All that is kept, from the oldest on. */
static void repeat(trpi_sock *sock, trpi_linked *linked) {
    int error = 0;
    for (uint32_t i = 0; i < linked->window.count && error == 0; i++) {
        trpi_frames frames;
        trpi_window_get(&linked->window, i, &frames);
        error = trpi_frames_send_faulty(sock, trpi_linked_peer(linked), &frames);
    }
    note_reached(sock, linked, error);
}

static void refuse(trpi_sock *sock, trp_bytes peer, const trpi_stamp *stamp) {
    trpi_stamp reset;
    trpi_link_refuse(stamp, &reset);
    (void)send_stamp(sock, peer, &reset); /* who does not hear it speaks again, and is told again */
}

/* ---- In ---- */

/* Nobody can tell what of the unconfirmed was taken. */
static void become_void(trpi_sock *sock, trpi_linked *linked) {
    trpi_log(linked->link.is_opener ? TRPI_WARN : TRPI_DEBUG, "link_void",
             "unconfirmed=%u bytes=%zu", linked->window.count, linked->window.bytes);
    if (!linked->link.is_opener) {
        trpi_links_remove(&sock->links, linked);
        return;
    }
    open_anew(sock, linked);
    sock->links.void_count += !linked->is_void;
    linked->is_void = true;
}

static void accept_link(trpi_sock *sock, trpi_linked *linked, const trpi_stamp *stamp) {
    trpi_links_rest(linked);
    trpi_window_release(&linked->window);
    trpi_link_accept(&linked->link, trpi_links_life(&sock->links), stamp, trpi_now_ns(),
                     &sock->links.times);
    trpi_links_note(&sock->links, linked);
}

/* NULL: the message begins no link. */
static trpi_linked *accept_first(trpi_sock *sock, trp_bytes peer, const trpi_stamp *stamp) {
    if (stamp->kind == TRPI_LINK_RESET) {
        return NULL;
    }
    if (!stamp->is_open || !trpi_sock_is_router(sock)) {
        refuse(sock, peer, stamp);
        return NULL;
    }
    trpi_linked *linked = trpi_links_add(&sock->links, peer);
    if (linked != NULL) {
        accept_link(sock, linked, stamp);
    }
    return linked;
}

static void do_work(trpi_sock *sock, trpi_linked *linked, const trpi_link_work *work) {
    trpi_window_drop(&linked->window, work->confirmed);
    if (work->must_repeat) {
        repeat(sock, linked);
    }
    if (work->must_ack) {
        send_word(sock, linked, TRPI_LINK_ACK, work->has_gap);
    } else if (linked->link.due_ns < sock->links.wake_ns) {
        trpi_links_note(&sock->links, linked);
    }
}

bool trpi_sock_link_take(trpi_sock *sock, trp_bytes peer, const trpi_stamp *stamp, size_t bytes) {
    trpi_linked *linked = trpi_sock_linked(sock, peer);
    trpi_link_work work;
    if (linked == NULL && (linked = accept_first(sock, peer, stamp)) == NULL) {
        return false;
    }
    const trpi_link_times *times = &sock->links.times;
    uint64_t now_ns = trpi_link_is_in_turn(&linked->link, stamp, times) ? 0 : trpi_now_ns();
    trpi_link_verdict verdict = trpi_link_take(&linked->link, stamp, bytes, now_ns, times, &work);
    if (verdict == TRPI_LINK_REOPENED) {
        accept_link(sock, linked, stamp);
        verdict = trpi_link_take(&linked->link, stamp, bytes, now_ns, times, &work);
    }
    if (verdict == TRPI_LINK_VOID) {
        become_void(sock, linked);
        return false;
    }
    if (verdict == TRPI_LINK_FOREIGN) {
        refuse(sock, peer, stamp);
    }
    do_work(sock, linked, &work);
    return verdict == TRPI_LINK_DELIVER;
}

/* ---- Time ---- */

/* The link may be gone afterwards. */
static void tend(trpi_sock *sock, trpi_linked *linked, uint64_t now_ns) {
    switch (trpi_link_tick(&linked->link, now_ns, &sock->links.times)) {
    case TRPI_LINK_REST:
        break;
    case TRPI_LINK_ASK:
        send_word(sock, linked, TRPI_LINK_PROBE, false);
        break;
    case TRPI_LINK_LOOK:
        send_word(sock, linked, TRPI_LINK_ACK, false);
        break;
    case TRPI_LINK_GIVE_UP:
        trpi_log(TRPI_INFO, "link_given_up", "unconfirmed=%u bytes=%zu", linked->window.count,
                 linked->window.bytes);
        trpi_links_remove(&sock->links, linked);
        return;
    }
    if (trpi_link_is_idle(&linked->link)) {
        trpi_links_rest(linked);
        trpi_window_release(&linked->window); /* a link that rests should cost little */
    }
    trpi_links_note(&sock->links, linked);
}

static void tend_busy(trpi_sock *sock, uint64_t now_ns) {
    trpi_linked *linked = sock->links.busy, *next;
    sock->links.wake_ns = UINT64_MAX;
    sock->links.wake_not_before_ns = now_ns + sock->links.times.probe_ns / BUSY_PART;
    for (; linked != NULL; linked = next) {
        next = linked->next_busy;
        tend(sock, linked, now_ns);
    }
}

static void tend_idle(trpi_sock *sock, uint64_t now_ns) {
    trpi_linked *linked = trpi_links_next(&sock->links, NULL), *next;
    sock->links.sweep_ns = UINT64_MAX;
    sock->links.sweep_not_before_ns = now_ns + sock->links.times.probe_ns / IDLE_PART;
    for (; linked != NULL; linked = next) {
        next = trpi_links_next(&sock->links, linked);
        if (linked->at_busy == NULL) {
            tend(sock, linked, now_ns);
        }
    }
}

static uint64_t busy_wake_ns(const trpi_links *links) {
    return TRPI_MAX(links->wake_ns, links->wake_not_before_ns);
}

static uint64_t idle_wake_ns(const trpi_links *links) {
    return TRPI_MAX(links->sweep_ns, links->sweep_not_before_ns);
}

void trpi_sock_links_tend(trpi_sock *sock, uint64_t now_ns) {
    if (now_ns >= busy_wake_ns(&sock->links)) {
        tend_busy(sock, now_ns);
    }
    if (now_ns >= idle_wake_ns(&sock->links)) {
        tend_idle(sock, now_ns);
    }
}

uint64_t trpi_sock_wake_ns(const trpi_sock *sock) {
    return TRPI_MIN(busy_wake_ns(&sock->links), idle_wake_ns(&sock->links));
}

void trpi_sock_tend(trpi_sock *sock) {
    if (trpi_sock_wake_ns(sock) != UINT64_MAX) {
        trpi_sock_links_tend(sock, trpi_now_ns());
    }
}

/* ---- The end ---- */

void trpi_sock_forget(trpi_sock *sock, trp_bytes peer) {
    trpi_linked *linked = trpi_sock_is_router(sock) ? trpi_sock_linked(sock, peer) : NULL;
    if (linked != NULL) {
        trpi_links_remove(&sock->links, linked); /* should it speak once more, it is told so then */
    }
}

bool trpi_sock_take_void(trpi_sock *sock, trp_bytes *ret_peer) {
    trpi_linked *linked = NULL;
    while (sock->links.void_count > 0 && (linked = trpi_links_next(&sock->links, linked)) != NULL) {
        if (linked->is_void) {
            linked->is_void = false;
            sock->links.void_count--;
            *ret_peer = trpi_linked_peer(linked);
            return true;
        }
    }
    return false;
}

static bool is_awaited(const trpi_linked *linked) {
    return !trpi_link_is_idle(&linked->link) && linked->link.away_since_ns == 0;
}

size_t trpi_sock_links_kept(const trpi_sock *sock) {
    size_t kept = 0;
    const trpi_linked *linked = sock->links.busy;
    for (; linked != NULL; linked = linked->next_busy) {
        kept += is_awaited(linked) ? linked->window.count : 0;
    }
    return kept;
}

void trpi_sock_links_ask(trpi_sock *sock) {
    for (trpi_linked *linked = sock->links.busy; linked != NULL; linked = linked->next_busy) {
        if (is_awaited(linked)) {
            send_word(sock, linked, TRPI_LINK_PROBE, false);
        }
    }
}

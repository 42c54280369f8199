#include "core/state/link.h"

#include <string.h>

/* So much may be owed before a confirmation goes out without company. */
#define OWED_COUNT_MAX 64
#define OWED_BYTES_MAX (1u << 20)

#define NEVER UINT64_MAX

/* How far a number on the wire is ahead of one of ours. */
static int32_t ahead(uint32_t number, uint64_t ours) {
    return (int32_t)(number - (uint32_t)ours);
}

static uint64_t later(uint64_t now_ns, uint64_t ns) {
    return ns < NEVER - now_ns ? now_ns + ns : NEVER;
}

/* ---- Beginning ---- */

static void begin(trpi_link *link, uint32_t life, uint32_t born) {
    TRP_ASSERT(life != 0);
    memset(link, 0, sizeof(*link));
    link->mine = life;
    link->born = born;
    link->next = link->unconfirmed = link->expected = 1;
    link->due_ns = NEVER;
}

void trpi_link_open(trpi_link *link, uint32_t life, uint32_t born) {
    begin(link, life, born);
    link->is_opener = true;
}

void trpi_link_accept(trpi_link *link, uint32_t life, const trpi_stamp *stamp, uint64_t now_ns,
                      const trpi_link_times *times) {
    TRP_ASSERT(stamp->is_open);
    begin(link, life, stamp->to);
    link->peer = stamp->from;
    link->due_ns = later(now_ns, times->idle_ns);
}

bool trpi_link_is_idle(const trpi_link *link) {
    return link->unconfirmed == link->next;
}

/* ---- Out ---- */

void trpi_link_stamp(trpi_link *link, trpi_link_kind kind, trpi_stamp *ret_stamp) {
    bool is_open = link->peer == 0;
    *ret_stamp = (trpi_stamp){.kind = kind,
                              .is_open = is_open,
                              .from = link->mine,
                              .to = is_open ? link->born : link->peer,
                              .seq = (uint32_t)link->next,
                              .ack = is_open ? 0 : (uint32_t)(link->expected - 1)};
    link->owed_count = link->owed_bytes = 0;
}

void trpi_link_refuse(const trpi_stamp *stamp, trpi_stamp *ret_reset) {
    *ret_reset = (trpi_stamp){.kind = TRPI_LINK_RESET, .from = stamp->to, .to = stamp->from};
}

static void set_timer(trpi_link *link, uint64_t now_ns, const trpi_link_times *times) {
    link->has_moved = false;
    link->step_ns = times->probe_ns;
    link->due_ns = later(now_ns, times->probe_ns);
}

void trpi_link_sent(trpi_link *link, uint64_t now_ns, const trpi_link_times *times) {
    if (trpi_link_is_idle(link)) {
        set_timer(link, now_ns, times);
    }
    link->next++;
}

/* Whoever is away is asked often: it costs nothing, and it may be back at any moment. */
void trpi_link_reached(trpi_link *link, bool was_reached, uint64_t now_ns,
                       const trpi_link_times *times) {
    if (was_reached) {
        link->away_since_ns = 0;
        return;
    }
    if (link->away_since_ns == 0) {
        link->away_since_ns = TRPI_MAX(now_ns, (uint64_t)1);
    }
    set_timer(link, now_ns, times);
}

/* ---- In ---- */

/* DELIVER stands for: it is of this link. */
static trpi_link_verdict identify(trpi_link *link, const trpi_stamp *stamp) {
    bool is_known = stamp->from == link->peer;
    if (stamp->is_open) {
        if (link->is_opener || stamp->kind == TRPI_LINK_RESET) {
            return TRPI_LINK_STALE;
        }
        if (is_known) {
            return TRPI_LINK_DELIVER;
        }
        return ahead(stamp->to, link->born) >= 0 ? TRPI_LINK_REOPENED : TRPI_LINK_STALE;
    }
    if (stamp->to != link->mine) {
        return stamp->kind == TRPI_LINK_RESET ? TRPI_LINK_STALE : TRPI_LINK_FOREIGN;
    }
    if (link->peer != 0 && !is_known) {
        /* An accepter took my first word twice: with the second life it has forgotten the first. */
        return link->is_opener && stamp->kind != TRPI_LINK_RESET ? TRPI_LINK_VOID : TRPI_LINK_STALE;
    }
    return stamp->kind == TRPI_LINK_RESET ? TRPI_LINK_VOID : TRPI_LINK_DELIVER;
}

/* False: it confirms what was never sent. */
static bool take_ack(trpi_link *link, const trpi_stamp *stamp, uint64_t *ret_confirmed) {
    int32_t count = ahead(stamp->ack, link->unconfirmed - 1);
    if (stamp->is_open || count <= 0) {
        return true;
    }
    if ((uint64_t)count > link->next - link->unconfirmed) {
        return false;
    }
    link->unconfirmed += (uint64_t)count;
    link->has_moved = true;
    *ret_confirmed = (uint64_t)count;
    return true;
}

/* One repetition per complaint: what was complained of before the last one arrived is on its way.
 */
static bool must_repeat(trpi_link *link, const trpi_stamp *stamp, uint64_t now_ns,
                        const trpi_link_times *times) {
    if (!stamp->has_gap || trpi_link_is_idle(link) ||
        (link->repeated_from == link->unconfirmed && now_ns - link->repeated_ns < times->gap_ns)) {
        return false;
    }
    link->repeated_from = link->unconfirmed;
    link->repeated_ns = now_ns;
    return true;
}

/* Something is missing. Behind it more may come in a row, of which each would be a complaint. */
static void complain(trpi_link *link, bool was_asked, uint64_t now_ns, const trpi_link_times *times,
                     trpi_link_work *work) {
    if (was_asked || link->complained_of != link->expected ||
        now_ns - link->complained_ns >= times->gap_ns) {
        link->complained_of = link->expected;
        link->complained_ns = now_ns;
        work->must_ack = work->has_gap = true;
    }
}

static trpi_link_verdict take_data(trpi_link *link, const trpi_stamp *stamp, size_t bytes,
                                   uint64_t now_ns, const trpi_link_times *times,
                                   trpi_link_work *work) {
    int32_t distance = ahead(stamp->seq, link->expected);
    if (distance < 0) {
        return TRPI_LINK_DUPLICATE;
    }
    if (distance > 0) {
        complain(link, false, now_ns, times, work);
        return TRPI_LINK_MISSED;
    }
    link->expected++;
    link->owed_count++;
    link->owed_bytes += (uint32_t)TRPI_MIN(bytes, (size_t)OWED_BYTES_MAX);
    work->must_ack = link->owed_count >= OWED_COUNT_MAX || link->owed_bytes >= OWED_BYTES_MAX;
    return TRPI_LINK_DELIVER;
}

bool trpi_link_is_in_turn(const trpi_link *link, const trpi_stamp *stamp,
                          const trpi_link_times *times) {
    return stamp->kind == TRPI_LINK_DATA && ahead(stamp->seq, link->expected) == 0 &&
           !stamp->has_gap && link->step_ns <= times->probe_ns;
}

trpi_link_verdict trpi_link_take(trpi_link *link, const trpi_stamp *stamp, size_t bytes,
                                 uint64_t now_ns, const trpi_link_times *times,
                                 trpi_link_work *ret_work) {
    memset(ret_work, 0, sizeof(*ret_work));
    trpi_link_verdict verdict = identify(link, stamp);
    if (verdict != TRPI_LINK_DELIVER) {
        return verdict;
    }
    if (!take_ack(link, stamp, &ret_work->confirmed)) {
        return TRPI_LINK_STALE;
    }
    link->peer = stamp->from;
    link->away_since_ns = 0;
    link->has_moved |= trpi_link_is_idle(link);
    if (link->step_ns > times->probe_ns) {
        set_timer(link, now_ns, times); /* it listens again: what is amiss now is soon asked for */
    }
    ret_work->must_repeat = must_repeat(link, stamp, now_ns, times);
    if (stamp->kind == TRPI_LINK_DATA) {
        return take_data(link, stamp, bytes, now_ns, times, ret_work);
    }
    bool was_asked = stamp->kind == TRPI_LINK_PROBE;
    ret_work->must_ack = was_asked;
    if (ahead(stamp->seq, link->expected) > 0) {
        complain(link, was_asked, now_ns, times, ret_work);
    }
    return TRPI_LINK_NOTED;
}

/* ---- Time ---- */

/* Nothing is kept. Openers know from elsewhere whether the other side lives. */
static trpi_link_task look(trpi_link *link, uint64_t now_ns, const trpi_link_times *times) {
    if (link->is_opener) {
        link->due_ns = NEVER;
        return TRPI_LINK_REST;
    }
    trpi_link_task task = link->has_moved ? TRPI_LINK_REST : TRPI_LINK_LOOK;
    link->has_moved = false;
    link->due_ns = later(now_ns, times->idle_ns);
    return task;
}

trpi_link_task trpi_link_tick(trpi_link *link, uint64_t now_ns, const trpi_link_times *times) {
    if (now_ns < link->due_ns) {
        return TRPI_LINK_REST;
    }
    if (!link->is_opener && link->away_since_ns != 0 &&
        now_ns - link->away_since_ns >= times->away_ns) {
        return TRPI_LINK_GIVE_UP;
    }
    if (trpi_link_is_idle(link)) {
        return look(link, now_ns, times);
    }
    if (link->has_moved) {
        set_timer(link, now_ns, times);
        return TRPI_LINK_REST;
    }
    link->due_ns = later(now_ns, link->step_ns);
    link->step_ns = TRPI_MIN(2 * link->step_ns, times->probe_max_ns);
    return TRPI_LINK_ASK;
}

const char *trpi_link_check(const trpi_link *link) {
    if (link->mine == 0) {
        return "a link without a life";
    }
    if (link->unconfirmed == 0 || link->unconfirmed > link->next) {
        return "more is confirmed than was sent";
    }
    if (link->expected == 0 || link->owed_count >= OWED_COUNT_MAX + 1 ||
        link->owed_count > link->expected - 1) {
        return "more is owed than came";
    }
    if (!trpi_link_is_idle(link) && link->due_ns == NEVER) {
        return "something is unconfirmed and nobody will ask";
    }
    if (!link->is_opener && link->peer == 0) {
        return "an accepter that nobody opened";
    }
    return NULL;
}

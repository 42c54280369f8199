/* link_test.c: core/state/link: each decision by hand, then two sides of a link whose messages are
 * lost, repeated and swapped at random, over lives that end at any moment. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/state/link.h"

#define MS UINT64_C(1000000)

static const trpi_link_times times = {.probe_ns = 200 * MS,
                                      .probe_max_ns = 5000 * MS,
                                      .gap_ns = 50 * MS,
                                      .idle_ns = 60000 * MS,
                                      .away_ns = 60000 * MS};

/* ---- One decision at a time ---- */

typedef struct pair {
    trpi_link opener, accepter;
    uint64_t now_ns;
    trpi_link_work work; /* of the last take() */
} pair;

static trpi_link_verdict take(pair *p, trpi_link *link, const trpi_stamp *stamp) {
    uint64_t now_ns = trpi_link_is_in_turn(link, stamp, &times) ? 0 : p->now_ns;
    trpi_link_verdict verdict = trpi_link_take(link, stamp, 10, now_ns, &times, &p->work);
    assert_null(trpi_link_check(link));
    return verdict;
}

static trpi_stamp send_data(pair *p, trpi_link *link) {
    trpi_stamp stamp;
    trpi_link_stamp(link, TRPI_LINK_DATA, &stamp);
    trpi_link_sent(link, p->now_ns, &times);
    assert_null(trpi_link_check(link));
    return stamp;
}

static trpi_stamp word(trpi_link *link, trpi_link_kind kind) {
    trpi_stamp stamp;
    trpi_link_stamp(link, kind, &stamp);
    return stamp;
}

static trpi_stamp ack(trpi_link *link, bool has_gap) {
    trpi_stamp stamp = word(link, TRPI_LINK_ACK);
    stamp.has_gap = has_gap;
    return stamp;
}

static trpi_stamp opened(pair *p) {
    memset(p, 0, sizeof(*p));
    p->now_ns = 1000 * MS;
    trpi_link_open(&p->opener, 11, 100);
    trpi_stamp first = send_data(p, &p->opener);
    trpi_link_accept(&p->accepter, 22, &first, p->now_ns, &times);
    return first;
}

/* Both sides know each other, and nothing is unconfirmed but the accepter's word. */
static pair connected(void) {
    pair p;
    trpi_stamp first = opened(&p);
    assert_int_equal(take(&p, &p.accepter, &first), TRPI_LINK_DELIVER);
    trpi_stamp answer = send_data(&p, &p.accepter);
    assert_int_equal(take(&p, &p.opener, &answer), TRPI_LINK_DELIVER);
    assert_int_equal(p.work.confirmed, 1);
    assert_true(trpi_link_is_idle(&p.opener));
    return p;
}

static void a_ping_pong_confirms_itself(void **state) {
    pair p = connected();
    for (int i = 0; i < 200; i++) {
        trpi_stamp call = send_data(&p, &p.opener);
        assert_int_equal(take(&p, &p.accepter, &call), TRPI_LINK_DELIVER);
        assert_int_equal(p.work.confirmed, 1);
        assert_false(p.work.must_ack);
        trpi_stamp reply = send_data(&p, &p.accepter);
        assert_int_equal(take(&p, &p.opener, &reply), TRPI_LINK_DELIVER);
        assert_int_equal(p.work.confirmed, 1);
        assert_false(p.work.must_ack);
    }
}

static void a_one_way_stream_is_confirmed_now_and_then(void **state) {
    pair p = connected();
    for (int i = 1; i <= 128; i++) {
        trpi_stamp data = send_data(&p, &p.opener);
        assert_int_equal(take(&p, &p.accepter, &data), TRPI_LINK_DELIVER);
        assert_true(p.work.must_ack == (i % 64 == 0));
        if (p.work.must_ack) {
            trpi_stamp said = ack(&p.accepter, false);
            assert_int_equal(take(&p, &p.opener, &said), TRPI_LINK_NOTED);
            assert_int_equal(p.work.confirmed, 64);
        }
    }
    trpi_stamp large = send_data(&p, &p.opener);
    assert_int_equal(
        trpi_link_take(&p.accepter, &large, (size_t)1 << 40, p.now_ns, &times, &p.work),
        TRPI_LINK_DELIVER);
    assert_true(p.work.must_ack);
}

static void what_comes_twice_is_taken_once(void **state) {
    pair p = connected();
    trpi_stamp data = send_data(&p, &p.opener);
    assert_int_equal(take(&p, &p.accepter, &data), TRPI_LINK_DELIVER);
    assert_int_equal(take(&p, &p.accepter, &data), TRPI_LINK_DUPLICATE);
    assert_false(p.work.must_ack);
}

static void a_gap_is_complained_of_once_and_repeated_once(void **state) {
    pair p = connected();
    trpi_stamp lost = send_data(&p, &p.opener), second = send_data(&p, &p.opener);
    trpi_stamp third = send_data(&p, &p.opener);
    assert_int_equal(take(&p, &p.accepter, &second), TRPI_LINK_MISSED);
    assert_true(p.work.must_ack && p.work.has_gap);
    trpi_stamp complaint = ack(&p.accepter, true);
    assert_int_equal(take(&p, &p.accepter, &third), TRPI_LINK_MISSED);
    assert_false(p.work.must_ack); /* it has been said */
    assert_int_equal(take(&p, &p.opener, &complaint), TRPI_LINK_NOTED);
    assert_true(p.work.must_repeat);
    assert_int_equal(p.work.confirmed, 0);
    assert_int_equal(take(&p, &p.opener, &complaint), TRPI_LINK_NOTED);
    assert_false(p.work.must_repeat); /* it is on its way */
    assert_int_equal(take(&p, &p.accepter, &lost), TRPI_LINK_DELIVER);
    assert_int_equal(take(&p, &p.accepter, &second), TRPI_LINK_DELIVER);
    assert_int_equal(take(&p, &p.accepter, &third), TRPI_LINK_DELIVER);
}

static void a_complaint_is_said_again_when_it_did_not_help(void **state) {
    pair p = connected();
    (void)send_data(&p, &p.opener);
    trpi_stamp second = send_data(&p, &p.opener);
    (void)take(&p, &p.accepter, &second);
    p.now_ns += times.gap_ns;
    (void)take(&p, &p.accepter, &second);
    assert_true(p.work.must_ack && p.work.has_gap);
    trpi_stamp complaint = ack(&p.accepter, true);
    (void)take(&p, &p.opener, &complaint);
    assert_true(p.work.must_repeat);
    p.now_ns += times.gap_ns;
    (void)take(&p, &p.opener, &complaint);
    assert_true(p.work.must_repeat);
}

/* Whoever is busy gets no copies: only the question is said again, ever more rarely. */
static void what_is_not_confirmed_is_asked_for_and_not_repeated(void **state) {
    pair p = connected();
    uint64_t asked_ns[8], step_ns = times.probe_ns;
    (void)send_data(&p, &p.opener);
    assert_int_equal(trpi_link_tick(&p.opener, p.now_ns, &times), TRPI_LINK_REST);
    for (int i = 0; i < 8; i++) {
        p.now_ns = asked_ns[i] = p.opener.due_ns;
        assert_int_equal(trpi_link_tick(&p.opener, p.now_ns, &times), TRPI_LINK_ASK);
        if (i > 0) {
            assert_int_equal(asked_ns[i] - asked_ns[i - 1], step_ns);
            step_ns = TRPI_MIN(2 * step_ns, times.probe_max_ns);
        }
    }
    trpi_stamp probe = word(&p.opener, TRPI_LINK_PROBE);
    assert_int_equal(take(&p, &p.accepter, &probe), TRPI_LINK_NOTED);
    assert_true(p.work.must_ack && p.work.has_gap); /* it was lost after all */
    trpi_stamp complaint = ack(&p.accepter, true);
    assert_int_equal(take(&p, &p.opener, &complaint), TRPI_LINK_NOTED);
    assert_true(p.work.must_repeat);
}

static void a_question_is_answered_when_nothing_is_missing(void **state) {
    pair p = connected();
    trpi_stamp data = send_data(&p, &p.opener), probe = word(&p.opener, TRPI_LINK_PROBE);
    (void)take(&p, &p.accepter, &data);
    (void)take(&p, &p.accepter, &probe);
    assert_true(p.work.must_ack && !p.work.has_gap);
    trpi_stamp answer = ack(&p.accepter, false);
    (void)take(&p, &p.opener, &answer);
    assert_true(!p.work.must_repeat && !p.work.must_ack);
    assert_int_equal(p.work.confirmed, 1);
    p.now_ns = p.opener.due_ns;
    assert_int_equal(trpi_link_tick(&p.opener, p.now_ns, &times), TRPI_LINK_REST);
    assert_true(p.opener.due_ns == UINT64_MAX); /* and no timer is left */
}

static void progress_puts_the_question_off(void **state) {
    pair p = connected();
    trpi_stamp first = send_data(&p, &p.opener);
    p.now_ns += 150 * MS;
    (void)send_data(&p, &p.opener);
    (void)take(&p, &p.accepter, &first);
    trpi_stamp answer = ack(&p.accepter, false);
    (void)take(&p, &p.opener, &answer);
    p.now_ns = p.opener.due_ns;
    assert_int_equal(trpi_link_tick(&p.opener, p.now_ns, &times), TRPI_LINK_REST);
    assert_int_equal(p.opener.due_ns, p.now_ns + times.probe_ns);
}

static void whoever_listens_again_is_soon_asked_again(void **state) {
    pair p = connected();
    (void)send_data(&p, &p.opener);
    for (int i = 0; i < 6; i++) {
        p.now_ns = p.opener.due_ns;
        (void)trpi_link_tick(&p.opener, p.now_ns, &times);
    }
    assert_true(p.opener.due_ns - p.now_ns > 10 * times.probe_ns);
    trpi_stamp complaint = ack(&p.accepter, true);
    (void)take(&p, &p.opener, &complaint);
    assert_true(p.work.must_repeat); /* and that may be lost in turn */
    assert_int_equal(p.opener.due_ns, p.now_ns + times.probe_ns);
}

static void the_first_word_may_be_lost(void **state) {
    pair p;
    trpi_stamp first = opened(&p), second = send_data(&p, &p.opener);
    assert_int_equal(take(&p, &p.accepter, &second), TRPI_LINK_MISSED);
    assert_true(p.work.has_gap);
    trpi_stamp complaint = ack(&p.accepter, true);
    assert_int_equal(take(&p, &p.opener, &complaint), TRPI_LINK_NOTED);
    assert_true(p.work.must_repeat);
    assert_int_equal(take(&p, &p.accepter, &first), TRPI_LINK_DELIVER);
    assert_int_equal(take(&p, &p.accepter, &second), TRPI_LINK_DELIVER);
}

static void a_later_life_ends_the_link_and_an_earlier_one_does_not(void **state) {
    pair p = connected();
    trpi_link later, earlier;
    trpi_link_open(&later, 12, 101);
    trpi_link_open(&earlier, 10, 99);
    trpi_stamp hello = word(&later, TRPI_LINK_DATA), late = word(&earlier, TRPI_LINK_DATA);
    assert_int_equal(take(&p, &p.accepter, &late), TRPI_LINK_STALE);
    assert_int_equal(take(&p, &p.accepter, &hello), TRPI_LINK_REOPENED);
    trpi_link_accept(&p.accepter, 23, &hello, p.now_ns, &times);
    assert_int_equal(take(&p, &p.accepter, &hello), TRPI_LINK_DELIVER);
    /* What the first life still has to say is to a link that is no more. */
    trpi_stamp old = send_data(&p, &p.opener);
    assert_int_equal(take(&p, &p.accepter, &old), TRPI_LINK_FOREIGN);
    trpi_stamp reset;
    trpi_link_refuse(&old, &reset);
    assert_int_equal(take(&p, &later, &reset), TRPI_LINK_STALE); /* it is not the one meant */
    assert_int_equal(take(&p, &p.opener, &reset), TRPI_LINK_VOID);
}

static void who_has_forgotten_the_link_says_so(void **state) {
    pair p = connected();
    trpi_stamp data = send_data(&p, &p.opener), reset;
    assert_false(data.is_open); /* so nobody would begin a link with it */
    trpi_link_refuse(&data, &reset);
    assert_int_equal(take(&p, &p.opener, &reset), TRPI_LINK_VOID);
    assert_int_equal(take(&p, &p.accepter, &reset), TRPI_LINK_STALE);
}

/* The first word, repeated, has met an accepter that was started anew: what of the rest the one
 * before took, nobody knows. */
static void an_accepter_with_another_life_voids_the_link(void **state) {
    pair p = connected();
    trpi_link other;
    pair q;
    trpi_stamp first = opened(&q);
    trpi_link_accept(&other, 33, &first, q.now_ns, &times);
    assert_int_equal(take(&q, &other, &first), TRPI_LINK_DELIVER);
    trpi_stamp answer = send_data(&q, &other);
    assert_int_equal(take(&p, &p.opener, &answer), TRPI_LINK_VOID);
    (void)send_data(&p, &p.accepter); /* and an accepter is not impressed by such */
    answer.to = p.accepter.mine;
    assert_int_equal(take(&p, &p.accepter, &answer), TRPI_LINK_STALE);
}

static void what_was_never_sent_cannot_be_confirmed(void **state) {
    pair p = connected();
    trpi_stamp bogus = ack(&p.accepter, true);
    bogus.ack += 1000;
    assert_int_equal(take(&p, &p.opener, &bogus), TRPI_LINK_STALE);
    assert_false(p.work.must_repeat);
    bogus.ack -= 2000; /* an old one, that came late */
    assert_int_equal(take(&p, &p.opener, &bogus), TRPI_LINK_NOTED);
    assert_int_equal(p.work.confirmed, 0);
}

static void numbers_wrap(void **state) {
    pair p = connected();
    p.opener.next = p.opener.unconfirmed = p.accepter.expected = UINT64_C(0xffffffffffffff00);
    p.accepter.complained_of = 0;
    for (int i = 0; i < 250; i++) {
        trpi_stamp data = send_data(&p, &p.opener);
        assert_int_equal(take(&p, &p.accepter, &data), TRPI_LINK_DELIVER);
        trpi_stamp said = ack(&p.accepter, false);
        (void)take(&p, &p.opener, &said);
        assert_int_equal(p.work.confirmed, 1);
    }
    p = connected();
    p.opener.next = p.opener.unconfirmed = p.accepter.expected = UINT64_C(0xffffff80);
    for (int i = 0; i < 300; i++) {
        trpi_stamp lost = send_data(&p, &p.opener), data = send_data(&p, &p.opener);
        assert_int_equal(take(&p, &p.accepter, &data), TRPI_LINK_MISSED);
        assert_int_equal(take(&p, &p.accepter, &lost), TRPI_LINK_DELIVER);
        assert_int_equal(take(&p, &p.accepter, &data), TRPI_LINK_DELIVER);
        trpi_stamp said = ack(&p.accepter, false);
        (void)take(&p, &p.opener, &said);
        assert_int_equal(p.work.confirmed, 2);
    }
}

static void who_is_out_of_reach_is_tried_often_and_given_up_by_an_accepter(void **state) {
    pair p = connected();
    uint64_t began_ns = p.now_ns;
    trpi_link_task task = TRPI_LINK_REST;
    unsigned asked = 0;
    (void)send_data(&p, &p.accepter);
    trpi_link_reached(&p.accepter, false, p.now_ns, &times);
    while (task != TRPI_LINK_GIVE_UP) {
        p.now_ns = p.accepter.due_ns;
        task = trpi_link_tick(&p.accepter, p.now_ns, &times);
        if (task == TRPI_LINK_ASK) {
            asked++;
            trpi_link_reached(&p.accepter, false, p.now_ns, &times);
        }
    }
    assert_in_range(p.now_ns - began_ns, times.away_ns, times.away_ns + times.probe_ns);
    assert_in_range(asked, 200, 400);
    (void)send_data(&p, &p.opener);
    trpi_link_reached(&p.opener, false, p.now_ns, &times);
    p.now_ns += 10 * times.away_ns;
    assert_int_equal(trpi_link_tick(&p.opener, p.now_ns, &times), TRPI_LINK_ASK);
}

static void an_accepter_looks_after_the_quiet(void **state) {
    pair p = connected();
    trpi_stamp said = ack(&p.opener, false);
    (void)take(&p, &p.accepter, &said);
    p.now_ns = p.accepter.due_ns;
    assert_int_equal(trpi_link_tick(&p.accepter, p.now_ns, &times), TRPI_LINK_REST);
    p.now_ns = p.accepter.due_ns;
    assert_int_equal(trpi_link_tick(&p.accepter, p.now_ns, &times), TRPI_LINK_LOOK);
    trpi_link_reached(&p.accepter, false, p.now_ns, &times);
    p.now_ns += times.probe_ns;
    assert_int_equal(trpi_link_tick(&p.accepter, p.now_ns, &times), TRPI_LINK_LOOK);
    trpi_link_reached(&p.accepter, true, p.now_ns, &times); /* it is back */
    p.now_ns += 2 * times.away_ns;
    assert_int_equal(trpi_link_tick(&p.accepter, p.now_ns, &times), TRPI_LINK_LOOK);
}

static void the_state_of_a_link_is_small(void **state) {
    assert_true(sizeof(trpi_link) <= 128);
}

/* ---- Two sides and a bad network ---- */

enum { DATA_MAX = 60, AIR_MAX = 4096, KEPT_MAX = 64, STEPS = 2000 };

typedef struct message {
    trpi_stamp stamp;
    uint32_t sender_life; /* whose data it is, to check that lives are not mixed */
    uint32_t payload;
    bool to_accepter;
} message;

typedef struct side {
    trpi_link link;
    bool is_there;
    uint32_t kept[KEPT_MAX]; /* payloads that are not confirmed */
    unsigned kept_count;
    uint32_t said;  /* the last payload of this life */
    uint32_t heard; /* the last payload of the peer's life */
    uint32_t heard_life;
    bool *others_life_ended;
} side;

typedef struct world {
    uint64_t random, now_ns;
    side sides[2]; /* opener, accepter */
    message air[AIR_MAX];
    unsigned air_count;
    uint32_t lives, born;
    unsigned permille; /* of loss, of repetition, of overtaking */
    bool is_calm;      /* nothing is lost any more */
    uint64_t delivered;
    unsigned most_kept;
} world;

static uint32_t draw(world *w, uint32_t below) {
    w->random = w->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(w->random >> 33) % below;
}

static bool happens(world *w) {
    return !w->is_calm && draw(w, 1000) < w->permille;
}

static void launch(world *w, bool from_opener, const trpi_stamp *stamp, uint32_t payload) {
    for (int copies = happens(w) ? 2 : 1; copies > 0; copies--) {
        if (!happens(w) && w->air_count < AIR_MAX) {
            w->air[w->air_count++] =
                (message){*stamp, stamp->from, payload, .to_accepter = from_opener};
        }
    }
}

static void say(world *w, side *s, trpi_link_kind kind, bool has_gap) {
    trpi_stamp stamp;
    trpi_link_stamp(&s->link, kind, &stamp);
    stamp.has_gap = has_gap;
    launch(w, s == &w->sides[0], &stamp, 0);
}

static void say_data(world *w, side *s) {
    trpi_stamp stamp;
    if (!s->is_there || s->kept_count == KEPT_MAX) {
        return;
    }
    trpi_link_stamp(&s->link, TRPI_LINK_DATA, &stamp);
    trpi_link_sent(&s->link, w->now_ns, &times);
    s->kept[s->kept_count++] = ++s->said;
    w->most_kept = TRPI_MAX(w->most_kept, s->kept_count);
    launch(w, s == &w->sides[0], &stamp, s->said);
}

static void repeat(world *w, side *s) {
    for (unsigned i = 0; i < s->kept_count; i++) {
        trpi_stamp stamp;
        trpi_link_stamp(&s->link, TRPI_LINK_DATA, &stamp);
        stamp.seq = (uint32_t)(s->link.unconfirmed + i);
        launch(w, s == &w->sides[0], &stamp, s->kept[i]);
    }
}

/* What is kept goes, and whatever comes next is of another life. */
static void start_over(side *s) {
    s->kept_count = 0;
    s->said = 0;
}

static void open_again(world *w, side *s) {
    start_over(s);
    trpi_link_open(&s->link, ++w->lives, w->born);
    s->is_there = true;
}

static void accept_again(world *w, side *s, const trpi_stamp *stamp) {
    start_over(s);
    trpi_link_accept(&s->link, ++w->lives, stamp, w->now_ns, &times);
    s->is_there = true;
}

/* In order, without a gap, each once: payloads of a life count from 1, and no earlier life speaks
 * after a later one. */
static void deliver(world *w, side *s, const message *m) {
    if (m->sender_life != s->heard_life) {
        assert_true(s != &w->sides[1] || m->sender_life > s->heard_life);
        s->heard_life = m->sender_life;
        s->heard = 0;
    }
    assert_int_equal(m->payload, s->heard + 1);
    s->heard = m->payload;
    w->delivered++;
}

static void work(world *w, side *s, const trpi_link_work *todo) {
    assert_true(todo->confirmed <= s->kept_count);
    s->kept_count -= (unsigned)todo->confirmed;
    memmove(s->kept, s->kept + todo->confirmed, s->kept_count * sizeof(s->kept[0]));
    if (todo->must_repeat) {
        repeat(w, s);
    }
    if (todo->must_ack) {
        say(w, s, TRPI_LINK_ACK, todo->has_gap);
    }
}

static void refuse(world *w, side *s, const message *m) {
    trpi_stamp reset;
    trpi_link_refuse(&m->stamp, &reset);
    launch(w, s == &w->sides[0], &reset, 0);
}

static void arrive(world *w, side *s, const message *m) {
    bool is_opener = s == &w->sides[0];
    trpi_link_work todo;
    if (!s->is_there) {
        if (is_opener || !m->stamp.is_open) {
            if (m->stamp.kind != TRPI_LINK_RESET) {
                refuse(w, s, m);
            }
            return;
        }
        accept_again(w, s, &m->stamp);
    }
    trpi_link_verdict verdict = trpi_link_take(&s->link, &m->stamp, 10, w->now_ns, &times, &todo);
    if (verdict == TRPI_LINK_REOPENED) {
        accept_again(w, s, &m->stamp);
        verdict = trpi_link_take(&s->link, &m->stamp, 10, w->now_ns, &times, &todo);
    }
    if (verdict == TRPI_LINK_VOID) {
        s->is_there = false;
        start_over(s);
        if (is_opener) {
            open_again(w, s);
        }
        return;
    }
    if (verdict == TRPI_LINK_FOREIGN) {
        refuse(w, s, m);
    }
    work(w, s, &todo);
    if (verdict == TRPI_LINK_DELIVER) {
        deliver(w, s, m);
    }
}

static void arrive_one(world *w) {
    if (w->air_count == 0) {
        return;
    }
    /* In order, but that one may now and then be overtaken. */
    unsigned index = happens(w) ? draw(w, TRPI_MIN(w->air_count, 4u)) : 0;
    message m = w->air[index];
    w->air_count--;
    memmove(w->air + index, w->air + index + 1, (w->air_count - index) * sizeof(m));
    arrive(w, &w->sides[m.to_accepter], &m);
}

static void pass_time(world *w) {
    w->now_ns += (1 + draw(w, 100)) * MS;
    for (int i = 0; i < 2; i++) {
        side *s = &w->sides[i];
        if (s->is_there && w->now_ns >= s->link.due_ns) {
            trpi_link_task task = trpi_link_tick(&s->link, w->now_ns, &times);
            if (task == TRPI_LINK_ASK || task == TRPI_LINK_LOOK) {
                say(w, s, task == TRPI_LINK_ASK ? TRPI_LINK_PROBE : TRPI_LINK_ACK, false);
            }
        }
    }
}

static void step(world *w, bool with_lives) {
    uint32_t what = draw(w, 100);
    if (what < 20) {
        say_data(w, &w->sides[0]);
    } else if (what < 40) {
        say_data(w, &w->sides[1]);
    } else if (what < 85) {
        arrive_one(w);
    } else if (what < 99 || !with_lives || draw(w, 5) > 0) {
        pass_time(w);
    } else if (draw(w, 2) == 0) { /* another process, or a new socket of this one */
        w->born++;
        open_again(w, &w->sides[0]);
    } else {
        w->sides[1].is_there = false;
        start_over(&w->sides[1]);
        w->sides[1].heard = w->sides[1].heard_life = 0; /* it has no memory either */
    }
}

static void check(const world *w) {
    for (int i = 0; i < 2; i++) {
        const side *s = &w->sides[i];
        if (s->is_there) {
            assert_null(trpi_link_check(&s->link));
            assert_int_equal(s->kept_count, s->link.next - s->link.unconfirmed);
        }
    }
}

/* Nothing is lost any more. */
static void let_arrive(world *w) {
    w->is_calm = true;
    for (int i = 0; i < 500; i++) {
        while (w->air_count > 0) {
            arrive_one(w);
            check(w);
        }
        pass_time(w);
    }
}

/* All that is kept must come, or be void, and then a word goes through at once either way. */
static void settle(world *w) {
    let_arrive(w);
    say_data(w, &w->sides[0]); /* an accepter that was started anew knows nobody yet, ... */
    let_arrive(w);
    say_data(w, &w->sides[0]); /* ... and may have told its opener so only now */
    let_arrive(w);
    say_data(w, &w->sides[1]);
    let_arrive(w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w->sides[i].kept_count, 0);
        assert_int_equal(w->sides[1 - i].heard, w->sides[i].said);
        assert_int_equal(w->sides[1 - i].heard_life, w->sides[i].link.mine);
    }
}

static void run(uint64_t seed, bool with_lives) {
    static world w;
    memset(&w, 0, sizeof(w));
    w.random = seed * UINT64_C(0x9e3779b97f4a7c15);
    w.now_ns = 1000 * MS;
    w.permille = draw(&w, 300);
    open_again(&w, &w.sides[0]);
    for (int i = 0; i < STEPS; i++) {
        step(&w, with_lives);
        check(&w);
    }
    settle(&w);
    assert_true(with_lives || w.delivered > 100);
}

static uint64_t seeds(void) {
    const char *text = getenv("LINK_SEEDS");
    return text != NULL ? strtoull(text, NULL, 10) : 100;
}

static void in_any_weather_all_comes_once_and_in_order(void **state) {
    for (uint64_t seed = 1; seed <= seeds(); seed++) {
        run(seed, false);
    }
}

static void lives_that_end_mix_nothing_up(void **state) {
    for (uint64_t seed = 1; seed <= seeds(); seed++) {
        run(seed, true);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ping_pong_confirms_itself),
        cmocka_unit_test(a_one_way_stream_is_confirmed_now_and_then),
        cmocka_unit_test(what_comes_twice_is_taken_once),
        cmocka_unit_test(a_gap_is_complained_of_once_and_repeated_once),
        cmocka_unit_test(a_complaint_is_said_again_when_it_did_not_help),
        cmocka_unit_test(what_is_not_confirmed_is_asked_for_and_not_repeated),
        cmocka_unit_test(a_question_is_answered_when_nothing_is_missing),
        cmocka_unit_test(progress_puts_the_question_off),
        cmocka_unit_test(whoever_listens_again_is_soon_asked_again),
        cmocka_unit_test(the_first_word_may_be_lost),
        cmocka_unit_test(a_later_life_ends_the_link_and_an_earlier_one_does_not),
        cmocka_unit_test(who_has_forgotten_the_link_says_so),
        cmocka_unit_test(an_accepter_with_another_life_voids_the_link),
        cmocka_unit_test(what_was_never_sent_cannot_be_confirmed),
        cmocka_unit_test(numbers_wrap),
        cmocka_unit_test(who_is_out_of_reach_is_tried_often_and_given_up_by_an_accepter),
        cmocka_unit_test(an_accepter_looks_after_the_quiet),
        cmocka_unit_test(the_state_of_a_link_is_small),
        cmocka_unit_test(in_any_weather_all_comes_once_and_in_order),
        cmocka_unit_test(lives_that_end_mix_nothing_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

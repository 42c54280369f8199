/* caller_test.c: the machine of one process' calls: order, retries, deadlines, deaths. */
#include "actors/state/caller.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ACTOR 7

typedef struct bench {
    trpi_caller *caller;
    trpi_caller_actions actions;
    size_t seen; /* actions before this one have been looked at */
    uint64_t sent[512];
    size_t sent_count;
    bool connects_by_itself;
    uint64_t connection; /* of the last CONNECT */
} bench;

static int set_up(void **state) {
    bench *b = calloc(1, sizeof(*b));
    b->caller = trpi_caller_new("here", 200000);
    b->connects_by_itself = true;
    *state = b;
    return 0;
}

static int tear_down(void **state) {
    bench *b = *state;
    trpi_caller_free(b->caller);
    trpi_caller_actions_release(&b->actions);
    free(b);
    return 0;
}

static void check(bench *b) {
    const char *broken = trpi_caller_check(b->caller);
    if (broken != NULL) {
        fail_msg("%s", broken);
    }
}

static trpi_death killed(uint64_t incarnation, bool is_final) {
    return (trpi_death){.incarnation = incarnation,
                        .node = 3,
                        .pid = 123,
                        .cause = TRP_CAUSE_SIGNALED,
                        .signal = 9,
                        .is_final = is_final,
                        .message = "",
                        .stderr_tail = "last words",
                        .core = "/var/core.123"};
}

/* The head says: this phase, this incarnation; the one before, if any, was killed. */
static void word_of_head(bench *b, unsigned phase, uint64_t incarnation, int64_t retries_max) {
    bool has_death = incarnation > 1 || phase == TRP_ACTOR_DEAD;
    trpi_death death =
        killed(phase == TRP_ACTOR_DEAD ? incarnation : incarnation - 1, phase == TRP_ACTOR_DEAD);
    trpi_msg_actor_state state = {.actor = ACTOR,
                                  .phase = phase,
                                  .incarnation = incarnation,
                                  .node = 3,
                                  .pid = 123,
                                  .type = "counter",
                                  .name = "",
                                  .host_id = "here",
                                  .endpoint = "ipc:///tmp/w",
                                  .remote_endpoint = "",
                                  .restarts = (int64_t)incarnation - 1,
                                  .call_retries_max = retries_max,
                                  .death = &death,
                                  .death_count = has_death,
                                  .waiting_for = ""};
    trpi_caller_state(b->caller, &state, &b->actions);
}

/* Carries out what the shell would, and remembers what was sent. */
static void carry_out(bench *b) {
    for (; b->seen < b->actions.count; b->seen++) {
        trpi_caller_action action = b->actions.items[b->seen];
        if (action.kind == TRPI_CALLER_SEND) {
            b->sent[b->sent_count++ % TRPI_COUNTOF(b->sent)] = action.call;
        }
        b->connection = action.kind == TRPI_CALLER_CONNECT ? action.connection : b->connection;
        if (action.kind == TRPI_CALLER_CONNECT && b->connects_by_itself) {
            trpi_caller_connected(b->caller, action.actor, action.connection, TRP_OK, "",
                                  &b->actions);
        }
    }
    check(b);
}

static void forget(bench *b) {
    trpi_caller_actions_clear(&b->actions);
    b->seen = 0;
    b->sent_count = 0;
}

static void head_says(bench *b, unsigned phase, uint64_t incarnation, int64_t retries_max) {
    word_of_head(b, phase, incarnation, retries_max);
    carry_out(b);
}

static trpi_call_order an_order(void *tag) {
    return (trpi_call_order){.actor = ACTOR,
                             .method = "add",
                             .args = trp_bytes_of("12"),
                             .deadline_ns = UINT64_MAX,
                             .tag = tag};
}

static uint64_t call_until(bench *b, uint64_t deadline_ns, void *tag) {
    uint64_t call = 0;
    trpi_call_order order = an_order(tag);
    order.deadline_ns = deadline_ns;
    assert_int_equal(trpi_caller_call(b->caller, &order, &call, &b->actions, NULL), TRP_OK);
    carry_out(b);
    return call;
}

static uint64_t call(bench *b, void *tag) {
    return call_until(b, UINT64_MAX, tag);
}

static void reply_from(bench *b, uint64_t incarnation, uint64_t answered) {
    trpi_msg_reply reply = {.call = answered, .incarnation = incarnation, .message = ""};
    trpi_caller_reply(b->caller, b->connection, &reply, 0, &b->actions);
    carry_out(b);
}

static const trpi_caller_action *completed(bench *b, const void *tag) {
    for (size_t i = 0; i < b->actions.count; i++) {
        if (b->actions.items[i].kind == TRPI_CALLER_COMPLETE && b->actions.items[i].tag == tag) {
            return &b->actions.items[i];
        }
    }
    return NULL;
}

static size_t count_of(bench *b, trpi_caller_action_kind kind) {
    size_t count = 0;
    for (size_t i = 0; i < b->actions.count; i++) {
        count += b->actions.items[i].kind == kind;
    }
    return count;
}

static void assert_failed(bench *b, const void *tag, trp_code code, const char *part) {
    const trpi_caller_action *action = completed(b, tag);
    assert_non_null(action);
    assert_int_equal(action->code, code);
    if (strstr(action->message, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", action->message, part);
    }
}

static void the_first_call_asks_the_head_and_waits_until_the_actor_is_alive(void **state) {
    bench *b = *state;
    int tags[3];
    uint64_t calls[3];
    for (int i = 0; i < 3; i++) {
        calls[i] = call(b, &tags[i]);
    }
    assert_int_equal(count_of(b, TRPI_CALLER_SUBSCRIBE), 1);
    head_says(b, TRP_ACTOR_PENDING, 1, 0);
    assert_int_equal(b->sent_count, 0);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_int_equal(b->sent_count, 3);
    assert_memory_equal(b->sent, calls, sizeof(calls));
    reply_from(b, 1, calls[1]);
    assert_non_null(completed(b, &tags[1]));
    assert_null(completed(b, &tags[0]));
}

static void a_call_in_flight_without_retries_fails_with_pid_node_and_signal_A03(void **state) {
    bench *b = *state;
    int tag;
    call(b, &tag);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    head_says(b, TRP_ACTOR_DEAD, 1, 0);
    assert_failed(b, &tag, TRP_EACTOR_DIED, "a7");
    assert_failed(b, &tag, TRP_EACTOR_DIED, "pid 123");
    assert_failed(b, &tag, TRP_EACTOR_DIED, "node n3");
    assert_failed(b, &tag, TRP_EACTOR_DIED, "SIGKILL");
    assert_int_equal(count_of(b, TRPI_CALLER_DISCONNECT), 1);
}

static void while_restarting_a_call_without_retries_fails_at_once_A04(void **state) {
    bench *b = *state;
    int before, during, after;
    call(b, &before);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    head_says(b, TRP_ACTOR_RESTARTING, 2, 0);
    assert_failed(b, &before, TRP_EUNAVAILABLE, "may have run");
    call(b, &during);
    assert_failed(b, &during, TRP_EUNAVAILABLE, "being restarted");
    head_says(b, TRP_ACTOR_ALIVE, 2, 0);
    forget(b);
    reply_from(b, 2, call(b, &after));
    assert_int_equal(completed(b, &after)->code, TRP_OK);
}

static void a_restarting_actor_that_was_not_known_fails_calls_without_retries(void **state) {
    bench *b = *state;
    int tag;
    call(b, &tag);
    head_says(b, TRP_ACTOR_RESTARTING, 2, 0);
    assert_failed(b, &tag, TRP_EUNAVAILABLE, "being restarted");
}

static void calls_with_retries_are_sent_again_in_order_A02(void **state) {
    bench *b = *state;
    int tags[101];
    uint64_t calls[101];
    head_says(b, TRP_ACTOR_PENDING, 1, 1);
    for (int i = 0; i < 100; i++) {
        calls[i] = call(b, &tags[i]);
    }
    head_says(b, TRP_ACTOR_ALIVE, 1, 1);
    head_says(b, TRP_ACTOR_RESTARTING, 2, 1);
    calls[100] = call(b, &tags[100]); /* waits, and uses no retry by it */
    forget(b);
    head_says(b, TRP_ACTOR_ALIVE, 2, 1);
    assert_int_equal(b->sent_count, 101);
    assert_memory_equal(b->sent, calls, sizeof(calls));
    assert_int_equal(b->actions.items[b->actions.count - 2].tries, 1);
    assert_int_equal(b->actions.items[b->actions.count - 1].tries, 0);
    assert_int_equal(b->actions.items[b->actions.count - 1].seq, 101);
    forget(b);
    head_says(b, TRP_ACTOR_RESTARTING, 3, 1);
    assert_failed(b, &tags[0], TRP_EUNAVAILABLE, "SIGKILL");
    assert_null(completed(b, &tags[100]));
    head_says(b, TRP_ACTOR_ALIVE, 3, 1);
    reply_from(b, 3, calls[100]);
    assert_int_equal(completed(b, &tags[100])->code, TRP_OK);
}

static void retries_without_end_outlive_many_incarnations(void **state) {
    bench *b = *state;
    int tag;
    call(b, &tag);
    for (uint64_t incarnation = 1; incarnation < 50; incarnation++) {
        head_says(b, TRP_ACTOR_ALIVE, incarnation, -1);
        head_says(b, TRP_ACTOR_RESTARTING, incarnation + 1, -1);
    }
    assert_null(completed(b, &tag));
    assert_int_equal(b->sent_count, 49);
    head_says(b, TRP_ACTOR_DEAD, 50, -1);
    assert_failed(b, &tag, TRP_EACTOR_DIED, "dead: actor a7 (counter)");
}

static void a_dead_actor_fails_calls_now_and_later_with_its_cause_A08(void **state) {
    bench *b = *state;
    int now, later;
    call(b, &now);
    head_says(b, TRP_ACTOR_DEAD, 1, -1);
    assert_failed(b, &now, TRP_EACTOR_DIED, "SIGKILL");
    forget(b);
    call(b, &later);
    assert_failed(b, &later, TRP_EACTOR_DIED, "SIGKILL");
    assert_int_equal(trpi_caller_call_count(b->caller), 0);
}

static void an_actor_that_never_was_is_not_found(void **state) {
    bench *b = *state;
    int tag;
    call(b, &tag);
    head_says(b, TRPI_PHASE_UNKNOWN, 0, 0);
    assert_failed(b, &tag, TRP_ENOTFOUND, "no actor a7");
}

static void calls_wait_on_when_an_incarnation_dies_before_it_served_A09(void **state) {
    bench *b = *state;
    int tag;
    call(b, &tag);
    head_says(b, TRP_ACTOR_PENDING, 1, 0);
    head_says(b, TRP_ACTOR_PENDING, 2, 0);
    head_says(b, TRP_ACTOR_ALIVE, 2, 0);
    assert_int_equal(b->sent_count, 1);
    assert_null(completed(b, &tag));
}

static void replies_of_stale_incarnations_and_strangers_are_dropped(void **state) {
    bench *b = *state;
    int tag;
    uint64_t id = call(b, &tag);
    reply_from(b, 1, id); /* before it was sent at all */
    head_says(b, TRP_ACTOR_ALIVE, 1, -1);
    head_says(b, TRP_ACTOR_ALIVE, 2, -1); /* the word in between was lost on the way */
    reply_from(b, 1, id);
    assert_null(completed(b, &tag));
    trpi_msg_reply reply = {.call = id, .incarnation = 2, .message = ""};
    trpi_caller_reply(b->caller, b->connection - 1, &reply, 0, &b->actions);
    assert_null(completed(b, &tag));
    reply_from(b, 2, id);
    assert_non_null(completed(b, &tag));
    forget(b);
    reply_from(b, 2, id); /* twice */
    assert_int_equal(b->actions.count, 0);
}

static void an_older_word_of_the_head_changes_nothing(void **state) {
    bench *b = *state;
    int tag;
    call(b, &tag);
    head_says(b, TRP_ACTOR_ALIVE, 2, 0);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    head_says(b, TRP_ACTOR_RESTARTING, 1, 0);
    assert_null(completed(b, &tag));
    assert_int_equal(count_of(b, TRPI_CALLER_CONNECT), 1);
    head_says(b, TRP_ACTOR_DEAD, 2, 0);
    forget(b);
    head_says(b, TRP_ACTOR_ALIVE, 3, 0);
    assert_int_equal(b->actions.count, 0);
}

static void a_connection_number_is_never_used_twice(void **state) {
    bench *b = *state;
    int tag;
    call(b, &tag);
    head_says(b, TRP_ACTOR_ALIVE, 1, -1);
    uint64_t first = b->connection;
    head_says(b, TRP_ACTOR_PENDING, 1,
              -1); /* a head that forgot: not to be trusted, but survived */
    head_says(b, TRP_ACTOR_ALIVE, 1, -1);
    assert_int_not_equal(b->connection, first);
    assert_null(completed(b, &tag));
}

static void deadlines_fail_calls_in_their_order(void **state) {
    bench *b = *state;
    int tags[3];
    uint64_t late = call_until(b, 300, &tags[0]);
    call_until(b, 100, &tags[1]);
    call_until(b, 200, &tags[2]);
    assert_int_equal(trpi_caller_next_tick(b->caller), 100);
    trpi_caller_tick(b->caller, 99, &b->actions);
    assert_int_equal(count_of(b, TRPI_CALLER_COMPLETE), 0);
    trpi_caller_tick(b->caller, 100, &b->actions);
    assert_failed(b, &tags[1], TRP_ETIMEOUT, "not yet said");
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_int_equal(b->sent_count, 2);
    trpi_caller_tick(b->caller, 250, &b->actions);
    assert_failed(b, &tags[2], TRP_ETIMEOUT, "may still run");
    reply_from(b, 1, late);
    assert_int_equal(completed(b, &tags[0])->code, TRP_OK);
    assert_int_equal(trpi_caller_next_tick(b->caller), UINT64_MAX);
}

static void a_released_call_runs_on_but_nobody_hears_of_it(void **state) {
    bench *b = *state;
    int tag;
    uint64_t id = call(b, &tag);
    trpi_caller_release(b->caller, id);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_int_equal(b->sent_count, 1);
    reply_from(b, 1, id);
    assert_int_equal(count_of(b, TRPI_CALLER_COMPLETE), 0);
    assert_int_equal(trpi_caller_call_count(b->caller), 0);
}

static void a_call_that_could_not_be_sent_is_handed_back(void **state) {
    bench *b = *state;
    int tag;
    uint64_t id = call(b, &tag);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_ptr_equal(trpi_caller_abandon(b->caller, id, &b->actions), &tag);
    assert_null(trpi_caller_abandon(b->caller, id, &b->actions));
    check(b);
}

static void an_actor_without_a_usable_endpoint_fails_its_calls_saying_so(void **state) {
    bench *b = *state;
    int tag, later;
    trpi_msg_actor_state elsewhere = {.actor = ACTOR,
                                      .phase = TRP_ACTOR_ALIVE,
                                      .incarnation = 1,
                                      .node = 3,
                                      .type = "counter",
                                      .name = "",
                                      .host_id = "there",
                                      .endpoint = "ipc:///tmp/w",
                                      .remote_endpoint = "",
                                      .waiting_for = ""};
    call(b, &tag);
    trpi_caller_state(b->caller, &elsewhere, &b->actions);
    assert_failed(b, &tag, TRP_EDISCONNECTED, "--host");
    call(b, &later);
    assert_failed(b, &later, TRP_EDISCONNECTED, "--host");
}

static void a_connection_that_cannot_be_made_fails_the_calls(void **state) {
    bench *b = *state;
    int tag;
    b->connects_by_itself = false;
    call(b, &tag);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    carry_out(b);
    trpi_caller_connected(b->caller, ACTOR, b->connection, TRP_EIO, "path too long", &b->actions);
    check(b);
    assert_failed(b, &tag, TRP_EDISCONNECTED, "path too long");
}

static void each_death_of_a_monitored_actor_is_told_once(void **state) {
    bench *b = *state;
    trpi_caller_monitor(b->caller, ACTOR, &b->actions);
    head_says(b, TRP_ACTOR_ALIVE, 2, 0); /* that incarnation 1 died is the past */
    assert_int_equal(count_of(b, TRPI_CALLER_DEATH), 0);
    head_says(b, TRP_ACTOR_RESTARTING, 3, 0);
    head_says(b, TRP_ACTOR_RESTARTING, 3, 0);
    head_says(b, TRP_ACTOR_ALIVE, 3, 0);
    assert_int_equal(count_of(b, TRPI_CALLER_DEATH), 1);
    head_says(b, TRP_ACTOR_DEAD, 3, 0);
    assert_int_equal(count_of(b, TRPI_CALLER_DEATH), 2);
    trp_death death;
    assert_true(trpi_caller_get_death(b->caller, ACTOR, &death));
    assert_true(death.final);
    assert_int_equal(death.signal, 9);
    assert_string_equal(death.stderr_tail, "last words");
}

static void monitoring_an_actor_that_is_dead_tells_it_at_once(void **state) {
    bench *b = *state;
    trpi_caller_watch(b->caller, ACTOR, &b->actions);
    head_says(b, TRP_ACTOR_DEAD, 1, 0);
    assert_int_equal(count_of(b, TRPI_CALLER_DEATH), 0);
    trpi_caller_monitor(b->caller, ACTOR, &b->actions);
    assert_int_equal(count_of(b, TRPI_CALLER_DEATH), 1);
    trpi_caller_monitor(b->caller, ACTOR, &b->actions);
    assert_int_equal(count_of(b, TRPI_CALLER_DEATH), 1);
}

static void calls_above_the_limit_are_refused(void **state) {
    bench *b = *state;
    int tag;
    uint64_t id;
    trpi_caller *small = trpi_caller_new("here", 2);
    for (int i = 0; i < 3; i++) {
        trp_error error = {0};
        trpi_call_order order = an_order(&tag);
        trp_code code = trpi_caller_call(small, &order, &id, &b->actions, &error);
        assert_int_equal(code, i < 2 ? TRP_OK : TRP_EBUSY);
        assert_true(i < 2 || strstr(error.message, "TROUPE_PENDING_CALLS_MAX is 2") != NULL);
    }
    trpi_caller_free(small);
}

static void a_hundred_thousand_calls_in_flight_are_cheap(void **state) {
    bench *b = *state;
    enum { COUNT = 100000 };
    uint64_t *ids = calloc(COUNT, sizeof(*ids));
    int tag;
    head_says(b, TRP_ACTOR_PENDING, 1, 0);
    trpi_caller_watch(b->caller, ACTOR, &b->actions);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    for (int i = 0; i < COUNT; i++) {
        trpi_call_order order = an_order(&tag);
        order.deadline_ns = 1000 + (uint64_t)i;
        assert_int_equal(trpi_caller_call(b->caller, &order, &ids[i], &b->actions, NULL), TRP_OK);
        trpi_caller_actions_clear(&b->actions);
    }
    /* Backwards, so that a walk from the front of any list would take for ever. */
    for (int i = COUNT - 1; i >= 0; i--) {
        trpi_msg_reply reply = {.call = ids[i], .incarnation = 1, .message = ""};
        trpi_caller_reply(b->caller, b->connection, &reply, 0, &b->actions);
        trpi_caller_actions_clear(&b->actions);
    }
    assert_int_equal(trpi_caller_call_count(b->caller), 0);
    free(ids);
    b->seen = 0;
    check(b);
}

static uint64_t draw(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

/* Whatever happens in whatever order, the invariants hold, calls are sent in call order within an
 * incarnation, and each call ends exactly once. */
static void random_lives(bench *b, uint64_t seed) {
    static int tags[400];
    int ended[400] = {0};
    uint64_t ids[400], incarnation = 1;
    int made = 0;
    bool is_alive = false;
    b->caller = trpi_caller_new("here", 1000);
    trpi_caller_watch(b->caller, ACTOR, &b->actions);
    head_says(b, TRP_ACTOR_PENDING, 1, 2);
    for (int step = 0; step < 600; step++) {
        uint64_t dice = draw(&seed) % 10;
        if (dice < 5 && made < 400) {
            ids[made] = call_until(b, draw(&seed) % 4 ? UINT64_MAX : 1 + (uint64_t)step + dice * 9,
                                   &tags[made]);
            made++;
        } else if (dice < 8 && made > 0) {
            reply_from(b, incarnation, ids[draw(&seed) % (uint64_t)made]);
        } else if (dice == 8) {
            incarnation += is_alive;
            head_says(b, is_alive ? TRP_ACTOR_RESTARTING : TRP_ACTOR_ALIVE, incarnation, 2);
            is_alive = !is_alive;
        } else {
            trpi_caller_tick(b->caller, (uint64_t)step, &b->actions);
        }
    }
    head_says(b, TRP_ACTOR_DEAD, incarnation, 2);
    uint64_t last_seq = 0, last_incarnation = 0;
    for (size_t i = 0; i < b->actions.count; i++) {
        const trpi_caller_action *action = &b->actions.items[i];
        if (action->kind == TRPI_CALLER_COMPLETE) {
            ended[(int *)action->tag - tags]++;
        }
        if (action->kind == TRPI_CALLER_SEND) {
            assert_int_equal(action->seq,
                             action->incarnation == last_incarnation ? last_seq + 1 : 1);
            last_seq = action->seq;
            last_incarnation = action->incarnation;
        }
    }
    for (int i = 0; i < made; i++) {
        assert_int_equal(ended[i], 1);
    }
    trpi_caller_free(b->caller);
    b->caller = NULL;
    forget(b);
}

static void in_random_lives_every_call_ends_exactly_once(void **state) {
    bench *b = *state;
    trpi_caller_free(b->caller);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        random_lives(b, seed * 0x9E3779B97F4A7C15ULL);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_first_call_asks_the_head_and_waits_until_the_actor_is_alive),
        TEST(a_call_in_flight_without_retries_fails_with_pid_node_and_signal_A03),
        TEST(while_restarting_a_call_without_retries_fails_at_once_A04),
        TEST(a_restarting_actor_that_was_not_known_fails_calls_without_retries),
        TEST(calls_with_retries_are_sent_again_in_order_A02),
        TEST(retries_without_end_outlive_many_incarnations),
        TEST(a_dead_actor_fails_calls_now_and_later_with_its_cause_A08),
        TEST(an_actor_that_never_was_is_not_found),
        TEST(calls_wait_on_when_an_incarnation_dies_before_it_served_A09),
        TEST(replies_of_stale_incarnations_and_strangers_are_dropped),
        TEST(an_older_word_of_the_head_changes_nothing),
        TEST(a_connection_number_is_never_used_twice),
        TEST(deadlines_fail_calls_in_their_order),
        TEST(a_released_call_runs_on_but_nobody_hears_of_it),
        TEST(a_call_that_could_not_be_sent_is_handed_back),
        TEST(an_actor_without_a_usable_endpoint_fails_its_calls_saying_so),
        TEST(a_connection_that_cannot_be_made_fails_the_calls),
        TEST(each_death_of_a_monitored_actor_is_told_once),
        TEST(monitoring_an_actor_that_is_dead_tells_it_at_once),
        TEST(calls_above_the_limit_are_refused),
        TEST(a_hundred_thousand_calls_in_flight_are_cheap),
        TEST(in_random_lives_every_call_ends_exactly_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

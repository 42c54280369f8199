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
    trpi_text *retry_on; /* what the head says of the actor's options */
    size_t retry_on_count;
    uint64_t pending_max;
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
                                  .waiting_for = "",
                                  .max_pending_calls = b->pending_max,
                                  .retry_on = b->retry_on,
                                  .retry_on_count = b->retry_on_count,
                                  .draining = b->pending_max == 99,
                                  .drain_ms = b->pending_max == 99 ? 5000 : 0};
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

/* It may have run it: sent again it could run twice in one incarnation. */
static void
what_was_under_way_on_a_broken_connection_fails_and_the_next_call_goes_on(void **state) {
    bench *b = *state;
    int before, after;
    call(b, &before);
    head_says(b, TRP_ACTOR_ALIVE, 1, -1);
    uint64_t broken = b->connection;
    trpi_caller_broken(b->caller, broken + 1, &b->actions); /* none of ours */
    assert_null(completed(b, &before));
    trpi_caller_broken(b->caller, broken, &b->actions);
    carry_out(b);
    assert_failed(b, &before, TRP_EDISCONNECTED, "may have run");
    assert_int_equal(count_of(b, TRPI_CALLER_DISCONNECT), 1);
    assert_true(b->connection != broken);
    forget(b);
    reply_from(b, 1, call(b, &after));
    assert_int_equal(completed(b, &after)->code, TRP_OK);
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

/* ---- Failures of user code ---- */

static void fail_with(bench *b, uint64_t incarnation, uint64_t answered, trp_code code,
                      const char *type, uint64_t now_ns) {
    trpi_msg_reply reply = {.call = answered,
                            .incarnation = incarnation,
                            .code = code,
                            .message = "no key k",
                            .error_type = type,
                            .error_where = "counter.c:42 add()"};
    trpi_caller_reply(b->caller, b->connection, &reply, now_ns, &b->actions);
    carry_out(b);
}

static void a_raised_failure_arrives_with_its_type_its_place_and_who_it_was(void **state) {
    bench *b = *state;
    int tag;
    uint64_t id = call(b, &tag);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    fail_with(b, 1, id, TRP_EUSER, "KeyError", 0);
    assert_failed(b, &tag, TRP_EUSER, "actor a7 (counter): no key k");
    assert_string_equal(completed(b, &tag)->type, "KeyError");
    assert_string_equal(completed(b, &tag)->where, "counter.c:42 add()");
    assert_int_equal(completed(b, &tag)->node, 3);
}

/* How often a call is sent whose every try fails in the same way. */
static const struct retry_row {
    const char *what;
    int64_t actors_max;
    int own_max;
    const char *actors_types[2], *own_types[2];
    bool has_own;
    trp_code code;
    const char *type;
    size_t sends;
} retry_rows[] = {
    {"the actor's types and count", 3, 0, {"Busy"}, {0}, false, TRP_EUSER, "Busy", 4},
    {"another type", 3, 0, {"Busy"}, {0}, false, TRP_EUSER, "KeyError", 1},
    {"all types", 3, 0, {"*"}, {0}, false, TRP_EUSER, "Busy", 4},
    {"all types, and one without", 3, 0, {"*"}, {0}, false, TRP_EUSER, "", 4},
    {"one of two", 1, 0, {"Busy", "Late"}, {0}, false, TRP_EUSER, "Late", 2},
    {"no type at all", 3, 0, {0}, {0}, false, TRP_EUSER, "Busy", 1},
    {"no retries", 0, 0, {"*"}, {0}, false, TRP_EUSER, "Busy", 1},
    {"the call's own count", 3, 1, {"*"}, {0}, false, TRP_EUSER, "Busy", 2},
    {"a call that wants none", 3, TRP_RETRIES_NONE, {"*"}, {0}, false, TRP_EUSER, "Busy", 1},
    {"the call's own types", 0, 2, {0}, {"Busy"}, true, TRP_EUSER, "Busy", 3},
    {"own types instead of the actor's", 3, 0, {"*"}, {"Late"}, true, TRP_EUSER, "Busy", 1},
    {"own types that are none", 3, 0, {"*"}, {0}, true, TRP_EUSER, "Busy", 1},
    {"a failure that is not the user's", 3, 0, {"*"}, {0}, false, TRP_EIO, "", 1},
};

static size_t count_sends(bench *b, const struct retry_row *row, bool is_known) {
    const char *own[3] = {row->own_types[0], row->own_types[1], NULL};
    trpi_text types[2] = {{row->actors_types[0]}, {row->actors_types[1]}};
    int tag;
    uint64_t id = 0, now_ns = 0;
    trpi_call_order order = an_order(&tag);
    order.retries_max = row->own_max;
    order.retry_on = row->has_own ? own : NULL;
    b->caller = trpi_caller_new("here", 10);
    b->retry_on = types;
    b->retry_on_count = (types[0].value != NULL) + (size_t)(types[1].value != NULL);
    trpi_caller_watch(b->caller, ACTOR, &b->actions);
    for (int i = 0; i < 2; i++) { /* made before the actor is known, or after */
        if (i == (int)is_known) {
            assert_int_equal(trpi_caller_call(b->caller, &order, &id, &b->actions, NULL), TRP_OK);
            carry_out(b);
        } else {
            head_says(b, TRP_ACTOR_ALIVE, 1, row->actors_max);
        }
    }
    size_t sends = b->sent_count;
    for (size_t before = 0; sends != before;) {
        before = sends;
        fail_with(b, 1, id, row->code, row->type, now_ns);
        now_ns = trpi_caller_next_tick(b->caller);
        trpi_caller_tick(b->caller, now_ns, &b->actions);
        carry_out(b);
        sends = b->sent_count;
    }
    assert_int_equal(completed(b, &tag)->code, row->code);
    trpi_caller_free(b->caller);
    b->caller = NULL;
    b->retry_on_count = 0;
    forget(b);
    return sends;
}

static void failures_of_user_code_are_tried_again_as_asked(void **state) {
    bench *b = *state;
    trpi_caller_free(b->caller);
    for (size_t i = 0; i < TRPI_COUNTOF(retry_rows); i++) {
        for (int is_known = 0; is_known < 2; is_known++) {
            size_t sends = count_sends(b, &retry_rows[i], is_known);
            if (sends != retry_rows[i].sends) {
                fail_msg("%s: sent %zu times, not %zu", retry_rows[i].what, sends,
                         retry_rows[i].sends);
            }
        }
    }
}

static trpi_call_order a_stubborn_order(void *tag) {
    static const char *const all[] = {"*", NULL};
    trpi_call_order order = an_order(tag);
    order.retries_max = -1;
    order.retry_on = all;
    return order;
}

static uint64_t stubborn_call(bench *b, uint64_t deadline_ns, void *tag) {
    uint64_t id = 0;
    trpi_call_order order = a_stubborn_order(tag);
    order.deadline_ns = deadline_ns;
    assert_int_equal(trpi_caller_call(b->caller, &order, &id, &b->actions, NULL), TRP_OK);
    carry_out(b);
    return id;
}

static void a_failed_call_rests_twice_as_long_each_time_and_a_second_at_most(void **state) {
    bench *b = *state;
    static const uint64_t rests_ms[] = {10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 1000};
    int tag;
    uint64_t id = stubborn_call(b, UINT64_MAX, &tag), now_ns = 77;
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    for (size_t i = 0; i < TRPI_COUNTOF(rests_ms); i++) {
        fail_with(b, 1, id, TRP_EUSER, "Busy", now_ns);
        assert_int_equal(trpi_caller_next_tick(b->caller), now_ns + rests_ms[i] * 1000000);
        trpi_caller_tick(b->caller, now_ns + rests_ms[i] * 1000000 - 1, &b->actions);
        carry_out(b);
        assert_int_equal(b->sent_count, i + 1);
        now_ns += rests_ms[i] * 1000000;
        trpi_caller_tick(b->caller, now_ns, &b->actions);
        carry_out(b);
        assert_int_equal(b->sent_count, i + 2);
        assert_int_equal(b->actions.items[b->actions.count - 1].tries, i + 1);
    }
    reply_from(b, 1, id);
    assert_int_equal(completed(b, &tag)->code, TRP_OK);
    assert_int_equal(trpi_caller_next_tick(b->caller), UINT64_MAX);
}

static void a_resting_call_is_overtaken_and_goes_to_whoever_lives_then(void **state) {
    bench *b = *state;
    int tags[2];
    uint64_t resting = stubborn_call(b, UINT64_MAX, &tags[0]);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    fail_with(b, 1, resting, TRP_EUSER, "Busy", 0);
    reply_from(b, 1, call(b, &tags[1]));
    assert_int_equal(completed(b, &tags[1])->code, TRP_OK);
    head_says(b, TRP_ACTOR_RESTARTING, 2, 0);
    trpi_caller_tick(b->caller, 10000000, &b->actions); /* waits for the restart from now on */
    carry_out(b);
    forget(b);
    head_says(b, TRP_ACTOR_ALIVE, 2, 0);
    assert_int_equal(b->sent_count, 1);
    assert_int_equal(b->sent[0], resting);
    assert_int_equal(b->actions.items[b->actions.count - 1].tries, 1);
    fail_with(b, 2, resting, TRP_EUSER, "Busy", 0);
    head_says(b, TRP_ACTOR_DEAD, 2, 0);
    assert_failed(b, &tags[0], TRP_EACTOR_DIED, "SIGKILL");
}

static void a_deadline_ends_a_rest(void **state) {
    bench *b = *state;
    int tag;
    uint64_t id = stubborn_call(b, 5000000, &tag);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    fail_with(b, 1, id, TRP_EUSER, "Busy", 1000000);
    assert_int_equal(trpi_caller_next_tick(b->caller), 5000000);
    trpi_caller_tick(b->caller, 5000000, &b->actions);
    carry_out(b);
    assert_failed(b, &tag, TRP_ETIMEOUT, "before it was tried again");
}

/* ---- Limits ---- */

static void an_actors_own_limit_counts_from_the_first_call(void **state) {
    bench *b = *state;
    int tags[5];
    uint64_t ids[5];
    trp_error error = {0};
    for (int i = 0; i < 4; i++) { /* one more than it allows, which nobody knows yet */
        ids[i] = call(b, &tags[i]);
    }
    b->pending_max = 3;
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_int_equal(b->sent_count, 4);
    for (int i = 0; i < 3; i++) {
        trpi_call_order order = an_order(&tags[4]);
        trp_code code = trpi_caller_call(b->caller, &order, &ids[4], &b->actions, &error);
        assert_int_equal(code, i < 2 ? TRP_EBUSY : TRP_OK);
        assert_non_null(strstr(error.message, "max_pending_calls is 3"));
        assert_non_null(strstr(error.message, "actor a7 (counter)"));
        reply_from(b, 1, ids[i]);
    }
    trpi_call_order other = an_order(&tags[4]);
    other.actor = ACTOR + 1;
    assert_int_equal(trpi_caller_call(b->caller, &other, &ids[4], &b->actions, NULL), TRP_OK);
}

static void many_calls_of_one_actor_are_worth_one_warning(void **state) {
    bench *b = *state;
    int tag;
    head_says(b, TRP_ACTOR_PENDING, 1, 0);
    for (int i = 0; i < 4999; i++) {
        call(b, &tag);
    }
    assert_int_equal(count_of(b, TRPI_CALLER_WARN), 0);
    for (int i = 0; i < 5000; i++) {
        call(b, &tag);
    }
    assert_int_equal(count_of(b, TRPI_CALLER_WARN), 1);
}

/* ---- Cancel, and what calls hold ---- */

static bool lets_go(bench *b, const void *holds) {
    for (size_t i = 0; i < b->actions.count; i++) {
        const trpi_caller_action *action = &b->actions.items[i];
        if (action->kind == TRPI_CALLER_LET_GO && action->tag == holds) {
            return true;
        }
    }
    return false;
}

static uint64_t holding_call(bench *b, void *tag, void **ret_holds) {
    uint64_t id = 0;
    trpi_call_order order = a_stubborn_order(tag);
    *ret_holds = order.holds = malloc(1);
    assert_int_equal(trpi_caller_call(b->caller, &order, &id, &b->actions, NULL), TRP_OK);
    carry_out(b);
    return id;
}

static void a_call_that_waits_or_rests_is_canceled_for_good(void **state) {
    bench *b = *state;
    int tags[2];
    void *holds[2];
    uint64_t waits = holding_call(b, &tags[0], &holds[0]);
    uint64_t rests = holding_call(b, &tags[1], &holds[1]);
    trpi_caller_cancel(b->caller, waits, &b->actions);
    carry_out(b);
    assert_failed(b, &tags[0], TRP_ECANCELED, "before it was sent");
    assert_true(lets_go(b, holds[0]));
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_int_equal(b->sent_count, 1);
    fail_with(b, 1, rests, TRP_EUSER, "Busy", 0);
    trpi_caller_cancel(b->caller, rests, &b->actions);
    carry_out(b);
    assert_failed(b, &tags[1], TRP_ECANCELED, "canceled");
    assert_true(lets_go(b, holds[1]));
    assert_int_equal(count_of(b, TRPI_CALLER_CANCEL), 0);
    assert_int_equal(trpi_caller_call_count(b->caller), 0);
    free(holds[0]);
    free(holds[1]);
}

static void a_call_in_flight_is_canceled_at_once_and_over_when_it_is_answered(void **state) {
    bench *b = *state;
    int tags[3];
    void *holds[3];
    uint64_t ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = holding_call(b, &tags[i], &holds[i]);
    }
    head_says(b, TRP_ACTOR_ALIVE, 1, -1);
    for (int i = 0; i < 3; i++) {
        trpi_caller_cancel(b->caller, ids[i], &b->actions);
        trpi_caller_cancel(b->caller, ids[i], &b->actions); /* twice is once */
        carry_out(b);
        assert_failed(b, &tags[i], TRP_ECANCELED, "canceled");
        assert_false(lets_go(b, holds[i]));
    }
    assert_int_equal(count_of(b, TRPI_CALLER_CANCEL), 3);
    assert_int_equal(trpi_caller_call_count(b->caller), 3);
    reply_from(b, 1, ids[0]);
    fail_with(b, 1, ids[1], TRP_EUSER, "Busy", 0); /* not tried again */
    assert_true(lets_go(b, holds[0]) && lets_go(b, holds[1]));
    head_says(b, TRP_ACTOR_RESTARTING, 2, -1); /* nor sent to the next incarnation */
    assert_true(lets_go(b, holds[2]));
    assert_int_equal(count_of(b, TRPI_CALLER_COMPLETE), 3);
    assert_int_equal(trpi_caller_call_count(b->caller), 0);
    for (int i = 0; i < 3; i++) {
        free(holds[i]);
    }
}

static void what_a_call_holds_is_let_go_when_it_is_over_and_not_before(void **state) {
    bench *b = *state;
    int tags[4];
    void *holds[4];
    uint64_t ids[4];
    for (int i = 0; i < 4; i++) {
        ids[i] = holding_call(b, &tags[i], &holds[i]);
    }
    trpi_caller_release(b->caller, ids[0]);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_int_equal(count_of(b, TRPI_CALLER_LET_GO), 0);
    reply_from(b, 1, ids[0]);
    assert_true(lets_go(b, holds[0]));
    assert_ptr_equal(trpi_caller_abandon(b->caller, ids[1], &b->actions), &tags[1]);
    assert_true(lets_go(b, holds[1]));
    head_says(b, TRP_ACTOR_DEAD, 1, 0);
    assert_true(lets_go(b, holds[2]));
    assert_int_equal(count_of(b, TRPI_CALLER_LET_GO), 4);
    for (int i = 0; i < 4; i++) {
        free(holds[i]);
    }
}

/* ---- Words of the head that are rare ---- */

static void refuse_to_tell(bench *b) {
    trpi_msg_actor_state none = {.actor = ACTOR,
                                 .phase = TRPI_PHASE_UNKNOWN,
                                 .waiting_for = "the head keeps 5 subscriptions, its limit"};
    trpi_caller_state(b->caller, &none, &b->actions);
    carry_out(b);
}

static void a_head_that_will_not_tell_fails_calls_until_it_does(void **state) {
    bench *b = *state;
    int tags[3];
    trp_actor_info info;
    trp_error error;
    call(b, &tags[0]);
    refuse_to_tell(b);
    assert_failed(b, &tags[0], TRP_EBUSY, "its limit");
    assert_int_equal(count_of(b, TRPI_CALLER_WARN), 1);
    assert_int_equal(trpi_caller_get_info(b->caller, ACTOR, &info, &error), TRP_EBUSY);
    forget(b);
    call(b, &tags[1]);
    assert_int_equal(count_of(b, TRPI_CALLER_SUBSCRIBE), 1);
    assert_int_equal(trpi_caller_get_info(b->caller, ACTOR, &info, &error), TRP_ETIMEOUT);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_int_equal(b->sent_count, 1);
    refuse_to_tell(b); /* after a restart of the head: what is known holds on */
    call(b, &tags[2]);
    assert_int_equal(count_of(b, TRPI_CALLER_SUBSCRIBE), 2);
    assert_int_equal(b->sent_count, 2);
    assert_null(completed(b, &tags[2]));
}

static void a_monitored_actor_that_the_head_has_forgotten_is_told_as_dead(void **state) {
    bench *b = *state;
    trp_death death;
    trpi_caller_monitor(b->caller, ACTOR, &b->actions);
    trpi_msg_actor_state none = {.actor = ACTOR, .phase = TRPI_PHASE_UNKNOWN, .waiting_for = ""};
    trpi_caller_state(b->caller, &none, &b->actions);
    assert_int_equal(count_of(b, TRPI_CALLER_DEATH), 1);
    assert_true(trpi_caller_get_death(b->caller, ACTOR, &death));
    assert_true(death.final);
    assert_non_null(strstr(death.message, "no actor a7"));
}

static void when_the_cluster_is_gone_everything_fails_saying_so(void **state) {
    bench *b = *state;
    int tags[2];
    call(b, &tags[0]);
    head_says(b, TRP_ACTOR_ALIVE, 1, -1);
    trpi_caller_monitor(b->caller, ACTOR, &b->actions);
    trpi_caller_orphan(b->caller, "cluster 1234 is gone", &b->actions);
    carry_out(b);
    assert_failed(b, &tags[0], TRP_EDISCONNECTED, "cluster 1234 is gone");
    assert_int_equal(count_of(b, TRPI_CALLER_DEATH), 1);
    assert_int_equal(count_of(b, TRPI_CALLER_DISCONNECT), 1);
    call(b, &tags[1]);
    assert_failed(b, &tags[1], TRP_EDISCONNECTED, "cluster 1234 is gone");
}

static void info_tells_of_a_node_that_goes_away(void **state) {
    bench *b = *state;
    trp_actor_info info;
    trpi_caller_watch(b->caller, ACTOR, &b->actions);
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_int_equal(trpi_caller_get_info(b->caller, ACTOR, &info, NULL), TRP_OK);
    assert_false(info.draining);
    b->pending_max = 99;
    head_says(b, TRP_ACTOR_ALIVE, 1, 0);
    assert_int_equal(trpi_caller_get_info(b->caller, ACTOR, &info, NULL), TRP_OK);
    assert_true(info.draining);
    assert_int_equal(info.drain_ms, 5000);
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
        uint64_t dice = draw(&seed) % 12;
        if (dice < 5 && made < 400) {
            uint64_t until = draw(&seed) % 4 ? UINT64_MAX : 1 + (uint64_t)step + dice * 9;
            ids[made] = draw(&seed) % 2 ? call_until(b, until, &tags[made])
                                        : stubborn_call(b, until, &tags[made]);
            made++;
        } else if (dice < 8 && made > 0) {
            reply_from(b, incarnation, ids[draw(&seed) % (uint64_t)made]);
        } else if (dice == 9 && made > 0) {
            fail_with(b, incarnation, ids[draw(&seed) % (uint64_t)made], TRP_EUSER, "Busy",
                      (uint64_t)step * 10000000);
        } else if (dice == 10 && made > 0) {
            trpi_caller_cancel(b->caller, ids[draw(&seed) % (uint64_t)made], &b->actions);
            carry_out(b);
        } else if (dice == 8) {
            incarnation += is_alive;
            head_says(b, is_alive ? TRP_ACTOR_RESTARTING : TRP_ACTOR_ALIVE, incarnation, 2);
            is_alive = !is_alive;
        } else {
            trpi_caller_tick(b->caller, (uint64_t)step * (draw(&seed) % 2 ? 1 : 10000000),
                             &b->actions);
            carry_out(b);
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
        TEST(what_was_under_way_on_a_broken_connection_fails_and_the_next_call_goes_on),
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
        TEST(a_raised_failure_arrives_with_its_type_its_place_and_who_it_was),
        TEST(failures_of_user_code_are_tried_again_as_asked),
        TEST(a_failed_call_rests_twice_as_long_each_time_and_a_second_at_most),
        TEST(a_resting_call_is_overtaken_and_goes_to_whoever_lives_then),
        TEST(a_deadline_ends_a_rest),
        TEST(an_actors_own_limit_counts_from_the_first_call),
        TEST(many_calls_of_one_actor_are_worth_one_warning),
        TEST(a_call_that_waits_or_rests_is_canceled_for_good),
        TEST(a_call_in_flight_is_canceled_at_once_and_over_when_it_is_answered),
        TEST(what_a_call_holds_is_let_go_when_it_is_over_and_not_before),
        TEST(a_head_that_will_not_tell_fails_calls_until_it_does),
        TEST(a_monitored_actor_that_the_head_has_forgotten_is_told_as_dead),
        TEST(when_the_cluster_is_gone_everything_fails_saying_so),
        TEST(info_tells_of_a_node_that_goes_away),
        TEST(in_random_lives_every_call_ends_exactly_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

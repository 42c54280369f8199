/* futures_test.c: what becomes of calls that nobody stands and waits for: callbacks, the queue of
 * done refs, cancel, retries of user errors, limits, and errors that tell where they were. */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/lib/actors.h"
#include "tests/lib/cluster.h"
#include "tests/lib/methods.h"

enum { WAIT_MS = 30000 };

static test_cluster cluster;
static trp_runtime *rt;

/* ---- The actor ---- */

typedef struct flaky {
    long runs;
    bool saw_cancel;
} flaky;

static trp_code flaky_raise(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    char type[32];
    snprintf(type, sizeof type, "%.*s", (int)args.size, (const char *)args.data);
    return trp_raise(err, type, "no key in run %ld", ++((flaky *)state)->runs);
}

/* Fails until it has run so often. */
static trp_code flaky_after(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    flaky *self = state;
    if (++self->runs < test_number_of(args)) {
        return trp_raise(err, "Busy", "run %ld", self->runs);
    }
    return trp_buf_printf(reply, "%ld", self->runs);
}

static trp_code flaky_runs(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    return trp_buf_printf(reply, "%ld", ((flaky *)state)->runs);
}

static trp_code flaky_reset(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    ((flaky *)state)->runs = 0;
    return TRP_OK;
}

static trp_code flaky_sleep(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    test_sleep_ms(test_number_of(args));
    return trp_buf_printf(reply, "slept");
}

static trp_code flaky_until_canceled(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                                     trp_error *err) {
    for (int i = 0; i < 10000 && !trp_context_canceled(ctx); i++) {
        test_sleep_ms(2);
    }
    ((flaky *)state)->saw_cancel = trp_context_canceled(ctx);
    return TRP_OK;
}

static trp_code flaky_saw_cancel(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                                 trp_error *err) {
    return trp_buf_printf(reply, "%d", ((flaky *)state)->saw_cancel);
}

/* Calls another one, which raises, and only passes its error on. */
static trp_code flaky_relay(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    trp_runtime *own = trp_context_runtime(ctx, err);
    trp_actor inner = {(uint64_t)test_number_of(args)};
    return own == NULL
               ? err->code
               : trp_ask(own, inner, "raise", trp_bytes_of("KeyError"), WAIT_MS, reply, err);
}

static const trp_method flaky_methods[] = {
    {"raise", flaky_raise},
    {"after", flaky_after},
    {"runs", flaky_runs},
    {"reset", flaky_reset},
    {"sleep", flaky_sleep},
    {"until_canceled", flaky_until_canceled},
    {"saw_cancel", flaky_saw_cancel},
    {"relay", flaky_relay},
    {NULL, NULL},
};
static const trp_actor_type flaky_type = {
    .name = "flaky", .state_size = sizeof(flaky), .methods = flaky_methods};
static const trp_actor_type *const types[] = {&flaky_type, NULL};

static trp_actor spawn(const trp_spawn_options *options) {
    trp_actor actor;
    TEST_OK(trp_spawn(rt, "flaky", (trp_bytes){0}, options, &actor, err));
    TEST_OK(trp_actor_wait_alive(rt, actor, WAIT_MS, err));
    return actor;
}

static void end(trp_actor actor) {
    TEST_OK(trp_kill(rt, actor, false, err));
}

static long ask(trp_actor actor, const char *method) {
    return test_ask_number(rt, actor, method, NULL);
}

/* ---- Errors that tell where they were ---- */

static void a_raised_error_arrives_with_type_and_place(void **state) {
    trp_actor actor = spawn(NULL);
    trp_error error = {0};
    assert_int_equal(trp_ask(rt, actor, "raise", trp_bytes_of("KeyError"), WAIT_MS, NULL, &error),
                     TRP_EUSER);
    assert_string_equal(error.type, "KeyError");
    assert_non_null(strstr(error.where, "futures_test.c:"));
    assert_non_null(strstr(error.where, "flaky_raise()"));
    assert_non_null(strstr(error.message, "no key in run 1"));
    assert_int_equal(error.actor, actor.id);
    assert_int_not_equal(error.node, 0);
    end(actor);
}

static void an_error_that_is_passed_on_keeps_the_innermost_place(void **state) {
    trp_actor outer = spawn(NULL), inner = spawn(NULL);
    trp_error error = {0};
    char id[32], outer_text[32], inner_text[32];
    snprintf(id, sizeof id, "%" PRIu64, inner.id);
    assert_int_equal(trp_ask(rt, outer, "relay", trp_bytes_of(id), WAIT_MS, NULL, &error),
                     TRP_EUSER);
    assert_string_equal(error.type, "KeyError");
    assert_non_null(strstr(error.where, "flaky_raise()"));
    snprintf(outer_text, sizeof outer_text, "a%" PRIu64, outer.id);
    snprintf(inner_text, sizeof inner_text, "a%" PRIu64, inner.id);
    const char *first = strstr(error.message, outer_text);
    assert_non_null(first);
    assert_non_null(strstr(first, inner_text)); /* the outermost comes first */
    assert_non_null(strstr(first, "no key in run 1"));
    end(outer);
    end(inner);
}

/* ---- Retries of user errors ---- */

static trp_code call_after(trp_actor actor, const char *runs, const trp_call_options *options,
                           trp_error *ret_error) {
    trp_ref ref;
    TEST_OK(trp_call_with(rt, actor, "after", trp_bytes_of(runs), options, &ref, err));
    trp_code code = trp_get(rt, ref, WAIT_MS, NULL, ret_error);
    trp_ref_release(rt, ref);
    return code;
}

static void user_errors_are_tried_again_as_often_as_asked(void **state) {
    static const char *const busy[] = {"Busy", NULL}, *const late[] = {"Late", NULL};
    trp_actor actor = spawn(NULL);
    const struct {
        const char *succeeds_in;
        trp_call_options options;
        trp_code code;
        long runs;
    } rows[] = {
        {"3", {.retries_max = 5, .retry_on = busy}, TRP_OK, 3},
        {"100", {.retries_max = 2, .retry_on = busy}, TRP_EUSER, 3},
        {"100", {.retries_max = 2, .retry_on = late}, TRP_EUSER, 1},
        {"100", {.retry_on = busy}, TRP_EUSER, 1}, /* the actor allows none */
        {"100", {0}, TRP_EUSER, 1},
        {"100", {.retries_max = -1, .retry_on = busy, .deadline_ms = 200}, TRP_ETIMEOUT, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_error error = {0};
        TEST_OK(trp_ask(rt, actor, "reset", (trp_bytes){0}, WAIT_MS, NULL, err));
        assert_int_equal(call_after(actor, rows[i].succeeds_in, &rows[i].options, &error),
                         rows[i].code);
        assert_string_equal(error.type, rows[i].code == TRP_EUSER ? "Busy" : "");
        long runs = ask(actor, "runs");
        assert_true(rows[i].runs > 0 ? runs == rows[i].runs : runs > 1);
    }
    end(actor);
}

static void an_actor_may_be_spawned_with_what_is_tried_again(void **state) {
    static const char *const busy[] = {"Busy", NULL};
    trp_actor actor = spawn(&(trp_spawn_options){.call_retries_max = 4, .retry_on = busy});
    trp_error error = {0};
    assert_int_equal(call_after(actor, "4", NULL, &error), TRP_OK);
    assert_int_equal(ask(actor, "runs"), 4);
    trp_call_options once = {.retries_max = TRP_RETRIES_NONE};
    assert_int_equal(call_after(actor, "100", &once, &error), TRP_EUSER);
    assert_int_equal(ask(actor, "runs"), 5);
    end(actor);
}

/* ---- Cancel ---- */

static void a_canceled_call_fails_at_once_and_does_not_run(void **state) {
    trp_actor actor = spawn(NULL);
    trp_ref running = test_call(rt, actor, "until_canceled", NULL);
    trp_ref waiting = test_call(rt, actor, "after", "1");
    trp_error error = {0};
    uint64_t before = test_now_ms();
    trp_cancel(rt, waiting);
    assert_int_equal(trp_get(rt, waiting, 0, NULL, &error), TRP_ECANCELED);
    trp_cancel(rt, running);
    assert_int_equal(trp_get(rt, running, 0, NULL, &error), TRP_ECANCELED);
    assert_true(test_now_ms() - before < 5000);
    assert_int_equal(ask(actor, "saw_cancel"), 1);
    assert_int_equal(ask(actor, "runs"), 0);
    trp_cancel(rt, running); /* done refs and strangers: nothing */
    trp_cancel(rt, (trp_ref){12345});
    trp_ref_release(rt, running);
    trp_ref_release(rt, waiting);
    end(actor);
}

static void a_call_that_was_never_sent_is_canceled_too(void **state) {
    trp_actor actor;
    trp_error error = {0};
    trp_bundle bundle = {.cpus = 100000};
    trp_group group;
    TEST_OK(trp_group_create(rt, &(trp_group_options){.bundles = &bundle, .bundle_count = 1},
                             &group, err));
    TEST_OK(
        trp_spawn(rt, "flaky", (trp_bytes){0}, &(trp_spawn_options){.group = group}, &actor, err));
    trp_ref ref = test_call(rt, actor, "runs", NULL);
    trp_cancel(rt, ref);
    assert_int_equal(trp_get(rt, ref, WAIT_MS, NULL, &error), TRP_ECANCELED);
    trp_ref_release(rt, ref);
    TEST_OK(trp_group_remove(rt, group, err));
}

/* ---- Callbacks ---- */

typedef struct chain {
    trp_actor actor;
    atomic_int calls, failures;
    int wanted;
    pthread_t thread; /* that the first one ran on */
} chain;

static bool chain_is_done(void *arg) {
    chain *c = arg;
    return atomic_load(&c->calls) >= c->wanted || atomic_load(&c->failures) > 0;
}

static void next_link(trp_runtime *runtime, trp_ref ref, void *arg) {
    chain *c = arg;
    trp_ref next;
    bool is_fine = trp_get(runtime, ref, WAIT_MS, NULL, NULL) == TRP_OK;
    trp_ref_release(runtime, ref);
    int calls = atomic_load(&c->calls);
    if (calls == 0) {
        c->thread = pthread_self();
    }
    is_fine &= pthread_equal(c->thread, pthread_self()) != 0;
    if (calls + 1 < c->wanted) {
        is_fine &= trp_call(runtime, c->actor, "runs", (trp_bytes){0}, 0, &next, NULL) == TRP_OK &&
                   trp_on_done(runtime, next, next_link, c, NULL) == TRP_OK;
    }
    atomic_fetch_add(&c->failures, !is_fine);
    atomic_store(&c->calls, calls + 1);
}

static void callbacks_go_on_by_themselves(void **state) {
    chain c = {.actor = spawn(NULL), .wanted = 500};
    trp_ref first = test_call(rt, c.actor, "sleep", "20"); /* not done before it is asked for */
    TEST_OK(trp_on_done(rt, first, next_link, &c, err));
    assert_true(test_until(chain_is_done, &c, WAIT_MS));
    assert_int_equal(atomic_load(&c.failures), 0);
    assert_int_equal(atomic_load(&c.calls), c.wanted);
    assert_false(pthread_equal(c.thread, pthread_self()));
    end(c.actor);
}

static void count_one(trp_runtime *runtime, trp_ref ref, void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
}

static bool is_three(void *arg) {
    return atomic_load((atomic_int *)arg) == 3;
}

static void a_callback_is_made_once_also_for_a_failure_or_what_is_done(void **state) {
    trp_actor actor = spawn(NULL);
    atomic_int count = 0;
    trp_error error = {0};
    trp_ref done = test_call(rt, actor, "runs", NULL);
    TEST_OK(trp_get(rt, done, WAIT_MS, NULL, err));
    TEST_OK(trp_on_done(rt, done, count_one, &count, err));
    assert_int_equal(atomic_load(&count), 1); /* here and now */
    trp_ref dies = test_call(rt, actor, "sleep", "60000");
    trp_ref given_back = test_call(rt, actor, "runs", NULL);
    TEST_OK(trp_on_done(rt, dies, count_one, &count, err));
    TEST_OK(trp_on_done(rt, dies, count_one, &count, err)); /* asked for twice */
    TEST_OK(trp_on_done(rt, given_back, count_one, &count, err));
    trp_ref_release(rt, given_back);
    end(actor);
    assert_true(test_until(is_three, &count, WAIT_MS));
    assert_int_equal(trp_get(rt, dies, 0, NULL, &error), TRP_EACTOR_DIED);
    assert_int_equal(trp_on_done(rt, given_back, count_one, &count, &error), TRP_EINVALID);
    assert_int_equal(trp_on_done(rt, dies, NULL, NULL, &error), TRP_EINVALID);
    trp_ref_release(rt, done);
    trp_ref_release(rt, dies);
    assert_int_equal(atomic_load(&count), 3);
}

typedef struct forbidden {
    trp_ref never;
    trp_code get, wait, request;
    atomic_int count;
} forbidden;

static void do_what_waits(trp_runtime *runtime, trp_ref ref, void *arg) {
    forbidden *f = arg;
    trp_death death;
    trp_error error;
    f->get = trp_get(runtime, f->never, TRP_FOREVER, NULL, &error);
    f->wait = trp_next_death(runtime, TRP_FOREVER, &death, &error);
    f->request = trp_kv_put(runtime, "futures", trp_bytes_of("x"), &error);
    atomic_store(&f->count, 3);
}

static void a_callback_that_would_wait_is_told_so_at_once(void **state) {
    trp_actor actor = spawn(NULL), other = spawn(NULL);
    forbidden f = {.never = test_call(rt, actor, "sleep", "60000")};
    trp_ref ref = test_call(rt, other, "sleep", "20");
    TEST_OK(trp_on_done(rt, ref, do_what_waits, &f, err));
    assert_true(test_until(is_three, &f.count, WAIT_MS));
    assert_int_equal(f.get, TRP_ETIMEOUT);
    assert_int_equal(f.wait, TRP_ETIMEOUT);
    assert_int_equal(f.request, TRP_EINVALID);
    trp_ref_release(rt, ref);
    trp_ref_release(rt, f.never);
    end(actor);
    end(other);
}

/* ---- The queue of done refs ---- */

/* A loop of the program's own: nothing of the runtime is waited for but the descriptor. */
static void a_poll_loop_sees_every_done_ref_once(void **state) {
    enum { ACTORS = 3, CALLS = 400, WINDOW = 60 };
    trp_actor actors[ACTORS];
    bool seen[CALLS] = {0};
    trp_ref refs[CALLS];
    int made = 0, done = 0;
    struct pollfd item = {.fd = trp_done_fd(rt), .events = POLLIN};
    for (int i = 0; i < ACTORS; i++) {
        actors[i] = spawn(NULL);
    }
    assert_int_equal(poll(&item, 1, 0), 0);
    while (done < CALLS) {
        for (; made < CALLS && made - done < WINDOW; made++) {
            refs[made] = test_call(rt, actors[made % ACTORS], "runs", NULL);
            TEST_OK(trp_notify(rt, refs[made], err));
        }
        assert_int_equal(poll(&item, 1, WAIT_MS), 1);
        trp_ref ref;
        while (trp_next_done(rt, 0, &ref, NULL) == TRP_OK) {
            int i = 0;
            while (i < made && refs[i].id != ref.id) {
                i++;
            }
            assert_true(i < made && !seen[i]);
            seen[i] = true;
            done++;
            TEST_OK(trp_get(rt, ref, 0, NULL, err));
            trp_ref_release(rt, ref);
        }
    }
    assert_int_equal(poll(&item, 1, 0), 0);
    for (int i = 0; i < ACTORS; i++) {
        end(actors[i]);
    }
}

static void the_queue_holds_what_is_done_and_not_given_back(void **state) {
    trp_actor actor = spawn(NULL);
    trp_ref ref, refs[2] = {test_call(rt, actor, "runs", NULL), test_call(rt, actor, "runs", NULL)};
    struct pollfd item = {.fd = trp_done_fd(rt), .events = POLLIN};
    trp_error error = {0};
    TEST_OK(trp_get_all(rt, refs, 2, WAIT_MS, NULL, err));
    TEST_OK(trp_notify(rt, refs[0], err)); /* done already */
    TEST_OK(trp_notify(rt, refs[0], err)); /* once is enough */
    TEST_OK(trp_notify(rt, refs[1], err));
    trp_ref_release(rt, refs[1]);
    assert_int_equal(poll(&item, 1, 0), 1);
    TEST_OK(trp_next_done(rt, 0, &ref, err));
    assert_int_equal(ref.id, refs[0].id);
    assert_int_equal(poll(&item, 1, 0), 0);
    assert_int_equal(trp_next_done(rt, 10, &ref, &error), TRP_ETIMEOUT);
    assert_int_equal(trp_notify(rt, refs[1], &error), TRP_EINVALID);
    trp_ref_release(rt, refs[0]);
    end(actor);
}

static void a_deadline_passes_though_nobody_waits(void **state) {
    trp_actor actor = spawn(NULL);
    trp_ref ref, done;
    trp_error error = {0};
    struct pollfd item = {.fd = trp_done_fd(rt), .events = POLLIN};
    TEST_OK(trp_call(rt, actor, "sleep", trp_bytes_of("60000"), 50, &ref, err));
    TEST_OK(trp_notify(rt, ref, err));
    assert_int_equal(poll(&item, 1, WAIT_MS), 1);
    TEST_OK(trp_next_done(rt, 0, &done, err));
    assert_int_equal(trp_get(rt, done, 0, NULL, &error), TRP_ETIMEOUT);
    trp_ref_release(rt, ref);
    end(actor);
}

/* ---- All of it at once ---- */

enum { THREADS = 4, ASKS = 250 };

typedef struct asker {
    pthread_t thread;
    trp_actor actor;
    int failures;
} asker;

static void *ask_again_and_again(void *arg) {
    asker *a = arg;
    for (int i = 0; i < ASKS; i++) {
        a->failures += trp_ask(rt, a->actor, "runs", (trp_bytes){0}, WAIT_MS, NULL, NULL) != TRP_OK;
    }
    return NULL;
}

static void *take_done(void *arg) {
    asker *a = arg;
    for (int i = 0; i < ASKS; i++) {
        trp_ref ref;
        if (trp_next_done(rt, WAIT_MS, &ref, NULL) != TRP_OK) {
            a->failures++;
            break;
        }
        a->failures += trp_get(rt, ref, 0, NULL, NULL) != TRP_OK;
        trp_ref_release(rt, ref);
    }
    return NULL;
}

static void threads_that_wait_do_not_disturb_those_that_are_told(void **state) {
    trp_actor actor = spawn(NULL);
    chain c = {.actor = spawn(NULL), .wanted = ASKS};
    asker askers[THREADS] = {0}, takers[2] = {0};
    trp_ref first = test_call(rt, c.actor, "sleep", "5");
    TEST_OK(trp_on_done(rt, first, next_link, &c, err));
    for (int i = 0; i < THREADS; i++) {
        askers[i].actor = actor;
        pthread_create(&askers[i].thread, NULL, ask_again_and_again, &askers[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_create(&takers[i].thread, NULL, take_done, &takers[i]);
    }
    for (int i = 0; i < 2 * ASKS; i++) {
        TEST_OK(trp_notify(rt, test_call(rt, actor, "runs", NULL), err));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].failures, 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(takers[i].thread, NULL);
        assert_int_equal(takers[i].failures, 0);
    }
    assert_true(test_until(chain_is_done, &c, WAIT_MS));
    assert_int_equal(atomic_load(&c.failures), 0);
    end(actor);
    end(c.actor);
}

/* ---- Limits ---- */

static void an_actors_limit_of_pending_calls_holds(void **state) {
    trp_actor actor = spawn(&(trp_spawn_options){.max_pending_calls = 3});
    trp_ref refs[3], more;
    trp_error error = {0};
    refs[0] = test_call(rt, actor, "until_canceled", NULL);
    for (int i = 1; i < 3; i++) {
        refs[i] = test_call(rt, actor, "runs", NULL);
    }
    assert_int_equal(trp_call(rt, actor, "runs", (trp_bytes){0}, 0, &more, &error), TRP_EBUSY);
    assert_non_null(strstr(error.message, "max_pending_calls is 3"));
    assert_non_null(strstr(error.message, "flaky"));
    trp_cancel(rt, refs[0]);
    TEST_OK(trp_get_all(rt, refs + 1, 2, WAIT_MS, NULL, err));
    for (int i = 0; i < 3; i++) {
        trp_ref_release(rt, refs[i]);
    }
    assert_int_equal(ask(actor, "runs"), 0);
    end(actor);
}

static void A13_a_wait_for_one_returns_when_one_has_failed(void **state) {
    trp_actor hangs = spawn(NULL), fails = spawn(NULL);
    trp_ref refs[2] = {test_call(rt, hangs, "sleep", "60000"),
                       test_call(rt, fails, "raise", "KeyError")};
    bool done[2];
    trp_error error = {0};
    uint64_t before = test_now_ms();
    TEST_OK(trp_wait(rt, refs, 2, 1, WAIT_MS, done, err));
    assert_true(test_now_ms() - before < 5000);
    assert_false(done[0]);
    assert_true(done[1]);
    assert_int_equal(trp_get_all(rt, refs, 2, WAIT_MS, NULL, &error), TRP_EUSER);
    assert_string_equal(error.type, "KeyError");
    trp_ref_release(rt, refs[0]);
    trp_ref_release(rt, refs[1]);
    end(hangs);
    end(fails);
}

static void arguments_that_are_too_large_are_one_clear_error(void **state) {
    trp_actor actor = spawn(NULL), none;
    trp_ref ref;
    trp_error error = {0};
    trp_bytes large = {"never looked at", ((size_t)512 << 20) + 1};
    assert_int_equal(trp_call(rt, actor, "runs", large, 0, &ref, &error), TRP_EINVALID);
    assert_non_null(strstr(error.message, "call runs: 536870913 bytes"));
    assert_non_null(strstr(error.message, "trp_put"));
    large.size = ((size_t)8 << 20) + 1;
    assert_int_equal(trp_spawn(rt, "flaky", large, NULL, &none, &error), TRP_EINVALID);
    assert_non_null(strstr(error.message, "spawn flaky: args: 8388609 bytes"));
    assert_int_equal(ask(actor, "runs"), 0);
    end(actor);
}

/* ---- What is asked of the head ---- */

static void a_program_may_ask_what_the_command_lists(void **state) {
    trp_buf json = {0};
    trp_error error = {0};
    TEST_OK(trp_list(rt, "nodes", &json, err));
    assert_true(json.size > 2 && (json.data[0] == '[' || json.data[0] == '{'));
    assert_int_not_equal(trp_list(rt, "nonsense", &json, &error), TRP_OK);
    assert_int_equal(trp_list(rt, "", &json, &error), TRP_EINVALID);
    trp_buf_release(&json);
}

static void handles_that_are_none_are_refused(void **state) {
    trp_error error = {0};
    trp_actor actor, none = {0}, other = {1};
    trp_group group;
    assert_int_equal(trp_stop(rt, none, 100, &error), TRP_EINVALID);
    assert_int_equal(trp_link(rt, other, &error), TRP_EINVALID); /* a driver is no actor */
    assert_int_equal(trp_unlink(rt, other, &error), TRP_EINVALID);
    assert_int_equal(trp_gang_end(rt, (trp_gang){0}, &error), TRP_EINVALID);
    assert_int_equal(trp_drain_node(rt, 0, "", 0, &error), TRP_EINVALID);
    assert_int_equal(trp_group_lookup(rt, "", &group, &error), TRP_EINVALID);
    assert_int_equal(trp_lookup_in(rt, "elsewhere", "", &actor, &error), TRP_EINVALID);
    assert_int_equal(trp_lookup_in(rt, "elsewhere", "nobody", &actor, &error), TRP_ENOTFOUND);
}

static int set_up(void **state) {
    test_cluster_start(&cluster, &(test_node){.cpus = 4}, 1);
    rt = test_connect(&cluster, types);
    return 0;
}

static int tear_down(void **state) {
    test_expect_all_free(rt, 10000);
    trp_shutdown(&rt);
    test_cluster_stop(&cluster);
    return 0;
}

int main(void) {
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_raised_error_arrives_with_type_and_place),
        cmocka_unit_test(an_error_that_is_passed_on_keeps_the_innermost_place),
        cmocka_unit_test(user_errors_are_tried_again_as_often_as_asked),
        cmocka_unit_test(an_actor_may_be_spawned_with_what_is_tried_again),
        cmocka_unit_test(a_canceled_call_fails_at_once_and_does_not_run),
        cmocka_unit_test(a_call_that_was_never_sent_is_canceled_too),
        cmocka_unit_test(callbacks_go_on_by_themselves),
        cmocka_unit_test(a_callback_is_made_once_also_for_a_failure_or_what_is_done),
        cmocka_unit_test(a_callback_that_would_wait_is_told_so_at_once),
        cmocka_unit_test(a_poll_loop_sees_every_done_ref_once),
        cmocka_unit_test(the_queue_holds_what_is_done_and_not_given_back),
        cmocka_unit_test(a_deadline_passes_though_nobody_waits),
        cmocka_unit_test(threads_that_wait_do_not_disturb_those_that_are_told),
        cmocka_unit_test(an_actors_limit_of_pending_calls_holds),
        cmocka_unit_test(A13_a_wait_for_one_returns_when_one_has_failed),
        cmocka_unit_test(arguments_that_are_too_large_are_one_clear_error),
        cmocka_unit_test(a_program_may_ask_what_the_command_lists),
        cmocka_unit_test(handles_that_are_none_are_refused),
    };
    return cmocka_run_group_tests_name("futures", tests, set_up, tear_down);
}

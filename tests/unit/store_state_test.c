/* actors/state/store: one store by hand, two that fetch from each other, and many of them under
 * random requests, deaths and losses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/state/store.h"

#define MS UINT64_C(1000000)
#define MIB (UINT64_C(1) << 20)

/* ---- A store and what it last did ---- */

typedef struct rig {
    trpi_store *store;
    trpi_store_actions actions;
    uint64_t now_ns;
} rig;

static trpi_store_config config_of(uint64_t node) {
    return (trpi_store_config){.node = node,
                               .incarnation = 1,
                               .capacity = 64 * MIB,
                               .segments_max = 1000,
                               .spare_bytes = 32 * MIB,
                               .spare_ns = 1000 * MS,
                               .chunk_bytes = MIB,
                               .chunks_in_flight = 4,
                               .stall_ns = 200 * MS,
                               .request_ns = 1000 * MS};
}

static void rig_open(rig *r, uint64_t node) {
    trpi_store_config config = config_of(node);
    *r = (rig){.store = trpi_store_new(&config), .now_ns = 1000 * MS};
}

static void rig_close(rig *r) {
    trpi_store_free(r->store);
    trpi_store_actions_release(&r->actions);
}

static void feed(rig *r, trpi_store_event event) {
    event.now_ns = r->now_ns;
    trpi_store_step(r->store, &event, &r->actions);
    const char *broken = trpi_store_check(r->store);
    if (broken != NULL) {
        print_error("invariant: %s\n", broken);
    }
    assert_null(broken);
}

static void pass(rig *r, uint64_t ms) {
    r->now_ns += ms * MS;
    feed(r, (trpi_store_event){.kind = TRPI_STORE_EVENT_TICK});
}

static const trpi_store_action *action_of(const rig *r, trpi_store_action_kind kind) {
    for (size_t i = 0; i < r->actions.count; i++) {
        if (r->actions.items[i].kind == kind) {
            return &r->actions.items[i];
        }
    }
    return NULL;
}

/* The answer of that type in the last step; fails the test when there is none. */
static const trpi_store_action *answer(const rig *r, trpi_msg_type type) {
    for (size_t i = 0; i < r->actions.count; i++) {
        if (r->actions.items[i].kind == TRPI_STORE_ANSWER && r->actions.items[i].msg.type == type) {
            return &r->actions.items[i];
        }
    }
    fail_msg("no %s", trpi_msg_name(type));
    return NULL;
}

static void say(rig *r, uint64_t session, trpi_msg msg) {
    feed(r, (trpi_store_event){.kind = TRPI_STORE_EVENT_MESSAGE, .session = session, .msg = &msg});
}

static void connect_client(rig *r, uint64_t session, uint64_t client, const char *label) {
    feed(r, (trpi_store_event){
                .kind = TRPI_STORE_EVENT_OPEN, .session = session, .pid = 100 + (int)session});
    say(r, session,
        (trpi_msg){.type = TRPI_MSG_STORE_HELLO,
                   .store_hello = {.version = TROUPE_VERSION, .client = client, .label = label}});
}

static void shut(rig *r, uint64_t session) {
    feed(r, (trpi_store_event){.kind = TRPI_STORE_EVENT_SHUT, .session = session});
}

static uint64_t create(rig *r, uint64_t session, uint64_t size, trp_code *ret_code) {
    say(r, session,
        (trpi_msg){.type = TRPI_MSG_STORE_CREATE, .store_create = {.request = 1, .size = size}});
    const trpi_msg_store_created *created = &answer(r, TRPI_MSG_STORE_CREATED)->msg.store_created;
    *ret_code = (trp_code)created->code;
    return created->object;
}

static trp_code seal(rig *r, uint64_t session, uint64_t object) {
    say(r, session,
        (trpi_msg){.type = TRPI_MSG_STORE_SEAL, .store_seal = {.request = 2, .object = object}});
    return (trp_code)answer(r, TRPI_MSG_DONE)->msg.done.code;
}

static uint64_t put(rig *r, uint64_t session, uint64_t size) {
    trp_code code;
    uint64_t object = create(r, session, size, &code);
    assert_int_equal(code, TRP_OK);
    assert_int_equal(seal(r, session, object), TRP_OK);
    return object;
}

static void ask_get(rig *r, uint64_t session, uint64_t object, uint64_t timeout_ms) {
    say(r, session,
        (trpi_msg){.type = TRPI_MSG_STORE_GET,
                   .store_get = {.request = 3, .object = object, .timeout_ms = timeout_ms}});
}

static trp_code got(const rig *r) {
    return (trp_code)answer(r, TRPI_MSG_STORE_GOT)->msg.store_got.code;
}

static trp_code get(rig *r, uint64_t session, uint64_t object) {
    ask_get(r, session, object, 1000);
    return got(r);
}

static trp_code hold_for(rig *r, uint64_t session, uint64_t object, uint64_t client) {
    say(r, session,
        (trpi_msg){.type = TRPI_MSG_STORE_HOLD,
                   .store_hold = {.request = 4, .object = object, .client = client}});
    return (trp_code)answer(r, TRPI_MSG_DONE)->msg.done.code;
}

static void release(rig *r, uint64_t session, uint64_t object) {
    say(r, session,
        (trpi_msg){.type = TRPI_MSG_STORE_RELEASE,
                   .store_release = {.object = object, .count = 1}});
}

static void client_gone(rig *r, uint64_t client) {
    trpi_client_ref gone = {.client = client};
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_GONE,
                    .client_gone = {.clients = &gone, .clients_count = 1}};
    feed(r, (trpi_store_event){.kind = TRPI_STORE_EVENT_HEAD, .msg = &msg});
}

static uint64_t used(const rig *r) {
    return trpi_store_count(r->store).used;
}

/* ---- One store ---- */

static void memory_goes_back_with_the_last_hold(void **state) {
    rig r;
    rig_open(&r, 1);
    connect_client(&r, 1, 11, "driver x");
    connect_client(&r, 2, 12, "a3 (parser)");
    uint64_t object = put(&r, 1, 3 * MIB);
    assert_int_equal(object, UINT64_C(1) << TRPI_OBJECT_NODE_SHIFT | 1);
    assert_int_equal(get(&r, 2, object), TRP_OK);
    assert_int_equal(answer(&r, TRPI_MSG_STORE_GOT)->msg.store_got.size, 3 * MIB);
    release(&r, 1, object);
    assert_int_equal(used(&r), 3 * MIB);
    release(&r, 2, object);
    assert_int_equal(used(&r), 0);
    assert_int_equal(get(&r, 2, object), TRP_EOBJECT_LOST);
    release(&r, 2, object); /* unknown: ignored */
    pass(&r, 2000);
    assert_int_equal(trpi_store_count(r.store).kept, 0);
    rig_close(&r);
}

static void memory_is_used_again_while_it_is_warm(void **state) {
    rig r;
    rig_open(&r, 1);
    connect_client(&r, 1, 11, "driver x");
    uint64_t object = put(&r, 1, 3 * MIB - 5);
    release(&r, 1, object);
    object = put(&r, 1, 3 * MIB - 900);
    assert_null(action_of(&r, TRPI_STORE_MAKE));
    assert_int_equal(trpi_store_count(r.store).segments, 1);
    release(&r, 1, object);
    /* All of it makes room for what is larger. */
    (void)put(&r, 1, 64 * MIB);
    assert_int_equal(trpi_store_count(r.store).kept, 0);
    rig_close(&r);
}

static void a_dead_holder_holds_nothing_and_leaves_no_memory_to_others(void **state) {
    rig r;
    rig_open(&r, 1);
    connect_client(&r, 1, 11, "driver x");
    connect_client(&r, 2, 12, "a3 (parser)");
    trp_code code;
    (void)create(&r, 2, MIB, &code); /* never sealed */
    uint64_t object = put(&r, 1, 2 * MIB);
    assert_int_equal(get(&r, 2, object), TRP_OK);
    release(&r, 1, object);
    shut(&r, 2);
    assert_int_equal(used(&r), 0);
    /* It may be alive, and look at both: neither is given to anybody else. */
    assert_int_equal(trpi_store_count(r.store).kept, 0);
    assert_non_null(action_of(&r, TRPI_STORE_FREE));
    assert_false(action_of(&r, TRPI_STORE_FREE)->clean);
    rig_close(&r);
}

static void a_reader_waits_until_it_is_sealed_or_its_writer_is_gone(void **state) {
    rig r;
    rig_open(&r, 1);
    connect_client(&r, 1, 11, "driver x");
    connect_client(&r, 2, 12, "a3 (parser)");
    trp_code code;
    uint64_t object = create(&r, 1, MIB, &code);
    ask_get(&r, 2, object, 100);
    assert_int_equal(r.actions.count, 0);
    pass(&r, 99);
    assert_int_equal(r.actions.count, 0);
    pass(&r, 1);
    assert_int_equal(got(&r), TRP_ETIMEOUT);
    ask_get(&r, 2, object, UINT64_MAX);
    assert_int_equal(seal(&r, 2, object), TRP_EINVALID); /* it is not the writer */
    assert_int_equal(seal(&r, 1, object), TRP_OK);
    assert_int_equal(got(&r), TRP_OK);
    object = create(&r, 1, MIB, &code);
    ask_get(&r, 2, object, UINT64_MAX);
    release(&r, 1, object);
    assert_int_equal(got(&r), TRP_EOBJECT_LOST);
    rig_close(&r);
}

static void a_full_store_says_who_holds_what(void **state) {
    rig r;
    rig_open(&r, 1);
    trp_code code;
    connect_client(&r, 1, 11, "driver x");
    connect_client(&r, 2, 12, "a3 (parser)");
    (void)put(&r, 1, 20 * MIB);
    (void)put(&r, 2, 20 * MIB);
    (void)put(&r, 2, 20 * MIB);
    assert_int_equal(create(&r, 1, 5 * MIB, &code), 0);
    assert_int_equal(code, TRP_EBUSY);
    assert_string_equal(answer(&r, TRPI_MSG_STORE_CREATED)->msg.store_created.message,
                        "store of node n1 is full: 5.0 MiB asked for, 60.0 MiB of 64.0 MiB in use: "
                        "a3 (parser) (pid 102) holds 40.0 MiB in 2 objects, driver x (pid 101) "
                        "holds 20.0 MiB in 1 object");
    (void)create(&r, 1, 65 * MIB, &code);
    assert_int_equal(code, TRP_EINVALID);
    (void)create(&r, 1, UINT64_MAX, &code);
    assert_int_equal(code, TRP_EINVALID);
    rig_close(&r);
}

static void memory_that_cannot_be_had_is_an_objects_end(void **state) {
    rig r;
    rig_open(&r, 1);
    trp_code code;
    connect_client(&r, 1, 11, "driver x");
    (void)create(&r, 1, MIB, &code);
    feed(&r, (trpi_store_event){.kind = TRPI_STORE_EVENT_FAILED,
                                .segment = 1,
                                .code = TRP_ENOMEM,
                                .reason = "no memory"});
    assert_int_equal(used(&r), 0);
    assert_int_equal(trpi_store_count(r.store).segments, 0);
    rig_close(&r);
}

static void a_hold_can_be_given_to_a_client_that_is_not_there_yet(void **state) {
    rig r;
    rig_open(&r, 1);
    connect_client(&r, 1, 11, "a3 (parser)");
    uint64_t object = put(&r, 1, MIB);
    assert_int_equal(hold_for(&r, 1, object, 12), TRP_OK);
    release(&r, 1, object);
    assert_int_equal(used(&r), MIB);
    connect_client(&r, 2, 12, "driver x");
    assert_int_equal(get(&r, 2, object), TRP_OK);
    release(&r, 2, object);
    assert_int_equal(used(&r), MIB); /* what was given to it is still there */
    release(&r, 2, object);
    assert_int_equal(used(&r), 0);
    rig_close(&r);
}

static void what_was_given_to_a_client_goes_when_the_head_says_that_it_is_gone(void **state) {
    rig r;
    rig_open(&r, 1);
    connect_client(&r, 1, 11, "a3 (parser)");
    uint64_t object = put(&r, 1, MIB);
    assert_int_equal(hold_for(&r, 1, object, 12), TRP_OK);
    release(&r, 1, object);
    client_gone(&r, 12);
    assert_int_equal(used(&r), 0);
    /* Nobody gives to the dead. */
    object = put(&r, 1, MIB);
    assert_int_equal(hold_for(&r, 1, object, 12), TRP_OK);
    release(&r, 1, object);
    assert_int_equal(used(&r), 0);
    /* One that is connected lives, whatever the head thinks of it. */
    object = put(&r, 1, MIB);
    client_gone(&r, 11);
    assert_int_equal(used(&r), MIB);
    rig_close(&r);
}

static void a_daemon_that_missed_deaths_is_told_who_is_left(void **state) {
    rig r;
    rig_open(&r, 1);
    connect_client(&r, 1, 50, "a3 (parser)");
    uint64_t object = put(&r, 1, MIB);
    for (uint64_t client = 10; client < 20; client++) {
        assert_int_equal(hold_for(&r, 1, object, client), TRP_OK);
    }
    trpi_client_ref left[] = {{.client = 13}, {.client = 10}, {.client = 17}};
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_GONE,
                    .client_gone = {.clients = left, .clients_count = 3, .all_but_until = 18}};
    feed(&r, (trpi_store_event){.kind = TRPI_STORE_EVENT_HEAD, .msg = &msg});
    release(&r, 1, object);
    uint64_t alive[] = {10, 13, 17, 19};
    for (size_t i = 0; i < TRPI_COUNTOF(alive); i++) {
        assert_int_equal(used(&r), MIB);
        client_gone(&r, alive[i]);
    }
    assert_int_equal(used(&r), 0);
    rig_close(&r);
}

static void a_client_with_a_new_number_keeps_what_it_holds(void **state) {
    rig r;
    rig_open(&r, 1);
    connect_client(&r, 1, 11, "driver x");
    uint64_t object = put(&r, 1, MIB);
    trp_code code;
    uint64_t open = create(&r, 1, MIB, &code);
    say(&r, 1,
        (trpi_msg){.type = TRPI_MSG_STORE_HELLO,
                   .store_hello = {.version = TROUPE_VERSION, .client = 99, .label = "driver x"}});
    client_gone(&r, 11);
    assert_int_equal(seal(&r, 1, open), TRP_OK);
    release(&r, 1, open);
    release(&r, 1, object);
    assert_int_equal(used(&r), 0);
    rig_close(&r);
}

static void a_stranger_is_told_and_cut_off(void **state) {
    rig r;
    rig_open(&r, 1);
    feed(&r, (trpi_store_event){.kind = TRPI_STORE_EVENT_OPEN, .session = 1, .pid = 5});
    say(&r, 1, (trpi_msg){.type = TRPI_MSG_STORE_INFO_QUERY});
    assert_int_equal(answer(&r, TRPI_MSG_DONE)->msg.done.code, TRP_EPROTOCOL);
    assert_non_null(action_of(&r, TRPI_STORE_REFUSE));
    connect_client(&r, 2, 0, "nobody");
    assert_non_null(action_of(&r, TRPI_STORE_REFUSE));
    connect_client(&r, 3, 7, "driver x");
    connect_client(&r, 4, 7, "driver x"); /* another process says the same number */
    assert_int_equal(action_of(&r, TRPI_STORE_REFUSE)->session, 4);
    say(&r, 3, (trpi_msg){.type = TRPI_MSG_KILL});
    assert_int_equal(action_of(&r, TRPI_STORE_REFUSE)->session, 3);
    rig_close(&r);
}

/* ---- Many stores ---- */

enum { NODES = 3, CLIENTS = 12, LETTERS = 20000, KNOWN = 40, SEGMENTS = 4096 };

typedef struct letter {
    int from, to;
    uint64_t incarnation; /* of the receiver that it was meant for; 0 = whichever */
    trpi_msg msg;
    size_t body;
} letter;

typedef struct client {
    int node;
    uint64_t session; /* 0 = it does not live */
    uint64_t number;
    uint64_t holds[KNOWN];  /* of objects in `known`, as the client counts */
    uint64_t mapped[KNOWN]; /* segment; 0 = not */
    bool is_open[KNOWN];    /* being written by it */
} client;

typedef struct world {
    uint64_t random;
    uint64_t now_ns, last_session, last_client, serial[NODES], incarnations[NODES];
    trpi_store *stores[NODES];
    trpi_store_actions actions;
    client clients[CLIENTS];
    uint64_t known[KNOWN]; /* objects that somebody has made */
    letter *letters;       /* a queue: in order from each to each */
    size_t first, count;
    bool loses;    /* parts get lost */
    bool is_hasty; /* requests between stores take too long; clients release only what they hold */
    unsigned lost_segments;
} world;

static uint64_t draw(world *w, uint64_t below) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (w->random * UINT64_C(0x2545F4914F6CDD1D) >> 20) % below;
}

static void post(world *w, letter one) {
    assert_true(w->count < LETTERS);
    w->letters[(w->first + w->count++) % LETTERS] = one;
}

/* A hold that was given too late is taken back: from a client that gave it back already, as it had
 * no reason to, that takes another one. So it is one or the other. */
static trpi_store_config world_config(const world *w, int node) {
    trpi_store_config config = config_of((uint64_t)node + 1);
    config.request_ns = w->is_hasty ? 1000 * MS : UINT64_C(1000000000) * MS;
    return config;
}

static client *by_session(world *w, uint64_t session) {
    for (int i = 0; i < CLIENTS; i++) {
        if (w->clients[i].session == session) {
            return &w->clients[i];
        }
    }
    return NULL;
}

static int known_at(const world *w, uint64_t object) {
    for (int i = 0; i < KNOWN; i++) {
        if (w->known[i] == object) {
            return i;
        }
    }
    return -1;
}

static void feed_store(world *w, int node, trpi_store_event event);

/* Memory that is handed out for writing must be in nobody's sight. */
static void check_unseen(const world *w, int node, uint64_t segment) {
    for (int i = 0; i < CLIENTS; i++) {
        for (int k = 0; k < KNOWN && w->clients[i].node == node; k++) {
            assert_true(w->clients[i].session == 0 || w->clients[i].mapped[k] != segment);
        }
    }
}

/* A client's afterthought. */
static void post_release(world *w, int node, uint64_t session, uint64_t object) {
    trpi_msg msg = {.type = TRPI_MSG_STORE_RELEASE,
                    .store_release = {.object = object, .count = 1}};
    post(w, (letter){.from = -1, .to = node, .msg = msg, .body = session});
}

static void take_answer(world *w, int node, const trpi_store_action *action) {
    client *c = by_session(w, action->session);
    const trpi_msg *msg = &action->msg;
    if (msg->type == TRPI_MSG_STORE_CREATED && msg->store_created.code == TRP_OK) {
        check_unseen(w, node, action->segment);
        int slot = (int)draw(w, KNOWN);
        for (int i = 0; i < KNOWN && w->known[slot] != 0; i++) {
            slot = (slot + 1) % KNOWN;
        }
        if (c == NULL) {
            return;
        }
        if (w->known[slot] != 0) { /* no room to remember it */
            post_release(w, node, action->session, msg->store_created.object);
            return;
        }
        w->known[slot] = msg->store_created.object;
        c->holds[slot] = 1;
        c->mapped[slot] = action->segment;
        c->is_open[slot] = true;
    } else if (msg->type == TRPI_MSG_STORE_GOT && msg->store_got.code == TRP_OK && c != NULL) {
        int slot = known_at(w, msg->store_got.object);
        if (slot < 0) { /* forgotten meanwhile */
            post_release(w, node, action->session, msg->store_got.object);
            return;
        }
        c->holds[slot]++;
        c->mapped[slot] = action->segment;
    }
}

static void perform_all(world *w, int node) {
    for (size_t i = 0; i < w->actions.count; i++) {
        trpi_store_action action = w->actions.items[i];
        switch (action.kind) {
        case TRPI_STORE_ANSWER:
            take_answer(w, node, &action);
            break;
        case TRPI_STORE_ASK:
            if (action.node >= 1 && action.node <= NODES) {
                post(w, (letter){.from = node, .to = (int)action.node - 1, .msg = action.msg});
            }
            break;
        case TRPI_STORE_REPLY:
            if (action.msg.type == TRPI_MSG_STORE_PART) {
                action.msg.store_part.message = "";
            } else if (action.msg.type == TRPI_MSG_STORE_RELAYED) {
                action.msg.store_relayed.message = "";
            }
            post(w, (letter){.from = node,
                             .to = (int)action.node - 1,
                             .incarnation = action.incarnation,
                             .msg = action.msg,
                             .body = action.bytes});
            break;
        case TRPI_STORE_FREE:
            if (action.clean) {
                check_unseen(w, node, action.segment);
            }
            break;
        default:
            break;
        }
    }
}

static void feed_store(world *w, int node, trpi_store_event event) {
    event.now_ns = w->now_ns;
    trpi_store_step(w->stores[node], &event, &w->actions);
    const char *broken = trpi_store_check(w->stores[node]);
    if (broken != NULL) {
        print_error("invariant of n%d: %s\n", node + 1, broken);
    }
    assert_null(broken);
    perform_all(w, node);
}

static void say_to(world *w, const client *c, trpi_msg msg) {
    feed_store(
        w, c->node,
        (trpi_store_event){.kind = TRPI_STORE_EVENT_MESSAGE, .session = c->session, .msg = &msg});
}

static void deliver(world *w) {
    letter one = w->letters[w->first];
    w->first = (w->first + 1) % LETTERS;
    w->count--;
    bool is_data = (one.msg.type == TRPI_MSG_STORE_FETCH && one.msg.store_fetch.size > 0) ||
                   (one.msg.type == TRPI_MSG_STORE_PART && one.body > 0);
    if (one.from < 0) {
        if (by_session(w, one.body) != NULL) {
            feed_store(w, one.to,
                       (trpi_store_event){
                           .kind = TRPI_STORE_EVENT_MESSAGE, .session = one.body, .msg = &one.msg});
        }
        return;
    }
    if ((w->loses && is_data && draw(w, 5) == 0) ||
        (one.incarnation != 0 && one.incarnation != w->incarnations[one.to])) {
        return;
    }
    feed_store(w, one.to,
               (trpi_store_event){.kind = TRPI_STORE_EVENT_PEER,
                                  .node = (uint64_t)one.from + 1,
                                  .msg = &one.msg,
                                  .body_size = one.body});
}

static void start_client(world *w, client *c) {
    memset(c, 0, sizeof(*c));
    c->node = (int)draw(w, NODES);
    c->number = ++w->last_client;
    c->session = ++w->last_session;
    feed_store(w, c->node,
               (trpi_store_event){
                   .kind = TRPI_STORE_EVENT_OPEN, .session = c->session, .pid = (int)c->session});
    say_to(
        w, c,
        (trpi_msg){.type = TRPI_MSG_STORE_HELLO,
                   .store_hello = {.version = TROUPE_VERSION, .client = c->number, .label = "c"}});
}

static void tell_gone(world *w, uint64_t number) {
    trpi_client_ref gone = {.client = number};
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_GONE,
                    .client_gone = {.clients = &gone, .clients_count = 1}};
    for (int i = 0; i < NODES; i++) {
        feed_store(w, i, (trpi_store_event){.kind = TRPI_STORE_EVENT_HEAD, .msg = &msg});
    }
}

static void kill_client(world *w, client *c) {
    uint64_t session = c->session;
    if (session == 0) {
        return;
    }
    /* It may live on and look at what it has mapped: so the model keeps that until it is told. */
    if (draw(w, 2) == 0) {
        feed_store(w, c->node,
                   (trpi_store_event){.kind = TRPI_STORE_EVENT_SHUT, .session = session});
        c->session = 0;
        tell_gone(w, c->number);
    } else {
        tell_gone(w, c->number);
        feed_store(w, c->node,
                   (trpi_store_event){.kind = TRPI_STORE_EVENT_SHUT, .session = session});
        c->session = 0;
    }
}

/* As the head does to a node that registers: it says who is left. */
static void tell_left(world *w, int node) {
    trpi_client_ref left[CLIENTS];
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_GONE,
                    .client_gone = {.clients = left, .all_but_until = w->last_client}};
    for (int i = 0; i < CLIENTS; i++) {
        if (w->clients[i].session != 0) {
            left[msg.client_gone.clients_count++].client = w->clients[i].number;
        }
    }
    feed_store(w, node, (trpi_store_event){.kind = TRPI_STORE_EVENT_HEAD, .msg = &msg});
}

/* The daemon dies with its clients; another one registers as the same node. */
static void restart_node(world *w, int node) {
    for (int i = 0; i < CLIENTS; i++) {
        if (w->clients[i].node == node && w->clients[i].session != 0) {
            w->clients[i].session = 0;
            tell_gone(w, w->clients[i].number);
        }
    }
    for (size_t i = 0; i < w->count; i++) { /* what was for it is lost, what it said may come */
        letter *one = &w->letters[(w->first + i) % LETTERS];
        if (one->to == node) {
            one->incarnation = UINT64_MAX;
        }
    }
    w->serial[node] = trpi_store_count(w->stores[node]).serial;
    trpi_store_free(w->stores[node]);
    trpi_store_config config = world_config(w, node);
    config.incarnation = ++w->incarnations[node];
    config.serial = w->serial[node];
    w->stores[node] = trpi_store_new(&config);
    tell_left(w, node);
    trpi_msg msg = {
        .type = TRPI_MSG_NODE_GONE,
        .node_gone = {.node = (uint64_t)node + 1, .incarnation = config.incarnation - 1}};
    for (int i = 0; i < NODES; i++) {
        if (i != node) {
            feed_store(w, i, (trpi_store_event){.kind = TRPI_STORE_EVENT_HEAD, .msg = &msg});
        }
    }
}

/* Numbers that nobody knows any more make room for others. */
static void forget_known(world *w) {
    for (int k = 0; k < KNOWN; k++) {
        bool held = false;
        for (int i = 0; i < CLIENTS; i++) {
            held |= w->clients[i].session != 0 && w->clients[i].holds[k] > 0;
        }
        if (!held && draw(w, 4) == 0) {
            w->known[k] = 0;
            for (int i = 0; i < CLIENTS; i++) {
                w->clients[i].mapped[k] = w->clients[i].holds[k] = 0;
                w->clients[i].is_open[k] = false;
            }
        }
    }
}

static void release_one(world *w, client *c, int k) {
    if (c->holds[k] > 0 && --c->holds[k] == 0) {
        c->mapped[k] = 0;
        c->is_open[k] = false;
    } else if (c->holds[k] > 0) {
        return; /* counted in the process */
    }
    say_to(w, c,
           (trpi_msg){.type = TRPI_MSG_STORE_RELEASE,
                      .store_release = {.object = w->known[k], .count = 1}});
}

static void act(world *w, client *c) {
    int k = (int)draw(w, KNOWN);
    uint64_t object = w->known[k], request = draw(w, 1000) + 1;
    switch (draw(w, 8)) {
    case 0:
        say_to(w, c,
               (trpi_msg){.type = TRPI_MSG_STORE_CREATE,
                          .store_create = {.request = request, .size = draw(w, 12 * MIB)}});
        break;
    case 1:
        for (k = 0; k < KNOWN && !c->is_open[k]; k++) {
        }
        if (k < KNOWN) {
            c->is_open[k] = false;
            c->mapped[k] = 0;
            say_to(w, c,
                   (trpi_msg){.type = TRPI_MSG_STORE_SEAL,
                              .store_seal = {.request = request, .object = w->known[k]}});
        }
        break;
    case 2:
    case 3:
        if (object != 0 && c->holds[k] == 0) {
            say_to(w, c,
                   (trpi_msg){.type = TRPI_MSG_STORE_GET,
                              .store_get = {.request = request,
                                            .object = object,
                                            .timeout_ms = draw(w, 3) ? 100000 : draw(w, 500)}});
        }
        break;
    case 4: {
        const client *other = &w->clients[draw(w, CLIENTS)];
        if (object != 0 && other->number != 0) {
            say_to(w, c,
                   (trpi_msg){.type = TRPI_MSG_STORE_HOLD,
                              .store_hold = {.request = request,
                                             .object = object,
                                             .client = draw(w, 3) ? other->number : 0}});
        }
        break;
    }
    default:
        if (object != 0 && (c->holds[k] > 0 || !w->is_hasty)) {
            release_one(w, c, k);
        }
        break;
    }
}

static void tick_all(world *w, uint64_t ms) {
    w->now_ns += ms * MS;
    for (int i = 0; i < NODES; i++) {
        if (trpi_store_wake_ns(w->stores[i]) <= w->now_ns) {
            feed_store(w, i, (trpi_store_event){.kind = TRPI_STORE_EVENT_TICK});
        }
    }
}

/* When all clients are gone and all that was said has come, no store holds a byte. */
static void end_and_expect_nothing(world *w) {
    for (int i = 0; i < CLIENTS; i++) {
        kill_client(w, &w->clients[i]);
    }
    for (int i = 0; i < 10000 && w->count > 0; i++) {
        deliver(w);
    }
    for (int i = 0; i < 20; i++) {
        tick_all(w, 1000);
        while (w->count > 0) {
            deliver(w);
        }
    }
    for (int i = 0; i < NODES; i++) {
        trpi_store_figures figures = trpi_store_count(w->stores[i]);
        assert_int_equal(figures.used, 0);
        assert_int_equal(figures.kept, 0);
        assert_int_equal(figures.objects, 0);
        assert_int_equal(figures.segments, 0);
    }
}

static void run_world(uint64_t seed) {
    world *w = calloc(1, sizeof(*w));
    w->letters = calloc(LETTERS, sizeof(letter));
    w->random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    w->now_ns = MS;
    w->loses = seed % 3 == 0;
    w->is_hasty = seed % 5 < 2;
    for (int i = 0; i < NODES; i++) {
        trpi_store_config config = world_config(w, i);
        w->incarnations[i] = 1;
        w->stores[i] = trpi_store_new(&config);
    }
    for (int step = 0; step < 3000; step++) {
        client *c = &w->clients[draw(w, CLIENTS)];
        uint64_t what = draw(w, 1000);
        if (c->session == 0 && what < 300) {
            start_client(w, c);
        } else if (what < 10) {
            kill_client(w, c);
        } else if (what < 12 && seed % 2 == 0) {
            restart_node(w, (int)draw(w, NODES));
        } else if (what < 60) {
            tick_all(w, draw(w, 300));
        } else if (what < 70) {
            forget_known(w);
        } else if (what < 500 && w->count > 0) {
            deliver(w);
        } else if (c->session != 0) {
            act(w, c);
        }
    }
    end_and_expect_nothing(w);
    for (int i = 0; i < NODES; i++) {
        trpi_store_free(w->stores[i]);
    }
    trpi_store_actions_release(&w->actions);
    free(w->letters);
    free(w);
}

static void memory_returns_to_zero_whatever_happens(void **state) {
    const char *one = getenv("TEST_SEED");
    if (one != NULL) {
        run_world(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= 300; seed++) {
        run_world(seed);
    }
}

/* ---- Two stores, step by step ---- */

/* Hands all that `from` has just asked for or replied to the other one. */
static void carry(rig *from, uint64_t from_node, rig *to) {
    size_t count = from->actions.count;
    trpi_store_action *items = calloc(count + 1, sizeof(*items));
    memcpy(items, from->actions.items, count * sizeof(*items));
    for (size_t i = 0; i < count; i++) {
        if (items[i].kind == TRPI_STORE_ASK || items[i].kind == TRPI_STORE_REPLY) {
            feed(to, (trpi_store_event){.kind = TRPI_STORE_EVENT_PEER,
                                        .node = from_node,
                                        .msg = &items[i].msg,
                                        .body_size = items[i].bytes});
        }
    }
    free(items);
}

static void many_readers_of_a_host_fetch_an_object_once(void **state) {
    rig home, other;
    rig_open(&home, 1);
    rig_open(&other, 2);
    connect_client(&home, 1, 11, "driver x");
    uint64_t object = put(&home, 1, MIB / 2);
    for (uint64_t i = 1; i <= 100; i++) {
        connect_client(&other, i, 100 + i, "reader");
    }
    ask_get(&other, 1, object, 1000);
    assert_non_null(action_of(&other, TRPI_STORE_ASK));
    carry(&other, 2, &home);
    for (uint64_t i = 2; i <= 100; i++) {
        ask_get(&other, i, object, 1000);
        assert_null(action_of(&other, TRPI_STORE_ASK));
    }
    assert_int_equal(action_of(&home, TRPI_STORE_REPLY)->bytes, MIB / 2);
    carry(&home, 1, &other);
    assert_non_null(action_of(&other, TRPI_STORE_WRITE));
    size_t answers = 0;
    for (size_t i = 0; i < other.actions.count; i++) {
        answers += other.actions.items[i].kind == TRPI_STORE_ANSWER;
    }
    assert_int_equal(answers, 100);
    /* The writer lets go: the other node holds it for its readers. */
    release(&home, 1, object);
    assert_int_equal(used(&home), MIB / 2);
    for (uint64_t i = 1; i <= 100; i++) {
        release(&other, i, object);
    }
    assert_int_equal(used(&other), 0);
    carry(&other, 2, &home); /* dropped: the copy is kept, until the home has forgotten it */
    assert_int_equal(used(&home), 0);
    assert_int_equal(trpi_store_count(other.store).kept, MIB / 2);
    carry(&home, 1, &other);
    pass(&other, 2000);
    assert_int_equal(trpi_store_count(other.store).kept, 0);
    rig_close(&home);
    rig_close(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_goes_back_with_the_last_hold),
        cmocka_unit_test(memory_is_used_again_while_it_is_warm),
        cmocka_unit_test(a_dead_holder_holds_nothing_and_leaves_no_memory_to_others),
        cmocka_unit_test(a_reader_waits_until_it_is_sealed_or_its_writer_is_gone),
        cmocka_unit_test(a_full_store_says_who_holds_what),
        cmocka_unit_test(memory_that_cannot_be_had_is_an_objects_end),
        cmocka_unit_test(a_hold_can_be_given_to_a_client_that_is_not_there_yet),
        cmocka_unit_test(what_was_given_to_a_client_goes_when_the_head_says_that_it_is_gone),
        cmocka_unit_test(a_daemon_that_missed_deaths_is_told_who_is_left),
        cmocka_unit_test(a_client_with_a_new_number_keeps_what_it_holds),
        cmocka_unit_test(a_stranger_is_told_and_cut_off),
        cmocka_unit_test(many_readers_of_a_host_fetch_an_object_once),
        cmocka_unit_test(memory_returns_to_zero_whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

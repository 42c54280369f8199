/* store.c: the door of the machine, its time, and who holds: clients, nodes, their ends. */
#include "actors/state/store.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/store_parts.h"

#define NUMBER_MAX (UINT64_C(1) << 62) /* of clients and nodes: keys have a bit less */
#define GONE_MAX 65536 /* spans; there are fewer as long as the head counts its clients */

trpi_store *trpi_store_new(const trpi_store_config *config) {
    trpi_store *s = trpi_alloc(sizeof(*s));
    s->config = *config;
    s->serial = config->serial;
    s->due_ns = UINT64_MAX;
    return s;
}

static void free_holder(trpi_holder *holder) {
    trpi_hold *hold;
    uint64_t id = 0;
    while ((hold = trpi_table_next(&holder->holds, &id)) != NULL) {
        free(hold);
    }
    trpi_table_release(&holder->holds);
    free(holder);
}

static void free_object(trpi_object *object) {
    while (object->waits != NULL) {
        trpi_wait *next = object->waits->next;
        free(object->waits);
        object->waits = next;
    }
    trpi_table_release(&object->holds);
    free(object);
}

void trpi_store_free(trpi_store *s) {
    if (s == NULL) {
        return;
    }
    void *item;
    uint64_t id = 0;
    while ((item = trpi_table_next(&s->holders, &id)) != NULL) {
        free_holder(item);
    }
    for (id = 0; (item = trpi_table_next(&s->objects, &id)) != NULL;) {
        free_object(item);
    }
    trpi_table *plain[] = {&s->sessions, &s->segments, &s->relays};
    for (size_t i = 0; i < TRPI_COUNTOF(plain); i++) {
        for (id = 0; (item = trpi_table_next(plain[i], &id)) != NULL;) {
            free(item);
        }
        trpi_table_release(plain[i]);
    }
    trpi_table_release(&s->holders);
    trpi_table_release(&s->objects);
    free(s->gone);
    free(s);
}

/* ---- Actions ---- */

void trpi_store_actions_release(trpi_store_actions *actions) {
    free(actions->items);
    trpi_arena_release(&actions->arena);
    *actions = (trpi_store_actions){0};
}

trpi_store_action *trpi_store_act(trpi_store *s, trpi_store_action_kind kind) {
    trpi_store_actions *out = s->out;
    if (out->count == out->capacity) {
        out->capacity = TRPI_MAX(2 * out->capacity, (size_t)16);
        out->items = trpi_realloc(out->items, out->capacity * sizeof(*out->items));
    }
    trpi_store_action *action = &out->items[out->count++];
    memset(action, 0, sizeof(*action));
    action->kind = kind;
    return action;
}

trpi_msg *trpi_store_answer(trpi_store *s, uint64_t session, trpi_msg_type type) {
    trpi_store_action *action = trpi_store_act(s, TRPI_STORE_ANSWER);
    action->session = session;
    action->msg.type = type;
    return &action->msg;
}

void trpi_store_done(trpi_store *s, uint64_t session, uint64_t request, trp_code code,
                     const char *message) {
    trpi_msg *msg = trpi_store_answer(s, session, TRPI_MSG_DONE);
    msg->done.request = request;
    msg->done.code = code;
    msg->done.message = code == TRP_OK ? "" : message;
}

const char *trpi_store_text(trpi_store *s, const char *format, ...) {
    char text[512]; /* what a trp_error takes in, with some context */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const char *copy = trpi_arena_text(&s->out->arena, text, strlen(text));
    TRP_ASSERT(copy != NULL); /* no limit is set: memory is out */
    return copy;
}

void trpi_store_due(trpi_store *s, uint64_t at_ns) {
    s->due_ns = TRPI_MIN(s->due_ns, at_ns);
}

/* ---- Holders ---- */

static trpi_holder *holder_of(trpi_store *s, uint64_t number, bool is_node, bool make) {
    uint64_t key = number << 1 | is_node;
    trpi_holder *holder = trpi_table_get(&s->holders, key);
    if (holder == NULL && make) {
        holder = trpi_alloc(sizeof(*holder));
        holder->key = key;
        holder->is_node = is_node;
        holder->number = number;
        trpi_table_put(&s->holders, key, holder);
    }
    return holder;
}

trpi_holder *trpi_store_client(trpi_store *s, uint64_t client, bool make) {
    return client >= NUMBER_MAX ? NULL : holder_of(s, client, false, make);
}

trpi_holder *trpi_store_node(trpi_store *s, uint64_t node, bool make) {
    return node >= NUMBER_MAX ? NULL : holder_of(s, node, true, make);
}

trpi_hold *trpi_store_hold_of(const trpi_holder *holder, const trpi_object *object) {
    return trpi_table_get(&holder->holds, object->id);
}

trpi_hold *trpi_store_take(trpi_store *s, trpi_holder *holder, trpi_object *object) {
    trpi_hold *hold = trpi_store_hold_of(holder, object);
    if (hold == NULL) {
        hold = trpi_alloc(sizeof(*hold));
        hold->holder = holder;
        hold->object = object;
        trpi_table_put(&holder->holds, object->id, hold);
        trpi_table_put(&object->holds, holder->key, hold);
    }
    if (hold->count++ == 0 && object->live++ == 0) {
        trpi_store_copy_in_use(s, object);
    }
    return hold;
}

static void unlist(trpi_hold *hold) {
    trpi_table_remove(&hold->holder->holds, hold->object->id);
    trpi_table_remove(&hold->object->holds, hold->holder->key);
    free(hold);
}

uint64_t trpi_store_give_back(trpi_store *s, trpi_holder *holder, trpi_object *object,
                              uint64_t count) {
    trpi_hold *hold = trpi_store_hold_of(holder, object);
    if (hold == NULL || hold->count == 0) {
        return 0;
    }
    uint64_t given = TRPI_MIN(count, hold->count);
    hold->count -= given;
    if (hold->count == 0) {
        object->live--;
        unlist(hold);
        trpi_store_settle(s, object);
    }
    return given;
}

/* Its process may live on and look at what it did not say that it has unmapped. */
static void drop_hold(trpi_store *s, trpi_hold *hold) {
    trpi_object *object = hold->object;
    if (hold->is_mapped && object->segment != NULL) {
        object->segment->is_exposed = true;
    }
    object->live -= hold->count > 0;
    unlist(hold);
    trpi_store_settle(s, object);
}

void trpi_store_holder_idle(trpi_store *s, trpi_holder *holder) {
    if (holder->session == 0 && holder->holds.count == 0 && !holder->is_node) {
        trpi_table_remove(&s->holders, holder->key);
        free_holder(holder);
    }
}

void trpi_store_drop_holder(trpi_store *s, trpi_holder *holder) {
    trpi_hold *hold;
    uint64_t id = 0;
    while ((hold = trpi_table_next(&holder->holds, &id)) != NULL) {
        drop_hold(s, hold);
    }
    trpi_store_holder_idle(s, holder);
}

/* ---- Clients that are gone ---- */

bool trpi_store_is_gone(const trpi_store *s, uint64_t client) {
    for (size_t i = s->gone_count; i-- > 0 && s->gone[i].last >= client;) {
        if (s->gone[i].first <= client) {
            return true;
        }
    }
    return false;
}

/* Spans that it meets or touches become one with it. */
static void note_gone(trpi_store *s, uint64_t first, uint64_t last) {
    size_t begin = 0;
    while (begin < s->gone_count && s->gone[begin].last + 1 < first) {
        begin++;
    }
    size_t end = begin;
    while (end < s->gone_count && s->gone[end].first <= last + 1) {
        first = TRPI_MIN(first, s->gone[end].first);
        last = TRPI_MAX(last, s->gone[end].last);
        end++;
    }
    if (end == begin) {
        s->gone = trpi_realloc(s->gone, (s->gone_count + 1) * sizeof(*s->gone));
    }
    memmove(s->gone + begin + 1, s->gone + end, (s->gone_count - end) * sizeof(*s->gone));
    s->gone_count += 1 - (end - begin);
    s->gone[begin] = (trpi_gone){first, last};
    if (s->gone_count > GONE_MAX) { /* the oldest clients are the least likely to be named */
        memmove(s->gone, s->gone + 1, --s->gone_count * sizeof(*s->gone));
    }
}

static int compare_clients(const void *a, const void *b) {
    uint64_t x = ((const trpi_client_ref *)a)->client, y = ((const trpi_client_ref *)b)->client;
    return (x > y) - (x < y);
}

/* The gap in front of each client that is left, and the one behind the last. */
static void note_all_but(trpi_store *s, const trpi_msg_client_gone *msg) {
    uint64_t first = 1, until = TRPI_MIN(msg->all_but_until, NUMBER_MAX - 1);
    size_t count = msg->clients_count;
    trpi_client_ref *left = trpi_alloc((count + 1) * sizeof(*left));
    if (count > 0) {
        memcpy(left, msg->clients, count * sizeof(*left));
    }
    qsort(left, count, sizeof(*left), compare_clients);
    left[count].client = NUMBER_MAX;
    for (size_t i = 0; i <= count && first <= until; i++) {
        uint64_t last = TRPI_MIN(left[i].client - 1, until);
        if (left[i].client > first && first <= last) {
            note_gone(s, first, last);
        }
        first = TRPI_MAX(first, left[i].client + 1);
    }
    free(left);
}

/* One that has a session here is alive, whatever the head thinks: it may see the memory. */
static void clients_gone(trpi_store *s, const trpi_msg_client_gone *msg) {
    if (msg->all_but_until != 0) {
        note_all_but(s, msg);
    }
    for (size_t i = 0; msg->all_but_until == 0 && i < msg->clients_count; i++) {
        if (msg->clients[i].client < NUMBER_MAX) {
            note_gone(s, msg->clients[i].client, msg->clients[i].client);
        }
    }
    trpi_holder *holder;
    uint64_t key = 0;
    while ((holder = trpi_table_next(&s->holders, &key)) != NULL) {
        if (!holder->is_node && holder->session == 0 && trpi_store_is_gone(s, holder->number)) {
            trpi_store_drop_holder(s, holder);
        }
    }
}

/* ---- Sessions ---- */

static void session_open(trpi_store *s, uint64_t id, int64_t pid) {
    trpi_session *session = trpi_alloc(sizeof(*session));
    session->id = id;
    session->pid = pid;
    trpi_table_put(&s->sessions, id, session);
}

static void session_shut(trpi_store *s, uint64_t id) {
    trpi_session *session = trpi_table_remove(&s->sessions, id);
    if (session == NULL) {
        return;
    }
    trpi_relay *relay;
    uint64_t key = 0;
    while ((relay = trpi_table_next(&s->relays, &key)) != NULL) {
        relay->session = relay->session == id ? 0 : relay->session; /* its answer goes nowhere */
    }
    trpi_store_session_waits(s, id);
    if (session->holder != NULL) {
        session->holder->session = 0;
        trpi_store_drop_holder(s, session->holder);
    }
    free(session);
}

/* What was given to the client before it said who it is becomes its session's. */
static void adopt(trpi_store *s, trpi_session *session, trpi_holder *holder,
                  const trpi_msg_store_hello *hello) {
    trpi_holder *before = session->holder;
    session->holder = holder;
    holder->session = session->id;
    holder->pid = session->pid;
    TRPI_SET(holder->label, hello->label);
    if (before == NULL || before == holder) {
        return;
    }
    trpi_hold *hold;
    uint64_t id = 0;
    while ((hold = trpi_table_next(&before->holds, &id)) != NULL) {
        trpi_object *object = hold->object;
        trpi_hold *own = trpi_store_take(s, holder, object);
        own->count += hold->count - 1;
        own->is_mapped |= hold->is_mapped;
        object->writer = object->writer == before->number ? holder->number : object->writer;
        object->live--;
        unlist(hold);
    }
    before->session = 0;
    trpi_store_holder_idle(s, before);
}

void trpi_store_refuse(trpi_store *s, uint64_t session, trp_code code, const char *reason) {
    trpi_store_done(s, session, 0, code, reason);
    trpi_store_act(s, TRPI_STORE_REFUSE)->session = session;
    s->out->items[s->out->count - 1].reason = reason;
}

static void take_hello(trpi_store *s, trpi_session *session, const trpi_msg_store_hello *hello) {
    if (strcmp(hello->version, TROUPE_VERSION) != 0) {
        trpi_store_refuse(s, session->id, TRP_EPROTOCOL,
                          trpi_store_text(s, "the store is troupe %s, this program is troupe %.64s",
                                          TROUPE_VERSION, hello->version));
        return;
    }
    trpi_holder *holder = hello->client ? trpi_store_client(s, hello->client, true) : NULL;
    if (holder == NULL) {
        trpi_store_refuse(s, session->id, TRP_EPROTOCOL, "a process must say which client it is");
        return;
    }
    if (holder->session != 0 && holder->session != session->id) {
        uint64_t other = holder->session;
        if (holder->pid != session->pid) {
            trpi_store_refuse(
                s, session->id, TRP_EEXISTS,
                trpi_store_text(s, "client %" PRIu64 " is connected already: pid %" PRId64,
                                hello->client, holder->pid));
            return;
        }
        /* The same process has connected anew: the end of its old connection was not seen yet. */
        trpi_store_act(s, TRPI_STORE_REFUSE)->session = other;
        s->out->items[s->out->count - 1].reason = "its process has connected anew";
        session_shut(s, other);
        holder = trpi_store_client(s, hello->client, true);
    }
    adopt(s, session, holder, hello);
    trpi_store_answer(s, session->id, TRPI_MSG_STORE_WELCOME)->store_welcome.node = s->config.node;
}

static void session_message(trpi_store *s, uint64_t id, const trpi_msg *msg) {
    trpi_session *session = trpi_table_get(&s->sessions, id);
    if (session == NULL) {
        return; /* it was refused just now */
    }
    if (msg->type == TRPI_MSG_STORE_HELLO) {
        take_hello(s, session, &msg->store_hello);
    } else if (session->holder == NULL) {
        trpi_store_refuse(s, id, TRP_EPROTOCOL, "STORE_HELLO comes first");
    } else {
        trpi_store_client_message(s, session, msg);
    }
}

static void head_message(trpi_store *s, const trpi_msg *msg) {
    if (msg->type == TRPI_MSG_CLIENT_GONE) {
        clients_gone(s, &msg->client_gone);
    } else if (msg->type == TRPI_MSG_NODE_GONE) {
        trpi_store_node_gone(s, msg->node_gone.node, msg->node_gone.incarnation);
    } else if (msg->type == TRPI_MSG_STORE_AT && msg->store_at.code == TRP_ENOTFOUND) {
        trpi_store_node_gone(s, msg->store_at.node, UINT64_MAX);
    }
}

/* ---- Time ---- */

static void tick(trpi_store *s) {
    if (s->now_ns < s->due_ns) {
        return;
    }
    s->due_ns = UINT64_MAX; /* what is walked over says when it must be looked at again */
    trpi_object *object;
    uint64_t id = 0;
    while ((object = trpi_table_next(&s->objects, &id)) != NULL) {
        trpi_store_waits_tick(s, object);
        object = trpi_table_get(&s->objects, id); /* the last who waited may have been all it had */
        if (object != NULL && object->is_copy) {
            trpi_store_copy_tick(s, object);
        }
    }
    trpi_store_relays_tick(s);
    trpi_store_spares_tick(s);
}

static void segment_failed(trpi_store *s, const trpi_store_event *event) {
    trpi_segment *segment = trpi_table_get(&s->segments, event->segment);
    if (segment != NULL && segment->object != NULL) {
        segment->is_exposed = true; /* never used again */
        trpi_store_destroy(s, segment->object, event->code,
                           trpi_store_text(s, "%s", event->reason));
    }
}

void trpi_store_step(trpi_store *s, const trpi_store_event *event, trpi_store_actions *actions) {
    s->out = actions;
    s->now_ns = TRPI_MAX(s->now_ns, event->now_ns);
    actions->count = 0;
    trpi_arena_reset(&actions->arena);
    switch (event->kind) {
    case TRPI_STORE_EVENT_OPEN:
        session_open(s, event->session, event->pid);
        break;
    case TRPI_STORE_EVENT_SHUT:
        session_shut(s, event->session);
        break;
    case TRPI_STORE_EVENT_MESSAGE:
        session_message(s, event->session, event->msg);
        break;
    case TRPI_STORE_EVENT_PEER:
        trpi_store_peer_message(s, event);
        break;
    case TRPI_STORE_EVENT_HEAD:
        head_message(s, event->msg);
        break;
    case TRPI_STORE_EVENT_VOID:
        trpi_store_home_void(s, event->node);
        break;
    case TRPI_STORE_EVENT_FAILED:
        segment_failed(s, event);
        break;
    case TRPI_STORE_EVENT_TICK:
        break;
    }
    tick(s);
    s->out = NULL;
}

uint64_t trpi_store_wake_ns(const trpi_store *s) {
    return s->due_ns;
}

trpi_store_figures trpi_store_count(const trpi_store *s) {
    return (trpi_store_figures){.capacity = s->config.capacity,
                                .used = s->used_bytes,
                                .objects = s->objects.count - s->idle_copies,
                                .kept = s->spare_bytes + s->idle_bytes,
                                .segments = s->segments.count,
                                .sessions = s->sessions.count,
                                .serial = s->serial};
}

/* store_peers.c: between stores: both sides of a fetch, holds for clients of other nodes, nodes
 * that are gone.
 *
 * The link to a home keeps the order of what it is asked, which is what makes this short: a hold
 * for a client is counted before this node's own hold is dropped. A fetch is asked for in parts,
 * some at a time, and takes them in order only; what does not come is asked for again from where it
 * stands, so that parts that come twice do no harm. */
#include <inttypes.h>
#include <stdlib.h>

#include "actors/state/store_parts.h"

#define PART_MAX_BYTES (UINT64_C(64) << 20)
#define NODES_END (UINT64_C(1) << (64 - TRPI_OBJECT_NODE_SHIFT)) /* beyond: no object's home */

static trpi_msg *ask_home(trpi_store *s, uint64_t object, trpi_msg_type type) {
    trpi_store_action *action = trpi_store_act(s, TRPI_STORE_ASK);
    action->node = object >> TRPI_OBJECT_NODE_SHIFT;
    action->msg.type = type;
    return &action->msg;
}

/* ---- As the one who asks ---- */

static void fetch(trpi_store *s, const trpi_object *copy, uint64_t offset, uint64_t size) {
    trpi_msg_store_fetch *msg = &ask_home(s, copy->id, TRPI_MSG_STORE_FETCH)->store_fetch;
    msg->node = s->config.node;
    msg->incarnation = s->config.incarnation;
    msg->object = copy->id;
    msg->offset = offset;
    msg->size = size;
}

/* As much as may be under way. Of an object whose size is not known yet: the first part. */
static void fetch_more(trpi_store *s, trpi_object *copy) {
    uint64_t chunk = s->config.chunk_bytes;
    if (copy->state == TRPI_OBJECT_ABSENT) {
        if (copy->asked == 0) {
            fetch(s, copy, 0, chunk);
            copy->asked = chunk;
        }
        return;
    }
    while (copy->asked < copy->size &&
           copy->asked - copy->received < chunk * s->config.chunks_in_flight) {
        uint64_t size = TRPI_MIN(chunk, copy->size - copy->asked);
        fetch(s, copy, copy->asked, size);
        copy->asked += size;
    }
}

static bool is_asking(const trpi_object *copy) {
    return copy->upstream == TRPI_UPSTREAM_ASKED ||
           (copy->upstream == TRPI_UPSTREAM_HELD && copy->is_wanted &&
            copy->state != TRPI_OBJECT_SEALED);
}

static void ask_now(trpi_store *s, trpi_object *copy) {
    if (copy->is_wanted && copy->state != TRPI_OBJECT_SEALED) {
        fetch_more(s, copy);
    } else if (copy->upstream != TRPI_UPSTREAM_HELD) {
        fetch(s, copy, 0, 0);
    }
    copy->progress_ns = s->now_ns;
    trpi_store_due(s, s->now_ns + s->config.stall_ns);
}

void trpi_store_want(trpi_store *s, trpi_object *copy, bool data) {
    bool more = data && !copy->is_wanted && copy->state != TRPI_OBJECT_SEALED;
    copy->is_wanted |= data;
    if (copy->upstream == TRPI_UPSTREAM_NONE || more) {
        if (copy->upstream == TRPI_UPSTREAM_NONE) {
            copy->upstream = TRPI_UPSTREAM_ASKED;
        }
        ask_now(s, copy);
    }
}

void trpi_store_drop_upstream(trpi_store *s, trpi_object *copy, bool keeps) {
    bool is_known_there = copy->upstream == TRPI_UPSTREAM_ASKED ||
                          copy->upstream == TRPI_UPSTREAM_HELD || copy->idle_ns != 0;
    if (copy->is_copy && copy->upstream != TRPI_UPSTREAM_DEAD && is_known_there) {
        trpi_msg_store_drop *msg = &ask_home(s, copy->id, TRPI_MSG_STORE_DROP)->store_drop;
        msg->node = s->config.node;
        msg->incarnation = s->config.incarnation;
        msg->object = copy->id;
        msg->keeps = keeps;
        copy->upstream = TRPI_UPSTREAM_NONE;
    }
}

/* Its home has it no more. Who has it here may go on looking at it; nobody else can get it. */
static void orphan(trpi_store *s, trpi_object *copy, trp_code code, const char *message) {
    copy->upstream = TRPI_UPSTREAM_DEAD;
    if (copy->state == TRPI_OBJECT_SEALED && copy->live > 0) {
        trpi_store_fail_waits(s, copy, false, code, message);
    } else {
        trpi_store_destroy(s, copy, code, message);
    }
}

/* The first part tells the size. False: there is no room, and no one waits for the data now. */
static bool make_room(trpi_store *s, trpi_object *copy, uint64_t size) {
    const char *reason;
    trp_code code = trpi_store_segment_take(s, copy, size, &reason);
    if (code == TRP_OK) {
        copy->size = size;
        copy->state = TRPI_OBJECT_FILLING;
        copy->asked = TRPI_MIN(copy->asked, size);
        return true;
    }
    copy->is_wanted = false;
    copy->asked = 0;
    trpi_store_fail_waits(s, copy, true, code, reason);
    return false;
}

static void take_data(trpi_store *s, trpi_object *copy, const trpi_msg_store_part *part,
                      size_t size) {
    if (copy->state == TRPI_OBJECT_ABSENT && !make_room(s, copy, part->total)) {
        return;
    }
    if (part->offset != copy->received || size > copy->size - copy->received) {
        return; /* it came twice */
    }
    if (size > 0) {
        trpi_store_action *action = trpi_store_act(s, TRPI_STORE_WRITE);
        action->segment = copy->segment->id;
        action->offset = part->offset;
        action->bytes = size;
    }
    copy->received += size;
    if (copy->received == copy->size) {
        copy->state = TRPI_OBJECT_SEALED;
    } else {
        fetch_more(s, copy);
    }
}

static void take_part(trpi_store *s, uint64_t node, const trpi_msg_store_part *part, size_t size) {
    trpi_object *copy = trpi_table_get(&s->objects, part->object);
    if (copy == NULL || !copy->is_copy || copy->home != node || !is_asking(copy)) {
        return; /* nobody here waits for it any more */
    }
    if (part->code != TRP_OK) {
        orphan(s, copy, (trp_code)part->code, trpi_store_text(s, "%s", part->message));
        return;
    }
    copy->upstream = TRPI_UPSTREAM_HELD;
    copy->progress_ns = s->now_ns;
    if (copy->is_wanted && copy->state != TRPI_OBJECT_SEALED && (size > 0 || part->total == 0)) {
        take_data(s, copy, part, size);
    }
    trpi_store_answer_waits(s, copy);
    trpi_store_settle(s, copy);
}

static void take_forget(trpi_store *s, uint64_t node, uint64_t object) {
    trpi_object *copy = trpi_table_get(&s->objects, object);
    /* While it is asked for again, that answer decides. */
    if (copy != NULL && copy->is_copy && copy->home == node &&
        copy->upstream != TRPI_UPSTREAM_ASKED) {
        orphan(s, copy, TRP_EOBJECT_LOST, trpi_store_lost_text(s, object));
    }
}

static void expire(trpi_store *s, trpi_object *copy) {
    if (copy->idle_ns + s->config.spare_ns <= s->now_ns) {
        trpi_store_destroy(s, copy, TRP_EOBJECT_LOST, "");
    } else {
        trpi_store_due(s, copy->idle_ns + s->config.spare_ns);
    }
}

void trpi_store_copy_tick(trpi_store *s, trpi_object *copy) {
    if (copy->idle_ns != 0) {
        expire(s, copy);
        return;
    }
    if (!is_asking(copy)) {
        return;
    }
    if (copy->progress_ns + s->config.stall_ns > s->now_ns) {
        trpi_store_due(s, copy->progress_ns + s->config.stall_ns);
        return;
    }
    trpi_store_act(s, TRPI_STORE_FIND)->node = copy->home; /* perhaps it is dead, or elsewhere */
    copy->asked = copy->received;
    ask_now(s, copy);
}

/* ---- As the home ---- */

/* The node that asks, in its newest incarnation: what an older one held is gone with it. NULL: it
 * is of an older one itself, or it is none. */
static trpi_holder *fence(trpi_store *s, uint64_t node, uint64_t incarnation) {
    if (node == 0 || node == s->config.node || node >= NODES_END) {
        return NULL;
    }
    trpi_holder *holder = trpi_store_node(s, node, true);
    if (incarnation < holder->incarnation) {
        return NULL;
    }
    if (incarnation > holder->incarnation) {
        trpi_store_drop_holder(s, holder);
        holder->incarnation = incarnation;
    }
    return holder;
}

static trpi_store_action *reply(trpi_store *s, const trpi_holder *node, trpi_msg_type type) {
    trpi_store_action *action = trpi_store_act(s, TRPI_STORE_REPLY);
    action->node = node->number;
    action->incarnation = node->incarnation;
    action->msg.type = type;
    return action;
}

static void serve(trpi_store *s, const trpi_msg_store_fetch *ask) {
    trpi_holder *node = fence(s, ask->node, ask->incarnation);
    if (node == NULL) {
        return;
    }
    trpi_object *object = trpi_table_get(&s->objects, ask->object);
    if (object != NULL && (object->is_copy || object->state == TRPI_OBJECT_WRITING)) {
        return; /* it will be asked for again */
    }
    if (object != NULL) {
        const trpi_hold *held = trpi_store_hold_of(node, object);
        if (held == NULL || held->count == 0) {
            (void)trpi_store_take(s, node, object);
        }
    }
    trpi_store_action *action = reply(s, node, TRPI_MSG_STORE_PART);
    trpi_msg_store_part *part = &action->msg.store_part;
    part->object = ask->object;
    part->offset = ask->offset;
    part->message = "";
    if (object == NULL) {
        part->code = TRP_EOBJECT_LOST;
        part->message = trpi_store_lost_text(s, ask->object);
    } else {
        part->total = object->size;
        if (ask->size > 0 && ask->offset < object->size) {
            action->segment = object->segment->id;
            action->offset = ask->offset;
            action->bytes =
                TRPI_MIN(TRPI_MIN(ask->size, object->size - ask->offset), PART_MAX_BYTES);
        }
    }
}

static void take_drop(trpi_store *s, const trpi_msg_store_drop *drop) {
    trpi_holder *node = fence(s, drop->node, drop->incarnation);
    if (node != NULL && drop->object == 0) {
        trpi_store_drop_holder(s, node);
        return;
    }
    trpi_object *object = trpi_table_get(&s->objects, drop->object);
    trpi_hold *held = node != NULL && object != NULL ? trpi_store_hold_of(node, object) : NULL;
    if (held == NULL) {
        return;
    }
    if (drop->keeps && held->count > 0) {
        held->count = 0;
        object->live--;
        trpi_store_settle(s, object);
    } else if (held->count > 0) {
        (void)trpi_store_give_back(s, node, object, held->count);
    } else if (!drop->keeps) {
        trpi_table_remove(&object->holds, node->key);
        trpi_table_remove(&node->holds, object->id);
        free(held);
    }
}

void trpi_store_forget_copies(trpi_store *s, trpi_object *object) {
    trpi_hold *hold;
    uint64_t key = 0;
    while ((hold = trpi_table_next(&object->holds, &key)) != NULL) {
        trpi_holder *node = hold->holder;
        if (!node->is_node) {
            continue;
        }
        reply(s, node, TRPI_MSG_STORE_FORGET)->msg.store_forget.object = object->id;
        object->live -= hold->count > 0;
        trpi_table_remove(&object->holds, key);
        trpi_table_remove(&node->holds, object->id);
        free(hold);
    }
}

/* ---- Holds of clients, counted at the home ---- */

static trpi_msg_store_relay *relay_msg(trpi_store *s, uint64_t object, uint64_t client, bool takes,
                                       uint64_t count) {
    trpi_msg_store_relay *msg = &ask_home(s, object, TRPI_MSG_STORE_RELAY)->store_relay;
    msg->node = s->config.node;
    msg->incarnation = s->config.incarnation;
    msg->object = object;
    msg->client = client;
    msg->takes = takes;
    msg->count = count;
    return msg;
}

void trpi_store_relay_take(trpi_store *s, const trpi_session *session, uint64_t request,
                           uint64_t object, uint64_t client) {
    if (object >> TRPI_OBJECT_NODE_SHIFT == 0) {
        trpi_store_done(s, session->id, request, TRP_EOBJECT_LOST, trpi_store_lost_text(s, object));
        return;
    }
    trpi_relay *relay = trpi_alloc(sizeof(*relay));
    relay->id = ++s->last_relay;
    relay->session = session->id;
    relay->request = request;
    relay->object = object;
    relay->client = client;
    relay->deadline_ns = s->now_ns + s->config.request_ns;
    trpi_table_put(&s->relays, relay->id, relay);
    trpi_store_due(s, relay->deadline_ns);
    relay_msg(s, object, client, true, 1)->request = relay->id;
}

void trpi_store_relay_give_back(trpi_store *s, uint64_t object, uint64_t client, uint64_t count) {
    if (object >> TRPI_OBJECT_NODE_SHIFT != 0) {
        (void)relay_msg(s, object, client, false, count);
    }
}

static void answer_relay(trpi_store *s, trpi_relay *relay, trp_code code, const char *message) {
    if (relay->session != 0) {
        trpi_store_done(s, relay->session, relay->request, code, message);
        relay->session = 0;
    }
}

static void end_relay(trpi_store *s, trpi_relay *relay, trp_code code, const char *message) {
    trpi_table_remove(&s->relays, relay->id);
    answer_relay(s, relay, code, message);
    free(relay);
}

/* One that comes too late was given to nobody who knows of it. */
static void take_relayed(trpi_store *s, uint64_t node, const trpi_msg_store_relayed *answer) {
    trpi_relay *relay = trpi_table_get(&s->relays, answer->request);
    if (relay == NULL || relay->object >> TRPI_OBJECT_NODE_SHIFT != node) {
        return;
    }
    if (relay->is_late && answer->code == TRP_OK) {
        (void)relay_msg(s, relay->object, relay->client, false, 1);
    }
    end_relay(s, relay, (trp_code)answer->code, trpi_store_text(s, "%s", answer->message));
}

void trpi_store_relays_tick(trpi_store *s) {
    trpi_relay *relay;
    uint64_t id = 0;
    while ((relay = trpi_table_next(&s->relays, &id)) != NULL) {
        if (relay->is_late) {
            continue;
        }
        if (relay->deadline_ns > s->now_ns) {
            trpi_store_due(s, relay->deadline_ns);
            continue;
        }
        relay->is_late = true;
        answer_relay(s, relay, TRP_ETIMEOUT,
                     trpi_store_text(s, "the store of node n%" PRIu64 " has not answered",
                                     relay->object >> TRPI_OBJECT_NODE_SHIFT));
    }
}

static void serve_relay(trpi_store *s, const trpi_msg_store_relay *ask) {
    trpi_holder *node = fence(s, ask->node, ask->incarnation);
    trpi_object *object = trpi_table_get(&s->objects, ask->object);
    trpi_holder *client = trpi_store_client(s, ask->client, false);
    if (node == NULL || ask->client == 0 || ask->client >> 62 != 0) {
        return;
    }
    bool is_there = object != NULL && !object->is_copy && object->state == TRPI_OBJECT_SEALED;
    if (!ask->takes) {
        if (is_there && client != NULL) {
            (void)trpi_store_give_back(s, client, object, ask->count);
            trpi_store_holder_idle(s, client);
        }
        return;
    }
    if (is_there && (client != NULL || !trpi_store_is_gone(s, ask->client))) {
        (void)trpi_store_take(s, trpi_store_client(s, ask->client, true), object);
    }
    trpi_msg_store_relayed *answer = &reply(s, node, TRPI_MSG_STORE_RELAYED)->msg.store_relayed;
    answer->request = ask->request;
    answer->code = is_there ? TRP_OK : TRP_EOBJECT_LOST;
    answer->message = is_there ? "" : trpi_store_lost_text(s, ask->object);
}

void trpi_store_peer_message(trpi_store *s, const trpi_store_event *event) {
    const trpi_msg *msg = event->msg;
    switch (msg->type) {
    case TRPI_MSG_STORE_FETCH:
        serve(s, &msg->store_fetch);
        break;
    case TRPI_MSG_STORE_DROP:
        take_drop(s, &msg->store_drop);
        break;
    case TRPI_MSG_STORE_RELAY:
        serve_relay(s, &msg->store_relay);
        break;
    case TRPI_MSG_STORE_PART:
        take_part(s, event->node, &msg->store_part, event->body_size);
        break;
    case TRPI_MSG_STORE_FORGET:
        take_forget(s, event->node, msg->store_forget.object);
        break;
    case TRPI_MSG_STORE_RELAYED:
        take_relayed(s, event->node, &msg->store_relayed);
        break;
    default: /* a stranger's: dropped */
        break;
    }
}

/* ---- The end of a node ---- */

static void home_gone(trpi_store *s, uint64_t node) {
    trpi_object *object;
    uint64_t id = 0;
    while ((object = trpi_table_next(&s->objects, &id)) != NULL) {
        if (object->is_copy && object->home == node) {
            orphan(s, object, TRP_EOBJECT_LOST, trpi_store_lost_text(s, id));
        }
    }
    trpi_relay *relay;
    for (id = 0; (relay = trpi_table_next(&s->relays, &id)) != NULL;) {
        if (relay->object >> TRPI_OBJECT_NODE_SHIFT == node) {
            end_relay(s, relay, TRP_EOBJECT_LOST, trpi_store_lost_text(s, relay->object));
        }
    }
}

void trpi_store_node_gone(trpi_store *s, uint64_t node, uint64_t incarnation) {
    /* Where the head only said that there is no such node, it did not say which was the last. Else
     * that is remembered, also of one that never asked: what it asked may come yet. */
    bool is_last_known = incarnation != UINT64_MAX;
    if (node == s->config.node || node >= NODES_END) {
        return;
    }
    trpi_holder *holder = trpi_store_node(s, node, is_last_known);
    if (holder != NULL && holder->incarnation <= incarnation) {
        trpi_store_drop_holder(s, holder);
        holder->incarnation = is_last_known ? incarnation + 1 : holder->incarnation;
    }
    home_gone(s, node);
}

/* What was said to it and not confirmed is lost, drops of holds, too; it may still be the one that
 * counts them. So we begin anew, holding nothing there. */
void trpi_store_home_void(trpi_store *s, uint64_t node) {
    home_gone(s, node);
    trpi_store_action *action = trpi_store_act(s, TRPI_STORE_ASK);
    action->node = node;
    action->msg.type = TRPI_MSG_STORE_DROP;
    action->msg.store_drop =
        (trpi_msg_store_drop){.node = s->config.node, .incarnation = s->config.incarnation};
}

/* store_objects.c: what clients ask for, who waits for an object, and when one goes. */
#include <inttypes.h>
#include <stdlib.h>

#include "actors/state/store_parts.h"
#include "core/base/times.h"

#define SERIAL_MAX ((UINT64_C(1) << TRPI_OBJECT_NODE_SHIFT) - 1)

static bool is_ours(const trpi_store *s, uint64_t object) {
    return object >> TRPI_OBJECT_NODE_SHIFT == s->config.node;
}

const char *trpi_store_lost_text(trpi_store *s, uint64_t object) {
    char name[48];
    trpi_store_name(object, name, sizeof(name));
    return trpi_store_text(s, "object %s is lost: nobody held it any more, or its node died", name);
}

trpi_object *trpi_store_object_new(trpi_store *s, uint64_t id) {
    trpi_object *object = trpi_alloc(sizeof(*object));
    object->id = id;
    object->home = id >> TRPI_OBJECT_NODE_SHIFT;
    object->is_copy = !is_ours(s, id);
    trpi_table_put(&s->objects, id, object);
    return object;
}

/* ---- The end of an object ---- */

static void remove_object(trpi_store *s, trpi_object *object) {
    TRP_ASSERT(object->live == 0 && object->holds.count == 0 && object->waits == NULL);
    trpi_store_segment_leave(s, object);
    s->idle_copies -= object->idle_ns != 0;
    trpi_table_remove(&s->objects, object->id);
    trpi_table_release(&object->holds);
    free(object);
}

void trpi_store_settle(trpi_store *s, trpi_object *object) {
    if (object->live > 0 || (object->is_copy && object->waits != NULL)) {
        return;
    }
    if (!object->is_copy) {
        trpi_store_fail_waits(s, object, false, TRP_EOBJECT_LOST,
                              trpi_store_lost_text(s, object->id));
        trpi_store_forget_copies(s, object);
        remove_object(s, object);
        return;
    }
    bool keeps = object->state == TRPI_OBJECT_SEALED && object->upstream != TRPI_UPSTREAM_DEAD;
    trpi_store_drop_upstream(s, object, keeps);
    if (keeps) {
        trpi_store_copy_idle(s, object);
    } else {
        remove_object(s, object);
    }
}

void trpi_store_destroy(trpi_store *s, trpi_object *object, trp_code code, const char *message) {
    trpi_hold *hold;
    uint64_t key = 0;
    trpi_store_fail_waits(s, object, false, code, message);
    trpi_store_forget_copies(s, object);
    while ((hold = trpi_table_next(&object->holds, &key)) != NULL) {
        trpi_holder *holder = hold->holder;
        if (hold->is_mapped && object->segment != NULL) {
            object->segment->is_exposed = true;
        }
        trpi_table_remove(&object->holds, key);
        trpi_table_remove(&holder->holds, object->id);
        free(hold);
        trpi_store_holder_idle(s, holder);
    }
    object->live = 0;
    trpi_store_drop_upstream(s, object, false);
    remove_object(s, object);
}

/* ---- Waiting for one ---- */

static void wait_for(trpi_object *object, const trpi_session *session, uint64_t request,
                     uint64_t deadline_ns, bool wants_data) {
    trpi_wait **end = &object->waits;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = trpi_alloc(sizeof(**end));
    **end = (trpi_wait){.session = session->id,
                        .request = request,
                        .deadline_ns = deadline_ns,
                        .wants_data = wants_data};
}

static void say_got(trpi_store *s, uint64_t session, uint64_t request, trp_code code,
                    const char *message) {
    trpi_msg_store_got *got = &trpi_store_answer(s, session, TRPI_MSG_STORE_GOT)->store_got;
    got->request = request;
    got->code = code;
    got->message = message;
}

static void refuse_wait(trpi_store *s, const trpi_wait *wait, trp_code code, const char *message) {
    if (wait->wants_data) {
        say_got(s, wait->session, wait->request, code, message);
    } else {
        trpi_store_done(s, wait->session, wait->request, code, message);
    }
}

/* The object in shared memory, and a hold on it. */
static void grant(trpi_store *s, const trpi_session *session, uint64_t request,
                  trpi_object *object) {
    trpi_store_take(s, session->holder, object)->is_mapped = true;
    say_got(s, session->id, request, TRP_OK, "");
    trpi_store_action *action = &s->out->items[s->out->count - 1];
    action->segment = object->segment->id;
    action->msg.store_got.object = object->id;
    action->msg.store_got.segment = object->segment->id;
    action->msg.store_got.bytes = object->segment->bytes;
    action->msg.store_got.size = object->size;
}

static bool is_held_upstream(const trpi_object *object) {
    return !object->is_copy || object->upstream == TRPI_UPSTREAM_HELD ||
           object->upstream == TRPI_UPSTREAM_DEAD;
}

static bool is_there(const trpi_object *object) {
    return object->state == TRPI_OBJECT_SEALED && is_held_upstream(object);
}

static bool can_have(const trpi_object *object, bool wants_data) {
    return wants_data ? is_there(object)
                      : is_held_upstream(object) && object->state != TRPI_OBJECT_WRITING;
}

void trpi_store_answer_waits(trpi_store *s, trpi_object *object) {
    trpi_wait **link = &object->waits;
    while (*link != NULL) {
        trpi_wait *wait = *link;
        const trpi_session *session = trpi_table_get(&s->sessions, wait->session);
        if (!can_have(object, wait->wants_data)) {
            link = &wait->next;
            continue;
        }
        *link = wait->next;
        if (session != NULL && wait->wants_data) {
            grant(s, session, wait->request, object);
        } else if (session != NULL) {
            (void)trpi_store_take(s, session->holder, object);
            trpi_store_done(s, session->id, wait->request, TRP_OK, "");
        }
        free(wait);
    }
}

void trpi_store_fail_waits(trpi_store *s, trpi_object *object, bool only_data, trp_code code,
                           const char *message) {
    trpi_wait **link = &object->waits;
    while (*link != NULL) {
        trpi_wait *wait = *link;
        if (only_data && !wait->wants_data) {
            link = &wait->next;
            continue;
        }
        *link = wait->next;
        refuse_wait(s, wait, code, message);
        free(wait);
    }
}

void trpi_store_session_waits(trpi_store *s, uint64_t session) {
    trpi_object *object;
    uint64_t id = 0;
    while ((object = trpi_table_next(&s->objects, &id)) != NULL) {
        bool found = false;
        trpi_wait **link = &object->waits;
        while (*link != NULL) {
            trpi_wait *wait = *link;
            if (wait->session == session) {
                *link = wait->next;
                free(wait);
                found = true;
            } else {
                link = &wait->next;
            }
        }
        if (found) {
            trpi_store_settle(s, object);
        }
    }
}

static const char *timeout_text(trpi_store *s, const trpi_object *object) {
    char name[48], got[32], size[32];
    trpi_store_name(object->id, name, sizeof(name));
    if (!object->is_copy) {
        return trpi_store_text(s, "object %s is not sealed yet", name);
    }
    if (object->state == TRPI_OBJECT_ABSENT) {
        return trpi_store_text(s, "object %s: the store of node n%" PRIu64 " has not answered",
                               name, object->home);
    }
    trpi_store_bytes_text(object->received, got, sizeof(got));
    trpi_store_bytes_text(object->size, size, sizeof(size));
    return trpi_store_text(s, "object %s: %s of %s have come from node n%" PRIu64, name, got, size,
                           object->home);
}

void trpi_store_waits_tick(trpi_store *s, trpi_object *object) {
    bool found = false;
    trpi_wait **link = &object->waits;
    while (*link != NULL) {
        trpi_wait *wait = *link;
        if (wait->deadline_ns > s->now_ns) {
            trpi_store_due(s, wait->deadline_ns);
            link = &wait->next;
            continue;
        }
        *link = wait->next;
        refuse_wait(s, wait, TRP_ETIMEOUT, timeout_text(s, object));
        free(wait);
        found = true;
    }
    if (found) {
        trpi_store_settle(s, object);
    }
}

/* ---- Requests ---- */

static void create(trpi_store *s, const trpi_session *session, const trpi_msg_store_create *ask) {
    const char *reason = "";
    trp_code code = TRP_OK;
    trpi_object *object = NULL;
    if (s->serial == SERIAL_MAX) {
        code = TRP_EBUSY;
        reason = "this node has no numbers for objects left";
    } else {
        object =
            trpi_store_object_new(s, s->config.node << TRPI_OBJECT_NODE_SHIFT | (s->serial + 1));
        code = trpi_store_segment_take(s, object, ask->size, &reason);
    }
    if (code == TRP_OK) {
        s->serial++;
        object->state = TRPI_OBJECT_WRITING;
        object->writer = session->holder->number;
        trpi_store_take(s, session->holder, object)->is_mapped = true;
    } else if (object != NULL) {
        remove_object(s, object);
        object = NULL;
    }
    trpi_store_action *action = trpi_store_act(s, TRPI_STORE_ANSWER);
    action->session = session->id;
    action->segment = object ? object->segment->id : 0;
    action->writable = true;
    action->msg.type = TRPI_MSG_STORE_CREATED;
    action->msg.store_created = (trpi_msg_store_created){.request = ask->request,
                                                         .code = code,
                                                         .message = reason,
                                                         .object = object ? object->id : 0,
                                                         .segment = action->segment};
    if (object != NULL) {
        action->msg.store_created.bytes = object->segment->bytes;
    }
}

static void seal(trpi_store *s, const trpi_session *session, const trpi_msg_store_seal *ask) {
    trpi_object *object = trpi_table_get(&s->objects, ask->object);
    if (object == NULL || object->state != TRPI_OBJECT_WRITING ||
        object->writer != session->holder->number) {
        trpi_store_done(s, session->id, ask->request, TRP_EINVALID,
                        "this process is not writing such an object");
        return;
    }
    object->state = TRPI_OBJECT_SEALED;
    object->writer = 0;
    trpi_store_hold_of(session->holder, object)->is_mapped = false;
    trpi_store_done(s, session->id, ask->request, TRP_OK, "");
    trpi_store_answer_waits(s, object);
}

static uint64_t deadline_after(const trpi_store *s, uint64_t timeout_ms) {
    return timeout_ms > (UINT64_MAX - s->now_ns) / TRPI_NS_PER_MS
               ? UINT64_MAX
               : s->now_ns + timeout_ms * TRPI_NS_PER_MS;
}

/* Hands the object out, or waits for it. */
static void ask_for(trpi_store *s, const trpi_session *session, uint64_t request, uint64_t id,
                    uint64_t deadline_ns, bool wants_data) {
    trpi_object *object = trpi_table_get(&s->objects, id);
    if (object == NULL && (is_ours(s, id) || id >> TRPI_OBJECT_NODE_SHIFT == 0)) {
        trpi_wait wait = {.session = session->id, .request = request, .wants_data = wants_data};
        refuse_wait(s, &wait, TRP_EOBJECT_LOST, trpi_store_lost_text(s, id));
        return;
    }
    if (object == NULL) {
        object = trpi_store_object_new(s, id);
    }
    wait_for(object, session, request, deadline_ns, wants_data);
    trpi_store_due(s, deadline_ns);
    trpi_store_answer_waits(s, object);
    if (object->is_copy && object->waits != NULL) {
        trpi_store_copy_in_use(s, object);
        trpi_store_want(s, object, wants_data);
    }
}

/* For another client: a copy here when that has a session here, for then its releases come here
 * too; else at the object's home, where all stores send the releases of what they don't know. */
static void hold_for(trpi_store *s, const trpi_session *session, const trpi_msg_store_hold *ask) {
    trpi_object *object = trpi_table_get(&s->objects, ask->object);
    const trpi_holder *other = trpi_store_client(s, ask->client, false);
    bool is_known = object != NULL && is_there(object) && object->live > 0;
    if (!is_ours(s, ask->object) && (!is_known || other == NULL || other->session == 0)) {
        trpi_store_relay_take(s, session, ask->request, ask->object, ask->client);
        return;
    }
    if (!is_known) {
        bool is_open = object != NULL && object->state == TRPI_OBJECT_WRITING;
        trpi_store_done(s, session->id, ask->request, is_open ? TRP_EINVALID : TRP_EOBJECT_LOST,
                        is_open ? "the object is not sealed yet"
                                : trpi_store_lost_text(s, ask->object));
        return;
    }
    if (other != NULL || !trpi_store_is_gone(s, ask->client)) {
        (void)trpi_store_take(s, trpi_store_client(s, ask->client, true), object);
    }
    trpi_store_done(s, session->id, ask->request, TRP_OK, "");
}

static void hold(trpi_store *s, const trpi_session *session, const trpi_msg_store_hold *ask) {
    if (ask->client == 0 || ask->client == session->holder->number) {
        ask_for(s, session, ask->request, ask->object, s->now_ns + s->config.request_ns, false);
    } else if (ask->client >> 62) {
        trpi_store_done(s, session->id, ask->request, TRP_EINVALID, "there is no such client");
    } else {
        hold_for(s, session, ask);
    }
}

/* What it does not hold here was given to it where the object is at home. */
static void release(trpi_store *s, const trpi_session *session, const trpi_msg_store_release *ask) {
    trpi_object *object = trpi_table_get(&s->objects, ask->object);
    uint64_t rest = ask->count;
    if (object != NULL) {
        trpi_hold *own = trpi_store_hold_of(session->holder, object);
        if (own != NULL) {
            own->is_mapped = false;
        }
        rest -= trpi_store_give_back(s, session->holder, object, rest);
    }
    if (rest > 0 && !is_ours(s, ask->object)) {
        trpi_store_relay_give_back(s, ask->object, session->holder->number, rest);
    }
}

static void tell_info(trpi_store *s, const trpi_session *session, uint64_t request) {
    trpi_store_figures figures = trpi_store_count(s);
    trpi_msg_store_info *info = &trpi_store_answer(s, session->id, TRPI_MSG_STORE_INFO)->store_info;
    info->request = request;
    info->capacity = figures.capacity;
    info->used = figures.used;
    info->objects = figures.objects;
    info->kept = figures.kept;
}

void trpi_store_client_message(trpi_store *s, trpi_session *session, const trpi_msg *msg) {
    switch (msg->type) {
    case TRPI_MSG_STORE_CREATE:
        create(s, session, &msg->store_create);
        break;
    case TRPI_MSG_STORE_SEAL:
        seal(s, session, &msg->store_seal);
        break;
    case TRPI_MSG_STORE_GET:
        ask_for(s, session, msg->store_get.request, msg->store_get.object,
                deadline_after(s, msg->store_get.timeout_ms), true);
        break;
    case TRPI_MSG_STORE_HOLD:
        hold(s, session, &msg->store_hold);
        break;
    case TRPI_MSG_STORE_RELEASE:
        release(s, session, &msg->store_release);
        break;
    case TRPI_MSG_STORE_INFO_QUERY:
        tell_info(s, session, msg->store_info_query.request);
        break;
    default:
        trpi_store_refuse(s, session->id, TRP_EPROTOCOL, "a store has no such request");
        break;
    }
}

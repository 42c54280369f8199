/* cluster_turns.c: who has waited too long gets its turn.
 *
 * Small requests fit nearly always, so a stream of them would keep a large one out for ever. Who is
 * first in its line and has waited for reserve_after_ms, though it could fit on the nodes there
 * are, gets a turn: on some node (a group: on some nodes) the room that it needs is kept free of
 * others, and as those that are there end, it fills up (scheduler.h). The turn ends when it has its
 * place.
 *
 * How long those that are there will live is not known. So a turn is for a time, then it moves to
 * the next node and lasts twice as long there: if on any node what is held of that room comes back
 * within some time, however long, the turn is long enough at last.
 *
 * Turns are given by the time that one has waited. Who is refused one (as half of the nodes have
 * room kept on them already) is waited for: nobody younger gets one before. Keeping holds nothing,
 * so two turns cannot block each other, and who waits can always be placed elsewhere.
 *
 * What holds: a turn belongs to the first of a line; on one node room is kept for at most one. */
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

#define PLANS_PER_LOOK 64
#define LOOKS 8 /* in the time after which one has waited too long */

uint64_t trpi_turn_of_actor(uint64_t actor) {
    return 2 * actor;
}
uint64_t trpi_turn_of_group(uint64_t group) {
    return 2 * group + 1;
}

static void free_rooms(trpi_turn *turn) {
    for (size_t i = 0; i < turn->room_count; i++) {
        trpi_request_release(&turn->rooms[i].request);
    }
    free(turn->rooms);
    turn->rooms = NULL;
    turn->room_count = 0;
}

static void keep(trpi_cluster *c, const trpi_turn *turn) {
    for (size_t i = 0; i < turn->room_count; i++) {
        const trpi_room *room = &turn->rooms[i];
        trpi_sched_keep(&c->sched, trpi_sched_node_of(&c->sched, room->node), turn->who,
                        &room->request);
    }
    c->turns.rooms += turn->room_count;
}

static void unkeep(trpi_cluster *c, trpi_turn *turn) {
    for (size_t i = 0; i < turn->room_count; i++) {
        trpi_sched_node *node = trpi_sched_node_of(&c->sched, turn->rooms[i].node);
        if (node && node->kept_for == turn->who) {
            trpi_sched_unkeep(&c->sched, node);
        }
    }
    c->turns.rooms -= turn->room_count;
    c->turns.released = true;
    free_rooms(turn);
}

static void remove_turn(trpi_cluster *c, trpi_turn *turn) {
    unkeep(c, turn);
    trpi_table_remove(&c->turns.items, turn->who);
    free(turn);
}

void trpi_turn_end(trpi_cluster *c, uint64_t who) {
    trpi_turn *turn = trpi_table_get(&c->turns.items, who);
    if (turn) {
        remove_turn(c, turn);
    }
}

void trpi_turns_node_closed(trpi_cluster *c, uint64_t node) {
    trpi_turn *turn;
    uint64_t who = 0;
    while ((turn = trpi_table_next(&c->turns.items, &who)) != NULL) {
        bool there = false;
        for (size_t i = 0; i < turn->room_count; i++) {
            there |= turn->rooms[i].node == node;
        }
        if (there) {
            remove_turn(c, turn); /* it gets another one when next looked at */
        }
    }
}

void trpi_turns_release(trpi_cluster *c) {
    trpi_turn *turn;
    uint64_t who = 0;
    while ((turn = trpi_table_next(&c->turns.items, &who)) != NULL) {
        free_rooms(turn);
        free(turn);
    }
    trpi_table_release(&c->turns.items);
}

/* ---- Where an actor's room is kept ---- */

/* The part of a node, in 1/10000, that must come back before the request fits there. */
static int64_t missing(const trpi_sched_node *node, const trpi_request *request) {
    int64_t worst = 0;
    for (size_t i = 0; i < request->count; i++) {
        uint32_t resource = request->amounts[i].resource;
        int64_t lacks = request->amounts[i].amount - trpi_pool_most(&node->pool, resource, false);
        int64_t total = TRPI_MAX(trpi_pool_total(&node->pool, resource), (int64_t)1);
        int64_t part =
            lacks > INT64_MAX / TRPI_ONE ? lacks / (total / TRPI_ONE) : lacks * TRPI_ONE / total;
        worst = TRPI_MAX(worst, part);
    }
    return worst;
}

/* First where the least is missing; then, as that did not come, the next one behind `last`. */
static uint64_t node_for(const trpi_cluster *c, const trpi_wish *wish, uint64_t last) {
    const trpi_sched_node *node;
    uint64_t id = 0, best = 0, first = 0;
    int64_t best_missing = 0;
    while ((node = trpi_table_next(&c->sched.nodes, &id)) != NULL) {
        if (node->kept_for || !trpi_sched_could_fit(node, wish)) {
            continue;
        }
        int64_t lacks = missing(node, wish->request);
        if (!best || lacks < best_missing) {
            best = id;
            best_missing = lacks;
        }
        first = first ? first : id;
        if (last && id > last) {
            return id;
        }
    }
    return last ? first : best;
}

/* Room on a node, on top of what was planned there already. */
static void add_room(trpi_turn *turn, uint64_t node, const trpi_request *request) {
    size_t i = 0;
    while (i < turn->room_count && turn->rooms[i].node != node) {
        i++;
    }
    if (i == turn->room_count) {
        turn->rooms = trpi_realloc(turn->rooms, (i + 1) * sizeof(*turn->rooms));
        turn->rooms[turn->room_count++] = (trpi_room){.node = node};
    }
    trpi_request_add(&turn->rooms[i].request, request);
}

static void plan_actor(const trpi_cluster *c, const trpi_actor_rec *actor, uint64_t last,
                       trpi_turn *turn) {
    trpi_wish wish = trpi_actor_wish(c, actor);
    uint64_t node = node_for(c, &wish, last);
    if (node) {
        add_room(turn, node, &actor->request);
    }
}

/* Where its bundles would be if nobody else held anything. */
static void plan_group(const trpi_cluster *c, const trpi_group_rec *group, uint64_t last,
                       trpi_turn *turn) {
    size_t count = group->bundle_count;
    uint64_t *nodes = trpi_alloc(count * sizeof(uint64_t));
    bool found =
        (last && trpi_place_plan(&c->sched, group->strategy, group->seats, count, turn->who, last,
                                 nodes)) ||
        trpi_place_plan(&c->sched, group->strategy, group->seats, count, turn->who, 0, nodes);
    for (size_t i = 0; found && i < count; i++) {
        if (!group->seats[i].node) {
            add_room(turn, nodes[i], &group->seats[i].request);
        }
    }
    free(nodes);
}

/* ---- Turns ---- */

/* Nothing is planned if it could not fit on any node, or only where others have their turns. */
static void plan(const trpi_cluster *c, trpi_turn *turn, uint64_t last) {
    uint64_t id = turn->who / 2;
    if (turn->who == trpi_turn_of_actor(id)) {
        plan_actor(c, trpi_table_get(&c->actors, id), last, turn);
    } else {
        plan_group(c, trpi_table_get(&c->groups, id), last, turn);
    }
}

static size_t open_nodes(const trpi_cluster *c) {
    const trpi_sched_node *node;
    uint64_t id = 0;
    size_t count = 0;
    while ((node = trpi_table_next(&c->sched.nodes, &id)) != NULL) {
        count += !node->closed;
    }
    return count;
}

/* False: too many nodes have room kept on them, and who is younger must wait as well. */
static bool give_turn(trpi_cluster *c, uint64_t who) {
    trpi_turn *turn = trpi_alloc(sizeof(*turn));
    turn->who = who;
    turn->length_ns = 2 * c->config.reserve_after_ms * TRPI_NS_PER_MS;
    plan(c, turn, 0);
    bool is_alone = c->turns.items.count == 0;
    bool too_many = !is_alone && 2 * (c->turns.rooms + turn->room_count) > open_nodes(c);
    if (turn->room_count == 0 || too_many) {
        bool has_hope = turn->room_count > 0;
        free_rooms(turn);
        free(turn);
        return !has_hope;
    }
    turn->until_ns = c->now_ns + turn->length_ns;
    trpi_table_put(&c->turns.items, who, turn);
    keep(c, turn);
    return true;
}

static void move_turns(trpi_cluster *c) {
    trpi_turn *turn;
    uint64_t who = 0;
    while ((turn = trpi_table_next(&c->turns.items, &who)) != NULL) {
        if (c->now_ns < turn->until_ns) {
            continue;
        }
        uint64_t last = turn->rooms[0].node;
        unkeep(c, turn);
        plan(c, turn, last);
        if (turn->room_count == 0) {
            remove_turn(c, turn);
            continue;
        }
        turn->length_ns = TRPI_MIN(2 * turn->length_ns, TRPI_LONG_MS * TRPI_NS_PER_MS);
        turn->until_ns = c->now_ns + turn->length_ns;
        keep(c, turn);
    }
}

/* ---- Who is next ---- */

typedef struct candidate {
    uint64_t since_ns, who;
} candidate;

static int by_age(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->since_ns != b->since_ns) {
        return a->since_ns < b->since_ns ? -1 : 1;
    }
    return (a->who > b->who) - (a->who < b->who);
}

/* Heads of lines that have waited too long and have no turn yet. */
static size_t add_candidates(const trpi_cluster *c, const trpi_queue *queue, bool groups,
                             candidate *out) {
    uint64_t after_ns = c->config.reserve_after_ms * TRPI_NS_PER_MS, ticket = 0, id;
    size_t count = 0;
    while ((id = trpi_queue_next(queue, &ticket, NULL)) != 0) {
        const trpi_group_rec *group = groups ? trpi_table_get(&c->groups, id) : NULL;
        const trpi_actor_rec *actor = groups ? NULL : trpi_table_get(&c->actors, id);
        uint64_t since_ns = groups ? group->waiting_ns : actor->waiting_ns;
        uint64_t who = groups ? trpi_turn_of_group(id) : trpi_turn_of_actor(id);
        if (c->now_ns - since_ns >= after_ns && !trpi_table_get(&c->turns.items, who)) {
            out[count++] = (candidate){since_ns, who};
        }
    }
    return count;
}

/* The oldest first. Where many can never fit, not all of them can be looked at in one step: the
 * next look goes on behind them. */
static void give_turns(trpi_cluster *c) {
    size_t lines =
        c->lost_groups.heads.count + c->waiting_groups.heads.count + c->waiting.heads.count;
    candidate *all = trpi_keep_array(c, lines, sizeof(*all));
    size_t count = add_candidates(c, &c->lost_groups, true, all);
    count += add_candidates(c, &c->waiting_groups, true, all + count);
    count += add_candidates(c, &c->waiting, false, all + count);
    qsort(all, count, sizeof(*all), by_age);
    size_t at = c->turns.looked_at < count ? c->turns.looked_at : 0, end = at + PLANS_PER_LOOK;
    while (at < count && at < end && give_turn(c, all[at].who)) {
        at++;
    }
    c->turns.looked_at = at == end ? at : 0;
}

void trpi_turns_tick(trpi_cluster *c) {
    uint64_t after_ms = c->config.reserve_after_ms;
    if (after_ms == 0 || c->now_ns < c->turns.due_ns || c->stopping) {
        return;
    }
    c->turns.due_ns = c->now_ns + after_ms * TRPI_NS_PER_MS / LOOKS;
    move_turns(c);
    give_turns(c);
}

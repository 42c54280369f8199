/* cluster_check_ties.c: what must hold after every step of gangs, links, saved states, turns and
 * jobs, as cluster_parts.h and their files say it. */
#include <string.h>

#include "actors/state/cluster_parts.h"

/* ---- Gangs ---- */

static const char *check_member(const trpi_gang_rec *gang, const trpi_actor_rec *actor) {
    bool has_process = trpi_actor_has_process(actor);
    bool ends = actor->end_cause != TRP_CAUSE_NONE;
    if (actor->gang != gang->id || actor->place == TRPI_NOWHERE) {
        return "a gang has a member that is dead, or another's";
    }
    if (gang->restarting && !(has_process ? ends : actor->place == TRPI_GATHERING)) {
        return "a gang restarts, and a member neither ends nor gathers";
    }
    if (gang->over && !(has_process && ends && !actor->end_soft)) {
        return "a gang is over, and a member does not end";
    }
    return NULL;
}

static const char *check_gang(const trpi_gang_rec *gang) {
    const trpi_actor_rec *actor;
    uint64_t id = 0, processes = 0;
    while ((actor = trpi_table_next(&gang->members, &id)) != NULL) {
        const char *broken = check_member(gang, actor);
        if (broken) {
            return broken;
        }
        processes += trpi_actor_has_process(actor);
    }
    if ((gang->restarting || gang->over) && processes == 0) {
        return "a gang waits for processes that are gone";
    }
    if (gang->over != (gang->life.phase == TRP_ACTOR_DEAD) || (gang->over && gang->restarting)) {
        return "a gang is over and lives";
    }
    if (!gang->owner && !gang->detached && !gang->over) {
        return "a gang lives on without its owner";
    }
    return trpi_life_check(&gang->life);
}

static const char *check_gangs(const trpi_cluster *c, uint64_t *ret_members) {
    const trpi_gang_rec *gang;
    uint64_t id = 0;
    while ((gang = trpi_table_next(&c->gangs, &id)) != NULL) {
        const char *broken = check_gang(gang);
        if (broken) {
            return broken;
        }
        *ret_members += gang->members.count;
    }
    return c->gangs_due.count || c->doomed.count ? "a step ends before all is settled" : NULL;
}

/* ---- Links and saved states ---- */

static const char *check_links(const trpi_actor_rec *actor) {
    const trpi_actor_rec *other;
    uint64_t id = 0;
    if (actor->place == TRPI_NOWHERE && (actor->links.count || actor->doom)) {
        return "a dead actor has links";
    }
    while ((other = trpi_table_next(&actor->links, &id)) != NULL) {
        if (other == actor || trpi_table_get(&other->links, actor->id) != actor) {
            return "a link is not known to both sides";
        }
    }
    return NULL;
}

static const char *check_bonds(const trpi_cluster *c, uint64_t members) {
    const trpi_actor_rec *actor;
    uint64_t id = 0, links = 0, saved = 0, in_gangs = 0;
    while ((actor = trpi_table_next(&c->actors, &id)) != NULL) {
        const trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
        const char *broken = check_links(actor);
        if (broken) {
            return broken;
        }
        if (actor->place == TRPI_GATHERING && !(gang && gang->restarting)) {
            return "an actor gathers without a gang that restarts";
        }
        links += actor->links.count;
        saved += actor->saved.size;
        in_gangs += actor->gang && actor->place != TRPI_NOWHERE;
    }
    if (links != c->links || saved != c->saved_bytes) {
        return "links or saved bytes do not add up";
    }
    return in_gangs == members ? NULL : "an actor's gang does not know it";
}

/* ---- Turns ---- */

static bool is_first_in_line(const trpi_cluster *c, const trpi_turn *turn) {
    const trpi_queue *queues[] = {&c->waiting, &c->waiting_groups, &c->lost_groups};
    for (size_t i = 0; i < TRPI_COUNTOF(queues); i++) {
        uint64_t ticket = 0, id;
        while ((id = trpi_queue_next(queues[i], &ticket, NULL)) != 0) {
            uint64_t who = i == 0 ? trpi_turn_of_actor(id) : trpi_turn_of_group(id);
            if (who == turn->who) {
                return true;
            }
        }
    }
    return false;
}

static const char *check_turns(const trpi_cluster *c) {
    const trpi_turn *turn;
    const trpi_sched_node *node;
    uint64_t who = 0, id = 0;
    size_t rooms = 0, kept = 0;
    while ((turn = trpi_table_next(&c->turns.items, &who)) != NULL) {
        if (turn->who != who || !is_first_in_line(c, turn)) {
            return "room is kept for someone who is not first in a line";
        }
        rooms += turn->room_count;
        for (size_t i = 0; i < turn->room_count; i++) {
            node = trpi_sched_node_of(&c->sched, turn->rooms[i].node);
            if (!node || node->kept_for != who) {
                return "room is not kept where a turn says";
            }
        }
    }
    while ((node = trpi_table_next(&c->sched.nodes, &id)) != NULL) {
        kept += node->kept_for != 0;
    }
    return rooms == kept && rooms == c->turns.rooms ? NULL : "kept room does not add up";
}

/* ---- Jobs ---- */

static const char *check_job(const trpi_cluster *c, const trpi_job_rec *job) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, job->node);
    const trpi_client_rec *driver = trpi_table_get(&c->clients, job->client);
    bool pending = trpi_table_get(&c->pending_jobs, job->id) == job;
    if (pending != (job->state == TRPI_JOB_PENDING)) {
        return "a job waits for a node that it has, or for none";
    }
    if (job->client && (!driver || driver->job != job->id)) {
        return "a job's driver is not there";
    }
    if (job->submitted && (job->state == TRPI_JOB_RUNNING) != (job->node != 0)) {
        return "a submitted job runs nowhere, or is on a node after its end";
    }
    if (job->node && (!node || !node->living || trpi_table_get(&node->jobs, job->id) != job)) {
        return "a job's node does not know it";
    }
    if (!job->submitted && (job->state == TRPI_JOB_RUNNING) != (job->client != 0)) {
        return "a job without driver runs";
    }
    return job->stoppers.count && job->state != TRPI_JOB_RUNNING
               ? "someone waits for the end of a job that has ended"
               : NULL;
}

static uint64_t spread_of(const trpi_job_rec *job) {
    uint64_t node = 0, sum = 0;
    uintptr_t count;
    while ((count = (uintptr_t)trpi_table_next(&job->spread, &node)) != 0) {
        sum += count;
    }
    return sum;
}

static const char *check_jobs(const trpi_cluster *c) {
    const trpi_job_rec *job;
    const trpi_node_rec *node;
    uint64_t id = 0, living = 0, spread = 0, processes = 0;
    while ((job = trpi_table_next(&c->jobs, &id)) != NULL) {
        const char *broken = check_job(c, job);
        if (broken) {
            return broken;
        }
        living +=
            job->submitted && (job->state == TRPI_JOB_PENDING || job->state == TRPI_JOB_RUNNING);
        spread += spread_of(job);
    }
    id = 0;
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        processes += node->actors.count;
    }
    if (living != c->living_jobs) {
        return "submitted jobs do not add up";
    }
    return spread == processes ? NULL : "actors are not counted where they run";
}

const char *trpi_check_ties(const trpi_cluster *c) {
    uint64_t members = 0;
    const char *broken = check_gangs(c, &members);
    broken = broken ? broken : check_bonds(c, members);
    broken = broken ? broken : check_turns(c);
    return broken ? broken : check_jobs(c);
}

#include "actors/state/worker_works.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 64
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* ---- The index ---- */

/* Peers differ in their last bytes, calls of one in the low bits of their numbers. */
static uint64_t hash_of(trp_bytes peer, uint64_t call) {
    uint64_t tail = 0;
    size_t used = TRPI_MIN(peer.size, sizeof tail);
    if (used > 0) {
        memcpy(&tail, (const unsigned char *)peer.data + peer.size - used, used);
    }
    uint64_t hash = (call + tail * GOLDEN) * GOLDEN;
    return hash ^ hash >> 32;
}

static trpi_work **bucket_of(const trpi_works *works, trp_bytes peer, uint64_t call) {
    return &works->buckets[hash_of(peer, call) & (works->bucket_count - 1)];
}

static void link_in(trpi_works *works, trpi_work *work) {
    trpi_work **bucket = bucket_of(works, work->peer, work->call);
    work->chain = *bucket;
    *bucket = work;
}

static void link_out(trpi_works *works, trpi_work *work) {
    trpi_work **at = bucket_of(works, work->peer, work->call);
    while (*at != work) {
        at = &(*at)->chain;
    }
    *at = work->chain;
    work->chain = NULL;
}

static size_t entry_count(const trpi_works *works) {
    size_t sum = 0;
    for (int phase = TRPI_WORK_WAITING; phase < TRPI_WORK_PHASES; phase++) {
        sum += works->counts[phase];
    }
    return sum;
}

static void grow(trpi_works *works) {
    trpi_works old = *works;
    works->bucket_count = old.bucket_count * 2;
    works->buckets = trpi_alloc(works->bucket_count * sizeof(trpi_work *));
    for (size_t i = 0; i < old.bucket_count; i++) {
        for (trpi_work *work = old.buckets[i], *next; work != NULL; work = next) {
            next = work->chain;
            link_in(works, work);
        }
    }
    free(old.buckets);
}

static void enter(trpi_works *works, trpi_work *work, trpi_work_phase phase) {
    if (entry_count(works) >= works->bucket_count) {
        grow(works);
    }
    work->phase = phase;
    works->counts[phase]++;
    link_in(works, work);
}

/* ---- Lines ---- */

static void line_up(trpi_work_group *group, trpi_work *work) {
    work->next = NULL;
    work->prev = group->last;
    if (group->last != NULL) {
        group->last->next = work;
    } else {
        group->first = work;
    }
    group->last = work;
    group->waiting++;
}

static void leave_line(trpi_work_group *group, trpi_work *work) {
    if (work->prev != NULL) {
        work->prev->next = work->next;
    } else {
        group->first = work->next;
    }
    if (work->next != NULL) {
        work->next->prev = work->prev;
    } else {
        group->last = work->prev;
    }
    work->prev = work->next = NULL;
    group->waiting--;
}

/* ---- Steps ---- */

void trpi_works_init(trpi_works *works, const uint32_t *threads_max, size_t group_count) {
    works->groups = trpi_alloc(group_count * sizeof *works->groups);
    works->group_count = group_count;
    for (size_t i = 0; i < group_count; i++) {
        works->groups[i].threads_max = threads_max[i];
    }
    works->bucket_count = BUCKETS_MIN;
    works->buckets = trpi_alloc(BUCKETS_MIN * sizeof(trpi_work *));
}

void trpi_works_release(trpi_works *works) {
    free(works->groups);
    free(works->buckets);
    *works = (trpi_works){0};
}

bool trpi_works_add(trpi_works *works, trpi_work *work) {
    trpi_work_group *group = &works->groups[work->group];
    work->is_canceled = false;
    enter(works, work, TRPI_WORK_WAITING);
    line_up(group, work);
    /* Those that run nothing are about to ask for the next call, each for one. */
    return group->waiting > group->threads - group->running && group->threads < group->threads_max;
}

void trpi_works_thread_made(trpi_works *works, uint32_t group) {
    works->groups[group].threads++;
}

trpi_work *trpi_works_next(trpi_works *works, uint32_t group_index) {
    trpi_work_group *group = &works->groups[group_index];
    trpi_work *work = group->first;
    if (work != NULL) {
        leave_line(group, work);
        group->running++;
        works->counts[TRPI_WORK_WAITING]--;
        works->counts[TRPI_WORK_RUNNING]++;
        work->phase = TRPI_WORK_RUNNING;
    }
    return work;
}

void trpi_works_defer(trpi_works *works, const trpi_work *running, trpi_work *deferred) {
    deferred->call = running->call;
    deferred->group = running->group;
    deferred->is_canceled = running->is_canceled;
    enter(works, deferred, TRPI_WORK_DEFERRED);
}

void trpi_works_end(trpi_works *works, trpi_work *work) {
    trpi_work_group *group = &works->groups[work->group];
    if (work->phase == TRPI_WORK_WAITING) {
        leave_line(group, work);
    } else if (work->phase == TRPI_WORK_RUNNING) {
        group->running--;
    }
    works->counts[work->phase]--;
    link_out(works, work);
    work->phase = TRPI_WORK_NONE;
}

static bool is_of(const trpi_work *work, trp_bytes peer, uint64_t call) {
    return work->call == call && work->peer.size == peer.size &&
           memcmp(work->peer.data, peer.data, peer.size) == 0;
}

trpi_work *trpi_works_cancel(trpi_works *works, trp_bytes peer, uint64_t call) {
    trpi_work *waiting = NULL;
    for (trpi_work *work = *bucket_of(works, peer, call); work != NULL; work = work->chain) {
        if (is_of(work, peer, call)) {
            work->is_canceled = true;
            waiting = work->phase == TRPI_WORK_WAITING ? work : waiting;
        }
    }
    if (waiting != NULL) {
        trpi_works_end(works, waiting);
    }
    return waiting;
}

/* ---- What always holds ---- */

static const char *check_group(const trpi_work_group *group, uint32_t index) {
    const trpi_work *prev = NULL;
    size_t waiting = 0;
    for (const trpi_work *work = group->first; work != NULL; prev = work, work = work->next) {
        if (work->prev != prev || work->group != index || work->phase != TRPI_WORK_WAITING) {
            return "a line of calls is broken";
        }
        waiting++;
    }
    if (group->last != prev || group->waiting != waiting) {
        return "a line of calls ends elsewhere";
    }
    return group->threads > group->threads_max ? "a group has too many threads" : NULL;
}

const char *trpi_works_check(const trpi_works *works) {
    size_t counts[TRPI_WORK_PHASES] = {0}, waiting = 0, running = 0;
    for (size_t i = 0; i < works->bucket_count; i++) {
        for (const trpi_work *work = works->buckets[i]; work != NULL; work = work->chain) {
            if (bucket_of(works, work->peer, work->call) != &works->buckets[i]) {
                return "a call is indexed under another one's hash";
            }
            counts[work->phase]++;
        }
    }
    if (memcmp(counts, works->counts, sizeof counts) != 0) {
        return "calls are counted wrongly";
    }
    for (size_t i = 0; i < works->group_count; i++) {
        const char *broken = check_group(&works->groups[i], (uint32_t)i);
        if (broken != NULL) {
            return broken;
        }
        waiting += works->groups[i].waiting;
        running += works->groups[i].running;
    }
    return waiting != counts[TRPI_WORK_WAITING] || running != counts[TRPI_WORK_RUNNING]
               ? "groups and index count differently"
               : NULL;
}

/* The memory monitor: when memory is nearly full, one worker is killed before the kernel kills
 * whom it likes.
 *
 * Every MEMORY_MONITOR_MS it looks at the host (or the control group that is fuller) and, where
 * there is a limit for them, at the workers together. Over a limit, idle workers go first; then one
 * actor (state/victim.c says which), and nobody else until it is gone and memory was looked at
 * again.
 *
 * The kernel's own kills are told from any other SIGKILL by a counter of theirs: a worker that died
 * by one that we did not send, shortly after the counter rose, is one of those that it counted. */
#include <stdlib.h>
#include <string.h>

#include "actors/proc/node_parts.h"
#include "actors/state/victim.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/memory.h"

#define GONE_AFTER_NS                                                                              \
    (5000 * TRPI_NS_PER_MS)               /* one that SIGKILL has not ended by then: no waiting */
#define CLAIM_NS (10000 * TRPI_NS_PER_MS) /* a large process takes a while to die */
#define TOP_COUNT 3
#define GIB (1024.0 * 1024.0 * 1024.0)

typedef struct trpi_node_memory {
    trpi_memory last;
    bool tight;
    bool said_helpless;
    uint64_t kills;          /* ours and the kernel's */
    uint64_t kernel_kills;   /* its counter, as last seen */
    uint64_t unclaimed;      /* of those that rose: not yet anybody's death ... */
    uint64_t kernel_seen_ns; /* ... since then */
} trpi_node_memory;

/* ---- The kernel's kills ---- */

static void look_at_kernel(trpi_node_memory *memory) {
    uint64_t kills = trpi_memory_kernel_kills(""), now_ns = trpi_now_ns();
    if (kills > memory->kernel_kills) {
        memory->unclaimed += kills - memory->kernel_kills;
        memory->kernel_seen_ns = now_ns;
    } else if (now_ns - memory->kernel_seen_ns > CLAIM_NS) {
        memory->unclaimed = 0;
    }
    memory->kernel_kills = kills;
}

bool trpi_node_memory_kernel_killed(trpi_node *node) {
    trpi_node_memory *memory = node->memory;
    look_at_kernel(memory);
    if (memory->unclaimed == 0) {
        return false;
    }
    memory->unclaimed--;
    memory->kills++;
    return true;
}

/* ---- Who is there ---- */

typedef struct crowd {
    trpi_node_worker **workers; /* actors with a process */
    uint64_t *resident;
    size_t count;
    uint64_t all; /* resident bytes of all processes, the idle ones too */
    bool dying;   /* somebody is being killed, whose memory comes back in a moment */
    bool idle;    /* there are workers without an actor */
} crowd;

static void look_at_workers(trpi_node *node, crowd *c) {
    size_t cursor = 0;
    uint64_t now_ns = trpi_now_ns();
    trpi_node_worker *worker;
    *c = (crowd){.workers = trpi_alloc((node->workers.count + 1) * sizeof *c->workers),
                 .resident = trpi_alloc((node->workers.count + 1) * sizeof *c->resident)};
    while ((worker = trpi_map_next(&node->workers, &cursor)) != NULL) {
        uint64_t resident = worker->pid ? trpi_memory_resident(worker->pid) : 0;
        c->all += resident;
        if (worker->killed_ns != 0) {
            c->dying |= now_ns - worker->killed_ns < GONE_AFTER_NS;
        } else if (worker->dump) {
            c->dying = true;
        } else if (worker->actor == 0) {
            c->idle |= worker->asked_cause == TRP_CAUSE_NONE;
        } else if (worker->pid != 0) {
            c->workers[c->count] = worker;
            c->resident[c->count++] = resident;
        }
    }
}

static void crowd_release(crowd *c) {
    free(c->workers);
    free(c->resident);
}

/* "; top: a3 trainer 2.1 GiB, ...": who holds most. */
static void list_top(const crowd *c, char *out, size_t size) {
    size_t used = 0, last = SIZE_MAX;
    out[0] = '\0';
    for (int i = 0; i < TOP_COUNT; i++) {
        size_t best = SIZE_MAX;
        for (size_t k = 0; k < c->count; k++) {
            bool is_later = last == SIZE_MAX || c->resident[k] < c->resident[last] ||
                            (c->resident[k] == c->resident[last] && k > last);
            if (is_later && (best == SIZE_MAX || c->resident[k] > c->resident[best])) {
                best = k;
            }
        }
        if (best == SIZE_MAX) {
            return;
        }
        trpi_format(out + used, size - used, "%s a%llu %.64s %.2f GiB",
                    i ? "," : "; top:", (unsigned long long)c->workers[best]->actor,
                    c->workers[best]->label, (double)c->resident[best] / GIB);
        used += strlen(out + used);
        last = best;
    }
}

/* ---- Killing ---- */

static bool kill_idle(trpi_node *node) {
    size_t cursor = 0, count = 0;
    trpi_node_worker *worker;
    uint64_t *tokens = trpi_alloc((node->workers.count + 1) * sizeof *tokens);
    while ((worker = trpi_map_next(&node->workers, &cursor)) != NULL) {
        if (worker->actor == 0 && worker->asked_cause == TRP_CAUSE_NONE) {
            tokens[count++] = worker->token;
        }
    }
    for (size_t i = 0; i < count; i++) {
        worker = trpi_map_get(&node->workers, tokens[i]);
        trpi_node_worker_end(node, worker, TRP_CAUSE_OUT_OF_MEMORY, "memory is short");
    }
    free(tokens);
    return count > 0;
}

static void kill_one(trpi_node *node, const crowd *c, const char *why) {
    trpi_candidate *candidates = trpi_alloc((c->count + 1) * sizeof *candidates);
    for (size_t i = 0; i < c->count; i++) {
        candidates[i] = (trpi_candidate){.restartable = c->workers[i]->restartable,
                                         .since_ns = c->workers[i]->bound_ns,
                                         .actor = c->workers[i]->actor};
    }
    size_t chosen = trpi_victim_choose(candidates, c->count);
    free(candidates);
    if (chosen == SIZE_MAX) {
        if (!node->memory->said_helpless) {
            node->memory->said_helpless = true;
            trpi_log(TRPI_WARN, "memory_short", "why=\"%s\" reason=\"no worker is left to kill\"",
                     why);
        }
        return;
    }
    char reason[768], top[320];
    trpi_node_worker *worker = c->workers[chosen];
    list_top(c, top, sizeof top);
    trpi_format(reason, sizeof reason, "%s: killed a%llu (%.64s), newest %s, %.2f GiB resident%s",
                why, (unsigned long long)worker->actor, worker->label,
                worker->restartable != 0 ? "restartable" : "of those that cannot be restarted",
                (double)c->resident[chosen] / GIB, top);
    node->memory->kills++;
    trpi_log(TRPI_WARN, "memory_kill", "actor=%llu pid=%d reason=\"%s\"",
             (unsigned long long)worker->actor, (int)worker->pid, reason);
    trpi_node_worker_end(node, worker, TRP_CAUSE_OUT_OF_MEMORY, reason);
}

/* ---- Looking ---- */

static bool host_is_full(trpi_node *node, char *why, size_t size) {
    const trpi_memory *m = &node->memory->last;
    uint64_t percent = trpi_config(TRPI_CONFIG_MEMORY_PERCENT_MAX);
    if (m->total == 0 || m->used / percent < m->total / 100) {
        return false;
    }
    trpi_format(why, size, "node n%llu uses %.1f %% of %.1f GiB (limit %llu %%)",
                (unsigned long long)node->id, 100.0 * (double)m->used / (double)m->total,
                (double)m->total / GIB, (unsigned long long)percent);
    return true;
}

static bool workers_are_full(const trpi_node *node, const crowd *c, char *why, size_t size) {
    uint64_t max = trpi_config(TRPI_CONFIG_WORKER_BYTES_MAX);
    if (max == 0 || c->all <= max) {
        return false;
    }
    trpi_format(why, size, "workers of node n%llu use %.2f GiB together (limit %.2f GiB)",
                (unsigned long long)node->id, (double)c->all / GIB, (double)max / GIB);
    return true;
}

static void set_tight(trpi_node *node, bool tight) {
    if (node->memory->tight && !tight) {
        trpi_program *program;
        TAILQ_FOREACH(program, &node->programs, link) {
            trpi_program_refill_soon(node, program); /* it may keep idle workers again */
        }
        node->memory->said_helpless = false;
    }
    node->memory->tight = tight;
}

static void monitor(trpi_node *node) {
    char why[256];
    crowd c = {0};
    bool full = host_is_full(node, why, sizeof why);
    if (!full && trpi_config(TRPI_CONFIG_WORKER_BYTES_MAX) == 0) {
        set_tight(node, false);
        return;
    }
    look_at_workers(node, &c);
    full = full || workers_are_full(node, &c, why, sizeof why);
    set_tight(node, full);
    if (full && !c.dying && !(c.idle && kill_idle(node))) {
        kill_one(node, &c, why);
    }
    crowd_release(&c);
}

void trpi_node_memory_due(trpi_node *node, uint64_t now_ns) {
    trpi_node_memory *memory = node->memory;
    uint64_t period_ms = trpi_config(TRPI_CONFIG_MEMORY_MONITOR_MS);
    look_at_kernel(memory);
    (void)trpi_memory_look("", &memory->last);
    if (node->phase == TRPI_NODE_SERVING && period_ms > 0) {
        monitor(node);
    }
    /* Without the monitor it is still looked at, for NODE_STATS and the kernel's kills. */
    trpi_node_timer(node, TRPI_TIMER_MEMORY, 0,
                    now_ns + TRPI_NS_PER_MS *
                                 (period_ms ? period_ms : trpi_config(TRPI_CONFIG_STATS_MS)));
}

bool trpi_node_memory_is_tight(const trpi_node *node) {
    return node->memory->tight;
}

void trpi_node_memory_figures(const trpi_node *node, trpi_msg_node_stats *stats) {
    stats->memory_total = node->memory->last.total;
    stats->memory_used = node->memory->last.used;
    stats->memory_kills = node->memory->kills;
}

void trpi_node_memory_open(trpi_node *node) {
    node->memory = trpi_alloc(sizeof *node->memory);
    node->memory->kernel_kills = trpi_memory_kernel_kills("");
    trpi_node_memory_due(node, trpi_now_ns());
}

void trpi_node_memory_close(trpi_node *node) {
    free(node->memory);
    node->memory = NULL;
}

#include "core/state/scheduler.h"

#include <stdlib.h>
#include <string.h>

void trpi_sched_add(trpi_sched *sched, uint64_t node, const trpi_request *has) {
    TRP_ASSERT(!trpi_table_get(&sched->nodes, node));
    trpi_sched_node *added = trpi_alloc(sizeof(*added));
    added->id = node;
    trpi_pool_init(&added->pool, has);
    trpi_table_put(&sched->nodes, node, added);
    trpi_table_put(&sched->fresh, node, added);
}

void trpi_sched_remove(trpi_sched *sched, uint64_t node) {
    trpi_sched_node *removed = trpi_table_remove(&sched->nodes, node);
    if (removed) {
        trpi_table_remove(&sched->fresh, node);
        trpi_pool_release(&removed->pool);
        free(removed);
    }
}

void trpi_sched_release(trpi_sched *sched) {
    uint64_t id = 0;
    while (trpi_table_next(&sched->nodes, &id)) {
        trpi_sched_remove(sched, id);
    }
    trpi_table_release(&sched->nodes);
    trpi_table_release(&sched->fresh);
}

trpi_sched_node *trpi_sched_node_of(const trpi_sched *sched, uint64_t node) {
    return trpi_table_get(&sched->nodes, node);
}

/* Part in use, in 1/10000, of the scarcest resource that the request names; 0 below a half. */
static int64_t score_of(const trpi_pool *pool, const trpi_request *request) {
    int64_t worst = 0;
    for (size_t i = 0; i < request->count; i++) {
        int64_t total = trpi_pool_total(pool, request->amounts[i].resource);
        int64_t used = total - trpi_pool_free(pool, request->amounts[i].resource);
        /* Divided first where the product would overflow. */
        int64_t part = used > INT64_MAX / TRPI_ONE ? used / (total / TRPI_ONE)
                                                   : used * TRPI_ONE / TRPI_MAX(total, 1);
        worst = TRPI_MAX(worst, part);
    }
    return worst < TRPI_ONE / 2 ? 0 : worst;
}

/* What is compared, most important first; smaller is better. The id breaks ties by the order of the
 * walk. */
typedef struct rank {
    bool avoided, wastes_gpus;
    int64_t score;
} rank;

static rank rank_of(const trpi_sched_node *node, const trpi_wish *wish) {
    bool wants_gpu = trpi_request_amount(wish->request, TRPI_GPU) > 0;
    rank its = {
        .avoided = node->id == wish->avoid,
        .wastes_gpus = !wants_gpu && node->pool.slot_count > 0,
        .score =
            wish->request->count ? score_of(&node->pool, wish->request) : (int64_t)node->grants,
    };
    return its;
}

static bool better(rank a, rank b) {
    if (a.avoided != b.avoided) {
        return b.avoided;
    }
    if (a.wastes_gpus != b.wastes_gpus) {
        return b.wastes_gpus;
    }
    return a.score < b.score;
}

static bool perfect(rank a) {
    return !a.avoided && !a.wastes_gpus && a.score == 0;
}

static trpi_sched_node *pick_only(const trpi_sched *sched, const trpi_wish *wish) {
    trpi_sched_node *node = trpi_table_get(&sched->nodes, wish->only);
    return node && trpi_pool_fits(&node->pool, wish->request) ? node : NULL;
}

trpi_sched_node *trpi_sched_pick(const trpi_sched *sched, const trpi_wish *wish) {
    if (wish->only) {
        return pick_only(sched, wish);
    }
    const trpi_table *from = wish->fresh ? &sched->fresh : &sched->nodes;
    trpi_sched_node *best = NULL, *node;
    rank best_rank = {0};
    uint64_t id = 0;
    while ((node = trpi_table_next(from, &id)) != NULL) {
        if (!trpi_pool_fits(&node->pool, wish->request)) {
            continue;
        }
        rank its = rank_of(node, wish);
        if (!best || better(its, best_rank)) {
            best = node;
            best_rank = its;
        }
        if (perfect(best_rank)) {
            break;
        }
    }
    return best;
}

bool trpi_sched_take(trpi_sched_node *node, const trpi_request *request, trpi_grant *grant) {
    bool taken = trpi_pool_take(&node->pool, request, grant);
    node->grants += taken;
    return taken;
}

void trpi_sched_give(trpi_sched *sched, trpi_sched_node *node, const trpi_request *request,
                     trpi_grant *grant) {
    trpi_pool_give(&node->pool, request, grant);
    node->grants--;
    trpi_table_put(&sched->fresh, node->id, node);
}

void trpi_sched_settle(trpi_sched *sched) {
    trpi_table_release(&sched->fresh);
}

/* The most that one node has of a resource, now or when unused, and how many nodes have enough. */
static int64_t most_of(const trpi_sched *sched, uint64_t only, uint32_t resource,
                       bool when_unused) {
    int64_t most = 0;
    trpi_sched_node *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&sched->nodes, &id)) != NULL) {
        if (!only || only == id) {
            most = TRPI_MAX(most, trpi_pool_most(&node->pool, resource, when_unused));
        }
    }
    return most;
}

static bool could_fit_somewhere(const trpi_sched *sched, const trpi_wish *wish) {
    trpi_sched_node *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&sched->nodes, &id)) != NULL) {
        if ((!wish->only || wish->only == id) && trpi_pool_could_fit(&node->pool, wish->request)) {
            return true;
        }
    }
    return false;
}

/* The first resource of which no node has enough, alone. */
static bool explain_one(const trpi_sched *sched, const trpi_wish *wish, bool when_unused,
                        const trpi_resource_names *names, char *out, size_t size) {
    for (size_t i = 0; i < wish->request->count; i++) {
        const trpi_amount *asked = &wish->request->amounts[i];
        int64_t most = most_of(sched, wish->only, asked->resource, when_unused);
        if (most < asked->amount) {
            char needs[32], has[32];
            trpi_amount_text(asked->amount, needs, sizeof(needs));
            trpi_amount_text(most, has, sizeof(has));
            const char *what = wish->only    ? (when_unused ? "that node has" : "free there is")
                               : when_unused ? "the most any node has is"
                                             : "the most free on any node is";
            trpi_format(out, size, "needs %s %s; %s %s", needs,
                        trpi_resource_name(names, asked->resource), what, has);
            return true;
        }
    }
    return false;
}

trpi_verdict trpi_sched_explain(const trpi_sched *sched, const trpi_wish *wish,
                                const trpi_resource_names *names, char *out, size_t size) {
    char all[256];
    trpi_request_text(wish->request, names, all, sizeof(all));
    trpi_format(out, size, "%s", "");
    if (wish->only && !trpi_table_get(&sched->nodes, wish->only)) {
        trpi_format(out, size, "node n%llu is not there", (unsigned long long)wish->only);
        return TRPI_INFEASIBLE;
    }
    if (sched->nodes.count == 0) {
        trpi_format(out, size, "needs %s; the cluster has no nodes", all);
        return TRPI_INFEASIBLE;
    }
    if (!could_fit_somewhere(sched, wish)) {
        if (!explain_one(sched, wish, true, names, out, size)) {
            trpi_format(out, size, "needs %s; no node has that together", all);
        }
        return TRPI_INFEASIBLE;
    }
    trpi_wish now = *wish;
    now.fresh = false;
    if (trpi_sched_pick(sched, &now)) {
        return TRPI_FITS;
    }
    if (!explain_one(sched, wish, false, names, out, size)) {
        trpi_format(out, size, "needs %s; no node has that free together", all);
    }
    return TRPI_BUSY;
}

const char *trpi_sched_check(const trpi_sched *sched) {
    trpi_sched_node *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&sched->nodes, &id)) != NULL) {
        const char *broken = trpi_pool_check(&node->pool);
        if (broken) {
            return broken;
        }
        if (node->grants == 0 && !trpi_pool_unused(&node->pool)) {
            return "a node without grants is in use";
        }
    }
    return NULL;
}

#include "core/state/scheduler.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const trpi_labels no_labels = {0};

void trpi_sched_add(trpi_sched *sched, uint64_t node, const trpi_request *has,
                    const trpi_labels *labels) {
    TRP_ASSERT(!trpi_table_get(&sched->nodes, node));
    trpi_sched_node *added = trpi_alloc(sizeof(*added));
    added->id = node;
    added->labels = labels ? labels : &no_labels;
    trpi_pool_init(&added->pool, has);
    trpi_table_put(&sched->nodes, node, added);
    trpi_table_put(&sched->fresh, node, added);
    trpi_node_tree_add(&sched->tree, added);
}

void trpi_sched_remove(trpi_sched *sched, uint64_t node) {
    trpi_sched_node *removed = trpi_table_remove(&sched->nodes, node);
    if (removed) {
        trpi_table_remove(&sched->fresh, node);
        trpi_node_tree_remove(sched->tree, removed);
        trpi_pool_release(&removed->pool);
        trpi_request_release(&removed->kept);
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
    trpi_node_tree_free(sched->tree);
    sched->tree = NULL;
}

trpi_sched_node *trpi_sched_node_of(const trpi_sched *sched, uint64_t node) {
    return trpi_table_get(&sched->nodes, node);
}

void trpi_sched_close(trpi_sched *sched, uint64_t node) {
    trpi_sched_node *of = trpi_table_get(&sched->nodes, node);
    if (of) {
        of->closed = true;
        trpi_sched_unkeep(sched, of);
        trpi_node_tree_update(sched->tree, of);
    }
}

/* ---- Room that is kept free ---- */

void trpi_sched_keep(trpi_sched *sched, trpi_sched_node *node, uint64_t who,
                     const trpi_request *room) {
    TRP_ASSERT(!node->kept_for && !node->closed);
    node->kept_for = who;
    node->kept.count = room->count;
    node->kept.amounts = trpi_alloc(TRPI_MAX(room->count, (size_t)1) * sizeof(trpi_amount));
    if (room->count) {
        memcpy(node->kept.amounts, room->amounts, room->count * sizeof(trpi_amount));
    }
}

void trpi_sched_unkeep(trpi_sched *sched, trpi_sched_node *node) {
    if (node->kept_for) {
        node->kept_for = 0;
        trpi_request_release(&node->kept);
        trpi_table_put(&sched->fresh, node->id, node); /* others may have it again */
    }
}

/* In whole devices: which of them a fraction would sit on does not matter here. */
static int64_t whole(uint32_t resource, int64_t amount) {
    return resource == TRPI_GPU ? (amount + TRPI_ONE - 1) / TRPI_ONE * TRPI_ONE : amount;
}

/* Whether a request leaves alone what is kept: of everything that is kept it may only take what is
 * free beyond that. */
static bool leaves_kept(const trpi_sched_node *node, const trpi_request *request) {
    for (size_t i = 0; i < node->kept.count; i++) {
        const trpi_amount *kept = &node->kept.amounts[i];
        int64_t asked = whole(kept->resource, trpi_request_amount(request, kept->resource));
        int64_t free_now = trpi_pool_most(&node->pool, kept->resource, false);
        if (asked && free_now - asked < whole(kept->resource, kept->amount)) {
            return false;
        }
    }
    return true;
}

bool trpi_sched_fits(const trpi_sched_node *node, const trpi_request *request, uint64_t who) {
    bool is_open = !node->closed && trpi_pool_fits(&node->pool, request);
    return is_open && (!node->kept_for || node->kept_for == who || leaves_kept(node, request));
}

/* ---- Which node ---- */

/* What is compared, most important first; smaller is better. The id breaks ties by the order of the
 * walk. */
typedef struct rank {
    bool avoided;
    uint64_t crowd;
    bool wastes_gpus;
    int64_t score;
} rank;

/* Part in use, in 1/10000, of the scarcest resource that the request names; 0 below a half. */
static int64_t score_of(const trpi_pool *pool, const trpi_request *request) {
    int64_t worst = 0;
    for (size_t i = 0; i < request->count; i++) {
        worst = TRPI_MAX(worst, trpi_pool_part(pool, request->amounts[i].resource));
    }
    return worst < TRPI_ONE / 2 ? 0 : worst;
}

static bool wants_gpu(const trpi_wish *wish) {
    return trpi_request_amount(wish->request, TRPI_GPU) > 0;
}

static rank rank_of(const trpi_sched_node *node, const trpi_wish *wish) {
    return (rank){
        .avoided = node->id == wish->avoid,
        .crowd = wish->crowds ? (uintptr_t)trpi_table_get(wish->crowds, node->id) : 0,
        .wastes_gpus = !wants_gpu(wish) && node->pool.slot_count > 0,
        .score =
            wish->request->count ? score_of(&node->pool, wish->request) : (int64_t)node->grants,
    };
}

static bool better(const rank *a, const rank *b) {
    if (a->avoided != b->avoided) {
        return b->avoided;
    }
    if (a->crowd != b->crowd) {
        return a->crowd < b->crowd;
    }
    if (a->wastes_gpus != b->wastes_gpus) {
        return b->wastes_gpus;
    }
    return a->score < b->score;
}

static bool perfect(const rank *a) {
    return !a->avoided && a->crowd == 0 && !a->wastes_gpus && a->score == 0;
}

/* Whether there is room on this very node now, for this wish. */
static bool suits(const trpi_sched_node *node, const trpi_wish *wish) {
    return trpi_sched_fits(node, wish->request, wish->who) &&
           (!wish->labels || trpi_labels_match(wish->labels, node->labels));
}

typedef struct search {
    const trpi_wish *wish;
    trpi_sched_node *best;
    rank best_rank;
} search;

static void consider(search *s, trpi_sched_node *node) {
    if (suits(node, s->wish)) {
        rank its = rank_of(node, s->wish);
        if (!s->best || better(&its, &s->best_rank)) {
            s->best = node;
            s->best_rank = its;
        }
    }
}

static void search_fresh(const trpi_sched *sched, search *s) {
    trpi_sched_node *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&sched->fresh, &id)) != NULL) {
        consider(s, node);
    }
}

/* Passes over what cannot be better than the best so far, as far as the tree can tell. */
static void search_all(const trpi_sched *sched, search *s, bool plain) {
    trpi_tree_filter filter = {.request = s->wish->request,
                               .plain = plain,
                               .part_below = INT64_MAX,
                               .grants_below = UINT64_MAX};
    trpi_sched_node *node;
    size_t at = 0;
    while ((node = trpi_node_tree_next(sched->tree, &at, &filter)) != NULL) {
        consider(s, node);
        if (s->best && perfect(&s->best_rank)) {
            break;
        }
        if (s->best && !s->best_rank.avoided && !s->wish->crowds) {
            filter.part_below = s->best_rank.score;
            filter.grants_below = (uint64_t)s->best_rank.score;
        }
    }
}

static trpi_sched_node *pick_one(const trpi_sched *sched, uint64_t id, const trpi_wish *wish) {
    trpi_sched_node *node = trpi_table_get(&sched->nodes, id);
    return node && suits(node, wish) ? node : NULL;
}

trpi_sched_node *trpi_sched_pick(const trpi_sched *sched, const trpi_wish *wish) {
    search s = {.wish = wish};
    if (wish->only) {
        return pick_one(sched, wish->only, wish);
    }
    if (wish->prefer) {
        trpi_sched_node *preferred = pick_one(sched, wish->prefer, wish);
        if (preferred) {
            return preferred;
        }
    }
    if (wish->fresh) {
        search_fresh(sched, &s);
        return s.best;
    }
    /* Of two nodes of which only one has gpus, who wants none takes the other, however full. */
    bool plain_first = !wants_gpu(wish) && !wish->crowds;
    if (plain_first) {
        search_all(sched, &s, true);
    }
    if (!plain_first || !s.best || s.best_rank.avoided) {
        s = (search){.wish = wish};
        search_all(sched, &s, false);
    }
    return s.best;
}

/* ---- Taking ---- */

bool trpi_sched_take(trpi_sched *sched, trpi_sched_node *node, const trpi_request *request,
                     trpi_grant *grant) {
    bool taken = trpi_pool_take(&node->pool, request, grant);
    node->grants += taken;
    trpi_node_tree_update(sched->tree, node);
    return taken;
}

void trpi_sched_untake(trpi_sched *sched, trpi_sched_node *node, const trpi_request *request,
                       trpi_grant *grant) {
    trpi_pool_give(&node->pool, request, grant);
    node->grants--;
    trpi_node_tree_update(sched->tree, node);
}

void trpi_sched_give(trpi_sched *sched, trpi_sched_node *node, const trpi_request *request,
                     trpi_grant *grant) {
    trpi_sched_untake(sched, node, request, grant);
    trpi_table_put(&sched->fresh, node->id, node);
}

void trpi_sched_settle(trpi_sched *sched) {
    trpi_table_release(&sched->fresh);
}

/* ---- Why not ---- */

static bool may_be(const trpi_sched_node *node, const trpi_wish *wish) {
    return !node->closed && (!wish->only || wish->only == node->id) &&
           (!wish->labels || trpi_labels_match(wish->labels, node->labels));
}

bool trpi_sched_could_fit(const trpi_sched_node *node, const trpi_wish *wish) {
    return may_be(node, wish) && trpi_pool_could_fit(&node->pool, wish->request);
}

/* The most that one node has of a resource, now or when unused. */
static int64_t most_of(const trpi_sched *sched, const trpi_wish *wish, uint32_t resource,
                       bool when_unused) {
    int64_t most = 0;
    trpi_sched_node *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&sched->nodes, &id)) != NULL) {
        if (may_be(node, wish)) {
            most = TRPI_MAX(most, trpi_pool_most(&node->pool, resource, when_unused));
        }
    }
    return most;
}

typedef struct census { /* of the nodes: how many ... */
    size_t open, named, fitting, free_but_kept;
} census;

static census count_nodes(const trpi_sched *sched, const trpi_wish *wish) {
    census counts = {0};
    trpi_sched_node *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&sched->nodes, &id)) != NULL) {
        counts.open += !node->closed;
        if (may_be(node, wish)) {
            counts.named++;
            counts.fitting += trpi_pool_could_fit(&node->pool, wish->request);
            counts.free_but_kept += trpi_pool_fits(&node->pool, wish->request);
        }
    }
    return counts;
}

static void explain_amount(const trpi_wish *wish, bool when_unused, const char *name,
                           const char *needs, const char *has, char *out, size_t size) {
    char labels[160] = "", such[180] = "";
    if (wish->labels && wish->labels->count) {
        trpi_label_rules_text(wish->labels, labels, sizeof(labels));
        trpi_format(such, sizeof(such), " with %s", labels);
    }
    if (wish->only) {
        trpi_format(out, size, "needs %s %s; %s %s", needs, name,
                    when_unused ? "that node has" : "free there is", has);
    } else if (when_unused) {
        trpi_format(out, size, "needs %s %s; the most any node%s has is %s", needs, name, such,
                    has);
    } else {
        trpi_format(out, size, "needs %s %s; the most free on any node%s is %s", needs, name, such,
                    has);
    }
}

/* The first resource of which no node has enough, alone. */
static bool explain_one(const trpi_sched *sched, const trpi_wish *wish, bool when_unused,
                        const trpi_resource_names *names, char *out, size_t size) {
    for (size_t i = 0; i < wish->request->count; i++) {
        const trpi_amount *asked = &wish->request->amounts[i];
        int64_t most = most_of(sched, wish, asked->resource, when_unused);
        if (most < asked->amount) {
            char needs[32], has[32];
            trpi_amount_text(asked->amount, needs, sizeof(needs));
            trpi_amount_text(most, has, sizeof(has));
            explain_amount(wish, when_unused, trpi_resource_name(names, asked->resource), needs,
                           has, out, size);
            return true;
        }
    }
    return false;
}

/* The first rule that no open node satisfies, alone. */
static void explain_labels(const trpi_sched *sched, const trpi_wish *wish, char *out, size_t size) {
    char all[200];
    for (size_t i = 0; i < wish->labels->count; i++) {
        const trpi_label_rule *rule = &wish->labels->items[i];
        bool somewhere = false;
        trpi_sched_node *node;
        uint64_t id = 0;
        while ((node = trpi_table_next(&sched->nodes, &id)) != NULL) {
            bool asked = !node->closed && (!wish->only || wish->only == id);
            somewhere |= asked && trpi_label_rule_holds(rule, node->labels);
        }
        if (!somewhere) {
            trpi_format(out, size, "needs a node with label %s; %s", rule->text,
                        wish->only ? "that node has not" : "no node has it");
            return;
        }
    }
    trpi_label_rules_text(wish->labels, all, sizeof(all));
    trpi_format(out, size, "needs a node with labels %s; no node has them together", all);
}

/* True: the nodes as such rule it out, whatever they hold. */
static bool explain_nodes(const trpi_sched *sched, const trpi_wish *wish, const census *counts,
                          const char *all, char *out, size_t size) {
    const trpi_sched_node *only = trpi_table_get(&sched->nodes, wish->only);
    if (wish->only && (!only || only->closed)) {
        trpi_format(out, size, "node n%" PRIu64 " %s", wish->only,
                    only ? "is being drained" : "is not there");
        return true;
    }
    if (counts->open == 0) {
        trpi_format(out, size, "needs %s; the cluster has no nodes%s", all,
                    sched->nodes.count ? " that are not being drained" : "");
        return true;
    }
    if (counts->named == 0) {
        explain_labels(sched, wish, out, size);
        return true;
    }
    return false;
}

trpi_verdict trpi_sched_explain(const trpi_sched *sched, const trpi_wish *wish,
                                const trpi_resource_names *names, char *out, size_t size) {
    char all[256];
    census counts = count_nodes(sched, wish);
    trpi_request_text(wish->request, names, all, sizeof(all));
    trpi_format(out, size, "%s", "");
    if (explain_nodes(sched, wish, &counts, all, out, size)) {
        return TRPI_INFEASIBLE;
    }
    if (counts.fitting == 0) {
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
    if (counts.free_but_kept) {
        trpi_format(out, size, "needs %s; what is free of that is kept for who has waited longer",
                    all);
    } else if (!explain_one(sched, wish, false, names, out, size)) {
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
        if (node->closed && node->kept_for) {
            return "room is kept free on a node that takes nothing";
        }
    }
    return trpi_node_tree_check(sched->tree);
}

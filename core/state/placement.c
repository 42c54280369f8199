#include "core/state/placement.h"

#include <stdlib.h>
#include <string.h>

/* One attempt. Whatever is taken is noted in `taken`, so that a failure can give it all back. */
typedef struct attempt {
    trpi_sched *sched;
    trp_strategy strategy;
    trpi_bundle_seat *bundles;
    size_t count;
    size_t *order; /* the unplaced ones, big ones first */
    size_t order_count;
    size_t taken;      /* order[0..taken) are placed by this attempt */
    uint64_t who;      /* room kept for this name is this group's */
    trpi_table crowds; /* node -> how many bundles of this group are there */
    bool wants_gpu;
} attempt;

const char *trpi_strategy_name(trp_strategy strategy) {
    static const char *const names[] = {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"};
    return (unsigned)strategy < TRPI_COUNTOF(names) ? names[strategy] : "?";
}

/* ---- Order: what is hardest to place comes first ---- */

static bool bigger(const trpi_request *a, const trpi_request *b) {
    static const uint32_t by[] = {TRPI_GPU, TRPI_CPU, TRPI_MEMORY};
    for (size_t i = 0; i < TRPI_COUNTOF(by); i++) {
        int64_t left = trpi_request_amount(a, by[i]), right = trpi_request_amount(b, by[i]);
        if (left != right) {
            return left > right;
        }
    }
    return a->count > b->count;
}

static void merge(const trpi_bundle_seat *bundles, size_t *order, size_t *scratch, size_t middle,
                  size_t count) {
    size_t left = 0, right = middle, to = 0;
    while (left < middle || right < count) {
        bool from_right = left == middle ||
                          (right < count &&
                           bigger(&bundles[order[right]].request, &bundles[order[left]].request));
        scratch[to++] = order[from_right ? right++ : left++];
    }
    memcpy(order, scratch, count * sizeof(size_t));
}

/* Merge sort: stable, which the C library's is not, and equal bundles must keep their order. */
static void sort_bundles(const trpi_bundle_seat *bundles, size_t *order, size_t *scratch,
                         size_t count) {
    if (count < 2) {
        return;
    }
    sort_bundles(bundles, order, scratch, count / 2);
    sort_bundles(bundles, order + count / 2, scratch, count - count / 2);
    merge(bundles, order, scratch, count / 2, count);
}

/* ---- Taking and giving back ---- */

static uintptr_t crowd_at(const attempt *a, uint64_t node) {
    return (uintptr_t)trpi_table_get(&a->crowds, node);
}

static void crowd_add(attempt *a, uint64_t node) {
    trpi_table_put(&a->crowds, node, (void *)(crowd_at(a, node) + 1));
}

static bool seat_next(attempt *a, trpi_sched_node *node) {
    trpi_bundle_seat *seat = &a->bundles[a->order[a->taken]];
    if (!trpi_sched_fits(node, &seat->request, a->who) ||
        !trpi_sched_take(a->sched, node, &seat->request, &seat->grant)) {
        return false;
    }
    seat->node = node->id;
    crowd_add(a, node->id);
    a->taken++;
    return true;
}

static void unseat_all(attempt *a) {
    while (a->taken > 0) {
        trpi_bundle_seat *seat = &a->bundles[a->order[--a->taken]];
        trpi_sched_node *node = trpi_sched_node_of(a->sched, seat->node);
        trpi_sched_untake(a->sched, node, &seat->request, &seat->grant);
        uintptr_t crowd = crowd_at(a, seat->node);
        if (crowd > 1) {
            trpi_table_put(&a->crowds, seat->node, (void *)(crowd - 1));
        } else {
            trpi_table_remove(&a->crowds, seat->node);
        }
        seat->node = 0;
    }
}

/* ---- Strategies ---- */

static bool all_on(attempt *a, trpi_sched_node *node) {
    while (a->taken < a->order_count) {
        if (!seat_next(a, node)) {
            unseat_all(a);
            return false;
        }
    }
    return true;
}

static bool all_on_one(attempt *a) {
    uint64_t bound = 0; /* where the survivors of this group are */
    if (trpi_table_next(&a->crowds, &bound)) {
        trpi_sched_node *node = trpi_sched_node_of(a->sched, bound);
        return a->crowds.count == 1 && node && all_on(a, node);
    }
    for (int with_gpus = a->wants_gpu; with_gpus < 2; with_gpus++) {
        trpi_sched_node *node;
        uint64_t id = 0;
        while ((node = trpi_table_next(&a->sched->nodes, &id)) != NULL) {
            if ((with_gpus || node->pool.slot_count == 0) && all_on(a, node)) {
                return true;
            }
        }
    }
    return false;
}

/* Where the next bundle goes when the group is to be dense (or wide): the node with the most
 * (fewest) bundles of this group, then one without gpus if none are wanted, then the one with
 * fewest grants. */
static trpi_sched_node *choose(const attempt *a, bool dense) {
    const trpi_request *request = &a->bundles[a->order[a->taken]].request;
    bool wants_gpu = trpi_request_amount(request, TRPI_GPU) > 0;
    trpi_sched_node *best = NULL, *node;
    uint64_t best_key[3] = {0}, id = 0;
    while ((node = trpi_table_next(&a->sched->nodes, &id)) != NULL) {
        if (!trpi_sched_fits(node, request, a->who)) {
            continue;
        }
        uint64_t crowd = crowd_at(a, id);
        uint64_t key[3] = {dense ? UINT64_MAX - crowd : crowd,
                           !wants_gpu && node->pool.slot_count > 0, dense ? 0 : node->grants};
        bool less = key[0] != best_key[0]   ? key[0] < best_key[0]
                    : key[1] != best_key[1] ? key[1] < best_key[1]
                                            : key[2] < best_key[2];
        if (!best || less) {
            best = node;
            memcpy(best_key, key, sizeof(key));
        }
    }
    return best;
}

static bool each_by_crowd(attempt *a, bool dense) {
    while (a->taken < a->order_count) {
        trpi_sched_node *node = choose(a, dense);
        if (!node || !seat_next(a, node)) {
            unseat_all(a);
            return false;
        }
    }
    return true;
}

/* STRICT_SPREAD is a matching of bundles with nodes, found by augmenting paths (Kuhn 1955): a
 * bundle takes a free node, or one whose bundle can move elsewhere. */
typedef struct matching {
    trpi_sched_node **nodes;
    size_t node_count;
    size_t *bundle_of; /* node -> index into order + 1, 0 = free */
    bool *visited;
} matching;

static int by_load(const void *left, const void *right) {
    const trpi_sched_node *a = *(trpi_sched_node *const *)left;
    const trpi_sched_node *b = *(trpi_sched_node *const *)right;
    if (a->grants != b->grants) {
        return a->grants < b->grants ? -1 : 1;
    }
    return (a->id > b->id) - (a->id < b->id);
}

static int by_gpus_and_load(const void *left, const void *right) {
    const trpi_sched_node *a = *(trpi_sched_node *const *)left;
    const trpi_sched_node *b = *(trpi_sched_node *const *)right;
    bool a_has = a->pool.slot_count > 0, b_has = b->pool.slot_count > 0;
    return a_has != b_has ? (a_has ? 1 : -1) : by_load(left, right);
}

static bool augment(const attempt *a, matching *m, size_t bundle) {
    for (size_t n = 0; n < m->node_count; n++) {
        if (m->visited[n] ||
            !trpi_sched_fits(m->nodes[n], &a->bundles[a->order[bundle]].request, a->who)) {
            continue;
        }
        m->visited[n] = true;
        if (m->bundle_of[n] == 0 || augment(a, m, m->bundle_of[n] - 1)) {
            m->bundle_of[n] = bundle + 1;
            return true;
        }
    }
    return false;
}

static bool match_all(const attempt *a, matching *m) {
    for (size_t bundle = 0; bundle < a->order_count; bundle++) {
        memset(m->visited, 0, m->node_count * sizeof(bool));
        if (!augment(a, m, bundle)) {
            return false;
        }
    }
    return true;
}

/* Seats in the order of the bundles, so that unseating is the exact reverse. */
static void seat_matched(attempt *a, const matching *m) {
    size_t *node_of = trpi_alloc(a->order_count * sizeof(size_t));
    for (size_t n = 0; n < m->node_count; n++) {
        if (m->bundle_of[n]) {
            node_of[m->bundle_of[n] - 1] = n;
        }
    }
    while (a->taken < a->order_count) {
        bool seated = seat_next(a, m->nodes[node_of[a->taken]]);
        TRP_ASSERT(seated);
    }
    free(node_of);
}

static bool one_per_node(attempt *a) {
    size_t most = a->sched->nodes.count;
    matching m = {0};
    if (most < a->order_count) {
        return false;
    }
    m.nodes = trpi_alloc(most * sizeof(trpi_sched_node *));
    m.bundle_of = trpi_alloc(most * sizeof(size_t));
    m.visited = trpi_alloc(most * sizeof(bool));
    trpi_sched_node *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&a->sched->nodes, &id)) != NULL) {
        if (crowd_at(a, id) == 0) {
            m.nodes[m.node_count++] = node;
        }
    }
    qsort(m.nodes, m.node_count, sizeof(trpi_sched_node *),
          a->wants_gpu ? by_load : by_gpus_and_load);
    bool found = m.node_count >= a->order_count && match_all(a, &m);
    if (found) {
        seat_matched(a, &m);
    }
    free(m.nodes);
    free(m.bundle_of);
    free(m.visited);
    return found;
}

static bool run(attempt *a) {
    switch (a->strategy) {
    case TRP_PACK:
        return all_on_one(a) || each_by_crowd(a, true);
    case TRP_SPREAD:
        return each_by_crowd(a, false);
    case TRP_STRICT_PACK:
        return all_on_one(a);
    case TRP_STRICT_SPREAD:
        return one_per_node(a);
    }
    return false;
}

bool trpi_place(trpi_sched *sched, trp_strategy strategy, trpi_bundle_seat *bundles, size_t count,
                uint64_t who) {
    attempt a = {
        .sched = sched, .strategy = strategy, .bundles = bundles, .count = count, .who = who};
    size_t *scratch = trpi_alloc(2 * count * sizeof(size_t));
    a.order = scratch + count;
    for (size_t i = 0; i < count; i++) {
        if (bundles[i].node) {
            crowd_add(&a, bundles[i].node);
        } else {
            a.order[a.order_count++] = i;
        }
        a.wants_gpu |= trpi_request_amount(&bundles[i].request, TRPI_GPU) > 0;
    }
    sort_bundles(bundles, a.order, scratch, a.order_count);
    bool placed = a.order_count == 0 || run(&a);
    trpi_table_release(&a.crowds);
    free(scratch);
    return placed;
}

/* ---- Why not ---- */

/* The nodes above skip with nothing held. Those that are kept for others than `who`, if that is
 * somebody, are as good as closed. */
static void copy_unused(trpi_sched *to, const trpi_sched *from, uint64_t who, uint64_t skip) {
    trpi_sched_node *node;
    uint64_t id = skip;
    while ((node = trpi_table_next(&from->nodes, &id)) != NULL) {
        trpi_request has = {.count = node->pool.share_count};
        has.amounts = trpi_alloc(TRPI_MAX(has.count, (size_t)1) * sizeof(trpi_amount));
        for (size_t i = 0; i < has.count; i++) {
            const trpi_share *share = &node->pool.shares[i];
            has.amounts[i] = (trpi_amount){share->resource, share->total};
        }
        trpi_sched_add(to, id, &has, node->labels);
        trpi_request_release(&has);
        if (node->closed || (who && node->kept_for && node->kept_for != who)) {
            trpi_sched_close(to, id);
        }
    }
}

/* What is placed stays where it is; false: the node is not there any more. */
static bool seat_survivors(trpi_sched *unused, const trpi_bundle_seat *bundles,
                           trpi_bundle_seat *seats, size_t count) {
    for (size_t i = 0; i < count; i++) {
        trpi_sched_node *node = trpi_sched_node_of(unused, bundles[i].node);
        if (bundles[i].node &&
            (!node || !trpi_sched_take(unused, node, &seats[i].request, &seats[i].grant))) {
            return false;
        }
        seats[i].node = bundles[i].node;
    }
    return true;
}

bool trpi_place_plan(const trpi_sched *sched, trp_strategy strategy,
                     const trpi_bundle_seat *bundles, size_t count, uint64_t who, uint64_t skip,
                     uint64_t *ret_nodes) {
    trpi_sched unused = {0};
    trpi_bundle_seat *seats = trpi_alloc(count * sizeof(*seats));
    copy_unused(&unused, sched, who, skip);
    for (size_t i = 0; i < count; i++) {
        seats[i].request = bundles[i].request; /* borrowed */
    }
    bool placed = seat_survivors(&unused, bundles, seats, count) &&
                  trpi_place(&unused, strategy, seats, count, 0);
    for (size_t i = 0; i < count; i++) {
        if (placed && ret_nodes) {
            ret_nodes[i] = seats[i].node;
        }
        trpi_grant_drop(&seats[i].grant);
    }
    free(seats);
    trpi_sched_release(&unused);
    return placed;
}

/* The first unplaced bundle that alone has the given verdict. */
static bool explain_bundle(const trpi_sched *sched, trpi_verdict verdict,
                           const trpi_bundle_seat *bundles, size_t count,
                           const trpi_resource_names *names, char *out, size_t size) {
    for (size_t i = 0; i < count; i++) {
        char text[256];
        trpi_wish wish = {.request = &bundles[i].request};
        if (!bundles[i].node &&
            trpi_sched_explain(sched, &wish, names, text, sizeof(text)) == verdict) {
            trpi_format(out, size, "bundle %zu of %zu %s", i, count, text);
            return true;
        }
    }
    return false;
}

static void sum_bundles(const trpi_bundle_seat *bundles, size_t count,
                        const trpi_resource_names *names, char *out, size_t size) {
    trpi_request sum = {0};
    for (size_t i = 0; i < count; i++) {
        trpi_request_add(&sum, &bundles[i].request);
    }
    trpi_request_text(&sum, names, out, size);
    trpi_request_release(&sum);
}

trpi_verdict trpi_place_explain(const trpi_sched *sched, trp_strategy strategy,
                                const trpi_bundle_seat *bundles, size_t count,
                                const trpi_resource_names *names, char *out, size_t size) {
    bool feasible = trpi_place_plan(sched, strategy, bundles, count, 0, 0, NULL);
    trpi_verdict verdict = feasible ? TRPI_BUSY : TRPI_INFEASIBLE;
    if (explain_bundle(sched, verdict, bundles, count, names, out, size)) {
        return verdict;
    }
    char sum[256];
    const char *now = feasible ? " free now" : "";
    sum_bundles(bundles, count, names, sum, sizeof(sum));
    switch (strategy) {
    case TRP_STRICT_PACK:
        trpi_format(out, size, "STRICT_PACK needs one node with %s; no node has that%s", sum, now);
        break;
    case TRP_STRICT_SPREAD:
        trpi_format(out, size,
                    "STRICT_SPREAD needs %zu nodes, each with room for one bundle; the cluster's "
                    "%zu nodes do not have that%s",
                    count, sched->nodes.count, now);
        break;
    default:
        trpi_format(out, size,
                    "needs %s in %zu bundles; the cluster's %zu nodes do not have that%s", sum,
                    count, sched->nodes.count, now);
    }
    return verdict;
}

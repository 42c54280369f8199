#include "core/state/node_tree.h"

#include <stdlib.h>
#include <string.h>

#include "core/state/scheduler.h"

#define BOUNDED TRPI_FIRST_USER_RESOURCE /* cpu, gpu and memory: what nearly everybody asks for */

typedef struct bounds {
    int64_t most[BOUNDED];  /* that one node has free; -1 = nobody may have anything */
    int64_t least[BOUNDED]; /* part in use */
    uint64_t grants;        /* the fewest */
    bool plain;             /* there is a node without gpus */
} bounds;

/* Knot i has the branches 2i and 2i+1; the leaves are knots[capacity .. 2 * capacity). A node that
 * goes leaves its place and its id behind, for its return, until the next rebuild. */
struct trpi_node_tree {
    size_t count, capacity; /* leaves in use, a power of two */
    uint64_t *ids;          /* in rising order */
    trpi_sched_node **nodes;
    bounds *knots;
};

int64_t trpi_pool_part(const trpi_pool *pool, uint32_t resource) {
    int64_t total = trpi_pool_total(pool, resource);
    int64_t used = total - trpi_pool_free(pool, resource);
    /* Divided first where the product would overflow. */
    return used > INT64_MAX / TRPI_ONE ? used / (total / TRPI_ONE)
                                       : used * TRPI_ONE / TRPI_MAX(total, 1);
}

static const bounds nothing = {{-1, -1, -1}, {INT64_MAX, INT64_MAX, INT64_MAX}, UINT64_MAX, false};

static bounds bounds_of(const trpi_sched_node *node) {
    if (!node || node->closed) {
        return nothing;
    }
    bounds b = {.grants = node->grants, .plain = node->pool.slot_count == 0};
    for (uint32_t i = 0; i < BOUNDED; i++) {
        b.most[i] = trpi_pool_most(&node->pool, i, false);
        b.least[i] = trpi_pool_part(&node->pool, i);
    }
    return b;
}

static bounds join(const bounds *a, const bounds *b) {
    bounds of = {.grants = TRPI_MIN(a->grants, b->grants), .plain = a->plain || b->plain};
    for (size_t i = 0; i < BOUNDED; i++) {
        of.most[i] = TRPI_MAX(a->most[i], b->most[i]);
        of.least[i] = TRPI_MIN(a->least[i], b->least[i]);
    }
    return of;
}

static void set_leaf(trpi_node_tree *tree, size_t place, const trpi_sched_node *node) {
    size_t knot = tree->capacity + place;
    tree->knots[knot] = bounds_of(node);
    while (knot > 1) {
        knot /= 2;
        tree->knots[knot] = join(&tree->knots[2 * knot], &tree->knots[2 * knot + 1]);
    }
}

/* The first place whose id is `id` or more. */
static size_t place_of(const trpi_node_tree *tree, uint64_t id) {
    size_t low = 0, high = tree->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tree->ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* With room for as many again, and without those that are gone. */
static trpi_node_tree *rebuild(trpi_node_tree *old, trpi_sched_node *added) {
    trpi_node_tree *tree = trpi_alloc(sizeof(*tree));
    size_t living = 1;
    for (size_t i = 0; old && i < old->count; i++) {
        living += old->nodes[i] != NULL;
    }
    for (tree->capacity = 8; tree->capacity < 2 * living; tree->capacity *= 2) {
    }
    tree->ids = trpi_alloc(tree->capacity * sizeof(*tree->ids));
    tree->nodes = trpi_alloc(tree->capacity * sizeof(trpi_sched_node *));
    tree->knots = trpi_alloc(2 * tree->capacity * sizeof(bounds));
    for (size_t i = 0; i <= (old ? old->count : 0); i++) {
        trpi_sched_node *next = old && i < old->count ? old->nodes[i] : NULL;
        if (added && (i == (old ? old->count : 0) || (next && next->id > added->id))) {
            tree->ids[tree->count] = added->id;
            tree->nodes[tree->count++] = added;
            added = NULL;
        }
        if (next) {
            tree->ids[tree->count] = next->id;
            tree->nodes[tree->count++] = next;
        }
    }
    for (size_t i = 0; i < tree->capacity; i++) {
        tree->knots[tree->capacity + i] = bounds_of(i < tree->count ? tree->nodes[i] : NULL);
    }
    for (size_t knot = tree->capacity - 1; knot > 0; knot--) {
        tree->knots[knot] = join(&tree->knots[2 * knot], &tree->knots[2 * knot + 1]);
    }
    trpi_node_tree_free(old);
    return tree;
}

void trpi_node_tree_add(trpi_node_tree **tree, trpi_sched_node *node) {
    trpi_node_tree *t = *tree;
    size_t place = t ? place_of(t, node->id) : 0;
    bool comes_back = t && place < t->count && t->ids[place] == node->id;
    if (!t || (!comes_back && (place < t->count || t->count == t->capacity))) {
        *tree = rebuild(t, node);
        return;
    }
    t->count += !comes_back;
    t->ids[place] = node->id;
    t->nodes[place] = node;
    set_leaf(t, place, node);
}

void trpi_node_tree_remove(trpi_node_tree *tree, const trpi_sched_node *node) {
    size_t place = place_of(tree, node->id);
    tree->nodes[place] = NULL;
    set_leaf(tree, place, NULL);
}

void trpi_node_tree_update(trpi_node_tree *tree, const trpi_sched_node *node) {
    set_leaf(tree, place_of(tree, node->id), node);
}

void trpi_node_tree_free(trpi_node_tree *tree) {
    if (tree) {
        free(tree->ids);
        free(tree->nodes);
        free(tree->knots);
        free(tree);
    }
}

static bool may_pass(const bounds *b, const trpi_tree_filter *filter) {
    int64_t part = 0;
    if (b->most[0] < 0 || (filter->plain && !b->plain)) {
        return false;
    }
    for (size_t i = 0; i < filter->request->count; i++) {
        const trpi_amount *asked = &filter->request->amounts[i];
        if (asked->resource < BOUNDED) {
            if (b->most[asked->resource] < asked->amount) {
                return false;
            }
            part = TRPI_MAX(part, b->least[asked->resource]);
        }
    }
    return filter->request->count ? part < filter->part_below : b->grants < filter->grants_below;
}

trpi_sched_node *trpi_node_tree_next(const trpi_node_tree *tree, size_t *at,
                                     const trpi_tree_filter *filter) {
    if (!tree || *at >= tree->count) {
        return NULL;
    }
    size_t knot = tree->capacity + *at;
    for (;;) {
        if (may_pass(&tree->knots[knot], filter)) {
            if (knot >= tree->capacity) {
                *at = knot - tree->capacity + 1;
                return tree->nodes[knot - tree->capacity];
            }
            knot *= 2; /* down, to the left */
            continue;
        }
        while (knot % 2 == 1) { /* up, from a right branch: all under that is seen */
            knot /= 2;
        }
        if (knot == 0) {
            *at = tree->count;
            return NULL;
        }
        knot++; /* over to the right */
    }
}

const char *trpi_node_tree_check(const trpi_node_tree *tree) {
    for (size_t i = 0; tree && i < tree->capacity; i++) {
        bounds leaf = bounds_of(i < tree->count ? tree->nodes[i] : NULL);
        if (memcmp(leaf.most, tree->knots[tree->capacity + i].most, sizeof(leaf.most)) != 0 ||
            memcmp(leaf.least, tree->knots[tree->capacity + i].least, sizeof(leaf.least)) != 0 ||
            leaf.grants != tree->knots[tree->capacity + i].grants) {
            return "tree of nodes: a leaf is not what its node is";
        }
    }
    for (size_t knot = 1; tree && knot < tree->capacity; knot++) {
        bounds of = join(&tree->knots[2 * knot], &tree->knots[2 * knot + 1]);
        if (memcmp(of.most, tree->knots[knot].most, sizeof(of.most)) != 0 ||
            memcmp(of.least, tree->knots[knot].least, sizeof(of.least)) != 0 ||
            of.grants != tree->knots[knot].grants || of.plain != tree->knots[knot].plain) {
            return "tree of nodes: a knot is not what its branches make it";
        }
    }
    return NULL;
}

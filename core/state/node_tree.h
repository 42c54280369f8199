/* node_tree.h: finds a node among very many without asking each of them.
 *
 * A tree over the nodes in the order of their ids; every knot knows the best of what is under it:
 * the most that is free, the least part in use. So whole branches that cannot hold a request, or
 * hold it no better than what is found already, are passed over. That is a bound, not a verdict:
 * who uses the tree still asks the node. */
#ifndef TRPI_NODE_TREE_H
#define TRPI_NODE_TREE_H

#include "core/state/resources.h"

struct trpi_sched_node;
typedef struct trpi_node_tree trpi_node_tree;

/* NULL is an empty tree. A node that is closed is in it, and is never found. */
void trpi_node_tree_add(trpi_node_tree **tree, struct trpi_sched_node *node);
void trpi_node_tree_remove(trpi_node_tree *tree, const struct trpi_sched_node *node);
void trpi_node_tree_update(trpi_node_tree *tree, const struct trpi_sched_node *node);
void trpi_node_tree_free(trpi_node_tree *tree);

typedef struct trpi_tree_filter {
    const trpi_request *request; /* there must be room for it ... */
    bool plain;                  /* ... on a node without gpus, if this is set ... */
    int64_t part_below;          /* ... with a part in use of what it names below this ... */
    uint64_t grants_below;       /* ... or, when it names nothing, with fewer grants than this */
} trpi_tree_filter;

/* The next node that may pass, from position *at on, which is moved behind it; NULL at the end. */
struct trpi_sched_node *trpi_node_tree_next(const trpi_node_tree *tree, size_t *at,
                                            const trpi_tree_filter *filter);

/* Part in use of a resource, in 1/10000 of the total. */
int64_t trpi_pool_part(const trpi_pool *pool, uint32_t resource);

/* NULL, or what is wrong: every knot is what its branches make it. */
const char *trpi_node_tree_check(const trpi_node_tree *tree);

#endif

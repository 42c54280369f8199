/* scheduler.h: on which node a request goes. Knows pools, no actors and no processes.
 *
 * The policy is Ray's hybrid one: a node's score is 0 while less than half of what the request
 * names is in use there, and the part in use from then on; the lowest score wins, then the lowest
 * id. So nodes fill up to a half one after the other, and then evenly. Before the score come
 * wishes: the node that is preferred, not the node on which this actor just died, and no node with
 * gpus for a request without. A request that asks for nothing goes where the fewest are. One that
 * is to be spread goes where the fewest of its kind are, by a count of the caller's.
 *
 * Room can be kept free on a node for one who has waited too long (turns.h): of what he needs, as
 * much is left alone there as he needs, until he has it. A closed node takes nothing new.
 *
 * Whoever waits fits nowhere; so after a release only the nodes that gained something, the fresh
 * ones, are looked at. */
#ifndef TRPI_SCHEDULER_H
#define TRPI_SCHEDULER_H

#include "core/base/table.h"
#include "core/state/labels.h"
#include "core/state/node_tree.h"
#include "core/state/resources.h"

typedef struct trpi_sched_node {
    uint64_t id;
    trpi_pool pool;
    uint64_t grants; /* taken from here and not given back */
    bool closed;
    const trpi_labels *labels; /* borrowed from whoever added the node; never NULL */
    uint64_t kept_for;         /* 0 = nobody; else the name of who has room kept free here ... */
    trpi_request kept;         /* ... and how much; owned */
} trpi_sched_node;

typedef struct trpi_sched {
    trpi_table nodes; /* id -> trpi_sched_node */
    trpi_table fresh; /* those that gained room since trpi_sched_settle() */
    trpi_node_tree *tree;
} trpi_sched; /* zero-initialize */

void trpi_sched_release(trpi_sched *sched);

/* labels live as long as the node is here; NULL = none. */
void trpi_sched_add(trpi_sched *sched, uint64_t node, const trpi_request *has,
                    const trpi_labels *labels);
void trpi_sched_remove(trpi_sched *sched, uint64_t node); /* its grants must be dropped */
trpi_sched_node *trpi_sched_node_of(const trpi_sched *sched, uint64_t node); /* NULL if not there */
void trpi_sched_close(trpi_sched *sched, uint64_t node);

/* Keeps room free on a node for `who`, and no longer. Nobody else may have room kept there. */
void trpi_sched_keep(trpi_sched *sched, trpi_sched_node *node, uint64_t who,
                     const trpi_request *room);
void trpi_sched_unkeep(trpi_sched *sched, trpi_sched_node *node);

typedef struct trpi_wish {
    const trpi_request *request;
    uint64_t only;                  /* this node or none; 0 = any */
    uint64_t prefer;                /* this node if it has room now; 0 = none */
    uint64_t avoid;                 /* another one than this if there is one; 0 = none */
    const trpi_label_rules *labels; /* NULL = any node */
    const trpi_table *crowds;       /* to be spread: node -> count of its kind; NULL = packed */
    uint64_t who;                   /* room that is kept for this name is his; 0 = nobody's */
    bool fresh;                     /* look at the fresh nodes only */
} trpi_wish;

/* Whether there is room on this node now, for this name. */
bool trpi_sched_fits(const trpi_sched_node *node, const trpi_request *request, uint64_t who);

/* The best node for it, or NULL when it fits nowhere now. Takes nothing. */
trpi_sched_node *trpi_sched_pick(const trpi_sched *sched, const trpi_wish *wish);

TRP_CHECKED bool trpi_sched_take(trpi_sched *sched, trpi_sched_node *node,
                                 const trpi_request *request, trpi_grant *grant);
void trpi_sched_give(trpi_sched *sched, trpi_sched_node *node, const trpi_request *request,
                     trpi_grant *grant);
/* Gives back what was only tried: nobody could have used it meanwhile, so the node is not fresh. */
void trpi_sched_untake(trpi_sched *sched, trpi_sched_node *node, const trpi_request *request,
                       trpi_grant *grant);
void trpi_sched_settle(trpi_sched *sched); /* everyone who waits has seen the fresh nodes */

typedef enum { TRPI_FITS, TRPI_BUSY, TRPI_INFEASIBLE } trpi_verdict;

/* Whether the request fits, will fit when others let go, or never on the nodes there are; and the
 * missing amounts or labels as text: "needs 2 gpu; the most any node has is 1". */
trpi_verdict trpi_sched_explain(const trpi_sched *sched, const trpi_wish *wish,
                                const trpi_resource_names *names, char *out, size_t size);
/* Whether it could be there if nobody else held anything. */
bool trpi_sched_could_fit(const trpi_sched_node *node, const trpi_wish *wish);

/* NULL, or which pool breaks which invariant. */
const char *trpi_sched_check(const trpi_sched *sched);

#endif

/* node.h: the node daemon. Owns one host's resources, workers and their output. */
#ifndef TRPI_NODE_H
#define TRPI_NODE_H

#include <troupe/actor.h>

#include "core/base/base.h"

typedef struct trpi_node_options {
    const char *address;   /* of the head, "HOST:PORT" */
    const char *host;      /* address that other hosts reach this one by; NULL = loopback only */
    double cpus;           /* negative = what the machine has */
    double gpus;           /* negative = what the machine has; given, devices are "0".."n-1" */
    uint64_t memory_bytes; /* 0 = 70 % of what is available */
    const trp_resource *resources;
    size_t resource_count;
    const char *const *labels; /* "key=value", ends with NULL; may be NULL */
    const char *name;          /* for display; NULL = host name */
    int ready_fd; /* gets "NODE CLUSTER\n" once registered, or "error: ...\n"; -1 = none */
} trpi_node_options;

/* Runs until SIGTERM, SIGINT, NODE_SHUTDOWN or loss of the head beyond its timeout. At its end
 * every worker is dead and reaped and its session directory is gone. Returns the process' exit
 * code. */
int trpi_node_main(const trpi_node_options *options);

#endif

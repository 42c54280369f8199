/* node_flags.h: the flags that say what a node has, which `troupe start` checks and hands on as
 * they are to the node daemon's own command line. */
#ifndef TRPI_NODE_FLAGS_H
#define TRPI_NODE_FLAGS_H

#include "actors/bin/options.h"
#include "actors/proc/node.h"

typedef struct trpi_node_flags { /* as typed; NULL where not given */
    const char *host, *cpus, *gpus, *memory, *resources, *labels, *name;
} trpi_node_flags;

/* The rows of an option table for them. */
#define TRPI_NODE_FLAG_ROWS(flags)                                                                 \
    {"--host", "IP", "address that other hosts reach this one by (default: this host only)",       \
     &(flags).host, NULL},                                                                         \
        {"--num-cpus", "N", "CPUs to offer (default: all of the machine)", &(flags).cpus, NULL},   \
        {"--num-gpus", "N", "GPUs to offer (default: all of the machine)", &(flags).gpus, NULL},   \
        {"--memory", "SIZE",                                                                       \
         "memory to offer, e.g. 8GiB (default: 70 % of what is available;"                         \
         " every node of a host takes that much: share it out yourself)",                          \
         &(flags).memory, NULL},                                                                   \
        {"--resources", "LIST", "resources of your own, e.g. disk=4,licence=1",                    \
         &(flags).resources, NULL},                                                                \
        {"--labels", "LIST", "labels, e.g. zone=a,disk=ssd", &(flags).labels, NULL}, {             \
        "--node-name", "NAME", "for display (default: the host's name)", &(flags).name, NULL       \
    }

/* What they mean. The lists live in *parsed until trpi_node_flags_release(). */
typedef struct trpi_parsed_node_flags {
    trpi_node_options options; /* without address and ready_fd */
    char *resources_text, *labels_text;
    trp_resource *resources;
    const char **labels;
} trpi_parsed_node_flags;

TRP_CHECKED trp_code trpi_node_flags_parse(const trpi_node_flags *flags,
                                           trpi_parsed_node_flags *ret_parsed, trp_error *err);
void trpi_node_flags_release(trpi_parsed_node_flags *parsed);

/* Appends the flags as they were typed; argv has room for 14 more. Returns the new count. */
size_t trpi_node_flags_append(const trpi_node_flags *flags, const char **argv, size_t count);

#endif

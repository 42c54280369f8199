/* node_resources.h: what this host offers, from options and from what the machine has. */
#ifndef TRPI_NODE_RESOURCES_H
#define TRPI_NODE_RESOURCES_H

#include "actors/proc/node.h"
#include "core/wire/msg.h"

#define TRPI_RESOURCES_MAX 64
#define TRPI_DEVICES_MAX 64

typedef struct trpi_node_resources {
    trpi_resource list[TRPI_RESOURCES_MAX]; /* names borrow from the options */
    size_t count;
    trpi_text devices[TRPI_DEVICES_MAX]; /* one per gpu */
    size_t device_count;
    char device_ids[TRPI_DEVICES_MAX][64];
} trpi_node_resources;

/* TRP_EINVALID names the resource whose amount is not a multiple of 0.0001, negative, too large,
 * named like a built-in one or named twice. Not to be copied: devices point into device_ids. */
TRP_CHECKED trp_code trpi_node_resources_init(const trpi_node_options *options,
                                              trpi_node_resources *ret_resources, trp_error *err);

#endif

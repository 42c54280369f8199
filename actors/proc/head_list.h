/* head_list.h: rows for display as JSON; head.h says what they hold. */
#ifndef TRPI_HEAD_LIST_H
#define TRPI_HEAD_LIST_H

#include "actors/state/cluster.h"

typedef struct trpi_head_facts { /* what the machine does not know */
    const char *cluster_id, *address;
    uint64_t now_ns, started_ns, bad_packets;
} trpi_head_facts;

/* Appends the text. TRP_EINVALID when `what` is none, with the nearest that is. */
TRP_CHECKED trp_code trpi_head_list(const trpi_cluster *cluster, const trpi_head_facts *facts,
                                    const char *what, trp_buf *out, trp_error *err);

#endif

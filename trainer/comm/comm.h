/* comm.h: what a kind of communicator is made of. The public functions check arguments and count
 * bytes once, in comm.c; a kind moves the data.
 *
 * A kind embeds trp_comm as its first member and fills it before it hands it out. */
#ifndef TRPI_COMM_H
#define TRPI_COMM_H

#include <troupe/comm.h>

#include "core/base/base.h"

typedef struct trpi_comm_kind {
    const char *name; /* the address starts with it */
    /* Where the ranks of `world` meet. *ret_address has room for TRPI_COMM_ADDRESS_MAX. *ret_fd is
     * what keeps the place alive (closed with the root), or -1. NULL open_root: not offered. */
    trp_code (*open_root)(int world, uint64_t token, char *ret_address, int *ret_fd,
                          trp_error *err);
    trp_code (*open)(const trp_comm_options *options, trp_comm **ret_comm, trp_error *err);
    void (*close)(trp_comm *comm);
    void (*abort)(trp_comm *comm); /* any thread */
    /* Arguments are checked: counts fit, data is there. world may be 1, count may be 0. */
    trp_code (*all_reduce)(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                           trp_reduce op, trp_error *err);
    trp_code (*reduce_scatter)(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                               trp_reduce op, trp_error *err);
    trp_code (*all_gather)(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                           trp_error *err);
    trp_code (*broadcast)(trp_comm *comm, void *data, size_t bytes, int root, trp_error *err);
    trp_code (*barrier)(trp_comm *comm, trp_error *err);
} trpi_comm_kind;

#define TRPI_COMM_ADDRESS_MAX 128
#define TRPI_COMM_TIMEOUT_MS 1800000 /* of NCCL's users, and long enough for any checkpoint */
#define TRPI_COMM_WORLD_MAX 256

struct trp_comm {
    const trpi_comm_kind *kind;
    int rank, world;
    uint64_t timeout_ms;
    uint64_t bytes_sent;
};

extern const trpi_comm_kind trpi_comm_self, trpi_comm_host;

#endif

/* self.c: a world of one. Every reduction of one rank's data is that data, so nothing moves; what
 * is kept of a communicator is that an aborted one stays broken. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/comm/comm.h"

typedef struct self_comm {
    trp_comm base;
    atomic_bool aborted;
} self_comm;

static trp_code self_open_root(int world, uint64_t token, char *ret_address, int *ret_fd,
                               trp_error *err) {
    trpi_format(ret_address, TRPI_COMM_ADDRESS_MAX, "self");
    *ret_fd = -1;
    return TRP_OK;
}

static trp_code self_open(const trp_comm_options *options, trp_comm **ret_comm, trp_error *err) {
    if (strcmp(options->address, "self") != 0) {
        return trpi_fail(err, TRP_EINVALID, "\"%.64s\" is not the address \"self\"",
                         options->address);
    }
    self_comm *self = calloc(1, sizeof *self);
    if (!self) {
        return trpi_fail(err, TRP_ENOMEM, "a communicator");
    }
    *ret_comm = &self->base;
    return TRP_OK;
}

static void self_close(trp_comm *comm) {
    free(comm);
}

static void self_abort(trp_comm *comm) {
    atomic_store(&((self_comm *)comm)->aborted, true);
}

static trp_code self_check(trp_comm *comm, const char *name, trp_error *err) {
    if (atomic_load(&((self_comm *)comm)->aborted)) {
        return trpi_fail(err, TRP_ECOMM_ABORTED, "%s: rank 0 aborted", name);
    }
    return TRP_OK;
}

static trp_code self_all_reduce(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                trp_reduce op, trp_error *err) {
    return self_check(comm, "all_reduce", err);
}

static trp_code self_reduce_scatter(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                    trp_reduce op, trp_error *err) {
    return self_check(comm, "reduce_scatter", err);
}

static trp_code self_all_gather(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                trp_error *err) {
    return self_check(comm, "all_gather", err);
}

static trp_code self_broadcast(trp_comm *comm, void *data, size_t bytes, int root, trp_error *err) {
    return self_check(comm, "broadcast", err);
}

static trp_code self_barrier(trp_comm *comm, trp_error *err) {
    return self_check(comm, "barrier", err);
}

const trpi_comm_kind trpi_comm_self = {
    .name = "self",
    .open_root = self_open_root,
    .open = self_open,
    .close = self_close,
    .abort = self_abort,
    .all_reduce = self_all_reduce,
    .reduce_scatter = self_reduce_scatter,
    .all_gather = self_all_gather,
    .broadcast = self_broadcast,
    .barrier = self_barrier,
};

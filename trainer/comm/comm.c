/* comm.c: the public functions: find the kind, check the arguments, count the bytes. */
#include "trainer/comm/comm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const trpi_comm_kind *const kinds[] = {&trpi_comm_self, &trpi_comm_host};

struct trp_comm_root {
    int fd;
    char address[TRPI_COMM_ADDRESS_MAX];
};

/* The kind whose name is the text up to the first ':' or its end. */
static const trpi_comm_kind *find_kind(const char *text) {
    size_t length = strcspn(text, ":");
    for (size_t i = 0; i < TRPI_COUNTOF(kinds); i++) {
        if (strlen(kinds[i]->name) == length && memcmp(kinds[i]->name, text, length) == 0) {
            return kinds[i];
        }
    }
    return NULL;
}

static trp_code check_world(const trpi_comm_kind *kind, int world, trp_error *err) {
    if (world < 1 || world > TRPI_COMM_WORLD_MAX) {
        return trpi_fail(err, TRP_EINVALID, "world is %d, expected 1 to %d", world,
                         TRPI_COMM_WORLD_MAX);
    }
    if (kind == &trpi_comm_self && world != 1) {
        return trpi_fail(err, TRP_EINVALID,
                         "a communicator of kind \"self\" has one rank, not %d; use \"host\"",
                         world);
    }
    return TRP_OK;
}

trp_code trp_comm_root_open(const char *kind, int world, uint64_t token, trp_comm_root **ret_root,
                            trp_error *err) {
    const trpi_comm_kind *found = kind ? find_kind(kind) : NULL;
    if (!found || strchr(kind, ':')) {
        return trpi_fail(err, TRP_EINVALID,
                         "no communicator of kind \"%s\"; there are \"self\" and \"host\"",
                         kind ? kind : "");
    }
    trp_code code = check_world(found, world, err);
    if (code) {
        return code;
    }
    trp_comm_root *root = calloc(1, sizeof *root);
    if (!root) {
        return trpi_fail(err, TRP_ENOMEM, "a communicator's root");
    }
    root->fd = -1;
    code = found->open_root(world, token, root->address, &root->fd, err);
    if (code) {
        free(root);
        return code;
    }
    *ret_root = root;
    return TRP_OK;
}

const char *trp_comm_root_address(const trp_comm_root *root) {
    return root->address;
}

void trp_comm_root_close(trp_comm_root *root) {
    if (!root) {
        return;
    }
    if (root->fd >= 0) {
        close(root->fd);
    }
    free(root);
}

trp_code trp_comm_open(const trp_comm_options *options, trp_comm **ret_comm, trp_error *err) {
    if (!options || !options->address) {
        return trpi_fail(err, TRP_EINVALID, "a communicator needs the address of its root");
    }
    const trpi_comm_kind *kind = find_kind(options->address);
    if (!kind) {
        return trpi_fail(err, TRP_EINVALID, "\"%.64s\" is not the address of a communicator",
                         options->address);
    }
    trp_code code = check_world(kind, options->world, err);
    if (code) {
        return code;
    }
    if (options->rank < 0 || options->rank >= options->world) {
        return trpi_fail(err, TRP_EINVALID, "rank %d of a world of %d", options->rank,
                         options->world);
    }
    trp_comm_options full = *options;
    full.timeout_ms = full.timeout_ms ? full.timeout_ms : TRPI_COMM_TIMEOUT_MS;
    full.join_timeout_ms = full.join_timeout_ms ? full.join_timeout_ms : full.timeout_ms;
    trp_comm *comm = NULL;
    code = kind->open(&full, &comm, err);
    if (code) {
        return trpi_context(err, code, "communicator of rank %d", options->rank);
    }
    comm->kind = kind;
    comm->rank = full.rank;
    comm->world = full.world;
    comm->timeout_ms = full.timeout_ms;
    comm->bytes_sent = 0;
    *ret_comm = comm;
    return TRP_OK;
}

void trp_comm_close(trp_comm *comm) {
    if (comm) {
        comm->kind->close(comm);
    }
}

void trp_comm_abort(trp_comm *comm) {
    comm->kind->abort(comm);
}

int trp_comm_rank(const trp_comm *comm) {
    return comm->rank;
}

int trp_comm_world(const trp_comm *comm) {
    return comm->world;
}

uint64_t trp_comm_bytes_sent(const trp_comm *comm) {
    return comm->bytes_sent;
}

/* `slices` * count elements must be addressable and there. */
static trp_code check_data(const char *name, const void *data, int64_t count, int slices,
                           trp_dtype dtype, trp_error *err) {
    if ((unsigned)dtype >= TRP_DTYPE_COUNT) {
        return trpi_fail(err, TRP_EINVALID, "%s: %d is not a dtype", name, (int)dtype);
    }
    if (count < 0 || count > INT64_MAX / 8 / slices) {
        return trpi_fail(err, TRP_EINVALID, "%s: count %lld is out of range", name,
                         (long long)count);
    }
    if (!data && count > 0) {
        return trpi_fail(err, TRP_EINVALID, "%s: no data", name);
    }
    return TRP_OK;
}

static trp_code check_reduce(const char *name, trp_dtype dtype, trp_reduce op, trp_error *err) {
    if ((unsigned)op > TRP_REDUCE_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%s: %d is not a reduction", name, (int)op);
    }
    if (dtype != TRP_F32 && dtype != TRP_BF16 && dtype != TRP_I32) {
        return trpi_fail(err, TRP_EUNSUPPORTED, "%s: %s is not reduced; F32, BF16 and I32 are",
                         name, trp_dtype_name(dtype));
    }
    if (dtype == TRP_I32 && op == TRP_REDUCE_AVERAGE) {
        return trpi_fail(err, TRP_EUNSUPPORTED, "%s: no average of I32", name);
    }
    return TRP_OK;
}

trp_code trp_comm_all_reduce(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                             trp_reduce op, trp_error *err) {
    trp_code code = check_data("all_reduce", data, count, 1, dtype, err);
    if (!code) {
        code = check_reduce("all_reduce", dtype, op, err);
    }
    if (!code) {
        code = comm->kind->all_reduce(comm, data, count, dtype, op, err);
    }
    if (!code) {
        uint64_t bytes = (uint64_t)count * trp_dtype_size(dtype), world = (uint64_t)comm->world;
        comm->bytes_sent += 2 * (bytes - bytes / world); /* 2 (N-1)/N, without overflow */
    }
    return code;
}

trp_code trp_comm_reduce_scatter(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                 trp_reduce op, trp_error *err) {
    trp_code code = check_data("reduce_scatter", data, count, comm->world, dtype, err);
    if (!code) {
        code = check_reduce("reduce_scatter", dtype, op, err);
    }
    if (!code) {
        code = comm->kind->reduce_scatter(comm, data, count, dtype, op, err);
    }
    if (!code) {
        comm->bytes_sent += (uint64_t)count * trp_dtype_size(dtype) * (uint64_t)(comm->world - 1);
    }
    return code;
}

trp_code trp_comm_all_gather(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                             trp_error *err) {
    trp_code code = check_data("all_gather", data, count, comm->world, dtype, err);
    if (!code) {
        code = comm->kind->all_gather(comm, data, count, dtype, err);
    }
    if (!code) {
        comm->bytes_sent += (uint64_t)count * trp_dtype_size(dtype) * (uint64_t)(comm->world - 1);
    }
    return code;
}

trp_code trp_comm_broadcast(trp_comm *comm, void *data, size_t bytes, int root, trp_error *err) {
    if (root < 0 || root >= comm->world) {
        return trpi_fail(err, TRP_EINVALID, "broadcast: root %d of a world of %d", root,
                         comm->world);
    }
    if (bytes > INT64_MAX || (!data && bytes > 0)) {
        return trpi_fail(err, TRP_EINVALID, "broadcast: %zu bytes at %p", bytes, data);
    }
    trp_code code = comm->kind->broadcast(comm, data, bytes, root, err);
    if (!code && comm->world > 1 && comm->rank != (root + comm->world - 1) % comm->world) {
        comm->bytes_sent += bytes; /* along a ring all pass it on but the last */
    }
    return code;
}

trp_code trp_comm_barrier(trp_comm *comm, trp_error *err) {
    return comm->kind->barrier(comm, err);
}

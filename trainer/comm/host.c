/* host.c: collectives between ranks on one host, over a room (room.h).
 *
 * Data goes through the slots in rounds. In a reduction every rank offers to each other rank r the
 * piece that r reduces; r adds its own piece straight from its buffer, all in rank order, so that
 * every element is summed once, by one rank, in an order that depends on nothing. Chunks are small
 * enough to stay in the caches: main memory is read and written about once.
 *
 *   round of a reduce-scatter   offer | meet | reduce own slice
 *   round of an all-reduce      offer | meet | reduce own piece, offer it | meet | collect
 *   round of an all-gather      offer | meet | collect */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/comm/comm.h"
#include "trainer/comm/reduce.h"
#include "trainer/comm/room.h"

/* Up to here every rank adds everything itself: twice the sums, half the meetings. */
#define DIRECT_BYTES 4096

typedef struct host_comm {
    trp_comm base;
    trpi_room *room;
} host_comm;

static trpi_room *room_of(trp_comm *comm) {
    return ((host_comm *)comm)->room;
}

static trp_code host_open_root(int world, uint64_t token, char *ret_address, int *ret_fd,
                               trp_error *err) {
    trp_code code = trpi_room_create(world, token, ret_fd, err);
    if (!code) {
        trpi_format(ret_address, TRPI_COMM_ADDRESS_MAX, "host:%ld:%d:%016" PRIx64, (long)getpid(),
                    *ret_fd, token);
    }
    return code;
}

/* "host:<pid>:<fd>:<token>" to the path of the room; the token is that of the caller, or this is
 * the address of another attempt. */
static trp_code parse_address(const char *address, uint64_t token, char *path, size_t size,
                              trp_error *err) {
    char copy[TRPI_COMM_ADDRESS_MAX], expected[TRPI_COMM_ADDRESS_MAX];
    uint64_t pid = 0, fd = 0;
    char *parts[4] = {NULL}, *rest = copy;
    if (strlen(address) >= sizeof copy) {
        return trpi_fail(err, TRP_EINVALID, "address \"%.64s...\" is too long", address);
    }
    TRPI_SET(copy, address);
    for (int i = 0; i < 4; i++) {
        parts[i] = strsep(&rest, ":");
    }
    if (rest || !parts[3] || !trpi_parse_u64(parts[1], INT32_MAX, &pid) ||
        !trpi_parse_u64(parts[2], INT32_MAX, &fd)) {
        return trpi_fail(err, TRP_EINVALID, "address \"%s\" is not host:<pid>:<fd>:<token>",
                         address);
    }
    trpi_format(expected, sizeof expected, "%016" PRIx64, token);
    if (strcmp(parts[3], expected) != 0) {
        return trpi_fail(err, TRP_EINVALID,
                         "address \"%s\" is that of another attempt: our token is %s", address,
                         expected);
    }
    trpi_format(path, size, "/proc/%" PRIu64 "/fd/%" PRIu64, pid, fd);
    return TRP_OK;
}

static trp_code host_open(const trp_comm_options *options, trp_comm **ret_comm, trp_error *err) {
    char path[64];
    trp_code code = parse_address(options->address, options->token, path, sizeof path, err);
    if (code) {
        return code;
    }
    host_comm *host = calloc(1, sizeof *host);
    if (!host) {
        return trpi_fail(err, TRP_ENOMEM, "a communicator");
    }
    code = trpi_room_join(path, options->rank, options->world, options->token,
                          options->join_timeout_ms, &host->room, err);
    if (code) {
        free(host);
        return code;
    }
    *ret_comm = &host->base;
    return TRP_OK;
}

static void host_close(trp_comm *comm) {
    trpi_room_leave(room_of(comm));
    free(comm);
}

static void host_abort(trp_comm *comm) {
    trpi_room_abort(room_of(comm));
}

static trp_code enter(trp_comm *comm, const trpi_room_call *call, trp_error *err) {
    return trpi_room_enter(room_of(comm), call, comm->timeout_ms, err);
}

/* Elements of a piece when a slot holds one for every rank. Pieces start at cache lines. */
static int64_t piece_elements(const trp_comm *comm, size_t element) {
    size_t bytes = TRPI_ROOM_SLOT_BYTES / (size_t)comm->world / 64 * 64;
    return (int64_t)(bytes / element);
}

/* Where `owner`'s slot has the piece for `reader`. */
static char *piece(trp_comm *comm, int owner, int reader) {
    size_t bytes = TRPI_ROOM_SLOT_BYTES / (size_t)comm->world / 64 * 64;
    return (char *)trpi_room_slot(room_of(comm), owner) + (size_t)reader * bytes;
}

/* memcpy may not be given NULL, which is what an empty tensor may have. */
static void copy(void *to, const void *from, size_t bytes) {
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
}

/* Own piece (count elements at data) plus what the others offer, in rank order, in place. */
static void reduce_own(trp_comm *comm, char *data, int64_t count, trp_dtype dtype, trp_reduce op) {
    const void *in[TRPI_COMM_WORLD_MAX];
    for (int j = 0; j < comm->world; j++) {
        in[j] = j == comm->rank ? data : piece(comm, j, comm->rank);
    }
    trpi_reduce(data, in, comm->world, count, dtype, op);
}

/* ---- all-reduce ---- */

static trp_code all_reduce_direct(trp_comm *comm, char *data, int64_t count, trp_dtype dtype,
                                  trp_reduce op, trp_error *err) {
    const void *in[TRPI_COMM_WORLD_MAX];
    trpi_room *room = room_of(comm);
    copy(trpi_room_slot(room, comm->rank), data, (size_t)count * trp_dtype_size(dtype));
    trp_code code = trpi_room_meet(room, err);
    if (code) {
        return code;
    }
    for (int j = 0; j < comm->world; j++) {
        in[j] = trpi_room_slot(room, j);
    }
    trpi_reduce(data, in, comm->world, count, dtype, op);
    trpi_room_turn(room);
    return TRP_OK;
}

/* A round over `length` elements: rank r reduces elements r * part ... of them. */
static trp_code all_reduce_round(trp_comm *comm, char *data, int64_t length, trp_dtype dtype,
                                 trp_reduce op, trp_error *err) {
    trpi_room *room = room_of(comm);
    int world = comm->world, rank = comm->rank;
    size_t size = trp_dtype_size(dtype);
    int64_t part = (length + world - 1) / world;
    int64_t own = TRPI_MAX(0, TRPI_MIN(part, length - rank * part));
    char *mine = data + (size_t)TRPI_MIN(rank * part, length) * size;
    for (int k = 1; k < world; k++) {
        int r = (rank + k) % world;
        int64_t n = TRPI_MAX(0, TRPI_MIN(part, length - r * part));
        copy(piece(comm, rank, r), data + (size_t)(r * part) * size, (size_t)n * size);
    }
    trp_code code = trpi_room_meet(room, err);
    if (code) {
        return code;
    }
    reduce_own(comm, mine, own, dtype, op);
    copy(piece(comm, rank, rank), mine, (size_t)own * size);
    code = trpi_room_meet(room, err);
    if (code) {
        return code;
    }
    for (int k = 1; k < world; k++) {
        int r = (rank + k) % world;
        int64_t n = TRPI_MAX(0, TRPI_MIN(part, length - r * part));
        copy(data + (size_t)(r * part) * size, piece(comm, r, r), (size_t)n * size);
    }
    trpi_room_turn(room);
    return TRP_OK;
}

static trp_code host_all_reduce(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                trp_reduce op, trp_error *err) {
    trpi_room_call call = {
        .op = TRPI_ROOM_ALL_REDUCE, .dtype = dtype, .reduce = op, .count = (uint64_t)count};
    size_t size = trp_dtype_size(dtype);
    int64_t most = piece_elements(comm, size) * comm->world;
    trp_code code = enter(comm, &call, err);
    if (!code && (size_t)count * size <= DIRECT_BYTES) {
        return all_reduce_direct(comm, data, count, dtype, op, err);
    }
    for (int64_t at = 0; !code && at < count; at += most) {
        code = all_reduce_round(comm, (char *)data + (size_t)at * size, TRPI_MIN(most, count - at),
                                dtype, op, err);
    }
    return code;
}

/* ---- reduce-scatter, all-gather, broadcast, barrier. Each has at least one round, also of
 * nothing, because it is in the first meeting that the ranks find out whether they agree. ---- */

static trp_code host_reduce_scatter(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                    trp_reduce op, trp_error *err) {
    trpi_room_call call = {
        .op = TRPI_ROOM_REDUCE_SCATTER, .dtype = dtype, .reduce = op, .count = (uint64_t)count};
    trpi_room *room = room_of(comm);
    int world = comm->world, rank = comm->rank;
    size_t size = trp_dtype_size(dtype);
    int64_t at = 0, most = piece_elements(comm, size);
    trp_code code = enter(comm, &call, err);
    while (!code) {
        int64_t n = TRPI_MIN(most, count - at);
        for (int k = 1; k < world; k++) {
            int r = (rank + k) % world;
            copy(piece(comm, rank, r), (char *)data + (size_t)(r * count + at) * size,
                 (size_t)n * size);
        }
        code = trpi_room_meet(room, err);
        if (code) {
            break;
        }
        reduce_own(comm, (char *)data + (size_t)(rank * count + at) * size, n, dtype, op);
        trpi_room_turn(room);
        at += n;
        if (at >= count) {
            break;
        }
    }
    return code;
}

static trp_code host_all_gather(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                trp_error *err) {
    trpi_room_call call = {.op = TRPI_ROOM_ALL_GATHER, .dtype = dtype, .count = (uint64_t)count};
    trpi_room *room = room_of(comm);
    int world = comm->world, rank = comm->rank;
    size_t total = (size_t)count * trp_dtype_size(dtype), at = 0;
    trp_code code = enter(comm, &call, err);
    while (!code) {
        size_t n = TRPI_MIN((size_t)TRPI_ROOM_SLOT_BYTES, total - at);
        copy(trpi_room_slot(room, rank), (char *)data + (size_t)rank * total + at, n);
        code = trpi_room_meet(room, err);
        if (code) {
            break;
        }
        for (int k = 1; k < world; k++) {
            int r = (rank + k) % world;
            copy((char *)data + (size_t)r * total + at, trpi_room_slot(room, r), n);
        }
        trpi_room_turn(room);
        at += n;
        if (at >= total) {
            break;
        }
    }
    return code;
}

static trp_code host_broadcast(trp_comm *comm, void *data, size_t bytes, int root, trp_error *err) {
    trpi_room_call call = {.op = TRPI_ROOM_BROADCAST, .root = (uint32_t)root, .count = bytes};
    trpi_room *room = room_of(comm);
    size_t at = 0;
    trp_code code = enter(comm, &call, err);
    while (!code) {
        size_t n = TRPI_MIN((size_t)TRPI_ROOM_SLOT_BYTES, bytes - at);
        if (comm->rank == root) {
            copy(trpi_room_slot(room, root), (char *)data + at, n);
        }
        code = trpi_room_meet(room, err);
        if (code) {
            break;
        }
        if (comm->rank != root) {
            copy((char *)data + at, trpi_room_slot(room, root), n);
        }
        trpi_room_turn(room);
        at += n;
        if (at >= bytes) {
            break;
        }
    }
    return code;
}

static trp_code host_barrier(trp_comm *comm, trp_error *err) {
    trpi_room_call call = {.op = TRPI_ROOM_BARRIER};
    trp_code code = enter(comm, &call, err);
    return code ? code : trpi_room_meet(room_of(comm), err);
}

const trpi_comm_kind trpi_comm_host = {
    .name = "host",
    .open_root = host_open_root,
    .open = host_open,
    .close = host_close,
    .abort = host_abort,
    .all_reduce = host_all_reduce,
    .reduce_scatter = host_reduce_scatter,
    .all_gather = host_all_gather,
    .broadcast = host_broadcast,
    .barrier = host_barrier,
};

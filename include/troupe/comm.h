/* comm.h: collectives between the ranks of one attempt.
 *
 * Every collective has a deadline and is abortable from another thread; its error names the
 * operation, its sequence number and the ranks that are missing. Sums are made in fp32, in rank
 * order, so a run is bit-repeatable. After any failure the communicator is broken: every later call
 * returns TRP_ECOMM_ABORTED, and only trp_comm_close() is left to do.
 *
 * Threads: one owner thread makes the calls; trp_comm_abort() may come from any thread (not from
 * a signal handler). Blocking: every collective, up to the communicator's timeout. */
#ifndef TROUPE_COMM_H
#define TROUPE_COMM_H

#include <troupe/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trp_comm trp_comm;

/* What rank 0 makes first: a meeting place whose address goes to every rank by the control plane.
 * It owns no name in the file system: it is gone when the last process that holds it is. */
typedef struct trp_comm_root trp_comm_root;

/* kind: "self" (one rank) or "host" (ranks on one host, shared memory). `token` is a number that
 * the ranks of one attempt share; a rank that brings another one is refused. */
TRP_CHECKED trp_code trp_comm_root_open(const char *kind, int world, uint64_t token,
                                        trp_comm_root **ret_root, trp_error *err);
const char *trp_comm_root_address(const trp_comm_root *root); /* lives as long as root */
void trp_comm_root_close(trp_comm_root *root); /* after rank 0 has joined; NULL is fine */

typedef struct trp_comm_options { /* zero-initialize what has a default */
    const char *address;          /* of the root; copied */
    int rank, world;
    uint64_t token;
    uint64_t timeout_ms;      /* 1 800 000; for each collective ... */
    uint64_t join_timeout_ms; /* ... and for joining; timeout_ms */
} trp_comm_options;

/* Joins, and waits for all ranks to have joined. TRP_ETIMEOUT names the ranks that are missing. */
TRP_CHECKED trp_code trp_comm_open(const trp_comm_options *options, trp_comm **ret_comm,
                                   trp_error *err);
/* Never waits for a peer. A rank that leaves without abort lets the others finish what they have
 * all of its data for. NULL is fine. */
void trp_comm_close(trp_comm *comm);
/* Breaks the communicator on every rank of it; all that wait in it return within 10 ms. */
void trp_comm_abort(trp_comm *comm);

int trp_comm_rank(const trp_comm *comm);
int trp_comm_world(const trp_comm *comm);

typedef enum trp_reduce { TRP_REDUCE_SUM, TRP_REDUCE_AVERAGE, TRP_REDUCE_MAX } trp_reduce;

/* data (count): every rank ends with the reduction. F32, BF16, I32 (no average). */
TRP_CHECKED trp_code trp_comm_all_reduce(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                         trp_reduce op, trp_error *err);
/* data (world * count): rank r ends with the reduction of slice r in place, at data + r * count;
 * the other slices are left undefined. */
TRP_CHECKED trp_code trp_comm_reduce_scatter(trp_comm *comm, void *data, int64_t count,
                                             trp_dtype dtype, trp_reduce op, trp_error *err);
/* data (world * count): rank r brings slice r, all end with all slices, in place. */
TRP_CHECKED trp_code trp_comm_all_gather(trp_comm *comm, void *data, int64_t count, trp_dtype dtype,
                                         trp_error *err);
TRP_CHECKED trp_code trp_comm_broadcast(trp_comm *comm, void *data, size_t bytes, int root,
                                        trp_error *err);
TRP_CHECKED trp_code trp_comm_barrier(trp_comm *comm, trp_error *err);

/* Bytes that this rank has sent, counted as a ring would: all-gather and reduce-scatter
 * (world-1)/world of the data, all-reduce twice that. */
uint64_t trp_comm_bytes_sent(const trp_comm *comm);

#ifdef __cplusplus
}
#endif
#endif

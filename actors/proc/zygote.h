/* zygote.h: what a node daemon and the zygotes of its programs say to each other, over a
 * SOCK_SEQPACKET pair. Both run on one host but may be built from different versions of troupe, so
 * every message says which. */
#ifndef TRPI_ZYGOTE_H
#define TRPI_ZYGOTE_H

#include <stdint.h>

#define TRPI_ZYGOTE_MAGIC UINT32_C(0x74727a31) /* changes with these structs */

/* What a zygote, and so each worker, is told by its environment; the same for all workers of a
 * node's registration. */
#define TRPI_ENV_NODE "TROUPE_NODE"         /* the node's id */
#define TRPI_ENV_NODE_PID "TROUPE_NODE_PID" /* whose child every worker is */
#define TRPI_ENV_NODE_DIR "TROUPE_NODE_DIR" /* of sockets */
#define TRPI_ENV_HOST "TROUPE_HOST"         /* "" = loopback only */
#define TRPI_ENV_ADDRESS "TROUPE_ADDRESS"   /* of the head */

/* What the driver of a submitted job is told, besides the address. */
#define TRPI_ENV_JOB "TROUPE_JOB"         /* its number, for CLIENT_HELLO.submission */
#define TRPI_ENV_PACKAGE "TROUPE_PACKAGE" /* hash of its working directory, for its workers; "" */

/* The dynamic linker's, for the zygote alone: what is bound there once is not looked up by every
 * worker, which costs each 0.1 ms and 0.7 MB of pages touched in libraries' tables of names. */
#define TRPI_ENV_BIND_NOW "LD_BIND_NOW"

/* node -> zygote, with two descriptors: the worker's stdout and stderr. */
typedef struct trpi_fork_request {
    uint32_t magic;
    uint32_t reserved; /* 0 */
    uint64_t token;    /* names the worker; never used twice by one daemon */
} trpi_fork_request;

/* zygote -> node. Token 0: the zygote has reached trp_init() and takes requests. */
typedef struct trpi_fork_reply {
    uint32_t magic;
    int32_t error; /* errno of a fork that failed, else 0 */
    uint64_t token;
    int64_t pid;
} trpi_fork_reply;

#endif

/* resources.h: amounts of what nodes have and actors ask for, counted exactly.
 *
 * An amount is fixed point, 1/10000: what is taken and given back ten thousand times is what it
 * was. A request is a list of amounts. A pool is what something has: a node, or a bundle of a
 * placement group, whose pool was cut out of a node's. Taking a request out of a pool fills a
 * grant, giving the grant back empties it, and neither can be done twice.
 *
 * "gpu" is more than an amount: it is made of devices, each a unit of 10000. Whole gpus are whole
 * devices that nobody else holds; a fraction sits on one device, the fullest on which it fits. */
#ifndef TRPI_RESOURCES_H
#define TRPI_RESOURCES_H

#include "core/state/index.h"
#include "core/wire/msg.h"

#define TRPI_ONE 10000                     /* the amount 1 */
#define TRPI_AMOUNT_MAX ((int64_t)1 << 46) /* sums over all nodes or bundles fit too */
#define TRPI_RESOURCES_MAX 64              /* of one request or pool */
#define TRPI_RESOURCE_NAMES_MAX 4096
#define TRPI_RESOURCE_NAME_MAX 64 /* bytes */

/* Names of resources get small numbers, in the order in which they are first heard of. */
typedef enum { TRPI_CPU, TRPI_GPU, TRPI_MEMORY, TRPI_FIRST_USER_RESOURCE } trpi_known_resource;

typedef struct trpi_resource_names {
    trpi_index numbers; /* name -> number + 1 */
    char **names;
    size_t count;
} trpi_resource_names;

void trpi_resource_names_init(trpi_resource_names *names); /* knows cpu, gpu and memory */
void trpi_resource_names_release(trpi_resource_names *names);
const char *trpi_resource_name(const trpi_resource_names *names, uint32_t resource);

/* "2", "0.5", "0.0001", without trailing zeros. */
void trpi_amount_text(int64_t amount, char *out, size_t size);

typedef struct trpi_amount {
    uint32_t resource;
    int64_t amount; /* above 0 */
} trpi_amount;

typedef struct trpi_request {
    trpi_amount *amounts; /* in rising order of resource, each once */
    size_t count;
} trpi_request; /* zeroed = asks for nothing */

/* From the wire. TRP_EINVALID: negative or too large, named twice, gpu above 1 that is not whole;
 * TRP_EBUSY: too many different names. Zero amounts are left out. */
TRP_CHECKED trp_code trpi_request_parse(trpi_resource_names *names, const trpi_resource *list,
                                        size_t count, trpi_request *ret_request, trp_error *err);
void trpi_request_release(trpi_request *request);
int64_t trpi_request_amount(const trpi_request *request, uint32_t resource); /* or 0 */
void trpi_request_add(trpi_request *sum, const trpi_request *more);          /* allocates */
/* "2 cpu, 0.5 gpu"; "nothing" when empty. */
void trpi_request_text(const trpi_request *request, const trpi_resource_names *names, char *out,
                       size_t size);

typedef struct trpi_share {
    uint32_t resource;
    int64_t total, free;
} trpi_share;

typedef struct trpi_slot { /* a device, or the part of one that belongs to a bundle */
    uint32_t device;       /* index into the node's list of devices */
    int64_t total, free;
} trpi_slot;

typedef struct trpi_pool {
    trpi_share *shares; /* in rising order of resource; gpu's sums up the slots */
    size_t share_count;
    trpi_slot *slots; /* in rising order of device */
    size_t slot_count;
} trpi_pool; /* zeroed = has nothing */

typedef struct trpi_part {
    uint32_t device;
    int64_t amount;
} trpi_part;

/* What was taken for one request. The amounts are the request's; here is on which devices. */
typedef struct trpi_grant {
    bool held;
    trpi_part *parts; /* in rising order of device */
    size_t part_count;
} trpi_grant; /* zeroed = holds nothing */

/* A pool of exactly these amounts: every gpu is a slot of its own, a fraction of one is one slot.
 */
void trpi_pool_init(trpi_pool *pool, const trpi_request *has);
/* A bundle's pool: exactly what the grant holds, on the same devices. */
void trpi_pool_init_from_grant(trpi_pool *pool, const trpi_request *request,
                               const trpi_grant *grant);
void trpi_pool_release(trpi_pool *pool);

int64_t trpi_pool_total(const trpi_pool *pool, uint32_t resource);
int64_t trpi_pool_free(const trpi_pool *pool, uint32_t resource);
bool trpi_pool_unused(const trpi_pool *pool);                            /* everything is free */
bool trpi_pool_fits(const trpi_pool *pool, const trpi_request *request); /* now */
bool trpi_pool_could_fit(const trpi_pool *pool, const trpi_request *request); /* when unused */
/* What one request can take of a resource at most, now or when unused: for gpu that is the number
 * of untouched devices, or the largest part of one. */
int64_t trpi_pool_most(const trpi_pool *pool, uint32_t resource, bool when_unused);

/* Takes all of the request or, returning false, nothing. *grant must hold nothing. */
TRP_CHECKED bool trpi_pool_take(trpi_pool *pool, const trpi_request *request, trpi_grant *grant);
/* Gives back what trpi_pool_take() took for this request; *grant must hold it, and is emptied. */
void trpi_pool_give(trpi_pool *pool, const trpi_request *request, trpi_grant *grant);
void trpi_grant_drop(trpi_grant *grant); /* its pool is gone: forgets what it held */

/* NULL, or which invariant is broken: 0 <= free <= total, gpu's share = the sum of its slots. */
const char *trpi_pool_check(const trpi_pool *pool);

#endif

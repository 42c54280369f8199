/* objects_parts.h: what the files of objects.h share.
 *
 *   objects.c       what is held, and how often
 *   objects_link.c  the connection: requests and their answers
 *   objects_maps.c  mappings; those that are in no use now are kept for the next object in the same
 *                   memory, since to map a GiB anew costs as much as to copy it */
#ifndef TRPI_OBJECTS_PARTS_H
#define TRPI_OBJECTS_PARTS_H

#include <pthread.h>

#include "actors/proc/objects.h"
#include "core/base/arena.h"
#include "core/base/table.h"
#include "core/wire/codec.h"

typedef struct trpi_mapping {
    struct trpi_mapping *next;
    uint64_t segment;
    void *data;
    size_t bytes;
    bool writable, in_use;
    uint64_t left_ns; /* when it was used last */
} trpi_mapping;

typedef struct trpi_maps {
    trpi_mapping *first;
    size_t kept_bytes, kept_count; /* in no use */
} trpi_maps;

/* An object that this process holds. */
typedef struct trpi_owned {
    uint64_t object;
    uint64_t count; /* as often as it must be released */
    uint64_t told;  /* holds of ours that the store counts ... */
    uint64_t life;  /* ... on the connection of that number; another one: the store has forgotten */
    size_t size;
    trpi_mapping *mapping; /* NULL: it is held only */
    bool is_open;          /* being written */
} trpi_owned;

/* A request under way; lives on the requester's stack. */
typedef struct trpi_asked {
    uint64_t request;
    pthread_cond_t wake;
    bool is_over;
    trp_error error; /* code OK: there is an answer */
    trp_buf frame;   /* of the answer, which msg borrows from */
    trpi_arena arena;
    trpi_msg msg;
    int fd; /* that came with it; -1 = none */
    struct trpi_asked *next;
} trpi_asked;

struct trpi_objects {
    trpi_objects_options options;
    char label[64];
    pthread_mutex_t lock;
    pthread_cond_t changed; /* nobody connects any more */
    bool is_connecting;
    int fd;         /* -1 = no connection */
    unsigned users; /* threads that use fd without the lock: it is closed when the last is gone */
    bool is_broken;
    uint64_t life;   /* counts connections */
    uint64_t client; /* as told to the store */
    uint64_t requests;
    trpi_asked *asked;
    bool is_led; /* a thread waits at the socket, for all */
    trp_buf frame;
    trpi_table held; /* trpi_owned by object */
    trpi_maps maps;
};

/* ---- objects_link.c. The lock is not held, unless it says so ---- */

/* Connects if need be, sends msg (its request number is filled in) and waits for the answer. On
 * success the answer is the caller's, to be given back by trpi_asked_release(). */
TRP_CHECKED trp_code trpi_objects_ask(trpi_objects *objects, trpi_msg *msg, trpi_msg_type answer,
                                      uint64_t timeout_ms, trpi_asked *ret_asked, trp_error *err);
void trpi_asked_release(trpi_asked *asked);
/* A message that has no answer; dropped when there is no connection. Locked. */
void trpi_objects_post(trpi_objects *objects, const trpi_msg *msg);
TRP_CHECKED trp_code trpi_objects_connect(trpi_objects *objects, trp_error *err);
void trpi_objects_disconnect(trpi_objects *objects); /* at the end */
/* Whether the store has closed the connection. Locked. */
bool trpi_objects_is_cut(trpi_objects *objects);

/* ---- objects_maps.c. Locked ---- */

/* The segment's memory; fd (-1: none came) stays the caller's. */
TRP_CHECKED trp_code trpi_maps_use(trpi_maps *maps, uint64_t segment, size_t bytes, bool writable,
                                   int fd, trpi_mapping **ret_mapping, trp_error *err);
/* In no use any more; is kept, unless it must not be or there are many. */
void trpi_maps_leave(trpi_maps *maps, trpi_mapping *mapping, bool keep);
void trpi_maps_expire(trpi_maps *maps, uint64_t older_than_ns);
void trpi_maps_release(trpi_maps *maps); /* all, those in use as well */

#endif

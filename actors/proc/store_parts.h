/* store_parts.h: the store's thread: its own structs, and what its files call of each other.
 *
 *   store_server.c    the thread: waits, feeds the machine, carries out what it says
 *   store_sessions.c  connections of processes
 *   store_links.c     connections to and from other stores
 *   store_words.c     what is handed over between the thread and the daemon's loop */
#ifndef TRPI_STORE_SERVER_PARTS_H
#define TRPI_STORE_SERVER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "actors/proc/node_map.h"
#include "actors/proc/store_server.h"
#include "core/net/sock.h"
#include "core/wire/codec.h"

/* An answer that the process has not taken yet. */
typedef struct trpi_store_unsent {
    struct trpi_store_unsent *next;
    uint64_t segment; /* whose descriptor goes with it; 0 = none */
    bool writable;
    trp_buf frame;
} trpi_store_unsent;

typedef struct trpi_store_session {
    uint64_t id;
    int fd, pidfd;
    trpi_store_unsent *first, *last;
    bool is_full;    /* watched for room */
    size_t unsent;   /* answers in the list */
    bool is_refused; /* to be closed after this round */
} trpi_store_session;

/* Another node's store, as an asker sees it. */
typedef struct trpi_store_link {
    uint64_t node;
    uint64_t connection; /* names it on our socket; 0 = where it is, is not known */
    char endpoint[160];
    trp_buf *unsent; /* frames */
    size_t unsent_count;
} trpi_store_link;

typedef struct trpi_store_memory {
    int fd;
    uint64_t bytes;
} trpi_store_memory;

/* Frames from one thread to another. */
typedef struct trpi_store_frames {
    trp_buf *items;
    size_t count, capacity;
} trpi_store_frames;

struct trpi_store_server {
    /* Set before the thread starts. */
    trpi_store_config config;
    size_t descriptors_max;
    char path[108], endpoint[160], name[24];
    int event_fd;
    pthread_t thread;
    bool is_running;

    /* Between the threads, under the lock. */
    pthread_mutex_t lock;
    trpi_store_frames told, words;
    bool must_stop;
    trpi_store_figures figures;
    int told_fd;

    /* The thread's own. */
    int epoll_fd, listen_fd;
    trpi_net *net;
    trpi_sock *serving, *asking; /* ROUTERs: bound; connected to other stores */
    trpi_store *machine;
    trpi_store_actions actions;
    trpi_map sessions, links, memory; /* by session, node, segment */
    uint64_t last_session, last_connection;
    trpi_arena arena;
    trp_buf frame, received;
    uint64_t refused;        /* messages that were none */
    uint64_t failed_segment; /* no memory for it; one at a time is enough, since a step makes one */
    trp_error failure;
    bool has_refused; /* a session is to be closed */
};

/* store_server.c */
void trpi_store_feed(trpi_store_server *server, trpi_store_event *event, trp_bytes body);

/* store_sessions.c */
TRP_CHECKED trp_code trpi_store_sessions_open(trpi_store_server *server, trp_error *err);
void trpi_store_sessions_close(trpi_store_server *server);
void trpi_store_accept(trpi_store_server *server);
void trpi_store_session_ready(trpi_store_server *server, uint64_t id, unsigned events);
void trpi_store_session_died(trpi_store_server *server, uint64_t id);
void trpi_store_session_answer(trpi_store_server *server, const trpi_store_action *action);
void trpi_store_session_refuse(trpi_store_server *server, const trpi_store_action *action);
void trpi_store_sessions_reap(trpi_store_server *server); /* those that are refused */

/* store_links.c */
TRP_CHECKED trp_code trpi_store_links_open(trpi_store_server *server, const char *uuid,
                                           const char *host, trp_error *err);
TRP_CHECKED trp_code trpi_store_links_serve(trpi_store_server *server, trp_error *err);
void trpi_store_links_close(trpi_store_server *server);
void trpi_store_links_read(trpi_store_server *server);
void trpi_store_link_ask(trpi_store_server *server, const trpi_store_action *action);
void trpi_store_link_reply(trpi_store_server *server, const trpi_store_action *action);
void trpi_store_link_find(trpi_store_server *server, uint64_t node);
void trpi_store_link_found(trpi_store_server *server, const trpi_msg_store_at *at);
void trpi_store_link_drop(trpi_store_server *server, uint64_t node);
void trpi_store_asker_gone(trpi_store_server *server, uint64_t node, uint64_t incarnation);

/* store_words.c */
void trpi_store_frames_add(trpi_store_frames *frames, trp_bytes frame);
void trpi_store_frames_release(trpi_store_frames *frames);
void trpi_store_say(trpi_store_server *server, const trpi_msg *msg); /* to the head */

#endif

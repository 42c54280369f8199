/* head_watch.h: processes on the head's own host, whose end is known at once through pidfds.
 * Silence is the only evidence for all others. */
#ifndef TRPI_HEAD_WATCH_H
#define TRPI_HEAD_WATCH_H

#include "core/base/table.h"

typedef struct trpi_watch {
    int epoll_fd;
    trpi_table entries; /* number -> entry */
    trpi_table by_pid;  /* 2 * pid + is_node -> entry: a process that comes again replaces itself */
    trpi_table ended;   /* number -> entry: gone, not told yet */
    uint64_t last;
    uint64_t due_ns;   /* when the first of those is to be told; UINT64_MAX = none */
    char host_id[256]; /* ours */
} trpi_watch;

typedef struct trpi_watch_event {
    bool is_node;
    uint64_t id, incarnation;
} trpi_watch_event;

TRP_CHECKED trp_code trpi_watch_open(trpi_watch *watch, trp_error *err);
void trpi_watch_close(trpi_watch *watch);
/* If host_id is ours. A process that does not exist any more is noticed at the next
 * trpi_watch_next(). */
void trpi_watch_add(trpi_watch *watch, const trpi_watch_event *who, int64_t pid,
                    const char *host_id);
/* The next process whose end is to be told; false if none. Never blocks; epoll_fd (level-triggered)
 * and due_ns tell when to ask. */
bool trpi_watch_next(trpi_watch *watch, uint64_t now_ns, trpi_watch_event *ret_event);

#endif

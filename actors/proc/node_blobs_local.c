/* Whether a file of this host is the one that a driver has: by its hash, which is remembered as
 * long as the file stays the same.
 *
 * The first part of a file is read at once, which is all of most programs: a driver on this host
 * has just done so, too. The rest of a huge one is read between other work. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/node_blobs.h"
#include "actors/proc/node_parts.h"
#include "core/net/clock.h"

#define SLICE_BYTES ((uint64_t)16 << 20) /* some 3 ms, from the page cache */
#define LOCALS_MAX 64

static void stop_reading(trpi_local_file *file) {
    if (file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
    }
    trpi_hasher_free(file->hasher);
    file->hasher = NULL;
}

static void local_free(trpi_node *node, trpi_local_file *file) {
    stop_reading(file);
    TAILQ_REMOVE(&node->blobs.locals, file, link);
    node->blobs.local_count--;
    free(file);
}

void trpi_local_clear(trpi_node *node) {
    trpi_local_file *file;
    while ((file = TAILQ_FIRST(&node->blobs.locals)) != NULL) {
        local_free(node, file);
    }
}

static void go_on_soon(trpi_node *node) {
    if (!node->blobs.local_due) {
        node->blobs.local_due = true;
        trpi_node_timer(node, TRPI_TIMER_BLOB, 0, trpi_now_ns());
    }
}

/* Reads one slice. False: it can't be read, and the record is gone. */
static bool read_slice(trpi_node *node, trpi_local_file *file) {
    bool is_end = false;
    if (trpi_content_add(file->fd, file->path, SLICE_BYTES, file->hasher, &is_end, NULL) !=
        TRP_OK) {
        local_free(node, file);
        return false;
    }
    if (is_end) {
        trpi_file_id now;
        trpi_hasher_hex(file->hasher, file->hash);
        bool same = trpi_file_id_of(file->fd, file->path, &now, NULL) == TRP_OK &&
                    trpi_file_id_equal(&now, &file->id);
        stop_reading(file);
        if (!same) { /* it was written meanwhile: this hash is nobody's */
            local_free(node, file);
            return false;
        }
    }
    return true;
}

void trpi_local_go_on(trpi_node *node) {
    trpi_local_file *file, *next;
    bool any_done = false;
    node->blobs.local_due = false;
    TRPI_TAILQ_FOREACH_SAFE(file, &node->blobs.locals, link, next) {
        if (file->fd >= 0) {
            any_done |= !read_slice(node, file) || file->fd < 0;
        }
    }
    TAILQ_FOREACH(file, &node->blobs.locals, link) {
        if (file->fd >= 0) {
            go_on_soon(node);
        }
    }
    if (any_done) {
        trpi_programs_go_on(node);
    }
}

static trpi_local_file *find(trpi_node *node, const trpi_file_id *id) {
    trpi_local_file *file;
    TAILQ_FOREACH(file, &node->blobs.locals, link) {
        if (trpi_file_id_equal(&file->id, id)) {
            TAILQ_REMOVE(&node->blobs.locals, file, link);
            TAILQ_INSERT_HEAD(&node->blobs.locals, file, link);
            return file;
        }
    }
    return NULL;
}

/* Takes the descriptor. */
static trpi_local_file *begin(trpi_node *node, const char *path, const trpi_file_id *id, int fd) {
    trpi_hasher *hasher = trpi_hasher_new();
    if (!hasher) {
        close(fd);
        return NULL;
    }
    if (node->blobs.local_count >= LOCALS_MAX) {
        local_free(node, TAILQ_LAST(&node->blobs.locals, trpi_local_list));
    }
    trpi_local_file *file = trpi_alloc(sizeof *file);
    file->id = *id;
    TRPI_SET(file->path, path);
    file->fd = fd;
    file->hasher = hasher;
    TAILQ_INSERT_HEAD(&node->blobs.locals, file, link);
    node->blobs.local_count++;
    return read_slice(node, file) ? file : NULL;
}

trp_code trpi_local_is(trpi_node *node, const char *path, const char *hash) {
    trpi_file_id id;
    /* One that we may not run is as good as none. */
    if (path[0] != '/' || access(path, R_OK | X_OK) != 0 ||
        trpi_file_id_of(-1, path, &id, NULL) != TRP_OK) {
        return TRP_ENOTFOUND;
    }
    trpi_local_file *file = find(node, &id);
    if (!file) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || trpi_file_id_of(fd, path, &id, NULL) != TRP_OK) {
            if (fd >= 0) {
                close(fd);
            }
            return TRP_ENOTFOUND;
        }
        file = begin(node, path, &id, fd);
    }
    if (file && file->fd >= 0) {
        go_on_soon(node);
        return TRP_EBUSY;
    }
    return file && strcmp(file->hash, hash) == 0 ? TRP_OK : TRP_ENOTFOUND;
}

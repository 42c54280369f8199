#include "actors/proc/head_blobs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/times.h"
#include "core/sys/content.h"
#include "core/sys/file.h"

#define PART_BYTES_MAX ((uint64_t)4 << 20) /* of one answer */
#define WAIT_MS 2000                       /* then who waits is told to ask again */
#define WANT_AGAIN_MS 1000                 /* a driver is not asked more often than this */
#define WAITERS_MAX 10000
#define FILES_MAX 10000
#define ABANDONED_MS 60000 /* an upload that has not moved for this long may go */
#define MIB (1024.0 * 1024.0)

typedef struct blob_file {
    char hash[TRPI_HASH_TEXT];
    uint64_t size, offset; /* offset: how much is here */
    bool is_whole;
    int fd;              /* while it is uploaded */
    trpi_hasher *hasher; /* likewise */
    uint64_t used_ns;
    TAILQ_ENTRY(blob_file) link;
} blob_file;

typedef struct blob_waiter {
    uint64_t peer, due_ns;
    trpi_msg_blob_get get; /* its hash is the one below */
    char hash[TRPI_HASH_TEXT];
    TAILQ_ENTRY(blob_waiter) link;
} blob_waiter;

TAILQ_HEAD(blob_file_list, blob_file);
TAILQ_HEAD(blob_waiter_list, blob_waiter);

struct trpi_head_blobs {
    char dir[256];
    bool has_dir;
    trpi_head_blobs_calls calls;
    struct blob_file_list files;
    struct blob_waiter_list waiters; /* in the order of their deadlines */
    size_t file_count, waiter_count;
    trp_buf part;                    /* of the answer that is being sent */
    char wanted[TRPI_HASH_TEXT];     /* asked for last ... */
    uint64_t wanted_peer, wanted_ns; /* ... of whom, and when */
};

/* ---- Files ---- */

static void path_of(const trpi_head_blobs *blobs, const blob_file *file, char *out, size_t size) {
    trpi_format(out, size, "%s/%s%s", blobs->dir, file->hash, file->is_whole ? "" : ".part");
}

static blob_file *find(const trpi_head_blobs *blobs, const char *hash) {
    blob_file *file;
    TAILQ_FOREACH(file, &blobs->files, link) {
        if (strcmp(file->hash, hash) == 0) {
            return file;
        }
    }
    return NULL;
}

static void close_file(blob_file *file) {
    if (file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
    }
    trpi_hasher_free(file->hasher);
    file->hasher = NULL;
}

static void drop_file(trpi_head_blobs *blobs, blob_file *file) {
    char path[512];
    path_of(blobs, file, path, sizeof(path));
    close_file(file);
    (void)unlink(path);
    TAILQ_REMOVE(&blobs->files, file, link);
    blobs->file_count--;
    free(file);
}

static bool may_go(const trpi_head_blobs *blobs, const blob_file *file, uint64_t now_ns) {
    if (!file->is_whole) {
        return now_ns - file->used_ns >= ABANDONED_MS * TRPI_NS_PER_MS;
    }
    return !blobs->calls.is_used(blobs->calls.arg, file->hash);
}

static trp_code make_room(trpi_head_blobs *blobs, uint64_t size, uint64_t now_ns, trp_error *err) {
    uint64_t max = trpi_config(TRPI_CONFIG_BLOB_BYTES);
    for (;;) {
        uint64_t used = 0;
        blob_file *file, *oldest = NULL;
        TAILQ_FOREACH(file, &blobs->files, link) {
            used += file->size;
            if ((!oldest || file->used_ns < oldest->used_ns) && may_go(blobs, file, now_ns)) {
                oldest = file;
            }
        }
        if (size <= max && used <= max - size && blobs->file_count < FILES_MAX) {
            return TRP_OK;
        }
        if (!oldest) {
            return trpi_fail(err, TRP_EBUSY,
                             "the head keeps at most %.1f MiB of executables and working "
                             "directories (TROUPE_BLOB_BYTES), %.1f are in use and this one has "
                             "%.1f MiB",
                             (double)max / MIB, (double)used / MIB, (double)size / MIB);
        }
        drop_file(blobs, oldest);
    }
}

/* ---- Uploads ---- */

static trp_code check_put(const trpi_msg_blob_put *put, trp_error *err) {
    uint64_t max = trpi_config(TRPI_CONFIG_PACKAGE_BYTES_MAX);
    if (!trpi_is_hash(put->hash)) {
        return trpi_fail(err, TRP_EINVALID, "\"%.64s\" is no hash of a content", put->hash);
    }
    if (put->size == 0 || put->size > max) {
        return trpi_fail(err, TRP_EINVALID,
                         "a file of %.1f MiB: the cluster sends files of 1 byte to %.1f MiB "
                         "(TROUPE_PACKAGE_BYTES_MAX of the head)",
                         (double)put->size / MIB, (double)max / MIB);
    }
    if (put->offset > put->size || put->data.size > put->size - put->offset) {
        return trpi_fail(err, TRP_EINVALID, "a part that reaches beyond the end of its file");
    }
    return TRP_OK;
}

static trp_code begin(trpi_head_blobs *blobs, const trpi_msg_blob_put *put, uint64_t now_ns,
                      blob_file **ret_file, trp_error *err) {
    char path[512];
    trp_code code = make_room(blobs, put->size, now_ns, err);
    if (code == TRP_OK) {
        code = trpi_dir_make(blobs->dir, 0700, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    blobs->has_dir = true;
    blob_file *file = trpi_alloc(sizeof(*file));
    TRPI_SET(file->hash, put->hash);
    file->size = put->size;
    file->used_ns = now_ns;
    path_of(blobs, file, path, sizeof(path));
    file->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    file->hasher = trpi_hasher_new();
    TAILQ_INSERT_TAIL(&blobs->files, file, link);
    blobs->file_count++;
    if (file->fd < 0 || file->hasher == NULL) {
        code = trpi_fail(err, TRP_EIO, "create %s: %s", path, strerror(errno));
        drop_file(blobs, file);
        return code;
    }
    *ret_file = file;
    return TRP_OK;
}

/* The last part is here. */
static trp_code finish(trpi_head_blobs *blobs, blob_file *file, trp_error *err) {
    char hash[TRPI_HASH_TEXT], part[512], path[512];
    trpi_hasher_hex(file->hasher, hash);
    close_file(file);
    if (strcmp(hash, file->hash) != 0) {
        return trpi_fail(err, TRP_ECORRUPT, "what came has the hash %s instead of %s", hash,
                         file->hash);
    }
    path_of(blobs, file, part, sizeof(part));
    file->is_whole = true;
    path_of(blobs, file, path, sizeof(path));
    if (rename(part, path) != 0) {
        file->is_whole = false;
        return trpi_fail(err, TRP_EIO, "%s: %s", path, strerror(errno));
    }
    trpi_log(TRPI_INFO, "blob_here", "hash=%s bytes=%llu", file->hash,
             (unsigned long long)file->size);
    return TRP_OK;
}

/* The part of it that is new here, if any. */
static trp_code append(trpi_head_blobs *blobs, blob_file *file, const trpi_msg_blob_put *put,
                       trp_error *err) {
    char path[512];
    if (put->offset > file->offset) {
        return trpi_fail(err, TRP_EINVALID, "a part at %llu, where %llu was next: begin again",
                         (unsigned long long)put->offset, (unsigned long long)file->offset);
    }
    uint64_t known = TRPI_MIN(file->offset - put->offset, (uint64_t)put->data.size);
    trp_bytes fresh = {(const char *)put->data.data + known, put->data.size - (size_t)known};
    path_of(blobs, file, path, sizeof(path));
    trp_code code = trpi_write_on(file->fd, path, fresh, err);
    if (code == TRP_OK) {
        trpi_hasher_add(file->hasher, fresh.data, fresh.size);
        file->offset += fresh.size;
    }
    return code == TRP_OK && file->offset == file->size ? finish(blobs, file, err) : code;
}

static trp_code take_put(trpi_head_blobs *blobs, const trpi_msg_blob_put *put, uint64_t now_ns,
                         trp_error *err) {
    trp_code code = check_put(put, err);
    if (code != TRP_OK) {
        return code;
    }
    blob_file *file = find(blobs, put->hash);
    if (file != NULL && file->size != put->size) {
        return trpi_fail(err, TRP_EINVALID, "%s has %llu bytes here, and %llu there", put->hash,
                         (unsigned long long)file->size, (unsigned long long)put->size);
    }
    bool asks = put->data.size == 0 && put->offset == 0;
    if (file != NULL && file->is_whole) {
        file->used_ns = now_ns;
        return asks ? trpi_fail(err, TRP_EEXISTS, "the head has it") : TRP_OK;
    }
    if (asks) {
        return file != NULL ? TRP_OK : make_room(blobs, put->size, now_ns, err);
    }
    if (file == NULL) {
        code = begin(blobs, put, now_ns, &file, err);
    }
    if (code == TRP_OK) {
        file->used_ns = now_ns;
        code = append(blobs, file, put, err);
        /* Whose word was false can't be known: all of it goes, and both may begin again. */
        if (code != TRP_OK && code != TRP_EINVALID) {
            drop_file(blobs, file);
        }
    }
    return code;
}

/* ---- Downloads ---- */

static void send_data(trpi_head_blobs *blobs, uint64_t peer, uint64_t request, uint64_t total,
                      trp_code code, const trp_error *err) {
    trpi_msg msg = {.type = TRPI_MSG_BLOB_DATA,
                    .blob_data = {.request = request,
                                  .code = code,
                                  .message = code == TRP_OK ? "" : err->message,
                                  .total = total,
                                  .data = trp_buf_bytes(&blobs->part)}};
    blobs->calls.send(blobs->calls.arg, peer, &msg);
    trp_buf_release(&blobs->part);
}

static trp_code read_part(trpi_head_blobs *blobs, const blob_file *file,
                          const trpi_msg_blob_get *get, trp_error *err) {
    char path[512];
    path_of(blobs, file, path, sizeof(path));
    uint64_t offset = TRPI_MIN(get->offset, file->size);
    uint64_t size = TRPI_MIN(TRPI_MIN(get->size, PART_BYTES_MAX), file->size - offset);
    if (trp_buf_reserve(&blobs->part, (size_t)size) != TRP_OK) {
        return trpi_fail(err, TRP_ENOMEM, "the head has no memory for a part of a file");
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return trpi_fail(err, TRP_EIO, "open %s: %s", path, strerror(errno));
    }
    trp_code code = trpi_read_at(fd, path, offset, blobs->part.data, (size_t)size, err);
    blobs->part.size = code == TRP_OK ? (size_t)size : 0;
    close(fd);
    return code;
}

static void answer_get(trpi_head_blobs *blobs, uint64_t peer, blob_file *file,
                       const trpi_msg_blob_get *get) {
    trp_error err = {0};
    trp_code code = read_part(blobs, file, get, &err);
    send_data(blobs, peer, get->request, file->size, code, &err);
}

/* ---- Waiting for what is not here yet ---- */

static void wait_for(trpi_head_blobs *blobs, uint64_t peer, const trpi_msg_blob_get *get,
                     uint64_t now_ns) {
    blob_waiter *waiter = trpi_alloc(sizeof(*waiter));
    waiter->peer = peer;
    waiter->get = *get;
    TRPI_SET(waiter->hash, get->hash);
    waiter->get.hash = waiter->hash;
    waiter->due_ns = now_ns + WAIT_MS * TRPI_NS_PER_MS;
    TAILQ_INSERT_TAIL(&blobs->waiters, waiter, link);
    blobs->waiter_count++;
}

static void drop_waiter(trpi_head_blobs *blobs, blob_waiter *waiter) {
    TAILQ_REMOVE(&blobs->waiters, waiter, link);
    blobs->waiter_count--;
    free(waiter);
}

static void send_busy(trpi_head_blobs *blobs, uint64_t peer, uint64_t request) {
    trp_error err;
    trpi_fail(&err, TRP_EBUSY, "it is on its way to the head: ask again");
    send_data(blobs, peer, request, 0, TRP_EBUSY, &err);
}

/* Many nodes ask for one file at once; its driver is asked once in a while. */
static void want(trpi_head_blobs *blobs, uint64_t holder, const char *hash, uint64_t now_ns) {
    if (blobs->wanted_peer == holder && strcmp(blobs->wanted, hash) == 0 &&
        now_ns - blobs->wanted_ns < WANT_AGAIN_MS * TRPI_NS_PER_MS) {
        return;
    }
    blobs->wanted_peer = holder;
    blobs->wanted_ns = now_ns;
    TRPI_SET(blobs->wanted, hash);
    trpi_msg msg = {.type = TRPI_MSG_BLOB_WANTED, .blob_wanted = {.hash = blobs->wanted}};
    blobs->calls.send(blobs->calls.arg, holder, &msg);
}

static void take_get(trpi_head_blobs *blobs, uint64_t peer, const trpi_msg_blob_get *get,
                     uint64_t now_ns) {
    trp_error err = {0};
    blob_file *file = find(blobs, get->hash);
    if (file != NULL && file->is_whole) {
        file->used_ns = now_ns;
        answer_get(blobs, peer, file, get);
        return;
    }
    uint64_t holder =
        trpi_is_hash(get->hash) ? blobs->calls.holder(blobs->calls.arg, get->hash, get->job) : 0;
    if (holder == 0) {
        trpi_fail(&err, TRP_ENOTFOUND,
                  "the head does not have it (%.64s), and no driver that has it is connected",
                  get->hash);
        send_data(blobs, peer, get->request, 0, TRP_ENOTFOUND, &err);
        return;
    }
    want(blobs, holder, get->hash, now_ns);
    if (blobs->waiter_count < WAITERS_MAX) {
        wait_for(blobs, peer, get, now_ns);
    } else {
        send_busy(blobs, peer, get->request);
    }
}

static void answer_waiters(trpi_head_blobs *blobs, const char *hash) {
    blob_file *file = find(blobs, hash);
    for (blob_waiter *waiter = TAILQ_FIRST(&blobs->waiters), *next;
         waiter != NULL && file != NULL && file->is_whole; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (strcmp(waiter->hash, hash) == 0) {
            answer_get(blobs, waiter->peer, file, &waiter->get);
            drop_waiter(blobs, waiter);
        }
    }
}

/* Its driver can't bring it: waiting for it is over. */
static void fail_waiters(trpi_head_blobs *blobs, const char *hash, const trp_error *err) {
    for (blob_waiter *waiter = TAILQ_FIRST(&blobs->waiters), *next; waiter != NULL; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (strcmp(waiter->hash, hash) == 0) {
            send_data(blobs, waiter->peer, waiter->get.request, 0, err->code, err);
            drop_waiter(blobs, waiter);
        }
    }
}

void trpi_head_blobs_tick(trpi_head_blobs *blobs, uint64_t now_ns) {
    blob_waiter *waiter;
    while ((waiter = TAILQ_FIRST(&blobs->waiters)) != NULL && waiter->due_ns <= now_ns) {
        send_busy(blobs, waiter->peer, waiter->get.request);
        drop_waiter(blobs, waiter);
    }
}

uint64_t trpi_head_blobs_wake_ns(const trpi_head_blobs *blobs) {
    const blob_waiter *waiter = TAILQ_FIRST(&blobs->waiters);
    return waiter != NULL ? waiter->due_ns : UINT64_MAX;
}

/* ---- The door ---- */

void trpi_head_blobs_take(trpi_head_blobs *blobs, uint64_t peer, const trpi_msg *msg,
                          uint64_t now_ns) {
    trp_error err = {0};
    if (msg->type == TRPI_MSG_BLOB_GET) {
        take_get(blobs, peer, &msg->blob_get, now_ns);
        return;
    }
    trp_code code = take_put(blobs, &msg->blob_put, now_ns, &err);
    trpi_msg done = {
        .type = TRPI_MSG_DONE,
        .done = {.request = msg->blob_put.request, .code = code, .message = err.message}};
    blobs->calls.send(blobs->calls.arg, peer, &done);
    if (code == TRP_OK || code == TRP_EEXISTS) {
        answer_waiters(blobs, msg->blob_put.hash);
    } else {
        fail_waiters(blobs, msg->blob_put.hash, &err);
    }
}

trpi_head_blobs *trpi_head_blobs_new(const char *dir, const trpi_head_blobs_calls *calls) {
    trpi_head_blobs *blobs = trpi_alloc(sizeof(*blobs));
    TRPI_SET(blobs->dir, dir);
    blobs->calls = *calls;
    TAILQ_INIT(&blobs->files);
    TAILQ_INIT(&blobs->waiters);
    return blobs;
}

void trpi_head_blobs_free(trpi_head_blobs *blobs) {
    blob_file *file;
    trp_error err = {0};
    if (blobs == NULL) {
        return;
    }
    while (!TAILQ_EMPTY(&blobs->waiters)) {
        drop_waiter(blobs, TAILQ_FIRST(&blobs->waiters));
    }
    while ((file = TAILQ_FIRST(&blobs->files)) != NULL) {
        drop_file(blobs, file);
    }
    if (blobs->has_dir && trpi_dir_remove(blobs->dir, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "blobs_left", "dir=%s error=\"%s\"", blobs->dir, err.message);
    }
    trp_buf_release(&blobs->part);
    free(blobs);
}

/* Executables and packages by their hash: who holds what, and how they are fetched from the head.
 *
 * One part at a time is asked for, by a number of its own: an answer that comes twice, or too late,
 * finds nobody. A part that does not come is asked for again; without any progress for as long as a
 * start may take, the fetch has failed. */
#include "actors/proc/node_blobs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"
#include "core/sys/file.h"

#define PART_BYTES ((size_t)1 << 20)
#define ASK_AGAIN_MS 200 /* the head does not have it yet */
#define MIB (1024.0 * 1024.0)

static const char *kind_of(const trpi_blob *blob) {
    return blob->is_package ? "working directory" : "executable";
}

/* ---- The table ---- */

void trpi_blobs_init(trpi_node *node) {
    TAILQ_INIT(&node->blobs.list);
    TAILQ_INIT(&node->blobs.locals);
}

void trpi_blob_path(const trpi_node *node, const trpi_blob *blob, char *out, size_t size) {
    trpi_format(out, size, "%s/%s/%s", node->dir, blob->is_package ? "packages" : "blobs",
                blob->hash);
}

static void part_path(const trpi_node *node, const trpi_blob *blob, char *out, size_t size) {
    trpi_format(out, size, "%s/blobs/%s.%s", node->dir, blob->hash,
                blob->is_package ? "tar" : "part");
}

static trpi_blob *find(const trpi_node *node, const char *hash, bool is_package) {
    trpi_blob *blob;
    TAILQ_FOREACH(blob, &node->blobs.list, link) {
        if (blob->is_package == is_package && strcmp(blob->hash, hash) == 0 &&
            blob->phase != TRPI_BLOB_FAILED) {
            return blob;
        }
    }
    return NULL;
}

static void close_part(trpi_blob *blob) {
    if (blob->fd >= 0) {
        close(blob->fd);
        blob->fd = -1;
    }
    trpi_hasher_free(blob->hasher);
    blob->hasher = NULL;
}

static void blob_free(trpi_node *node, trpi_blob *blob) {
    close_part(blob);
    TAILQ_REMOVE(&node->blobs.list, blob, link);
    free(blob);
}

/* Takes it off the disk, too. */
static void blob_remove(trpi_node *node, trpi_blob *blob) {
    char path[256];
    trp_error err = {0};
    trpi_blob_path(node, blob, path, sizeof path);
    trpi_log(TRPI_INFO, "blob_removed", "hash=%s bytes=%llu", blob->hash,
             (unsigned long long)blob->total);
    if (!blob->is_package) {
        (void)unlink(path);
    } else if (trpi_dir_remove(path, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "package_left", "dir=%s error=\"%s\"", path, err.message);
    }
    blob_free(node, blob);
}

void trpi_blobs_clear(trpi_node *node) {
    trpi_blob *blob;
    while ((blob = TAILQ_FIRST(&node->blobs.list)) != NULL) {
        blob_free(node, blob);
    }
    trpi_local_clear(node);
}

/* Makes room for `bytes`, at the cost of what nobody uses, the one used longest ago first. */
static trp_code make_room(trpi_node *node, uint64_t bytes, trp_error *err) {
    uint64_t max = trpi_config(TRPI_CONFIG_BLOB_BYTES);
    for (;;) {
        uint64_t used = 0;
        trpi_blob *blob, *oldest = NULL;
        TAILQ_FOREACH(blob, &node->blobs.list, link) {
            used += blob->phase == TRPI_BLOB_FAILED ? 0 : blob->total;
            if (blob->phase == TRPI_BLOB_READY && blob->users == 0 &&
                (!oldest || blob->used_ns < oldest->used_ns)) {
                oldest = blob;
            }
        }
        if (bytes <= max && used <= max - bytes) {
            return TRP_OK;
        }
        if (!oldest) {
            return trpi_fail(err, TRP_EBUSY,
                             "%.1f MiB are needed, and %.1f of the %.1f MiB that this node keeps "
                             "of such files (TROUPE_BLOB_BYTES) are in use",
                             (double)bytes / MIB, (double)used / MIB, (double)max / MIB);
        }
        blob_remove(node, oldest);
    }
}

/* ---- How it ends ---- */

void trpi_blob_ready(trpi_node *node, trpi_blob *blob) {
    blob->phase = TRPI_BLOB_READY;
    blob->used_ns = trpi_now_ns();
    trpi_log(TRPI_INFO, "blob_ready", "kind=\"%s\" hash=%s bytes=%llu", kind_of(blob), blob->hash,
             (unsigned long long)blob->total);
    trpi_programs_go_on(node);
    trpi_jobs_go_on(node);
}

void trpi_blob_fail(trpi_node *node, trpi_blob *blob, const trp_error *why) {
    char path[256];
    trpi_fail(&blob->trouble, why->code, "the %s could not be brought to this node: %s",
              kind_of(blob), why->message);
    trpi_log(TRPI_WARN, "blob_failed", "kind=\"%s\" hash=%s error=\"%s\"", kind_of(blob),
             blob->hash, why->message);
    blob->phase = TRPI_BLOB_FAILED;
    blob->request = 0;
    close_part(blob);
    part_path(node, blob, path, sizeof path);
    (void)unlink(path);
    if (blob->users == 0) {
        blob_free(node, blob);
    }
    trpi_programs_go_on(node);
    trpi_jobs_go_on(node);
}

/* ---- Fetching ---- */

void trpi_blob_timer(trpi_node *node, const trpi_blob *blob, uint64_t ms) {
    trpi_node_timer(node, TRPI_TIMER_BLOB, blob->id, trpi_deadline_ns(ms));
}

static void ask(trpi_node *node, trpi_blob *blob) {
    blob->request = ++node->blobs.last_request;
    blob->asked_ns = trpi_now_ns();
    trpi_msg msg = {.type = TRPI_MSG_BLOB_GET,
                    .blob_get = {.request = blob->request,
                                 .hash = blob->hash,
                                 .offset = blob->offset,
                                 .size = PART_BYTES,
                                 .job = blob->job}};
    trpi_node_say(node, &msg);
}

static trpi_blob *fetch(trpi_node *node, const char *hash, bool is_package, uint64_t job) {
    trpi_blob *blob = trpi_alloc(sizeof *blob);
    blob->id = ++node->blobs.last_id;
    TRPI_SET(blob->hash, hash);
    blob->is_package = is_package;
    blob->phase = TRPI_BLOB_FETCHING;
    blob->job = job;
    blob->fd = -1;
    blob->moved_ns = trpi_now_ns();
    TAILQ_INSERT_TAIL(&node->blobs.list, blob, link);
    trpi_log(TRPI_INFO, "blob_wanted", "kind=\"%s\" hash=%s", kind_of(blob), hash);
    ask(node, blob);
    trpi_blob_timer(node, blob, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS));
    return blob;
}

/* The first part tells how much there is. */
static trp_code open_part(trpi_node *node, trpi_blob *blob, uint64_t total, trp_error *err) {
    char dir[192], path[256];
    uint64_t max = trpi_config(TRPI_CONFIG_PACKAGE_BYTES_MAX);
    if (total > max) {
        return trpi_fail(err, TRP_EINVALID,
                         "it has %.1f MiB, and a node takes at most %.1f MiB "
                         "(TROUPE_PACKAGE_BYTES_MAX)",
                         (double)total / MIB, (double)max / MIB);
    }
    trp_code code = make_room(node, total, err);
    trpi_format(dir, sizeof dir, "%s/blobs", node->dir);
    if (code == TRP_OK) {
        code = trpi_dir_make(dir, 0700, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    blob->total = total;
    blob->hasher = trpi_hasher_new();
    part_path(node, blob, path, sizeof path);
    blob->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (blob->fd < 0 || !blob->hasher) {
        return trpi_fail(err, TRP_EIO, "create %s: %s", path, strerror(errno));
    }
    return TRP_OK;
}

static trp_code check_hash(const trpi_blob *blob, trp_error *err) {
    char hash[TRPI_HASH_TEXT];
    trpi_hasher_hex(blob->hasher, hash);
    if (strcmp(hash, blob->hash) != 0) {
        return trpi_fail(err, TRP_ECORRUPT, "what came has the hash %s instead of %s", hash,
                         blob->hash);
    }
    return TRP_OK;
}

/* Closed for writing before it is run: a file that somebody writes can't be. */
static void fetched(trpi_node *node, trpi_blob *blob) {
    char part[256], path[256];
    trp_error err = {0};
    trp_code code = check_hash(blob, &err);
    close_part(blob);
    blob->request = 0;
    part_path(node, blob, part, sizeof part);
    trpi_blob_path(node, blob, path, sizeof path);
    if (code == TRP_OK && blob->is_package) {
        trpi_unpack_start(node, blob, part);
        return;
    }
    if (code == TRP_OK && (chmod(part, 0700) != 0 || rename(part, path) != 0)) {
        code = trpi_fail(&err, TRP_EIO, "%s: %s", path, strerror(errno));
    }
    if (code == TRP_OK) {
        trpi_blob_ready(node, blob);
    } else {
        trpi_blob_fail(node, blob, &err);
    }
}

static trp_code take_part(trpi_node *node, trpi_blob *blob, const trpi_msg_blob_data *data,
                          trp_error *err) {
    char path[256];
    part_path(node, blob, path, sizeof path);
    if (blob->fd < 0) {
        trp_code code = open_part(node, blob, data->total, err);
        if (code != TRP_OK) {
            return code;
        }
    }
    if (data->total != blob->total || data->data.size == 0 ||
        data->data.size > blob->total - blob->offset) {
        return trpi_fail(err, TRP_EPROTOCOL,
                         "the head sent %zu bytes of %llu at %llu, where %llu were expected",
                         data->data.size, (unsigned long long)data->total,
                         (unsigned long long)blob->offset, (unsigned long long)blob->total);
    }
    trpi_hasher_add(blob->hasher, data->data.data, data->data.size);
    blob->offset += data->data.size;
    blob->moved_ns = trpi_now_ns();
    return trpi_write_on(blob->fd, path, data->data, err);
}

static trpi_blob *find_request(const trpi_node *node, uint64_t request) {
    trpi_blob *blob;
    TAILQ_FOREACH(blob, &node->blobs.list, link) {
        if (request != 0 && blob->request == request) {
            return blob;
        }
    }
    return NULL;
}

void trpi_blobs_data(trpi_node *node, const trpi_msg_blob_data *data) {
    trp_error err = {0};
    trpi_blob *blob = find_request(node, data->request);
    if (!blob || blob->phase != TRPI_BLOB_FETCHING) {
        return;
    }
    if (data->code == TRP_EBUSY) {
        blob->request = 0;
        trpi_blob_timer(node, blob, ASK_AGAIN_MS);
        return;
    }
    trp_code code = data->code == TRP_OK
                        ? take_part(node, blob, data, &err)
                        : trpi_fail(&err, (trp_code)data->code, "%s", data->message);
    if (code != TRP_OK) {
        trpi_blob_fail(node, blob, &err);
    } else if (blob->offset == blob->total) {
        fetched(node, blob);
    } else {
        ask(node, blob);
    }
}

static trpi_blob *find_id(const trpi_node *node, uint64_t id) {
    trpi_blob *blob;
    TAILQ_FOREACH(blob, &node->blobs.list, link) {
        if (blob->id == id) {
            return blob;
        }
    }
    return NULL;
}

/* Asks again, or gives up. */
static void fetch_due(trpi_node *node, trpi_blob *blob, uint64_t now_ns) {
    uint64_t request_ms = trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS);
    uint64_t stall_ms = trpi_config(TRPI_CONFIG_START_TIMEOUT_MS);
    if (now_ns - blob->moved_ns >= stall_ms * TRPI_NS_PER_MS) {
        trp_error err = {0};
        trpi_fail(&err, TRP_ETIMEOUT,
                  "nothing of it came from the head for %.1f s (%.1f of %.1f MiB are here)",
                  (double)stall_ms / 1e3, (double)blob->offset / MIB, (double)blob->total / MIB);
        trpi_blob_fail(node, blob, &err);
        return;
    }
    if (blob->request == 0 || now_ns - blob->asked_ns >= request_ms * TRPI_NS_PER_MS) {
        ask(node, blob);
    }
    trpi_blob_timer(node, blob, request_ms);
}

void trpi_blobs_due(trpi_node *node, uint64_t id, uint64_t now_ns) {
    trpi_blob *blob = find_id(node, id);
    if (id == 0) {
        trpi_local_go_on(node);
    } else if (blob && blob->phase == TRPI_BLOB_FETCHING) {
        fetch_due(node, blob, now_ns);
    } else if (blob && blob->phase == TRPI_BLOB_UNPACKING) {
        trpi_unpack_due(node, blob, now_ns);
    }
}

/* ---- Who uses them ---- */

static trp_code check_request(const trpi_node *node, const char *hash, trp_error *err) {
    if (!trpi_is_hash(hash)) {
        return trpi_fail(err, TRP_EPROTOCOL, "\"%.64s\" is no hash of a content", hash);
    }
    return node->dir[0] ? TRP_OK : trpi_fail(err, TRP_EUNAVAILABLE, "this node is not registered");
}

/* TRP_OK: it is there, and held. */
static trp_code hold(trpi_node *node, const char *hash, bool is_package, uint64_t job,
                     trpi_blob **held, trp_error *err) {
    trp_code code = check_request(node, hash, err);
    if (code != TRP_OK) {
        return code;
    }
    if (!*held) {
        *held = find(node, hash, is_package);
        *held = *held ? *held : fetch(node, hash, is_package, job);
        (*held)->users++;
    }
    trpi_blob *blob = *held;
    if (blob->phase == TRPI_BLOB_READY) {
        return TRP_OK;
    }
    if (blob->phase == TRPI_BLOB_FAILED) {
        return trpi_fail(err, blob->trouble.code == TRP_EBUSY ? TRP_EIO : blob->trouble.code, "%s",
                         blob->trouble.message);
    }
    return trpi_fail(err, TRP_EBUSY, "its %s is being %s: %.1f of %.1f MiB", kind_of(blob),
                     blob->phase == TRPI_BLOB_FETCHING ? "fetched" : "unpacked",
                     (double)blob->offset / MIB, (double)blob->total / MIB);
}

trp_code trpi_blobs_exe(trpi_node *node, const char *path, const char *hash, uint64_t job,
                        trpi_blob **held, char *out, size_t size, trp_error *err) {
    trp_code here = hash[0] ? trpi_local_is(node, path, hash) : TRP_OK;
    if (here == TRP_OK) {
        trpi_format(out, size, "%s", path);
        return TRP_OK;
    }
    if (here == TRP_EBUSY) {
        return trpi_fail(err, TRP_EBUSY, "%s is being compared with the driver's", path);
    }
    trp_code code = hold(node, hash, false, job, held, err);
    if (code == TRP_OK) {
        trpi_blob_path(node, *held, out, size);
    }
    return code;
}

trp_code trpi_blobs_package(trpi_node *node, const char *hash, uint64_t job, trpi_blob **held,
                            char *out, size_t size, trp_error *err) {
    trp_code code = hold(node, hash, true, job, held, err);
    if (code == TRP_OK) {
        trpi_blob_path(node, *held, out, size);
    }
    return code;
}

void trpi_blobs_release(trpi_node *node, trpi_blob **held) {
    trpi_blob *blob = *held;
    *held = NULL;
    if (!blob) {
        return;
    }
    blob->users--;
    blob->used_ns = trpi_now_ns();
    if (blob->users == 0 && blob->phase == TRPI_BLOB_FAILED) {
        blob_free(node, blob);
    }
}

/* ---- Children ---- */

static trpi_blob *find_tar(const trpi_node *node, pid_t pid) {
    trpi_blob *blob;
    TAILQ_FOREACH(blob, &node->blobs.list, link) {
        if (blob->tar == pid) {
            return blob;
        }
    }
    return NULL;
}

bool trpi_blobs_owns(const trpi_node *node, pid_t pid) {
    return find_tar(node, pid) != NULL;
}

bool trpi_blobs_reaped(trpi_node *node, pid_t pid, int wait_status) {
    trpi_blob *blob = find_tar(node, pid);
    if (blob) {
        trpi_unpack_ended(node, blob, wait_status);
    }
    return blob != NULL;
}

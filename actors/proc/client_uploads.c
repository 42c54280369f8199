/* client_uploads.c: files of this program on their way to the head: at once, by a thread that
 * waits; or when the head asks, part by part between the control thread's other work. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/client_internal.h"
#include "core/base/config.h"
#include "core/base/log.h"

#define PART_BYTES ((uint64_t)1 << 20)

/* Appends the part at that offset to *part. */
static trp_code read_part(const trpi_package *file, uint64_t offset, trp_buf *part,
                          trp_error *err) {
    size_t size = (size_t)TRPI_MIN(PART_BYTES, file->size - offset);
    int fd = file->fd >= 0 ? file->fd : open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return trpi_fail(err, TRP_EIO, "open %s: %s", file->path, strerror(errno));
    }
    trp_code code = trp_buf_reserve(part, size);
    if (code != TRP_OK) {
        code = trpi_fail(err, code, "a part of %s", file->path);
    } else {
        code = trpi_read_at(fd, file->path, offset, part->data, size, err);
    }
    part->size = code == TRP_OK ? size : 0;
    if (fd != file->fd) {
        close(fd);
    }
    return code;
}

/* ---- At once ---- */

trp_code trpi_package_upload(trp_runtime *rt, const trpi_package *package, trp_error *err) {
    trp_buf part = {0};
    trpi_msg msg = {.type = TRPI_MSG_BLOB_PUT,
                    .blob_put = {.hash = package->hash, .size = package->size}};
    trp_code code = trpi_client_ask(rt, &msg, err);
    uint64_t offset = 0;
    while (code == TRP_OK && offset < package->size) {
        trp_buf_clear(&part);
        code = read_part(package, offset, &part, err);
        if (code == TRP_OK) {
            msg.blob_put.offset = offset;
            msg.blob_put.data = trp_buf_bytes(&part);
            code = trpi_client_ask(rt, &msg, err);
            offset += part.size;
        }
    }
    trp_buf_release(&part);
    return code == TRP_EEXISTS ? TRP_OK : code;
}

trp_code trpi_package_bring(const char *address, uint64_t connect_timeout_ms,
                            const trpi_package *package, trp_error *err) {
    trp_runtime *rt = NULL;
    trpi_client_options options = {.address = address,
                                   .kind = "tool",
                                   .job = "upload",
                                   .connect_timeout_ms = connect_timeout_ms};
    trp_code code = trpi_client_open(&options, &rt, err);
    if (code != TRP_OK) {
        return code;
    }
    code = trpi_package_upload(rt, package, err);
    trpi_client_close(&rt, true);
    return code == TRP_OK ? code : trpi_context(err, code, "working directory");
}

void trpi_package_keep(trp_runtime *rt) {
    trp_error err = {0};
    const trpi_package *file = &rt->uploads[0].file;
    if (file->hash[0] == '\0' || atomic_exchange(&rt->exe_is_kept, true)) {
        return;
    }
    if (trpi_package_upload(rt, file, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "executable_not_kept", "error=\"%s\"", err.message);
    }
}

/* ---- When the head asks ---- */

static trpi_upload *find_upload(trp_runtime *rt, const char *hash, uint64_t request) {
    for (size_t i = 0; i < TRPI_COUNTOF(rt->uploads); i++) {
        trpi_upload *upload = &rt->uploads[i];
        if (hash != NULL ? strcmp(upload->file.hash, hash) == 0
                         : request != 0 && upload->request == request) {
            return upload;
        }
    }
    return NULL;
}

static void send_part(trp_runtime *rt, trpi_upload *upload, trp_bytes data) {
    trp_error err;
    pthread_mutex_lock(&rt->control.lock);
    upload->request = ++rt->control.requests;
    pthread_mutex_unlock(&rt->control.lock);
    upload->sent = data.size;
    trpi_msg msg = {.type = TRPI_MSG_BLOB_PUT,
                    .blob_put = {.request = upload->request,
                                 .hash = upload->file.hash,
                                 .size = upload->file.size,
                                 .offset = upload->offset,
                                 .data = data}};
    if (trpi_client_post(rt, &msg, &err) != TRP_OK) {
        upload->request = 0; /* the link is gone; who still wants it will ask again */
    }
}

void trpi_uploads_wanted(trp_runtime *rt, const char *hash) {
    trpi_upload *upload = hash[0] != '\0' ? find_upload(rt, hash, 0) : NULL;
    if (upload == NULL) {
        trpi_log(TRPI_WARN, "upload_unknown", "hash=%s", hash);
        return;
    }
    if (upload->request == 0) {
        upload->offset = 0;
        send_part(rt, upload, (trp_bytes){NULL, 0});
    }
}

static void go_on(trp_runtime *rt, trpi_upload *upload) {
    trp_buf part = {0};
    trp_error err;
    upload->offset += upload->sent;
    upload->request = 0;
    if (upload->offset == upload->file.size) {
        return; /* all of it is there */
    }
    if (read_part(&upload->file, upload->offset, &part, &err) == TRP_OK) {
        send_part(rt, upload, trp_buf_bytes(&part));
    } else {
        trpi_log(TRPI_ERROR, "upload_failed", "hash=%s error=\"%s\"", upload->file.hash,
                 err.message);
    }
    trp_buf_release(&part);
}

bool trpi_uploads_answer(trp_runtime *rt, uint64_t request, trp_code code, const char *message) {
    trpi_upload *upload = find_upload(rt, NULL, request);
    if (upload == NULL) {
        return false;
    }
    if (code == TRP_OK) {
        go_on(rt, upload);
    } else {
        upload->request = 0;
        if (code != TRP_EEXISTS) {
            trpi_log(TRPI_WARN, "upload_refused", "hash=%s error=\"%s\"", upload->file.hash,
                     message);
        }
    }
    return true;
}

void trpi_uploads_stop(trp_runtime *rt) {
    for (size_t i = 0; i < TRPI_COUNTOF(rt->uploads); i++) {
        rt->uploads[i].request = 0;
    }
}

/* safetensors_write.c: the header's length must be known before the first byte of data, its
 * checksums only after the last. All checksums have the same width, so the header is made twice
 * from the same parts: with zeros to learn its length, with the real ones to be written. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/json.h"
#include "trainer/ckpt/safetensors.h"
#include "trainer/ckpt/safetensors_format.h"

typedef struct pending_tensor {
    char *name;
    trpi_stored dtype;
    int dims;
    int64_t shape[TRPI_TENSOR_DIMS_MAX];
    uint64_t offset, bytes, written;
    trpi_hasher *hasher;
    char checksum[33];
} pending_tensor;

struct trpi_tensor_writer {
    char *path;
    int fd;
    json_t *meta;  /* the user's lines */
    json_t *index; /* name: number, to find a name used twice */
    pending_tensor *tensors;
    size_t count, capacity;
    uint64_t data_bytes;
    size_t data_start; /* 0 until the first data */
};

static void free_writer(trpi_tensor_writer *writer) {
    for (size_t i = 0; i < writer->count; i++) {
        free(writer->tensors[i].name);
        trpi_hasher_free(writer->tensors[i].hasher);
    }
    free(writer->tensors);
    json_decref(writer->meta);
    json_decref(writer->index);
    if (writer->fd >= 0) {
        close(writer->fd);
    }
    free(writer->path);
    free(writer);
}

trp_code trpi_tensor_writer_open(const char *path, trpi_tensor_writer **ret_writer,
                                 trp_error *err) {
    trpi_tensor_writer *writer = calloc(1, sizeof *writer);
    if (!writer) {
        return trpi_fail(err, TRP_ENOMEM, "%s", path);
    }
    writer->fd = -1;
    writer->path = strdup(path);
    writer->meta = json_object();
    writer->index = json_object();
    if (!writer->path || !writer->meta || !writer->index) {
        free_writer(writer);
        return trpi_fail(err, TRP_ENOMEM, "%s", path);
    }
    writer->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (writer->fd < 0) {
        int failed = errno;
        free_writer(writer);
        return trpi_fail(err, TRP_EIO, "%s: %s", path, strerror(failed));
    }
    *ret_writer = writer;
    return TRP_OK;
}

void trpi_tensor_writer_abort(trpi_tensor_writer *writer) {
    if (writer) {
        unlink(writer->path);
        free_writer(writer);
    }
}

trp_code trpi_tensor_writer_meta(trpi_tensor_writer *writer, const char *key, const char *value,
                                 trp_error *err) {
    if (writer->data_start) {
        return trpi_fail(err, TRP_EINVALID, "%s: metadata \"%s\" after the first data",
                         writer->path, key);
    }
    if (strncmp(key, TRPI_SAFE_SUM_KEY, strlen(TRPI_SAFE_SUM_KEY)) == 0) {
        return trpi_fail(err, TRP_EINVALID, "%s: metadata \"%s\" is reserved for checksums",
                         writer->path, key);
    }
    if (json_object_get(writer->meta, key)) {
        return trpi_fail(err, TRP_EINVALID, "%s: metadata \"%s\" twice", writer->path, key);
    }
    if (json_object_set_new(writer->meta, key, json_string(value)) != 0) {
        return trpi_fail(err, TRP_EINVALID, "%s: metadata \"%s\" is not UTF-8", writer->path, key);
    }
    return TRP_OK;
}

/* Elements times size, checked; the whole file must stay below 2^63 bytes. */
static trp_code set_shape(trpi_tensor_writer *writer, pending_tensor *tensor, const int64_t *shape,
                          trp_error *err) {
    uint64_t bytes = trpi_stored_size(tensor->dtype), end;
    for (int i = 0; i < tensor->dims; i++) {
        tensor->shape[i] = shape[i];
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes)) {
            return trpi_fail(err, TRP_EINVALID, "%s: tensor \"%s\": extent %lld is out of range",
                             writer->path, tensor->name, (long long)shape[i]);
        }
    }
    if (__builtin_add_overflow(writer->data_bytes, bytes, &end) || end > INT64_MAX / 2) {
        return trpi_fail(err, TRP_EINVALID, "%s: tensor \"%s\" is too large", writer->path,
                         tensor->name);
    }
    tensor->offset = writer->data_bytes;
    tensor->bytes = bytes;
    writer->data_bytes = end;
    return TRP_OK;
}

static trp_code grow(trpi_tensor_writer *writer, trp_error *err) {
    if (writer->count < writer->capacity) {
        return TRP_OK;
    }
    size_t capacity = writer->capacity ? writer->capacity * 2 : 64;
    pending_tensor *tensors = realloc(writer->tensors, capacity * sizeof *tensors);
    if (!tensors) {
        return trpi_fail(err, TRP_ENOMEM, "%s: tensor %zu", writer->path, writer->count);
    }
    writer->tensors = tensors;
    writer->capacity = capacity;
    return TRP_OK;
}

trp_code trpi_tensor_writer_add(trpi_tensor_writer *writer, const char *name, trpi_stored dtype,
                                const int64_t *shape, int dims, trp_error *err) {
    if (writer->data_start) {
        return trpi_fail(err, TRP_EINVALID, "%s: tensor \"%s\" after the first data", writer->path,
                         name);
    }
    if (strcmp(name, TRPI_SAFE_META_KEY) == 0 || json_object_get(writer->index, name)) {
        return trpi_fail(err, TRP_EINVALID, "%s: tensor \"%s\" twice, or reserved", writer->path,
                         name);
    }
    if ((unsigned)dtype >= TRPI_STORED_COUNT || dims < 0 || dims > TRPI_TENSOR_DIMS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%s: tensor \"%s\": dtype %d, %d dimensions",
                         writer->path, name, (int)dtype, dims);
    }
    trp_code code = grow(writer, err);
    if (code) {
        return code;
    }
    pending_tensor *tensor = &writer->tensors[writer->count];
    *tensor = (pending_tensor){.dtype = dtype, .dims = dims, .name = strdup(name)};
    tensor->hasher = trpi_hasher_new();
    if (!tensor->name || !tensor->hasher) {
        code = trpi_fail(err, TRP_ENOMEM, "%s: tensor \"%s\"", writer->path, name);
    } else if (json_object_set_new(writer->index, name, json_true()) != 0) {
        code = trpi_fail(err, TRP_EINVALID, "%s: a tensor's name is not UTF-8", writer->path);
    } else {
        code = set_shape(writer, tensor, shape, err);
    }
    if (code) {
        free(tensor->name);
        trpi_hasher_free(tensor->hasher);
        return code;
    }
    writer->count++;
    return TRP_OK;
}

/* ---- The header ---- */

static json_t *tensor_json(const pending_tensor *tensor) {
    json_t *shape = json_array();
    for (int i = 0; shape && i < tensor->dims; i++) {
        if (json_array_append_new(shape, json_integer(tensor->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    }
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", trpi_stored_name(tensor->dtype), "shape",
                     shape, "data_offsets", (json_int_t)tensor->offset,
                     (json_int_t)(tensor->offset + tensor->bytes));
}

/* Ours first and the header's own at the very start, where the reader looks for it. */
static json_t *meta_json(const trpi_tensor_writer *writer) {
    json_t *meta = json_pack("{s:s}", TRPI_SAFE_SUM_KEY, TRPI_SAFE_NO_SUM);
    bool ok = meta != NULL;
    for (size_t i = 0; ok && i < writer->count; i++) {
        trp_buf key = {0};
        ok = trp_buf_printf(&key, "%s.%s", TRPI_SAFE_SUM_KEY, writer->tensors[i].name) == TRP_OK;
        const char *sum = writer->tensors[i].checksum;
        ok = ok && json_object_set_new(meta, (const char *)key.data,
                                       json_string(sum[0] ? sum : TRPI_SAFE_NO_SUM)) == 0;
        trp_buf_release(&key);
    }
    if (!ok || json_object_update(meta, writer->meta) != 0) {
        json_decref(meta);
        return NULL;
    }
    return meta;
}

static json_t *header_json(const trpi_tensor_writer *writer) {
    json_t *header = json_object();
    bool ok = header && json_object_set_new(header, TRPI_SAFE_META_KEY, meta_json(writer)) == 0;
    for (size_t i = 0; ok && i < writer->count; i++) {
        const pending_tensor *tensor = &writer->tensors[i];
        ok = json_object_set_new(header, tensor->name, tensor_json(tensor)) == 0;
    }
    if (!ok) {
        json_decref(header);
        return NULL;
    }
    return header;
}

static void put_u64(unsigned char *out, uint64_t value) {
    for (int i = 0; i < 8; i++) {
        out[i] = (unsigned char)(value >> (8 * i));
    }
}

/* Length, JSON, padding; the header's own checksum filled in. */
static trp_code make_header(const trpi_tensor_writer *writer, trp_buf *out, trp_error *err) {
    static const char blanks[TRPI_SAFE_ALIGN] = "                                "
                                                "                                ";
    unsigned char length[8] = {0};
    trp_code code = TRP_ENOMEM;
    json_t *header = header_json(writer);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    trp_buf_clear(out);
    if (!text || trp_buf_append(out, length, sizeof length) ||
        trp_buf_append(out, text, strlen(text)) ||
        trp_buf_append(out, blanks,
                       (TRPI_SAFE_ALIGN - out->size % TRPI_SAFE_ALIGN) % TRPI_SAFE_ALIGN)) {
        trpi_fail(err, TRP_ENOMEM, "%s: the header", writer->path);
        goto out;
    }
    if (out->size - 8 > TRPI_TENSOR_HEADER_MAX) {
        code = trpi_fail(err, TRP_EINVALID, "%s: a header of %zu bytes, at most %d are allowed",
                         writer->path, out->size - 8, TRPI_TENSOR_HEADER_MAX);
        goto out;
    }
    put_u64(out->data, out->size - 8);
    code = trpi_safe_header_sum(out->data + 8, out->size - 8,
                                (char *)out->data + 8 + TRPI_SAFE_SUM_AT, err);
out:
    free(text);
    return code;
}

/* ---- The data ---- */

static trp_code write_at(const trpi_tensor_writer *writer, const void *data, size_t bytes,
                         uint64_t offset, trp_error *err) {
    const char *from = data;
    while (bytes > 0) {
        ssize_t done = pwrite(writer->fd, from, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return trpi_fail(err, TRP_EIO, "%s: %s", writer->path,
                             done < 0 ? strerror(errno) : "nothing was written");
        }
        from += done;
        offset += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return TRP_OK;
}

/* Fixes where the data starts. Nothing is written yet: what a killed process leaves is no file that
 * could be taken for a whole one. */
static trp_code begin_data(trpi_tensor_writer *writer, trp_error *err) {
    trp_buf header = {0};
    if (writer->data_start) {
        return TRP_OK;
    }
    trp_code code = make_header(writer, &header, err);
    if (!code) {
        writer->data_start = header.size;
    }
    trp_buf_release(&header);
    return code;
}

trp_code trpi_tensor_writer_append(trpi_tensor_writer *writer, size_t tensor, const void *data,
                                   size_t bytes, trp_error *err) {
    if (tensor >= writer->count) {
        return trpi_fail(err, TRP_EINVALID, "%s: no tensor %zu", writer->path, tensor);
    }
    pending_tensor *t = &writer->tensors[tensor];
    if (bytes > t->bytes - t->written) {
        return trpi_fail(err, TRP_EINVALID, "%s: tensor \"%s\" has %llu bytes, not more",
                         writer->path, t->name, (unsigned long long)t->bytes);
    }
    trp_code code = begin_data(writer, err);
    if (!code) {
        code = write_at(writer, data, bytes, writer->data_start + t->offset + t->written, err);
    }
    if (!code) {
        trpi_hasher_add(t->hasher, data, bytes);
        t->written += bytes;
    }
    return code;
}

static trp_code complete(trpi_tensor_writer *writer, trp_error *err) {
    trp_buf header = {0};
    trp_code code = begin_data(writer, err);
    for (size_t i = 0; !code && i < writer->count; i++) {
        pending_tensor *t = &writer->tensors[i];
        if (t->written != t->bytes) {
            code = trpi_fail(err, TRP_EINVALID, "%s: tensor \"%s\" has %llu of its %llu bytes",
                             writer->path, t->name, (unsigned long long)t->written,
                             (unsigned long long)t->bytes);
        } else {
            trpi_hasher_hex(t->hasher, t->checksum);
        }
    }
    if (!code) {
        code = make_header(writer, &header, err);
    }
    if (!code) {
        TRP_ASSERT(header.size == writer->data_start);
        code = write_at(writer, header.data, header.size, 0, err);
    }
    if (!code && fsync(writer->fd) != 0) {
        code = trpi_fail(err, TRP_EIO, "%s: fsync: %s", writer->path, strerror(errno));
    }
    trp_buf_release(&header);
    return code;
}

trp_code trpi_tensor_writer_finish(trpi_tensor_writer **writer, trp_error *err) {
    trpi_tensor_writer *w = *writer;
    *writer = NULL;
    trp_code code = complete(w, err);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 && !code) { /* network file systems report a full disk here */
        code = trpi_fail(err, TRP_EIO, "%s: close: %s", w->path, strerror(errno));
    }
    if (code) {
        unlink(w->path);
    }
    free_writer(w);
    return code;
}

/* safetensors_read.c: nothing in a header is believed. What it says must be consistent in itself,
 * with the file's size and, where there are checksums, with them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/json.h"
#include "trainer/ckpt/safetensors.h"
#include "trainer/ckpt/safetensors_format.h"

#define PIECE_BYTES (1u << 20)

typedef struct meta_line {
    const char *key, *value;
} meta_line;

struct trpi_tensor_file {
    char *path;
    int fd;
    json_t *header;       /* owns all texts */
    trpi_tensor *tensors; /* by offset */
    trpi_tensor **by_name;
    size_t count;
    meta_line *meta;
    size_t meta_count;
    uint64_t data_start, data_bytes;
};

static trp_code corrupt(const trpi_tensor_file *file, const char *tensor, const char *what,
                        trp_error *err) {
    if (tensor) {
        return trpi_fail(err, TRP_ECORRUPT, "%s: tensor \"%.100s\": %s", file->path, tensor, what);
    }
    return trpi_fail(err, TRP_ECORRUPT, "%s: %s", file->path, what);
}

static trp_code read_at(const trpi_tensor_file *file, uint64_t offset, void *out, size_t bytes,
                        trp_error *err) {
    char *to = out;
    while (bytes > 0) {
        ssize_t done = pread(file->fd, to, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return trpi_fail(err, TRP_EIO, "%s: %s", file->path, strerror(errno));
        }
        if (done == 0) {
            return corrupt(file, NULL, "ends before its data does", err);
        }
        to += done;
        offset += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return TRP_OK;
}

/* ---- The header ---- */

static bool is_checksum(const char *text) {
    return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

static trp_code check_header_sum(const trpi_tensor_file *file, const char *text, size_t size,
                                 const char *expected, trp_error *err) {
    char found[33] = {0};
    if (size < TRPI_SAFE_SUM_AT + 32 || memcmp(text, TRPI_SAFE_START, TRPI_SAFE_SUM_AT) != 0 ||
        !is_checksum(expected)) {
        return corrupt(file, NULL, "the header's checksum is not where it should be", err);
    }
    trp_code code = trpi_safe_header_sum(text, size, found, err);
    if (!code && memcmp(found, expected, 32) != 0) {
        code = trpi_fail(err, TRP_ECORRUPT, "%s: checksum of the header is %s, expected %s",
                         file->path, found, expected);
    }
    return code;
}

/* The whole text between the length and the data. */
static trp_code read_header(trpi_tensor_file *file, char **ret_text, size_t *ret_size,
                            trp_error *err) {
    struct stat st;
    unsigned char prefix[8];
    uint64_t size = 0;
    if (fstat(file->fd, &st) != 0) {
        return trpi_fail(err, TRP_EIO, "%s: %s", file->path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return corrupt(file, NULL, "is not a regular file", err);
    }
    if (st.st_size < 8) {
        return corrupt(file, NULL, "is shorter than 8 bytes", err);
    }
    trp_code code = read_at(file, 0, prefix, sizeof prefix, err);
    if (code) {
        return code;
    }
    for (int i = 7; i >= 0; i--) {
        size = size << 8 | prefix[i];
    }
    if (size > TRPI_TENSOR_HEADER_MAX || size > (uint64_t)st.st_size - 8) {
        return trpi_fail(err, TRP_ECORRUPT, "%s: a header of %" PRIu64 " bytes in a file of %lld",
                         file->path, size, (long long)st.st_size);
    }
    char *text = malloc((size_t)size + 1);
    if (!text) {
        return trpi_fail(err, TRP_ENOMEM, "%s: a header of %" PRIu64 " bytes", file->path, size);
    }
    code = read_at(file, 8, text, (size_t)size, err);
    if (code) {
        free(text);
        return code;
    }
    file->data_start = 8 + size;
    file->data_bytes = (uint64_t)st.st_size - file->data_start;
    *ret_text = text;
    *ret_size = (size_t)size;
    return TRP_OK;
}

static trp_code read_dtype(const trpi_tensor_file *file, trpi_tensor *tensor, json_t *json,
                           trp_error *err) {
    const char *name = json_string_value(json);
    for (int i = 0; name && i < TRPI_STORED_COUNT; i++) {
        if (strcmp(name, trpi_stored_name((trpi_stored)i)) == 0) {
            tensor->dtype = (trpi_stored)i;
            return TRP_OK;
        }
    }
    return trpi_fail(err, TRP_ECORRUPT, "%s: tensor \"%.100s\": dtype %.20s is not known",
                     file->path, tensor->name, name ? name : "(none)");
}

static trp_code read_shape(const trpi_tensor_file *file, trpi_tensor *tensor, json_t *json,
                           trp_error *err) {
    if (!json_is_array(json) || json_array_size(json) > TRPI_TENSOR_DIMS_MAX) {
        return corrupt(file, tensor->name, "shape is not a list of at most 8 extents", err);
    }
    tensor->dims = (int)json_array_size(json);
    tensor->elements = 1;
    for (int i = 0; i < tensor->dims; i++) {
        json_t *extent = json_array_get(json, (size_t)i);
        tensor->shape[i] = json_integer_value(extent);
        if (!json_is_integer(extent) || tensor->shape[i] < 0 ||
            __builtin_mul_overflow(tensor->elements, tensor->shape[i], &tensor->elements)) {
            return corrupt(file, tensor->name, "an extent is out of range", err);
        }
    }
    return TRP_OK;
}

static trp_code read_offsets(const trpi_tensor_file *file, trpi_tensor *tensor, json_t *json,
                             trp_error *err) {
    json_t *begin = json_array_get(json, 0), *end = json_array_get(json, 1);
    json_int_t first = json_integer_value(begin), last = json_integer_value(end);
    uint64_t bytes;
    if (json_array_size(json) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        first < 0 || last < first || (uint64_t)last > file->data_bytes) {
        return trpi_fail(
            err, TRP_ECORRUPT,
            "%s: tensor \"%.100s\": data_offsets [%lld, %lld] are not within the %" PRIu64
            " bytes of data",
            file->path, tensor->name, (long long)first, (long long)last, file->data_bytes);
    }
    tensor->offset = (uint64_t)first;
    tensor->bytes = (uint64_t)(last - first);
    if (__builtin_mul_overflow((uint64_t)tensor->elements,
                               (uint64_t)trpi_stored_size(tensor->dtype), &bytes) ||
        bytes != tensor->bytes) {
        return trpi_fail(err, TRP_ECORRUPT,
                         "%s: tensor \"%.100s\": %" PRIu64 " bytes for %lld elements of %s",
                         file->path, tensor->name, tensor->bytes, (long long)tensor->elements,
                         trpi_stored_name(tensor->dtype));
    }
    return TRP_OK;
}

static trp_code read_tensor(trpi_tensor_file *file, const char *name, json_t *json,
                            trp_error *err) {
    trpi_tensor *tensor = &file->tensors[file->count];
    tensor->name = name;
    if (json_object_size(json) != 3) {
        return corrupt(file, name, "is not described by dtype, shape and data_offsets", err);
    }
    trp_code code = read_dtype(file, tensor, json_object_get(json, "dtype"), err);
    if (!code) {
        code = read_shape(file, tensor, json_object_get(json, "shape"), err);
    }
    if (!code) {
        code = read_offsets(file, tensor, json_object_get(json, "data_offsets"), err);
    }
    if (!code) {
        file->count++;
    }
    return code;
}

static int compare_offsets(const void *a, const void *b) {
    const trpi_tensor *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(trpi_tensor *const *)a)->name, (*(trpi_tensor *const *)b)->name);
}

/* The format allows no hole and no overlap, so nothing can hide between tensors. */
static trp_code check_cover(const trpi_tensor_file *file, trp_error *err) {
    uint64_t end = 0;
    for (size_t i = 0; i < file->count; i++) {
        const trpi_tensor *tensor = &file->tensors[i];
        if (tensor->offset != end) {
            return corrupt(file, tensor->name,
                           tensor->offset < end ? "overlaps the tensor before it"
                                                : "there is a hole before it",
                           err);
        }
        end += tensor->bytes;
    }
    if (end != file->data_bytes) {
        return trpi_fail(err, TRP_ECORRUPT,
                         "%s: %" PRIu64 " bytes of data, but the tensors have %" PRIu64, file->path,
                         file->data_bytes, end);
    }
    return TRP_OK;
}

/* "xxh3.<name>": <checksum>, to its tensor. */
static trp_code read_sum(trpi_tensor_file *file, const char *name, const char *sum,
                         trp_error *err) {
    trpi_tensor *tensor = (trpi_tensor *)trpi_tensor_file_find(file, name);
    if (!tensor || !is_checksum(sum)) {
        return corrupt(file, name, "its checksum is none, or there is no such tensor", err);
    }
    TRPI_SET(tensor->checksum, sum);
    return TRP_OK;
}

/* User lines to file->meta, checksums to their tensors. All tensors have one and the header too, or
 * none has: a flipped bit in a key must not make a file look like one of those without. */
static trp_code read_meta(trpi_tensor_file *file, json_t *json, trp_error *err) {
    const char *key;
    json_t *value;
    bool summed = json_object_get(json, TRPI_SAFE_SUM_KEY) != NULL;
    json_object_foreach(json, key, value) {
        const char *text = json_string_value(value);
        if (!text) {
            return corrupt(file, NULL, "metadata holds something else than text", err);
        }
        if (strncmp(key, TRPI_SAFE_SUM_KEY ".", strlen(TRPI_SAFE_SUM_KEY ".")) == 0) {
            trp_code code = read_sum(file, key + strlen(TRPI_SAFE_SUM_KEY "."), text, err);
            if (code) {
                return code;
            }
        } else if (strcmp(key, TRPI_SAFE_SUM_KEY) != 0) {
            file->meta[file->meta_count++] = (meta_line){key, text};
        }
    }
    for (size_t i = 0; i < file->count; i++) {
        if (summed != (file->tensors[i].checksum[0] != '\0')) {
            return corrupt(file, file->tensors[i].name, "checksums are incomplete", err);
        }
    }
    return TRP_OK;
}

static trp_code allocate(trpi_tensor_file *file, json_t *meta, trp_error *err) {
    size_t count = json_object_size(file->header);
    file->tensors = calloc(count + 1, sizeof *file->tensors);
    file->by_name = calloc(count + 1, sizeof *file->by_name);
    file->meta = calloc(json_object_size(meta) + 1, sizeof *file->meta);
    if (!file->tensors || !file->by_name || !file->meta) {
        return trpi_fail(err, TRP_ENOMEM, "%s: %zu tensors", file->path, count);
    }
    return TRP_OK;
}

static trp_code read_entries(trpi_tensor_file *file, trp_error *err) {
    const char *name;
    json_t *value, *meta = json_object_get(file->header, TRPI_SAFE_META_KEY);
    if (!json_is_object(file->header) || (meta && !json_is_object(meta))) {
        return corrupt(file, NULL, "the header or its metadata is not an object", err);
    }
    trp_code code = allocate(file, meta, err);
    if (code) {
        return code;
    }
    json_object_foreach(file->header, name, value) {
        if (value == meta) {
            continue;
        }
        code = read_tensor(file, name, value, err);
        if (code) {
            return code;
        }
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_offsets);
    for (size_t i = 0; i < file->count; i++) {
        file->by_name[i] = &file->tensors[i];
    }
    qsort(file->by_name, file->count, sizeof *file->by_name, compare_names);
    code = check_cover(file, err);
    return code || !meta ? code : read_meta(file, meta, err);
}

static trp_code parse_header(trpi_tensor_file *file, const char *text, size_t size,
                             trp_error *err) {
    trp_code code = trpi_json_parse(text, size, file->path, &file->header, err);
    if (code) {
        return code == TRP_ENOMEM ? code : trpi_context(err, TRP_ECORRUPT, "header");
    }
    json_t *meta = json_object_get(file->header, TRPI_SAFE_META_KEY);
    json_t *sum = json_object_get(meta, TRPI_SAFE_SUM_KEY);
    if (sum) {
        code = check_header_sum(file, text, size, json_is_string(sum) ? json_string_value(sum) : "",
                                err);
    }
    return code ? code : read_entries(file, err);
}

trp_code trpi_tensor_file_open(const char *path, trpi_tensor_file **ret_file, trp_error *err) {
    char *text = NULL;
    size_t size = 0;
    trpi_tensor_file *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return trpi_fail(err, TRP_ENOMEM, "%s", path);
    }
    trp_code code = TRP_OK;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) {
        code = trpi_fail(err, errno == ENOENT ? TRP_ENOTFOUND : TRP_EIO, "%s: %s", path,
                         strerror(errno));
    }
    if (!code) {
        code = read_header(file, &text, &size, err);
    }
    if (!code) {
        code = parse_header(file, text, size, err);
    }
    free(text);
    if (code) {
        trpi_tensor_file_close(file);
        return code;
    }
    *ret_file = file;
    return TRP_OK;
}

void trpi_tensor_file_close(trpi_tensor_file *file) {
    if (!file) {
        return;
    }
    if (file->fd >= 0) {
        close(file->fd);
    }
    json_decref(file->header);
    free(file->tensors);
    free(file->by_name);
    free(file->meta);
    free(file->path);
    free(file);
}

/* ---- What is there ---- */

const char *trpi_tensor_file_path(const trpi_tensor_file *file) {
    return file->path;
}

size_t trpi_tensor_file_count(const trpi_tensor_file *file) {
    return file->count;
}

const trpi_tensor *trpi_tensor_file_at(const trpi_tensor_file *file, size_t index) {
    return index < file->count ? &file->tensors[index] : NULL;
}

const trpi_tensor *trpi_tensor_file_find(const trpi_tensor_file *file, const char *name) {
    trpi_tensor key = {.name = name}, *wanted = &key;
    trpi_tensor **found =
        bsearch(&wanted, file->by_name, file->count, sizeof *file->by_name, compare_names);
    return found ? *found : NULL;
}

const char *trpi_tensor_file_meta(const trpi_tensor_file *file, const char *key) {
    for (size_t i = 0; i < file->meta_count; i++) {
        if (strcmp(file->meta[i].key, key) == 0) {
            return file->meta[i].value;
        }
    }
    return NULL;
}

size_t trpi_tensor_file_meta_count(const trpi_tensor_file *file) {
    return file->meta_count;
}

const char *trpi_tensor_file_meta_at(const trpi_tensor_file *file, size_t index,
                                     const char **ret_value) {
    if (index >= file->meta_count) {
        return NULL;
    }
    *ret_value = file->meta[index].value;
    return file->meta[index].key;
}

/* ---- Data ---- */

trp_code trpi_tensor_file_read(const trpi_tensor_file *file, const trpi_tensor *tensor,
                               uint64_t offset, void *out, size_t bytes, trp_error *err) {
    if (offset > tensor->bytes || bytes > tensor->bytes - offset) {
        return trpi_fail(err, TRP_EINVALID,
                         "%s: tensor \"%.100s\": %zu bytes from %" PRIu64 " of %" PRIu64,
                         file->path, tensor->name, bytes, offset, tensor->bytes);
    }
    return read_at(file, file->data_start + tensor->offset + offset, out, bytes, err);
}

static trp_code compare_sum(const trpi_tensor_file *file, const trpi_tensor *tensor,
                            const trpi_hasher *hasher, trp_error *err) {
    char found[33];
    trpi_hasher_hex(hasher, found);
    if (strcmp(found, tensor->checksum) != 0) {
        return trpi_fail(err, TRP_ECORRUPT, "%s: tensor \"%.100s\": checksum is %s, expected %s",
                         file->path, tensor->name, found, tensor->checksum);
    }
    return TRP_OK;
}

trp_code trpi_tensor_file_read_all(const trpi_tensor_file *file, const trpi_tensor *tensor,
                                   void *out, trp_error *err) {
    trp_code code = trpi_tensor_file_read(file, tensor, 0, out, (size_t)tensor->bytes, err);
    if (code || !tensor->checksum[0]) {
        return code;
    }
    trpi_hasher *hasher = trpi_hasher_new();
    if (!hasher) {
        return trpi_fail(err, TRP_ENOMEM, "a checksum");
    }
    trpi_hasher_add(hasher, out, (size_t)tensor->bytes);
    code = compare_sum(file, tensor, hasher, err);
    trpi_hasher_free(hasher);
    return code;
}

static trp_code verify_one(const trpi_tensor_file *file, const trpi_tensor *tensor, void *piece,
                           trp_error *err) {
    trpi_hasher *hasher = trpi_hasher_new();
    if (!hasher) {
        return trpi_fail(err, TRP_ENOMEM, "a checksum");
    }
    trp_code code = TRP_OK;
    for (uint64_t at = 0; !code && at < tensor->bytes; at += PIECE_BYTES) {
        size_t bytes = (size_t)TRPI_MIN((uint64_t)PIECE_BYTES, tensor->bytes - at);
        code = trpi_tensor_file_read(file, tensor, at, piece, bytes, err);
        if (!code) {
            trpi_hasher_add(hasher, piece, bytes);
        }
    }
    if (!code) {
        code = compare_sum(file, tensor, hasher, err);
    }
    trpi_hasher_free(hasher);
    return code;
}

trp_code trpi_tensor_file_verify(const trpi_tensor_file *file, const trpi_tensor *tensor,
                                 trp_error *err) {
    size_t first = tensor ? (size_t)(tensor - file->tensors) : 0;
    size_t end = tensor ? first + 1 : file->count;
    if (first < end && !file->tensors[first].checksum[0]) {
        return trpi_fail(err, TRP_EUNSUPPORTED, "%s: has no checksums", file->path);
    }
    void *piece = malloc(PIECE_BYTES);
    if (!piece) {
        return trpi_fail(err, TRP_ENOMEM, "a buffer of 1 MiB");
    }
    trp_code code = TRP_OK;
    for (size_t i = first; !code && i < end; i++) {
        code = verify_one(file, &file->tensors[i], piece, err);
    }
    free(piece);
    return code;
}

/* manifest.c: the list itself, to and from JSON. Comparing it with a directory is in
 * manifest_verify.c. */
#include "trainer/ckpt/manifest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/sys/file.h"

#define NO_SUM "00000000000000000000000000000000"
/* The text ends so, with the digits of its checksum between, which count as zeros in it. */
#define END_BEFORE "\"xxh3\": \""
#define END_AFTER "\"\n}\n"
#define END_BYTES (sizeof END_BEFORE - 1 + 32 + sizeof END_AFTER - 1)

enum { NAME_BYTES_MAX = 1023 };

void trpi_manifest_release(trpi_manifest *manifest) {
    for (size_t i = 0; i < manifest->metric_count; i++) {
        free(manifest->metrics[i].name);
    }
    for (size_t i = 0; i < manifest->file_count; i++) {
        free(manifest->files[i].name);
    }
    free(manifest->metrics);
    free(manifest->files);
    *manifest = (trpi_manifest){0};
}

/* ---- Adding ---- */

static bool is_hex32(const char *text) {
    return text && strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

/* A name must stay inside the checkpoint's directory, also on somebody else's machine, and must not
 * be one that the store uses there. */
static const char *name_trouble(const char *name) {
    if (strlen(name) > NAME_BYTES_MAX) {
        return "is too long";
    }
    if (strcmp(name, TRPI_MANIFEST_NAME) == 0 || strcmp(name, TRPI_MANIFEST_NAME ".tmp") == 0 ||
        strncmp(name, ".rank-", strlen(".rank-")) == 0) {
        return "is reserved";
    }
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        size_t length = strcspn(part, "/");
        if (length == 0 || length > 255 || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.')) {
            return "is not a relative path without \".\" and \"..\"";
        }
    }
    return NULL;
}

/* Room for one more, doubling: the capacity is the next power of two. */
static void *grow(void *array, size_t count, size_t size) {
    if (count && (count & (count - 1)) != 0) {
        return array;
    }
    return realloc(array, (count ? count * 2 : 1) * size);
}

static trp_code append_file(trpi_manifest *manifest, const char *name, uint64_t size,
                            const char *xxh3, int rank, trp_error *err) {
    const char *trouble = name_trouble(name);
    if (trouble) {
        return trpi_fail(err, TRP_EINVALID, "file name \"%.200s\" %s", name, trouble);
    }
    if (!is_hex32(xxh3) || size > INT64_MAX || rank < 0) {
        return trpi_fail(err, TRP_EINVALID, "file \"%.200s\": size, checksum or rank is none",
                         name);
    }
    trpi_manifest_file *files = grow(manifest->files, manifest->file_count, sizeof *files);
    char *copy = strdup(name);
    if (files) {
        manifest->files = files;
    }
    if (!files || !copy) {
        free(copy);
        return trpi_fail(err, TRP_ENOMEM, "file \"%.200s\"", name);
    }
    trpi_manifest_file *file = &files[manifest->file_count++];
    *file = (trpi_manifest_file){.name = copy, .size = size, .rank = rank};
    TRPI_SET(file->xxh3, xxh3);
    return TRP_OK;
}

trp_code trpi_manifest_add_file(trpi_manifest *manifest, const char *name, uint64_t size,
                                const char *xxh3, int rank, trp_error *err) {
    for (size_t i = 0; i < manifest->file_count; i++) {
        if (strcmp(manifest->files[i].name, name) == 0) {
            return trpi_fail(err, TRP_EINVALID, "file \"%.200s\" comes from ranks %d and %d", name,
                             manifest->files[i].rank, rank);
        }
    }
    return append_file(manifest, name, size, xxh3, rank, err);
}

trp_code trpi_manifest_add_metric(trpi_manifest *manifest, const char *name, double value,
                                  trp_error *err) {
    for (size_t i = 0; i < manifest->metric_count; i++) {
        if (strcmp(manifest->metrics[i].name, name) == 0) {
            manifest->metrics[i].value = value;
            return TRP_OK;
        }
    }
    trpi_manifest_metric *metrics =
        grow(manifest->metrics, manifest->metric_count, sizeof *metrics);
    char *copy = strdup(name);
    if (metrics) {
        manifest->metrics = metrics;
    }
    if (!metrics || !copy) {
        free(copy);
        return trpi_fail(err, TRP_ENOMEM, "metric \"%.100s\"", name);
    }
    metrics[manifest->metric_count++] = (trpi_manifest_metric){copy, value};
    return TRP_OK;
}

static int compare_files(const void *a, const void *b) {
    return strcmp(((const trpi_manifest_file *)a)->name, ((const trpi_manifest_file *)b)->name);
}

static void sort_files(trpi_manifest *manifest) {
    if (manifest->file_count > 1) {
        qsort(manifest->files, manifest->file_count, sizeof *manifest->files, compare_files);
    }
}

/* ---- To JSON ---- */

/* JSON has no word for these; a text is unambiguous where a number is expected. */
static const struct {
    const char *text;
    double value;
} odd_numbers[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};

static json_t *number_json(double value) {
    if (isnan(value)) {
        return json_string("NaN");
    }
    return isinf(value) ? json_string(value > 0 ? "Infinity" : "-Infinity") : json_real(value);
}

static json_t *metrics_json(const trpi_manifest *manifest) {
    json_t *metrics = json_object();
    for (size_t i = 0; metrics && i < manifest->metric_count; i++) {
        const trpi_manifest_metric *metric = &manifest->metrics[i];
        if (json_object_set_new(metrics, metric->name, number_json(metric->value)) != 0) {
            json_decref(metrics);
            return NULL;
        }
    }
    return metrics;
}

static json_t *files_json(const trpi_manifest *manifest) {
    json_t *files = json_array();
    for (size_t i = 0; files && i < manifest->file_count; i++) {
        const trpi_manifest_file *file = &manifest->files[i];
        json_t *entry = json_pack("{s:s, s:I, s:s, s:i}", "name", file->name, "size",
                                  (json_int_t)file->size, "xxh3", file->xxh3, "rank", file->rank);
        if (json_array_append_new(files, entry) != 0) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

static trp_code text_sum(const char *text, size_t size, char ret_hex[33], trp_error *err) {
    size_t digits = size - 32 - (sizeof END_AFTER - 1);
    trpi_hasher *hasher = trpi_hasher_new();
    if (!hasher) {
        return trpi_fail(err, TRP_ENOMEM, "a checksum");
    }
    trpi_hasher_add(hasher, text, digits);
    trpi_hasher_add(hasher, NO_SUM, 32);
    trpi_hasher_add(hasher, text + digits + 32, sizeof END_AFTER - 1);
    trpi_hasher_hex(hasher, ret_hex);
    trpi_hasher_free(hasher);
    return TRP_OK;
}

trp_code trpi_manifest_encode(trpi_manifest *manifest, trp_buf *out, trp_error *err) {
    if (manifest->number > INT64_MAX || manifest->step > INT64_MAX ||
        manifest->attempt > INT64_MAX || manifest->world < 1) {
        return trpi_fail(err, TRP_EINVALID, "manifest: number, step, attempt or world is none");
    }
    sort_files(manifest);
    json_t *json =
        json_pack("{s:i, s:I, s:I, s:I, s:i, s:o, s:o, s:s}", "version", TRPI_MANIFEST_VERSION,
                  "number", (json_int_t)manifest->number, "step", (json_int_t)manifest->step,
                  "attempt", (json_int_t)manifest->attempt, "world", manifest->world, "metrics",
                  metrics_json(manifest), "files", files_json(manifest), "xxh3", NO_SUM);
    if (!json) {
        return trpi_fail(err, TRP_EINVALID, "manifest: a name is not UTF-8, or memory is out");
    }
    char sum[33], *text = json_dumps(json, JSON_INDENT(2));
    size_t start = out->size;
    json_decref(json);
    trp_code code = text ? trp_buf_printf(out, "%s\n", text) : TRP_ENOMEM;
    free(text);
    if (code) {
        return trpi_fail(err, code, "manifest");
    }
    char *mine = (char *)out->data + start;
    size_t size = out->size - start;
    code = text_sum(mine, size, sum, err);
    if (!code) {
        memcpy(mine + size - 32 - (sizeof END_AFTER - 1), sum, 32);
    }
    return code;
}

/* ---- From JSON. The typed readers speak of invalid input; here it is damage. ---- */

static trp_code damage(trp_code code, trp_error *err) {
    if (code == TRP_EINVALID) {
        code = TRP_ECORRUPT;
        if (err) {
            err->code = code;
        }
    }
    return code;
}

static trp_code read_whole(json_t *json, const char *where, const char *key, int64_t max,
                           int64_t *ret_value, trp_error *err) {
    trp_code code = trpi_json_i64(json, where, key, true, ret_value, err);
    if (!code && (*ret_value < 0 || *ret_value > max)) {
        code = trpi_fail(err, TRP_EINVALID, "%s.%s: %lld is out of range", where, key,
                         (long long)*ret_value);
    }
    return code;
}

static trp_code decode_metrics(json_t *json, const char *where, trpi_manifest *manifest,
                               trp_error *err) {
    const char *name;
    json_t *value, *metrics = json_object_get(json, "metrics");
    if (!json_is_object(metrics)) {
        return trpi_fail(err, TRP_EINVALID, "%s.metrics: expected an object", where);
    }
    manifest->metrics = calloc(json_object_size(metrics) + 1, sizeof *manifest->metrics);
    if (!manifest->metrics) {
        return trpi_fail(err, TRP_ENOMEM, "%s.metrics", where);
    }
    json_object_foreach(metrics, name, value) {
        double number = json_number_value(value);
        bool known = json_is_number(value);
        for (size_t i = 0; json_is_string(value) && i < TRPI_COUNTOF(odd_numbers); i++) {
            if (strcmp(json_string_value(value), odd_numbers[i].text) == 0) {
                number = odd_numbers[i].value;
                known = true;
            }
        }
        if (!known) {
            return trpi_fail(err, TRP_EINVALID, "%s.metrics.%.100s: expected a number", where,
                             name);
        }
        char *copy = strdup(name);
        if (!copy) {
            return trpi_fail(err, TRP_ENOMEM, "%s.metrics", where);
        }
        manifest->metrics[manifest->metric_count++] = (trpi_manifest_metric){copy, number};
    }
    return TRP_OK;
}

static trp_code decode_file(json_t *json, const char *where, trpi_manifest *manifest,
                            trp_error *err) {
    static const char *const keys[] = {"name", "size", "xxh3", "rank"};
    const char *name, *xxh3;
    int64_t size, rank;
    trp_code code = trpi_json_text(json, where, "name", true, &name, err);
    if (!code) {
        code = trpi_json_only(json, where, keys, TRPI_COUNTOF(keys), err);
    }
    if (!code) {
        code = trpi_json_text(json, where, "xxh3", true, &xxh3, err);
    }
    if (!code) {
        code = read_whole(json, where, "size", INT64_MAX, &size, err);
    }
    if (!code) {
        code = read_whole(json, where, "rank", manifest->world - 1, &rank, err);
    }
    if (!code) {
        code = append_file(manifest, name, (uint64_t)size, xxh3, (int)rank, err);
    }
    return code;
}

static trp_code decode_files(json_t *json, const char *where, trpi_manifest *manifest,
                             trp_error *err) {
    json_t *files = json_object_get(json, "files");
    char place[320];
    if (!json_is_array(files)) {
        return trpi_fail(err, TRP_EINVALID, "%s.files: expected an array", where);
    }
    for (size_t i = 0; i < json_array_size(files); i++) {
        trpi_format(place, sizeof place, "%.280s.files[%zu]", where, i);
        trp_code code = decode_file(json_array_get(files, i), place, manifest, err);
        if (code) {
            return code;
        }
    }
    sort_files(manifest);
    for (size_t i = 1; i < manifest->file_count; i++) {
        if (strcmp(manifest->files[i].name, manifest->files[i - 1].name) == 0) {
            return trpi_fail(err, TRP_EINVALID, "%s: file \"%.200s\" twice", where,
                             manifest->files[i].name);
        }
    }
    return TRP_OK;
}

static trp_code check_sum(trp_bytes text, const char *where, trp_error *err) {
    char found[33];
    const char *data = text.data;
    size_t after = sizeof END_AFTER - 1, before = sizeof END_BEFORE - 1;
    if (text.size < END_BYTES || memcmp(data + text.size - after, END_AFTER, after) != 0 ||
        memcmp(data + text.size - END_BYTES, END_BEFORE, before) != 0) {
        return trpi_fail(err, TRP_ECORRUPT, "%s: does not end with its checksum", where);
    }
    const char *expected = data + text.size - after - 32;
    trp_code code = text_sum(data, text.size, found, err);
    if (!code && memcmp(found, expected, 32) != 0) {
        code = trpi_fail(err, TRP_ECORRUPT, "%s: checksum is %s, expected %.32s", where, found,
                         expected);
    }
    return code;
}

static trp_code decode_fields(json_t *json, const char *where, trpi_manifest *manifest,
                              trp_error *err) {
    static const char *const keys[] = {"version", "number",  "step",  "attempt",
                                       "world",   "metrics", "files", "xxh3"};
    int64_t number, step, attempt, world;
    trp_code code = trpi_json_only(json, where, keys, TRPI_COUNTOF(keys), err);
    if (!code) {
        code = read_whole(json, where, "number", INT64_MAX, &number, err);
    }
    if (!code) {
        code = read_whole(json, where, "step", INT64_MAX, &step, err);
    }
    if (!code) {
        code = read_whole(json, where, "attempt", INT64_MAX, &attempt, err);
    }
    if (!code) {
        code = read_whole(json, where, "world", INT32_MAX, &world, err);
    }
    if (!code && world == 0) {
        code = trpi_fail(err, TRP_EINVALID, "%s.world: 0 is out of range", where);
    }
    if (code) {
        return code;
    }
    manifest->number = (uint64_t)number;
    manifest->step = (uint64_t)step;
    manifest->attempt = (uint64_t)attempt;
    manifest->world = (int)world;
    code = decode_metrics(json, where, manifest, err);
    return code ? code : decode_files(json, where, manifest, err);
}

trp_code trpi_manifest_decode(trp_bytes text, const char *where, trpi_manifest *ret_manifest,
                              trp_error *err) {
    json_t *json = NULL;
    int64_t version;
    trpi_manifest manifest = {0};
    trp_code code = trpi_json_parse(text.data, text.size, where, &json, err);
    if (!code) {
        code = trpi_json_i64(json, where, "version", true, &version, err);
    }
    if (!code && version != TRPI_MANIFEST_VERSION) {
        code = trpi_fail(err, TRP_EUNSUPPORTED, "%s: version %lld, this is troupe for version %d",
                         where, (long long)version, TRPI_MANIFEST_VERSION);
    }
    if (!code) {
        code = check_sum(text, where, err);
    }
    if (!code) {
        code = decode_fields(json, where, &manifest, err);
    }
    json_decref(json);
    if (code) {
        trpi_manifest_release(&manifest);
        return damage(code, err);
    }
    *ret_manifest = manifest;
    return TRP_OK;
}

/* ---- In a directory ---- */

trp_code trpi_manifest_write(trpi_manifest *manifest, const char *dir, trp_error *err) {
    trp_buf path = {0}, text = {0};
    trp_code code = trpi_manifest_encode(manifest, &text, err);
    if (!code && trp_buf_printf(&path, "%s/%s", dir, TRPI_MANIFEST_NAME)) {
        code = trpi_fail(err, TRP_ENOMEM, "%s", dir);
    }
    if (!code) {
        code = trpi_file_write_atomic((const char *)path.data, trp_buf_bytes(&text), err);
    }
    trp_buf_release(&path);
    trp_buf_release(&text);
    return code;
}

trp_code trpi_manifest_read(const char *dir, trpi_manifest *ret_manifest, trp_error *err) {
    trp_buf path = {0}, text = {0};
    trp_code code = trp_buf_printf(&path, "%s/%s", dir, TRPI_MANIFEST_NAME);
    if (code) {
        return trpi_fail(err, code, "%s", dir);
    }
    code = trpi_file_read((const char *)path.data, TRPI_MANIFEST_BYTES_MAX, &text, err);
    if (!code) {
        code =
            trpi_manifest_decode(trp_buf_bytes(&text), (const char *)path.data, ret_manifest, err);
    } else {
        code = damage(code, err); /* too large */
    }
    trp_buf_release(&path);
    trp_buf_release(&text);
    return code;
}

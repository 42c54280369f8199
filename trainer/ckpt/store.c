/* store.c: a run's directory: opening it, the trainer's records, what checkpoints are there. How
 * one comes about is in store_commit.c. */
#include "trainer/ckpt/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/sys/file.h"
#include "trainer/ckpt/store_internal.h"

#define RECORD_NAME "run.json"
#define METRICS_NAME "metrics.jsonl"
#define RECORD_BYTES_MAX (64u << 20)

enum { NAME_BYTES_MAX = 200 };

/* ---- Places to crash ---- */

static _Atomic uint64_t steps_taken, crash_step;

void trpi_ckpt_store_crash_at(uint64_t step) {
    atomic_store(&crash_step, step ? atomic_load(&steps_taken) + step : 0);
}

uint64_t trpi_ckpt_store_steps(void) {
    return atomic_load(&steps_taken);
}

void trpi_ckpt_store_step(void) {
    if (atomic_fetch_add(&steps_taken, 1) + 1 == atomic_load(&crash_step)) {
        _exit(99);
    }
}

/* ---- Names ---- */

trp_code trpi_ckpt_store_path_set(trp_buf *buf, trp_error *err, const char *format, ...) {
    va_list args;
    char *text = NULL;
    va_start(args, format);
    int size = vasprintf(&text, format, args);
    va_end(args);
    trp_buf_clear(buf);
    trp_code code = size < 0 ? TRP_ENOMEM : trp_buf_printf(buf, "%s", text);
    if (size >= 0) {
        free(text);
    }
    return code ? trpi_fail(err, code, "a path") : TRP_OK;
}

bool trpi_ckpt_store_is_checkpoint(const char *name, uint64_t *ret_number) {
    static const char prefix[] = "checkpoint_";
    char canonical[64];
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 ||
        !trpi_parse_u64(name + sizeof prefix - 1, INT64_MAX, ret_number)) {
        return false;
    }
    trpi_format(canonical, sizeof canonical, "checkpoint_%06" PRIu64, *ret_number);
    return strcmp(name, canonical) == 0;
}

bool trpi_ckpt_store_is_staging(const char *name, uint64_t *ret_attempt) {
    char attempt[32];
    const char *dash;
    static const char prefix[] = ".staging-";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) {
        return false;
    }
    name += sizeof prefix - 1;
    dash = strchr(name, '-');
    if (!dash || (size_t)(dash - name) >= sizeof attempt) {
        return false;
    }
    trpi_format(attempt, sizeof attempt, "%.*s", (int)(dash - name), name);
    return trpi_parse_u64(attempt, UINT64_MAX, ret_attempt);
}

trp_code trpi_ckpt_store_read_number(const char *run_dir, const char *name, bool *ret_found,
                                     uint64_t *ret_number, trp_error *err) {
    trp_buf path = {0}, text = {0};
    trp_code code = trpi_ckpt_store_path_set(&path, err, "%s/%s", run_dir, name);
    if (!code) {
        code = trpi_file_read((const char *)path.data, 32, &text, err);
    }
    *ret_found = code == TRP_OK;
    if (code == TRP_ENOTFOUND) {
        trpi_error_clear(err);
        code = TRP_OK;
    } else if (!code) {
        text.data[text.size] = '\0';
        if (!trpi_parse_u64((const char *)text.data, UINT64_MAX, ret_number)) {
            code = trpi_fail(err, TRP_ECORRUPT, "%s: is not a number", (const char *)path.data);
        }
    }
    trp_buf_release(&path);
    trp_buf_release(&text);
    return code;
}

trp_code trpi_ckpt_store_write_number(const char *run_dir, const char *name, uint64_t number,
                                      trp_error *err) {
    char text[32];
    trp_buf path = {0};
    trpi_format(text, sizeof text, "%" PRIu64, number);
    trp_code code = trpi_ckpt_store_path_set(&path, err, "%s/%s", run_dir, name);
    if (!code) {
        trpi_ckpt_store_step();
        code = trpi_file_write_atomic((const char *)path.data, trp_bytes_of(text), err);
    }
    trp_buf_release(&path);
    return code;
}

/* ---- Opening ---- */

static trp_code new_store(const char *path, trpi_ckpt_store **ret_store, trp_error *err) {
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') {
        size--;
    }
    trpi_ckpt_store *store = calloc(1, sizeof *store);
    if (!store || !(store->path = strndup(path, size))) {
        free(store);
        return trpi_fail(err, TRP_ENOMEM, "%s", path);
    }
    *ret_store = store;
    return TRP_OK;
}

void trpi_ckpt_store_close(trpi_ckpt_store *store) {
    if (store) {
        free(store->path);
        free(store);
    }
}

const char *trpi_ckpt_store_path(const trpi_ckpt_store *store) {
    return store->path;
}

/* A record or a checkpoint makes it a run: without its record, what was trained must not be passed
 * over as if nothing were there. */
static trp_code run_exists(const trpi_ckpt_store *store, bool *ret_exists, trp_error *err) {
    char **names = NULL;
    size_t count = 0;
    uint64_t number;
    *ret_exists = false;
    if (!trpi_file_exists(store->path)) {
        return TRP_OK;
    }
    trp_code code = trpi_dir_list(store->path, &names, &count, err);
    for (size_t i = 0; !code && i < count && !*ret_exists; i++) {
        *ret_exists =
            strcmp(names[i], RECORD_NAME) == 0 || trpi_ckpt_store_is_checkpoint(names[i], &number);
    }
    trpi_names_free(names, count);
    return code;
}

static trp_code check_place(const char *storage, const char *name, trp_error *err) {
    if (!storage || !storage[0] || strstr(storage, "://")) {
        return trpi_fail(err, storage && storage[0] ? TRP_EUNSUPPORTED : TRP_EINVALID,
                         "storage \"%.200s\": a path of the file system is needed",
                         storage ? storage : "");
    }
    if (!name || !name[0] || name[0] == '.' || strchr(name, '/') || strlen(name) > NAME_BYTES_MAX) {
        return trpi_fail(err, TRP_EINVALID,
                         "run name \"%.200s\": one to %d characters, no '/', no '.' at its start",
                         name ? name : "", NAME_BYTES_MAX);
    }
    return TRP_OK;
}

static trp_code enter_mode(const trpi_ckpt_store *store, trpi_ckpt_store_mode mode,
                           bool *ret_existed, trp_error *err) {
    trp_code code = run_exists(store, ret_existed, err);
    if (code) {
        return code;
    }
    if (*ret_existed && mode == TRPI_CKPT_STORE_NEVER) {
        return trpi_fail(err, TRP_EEXISTS, "%s: there is a run already", store->path);
    }
    if (!*ret_existed && mode == TRPI_CKPT_STORE_MUST) {
        return trpi_fail(err, TRP_ENOTFOUND, "%s: there is no run", store->path);
    }
    return trpi_dir_make(store->path, 0755, err);
}

trp_code trpi_ckpt_store_open(const char *storage, const char *name, trpi_ckpt_store_mode mode,
                              trpi_ckpt_store **ret_store, bool *ret_existed, trp_error *err) {
    trp_buf path = {0};
    bool existed = false;
    trpi_ckpt_store *store = NULL;
    trp_code code = check_place(storage, name, err);
    if (!code) {
        code = trpi_ckpt_store_path_set(&path, err, "%s/%s", storage, name);
    }
    if (!code) {
        code = new_store((const char *)path.data, &store, err);
    }
    if (!code) {
        code = enter_mode(store, mode, &existed, err);
    }
    trp_buf_release(&path);
    if (code) {
        trpi_ckpt_store_close(store);
        return code;
    }
    if (ret_existed) {
        *ret_existed = existed;
    }
    *ret_store = store;
    return TRP_OK;
}

trp_code trpi_ckpt_store_open_path(const char *path, trpi_ckpt_store **ret_store, trp_error *err) {
    bool existed = false;
    trpi_ckpt_store *store = NULL;
    trp_code code = new_store(path, &store, err);
    if (!code) {
        code = enter_mode(store, TRPI_CKPT_STORE_MUST, &existed, err);
    }
    if (code) {
        trpi_ckpt_store_close(store);
        return code;
    }
    *ret_store = store;
    return TRP_OK;
}

/* ---- Records ---- */

trp_code trpi_ckpt_store_write_record(trpi_ckpt_store *store, trp_bytes json, trp_error *err) {
    trp_buf path = {0};
    trp_code code = trpi_ckpt_store_path_set(&path, err, "%s/%s", store->path, RECORD_NAME);
    if (!code) {
        code = trpi_file_write_atomic((const char *)path.data, json, err);
    }
    trp_buf_release(&path);
    return code;
}

trp_code trpi_ckpt_store_read_record(const trpi_ckpt_store *store, trp_buf *out, trp_error *err) {
    trp_buf path = {0};
    trp_code code = trpi_ckpt_store_path_set(&path, err, "%s/%s", store->path, RECORD_NAME);
    if (!code) {
        code = trpi_file_read((const char *)path.data, RECORD_BYTES_MAX, out, err);
    }
    trp_buf_release(&path);
    return code;
}

/* Where the last whole line ends. Returns 0 or errno. */
static int whole_lines(int fd, off_t size, off_t *ret_end) {
    char piece[4096];
    while (size > 0) {
        size_t bytes = (size_t)TRPI_MIN(size, (off_t)sizeof piece);
        ssize_t got = pread(fd, piece, bytes, size - (off_t)bytes);
        if (got != (ssize_t)bytes) {
            return got < 0 ? errno : EIO;
        }
        const char *newline = memrchr(piece, '\n', bytes);
        if (newline) {
            *ret_end = size - (off_t)bytes + (newline - piece) + 1;
            return 0;
        }
        size -= (off_t)bytes;
    }
    *ret_end = 0;
    return 0;
}

/* Cuts a torn line off, adds the new one; one that does not fit is taken back. Returns 0 or errno.
 */
static int append_line(int fd, trp_bytes line, bool durable) {
    struct stat st;
    off_t end = 0;
    struct iovec parts[2] = {{(void *)line.data, line.size}, {(void *)"\n", 1}};
    if (fstat(fd, &st) != 0) {
        return errno;
    }
    int failed = whole_lines(fd, st.st_size, &end);
    if (!failed && end != st.st_size && ftruncate(fd, end) != 0) {
        failed = errno;
    }
    if (failed) {
        return failed;
    }
    ssize_t done = pwritev(fd, parts, 2, end);
    if (done != (ssize_t)line.size + 1) {
        failed = done < 0 ? errno : ENOSPC;
        return ftruncate(fd, end) != 0 ? errno : failed;
    }
    return durable && fsync(fd) != 0 ? errno : 0;
}

trp_code trpi_ckpt_store_append_metrics(trpi_ckpt_store *store, trp_bytes line, bool durable,
                                        trp_error *err) {
    trp_buf path = {0};
    if (line.size > 0 && memchr(line.data, '\n', line.size)) {
        return trpi_fail(err, TRP_EINVALID, "a line of metrics holds a newline");
    }
    trp_code code = trpi_ckpt_store_path_set(&path, err, "%s/%s", store->path, METRICS_NAME);
    if (code) {
        return code;
    }
    int fd = open((const char *)path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    int failed = fd < 0 ? errno : append_line(fd, line, durable);
    if (fd >= 0) {
        close(fd);
    }
    if (failed) {
        code = trpi_fail(err, TRP_EIO, "%s: %s", (const char *)path.data, strerror(failed));
    }
    trp_buf_release(&path);
    return code;
}

/* ---- What is there ---- */

void trpi_checkpoints_free(trpi_checkpoint *checkpoints, size_t count) {
    for (size_t i = 0; checkpoints && i < count; i++) {
        free(checkpoints[i].path);
        trpi_manifest_release(&checkpoints[i].manifest);
    }
    free(checkpoints);
}

/* This process is at its end of memory or descriptors, which says nothing about a checkpoint: to
 * take an older one for that would lose work. */
static bool is_our_trouble(trp_code code) {
    return code == TRP_ENOMEM || code == TRP_EBUSY;
}

/* Reads the manifest. What is wrong with it goes into the checkpoint, not to the caller. */
static trp_code read_checkpoint(const trpi_ckpt_store *store, const char *name, uint64_t number,
                                trpi_checkpoint *out, trp_error *err) {
    trp_error *damage = &out->damage;
    out->number = number;
    if (asprintf(&out->path, "%s/%s", store->path, name) < 0) {
        out->path = NULL;
        return trpi_fail(err, TRP_ENOMEM, "%s", name);
    }
    trp_code code = trpi_manifest_read(out->path, &out->manifest, damage);
    if (is_our_trouble(code)) {
        return trpi_fail(err, code, "%s", damage->message);
    }
    if (!code && out->manifest.number != number) {
        trpi_fail(damage, TRP_ECORRUPT, "%s: its manifest is that of checkpoint %" PRIu64,
                  out->path, out->manifest.number);
        trpi_manifest_release(&out->manifest);
    } else if (code == TRP_ENOTFOUND) {
        trpi_fail(damage, TRP_ECORRUPT, "%s: has no %s", out->path, TRPI_MANIFEST_NAME);
    }
    return TRP_OK;
}

static int compare_numbers(const void *a, const void *b) {
    uint64_t x = ((const trpi_checkpoint *)a)->number, y = ((const trpi_checkpoint *)b)->number;
    return x < y ? -1 : x > y;
}

trp_code trpi_ckpt_store_list(const trpi_ckpt_store *store, trpi_checkpoint **ret_checkpoints,
                              size_t *ret_count, trp_error *err) {
    char **names = NULL;
    size_t name_count = 0, count = 0;
    uint64_t number;
    trp_code code = trpi_dir_list(store->path, &names, &name_count, err);
    if (code) {
        return code;
    }
    trpi_checkpoint *found = calloc(name_count + 1, sizeof *found);
    if (!found) {
        code = trpi_fail(err, TRP_ENOMEM, "%s", store->path);
    }
    for (size_t i = 0; !code && i < name_count; i++) {
        if (trpi_ckpt_store_is_checkpoint(names[i], &number)) {
            code = read_checkpoint(store, names[i], number, &found[count++], err);
        }
    }
    trpi_names_free(names, name_count);
    if (code) {
        trpi_checkpoints_free(found, count);
        return code;
    }
    /* By number: above 999999 the names do not sort. */
    qsort(found, count, sizeof *found, compare_numbers);
    *ret_checkpoints = found;
    *ret_count = count;
    return TRP_OK;
}

/* The last of `count` that verifies goes to *ret_checkpoint, and leaves an empty place behind. */
static trp_code pick_newest(trpi_checkpoint *all, size_t count, trpi_verify depth,
                            trpi_damaged_fn damaged, void *arg, trpi_checkpoint *ret_checkpoint,
                            trp_error *err) {
    for (size_t i = count; i-- > 0;) {
        trpi_checkpoint *c = &all[i];
        trp_code code = c->damage.code;
        if (!code) {
            code = trpi_manifest_verify(&c->manifest, c->path, depth, &c->damage);
        }
        if (!code) {
            *ret_checkpoint = *c;
            *c = (trpi_checkpoint){0};
            return TRP_OK;
        }
        if (is_our_trouble(code) || !damaged) {
            return trpi_fail(err, is_our_trouble(code) ? code : TRP_ECORRUPT, "%s",
                             c->damage.message);
        }
        damaged(arg, c->number, c->path, &c->damage);
    }
    return trpi_fail(err, TRP_ECORRUPT, "all %zu checkpoints are damaged", count);
}

trp_code trpi_ckpt_store_newest(const trpi_ckpt_store *store, trpi_verify depth,
                                trpi_damaged_fn damaged, void *arg,
                                trpi_checkpoint **ret_checkpoint, trp_error *err) {
    trpi_checkpoint *all = NULL, *newest = NULL;
    size_t count = 0;
    trp_code code = trpi_ckpt_store_list(store, &all, &count, err);
    if (code) {
        return code;
    }
    if (count == 0) {
        code = trpi_fail(err, TRP_ENOTFOUND, "%s: has no checkpoint", store->path);
    } else if (!(newest = calloc(1, sizeof *newest))) {
        code = trpi_fail(err, TRP_ENOMEM, "%s", store->path);
    } else {
        code = pick_newest(all, count, depth, damaged, arg, newest, err);
    }
    trpi_checkpoints_free(all, count);
    if (code) {
        free(newest);
        return code;
    }
    *ret_checkpoint = newest;
    return TRP_OK;
}

trp_code trpi_ckpt_store_next_number(const trpi_ckpt_store *store, uint64_t *ret_number,
                                     trp_error *err) {
    char **names = NULL;
    size_t count = 0;
    uint64_t number, last = 0;
    bool any = false;
    trp_code code =
        trpi_ckpt_store_read_number(store->path, TRPI_CKPT_STORE_LAST_NUMBER, &any, &last, err);
    if (code) {
        return code;
    }
    code = trpi_dir_list(store->path, &names, &count, err);
    for (size_t i = 0; !code && i < count; i++) {
        if (trpi_ckpt_store_is_checkpoint(names[i], &number)) {
            last = any ? TRPI_MAX(last, number) : number;
            any = true;
        }
    }
    trpi_names_free(names, count);
    if (!code) {
        *ret_number = any ? last + 1 : 0;
    }
    return code;
}
